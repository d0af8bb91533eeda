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
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

func (a *arena) deleteLease() time.Time {
	a.Helper()
	at := time.Now()
	a.must(a.cluster.Client().Delete(a.ctx, a.get()))
	return at
}

// Deleting the Lease of a live leader changes nothing: it is put back before the leader misses it.
func TestLeaseDeletedUnderLeader(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.candidate("n36", "1.36")
		a.candidate("n37", "1.37")
		leader := a.waitLeader("n36", patience)
		a.waitCandidate("n37")
		before := a.get()
		deleted := a.deleteLease()
		a.waitEvent(framework.LeaseRenewed, "n36", deleted, renewDeadline)
		a.observe(leaseDuration)

		if now, ok := a.rec.Timeline().Leader(a.lease); !ok || !now.Start.Equal(leader.Start) {
			t.Errorf("the leader's term was disturbed: leaders %v", a.leaders())
		}
		after := a.get()
		if *after.Spec.LeaseTransitions != *before.Spec.LeaseTransitions || !after.Spec.AcquireTime.Equal(before.Spec.AcquireTime) {
			t.Errorf("the Lease was not put back as it was: %v, then %v", before.Spec, after.Spec)
		}
		a.safe()
	})
}

// Deleting the Lease in the middle of a hand-off does not let the successor in before the old leader has stopped.
func TestLeaseDeletedInHandOff(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.candidate("n37", "1.37")
		a.waitLeader("n37", patience)
		start := time.Now()
		a.candidate("n36", "1.36")
		ended := framework.LeasePreferred
		if flavour == framework.GateOff {
			ended = framework.LeaseRevoked
		}
		a.waitEvent(ended, "", start, patience)
		// Once the old leader has noticed, and works on until its renew deadline.
		a.observe(5 * time.Second)
		deleted := a.deleteLease()
		a.waitLeader("n36", patience)
		if token := a.token(); token == 0 {
			t.Error("no fencing token after the Lease was re-created")
		}
		t.Logf("n36 leads %s after the Lease was deleted", a.rec.Timeline().Leaders(a.lease)[1].Start.Sub(deleted).Round(time.Millisecond))
		a.safe()
		a.longestGap(leaseDuration - renewDeadline + poll + slack)
	})
}

// The fencing token grows with each term, also when the Lease is deleted while nobody leads.
func TestFencingTokenGrowsAcrossDeletion(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		release := func(o *framework.CandidateOptions) { o.ReleaseOnCancel = true }
		first := a.candidate("n1", "1.36", release)
		a.waitLeader("n1", patience)
		token, transitions := a.token(), *a.get().Spec.LeaseTransitions
		a.must(first.Stop(a.ctx))
		a.must(a.cluster.Client().Delete(a.ctx, a.get()))
		a.candidate("n2", "1.36", release)
		a.waitLeader("n2", patience)
		if now := a.token(); now <= token {
			t.Errorf("the token went from %d to %d", token, now)
		}
		if now := *a.get().Spec.LeaseTransitions; now <= transitions {
			t.Errorf("leaseTransitions went from %d to %d", transitions, now)
		}
		a.safe()
	})
}
