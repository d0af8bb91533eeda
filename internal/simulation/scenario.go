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

package simulation

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// Scenario plays one scenario file: a World without randomness, driven by commands. Every directive is "do", followed
// by commands, one a line; its output is what happened meanwhile, and at last how the coordinator rests.
//
// Before anything else:
//
//	fields kept|dropped             does the API server keep spec.strategy and spec.preferredHolder? (kept)
//	settings min-term=60s ...       also take-up=, election=, ttl=
//	late-responses                  the watch shows a write before its response comes
//
// Candidates, coordinated unless said otherwise; versions are 1.37.0 unless given:
//
//	candidate n1 emulation=1.36.0 binary=1.37.0 strategy=... priority=... priority-until=10m ineligible="why"
//	             plain disobedient releases clock=-60s timing=137s/107s/26s restart=5s
//	kill|stop|start n1              SIGKILL; an orderly end; start again
//	freeze|thaw n1                  SIGSTOP and SIGCONT
//	partition|heal n1               cut off from the API server
//	remove n1                       delete its LeaseCandidate
//	annotate n1 key=value           key- removes; the prefix of our annotations may be left out
//	register n1 renew=-10m ...      a LeaseCandidate with nobody behind it; version fields as for candidate; renew=none
//
// The Lease:
//
//	lease holder=n1 renew=-5s|none duration=15|none transitions=3 preferred=n2   as a user would write it
//	delete-lease
//	annotate lease key=value
//	show                            print the Lease
//
// The coordinator, which runs from the start, unless the first command is "coordinator absent":
//
//	coordinator restart|kill|start|freeze|thaw|partition|heal|miss [gap]
//
// And time:
//
//	run 30s
type Scenario struct {
	options Options
	world   *World
	absent  bool
	// output is what commands themselves print.
	output strings.Builder
}

// NewScenario returns a scenario that has not begun.
func NewScenario() *Scenario { return &Scenario{options: Options{FieldsKept: true, Trace: true}} }

// Handle plays one directive of a scenario file.
func (s *Scenario) Handle(t testing.TB, d *datadriven.TestData) string {
	t.Helper()
	if d.Cmd != "do" {
		d.Fatalf(t, "unknown directive %q", d.Cmd)
	}
	s.output.Reset()
	passed := false
	for line := range strings.Lines(d.Input) {
		words, err := split(line)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		if len(words) == 0 {
			continue
		}
		passed = passed || words[0] == "run"
		if err := s.do(words[0], words[1:]); err != nil {
			d.Fatalf(t, "%s: %v", strings.TrimSpace(line), err)
		}
		if s.world != nil {
			s.output.WriteString(s.world.Transcript())
		}
	}
	if passed {
		for _, c := range s.world.coordinators {
			if c.running && c.resting != "" {
				fmt.Fprintf(&s.output, "%9s  %s\n", "=>", c.resting)
			}
		}
	}
	return s.output.String()
}

// split cuts a command into words; double quotes keep spaces together.
func split(line string) ([]string, error) {
	line, _, _ = strings.Cut(line, "#")
	var words []string
	var word strings.Builder
	quoted, any := false, false
	for _, r := range strings.TrimSpace(line) + " " {
		switch {
		case r == '"':
			quoted, any = !quoted, true
		case r == ' ' && !quoted:
			if any {
				words = append(words, word.String())
			}
			word.Reset()
			any = false
		default:
			word.WriteRune(r)
			any = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("unbalanced quotes: %s", line)
	}
	return words, nil
}

// start makes the World when the first command needs it.
func (s *Scenario) start() *World {
	if s.world == nil {
		s.world = New(s.options)
		if !s.absent {
			s.world.AddCoordinator("coordinator", 0)
		}
		// The coordinator has listed before anything else happens.
		s.world.Run(100 * time.Millisecond)
	}
	return s.world
}

func (s *Scenario) do(command string, args []string) error {
	switch command {
	case "fields":
		s.options.FieldsKept = args[0] == "kept"
		return nil
	case "late-responses":
		s.options.ResponsesLate = true
		return nil
	case "settings":
		return s.settings(args)
	case "run":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return err
		}
		s.start().Run(d)
		return s.world.Violation()
	case "candidate":
		return s.candidate(args)
	case "register":
		return s.register(args)
	case "lease":
		return s.lease(args)
	case "delete-lease":
		s.start().server.deleteLease(leaseName)
		return nil
	case "show":
		s.show()
		return nil
	case "annotate":
		return s.annotate(args)
	case "coordinator":
		return s.coordinator(args)
	case "remove":
		s.start().server.deleteCandidate(args[0])
		return nil
	}
	return s.process(command, args)
}

