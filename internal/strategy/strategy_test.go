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

package strategy

import (
	"cmp"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/blang/semver/v4"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// anyVersion draws versions that collide often, and some that are none.
var anyVersion = rapid.SampledFrom([]string{
	"1.36.0", "1.37.0", "1.37", "v1.37.0", "1.37.0-alpha.1", "1.37.0+build", "1.9.0", "1.10.0", "0.0.0", "",
	"1.37.0-rc.1", "99999999999999999999.0.0", "latest", "1..0", " 1.37.0 ",
})

var anyCandidate = rapid.Custom(func(t *rapid.T) *Candidate {
	return NewCandidate(&metav1.ObjectMeta{
		Name: rapid.StringMatching(`[a-z]{1,2}`).Draw(t, "name"),
		Labels: map[string]string{
			corev1.LabelHostname:     rapid.SampledFrom([]string{"", "n1", "n2", "n3"}).Draw(t, "node"),
			corev1.LabelTopologyZone: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "zone"),
		},
	}, Spec{BinaryVersion: anyVersion.Draw(t, "binary"), EmulationVersion: anyVersion.Draw(t, "emulation")})
})

var anyElection = rapid.Custom(func(t *rapid.T) *Election {
	counts := rapid.MapOf(rapid.SampledFrom([]string{"n1", "n2", "a", "b", "c"}), rapid.IntRange(0, 3))
	return &Election{
		Namespace: "default", Lease: "lease", Holder: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "holder"),
		Load: Load{ByNode: counts.Draw(t, "by node"), ByZone: counts.Draw(t, "by zone"), Moving: rapid.Bool().Draw(t, "moving")},
	}
})

// compare ranks two candidates by a strategy that must be able to.
func compare(s Strategy, a, b *Candidate, e *Election) int {
	return Compare(keysOf(s, a, e), keysOf(s, b, e))
}

func keysOf(s Strategy, c *Candidate, e *Election) []Key {
	keys, err := s.Keys(nil, c, e)
	if err != nil {
		panic(err)
	}
	return keys
}

func eligible(s Strategy, e *Election) func(*Candidate) bool {
	return func(c *Candidate) bool {
		_, err := s.Keys(nil, c, e)
		return err == nil
	}
}

// TestEveryStrategyIsAnOrder holds every built-in strategy to what Keys promises, and Compare to an order.
func TestEveryStrategyIsAnOrder(t *testing.T) {
	for _, s := range BuiltIn() {
		t.Run(string(s.Name()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				e := anyElection.Draw(t, "election")
				any := anyCandidate.Filter(eligible(s, e))
				a, b, c := any.Draw(t, "a"), any.Draw(t, "b"), any.Draw(t, "c")
				if got := compare(s, a, a, e); got != 0 {
					t.Fatalf("not reflexive: a and itself compare as %d", got)
				}
				ka, kb := keysOf(s, a, e), keysOf(s, b, e)
				if len(ka) != len(kb) || len(ka) == 0 {
					t.Fatalf("%d keys and %d", len(ka), len(kb))
				}
				for i := range ka {
					if ka[i].Name != kb[i].Name || ka[i].Descending != kb[i].Descending || reflect.TypeOf(ka[i].Value) != reflect.TypeOf(kb[i].Value) {
						t.Fatalf("key %d is %+v or %+v", i, ka[i], kb[i])
					}
				}
				ab, ba := compare(s, a, b, e), compare(s, b, a, e)
				if ab != -ba {
					t.Fatalf("not antisymmetric: %d and %d", ab, ba)
				}
				bc, ac := compare(s, b, c, e), compare(s, a, c, e)
				if ab <= 0 && bc <= 0 && (ac > 0 || ac == 0 && ab+bc != 0) {
					t.Fatalf("not transitive: a,b: %d; b,c: %d; a,c: %d", ab, bc, ac)
				}
			})
		})
	}
}

