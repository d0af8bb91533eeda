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

// Package strategy ranks candidates. A strategy is pure: it sees one candidate and the election's context, never a
// client, a clock or another candidate's fate, and says by which keys the candidate is ranked. Keys are compared in
// one place, so every strategy is a total, antisymmetric and transitive order that no input order can change.
//
// A new strategy touches this package alone: write it in a file of its own and add it to BuiltIn. Package cel has the
// strategies that operators write in their configuration file.
package strategy

import (
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Strategy says who may lead under it, and who leads better. Implementations are safe for concurrent use and keep no
// state between calls.
type Strategy interface {
	// Name is the value of spec.strategy that selects this strategy: "OldestEmulationVersion", or a
	// domain-qualified name such as "example.com/Nearest".
	Name() coordinationv1.CoordinatedLeaseStrategy

	// Keys appends to keys what the candidate is ranked by, the most important first, and returns the result; or
	// it returns why the candidate cannot be ranked: a *Failure if the strategy could not find that out. It
	// appends the same number of keys, of the same names and types, for every candidate, and one candidate's
	// keys never depend on another's. Candidates with equal keys have the same merit: the election breaks the
	// tie (creation time, then name), and a tie never preempts a healthy holder.
	Keys(keys []Key, c *Candidate, e *Election) ([]Key, error)
}

// LoadDependent is implemented by strategies whose keys depend on Election.Load: their leases are decided on again
// whenever that has changed.
type LoadDependent interface {
	Strategy
	// DependsOnLoad is a mark and does nothing.
	DependsOnLoad()
}

// Failure is the error of a strategy that is at fault itself, as opposed to a candidate that it does not want.
type Failure struct{ Err error }

// Error implements error.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns what went wrong.
func (f *Failure) Unwrap() error { return f.Err }

// Election is what a strategy may know of the election besides the candidate.
type Election struct {
	// Namespace and Lease name the lease that is to be led.
	Namespace, Lease string
	// Labels and Annotations are the Lease's; nil if there is no Lease. Read-only.
	Labels, Annotations map[string]string
	// Holder is the present holder's identity, "" if there is none.
	Holder string
	// Load is where the other leases are led.
	Load Load
}

// Load counts the leases that candidates lead, or are about to lead, without the one that is decided on. Read-only.
type Load struct {
	// ByNode and ByZone count by Candidate.Node, or else its name, and by Candidate.Zone. Candidates whose zone
	// is not known count in no zone.
	ByNode, ByZone map[string]int
	// Moving is set while another lease is changing hands, so that the counts are about to change.
	Moving bool
}

// Registry maps names to strategies. It is never changed, and safe for concurrent use.
type Registry struct {
	byName map[coordinationv1.CoordinatedLeaseStrategy]Strategy
}

// NewRegistry returns a registry of the given strategies. It fails on a name that comes twice.
func NewRegistry(strategies ...Strategy) (*Registry, error) {
	r := &Registry{byName: make(map[coordinationv1.CoordinatedLeaseStrategy]Strategy, len(strategies))}
	for _, s := range strategies {
		if _, dup := r.byName[s.Name()]; dup {
			return nil, fmt.Errorf("registering strategies: %q is registered twice", s.Name())
		}
		r.byName[s.Name()] = s
	}
	return r, nil
}

// Get returns the strategy of that name, or nil.
func (r *Registry) Get(name coordinationv1.CoordinatedLeaseStrategy) Strategy {
	if r == nil {
		return nil
	}
	return r.byName[name]
}

// Names returns the names of all strategies, in order.
func (r *Registry) Names() []coordinationv1.CoordinatedLeaseStrategy {
	if r == nil {
		return nil
	}
	names := make([]coordinationv1.CoordinatedLeaseStrategy, 0, len(r.byName))
	for name := range r.byName { //ordered: sorted below
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b coordinationv1.CoordinatedLeaseStrategy) int {
		return strings.Compare(string(a), string(b))
	})
	return names
}

// BuiltIn returns the strategies that every coordinator knows.
func BuiltIn() []Strategy {
	return []Strategy{
		OldestEmulationVersion{},
		NewestBinaryVersion{},
		Spread{},
		Sticky{},
	}
}
