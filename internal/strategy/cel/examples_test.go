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
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/lease-coordinator/coordinator/api/config/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// samples are the strategies that operators are given to begin with.
const samples = "../../../config/samples/strategies.yaml"

func sampleStrategies(t *testing.T) map[string]strategy.Strategy {
	t.Helper()
	content, err := os.ReadFile(samples)
	if err != nil {
		t.Fatal(err)
	}
	var file configv1alpha1.CoordinatorConfiguration
	if err := yaml.UnmarshalStrict(content, &file); err != nil {
		t.Fatal(err)
	}
	if got, want := file.GroupVersionKind(), configv1alpha1.SchemeGroupVersion.WithKind(configv1alpha1.Kind); got != want {
		t.Errorf("is a %v, want %v", got, want)
	}
	result := map[string]strategy.Strategy{}
	for i, s := range file.CustomStrategies {
		compiled, err := Compile(Definition(s), field.NewPath("customStrategies").Index(i))
		if err != nil {
			t.Fatal(err)
		}
		result[s.Name] = compiled
	}
	return result
}

func TestSamples(t *testing.T) {
	type attributes = map[string]string
	with := func(name string, labels, annotations attributes, version string) *strategy.Candidate {
		return strategy.NewCandidate(&metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}, strategy.Spec{BinaryVersion: version})
	}
	labelled := func(name, key, value string) *strategy.Candidate {
		return with(name, attributes{key: value}, nil, "1.0.0")
	}
	machine := func(name, memory, cpus string) *strategy.Candidate {
		return with(name, attributes{"example.com/memory": memory}, attributes{"example.com/cpus": cpus}, "1.0.0")
	}
	plain := with("plain", nil, nil, "1.0.0")
	const (
		zone  = corev1.LabelTopologyZone
		track = "example.com/track"
		spot  = "example.com/capacity-type"
		site  = "example.com/site"
	)
	sites := []*strategy.Candidate{labelled("b1", site, "b"), labelled("a1", site, "a"), labelled("c1", site, "c"), plain}
	failover := attributes{"example.com/failover": "allowed"}

	strategies := sampleStrategies(t)
	tested := map[string]bool{}
	for _, test := range []struct {
		strategy, name string
		candidates     []*strategy.Candidate
		lease          attributes // annotations
		want           []string   // best first; = for one that is no worse than the one before
		refused        []string
	}{
		{"example.com/NearDatabase", "the zone goes before, the others are equal",
			[]*strategy.Candidate{labelled("a", zone, "eu-central-1b"), plain, labelled("c", zone, "eu-central-1a")}, nil,
			[]string{"c", "a", "=plain"}, nil},
		{"example.com/NearDatabase", "without anyone there, anybody leads",
			[]*strategy.Candidate{plain, labelled("b", zone, "eu-central-1c")}, nil,
			[]string{"b", "=plain"}, nil},

		{"example.com/CanaryFirst", "a canary goes before newer versions, a newer canary before it",
			[]*strategy.Candidate{
				with("new", nil, nil, "1.10.0"), with("canary", attributes{track: "canary"}, nil, "1.9.0"),
				with("newcanary", attributes{track: "canary"}, nil, "1.9.1"), with("stable", attributes{track: "stable"}, nil, "1.9.9"),
			}, nil,
			[]string{"newcanary", "canary", "new", "stable"}, nil},
		{"example.com/CanaryFirst", "a version that is none cannot be ranked",
			[]*strategy.Candidate{with("next", attributes{track: "canary"}, nil, "next"), plain}, nil,
			[]string{"plain"}, []string{"next: prefer[1] `-semver(candidate.binaryVersion).major()`: No Major.Minor.Patch elements found"}},

		{"example.com/NeverOnSpot", "nobody on a spot node",
			[]*strategy.Candidate{labelled("a", spot, "spot"), labelled("b", spot, "on-demand"), plain}, nil,
			[]string{"b", "=plain"}, []string{"a: eligible `candidate.labels[?\"example.com/capacity-type\"].orValue(\"\"...` is false"}},

		{"example.com/BiggestMachine", "memory, then CPUs, then who does not say",
			[]*strategy.Candidate{machine("small", "8Gi", "64"), plain, machine("big", "512Gi", "16"), machine("bigger", "512Gi", "64"), machine("large", "100G", "8")}, nil,
			[]string{"bigger", "big", "large", "small", "plain"}, nil},
		{"example.com/BiggestMachine", "what is no quantity, or no number",
			[]*strategy.Candidate{machine("a", "much", "1"), machine("b", "1Gi", "many"), plain}, nil,
			[]string{"plain"}, []string{
				"a: prefer[0] `candidate.labels[?\"example.com/memory\"].optMap(m, -quanti...`: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
				"b: prefer[1] `candidate.annotations[?\"example.com/cpus\"].optMap(n, -int...`: type conversion error from 'string' to 'int'",
			}},

		{"example.com/ActivePassive", "site a alone", sites, nil,
			[]string{"a1"}, []string{
				"b1: eligible `candidate.labels[\"example.com/site\"] == \"a\" || lease.anno...` is false",
				"c1: eligible `candidate.labels[\"example.com/site\"] == \"a\" || lease.anno...` is false",
				"plain: eligible `candidate.labels[\"example.com/site\"] == \"a\" || lease.anno...`: no such key: example.com/site",
			}},
		{"example.com/ActivePassive", "site a first while the others may lead", sites, failover,
			[]string{"a1", "b1", "=c1"}, []string{"plain: prefer[0] `candidate.labels[\"example.com/site\"] == \"a\" ? 0 : 1`: no such key: example.com/site"}},
		{"example.com/ActivePassive", "site b once site a is gone", sites[:1], failover, []string{"b1"}, nil},
		{"example.com/ActivePassive", "not by another value", sites[:1], attributes{"example.com/failover": "no"},
			nil, []string{"b1: eligible `candidate.labels[\"example.com/site\"] == \"a\" || lease.anno...` is false"}},
	} {
		t.Run(test.strategy+": "+test.name, func(t *testing.T) {
			tested[test.strategy] = true
			s := strategies[test.strategy]
			if s == nil {
				t.Fatalf("is not in %s", samples)
			}
			e := &strategy.Election{Annotations: test.lease}
			order := rank(s, test.candidates, e)
			got := namesOf(order)
			for i := 1; i < len(order); i++ {
				if strategy.Compare(order[i-1].keys, order[i].keys) == 0 {
					got[i] = "=" + got[i]
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
			var refused []string
			for _, c := range test.candidates {
				if _, err := s.Keys(nil, c, e); err != nil {
					refused = append(refused, c.Name+": "+err.Error())
				}
			}
			if a, b := strings.Join(refused, "\n"), strings.Join(test.refused, "\n"); a != b {
				t.Errorf("refused\n%s\nwant\n%s", a, b)
			}
		})
	}
	for name := range strategies {
		if !tested[name] {
			t.Errorf("%s is not tested", name)
		}
	}
}