// TestEveryStrategyIgnoresTheOrderOfItsInput shuffles candidates and sorts them: equal ones aside, the order is one.
func TestEveryStrategyIgnoresTheOrderOfItsInput(t *testing.T) {
	for _, s := range BuiltIn() {
		t.Run(string(s.Name()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				e := anyElection.Draw(t, "election")
				list := rapid.SliceOfN(anyCandidate.Filter(eligible(s, e)), 1, 20).Draw(t, "candidates")
				better := func(a, b *Candidate) int { return compare(s, a, b, e) }
				other := slices.Clone(list)
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				r.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
				slices.SortFunc(list, better)
				slices.SortFunc(other, better)
				for i := range list {
					if better(list[i], other[i]) != 0 {
						t.Fatalf("place %d: %+v or %+v", i, list[i], other[i])
					}
				}
			})
		})
	}
}

// TestTheHolderIsKeptOnTies: nobody has more merit than a holder who differs in nothing but name and age.
func TestTheHolderIsKeptOnTies(t *testing.T) {
	for _, s := range BuiltIn() {
		t.Run(string(s.Name()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				e := anyElection.Draw(t, "election")
				holder := anyCandidate.Filter(eligible(s, e)).Draw(t, "holder")
				twin := *holder
				twin.Name += "-twin"
				// Without a label, each name is a node of its own.
				holder.Node, twin.Node = "n1", "n1"
				e.Holder = holder.Name
				if compare(s, &twin, holder, e) < 0 {
					t.Fatalf("%v preempts %v", keysOf(s, &twin, e), keysOf(s, holder, e))
				}
			})
		})
	}
}

// TestCompareLikeInTree holds OldestEmulationVersion to the cases that the in-tree coordinator publishes in its own
// tests (k8s.io/kubernetes pkg/controlplane/controller/leaderelection/election_test.go). One differs: of two of which
// one has no version, it calls that the best, but never asks it to lead; here it is not eligible.
func TestCompareLikeInTree(t *testing.T) {
	type versions struct{ emulation, binary string }
	tests := []struct {
		name string
		a, b versions
		want int
	}{
		{"different emulation versions", versions{"0.1.0", "0.1.0"}, versions{"0.2.0", "0.2.0"}, -1},
		{"same emulation versions, different binary versions", versions{"0.1.0", "0.1.0"}, versions{"0.1.0", "0.2.0"}, -1},
		{"same versions", versions{"1.20.0", "1.21.0"}, versions{"1.20.0", "1.21.0"}, 0},
		{"less", versions{"1.19.0", "1.20.0"}, versions{"1.20.0", "1.20.0"}, -1},
		{"not the lexical order", versions{"1.2.0", "1.20.0"}, versions{"1.19.0", "1.20.0"}, -1},
		{"emulation beats binary", versions{"1.19.0", "1.21.0"}, versions{"1.20.0", "1.20.0"}, -1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := NewCandidate(&metav1.ObjectMeta{}, Spec{EmulationVersion: tt.a.emulation, BinaryVersion: tt.a.binary})
			b := NewCandidate(&metav1.ObjectMeta{}, Spec{EmulationVersion: tt.b.emulation, BinaryVersion: tt.b.binary})
			if got := compare(OldestEmulationVersion{}, a, b, &Election{}); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
			if got := compare(OldestEmulationVersion{}, b, a, &Election{}); got != -tt.want {
				t.Errorf("the other way round: got %d, want %d", got, -tt.want)
			}
		})
	}
}