func (s *Scenario) settings(args []string) error {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		d, err := time.ParseDuration(value)
		if err != nil {
			return err
		}
		switch key {
		case "min-term":
			s.options.Settings.MinTerm = d
		case "take-up":
			s.options.Settings.TakeUpTimeout = d
		case "election":
			s.options.Settings.ElectionDuration = d
		case "ttl":
			s.options.Settings.CandidateTTL = d
		default:
			return fmt.Errorf("unknown setting %q", key)
		}
	}
	return nil
}

func (s *Scenario) candidate(args []string) error {
	spec := CandidateSpec{Name: args[0], Binary: "1.37.0", Emulation: "1.37.0", Annotations: map[string]string{}}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		var err error
		switch key {
		case "emulation":
			spec.Emulation = value
		case "binary":
			spec.Binary = value
		case "strategy":
			spec.Strategy = coordinationv1.CoordinatedLeaseStrategy(value)
		case "priority":
			spec.Annotations[v1alpha1.PriorityAnnotation] = value
		case "priority-until":
			var d time.Duration
			d, err = time.ParseDuration(value)
			spec.Annotations[v1alpha1.PriorityUntilAnnotation] = epoch.Add(s.start().now + d).Format(time.RFC3339)
		case "ineligible":
			spec.Annotations[v1alpha1.IneligibleAnnotation] = value
		case "obeys":
			spec.Annotations[v1alpha1.SignalAnnotation] = value
		case "plain":
			spec.Plain = true
		case "disobedient":
			spec.Disobedient = true
		case "releases":
			spec.Releases = true
		case "clock":
			spec.ClockAhead, err = time.ParseDuration(value)
		case "restart":
			spec.Restart = SameName
			spec.RestartAfter, err = time.ParseDuration(value)
		case "timing":
			var t [3]time.Duration
			for i, part := range strings.SplitN(value, "/", 3) {
				if t[i], err = time.ParseDuration(part); err != nil {
					break
				}
			}
			spec.Lease, spec.RenewDeadline, spec.Retry = t[0], t[1], t[2]
		default:
			err = fmt.Errorf("unknown argument %q", arg)
		}
		if err != nil {
			return err
		}
	}
	s.start().AddCandidate(spec)
	return nil
}

// process does what can be done to a candidate's process.
func (s *Scenario) process(command string, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("unknown command %q", command)
	}
	c := s.start().candidate(args[0])
	if c == nil {
		return fmt.Errorf("no candidate %q", args[0])
	}
	switch command {
	case "kill":
		c.kill()
	case "stop":
		c.shutDown()
	case "start":
		c.start()
	case "freeze":
		c.pause()
	case "thaw":
		c.thaw()
	case "partition":
		c.partition()
	case "heal":
		c.heal()
	default:
		return fmt.Errorf("unknown command %q", command)
	}
	return nil
}

func (s *Scenario) register(args []string) error {
	w := s.start()
	now := metav1.NewMicroTime(epoch.Add(w.now))
	lc := &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: args[0]},
		Spec: coordinationv1beta1.LeaseCandidateSpec{
			LeaseName: leaseName, BinaryVersion: "1.37.0", EmulationVersion: "1.37.0",
			Strategy: coordinationv1.OldestEmulationVersion, RenewTime: &now,
		},
	}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "emulation":
			lc.Spec.EmulationVersion = value
		case "binary":
			lc.Spec.BinaryVersion = value
		case "strategy":
			lc.Spec.Strategy = coordinationv1.CoordinatedLeaseStrategy(value)
		case "renew":
			t, err := stampAt(w, value)
			if err != nil {
				return err
			}
			lc.Spec.RenewTime = t
		default:
			return fmt.Errorf("unknown argument %q", arg)
		}
	}
	_, err := w.server.createCandidate(lc)
	return err
}

func stampAt(w *World, value string) (*metav1.MicroTime, error) {
	if value == "none" {
		return nil, nil
	}
	d, err := time.ParseDuration(value)
	t := metav1.NewMicroTime(epoch.Add(w.now + d))
	return &t, err
}

