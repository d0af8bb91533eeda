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
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/blang/semver/v4"
	celgo "github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// someone returns a candidate that has every field.
func someone() *strategy.Candidate {
	return strategy.NewCandidate(&metav1.ObjectMeta{
		Name: "n1", Namespace: "ns", CreationTimestamp: metav1.NewTime(created),
		Labels: map[string]string{
			corev1.LabelHostname: "node-1", corev1.LabelTopologyZone: "eu-1a",
			"b": "2", "a": "1", "d": "4", "c": "3", "word": "ten", "version": "v1.5",
		},
		Annotations: map[string]string{v1alpha1.PriorityAnnotation: "7", "long": strings.Repeat("ab", 1<<17)},
	}, strategy.Spec{LeaseName: "l", BinaryVersion: "v1.29", EmulationVersion: "1.28.3-rc.1+x"})
}

// theElection has someone as its holder.
func theElection() *strategy.Election {
	return &strategy.Election{
		Namespace: "ns", Lease: "l", Holder: "n1",
		Labels: map[string]string{"tier": "gold"}, Annotations: map[string]string{"example.com/site": "a"},
	}
}

func TestKeys(t *testing.T) {
	version := func(text string) *semver.Version {
		v := semver.MustParse(text)
		return &v
	}
	nobody, nothing := strategy.NewCandidate(&metav1.ObjectMeta{Name: "x"}, strategy.Spec{BinaryVersion: "next"}), &strategy.Election{}
	for expression, want := range map[string]any{
		// Types.
		`1`:                                    int64(1),
		`-candidate.priority`:                  int64(-7),
		`2u`:                                   uint64(2),
		`2.5`:                                  2.5,
		`-1.0 / 0.0`:                           math.Inf(-1),
		`"a" + 'b'`:                            "ab",
		`timestamp("2026-01-02T03:04:05Z")`:    created,
		`duration("90s")`:                      90 * time.Second,
		`semver("1.2.3-rc.1+b")`:               version("1.2.3-rc.1+b"),
		`google.protobuf.Int64Value{value: 3}`: int64(3),

		// Fields.
		`candidate.name`:                        "n1",
		`candidate.labels["b"]`:                 "2",
		`candidate.labels.b`:                    "2",
		`candidate.annotations.long.size()`:     int64(1 << 18),
		`candidate.emulationVersion`:            "1.28.3-rc.1+x",
		`candidate.binaryVersion`:               "1.29.0",
		`semver(candidate.binaryVersion)`:       version("1.29.0"),
		`candidate.creationTimestamp`:           created,
		`candidate.priority`:                    int64(7),
		`candidate.node`:                        "node-1",
		`candidate.zone`:                        "eu-1a",
		`candidate.isHolder ? "yes" : "no"`:     "yes",
		`lease.name`:                            "l",
		`lease.namespace`:                       "ns",
		`lease.labels.tier`:                     "gold",
		`lease.annotations["example.com/site"]`: "a",
		`lease.holder`:                          "n1",

		// Maps, and what may be missing.
		`"b" in candidate.labels ? 0 : 1`:                             int64(0),
		`"e" in candidate.labels ? 0 : 1`:                             int64(1),
		`has(candidate.labels.e) ? 0 : 1`:                             int64(1),
		`candidate.labels[?"e"].orValue("none")`:                      "none",
		`candidate.labels.?b.optMap(b, int(b)).orValue(9)`:            int64(2),
		`candidate.labels[candidate.labels.b == "2" ? "a" : "c"]`:     "1",
		`{"eu-1a": 5, "eu-1b": 6}[candidate.zone]`:                    int64(5),
		`candidate.labels.map(k, k).join(",")`:                        "a,b,c,d,kubernetes.io/hostname,topology.kubernetes.io/zone,version,word",
		`candidate.labels.transformList(k, v, v)[3]`:                  "4",
		`candidate.labels.exists(k, v, k == "a" && v == "1") ? 0 : 1`: int64(0),
		`candidate.labels == candidate.labels ? 0 : 1`:                int64(0),
		`lease.labels == {"tier": "gold"} ? 0 : 1`:                    int64(0),
		`lease.labels.size()`:                                         int64(1),
		`has(candidate.zone) && has(candidate.labels) && has(candidate.priority) && has(candidate.creationTimestamp) ? 0 : 1`: int64(0),
		`candidate.?zone.orValue("nowhere")`: "eu-1a",

		// Kubernetes' libraries.
		`quantity("2Gi").asInteger()`:                    int64(2 << 30),
		`semver(candidate.labels.version, true).minor()`: int64(5),
		`candidate.zone.split("-")[0].upperAscii()`:      "EU",
		`candidate.zone.find("[0-9]+")`:                  "1",
		`["b", "a"].sort()[0]`:                           "a",
		`candidate.creationTimestamp.getFullYear()`:      int64(2026),
		`candidate.creationTimestamp - duration("1h")`:   created.Add(-time.Hour),

		// Objects whose type is hidden.
		`string(dyn(candidate).zone)`:                                    "eu-1a",
		`dyn(candidate).labels.b == "2" ? 0 : 1`:                         int64(0),
		`has(dyn(candidate).zone) && !has(dyn(lease).labels.x) ? 0 : 1`:  int64(0),
		`candidate == candidate && dyn(candidate) != dyn(lease) ? 0 : 1`: int64(0),
		`type(candidate) == type(lease) ? 0 : 1`:                         int64(1),
	} {
		t.Run(expression, func(t *testing.T) {
			before := []strategy.Key{{Name: "before", Value: true}}
			got, err := preferring(t, expression).Keys(before, someone(), theElection())
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 2 || !reflect.DeepEqual(got[1].Value, want) || got[0] != before[0] || got[1].Descending {
				t.Errorf("got %v, want %v (%T)", got, want, want)
			}
		})
	}
	t.Run("of one who says nothing, without a Lease", func(t *testing.T) {
		s := preferring(t, `candidate.labels.size()`, `candidate.annotations == {} ? 0 : 1`, `lease.annotations.size()`, `"x" in lease.labels ? 0 : 1`,
			`candidate.binaryVersion`, `candidate.emulationVersion`, `candidate.priority`, `candidate.zone`, `lease.holder`, `candidate.isHolder ? 0 : 1`,
			`has(candidate.zone) || has(candidate.labels) || has(candidate.priority) || has(candidate.creationTimestamp) ? 0 : 1`)
		keys, err := s.Keys(nil, nobody, nothing)
		if err != nil {
			t.Fatal(err)
		}
		want := []any{int64(0), int64(0), int64(0), int64(1), "next", "", int64(0), "", "", int64(1), int64(1)}
		for i, key := range keys {
			if key.Value != want[i] {
				t.Errorf("%v, want %v", key, want[i])
			}
		}
	})
}

