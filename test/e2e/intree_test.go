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
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
	"github.com/lease-coordinator/coordinator/test/e2e/compatibility"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

const inTreeLock = v1alpha1.InTreeLockNamespace + "/" + v1alpha1.InTreeLockName

// waitInTree waits until a kube-apiserver's own coordinator holds its lock.
func waitInTree(ctx context.Context, t testing.TB, cluster *framework.Cluster, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := framework.WaitFor(ctx, "the in-tree coordinator holds its lock", func(ctx context.Context) (bool, error) {
		var lock coordinationv1.Lease
		key := types.NamespacedName{Namespace: v1alpha1.InTreeLockNamespace, Name: v1alpha1.InTreeLockName}
		if err := cluster.Client().Get(ctx, key, &lock); err != nil {
			return false, nil
		}
		holder := lock.Spec.HolderIdentity
		return holder != nil && *holder != "" && !strings.HasPrefix(*holder, v1alpha1.CoordinatorIdentityPrefix), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// activations returns when the coordinator became the active one, by its own word.
func activations(t testing.TB, c *framework.Coordinator) []time.Time {
	t.Helper()
	var at []time.Time
	for _, line := range c.LogLines(`"Coordinator active"`) {
		var said struct {
			TS time.Time `json:"ts"`
		}
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			t.Fatalf("reading %q: %v", line, err)
		}
		at = append(at, said.TS)
	}
	return at
}

// coordinating returns what coordinators, in-tree or ours, wrote to a lease or to its candidates.
func (a *arena) coordinating(lease string) []framework.Event {
	return a.rec.Timeline().Filter(func(e framework.Event) bool {
		return e.Lease == lease && e.Writer != "" &&
			(e.WriterKind == framework.CoordinatorKind || e.WriterKind == framework.APIServerKind)
	})
}

// With --in-tree=yield the in-tree coordinator keeps the leases of its own strategy for as long as it is there, and
// not a moment longer; those of our strategies are ours beside it; those of anybody else's are nobody's business.
func TestInTreeYield(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{CoordinatedLeaderElection: true})
	waitInTree(t.Context(), t, cluster, patience)
	coordinator := startCoordinators(t, t.Context(), cluster.Nodes[0], 1, "--in-tree=yield")[0]
	a := newArenaOn(t, cluster)
	oldest, newest, foreign := a.ns+"/oldest", a.ns+"/newest", a.ns+"/foreign"
	// A candidate outlives the restart of the kube-apiserver, whether or not its leadership does.
	asks := func(s, binary string) func(*framework.CandidateOptions) {
		return func(o *framework.CandidateOptions) { o.Strategy, o.BinaryVersion = s, binary }
	}
	ours := string(strategy.NewestBinaryVersion{}.Name())

	a.lease = foreign
	a.candidate("f1", "1.36", rejoin, asks("example.com/Other", "1.37.0"))
	a.candidate("f2", "1.36", rejoin, asks("example.com/Other", "1.36.0"))
	a.lease = newest
	a.candidate("b36", "1.36", rejoin, asks(ours, "1.36.0"))
	a.lease = oldest
	n36 := a.candidate("n36", "1.36", rejoin)
	a.waitLeader("n36", patience)
	a.candidate("n37", "1.37", rejoin)
	a.lease = newest
	a.waitLeader("b36", patience)
	a.candidate("b37", "1.36", rejoin, asks(ours, "1.37.0"))
	a.waitLeader("b37", patience)
	a.notWrittenByCoordinators(poll)
	a.tells(compatibility.Yield, compatibility.ClientGo)

	yielded := a.coordinating(oldest)
	if len(yielded) == 0 {
		t.Error("the in-tree coordinator wrote nothing")
	}
	for _, e := range slices.Concat(yielded, a.coordinating(foreign)) {
		if e.WriterKind != framework.APIServerKind {
			t.Errorf("%s wrote beside the in-tree coordinator: %s %s %s", e.Writer, e.Object, e.Kind, e.Detail)
		}
	}
	for _, e := range a.rec.Timeline().Of(newest, framework.LeaseAppointed, framework.LeasePreferred) {
		if e.WriterKind != framework.CoordinatorKind {
			t.Errorf("%s named a holder by a strategy that is ours: %s", e.Writer, e.Detail)
		}
	}

	a.rec.Mark("the in-tree coordinator goes away")
	restarted := time.Now()
	a.must(cluster.Nodes[0].APIServer.Reconfigure(a.ctx, func(o *framework.Options) { o.CoordinatedLeaderElection = false }))
	t.Logf("kube-apiserver restarted in %s", time.Since(restarted).Round(time.Millisecond))
	a.lease = oldest
	a.must(n36.Kill(a.ctx))
	// Its claim on its lock must run out, and then that of n36.
	a.waitLeader("n37", leaseDuration+failover)
	a.candidate("n35", "1.35", rejoin)
	a.waitLeader("n35", patience)
	a.lease = newest
	if leader, ok := a.rec.Timeline().Leader(newest); !ok || leader.Identity != "b37" {
		t.Errorf("leader of %s = %v after the restart", newest, leader)
	}
	for _, e := range a.coordinating(foreign) {
		if e.WriterKind == framework.CoordinatorKind {
			t.Errorf("%s wrote a lease whose strategy is not ours: %s %s", e.Writer, e.Object, e.Kind)
		}
	}
	if leader, ok := a.rec.Timeline().Leader(foreign); ok {
		t.Errorf("%s leads although nobody implements its strategy", leader)
	}
	if failed, _, err := coordinator.Metric(a.ctx, "coordinated_leader_election_failures_total", map[string]string{"reason": "forbidden"}); err != nil || failed != 0 {
		t.Errorf("%v writes were forbidden, %v", failed, err)
	}
	for _, lease := range []string{oldest, newest, foreign} {
		a.lease = lease
		a.safe()
	}
}

// With --in-tree=replace exactly one coordinator, in-tree or ours, is ever active, and the in-tree one is the standby
// of last resort.
func TestInTreeReplace(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{CoordinatedLeaderElection: true})
	waitInTree(t.Context(), t, cluster, patience)
	a := newArenaOn(t, cluster)
	lock, err := cluster.Record(a.ctx, framework.RecorderOptions{Namespaces: []string{v1alpha1.InTreeLockNamespace}})
	a.must(err)

	// Each term ends by a release, so that each phase has its election.
	names := []string{"c1", "c2", "c3", "c4", "c5", "c6"}
	candidates := map[string]*framework.Candidate{}
	for i, name := range names {
		// The in-tree coordinator has no order for equals that were created within one second, and prefers now the one,
		// now the other, so that neither takes up.
		candidates[name] = a.candidate(name, fmt.Sprintf("1.%d", 31+i), func(o *framework.CandidateOptions) { o.ReleaseOnCancel, o.Rejoin = true, true })
		a.waitCandidate(name)
	}
	// elect ends the present term and returns who held the next election.
	elect := func() string {
		a.Helper()
		// The in-tree coordinator may just be about to replace its own choice by an equal candidate, and may choose
		// one that is dead, several times.
		ctx, cancel := context.WithTimeout(a.ctx, 2*patience)
		defer cancel()
		present, err := a.rec.WaitForLeader(ctx, a.lease, nil)
		a.must(err)
		ended := time.Now()
		a.must(candidates[present.Identity].Stop(a.ctx))
		next, err := a.rec.WaitForLeader(ctx, a.lease, func(term framework.Term) bool { return term.Identity != present.Identity })
		a.must(err)
		t.Logf("%s leads %s after %s was told to end", next.Identity, next.Start.Sub(ended).Round(time.Millisecond), present.Identity)
		appointments := a.rec.Timeline().Of(a.lease, framework.LeaseAppointed)
		return appointments[len(appointments)-1].Writer
	}
	inTree := cluster.Nodes[0].APIServer.Name()

	if by := elect(); by != inTree {
		t.Errorf("before ours are there, %s elects", by)
	}

	a.rec.Mark("two of ours come")
	coordinators := startCoordinators(t, a.ctx, cluster.Nodes[0], 2, "--in-tree=replace")
	active := waitActive(t, a.ctx, coordinators...)
	if by := elect(); by != active.Name() {
		t.Errorf("%s elects, not %s, which is active", by, active.Name())
	}

	a.rec.Mark("the active one is told to end")
	ended := time.Now()
	a.must(active.Stop(a.ctx))
	standby := coordinators[0]
	if standby == active {
		standby = coordinators[1]
	}
	// Whoever was first, ours is active in the end: it takes the lock from the in-tree coordinator at once.
	waitActive(t, a.ctx, standby)
	t.Logf("%s is active %s after %s was told to end", standby.Name(), time.Since(ended).Round(time.Millisecond), active.Name())
	if by := elect(); by != standby.Name() {
		t.Errorf("%s elects, not %s, which is active", by, standby.Name())
	}

	a.rec.Mark("all of ours are killed")
	killed := time.Now()
	a.must(standby.Kill(a.ctx))
	// The claim of ours must run out, and the in-tree coordinator looks every 2 s.
	waitInTree(a.ctx, t, cluster, 18*time.Second+slack)
	t.Logf("the in-tree coordinator is back %s after ours was killed", time.Since(killed).Round(time.Millisecond))
	if by := elect(); by != inTree {
		t.Errorf("after ours are gone, %s elects", by)
	}

	a.rec.Mark("one of ours comes back")
	a.must(standby.StartAgain(a.ctx))
	waitActive(t, a.ctx, standby)
	if by := elect(); by != standby.Name() {
		t.Errorf("%s elects, not %s, which is active", by, standby.Name())
	}

	a.safe()
	a.oneCoordinatorAtATime(lock, inTree, coordinators)
}