// TestVersionsAsPeopleHaveThem: the order that ParseVersion documents, each entry above the one before.
func TestVersionsAsPeopleHaveThem(t *testing.T) {
	order := [][]string{
		{"1.29.3-alpha.1"}, {"1.29.3-alpha.2"}, {"1.29.3-beta.0"}, {"1.29.3-eks-1f4bd4b"}, {"1.29.3-eks-a5df82a"},
		{"1.29.3-gke.100"}, {"1.29.3-gke.1000"}, {"1.29.3-rc.1"},
		{"1.29.3", "v1.29.3", "1.29.3+k3s1", "1.29.3+k3s2", " 1.29.3 "},
		{"1.30", "v1.30", "1.30.0", "01.30.0"}, {"1.30.1"}, {"2.0.0-0"}, {"2"},
	}
	for i, versions := range order {
		for _, text := range versions {
			v := ParseVersion(text)
			if v.Err != nil {
				t.Errorf("%q: %v", text, v.Err)
				continue
			}
			for j := range order {
				for _, other := range order[j] {
					if got, want := v.Semver.Compare(ParseVersion(other).Semver), cmp.Compare(i, j); got != want {
						t.Errorf("%q and %q compare as %d, want %d", text, other, got, want)
					}
				}
			}
		}
	}
	for _, text := range []string{"", "abc1234", "1.2.3.4", "1..2", "1.-1.0", "99999999999999999999.0.0", "1.29.3-", "1.2.3-gke..1"} {
		if v := ParseVersion(text); v.Err == nil {
			t.Errorf("%q is taken for %s", text, v.Semver)
		}
	}
}

func TestCompareKeys(t *testing.T) {
	v := func(text string) *semver.Version { return new(semver.MustParse(text)) }
	early := time.Unix(1, 0)
	// Each pair has the smaller first.
	for _, pair := range [][2]any{
		{false, true}, {int64(-1), int64(1)}, {uint64(0), uint64(1 << 63)}, {-0.5, 0.25}, {math.NaN(), math.Inf(-1)},
		{"a", "b"}, {early, early.Add(1)}, {time.Second, time.Minute}, {v("1.9.0"), v("1.10.0")},
	} {
		a, b := []Key{{Value: pair[0]}}, []Key{{Value: pair[1]}}
		if Compare(a, b) != -1 || Compare(b, a) != 1 || Compare(a, a) != 0 || Compare(b, b) != 0 {
			t.Errorf("%v and %v are not in order", pair[0], pair[1])
		}
		a[0].Descending, b[0].Descending = true, true
		if Compare(a, b) != 1 || Compare(b, a) != -1 || Compare(a, a) != 0 {
			t.Errorf("%v and %v are not in descending order", pair[0], pair[1])
		}
	}
	// What no strategy returns has an order, too.
	if a, b := []Key{{Value: int64(1)}}, []Key{{Value: "1"}}; Compare(a, b) != -Compare(b, a) || Compare(a, b) == 0 {
		t.Error("values of different types have no order")
	}
	if a, b := []Key{{Value: "a"}}, []Key{{Value: "a"}, {Value: "b"}}; Compare(a, b) != -1 || Compare(b, a) != 1 {
		t.Error("lists of different length have no order")
	}
}

func TestKeyText(t *testing.T) {
	for want, key := range map[string]Key{
		`zone="eu \"a\""`:              {Name: "zone", Value: `eu "a"`},
		"binaryVersion=1.2.3-rc.1":     {Name: "binaryVersion", Value: new(ParseVersion("v1.2.3-rc.1").Semver)},
		"created=2030-01-02T03:04:05Z": {Name: "created", Value: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)},
		"isHolder=true":                {Name: "isHolder", Value: true},
		"leasesOnNode=3":               {Name: "leasesOnNode", Value: int64(3)},
	} {
		if got := key.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestEligible(t *testing.T) {
	tests := []struct {
		name, emulation, binary string
		// want is part of the error for each strategy; "" for none.
		oldestEmulation, newestBinary, spread string
	}{
		{"both valid", "0.1.0", "0.1.0", "", "", ""},
		{"as people write them", "v1.29.3", "1.29", "", "", ""},
		{"no emulation version", "", "0.1.0", `emulationVersion ""`, "", ""},
		{"emulation version is none", "invalid", "0.1.0", `emulationVersion "invalid"`, "", `emulationVersion "invalid"`},
		{"binary version is none", "0.1.0", "abc1234", `binaryVersion "abc1234"`, `binaryVersion "abc1234"`, `binaryVersion "abc1234"`},
		{"too large", "0.1.0", "99999999999999999999.0.0", "binaryVersion", "binaryVersion", "binaryVersion"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := NewCandidate(&metav1.ObjectMeta{}, Spec{BinaryVersion: tt.binary, EmulationVersion: tt.emulation})
			for s, want := range map[Strategy]string{OldestEmulationVersion{}: tt.oldestEmulation, NewestBinaryVersion{}: tt.newestBinary, Spread{}: tt.spread, Sticky{}: ""} {
				_, err := s.Keys(nil, c, &Election{})
				checkError(t, err, want)
			}
		})
	}
}

