// Copyright The lease-coordinator Authors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SetDefaults sets what is not set. It is the one home of the coordinator's defaults, those of its flags included.
func SetDefaults(c *CoordinatorConfiguration) {
	l := &c.LeaderElection
	fill(&l.LeaderElect, true)
	fill(&l.LeaseDuration, metav1.Duration{Duration: 15 * time.Second})
	fill(&l.RenewDeadline, metav1.Duration{Duration: 10 * time.Second})
	fill(&l.RetryPeriod, metav1.Duration{Duration: 2 * time.Second})
	if l.ResourceName == "" {
		l.ResourceName = "lease-coordinator"
	}
	if c.InTree == "" {
		c.InTree = InTreeYield
	}
	// As in-tree.
	fill(&c.Election.ElectionDuration, metav1.Duration{Duration: 5 * time.Second})
	fill(&c.Election.CandidateTTL, metav1.Duration{Duration: 30 * time.Minute})
	if len(c.Strategies) == 0 {
		c.Strategies = []string{"*"}
	}
	fill(&c.Metrics.Secure, true)
	if c.Metrics.BindAddress == "" {
		c.Metrics.BindAddress = ":8443"
	}
	if c.Health.BindAddress == "" {
		c.Health.BindAddress = ":8081"
	}
	if c.Logging.Format == "" {
		c.Logging.Format = "text"
	}
}

func fill[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
