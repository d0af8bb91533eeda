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
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
	"github.com/lease-coordinator/coordinator/test/upgrade"
)

// showUpgrade leads a control plane through an upgrade and back.
func showUpgrade(ctx context.Context, s *screen) error {
	var result summary
	s.lines(
		"Three nodes of a real Kubernetes control plane are upgraded one by one, and",
		"rolled back one by one. The coordinator sees to it that at every moment the",
		"leading kube-controller-manager and kube-scheduler are no newer than the",
		"oldest kube-apiserver. Ctrl-C ends it and leaves nothing behind.",
		"")
	s.sayIn(dim, 0, "building the coordinator")
	binary, err := framework.BuildShippedCoordinator(ctx, framework.ShippedVersion)
	if err != nil {
		return err
	}
	err = withCluster(ctx, s, upgrade.ClusterOptions(nil), func(ctx context.Context, cluster *framework.Cluster) error {
		s.sayIn(dim, 0, "starting a coordinator on each node; the one inside kube-apiserver has given way for certain after 15 s")
		s.sayIn(dim, 0, "then the components, coordinated ones and, for contrast, ones with plain leader election")
		v := &view{teller: newTeller(s)}
		script, err := upgrade.New(ctx, cluster, upgrade.Options{
			Elections:         []upgrade.Election{upgrade.Coordinated, upgrade.Plain},
			CoordinatorBinary: binary,
			OnStep:            v.step,
		})
		if err != nil {
			return err
		}
		stop := v.watch(ctx, script)
		defer stop()
		v.chapter("All at 1.36")
		if err := script.Upgrade(ctx); err != nil {
			return err
		}
		v.chapter("Upgraded to 1.37")
		if err := script.Rollback(ctx); err != nil {
			return err
		}
		v.chapter("Rolled back to 1.36")
		stop()
		result = conclude(s, script)
		return result.err
	})
	if result.steps > 0 {
		s.lines("", result.String())
	}
	return err
}

// summary is how it ended.
type summary struct {
	steps, handOffs, violations int
	err                         error
}

func (r summary) String() string {
	return fmt.Sprintf("demo: %d steps, %d hand-offs, skew violations: %d", r.steps, r.handOffs, r.violations)
}

// conclude tells what happened on the whole, and what was wrong.
func conclude(s *screen, script *upgrade.Script) summary {
	result := summary{steps: upgrade.Steps}
	s.lines(fmt.Sprintf("%-23s %-22s %10s  %s", "hand-off of", "from -> to", "leaderless", "because"))
	for _, v := range script.Judge() {
		if v.Component.Election != upgrade.Coordinated {
			continue
		}
		result.handOffs += len(v.Changes)
		result.violations += len(v.Violations)
		for _, c := range v.Changes {
			s.lines(fmt.Sprintf("%-23s %s -> %s %8.1f s  %s", v.Component, at(c.From), at(c.To), c.Leaderless.Seconds(), cmp.Or(c.Because, "of nothing")))
		}
		if err := v.Err(); err != nil {
			result.err = errFaults
			for line := range strings.Lines(err.Error()) {
				for _, line := range wrap("WRONG: "+strings.TrimSpace(line), s.width(), 2) {
					s.lines(s.style(red, line))
				}
			}
		}
	}
	s.lines("", "For contrast, plain leader election on the same nodes at the same time:")
	for _, v := range script.Judge() {
		if v.Component.Election == upgrade.Plain {
			led := "never led"
			if len(v.Violations) > 0 {
				led = fmt.Sprintf("led for %.1f s", v.Skewed().Seconds())
			}
			s.lines(fmt.Sprintf("%-23s 1.37 %s while a kube-apiserver was at 1.36", v.Component.Kind, led))
		}
	}
	return result
}

// at is where a leader is, and its version.
func at(term framework.Term) string {
	return term.Process.Node + " (" + term.Process.Emulation + ")"
}

// view tells what the processes and the coordinators do, and shows how things stand.
type view struct {
	*teller

	mu     sync.Mutex
	script *upgrade.Script
	now    upgrade.Step
	active string
	// why is the sentence of the last appointment, by lease.
	why map[string]string
}

// watch keeps telling until the returned function is called.
func (v *view) watch(ctx context.Context, script *upgrade.Script) (stop func()) {
	v.mu.Lock()
	v.script, v.why = script, map[string]string{}
	v.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { every(ctx, tellEvery, func() { v.tell(time.Now().Add(-lateness)) }) })
	askActive := func() {
		name := ""
		if c := script.ActiveCoordinator(ctx); c != nil {
			name = c.Name()
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.active = name
	}
	askActive()
	group.Go(func() { every(ctx, time.Second, askActive) })
	return func() {
		cancel()
		group.Wait()
		v.screen.pin(nil)
	}
}

