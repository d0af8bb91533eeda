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

// NewestBinaryVersion lets the candidate with the highest binary version lead: a rolling update of a controller
// moves leadership once, to the first replica of the new version, instead of from old replica to old replica.
type NewestBinaryVersion struct{}

var _ Strategy = NewestBinaryVersion{}

// Name implements Strategy.
func (NewestBinaryVersion) Name() coordinationv1.CoordinatedLeaseStrategy {
	return v1alpha1.NewestBinaryVersion
}

// Keys implements Strategy: the binary version must parse. The emulation version does not matter.
func (NewestBinaryVersion) Keys(keys []Key, c *Candidate, _ *Election) ([]Key, error) {
	if err := c.Binary.valid("binaryVersion"); err != nil {
		return keys, err
	}
	return append(keys, Key{Name: "binaryVersion", Value: &c.Binary.Semver, Descending: true}), nil
}
