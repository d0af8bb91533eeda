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
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

func overrides(t *testing.T, flags, file string) *strategy.Overrides {
	t.Helper()
	parse := func(text string) []strategy.Override {
		if text == "" {
			return nil
		}
		o, err := strategy.ParseOverride(text)
		if err != nil {
			t.Fatal(err)
		}
		return []strategy.Override{o}
	}
	o, err := strategy.NewOverrides(parse(flags), parse(file))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestWhoChoosesTheStrategy: flags, the configuration file, an annotation, the candidates, in this order.
func TestWhoChoosesTheStrategy(t *testing.T) {
	const oldest, newest, sticky = "OldestEmulationVersion", "lease-coordinator.dev/NewestBinaryVersion", "lease-coordinator.dev/Sticky"
	tests := []struct {
		name                   string
		flag, file, annotation string
		second                 coordinationv1.CoordinatedLeaseStrategy // of a second candidate; "" for none
		inTree                 bool
		want                   string
		source                 strategy.Source
		reason                 Reason
	}{
		{"the candidates", "", "", "", "", false, oldest, strategy.SourceCandidates, ReasonOptimal},
		{"an annotation", "", "", sticky, "", false, sticky, strategy.SourceLeaseAnnotation, ReasonOptimal},
		{"the file before the annotation", "", "*=" + newest, sticky, "", false, newest, strategy.SourceConfigFile, ReasonOptimal},
		{"a flag before the file", "*=" + oldest, "*=" + newest, sticky, "", false, oldest, strategy.SourceFlag, ReasonOptimal},
		{"a flag for another lease", "other=" + newest, "", "", "", false, oldest, strategy.SourceCandidates, ReasonOptimal},
		{"an annotation that names nothing of ours", "", "", "example.com/Nearest", "", false, oldest, strategy.SourceCandidates, ReasonOptimal},
		{"an override settles a conflict", "*=" + sticky, "", "", newest, false, sticky, strategy.SourceFlag, ReasonOptimal},
		{"without one, a conflict blocks", "", "", "", newest, false, "", "", ReasonStrategyConflict},
		{"an override of a foreign strategy", "*=" + sticky, "", "", "", false, sticky, strategy.SourceFlag, ReasonOptimal},
		{"the in-tree coordinator knows of no override", "*=" + newest, "", "", "", true, newest, strategy.SourceFlag, ReasonInTree},
		{"beside it, a conflict is ours to settle", "*=" + oldest, "", "", newest, true, oldest, strategy.SourceFlag, ReasonOptimal},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := steady(t, 1)
			s.InTreeActive = tt.inTree
			s.Settings.Overrides = overrides(t, tt.flag, tt.file)
			if tt.annotation != "" {
				s.Lease.Annotations = map[string]string{v1alpha1.StrategyOverrideAnnotation: tt.annotation}
			}
			if tt.second != "" {
				c := candidateOf("n2", "1.31.0", 0)
				c.Strategy = tt.second
				s.Candidates = append(s.Candidates, c)
			}
			x := Explain(s)
			if string(x.Strategy) != tt.want || x.Source != tt.source || x.Decision.Reason != tt.reason {
				t.Errorf("got %q from %q, %s; want %q from %q, %s", x.Strategy, x.Source, x.Decision.Reason, tt.want, tt.source, tt.reason)
			}
			if !reflect.DeepEqual(x.Decision, Decide(s)) {
				t.Errorf("explains %q, decides %q", x.Decision.Sentence(), Decide(s).Sentence())
			}
		})
	}
}

func TestPausedWritesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot.Draw(t, "snapshot")
		if s.Lease == nil {
			return
		}
		s.Lease = s.Lease.DeepCopy()
		metav1.SetMetaDataAnnotation(&s.Lease.ObjectMeta, v1alpha1.PausedAnnotation, v1alpha1.PausedTrue)
		if d := Decide(s); d.Action != None {
			t.Fatalf("paused, and yet: %s", d.Sentence())
		}
	})
}

