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
	"context"
	"testing"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// The active coordinator is killed in the middle of an election: after it has pinged, before it could appoint. A
// standby has observed all along; without one, the coordinator that is started again knows nothing.
func TestCoordinatorKilledInElection(t *testing.T) {
	t.Parallel()
	for name, standby := range map[string]bool{"standby": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := framework.New(t, framework.Options{})
			number := 1
			if standby {
				number = 2
			}
			coordinators := startCoordinators(t, t.Context(), cluster.Nodes[0], number)
			a := newArenaOn(t, cluster)
			leader := a.candidate("n36", "1.36")
			a.waitLeader("n36", patience)
			a.candidate("n37", "1.37")
			a.waitCandidate("n37")
			a.observe(6 * time.Second)

			a.must(leader.Kill(a.ctx))
			killed := time.Now()
			a.waitEvent(framework.CandidatePinged, "n37", killed, patience)
			active := waitActive(t, a.ctx, coordinators...)
			a.must(active.Kill(a.ctx))
			limit := failover
			if standby {
				// Its claim on the coordinators' lock must run out first. It has seen the leader's claim begin.
				limit += leaseDuration
			} else {
				// It takes its own lock when that claim has run out, and honours the dead leader's in full.
				a.must(active.StartAgain(a.ctx))
				limit += 2 * leaseDuration
			}
			a.waitLeader("n37", limit)
			pings := a.rec.Timeline().Pings(a.ns, "n37")
			extra := 0
			for _, p := range pings {
				if p.Time.After(killed) {
					extra++
				}
			}
			if extra > 3 {
				t.Errorf("n37 was pinged %d times for one election", extra)
			}
			a.safe()
			a.longestGap(limit)
		})
	}
}

// The only kube-apiserver is restarted: nobody loses anything, and what happens afterwards is seen.
func TestAPIServerRestarted(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		// A busy machine can take longer to restart it than the usual renew deadline.
		a := newOutageArena(t, flavour, func(o *framework.CandidateOptions) {
			o.LeaseDuration, o.RenewDeadline = 40*time.Second, 30*time.Second
		})
		leader, ok := a.rec.Timeline().Leader(a.lease)
		a.must(a.node.APIServer.Restart(a.ctx, ""))
		a.observe(leaseDuration)
		if now, still := a.rec.Timeline().Leader(a.lease); !ok || !still || !now.Start.Equal(leader.Start) {
			t.Errorf("the leader's term was disturbed: leaders %v", a.leaders())
		}
		a.candidate("n35", "1.35")
		a.waitLeader("n35", patience)
		a.safe()
	})
}

// etcd hangs for 8 s, less than a renew deadline: leadership is kept. Then for 20 s, more than a lease: every leader
// stops before its claim runs out, and one leads again soon after etcd is back.
func TestStorageOutage(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newOutageArena(t, flavour)
		leader, _ := a.rec.Timeline().Leader(a.lease)
		a.outage(8 * time.Second)
		a.observe(leaseDuration)
		if now, ok := a.rec.Timeline().Leader(a.lease); !ok || !now.Start.Equal(leader.Start) {
			t.Errorf("an outage of 8 s ended the leader's term: leaders %v", a.leaders())
		}
		a.outage(20 * time.Second)
		back := time.Now()
		// Whatever is still known of claims and of locks has to run out once more, at most.
		ctx, cancel := context.WithTimeout(a.ctx, failover+leaseDuration)
		defer cancel()
		term, err := a.rec.WaitForLeader(ctx, a.lease, func(t framework.Term) bool { return t.Start.After(back) || t.Ongoing })
		a.must(err)
		t.Logf("%s leads %s after the outage", term.Identity, term.Start.Sub(back).Round(time.Millisecond))
		a.safe()
	})
}

func (a *arena) outage(d time.Duration) {
	a.Helper()
	a.rec.Mark("etcd hangs for %s", d)
	a.must(a.cluster.Etcd.Freeze(a.ctx))
	a.observe(d)
	a.must(a.cluster.Etcd.Thaw())
	a.rec.Mark("etcd is back")
}

// newOutageArena returns an arena on a cluster of its own, with a coordinator and a standby, a leader n36 and a
// candidate n37, both of which compete again after a loss.
func newOutageArena(t *testing.T, flavour framework.Flavour, change ...func(*framework.CandidateOptions)) *arena {
	t.Helper()
	cluster := framework.New(t, framework.Options{CoordinatedLeaderElection: flavour == framework.GateOn})
	startCoordinators(t, t.Context(), cluster.Nodes[0], 2, coordinatorArgs(flavour)...)
	a := newArenaOn(t, cluster)
	change = append(change, func(o *framework.CandidateOptions) { o.Rejoin = true })
	a.candidate("n36", "1.36", change...)
	a.waitLeader("n36", patience)
	a.candidate("n37", "1.37", change...)
	a.waitCandidate("n37")
	return a
}
