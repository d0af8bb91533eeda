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
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

var leases = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

// anyLease draws leases in canonical form, with and without what the annotations stand for.
var anyLease = rapid.Custom(func(t *rapid.T) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l", ResourceVersion: "7"}}
	if rapid.Bool().Draw(t, "annotated") {
		l.Annotations = map[string]string{"example.com/other": "kept", v1alpha1.FencingTokenAnnotation: "6"}
	}
	name := rapid.StringMatching(`[a-z%\x{e9}/]{1,8}`)
	if rapid.Bool().Draw(t, "held") {
		l.Spec.HolderIdentity = new(name.Draw(t, "holder"))
	}
	if rapid.Bool().Draw(t, "preferred") {
		l.Spec.PreferredHolder = new(name.Draw(t, "preferredHolder"))
	}
	if rapid.Bool().Draw(t, "strategy") {
		l.Spec.Strategy = new(coordinationv1.CoordinatedLeaseStrategy(name.Draw(t, "strategyName")))
	}
	return l
})

func TestDecodeInvertsEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lease, kept := anyLease.Draw(t, "lease"), rapid.Bool().Draw(t, "kept")
		before := lease.DeepCopy()
		encoded := Encode(lease, kept)
		if !equality.Semantic.DeepEqual(lease, before) {
			t.Fatalf("Encode changed its argument to %v", lease)
		}
		if !kept && (encoded.Spec.Strategy != nil || encoded.Spec.PreferredHolder != nil) {
			t.Fatalf("fields that the server drops are written: %v", encoded.Spec)
		}
		written := encoded.DeepCopy()
		decoded := Decode(encoded, kept)
		if !equality.Semantic.DeepEqual(encoded, written) {
			t.Fatalf("Decode changed its argument to %v", encoded)
		}
		// The canonical form has the annotations besides the fields; nobody reads them there.
		if !equality.Semantic.DeepEqual(decoded.Spec, lease.Spec) {
			t.Fatalf("decoded %v, want %v", decoded.Spec, lease.Spec)
		}
		if again := Encode(decoded, kept); !equality.Semantic.DeepEqual(again, encoded) {
			t.Fatalf("encoded again %v, want %v", again, encoded)
		}
		if decoded.Annotations["example.com/other"] != lease.Annotations["example.com/other"] {
			t.Fatal("a foreign annotation was lost")
		}
	})
}

// A kube-apiserver whose gate is switched on finds the annotations of before, and one whose gate is switched off
// fields that it stored before.
func TestFlavourChanges(t *testing.T) {
	s := v1alpha1.OldestEmulationVersion
	lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{Strategy: &s, PreferredHolder: new("b")}}
	if off := Decode(Encode(lease, true), false); off.Spec.PreferredHolder == nil || *off.Spec.PreferredHolder != "b" {
		t.Errorf("after the gate was switched off: %v", off.Spec)
	}
	on := Encode(Decode(Encode(lease, false), true), true)
	if len(on.Annotations) != 0 {
		t.Errorf("after the gate was switched on and the next write: %v", on.Annotations)
	}
}

func TestPingPatch(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.FixedZone("", 3600))
	candidate := &strategy.Candidate{ResourceVersion: `1"2`}
	data, err := pingPatch(candidate, at).Data(nil)
	if err != nil {
		t.Fatal(err)
	}
	var patch map[string]map[string]any
	if err := json.Unmarshal(data, &patch); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if patch["metadata"]["resourceVersion"] != `1"2` || patch["spec"]["pingTime"] != "2026-02-03T03:05:06.000007Z" || len(patch["spec"]) != 1 || len(patch["metadata"]) != 1 {
		t.Errorf("patch %s", data)
	}
}