// oneCoordinatorAtATime asserts that no coordinator wrote to the arena's lease or its candidates while another was
// active: ours from its word that it is until it released the lock or ended, the in-tree one whenever it held the lock
// and for its renew deadline after that.
func (a *arena) oneCoordinatorAtATime(lock *framework.Recorder, inTree string, coordinators []*framework.Coordinator) {
	a.Helper()
	writes := a.coordinating(a.lease)
	var order []string
	for i, e := range writes {
		if i == 0 || writes[i-1].Writer != e.Writer {
			order = append(order, e.Writer)
		}
	}
	a.Logf("coordinators that wrote, in turn: %s", strings.Join(order, ", "))

	for _, c := range coordinators {
		for _, from := range activations(a, c) {
			end := time.Now()
			for _, e := range lock.Timeline().Events {
				released := e.Kind == framework.LeaseReleased && e.Lease == inTreeLock && e.Writer == c.Name()
				exited := e.Kind == framework.ProcessExited && e.Process.Name == c.Name()
				if (released || exited) && e.Time.After(from) {
					end = e.Time
					break
				}
			}
			for _, e := range writes {
				if e.Writer != c.Name() && e.Time.After(from) && e.Time.Before(end) {
					a.Errorf("%s wrote while %s was active: %s %s", e.Writer, c.Name(), e.Kind, e.Detail)
				}
			}
		}
		for _, e := range writes {
			if e.Writer == c.Name() && !slices.ContainsFunc(activations(a, c), func(at time.Time) bool { return at.Before(e.Time) }) {
				a.Errorf("%s wrote before it was active: %s %s", c.Name(), e.Kind, e.Detail)
			}
		}
	}
	// Every write of the in-tree coordinator was made under a claim of its own on the lock.
	for _, e := range writes {
		if e.Writer != inTree {
			continue
		}
		// It held the lock when the recording began.
		var renewed time.Time
		for _, seen := range lock.Timeline().Of(inTreeLock, framework.LeaseSeen) {
			renewed = seen.Time
		}
		for _, held := range lock.Timeline().WritesTo(inTreeLock) {
			if held.Writer == inTree && !held.Time.After(e.Time) {
				renewed = held.Time
			}
		}
		if e.Time.Sub(renewed) > leaseDuration {
			a.Errorf("the in-tree coordinator wrote %s after it last held its lock: %s %s", e.Time.Sub(renewed), e.Kind, e.Detail)
		}
	}
}
