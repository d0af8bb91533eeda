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

// Sticky keeps whoever leads: no candidate is better than the holder, so leadership moves only when the holder goes,
// is marked never to lead, or a priority says so. Of the others the election picks the oldest, which has proved
// itself for longest. It suits leaders that are costly to move, whatever their versions.
type Sticky struct{}

var _ Strategy = Sticky{}

// Name implements Strategy.
func (Sticky) Name() coordinationv1.CoordinatedLeaseStrategy { return v1alpha1.Sticky }

// Keys implements Strategy. Every candidate can be ranked.
func (Sticky) Keys(keys []Key, c *Candidate, e *Election) ([]Key, error) {
	return append(keys, Key{Name: "isHolder", Value: c.Name == e.Holder, Descending: true}), nil
}