// For each kind: it is found in discovery, parsed, pinged by compare-and-swap without touching the rest, and deleted only as it
// was seen.
func TestKinds(t *testing.T) {
	renewed := metav1.NewMicroTime(time.Unix(1000, 0))
	spec := coordinationv1beta1.LeaseCandidateSpec{LeaseName: "l", BinaryVersion: "1.37.0", EmulationVersion: "1.36.0",
		Strategy: v1alpha1.OldestEmulationVersion, RenewTime: &renewed}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u"}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&coordinationv1beta1.LeaseCandidate{ObjectMeta: meta, Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	yetToCome := &unstructured.Unstructured{Object: content}
	yetToCome.SetAPIVersion("coordination.k8s.io/v1")
	yetToCome.SetKind("LeaseCandidate")
	for groupVersion, object := range map[string]client.Object{
		"coordination.k8s.io/v1beta1":    &coordinationv1beta1.LeaseCandidate{ObjectMeta: meta, Spec: spec},
		"coordination.k8s.io/v1alpha2":   &coordinationv1alpha2.LeaseCandidate{ObjectMeta: meta, Spec: coordinationv1alpha2.LeaseCandidateSpec(spec)},
		"lease-coordinator.dev/v1alpha1": &v1alpha1.LeaseCandidate{ObjectMeta: meta, Spec: v1alpha1.LeaseCandidateSpec(spec)},
		"coordination.k8s.io/v1":         yetToCome,
	} {
		t.Run(groupVersion, func(t *testing.T) {
			kinds, err := NewDiscovery(served(groupVersion + " leasecandidates")).Candidates(t.Context())
			if err != nil || len(kinds) != 1 {
				t.Fatalf("kinds %v, %v", kinds, err)
			}
			kind := kinds[0]
			if want := groupVersion + " LeaseCandidate"; kind.String() != want {
				t.Errorf("kind %s, want %s", kind, want)
			}
			if kind.CustomResource() != strings.HasPrefix(groupVersion, v1alpha1.Group) {
				t.Errorf("custom resource: %t", kind.CustomResource())
			}
			if kind.Candidate(&coordinationv1.Lease{}) != nil {
				t.Error("a Lease was taken for a candidate")
			}
			c := fake.NewClientBuilder().WithScheme(NewScheme()).WithRESTMapper(NewMapper()).WithObjects(object).Build()
			got := kind.New()
			key := types.NamespacedName{Namespace: "ns", Name: "c"}
			if err := c.Get(t.Context(), key, got); err != nil {
				t.Fatal(err)
			}
			candidate := kind.Candidate(got)
			if candidate.Name != "c" || candidate.LeaseName != "l" || candidate.Emulation.Text != "1.36.0" || !candidate.Renewed.Equal(renewed.Time) ||
				candidate.CustomResource != kind.CustomResource() {
				t.Errorf("candidate %+v", candidate)
			}
			list := kind.NewList()
			if err := c.List(t.Context(), list); err != nil {
				t.Errorf("listing: %v", err)
			}
			resourceVersion, err := kind.Ping(t.Context(), c, candidate, time.Unix(1001, 0))
			if err != nil || resourceVersion == candidate.ResourceVersion {
				t.Fatalf("ping: resourceVersion %s, %v", resourceVersion, err)
			}
			pinged := kind.New()
			if err := c.Get(t.Context(), key, pinged); err != nil {
				t.Fatal(err)
			}
			after := kind.Candidate(pinged)
			if after.Binary.Text != "1.37.0" || !after.Renewed.Equal(renewed.Time) {
				t.Errorf("the ping changed more than the pingTime: %+v", after)
			}
			if _, err := kind.Ping(t.Context(), c, candidate, time.Unix(1002, 0)); !apierrors.IsConflict(err) {
				t.Errorf("a ping on an old resourceVersion: %v, want a conflict", err)
			}
			// The fake client does not look at preconditions; what is sent is what counts.
			var sent client.DeleteOptions
			spy := interceptor.NewClient(c, interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, _ client.Object, opts ...client.DeleteOption) error {
				sent.ApplyOptions(opts)
				return nil
			}})
			if err := kind.Delete(t.Context(), spy, after); err != nil || sent.Preconditions == nil ||
				*sent.Preconditions.UID != "u" || *sent.Preconditions.ResourceVersion != after.ResourceVersion {
				t.Errorf("deleted under %+v, %v", sent.Preconditions, err)
			}
		})
	}
}

// served is the discovery of an API server that serves these resources, each "group/version resource".
func served(resources ...string) discovery.DiscoveryInterfaceWithContext {
	f := &clienttesting.Fake{}
	for _, r := range resources {
		groupVersion, resource, _ := strings.Cut(r, " ")
		f.Resources = append(f.Resources, &metav1.APIResourceList{GroupVersion: groupVersion, APIResources: []metav1.APIResource{{Name: resource}}})
	}
	return &fakediscovery.FakeDiscovery{Fake: f}
}

