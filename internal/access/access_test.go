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

package access

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var lock = types.NamespacedName{Namespace: "lock-ns", Name: "lock"}

var groups = []string{"coordination.k8s.io", "lease-coordinator.dev"}

// authorizer answers reviews as one does that grants rules, of which it lists only some.
type authorizer struct {
	listed, unlisted []Right
	failure          error
	rules, single    int
}

func (a *authorizer) client() client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			switch review := obj.(type) {
			case *authorizationv1.SelfSubjectRulesReview:
				a.rules++
				for _, r := range a.listed {
					if r.Namespace != "" && r.Namespace != review.Spec.Namespace {
						continue
					}
					rule := authorizationv1.ResourceRule{Verbs: []string{r.Verb}, APIGroups: []string{r.Group}, Resources: []string{r.Resource}}
					if r.Name != "" {
						rule.ResourceNames = []string{r.Name}
					}
					review.Status.ResourceRules = append(review.Status.ResourceRules, rule)
				}
			case *authorizationv1.SelfSubjectAccessReview:
				a.single++
				for _, r := range append(a.listed, a.unlisted...) {
					if *review.Spec.ResourceAttributes == *r.Attributes() {
						review.Status.Allowed = true
					}
				}
			}
			return a.failure
		},
	})
}

func scopes() map[string]Scope {
	return map[string]Scope{
		"cluster":    {Lock: lock, CandidateGroups: groups},
		"namespaces": {Lock: lock, CandidateGroups: groups, Namespaces: []string{"a", "b"}},
		"dry run":    {Lock: lock, CandidateGroups: groups, DryRun: true},
		"one kind":   {Lock: lock, CandidateGroups: groups[:1]},
	}
}

// followsFrom reports whether who has that right, which is another, has this one too.
func (r Right) followsFrom(other Right) bool {
	return r != other && other.Verb == r.Verb && other.Group == r.Group && other.Resource == r.Resource && other.Name == "" &&
		(other.Namespace == "" || other.Namespace == r.Namespace)
}

func all(s Scope) []Right { return append(s.Wanted(), s.WantedForLocks()...) }

// Each right, when it alone is missing, is named by verb, resource and namespace, and no other is.
func TestEachMissingRightIsNamed(t *testing.T) {
	for name, scope := range scopes() {
		t.Run(name, func(t *testing.T) {
			wanted := all(scope)
			for i, lost := range wanted {
				if slices.ContainsFunc(wanted, lost.followsFrom) {
					continue
				}
				a := &authorizer{listed: append(append([]Right{}, wanted[:i]...), wanted[i+1:]...)}
				err := Check(t.Context(), a.client(), wanted, NoNamespaceOfOurs)
				var missing MissingError
				if !errors.As(err, &missing) || len(missing.Missing) != 1 || missing.Missing[0] != lost {
					t.Errorf("without %s: %v", lost, err)
					continue
				}
				where := "in all namespaces"
				if lost.Namespace != "" {
					where = `in namespace "` + lost.Namespace + `"`
				}
				if text := err.Error(); !strings.Contains(text, lost.Verb+" "+lost.Resource+"."+lost.Group) || !strings.HasSuffix(text, where) {
					t.Errorf("error %q", text)
				}
				if a.single != 1 {
					t.Errorf("without %s: asked %d times one by one", lost, a.single)
				}
			}
		})
	}
}

// With all rights, one review for each namespace is all it takes, and authorizers that list nothing are asked one by one.
func TestRightsGranted(t *testing.T) {
	scope := scopes()["namespaces"]
	a := &authorizer{listed: all(scope)}
	if err := Check(t.Context(), a.client(), all(scope), NoNamespaceOfOurs); err != nil || a.single != 0 || a.rules != 4 {
		t.Errorf("listed: %v, %d reviews of rules and %d of single rights", err, a.rules, a.single)
	}
	a = &authorizer{unlisted: all(scope)}
	if err := Check(t.Context(), a.client(), all(scope), NoNamespaceOfOurs); err != nil || a.single != len(all(scope)) {
		t.Errorf("not listed: %v, %d reviews", err, a.single)
	}
	everything := &authorizer{listed: []Right{{Verb: "*", Group: "*", Resource: "*"}}}
	if err := Check(t.Context(), everything.client(), all(scope), NoNamespaceOfOurs); err != nil || everything.single != 0 {
		t.Errorf("cluster-admin: %v", err)
	}
	// A right to one object is none to all.
	wanted := []Right{{Verb: "get", Group: groups[0], Resource: "leases", Namespace: "a"}}
	one := wanted[0]
	one.Name = "one"
	if err := Check(t.Context(), (&authorizer{listed: []Right{one}}).client(), wanted, NoNamespaceOfOurs); err == nil {
		t.Error("the right to one object was taken for that to all")
	}
}

func TestRightsCannotBeAsked(t *testing.T) {
	a := &authorizer{failure: errors.New("connection refused")}
	err := Check(t.Context(), a.client(), scopes()["cluster"].Wanted(), NoNamespaceOfOurs)
	var missing MissingError
	if err == nil || errors.As(err, &missing) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("not knowing is not missing: %v", err)
	}
}

// A dry run needs no right to write anything but its own lock and events.
func TestDryRunNeedsNoWrites(t *testing.T) {
	for _, r := range scopes()["dry run"].Wanted() {
		switch r.Verb {
		case "get", "list", "watch":
		default:
			if r.Resource != "events" {
				t.Errorf("a dry run asks for %s", r)
			}
		}
	}
}
