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

// Package leaseapi puts the cluster's flavour behind one interface: which kinds of LeaseCandidate are served, and
// whether the API server keeps spec.strategy and spec.preferredHolder on a Lease or the coordinator must keep them
// in annotations. Everything above this package sees one canonical form.
package leaseapi

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// Decode returns the lease in canonical form: with spec.strategy and spec.preferredHolder filled from the
// annotations where the server drops the fields. The argument is not changed; it may be what is returned.
func Decode(lease *coordinationv1.Lease, fieldsKept bool) *coordinationv1.Lease {
	if fieldsKept {
		return lease
	}
	s, hasStrategy := lease.Annotations[v1alpha1.StrategyAnnotation]
	p, hasPreferred := lease.Annotations[v1alpha1.PreferredHolderAnnotation]
	if !hasStrategy && !hasPreferred {
		return lease
	}
	lease = lease.DeepCopy()
	if hasStrategy {
		named := coordinationv1.CoordinatedLeaseStrategy(s)
		lease.Spec.Strategy = &named
	}
	if hasPreferred {
		lease.Spec.PreferredHolder = &p
	}
	return lease
}

// Encode returns the lease as it is to be written, the inverse of Decode. The argument is not changed.
//
// Where the server keeps the fields, annotations that an earlier server made necessary are removed.
func Encode(lease *coordinationv1.Lease, fieldsKept bool) *coordinationv1.Lease {
	lease = lease.DeepCopy()
	if fieldsKept {
		delete(lease.Annotations, v1alpha1.StrategyAnnotation)
		delete(lease.Annotations, v1alpha1.PreferredHolderAnnotation)
		return lease
	}
	set := func(annotation, value string) {
		if value == "" {
			delete(lease.Annotations, annotation)
			return
		}
		if lease.Annotations == nil {
			lease.Annotations = map[string]string{}
		}
		lease.Annotations[annotation] = value
	}
	var s, p string
	if lease.Spec.Strategy != nil {
		s = string(*lease.Spec.Strategy)
	}
	if lease.Spec.PreferredHolder != nil {
		p = *lease.Spec.PreferredHolder
	}
	set(v1alpha1.StrategyAnnotation, s)
	set(v1alpha1.PreferredHolderAnnotation, p)
	lease.Spec.Strategy, lease.Spec.PreferredHolder = nil, nil
	return lease
}

// WriteLease creates after, if before is nil, or else changes before into after, both as the server has them (see
// Encode). It is a compare-and-swap on before's resourceVersion, and a patch rather than a replacement, so that
// fields of a newer API than ours survive. It returns the lease as the server has it now.
func WriteLease(ctx context.Context, c client.Client, before, after *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	after = after.DeepCopy()
	if before == nil {
		if err := c.Create(ctx, after); err != nil {
			return nil, fmt.Errorf("creating lease %s: %w", client.ObjectKeyFromObject(after), err)
		}
		return after, nil
	}
	after.ResourceVersion = before.ResourceVersion
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, after, patch); err != nil {
		return nil, fmt.Errorf("patching lease %s: %w", client.ObjectKeyFromObject(after), err)
	}
	return after, nil
}
