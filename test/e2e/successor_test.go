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

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// forbidPreemption keeps the coordinator from ending the holder's term until the returned function is called.
func (a *arena) forbidPreemption() (allow func()) {
	a.Helper()
	a.change(func(l *coordinationv1.Lease) {
		if l.Annotations == nil {
			l.Annotations = map[string]string{}
		}
		l.Annotations[v1alpha1.PreemptionAnnotation] = v1alpha1.PreemptionNever
	})
	return func() {
		a.Helper()
		a.change(func(l *coordinationv1.Lease) { delete(l.Annotations, v1alpha1.PreemptionAnnotation) })
	}
}

// A better candidate that died before the leader's term was ended is asked for a sign of life, once, and then no
// longer counts: the leader never stops.
func TestSuccessorDiesBeforeEndOfTerm(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.candidate("n37", "1.37")
		leader := a.waitLeader("n37", patience)
		allow := a.forbidPreemption()
		dead := a.candidate("n36", "1.36")
		a.waitCandidate("n36")
		a.must(dead.Kill(a.ctx))
		// By now its registration no longer counts as a sign of life.
		a.observe(6 * time.Second)
		allow()
		a.observe(leaseDuration)

		if pings := a.rec.Timeline().Pings(a.ns, "n36"); len(pings) != 1 {
			t.Errorf("the dead candidate was pinged %d times, want once", len(pings))
		}
		if now, ok := a.rec.Timeline().Leader(a.lease); !ok || !now.Start.Equal(leader.Start) {
			t.Errorf("the leader's term was disturbed: leaders %v", a.leaders())
		}
		if n := len(a.rec.Timeline().Of(a.lease, framework.LeasePreferred, framework.LeaseRevoked)); n != 0 {
			t.Errorf("the leader was told %d times to yield to a dead candidate", n)
		}
	})
}

// A candidate that dies after the leader was told to yield to it is not waited for: the next best leads as soon as
// the leader's claim has run out.
func TestSuccessorDiesAfterEndOfTerm(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.candidate("n37", "1.37")
		a.waitLeader("n37", patience)
		allow := a.forbidPreemption()
		a.candidate("n36", "1.36")
		best := a.candidate("n35", "1.35")
		a.waitCandidate("n36")
		a.waitCandidate("n35")
		start := time.Now()
		allow()
		ended := framework.LeasePreferred
		if flavour == framework.GateOff {
			ended = framework.LeaseRevoked
		}
		told := a.waitEvent(ended, "", start, patience)
		a.must(best.Kill(a.ctx))
		term := a.waitLeader("n36", failover)
		t.Logf("n36 leads %s after the end of n37's term was written", term.Start.Sub(told.Time).Round(time.Millisecond))
		a.safe()
		// n37 works for up to its renew deadline after its last renewal; then nobody does until its claim is over.
		a.longestGap(leaseDuration - renewDeadline + poll + slack)
	})
}

// Candidates that died long ago and rank above the leader cost one ping each and nothing else, until they return.
func TestDeadBetterCandidates(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.candidate("n37", "1.37")
		leader := a.waitLeader("n37", patience)
		allow := a.forbidPreemption()
		names := []string{"dead-a", "dead-b", "dead-c"}
		for _, name := range names {
			dead := a.candidate(name, "1.36")
			a.waitCandidate(name)
			a.must(dead.Kill(a.ctx))
		}
		a.observe(6 * time.Second)
		allow()
		a.waitEvent(framework.CandidatePinged, names[0], leader.Start, patience)
		quiet := time.Now()
		a.observe(2 * leaseDuration)

		timeline := a.rec.Timeline()
		for _, name := range names {
			if n := len(timeline.Pings(a.ns, name)); n != 1 {
				t.Errorf("%s was pinged %d times, want once", name, n)
			}
		}
		for _, e := range timeline.ByCoordinators() {
			if e.Time.After(quiet.Add(time.Second)) && e.Kind != framework.CandidatePinged {
				t.Errorf("a write that nothing called for: %v", e)
			}
		}
		if now, ok := timeline.Leader(a.lease); !ok || !now.Start.Equal(leader.Start) {
			t.Errorf("the leader's term was disturbed: leaders %v", a.leaders())
		}

		// One of them returns, under the same name: it leads.
		a.candidate(names[1], "1.36")
		a.waitLeader(names[1], patience)
		a.safe()
	})
}
