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
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// ErrNoCandidates says that the API server serves no kind of LeaseCandidate that this coordinator understands.
var ErrNoCandidates = errors.New("the API server serves no LeaseCandidate: install this project's own (config/crd), " +
	"or start kube-apiserver with --runtime-config=coordination.k8s.io/v1beta1=true")

// Discovery finds out which kinds of LeaseCandidate an API server serves. It remembers which versions have any as long as
// they are listed, so that asking again and again costs three small requests. Not safe for concurrent use.
type Discovery struct {
	api discovery.DiscoveryInterfaceWithContext
	has map[schema.GroupVersion]bool
}

// NewDiscovery returns a Discovery that uses the given client.
func NewDiscovery(d discovery.DiscoveryInterfaceWithContext) *Discovery {
	if client, ok := d.(*discovery.DiscoveryClient); ok {
		// Of each group its versions are asked for, not all the resources that the cluster has.
		legacy := *client
		legacy.UseLegacyDiscovery = true
		d = &legacy
	}
	return &Discovery{api: d, has: map[schema.GroupVersion]bool{}}
}

// Candidates returns the kinds of LeaseCandidate that are served: every version of coordination.k8s.io that this coordinator
// understands, the most stable and newest first, then this project's own. It returns ErrNoCandidates if none is.
func (d *Discovery) Candidates(ctx context.Context) ([]CandidateKind, error) {
	groups, err := d.api.ServerGroupsWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking the API server for its API groups: %w", err)
	}
	listed := map[schema.GroupVersion]bool{}
	var kinds []CandidateKind
	for _, group := range groups.Groups {
		if group.Name != coordinationv1.GroupName && group.Name != v1alpha1.Group {
			continue
		}
		for _, v := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: v.Version}
			kind := KindOf(gv.WithKind(candidateKindName))
			if kind == nil {
				continue
			}
			listed[gv] = true
			if has, err := d.hasCandidates(ctx, gv); err != nil {
				return nil, err
			} else if has {
				kinds = append(kinds, kind)
			}
		}
	}
	maps.DeleteFunc(d.has, func(gv schema.GroupVersion, _ bool) bool { return !listed[gv] })
	if len(kinds) == 0 {
		return nil, ErrNoCandidates
	}
	slices.SortStableFunc(kinds, func(a, b CandidateKind) int {
		if a.CustomResource() != b.CustomResource() {
			if b.CustomResource() {
				return -1
			}
			return 1
		}
		return version.CompareKubeAwareVersionStrings(b.GroupVersionKind().Version, a.GroupVersionKind().Version)
	})
	return kinds, nil
}

func (d *Discovery) hasCandidates(ctx context.Context, gv schema.GroupVersion) (bool, error) {
	if d.has[gv] {
		return true, nil
	}
	resources, err := d.api.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
	switch {
	case apierrors.IsNotFound(err):
		// Another API server than the one that listed it, perhaps.
		return false, nil
	case err != nil:
		return false, fmt.Errorf("asking the API server for the resources of %s: %w", gv, err)
	}
	has := slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == candidateResource })
	d.has[gv] = has
	return has, nil
}

// Forget has everything asked again, after the API server was found not to serve what it did.
func (d *Discovery) Forget() { clear(d.has) }

// Preferred returns, of the kinds that Discovery found, those to watch: the best version of coordination.k8s.io, and this
// project's own.
func Preferred(kinds []CandidateKind) []CandidateKind {
	var preferred []CandidateKind
	for _, k := range kinds {
		if len(preferred) == 0 || k.CustomResource() != preferred[len(preferred)-1].CustomResource() {
			preferred = append(preferred, k)
		}
	}
	return preferred
}

// NotServed reports whether an error says that the API server does not serve the kind of object at all, as opposed to that
// one object. Both come as 404.
func NotServed(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err)
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
