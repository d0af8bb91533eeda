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

package checks

import (
	"cmp"
	"slices"
)

// Check is one question to a cluster.
type Check struct {
	ID string
	// Question is what it asks, for people.
	Question string
	// Outcomes are what it can find, besides that all is well and that it could not be made.
	Outcomes []*Outcome

	run func(*examination, *findings)
}

// All returns the checks, in the order in which they are made.
func All() []Check {
	return slices.Concat(serverChecks, coordinatorChecks, rightsChecks, leaseChecks, candidateChecks)
}

// Examine makes all checks, and returns what they found: in their order, what is worse first.
func Examine(f *Facts) []Finding {
	x := newExamination(f)
	severities := Severities()
	var all []Finding
	for _, check := range All() {
		found := findings{check: check.ID}
		check.run(x, &found)
		slices.SortStableFunc(found.list, func(a, b Finding) int {
			return cmp.Or(
				cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
				cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Object, b.Object),
			)
		})
		all = append(all, found.list...)
	}
	return all
}
