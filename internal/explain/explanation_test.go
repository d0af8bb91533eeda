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

package explain

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/blang/semver/v4"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

var (
	t0  = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	key = types.NamespacedName{Namespace: "ns", Name: "lease"}
)

func settings(t testing.TB) *election.Settings {
	t.Helper()
	registry, err := strategy.NewRegistry(strategy.BuiltIn()...)
	if err != nil {
		t.Fatal(err)
	}
	return &election.Settings{
		Strategies: registry, ElectionDuration: election.DefaultElectionDuration, CandidateTTL: election.DefaultCandidateTTL,
	}
}

// world is a lease and its candidates, observed from the beginning, for what no dump can show.
type world struct {
	t *testing.T
	election.Snapshot
}

func newWorld(t *testing.T, emulations ...string) *world {
	t.Helper()
	w := &world{t, election.Snapshot{Now: t0, Key: key, Observed: &election.Observations{}, FieldsKept: true, Settings: settings(t)}}
	for i, emulation := range emulations {
		stamp := metav1.NewMicroTime(t0.Add(time.Duration(i) * time.Second))
		c := strategy.NewCandidate(
			&metav1.ObjectMeta{Namespace: key.Namespace, Name: "n" + string(rune('1'+i)), CreationTimestamp: metav1.NewTime(stamp.Time)},
			strategy.Spec{LeaseName: key.Name, BinaryVersion: "1.40.0", EmulationVersion: emulation, Strategy: v1alpha1.OldestEmulationVersion, RenewTime: &stamp})
		w.Candidates = append(w.Candidates, election.Candidate{Candidate: c, Observed: election.CandidateObservations{}.See(c, stamp.Time, false)})
	}
	w.Now = t0.Add(time.Minute)
	return w
}

// hold has a candidate lead, renewed now.
func (w *world) hold(holder string) {
	acquired, renewed, seconds := metav1.NewMicroTime(w.Now.Add(-time.Second)), metav1.NewMicroTime(w.Now), int32(15)
	w.Lease = &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: &holder, AcquireTime: &acquired, RenewTime: &renewed, LeaseDurationSeconds: &seconds,
	}}
	w.Observed.SeeLease(w.Lease, w.Now)
}

// act decides and carries out what is decided; those that are pinged ack, but the silent.
func (w *world) act(silent ...string) election.Decision {
	w.t.Helper()
	d := election.Decide(&w.Snapshot)
	if d.Action == election.Ping {
		for i := range w.Candidates {
			c := &w.Candidates[i]
			for _, name := range d.Pings {
				if c.Name == name {
					c.Observed = c.Observed.Ping(w.Now)
				}
			}
			dead := false
			for _, name := range silent {
				dead = dead || c.Name == name
			}
			if !dead && !c.Observed.Pinged.IsZero() {
				acked := *c.Candidate
				acked.Renewed = w.Now
				c.Candidate = &acked
				c.Observed = c.Observed.See(&acked, w.Now, false)
			}
		}
		return d
	}
	if after := d.Write(&w.Snapshot, "1"); after != nil {
		before := w.Lease
		w.Lease = after
		w.Observed.Wrote(d, before, after, w.Now)
	}
	return d
}

func (w *world) explain() *Explanation {
	return New(Facts{
		Key: w.Key, Lease: w.Lease, Claim: w.Observed.Claim, AwaitingTakeUp: w.Observed.Appointment != nil, Now: w.Now,
		Explanation: election.Explain(&w.Snapshot),
	})
}

