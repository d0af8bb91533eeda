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
	"testing"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

func leader(node, emulation string, run int, from, to float64) framework.Term {
	return framework.Term{
		Interval: framework.Interval{Start: at(from), End: at(to)},
		Process: framework.ProcessInfo{
			Name: node + "/kube-scheduler", Kind: framework.SchedulerKind, Node: node, Emulation: emulation, Run: run,
		},
	}
}

func apiServer(kind framework.EventKind, node string, seconds float64) framework.Event {
	return framework.Event{Time: at(seconds), Kind: kind, Process: framework.ProcessInfo{
		Name: node + "/kube-apiserver", Kind: framework.APIServerKind, Node: node,
	}}
}

func TestBecause(t *testing.T) {
	s := &Script{opts: Options{RenewDeadline: 10 * time.Second}, replaced: map[processRun]bool{{"n1/kube-scheduler", 2}: true}}
	for name, tc := range map[string]struct {
		events   []framework.Event
		from, to framework.Term
		want     string
	}{
		"the operator replaced that run": {
			from: leader("n1", "1.36", 2, 0, 60), to: leader("n2", "1.36", 1, 60, 90),
			want: "operator restarted n1",
		},
		"another run of the replaced process is not excused": {
			from: leader("n1", "1.36", 3, 0, 60), to: leader("n2", "1.36", 1, 60, 90),
		},
		"the new one is older": {
			from: leader("n2", "1.37", 1, 0, 60), to: leader("n1", "1.36", 1, 60, 90),
			want: "older than n2 (1.37)",
		},
		"the new one is newer": {
			from: leader("n2", "1.36", 1, 0, 60), to: leader("n1", "1.37", 1, 60, 90),
		},
		"a process that leads again after itself": {
			from: leader("n2", "1.36", 1, 0, 60), to: leader("n2", "1.36", 2, 60, 90),
		},
		"its kube-apiserver was away for too long": {
			events: []framework.Event{apiServer(framework.ProcessExited, "n2", 50)},
			from:   leader("n2", "1.36", 1, 0, 60), to: leader("n1", "1.36", 1, 75, 90),
			want: "kube-apiserver of n2 away for 10.0 s",
		},
		"its kube-apiserver came back soon": {
			events: []framework.Event{apiServer(framework.ProcessExited, "n2", 55), apiServer(framework.ProcessReady, "n2", 58)},
			from:   leader("n2", "1.36", 1, 0, 60), to: leader("n1", "1.36", 1, 75, 90),
		},
		"its kube-apiserver was away for too long, but it survived that": {
			events: []framework.Event{apiServer(framework.ProcessExited, "n2", 30), apiServer(framework.ProcessReady, "n2", 40)},
			from:   leader("n2", "1.36", 1, 0, 60), to: leader("n1", "1.36", 1, 75, 90),
		},
		"another node's kube-apiserver was away": {
			events: []framework.Event{apiServer(framework.ProcessExited, "n1", 40)},
			from:   leader("n2", "1.36", 1, 0, 60), to: leader("n1", "1.36", 1, 75, 90),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := s.because(framework.Timeline{Events: tc.events}, framework.Handoff{From: tc.from, To: tc.to}); got != tc.want {
				t.Errorf("because = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestVerdict(t *testing.T) {
	component := &Component{Kind: framework.SchedulerKind, Election: Coordinated}
	violation := func(from, to float64) framework.SkewViolation {
		return framework.SkewViolation{Interval: framework.Interval{Start: at(from), End: at(to)}}
	}
	for name, tc := range map[string]struct {
		verdict Verdict
		skewed  time.Duration
		fault   bool
	}{
		"nothing happened":   {verdict: Verdict{}},
		"a justified change": {verdict: Verdict{Changes: []Change{{Because: "a reason"}}}},
		"a change for no reason": {
			verdict: Verdict{Changes: []Change{{}}},
			fault:   true,
		},
		"two leaders at once": {
			verdict: Verdict{Overlaps: []framework.Overlap{{}}},
			fault:   true,
		},
		"moments violated twice count once": {
			verdict: Verdict{Violations: []framework.SkewViolation{violation(0, 10), violation(2, 4), violation(8, 12), violation(20, 21)}},
			skewed:  13 * time.Second,
			fault:   true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.verdict.Component = component
			if got := tc.verdict.Skewed(); got != tc.skewed {
				t.Errorf("skewed for %s, want %s", got, tc.skewed)
			}
			if err := tc.verdict.Err(); (err != nil) != tc.fault {
				t.Errorf("Err = %v, want a fault: %t", err, tc.fault)
			}
		})
	}
}
