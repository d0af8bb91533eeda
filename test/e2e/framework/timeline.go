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

package framework

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Timeline is what happened while a Recorder watched, in order of time, and the
// questions that tests ask about it. It does not change once made.
type Timeline struct {
	Events []Event
	// Start is when the recorder was started, End when this timeline was taken
	// from it. What still lasts is taken to end at End.
	Start, End time.Time

	identities []identityFact
}

// Filter returns the events for which keep says yes.
func (t Timeline) Filter(keep func(Event) bool) []Event {
	var kept []Event
	for _, e := range t.Events {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}

// Of returns the events of the given kinds that concern a lease, given as
// "namespace/name". Without kinds it returns all that concern the lease.
func (t Timeline) Of(lease string, kinds ...EventKind) []Event {
	return t.Filter(func(e Event) bool {
		return e.Lease == lease && (len(kinds) == 0 || slices.Contains(kinds, e.Kind))
	})
}

// WritesTo returns the writes to a Lease, given as "namespace/name": its
// creation and deletion and every change.
func (t Timeline) WritesTo(lease string) []Event {
	return t.writes(leaseKind + "/" + lease)
}

// WritesToCandidate is WritesTo for the LeaseCandidates, of either kind, of
// that name.
func (t Timeline) WritesToCandidate(namespace, name string) []Event {
	return t.Filter(func(e Event) bool { return e.isOf(namespace, name) && e.isWrite() })
}

func (t Timeline) writes(object string) []Event {
	return t.Filter(func(e Event) bool { return e.Object == object && e.isWrite() })
}

// isOf reports whether an event is about a LeaseCandidate of that name.
func (e Event) isOf(namespace, name string) bool {
	return e.Object == objectKey(candidateKind, namespace, name) || e.Object == objectKey(ourCandidateKind, namespace, name)
}

func (e Event) isWrite() bool {
	switch e.Kind {
	case LeaseSeen, CandidateSeen, WriteRefused, WriteWithoutEffect:
		return false
	default:
		return e.Object != ""
	}
}

// Pings returns the pings of a candidate.
func (t Timeline) Pings(namespace, name string) []Event {
	return t.Filter(func(e Event) bool {
		return e.Kind == CandidatePinged && e.isOf(namespace, name)
	})
}

// Count counts events by kind.
func Count(events []Event) map[EventKind]int {
	n := map[EventKind]int{}
	for _, e := range events {
		n[e.Kind]++
	}
	return n
}

// ByWriter returns the successful writes of one process, or of one user.
func (t Timeline) ByWriter(writer string) []Event {
	return t.Filter(func(e Event) bool { return e.isWrite() && e.Writer == writer })
}

// ByCoordinators returns the writes made by any coordinator of this project.
func (t Timeline) ByCoordinators() []Event {
	return t.Filter(func(e Event) bool { return e.isWrite() && e.WriterKind == CoordinatorKind })
}

// BlindWrites returns the updates that were no compare-and-swap.
func (t Timeline) BlindWrites() []Event {
	return t.Filter(func(e Event) bool { return e.Blind })
}

// Term is one process's leadership by its own account: from the moment it
// said that it begins to work until it said that it stops, or was gone.
type Term struct {
	Interval
	Lease   string
	Process ProcessInfo
	// Identity is the holder identity, "" if it could not be found out.
	Identity string
	// Ongoing is set if it had not ended when the timeline was taken.
	Ongoing bool
	// Suspended are the times in which the process was frozen.
	Suspended []Interval
	// Ending says how it ended, for people.
	Ending string
}

// Working returns the times in which the leader could do work.
func (t Term) Working() []Interval { return subtract(t.Interval, t.Suspended) }

// String names the leader for people.
func (t Term) String() string {
	s := t.Process.Name
	if t.Process.Emulation != "" {
		s += " (" + t.Process.Emulation + ")"
	}
	return s
}

// Leaders returns the terms of a lease, in the order in which they began. Two
// may last at once: it is what the processes did, not what the Lease says.
func (t Timeline) Leaders(lease string) []Term {
	terms := terms(t.Events, lease, t.End)
	runs := runs(t.Events, t.End)
	for i := range terms {
		terms[i].Identity = t.identity(terms[i], runs)
	}
	return terms
}

// terms finds the terms of a lease in events that are in order of time.
func terms(events []Event, lease string, end time.Time) []Term {
	var terms []Term
	// What a process does concerns the run it is in; a run is identified by name
	// and number, its present term by the index.
	type run struct {
		name string
		n    int
	}
	current := map[run]int{}
	frozen := map[run]time.Time{}
	finish := func(r run, at time.Time, how string) {
		i, ok := current[r]
		if !ok {
			return
		}
		delete(current, r)
		terms[i].End, terms[i].Ending, terms[i].Ongoing = at, how, false
		if from, ok := frozen[r]; ok {
			terms[i].Suspended = append(terms[i].Suspended, Interval{from, at})
		}
	}
	for _, e := range events {
		r := run{e.Process.Name, e.Process.Run}
		switch e.Kind {
		case StartedLeading:
			if e.Lease != lease {
				continue
			}
			if _, ok := current[r]; ok {
				continue // it says so twice
			}
			current[r] = len(terms)
			terms = append(terms, Term{Interval: Interval{e.Time, end}, Lease: lease, Process: e.Process, Ongoing: true})
		case StoppedLeading:
			if e.Lease != lease {
				continue
			}
			how := "stopped"
			if e.Detail != "" {
				how = "stopped: " + e.Detail
			}
			finish(r, e.Time, how)
		case ProcessExited:
			finish(r, e.Time, "process exited: "+e.Detail)
			delete(frozen, r)
		case ProcessFrozen:
			frozen[r] = e.Time
		case ProcessThawed:
			if i, ok := current[r]; ok {
				if from, ok := frozen[r]; ok {
					terms[i].Suspended = append(terms[i].Suspended, Interval{from, e.Time})
				}
			}
			delete(frozen, r)
		}
	}
	for r, i := range current {
		if from, ok := frozen[r]; ok {
			terms[i].Suspended = append(terms[i].Suspended, Interval{from, end})
		}
	}
	return terms
}

// processRunSpan is the time in which a run of a process existed.
type processRunSpan struct {
	Interval
	info ProcessInfo
}

func runs(events []Event, end time.Time) []processRunSpan {
	var spans []processRunSpan
	for _, e := range events {
		switch e.Kind {
		case ProcessStarted:
			spans = append(spans, processRunSpan{Interval{e.Time, end}, e.Process})
		case ProcessExited:
			for i := range spans {
				if spans[i].info.Name == e.Process.Name && spans[i].info.Run == e.Process.Run {
					spans[i].End = e.Time
				}
			}
		}
	}
	return spans
}

// identity is the one the process was last seen to use in the run of a term.
func (t Timeline) identity(term Term, runs []processRunSpan) string {
	if term.Process.Identity != "" {
		return term.Process.Identity
	}
	var id string
	for _, r := range runs {
		if r.info.Name != term.Process.Name || r.info.Run != term.Process.Run {
			continue
		}
		for _, f := range t.identities {
			// The audit log's clock is the same; its last stamp of a run may
			// come after the exit.
			if f.process == r.info.Name && !f.at.Before(r.Start) && !f.at.After(r.End.Add(time.Second)) {
				id = f.identity
			}
		}
	}
	return id
}

// LeaderAt returns the term that lasts at a moment: the latest begun, should
// there be two.
func (t Timeline) LeaderAt(lease string, at time.Time) (Term, bool) {
	for _, term := range slices.Backward(t.Leaders(lease)) {
		if term.Contains(at) {
			return term, true
		}
	}
	return Term{}, false
}

// Leader returns the term that lasts at the timeline's end.
func (t Timeline) Leader(lease string) (Term, bool) {
	for _, term := range slices.Backward(t.Leaders(lease)) {
		if term.Ongoing {
			return term, true
		}
	}
	return Term{}, false
}

// Overlap is a time in which two processes worked at once.
type Overlap struct {
	Interval
	A, B Term
}

// Overlaps returns the times in which two leaders of a lease worked at once.
// Being frozen is not working.
func (t Timeline) Overlaps(lease string) []Overlap { return overlaps(t.Leaders(lease)) }

func overlaps(terms []Term) []Overlap {
	var found []Overlap
	for i, a := range terms {
		for _, b := range terms[i+1:] {
			for _, wa := range a.Working() {
				for _, wb := range b.Working() {
					if both, ok := wa.intersect(wb); ok {
						found = append(found, Overlap{Interval: both, A: a, B: b})
					}
				}
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Overlap) int { return compareIntervals(a.Interval, b.Interval) })
	return found
}

// Gaps returns the times in which nobody worked, from the first term on and,
// if nobody leads at the end, up to the end.
func (t Timeline) Gaps(lease string) []Interval { return gaps(t.Leaders(lease), t.End) }

func gaps(terms []Term, end time.Time) []Interval {
	if len(terms) == 0 {
		return nil
	}
	var working []Interval
	for _, term := range terms {
		working = append(working, term.Working()...)
	}
	return subtract(Interval{terms[0].Start, end}, working)
}

// Handoff is a change of leader.
type Handoff struct {
	From, To Term
	// Leaderless is from the end of one to the start of the other; it is
	// negative if they overlapped.
	Leaderless time.Duration
}

// Handoffs returns the changes of leader. A process that leads again after
// itself counts too: it has stopped and started its work.
func (t Timeline) Handoffs(lease string) []Handoff {
	terms := t.Leaders(lease)
	var changes []Handoff
	for i := 1; i < len(terms); i++ {
		changes = append(changes, Handoff{terms[i-1], terms[i], terms[i].Start.Sub(terms[i-1].End)})
	}
	return changes
}

// SkewViolation is a time in which a leader's emulation version exceeded that
// of a kube-apiserver that was running.
type SkewViolation struct {
	Interval
	Leader    Term
	APIServer ProcessInfo
}

// SkewViolations returns all of a lease's, to the microsecond: leaders work and
// kube-apiservers run for known intervals, so nothing is sampled. A
// kube-apiserver counts from the start of its process to its end.
func (t Timeline) SkewViolations(lease string) []SkewViolation {
	return skewViolations(t.Leaders(lease), runs(t.Events, t.End))
}

func skewViolations(terms []Term, runs []processRunSpan) []SkewViolation {
	var found []SkewViolation
	for _, term := range terms {
		for _, r := range runs {
			if r.info.Kind != APIServerKind || compareVersions(term.Process.Emulation, r.info.Emulation) <= 0 {
				continue
			}
			for _, w := range term.Working() {
				if both, ok := w.intersect(r.Interval); ok {
					found = append(found, SkewViolation{both, term, r.info})
				}
			}
		}
	}
	slices.SortStableFunc(found, func(a, b SkewViolation) int { return compareIntervals(a.Interval, b.Interval) })
	return found
}

// compareVersions compares "major.minor" numerically.
func compareVersions(a, b string) int {
	var x, y [2]int
	_, _ = fmt.Sscanf(a, "%d.%d", &x[0], &x[1])
	_, _ = fmt.Sscanf(b, "%d.%d", &y[0], &y[1])
	return slices.Compare(x[:], y[:])
}

// Reaction is a change that concerned a coordinator and its next write.
type Reaction struct {
	Cause, Write Event
	Latency      time.Duration
}

// Reactions pairs every change of a lease's candidates that was not a
// coordinator's with the next write that a coordinator, in-tree or ours, made
// to the lease or its candidates, if it came within the limit and before the
// next such change.
func (t Timeline) Reactions(lease string, within time.Duration) []Reaction {
	return reactions(t.Of(lease), within)
}

func reactions(events []Event, within time.Duration) []Reaction {
	var found []Reaction
	var cause *Event
	for i := range events {
		e := &events[i]
		if !e.isWrite() {
			continue
		}
		byCoordinator := e.WriterKind == CoordinatorKind || e.WriterKind == APIServerKind
		switch {
		case byCoordinator && cause != nil:
			if latency := e.Time.Sub(cause.Time); latency <= within {
				found = append(found, Reaction{*cause, *e, latency})
			}
			cause = nil
		case !byCoordinator && (e.CandidateBefore != nil || e.CandidateAfter != nil):
			cause = e
		}
	}
	return found
}

// String prints the whole timeline, see Print.
func (t Timeline) String() string {
	var b strings.Builder
	_ = t.Print(&b, t.Events)
	return b.String()
}

// Print writes events one to a line, with times since the timeline's start, and
// processes' names in place of those holder identities that are known to be theirs.
func (t Timeline) Print(w io.Writer, events []Event) error {
	names := t.identityNames()
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, e := range events {
		by := ""
		if e.Writer != "" {
			by = "by " + e.Writer
		}
		detail := names.Replace(e.Detail)
		if e.Blind {
			detail += " WITHOUT resourceVersion"
		}
		fmt.Fprintf(tw, "%+.3fs\t%s\t%s\t%s\t%s\t%s\n", e.Time.Sub(t.Start).Seconds(), e.Kind, e.Lease, names.Replace(e.Subject), by, strings.TrimSpace(detail))
	}
	return tw.Flush()
}

// identityNames replaces identities of processes that choose their own, which
// are long and random, by the names of the processes.
func (t Timeline) identityNames() *strings.Replacer {
	var pairs []string
	spans := runs(t.Events, t.End)
	chosen := map[string]bool{}
	for _, r := range spans {
		chosen[r.info.Identity] = true
	}
	for _, f := range t.identities {
		// Those of candidates are given to them, and may be written by whom they take over from.
		if chosen[f.identity] {
			continue
		}
		name := f.process
		for _, r := range spans {
			if r.info.Name == f.process && r.info.Run > 1 && !f.at.Before(r.Start) && !f.at.After(r.End.Add(time.Second)) {
				name = fmt.Sprintf("%s[%d]", f.process, r.info.Run)
			}
		}
		if f.identity != f.process {
			pairs = append(pairs, f.identity, name)
		}
	}
	return strings.NewReplacer(pairs...)
}
