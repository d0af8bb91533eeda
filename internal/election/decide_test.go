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

package election

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

func settings(tb testing.TB) *Settings {
	tb.Helper()
	registry, err := strategy.NewRegistry(strategy.BuiltIn()...)
	if err != nil {
		tb.Fatal(err)
	}
	return &Settings{Strategies: registry, ElectionDuration: DefaultElectionDuration, CandidateTTL: DefaultCandidateTTL}
}

// candidateOf returns a candidate that renewed and was seen to, that many seconds after t0.
func candidateOf(name, emulation string, moved float64) Candidate {
	now := at(moved)
	stamp := metav1.NewMicroTime(now)
	c := strategy.NewCandidate(
		&metav1.ObjectMeta{Namespace: key.Namespace, Name: name, UID: types.UID("uid-" + name)},
		strategy.Spec{LeaseName: key.Name, BinaryVersion: "1.38.0", EmulationVersion: emulation, Strategy: v1alpha1.OldestEmulationVersion, RenewTime: &stamp})
	return Candidate{Candidate: c, Observed: CandidateObservations{}.See(c, now, false)}
}

// steady is a lease that n1 leads and has just renewed, at t0, with candidates that were heard of a minute ago.
func steady(tb testing.TB, n int) *Snapshot {
	tb.Helper()
	o := &Observations{Since: at(-3600)}
	l := leaseOf("n1", at(-600), at(0), 15)
	o.SeeLease(l, at(0))
	s := &Snapshot{Now: at(1), Key: key, Lease: l, Observed: o, FieldsKept: true, Settings: settings(tb)}
	for i := range n {
		s.Candidates = append(s.Candidates, candidateOf(fmt.Sprintf("n%d", i+1), fmt.Sprintf("1.%d.0", 30+i), -60))
	}
	return s
}

func wantDecision(t *testing.T, s *Snapshot, action Action, reason Reason) Decision {
	t.Helper()
	d := Decide(s)
	if d.Action != action || d.Reason != reason {
		t.Errorf("got %s for %s (%q), want %s for %s", d.Action, d.Reason, d.Sentence(), action, reason)
	}
	return d
}

func TestSteady(t *testing.T) {
	s := steady(t, 3)
	d := wantDecision(t, s, None, ReasonOptimal)
	// A third of the duration, at most the election duration, before the claim runs out.
	if want := at(10); !d.LookAgain.Equal(want) {
		t.Errorf("look again at %s, want %s", d.LookAgain, want)
	}
}

