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

package coordinator

import (
	"k8s.io/apimachinery/pkg/types"

	configv1alpha1 "github.com/lease-coordinator/coordinator/api/config/v1alpha1"
)

// Lock names the Lease that is the coordinator's own lock, and says whether it is the in-tree coordinator's, for programs
// that examine coordinators rather than run one.
func (o *Options) Lock() (key types.NamespacedName, inTree bool) {
	return o.lockKey(), o.InTree == configv1alpha1.InTreeReplace
}
