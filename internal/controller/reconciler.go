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
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
	"github.com/lease-coordinator/coordinator/internal/observe"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// The rights that the reconciler uses; those of leader election and of events are in internal/access.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io;lease-coordinator.dev,resources=leasecandidates,verbs=get;list;watch;patch;delete

const (
	// maxSteps bounds how many decisions one reconcile carries out in a row, so that one lease cannot hold up
	// the others.
	maxSteps = 8
	// pauseAfterSteps is how long the lease then waits.
	pauseAfterSteps = 20 * time.Millisecond
	// maxParallelPings bounds the requests that one election has under way.
	maxParallelPings = 16
)

// Reconciler decides on one lease at a time and carries the decision out.
type Reconciler struct {
	// Client writes; its reads are not used.
	Client client.Client
	// Reader reads from the API server, past the cache.
	Reader   client.Reader
	Observer *Observer
	// Settings returns the operator's choices, which may change while the coordinator runs.
	Settings func() *election.Settings
	Events   observe.Events
	Metrics  *observe.Metrics
	// DryRun reports whether to decide, log and count, but write nothing. Nil means no.
	DryRun func() bool
	// Act reports whether this coordinator is the active one. If it is, it stays so until done is called.
	Act func() (done func(), active bool)
	// Surprised is called when the API server forbade a write, or dropped spec.preferredHolder from one: what was
	// found out about it no longer holds. May be nil.
	Surprised func()

	// queue is set once the controller runs.
	queue atomic.Pointer[queue]
	// kinds are those that are followed, and watches how; see Follow.
	kinds   atomic.Pointer[kinds]
	watches []*candidateWatch
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	logger := log.FromContext(ctx).WithValues("lease", key.String())
	for range maxSteps {
		result, again, err := r.step(ctx, logger, key)
		if !again || err != nil {
			return result, err
		}
	}
	return reconcile.Result{RequeueAfter: pauseAfterSteps}, nil
}

// step makes one decision and carries it out. again says that another is due at once.
func (r *Reconciler) step(ctx context.Context, logger logr.Logger, key types.NamespacedName) (_ reconcile.Result, again bool, _ error) {
	// Asked for each step: the process may have been paused since the last.
	done, active := r.Act()
	if !active {
		// A standby only observes. When it becomes active it looks at every lease.
		return reconcile.Result{}, false, nil
	}
	defer done()
	settings := r.Settings()
	d := r.Observer.decide(key, settings)
	r.LookAt(d.lookAt)
	r.notify(d)
	if d.Action == election.None {
		r.report(logger, d)
		return r.lookAgain(d.LookAgain), false, nil
	}
	if r.DryRun != nil && r.DryRun() {
		r.Observer.abandon(key)
		if d.news {
			r.Metrics.Written(key, d.Decision)
			logger.Info("Decision not carried out: dry run", decisionValues(d.Decision)...)
		}
		return reconcile.Result{RequeueAfter: settings.ElectionDuration}, false, nil
	}
	var err error
	switch d.Action {
	case election.Ping:
		err = r.ping(ctx, key, d)
	case election.Collect:
		err = r.collect(ctx, logger, key, d)
	default:
		err = r.write(ctx, logger, key, d)
	}
	if err != nil {
		err = r.failure(ctx, key, err)
	}
	return reconcile.Result{}, true, err
}

// lookAgain asks for a reconcile at the exact time.
func (r *Reconciler) lookAgain(at time.Time) reconcile.Result {
	if at.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(at.Sub(r.Observer.now()), time.Millisecond)}
}

// report tells, once, of a decision that writes nothing.
func (r *Reconciler) report(logger logr.Logger, d decided) {
	if !d.news {
		return
	}
	if observe.Blocks(d.Decision) {
		logger.Info("Lease not coordinated", decisionValues(d.Decision)...)
		r.Events.Blocked(d.about(), d.Decision)
		return
	}
	logger.V(1).Info("Nothing to do", decisionValues(d.Decision)...)
}

