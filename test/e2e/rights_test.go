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
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// grant is what one verb of a rule of a shipped role allows.
type grant struct {
	// role is its number among the roles, rule that of the rule in it.
	role, rule                      int
	verb, group, resource, name, in string
}

// String is what the coordinator says that it may not.
func (g grant) String() string { return g.verb + " " + g.resource + "." + g.group }

// where is where the coordinator says so.
func (g grant) where() string {
	if g.in == "" {
		return "in all namespaces"
	}
	return fmt.Sprintf("in namespace %q", g.in)
}

// unneeded are rights of the shipped roles that no election depends on, so that a coordinator is ready without them.
func unneeded(role string, g grant) bool {
	switch role {
	case "lease-coordinator-metrics-auth":
		// See TestEachMetricsRight.
		return true
	case "lease-coordinator-lock":
		// Events on the lock tell of the configuration.
		return g.resource == "events"
	}
	return false
}

// shippedRole is a Role or ClusterRole that the manifests bind to the coordinator.
type shippedRole struct {
	name, namespace string
	rules           []rbacv1.PolicyRule
}

// shippedRoles returns the roles among the objects that are bound to somebody.
func shippedRoles(t *testing.T, objects []*unstructured.Unstructured) []shippedRole {
	t.Helper()
	bound := map[string]bool{}
	for _, o := range objects {
		if kind := o.GetKind(); kind == "ClusterRoleBinding" || kind == "RoleBinding" {
			name, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
			bound[o.GetNamespace()+"/"+name] = true
		}
	}
	var roles []shippedRole
	for _, o := range objects {
		if kind := o.GetKind(); (kind != "ClusterRole" && kind != "Role") || !bound[o.GetNamespace()+"/"+o.GetName()] {
			continue
		}
		var role rbacv1.Role
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			t.Fatal(err)
		}
		roles = append(roles, shippedRole{role.Name, role.Namespace, role.Rules})
	}
	if len(roles) == 0 {
		t.Fatal("no role is bound")
	}
	return roles
}

// grants lists what the roles grant, verb by verb.
func grants(roles []shippedRole) []grant {
	var list []grant
	for i, role := range roles {
		for j, rule := range role.rules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						for _, name := range names {
							list = append(list, grant{i, j, verb, group, resource, name, role.namespace})
						}
					}
				}
			}
		}
	}
	return list
}

// without returns the rules of one role without one grant: its verb is missing for its group and resource alone.
func without(rules []rbacv1.PolicyRule, lost grant) []rbacv1.PolicyRule {
	var rest []rbacv1.PolicyRule
	for j, rule := range rules {
		if j != lost.rule {
			rest = append(rest, rule)
			continue
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				verbs := slices.Clone(rule.Verbs)
				if group == lost.group && resource == lost.resource {
					verbs = slices.DeleteFunc(verbs, func(v string) bool { return v == lost.verb })
				}
				if len(verbs) > 0 {
					rest = append(rest, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: rule.ResourceNames, Verbs: verbs})
				}
			}
		}
	}
	return rest
}

// roleCopies are the shipped roles once more, for one user: taking from them takes from nobody else.
type roleCopies struct {
	cluster *framework.Cluster
	user    string
	roles   []shippedRole
}

// apply makes one of the roles, with these rules, and its binding.
func (r roleCopies) apply(ctx context.Context, i int, rules []rbacv1.PolicyRule) error {
	role := r.roles[i]
	kind := "Role"
	if role.namespace == "" {
		kind = "ClusterRole"
	}
	name := role.name + "-" + r.user
	meta := map[string]any{"name": name}
	if role.namespace != "" {
		meta["namespace"] = role.namespace
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rbacv1.ClusterRole{Rules: rules})
	if err != nil {
		return err
	}
	list := content["rules"]
	if list == nil {
		list = []any{}
	}
	const version = rbacv1.GroupName + "/v1"
	return r.cluster.Apply(ctx,
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "metadata": meta, "rules": list}},
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind + "Binding", "metadata": meta,
			"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": kind, "name": name},
			"subjects": []any{map[string]any{"apiGroup": rbacv1.GroupName, "kind": rbacv1.UserKind, "name": r.user}}}})
}

