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
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// OldestEmulationVersion is Kubernetes' own strategy (KEP-4355): the candidate with the lowest emulation version
// leads, then the one with the lowest binary version. While a control plane is upgraded or rolled back node by
// node, the leader is thus never newer than the oldest kube-apiserver that is served beside it.
//
// Of equal candidates the election picks the oldest, as in-tree; unlike in-tree, the order is total.
type OldestEmulationVersion struct{}

var _ Strategy = OldestEmulationVersion{}

// Name implements Strategy.
func (OldestEmulationVersion) Name() coordinationv1.CoordinatedLeaseStrategy {
	return v1alpha1.OldestEmulationVersion
}

// Keys implements Strategy: both versions must parse.
func (OldestEmulationVersion) Keys(keys []Key, c *Candidate, _ *Election) ([]Key, error) {
	if err := c.Emulation.valid("emulationVersion"); err != nil {
		return keys, err
	}
	if err := c.Binary.valid("binaryVersion"); err != nil {
		return keys, err
	}
	return append(keys,
		Key{Name: "emulationVersion", Value: &c.Emulation.Semver},
		Key{Name: "binaryVersion", Value: &c.Binary.Semver}), nil
}
