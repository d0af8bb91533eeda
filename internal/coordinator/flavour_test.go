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

package coordinator

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/lease-coordinator/coordinator/internal/access"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
)

// kindsOf returns the kinds of those group versions.
func kindsOf(t *testing.T, text string) []leaseapi.CandidateKind {
	t.Helper()
	var list []leaseapi.CandidateKind
	for _, name := range strings.Fields(text) {
		gv := schema.GroupVersion{Group: "coordination.k8s.io", Version: name}
		if name == "own" {
			gv = schema.GroupVersion{Group: "lease-coordinator.dev", Version: "v1alpha1"}
		}
		kind := leaseapi.KindOf(gv.WithKind("LeaseCandidate"))
		if kind == nil {
			t.Fatalf("no kind %s", name)
		}
		list = append(list, kind)
	}
	return list
}

func namesOf(kinds []leaseapi.CandidateKind) string {
	var names []string
	for _, k := range kinds {
		if k.CustomResource() {
			names = append(names, "own")
		} else {
			names = append(names, k.GroupVersionKind().Version)
		}
	}
	return strings.Join(names, " ")
}

// What is followed as the API server's answers change, look by look: "served -> followed", with a "?" where the next look is
// to be soon.
func TestKindsFollowed(t *testing.T) {
	for name, course := range map[string][]string{
		"as it is": {"v1beta1 -> v1beta1", "v1beta1 -> v1beta1"},
		// v1beta1 is not left as long as it is there: nothing would be better.
		"a better version comes":              {"v1beta1 -> v1beta1", "v1 v1beta1 -> v1beta1", "v1 -> v1"},
		"the CRD is installed later":          {"v1beta1 -> v1beta1", "v1beta1 own -> v1beta1 own"},
		"the API group is enabled later":      {"own -> own", "v1beta1 own -> v1beta1 own"},
		"an upgrade to a server without it":   {"v1beta1 own -> v1beta1 own", "own -> v1beta1 own ?", "own -> v1beta1 own ?", "own -> own", "own -> own"},
		"two servers with different answers":  {"v1beta1 own -> v1beta1 own", "own -> v1beta1 own ?", "v1beta1 own -> v1beta1 own", "own -> v1beta1 own ?", "own -> v1beta1 own ?", "v1beta1 own -> v1beta1 own"},
		"all are gone, and one comes back":    {"v1beta1 -> v1beta1", " -> v1beta1 ?", " -> v1beta1 ?", " -> ", "own -> own"},
		"nothing, and then something":         {" -> ", " -> ", "v1alpha2 -> v1alpha2"},
		"the best of what is there at first":  {"v1 v1beta1 v1alpha2 own -> v1 own"},
		"another version in place of the one": {"v1alpha2 -> v1alpha2", "v1beta1 -> v1beta1"},
	} {
		t.Run(name, func(t *testing.T) {
			var choice kindChoice
			for i, step := range course {
				served, want, _ := strings.Cut(step, " -> ")
				follow, sure := choice.next(kindsOf(t, served))
				got := namesOf(follow)
				if !sure {
					got += " ?"
				}
				if got != want {
					t.Errorf("look %d, %q served: %q is followed, want %q", i+1, served, got, want)
				}
			}
		})
	}
}

// A kind that may not be watched does not keep the other from being followed.
func TestAllowedKinds(t *testing.T) {
	kinds := kindsOf(t, "v1beta1 own")
	missing := func(verb, group string, in ...string) error {
		var rights []access.Right
		for _, namespace := range in {
			rights = append(rights, access.Right{Verb: verb, Group: group, Resource: "leasecandidates", Namespace: namespace})
		}
		return errors.Join(access.MissingError{Missing: rights}, nil)
	}
	for _, test := range []struct {
		problem    error
		namespaces []string
		want       string
	}{
		{nil, nil, "v1beta1 own"},
		{errors.New("away"), nil, "v1beta1 own"},
		{missing("list", "lease-coordinator.dev", ""), nil, "v1beta1"},
		{missing("watch", "coordination.k8s.io", ""), nil, "own"},
		{missing("delete", "coordination.k8s.io", ""), nil, "v1beta1 own"},
		// As when one namespace is deleted, with the Roles in it.
		{missing("list", "coordination.k8s.io", "b"), []string{"a", "b"}, "v1beta1 own"},
		{missing("list", "coordination.k8s.io", "a", "b"), []string{"a", "b"}, "own"},
	} {
		if got := namesOf(allowed(kinds, test.problem, test.namespaces)); got != test.want {
			t.Errorf("%v, namespaces %q: %q", test.problem, test.namespaces, got)
		}
	}
}

// What /healthz and /readyz say.
func TestHealthServer(t *testing.T) {
	c := &coordinator{}
	handler := c.healthServer(":0").(*manager.Server).Server.Handler
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	expect := func(path string, code int, says ...string) {
		t.Helper()
		gotCode, body := get(path)
		if gotCode != code {
			t.Errorf("%s: %d, want %d", path, gotCode, code)
		}
		for _, want := range says {
			if !strings.Contains(body, want) {
				t.Errorf("%s says %q, not %q", path, body, want)
			}
		}
	}
	problem := error(access.MissingError{Missing: []access.Right{{Verb: "patch", Group: "coordination.k8s.io", Resource: "leases"}}})
	c.problem.Store(&problem)
	expect("/healthz", http.StatusOK)
	const named = "patch leases.coordination.k8s.io in all namespaces"
	expect("/readyz", http.StatusInternalServerError, "[-]coordinating failed", "coordinating: ", named)
	expect("/readyz/coordinating", http.StatusInternalServerError, named)

	var none error
	c.problem.Store(&none)
	c.flavour.Store(&flavour{kinds: kindsOf(t, "v1beta1 own")})
	if code, body := get("/readyz"); code != http.StatusOK || body != "ok" {
		t.Errorf("ready: %d %q", code, body)
	}
	expect("/readyz?verbose", http.StatusOK, "[+]coordinating ok",
		"spec.strategy and spec.preferredHolder of Leases: dropped by the API server; the coordinator keeps them in annotations",
		"candidates: coordination.k8s.io/v1beta1 LeaseCandidate, lease-coordinator.dev/v1alpha1 LeaseCandidate")
	expect("/readyz/other", http.StatusNotFound)

	c.flavour.Store(&flavour{})
	expect("/readyz?verbose", http.StatusOK, "candidates: none are served")
}
