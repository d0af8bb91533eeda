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
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is a moment, in seconds since the tests' epoch.
func at(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }

// span is an interval in the same seconds.
func span(from, to float64) Interval { return Interval{at(from), at(to)} }

func TestUnion(t *testing.T) {
	tests := []struct {
		name     string
		in, want []Interval
	}{
		{"nothing", nil, nil},
		{"apart", []Interval{span(3, 4), span(1, 2)}, []Interval{span(1, 2), span(3, 4)}},
		{"touching", []Interval{span(1, 2), span(2, 3)}, []Interval{span(1, 3)}},
		{"overlapping", []Interval{span(1, 3), span(2, 4)}, []Interval{span(1, 4)}},
		{"nested", []Interval{span(1, 9), span(2, 3), span(8, 10)}, []Interval{span(1, 10)}},
		{"empty and reversed ones", []Interval{span(1, 1), span(3, 2)}, nil},
	}
	for _, tt := range tests {
		if got := union(tt.in); !slices.Equal(got, tt.want) {
			t.Errorf("%s: union(%v) = %v, want %v", tt.name, tt.in, got, tt.want)
		}
	}
}

func TestSubtract(t *testing.T) {
	tests := []struct {
		name        string
		parts, want []Interval
	}{
		{"nothing", nil, []Interval{span(2, 8)}},
		{"everything", []Interval{span(0, 10)}, nil},
		{"the exact whole", []Interval{span(2, 8)}, nil},
		{"the middle", []Interval{span(4, 5)}, []Interval{span(2, 4), span(5, 8)}},
		{"both ends", []Interval{span(0, 3), span(7, 9)}, []Interval{span(3, 7)}},
		{"what is outside", []Interval{span(0, 2), span(8, 9)}, []Interval{span(2, 8)}},
		{"overlapping parts", []Interval{span(5, 6), span(3, 5.5)}, []Interval{span(2, 3), span(6, 8)}},
	}
	for _, tt := range tests {
		if got := subtract(span(2, 8), tt.parts); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// story makes events from lines: when, what, which process (and its run).
type line struct {
	at   float64
	kind EventKind
	who  string
	run  int
}

func story(lines ...line) []Event {
	var events []Event
	for _, l := range lines {
		info := ProcessInfo{Name: l.who, Run: max(l.run, 1), Kind: CandidateKind, Emulation: "1.37"}
		e := Event{Time: at(l.at), Kind: l.kind, Subject: l.who, Process: info}
		if l.kind == StartedLeading || l.kind == StoppedLeading {
			e.Lease = "ns/l"
		}
		events = append(events, e)
	}
	return events
}

func TestTerms(t *testing.T) {
	type term struct {
		who       string
		lasts     Interval
		ongoing   bool
		suspended []Interval
	}
	tests := []struct {
		name   string
		events []Event
		want   []term
		gaps   []Interval
		two    []Interval // overlaps
	}{{
		name: "nobody leads",
	}, {
		name:   "one leads to the end",
		events: story(line{1, StartedLeading, "a", 1}),
		want:   []term{{"a", span(1, 10), true, nil}},
	}, {
		name: "a hand-off with nobody in between",
		events: story(line{1, StartedLeading, "a", 1}, line{3, StoppedLeading, "a", 1}, line{4, ProcessExited, "a", 1},
			line{5, StartedLeading, "b", 1}),
		want: []term{{"a", span(1, 3), false, nil}, {"b", span(5, 10), true, nil}},
		gaps: []Interval{span(3, 5)},
	}, {
		name:   "a process that is gone does not lead, whatever it said",
		events: story(line{1, StartedLeading, "a", 1}, line{4, ProcessExited, "a", 1}),
		want:   []term{{"a", span(1, 4), false, nil}},
		gaps:   []Interval{span(4, 10)},
	}, {
		name: "two at once",
		events: story(line{1, StartedLeading, "a", 1}, line{5, StartedLeading, "b", 1},
			line{7, StoppedLeading, "a", 1}),
		want: []term{{"a", span(1, 7), false, nil}, {"b", span(5, 10), true, nil}},
		two:  []Interval{span(5, 7)},
	}, {
		name: "frozen while another leads, and on again: the overlap is what it worked on",
		events: story(line{1, StartedLeading, "a", 1}, line{2, ProcessFrozen, "a", 1},
			line{4, StartedLeading, "b", 1}, line{6, ProcessThawed, "a", 1}, line{6.5, StoppedLeading, "a", 1}),
		want: []term{{"a", span(1, 6.5), false, []Interval{span(2, 6)}}, {"b", span(4, 10), true, nil}},
		gaps: []Interval{span(2, 4)},
		two:  []Interval{span(6, 6.5)},
	}, {
		name:   "frozen to the end",
		events: story(line{1, StartedLeading, "a", 1}, line{2, ProcessFrozen, "a", 1}),
		want:   []term{{"a", span(1, 10), true, []Interval{span(2, 10)}}},
		gaps:   []Interval{span(2, 10)},
	}, {
		name: "killed while frozen",
		events: story(line{1, StartedLeading, "a", 1}, line{2, ProcessFrozen, "a", 1}, line{5, ProcessExited, "a", 1},
			line{6, StartedLeading, "a", 2}),
		want: []term{{"a", span(1, 5), false, []Interval{span(2, 5)}}, {"a", span(6, 10), true, nil}},
		gaps: []Interval{span(2, 6)},
	}, {
		name: "frozen before it led",
		events: story(line{1, ProcessFrozen, "a", 1}, line{2, ProcessThawed, "a", 1},
			line{3, StartedLeading, "a", 1}),
		want: []term{{"a", span(3, 10), true, nil}},
	}, {
		name: "an earlier run's exit does not end a later run's term",
		events: story(line{1, StartedLeading, "a", 2}, line{2, ProcessExited, "a", 1},
			line{3, StoppedLeading, "a", 1}),
		want: []term{{"a", span(1, 10), true, nil}},
	}, {
		name:   "the same words twice",
		events: story(line{1, StartedLeading, "a", 1}, line{2, StartedLeading, "a", 1}, line{3, StoppedLeading, "a", 1}, line{4, StoppedLeading, "a", 1}),
		want:   []term{{"a", span(1, 3), false, nil}},
		gaps:   []Interval{span(3, 10)},
	}, {
		name: "leading again in the same run",
		events: story(line{1, StartedLeading, "a", 1}, line{2, StoppedLeading, "a", 1},
			line{3, StartedLeading, "a", 1}),
		want: []term{{"a", span(1, 2), false, nil}, {"a", span(3, 10), true, nil}},
		gaps: []Interval{span(2, 3)},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			terms := terms(tt.events, "ns/l", at(10))
			var got []term
			for _, x := range terms {
				got = append(got, term{x.Process.Name, x.Interval, x.Ongoing, x.Suspended})
			}
			if !slices.EqualFunc(got, tt.want, func(a, b term) bool {
				return a.who == b.who && a.lasts == b.lasts && a.ongoing == b.ongoing && slices.Equal(a.suspended, b.suspended)
			}) {
				t.Errorf("terms:\ngot  %+v\nwant %+v", got, tt.want)
			}
			if got := gaps(terms, at(10)); !slices.Equal(got, tt.gaps) {
				t.Errorf("gaps: got %v, want %v", got, tt.gaps)
			}
			var two []Interval
			for _, o := range overlaps(terms) {
				two = append(two, o.Interval)
			}
			if !slices.Equal(two, tt.two) {
				t.Errorf("overlaps: got %v, want %v", two, tt.two)
			}
			if others := overlaps(nil); others != nil {
				t.Errorf("overlaps of nothing: %v", others)
			}
		})
	}
}

func TestTermsOfOtherLeases(t *testing.T) {
	events := story(line{1, StartedLeading, "a", 1}, line{2, StoppedLeading, "a", 1})
	events[1].Lease = "ns/other"
	if got := terms(events, "ns/l", at(10)); len(got) != 1 || !got[0].Ongoing {
		t.Errorf("the end of another lease's term ended it: %+v", got)
	}
	if got := terms(events, "ns/other", at(10)); got != nil {
		t.Errorf("terms of a lease that nobody led: %+v", got)
	}
}

func TestSkewViolations(t *testing.T) {
	server := func(name, emulation string, lasts Interval) processRunSpan {
		return processRunSpan{lasts, ProcessInfo{Name: name, Kind: APIServerKind, Emulation: emulation}}
	}
	leader := func(emulation string, lasts Interval, suspended ...Interval) Term {
		return Term{Interval: lasts, Process: ProcessInfo{Name: "kcm", Emulation: emulation}, Suspended: suspended}
	}
	tests := []struct {
		name  string
		terms []Term
		runs  []processRunSpan
		want  []Interval
	}{{
		name:  "as old as the oldest",
		terms: []Term{leader("1.36", span(0, 10))},
		runs:  []processRunSpan{server("n1", "1.36", span(0, 10)), server("n2", "1.37", span(0, 10))},
	}, {
		name:  "newer than the oldest, from when both are there",
		terms: []Term{leader("1.37", span(2, 8))},
		runs:  []processRunSpan{server("n1", "1.36", span(0, 5)), server("n2", "1.37", span(0, 10))},
		want:  []Interval{span(2, 5)},
	}, {
		name:  "1.9 is older than 1.10",
		terms: []Term{leader("1.10", span(2, 8))},
		runs:  []processRunSpan{server("n1", "1.9", span(0, 3))},
		want:  []Interval{span(2, 3)},
	}, {
		name:  "frozen leaders do no harm",
		terms: []Term{leader("1.37", span(0, 10), span(1, 9))},
		runs:  []processRunSpan{server("n1", "1.36", span(2, 9.5))},
		want:  []Interval{span(9, 9.5)},
	}, {
		name:  "other programs do not count",
		terms: []Term{leader("1.37", span(0, 10))},
		runs:  []processRunSpan{{span(0, 10), ProcessInfo{Kind: SchedulerKind, Emulation: "1.36"}}},
	}}
	for _, tt := range tests {
		var got []Interval
		for _, v := range skewViolations(tt.terms, tt.runs) {
			got = append(got, v.Interval)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestHandoffs(t *testing.T) {
	tl := Timeline{End: at(10), Events: story(line{1, StartedLeading, "a", 1}, line{3, StoppedLeading, "a", 1},
		line{5, StartedLeading, "b", 1}, line{6, StartedLeading, "c", 1}, line{7, StoppedLeading, "b", 1})}
	var got []time.Duration
	for _, h := range tl.Handoffs("ns/l") {
		got = append(got, h.Leaderless)
	}
	if want := []time.Duration{2 * time.Second, -time.Second}; !slices.Equal(got, want) {
		t.Errorf("leaderless for %v, want %v", got, want)
	}
	if leader, ok := tl.LeaderAt("ns/l", at(6.5)); !ok || leader.Process.Name != "c" {
		t.Errorf("of two leaders at 6.5 s got %v, want the latest begun", leader)
	}
	if leader, ok := tl.LeaderAt("ns/l", at(4)); ok {
		t.Errorf("leader at 4 s: %v, want none", leader)
	}
	if leader, ok := tl.Leader("ns/l"); !ok || leader.Process.Name != "c" {
		t.Errorf("leader at the end: %v, want c", leader)
	}
}

func TestIdentities(t *testing.T) {
	events := story(line{1, ProcessStarted, "kcm", 1}, line{2, StartedLeading, "kcm", 1}, line{3, ProcessExited, "kcm", 1},
		line{4, ProcessStarted, "kcm", 2}, line{6, StartedLeading, "kcm", 2})
	tl := Timeline{Start: at(0), End: at(10), Events: events, identities: []identityFact{
		{"kcm", "host_1", at(1.5)}, {"other", "host_x", at(1.6)}, {"kcm", "host_2", at(5)},
	}}
	terms := tl.Leaders("ns/l")
	if len(terms) != 2 || terms[0].Identity != "host_1" || terms[1].Identity != "host_2" {
		t.Errorf("terms: %+v", terms)
	}
	var b strings.Builder
	if err := tl.Print(&b, []Event{{Time: at(7), Kind: LeaseRenewed, Lease: "ns/l", Subject: "host_2", Writer: "kcm"}}); err != nil {
		t.Fatal(err)
	}
	if want := "+7.000s  lease-renewed  ns/l  kcm[2]  by kcm  \n"; b.String() != want {
		t.Errorf("printed %q, want %q", b.String(), want)
	}
}

func TestReactions(t *testing.T) {
	candidate := &coordinationv1beta1.LeaseCandidate{}
	lease := &coordinationv1.Lease{}
	byCandidate := func(s float64) Event {
		return Event{Time: at(s), Kind: CandidateCreated, Object: "leasecandidate/ns/a", WriterKind: CandidateKind, CandidateAfter: candidate}
	}
	byCoordinator := func(s float64) Event {
		return Event{Time: at(s), Kind: LeaseAppointed, Object: "lease/ns/l", WriterKind: CoordinatorKind, LeaseAfter: lease}
	}
	renewal := Event{Time: at(1.05), Kind: LeaseRenewed, Object: "lease/ns/l", WriterKind: CandidateKind, LeaseAfter: lease}
	got := reactions([]Event{
		byCoordinator(0),                                               // nothing caused it
		byCandidate(1), byCandidate(1.01), renewal, byCoordinator(1.1), // the last change counts
		byCoordinator(1.2),                                                    // no second reaction
		byCandidate(2), byCoordinator(5), byCandidate(6), byCoordinator(6.01), // the first is too late
	}, time.Second)
	if len(got) != 2 || got[0].Latency != 90*time.Millisecond || got[1].Latency != 10*time.Millisecond {
		t.Errorf("reactions: %+v", got)
	}
}

func TestFinishKeepsTheOrderOfWrites(t *testing.T) {
	lease := func(version string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}
	}
	events := finish([]Event{
		{Time: at(2), Object: "lease/ns/l", ResourceVersion: "5", LeaseAfter: lease("5")},
		{Time: at(1.9), Object: "lease/ns/l", ResourceVersion: "6", LeaseBefore: lease("5"), LeaseAfter: lease("6")},
		{Time: at(1), Kind: Mark},
	})
	var got []string
	for _, e := range events {
		got = append(got, string(e.Kind)+"@"+e.ResourceVersion)
	}
	if want := []string{"mark@", "lease-created@5", "lease-updated@6"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWorkSpans(t *testing.T) {
	const ms = time.Millisecond
	a := workSpans("a", []time.Duration{0, 20 * ms, 40 * ms, 500 * ms, 520 * ms})
	if want := []WorkSpan{{"a", 0, 40 * ms}, {"a", 500 * ms, 520 * ms}}; !slices.Equal(a, want) {
		t.Errorf("got %v, want %v", a, want)
	}
	both := WorkOverlaps(append(a, workSpans("b", []time.Duration{510 * ms, 600 * ms})...))
	if want := []WorkSpan{{"a and b", 510 * ms, 520 * ms}}; !slices.Equal(both, want) {
		t.Errorf("overlaps: got %v, want %v", both, want)
	}
	if own := WorkOverlaps(append(a, a...)); own != nil {
		t.Errorf("a candidate overlaps with itself: %v", own)
	}
}
