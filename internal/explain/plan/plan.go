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

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/explain"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Options say how the processes behave.
type Options struct {
	// Release has a process that stops release its lease.
	Release bool
	// Down is how long it takes a process to be started again.
	Down time.Duration
	// Within bounds how long the effects of a step are waited for.
	Within time.Duration
}

// Plan is what will follow. Programs read it, so fields are only ever added.
type Plan struct {
	// Now is the time from which it was played.
	Now metav1.MicroTime `json:"now"`
	// Steps has what happens without any change, and then what follows from each step.
	Steps []*StepResult `json:"steps"`
	// Total counts the leadership changes of all steps.
	Total int `json:"total"`
	// Leaders has who leads at the end.
	Leaders []Leader `json:"leaders"`
	// Skews has every time that a leader was newer than the oldest candidate that was left.
	Skews []*Skew `json:"skews"`

	asOf string
}

// StepResult is what follows from one step.
type StepResult struct {
	// Step is the step as it was given; "" for none, before the first.
	Step string `json:"step"`
	// At is when it was taken.
	At      metav1.MicroTime `json:"at"`
	Changes []Change         `json:"changes"`
	Count   int              `json:"count"`
	// Leaderless are the leases that nobody leads when it is over.
	Leaderless []string `json:"leaderless"`
	// Settled is false if more may have followed later; Waiting says what was waited for.
	Settled bool     `json:"settled"`
	Waiting []string `json:"waiting"`
}

// Change is a change of leader.
type Change struct {
	Lease string `json:"lease"`
	// From and To are the leaders; From is "" if there was none before.
	From string `json:"from"`
	To   string `json:"to"`
	// Version is the new leader's binary version, and EmulationVersion what it emulates.
	Version          string `json:"version"`
	EmulationVersion string `json:"emulationVersion"`
	// AfterSeconds is how long after the step the new leader was appointed.
	AfterSeconds float64 `json:"afterSeconds"`
	// Why is the decision's sentence.
	Why string `json:"why"`
}

// Leader is who leads a lease.
type Leader struct {
	Lease string `json:"lease"`
	// Leader is "" for nobody.
	Leader           string `json:"leader"`
	Version          string `json:"version"`
	EmulationVersion string `json:"emulationVersion"`
	// Sentence is what the coordinator says at last.
	Sentence string `json:"sentence"`
}

// Skew is a time during which a leader was newer than the oldest candidate that was left.
type Skew struct {
	Lease string `json:"lease"`
	// Step is the one that it began in.
	Step    string `json:"step"`
	Leader  string `json:"leader"`
	Version string `json:"version"`
	// Oldest is the oldest candidate when it began.
	Oldest        string  `json:"oldest"`
	OldestVersion string  `json:"oldestVersion"`
	Seconds       float64 `json:"seconds"`

	since time.Time
}

// UnknownNodeError says that a step is about a node that has no candidate, or has one already.
type UnknownNodeError struct {
	Step Step
	// Nodes are those that have.
	Nodes []string
	// Twice is set if the node should have had none.
	Twice bool
}

// Error implements error.
func (e *UnknownNodeError) Error() string {
	if e.Twice {
		return fmt.Sprintf("step %q: there is a candidate on node %q already", e.Step, e.Step.Node)
	}
	if len(e.Nodes) == 0 {
		return fmt.Sprintf("step %q: no node has a candidate that is there", e.Step)
	}
	return fmt.Sprintf("step %q: no candidate that is there is on a node %q, or is called so: there are %s", e.Step, e.Step.Node, strings.Join(e.Nodes, ", "))
}

// Make plays the steps for the leases of a view.
func Make(view *explain.View, keys []types.NamespacedName, steps []Step, o Options) (*Plan, error) {
	w := newWorld(view, keys, o)
	p := &Plan{Now: metav1.NewMicroTime(view.Now.UTC()), Steps: []*StepResult{}, Leaders: []Leader{}, Skews: []*Skew{}, asOf: view.AsOf}
	play := func(name string, act func() error) error {
		w.step = &StepResult{Step: name, At: metav1.NewMicroTime(w.now.UTC()), Changes: []Change{}, Leaderless: []string{}, Waiting: []string{}}
		p.Steps = append(p.Steps, w.step)
		if err := act(); err != nil {
			return err
		}
		settled, err := w.run()
		if err != nil {
			return err
		}
		w.step.Settled, w.step.Count = settled, len(w.step.Changes)
		p.Total += w.step.Count
		for _, l := range w.leases {
			if l.leader == nil {
				w.step.Leaderless = append(w.step.Leaderless, l.name)
			}
			if !settled && !l.resting() {
				w.step.Waiting = append(w.step.Waiting, l.name+": "+l.decision.Sentence())
			}
		}
		return nil
	}
	w.plan = p
	if err := play("", func() error { w.lookAtAllSkews(); return nil }); err != nil {
		return nil, err
	}
	for _, step := range steps {
		if err := play(step.String(), func() error { return w.take(step) }); err != nil {
			return nil, err
		}
	}
	for _, l := range w.leases {
		w.endSkew(l)
		leader := Leader{Lease: l.name, Sentence: l.decision.Sentence()}
		if l.leader != nil {
			leader.Leader, leader.Version, leader.EmulationVersion = l.leader.name, l.leader.binary.Text, l.leader.emulation.Text
		}
		p.Leaders = append(p.Leaders, leader)
	}
	return p, nil
}

