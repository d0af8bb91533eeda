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

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// The policies of config/policy.
const (
	candidatesPolicy = "lease-coordinator-candidates"
	leasesPolicy     = "lease-coordinator-leases"
)

// allCandidateVersions has the API server serve LeaseCandidate in every version that it has.
const allCandidateVersions = "--runtime-config=coordination.k8s.io/v1beta1=true,coordination.k8s.io/v1alpha2=true"

// statusController are flags by which a kube-controller-manager besides checks the types of policies.
const statusController = "--controllers=namespace-controller,validatingadmissionpolicy-status-controller"

// policyKinds are the kinds of candidates that config/policy is for.
var policyKinds = []schema.GroupVersionKind{
	{Group: coordinationv1.GroupName, Version: "v1beta1", Kind: "LeaseCandidate"},
	{Group: coordinationv1.GroupName, Version: "v1alpha2", Kind: "LeaseCandidate"},
	v1alpha1.SchemeGroupVersion.WithKind("LeaseCandidate"),
}

// installPolicy applies config/policy and waits until the API server enforces it.
func installPolicy(t testing.TB, ctx context.Context, node *framework.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := node.Cluster().ApplyKustomization(ctx, "config/policy"); err != nil {
		t.Fatal(err)
	}
	// Nobody, not even who may do anything, may choose a fencing token.
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: "policy-probe",
		Annotations: map[string]string{v1alpha1.FencingTokenAnnotation: "garbage"},
	}}
	stranger := userOf(t, node, "policy-probe")
	candidate := candidateOf(policyKinds[0], metav1.NamespaceDefault, "policy-probe", "policy-probe")
	mayRegister(t, ctx, node.Cluster(), metav1.NamespaceDefault, "policy-probe")
	err := framework.WaitFor(ctx, "config/policy is enforced", func(ctx context.Context) (bool, error) {
		leases := node.Client().Create(ctx, lease.DeepCopy(), client.DryRunAll)
		candidates := stranger.Create(ctx, candidate.DeepCopy(), client.DryRunAll)
		return refusedBy(leases, leasesPolicy) && refusedBy(candidates, candidatesPolicy), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// refusedBy reports whether the error is that policy's "no".
func refusedBy(err error, policy string) bool {
	return err != nil && strings.Contains(err.Error(), fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request", policy, policy))
}

// userOf returns a client that is that user to the API server.
func userOf(t testing.TB, node *framework.Node, name string, groups ...string) client.Client {
	t.Helper()
	config := node.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mayRegister gives a user every right over LeaseCandidates of a namespace, and what else the rules say.
func mayRegister(t testing.TB, ctx context.Context, cluster *framework.Cluster, namespace, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	may(t, ctx, cluster, namespace, user, append(rules, rbacv1.PolicyRule{
		APIGroups: []string{coordinationv1.GroupName, v1alpha1.Group}, Resources: []string{"leasecandidates"}, Verbs: []string{"*"},
	})...)
}

// may gives a user rights in a namespace.
func may(t testing.TB, ctx context.Context, cluster *framework.Cluster, namespace, user string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user}, Rules: rules}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := cluster.Client().Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// onLeases is a right over Leases: all of them, or those named.
func onLeases(verb string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, ResourceNames: names, Verbs: []string{verb}}
}

// candidateOf is a candidate of a kind, as a process leaves it that has just registered.
func candidateOf(kind schema.GroupVersionKind, namespace, name, lease string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"leaseName": lease, "binaryVersion": "1.37.0", "emulationVersion": "1.35.0",
		"strategy": string(v1alpha1.OldestEmulationVersion), "renewTime": microNow(),
	}}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func microNow() string { return time.Now().UTC().Format(metav1.RFC3339Micro) }

// merge is a merge patch.
func merge(t testing.TB, body map[string]any) client.Patch {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return client.RawPatch(types.MergePatchType, encoded)
}

// annotate is a merge patch of one annotation; nil removes it.
func annotate(t testing.TB, key string, value any) client.Patch {
	t.Helper()
	return merge(t, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
}

// Who may register candidates, and may not write the Lease, gets it from the coordinator; with the policy, not any more.
func TestPolicy(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{APIServerArgs: []string{allCandidateVersions}})
	a := newArenaOn(t, cluster)
	a.must(cluster.ApplyKustomization(a.ctx, "config/crd"))
	startCoordinators(t, a.ctx, a.node, 1)
	a.allowWorkers()
	a.worker("honest", "1.37")
	a.waitLeader("honest", patience)

	mayRegister(t, a.ctx, cluster, a.ns, "mallory")
	mallory := userOf(t, a.node, "mallory")
	if err := mallory.Patch(a.ctx, a.get(), merge(t, map[string]any{"spec": map[string]any{"holderIdentity": "mallory"}})); !apierrors.IsForbidden(err) {
		t.Fatalf("mallory writes the Lease: %v", err)
	}
	captured := candidateOf(policyKinds[0], a.ns, "mallory", "l")
	a.rec.Mark("without the policy, mallory is a candidate")
	a.must(mallory.Create(a.ctx, captured))
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	a.must(a.rec.WaitFor(ctx, "mallory has the Lease", func(t framework.Timeline) bool { return len(named(t, a.lease, "mallory", time.Time{})) > 0 }))
	a.must(mallory.Delete(a.ctx, captured))
	// She could not have renewed it.
	a.waitLeadsNow("honest")

	// One that was there before the policy.
	a.must(mallory.Create(a.ctx, withoutMerit(candidateOf(policyKinds[0], a.ns, "sleeper", "l"))))
	installPolicy(t, a.ctx, a.node)
	a.rec.Mark("with the policy, mallory is no candidate")
	installed := time.Now()
	for _, kind := range policyKinds {
		err := mallory.Create(a.ctx, candidateOf(kind, a.ns, "mallory", "l"))
		if !apierrors.IsForbidden(err) || !refusedBy(err, candidatesPolicy) {
			t.Errorf("%s: mallory is a candidate: %v", kind.GroupVersion(), err)
		}
		want := fmt.Sprintf(`user "mallory" may neither update nor patch lease "%s/l" (coordination.k8s.io)`, a.ns)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the refusal does not say %s: %v", kind.GroupVersion(), want, err)
		}
	}
	sleeper := candidateOf(policyKinds[0], a.ns, "sleeper", "l")
	for what, patch := range map[string]client.Patch{
		"ack":      merge(t, map[string]any{"spec": map[string]any{"renewTime": microNow()}}),
		"improve":  merge(t, map[string]any{"spec": map[string]any{"emulationVersion": "1.34.0"}}),
		"priority": annotate(t, v1alpha1.PriorityAnnotation, "1"),
	} {
		if err := mallory.Patch(a.ctx, sleeper.DeepCopy(), patch); !refusedBy(err, candidatesPolicy) {
			t.Errorf("a candidate of before: %s: %v", what, err)
		}
	}
	// What the policy is to leave alone: pings by the coordinator, acks, a hand-off, a new term by the library.
	better := a.worker("better", "1.36")
	a.waitLeader("better", patience)
	a.must(better.Terminate(a.ctx))
	a.waitLeadsNow("honest")
	if pings := a.rec.Timeline().Filter(func(e framework.Event) bool {
		return e.Kind == framework.CandidatePinged && e.WriterKind == framework.CoordinatorKind && e.Time.After(installed)
	}); len(pings) == 0 {
		t.Error("the coordinator pinged nobody")
	}
	for _, name := range []string{"mallory", "sleeper"} {
		for _, e := range named(a.rec.Timeline(), a.lease, name, installed) {
			t.Errorf("%s was named: %v", name, e)
		}
	}
	a.safe()

	// Parallel tests on this cluster end before it is stopped.
	t.Run("with it", func(t *testing.T) {
		t.Run("candidates", func(t *testing.T) { t.Parallel(); testPolicyOnCandidates(t, cluster) })
		t.Run("leases", func(t *testing.T) { t.Parallel(); testPolicyOnLeases(t, cluster) })
		t.Run("components", func(t *testing.T) { t.Parallel(); testPolicyOnComponents(t, cluster) })
	})
}

