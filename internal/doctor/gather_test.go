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

package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"

	"github.com/lease-coordinator/coordinator/internal/doctor/checks"
)

// server is an API server, or several behind one address.
type server struct {
	*httptest.Server
	// kept says which connections end at a server that keeps fields.
	kept func(connection int) bool
	// allowed says which requests are.
	allowed func(r *http.Request) bool
	// pages are those of the lists of Leases; expire has the second one expire once.
	pages  [][]coordinationv1.Lease
	expire bool
	// renew has locks renewed at each look.
	renew bool

	mu       sync.Mutex
	requests []string
	looks    int
	// probed are the connections on which a Lease was created by dry run.
	probed map[int]bool
}

type connectionKey struct{}

func newServer(t *testing.T) *server {
	s := &server{kept: func(int) bool { return true }, allowed: func(*http.Request) bool { return true }, renew: true, probed: map[int]bool{}}
	var connections atomic.Int32
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, int(connections.Add(1)))
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.String())
	s.mu.Unlock()
	answer := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	refuse := func(code int32, reason metav1.StatusReason, message string) {
		answer(int(code), metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: code, Reason: reason, Message: message})
	}
	if !s.allowed(r) {
		refuse(403, metav1.StatusReasonForbidden, `things are forbidden: User "jane" cannot`)
		return
	}
	resources := func(gv string, names ...string) metav1.APIResourceList {
		list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv}
		for _, n := range names {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: n, Namespaced: true})
		}
		return list
	}
	const group = "/apis/coordination.k8s.io"
	path := r.URL.Path
	switch {
	case path == "/version":
		answer(200, apiversion.Info{Major: "1", Minor: "37", GitVersion: "v1.37.2"})
	case path == group:
		answer(200, metav1.APIGroup{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}, Name: "coordination.k8s.io", Versions: []metav1.GroupVersionForDiscovery{
			{GroupVersion: "coordination.k8s.io/v1", Version: "v1"}, {GroupVersion: "coordination.k8s.io/v1alpha2", Version: "v1alpha2"}, {GroupVersion: "coordination.k8s.io/v1beta1", Version: "v1beta1"},
		}})
	case path == group+"/v1":
		answer(200, resources("coordination.k8s.io/v1", "leases"))
	case path == group+"/v1beta1", path == group+"/v1alpha2":
		answer(200, resources(strings.TrimPrefix(path, "/apis/"), "leasecandidates"))
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/leases") && r.URL.Query().Get("dryRun") == "All":
		l := coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}
		connection := r.Context().Value(connectionKey{}).(int)
		s.mu.Lock()
		s.probed[connection] = true
		s.mu.Unlock()
		if s.kept(connection) {
			text := "x"
			l.Spec.Strategy, l.Spec.PreferredHolder = (*coordinationv1.CoordinatedLeaseStrategy)(&text), &text
		}
		answer(201, l)
	case r.Method == http.MethodPost && strings.HasPrefix(path, "/apis/authorization.k8s.io/v1/"):
		kind := "SubjectAccessReview"
		if strings.Contains(path, "self") {
			kind = "SelfSubjectAccessReview"
		}
		answer(201, map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": kind, "status": map[string]any{"allowed": true}})
	case path == group+"/v1/leases":
		page := 0
		if token := r.URL.Query().Get("continue"); token != "" {
			_, _ = fmt.Sscan(token, &page)
		}
		s.mu.Lock()
		expire := s.expire && page > 0
		s.expire = s.expire && !expire
		s.mu.Unlock()
		if expire {
			refuse(410, metav1.StatusReasonExpired, "the continue token is too old")
			return
		}
		list := coordinationv1.LeaseList{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}}
		switch {
		case r.URL.Query().Get("limit") == "":
			list.Items = slices.Concat(s.pages...)
		case page < len(s.pages):
			list.Items = s.pages[page]
			if page+1 < len(s.pages) {
				list.Continue = fmt.Sprint(page + 1)
			}
		}
		answer(200, list)
	case path == group+"/v1beta1/leasecandidates":
		w.Header().Set("Warning", `299 - "coordination.k8s.io/v1beta1 LeaseCandidate is deprecated in v1.36+, unavailable in v1.39+"`)
		answer(200, coordinationv1beta1.LeaseCandidateList{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1beta1", Kind: "LeaseCandidateList"},
			Items: []coordinationv1beta1.LeaseCandidate{{
				TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1beta1", Kind: "LeaseCandidate"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "n1"},
				Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: "job", BinaryVersion: "1.37.0"},
			}},
		})
	case strings.HasSuffix(path, "/leases/lease-coordinator"):
		s.mu.Lock()
		defer s.mu.Unlock()
		l := lease("lease-coordinator-system", "lease-coordinator", "lease-coordinator_n1_1f")
		l.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
		if s.renew {
			s.looks++
			renewed := metav1.NewMicroTime(now.Add(time.Duration(s.looks) * time.Second))
			l.Spec.RenewTime = &renewed
		}
		answer(200, l)
	default:
		refuse(404, metav1.StatusReasonNotFound, "there is no "+path)
	}
}

func (s *server) gather(t *testing.T, watch time.Duration) (*checks.Facts, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return Gather(ctx, &rest.Config{Host: s.URL}, Options{
		Settings: settings(t), Lock: types.NamespacedName{Namespace: "lease-coordinator-system", Name: "lease-coordinator"},
		Namespace: "default", CoordinatorUser: "system:serviceaccount:a:b", Watch: watch,
		Rights: []checks.Right{{Verb: "patch", Group: "coordination.k8s.io", Resource: "leases"}},
	})
}