// about returns the lease that was decided on, or what it is going to be called, for an event: as of the newest of what
// was decided on. client-go takes all events of one reason about one object, as of one resourceVersion, for the same
// event, and drops the note of every one but the first. A lease that is not there, or that nobody renews, would be left
// with what was true of it once.
func (d *decided) about() *coordinationv1.Lease {
	about := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: d.snapshot.Key.Namespace, Name: d.snapshot.Key.Name}}
	if d.before != nil {
		about.UID, about.ResourceVersion = d.before.UID, d.before.ResourceVersion
	}
	for _, c := range d.snapshot.Candidates {
		if about.ResourceVersion == "" || parseVersion(c.ResourceVersion) > parseVersion(about.ResourceVersion) {
			about.ResourceVersion = c.ResourceVersion
		}
	}
	return about
}

// notify tells, once, of what the owner of a lease or a candidate should know.
func (r *Reconciler) notify(d decided) {
	for _, n := range d.notices {
		var about client.Object = d.about()
		if n.candidate != nil {
			kind := r.kindOf(n.candidate)
			if kind == nil {
				continue
			}
			about = kind.New()
			about.SetNamespace(n.candidate.Namespace)
			about.SetName(n.candidate.Name)
			about.SetUID(types.UID(n.candidate.UID))
			about.SetResourceVersion(n.candidate.ResourceVersion)
		}
		if n.warning != "" {
			r.Events.InvalidAnnotation(about, n.warning)
		} else {
			r.Events.PriorityEnded(about, n.candidate)
		}
	}
}

func decisionValues(d election.Decision) []any {
	return []any{"action", d.Action, "reason", d.Reason, "holder", d.Holder, "candidate", d.Candidate, "strategy", d.Strategy, "decision", d.Sentence()}
}

// write carries out a decision that changes the lease.
func (r *Reconciler) write(ctx context.Context, logger logr.Logger, key types.NamespacedName, d decided) error {
	var base string
	if d.before != nil {
		base = d.before.ResourceVersion
	} else {
		// The fencing token of a new Lease is the resourceVersion of a list that shows there is none: larger
		// than that of any Lease that was deleted before.
		var leases coordinationv1.LeaseList
		if err := r.Reader.List(ctx, &leases, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name}); err != nil {
			return fmt.Errorf("making sure that lease %s does not exist: %w", key, err)
		}
		if len(leases.Items) > 0 {
			r.Observer.SeeLease(&leases.Items[0])
			return nil
		}
		base = leases.ResourceVersion
	}
	if !r.Observer.begin(key, d) {
		return nil
	}
	written := r.Observer.compose(d, base)
	after, err := leaseapi.WriteLease(ctx, r.Client, d.before, written)
	if err != nil {
		r.noticed(logger, r.Observer.failed(key))
		return err
	}
	seen := r.Observer.wrote(key, d, after)
	logger.Info("Decision carried out", decisionValues(d.Decision)...)
	r.Metrics.Written(key, d.Decision)
	if d.Action == election.Appoint {
		r.Metrics.Elected(d.vacantFor)
	}
	r.Events.Written(after, d.Decision)
	if written.Spec.PreferredHolder != nil && after.Spec.PreferredHolder == nil || written.Spec.Strategy != nil && after.Spec.Strategy == nil {
		logger.Info("API server dropped fields of a Lease that it was found to keep; annotations are used", "for", droppedFor.String())
		r.LookAt(r.Observer.FieldsDropped())
		r.surprised()
	}
	r.noticed(logger, seen)
	return nil
}

// noticed tells of an appointee that leads now, and has other leases that are concerned decided on.
func (r *Reconciler) noticed(logger logr.Logger, seen LeaseSeen) {
	r.LookAt(seen.LookAt)
	if seen.Holder == "" {
		return
	}
	logger.Info("Appointment taken up", "holder", seen.Holder, "after", seen.TookUp.String())
	r.Metrics.TakenUp(seen.TookUp, seen.Leaderless, seen.HandOff)
}

