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
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
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
	return NewCandidate(&metav1.ObjectMeta{Name: rapid.StringMatching(`[a-z]{1,2}`).Draw(t, "name")},
		Spec{BinaryVersion: anyVersion.Draw(t, "binary"), EmulationVersion: anyVersion.Draw(t, "emulation")})
})

// TestEveryStrategyIsAnOrder holds every built-in strategy to what Compare promises.
func TestEveryStrategyIsAnOrder(t *testing.T) {
	for _, s := range BuiltIn() {
		t.Run(string(s.Name()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				e := Election{Namespace: "default", Lease: "lease", Holder: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "holder")}
				eligible := anyCandidate.Filter(func(c *Candidate) bool { return s.Eligible(c) == nil })
				a, b, c := eligible.Draw(t, "a"), eligible.Draw(t, "b"), eligible.Draw(t, "c")
				if got := s.Compare(a, a, e); got != 0 {
					t.Fatalf("not reflexive: a and itself compare as %d", got)
				}
				if ab, ba := sign(s.Compare(a, b, e)), sign(s.Compare(b, a, e)); ab != -ba {
					t.Fatalf("not antisymmetric: %d and %d", ab, ba)
				}
				ab, bc, ac := sign(s.Compare(a, b, e)), sign(s.Compare(b, c, e)), sign(s.Compare(a, c, e))
				if ab <= 0 && bc <= 0 && (ac > 0 || ac == 0 && ab+bc != 0) {
					t.Fatalf("not transitive: a,b: %d; b,c: %d; a,c: %d", ab, bc, ac)
				}
			})
		})
	}
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}

// TestEveryStrategyIgnoresTheOrderOfItsInput shuffles candidates and sorts them: equal ones aside, the order is one.
func TestEveryStrategyIgnoresTheOrderOfItsInput(t *testing.T) {
	for _, s := range BuiltIn() {
		t.Run(string(s.Name()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				eligible := anyCandidate.Filter(func(c *Candidate) bool { return s.Eligible(c) == nil })
				list := rapid.SliceOfN(eligible, 1, 20).Draw(t, "candidates")
				compare := func(a, b *Candidate) int { return s.Compare(a, b, Election{}) }
				other := slices.Clone(list)
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
				r.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
				slices.SortFunc(list, compare)
				slices.SortFunc(other, compare)
				for i := range list {
					if compare(list[i], other[i]) != 0 {
						t.Fatalf("place %d: %+v or %+v", i, list[i], other[i])
					}
				}
			})
		})
	}
}

// TestCompareLikeInTree holds OldestEmulationVersion to the cases that the in-tree coordinator publishes in its own
// tests (k8s.io/kubernetes v1.37.2, pkg/controlplane/controller/leaderelection/election_test.go). Where a version
// is no version, it calls the candidate the best, but never asks it to lead; here it is not eligible.
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
	var s OldestEmulationVersion
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := NewCandidate(&metav1.ObjectMeta{}, Spec{EmulationVersion: tt.a.emulation, BinaryVersion: tt.a.binary})
			b := NewCandidate(&metav1.ObjectMeta{}, Spec{EmulationVersion: tt.b.emulation, BinaryVersion: tt.b.binary})
			if got := sign(s.Compare(a, b, Election{})); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
			if got := sign(s.Compare(b, a, Election{})); got != -tt.want {
				t.Errorf("the other way round: got %d, want %d", got, -tt.want)
			}
		})
	}
}

func TestEligible(t *testing.T) {
	tests := []struct {
		name, emulation, binary string
		// want is part of the error for each strategy; "" for none.
		oldestEmulation, newestBinary string
	}{
		{"both valid", "0.1.0", "0.1.0", "", ""},
		{"as people write them", "v1.29.3", "1.29", "", ""},
		{"no emulation version", "", "0.1.0", `emulationVersion ""`, ""},
		{"emulation version is none", "invalid", "0.1.0", `emulationVersion "invalid"`, ""},
		{"binary version is none", "0.1.0", "abc1234", `binaryVersion "abc1234"`, `binaryVersion "abc1234"`},
		{"too large", "0.1.0", "99999999999999999999.0.0", "binaryVersion", "binaryVersion"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := NewCandidate(&metav1.ObjectMeta{}, Spec{EmulationVersion: tt.emulation, BinaryVersion: tt.binary})
			checkError(t, OldestEmulationVersion{}.Eligible(c), tt.oldestEmulation)
			checkError(t, NewestBinaryVersion{}.Eligible(c), tt.newestBinary)
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
	var s NewestBinaryVersion
	a := NewCandidate(&metav1.ObjectMeta{}, Spec{BinaryVersion: "1.10.0", EmulationVersion: "1.9.0"})
	b := NewCandidate(&metav1.ObjectMeta{}, Spec{BinaryVersion: "1.9.0", EmulationVersion: "1.10.0"})
	if s.Compare(a, b, Election{}) >= 0 || s.Compare(b, a, Election{}) <= 0 {
		t.Error("the older binary came first")
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

func TestIneligibleWithoutAReason(t *testing.T) {
	c := NewCandidate(&metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.IneligibleAnnotation: ""}}, Spec{})
	if c.Ineligible == "" {
		t.Error("an empty reason makes the candidate eligible")
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
			if s.Eligible(c) != nil {
				continue
			}
			if ab, ba := s.Compare(c, other, Election{}), s.Compare(other, c, Election{}); sign(ab) != -sign(ba) {
				t.Errorf("%s: %d and %d", s.Name(), ab, ba)
			}
			if s.Compare(c, c, Election{}) != 0 {
				t.Errorf("%s: %q, %q is not itself", s.Name(), binary, emulation)
			}
		}
	})
}