// TestBoundaries: each rule that depends on time changes its mind at one instant, not before.
func TestBoundaries(t *testing.T) {
	const nano = time.Nanosecond
	tests := []struct {
		name          string
		snapshot      func(*testing.T) *Snapshot
		at            time.Time
		before, after Reason
	}{
		{
			name:     "a holder that does not renew is doubted for the last third of its claim",
			snapshot: func(t *testing.T) *Snapshot { return steady(t, 1) },
			at:       at(10), before: ReasonOptimal, after: ReasonExpiring,
		},
		{
			name: "a claim runs out",
			snapshot: func(t *testing.T) *Snapshot {
				s := steady(t, 2)
				s.Candidates[1] = candidateOf("n2", "1.37.0", 14)
				s.Candidates[0].Observed = s.Candidates[0].Observed.Ping(at(10))
				return s
			},
			at: at(15), before: ReasonOptimal, after: ReasonExpired,
		},
		{
			name: "a pinged candidate is waited for for the election duration",
			snapshot: func(t *testing.T) *Snapshot {
				s := steady(t, 1)
				s.Candidates = append(s.Candidates, candidateOf("n0", "1.20.0", -60))
				s.Candidates[1].Observed = s.Candidates[1].Observed.Ping(at(1))
				return s
			},
			at: at(6), before: ReasonBetterAsked, after: ReasonOptimal,
		},
		{
			name: "the minimum term ends",
			snapshot: func(t *testing.T) *Snapshot {
				s := steady(t, 1)
				s.Settings.MinTerm = 5 * time.Second
				s.Candidates = append(s.Candidates, candidateOf("n0", "1.20.0", 2))
				return s
			},
			at: at(5), before: ReasonMinTerm, after: ReasonBetterCandidate,
		},
		{
			name: "a hold-off ends",
			snapshot: func(t *testing.T) *Snapshot {
				s := steady(t, 1)
				s.Candidates = append(s.Candidates, candidateOf("n0", "1.20.0", 2))
				s.Observed.lose("n0", at(-25))
				return s
			},
			at: at(5), before: ReasonHoldOff, after: ReasonBetterCandidate,
		},
		{
			name: "a holder that did not obey is told again",
			snapshot: func(t *testing.T) *Snapshot {
				s := steady(t, 1)
				s.Candidates = append(s.Candidates, candidateOf("n0", "1.20.0", 2))
				s.Observed.ignoredUntil = at(5)
				return s
			},
			at: at(5), before: ReasonHoldOff, after: ReasonBetterCandidate,
		},
		{
			name: "a priority ends",
			snapshot: func(t *testing.T) *Snapshot {
				s := steady(t, 1)
				c := candidateOf("n9", "1.39.0", 2)
				c.Priority, c.PriorityUntil = 1, at(5)
				s.Candidates = append(s.Candidates, c)
				return s
			},
			at: at(5), before: ReasonBetterCandidate, after: ReasonOptimal,
		},
		{
			name: "half the candidate TTL has passed",
			snapshot: func(t *testing.T) *Snapshot {
				s := steady(t, 1)
				// So that nobody has joined since.
				s.Candidates[0].Observed.Initial = true
				s.Candidates = append(s.Candidates, candidateOf("n9", "1.39.0", 5-15*60))
				return s
			},
			at: at(5), before: ReasonOptimal, after: ReasonCandidateTTL,
		},
		{
			name: "the candidate TTL has passed",
			snapshot: func(t *testing.T) *Snapshot {
				s := steady(t, 1)
				s.Candidates[0] = candidateOf("n1", "1.30.0", 5-30*60)
				s.Candidates[0].Observed = s.Candidates[0].Observed.Ping(at(-60))
				return s
			},
			at: at(5).Add(nano), before: ReasonOptimal, after: ReasonNoAdmissibleCandidate,
		},
		{
			name: "an appointment is not taken up",
			snapshot: func(t *testing.T) *Snapshot {
				s := steady(t, 1)
				s.Observed = &Observations{}
				s.Lease = appointAgain(s.Observed, nil, "n1", ReasonNoLease, at(0))
				s.Candidates[0] = candidateOf("n1", "1.30.0", 1)
				return s
			},
			at: at(5), before: ReasonAwaitingTakeUp, after: ReasonNotTakenUp,
		},
		{
			name: "a claim on a lease that may have been deleted unseen",
			snapshot: func(t *testing.T) *Snapshot {
				s := steady(t, 1)
				s.Lease, s.Observed = nil, &Observations{Since: at(-10)}
				s.Candidates[0].Observed.Initial = true
				return s
			},
			at: at(5), before: ReasonUnseenClaim, after: ReasonNoLease,
		},
		{
			name: "the claim on a deleted lease",
			snapshot: func(t *testing.T) *Snapshot {
				s := steady(t, 1)
				s.Lease = nil
				s.Observed.SeeDeleted(at(1), false)
				return s
			},
			at: at(15), before: ReasonLeaseDeleted, after: ReasonNoLease,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.snapshot(t)
			s.Now = tt.at.Add(-nano)
			before := Decide(s)
			if before.Reason != tt.before {
				t.Errorf("just before: %s (%q), want %s", before.Reason, before.Sentence(), tt.before)
			}
			s.Now = tt.at
			after := Decide(s)
			if after.Reason != tt.after {
				t.Errorf("then: %s (%q), want %s", after.Reason, after.Sentence(), tt.after)
			}
			if before.Action == None && (before.LookAgain.IsZero() || before.LookAgain.After(tt.at)) {
				t.Errorf("just before, it would have looked again at %s only", before.LookAgain)
			}
		})
	}
}

func TestSignOfLifeCountsForTheElectionDuration(t *testing.T) {
	s := steady(t, 1)
	*s.Lease.Spec.HolderIdentity = ""
	s.Observed.Claim = Claim{}
	s.Candidates[0] = candidateOf("n1", "1.30.0", 0)
	s.Now = at(5)
	wantDecision(t, s, Appoint, ReasonReleased)
	s.Now = at(5).Add(1)
	wantDecision(t, s, Ping, ReasonReleased)
}