func TestLeaseWarnings(t *testing.T) {
	tests := []struct{ annotation, value, want string }{
		{v1alpha1.PreemptionAnnotation, "never", ""},
		{v1alpha1.PreemptionAnnotation, "Never", `"Never" is not "never"`},
		{v1alpha1.PreemptionAnnotation, "", `"" is not "never"`},
		{v1alpha1.PausedAnnotation, "true", ""},
		{v1alpha1.PausedAnnotation, "yes", `"yes" is not "true"`},
		{v1alpha1.StrategyOverrideAnnotation, "OldestEmulationVersion", ""},
		{v1alpha1.StrategyOverrideAnnotation, "Oldest", `"Oldest" is not one of ["OldestEmulationVersion" "lease-coordinator.dev/NewestBinaryVersion"`},
		{v1alpha1.FencingTokenAnnotation, "anything", ""},
	}
	for _, tt := range tests {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{tt.annotation: tt.value}}}
		got := strings.Join(LeaseWarnings(l, settings(t)), "; ")
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" || tt.want != "" && !strings.Contains(got, tt.annotation) {
			t.Errorf("%s=%q: %q, want %q", tt.annotation, tt.value, got, tt.want)
		}
	}
	if got := LeaseWarnings(nil, settings(t)); got != nil {
		t.Errorf("no lease: %q", got)
	}
}

func TestExplainStandings(t *testing.T) {
	s := steady(t, 6)
	o := &s.Candidates[1].Observed
	*o = o.Ping(at(-10)) // n2 did not answer
	s.Candidates[2] = candidateOf("n3", "1.32.0", 0)
	o = &s.Candidates[3].Observed
	*o = o.Ping(at(0)) // n4 may still answer
	s.Candidates[4].Ineligible = "backup"
	s.Observed.lose("n3", at(-1))
	s.Observed.bench("n6", at(-1), at(9))
	want := map[string]State{"n1": StateUnknown, "n2": StateSuspect, "n3": StateAlive, "n4": StateWaiting, "n5": StateInadmissible, "n6": StateUnknown}
	x := Explain(s)
	var names []string
	for _, c := range x.Ranking {
		names = append(names, c.Name)
		if c.State != want[c.Name] {
			t.Errorf("%s is %s, want %s", c.Name, c.State, want[c.Name])
		}
		if (c.Name == "n5") != (len(c.Keys) == 0) {
			t.Errorf("%s has keys %v", c.Name, c.Keys)
		}
		if (c.Name == "n3" || c.Name == "n6") != c.HeldOffUntil.After(s.Now) {
			t.Errorf("%s is held off until %s", c.Name, c.HeldOffUntil)
		}
		if (c.Name == "n6") != c.BenchedUntil.After(s.Now) {
			t.Errorf("%s is benched until %s", c.Name, c.BenchedUntil)
		}
	}
	if !slices.Equal(names, []string{"n1", "n2", "n3", "n4", "n6", "n5"}) {
		t.Errorf("ranking %q", names)
	}
}

// TestHoldOffShowsItsEnd: whoever reads why nothing happens learns until when.
func TestHoldOffShowsItsEnd(t *testing.T) {
	s := steady(t, 2)
	s.Candidates[0], s.Candidates[1] = candidateOf("n1", "1.31.0", 0), candidateOf("n0", "1.30.0", 0)
	s.Observed.lose("n0", at(0))
	d := wantDecision(t, s, None, ReasonHoldOff)
	if want := "is held off until " + at(30).UTC().Format(time.RFC3339); !strings.HasSuffix(d.Sentence(), want) {
		t.Errorf("%q does not end with %q", d.Sentence(), want)
	}
}

