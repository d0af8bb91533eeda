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
	"maps"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/candidacy"
)

// leaseFrom returns what the state machine needs of a Lease. nil stands for none.
func leaseFrom(obj *unstructured.Unstructured, version uint64) (candidacy.Lease, error) {
	if obj == nil {
		return candidacy.Lease{Version: version}, nil
	}
	var lease coordinationv1.Lease
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &lease); err != nil {
		return candidacy.Lease{}, fmt.Errorf("decoding lease %s: %w", obj.GetName(), err)
	}
	spec, notes := &lease.Spec, lease.Annotations
	l := candidacy.Lease{
		Exists: true, Version: version,
		Holder:   value(spec.HolderIdentity),
		Acquired: stampFrom(spec.AcquireTime), Renewed: stampFrom(spec.RenewTime),
		Duration:    time.Duration(value(spec.LeaseDurationSeconds)) * time.Second,
		Transitions: value(spec.LeaseTransitions),
		Token:       notes[v1alpha1.FencingTokenAnnotation],
		// Where the API server drops the fields, the annotations stand for them.
		Preferred:   value(spec.PreferredHolder),
		Coordinated: value(spec.Strategy) != "" || notes[v1alpha1.StrategyAnnotation] != "",
		Paused:      notes[v1alpha1.PausedAnnotation] == v1alpha1.PausedTrue,
	}
	if l.Preferred == "" {
		l.Preferred = notes[v1alpha1.PreferredHolderAnnotation]
	}
	return l, nil
}

func value[T any](p *T) T {
	var none T
	if p == nil {
		return none
	}
	return *p
}

func stampFrom(t *metav1.MicroTime) candidacy.Stamp {
	if t == nil || t.IsZero() {
		return 0
	}
	return candidacy.Stamp(t.UnixMicro())
}

// stampText returns the form in which the API carries a stamp; nil for none.
func stampText(s candidacy.Stamp) any {
	if s == 0 {
		return nil
	}
	return time.UnixMicro(int64(s)).UTC().Format(metav1.RFC3339Micro)
}

// writeLease changes the Lease, if it is still as it was seen. What the write does not mention survives, also when a Lease
// is put back; former is what it was.
func (a *api) writeLease(ctx context.Context, name string, w *candidacy.WriteLease, former *unstructured.Unstructured) (candidacy.Outcome, candidacy.Lease, error) {
	base, next := &w.Base, &w.Next
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	var obj *unstructured.Unstructured
	var err error
	// In a namespace that is not there nothing can be created, however often it is tried.
	missing := candidacy.Failed
	if base.Exists {
		missing = candidacy.Conflicted
		body, encodingErr := json.Marshal(leasePatch(base, next))
		if encodingErr != nil {
			return candidacy.Failed, candidacy.Lease{}, encodingErr
		}
		obj, err = a.leases().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	} else {
		lease := newLease(name, next)
		if w.Why == candidacy.Renew && former != nil {
			putBack(lease, former)
		}
		obj, err = a.leases().Create(ctx, lease, metav1.CreateOptions{})
	}
	if a.noted(err) != nil {
		return outcomeOf(err, missing), candidacy.Lease{}, err
	}
	version, err := parseObjectVersion(obj.GetResourceVersion())
	if err != nil {
		return candidacy.Failed, candidacy.Lease{}, err
	}
	after, err := leaseFrom(obj, version)
	if err != nil {
		return candidacy.Failed, candidacy.Lease{}, err
	}
	return candidacy.Succeeded, after, nil
}

// leasePatch returns the JSON merge patch that changes base into next.
func leasePatch(base, next *candidacy.Lease) map[string]any {
	spec, notes := map[string]any{}, map[string]any{}
	if next.Holder != base.Holder {
		spec["holderIdentity"] = next.Holder
	}
	if next.Acquired != base.Acquired {
		spec["acquireTime"] = stampText(next.Acquired)
	}
	if next.Renewed != base.Renewed {
		spec["renewTime"] = stampText(next.Renewed)
	}
	if next.Duration != base.Duration {
		spec["leaseDurationSeconds"] = int64(next.Duration / time.Second)
	}
	if next.Transitions != base.Transitions {
		spec["leaseTransitions"] = next.Transitions
	}
	if next.Token != base.Token {
		notes[v1alpha1.FencingTokenAnnotation] = next.Token
	}
	if next.Preferred == "" && base.Preferred != "" {
		// Whichever of the two it was read from.
		spec["preferredHolder"], notes[v1alpha1.PreferredHolderAnnotation] = nil, nil
	}
	meta := map[string]any{"resourceVersion": strconv.FormatUint(base.Version, 10)}
	if len(notes) > 0 {
		meta["annotations"] = notes
	}
	return map[string]any{"metadata": meta, "spec": spec}
}

func newLease(name string, l *candidacy.Lease) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": coordinationv1.SchemeGroupVersion.String(),
		"kind":       "Lease",
		"metadata": map[string]any{
			"name":        name,
			"annotations": map[string]any{v1alpha1.FencingTokenAnnotation: l.Token},
		},
		"spec": map[string]any{
			"holderIdentity":       l.Holder,
			"acquireTime":          stampText(l.Acquired),
			"renewTime":            stampText(l.Renewed),
			"leaseDurationSeconds": int64(l.Duration / time.Second),
			"leaseTransitions":     int64(l.Transitions),
		},
	}}
}

// putBack gives a new Lease what else there was on the former one: strategy, labels, and what operators have annotated.
func putBack(lease, former *unstructured.Unstructured) {
	lease.SetLabels(former.GetLabels())
	notes := former.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	maps.Copy(notes, lease.GetAnnotations())
	// Whom it was to go to is for the coordinator to say again.
	delete(notes, v1alpha1.PreferredHolderAnnotation)
	lease.SetAnnotations(notes)
	spec, _, _ := unstructured.NestedMap(former.Object, "spec")
	delete(spec, "preferredHolder")
	if ours, ok := lease.Object["spec"].(map[string]any); ok && spec != nil {
		maps.Copy(spec, ours)
		lease.Object["spec"] = spec
	}
}
