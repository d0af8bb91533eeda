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

package cel

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// ranked is a candidate with its keys.
type ranked struct {
	*strategy.Candidate
	keys []strategy.Key
}

// rank returns the candidates that can be ranked, best first, as an election orders them: by keys, then by name.
func rank(s strategy.Strategy, candidates []*strategy.Candidate, e *strategy.Election) []ranked {
	var result []ranked
	for _, c := range candidates {
		if keys, err := s.Keys(nil, c, e); err == nil {
			result = append(result, ranked{c, keys})
		}
	}
	slices.SortFunc(result, func(a, b ranked) int {
		if d := strategy.Compare(a.keys, b.keys); d != 0 {
			return d
		}
		return compareNames(a.Name, b.Name)
	})
	return result
}

func compareNames(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func namesOf(list []ranked) []string {
	names := []string{}
	for _, r := range list {
		names = append(names, r.Name)
	}
	return names
}

// everyType has an expression of each type that candidates can be ranked by. Some fail for some candidates.
var everyType = []string{
	`candidate.labels[?"site"].orValue("z")`,
	`candidate.isHolder ? 0 : 1`,
	`-candidate.priority`,
	`uint(size(candidate.labels))`,
	`double(candidate.labels[?"load"].orValue("0"))`,
	`candidate.creationTimestamp`,
	`candidate.creationTimestamp - timestamp("2026-01-01T00:00:00Z")`,
	`semver(candidate.binaryVersion)`,
	`candidate.labels.map(k, candidate.labels[k]).join("/")`,
	`quantity(candidate.annotations[?"memory"].orValue("1Gi")).asApproximateFloat()`,
}

func someCandidate(t *rapid.T, name string) *strategy.Candidate {
	labels, annotations := map[string]string{}, map[string]string{}
	maybe := func(m map[string]string, key string, values ...string) {
		if v := rapid.SampledFrom(append(values, "")).Draw(t, key); v != "" {
			m[key] = v
		}
	}
	maybe(labels, "site", "a", "b", "c")
	maybe(labels, "load", "0", "-0", "0.5", "1e300", "NaN", "Infinity", "-Infinity", "high")
	maybe(labels, corev1.LabelTopologyZone, "x", "y")
	maybe(annotations, "memory", "512Mi", "0.5Gi", "1e9", "64Gi", "much")
	maybe(annotations, v1alpha1.PriorityAnnotation, "1", "2")
	return strategy.NewCandidate(&metav1.ObjectMeta{
		Name: name, Labels: labels, Annotations: annotations,
		CreationTimestamp: metav1.NewTime(created.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "age")) * time.Hour)),
	}, strategy.Spec{BinaryVersion: rapid.SampledFrom([]string{"1.9", "1.10.0", "1.10.0-rc.1", "v1.10.0+a", "1.10.0+b", "next", ""}).Draw(t, "version")})
}

func someCandidates(t *rapid.T) []*strategy.Candidate {
	candidates := make([]*strategy.Candidate, rapid.IntRange(1, 8).Draw(t, "candidates"))
	for i := range candidates {
		candidates[i] = someCandidate(t, fmt.Sprintf("n%d", i))
	}
	return candidates
}

func TestOrder(t *testing.T) {
	compiled := map[string]strategy.Strategy{}
	for _, expression := range everyType {
		compiled[expression] = preferring(t, expression)
	}
	all := preferring(t, everyType...)
	rapid.Check(t, func(t *rapid.T) {
		s := all
		if expression := rapid.SampledFrom(append(everyType, "")).Draw(t, "expression"); expression != "" {
			s = compiled[expression]
		}
		candidates := someCandidates(t)
		e := &strategy.Election{Holder: candidates[0].Name}
		order := rank(s, candidates, e)
		for i, a := range order {
			for j, b := range order {
				ab, ba := strategy.Compare(a.keys, b.keys), strategy.Compare(b.keys, a.keys)
				if ab != -ba || i == j && ab != 0 {
					t.Fatalf("%v and %v: %d and %d", a.keys, b.keys, ab, ba)
				}
				if i < j && ab > 0 {
					t.Fatalf("%v comes before the better %v", a.keys, b.keys)
				}
				for _, c := range order {
					if bc := strategy.Compare(b.keys, c.keys); ab <= 0 && bc <= 0 && strategy.Compare(a.keys, c.keys) > 0 {
						t.Fatalf("%v, %v, %v go round in a circle", a.keys, b.keys, c.keys)
					}
				}
				for k := range a.keys {
					if x, y := a.keys[k], b.keys[k]; x.Name != y.Name || fmt.Sprintf("%T", x.Value) != fmt.Sprintf("%T", y.Value) {
						t.Fatalf("%v and %v are of different kinds", x, y)
					}
				}
			}
		}
		shuffled := rapid.Permutation(candidates).Draw(t, "shuffled")
		if again := rank(s, shuffled, e); !slices.Equal(namesOf(again), namesOf(order)) {
			t.Fatalf("%v became %v", namesOf(order), namesOf(again))
		}
	})
}