func checkError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("unexpected error: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("got error %v, want one that names %s", err, want)
	}
}

func TestNewestBinaryVersion(t *testing.T) {
	a := NewCandidate(&metav1.ObjectMeta{}, Spec{BinaryVersion: "1.10.0", EmulationVersion: "1.9.0"})
	b := NewCandidate(&metav1.ObjectMeta{}, Spec{BinaryVersion: "1.9.0", EmulationVersion: "1.10.0"})
	if compare(NewestBinaryVersion{}, a, b, &Election{}) >= 0 {
		t.Error("the older binary came first")
	}
}

func TestSticky(t *testing.T) {
	holder, other, third := &Candidate{Name: "holder"}, &Candidate{Name: "other"}, &Candidate{Name: "third"}
	e := &Election{Holder: "holder"}
	if compare(Sticky{}, holder, other, e) >= 0 {
		t.Error("the holder is not kept")
	}
	if compare(Sticky{}, third, other, e) != 0 || compare(Sticky{}, holder, other, &Election{}) != 0 {
		t.Error("without a claim to the lease, one has more merit than another")
	}
}

func TestSpread(t *testing.T) {
	at := func(name, node, zone, version string) *Candidate {
		return NewCandidate(&metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: node, corev1.LabelTopologyZone: zone}},
			Spec{BinaryVersion: version})
	}
	load := Load{ByNode: map[string]int{"n1": 2, "n2": 1, "n3": 1, "lone": 3}, ByZone: map[string]int{"a": 3, "b": 1}}
	moving := load
	moving.Moving = true
	tests := []struct {
		name          string
		load          Load
		better, worse *Candidate
	}{
		{"fewer leases on its node", load, at("x", "n2", "a", "1.0.0"), at("y", "n1", "b", "1.0.0")},
		{"as many on its node, fewer in its zone", load, at("x", "n3", "b", "1.0.0"), at("y", "n2", "a", "1.0.0")},
		{"a node that leads none", load, at("x", "n9", "", "1.0.0"), at("y", "n2", "b", "1.0.0")},
		{"without a node, its name stands for one", load, at("x", "n1", "", "1.0.0"), at("lone", "", "", "1.0.0")},
		{"the version rule goes before", load, at("x", "n1", "a", "1.0.0"), at("y", "n9", "b", "1.0.1")},
		{"while another lease moves, the holder stays", moving, at("holder", "n1", "a", "1.0.0"), at("y", "n9", "b", "1.0.0")},
		{"but not against the version rule", moving, at("x", "n1", "a", "1.0.0"), at("holder", "n9", "b", "1.0.1")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := &Election{Holder: "holder", Load: tt.load}
			if compare(Spread{}, tt.better, tt.worse, e) >= 0 {
				t.Errorf("%v is not better than %v", keysOf(Spread{}, tt.better, e), keysOf(Spread{}, tt.worse, e))
			}
		})
	}
	older := NewCandidate(&metav1.ObjectMeta{Name: "x"}, Spec{BinaryVersion: "1.2.0", EmulationVersion: "1.1.0"})
	if compare(Spread{}, older, at("y", "", "", "1.1.5"), &Election{}) >= 0 {
		t.Error("a candidate without an emulation version does not emulate its own")
	}
}

