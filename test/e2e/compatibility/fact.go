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

// Package compatibility is docs/compatibility.md: a Fact is what a test has seen of one kind of candidate in one kind of
// cluster, which it tells in its output; Read finds them there, and a Page is made of all of them. So nothing is in the page
// that no test has seen, and a test that sees something else fails make test.
package compatibility

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Attribute is the key under which a test tells a Fact, by testing.T.Attr; its value is the Fact in JSON.
const Attribute = "compatibility"

// Coordinator says which coordinator a cluster has.
type Coordinator string

// The coordinators that a cluster may have.
const (
	Ours    Coordinator = "ours"
	Replace Coordinator = "ours, `--in-tree=replace`"
	Yield   Coordinator = "ours, `--in-tree=yield`"
	InTree  Coordinator = "in kube-apiserver"
	None    Coordinator = "none"
)

// Candidates says what candidates are built on.
type Candidates string

// What candidates may be built on.
const (
	ControllerManager Candidates = "kube-controller-manager"
	Scheduler         Candidates = "kube-scheduler"
	ClientGo          Candidates = "client-go, coordinated"
	Library           Candidates = "candidate library"
	Plain             Candidates = "client-go, plain"
)

// Outcome says how a candidate that should lead comes to do so while another one leads.
type Outcome string

// What may be seen.
const (
	// Fields is a leader that was told to make room by spec.preferredHolder, Annotation one that was by an annotation.
	Fields, Annotation Outcome = "fields", "annotation"
	// Revoked is a leader whose lease the coordinator took.
	Revoked Outcome = "revoked"
	// Nobody is that nobody leads, Waits that the next one leads when the leader has ended, and not before.
	Nobody, Waits Outcome = "nobody leads", "waits"
)

var (
	coordinators = []Coordinator{Ours, Replace, Yield, InTree, None}
	columns      = []Candidates{ControllerManager, Scheduler, ClientGo, Library, Plain}
	outcomes     = []Outcome{Fields, Annotation, Revoked, Nobody, Waits}
)

// Cluster is what matters of a cluster.
type Cluster struct {
	// Version is the one that kube-apiserver is, or emulates, such as "1.37".
	Version string `json:"version"`
	// FieldsKept says that Leases keep spec.strategy and spec.preferredHolder.
	FieldsKept bool `json:"fieldsKept"`
	// Kinds are those of LeaseCandidates that are served, as in "coordination.k8s.io/v1beta1".
	Kinds       []string    `json:"kinds"`
	Coordinator Coordinator `json:"coordinator"`
}

// Fact is what a test has seen.
type Fact struct {
	Cluster
	Candidates Candidates `json:"candidates"`
	Outcome    Outcome    `json:"outcome"`
}

// Value returns the fact as the value of a test's attribute.
func (f Fact) Value() string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err) // It has nothing but strings.
	}
	return string(text)
}

func (f Fact) validate() error {
	switch {
	case f.Version == "" || strings.Trim(f.Version, "0123456789.") != "":
		return fmt.Errorf("version %q is none of Kubernetes", f.Version)
	case !slices.Contains(coordinators, f.Coordinator):
		return fmt.Errorf("coordinator %q is none of %q", f.Coordinator, coordinators)
	case !slices.Contains(columns, f.Candidates):
		return fmt.Errorf("candidates %q are none of %q", f.Candidates, columns)
	case !slices.Contains(outcomes, f.Outcome):
		return fmt.Errorf("outcome %q is none of %q", f.Outcome, outcomes)
	}
	return nil
}

// Told is a Fact, and the test that told it.
type Told struct {
	Fact
	Test string
}

// Read reads the output of go test -json and writes to text what go test -v would have. It returns the facts that were told
// by tests that passed, and the names of the tests and packages that did not pass.
func Read(stream io.Reader, text io.Writer) (told []Told, failed []string, err error) {
	type name struct{ Package, Test string }
	facts := map[name][]Fact{}
	in := bufio.NewReader(stream)
	for {
		line, readErr := in.ReadBytes('\n')
		if len(line) > 0 {
			var event struct {
				name
				Action, Output, Key, Value string
			}
			if json.Unmarshal(line, &event) != nil {
				// Not everything that goes wrong does so in JSON.
				event.Output = string(line)
			}
			if _, err := io.WriteString(text, event.Output); err != nil {
				return nil, nil, fmt.Errorf("passing on what a test prints: %w", err)
			}
			switch {
			case event.Action == "attr" && event.Key == Attribute:
				var f Fact
				if err := json.Unmarshal([]byte(event.Value), &f); err != nil {
					return nil, nil, fmt.Errorf("what %s tells, %q, is no fact: %w", event.Test, event.Value, err)
				}
				if err := f.validate(); err != nil {
					return nil, nil, fmt.Errorf("what %s tells, %q, is no fact: %w", event.Test, event.Value, err)
				}
				facts[event.name] = append(facts[event.name], f)
			case event.Action == "fail":
				failed = append(failed, strings.TrimSuffix(event.Package+"."+event.Test, "."))
			case event.Action == "pass":
				for _, f := range facts[event.name] {
					told = append(told, Told{Fact: f, Test: event.Test})
				}
			}
		}
		switch {
		case errors.Is(readErr, io.EOF):
			return told, failed, nil
		case readErr != nil:
			return nil, nil, fmt.Errorf("reading what go test prints: %w", readErr)
		}
	}
}
