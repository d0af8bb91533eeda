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
	"math/rand/v2"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// scenario is something that can happen to leadership, and what is measured of it.
type scenario string

const (
	// first is from the registration of the only candidate to its work; where there is no registration, from the
	// start of its process.
	first scenario = "first election"
	// plannedTotal is from the registration of a better candidate to its work.
	plannedTotal scenario = "planned hand-off, total"
	// The others are from the end of the old leader's work to the beginning of the new one's.
	plannedLeaderless scenario = "planned hand-off, leaderless"
	exit              scenario = "graceful exit, no release"
	exitReleased      scenario = "graceful exit, released"
	crash             scenario = "crash"
)

var scenarios = []scenario{first, plannedTotal, plannedLeaderless, exit, exitReleased, crash}

// course leads one lease through all scenarios.
type course struct {
	system *system
	name   string
	lease  string
	// taken are the measurements.
	taken map[scenario][]time.Duration
	err   error

	started int
}

func newCourse(s *system, i int) *course {
	name := fmt.Sprintf("l%d", i)
	return &course{system: s, name: name, lease: s.namespace + "/" + name, taken: map[scenario][]time.Duration{}}
}

// patience bounds the wait for a leader. The longest that was ever measured is 24 s.
const patience = 90 * time.Second

func (c *course) run(ctx context.Context) error {
	leader, err := c.candidate(ctx, "1.37", false)
	if err != nil {
		return err
	}
	term, err := c.leads(ctx, leader)
	if err != nil {
		return err
	}
	c.take(first, term.Start.Sub(c.appeared(leader)))

	if !c.system.plain {
		if err := c.rest(ctx); err != nil {
			return err
		}
		better, err := c.candidate(ctx, "1.36", false)
		if err != nil {
			return err
		}
		if term, err = c.leads(ctx, better); err != nil {
			return err
		}
		c.take(plannedTotal, term.Start.Sub(c.appeared(better)))
		c.take(plannedLeaderless, c.leaderless())
		leader = better
	}

	for _, end := range []struct {
		scenario scenario
		do       func(*framework.Candidate) error
		// releases says what the next leader does when it is told to end.
		releases bool
		// before is how long the leader leads before that.
		before time.Duration
	}{
		{exit, func(l *framework.Candidate) error { return l.Terminate(ctx) }, false, 0},
		{crash, func(l *framework.Candidate) error { return l.Crash(ctx) }, true, 0},
		// Shortly after a failover our coordinator does not trust a release: it may be that of the former leader.
		{exitReleased, func(l *framework.Candidate) error { return l.Terminate(ctx) }, false, 10 * time.Second},
	} {
		if err := framework.Pause(ctx, end.before); err != nil {
			return err
		}
		next, err := c.candidate(ctx, "1.37", end.releases)
		if err != nil {
			return err
		}
		// Long enough that the standby's registration is no longer a recent sign of life.
		if err := c.rest(ctx); err != nil {
			return err
		}
		if err := end.do(leader); err != nil {
			return fmt.Errorf("%s: %w", end.scenario, err)
		}
		if _, err := c.leads(ctx, next); err != nil {
			return fmt.Errorf("%s: %w", end.scenario, err)
		}
		c.take(end.scenario, c.leaderless())
		leader = next
	}
	return leader.Stop(ctx)
}

// candidate starts one and waits until it has registered.
func (c *course) candidate(ctx context.Context, emulation string, releases bool) (*framework.Candidate, error) {
	c.started++
	candidate, err := c.system.cluster.Nodes[0].StartCandidate(ctx, framework.CandidateOptions{
		Namespace: c.system.namespace, Lease: c.name,
		// Where candidates are equally good and old, the lower name leads.
		Name:             fmt.Sprintf("%s-%d", c.name, c.started),
		EmulationVersion: emulation + ".0", Plain: c.system.plain, ReleaseOnCancel: releases,
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return candidate, c.system.recorder.WaitFor(ctx, candidate.Identity+" to register", func(framework.Timeline) bool {
		return !c.appeared(candidate).IsZero()
	})
}

// appeared is when the candidate registered, or its process started where there is no registration.
func (c *course) appeared(candidate *framework.Candidate) time.Time {
	for _, e := range c.system.recorder.Timeline().Events {
		switch {
		case c.system.plain && e.Kind == framework.ProcessStarted && e.Subject == candidate.Name():
			return e.Time
		case e.Kind == framework.CandidateCreated && e.Subject == candidate.Identity:
			return e.Time
		}
	}
	return time.Time{}
}

// leads waits until the candidate leads by its own word.
func (c *course) leads(ctx context.Context, candidate *framework.Candidate) (framework.Term, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.system.recorder.WaitForLeader(ctx, c.lease, func(t framework.Term) bool { return t.Identity == candidate.Identity })
}

// leaderless is how long the latest change of leader left the lease without one.
func (c *course) leaderless() time.Duration {
	changes := c.system.recorder.Timeline().Handoffs(c.lease)
	return changes[len(changes)-1].Leaderless
}

// rest lets everything settle, for a time that has nothing to do with anybody's period.
func (c *course) rest(ctx context.Context) error {
	return framework.Pause(ctx, 6*time.Second+rand.N(2400*time.Millisecond))
}

func (c *course) take(s scenario, d time.Duration) { c.taken[s] = append(c.taken[s], d) }
