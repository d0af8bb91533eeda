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
	"fmt"
	"testing"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/compatibility"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// Real kube-controller-managers and kube-schedulers, through everything that can happen to a leader. A coordinated
// component competes for one fixed Lease, so each flavour has a cluster of its own; the two components go through
// it side by side.
func TestComponents(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		cluster := framework.New(t, framework.Options{CoordinatedLeaderElection: flavour == framework.GateOn})
		startCoordinators(t, t.Context(), cluster.Nodes[0], 1, coordinatorArgs(flavour)...)
		// The group ends when its parallel tests have, and only then the cluster is stopped.
		t.Run("group", func(t *testing.T) {
			for name, start := range map[string]func(*framework.Node) starter{
				"kube-controller-manager": func(n *framework.Node) starter { return n.StartControllerManager },
				"kube-scheduler":          func(n *framework.Node) starter { return n.StartScheduler },
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					a := newArenaOn(t, cluster)
					a.lease = "kube-system/" + name
					a.record("kube-system")
					a.componentStory(start(a.node))
					a.tells(coordinatorOf(flavour), compatibility.Candidates(name))
				})
			}
		})
	})
}

type starter = func(ctx context.Context, o framework.ComponentOptions) (*framework.Component, error)

// componentStory: a newer component leads; an older one joins, crashes, is told to end, freezes.
func (a *arena) componentStory(start starter) {
	component := func(emulation string) *framework.Component {
		a.Helper()
		c, err := start(a.ctx, framework.ComponentOptions{EmulationVersion: emulation})
		a.must(err)
		return c
	}
	leads := func(c *framework.Component, after time.Time, within time.Duration) framework.Term {
		a.Helper()
		return a.waitProcess(c.Process, after, within)
	}

	newer := component("")
	first := leads(newer, time.Time{}, patience)

	a.rec.Mark("an older component joins")
	joined := time.Now()
	older := component("1.36")
	handOff := leads(older, joined, patience)
	a.Logf("planned hand-off: %s leaderless", handOff.Start.Sub(a.rec.Timeline().Handoffs(a.lease)[0].From.End).Round(time.Millisecond))
	if !first.Start.Before(handOff.Start) {
		a.Errorf("terms out of order: %s, %s", first, handOff)
	}

	a.rec.Mark("the leader crashes; its restart, a better candidate, takes over again")
	crashed := time.Now()
	a.must(older.Crash(a.ctx))
	leads(older, crashed, patience)

	a.rec.Mark("the leader is told to end, and is started again")
	ended := time.Now()
	a.must(older.Terminate(a.ctx))
	leads(older, ended, patience)

	a.rec.Mark("the leader freezes for longer than its lease")
	frozen := time.Now()
	a.must(older.Freeze(a.ctx))
	leads(newer, frozen, failover)
	thawed := time.Now()
	a.must(older.Thaw())
	// It believes to lead until it finds that its deadline has passed, exits, and comes back as a better candidate.
	leads(older, thawed, patience)

	for _, o := range a.rec.Timeline().Overlaps(a.lease) {
		// A client-go leader that was frozen past its lease goes on, when it is continued, until its renew
		// deadline has passed once more. Nobody but a receiver that checks fencing tokens can prevent that.
		if !o.Start.Before(thawed.Add(-time.Second)) && o.End.Before(thawed.Add(renewDeadline+slack)) {
			a.Logf("after being frozen, the old leader went on for %s", o.Duration().Round(time.Millisecond))
			continue
		}
		a.Errorf("two leaders of %s at once, for %s: %s and %s", a.lease, o.Duration(), o.A, o.B)
	}
	a.longestGap(failover)
}

// waitProcess waits until the process leads, in a term that began after the given moment.
func (a *arena) waitProcess(p *framework.Process, after time.Time, within time.Duration) framework.Term {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, within)
	defer cancel()
	term, err := a.rec.WaitForLeader(ctx, a.lease, func(t framework.Term) bool {
		return t.Process.Name == p.Name() && !t.Start.Before(after)
	})
	if err != nil {
		a.Fatal(fmt.Errorf("%s does not lead %s within %s: %w", p.Name(), a.lease, within, err))
	}
	return term
}
