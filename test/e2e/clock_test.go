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

func clockOff(by time.Duration) func(*framework.CandidateOptions) {
	return func(o *framework.CandidateOptions) { o.ClockOffset = by }
}

// A leader whose stamps are a minute behind looks expired at each renewal. A better candidate joins: it leads only
// when the old leader has stopped, and no sooner or later than if the clock were right.
func TestLeaderClockBehind(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.candidate("n37", "1.37", clockOff(-time.Minute))
		a.waitLeader("n37", patience)
		a.observe(leaseDuration)
		if got := a.leaders(); len(got) != 1 {
			t.Errorf("leaders = %v: a clock that is behind is no reason for an election", got)
		}
		a.candidate("n36", "1.36")
		a.waitLeader("n36", failover)
		a.safe()
		a.longestGap(leaseDuration - renewDeadline + poll + slack)
	})
}

// A leader whose stamps are a minute ahead dies: its successor comes when the claim, counted from the last renewal
// that was seen, has run out.
func TestLeaderClockAhead(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		leader := a.candidate("n36", "1.36", clockOff(time.Minute))
		a.waitLeader("n36", patience)
		a.candidate("n37", "1.37")
		a.waitCandidate("n37")
		a.must(leader.Kill(a.ctx))
		a.waitLeader("n37", failover)
		a.safe()
		a.longestGap(failover)
	})
}

// Candidates whose clocks are off answer a ping with one write each: a pingTime by another clock than theirs would
// keep those behind renewing in a loop until they have caught up, and would never reach those ahead.
func TestPingsReachCandidatesWhoseClocksAreOff(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		leader := a.candidate("n35", "1.35")
		a.waitLeader("n35", patience)
		a.candidate("behind", "1.36", clockOff(-time.Minute))
		a.candidate("ahead", "1.36", clockOff(time.Minute))
		a.waitCandidate("behind")
		a.waitCandidate("ahead")
		// By now their registration no longer counts as a sign of life: the failover must ping them.
		a.observe(6 * time.Second)
		a.must(leader.Kill(a.ctx))
		a.observe(leaseDuration + poll)
		timeline := a.rec.Timeline()
		for _, name := range []string{"behind", "ahead"} {
			pings, writes := timeline.Pings(a.ns, name), timeline.WritesToCandidate(a.ns, name)
			// Its creation, the pings, and one answer to each.
			if len(pings) == 0 || len(writes) > 1+2*len(pings) {
				t.Errorf("%s was pinged %d times, and written %d times in all", name, len(pings), len(writes))
			}
		}
		if got, ok := timeline.Leader(a.lease); !ok || got.Identity == "n35" {
			t.Errorf("leader = %v", got)
		}
		a.safe()
		a.longestGap(failover)
	})
}
