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

package configfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	configv1alpha1 "github.com/lease-coordinator/coordinator/api/config/v1alpha1"
)

const header = "apiVersion: config.lease-coordinator.dev/v1alpha1\nkind: CoordinatorConfiguration\n"

func TestDecode(t *testing.T) {
	f, err := Decode("x.yaml", []byte(header+`
clientConnection: {kubeconfig: k, qps: 1.5, burst: 2}
leaderElection: {leaderElect: false, resourceNamespace: ns, leaseDuration: 1m, retryPeriod: null}
inTree: replace
dryRun: true
election: {minTerm: 0s, takeUpTimeout: 1h30m}
strategies: ["*", -a]
leaseStrategies: [{lease: "ns/l*", strategy: x/A}]
customStrategies: [{name: x/A, eligible: "true", prefer: ["1", "2"]}]
metrics: {secure: false}
logging: {verbosity: 3}
---
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &configv1alpha1.CoordinatorConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: "config.lease-coordinator.dev/v1alpha1", Kind: "CoordinatorConfiguration"},
		ClientConnection: configv1alpha1.ClientConnectionConfiguration{Kubeconfig: "k", QPS: 1.5, Burst: 2},
		LeaderElection: configv1alpha1.LeaderElectionConfiguration{
			LeaderElect: ptr.To(false), ResourceNamespace: "ns", LeaseDuration: &metav1.Duration{Duration: time.Minute},
		},
		InTree: "replace", DryRun: true,
		Election:         configv1alpha1.ElectionConfiguration{TakeUpTimeout: metav1.Duration{Duration: 90 * time.Minute}},
		Strategies:       []string{"*", "-a"},
		LeaseStrategies:  []configv1alpha1.LeaseStrategy{{Lease: "ns/l*", Strategy: "x/A"}},
		CustomStrategies: []configv1alpha1.CustomStrategy{{Name: "x/A", Eligible: "true", Prefer: []string{"1", "2"}}},
		Metrics:          configv1alpha1.MetricsConfiguration{Secure: ptr.To(false)},
		Logging:          configv1alpha1.LoggingConfiguration{Verbosity: 3},
	}
	configv1alpha1.SetDefaults(want)
	if !equality.Semantic.DeepEqual(f.Configuration, want) {
		t.Errorf("got %+v\nwant %+v", f.Configuration, want)
	}
	for path, want := range map[string]bool{
		"election.minTerm": true, "election.candidateTTL": false, "leaderElection.retryPeriod": false, "leaderElection.leaderElect": true,
		"strategies": true, "health.bindAddress": false, "metrics.secure": true, "inTree": true,
	} {
		if got := f.Sets(path); got != want {
			t.Errorf("sets %s: %t", path, got)
		}
	}
	if (*File)(nil).Sets("inTree") {
		t.Error("no file sets a field")
	}
}

// JSON is YAML.
func TestDecodeJSON(t *testing.T) {
	f, err := Decode("x.json", []byte(`{"kind": "CoordinatorConfiguration", "apiVersion": "config.lease-coordinator.dev/v1alpha1", "dryRun": true}`))
	if err != nil || !f.Configuration.DryRun {
		t.Error(f, err)
	}
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	const want = `must have apiVersion "config.lease-coordinator.dev/v1alpha1" and kind "CoordinatorConfiguration"`
	for name, test := range map[string]struct {
		content string
		faults  []string // without the file's name
	}{
		"empty":             {"", []string{"is empty"}},
		"comments only":     {"# nothing\n", []string{"is empty"}},
		"empty documents":   {"---\n---\n", []string{"is empty"}},
		"null":              {"null", []string{"is empty"}},
		"a word":            {"word", []string{`must be a mapping with ` + want[len("must have "):] + `, not "word"`}},
		"a list":            {"[]", []string{`must be a mapping with ` + want[len("must have "):] + `, not a list`}},
		"no apiVersion":     {"kind: CoordinatorConfiguration", []string{"has no apiVersion: " + want}},
		"no kind":           {"apiVersion: config.lease-coordinator.dev/v1alpha1", []string{"has no kind: " + want}},
		"another kind":      {"apiVersion: v1\nkind: ConfigMap", []string{`has apiVersion "v1" and kind "ConfigMap": ` + want}},
		"another version":   {"apiVersion: config.lease-coordinator.dev/v1\nkind: CoordinatorConfiguration", []string{`has apiVersion "config.lease-coordinator.dev/v1" and kind "CoordinatorConfiguration": ` + want}},
		"kind is no string": {"apiVersion: 1\nkind: []", []string{`has apiVersion 1 and kind a list: ` + want}},

		"two documents":           {header + "---\n" + header, []string{"has 2 YAML documents: must have one"}},
		"two, with a comment":     {header + "--- # second\n" + header, []string{"has 2 YAML documents: must have one"}},
		"two, the first is empty": {"---\n---\n" + header, []string{"has 2 YAML documents: must have one"}},
		"two, on one line":        {header + "--- {}\n", []string{"has 2 YAML documents: must have one"}},
		"second cannot be read":   {header + "---\na: {", []string{"yaml: line 4: did not find expected node content"}},

		"a tab":           {header + "\tdryRun: true", []string{"yaml: line 3: found a tab character that violates indentation"}},
		"not UTF-8":       {"\xff", []string{"yaml: invalid leading UTF-8 octet"}},
		"binary":          {"k8s\x00", []string{"yaml: control characters are not allowed"}},
		"infinite":        {header + "clientConnection: {qps: .inf}", []string{"json: unsupported value: +Inf"}},
		"a list as a key": {header + "[a]: b", []string{`yaml: invalid map key: []interface {}{"a"}`}},

		"duplicate keys": {header + "dryRun: true\ndryRun: false\nelection:\n  minTerm: 1s\n  minTerm: 2s", []string{
			`yaml: line 4: key "dryRun" already set in map; line 7: key "minTerm" already set in map`,
		}},
		"duplicate keys in JSON": {`{"kind": "a", "kind": "b"}`, []string{`yaml: line 1: key "kind" already set in map`}},

		"unknown field":               {header + "election: {minTrem: 1s}", []string{`unknown field "election.minTrem"`}},
		"unknown field at the top":    {header + "elections: {}", []string{`unknown field "elections"`}},
		"unknown field in a list":     {header + "leaseStrategies: [{lease: a}, {leese: b}]", []string{`unknown field "leaseStrategies[1].leese"`}},
		"unknown by its case":         {header + "election: {MinTerm: 1s}", []string{`unknown field "election.MinTerm"`}},
		"unknown field, set to null":  {header + "elections: null", []string{`unknown field "elections"`}},
		"a key that is a number":      {header + "1: a", []string{`unknown field "1"`}},
		"a duration that is none":     {header + "election: {minTerm: soon}", []string{`election.minTerm: must be a duration such as "15s" or "1h30m", not "soon"`}},
		"a duration without a unit":   {header + "election: {minTerm: 5}", []string{`election.minTerm: must be a duration such as "15s" or "1h30m", not 5`}},
		"a duration that is too long": {header + "election: {minTerm: 9999999h}", []string{`election.minTerm: must be a duration such as "15s" or "1h30m", not "9999999h"`}},
		"pointer to a duration":       {header + "leaderElection: {leaseDuration: [1s]}", []string{`leaderElection.leaseDuration: must be a duration such as "15s" or "1h30m", not a list`}},
		"no number":                   {header + "clientConnection: {qps: fast}", []string{`clientConnection.qps: must be a number, not "fast"`}},
		"too large a number":          {header + "clientConnection: {qps: 1e39}", []string{`clientConnection.qps: must be a smaller number, not 1e+39`}},
		"no whole number":             {header + "clientConnection: {burst: 1.5}", []string{`clientConnection.burst: must be a whole number from 0 to 2147483647, not 1.5`}},
		"too large a whole number":    {header + "logging: {verbosity: 2147483648}", []string{`logging.verbosity: must be a whole number from 0 to 2147483647, not 2147483648`}},
		"much too large":              {header + "logging: {verbosity: 99999999999999999999}", []string{`logging.verbosity: must be a whole number from 0 to 2147483647, not 100000000000000000000`}},
		"no boolean":                  {header + "dryRun: 'true'", []string{`dryRun: must be true or false, not "true"`}},
		"no string":                   {header + "inTree: 7", []string{`inTree: must be a string, not 7`}},
		"no string in a list":         {header + "strategies: ['*', {}]", []string{`strategies[1]: must be a string, not a mapping`}},
		"null in a list":              {header + "strategies: ['*', null]", []string{`strategies[1]: must not be null`}},
		"no list":                     {header + "strategies: '*'", []string{`strategies: must be a list, not "*"`}},
		"no mapping":                  {header + "election: 5s", []string{`election: must be a mapping, not "5s"`}},
		"no mapping in a list":        {header + "customStrategies: [a]", []string{`customStrategies[0]: must be a mapping, not "a"`}},

		"every fault, in the order of the fields": {header + "metrics: []\nelection: {minTrem: 1s, minTerm: soon}\nclient: 5", []string{
			`unknown field "client"`,
			`election.minTerm: must be a duration such as "15s" or "1h30m", not "soon"`,
			`unknown field "election.minTrem"`,
			`metrics: must be a mapping, not a list`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Decode("x.yaml", []byte(test.content))
			if err == nil {
				t.Fatalf("accepted: %+v", f.Configuration)
			}
			const prefix = `configuration file "x.yaml": `
			if got, want := err.Error(), prefix+strings.Join(test.faults, "\n"+prefix); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// The check of types must know every field, or else the decoder's own messages, which name Go types, come through.
func TestEveryFieldIsChecked(t *testing.T) {
	var leaves int
	var walk func(path string, t reflect.Type) map[string]any
	f := &File{set: map[string]bool{}, Configuration: &configv1alpha1.CoordinatorConfiguration{}}
	// wrong has at every leaf a value that its type cannot take.
	walk = func(path string, typ reflect.Type) map[string]any {
		wrong := map[string]any{}
		for name, fieldType := range fieldTypes(typ) {
			if fieldType.Kind() == reflect.Pointer {
				fieldType = fieldType.Elem()
			}
			switch {
			case fieldType == durationType:
				wrong[name] = "soon"
			case fieldType.Kind() == reflect.Struct:
				wrong[name] = walk(path+name+".", fieldType)
				continue
			case fieldType.Kind() == reflect.Slice && fieldType.Elem().Kind() == reflect.Struct:
				wrong[name] = []any{walk(path+name+"[0].", fieldType.Elem())}
				continue
			case fieldType.Kind() == reflect.Slice:
				wrong[name] = []any{map[string]any{}}
			default:
				wrong[name] = map[string]any{}
			}
			leaves++
		}
		return wrong
	}
	faults := f.checkTypes(walk("", reflect.TypeFor[configv1alpha1.CoordinatorConfiguration]()))
	if len(faults) != leaves || leaves < 25 {
		t.Errorf("%d faults in %d fields: %q", len(faults), leaves, faults)
	}
}

func TestRead(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "x.yaml")
	if _, err := Read(name); err == nil || err.Error() != `reading configuration file "`+name+`": no such file or directory` {
		t.Error(err)
	}
	if _, err := Read(folder); err == nil || err.Error() != `reading configuration file "`+folder+`": is a directory` {
		t.Error(err)
	}
	for size, admitted := range map[int]bool{0: true, MaxSize: true, MaxSize + 1: false} {
		want := bytes.Repeat([]byte("#"), size)
		if err := os.WriteFile(name, want, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Read(name)
		switch {
		case admitted && (err != nil || !bytes.Equal(got, want)):
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		case !admitted && (err == nil || err.Error() != `reading configuration file "`+name+`": more than 1048576 bytes`):
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// escaped returns JSON without those characters that JSON may have as they are, and YAML folds or refuses.
func escaped(content []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(content) {
		if r < 0x7f || r > 0xffff {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

// FuzzConfiguration decodes whatever a file may hold: what is accepted is the same when written and decoded again.
func FuzzConfiguration(f *testing.F) {
	for _, seed := range []string{
		"", "a: b", header, "---\n" + header + "---\n", header + "---\n" + header,
		header + "election: {minTerm: 1h, electionDuration: 500ms, candidateTTL: null}",
		header + "leaseStrategies: [{lease: 'kube-*/[a-z]*', strategy: x/A}]\nstrategies: ['*', -x/B]",
		header + "customStrategies:\n- name: x/A\n  eligible: |\n    candidate.name != \"a\"\n  prefer: [candidate.labels['x']]",
		header + "clientConnection: {qps: 1e3, burst: 0x10}\nlogging: {verbosity: -1, format: \"\\x85\"}",
		header + "metrics: &a {bindAddress: '0'}\nhealth: *a",
		header + "election: {<<: {minTerm: 5s}}", header + "dryRun: yes", header + "inTree: !!binary AAEC",
		`{"apiVersion":"config.lease-coordinator.dev/v1alpha1","kind":"CoordinatorConfiguration","dryRun":true}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		first, err := Decode("x.yaml", content)
		if err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				if strings.Contains(line, "Go struct field") || strings.Contains(line, "Go value") {
					t.Errorf("names a Go type: %s", line)
				}
			}
			return
		}
		written, err := json.Marshal(first.Configuration)
		if err != nil {
			t.Fatalf("writing %+v: %v", first.Configuration, err)
		}
		written = escaped(written)
		second, err := Decode("x.yaml", written)
		if err != nil {
			t.Fatalf("decoding again:\n%s\n%v", written, err)
		}
		if !equality.Semantic.DeepEqual(first.Configuration, second.Configuration) {
			t.Errorf("%+v\nbecame %+v\nby way of\n%s", first.Configuration, second.Configuration, written)
		}
	})
}