func (s *server) must(t *testing.T, watch time.Duration) *checks.Facts {
	t.Helper()
	f, err := s.gather(t, watch)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// wroteNothing asserts that nothing was asked for that stores anything.
func (s *server) wroteNothing(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if !strings.HasPrefix(r, "GET ") && !strings.Contains(r, "dryRun=All") && !strings.HasPrefix(r, "POST /apis/authorization.k8s.io/v1/") {
			t.Errorf("%s is no dry run and no access review", r)
		}
	}
}

func outcomes(f *checks.Facts) map[string]string {
	found := map[string]string{}
	for _, x := range checks.Examine(f) {
		if x.Outcome != "" {
			found[x.Outcome] = x.Found
		}
	}
	return found
}

func TestGather(t *testing.T) {
	s := newServer(t)
	// What one page says of its first lease is not said of the next one's.
	first := *lease("apps", "a", "n1")
	first.Annotations = map[string]string{"of": "a"}
	s.pages = [][]coordinationv1.Lease{{first, *lease("apps", "b", "n1")}, {*lease("apps", "c", "n1")}}
	f := s.must(t, time.Minute)
	if len(f.Answers) != connections || !f.OwnLock.Renewed || f.InTreeLock.Lease != nil || f.InTreeLock.Unknown != "" {
		t.Errorf("%+v", f)
	}
	for _, a := range f.Answers {
		if want := (checks.Answer{Version: "v1.37.2", FieldsKept: true, Native: []string{"v1beta1", "v1alpha2"}, Ahead: a.Ahead}); fmt.Sprint(a) != fmt.Sprint(want) {
			t.Errorf("answer %+v, want %+v", a, want)
		}
	}
	if f.Removals["v1beta1"] != (checks.Release{Major: 1, Minor: 39}) || f.Removals["v1alpha2"] != (checks.Release{Major: 1, Minor: 38}) {
		t.Errorf("removals %v", f.Removals)
	}
	if len(f.Leases.List) != 3 || f.Leases.List[0].Name != "a" || f.Leases.List[2].Name != "c" || f.Leases.List[0].Annotations["of"] != "a" || f.Leases.List[2].Annotations["of"] != "" {
		t.Errorf("leases %v", f.Leases)
	}
	if len(f.Candidates.List) != 1 || f.Candidates.List[0].LeaseName != "job" || f.Candidates.List[0].Resource != "leasecandidates.coordination.k8s.io" {
		t.Errorf("candidates %v", f.Candidates)
	}
	if len(f.ServerWarnings) != 1 || !strings.Contains(f.ServerWarnings[0], "v1.39+") {
		t.Errorf("warnings %q", f.ServerWarnings)
	}
	if len(f.Rights.Reviews) != 1 || !f.Rights.Reviews[0].Allowed {
		t.Errorf("rights %+v", f.Rights)
	}
	s.wroteNothing(t)
}

// TestGatherMixed: behind one address are kube-apiservers with the gate and without.
func TestGatherMixed(t *testing.T) {
	s := newServer(t)
	s.kept = func(connection int) bool { return connection%2 == 0 }
	if found := outcomes(s.must(t, 0)); found["gate-mixed"] == "" {
		t.Errorf("found %q", found)
	}
	if len(s.probed) != connections {
		t.Errorf("%d connections were asked, not %d", len(s.probed), connections)
	}
}

func TestGatherExpiredPage(t *testing.T) {
	s := newServer(t)
	s.pages = [][]coordinationv1.Lease{{*lease("apps", "a", "n1")}, {*lease("apps", "b", "n1")}}
	s.expire = true
	if f := s.must(t, 0); len(f.Leases.List) != 2 || s.expire {
		t.Errorf("leases %v", f.Leases)
	}
}

func TestGatherSilentLock(t *testing.T) {
	s := newServer(t)
	s.renew = false
	f := s.must(t, 2*lookEvery)
	if f.OwnLock.Renewed || f.OwnLock.Watched < 2*lookEvery || f.OwnLock.Lease == nil {
		t.Errorf("lock %+v", f.OwnLock)
	}
}

// TestGatherForbidden: whoever may do nothing gets a report nevertheless.
func TestGatherForbidden(t *testing.T) {
	for name, allowed := range map[string]func(*http.Request) bool{
		"all but discovery": func(r *http.Request) bool {
			return r.URL.Path == "/version" || strings.HasPrefix(r.URL.Path, "/apis/coordination.k8s.io") && !strings.Contains(r.URL.Path, "leases") && !strings.Contains(r.URL.Path, "leasecandidates")
		},
		"everything": func(*http.Request) bool { return false },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.allowed = allowed
			f := s.must(t, time.Minute)
			unchecked := 0
			for _, x := range checks.Examine(f) {
				switch {
				case x.Severity == checks.Unchecked && strings.Contains(x.Found, `User "jane" cannot`):
					unchecked++
				case x.Severity == checks.Warning || x.Severity == checks.Error:
					t.Errorf("found %+v", x)
				}
			}
			if unchecked < 15 {
				t.Errorf("only %d checks were refused", unchecked)
			}
			if code := NewReport("", "", f).ExitCode(); code != ExitUnchecked {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// TestGatherImpersonating: who may not create SubjectAccessReviews may impersonate the coordinator.
func TestGatherImpersonating(t *testing.T) {
	s := newServer(t)
	s.allowed = func(r *http.Request) bool { return !strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") }
	if f := s.must(t, 0); len(f.Rights.Reviews) != 1 || !f.Rights.Reviews[0].Allowed || f.Rights.How != "asked by impersonating it" {
		t.Errorf("rights %+v", f.Rights)
	}
	s.wroteNothing(t)
}

func TestGatherNoAnswer(t *testing.T) {
	s := newServer(t)
	s.Close()
	if _, err := s.gather(t, time.Minute); err == nil || strings.Count(err.Error(), "asking") != 1 {
		t.Errorf("%v", err)
	}
}