// named returns the writes after that moment that left a Lease with that holder or preferred holder.
func named(t framework.Timeline, lease, name string, after time.Time) []framework.Event {
	return t.Filter(func(e framework.Event) bool {
		if e.Lease != lease || e.LeaseAfter == nil || e.Time.Before(after) {
			return false
		}
		holder, preferred := e.LeaseAfter.Spec.HolderIdentity, e.LeaseAfter.Spec.PreferredHolder
		return holder != nil && *holder == name || preferred != nil && *preferred == name ||
			e.LeaseAfter.Annotations[v1alpha1.PreferredHolderAnnotation] == name
	})
}

// withoutMerit makes a candidate rank below every other.
func withoutMerit(o *unstructured.Unstructured) *unstructured.Unstructured {
	if err := unstructured.SetNestedField(o.Object, "1.37.0", "spec", "emulationVersion"); err != nil {
		panic(err)
	}
	return o
}

// waitLeadsNow waits until that identity leads at that moment.
func (a *arena) waitLeadsNow(identity string) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	a.must(a.rec.WaitFor(ctx, identity+" leads again", func(t framework.Timeline) bool {
		term, ok := t.Leader(a.lease)
		return ok && term.Identity == identity
	}))
}

// policyUsers are users of whom each has exactly what its name says, besides all rights over LeaseCandidates.
func policyUsers() map[string][]rbacv1.PolicyRule {
	return map[string][]rbacv1.PolicyRule{
		"candidates-only": nil,
		"updates-all":     {onLeases("update")},
		"updates-by-name": {onLeases("update", "l", "absent")},
		"patches-all":     {onLeases("patch")},
		"patches-by-name": {onLeases("patch", "l", "absent")},
		"updates-another": {onLeases("update", "another")},
		"creates":         {onLeases("create")},
		"reads":           {onLeases("get"), onLeases("list"), onLeases("watch")},
		"deletes":         {onLeases("delete")},
		"of-another-group": {{
			APIGroups: []string{v1alpha1.Group, "example.com"}, Resources: []string{"leases"}, Verbs: []string{"*"},
		}},
	}
}