// ping moves the pingTime of the candidates that the decision names.
func (r *Reconciler) ping(ctx context.Context, key types.NamespacedName, d decided) error {
	wanted := make(map[string]election.Candidate, len(d.Pings))
	for _, c := range d.snapshot.Candidates {
		if other, twice := wanted[c.Name]; !twice || election.Supersedes(&c, &other) {
			wanted[c.Name] = c
		}
	}
	candidates := make([]*strategy.Candidate, 0, len(d.Pings))
	for _, name := range d.Pings {
		candidates = append(candidates, wanted[name].Candidate)
	}
	if err := r.writeEach(ctx, candidates, func(kind leaseapi.CandidateKind, c *strategy.Candidate) error {
		if _, err := kind.Ping(ctx, r.Client, c, election.PingTime(wanted[c.Name], r.Observer.now())); err != nil {
			return err
		}
		r.Observer.pinged(key, c)
		return nil
	}); err != nil {
		return err
	}
	r.Metrics.Written(key, d.Decision)
	log.FromContext(ctx).V(1).Info("Candidates pinged", append([]any{"lease", key.String()}, decisionValues(d.Decision)...)...)
	return nil
}

// collect deletes the candidates that the decision names.
func (r *Reconciler) collect(ctx context.Context, logger logr.Logger, key types.NamespacedName, d decided) error {
	if err := r.writeEach(ctx, d.Dead, func(kind leaseapi.CandidateKind, c *strategy.Candidate) error {
		if err := kind.Delete(ctx, r.Client, c); err != nil {
			return err
		}
		r.LookAt(r.Observer.SeeCandidateDeleted(c))
		return nil
	}); err != nil {
		return err
	}
	r.Metrics.Written(key, d.Decision)
	logger.Info("Decision carried out", decisionValues(d.Decision)...)
	return nil
}

// writeEach writes to each of the candidates. One that has just renewed, or gone, is looked at again, and nobody else's
// write depends on that.
func (r *Reconciler) writeEach(ctx context.Context, candidates []*strategy.Candidate, write func(leaseapi.CandidateKind, *strategy.Candidate) error) error {
	var group errgroup.Group
	group.SetLimit(maxParallelPings)
	for _, c := range candidates {
		kind := r.kindOf(c)
		if kind == nil {
			// Not served any more. What is known of its candidates is about to be dropped.
			continue
		}
		group.Go(func() error {
			err := write(kind, c)
			switch {
			case leaseapi.NotServed(err):
				// By this API server: others may, or it did a moment ago. The candidate is none the worse for it.
				return err
			case apierrors.IsConflict(err), apierrors.IsNotFound(err):
				r.Metrics.Failed(observe.FailureConflict)
				return r.refreshCandidate(ctx, kind, c)
			}
			return err
		})
	}
	return group.Wait()
}

// failure decides what a failed write means. A conflict is no error: somebody else wrote first, and what they wrote
// is read and decided on. It returns nil if the lease is to be looked at again at once.
func (r *Reconciler) failure(ctx context.Context, key types.NamespacedName, err error) error {
	switch {
	case leaseapi.NotServed(err):
		r.Metrics.Failed(observe.FailureError)
		r.surprised()
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		r.Metrics.Failed(observe.FailureConflict)
		return r.refreshLease(ctx, key)
	case apierrors.IsForbidden(err):
		r.Metrics.Failed(observe.FailureForbidden)
		r.surprised()
	default:
		r.Metrics.Failed(observe.FailureError)
	}
	return err
}

func (r *Reconciler) surprised() {
	if r.Surprised != nil {
		r.Surprised()
	}
}

// refreshLease reads the lease from the API server, since what is known of it is out of date.
func (r *Reconciler) refreshLease(ctx context.Context, key types.NamespacedName) error {
	var lease coordinationv1.Lease
	err := r.Reader.Get(ctx, key, &lease)
	switch {
	case apierrors.IsNotFound(err):
		r.Observer.SeeLeaseMissing(key)
		return nil
	case err != nil:
		return fmt.Errorf("reading lease %s after a conflict: %w", key, err)
	}
	r.Observer.SeeLease(&lease)
	return nil
}

func (r *Reconciler) refreshCandidate(ctx context.Context, kind leaseapi.CandidateKind, c *strategy.Candidate) error {
	obj := kind.New()
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	err := r.Reader.Get(ctx, key, obj)
	switch {
	case apierrors.IsNotFound(err) && !leaseapi.NotServed(err):
		r.LookAt(r.Observer.SeeCandidateDeleted(c))
		return nil
	case err != nil:
		return fmt.Errorf("reading candidate %s after a conflict: %w", key, err)
	}
	r.Observer.SeeCandidate(kind.Candidate(obj), false)
	return nil
}
