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
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// ErrNoCandidates says that the API server serves no kind of LeaseCandidate that this coordinator understands.
var ErrNoCandidates = errors.New("the API server serves no LeaseCandidate in coordination.k8s.io/v1beta1 or v1alpha2; " +
	"start kube-apiserver with --runtime-config=coordination.k8s.io/v1beta1=true")

// Kinds returns an empty object of each kind of LeaseCandidate that this coordinator understands.
func Kinds() []client.Object {
	var objects []client.Object
	for _, kind := range nativeKinds {
		objects = append(objects, kind.New())
	}
	return objects
}

// ServedCandidates asks the API server which kind of LeaseCandidate it serves. It returns ErrNoCandidates if none.
func ServedCandidates(ctx context.Context, d discovery.DiscoveryInterfaceWithContext) (CandidateKind, error) {
	for _, kind := range nativeKinds {
		groupVersion := coordinationv1.GroupName + "/" + kind.version
		resources, err := d.ServerResourcesForGroupVersionWithContext(ctx, groupVersion)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("asking the API server for the resources of %s: %w", groupVersion, err)
		}
		for _, r := range resources.APIResources {
			if r.Name == candidateResource {
				return kind, nil
			}
		}
	}
	return nil, ErrNoCandidates
}

// FieldsKept asks the API server whether it keeps spec.strategy and spec.preferredHolder on a Lease, as it does
// with the feature gate CoordinatedLeaderElection on. Nothing is stored: it creates a Lease with dryRun=All in the
// given namespace and looks at what comes back. The gate cannot be told from the server's version.
func FieldsKept(ctx context.Context, c client.Client, namespace string) (bool, error) {
	name := "lease-coordinator-probe"
	strategy, preferred := v1alpha1.OldestEmulationVersion, name
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       coordinationv1.LeaseSpec{Strategy: &strategy, PreferredHolder: &preferred},
	}
	err := c.Create(ctx, lease, client.DryRunAll)
	switch {
	case err == nil:
		return lease.Spec.Strategy != nil && lease.Spec.PreferredHolder != nil, nil
	case apierrors.IsAlreadyExists(err):
		return false, fmt.Errorf("probing whether Leases keep spec.preferredHolder: a Lease %s/%s is in the way; delete it: %w", namespace, name, err)
	}
	return false, fmt.Errorf("probing whether Leases keep spec.preferredHolder, by a dry-run create of a Lease in namespace %q: %w", namespace, err)
}
