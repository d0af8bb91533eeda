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

package leaseapi

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// KindOf returns the kind of LeaseCandidate of that name and version, for objects that come from elsewhere than an API
// server; nil if this coordinator does not understand it.
func KindOf(kind schema.GroupVersionKind) CandidateKind {
	if kind.Group != coordinationv1.GroupName || kind.Kind != candidateKindName {
		return nil
	}
	for _, n := range nativeKinds {
		if n.version == kind.Version {
			return n
		}
	}
	return nil
}