func TestShuffled(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	candidates := fleet(200)
	s, e := rankingFleet(t), &strategy.Election{}
	want := namesOf(rank(s, candidates, e))
	if len(want) == 0 || len(want) == len(candidates) {
		t.Fatalf("%d of %d are ranked", len(want), len(candidates))
	}
	for range 20 {
		random.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
		if got := namesOf(rank(s, candidates, e)); !slices.Equal(got, want) {
			t.Fatalf("got %v\nwant %v", got, want)
		}
	}
}

// fleet returns candidates as a large installation has them.
func fleet(n int) []*strategy.Candidate {
	candidates := make([]*strategy.Candidate, n)
	for i := range candidates {
		candidates[i] = strategy.NewCandidate(&metav1.ObjectMeta{
			Name: "node-" + strconv.Itoa(i),
			Labels: map[string]string{
				corev1.LabelHostname: "node-" + strconv.Itoa(i), corev1.LabelTopologyZone: "zone-" + strconv.Itoa(i%3),
				"example.com/capacity-type": []string{"on-demand", "spot"}[i%2], "example.com/rack": strconv.Itoa(i % 40),
				"app": "controller", "team": "platform", "tier": "gold", "release": "stable",
			},
			CreationTimestamp: metav1.NewTime(created.Add(time.Duration(i*7919%n) * time.Second)),
		}, strategy.Spec{BinaryVersion: "1." + strconv.Itoa(30+i%5) + "." + strconv.Itoa(i%11), EmulationVersion: "1.30.0"})
	}
	return candidates
}

func rankingFleet(t testing.TB) strategy.Strategy {
	return compile(t, Definition{
		Name:     "example.com/Fleet",
		Eligible: `candidate.labels[?"example.com/capacity-type"].orValue("") != "spot"`,
		Prefer:   []string{`semver(candidate.binaryVersion)`, `candidate.zone == "zone-1" ? 0 : int(candidate.labels["example.com/rack"])`},
	})
}

// BenchmarkRank1000 ranks 1,000 candidates of whom all are eligible, the costlier case.
func BenchmarkRank1000(b *testing.B) {
	candidates, e := fleet(1000), &strategy.Election{Holder: "node-1"}
	for _, c := range candidates {
		c.Labels["example.com/capacity-type"] = "on-demand"
	}
	s := rankingFleet(b)
	b.ReportAllocs()
	for b.Loop() {
		all := make([]strategy.Key, 0, 2*len(candidates))
		list := make([]ranked, 0, len(candidates))
		for _, c := range candidates {
			first := len(all)
			keys, err := s.Keys(all, c, e)
			if err != nil {
				b.Fatal(err)
			}
			all = keys
			list = append(list, ranked{c, keys[first:]})
		}
		slices.SortFunc(list, func(x, y ranked) int { return strategy.Compare(x.keys, y.keys) })
	}
}

// BenchmarkCostLimit runs into the limit: the longest that an expression may take.
func BenchmarkCostLimit(b *testing.B) {
	c, e := someone(), theElection()
	for name, expression := range map[string]string{
		"loop":  `lists.range(100).all(a, lists.range(100).all(b, a + b >= 0)) ? 0 : 1`,
		"map":   `lists.range(9000).map(a, "x" + candidate.name).size()`,
		"regex": `lists.range(1000).all(a, candidate.name.matches("^(a|n)[0-9]+$")) ? 0 : 1`,
	} {
		b.Run(name, func(b *testing.B) {
			s := preferring(b, expression)
			for b.Loop() {
				if _, err := s.Keys(nil, c, e); err == nil {
					b.Fatal("is not too costly")
				}
			}
		})
	}
}

// BenchmarkCompile compiles a definition of the usual size.
func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		rankingFleet(b)
	}
}

