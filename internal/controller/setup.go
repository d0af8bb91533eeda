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
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

type (
	queue   = workqueue.TypedRateLimitingInterface[reconcile.Request]
	limiter = workqueue.TypedRateLimiter[reconcile.Request]
)

const (
	// retryMin and retryMax bound the back-off after an error, such as an API server that is away: the longest
	// wait is also the longest that an election is delayed once the API server is back.
	retryMin = 20 * time.Millisecond
	retryMax = 2 * time.Second
)

// SetupWithManager adds the controller to a manager. Its watches run on standbys too, and feed the observer; those of
// candidates begin with Follow.
// The manager's own leader election is not used: see Act.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	c, err := controller.New("election", mgr, controller.Options{
		Reconciler:              r,
		MaxConcurrentReconciles: 4,
		NeedLeaderElection:      ptr.To(false),
		// Several coordinators may run in one process, in tests.
		SkipNameValidation: ptr.To(true),
		RateLimiter:        limiter(workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryMin, retryMax)),
	})
	if err != nil {
		return fmt.Errorf("creating the election controller: %w", err)
	}
	sources := []source.Source{
		source.Kind(mgr.GetCache(), &coordinationv1.Lease{}, r.leaseEvents()),
		source.Func(func(_ context.Context, q queue) error {
			r.queue.Store(&q)
			// What was seen before there was a queue.
			r.LookAt(r.Observer.Coordinated())
			return nil
		}),
	}
	for _, s := range sources {
		if err := c.Watch(s); err != nil {
			return fmt.Errorf("watching for the election controller: %w", err)
		}
	}
	if err := mgr.Add(watchingLeases{mgr.GetCache(), r.Observer}); err != nil {
		return fmt.Errorf("watching for the election controller: %w", err)
	}
	return nil
}

// watchingLeases tells the observer when the watch of Leases has begun, on standbys too.
type watchingLeases struct {
	cache    cache.Cache
	observer *Observer
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (watchingLeases) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (w watchingLeases) Start(ctx context.Context) error {
	// It is returned once it has synced.
	if _, err := w.cache.GetInformer(ctx, &coordinationv1.Lease{}); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("waiting for the watch of Leases: %w", err)
	}
	w.observer.Watching()
	return nil
}

// LookAt asks for a decision on the given leases, although nothing has happened to them.
func (r *Reconciler) LookAt(leases []types.NamespacedName) {
	q := r.queue.Load()
	if q == nil {
		// The controller is about to start, and looks at every lease that has candidates then.
		return
	}
	for _, key := range leases {
		(*q).Add(reconcile.Request{NamespacedName: key})
	}
}

func (r *Reconciler) leaseEvents() handler.TypedFuncs[*coordinationv1.Lease, reconcile.Request] {
	see := func(ctx context.Context, lease *coordinationv1.Lease, seen LeaseSeen, q queue) {
		key := client.ObjectKeyFromObject(lease)
		r.noticed(log.FromContext(ctx).WithValues("lease", key.String()), seen)
		if seen.Decide {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return handler.TypedFuncs[*coordinationv1.Lease, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*coordinationv1.Lease], q queue) {
			see(ctx, e.Object, r.Observer.SeeLease(e.Object), q)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*coordinationv1.Lease], q queue) {
			see(ctx, e.ObjectNew, r.Observer.SeeLease(e.ObjectNew), q)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*coordinationv1.Lease], q queue) {
			see(ctx, e.Object, r.Observer.SeeLeaseDeleted(e.Object, e.DeleteStateUnknown), q)
		},
	}
}