func TestWhereCandidatesRun(t *testing.T) {
	const id = "5f2b1a52-7c4e-4d0e-9f3a-0b8f5f6d7e8f"
	for _, tt := range []struct {
		name   string
		labels map[string]string
		node   string
	}{
		{"cp-1_" + id, nil, "cp-1"},
		{"cp-1.example.com_" + id, nil, "cp-1.example.com"},
		{"cp-1_" + id, map[string]string{corev1.LabelHostname: "node-7"}, "node-7"},
		{"cp-1-" + id, nil, "cp-1"},
		{"cp-1.example.com-" + id, nil, "cp-1.example.com"},
		{"web-6d4cf56db6-x2x7f-" + id, nil, "web-6d4cf56db6-x2x7f"},
		{"cp-1-" + id, map[string]string{corev1.LabelHostname: "node-7"}, "node-7"},
		{"a_b_" + id, nil, "a_b"}, {"cp-1." + id, nil, ""}, {"cp-1" + id, nil, ""}, {id, nil, ""}, {"-" + id, nil, ""},
		{"cp-1-" + id + "0", nil, ""}, {"cp-1-" + strings.ReplaceAll(id, "-", ""), nil, ""}, {"cp-1_{" + id[1:35] + "}", nil, ""},
		{"cp-1", nil, ""}, {"cp-1_blue", nil, ""}, {"_" + id, nil, ""}, {"", nil, ""},
	} {
		c := NewCandidate(&metav1.ObjectMeta{Name: tt.name, Labels: tt.labels}, Spec{})
		if c.Node != tt.node || c.Zone != "" {
			t.Errorf("%q, %v: node %q, zone %q, want node %q", tt.name, tt.labels, c.Node, c.Zone, tt.node)
		}
	}
	c := NewCandidate(&metav1.ObjectMeta{Labels: map[string]string{corev1.LabelTopologyZone: "eu-1a"}}, Spec{})
	if c.Zone != "eu-1a" {
		t.Errorf("zone %q", c.Zone)
	}
}

func TestCandidateAnnotations(t *testing.T) {
	const (
		priority = v1alpha1.PriorityAnnotation
		until    = v1alpha1.PriorityUntilAnnotation
	)
	tests := []struct {
		name        string
		annotations map[string]string
		priority    int32
		warning     string
	}{
		{"none", nil, 0, ""},
		{"lowest", map[string]string{priority: "1"}, 1, ""},
		{"zero", map[string]string{priority: "0"}, 0, "from 1 to 2147483647"},
		{"negative", map[string]string{priority: "-1"}, 0, "from 1 to 2147483647"},
		{"highest", map[string]string{priority: "2147483647"}, 2147483647, ""},
		{"too high", map[string]string{priority: "2147483648"}, 0, "from 1 to 2147483647"},
		{"no number", map[string]string{priority: "high"}, 0, `"high"`},
		{"empty", map[string]string{priority: ""}, 0, `""`},
		{"with an end", map[string]string{priority: "5", until: "2030-01-01T00:00:00Z"}, 5, ""},
		{"with an end that is none", map[string]string{priority: "5", until: "tomorrow"}, 0, `"tomorrow"`},
		{"an end alone", map[string]string{until: "2030-01-01T00:00:00Z"}, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := NewCandidate(&metav1.ObjectMeta{Annotations: tt.annotations}, Spec{})
			if c.Priority != tt.priority {
				t.Errorf("priority %d, want %d", c.Priority, tt.priority)
			}
			if got := strings.Join(c.Warnings, "; "); !strings.Contains(got, tt.warning) || got != "" && tt.warning == "" {
				t.Errorf("warnings %q, want one with %q", got, tt.warning)
			}
		})
	}
}

func TestPriorityEnds(t *testing.T) {
	end := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	c := &Candidate{Priority: 5, PriorityUntil: end}
	if got := c.PriorityAt(end.Add(-1)); got != 5 {
		t.Errorf("just before its end: %d, want 5", got)
	}
	if got := c.PriorityAt(end); got != 0 {
		t.Errorf("at its end: %d, want 0", got)
	}
	c.PriorityUntil = time.Time{}
	if got := c.PriorityAt(end.AddDate(100, 0, 0)); got != 5 {
		t.Errorf("without an end: %d, want 5", got)
	}
}