// take has a step happen to every lease that has a candidate on its node.
func (w *world) take(step Step) error {
	met := false
	for _, l := range w.leases {
		for _, p := range slices.Clone(l.processes) {
			if !p.alive || p.node != step.Node && p.name != step.Node {
				continue
			}
			met = true
			switch {
			case step.Kind == Join:
				return &UnknownNodeError{Step: step, Twice: true}
			case p.plain && step.Kind == Replace:
				return fmt.Errorf("step %q: leader %s of lease %s is no candidate; all that can be foretold of it is %q", step, p.name, l.name, step.Node+"-")
			}
			w.exit(l, p)
			if step.Kind == Replace {
				emulation := step.Emulation
				if p.emulation.Text == "" && step.Emulation.Text == step.Binary.Text {
					// It states none, and will not.
					emulation = p.emulation
				}
				w.after(w.options.Down, func() { w.start(l, p.node, step.Binary, emulation, p) })
			}
		}
	}
	switch {
	case step.Kind == Join:
		for _, l := range w.leases {
			w.start(l, step.Node, step.Binary, step.Emulation, nil)
		}
	case !met:
		return &UnknownNodeError{Step: step, Nodes: w.nodes()}
	}
	return nil
}

func (w *world) nodes() []string {
	var nodes []string
	for _, l := range w.leases {
		for _, p := range l.processes {
			if p.alive {
				nodes = append(nodes, p.node)
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// changed records an appointment that is a change of leader.
func (w *world) changed(l *lease, d election.Decision) {
	from := l.last
	if l.last = d.Candidate; from == d.Candidate {
		return
	}
	change := Change{Lease: l.name, From: from, To: d.Candidate, AfterSeconds: w.now.Sub(w.step.At.Time).Seconds(), Why: d.Sentence()}
	if p := l.process(d.Candidate); p != nil {
		change.Version, change.EmulationVersion = p.binary.Text, p.emulation.Text
	}
	w.step.Changes = append(w.step.Changes, change)
}

// ruling returns the version that features go by: what is emulated, or else the binary's.
func (p *process) ruling() (strategy.Version, bool) {
	if p.emulation.Text != "" {
		return p.emulation, p.emulation.Err == nil
	}
	return p.binary, p.binary.Err == nil
}

func (w *world) lookAtAllSkews() {
	for _, l := range w.leases {
		w.lookAtSkew(l)
	}
}

// lookAtSkew notes whether the leader is newer than the oldest candidate that is there.
func (w *world) lookAtSkew(l *lease) {
	var oldest *process
	if l.leader != nil && !l.leader.plain {
		if version, valid := l.leader.ruling(); valid {
			for _, p := range l.processes {
				other, valid := p.ruling()
				if !p.alive || p.plain || !valid || !version.Semver.GT(other.Semver) {
					continue
				}
				if oldest == nil {
					oldest = p
				} else if least, _ := oldest.ruling(); other.Semver.LT(least.Semver) {
					oldest = p
				}
			}
		}
	}
	if s := l.skewed; s != nil && (oldest == nil || s.Leader != l.leader.name) {
		w.endSkew(l)
	}
	if oldest == nil || l.skewed != nil {
		return
	}
	version, _ := l.leader.ruling()
	least, _ := oldest.ruling()
	l.skewed = &Skew{
		Lease: l.name, Step: w.step.Step, Leader: l.leader.name, Version: version.Text,
		Oldest: oldest.name, OldestVersion: least.Text, since: w.now,
	}
	w.plan.Skews = append(w.plan.Skews, l.skewed)
}

func (w *world) endSkew(l *lease) {
	if s := l.skewed; s != nil {
		s.Seconds = w.now.Sub(s.since).Seconds()
		l.skewed = nil
	}
}
