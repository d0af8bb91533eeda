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

package checks

import (
	"encoding/json"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// writer returns who wrote a field last, and when by the API server's clock, in whole seconds. The time is that at which
// the manager changed any of its fields.
func writer(managed []metav1.ManagedFieldsEntry, path ...string) (manager string, at time.Time) {
	for _, entry := range managed {
		if entry.Time == nil || entry.FieldsV1 == nil || !entry.Time.After(at) {
			continue
		}
		if owns(entry.FieldsV1.GetRawBytes(), path) {
			manager, at = entry.Manager, entry.Time.Time
		}
	}
	return manager, at
}

func owns(fields []byte, path []string) bool {
	for _, name := range path {
		var of map[string]json.RawMessage
		if err := json.Unmarshal(fields, &of); err != nil {
			return false
		}
		next, found := of["f:"+name]
		if !found {
			return false
		}
		fields = next
	}
	return true
}

// written returns when a stamp was written, by the API server's clock if that is known. Clocks of candidates are not to
// make them look dead.
func written(managed []metav1.ManagedFieldsEntry, stamp time.Time, path ...string) time.Time {
	if _, at := writer(managed, path...); !at.IsZero() && !stamp.IsZero() {
		return at
	}
	return stamp
}

// byServerClock returns the lease with its stamps as of when they were written. The argument is not changed.
func leaseByServerClock(l *coordinationv1.Lease) *coordinationv1.Lease {
	if l == nil || l.Spec.RenewTime == nil {
		return l
	}
	at := written(l.ManagedFields, l.Spec.RenewTime.Time, "spec", "renewTime")
	if at.Equal(l.Spec.RenewTime.Time) {
		return l
	}
	copied := l.DeepCopy()
	renewed := metav1.NewMicroTime(at)
	if l.Spec.AcquireTime != nil {
		// Equal stamps mean that nobody took the lease up, so they stay equal.
		acquired := metav1.NewMicroTime(l.Spec.AcquireTime.Add(at.Sub(l.Spec.RenewTime.Time)))
		copied.Spec.AcquireTime = &acquired
	}
	copied.Spec.RenewTime = &renewed
	return copied
}

// byServerClock returns the candidate with its stamps as of when they were written. The argument is not changed.
func (c Candidate) byServerClock() *strategy.Candidate {
	copied := *c.Candidate
	copied.Renewed = written(c.Managed, c.Renewed, "spec", "renewTime")
	copied.PingTime = written(c.Managed, c.PingTime, "spec", "pingTime")
	return &copied
}

// seconds prints a duration as far as people care for it.
func seconds(d time.Duration) string {
	if d >= 10*time.Second || d <= -10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