func (w *world) wantReasons(want map[string]string) {
	w.t.Helper()
	got := map[string]string{}
	for _, c := range w.explain().Ranking {
		got[c.Name] = c.Reason
	}
	if !reflect.DeepEqual(got, want) {
		w.t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestReasonsOfTheRemembered: what a running coordinator remembers, and no object shows.
func TestReasonsOfTheRemembered(t *testing.T) {
	t.Run("benched", func(t *testing.T) {
		w := newWorld(t, "1.36.0", "1.37.0")
		for range 20 {
			d := w.act()
			if d.Action == election.Appoint && d.Candidate == "n2" {
				break
			}
			if d.Action == election.None {
				w.Now = d.LookAgain
			}
		}
		w.wantReasons(map[string]string{
			"n1": "benched until " + stamp(w.Now.Add(10*time.Second)) + ": it was appointed and did not take up",
			"n2": "appointed, and has not taken up yet",
		})
	})
	t.Run("held off", func(t *testing.T) {
		w := newWorld(t, "1.36.0", "1.37.0")
		w.hold("n1")
		w.Now = w.Now.Add(15 * time.Second)
		w.act("n1")
		if d := w.act(); d.Action != election.Appoint || d.Candidate != "n2" {
			t.Fatalf("decides %q", d.Sentence())
		}
		lost := w.Now
		w.Now = w.Now.Add(time.Second)
		w.hold("n2")
		w.Candidates[0].Observed = election.CandidateObservations{Seen: t0, Moved: w.Now}
		until := stamp(lost.Add(30 * time.Second))
		w.wantReasons(map[string]string{
			"n1": "held off until " + until + ": it lost the lease by expiry a while ago",
			"n2": "leads",
		})
	})
	t.Run("ignores its end of term", func(t *testing.T) {
		w := newWorld(t, "1.36.0", "1.37.0")
		w.hold("n2")
		w.act()
		if d := w.act(); d.Action != election.Prefer {
			t.Fatalf("decides %q", d.Sentence())
		}
		w.Now = w.Now.Add(time.Second)
		w.hold("n2")
		w.wantReasons(map[string]string{
			"n1": "ranks above n2; that one is kept: it renewed after it was told to yield, and is left alone until " + stamp(w.Now.Add(5*time.Minute)),
			"n2": "leads",
		})
	})
	t.Run("gives way before it takes up", func(t *testing.T) {
		w := newWorld(t, "1.36.0", "1.37.0")
		w.act("n1")
		w.Now = w.Now.Add(5 * time.Second)
		w.act()
		if d := w.act(); d.Candidate != "n2" {
			t.Fatalf("decides %q", d.Sentence())
		}
		w.wantReasons(map[string]string{"n1": "suspect: did not answer a ping", "n2": "appointed, and has not taken up yet"})
		w.Candidates[0].Observed = election.CandidateObservations{Seen: t0, Moved: w.Now}
		w.wantReasons(map[string]string{"n1": "is appointed next", "n2": "appointed and has not taken up; gives way to n1"})
	})
	t.Run("released", func(t *testing.T) {
		w := newWorld(t, "1.36.0", "1.37.0")
		w.hold("n1")
		w.act()
		empty := ""
		w.Lease.Spec.HolderIdentity = &empty
		w.Observed.SeeLease(w.Lease, w.Now)
		w.act()
		w.Candidates[0].Observed = election.CandidateObservations{Seen: t0, Moved: w.Now}
		w.wantReasons(map[string]string{
			"n1": "ranks first among those that may lead; has just released the lease",
			"n2": "is appointed next",
		})
	})
	t.Run("ties", func(t *testing.T) {
		w := newWorld(t, "1.36.0", "1.36.0", "1.36.0", "1.36.0")
		w.Candidates[3].Created = w.Candidates[2].Created
		w.hold("n3")
		w.wantReasons(map[string]string{
			"n1": "has no more merit than n3, and a tie never preempts",
			"n2": "has no more merit than n3, and a tie never preempts",
			"n3": "leads",
			"n4": "name after n3",
		})
	})
}

func TestWireValues(t *testing.T) {
	v := semver.MustParse("1.2.3-rc.1")
	for _, test := range []struct {
		value any
		want  string
	}{
		{true, "true"}, {int64(-1), "-1"}, {uint64(math.MaxUint64), "18446744073709551615"}, {"a \"b\"", `"a \"b\""`},
		{1.5, "1.5"}, {math.NaN(), `"NaN"`}, {math.Inf(1), `"+Inf"`}, {&v, `"1.2.3-rc.1"`},
		{t0, `"2026-03-02T10:00:00Z"`}, {90 * time.Second, `"1m30s"`},
	} {
		got, err := json.Marshal(wireValue(strategy.Key{Value: test.value}))
		if err != nil || string(got) != test.want {
			t.Errorf("%v: %s, %v; want %s", test.value, got, err, test.want)
		}
	}
}

// TestNothingMovesTheCursor: names and annotations are somebody else's to write.
func TestNothingMovesTheCursor(t *testing.T) {
	w := newWorld(t, "1.36.0", "1.37.0")
	w.Candidates[1].Ineligible = "red\x1b[31m\nn9\tleads\u009b2J"
	var b bytes.Buffer
	if err := Print(&b, Text, w.explain()); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(b.String(), "\x1b\t\u009b") || strings.Contains(b.String(), "\nn9") {
		t.Errorf("prints %q", b.String())
	}
}

func TestRounded(t *testing.T) {
	for _, test := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"}, {1234567, "1ms"}, {1449 * time.Millisecond, "1.4s"}, {14499 * time.Millisecond, "14s"}, {15 * time.Minute, "15m"},
		{2 * time.Hour, "2h"}, {90 * time.Minute, "1h30m"}, {61 * time.Second, "1m1s"},
	} {
		if got := Rounded(test.d); got != test.want {
			t.Errorf("%d: %q, want %q", test.d, got, test.want)
		}
	}
}
