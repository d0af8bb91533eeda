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
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// handOff is what a change of leaders may cost two candidates of pkg/candidate that are both there. They take some ten
// milliseconds, which make bench measures; the rest is for a busy machine that runs other tests. It is less than any poll,
// take-up limit or claim, so that no other way of changing leaders passes for a hand-over.
const handOff = 2 * time.Second

// worker starts a candidate of pkg/candidate for a.lease. emulation is "1.36", say.
func (a *arena) worker(name, emulation string, change ...func(*framework.WorkerOptions)) *framework.Candidate {
	a.Helper()
	namespace, lease, _ := strings.Cut(a.lease, "/")
	options := framework.WorkerOptions{Namespace: namespace, Lease: lease, Name: name, EmulationVersion: emulation + ".0"}
	for _, c := range change {
		c(&options)
	}
	w, err := a.node.StartWorker(a.ctx, options)
	a.must(err)
	a.endWithTest(w)
	return w
}

func (a *arena) allowWorkers() {
	a.Helper()
	namespace, lease, _ := strings.Cut(a.lease, "/")
	a.must(a.cluster.AllowWorkers(a.ctx, namespace, lease))
}

// handedOff returns the last change of leaders, which was to that identity.
func (a *arena) handedOff(to string) framework.Handoff {
	a.Helper()
	changes := a.rec.Timeline().Handoffs(a.lease)
	if len(changes) == 0 || changes[len(changes)-1].To.Identity != to {
		a.Fatalf("no hand-off to %s: leaders %v", to, a.leaders())
	}
	return changes[len(changes)-1]
}

// alternated asserts, by the workers' own stamps of the machine's clock, that no two worked at once.
func (a *arena) alternated(workers ...*framework.Candidate) {
	a.Helper()
	spans, err := framework.Work(workers...)
	a.must(err)
	for _, o := range framework.WorkOverlaps(spans) {
		a.Errorf("%s worked at once for %s", o.Identity, o.Duration())
	}
}

// Candidates of pkg/candidate through a life: first election, planned hand-offs in both directions, an exit, a crash.
func TestLibrary(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.allowWorkers()
		began := time.Now()
		n37 := a.worker("n37", "1.37")
		first := a.waitLeader("n37", patience)
		registered := a.rec.Timeline().WritesToCandidate(a.ns, "n37")[0].Time
		t.Logf("first election: %s after registration, %s after the start of the process",
			first.Start.Sub(registered).Round(time.Millisecond), first.Start.Sub(began).Round(time.Millisecond))

		// Hand-offs: whoever is of the lower version leads, and n36 comes and goes.
		var gaps []string
		workers := []*framework.Candidate{n37}
		for round := range 5 {
			n36 := a.worker("n36", "1.36", func(o *framework.WorkerOptions) { o.Drain = 200 * time.Millisecond })
			workers = append(workers, n36)
			joined := time.Now()
			a.waitLeader("n36", patience)
			to := a.handedOff("n36")
			gaps = append(gaps, fmt.Sprintf("planned %s", to.Leaderless.Round(100*time.Microsecond)))
			if to.Leaderless > handOff {
				t.Errorf("round %d: planned hand-off with a gap of %s", round, to.Leaderless)
			}
			if to.To.Start.Sub(joined) > leaseDuration {
				t.Errorf("round %d: the better candidate led only after %s", round, to.To.Start.Sub(joined))
			}
			told := time.Now()
			a.must(n36.Terminate(a.ctx))
			ended := time.Now()
			term := a.waitLeader("n37", patience)
			back := a.handedOff("n37")
			gaps = append(gaps, fmt.Sprintf("exit %s", back.Leaderless.Round(100*time.Microsecond)))
			if back.Leaderless > handOff || term.Start.Before(told) {
				t.Errorf("round %d: exit of the leader with a gap of %s", round, back.Leaderless)
			}
			if ended.Sub(told) > 200*time.Millisecond+time.Second+handOff {
				t.Errorf("round %d: the exit took %s", round, ended.Sub(told))
			}
			candidates, err := a.node.Candidates(a.ctx, a.ns, "l")
			a.must(err)
			if len(candidates) != 1 {
				t.Errorf("round %d: %d candidates are there after the exit of one of two", round, len(candidates))
			}
		}
		t.Logf("gaps: %s", strings.Join(gaps, ", "))

		before := a.token()
		n36 := a.worker("n36", "1.36")
		workers = append(workers, n36)
		a.waitLeader("n36", patience)
		// Crashed, it is waited for: its claim must have run out.
		a.must(n36.Kill(a.ctx))
		a.waitLeader("n37", failover)
		crash := a.handedOff("n37")
		t.Logf("crash: gap %s", crash.Leaderless.Round(time.Millisecond))
		if crash.Leaderless < renewDeadline || crash.Leaderless > leaseDuration+slack {
			t.Errorf("crash of the leader with a gap of %s", crash.Leaderless)
		}
		if a.token() <= before {
			t.Error("the fencing token has not grown")
		}
		a.safe()
		a.alternated(workers...)
	})
}

