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

// Package strategy ranks candidates. A strategy is pure: it sees candidates and the election's context, never
// a client, a clock or another candidate's fate, and its answer does not depend on the order of its input.
//
// A new strategy touches this package alone: write it in a file of its own and add it to BuiltIn.
package strategy

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Strategy says who may lead under it, and who of two leads better. Implementations are safe for concurrent
// use and keep no state between calls.
type Strategy interface {
	// Name is the value of spec.strategy that selects this strategy: "OldestEmulationVersion", or a
	// domain-qualified name such as "example.com/Nearest".
	Name() coordinationv1.CoordinatedLeaseStrategy

	// Eligible returns nil, or why the candidate cannot be ranked. One candidate's verdict never depends on
	// another's.
	Eligible(c *Candidate) error

	// Compare returns a negative number if a makes the better leader, a positive one if b does, and 0 if
	// neither has more merit. It must be antisymmetric and transitive over eligible candidates. Ties are
	// broken by the election (creation time, then name) and never preempt a healthy holder.
	Compare(a, b *Candidate, e Election) int
}

// Election is what a strategy may know of the election besides the two candidates.
type Election struct {
	// Namespace and Lease name the lease that is to be led.
	Namespace, Lease string
	// Holder is the present holder's identity, "" if there is none.
	Holder string
}

// Registry maps names to strategies. It is not changed after start-up and then safe for concurrent use.
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

// BuiltIn returns the strategies that every coordinator knows.
func BuiltIn() []Strategy {
	return []Strategy{
		OldestEmulationVersion{},
		NewestBinaryVersion{},
	}
}
