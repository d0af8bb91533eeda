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
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// NewestBinaryVersion lets the candidate with the highest binary version lead: a rolling update of a controller
// moves leadership once, to the first replica of the new version, instead of from old replica to old replica.
type NewestBinaryVersion struct{}

var _ Strategy = NewestBinaryVersion{}

// Name implements Strategy.
func (NewestBinaryVersion) Name() coordinationv1.CoordinatedLeaseStrategy {
	return "lease-coordinator.dev/NewestBinaryVersion"
}

// Eligible implements Strategy: the binary version must parse. The emulation version does not matter.
func (NewestBinaryVersion) Eligible(c *Candidate) error {
	if c.Binary.Err != nil {
		return fmt.Errorf("binaryVersion %q is not a version: %w", c.Binary.Text, c.Binary.Err)
	}
	return nil
}

// Compare implements Strategy.
func (NewestBinaryVersion) Compare(a, b *Candidate, _ Election) int {
	return b.Binary.Semver.Compare(a.Binary.Semver)
}