// FuzzExpression compiles whatever an operator may write, and evaluates what compiles.
func FuzzExpression(f *testing.F) {
	for _, seed := range append([]string{
		"", " ", "1", "true", "candidate", "candidate.zoen", "\n\ncandidate.zone ==", "lease.holder", `"\xff"`, "\x00", "é + ü",
		`candidate.labels[?"x"].orValue("y") == "z" ? 0 : 1`, `candidate.labels.map(k, v, k)[0]`, `{1: 2}.map(k, k)`, "[[[[[[", "a.b.c.d(",
		`dyn(candidate).name == 'n1' ? 1u : 2u`, `semver(candidate.labels.x, true)`, `0.0 / 0.0`, `duration("1h") - duration("2h")`,
		`candidate.labels.x.matches(candidate.labels.x) ? 1 : 2`, `lists.range(3).map(x, x * x)[int(candidate.labels.x)]`,
		`type(candidate) == type(1) ? 0 : 1`, `optional.none().orValue(1)`, `google.protobuf.Value{null_value: 0}`, `-9223372036854775808`,
		`candidate.creationTimestamp.getHours("Europe/Berlin")`, `ip(candidate.labels.x).family()`, `url(candidate.labels.x).getHost()`,
	}, everyType...) {
		f.Add(seed, "x", "1.2.3")
		f.Add(seed, "site", "")
	}
	f.Fuzz(func(t *testing.T, expression, key, value string) {
		c := strategy.NewCandidate(&metav1.ObjectMeta{Name: "n1", Labels: map[string]string{key: value, "other": key}, Annotations: map[string]string{key: value}},
			strategy.Spec{BinaryVersion: value, EmulationVersion: key})
		e := &strategy.Election{Holder: value, Labels: c.Labels, Annotations: c.Annotations}
		for _, d := range []Definition{{Name: "example.com/Fuzz", Prefer: []string{expression}}, {Name: "example.com/Fuzz", Eligible: expression}} {
			s, err := Compile(d, nil)
			if (s == nil) == (err == nil) {
				t.Fatalf("%q: got %v, error %v", expression, s, err)
			}
			if s == nil {
				continue
			}
			keys, err := s.Keys(nil, c, e)
			again, errAgain := s.Keys(nil, c, e)
			if strategy.Compare(keys, again) != 0 || fmt.Sprint(err) != fmt.Sprint(errAgain) {
				t.Errorf("%q: %v, %v became %v, %v", expression, keys, err, again, errAgain)
			}
			if err == nil && len(keys) != len(d.Prefer) {
				t.Errorf("%q: %d keys", expression, len(keys))
			}
		}
	})
}

// FuzzCandidate ranks whatever a candidate may be. Each is ranked by values of the right types, refused, or a failure
// that says why in a few words.
func FuzzCandidate(f *testing.F) {
	for _, seed := range []string{"", "a", "1", "-1", "NaN", "-0", "1e400", "1.2.3", "v1", "64Gi", "1E", "\xff", "\x00", "ü", "9223372036854775808", "a\nb"} {
		f.Add("n1", "site", seed, "load", seed, int64(0))
		f.Add(seed, seed, seed, "memory", seed, int64(-1))
		f.Add("n1", "load", seed, "site", "a", int64(1)<<62)
	}
	var strategies []strategy.Strategy
	for _, expression := range append([]string{
		`int(candidate.labels.load)`, `semver(candidate.labels.load, true)`, `timestamp(candidate.labels.load)`, `duration(candidate.labels.load)`,
		`candidate.labels.site.matches(candidate.labels.load) ? 0 : 1`, `candidate.name.split(candidate.labels.site).size()`,
		`candidate.labels.load.replace(candidate.labels.site, "ab")`, `quantity(candidate.labels.load).asInteger()`,
	}, everyType...) {
		strategies = append(strategies, preferring(f, expression))
	}
	f.Fuzz(func(t *testing.T, name, key, value, otherKey, otherValue string, age int64) {
		c := strategy.NewCandidate(&metav1.ObjectMeta{
			Name: name, Labels: map[string]string{key: value, otherKey: otherValue}, Annotations: map[string]string{otherKey: value},
			CreationTimestamp: metav1.NewTime(created.Add(time.Duration(age))),
		}, strategy.Spec{BinaryVersion: value, EmulationVersion: otherValue})
		usual := someone()
		usual.Labels["site"], usual.Labels["load"] = "a", "1"
		e := &strategy.Election{Holder: "n1", Labels: c.Labels}
		for _, s := range strategies {
			keys, err := s.Keys(nil, c, e)
			if err != nil {
				if len(err.Error()) > len("prefer[0] ``: ")+maxName+maxDetail {
					t.Errorf("a long error: %v", err)
				}
				if !errors.As(err, new(*strategy.Failure)) {
					t.Errorf("is no failure: %v", err)
				}
				continue
			}
			if strategy.Compare(keys, keys) != 0 {
				t.Errorf("%v is not itself", keys)
			}
			if usualKeys, err := s.Keys(nil, usual, e); err == nil && strategy.Compare(keys, usualKeys) != -strategy.Compare(usualKeys, keys) {
				t.Errorf("%v and %v", keys, usualKeys)
			}
		}
	})
}
