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

package controller

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
)

// watched is an API server's candidates as informers show them.
type watched struct {
	informertest.FakeInformers
	native, custom *controllertest.FakeInformer
}

func newWatched() *watched {
	w := &watched{native: controllertest.NewFakeInformer(), custom: controllertest.NewFakeInformer()}
	w.Scheme = leaseapi.NewScheme()
	w.InformersByGVK = map[schema.GroupVersionKind]toolscache.SharedIndexInformer{
		native.GroupVersionKind(): w.native,
		custom.GroupVersionKind(): w.custom,
	}
	return w
}

func nativeObject(name string) *coordinationv1beta1.LeaseCandidate {
	return &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Namespace: leaseKey.Namespace, Name: name, UID: types.UID(name), ResourceVersion: "5"},
		Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: leaseKey.Name},
	}
}

func customObject(name string) *v1alpha1.LeaseCandidate {
	return &v1alpha1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Namespace: leaseKey.Namespace, Name: name, UID: types.UID(name), ResourceVersion: "6"},
		Spec:       v1alpha1.LeaseCandidateSpec{LeaseName: leaseKey.Name},
	}
}

// known returns the names of the candidates that a decision would be on.
func (s *server) known() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	if st := s.leases[leaseKey]; st != nil {
		for id := range st.candidates {
			names = append(names, id.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *server) expectKnown(want ...string) {
	s.Helper()
	if got := s.known(); !slices.Equal(got, want) {
		s.Errorf("candidates %q are known, want %q", got, want)
	}
}

// askedQueue records what is known whenever a decision is asked for: a worker may make it at once.
type askedQueue struct {
	queue
	asked func()
}

func (q askedQueue) Add(reconcile.Request) { q.asked() }

// A lease with candidates of both kinds is decided on only once both have been listed.
func TestFollowShowsAllKindsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newServer(t), newWatched()
		var asked [][]string
		q := queue(askedQueue{asked: func() { asked = append(asked, s.known()) }})
		s.r.queue.Store(&q)
		done := make(chan error, 1)
		go func() {
			done <- s.r.Follow(t.Context(), w, kinds{native, custom})
		}()
		synctest.Wait()
		w.native.Add(nativeObject("a"))
		w.native.Synced()
		synctest.Wait()
		w.custom.Add(customObject("b"))
		w.custom.Synced()
		s.must(<-done)
		if len(asked) == 0 {
			t.Fatal("no decision was asked for")
		}
		for _, names := range asked {
			if !slices.Equal(names, []string{"a", "b"}) {
				t.Errorf("a decision was asked for when %q were known", names)
			}
		}
	})
}

// A kind whose list fails again and again is awaited once, however often the API server is looked at, until it is dropped.
func TestFollowAwaitsLateKindOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newServer(t), newWatched()
		w.native.Synced()
		before := runtime.NumGoroutine()
		for range 20 {
			s.must(s.r.Follow(t.Context(), w, kinds{native, custom}))
		}
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > 3 {
			t.Errorf("%d goroutines wait for one kind", n)
		}
		if late := s.r.Late(); len(late) != 1 || late[0].GroupVersionKind() != custom.GroupVersionKind() {
			t.Errorf("late: %v", late)
		}
		w.native.Add(nativeObject("a"))
		s.expectKnown("a")
		w.custom.Add(customObject("b"))
		s.expectKnown("a")
		late := s.r.watches[1]
		s.must(s.r.Follow(t.Context(), w, kinds{native}))
		w.custom.Synced()
		s.must(s.r.Follow(t.Context(), w, kinds{native}))
		if s.expectKnown("a"); !late.ended || late.shown {
			t.Error("a kind that was dropped was shown")
		}
	})
}

// A kind that is dropped takes its candidates along, also one that was being read at that time, and brings them back.
func TestFollowDropsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newServer(t), newWatched()
		w.native.Synced()
		w.custom.Synced()
		s.must(s.r.Follow(t.Context(), w, kinds{native, custom}))
		w.native.Add(nativeObject("a"))
		w.custom.Add(customObject("b"))
		s.expectKnown("a", "b")
		former := w.custom
		s.must(s.r.Follow(t.Context(), w, kinds{native}))
		s.expectKnown("a")
		former.Add(customObject("c"))
		s.SeeCandidate(custom.Candidate(customObject("b")), false)
		s.expectKnown("a")
		s.must(s.r.Follow(t.Context(), w, kinds{native, custom}))
		w.InformersByGVK[custom.GroupVersionKind()].(*controllertest.FakeInformer).Add(customObject("b"))
		s.expectKnown("a", "b")
	})
}

// While the candidates of a kind that is being dropped are still known, a ping to them fails and is not left out: it would be
// decided on again at once.
func TestFollowWritesToKindUntilDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newServer(t), newWatched()
		w.custom.Synced()
		s.must(s.r.Follow(t.Context(), w, kinds{custom}))
		done := make(chan error, 1)
		go func() {
			done <- s.r.Follow(t.Context(), w, kinds{native})
		}()
		synctest.Wait()
		if s.r.Kinds().of(true) == nil || s.r.Kinds().of(false) == nil {
			t.Errorf("kinds %v while the other is awaited", s.r.Kinds())
		}
		w.native.Synced()
		s.must(<-done)
		if s.r.Kinds().of(true) != nil {
			t.Error("the kind was not dropped")
		}
	})
}