func testPolicyOnCandidates(t *testing.T, cluster *framework.Cluster) {
	node, ctx := cluster.Nodes[0], t.Context()
	ns, elsewhere := framework.NewNamespace(t, cluster), framework.NewNamespace(t, cluster)
	for user, rules := range policyUsers() {
		mayRegister(t, ctx, cluster, ns, user, rules...)
	}
	mayRegister(t, ctx, cluster, ns, "updates-elsewhere")
	mayRegister(t, ctx, cluster, elsewhere, "updates-elsewhere", onLeases("update"))
	admin := cluster.Client()
	if err := admin.Create(ctx, heldLease(ns, "l")); err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		user    string
		groups  []string
		lease   string
		allowed bool
	}{
		{user: "candidates-only", lease: "l"},
		{user: "candidates-only", lease: "absent"},
		{user: "updates-all", lease: "l", allowed: true},
		{user: "updates-all", lease: "absent", allowed: true},
		{user: "updates-by-name", lease: "l", allowed: true},
		// Candidates may register before there is a Lease.
		{user: "updates-by-name", lease: "absent", allowed: true},
		{user: "updates-by-name", lease: "another"},
		{user: "updates-another", lease: "l"},
		{user: "patches-all", lease: "l", allowed: true},
		{user: "patches-by-name", lease: "l", allowed: true},
		{user: "patches-by-name", lease: "absent", allowed: true},
		{user: "patches-by-name", lease: "another"},
		// create makes a first holder, and neither takes a Lease nor keeps one.
		{user: "creates", lease: "absent"},
		{user: "reads", lease: "l"},
		{user: "deletes", lease: "l"},
		{user: "of-another-group", lease: "l"},
		{user: "updates-elsewhere", lease: "l"},
		// Of Kubernetes itself.
		{user: "root", groups: []string{"system:masters"}, lease: "l", allowed: true},
		{user: framework.CoordinatorUser, lease: "l", allowed: false}, // may not create candidates at all
	} {
		for _, kind := range policyKinds {
			c := userOf(t, node, test.user, test.groups...)
			name := fmt.Sprintf("%s-%s", strings.ReplaceAll(test.user, ":", "-"), test.lease)
			what := fmt.Sprintf("%s %s for %s", kind.GroupVersion(), test.user, test.lease)

			check := func(verb string, err error) {
				t.Helper()
				switch {
				case test.allowed && err != nil:
					t.Errorf("%s: %s: %v", what, verb, err)
				case !test.allowed && !apierrors.IsForbidden(err):
					t.Errorf("%s: %s: %v, not forbidden", what, verb, err)
				case !test.allowed && test.user != framework.CoordinatorUser && !refusedBy(err, candidatesPolicy):
					t.Errorf("%s: %s: %v, not by the policy", what, verb, err)
				}
			}
			// What a dry run says is what would happen.
			check("dry run", c.Create(ctx, candidateOf(kind, ns, name, test.lease), client.DryRunAll))
			generated := candidateOf(kind, ns, "", test.lease)
			generated.SetGenerateName(name + "-")
			check("generated name", c.Create(ctx, generated, client.DryRunAll))
			apply := client.ApplyConfigurationFromUnstructured(candidateOf(kind, ns, name, test.lease))
			check("apply", c.Apply(ctx, apply, client.FieldOwner("e2e"), client.DryRunAll))
			check("create", c.Create(ctx, candidateOf(kind, ns, name, test.lease)))

			// Somebody else's, who may.
			others := candidateOf(kind, ns, "others-"+name, test.lease)
			if err := admin.Create(ctx, others.DeepCopy()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if test.user != framework.CoordinatorUser {
				for verb, patch := range map[string]client.Patch{
					"ping":          merge(t, map[string]any{"spec": map[string]any{"pingTime": microNow()}}),
					"ack":           merge(t, map[string]any{"spec": map[string]any{"renewTime": microNow()}}),
					"improve":       merge(t, map[string]any{"spec": map[string]any{"emulationVersion": "1.34.0"}}),
					"priority":      annotate(t, v1alpha1.PriorityAnnotation, "1"),
					"ineligible":    annotate(t, v1alpha1.IneligibleAnnotation, "because"),
					"zone":          merge(t, map[string]any{"metadata": map[string]any{"labels": map[string]any{corev1.LabelTopologyZone: "z"}}}),
					"CEL sees this": annotate(t, "example.com/bandwidth", "10"),
				} {
					check(verb, c.Patch(ctx, others.DeepCopy(), patch))
				}
				whole := others.DeepCopy()
				if err := admin.Get(ctx, client.ObjectKeyFromObject(others), whole); err != nil {
					t.Fatal(err)
				}
				if err := unstructured.SetNestedField(whole.Object, microNow(), "spec", "renewTime"); err != nil {
					t.Fatal(err)
				}
				check("update", c.Update(ctx, whole))
				// What garbage collectors must be able to do is the same for all.
				if err := c.Patch(ctx, others.DeepCopy(), merge(t, map[string]any{"metadata": map[string]any{"finalizers": []string{"example.com/f"}}})); err != nil {
					t.Errorf("%s: finalizer: %v", what, err)
				}
				if err := c.Patch(ctx, others.DeepCopy(), merge(t, map[string]any{"metadata": map[string]any{"finalizers": nil}})); err != nil {
					t.Errorf("%s: finalizer: %v", what, err)
				}
				if err := c.Delete(ctx, others.DeepCopy()); err != nil {
					t.Errorf("%s: delete: %v", what, err)
				}
			}
			for _, o := range []*unstructured.Unstructured{candidateOf(kind, ns, name, ""), others} {
				if err := client.IgnoreNotFound(admin.Delete(ctx, o)); err != nil {
					t.Error(err)
				}
			}
		}
	}

	// Kubernetes' own role for those who edit a namespace has its Leases, and no candidates.
	if err := admin.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "editor"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:aggregate-to-edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "editor"}},
	}); err != nil {
		t.Fatal(err)
	}
	editor := userOf(t, node, "editor")
	if err := editor.Patch(ctx, heldLease(ns, "l"), merge(t, map[string]any{"spec": map[string]any{"holderIdentity": "x"}})); err != nil {
		t.Errorf("an editor of the namespace writes its Leases: %v", err)
	}
	for _, kind := range policyKinds {
		if err := editor.Create(ctx, candidateOf(kind, ns, "editor", "l")); !apierrors.IsForbidden(err) || refusedBy(err, candidatesPolicy) {
			t.Errorf("%s: an editor of the namespace is a candidate by their role: %v", kind.GroupVersion(), err)
		}
	}

	for _, kind := range policyKinds {
		// Right over one Lease is none over another: a candidate stays with its own.
		c := userOf(t, node, "updates-by-name")
		moved := candidateOf(kind, ns, "moved", "l")
		if err := c.Create(ctx, moved); err != nil {
			t.Fatal(err)
		}
		if err := c.Patch(ctx, moved.DeepCopy(), merge(t, map[string]any{"spec": map[string]any{"leaseName": "another"}})); err == nil {
			t.Errorf("%s: a candidate for one Lease became one for another", kind.GroupVersion())
		}
		// The coordinator, by the rights that it is shipped with.
		ping := merge(t, map[string]any{"spec": map[string]any{"pingTime": microNow()}})
		if kind.Group == coordinationv1.GroupName {
			if err := userOf(t, node, framework.CoordinatorUser).Patch(ctx, moved.DeepCopy(), ping); err != nil {
				t.Errorf("%s: the coordinator's ping: %v", kind.GroupVersion(), err)
			}
		}
		if err := c.Delete(ctx, moved); err != nil {
			t.Error(err)
		}
	}
}