// waitLogged waits for a line of the coordinator's log with all of these.
func waitLogged(ctx context.Context, t *testing.T, c *framework.Coordinator, containing ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := framework.WaitFor(ctx, fmt.Sprintf("the log to name %q", containing), func(context.Context) (bool, error) {
		return len(c.LogLines(containing...)) > 0, nil
	}); err != nil {
		t.Error(err)
	}
}

// Each right of the shipped roles, when it is taken away, is missed within half a minute and named by verb, resource and
// namespace, by the coordinator's readiness and by its log, and no other is; the coordinator does not exit; and when the
// right is back, it is ready again. Whatever is added to the roles is tried here too.
func TestEachRight(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{NoAudit: true})
	ctx := t.Context()
	if err := cluster.ApplyKustomization(ctx, "config/crd"); err != nil {
		t.Fatal(err)
	}
	const coordinated = "team-jobs"
	namespaced, err := framework.BuildKustomization("config/namespaced")
	if err != nil {
		t.Fatal(err)
	}
	everywhere, err := framework.BuildKustomization("config/rbac")
	if err != nil {
		t.Fatal(err)
	}
	inNamespaces := shippedRoles(t, namespaced)
	for i := range inNamespaces {
		if inNamespaces[i].name == "lease-coordinator" {
			// Its own namespace has rights twice, by another role.
			inNamespaces[i].namespace = coordinated
		}
	}
	users := 0
	for _, install := range []struct {
		name  string
		roles []shippedRole
		args  []string
		// mine are the roles whose rights a coordinator with these arguments cannot do without.
		mine func(role string) bool
		// coordinators share the rights among them: to miss one takes up to half a minute.
		coordinators int
	}{
		{"cluster", shippedRoles(t, everywhere), nil, func(role string) bool { return role != "lease-coordinator-in-tree-lock" }, 5},
		{"cluster, in place of the in-tree coordinator", shippedRoles(t, everywhere), []string{"--in-tree=replace"},
			func(role string) bool { return role == "lease-coordinator-in-tree-lock" }, 1},
		{"namespaces", inNamespaces, []string{"--namespaces=" + coordinated}, func(string) bool { return true }, 5},
	} {
		var tried []grant
		for _, g := range grants(install.roles) {
			if role := install.roles[g.role].name; install.mine(role) && !unneeded(role, g) {
				tried = append(tried, g)
			}
		}
		if len(tried) == 0 {
			t.Fatalf("%s: there are no rights", install.name)
		}
		for share := range install.coordinators {
			copies := roleCopies{cluster, framework.PlainUser(users), install.roles}
			users++
			t.Run(fmt.Sprintf("%s %d", install.name, share), func(t *testing.T) {
				t.Parallel()
				for i, role := range copies.roles {
					if err := copies.apply(t.Context(), i, role.rules); err != nil {
						t.Fatal(err)
					}
				}
				c, err := cluster.Nodes[0].StartCoordinator(t.Context(), framework.CoordinatorOptions{
					Name: copies.user, User: copies.user,
					// One lock for all: whoever stands by needs the same rights.
					Args: append([]string{"--leader-elect-resource-namespace=" + framework.CoordinatorNamespace}, install.args...),
				})
				if err != nil {
					t.Fatal(err)
				}
				for i := share; i < len(tried); i += install.coordinators {
					copies.lose(t, c, tried[i], tried)
				}
				if err := c.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// lose takes one right away, and gives it back.
func (r roleCopies) lose(t *testing.T, c *framework.Coordinator, lost grant, all []grant) {
	t.Helper()
	ctx := t.Context()
	rules := r.roles[lost.role].rules
	if err := r.apply(ctx, lost.role, without(rules, lost)); err != nil {
		t.Fatal(err)
	}
	since := time.Now()
	said := waitUnready(ctx, t, c, 30*time.Second, lost.String()+" ", lost.where())
	t.Logf("%s %s missed after %s", lost, lost.where(), time.Since(since).Round(time.Millisecond))
	for _, g := range all {
		if name := g.String() + " "; g.String() != lost.String() && strings.Contains(said, name) {
			t.Errorf("without %s it misses %s, which it has: %s", lost, g, said)
		}
	}
	waitLogged(ctx, t, c, lost.String()+" ")
	if err := r.apply(ctx, lost.role, rules); err != nil {
		t.Fatal(err)
	}
	waitReady(ctx, t, c, 30*time.Second)
	if !c.Running() {
		t.Fatal("the coordinator has ended")
	}
}

// The rights that no election depends on let the coordinator find out who reads its metrics. Without one of them nobody
// does, its log names verb and resource, and it goes on coordinating.
func TestEachMetricsRight(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{NoAudit: true})
	ctx, node := t.Context(), cluster.Nodes[0]
	objects, err := framework.BuildKustomization("config/rbac")
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Apply(ctx, objects...); err != nil {
		t.Fatal(err)
	}
	c, err := node.StartCoordinator(ctx, framework.CoordinatorOptions{Args: []string{"--metrics-secure=true"}})
	if err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Name: "lease-coordinator-metrics-auth"}
	roles := slices.DeleteFunc(shippedRoles(t, objects), func(r shippedRole) bool { return r.name != key.Name })
	if err := cluster.Client().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-metrics-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lease-coordinator-metrics-reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: framework.ReaderUser}},
	}); err != nil {
		t.Fatal(err)
	}
	reviews := kubernetes.NewForConfigOrDie(node.ConfigFor(framework.CoordinatorUser)).AuthorizationV1().SelfSubjectAccessReviews()
	set := func(g grant, rules []rbacv1.PolicyRule, allowed bool) {
		t.Helper()
		var role rbacv1.ClusterRole
		if err := cluster.Client().Get(ctx, key, &role); err != nil {
			t.Fatal(err)
		}
		role.Rules = rules
		if err := cluster.Client().Update(ctx, &role); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: g.verb, Group: g.group, Resource: g.resource},
		}}
		if err := framework.WaitFor(ctx, fmt.Sprintf("%s allowed: %t", g, allowed), func(ctx context.Context) (bool, error) {
			answer, err := reviews.Create(ctx, review, metav1.CreateOptions{})
			return err == nil && answer.Status.Allowed == allowed, err
		}); err != nil {
			t.Fatal(err)
		}
	}
	all := grants(roles)
	if len(all) == 0 {
		t.Fatal("there are no rights")
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := framework.WaitFor(wait, "the metrics endpoint to answer", func(ctx context.Context) (bool, error) {
		status, _ := fetch(ctx, t, c.MetricsURL(true), "")
		return status != 0, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, g := range all {
		set(g, without(roles[0].rules, g), false)
		// Each time somebody new: who was let in once stays for a while.
		if status, body := fetch(ctx, t, c.MetricsURL(true), node.ConfigFor(framework.ReaderUser).BearerToken); status == http.StatusOK || status == 0 {
			t.Errorf("without %s metrics are served: %d, %s", g, status, body)
		}
		waitLogged(ctx, t, c, "cannot "+g.verb+" resource", g.resource)
		if err := c.WaitReady(ctx); err != nil {
			t.Errorf("without %s: %v", g, err)
		}
		set(g, roles[0].rules, true)
		if status, _ := fetch(ctx, t, c.MetricsURL(true), node.ConfigFor(framework.ReaderUser).BearerToken); status != http.StatusOK {
			t.Errorf("with %s again, metrics answer %d", g, status)
		}
	}
	if info := c.Info(); info.Run != 1 || !c.Running() {
		t.Errorf("it is in its run %d", info.Run)
	}
}
