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
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestKindOf(t *testing.T) {
	for _, test := range []struct{ group, version, kind, want string }{
		{"coordination.k8s.io", "v1beta1", "LeaseCandidate", "coordination.k8s.io/v1beta1 LeaseCandidate"},
		{"coordination.k8s.io", "v1alpha2", "LeaseCandidate", "coordination.k8s.io/v1alpha2 LeaseCandidate"},
		{"coordination.k8s.io", "v1", "LeaseCandidate", "coordination.k8s.io/v1 LeaseCandidate"},
		{"lease-coordinator.dev", "v1alpha1", "LeaseCandidate", "lease-coordinator.dev/v1alpha1 LeaseCandidate"},
		{"lease-coordinator.dev", "v1", "LeaseCandidate", ""},
		{"coordination.k8s.io", "v1alpha1", "LeaseCandidate", ""},
		{"coordination.k8s.io", "v1beta1", "Lease", ""},
		{"example.com", "v1beta1", "LeaseCandidate", ""},
	} {
		kind := KindOf(schema.GroupVersionKind{Group: test.group, Version: test.version, Kind: test.kind})
		if got := ""; kind != nil {
			got = kind.String()
			if got != test.want {
				t.Errorf("%+v: %s", test, got)
			}
			if kind.Candidate(kind.New()) == nil {
				t.Errorf("%s does not parse its own objects", got)
			}
		} else if test.want != got {
			t.Errorf("%+v: none", test)
		}
	}
}