func TestDiscovery(t *testing.T) {
	for name, test := range map[string]struct {
		served    []string
		all, best string
	}{
		"native": {[]string{"coordination.k8s.io/v1 leases", "coordination.k8s.io/v1beta1 leasecandidates"}, "v1beta1", "v1beta1"},
		"all": {[]string{"lease-coordinator.dev/v1alpha1 leasecandidates", "coordination.k8s.io/v1alpha2 leasecandidates", "coordination.k8s.io/v1beta1 leasecandidates"},
			"v1beta1 v1alpha2 own", "v1beta1 own"},
		"custom resource alone": {[]string{"coordination.k8s.io/v1 leases", "lease-coordinator.dev/v1alpha1 leasecandidates"}, "own", "own"},
		"yet to come": {[]string{"coordination.k8s.io/v1beta1 leasecandidates", "coordination.k8s.io/v1 leasecandidates", "coordination.k8s.io/v1beta2 leasecandidates"},
			"v1 v1beta2 v1beta1", "v1"},
		"another resource": {[]string{"coordination.k8s.io/v1beta1 leases"}, "", ""},
		"the first of all": {[]string{"coordination.k8s.io/v1alpha1 leasecandidates"}, "", ""},
		"another group":    {[]string{"example.com/v1beta1 leasecandidates"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			kinds, err := NewDiscovery(served(test.served...)).Candidates(t.Context())
			if test.all == "" && !errors.Is(err, ErrNoCandidates) || test.all != "" && err != nil {
				t.Errorf("error %v", err)
			}
			names := func(kinds []CandidateKind) string {
				var list []string
				for _, k := range kinds {
					if k.CustomResource() {
						list = append(list, "own")
					} else {
						list = append(list, k.GroupVersionKind().Version)
					}
				}
				return strings.Join(list, " ")
			}
			if names(kinds) != test.all || names(Preferred(kinds)) != test.best {
				t.Errorf("all %q, best %q", names(kinds), names(Preferred(kinds)))
			}
		})
	}
	away := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}}
	away.AddReactor("get", "group", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	// Not knowing is not "none": the coordinator must not say that the API is missing.
	if _, err := NewDiscovery(away).Candidates(t.Context()); err == nil || errors.Is(err, ErrNoCandidates) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("API server away: %v", err)
	}
}

// A 404 for an object is not a 404 for its kind.
func TestNotServed(t *testing.T) {
	resource := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leasecandidates"}
	object := apierrors.NewNotFound(resource, "c")
	kind := apierrors.NewGenericServerResponse(404, "patch", resource, "c", "404 page not found", 0, true)
	for _, err := range []error{object, kind} {
		if !apierrors.IsNotFound(err) {
			t.Fatalf("not a 404: %v", err)
		}
	}
	if NotServed(object) || !NotServed(kind) || !NotServed(fmt.Errorf("pinging: %w", kind)) || NotServed(nil) {
		t.Error("object and kind are not told apart")
	}
}

func TestFieldsKept(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(*coordinationv1.Lease) error
		kept   bool
		fails  string
	}{
		"both":      {func(*coordinationv1.Lease) error { return nil }, true, ""},
		"neither":   {func(l *coordinationv1.Lease) error { l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil; return nil }, false, ""},
		"one alone": {func(l *coordinationv1.Lease) error { l.Spec.PreferredHolder = nil; return nil }, false, ""},
		"in the way": {func(l *coordinationv1.Lease) error { return apierrors.NewAlreadyExists(leases, l.Name) }, false,
			"lock-ns/lease-coordinator-probe is in the way; delete it"},
		"forbidden": {func(l *coordinationv1.Lease) error { return apierrors.NewForbidden(leases, l.Name, errors.New("no")) }, false,
			`dry-run create of a Lease in namespace "lock-ns"`},
	} {
		t.Run(name, func(t *testing.T) {
			c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(NewScheme()).Build(), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
					var o client.CreateOptions
					if o.ApplyOptions(opts); len(o.DryRun) != 1 || o.DryRun[0] != metav1.DryRunAll {
						t.Error("the probe is not a dry run")
					}
					return test.answer(obj.(*coordinationv1.Lease))
				},
			})
			kept, err := FieldsKept(t.Context(), c, "lock-ns")
			if kept != test.kept || (err != nil) != (test.fails != "") || err != nil && !strings.Contains(err.Error(), test.fails) {
				t.Errorf("kept %t, %v", kept, err)
			}
		})
	}
}

// A write is a compare-and-swap, and leaves what it does not know of alone.
func TestWriteLease(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(NewScheme()).Build()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("a")}}
	first, err := WriteLease(t.Context(), c, nil, lease)
	if err != nil {
		t.Fatal(err)
	}
	if lease.ResourceVersion != "" || first.ResourceVersion == "" {
		t.Errorf("argument at %q, result at %q", lease.ResourceVersion, first.ResourceVersion)
	}
	if _, err := WriteLease(t.Context(), c, nil, lease); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created twice: %v", err)
	}
	changed := first.DeepCopy()
	changed.Spec.HolderIdentity = new("b")
	second, err := WriteLease(t.Context(), c, first, changed)
	if err != nil || *second.Spec.HolderIdentity != "b" || second.ResourceVersion == first.ResourceVersion {
		t.Fatalf("patched: %v, %v", second, err)
	}
	if *first.Spec.HolderIdentity != "a" {
		t.Error("the lease that was decided on was changed")
	}
	if _, err := WriteLease(t.Context(), c, first, changed); !apierrors.IsConflict(err) {
		t.Errorf("patched on an old resourceVersion: %v, want a conflict", err)
	}
	cleared := second.DeepCopy()
	cleared.Spec.HolderIdentity = nil
	if third, err := WriteLease(t.Context(), c, second, cleared); err != nil || third.Spec.HolderIdentity != nil {
		t.Errorf("a field was not removed: %v, %v", third, err)
	}
}
