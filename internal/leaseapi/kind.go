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
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

const (
	candidateKindName = "LeaseCandidate"
	candidateResource = "leasecandidates"
)

// CandidateKind is one kind of LeaseCandidate, in one version: that of coordination.k8s.io, or this project's own.
type CandidateKind interface {
	// String names the kind and its version, for people.
	String() string
	// GroupVersionKind is what the kind is called in objects.
	GroupVersionKind() schema.GroupVersionKind
	// CustomResource reports whether the kind is this project's own. An API server has at most one of each that counts.
	CustomResource() bool
	// New returns an empty object of the kind, to watch.
	New() client.Object
	// NewList returns an empty list of objects of the kind.
	NewList() client.ObjectList
	// Candidate parses an object of the kind. It returns nil for any other.
	Candidate(obj client.Object) *strategy.Candidate
	// Ping sets the candidate's pingTime, by compare-and-swap on the resourceVersion that was seen, and returns
	// the resourceVersion that results.
	Ping(ctx context.Context, c client.Client, candidate *strategy.Candidate, pingTime time.Time) (resourceVersion string, err error)
	// Delete deletes the candidate, provided that it still is the one, and as, it was seen.
	Delete(ctx context.Context, c client.Client, candidate *strategy.Candidate) error
}

// kind is the one implementation of CandidateKind: the kinds differ in their types only, and these have the same spec.
type kind struct {
	gvk       schema.GroupVersionKind
	empty     func() client.Object
	emptyList func() client.ObjectList
	spec      func(client.Object) (strategy.Spec, bool)
}

var _ CandidateKind = kind{}

// ownKind is this project's own, served where config/crd is installed.
var ownKind = typed(v1alpha1.SchemeGroupVersion, &v1alpha1.LeaseCandidate{}, &v1alpha1.LeaseCandidateList{},
	func(c *v1alpha1.LeaseCandidate) strategy.Spec { return strategy.Spec(c.Spec) })

// typedKinds are those that this coordinator was compiled with.
var typedKinds = []kind{
	typed(coordinationv1beta1.SchemeGroupVersion, &coordinationv1beta1.LeaseCandidate{}, &coordinationv1beta1.LeaseCandidateList{},
		func(c *coordinationv1beta1.LeaseCandidate) strategy.Spec { return strategy.Spec(c.Spec) }),
	typed(coordinationv1alpha2.SchemeGroupVersion, &coordinationv1alpha2.LeaseCandidate{}, &coordinationv1alpha2.LeaseCandidateList{},
		func(c *coordinationv1alpha2.LeaseCandidate) strategy.Spec { return strategy.Spec(c.Spec) }),
	ownKind,
}

// typed returns the kind whose objects are of the given type.
func typed[Object client.Object, List client.ObjectList](version schema.GroupVersion, object Object, list List, spec func(Object) strategy.Spec) kind {
	return kind{
		gvk:       version.WithKind(candidateKindName),
		empty:     func() client.Object { return object.DeepCopyObject().(client.Object) },
		emptyList: func() client.ObjectList { return list.DeepCopyObject().(client.ObjectList) },
		spec: func(obj client.Object) (strategy.Spec, bool) {
			c, ok := obj.(Object)
			if !ok {
				return strategy.Spec{}, false
			}
			return spec(c), true
		},
	}
}

// untyped returns the kind of a version that came after this coordinator was compiled. A version that is served has the
// fields of those before, or conversion between them would not be possible.
func untyped(gvk schema.GroupVersionKind) kind {
	return kind{
		gvk: gvk,
		empty: func() client.Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(gvk)
			return u
		},
		emptyList: func() client.ObjectList {
			u := &unstructured.UnstructuredList{}
			u.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			return u
		},
		spec: func(obj client.Object) (strategy.Spec, bool) {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok || u.GroupVersionKind() != gvk {
				return strategy.Spec{}, false
			}
			var c v1alpha1.LeaseCandidate
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &c); err != nil {
				// What can be read of it names no lease, so it counts for none.
				return strategy.Spec{}, true
			}
			return strategy.Spec(c.Spec), true
		},
	}
}

