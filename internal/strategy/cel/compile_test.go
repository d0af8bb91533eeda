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
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// compile compiles a definition that is expected to be right.
func compile(t testing.TB, d Definition) strategy.Strategy {
	t.Helper()
	s, err := Compile(d, field.NewPath("customStrategies").Index(0))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// preferring returns the strategy that ranks by these expressions.
func preferring(t testing.TB, prefer ...string) strategy.Strategy {
	t.Helper()
	return compile(t, Definition{Name: "example.com/Test", Prefer: prefer})
}

func TestCompileSaysWhatIsWrong(t *testing.T) {
	const wantName = `must be a domain of yours, a "/" and a name, such as "example.com/Nearest"`
	const allowed = `must be int, uint, double, string, timestamp, duration or semver`
	named := func(name string) Definition { return Definition{Name: name, Prefer: []string{"1"}} }
	prefer := func(expressions ...string) Definition {
		return Definition{Name: "example.com/Near", Prefer: expressions}
	}
	eligible := func(expression string) Definition {
		return Definition{Name: "example.com/Near", Eligible: expression}
	}
	for name, test := range map[string]struct {
		definition Definition
		faults     []string // without the path of the definition
	}{
		"no name":             {named(""), []string{`name: Required value: ` + wantName}},
		"no domain":           {named("Near"), []string{`name: Invalid value: "Near": ` + wantName}},
		"Kubernetes' own":     {named("OldestEmulationVersion"), []string{`name: Invalid value: "OldestEmulationVersion": is Kubernetes' own strategy: ` + wantName}},
		"our domain":          {named("lease-coordinator.dev/Mine"), []string{`name: Invalid value: "lease-coordinator.dev/Mine": domain "lease-coordinator.dev" is reserved: ` + wantName}},
		"below our domain":    {named("x.lease-coordinator.dev/Mine"), []string{`name: Invalid value: "x.lease-coordinator.dev/Mine": domain "lease-coordinator.dev" is reserved: ` + wantName}},
		"kubernetes.io":       {named("kubernetes.io/Near"), []string{`name: Invalid value: "kubernetes.io/Near": domain "kubernetes.io" is reserved: ` + wantName}},
		"below kubernetes.io": {named("node.kubernetes.io/Near"), []string{`name: Invalid value: "node.kubernetes.io/Near": domain "kubernetes.io" is reserved: ` + wantName}},
		"k8s.io":              {named("x.k8s.io/Near"), []string{`name: Invalid value: "x.k8s.io/Near": domain "k8s.io" is reserved: ` + wantName}},
		"two slashes": {named("example.com/a/b"), []string{
			`name: Invalid value: "example.com/a/b": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`,
		}},
		"nothing after the slash, nor right before": {named("A_b/"), []string{
			`name: Invalid value: "A_b/": prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			`name: Invalid value: "A_b/": name part must be non-empty`,
			`name: Invalid value: "A_b/": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
		}},

		"neither chooses nor ranks": {prefer(), []string{
			`prefer: Required value: strategy example.com/Near: must have at least one expression unless eligible is set: it would neither choose nor rank`,
		}},
		"blank expressions": {Definition{"example.com/Near", " \n", []string{"1", ""}}, []string{
			`eligible: Required value: strategy example.com/Near: must be an expression`,
			`prefer[1]: Required value: strategy example.com/Near: must be an expression`,
		}},

		"misspelt field": {prefer("1", "candidate.zoen"), []string{
			"prefer[1]: Invalid value: \"candidate.zoen\": strategy example.com/Near: 1:10: undefined field 'zoen'\n" +
				" | candidate.zoen\n" +
				" | .........^",
		}},
		"misspelt field of the Lease": {eligible("lease.labels == {} && lease.label == {}"), []string{
			"eligible: Invalid value: \"lease.labels == {} && lease.label == {}\": strategy example.com/Near: 1:28: undefined field 'label'\n" +
				" | lease.labels == {} && lease.label == {}\n" +
				" | ...........................^",
		}},
		"misspelt variable": {prefer("candidat.zone"), []string{
			"prefer[0]: Invalid value: \"candidat.zone\": strategy example.com/Near: 1:1: undeclared reference to 'candidat'\n" +
				" | candidat.zone\n" +
				" | ^",
		}},
		"misspelt function": {prefer("semvr(candidate.binaryVersion)"), []string{
			"prefer[0]: Invalid value: \"semvr(candidate.binaryVersion)\": strategy example.com/Near: 1:6: undeclared reference to 'semvr'\n" +
				" | semvr(candidate.binaryVersion)\n" +
				" | .....^",
		}},
		"several lines, several faults": {eligible("candidate.node == \"ü\" &&\n\tcandidate.nod == 'b' ||\n  lease.x == 1"), []string{
			"eligible: Invalid value: \"candidate.node == \\\"ü\\\" &&\\n\\tcandidate.nod == 'b' ||\\n  lease.x == 1\": strategy example.com/Near: 2:11: undefined field 'nod'\n" +
				" |  candidate.nod == 'b' ||\n" +
				" | ..........^",
			"eligible: Invalid value: \"candidate.node == \\\"ü\\\" &&\\n\\tcandidate.nod == 'b' ||\\n  lease.x == 1\": strategy example.com/Near: 3:8: undefined field 'x'\n" +
				" |   lease.x == 1\n" +
				" | .......^",
		}},
		"comparison of different types": {eligible("candidate.priority == '1'"), []string{
			"eligible: Invalid value: \"candidate.priority == '1'\": strategy example.com/Near: 1:20: found no matching overload for '_==_' applied to '(int, string)'\n" +
				" | candidate.priority == '1'\n" +
				" | ...................^",
		}},
		"syntax": {prefer("candidate.name )"), []string{
			"prefer[0]: Invalid value: \"candidate.name )\": strategy example.com/Near: 1:16: Syntax error: extraneous input ')' expecting <EOF>\n" +
				" | candidate.name )\n" +
				" | ...............^",
		}},
		"a constant that is none": {prefer("timestamp('tomorrow')"), []string{
			"prefer[0]: Invalid value: \"timestamp('tomorrow')\": strategy example.com/Near: 1:11: invalid timestamp argument\n" +
				" | timestamp('tomorrow')\n" +
				" | ..........^",
		}},
		"an object of one's own": {prefer("Candidate{name: 'a'}.name"), []string{
			"prefer[0]: Invalid value: \"Candidate{name: 'a'}.name\": strategy example.com/Near: 1:10: undeclared reference to 'Candidate'\n" +
				" | Candidate{name: 'a'}.name\n" +
				" | .........^",
		}},
		"a loop without an order": {prefer("{'a': 1, 'b': 2}.map(k, k)[0]", "candidate.?labels.orValue({}).map(k, k)[0]", "dyn(candidate.labels).map(k, k).size()"), []string{
			"prefer[0]: Invalid value: \"{'a': 1, 'b': 2}.map(k, k)[0]\": strategy example.com/Near: 1:21: loops over a map(string, int) whose order may vary: must be a list, or the labels or annotations of candidate or lease themselves\n" +
				" | {'a': 1, 'b': 2}.map(k, k)[0]\n" +
				" | ....................^",
			"prefer[1]: Invalid value: \"candidate.?labels.orValue({}).map(k, k)[0]\": strategy example.com/Near: 1:34: loops over a map(string, string) whose order may vary: must be a list, or the labels or annotations of candidate or lease themselves\n" +
				" | candidate.?labels.orValue({}).map(k, k)[0]\n" +
				" | .................................^",
			"prefer[2]: Invalid value: \"dyn(candidate.labels).map(k, k).size()\": strategy example.com/Near: 1:26: loops over a dyn whose order may vary: must be a list, or the labels or annotations of candidate or lease themselves\n" +
				" | dyn(candidate.labels).map(k, k).size()\n" +
				" | .........................^",
		}},

		"loops without an order, one in the other": {prefer("{1: 2}.map(a, {'m': {3: 4}}.m.map(b, b)[0])[0]"), []string{
			"prefer[0]: Invalid value: \"{1: 2}.map(a, {'m': {3: 4}}.m.map(b, b)[0])[0]\": strategy example.com/Near: 1:11: loops over a map(int, int) whose order may vary: must be a list, or the labels or annotations of candidate or lease themselves\n" +
				" | {1: 2}.map(a, {'m': {3: 4}}.m.map(b, b)[0])[0]\n" +
				" | ..........^",
			"prefer[0]: Invalid value: \"{1: 2}.map(a, {'m': {3: 4}}.m.map(b, b)[0])[0]\": strategy example.com/Near: 1:34: loops over a map(int, int) whose order may vary: must be a list, or the labels or annotations of candidate or lease themselves\n" +
				" | {1: 2}.map(a, {'m': {3: 4}}.m.map(b, b)[0])[0]\n" +
				" | .................................^",
		}},

		"eligible is no bool": {eligible("candidate.zone"), []string{
			`eligible: Invalid value: "candidate.zone": strategy example.com/Near: is of type string: must be bool`,
		}},
		"eligible may be anything": {eligible("dyn(true)"), []string{
			`eligible: Invalid value: "dyn(true)": strategy example.com/Near: is of type dyn: must be bool`,
		}},
		"prefer is a bool": {prefer("candidate.isHolder"), []string{
			"prefer[0]: Invalid value: \"candidate.isHolder\": strategy example.com/Near: is of type bool, which would rank false before true and so reads the wrong way round: write `cond ? 0 : 1`",
		}},
		"prefer has no order": {
			prefer("dyn(1)", "[1]", "candidate.labels", "null", "b'x'", "candidate", "candidate.?zone", "quantity('1')", "type(1)", "url('http://x')"),
			[]string{
				`prefer[0]: Invalid value: "dyn(1)": strategy example.com/Near: is of type dyn: ` + allowed,
				`prefer[1]: Invalid value: "[1]": strategy example.com/Near: is of type list(int): ` + allowed,
				`prefer[2]: Invalid value: "candidate.labels": strategy example.com/Near: is of type map(string, string): ` + allowed,
				`prefer[3]: Invalid value: "null": strategy example.com/Near: is of type null_type: ` + allowed,
				`prefer[4]: Invalid value: "b'x'": strategy example.com/Near: is of type bytes: ` + allowed,
				`prefer[5]: Invalid value: "candidate": strategy example.com/Near: is of type lease-coordinator.dev/Candidate: ` + allowed,
				`prefer[6]: Invalid value: "candidate.?zone": strategy example.com/Near: is of type optional_type(string): ` + allowed,
				`prefer[7]: Invalid value: "quantity('1')": strategy example.com/Near: is of type kubernetes.Quantity: ` + allowed,
				`prefer[8]: Invalid value: "type(1)": strategy example.com/Near: is of type type(int): ` + allowed,
				`prefer[9]: Invalid value: "url('http://x')": strategy example.com/Near: is of type kubernetes.URL: ` + allowed,
			},
		},

		"everything at once": {Definition{"Near", "1", []string{"true"}}, []string{
			`name: Invalid value: "Near": ` + wantName,
			`eligible: Invalid value: "1": strategy "Near": is of type int: must be bool`,
			"prefer[0]: Invalid value: \"true\": strategy \"Near\": is of type bool, which would rank false before true and so reads the wrong way round: write `cond ? 0 : 1`",
		}},
		"without a name, none is told": {Definition{"", "1", nil}, []string{
			`name: Required value: ` + wantName,
			`eligible: Invalid value: "1": is of type int: must be bool`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Compile(test.definition, field.NewPath("customStrategies").Index(7))
			if s != nil || err == nil {
				t.Fatalf("got %v, error %v", s, err)
			}
			list, isList := err.(interface{ Unwrap() []error })
			if !isList {
				t.Fatalf("is no list: %v", err)
			}
			var got []string
			for _, fault := range list.Unwrap() {
				if !errors.As(fault, new(*field.Error)) {
					t.Errorf("%T is no *field.Error: %v", fault, fault)
				}
				got = append(got, fault.Error())
			}
			var want []string
			for _, fault := range test.faults {
				want = append(want, "customStrategies[7]."+fault)
			}
			if a, b := strings.Join(got, "\n"), strings.Join(want, "\n"); a != b {
				t.Errorf("got\n%s\nwant\n%s", a, b)
			}
		})
	}
}

func TestNames(t *testing.T) {
	for _, name := range []string{"example.com/Near", "notkubernetes.io/Near", "mylease-coordinator.dev/x", "localhost/a.b_c-1", "kubernetes.io.example.com/x"} {
		s, err := Compile(Definition{Name: name, Prefer: []string{"1"}}, field.NewPath("x"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if string(s.Name()) != name {
			t.Errorf("%s became %s", name, s.Name())
		}
	}
}