func TestKeyNames(t *testing.T) {
	for expression, want := range map[string]string{
		"candidate.zone":     "candidate.zone",
		"  candidate.zone\n": "candidate.zone",
		"1 +\n1":             "prefer[0]",
		`"` + strings.Repeat("x", maxName-2) + `"`: `"` + strings.Repeat("x", maxName-2) + `"`,
		`"` + strings.Repeat("x", maxName-1) + `"`: "prefer[0]",
	} {
		keys, err := preferring(t, expression).Keys(nil, someone(), theElection())
		if err != nil {
			t.Fatal(err)
		}
		if keys[0].Name != want {
			t.Errorf("%q: name %q, want %q", expression, keys[0].Name, want)
		}
	}
}

func TestEligible(t *testing.T) {
	s := compile(t, Definition{Name: "example.com/Test", Eligible: `candidate.labels[?"a"].orValue("") == "1"`})
	if keys, err := s.Keys(nil, someone(), theElection()); err != nil || len(keys) != 0 {
		t.Errorf("got %v, %v", keys, err)
	}
	before := []strategy.Key{{Name: "before", Value: true}}
	keys, err := s.Keys(before, &strategy.Candidate{Name: "x"}, theElection())
	if len(keys) != 1 {
		t.Errorf("got %v", keys)
	}
	const want = "eligible `candidate.labels[?\"a\"].orValue(\"\") == \"1\"` is false"
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if errors.As(err, new(*strategy.Failure)) {
		t.Error("a candidate that is not wanted is no fault of the strategy")
	}
}

