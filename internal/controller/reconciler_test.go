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
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
	"github.com/lease-coordinator/coordinator/internal/observe"
)

// server is an API server in memory, with faults on demand, and a reconciler that works on it. No watch runs unless
// sync is called.
type server struct {
	*fixture
	// api is the server without faults.
	api       client.Client
	r         *Reconciler
	registry  *prometheus.Registry
	events    *events.FakeRecorder
	surprises int
	active    bool

	// before is called before each write of the reconciler, and its error is what the write ends in.
	before func(obj client.Object) error
	// after is called after each write that succeeded, before the reconciler hears of it.
	after func(obj client.Object) error
	// read, if set, is what reads of the reconciler end in.
	read error
	// Candidates are pinged at once.
	writes atomic.Int32
}

// native is the kind of candidates in these tests, and custom the other.
var (
	native = leaseapi.KindOf(coordinationv1beta1.SchemeGroupVersion.WithKind("LeaseCandidate"))
	custom = leaseapi.KindOf(v1alpha1.SchemeGroupVersion.WithKind("LeaseCandidate"))
)

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{fixture: newFixture(t), registry: prometheus.NewRegistry(), events: events.NewFakeRecorder(100), active: true}
	s.api = fake.NewClientBuilder().WithScheme(leaseapi.NewScheme()).
		WithIndex(&coordinationv1.Lease{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
	write := func(obj client.Object, do func() error) error {
		s.writes.Add(1)
		if s.before != nil {
			if err := s.before(obj); err != nil {
				return err
			}
		}
		if err := do(); err != nil {
			return err
		}
		if s.after != nil {
			return s.after(obj)
		}
		return nil
	}
	faulty := interceptor.NewClient(s.api.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			return write(obj, func() error { return c.Create(ctx, obj, o...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
			return write(obj, func() error { return c.Patch(ctx, obj, p, o...) })
		},
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return errors.New("the reconciler creates and patches, it does not update")
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			if s.read != nil {
				return s.read
			}
			return c.Get(ctx, key, obj, o...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if s.read != nil {
				return s.read
			}
			if err := c.List(ctx, list, o...); err != nil {
				return err
			}
			// The fake leaves this out.
			list.SetResourceVersion(strconv.Itoa(1000 + s.version))
			return nil
		},
	})
	s.r = &Reconciler{
		Client: faulty, Reader: faulty, Observer: s.Observer,
		Settings: func() *election.Settings { return s.settings },
		Events:   observe.Events{Recorder: s.events}, Metrics: observe.NewMetrics(s.registry),
		Act:       func() (func(), bool) { return func() {}, s.active },
		Surprised: func() { s.surprises++ },
	}
	s.r.kinds.Store(&kinds{native, custom})
	return s
}

// join registers a candidate that has just renewed.
func (s *server) join(name, emulation string) {
	s.Helper()
	now := metav1.NewMicroTime(s.clock)
	s.must(s.api.Create(s.Context(), &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Namespace: leaseKey.Namespace, Name: name, UID: types.UID(name)},
		Spec: coordinationv1beta1.LeaseCandidateSpec{LeaseName: leaseKey.Name, BinaryVersion: "1.37.0", EmulationVersion: emulation,
			Strategy: v1alpha1.OldestEmulationVersion, RenewTime: &now},
	}))
	s.syncCandidates()
}

// syncCandidates has the observer see the candidates as a watch would.
func (s *server) syncCandidates() {
	s.Helper()
	var list coordinationv1beta1.LeaseCandidateList
	s.must(s.api.List(s.Context(), &list))
	for i := range list.Items {
		s.SeeCandidate(native.Candidate(&list.Items[i]), false)
	}
}

// syncLease has the observer see the lease as a watch would.
func (s *server) syncLease() {
	s.Helper()
	s.SeeLease(s.stored())
}

func (s *server) stored() *coordinationv1.Lease {
	s.Helper()
	var lease coordinationv1.Lease
	s.must(s.api.Get(s.Context(), leaseKey, &lease))
	return &lease
}