// TestAppointmentIsComparedWithTheLease: should the coordinator have missed that its appointee took up, the appointee
// is a holder at work and must not be replaced like one that never began.
func TestAppointmentIsComparedWithTheLease(t *testing.T) {
	s := steady(t, 1)
	appointAgain(s.Observed, nil, "n1", ReasonNoLease, at(0))
	s.Candidates = append(s.Candidates, candidateOf("n0", "1.20.0", 1))
	s.Lease = leaseOf("n1", at(0), at(1), 15)
	wantDecision(t, s, Prefer, ReasonBetterCandidate)
}

// TestClaimIsComparedWithTheLease: a claim that was never observed runs from now, not from what was seen of another.
func TestClaimIsComparedWithTheLease(t *testing.T) {
	s := steady(t, 2)
	s.Now = at(60)
	s.Lease = leaseOf("n2", at(59), at(59), 15)
	if d := Decide(s); d.Action == Appoint {
		t.Errorf("%s", d.Sentence())
	}
}

func TestExcluded(t *testing.T) {
	for _, excluded := range []types.NamespacedName{
		{Namespace: "kube-node-lease", Name: "node-1"},
		{Namespace: "kube-system", Name: "leader-election-controller"},
		{Namespace: "ours", Name: "lock"},
	} {
		s := steady(t, 0)
		s.Lease = nil
		s.Key = excluded
		s.Settings.Excluded = []types.NamespacedName{{Namespace: "ours", Name: "lock"}}
		c := candidateOf("n1", "1.30.0", 1)
		c.Namespace, c.LeaseName = excluded.Namespace, excluded.Name
		s.Candidates = []Candidate{c}
		wantDecision(t, s, None, ReasonExcluded)
	}
}

func TestInTree(t *testing.T) {
	s := steady(t, 1)
	s.Lease, s.InTreeActive = nil, true
	wantDecision(t, s, None, ReasonInTree)
	s.Candidates[0].Strategy = strategy.NewestBinaryVersion{}.Name()
	if d := Decide(s); d.Reason == ReasonInTree {
		t.Error("a strategy of a domain of ours was left to the in-tree coordinator")
	}
}

