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

package strategy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Select returns, in their order, the known strategies that the patterns enable, as kube-controller-manager's
// --controllers does: "*" enables all, "name" one, and "-name" leaves one out. Without "*" only those named are enabled.
// No patterns are the same as "*".
//
// It reports every fault at once: a name that is not known, one that is enabled and left out, and patterns that leave
// nothing.
func Select(known []Strategy, patterns []string) ([]Strategy, error) {
	if len(patterns) == 0 {
		return slices.Clone(known), nil
	}
	var errs []error
	var all bool
	named := map[coordinationv1.CoordinatedLeaseStrategy]bool{} // false if left out
	for _, pattern := range patterns {
		if pattern == "*" {
			all = true
			continue
		}
		text, leftOut := strings.CutPrefix(pattern, "-")
		name := coordinationv1.CoordinatedLeaseStrategy(text)
		if !slices.ContainsFunc(known, func(s Strategy) bool { return s.Name() == name }) {
			errs = append(errs, fmt.Errorf("no strategy is called %q: there are %s", name, Names(known)))
			continue
		}
		if enabled, twice := named[name]; twice && enabled == leftOut {
			errs = append(errs, fmt.Errorf("%q and %q contradict each other", name, "-"+name))
			continue
		}
		named[name] = !leftOut
	}
	var selected []Strategy
	for _, s := range known {
		if enabled, mentioned := named[s.Name()]; enabled || all && !mentioned {
			selected = append(selected, s)
		}
	}
	if len(errs) == 0 && len(selected) == 0 {
		errs = append(errs, fmt.Errorf("%q enable no strategy: add %q for all that are not left out", patterns, "*"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return selected, nil
}

// Names lists the names of strategies, in order, for people.
func Names(strategies []Strategy) string {
	var names []string
	for _, s := range strategies {
		names = append(names, fmt.Sprintf("%q", s.Name()))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