func testPolicyOnLeases(t *testing.T, cluster *framework.Cluster) {
	node, ctx := cluster.Nodes[0], t.Context()
	ns := framework.NewNamespace(t, cluster)
	admin := cluster.Client()
	may(t, ctx, cluster, ns, "creates", onLeases("create"), onLeases("get"))
	may(t, ctx, cluster, ns, "creates-and-updates", onLeases("create"), onLeases("update"))
	may(t, ctx, cluster, ns, "creates-and-patches", onLeases("create"), onLeases("patch"))
	may(t, ctx, cluster, ns, "patches", onLeases("patch", "l"))
	may(t, ctx, cluster, ns, "updates", onLeases("update", "l"))
	may(t, ctx, cluster, corev1.NamespaceNodeLease, "creates", onLeases("create"))

	steering := map[string]string{
		v1alpha1.StrategyOverrideAnnotation: string(v1alpha1.Sticky),
		v1alpha1.PreemptionAnnotation:       v1alpha1.PreemptionNever,
		v1alpha1.PausedAnnotation:           v1alpha1.PausedTrue,
		v1alpha1.PreferredHolderAnnotation:  "x",
		v1alpha1.StrategyAnnotation:         string(v1alpha1.Sticky),
		v1alpha1.FencingTokenAnnotation:     "1",
		v1alpha1.Group + "/yet-to-come":     "",
	}
	create := func(user, name string, annotations map[string]string) error {
		lease := heldLease(ns, name)
		lease.Annotations = annotations
		return userOf(t, node, user).Create(ctx, lease, client.DryRunAll)
	}
	for key, value := range steering {
		annotations := map[string]string{key: value}
		err := create("creates", "absent", annotations)
		if !apierrors.IsForbidden(err) || !refusedBy(err, leasesPolicy) ||
			!strings.Contains(err.Error(), fmt.Sprintf(`user "creates" may neither update nor patch lease "%s/absent"`, ns)) {
			t.Errorf("created with %s by who may only create: %v", key, err)
		}
		for _, user := range []string{"creates-and-updates", "creates-and-patches"} {
			if err := create(user, "absent", annotations); err != nil {
				t.Errorf("%s, with %s: %v", user, key, err)
			}
		}
	}
	if err := create("creates", "absent", map[string]string{"example.com/lease-coordinator.dev": "x"}); err != nil {
		t.Errorf("somebody else's annotation: %v", err)
	}
	// Plain electors may only create, and do.
	if err := create("creates", "absent", nil); err != nil {
		t.Errorf("without annotations: %v", err)
	}

	lease := heldLease(ns, "l")
	if err := admin.Create(ctx, lease); err != nil {
		t.Fatal(err)
	}
	patches, updates := userOf(t, node, "patches"), userOf(t, node, "updates")
	for key, value := range steering {
		if key == v1alpha1.FencingTokenAnnotation {
			continue
		}
		// kubectl annotate.
		if err := patches.Patch(ctx, lease, annotate(t, key, value)); err != nil {
			t.Errorf("patched with %s: %v", key, err)
		}
		changed := lease.DeepCopy()
		changed.Annotations[key] = "other"
		if err := updates.Update(ctx, changed); err != nil {
			t.Errorf("updated with %s: %v", key, err)
		}
		*lease = *changed
		if err := patches.Patch(ctx, lease, annotate(t, key, nil)); err != nil {
			t.Errorf("patched without %s: %v", key, err)
		}
	}

	// A fencing token is what the server says, or not written.
	version := lease.ResourceVersion
	for who, c := range map[string]client.Client{"patches": patches, "system:masters": admin, "the coordinator": userOf(t, node, framework.CoordinatorUser)} {
		for _, token := range []string{"9223372036854775807", version + "0", "1", "0", "-1", "", "garbage"} {
			err := c.Patch(ctx, lease.DeepCopy(), annotate(t, v1alpha1.FencingTokenAnnotation, token), client.DryRunAll)
			if !apierrors.IsInvalid(err) || !refusedBy(err, leasesPolicy) || !strings.Contains(err.Error(), `"`+version+`"`) {
				t.Errorf("token %q by %s at %s: %v", token, who, version, err)
			}
		}
		if err := c.Patch(ctx, lease.DeepCopy(), annotate(t, v1alpha1.FencingTokenAnnotation, version), client.DryRunAll); err != nil {
			t.Errorf("token %s by %s: %v", version, who, err)
		}
	}
	if err := patches.Patch(ctx, lease, annotate(t, v1alpha1.FencingTokenAnnotation, version)); err != nil {
		t.Fatal(err)
	}
	// It stays while others write, and cannot be put back later.
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	if err := updates.Update(ctx, lease); err != nil {
		t.Errorf("renewed with a token: %v", err)
	}
	if err := patches.Patch(ctx, lease, annotate(t, v1alpha1.FencingTokenAnnotation, nil)); err != nil {
		t.Errorf("token removed: %v", err)
	}
	if err := patches.Patch(ctx, lease.DeepCopy(), annotate(t, v1alpha1.FencingTokenAnnotation, version)); !refusedBy(err, leasesPolicy) {
		t.Errorf("an old token: %v", err)
	}
	// Who was slower is told so, and not that it was forbidden.
	stale := lease.DeepCopy()
	stale.ResourceVersion = version
	stale.Annotations = map[string]string{v1alpha1.FencingTokenAnnotation: version}
	if err := updates.Update(ctx, stale); !apierrors.IsConflict(err) {
		t.Errorf("a token on an old resourceVersion: %v, want a conflict", err)
	}
	for _, token := range []string{"garbage", "-1", "0", "", "012", "1.5"} {
		if err := create("creates-and-patches", "absent", map[string]string{v1alpha1.FencingTokenAnnotation: token}); !refusedBy(err, leasesPolicy) {
			t.Errorf("created with token %q: %v", token, err)
		}
	}

	heartbeat := heldLease(corev1.NamespaceNodeLease, "n")
	heartbeat.Annotations = map[string]string{v1alpha1.PausedAnnotation: v1alpha1.PausedTrue}
	if err := userOf(t, node, "creates").Create(ctx, heartbeat, client.DryRunAll); err != nil {
		t.Errorf("in a namespace in which nothing is coordinated: %v", err)
	}
}