func TestInadmissible(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Candidate)
		want   string
	}{
		{"another namespace", func(c *Candidate) { c.Namespace = "other" }, "is a candidate for another lease"},
		{"another lease", func(c *Candidate) { c.LeaseName = "other" }, "is a candidate for another lease"},
		{"never renewed", func(c *Candidate) { c.Renewed = time.Time{} }, "never renewed"},
		{"ineligible", func(c *Candidate) { c.Ineligible = "backup" }, "is marked never to lead: backup"},
		{"no version", func(c *Candidate) { c.Emulation = strategy.ParseVersion("x") }, `emulationVersion "x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := steady(t, 2)
			tt.change(&s.Candidates[1])
			verdicts, _, _ := Rank(s)
			if len(verdicts) != 2 || verdicts[0].Name != "n1" || !strings.Contains(verdicts[1].Inadmissible, tt.want) {
				t.Errorf("got %+v", verdicts)
			}
			s.Candidates, s.Lease = s.Candidates[1:], nil
			d := wantDecision(t, s, None, ReasonNoAdmissibleCandidate)
			if !strings.Contains(d.Sentence(), tt.want) {
				t.Errorf("%q does not say why", d.Sentence())
			}
		})
	}
}

// TestWrongClockMakesNobodyInadmissible: a coordinator that has just started has no more than stamps, and if its
// clock is wrong, they tell it nothing.
func TestWrongClockMakesNobodyInadmissible(t *testing.T) {
	for _, off := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		s := steady(t, 2)
		for i := range s.Candidates {
			c := &s.Candidates[i]
			c.Renewed = at(0).Add(off)
			c.Observed = CandidateObservations{}.See(c.Candidate, at(0), true)
		}
		wantDecision(t, s, None, ReasonOptimal)
	}
}

// TestConsensusLikeInTree: the cases of the in-tree coordinator's own tests, and what else rule 3 says.
func TestConsensusLikeInTree(t *testing.T) {
	const ours, theirs = "OldestEmulationVersion", "foo.com/bar"
	tests := []struct {
		name       string
		candidates [][2]string // binary version, strategy
		want       string
		reason     Reason
	}{
		{"one", [][2]string{{"1.37.0", ours}}, ours, ""},
		{"two that differ", [][2]string{{"1.37.0", ours}, {"1.37.0", theirs}}, "", ReasonStrategyConflict},
		{"two that differ, without versions", [][2]string{{"", ours}, {"", theirs}}, "", ReasonStrategyConflict},
		{"the higher version decides", [][2]string{{"1.32.0", ours}, {"1.31.0", theirs}}, ours, ""},
		{"in any order", [][2]string{{"1.31.0", theirs}, {"1.32.0", ours}}, ours, ""},
		{"not the lexical order", [][2]string{{"1.1.10", ours}, {"1.1.2", theirs}}, ours, ""},
		{"two that agree", [][2]string{{"1.31.0", ours}, {"1.31.0", ours}}, ours, ""},
		{"two of the highest that differ", [][2]string{{"1.31.0", ours}, {"1.32.0", ours}, {"1.32.0", theirs}}, "", ReasonStrategyConflict},
		{"a version that is none counts as the lowest", [][2]string{{"", theirs}, {"1.32.0", ours}}, ours, ""},
		{"not ours", [][2]string{{"1.32.0", theirs}, {"1.31.0", ours}}, theirs, ReasonForeignStrategy},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := steady(t, 0)
			for i, c := range tt.candidates {
				candidate := candidateOf(fmt.Sprintf("n%d", i), "1.30.0", 0)
				candidate.Binary = strategy.ParseVersion(c[0])
				candidate.Strategy = coordinationv1.CoordinatedLeaseStrategy(c[1])
				s.Candidates = append(s.Candidates, candidate)
			}
			for range 2 {
				if _, name, reason := Rank(s); string(name) != tt.want || reason != tt.reason {
					t.Errorf("got %q, %s; want %q, %s", name, reason, tt.want, tt.reason)
				}
				slices.Reverse(s.Candidates)
			}
		})
	}
}

// TestTheDeadHaveNoVote: a candidate that did not ack, or whose stamp is old and never moved, does not block those
// that live.
func TestTheDeadHaveNoVote(t *testing.T) {
	s := steady(t, 1)
	newer := candidateOf("n9", "1.39.0", -60)
	newer.Binary, newer.Strategy = strategy.ParseVersion("1.99.0"), "foo.com/bar"
	s.Candidates = append(s.Candidates, newer)
	wantDecision(t, s, None, ReasonForeignStrategy)
	s.Candidates[1].Observed = newer.Observed.Ping(at(-10))
	wantDecision(t, s, None, ReasonOptimal)

	newer.Renewed = at(-3600)
	s.Candidates[1].Observed = CandidateObservations{}.See(newer.Candidate, at(-1), true)
	wantDecision(t, s, None, ReasonOptimal)
	s.Candidates = s.Candidates[1:]
	wantDecision(t, s, None, ReasonForeignStrategy)
}

// TestReasonsOfMany: what an event or a log line can hold does not grow with the number of candidates.
func TestReasonsOfMany(t *testing.T) {
	s := steady(t, 100)
	for i := range s.Candidates {
		s.Candidates[i].Ineligible = "drill"
	}
	if got := Decide(s).Sentence(); !strings.Contains(got, "and 95 more") || len(got) > 1000 {
		t.Errorf("%q", got)
	}
}

// anySnapshot draws snapshots, some as they come about, some that make no sense.
var anySnapshot = rapid.Custom(func(t *rapid.T) *Snapshot {
	seconds := func(label string, low, high int) time.Time {
		return at(float64(rapid.IntRange(low*4, high*4).Draw(t, label)) / 4)
	}
	stamp := func(label string) *metav1.MicroTime {
		switch rapid.IntRange(0, 9).Draw(t, label+" kind") {
		case 0:
			return nil
		case 1:
			return &metav1.MicroTime{}
		case 2:
			return ptr.To(metav1.NewMicroTime(time.Unix(rapid.Int64Range(-1<<36, 1<<36).Draw(t, label), 0)))
		}
		return ptr.To(metav1.NewMicroTime(seconds(label, -60, 5)))
	}
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "stranger", v1alpha1.RevokedHolder, ""})
	maybe := func(label string) *string {
		if rapid.Bool().Draw(t, label+" set") {
			return ptr.To(name.Draw(t, label))
		}
		return nil
	}
	number := func(label string) *int32 {
		switch rapid.IntRange(0, 4).Draw(t, label+" kind") {
		case 0:
			return nil
		case 1:
			return ptr.To(rapid.Int32().Draw(t, label))
		}
		return ptr.To(rapid.Int32Range(1, 30).Draw(t, label))
	}
	lease := func(label string) *coordinationv1.Lease {
		l := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: fmt.Sprint(rapid.IntRange(100, 999).Draw(t, label+" version"))},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: maybe(label + " holder"), PreferredHolder: maybe(label + " preferred"),
				RenewTime: stamp(label + " renewed"), AcquireTime: stamp(label + " acquired"),
				LeaseDurationSeconds: number(label + " duration"), LeaseTransitions: number(label + " transitions"),
			},
		}
		if rapid.IntRange(0, 9).Draw(t, label+" annotated") == 0 {
			l.Annotations = map[string]string{v1alpha1.PreemptionAnnotation: v1alpha1.PreemptionNever}
		}
		return l
	}
	registry, err := strategy.NewRegistry(strategy.BuiltIn()...)
	if err != nil {
		t.Fatal(err)
	}
	s := &Snapshot{
		Now: at(0), Key: key, FieldsKept: rapid.Bool().Draw(t, "fields kept"),
		Settings: &Settings{
			Strategies: registry, ElectionDuration: DefaultElectionDuration, CandidateTTL: DefaultCandidateTTL,
			MinTerm:       time.Duration(rapid.SampledFrom([]int{0, 0, 30}).Draw(t, "min term")) * time.Second,
			TakeUpTimeout: time.Duration(rapid.SampledFrom([]int{0, 0, 7}).Draw(t, "take-up")) * time.Second,
		},
		Observed: &Observations{Since: seconds("since", -60, 0)},
	}
	for i, n := range rapid.Permutation([]string{"a", "b", "c", "d", "e"}).Draw(t, "names")[:rapid.IntRange(0, 5).Draw(t, "candidates")] {
		label := "candidate " + n
		c := strategy.NewCandidate(
			&metav1.ObjectMeta{
				Namespace: key.Namespace, Name: n, UID: types.UID(n),
				CreationTimestamp: metav1.NewTime(at(float64(-rapid.IntRange(0, 2).Draw(t, label+" age")))),
			},
			strategy.Spec{
				LeaseName:        key.Name,
				BinaryVersion:    rapid.SampledFrom([]string{"1.37.0", "1.37.0", "1.38.0", "x"}).Draw(t, label+" binary"),
				EmulationVersion: rapid.SampledFrom([]string{"1.36.0", "1.37.0", "1.38.0", ""}).Draw(t, label+" emulation"),
				Strategy:         rapid.SampledFrom([]coordinationv1.CoordinatedLeaseStrategy{v1alpha1.OldestEmulationVersion, v1alpha1.OldestEmulationVersion, v1alpha1.OldestEmulationVersion, "foo.com/bar"}).Draw(t, label+" strategy"),
				RenewTime:        stamp(label + " renewed"),
			})
		c.Priority = rapid.SampledFrom([]int32{0, 0, 0, 1}).Draw(t, label+" priority")
		c.ObeysAnnotations = i == 0
		o := CandidateObservations{}.See(c, seconds(label+" seen", -2000, -10), rapid.Bool().Draw(t, label+" initial"))
		if rapid.Bool().Draw(t, label+" moved") {
			o.Moved = seconds(label+" moved at", -10, 0)
		}
		if rapid.Bool().Draw(t, label+" pinged") {
			o = o.Ping(seconds(label+" pinged at", -10, 0))
		}
		if rapid.IntRange(0, 3).Draw(t, label+" asked twice") == 0 {
			o = o.Ping(seconds(label+" pinged first", -200, -90)).Ping(seconds(label+" pinged then", -80, 0))
		}
		c.CustomResource = rapid.Bool().Draw(t, label+" is a custom resource")
		s.Candidates = append(s.Candidates, Candidate{Candidate: c, Observed: o})
		if rapid.IntRange(0, 5).Draw(t, label+" has moved") == 0 {
			twin := *c
			twin.CustomResource, twin.UID = !c.CustomResource, c.UID+"'"
			twin.Renewed = twin.Renewed.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, label+" twin's stamp")) * time.Second)
			s.Candidates = append(s.Candidates, Candidate{Candidate: &twin,
				Observed: CandidateObservations{}.See(&twin, seconds(label+" twin seen", -2000, -10), rapid.Bool().Draw(t, label+" twin initial"))})
		}
	}
	// What was observed is what came about step by step.
	now := seconds("first", -40, -30)
	for i := range rapid.IntRange(0, 6).Draw(t, "steps") {
		label := fmt.Sprintf("step %d", i)
		now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, label+" pause")) * 250 * time.Millisecond)
		switch rapid.IntRange(0, 4).Draw(t, label) {
		case 0, 1:
			s.Lease = lease(label)
			s.Observed.SeeLease(s.Lease, now)
		case 2:
			s.Lease = nil
			s.Observed.SeeDeleted(now, rapid.Bool().Draw(t, label+" missed"))
		case 3:
			s.Lease = appointAgain(s.Observed, s.Lease, name.Draw(t, label+" appointee"), ReasonExpired, now)
		case 4:
			if s.Lease != nil && s.Lease.Spec.RenewTime != nil {
				renewed := s.Lease.DeepCopy()
				renewed.Spec.RenewTime = ptr.To(metav1.NewMicroTime(renewed.Spec.RenewTime.Add(2 * time.Second)))
				s.Lease = renewed
				s.Observed.SeeLease(s.Lease, now)
			}
		}
	}
	return s
})

// checkDecision asserts of one decision what holds of all.
func checkDecision(t *rapid.T) {
	s := anySnapshot.Draw(t, "snapshot")
	d := Decide(s)
	if d.Sentence() == "" || d.Reason == "" {
		t.Fatalf("no sentence or reason: %+v", d)
	}

	shuffled := *s
	shuffled.Candidates = slices.Clone(s.Candidates)
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "shuffle"), 0))
	r.Shuffle(len(shuffled.Candidates), func(i, j int) {
		shuffled.Candidates[i], shuffled.Candidates[j] = shuffled.Candidates[j], shuffled.Candidates[i]
	})
	if other := Decide(&shuffled); !reflect.DeepEqual(d, other) {
		t.Fatalf("I6: %q, or, in another order, %q", d.Sentence(), other.Sentence())
	}
	checkInvariants(t, s, d)
	checkProgress(t, s, d)
}

func checkInvariants(t *rapid.T, s *Snapshot, d Decision) {
	verdicts, _, _ := Rank(s)
	admissible := map[string]*Candidate{}
	for _, v := range verdicts {
		if v.Inadmissible == "" {
			admissible[v.Name] = v.Candidate
		}
	}
	if d.Action != None && d.Reason != ReasonCandidateDead && len(admissible) == 0 {
		t.Fatalf("I5: %q without candidates", d.Sentence())
	}
	if d.Action == None && !d.LookAgain.IsZero() && !d.LookAgain.After(s.Now) {
		t.Fatalf("looks again at once: %q", d.Sentence())
	}
	for _, name := range d.Pings {
		if admissible[name] == nil && d.Reason != ReasonCandidateDead {
			t.Fatalf("pings %s, which is not admissible", name)
		}
	}
	switch d.Action {
	case Appoint, Prefer, Revoke:
		c := admissible[d.Candidate]
		if c == nil {
			t.Fatalf("%q, which is not admissible", d.Sentence())
		}
		if o := c.Observed; o.Moved.IsZero() || !o.Pinged.IsZero() || s.Now.Sub(o.Moved) > s.Settings.ElectionDuration {
			t.Fatalf("I2: %q, which has not acked", d.Sentence())
		}
	}
	for _, dead := range d.Dead {
		v := verdicts[slices.IndexFunc(verdicts, func(v Verdict) bool { return v.Candidate.Candidate == dead })]
		silent := s.Now.Sub(v.Observed.lastSign())
		switch {
		case d.Action != Collect:
			t.Fatalf("collects by %s", d.Action)
		case !v.CustomResource && s.FieldsKept:
			t.Fatalf("collects %s, which is kube-apiserver's to collect", dead.Name)
		case silent <= s.Settings.CandidateTTL || !v.Superseded && v.Observed.Unanswered < 2:
			t.Fatalf("I9: collects %s, which was silent for %s and asked %d times", dead.Name, silent, v.Observed.Unanswered)
		case dead.Name == holderOf(s.Lease) && !v.Superseded && s.Now.Before(s.Observed.Claim.End()):
			t.Fatalf("I9: collects the holder")
		}
	}
	o := s.Observed
	outstanding := o.Appointment != nil && (s.Lease == nil || o.Appointment.Holder == holderOf(s.Lease))
	if d.Action == Appoint && s.Now.Before(o.Claim.End()) && !outstanding {
		t.Fatalf("I1: %q while the claim of %q runs until %s", d.Sentence(), o.Claim.Holder, o.Claim.End())
	}
	if d.Vacancy() && s.Lease != nil && holderOf(s.Lease) != "" && s.Now.Before(o.Claim.End()) && !outstanding {
		t.Fatalf("a vacancy while the claim of %q runs until %s: %q", o.Claim.Holder, o.Claim.End(), d.Sentence())
	}
	if d.Action == Prefer && d.Candidate == holderOf(s.Lease) {
		t.Fatalf("prefers the holder itself")
	}
	if l := d.Write(s, "42"); l != nil && s.Lease != nil && reflect.DeepEqual(l.Spec, s.Lease.Spec) {
		t.Fatalf("I8: %q changes nothing", d.Sentence())
	}
}

// checkProgress carries out decisions until there are none: at one instant, that takes a few steps.
func checkProgress(t *rapid.T, s *Snapshot, d Decision) {
	for step := 0; d.Action != None; step++ {
		if step == 8 {
			t.Fatalf("I8: still %q after %d steps", d.Sentence(), step)
		}
		switch d.Action {
		case Ping:
			verdicts, _, _ := Rank(s)
			for _, v := range verdicts {
				if slices.Contains(d.Pings, v.Name) && !v.Superseded {
					v.Candidate.Observed = v.Observed.Ping(s.Now)
				}
			}
		case Collect:
			s.Candidates = slices.DeleteFunc(s.Candidates, func(c Candidate) bool { return slices.Contains(d.Dead, c.Candidate) })
		default:
			after := d.Write(s, "42")
			after.ResourceVersion = fmt.Sprint(1000 + step)
			s.Observed.Wrote(d, s.Lease, after, s.Now)
			s.Lease = after
		}
		d = Decide(s)
	}
}

func TestDecideProperties(t *testing.T) { rapid.Check(t, checkDecision) }

// FuzzDecide lets the fuzzer choose the snapshots of TestDecideProperties.
func FuzzDecide(f *testing.F) { f.Fuzz(rapid.MakeFuzz(checkDecision)) }

// TestRankIsTotal compares the ranking with a naive one: whoever no other candidate beats, again and again.
func TestRankIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot.Draw(t, "snapshot")
		verdicts, _, stop := Rank(s)
		if stop != "" {
			return
		}
		beats := func(a, b *Candidate) bool {
			switch {
			case a.Priority != b.Priority:
				return a.Priority > b.Priority
			case !a.Emulation.Semver.EQ(b.Emulation.Semver):
				return a.Emulation.Semver.LT(b.Emulation.Semver)
			case !a.Binary.Semver.EQ(b.Binary.Semver):
				return a.Binary.Semver.LT(b.Binary.Semver)
			case !a.Created.Equal(b.Created):
				return a.Created.Before(b.Created)
			}
			return a.Name < b.Name
		}
		for i, v := range verdicts {
			for _, w := range verdicts[i+1:] {
				switch {
				case v.Inadmissible != "" && w.Inadmissible == "":
					t.Fatalf("%s comes after %s, which is not admissible", w.Name, v.Name)
				case v.Inadmissible == "" && w.Inadmissible == "" && beats(w.Candidate, v.Candidate):
					t.Fatalf("%s comes after %s", w.Name, v.Name)
				}
			}
		}
	})
}

func BenchmarkDecideSteady(b *testing.B) {
	s := steady(b, 3)
	b.ReportAllocs()
	for b.Loop() {
		if d := Decide(s); d.Reason != ReasonOptimal {
			b.Fatal(d.Sentence())
		}
	}
}

func BenchmarkRank1000(b *testing.B) {
	s := steady(b, 0)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 1000 {
		s.Candidates = append(s.Candidates, candidateOf(fmt.Sprintf("n%04d", i), fmt.Sprintf("1.%d.0", 30+r.IntN(5)), -60))
	}
	r.Shuffle(len(s.Candidates), func(i, j int) { s.Candidates[i], s.Candidates[j] = s.Candidates[j], s.Candidates[i] })
	b.ReportAllocs()
	for b.Loop() {
		if verdicts, _, _ := Rank(s); len(verdicts) != 1000 {
			b.Fatal(len(verdicts))
		}
	}
}