// KindOf returns the kind of LeaseCandidate of that name and version; nil if it is none that this coordinator
// understands. coordination.k8s.io/v1alpha1, which Kubernetes v1.31 alone had, asked for strategies in another way.
func KindOf(gvk schema.GroupVersionKind) CandidateKind {
	for _, k := range typedKinds {
		if k.gvk == gvk {
			return k
		}
	}
	if gvk.Group == coordinationv1.GroupName && gvk.Kind == candidateKindName && gvk.Version != "v1alpha1" && gvk.Version != "" {
		return untyped(gvk)
	}
	return nil
}

// String implements CandidateKind.
func (k kind) String() string { return fmt.Sprintf("%s %s", k.gvk.GroupVersion(), k.gvk.Kind) }

// GroupVersionKind implements CandidateKind.
func (k kind) GroupVersionKind() schema.GroupVersionKind { return k.gvk }

// CustomResource implements CandidateKind.
func (k kind) CustomResource() bool { return k.gvk.Group == v1alpha1.Group }

// New implements CandidateKind.
func (k kind) New() client.Object { return k.empty() }

// NewList implements CandidateKind.
func (k kind) NewList() client.ObjectList { return k.emptyList() }

// Candidate implements CandidateKind.
func (k kind) Candidate(obj client.Object) *strategy.Candidate {
	spec, ok := k.spec(obj)
	if !ok {
		return nil
	}
	c := strategy.NewCandidate(obj, spec)
	c.CustomResource = k.CustomResource()
	return c
}

// object returns an object that identifies the candidate.
func (k kind) object(candidate *strategy.Candidate) client.Object {
	obj := k.empty()
	obj.SetNamespace(candidate.Namespace)
	obj.SetName(candidate.Name)
	return obj
}

// Ping implements CandidateKind.
func (k kind) Ping(ctx context.Context, c client.Client, candidate *strategy.Candidate, pingTime time.Time) (string, error) {
	obj := k.object(candidate)
	if err := c.Patch(ctx, obj, pingPatch(candidate, pingTime)); err != nil {
		return "", fmt.Errorf("pinging candidate %s/%s: %w", candidate.Namespace, candidate.Name, err)
	}
	return obj.GetResourceVersion(), nil
}

// Delete implements CandidateKind.
func (k kind) Delete(ctx context.Context, c client.Client, candidate *strategy.Candidate) error {
	uid := types.UID(candidate.UID)
	as := client.Preconditions{UID: &uid, ResourceVersion: &candidate.ResourceVersion}
	if err := c.Delete(ctx, k.object(candidate), as); err != nil {
		return fmt.Errorf("deleting candidate %s/%s: %w", candidate.Namespace, candidate.Name, err)
	}
	return nil
}

// pingPatch is the compare-and-swap that sets spec.pingTime and nothing else.
func pingPatch(candidate *strategy.Candidate, pingTime time.Time) client.Patch {
	const microTime = "2006-01-02T15:04:05.000000Z07:00"
	return client.RawPatch(types.MergePatchType, []byte(
		`{"metadata":{"resourceVersion":`+strconv.Quote(candidate.ResourceVersion)+
			`},"spec":{"pingTime":"`+pingTime.UTC().Format(microTime)+`"}}`))
}

// NewScheme returns a scheme of the types of Kubernetes and of this project.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			// Types that cannot be added are a fault of this program's.
			panic(err)
		}
	}
	return scheme
}

// NewMapper maps Leases and every kind of LeaseCandidate to their resources, without asking the API server, which may be
// away.
func NewMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	for _, k := range typedKinds {
		mapper.Add(k.gvk, meta.RESTScopeNamespace)
	}
	return candidateMapper{mapper}
}

// candidateMapper knows the versions of LeaseCandidate that are yet to come.
type candidateMapper struct{ *meta.DefaultRESTMapper }

// RESTMapping implements meta.RESTMapper.
func (m candidateMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) == 1 {
		if k := KindOf(kind.WithVersion(versions[0])); k != nil {
			gv := schema.GroupVersion{Group: kind.Group, Version: versions[0]}
			return &meta.RESTMapping{Resource: gv.WithResource(candidateResource), GroupVersionKind: gv.WithKind(kind.Kind), Scope: meta.RESTScopeNamespace}, nil
		}
	}
	return m.DefaultRESTMapper.RESTMapping(kind, versions...)
}