// Unmodified kube-controller-manager and kube-scheduler are candidates, and do what else they do.
func testPolicyOnComponents(t *testing.T, cluster *framework.Cluster) {
	startComponents(t, cluster)
	checkTypes(t, cluster)

	// The namespace controller removes candidates with their namespace.
	ns := framework.NewNamespace(t, cluster)
	for _, kind := range policyKinds {
		if err := cluster.Client().Create(t.Context(), candidateOf(kind, ns, "left-"+kind.Version, "l")); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if err := cluster.Clientset().CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := framework.WaitFor(ctx, "the namespace is gone", func(ctx context.Context) (bool, error) {
		_, err := cluster.Clientset().CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	}); err != nil {
		t.Error(err)
	}
}

// startComponents starts a kube-controller-manager and a kube-scheduler and waits until both lead.
func startComponents(t *testing.T, cluster *framework.Cluster) {
	t.Helper()
	// It has the rights of its controllers by their service accounts, which there are no tokens for here.
	rbac := cluster.Clientset().RbacV1()
	for _, role := range []string{"system:controller:validatingadmissionpolicy-status-controller", "system:controller:namespace-controller"} {
		if _, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "e2e-" + strings.ReplaceAll(role, ":", "-")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: framework.ControllerManagerUser}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	a := newArenaOn(t, cluster)
	a.record(metav1.NamespaceSystem)
	manager, err := a.node.StartControllerManager(a.ctx, framework.ComponentOptions{Args: []string{statusController}})
	a.must(err)
	scheduler, err := a.node.StartScheduler(a.ctx, framework.ComponentOptions{})
	a.must(err)
	for name, p := range map[string]*framework.Process{"kube-controller-manager": manager.Process, "kube-scheduler": scheduler.Process} {
		a.lease = metav1.NamespaceSystem + "/" + name
		a.waitProcess(p, time.Time{}, patience)
	}
	if refused := a.rec.Timeline().Filter(forbidden); len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
}

// forbidden reports whether somebody was not allowed to write.
func forbidden(e framework.Event) bool {
	return e.Kind == framework.WriteRefused && strings.Contains(e.Detail, "403")
}

// checkTypes waits until kube-controller-manager has checked the policies' types, and looks at what it found.
func checkTypes(t *testing.T, cluster *framework.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, name := range []string{candidatesPolicy, leasesPolicy} {
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		if err := framework.WaitFor(ctx, name+" is type-checked", func(ctx context.Context) (bool, error) {
			err := cluster.Client().Get(ctx, types.NamespacedName{Name: name}, &policy)
			return policy.Status.TypeChecking != nil && policy.Status.ObservedGeneration == policy.Generation, err
		}); err != nil {
			t.Fatal(err)
		}
		for _, w := range policy.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("%s: %s: %s", name, w.FieldRef, w.Warning)
		}
	}
}