// hold has the holder renew, whatever was there before.
func (s *server) hold(holder string) {
	s.Helper()
	lease := s.lease(holder)
	lease.ResourceVersion = ""
	if err := s.api.Create(s.Context(), lease); apierrors.IsAlreadyExists(err) {
		present := s.stored()
		present.Spec = lease.Spec
		s.must(s.api.Update(s.Context(), present))
	} else {
		s.must(err)
	}
}

func (s *server) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *server) reconcile() (reconcile.Result, error) {
	return s.r.Reconcile(s.Context(), reconcile.Request{NamespacedName: leaseKey})
}

func (s *server) counted(name, label string) float64 {
	s.Helper()
	families, err := s.registry.Gather()
	s.must(err)
	var sum float64
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "coordinated_leader_election_"+name && hasLabel(m, label) {
				sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func hasLabel(m *dto.Metric, value string) bool {
	for _, l := range m.GetLabel() {
		if l.GetValue() == value {
			return true
		}
	}
	return value == ""
}

var leaseResource = schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leases"}

func TestReconcileAppoints(t *testing.T) {
	s := newServer(t)
	s.join("a", "1.37.0")
	s.join("b", "1.36.0")
	result, err := s.reconcile()
	s.must(err)
	lease := s.stored()
	if *lease.Spec.HolderIdentity != "b" || lease.Annotations[v1alpha1.FencingTokenAnnotation] == "" {
		t.Errorf("lease %v, %v", lease.Annotations, lease.Spec)
	}
	if result.RequeueAfter <= 0 || result.RequeueAfter > 5*time.Second {
		t.Errorf("to look again after %s, want before the take-up limit", result.RequeueAfter)
	}
	if s.writes.Load() != 1 || s.counted("leader_changes_total", "") != 1 || s.counted("election_duration_seconds", "") != 1 {
		t.Errorf("%d writes, %v changes", s.writes.Load(), s.counted("leader_changes_total", ""))
	}
	if got := <-s.events.Events; got != "Normal LeaderAppointed appoint b: there is no lease yet" {
		t.Errorf("event %q", got)
	}
	// Steady state costs nothing.
	_, err = s.reconcile()
	s.must(err)
	if s.writes.Load() != 1 {
		t.Errorf("%d writes after another look", s.writes.Load())
	}
}

// Somebody else wrote first: what they wrote is read and decided on, in the same reconcile.
func TestReconcileConflict(t *testing.T) {
	s := newServer(t)
	s.hold("x")
	s.syncLease()
	s.join("a", "1.36.0")
	s.elapse(15 * time.Second)
	s.settle("a")
	s.before = func(client.Object) error {
		s.before = nil
		s.hold("rival")
		return nil
	}
	_, err := s.reconcile()
	s.must(err)
	if holder := *s.stored().Spec.HolderIdentity; holder != "rival" {
		t.Errorf("the rival's write was overwritten by %s", holder)
	}
	if s.counted("failures_total", observe.FailureConflict) != 1 || s.counted("failures_total", observe.FailureError) != 0 {
		t.Error("a conflict must count as one")
	}
	if d := s.decide(leaseKey, s.settings); d.Holder != "rival" {
		t.Errorf("decided on holder %q", d.Holder)
	}
}

// settle has a candidate renew now.
func (s *server) settle(name string) {
	s.Helper()
	var c coordinationv1beta1.LeaseCandidate
	s.must(s.api.Get(s.Context(), types.NamespacedName{Namespace: leaseKey.Namespace, Name: name}, &c))
	now := metav1.NewMicroTime(s.clock)
	c.Spec.RenewTime = &now
	s.must(s.api.Update(s.Context(), &c))
	s.syncCandidates()
}

func TestReconcileAlreadyExists(t *testing.T) {
	s := newServer(t)
	s.join("a", "1.36.0")
	s.before = func(client.Object) error {
		s.before = nil
		s.hold("rival")
		return nil
	}
	_, err := s.reconcile()
	s.must(err)
	if holder := *s.stored().Spec.HolderIdentity; holder != "rival" || s.counted("failures_total", observe.FailureConflict) != 1 {
		t.Errorf("holder %s, %v conflicts", holder, s.counted("failures_total", observe.FailureConflict))
	}
}

// The watch has not shown the lease yet: the list before the creation has, and nothing is written.
func TestReconcileFindsLeaseThatTheWatchHasNotShown(t *testing.T) {
	s := newServer(t)
	s.join("a", "1.36.0")
	s.hold("rival")
	_, err := s.reconcile()
	s.must(err)
	if s.writes.Load() != 0 || *s.stored().Spec.HolderIdentity != "rival" {
		t.Errorf("%d writes, holder %s", s.writes.Load(), *s.stored().Spec.HolderIdentity)
	}
}

func TestReconcileNotFound(t *testing.T) {
	s := newServer(t)
	s.hold("x")
	s.syncLease()
	s.join("a", "1.36.0")
	s.elapse(15 * time.Second)
	s.settle("a")
	s.before = func(client.Object) error {
		s.before = nil
		s.must(s.api.Delete(s.Context(), s.stored()))
		return nil
	}
	_, err := s.reconcile()
	s.must(err)
	var lease coordinationv1.Lease
	if err := s.api.Get(s.Context(), leaseKey, &lease); !apierrors.IsNotFound(err) {
		t.Errorf("before the deletion somebody may have renewed unseen, yet the lease is %v", lease.Spec)
	}
	s.elapse(15 * time.Second)
	s.settle("a")
	_, err = s.reconcile()
	s.must(err)
	if holder := *s.stored().Spec.HolderIdentity; holder != "a" {
		t.Errorf("holder %s", holder)
	}
}

// Errors are returned, so that the queue backs off, counted by kind, and harmless: nothing is taken for written.
func TestReconcileErrors(t *testing.T) {
	for name, test := range map[string]struct {
		err       error
		counted   string
		surprises int
	}{
		"429":       {apierrors.NewTooManyRequests("busy", 1), observe.FailureError, 0},
		"500":       {apierrors.NewInternalError(errors.New("etcd")), observe.FailureError, 0},
		"refused":   {errors.New("connection refused"), observe.FailureError, 0},
		"forbidden": {apierrors.NewForbidden(leaseResource, "l", errors.New("no")), observe.FailureForbidden, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.join("a", "1.36.0")
			s.before = func(client.Object) error { return test.err }
			if _, err := s.reconcile(); !errors.Is(err, test.err) {
				t.Errorf("error %v", err)
			}
			if s.counted("failures_total", test.counted) != 1 || s.surprises != test.surprises {
				t.Errorf("%v counted as %s, %d surprises", s.counted("failures_total", test.counted), test.counted, s.surprises)
			}
			if s.counted("decisions_total", "Appoint") != 0 || len(s.events.Events) != 0 {
				t.Error("a write that failed was reported as done")
			}
			s.before = nil
			_, err := s.reconcile()
			s.must(err)
			if *s.stored().Spec.HolderIdentity != "a" {
				t.Error("not appointed once the fault is gone")
			}
		})
	}
}

// The write succeeded, but its answer was lost: the next look finds that out and does not appoint twice.
func TestReconcileAnswerLost(t *testing.T) {
	s := newServer(t)
	s.join("a", "1.36.0")
	s.after = func(client.Object) error {
		s.after = nil
		return errors.New("connection reset")
	}
	if _, err := s.reconcile(); err == nil {
		t.Error("the fault was lost")
	}
	first := s.stored()
	_, err := s.reconcile()
	s.must(err)
	if s.stored().ResourceVersion != first.ResourceVersion || s.writes.Load() != 1 {
		t.Errorf("written %d times", s.writes.Load())
	}
}

func TestReconcileReadFails(t *testing.T) {
	s := newServer(t)
	s.join("a", "1.36.0")
	s.read = errors.New("connection refused")
	if _, err := s.reconcile(); !errors.Is(err, s.read) || s.writes.Load() != 0 {
		t.Errorf("error %v, %d writes", err, s.writes.Load())
	}
}

func TestReconcileStandbyOnlyObserves(t *testing.T) {
	s := newServer(t)
	s.active = false
	s.join("a", "1.36.0")
	if result, err := s.reconcile(); err != nil || result.RequeueAfter != 0 || s.writes.Load() != 0 {
		t.Errorf("%+v, %v, %d writes", result, err, s.writes.Load())
	}
	s.active = true
	_, err := s.reconcile()
	s.must(err)
	if s.writes.Load() != 1 {
		t.Errorf("%d writes", s.writes.Load())
	}
}

// A coordinator that is deposed between two steps takes no second.
func TestReconcileAsksBeforeEachStep(t *testing.T) {
	s := newServer(t)
	s.hold("x")
	s.syncLease()
	s.join("a", "1.36.0")
	s.elapse(16 * time.Second)
	// a has been silent for longer than an election lasts: it is pinged, and would be appointed as soon as it acks.
	s.after = func(client.Object) error {
		s.active = false
		s.settle("a")
		return nil
	}
	_, err := s.reconcile()
	s.must(err)
	if s.writes.Load() != 1 || *s.stored().Spec.HolderIdentity != "x" {
		t.Errorf("%d writes, holder %s", s.writes.Load(), *s.stored().Spec.HolderIdentity)
	}
}

func TestReconcileDryRun(t *testing.T) {
	s := newServer(t)
	s.r.DryRun = func() bool { return true }
	s.join("a", "1.36.0")
	result, err := s.reconcile()
	s.must(err)
	if s.writes.Load() != 0 || result.RequeueAfter == 0 || s.counted("decisions_total", "Appoint") != 1 || len(s.events.Events) != 0 {
		t.Errorf("%d writes, to look again after %s, %v decisions", s.writes.Load(), result.RequeueAfter, s.counted("decisions_total", "Appoint"))
	}
}

// A candidate that has just renewed, or gone, is no reason not to ping the others.
func TestPingConflicts(t *testing.T) {
	s := newServer(t)
	s.hold("x")
	s.syncLease()
	for _, name := range []string{"a", "b", "c"} {
		s.join(name, "1.36.0")
	}
	s.elapse(time.Minute)
	s.before = func(obj client.Object) error {
		resource := schema.GroupResource{Group: coordinationv1.GroupName, Resource: "leasecandidates"}
		switch obj.GetName() {
		case "a":
			return apierrors.NewConflict(resource, "a", errors.New("newer"))
		case "b":
			return apierrors.NewNotFound(resource, "b")
		}
		return nil
	}
	if _, err := s.reconcile(); err != nil {
		t.Fatal(err)
	}
	var c coordinationv1beta1.LeaseCandidate
	s.must(s.api.Get(s.Context(), types.NamespacedName{Namespace: leaseKey.Namespace, Name: "c"}, &c))
	if c.Spec.PingTime == nil || !c.Spec.PingTime.After(c.Spec.RenewTime.Time) {
		t.Errorf("c: pingTime %v, renewTime %v", c.Spec.PingTime, c.Spec.RenewTime)
	}
	if s.counted("failures_total", observe.FailureConflict) < 2 {
		t.Errorf("%v conflicts", s.counted("failures_total", observe.FailureConflict))
	}
}

// The API server drops a field that it was found to keep.
func TestPreferredHolderDropped(t *testing.T) {
	s := newServer(t)
	s.join("a", "1.37.0")
	s.hold("a")
	s.syncLease()
	s.join("b", "1.36.0")
	s.after = func(obj client.Object) error {
		if lease, ok := obj.(*coordinationv1.Lease); ok {
			lease.Spec.PreferredHolder = nil
		}
		s.after = nil
		return nil
	}
	_, err := s.reconcile()
	s.must(err)
	if s.surprises != 1 {
		t.Errorf("%d surprises", s.surprises)
	}
}