// lease writes the Lease as a user would: what is not named stays as it is.
func (s *Scenario) lease(args []string) error {
	w := s.start()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}}
	old := w.server.leases[leaseName]
	if old != nil {
		l = old.DeepCopy()
	}
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		var err error
		switch key {
		case "holder":
			l.Spec.HolderIdentity = &value
			if value == "none" {
				l.Spec.HolderIdentity = nil
			}
		case "preferred":
			l.Spec.PreferredHolder = &value
			if value == "none" {
				l.Spec.PreferredHolder = nil
			}
		case "renew":
			l.Spec.RenewTime, err = stampAt(w, value)
		case "duration":
			l.Spec.LeaseDurationSeconds, err = number(value)
		case "transitions":
			l.Spec.LeaseTransitions, err = number(value)
		default:
			err = fmt.Errorf("unknown argument %q", arg)
		}
		if err != nil {
			return err
		}
	}
	var err error
	if old == nil {
		_, err = w.server.createLease(nil, l)
	} else {
		_, err = w.server.updateLease(nil, l)
	}
	return err
}

func number(value string) (*int32, error) {
	if value == "none" {
		return nil, nil
	}
	n, err := strconv.ParseInt(value, 10, 32)
	v := int32(n)
	return &v, err
}

func (s *Scenario) show() {
	l := s.start().server.leases[leaseName]
	if l == nil {
		s.output.WriteString("           no lease\n")
		return
	}
	r := recordOf(l)
	fmt.Fprintf(&s.output, "%9s  holder=%s duration=%d transitions=%d acquired=%.3f renewed=%.3f", "lease:",
		r.holder, r.seconds, r.transitions, r.acquire.Sub(epoch).Seconds(), r.renew.Sub(epoch).Seconds())
	if r.preferred != "" {
		fmt.Fprintf(&s.output, " preferred=%s", r.preferred)
	}
	if r.strategy != "" {
		fmt.Fprintf(&s.output, " strategy=%s", r.strategy)
	}
	for _, key := range []string{v1alpha1.FencingTokenAnnotation, v1alpha1.PreferredHolderAnnotation, v1alpha1.StrategyAnnotation} {
		if v, set := l.Annotations[key]; set {
			fmt.Fprintf(&s.output, " %s=%s", strings.TrimPrefix(key, v1alpha1.Group+"/"), v)
		}
	}
	s.output.WriteString("\n")
}

func (s *Scenario) annotate(args []string) error {
	w := s.start()
	set := func(annotations map[string]string) map[string]string {
		if annotations == nil {
			annotations = map[string]string{}
		}
		for _, arg := range args[1:] {
			key, value, set := strings.Cut(arg, "=")
			if !strings.Contains(key, "/") {
				key = v1alpha1.Group + "/" + key
			}
			if set {
				annotations[key] = value
			} else {
				delete(annotations, strings.TrimSuffix(key, "-"))
			}
		}
		return annotations
	}
	if args[0] == "lease" {
		l := w.server.leases[leaseName].DeepCopy()
		l.Annotations = set(l.Annotations)
		_, err := w.server.updateLease(nil, l)
		return err
	}
	lc := w.server.candidates[args[0]]
	if lc == nil {
		return fmt.Errorf("no LeaseCandidate %q", args[0])
	}
	lc = lc.DeepCopy()
	lc.Annotations = set(lc.Annotations)
	_, err := w.server.updateCandidate(lc)
	return err
}

func (s *Scenario) coordinator(args []string) error {
	if args[0] == "absent" {
		s.absent = true
		return nil
	}
	w := s.start()
	if len(w.coordinators) == 0 {
		w.AddCoordinator("coordinator", 0)
		return nil
	}
	c := w.coordinators[0]
	switch args[0] {
	case "restart":
		c.kill(0)
		c.start()
	case "kill":
		c.kill(0)
	case "start":
		c.start()
	case "freeze":
		c.pause()
	case "thaw":
		c.thaw()
	case "partition":
		c.partition()
	case "heal":
		c.heal()
	case "miss":
		gap, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		c.loseWatch(true, gap)
	default:
		return fmt.Errorf("unknown command %q", args[0])
	}
	return nil
}
