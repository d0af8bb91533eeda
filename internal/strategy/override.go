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
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Source says who chose the strategy of a lease. Those further up go before those further down.
type Source string

const (
	// SourceFlag: --lease-strategy of the coordinator.
	SourceFlag Source = "Flag"
	// SourceConfigFile: leaseStrategies in the coordinator's configuration file.
	SourceConfigFile Source = "ConfigFile"
	// SourceLeaseAnnotation: StrategyOverrideAnnotation on the Lease.
	SourceLeaseAnnotation Source = "LeaseAnnotation"
	// SourceCandidates: the candidates' own spec.strategy.
	SourceCandidates Source = "Candidates"
)

// Override says by which strategy the leases that match are led, whatever their candidates ask for.
type Override struct {
	// Namespace and Lease are patterns as of path.Match, without escapes. Namespace "" matches any.
	Namespace, Lease string
	Strategy         coordinationv1.CoordinatedLeaseStrategy
}

// ParseOverride parses "[namespace/]lease=strategy".
func ParseOverride(text string) (Override, error) {
	// A strategy's own name has a slash, so the first "=" is looked for before any slash.
	pattern, name, found := strings.Cut(text, "=")
	if !found {
		return Override{}, fmt.Errorf("%q has no \"=\": must be [namespace/]lease=strategy", text)
	}
	return NewOverride(pattern, coordinationv1.CoordinatedLeaseStrategy(name))
}

// NewOverride returns the override of the leases that match "[namespace/]lease".
func NewOverride(pattern string, strategy coordinationv1.CoordinatedLeaseStrategy) (Override, error) {
	o := Override{Lease: pattern, Strategy: strategy}
	if namespace, lease, found := strings.Cut(pattern, "/"); found {
		if namespace == "" {
			return Override{}, fmt.Errorf("%q has nothing before its \"/\": leave the \"/\" out for any namespace", pattern)
		}
		o.Namespace, o.Lease = namespace, lease
	}
	if err := o.validate(); err != nil {
		return Override{}, err
	}
	return o, nil
}

// String returns the override as ParseOverride takes it.
func (o Override) String() string { return o.Pattern() + "=" + string(o.Strategy) }

// Pattern returns "[namespace/]lease".
func (o Override) Pattern() string {
	if o.Namespace == "" {
		return o.Lease
	}
	return o.Namespace + "/" + o.Lease
}

func (o Override) validate() error {
	if o.Namespace != "" {
		if err := validatePart("namespace", o.Namespace, validation.IsDNS1123Label, ""); err != nil {
			return err
		}
	}
	if err := validatePart("lease", o.Lease, validation.IsDNS1123Subdomain, "."); err != nil {
		return err
	}
	if o.Strategy == "" {
		return fmt.Errorf("%q names no strategy", o.Pattern()+"=")
	}
	return nil
}

// validatePart checks a name or a pattern that is to match names. What no name can match is a slip of the pen, and
// would otherwise go unnoticed.
func validatePart(kind, part string, name func(string) []string, alsoAllowed string) error {
	if isName(part) {
		if problems := name(part); len(problems) > 0 {
			return fmt.Errorf("%s %q: %s", kind, part, strings.Join(problems, "; "))
		}
		return nil
	}
	if strings.Contains(part, `\`) {
		return fmt.Errorf("%s pattern %q: no name has a character that needs a \"\\\"", kind, part)
	}
	if _, err := path.Match(part, ""); err != nil {
		return fmt.Errorf("%s pattern %q: %w", kind, part, err)
	}
	for _, c := range literals(part) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && !strings.ContainsRune(alsoAllowed, c) {
			return fmt.Errorf("%s pattern %q: no %s has the character %q in its name", kind, part, kind, c)
		}
	}
	return nil
}

// isName reports whether the pattern matches one name only.
func isName(pattern string) bool { return !strings.ContainsAny(pattern, `*?[\`) }

// literals returns what every name that matches has in it. The pattern is known to be well formed.
func literals(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*', '?':
		case '[':
			for i++; pattern[i] != ']'; i++ {
			}
		default:
			b.WriteByte(pattern[i])
		}
	}
	return b.String()
}

func (o Override) matches(namespace, lease string) bool {
	return (o.Namespace == "" || match(o.Namespace, namespace)) && match(o.Lease, lease)
}

func match(pattern, name string) bool {
	matched, err := path.Match(pattern, name)
	return matched && err == nil
}

// compareSpecificity returns a positive number if a says more precisely than b which leases it is for: by the
// lease's name rather than a pattern; then by the namespace's name, a pattern, nothing; then by the number of
// characters that are no pattern.
func compareSpecificity(a, b Override) int {
	namespace := func(o Override) int {
		switch {
		case o.Namespace == "":
			return 0
		case isName(o.Namespace):
			return 2
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(number(isName(a.Lease)), number(isName(b.Lease))),
		cmp.Compare(namespace(a), namespace(b)),
		cmp.Compare(len(literals(a.Namespace))+len(literals(a.Lease)), len(literals(b.Namespace))+len(literals(b.Lease))),
	)
}

// Overrides are all the overrides of a coordinator. The zero value has none. It is never changed, and safe for
// concurrent use.
type Overrides struct {
	// layers are searched in turn. In each the first that matches counts.
	layers []layer
}

type layer struct {
	source    Source
	overrides []Override
}

// NewOverrides returns the overrides of the flags, all of which go before all of the configuration file's. Of those
// in one place that match a lease, the most specific counts, and of equally specific ones the last in the list:
//
//  1. a lease's name goes before a pattern;
//  2. a namespace's name goes before a pattern, and that before none;
//  3. more characters that are no pattern go before fewer.
//
// It fails on an override that ParseOverride would not return, and on a pattern that comes twice with different
// strategies.
func NewOverrides(flags, file []Override) (*Overrides, error) {
	var errs []error
	result := &Overrides{}
	for _, l := range []layer{{SourceFlag, flags}, {SourceConfigFile, file}} {
		l.overrides = slices.Clone(l.overrides)
		seen := map[string]Override{}
		for _, o := range l.overrides {
			if err := o.validate(); err != nil {
				errs = append(errs, err)
				continue
			}
			if other, twice := seen[o.Pattern()]; twice && other.Strategy != o.Strategy {
				errs = append(errs, fmt.Errorf("%q is given two strategies: %q and %q", o.Pattern(), other.Strategy, o.Strategy))
				continue
			}
			seen[o.Pattern()] = o
		}
		// The last comes first, and stays before its equals.
		slices.Reverse(l.overrides)
		if len(errs) == 0 {
			slices.SortStableFunc(l.overrides, func(a, b Override) int { return compareSpecificity(b, a) })
		}
		if len(l.overrides) > 0 {
			result.layers = append(result.layers, l)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return result, nil
}

// For returns the override that counts for the lease, and where it came from.
func (o *Overrides) For(namespace, lease string) (Override, Source, bool) {
	if o == nil {
		return Override{}, "", false
	}
	for _, l := range o.layers {
		for _, override := range l.overrides {
			if override.matches(namespace, lease) {
				return override, l.source, true
			}
		}
	}
	return Override{}, "", false
}
