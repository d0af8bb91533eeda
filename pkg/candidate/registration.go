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

package candidate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/candidacy"
)

// resigning is the value of IneligibleAnnotation that is our own, as opposed to an operator's.
const resigning = "resigning"

// registration is what this process wants its LeaseCandidate to be.
type registration struct {
	name, lease                 string
	binary, emulation, strategy string
	labels                      map[string]string
	// owner is the Pod with which the object is to go, or nil.
	owner *metav1.OwnerReference
}

// podOwner returns a reference to the Pod that this process runs in, if the environment names it and it can own objects in
// that namespace: an owner in another namespace counts as absent, and its dependents are collected.
func podOwner(getenv func(string) string, namespace string) *metav1.OwnerReference {
	name, uid := getenv("POD_NAME"), getenv("POD_UID")
	if name == "" || uid == "" || getenv("POD_NAMESPACE") != namespace {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(uid)}
}

// from returns what the state machine needs of the object. nil stands for none.
func (r *registration) from(kind schema.GroupVersionResource, obj *unstructured.Unstructured, version uint64) (candidacy.Registration, error) {
	seen := candidacy.Registration{Known: true, Kind: kind.Group, Version: version}
	if obj == nil {
		return seen, nil
	}
	seen.Exists = true
	for _, stamp := range []struct {
		field string
		to    *candidacy.Stamp
	}{{"pingTime", &seen.Ping}, {"renewTime", &seen.Renewed}} {
		text, ok, err := unstructured.NestedString(obj.Object, "spec", stamp.field)
		if err != nil {
			return candidacy.Registration{}, fmt.Errorf("decoding candidate %s: %w", obj.GetName(), err)
		}
		if !ok || text == "" {
			continue
		}
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return candidacy.Registration{}, fmt.Errorf("decoding %s of candidate %s: %w", stamp.field, obj.GetName(), err)
		}
		*stamp.to = candidacy.Stamp(t.UnixMicro())
	}
	why, marked := obj.GetAnnotations()[v1alpha1.IneligibleAnnotation]
	seen.Resigned, seen.Ineligible = marked && why == resigning, marked && why != resigning
	seen.Current = r.current(obj)
	return seen, nil
}

func (r *registration) current(obj *unstructured.Unstructured) bool {
	for field, want := range r.spec() {
		if got, _, _ := unstructured.NestedString(obj.Object, "spec", field); got != want {
			return false
		}
	}
	labels := obj.GetLabels()
	for key, want := range r.labels {
		if got, ok := labels[key]; !ok || got != want {
			return false
		}
	}
	return obj.GetAnnotations()[v1alpha1.SignalAnnotation] == v1alpha1.SignalByAnnotations && r.owned(obj)
}

func (r *registration) owned(obj *unstructured.Unstructured) bool {
	if r.owner == nil {
		return true
	}
	for _, owner := range obj.GetOwnerReferences() {
		if owner.UID == r.owner.UID {
			return true
		}
	}
	return false
}

func (r *registration) spec() map[string]any {
	return map[string]any{"leaseName": r.lease, "binaryVersion": r.binary, "emulationVersion": r.emulation, "strategy": r.strategy}
}

func (r *registration) object(kind schema.GroupVersionResource, renewed candidacy.Stamp) *unstructured.Unstructured {
	spec := r.spec()
	spec["renewTime"] = stampText(renewed)
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetAPIVersion(kind.GroupVersion().String())
	obj.SetKind("LeaseCandidate")
	obj.SetName(r.name)
	obj.SetLabels(r.labels)
	obj.SetAnnotations(map[string]string{v1alpha1.SignalAnnotation: v1alpha1.SignalByAnnotations})
	if r.owner != nil {
		obj.SetOwnerReferences([]metav1.OwnerReference{*r.owner})
	}
	return obj
}

// updatePatch makes seen what it should be, and touches nothing else. Since it may take back a mark that was seen on the
// object, and since a merge patch can only replace a list of owners, it is for the version that was seen.
func (r *registration) updatePatch(seen *unstructured.Unstructured, renewed candidacy.Stamp) map[string]any {
	notes := map[string]any{v1alpha1.SignalAnnotation: v1alpha1.SignalByAnnotations}
	if seen.GetAnnotations()[v1alpha1.IneligibleAnnotation] == resigning {
		notes[v1alpha1.IneligibleAnnotation] = nil
	}
	meta := map[string]any{"resourceVersion": seen.GetResourceVersion(), "annotations": notes}
	if len(r.labels) > 0 {
		meta["labels"] = r.labels
	}
	if !r.owned(seen) {
		meta["ownerReferences"] = append(seen.GetOwnerReferences(), *r.owner)
	}
	spec := r.spec()
	spec["renewTime"] = stampText(renewed)
	return map[string]any{"metadata": meta, "spec": spec}
}

// writeRegistration writes to this process' own object, which was last seen as seen. written is the UID of the object that
// this process wrote to last, if any.
func (a *api) writeRegistration(ctx context.Context, r *registration, kind schema.GroupVersionResource, w candidacy.WriteRegistration,
	seen *unstructured.Unstructured, written types.UID) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	candidates := a.candidates(kind)
	patch := func(body map[string]any) (*unstructured.Unstructured, error) {
		encoded, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		return candidates.Patch(ctx, r.name, types.MergePatchType, encoded, metav1.PatchOptions{})
	}
	create := func() (*unstructured.Unstructured, error) {
		return candidates.Create(ctx, r.object(kind, w.Renewed), metav1.CreateOptions{})
	}
	if w.Why == candidacy.Create {
		return create()
	}
	if seen == nil {
		// It has gone since this was decided.
		return nil, apierrors.NewNotFound(kind.GroupResource(), r.name)
	}
	switch w.Why {
	case candidacy.Update:
		if lease, _, _ := unstructured.NestedString(seen.Object, "spec", "leaseName"); lease != r.lease {
			// A former process of this name was a candidate for another lease, and that cannot be changed.
			if err := a.remove(ctx, kind, r.name, seen.GetUID()); err != nil {
				return nil, err
			}
			return create()
		}
		return patch(r.updatePatch(seen, w.Renewed))
	case candidacy.Ack:
		// Not for a certain version: the coordinator may ping at any time, and nobody else writes renewTime.
		return patch(map[string]any{"spec": map[string]any{"renewTime": stampText(w.Renewed)}})
	case candidacy.Resign:
		if _, marked := seen.GetAnnotations()[v1alpha1.IneligibleAnnotation]; marked {
			// An operator's mark does as well, and stays.
			return seen, nil
		}
		return patch(map[string]any{"metadata": map[string]any{
			"resourceVersion": seen.GetResourceVersion(),
			"annotations":     map[string]any{v1alpha1.IneligibleAnnotation: resigning},
		}})
	case candidacy.Delete:
		if written == "" {
			written = seen.GetUID()
		}
		return nil, a.remove(ctx, kind, r.name, written)
	}
	return nil, fmt.Errorf("writing candidate %s: %q is not known", r.name, w.Why)
}
