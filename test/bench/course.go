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

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// measure is what is measured: a scenario with a system.
type measure struct{ scenario, system string }

const (
	// planned is from the end of the old leader's work to the beginning of the new one's, when a better candidate appears.
	// A plain elector knows no better: its leader is told to end when the new one is there.
	planned = "planned-handoff"
	// exit is the same when the leader is told to end, crash from its being killed.
	exit  = "graceful-exit"
	crash = "crash"
)

var scenarios = []string{planned, exit, crash}

const (
	library  = "library"
	clientGo = "client-go"
)

var systems = []struct {
	name   string
	course func(*bench, context.Context, int) error
}{{library, (*bench).libraryCourse}, {clientGo, (*bench).plainCourse}}

func (b *bench) libraryCourse(ctx context.Context, i int) error {
	g, err := b.newGroup(ctx, library, fmt.Sprintf("library-%d", i))
	if err != nil {
		return err
	}
	leader, err := g.first(ctx)
	if err != nil {
		return err
	}
	if err := rest(ctx); err != nil {
		return err
	}

	var better *framework.Candidate
	if err := b.alone(func() error {
		if better, err = g.startWorker(ctx, "1.36"); err != nil {
			return err
		}
		return leads(ctx, better, 1)
	}); err != nil {
		return fmt.Errorf("%s: %w", planned, err)
	}
	b.take(planned, library, framework.Gap(leader, better))
	if err := rest(ctx); err != nil {
		return err
	}

	if err := b.alone(func() error {
		if err := better.Terminate(ctx); err != nil {
			return err
		}
		return leads(ctx, leader, 2)
	}); err != nil {
		return fmt.Errorf("%s: %w", exit, err)
	}
	b.take(exit, library, framework.Gap(better, leader))
	return g.crash(ctx, leader)
}

func (b *bench) plainCourse(ctx context.Context, i int) error {
	g, err := b.newGroup(ctx, clientGo, fmt.Sprintf("client-go-%d", i))
	if err != nil {
		return err
	}
	leader, err := g.first(ctx)
	if err != nil {
		return err
	}
	for _, scenario := range []string{planned, exit} {
		next, err := g.standby(ctx)
		if err != nil {
			return err
		}
		if err := leader.Terminate(ctx); err != nil {
			return err
		}
		if err := leads(ctx, next, 1); err != nil {
			return fmt.Errorf("%s: %w", scenario, err)
		}
		b.take(scenario, clientGo, framework.Gap(leader, next))
		leader = next
	}
	return g.crash(ctx, leader)
}

// alone has something done while nothing else that is loud goes on.
func (b *bench) alone(do func() error) error {
	b.quiet.Lock()
	defer b.quiet.Unlock()
	return do()
}

func (b *bench) take(scenario, system string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := measure{scenario, system}
	b.taken[m] = append(b.taken[m], d)
}

// group is the candidates for one lease.
type group struct {
	*bench
	system, name, namespace string
	started                 int
}

func (b *bench) newGroup(ctx context.Context, system, name string) (*group, error) {
	namespace, err := b.cluster.CreateNamespace(ctx, "bench")
	if err != nil {
		return nil, err
	}
	if system == library {
		if err := b.cluster.AllowWorkers(ctx, namespace, "l"); err != nil {
			return nil, err
		}
	}
	return &group{bench: b, system: system, name: name, namespace: namespace}, nil
}

// start starts a candidate of the group's system.
func (g *group) start(ctx context.Context) (*framework.Candidate, error) {
	if g.system == library {
		return g.startWorker(ctx, "1.37")
	}
	g.started++
	return g.cluster.Nodes[0].StartCandidate(ctx, framework.CandidateOptions{
		Namespace: g.namespace, Lease: "l", Name: fmt.Sprintf("%s-%d", g.name, g.started), Plain: true, ReleaseOnCancel: true,
	})
}

func (g *group) startWorker(ctx context.Context, emulation string) (*framework.Candidate, error) {
	g.started++
	return g.cluster.Nodes[0].StartWorker(ctx, framework.WorkerOptions{
		Namespace: g.namespace, Lease: "l", Name: fmt.Sprintf("%s-%d", g.name, g.started), EmulationVersion: emulation + ".0",
		Drain: g.drain, Binary: g.worker,
	})
}

// first starts a candidate that leads then.
func (g *group) first(ctx context.Context) (*framework.Candidate, error) {
	var leader *framework.Candidate
	err := g.alone(func() (err error) {
		if leader, err = g.start(ctx); err != nil {
			return err
		}
		return leads(ctx, leader, 1)
	})
	return leader, err
}

// standby starts a candidate that does not lead, and lets some time pass.
func (g *group) standby(ctx context.Context) (*framework.Candidate, error) {
	var standby *framework.Candidate
	if err := g.alone(func() (err error) {
		if standby, err = g.start(ctx); err != nil {
			return err
		}
		if g.system == clientGo {
			// It says nothing of what it sees. The time below is long enough for it to be up.
			return waitFor(ctx, standby.Name()+" to run", func() bool { return len(standby.Said("candidate-started")) > 0 })
		}
		// It says whom it follows, which is after it has registered or just before.
		if err := waitFor(ctx, standby.Name()+" to follow", func() bool { return len(standby.Said("new-leader")) > 0 }); err != nil {
			return err
		}
		return framework.WaitFor(ctx, standby.Name()+" to register", func(ctx context.Context) (bool, error) {
			candidates, err := g.cluster.Nodes[0].Candidates(ctx, g.namespace, "l")
			return len(candidates) == 2, err
		})
	}); err != nil {
		return nil, err
	}
	return standby, rest(ctx)
}

// crash kills the leader, after somebody has joined who leads then, and ends the group.
func (g *group) crash(ctx context.Context, leader *framework.Candidate) error {
	next, err := g.standby(ctx)
	if err != nil {
		return err
	}
	killed := monotonic()
	if err := leader.Kill(ctx); err != nil {
		return err
	}
	if err := leads(ctx, next, 1); err != nil {
		return fmt.Errorf("%s: %w", crash, err)
	}
	g.take(crash, g.system, next.LastSaid(framework.StartedLeading)-killed)
	return next.Stop(ctx)
}

// patience bounds the wait for a leader. The longest that is to be expected is a lease duration and client-go's poll.
const patience = 45 * time.Second

// leads waits until the candidate leads for the nth time by its own word.
func leads(ctx context.Context, candidate *framework.Candidate, n int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return candidate.WaitLeads(ctx, n)
}

func waitFor(ctx context.Context, what string, cond func() bool) error {
	return framework.WaitFor(ctx, what, func(context.Context) (bool, error) { return cond(), nil })
}

// monotonic is the clock of the workers' stamps.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("reading the monotonic clock: %v", err))
	}
	return time.Duration(ts.Nano())
}