func TestFailures(t *testing.T) {
	const loop = `[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(a, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(b, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(c, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(d, a + b + c + d > 0))))`
	for name, test := range map[string]struct{ eligible, prefer, want string }{
		"a missing label":             {"", `int(candidate.labels["cpu"])`, "prefer[1] `int(candidate.labels[\"cpu\"])`: no such key: cpu"},
		"a missing label, selected":   {"", `candidate.labels.cpu`, "prefer[1] `candidate.labels.cpu`: no such key: cpu"},
		"a missing annotation":        {`lease.annotations["x"] == "1"`, `1`, "eligible `lease.annotations[\"x\"] == \"1\"`: no such key: x"},
		"no number":                   {"", `int(candidate.labels.word)`, "prefer[1] `int(candidate.labels.word)`: type conversion error from 'string' to 'int'"},
		"no version":                  {"", `semver(candidate.labels.word)`, "prefer[1] `semver(candidate.labels.word)`: No Major.Minor.Patch elements found"},
		"no quantity":                 {"", `quantity(candidate.labels.word).asInteger()`, "prefer[1] `quantity(candidate.labels.word).asInteger()`: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"},
		"no number at all":            {"", `0.0 / 0.0`, "prefer[1] `0.0 / 0.0`: is not a number (NaN)"},
		"division by zero":            {"", `1 / (candidate.priority - 7)`, "prefer[1] `1 / (candidate.priority - 7)`: division by zero"},
		"overflow":                    {"", `-(-9223372036854775807 - candidate.priority + 6)`, "prefer[1] `-(-9223372036854775807 - candidate.priority + 6)`: integer overflow"},
		"outside of a list":           {"", `candidate.zone.split("-")[2]`, "prefer[1] `candidate.zone.split(\"-\")[2]`: index out of bounds: 2"},
		"a field that hides its type": {`dyn(candidate).zoen == "x"`, `1`, "eligible `dyn(candidate).zoen == \"x\"`: no such key: zoen"},
		"too costly":                  {loop, `1`, "eligible `[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(a, [1, 2, 3, 4, 5, 6,...`: takes more than 10000 units of cost"},
		"too costly by a value":       {"", `candidate.annotations.long.matches("(a*)*b(c|d|e|f|g)*") ? 0 : 1`, "prefer[1] `candidate.annotations.long.matches(\"(a*)*b(c|d|e|f|g)*\") ...`: takes more than 10000 units of cost"},
		"a long value":                {"", `int(lease.labels[candidate.annotations.long])`, "prefer[1] `int(lease.labels[candidate.annotations.long])`: no such key: " + strings.Repeat("ab", 92) + "..."},
		"on several lines":            {"", "1 +\n\t 1 / (candidate.priority - 7)", "prefer[1] `1 + 1 / (candidate.priority - 7)`: division by zero"},
	} {
		t.Run(name, func(t *testing.T) {
			s := compile(t, Definition{Name: "example.com/Test", Eligible: test.eligible, Prefer: []string{"0", test.prefer}})
			before := []strategy.Key{{Name: "before", Value: true}}
			keys, err := s.Keys(before, someone(), theElection())
			if len(keys) != 1 {
				t.Errorf("got keys %v", keys)
			}
			if failure := (*strategy.Failure)(nil); !errors.As(err, &failure) || failure.Error() != test.want {
				t.Errorf("got error  %v (%T)\nwant %s", err, err, test.want)
			}
		})
	}
}

// The type checker promises a type. Were it wrong, candidates would be compared by the names of types.
func TestAnotherTypeThanPromised(t *testing.T) {
	env, err := newEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	ast, issues := env.Compile(`dyn("a")`)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	s := &custom{prefer: []*expression{newExpression(`dyn("a")`, "prefer[0]", celgo.IntType, program)}}
	const want = "prefer[0] `dyn(\"a\")`: is of type string, not int"
	if keys, err := s.Keys(nil, someone(), theElection()); err == nil || err.Error() != want {
		t.Errorf("got %v, %v, want %s", keys, err, want)
	}
}

// The limit is the documented one, to within the two calls of the expression.
func TestCostLimit(t *testing.T) {
	under := preferring(t, fmt.Sprintf("lists.range(%d).size()", costLimit/2))
	if _, err := under.Keys(nil, someone(), theElection()); err != nil {
		t.Error(err)
	}
	over := preferring(t, fmt.Sprintf("lists.range(%d).size()", costLimit+1))
	if _, err := over.Keys(nil, someone(), theElection()); err == nil || !strings.Contains(err.Error(), "takes more than 10000 units of cost") {
		t.Errorf("got error %v", err)
	}
}

func TestShorten(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", ""}, {" a\n\t b ", "a b"}, {"0123456789", "0123456789"}, {"0123456789a", "0123456..."},
		{"012345ü890", "012345..."}, {"a\xffb", "a\uFFFDb"}, {strings.Repeat("ü", 1000), "üüü..."},
	} {
		if got := shorten(test.text, 10); got != test.want || !utf8.ValidString(got) {
			t.Errorf("%q became %q, want %q", test.text, got, test.want)
		}
	}
}

// The order of a Go map differs from one loop to the next; that of a strategy's labels must not.
func TestSameInputSameKeys(t *testing.T) {
	s := preferring(t, `candidate.labels.map(k, candidate.labels[k]).join()`, `candidate.labels.transformMapEntry(k, v, {v: k}).size()`,
		`candidate.labels.filter(k, k.size() == 1)[0]`, `"%s".format([candidate.labels])`)
	first, err := s.Keys(nil, someone(), theElection())
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if again, err := s.Keys(nil, someone(), theElection()); err != nil || !slices.Equal(again, first) {
			t.Fatalf("%v, %v became %v", first, err, again)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	s := compile(t, Definition{Name: "example.com/Test", Eligible: `candidate.labels.exists(k, k == "a")`,
		Prefer: []string{`semver(candidate.binaryVersion)`, `candidate.labels.map(k, k)[0]`, `int(candidate.labels.b)`, `lease.annotations.size()`}})
	c, e := someone(), theElection()
	want, err := s.Keys(nil, c, e)
	if err != nil {
		t.Fatal(err)
	}
	poor := &strategy.Candidate{Name: "poor", Labels: map[string]string{"a": ""}}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if got, err := s.Keys(nil, c, e); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("got %v, %v", got, err)
				}
				if got, err := s.Keys(nil, poor, e); err == nil {
					t.Errorf("got %v", got)
				}
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			if _, err := Compile(Definition{Name: "example.com/Test", Prefer: []string{`candidate.labels.size()`}}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
