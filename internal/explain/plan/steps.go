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

// Package plan foretells the leadership changes that will follow from upgrading, rolling back, adding and removing
// nodes. It plays the candidates' processes in virtual time against the very rules by which a coordinator decides, in
// internal/election, and has none of its own.
package plan

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Step is a change to the candidates of one node.
type Step struct {
	// Kind says what happens.
	Kind StepKind
	// Node is the node, or the candidate's name.
	Node string
	// Binary and Emulation are the versions that come; zero for Leave.
	Binary, Emulation strategy.Version
	// text is the step as it was given.
	text string
}

// StepKind is what a step does.
type StepKind int

const (
	// Replace stops the candidates of the node, and starts them again with another version.
	Replace StepKind = iota
	// Leave stops them for good.
	Leave
	// Join starts candidates on a node that has none.
	Join
)

// String returns the step as ParseStep takes it.
func (s Step) String() string { return s.text }

// IsStep tells a step from a lease's name.
func IsStep(text string) bool {
	return strings.Contains(text, "=") || strings.HasPrefix(text, "+") || strings.HasSuffix(text, "-")
}

// ParseStep parses "node=version[/emulationVersion]", "node-" or "+node=version[/emulationVersion]". Without an emulation
// version a binary emulates its own.
func ParseStep(text string) (Step, error) {
	s := Step{text: text}
	rest, joins := strings.CutPrefix(text, "+")
	if joins {
		s.Kind = Join
	}
	// A version has no "=", but a candidate's name may.
	at := strings.LastIndex(rest, "=")
	if at < 0 {
		node, leaves := strings.CutSuffix(rest, "-")
		if !leaves || joins || node == "" {
			return Step{}, fmt.Errorf("step %q: must be node=version[/emulationVersion], node- or +node=version[/emulationVersion]", text)
		}
		s.Kind, s.Node = Leave, node
		return s, nil
	}
	s.Node = rest[:at]
	if s.Node == "" {
		return Step{}, fmt.Errorf("step %q: has no node before its %q", text, "=")
	}
	binary, emulation, emulates := strings.Cut(rest[at+1:], "/")
	if !emulates {
		emulation = binary
	}
	s.Binary, s.Emulation = strategy.ParseVersion(binary), strategy.ParseVersion(emulation)
	for _, v := range []strategy.Version{s.Binary, s.Emulation} {
		if v.Err != nil {
			return Step{}, fmt.Errorf("step %q: %q is not a version: %w", text, v.Text, v.Err)
		}
	}
	return s, nil
}

// ReadSteps reads steps, one a line or several. A "#" begins a comment.
func ReadSteps(r io.Reader) ([]Step, error) {
	var steps []Step
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		for _, text := range strings.Fields(line) {
			step, err := ParseStep(text)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", number, err)
			}
			steps = append(steps, step)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading steps: %w", err)
	}
	return steps, nil
}
