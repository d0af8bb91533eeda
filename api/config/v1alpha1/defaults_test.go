// Copyright The lease-coordinator Authors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//	http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.
package v1alpha1

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func TestDefaults(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	got := &CoordinatorConfiguration{}
	scheme.Default(got)
	want := &CoordinatorConfiguration{
		LeaderElection: LeaderElectionConfiguration{
			LeaderElect: ptr.To(true), ResourceName: "lease-coordinator",
			LeaseDuration: duration(15 * time.Second), RenewDeadline: duration(10 * time.Second), RetryPeriod: duration(2 * time.Second),
		},
		InTree:     InTreeYield,
		Election:   ElectionConfiguration{ElectionDuration: duration(5 * time.Second), CandidateTTL: duration(30 * time.Minute)},
		Strategies: []string{"*"},
		Metrics:    MetricsConfiguration{BindAddress: ":8443", Secure: ptr.To(true)},
		Health:     HealthConfiguration{BindAddress: ":8081"},
		Logging:    LoggingConfiguration{Format: "text"},
	}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// What is set stays, also where it is the zero value of a field whose default is another.
func TestDefaultsLeaveWhatIsSet(t *testing.T) {
	set := &CoordinatorConfiguration{
		ClientConnection: ClientConnectionConfiguration{Kubeconfig: "k", QPS: 1, Burst: 2},
		LeaderElection: LeaderElectionConfiguration{
			LeaderElect: ptr.To(false), ResourceNamespace: "ns", ResourceName: "n",
			LeaseDuration: duration(0), RenewDeadline: duration(0), RetryPeriod: duration(0),
		},
		InTree: InTreeReplace, DryRun: true,
		Election: ElectionConfiguration{
			ElectionDuration: duration(0), CandidateTTL: duration(0),
			TakeUpTimeout: metav1.Duration{Duration: 1}, MinTerm: metav1.Duration{Duration: 1},
		},
		Strategies:       []string{"a"},
		LeaseStrategies:  []LeaseStrategy{{Lease: "l", Strategy: "a"}},
		CustomStrategies: []CustomStrategy{{Name: "a", Eligible: "true", Prefer: []string{"1"}}},
		Metrics:          MetricsConfiguration{BindAddress: "0", Secure: ptr.To(false)},
		Health:           HealthConfiguration{BindAddress: "0"},
		Logging:          LoggingConfiguration{Format: "json", Verbosity: 1},
	}
	got := set.DeepCopy()
	SetDefaults(got)
	if !equality.Semantic.DeepEqual(got, set) {
		t.Errorf("got %+v\nwant %+v", got, set)
	}
}
