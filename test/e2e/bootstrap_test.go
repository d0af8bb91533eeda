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

package e2e

import (
	"testing"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// The right one of three candidates leads a lease that did not exist, and the Lease tells the truth about it.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.candidate("n37", "1.37")
		a.candidate("n36", "1.36")
		a.candidate("n35", "1.35")
		term := a.waitLeader("n35", patience)
		takenUp := a.waitEvent(framework.LeaseTakenUp, "n35", term.Start.Add(-poll), patience)
		// Renewals change neither the number of transitions nor the time of the hand-over.
		a.observe(2 * poll)

		appointments := a.rec.Timeline().Of(a.lease, framework.LeaseAppointed)
		lease := a.get()
		if got := lease.Spec.LeaseTransitions; got == nil || int(*got) != len(appointments) {
			t.Errorf("leaseTransitions = %v after %d appointments", got, len(appointments))
		}
		if lease.Spec.AcquireTime == nil || !lease.Spec.AcquireTime.Equal(takenUp.LeaseAfter.Spec.AcquireTime) {
			t.Errorf("acquireTime = %v, want %v as at the hand-over", lease.Spec.AcquireTime, takenUp.LeaseAfter.Spec.AcquireTime)
		}
		if a.token() == 0 {
			t.Error("the fencing token is 0")
		}
		if got := lease.Spec.Strategy; flavour == framework.GateOn && (got == nil || *got != v1alpha1.OldestEmulationVersion) {
			t.Errorf("strategy = %v", got)
		}
		if got := lease.Annotations[v1alpha1.StrategyAnnotation]; flavour == framework.GateOff && got != string(v1alpha1.OldestEmulationVersion) {
			t.Errorf("strategy annotation = %q", got)
		}
		if got := a.leaders(); len(got) != 1 {
			t.Errorf("leaders = %v, want n35 alone: an appointment that nobody took up yet gives way to a better candidate", got)
		}
		a.safe()
	})
}
