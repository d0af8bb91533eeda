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

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// decision is one that a coordinator carried out, as its log tells it.
type decision struct {
	Time     time.Time `json:"ts"`
	Lease    string    `json:"lease"`
	Action   string    `json:"action"`
	Sentence string    `json:"decision"`
}

// decisions reads what the coordinators carried out so far, in order.
func decisions(coordinators []*framework.Coordinator) []decision {
	var all []decision
	for _, c := range coordinators {
		for _, line := range c.LogLines("\"Decision carried out\"") {
			var d decision
			if json.Unmarshal([]byte(line), &d) == nil {
				all = append(all, d)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b decision) int { return a.Time.Compare(b.Time) })
	return all
}

// places replaces holder identities, which are long and random, by the node and version of the candidate.
func places(t framework.Timeline) *strings.Replacer {
	var pairs []string
	for _, e := range t.Events {
		if e.Kind == framework.CandidateCreated && e.Writer != "" {
			pairs = append(pairs, e.Subject, place(e))
		}
	}
	return strings.NewReplacer(pairs...)
}

func place(e framework.Event) string {
	node, _, _ := strings.Cut(e.Writer, "/")
	return node + " (" + minor(e.CandidateAfter.Spec.EmulationVersion) + ")"
}

// minor cuts a version to "major.minor".
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return version
	}
	return parts[0] + "." + parts[1]
}