// step tells of a step. Everything that led to its end is told before.
func (v *view) step(s upgrade.Step) {
	if s.Done {
		v.tell(time.Now())
		v.screen.sayIn(dim, 0, "%-6s settled after %.1f s", "", s.After.Seconds())
		return
	}
	v.mu.Lock()
	v.now = s
	v.mu.Unlock()
	v.screen.sayIn(bold, 0, "%2d/%-3d %s", s.Number, upgrade.Steps, describe(s))
}

func describe(s upgrade.Step) string {
	var programs []string
	for _, p := range s.Programs {
		programs = append(programs, string(p))
	}
	return fmt.Sprintf("%s: %s %s -> %s", s.Node, strings.Join(programs, " and "), s.From, s.To)
}

// chapter marks a state of rest.
func (v *view) chapter(title string) {
	v.tell(time.Now())
	v.mu.Lock()
	defer v.mu.Unlock()
	lines := append([]string{"", v.screen.style(bold, title)}, v.table(v.script.Recorder.Timeline())...)
	v.screen.lines(append(lines, "")...)
}

// tell tells what happened up to that moment and was not told yet.
func (v *view) tell(until time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.script == nil {
		return
	}
	t := v.script.Recorder.Timeline()
	all := v.decisions(t)
	for _, c := range v.script.Components {
		if c.Election == upgrade.Coordinated {
			all = append(all, terms(t, c.Lease, at)...)
		}
	}
	v.teller.tell(until, all)
	v.screen.pin(v.block(t))
}

// decisions tells, in the coordinator's own words, what it decided.
func (v *view) decisions(t framework.Timeline) []news {
	var all []news
	names := places(t)
	for _, d := range decisions(v.script.Coordinators) {
		d.Sentence = names.Replace(d.Sentence)
		if d.Action == "Appoint" {
			v.why[d.Lease] = d.Sentence
		}
		all = append(all, d.news())
	}
	return all
}

// block shows how things stand.
func (v *view) block(t framework.Timeline) []string {
	lines := v.table(t)
	for _, c := range v.script.Components {
		if why := v.why[c.Lease]; why != "" && c.Election == upgrade.Coordinated {
			lines = append(lines, v.screen.style(dim, string(c.Kind)+": "+why))
		}
	}
	return append(lines, v.screen.style(bold, fmt.Sprintf("step %d of %d, %s", v.now.Number, upgrade.Steps, v.skew())))
}

// skew tells how the policy fares.
func (v *view) skew() string {
	n := 0
	var beside time.Duration
	for _, verdict := range v.script.Judge() {
		if verdict.Component.Election == upgrade.Plain {
			beside += verdict.Skewed()
		} else {
			n += len(verdict.Violations)
		}
	}
	text := fmt.Sprintf("skew violations: %d", n)
	if beside > 0 {
		text += fmt.Sprintf(" (plain leader election: %.0f s)", beside.Seconds())
	}
	return text
}

// table shows what runs where, at which version, and who leads.
func (v *view) table(t framework.Timeline) []string {
	row := func(node, server, manager, scheduler, coordinator string) string {
		return strings.TrimRight(fmt.Sprintf("  %-4s  %-14s  %-23s  %-14s  %s", node, server, manager, scheduler, coordinator), " ")
	}
	lines := []string{v.screen.style(dim, row("node", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coordinator"))}
	for i, node := range v.script.Cluster.Nodes {
		cells := map[framework.ProcessKind]string{}
		for _, c := range v.script.Components {
			if c.Election != upgrade.Coordinated {
				continue
			}
			cell := version(c.Instances[i].Process)
			if leader, ok := t.Leader(c.Lease); ok && leader.Process.Name == c.Instances[i].Name() {
				cell += " leads"
			}
			cells[c.Kind] = cell
		}
		coordinator := "standby"
		if v.script.Coordinators[i].Name() == v.active {
			coordinator = "active"
		}
		lines = append(lines, row(node.Name, version(node.APIServer.Process), cells[framework.ControllerManagerKind], cells[framework.SchedulerKind], coordinator))
	}
	return lines
}

func version(p *framework.Process) string {
	if !p.Running() {
		return "down"
	}
	return p.Info().Emulation
}
