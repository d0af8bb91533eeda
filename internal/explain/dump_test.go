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

package explain

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const leaseJSON = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"ns","name":"l","resourceVersion":"%"},"spec":{"holderIdentity":"%"}}`

func leaseText(version, holder string) string {
	return strings.Replace(strings.Replace(leaseJSON, "%", version, 1), "%", holder, 1)
}

func candidateText(api, version, emulation string) string {
	return `{"apiVersion":"coordination.k8s.io/` + api + `","kind":"LeaseCandidate","metadata":{"namespace":"ns","name":"c","resourceVersion":"` + version +
		`"},"spec":{"leaseName":"l","strategy":"OldestEmulationVersion","emulationVersion":"` + emulation + `"}}`
}

// TestReadForms: the same lease and candidate, in every form that they are saved in.
func TestReadForms(t *testing.T) {
	lease, candidate := leaseText("5", "c"), candidateText("v1beta1", "7", "1.36.0")
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":17}`
	for name, text := range map[string]string{
		"a List":                   `{"apiVersion":"v1","kind":"List","items":[` + lease + `,` + candidate + `]}`,
		"a List with other kinds":  `{"apiVersion":"v1","kind":"List","items":[` + lease + `,` + pod + `,` + candidate + `]}`,
		"single objects":           lease + "\n" + candidate,
		"single objects, no break": lease + candidate,
		"documents":                "---\n" + lease + "\n---\n# nothing\n---\n" + candidate + "\n---\n",
		"lists of one kind": `{"apiVersion":"coordination.k8s.io/v1","kind":"LeaseList","items":[{"metadata":{"namespace":"ns","name":"l"},"spec":{"holderIdentity":"c"}}]}` +
			`{"apiVersion":"coordination.k8s.io/v1beta1","kind":"LeaseCandidateList","items":[{"metadata":{"namespace":"ns","name":"c"},"spec":{"leaseName":"l","emulationVersion":"1.36.0"}}]}`,
		"the older version":        lease + candidateText("v1alpha2", "7", "1.36.0"),
		"both versions":            lease + candidate + candidateText("v1alpha2", "7", "1.36.0"),
		"an older state before":    leaseText("4", "x") + candidateText("v1beta1", "6", "1.35.0") + lease + candidate,
		"an older state after":     lease + candidate + leaseText("4", "x") + candidateText("v1beta1", "6", "1.35.0"),
		"fields of a newer API":    strings.Replace(lease, `"spec":{`, `"spec":{"novel":{"a":1},`, 1) + candidate,
		"YAML":                     "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {namespace: ns, name: l}\nspec: {holderIdentity: c}\n---\n" + candidate,
		"kinds that nobody serves": lease + candidate + candidateText("v1alpha1", "9", "1.30.0"),
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Read(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if len(c.leases) != 1 || len(c.candidates) != 1 {
				t.Fatalf("%d leases and %d candidates", len(c.leases), len(c.candidates))
			}
			key, err := c.Find("", "l")
			if err != nil || key.String() != "ns/l" || *c.leases[key].Spec.HolderIdentity != "c" {
				t.Errorf("%s, %v: %v", key, err, c.leases[key])
			}
			for _, candidate := range c.candidates {
				if candidate.LeaseName != "l" || candidate.Emulation.Text != "1.36.0" {
					t.Errorf("candidate %+v", candidate)
				}
			}
		})
	}
}

func TestReadFaults(t *testing.T) {
	lease := leaseText("5", "c")
	for name, test := range map[string]struct{ text, want string }{
		"no YAML":           {"a: [", "reading the dump: document 1 is neither YAML nor JSON: "},
		"no object":         {"17", "reading the dump: document 1: is no Kubernetes object: "},
		"no kind":           {"a: 1", "reading the dump: document 1: is no Kubernetes object: it has no kind"},
		"second document":   {lease + "\n[]", "reading the dump: document 2: is no Kubernetes object: "},
		"no name":           {strings.Replace(lease, `"l"`, `""`, 1), "reading the dump: document 1: Lease has no metadata.name"},
		"a wrong type":      {strings.Replace(lease, `"c"`, `17`, 1), "reading the dump: document 1: Lease ns/l: json: cannot unmarshal number into"},
		"a wrong name":      {strings.Replace(lease, `"l"`, `17`, 1), "reading the dump: document 1: Lease ns/17: json: cannot unmarshal number into"},
		"items of no list":  {`{"apiVersion":"v1","kind":"List","items":{}}`, "reading the dump: document 1: List: json: cannot unmarshal object into"},
		"an item":           {`{"apiVersion":"v1","kind":"List","items":[` + lease + `,{"kind":"Lease","apiVersion":"coordination.k8s.io/v1"}]}`, "reading the dump: document 1: item 2: Lease has no metadata.name"},
		"an item that is 0": {`{"apiVersion":"v1","kind":"List","items":[0]}`, "reading the dump: document 1: item 1: is no Kubernetes object: "},
		"an item of none":   {`{"apiVersion":"v1","kind":"List","items":[{}]}`, "reading the dump: document 1: item 1: is no Kubernetes object: it has no kind"},
		"a candidate":       {strings.Replace(candidateText("v1alpha2", "1", "1"), `"spec":{`, `"spec":{"renewTime":5,`, 1), "reading the dump: document 1: LeaseCandidate ns/c: "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Read(strings.NewReader(test.text)); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// TestReadsWhatTheServerHolds: any value that the API server admits is judged, and is no error.
func TestReadsWhatTheServerHolds(t *testing.T) {
	text := leaseText("x", "") + `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"ns","name":"nil"}}` +
		candidateText("v1beta1", "", "latest") +
		`{"apiVersion":"coordination.k8s.io/v1beta1","kind":"LeaseCandidate","metadata":{"name":"d"},"spec":{"leaseName":"nil"}}`
	c, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, key := range c.Coordinated("") {
		x := c.At(t0, settings(t)).Explain(key)
		got = append(got, x.Lease+": "+x.Sentence)
	}
	want := []string{"default/nil: no candidate may lead (d never renewed)", "ns/l: no candidate may lead (c never renewed)"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReadError(t *testing.T) {
	if _, err := Read(io.MultiReader(strings.NewReader("a"), failing{})); err == nil || err.Error() != "reading the dump: unexpected EOF" {
		t.Error(err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// FuzzDump: whatever somebody feeds it, it answers or says what is wrong.
func FuzzDump(f *testing.F) {
	files, err := filepath.Glob("../../cmd/coordinator/testdata/*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content, int64(0))
	}
	f.Add([]byte(leaseText("5", "c")+candidateText("v1beta1", "7", "1.36.0")), int64(3600))
	s := settings(f)
	f.Fuzz(func(t *testing.T, dump []byte, offset int64) {
		c, err := Read(bytes.NewReader(dump))
		if err != nil {
			return
		}
		now := c.Newest().Add(time.Duration(offset) * time.Second)
		view := c.At(now, s)
		for _, key := range c.Coordinated("") {
			x := view.Explain(key)
			for _, candidate := range x.Ranking {
				if candidate.Reason == "" {
					t.Errorf("%s: %s has no reason", x.Lease, candidate.Name)
				}
			}
			for _, format := range []Format{Text, JSON, YAML} {
				if err := Print(io.Discard, format, x); err != nil {
					t.Errorf("%s as %s: %v", x.Lease, format, err)
				}
			}
		}
	})
}
