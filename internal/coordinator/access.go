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
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Rights beyond those of internal/controller. What the secured metrics endpoint needs is in config/rbac, apart.
//
// client-go's elector updates its lock. No other Lease is ever updated, so these name the two that the lock can be: the
// coordinator's own, and, with --in-tree=replace, the in-tree coordinator's. Events go to events.k8s.io alone.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=lease-coordinator-system,roleName=lease-coordinator-lock,resources=leases,resourceNames=lease-coordinator,verbs=update
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=kube-system,roleName=lease-coordinator-in-tree-lock,resources=leases,resourceNames=leader-election-controller,verbs=update

// right is one thing that the coordinator must be allowed to do. Without a name it is for objects of any name.
type right struct {
	verb, resource, namespace, name string
}

func (r right) String() string {
	where := "in all namespaces"
	if r.namespace != "" {
		where = fmt.Sprintf("in namespace %q", r.namespace)
	}
	return fmt.Sprintf("%s %s.coordination.k8s.io %s", r.verb, r.resource, where)
}

// rights lists what the coordinator must be allowed to do.
func rights(lock types.NamespacedName, dryRun bool) []right {
	list := []right{
		{"list", "leases", "", ""}, {"watch", "leases", "", ""}, {"get", "leases", "", ""},
		{"list", "leasecandidates", "", ""}, {"watch", "leasecandidates", "", ""}, {"get", "leasecandidates", "", ""},
		{"create", "leases", lock.Namespace, ""}, {"update", "leases", lock.Namespace, lock.Name},
	}
	if !dryRun {
		list = append(list, right{"create", "leases", "", ""}, right{"patch", "leases", "", ""}, right{"patch", "leasecandidates", "", ""})
	}
	return list
}

// missingRightsError says which rights the API server does not grant.
type missingRightsError struct{ missing []right }

func (e missingRightsError) Error() string {
	var parts []string
	for _, r := range e.missing {
		parts = append(parts, r.String())
	}
	return "the API server does not allow this coordinator to: " + strings.Join(parts, "; ")
}

// checkRights asks the API server about each right, and returns a missingRightsError if any is not granted.
func checkRights(ctx context.Context, c client.Client, wanted []right) error {
	var missing []right
	for _, r := range wanted {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: "coordination.k8s.io", Resource: r.resource, Verb: r.verb, Namespace: r.namespace, Name: r.name,
			},
		}}
		if err := c.Create(ctx, review); err != nil {
			return fmt.Errorf("asking the API server whether this coordinator may %s: %w", r, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, r)
		}
	}
	if len(missing) > 0 {
		return missingRightsError{missing}
	}
	return nil
}