func TestIneligible(t *testing.T) {
	for value, want := range map[string]struct{ ineligible, warning string }{
		"backup node": {"backup node", ""},
		"":            {"no reason given", ""},
		"false":       {"false", "remove the annotation to let it lead"},
		"No":          {"No", "remove the annotation to let it lead"},
	} {
		c := NewCandidate(&metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.IneligibleAnnotation: value}}, Spec{})
		if c.Ineligible != want.ineligible {
			t.Errorf("%q: ineligible because %q, want %q", value, c.Ineligible, want.ineligible)
		}
		if got := strings.Join(c.Warnings, ""); !strings.Contains(got, want.warning) || got != "" && want.warning == "" {
			t.Errorf("%q: warnings %q, want one with %q", value, got, want.warning)
		}
	}
}

func TestRegistry(t *testing.T) {
	r, err := NewRegistry(BuiltIn()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range BuiltIn() {
		if r.Get(s.Name()) == nil {
			t.Errorf("%s is not registered", s.Name())
		}
	}
	if r.Get("example.com/Nearest") != nil || r.Get("") != nil {
		t.Error("found a strategy that nobody registered")
	}
	if (*Registry)(nil).Get(coordinationv1.OldestEmulationVersion) != nil {
		t.Error("found a strategy in no registry")
	}
	if _, err := NewRegistry(OldestEmulationVersion{}, OldestEmulationVersion{}); err == nil || !strings.Contains(err.Error(), "OldestEmulationVersion") {
		t.Errorf("a name that comes twice: got error %v", err)
	}
}

// FuzzVersion parses whatever a candidate may write. The strategies must bear it.
func FuzzVersion(f *testing.F) {
	for _, seed := range []string{"1.37.0", "v1.37", "", "1.0.0-alpha+b", "99999999999999999999.1.1", "1.-1.0", "\x00", "1.2.3.4", "v", "01.02.03"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, binary, emulation string) {
		c := NewCandidate(&metav1.ObjectMeta{Name: "a"}, Spec{BinaryVersion: binary, EmulationVersion: emulation})
		other := NewCandidate(&metav1.ObjectMeta{Name: "b"}, Spec{BinaryVersion: "1.37.0", EmulationVersion: "1.37.0"})
		for _, s := range BuiltIn() {
			if !eligible(s, &Election{})(c) {
				continue
			}
			if ab, ba := compare(s, c, other, &Election{}), compare(s, other, c, &Election{}); ab != -ba {
				t.Errorf("%s: %d and %d", s.Name(), ab, ba)
			}
			if compare(s, c, c, &Election{}) != 0 {
				t.Errorf("%s: %q, %q is not itself", s.Name(), binary, emulation)
			}
		}
	})
}

// FuzzAnnotations parses whatever may stand in a candidate's annotations and name.
func FuzzAnnotations(f *testing.F) {
	f.Add("n1", "5", "2030-01-01T00:00:00Z", "", false)
	f.Add("n1_5f2b1a52-7c4e-4d0e-9f3a-0b8f5f6d7e8f", "-1", "tomorrow", "false", true)
	f.Add("", "2147483648", "0000-00-00T00:00:00+99:99", "\xff", true)
	f.Fuzz(func(t *testing.T, name, priority, until, ineligible string, marked bool) {
		annotations := map[string]string{v1alpha1.PriorityAnnotation: priority, v1alpha1.PriorityUntilAnnotation: until}
		if marked {
			annotations[v1alpha1.IneligibleAnnotation] = ineligible
		}
		c := NewCandidate(&metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec{})
		if c.Priority < 0 || c.Priority == 0 && len(c.Warnings) == 0 {
			t.Errorf("priority %q until %q: %d, warnings %q", priority, until, c.Priority, c.Warnings)
		}
		if c.Priority > 0 && !c.PriorityUntil.IsZero() && (c.PriorityAt(c.PriorityUntil) != 0 || c.PriorityAt(c.PriorityUntil.Add(-1)) != c.Priority) {
			t.Errorf("priority %d does not end at %s", c.Priority, c.PriorityUntil)
		}
		if marked != (c.Ineligible != "") {
			t.Errorf("ineligible %q: %q", ineligible, c.Ineligible)
		}
	})
}