// Work that does not stop ends the process before anybody else may lead.
func TestLibraryDeadline(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.allowWorkers()
		n37 := a.worker("n37", "1.37", func(o *framework.WorkerOptions) { o.Args = []string{"--stubborn"} })
		a.waitLeader("n37", patience)
		n36 := a.worker("n36", "1.36")
		a.waitLeader("n36", failover+leaseDuration)
		if n37.Running() {
			t.Error("a process whose work does not stop is still there")
		}
		a.safe()
		a.alternated(n37, n36)
	})
}

// A leader that was stopped past its claim finds itself deposed: it does no more work if that asks whether its term is
// valid, is told to stop at once, and its process ends.
func TestLibraryFrozenLeader(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.allowWorkers()
		n37 := a.worker("n37", "1.37")
		a.waitLeader("n37", patience)
		other := a.worker("other", "1.37")
		a.waitCandidate("other")
		a.must(n37.Freeze(a.ctx))
		a.waitLeader("other", failover)
		thawed := time.Now()
		a.must(n37.Thaw())
		select {
		case <-n37.Exited():
		case <-time.After(slack):
			t.Error("a process that has outlived its claim is still there")
		}
		a.observe(time.Second)
		a.alternated(n37, other)
		for _, o := range a.rec.Timeline().Overlaps(a.lease) {
			t.Logf("told to stop, or ended, %s after the thaw", o.End.Sub(thawed).Round(time.Millisecond))
			if o.End.Sub(thawed) > handOff {
				t.Errorf("a deposed leader was told to stop only after %s", o.End.Sub(thawed))
			}
		}
		if now, ok := a.rec.Timeline().Leader(a.lease); !ok || now.Identity != "other" {
			t.Errorf("leaders %v", a.leaders())
		}
	})
}

// Candidates of pkg/candidate and of unmodified client-go share a lease.
func TestLibraryBesideClientGo(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.allowWorkers()
		clientGo := a.candidate("client-go", "1.37", func(o *framework.CandidateOptions) { o.Rejoin = true })
		a.waitLeader("client-go", patience)
		n36 := a.worker("n36", "1.36")
		a.waitLeader("n36", patience)
		a.must(n36.Terminate(a.ctx))
		a.waitLeader("client-go", patience)
		back := a.handedOff("client-go")
		t.Logf("exit in favour of client-go: gap %s", back.Leaderless.Round(time.Millisecond))
		if back.Leaderless > poll+slack {
			t.Errorf("exit in favour of client-go with a gap of %s", back.Leaderless)
		}
		a.safe()
		a.alternated(clientGo, n36)
	})
}

// Without a coordinator there is a leader all the same, and its graceful exit costs the time of one fallback.
func TestLibraryFallback(t *testing.T) {
	t.Parallel()
	a := newArenaOn(t, framework.New(t, framework.Options{}))
	a.allowWorkers()
	fallback := func(o *framework.WorkerOptions) { o.Args = []string{"--fallback-after=3s"} }
	a.worker("a", "1.37", fallback)
	// There is no Lease, and it may have been deleted under a leader: up to two durations and the fallback are waited for.
	a.waitLeader("a", 2*leaseDuration+3*time.Second+slack)
	b := a.worker("b", "1.36", fallback)
	a.waitCandidate("b")
	// The coordinator is back, and finds a holder that is not the best.
	startCoordinators(t, a.ctx, a.node, 1)
	a.waitLeader("b", patience)
	if gap := a.handedOff("b").Leaderless; gap > handOff {
		t.Errorf("planned hand-off with a gap of %s", gap)
	}
	a.must(b.Terminate(a.ctx))
	a.waitLeader("a", patience)
	a.safe()
}

// The coordinator in kube-apiserver coordinates candidates of pkg/candidate as it does its own.
func TestLibraryUnderInTree(t *testing.T) {
	t.Parallel()
	a := newArenaOn(t, framework.New(t, framework.Options{CoordinatedLeaderElection: true}))
	a.allowWorkers()
	n37 := a.worker("n37", "1.37")
	a.waitLeader("n37", patience)
	n36 := a.worker("n36", "1.36")
	a.waitLeader("n36", patience)
	t.Logf("planned: gap %s", a.handedOff("n36").Leaderless.Round(time.Millisecond))
	if gap := a.handedOff("n36").Leaderless; gap > handOff {
		t.Errorf("planned hand-off with a gap of %s", gap)
	}
	a.must(n36.Signal(syscall.SIGTERM))
	a.waitLeader("n37", patience)
	t.Logf("exit: gap %s", a.handedOff("n37").Leaderless.Round(time.Millisecond))
	a.safe()
	a.alternated(n37, n36)
}
