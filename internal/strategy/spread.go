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

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// Spread shares leases out over nodes, and, where that makes no difference, over zones: the candidate leads on whose
// node the fewest other leases are led. The version rule of OldestEmulationVersion goes before it, so that spreading
// never makes too new a candidate leader; a candidate that states no emulation version emulates its own.
//
// The counts leave out the lease that is decided on. So a lease leaves its node only for one that leads two fewer:
// each move brings the two nearer to each other, and where any two nodes differ by at most one nothing moves. While
// another lease is changing hands the holder stays, since the counts are about to change: leases move one at a time,
// and no more of them than it takes.
type Spread struct{}

var _ LoadDependent = Spread{}

// Name implements Strategy.
func (Spread) Name() coordinationv1.CoordinatedLeaseStrategy { return v1alpha1.Spread }

// DependsOnLoad implements LoadDependent.
func (Spread) DependsOnLoad() {}

// Keys implements Strategy: the binary version must parse, and the emulation version if there is one.
func (Spread) Keys(keys []Key, c *Candidate, e *Election) ([]Key, error) {
	if err := c.Binary.valid("binaryVersion"); err != nil {
		return keys, err
	}
	emulation := &c.Emulation
	if emulation.Text == "" {
		emulation = &c.Binary
	} else if err := emulation.valid("emulationVersion"); err != nil {
		return keys, err
	}
	return append(keys,
		Key{Name: "emulationVersion", Value: &emulation.Semver},
		Key{Name: "binaryVersion", Value: &c.Binary.Semver},
		Key{Name: "staysWhileOthersMove", Value: e.Load.Moving && c.Name == e.Holder, Descending: true},
		Key{Name: "leasesOnNode", Value: int64(e.Load.ByNode[cmp.Or(c.Node, c.Name)])},
		Key{Name: "leasesInZone", Value: int64(e.Load.ByZone[c.Zone])}), nil
}
