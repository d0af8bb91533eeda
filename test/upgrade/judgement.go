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

package upgrade

import (
	"errors"
	"fmt"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// Change is a change of leader, and what justifies it.
type Change struct {
	framework.Handoff
	// Because is "" if nothing justifies it.
	Because string
}

// Verdict is what is to be said of one component.
type Verdict struct {
	Component *Component
	// Violations are the times in which its leader was newer than a kube-apiserver that ran.
	Violations []framework.SkewViolation
	// Overlaps are the times in which it had two leaders.
	Overlaps []framework.Overlap
	// Changes of leader. Each must be justified.
	Changes []Change
}

// Judge judges what has happened so far.
func (s *Script) Judge() []Verdict {
	t := s.Recorder.Timeline()
	s.mu.Lock()
	defer s.mu.Unlock()
	var verdicts []Verdict
	for _, c := range s.Components {
		v := Verdict{Component: c, Violations: t.SkewViolations(c.Lease), Overlaps: t.Overlaps(c.Lease)}
		for _, h := range t.Handoffs(c.Lease) {
			v.Changes = append(v.Changes, Change{h, s.because(t, h)})
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// because says what justifies a change of leader: that the operator ended the old one, or took its kube-apiserver
// away for too long, or that the new one is of a lower version. A leader that gives up for any other reason should
// have gone on.
func (s *Script) because(t framework.Timeline, h framework.Handoff) string {
	if s.replaced[processRun{h.From.Process.Name, h.From.Process.Run}] {
		return "operator restarted " + h.From.Process.Node
	}
	if h.To.Process.Emulation < h.From.Process.Emulation {
		return fmt.Sprintf("older than %s (%s)", h.From.Process.Node, h.From.Process.Emulation)
	}
	if away := s.longestAway(t, h.From); away > s.patience() {
		return fmt.Sprintf("kube-apiserver of %s away for %.1f s", h.From.Process.Node, away.Seconds())
	}
	return ""
}

// patience is how long a leader surely does without its kube-apiserver: its renew deadline, less two of its
// retries, for when the last renewal before and the first one after are due.
func (s *Script) patience() time.Duration { return s.opts.RenewDeadline - 2*2400*time.Millisecond }

// longestAway is the longest time, towards the end of a term, that the leader had no kube-apiserver.
func (s *Script) longestAway(t framework.Timeline, term framework.Term) time.Duration {
	var longest time.Duration
	var gone time.Time
	end := func(at time.Time) {
		// What it survived is no reason.
		if !gone.IsZero() && term.End.Sub(at) < s.patience() {
			longest = max(longest, at.Sub(gone))
		}
		gone = time.Time{}
	}
	for _, e := range t.Events {
		if e.Process.Kind != framework.APIServerKind || e.Process.Node != term.Process.Node || e.Time.After(term.End) {
			continue
		}
		switch e.Kind {
		case framework.ProcessExited:
			gone = e.Time
		case framework.ProcessReady:
			end(e.Time)
		}
	}
	end(term.End)
	return longest
}

// Skewed is how long the leader was newer than some kube-apiserver.
func (v Verdict) Skewed() time.Duration {
	var sum time.Duration
	var until time.Time
	// They are in order of their beginnings. Several old kube-apiservers at once are several violations of one moment.
	for _, violation := range v.Violations {
		if until.Before(violation.Start) {
			until = violation.Start
		}
		if violation.End.After(until) {
			sum += violation.End.Sub(until)
			until = violation.End
		}
	}
	return sum
}

// Err returns all that is wrong, or nil.
func (v Verdict) Err() error {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(v.Component.String()+": "+format, args...))
	}
	for _, x := range v.Violations {
		fault("%s led for %s while %s was at %s", x.Leader, x.Duration(), x.APIServer.Name, x.APIServer.Emulation)
	}
	for _, o := range v.Overlaps {
		fault("%s and %s led at once for %s", o.A, o.B, o.Duration())
	}
	for _, c := range v.Changes {
		if c.Because == "" {
			fault("leadership moved from %s to %s for no reason (%s)", c.From, c.To, c.From.Ending)
		}
	}
	return errors.Join(errs...)
}
