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

package compatibility

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

var aFact = Fact{
	Cluster:    Cluster{Version: "1.37", Kinds: []string{"coordination.k8s.io/v1beta1"}, Coordinator: Ours},
	Candidates: Library, Outcome: Annotation,
}

// stream returns go test -json's output of tests, given as "name fact result".
func stream(t *testing.T, lines ...[3]string) string {
	t.Helper()
	var b strings.Builder
	write := func(event map[string]string) {
		event["Package"] = "p"
		text, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", text)
	}
	for _, l := range lines {
		write(map[string]string{"Action": "run", "Test": l[0]})
		write(map[string]string{"Action": "output", "Test": l[0], "Output": "=== ATTR  " + l[0] + "\n"})
		write(map[string]string{"Action": "attr", "Test": l[0], "Key": Attribute, "Value": l[1]})
		write(map[string]string{"Action": "attr", "Test": l[0], "Key": "other", "Value": "not for us"})
		write(map[string]string{"Action": l[2], "Test": l[0]})
	}
	return b.String()
}

func TestRead(t *testing.T) {
	var text bytes.Buffer
	told, failed, err := Read(strings.NewReader(stream(t, [3]string{"TestA/x", aFact.Value(), "pass"}, [3]string{"TestB", aFact.Value(), "fail"},
		[3]string{"TestC", aFact.Value(), "skip"})+"not JSON\n"), &text)
	if err != nil {
		t.Fatal(err)
	}
	if len(told) != 1 || told[0].Test != "TestA/x" || fmt.Sprint(told[0].Fact) != fmt.Sprint(aFact) {
		t.Errorf("told %v", told)
	}
	if fmt.Sprint(failed) != "[p.TestB]" {
		t.Errorf("failed %v", failed)
	}
	if want := "=== ATTR  TestA/x\n=== ATTR  TestB\n=== ATTR  TestC\nnot JSON\n"; text.String() != want {
		t.Errorf("printed %q, want %q", text.String(), want)
	}
}

func TestReadSaysWhatIsNoFact(t *testing.T) {
	wrong := func(change func(*Fact)) string {
		f := aFact
		change(&f)
		return f.Value()
	}
	for want, value := range map[string]string{
		"unexpected end of JSON": "{",
		`version ""`:             wrong(func(f *Fact) { f.Version = "" }),
		`version "v1"`:           wrong(func(f *Fact) { f.Version = "v1" }),
		`coordinator "mine"`:     wrong(func(f *Fact) { f.Coordinator = "mine" }),
		`candidates "operators"`: wrong(func(f *Fact) { f.Candidates = "operators" }),
		`outcome "works"`:        wrong(func(f *Fact) { f.Outcome = "works" }),
	} {
		if _, _, err := Read(strings.NewReader(stream(t, [3]string{"TestA", value, "pass"})), new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", value, err, want)
		}
	}
}

func TestPage(t *testing.T) {
	old, own, plain, again := aFact, aFact, aFact, aFact
	old.Version, old.FieldsKept, old.Coordinator, old.Outcome = "1.9", true, Replace, Fields
	own.Kinds = []string{"coordination.k8s.io/v1beta1", "lease-coordinator.dev/v1alpha1"}
	plain.Candidates, plain.Outcome = Plain, Waits
	newest := old
	newest.Version = "1.10"
	told := []Told{{old, "TestOld"}, {newest, "TestNewest"}, {aFact, "TestB"}, {own, "TestOwn"}, {plain, "TestPlain"}, {again, "TestA"}, {again, "TestA"}}
	page, err := Page(told)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`| ours | 1.37 | off | v1beta1 | – | – | – | annotation | waits |
| ours | 1.37 | off | v1beta1, own | – | – | – | annotation | – |
| ours, ` + "`--in-tree=replace`" + ` | 1.10 | on | v1beta1 | – | – | – | fields | – |
| ours, ` + "`--in-tree=replace`" + ` | 1.9 | on | v1beta1 | – | – | – | fields | – |
`,
		"| ours | 1.37 | off | v1beta1 | candidate library | `TestA`, `TestB` |\n",
		"| ours | 1.37 | off | v1beta1 | client-go, plain | `TestPlain` |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have\n%s\nin\n%s", want, page)
		}
	}
	for i, j := 0, len(told)-1; i < j; i, j = i+1, j-1 {
		told[i], told[j] = told[j], told[i]
	}
	if other, err := Page(told); err != nil || other != page {
		t.Errorf("the order of tests matters: %v\n%s", err, other)
	}

	again.Outcome = Revoked
	if _, err := Page(append(told, Told{again, "TestC"})); err == nil || !strings.Contains(err.Error(), `TestC saw "revoked"`) {
		t.Errorf("two outcomes of one thing: error %v", err)
	}
}