// The in-tree coordinator has no service account: it writes as the kube-apiserver itself.
func TestPolicyInTree(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{CoordinatedLeaderElection: true})
	a := newArenaOn(t, cluster)
	waitInTree(a.ctx, t, cluster, patience)

	// Kubernetes' own kube-scheduler may create LeaseCandidates in every namespace, and write one Lease.
	mayRegister(t, a.ctx, cluster, a.ns, "mallory")
	deputies := map[string]client.Client{"mallory": userOf(t, a.node, "mallory"), "scheduler": userOf(t, a.node, framework.SchedulerUser)}
	for name, c := range deputies {
		victim := "victim-of-" + name
		lease := heldLease(a.ns, victim)
		a.must(cluster.Client().Create(a.ctx, lease))
		if err := c.Update(a.ctx, lease.DeepCopy()); !apierrors.IsForbidden(err) {
			t.Fatalf("%s updates a Lease: %v", name, err)
		}
		a.must(c.Create(a.ctx, candidateOf(policyKinds[0], a.ns, name, victim)))
		ctx, cancel := context.WithTimeout(a.ctx, patience)
		defer cancel()
		a.must(a.rec.WaitFor(ctx, "without the policy, "+name+" has a Lease", func(t framework.Timeline) bool {
			return len(named(t, a.ns+"/"+victim, name, time.Time{})) > 0
		}))
	}

	installPolicy(t, a.ctx, a.node)
	for name, c := range deputies {
		if err := c.Create(a.ctx, candidateOf(policyKinds[0], a.ns, "again", "another-victim")); !refusedBy(err, candidatesPolicy) {
			t.Errorf("%s is a candidate: %v", name, err)
		}
	}
	startComponents(t, cluster)
	a.candidate("n37", "1.37")
	a.waitLeader("n37", patience)
	a.candidate("n36", "1.36")
	a.waitLeader("n36", patience)
	pinged := slices.ContainsFunc(a.rec.Timeline().Events, func(e framework.Event) bool {
		return e.Kind == framework.CandidatePinged && e.WriterKind == framework.APIServerKind
	})
	if !pinged {
		t.Error("the in-tree coordinator pinged nobody")
	}
	for _, e := range a.coordinating(a.lease) {
		if forbidden(e) {
			t.Errorf("refused: %v", e)
		}
	}
	a.safe()
}