func TestSkewPrevented(t *testing.T) {
	tests := []struct {
		name     string
		versions []string // of n1, n2, ...; n1 has the lowest and is appointed
		want     bool
	}{
		{"alone", []string{"1.30.0"}, false},
		{"all equal", []string{"1.30.0", "1.30.0"}, false},
		{"a newer one might have led", []string{"1.30.0", "1.31.0"}, true},
		{"one that could not have led", []string{"1.30.0", "latest"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := steady(t, 0)
			s.Lease, s.Observed = nil, &Observations{Since: at(-3600)}
			for i, v := range tt.versions {
				s.Candidates = append(s.Candidates, candidateOf(fmt.Sprintf("n%d", i+1), v, 0))
			}
			d := wantDecision(t, s, Appoint, ReasonNoLease)
			if d.Candidate != "n1" || d.SkewPrevented != tt.want {
				t.Errorf("appoints %s, skew prevented: %t, want %t", d.Candidate, d.SkewPrevented, tt.want)
			}
		})
	}
}

// TestLoads compares the counts with a naive recount, after each change.
func TestLoads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Loads
		type entry struct {
			leader *strategy.Candidate
			moving bool
		}
		all := map[types.NamespacedName]entry{}
		lease := rapid.Custom(func(t *rapid.T) types.NamespacedName {
			return types.NamespacedName{Namespace: "ns", Name: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "lease")}
		})
		leader := rapid.SampledFrom([]*strategy.Candidate{nil, {Name: "x", Node: "n1", Zone: "z"}, {Name: "y", Node: "n1"}, {Name: "n2", Zone: "z"}})
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			key, e := lease.Draw(t, "key"), entry{leader.Draw(t, "leader"), rapid.Bool().Draw(t, "moving")}
			l.Set(key, e.leader, e.moving)
			if l.Set(key, e.leader, e.moving) {
				t.Fatal("the same once more is a change")
			}
			all[key] = e
			but := lease.Draw(t, "but")
			want := strategy.Load{ByNode: map[string]int{}, ByZone: map[string]int{}}
			for key, e := range all {
				if key == but {
					continue
				}
				want.Moving = want.Moving || e.moving
				if e.leader == nil {
					continue
				}
				node := e.leader.Node
				if node == "" {
					node = e.leader.Name
				}
				want.ByNode[node]++
				if e.leader.Zone != "" {
					want.ByZone[e.leader.Zone]++
				}
			}
			l.Without(but, func(got strategy.Load) {
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("without %s: %+v, want %+v", but, got, want)
				}
			})
		}
	})
}

func TestHeirAndMoving(t *testing.T) {
	appointed := func(count int) *Observations {
		return &Observations{Appointment: &Appointment{Holder: "n1", Count: count}}
	}
	preferring := leaseOf("n1", at(0), at(1), 15)
	preferring.Spec.PreferredHolder = new("n2")
	revoked := leaseOf(v1alpha1.RevokedHolder, at(0), at(1), 15)
	revoked.Spec.PreferredHolder = new("n2")
	tests := []struct {
		name     string
		lease    *coordinationv1.Lease
		observed *Observations
		heir     string
		moving   bool
	}{
		{"no lease", nil, &Observations{}, "", false},
		{"vacant", &coordinationv1.Lease{}, &Observations{}, "", false},
		{"steady", leaseOf("n1", at(0), at(1), 15), &Observations{}, "n1", false},
		{"told to yield", preferring, &Observations{}, "n2", true},
		{"revoked", revoked, &Observations{}, "n2", true},
		{"revoked in favour of nobody known", leaseOf(v1alpha1.RevokedHolder, at(0), at(1), 15), &Observations{}, "", false},
		{"appointed", leaseOf("n1", at(0), at(0), 15), appointed(1), "n1", true},
		{"appointed again", leaseOf("n1", at(0), at(0), 15), appointed(2), "n1", false},
	}
	for _, tt := range tests {
		if got := Heir(tt.lease); got != tt.heir {
			t.Errorf("%s: heir %q, want %q", tt.name, got, tt.heir)
		}
		if got := Moving(tt.lease, tt.observed); got != tt.moving {
			t.Errorf("%s: moving %t, want %t", tt.name, got, tt.moving)
		}
	}
}
