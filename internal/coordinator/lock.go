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
	"context"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// ownLock is the coordinator's own lock, and knows for how long it is surely held.
type ownLock struct {
	resourcelock.Interface
	// validFor is how long a renewal counts: the renew deadline, so that what was begun under the lock has the rest
	// of the lease duration to arrive before another coordinator can be active.
	validFor time.Duration
	// beforeRelease is called before the lock is let go. client-go's elector calls OnStoppedLeading only after,
	// when somebody else may hold the lock already.
	beforeRelease func()
	// renewedLock is called after the lock was taken or renewed.
	renewedLock func()

	mu      sync.Mutex
	renewed time.Time
}

// Create implements resourcelock.Interface.
func (l *ownLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (l *ownLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(record, func() error { return l.Interface.Update(ctx, record) })
}

func (l *ownLock) write(record resourcelock.LeaderElectionRecord, write func() error) error {
	release := record.HolderIdentity == ""
	if release {
		l.beforeRelease()
	}
	// The claim runs from before it was sent: others see it later than that.
	sent := time.Now()
	if err := write(); err != nil || release {
		return err
	}
	l.mu.Lock()
	l.renewed = sent
	l.mu.Unlock()
	l.renewedLock()
	return nil
}

// term returns between which times this coordinator may act. client-go's elector cannot tell: it takes itself for
// the leader until it has tried in vain for its whole renew deadline, however long the process had been paused
// before it tried.
func (l *ownLock) term() (from, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Time{}, l.renewed.Add(l.validFor)
}

// lockWatch is what the coordinator sees of its own lock besides reading it.
type lockWatch struct {
	// seen returns the Lease as the watch last showed it; nil if it has not.
	seen func(types.NamespacedName) *coordinationv1.Lease
	// failed is told of each error.
	failed func(error)
}

// watchedLeases reads a Lease from what the watch of Leases has shown, so that a standby costs no requests. After a write that
// failed, as it does on a Lease that has changed since, it asks the API server. It is used from one goroutine.
type watchedLeases struct {
	coordinationv1client.LeasesGetter
	watch lockWatch
	ask   bool
}

// Leases implements coordinationv1client.LeasesGetter.
func (w *watchedLeases) Leases(namespace string) coordinationv1client.LeaseInterface {
	return watchedLease{w.LeasesGetter.Leases(namespace), w, namespace}
}

type watchedLease struct {
	coordinationv1client.LeaseInterface
	leases    *watchedLeases
	namespace string
}

// Get implements coordinationv1client.LeaseInterface.
func (w watchedLease) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	if seen := w.leases.watch.seen(types.NamespacedName{Namespace: w.namespace, Name: name}); seen != nil && !w.leases.ask {
		return seen.DeepCopy(), nil
	}
	lease, err := w.LeaseInterface.Get(ctx, name, options)
	return lease, w.noted(err)
}

// Create implements coordinationv1client.LeaseInterface.
func (w watchedLease) Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error) {
	created, err := w.LeaseInterface.Create(ctx, lease, options)
	return created, w.noted(err)
}

// Update implements coordinationv1client.LeaseInterface.
func (w watchedLease) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	updated, err := w.LeaseInterface.Update(ctx, lease, options)
	return updated, w.noted(err)
}

func (w watchedLease) noted(err error) error {
	w.leases.ask = err != nil
	if err != nil {
		w.leases.watch.failed(err)
	}
	return err
}

// replacingLock is the in-tree coordinator's lock as ours: whatever kube-apiserver holds it, we take it at once, by
// compare-and-swap, and wait its claim out before we act. The deposed in-tree coordinator stops when its renew
// deadline has passed, and takes the lock back like any plain elector once we stop renewing. A lock held by another
// coordinator of this project is waited for as usual.
//
// It is used by one elector, from one goroutine; term may be called from any.
type replacingLock struct {
	*ownLock

	deposing      bool
	theirDuration time.Duration

	mu         sync.Mutex
	activeFrom time.Time
}

// Get implements resourcelock.Interface. A lock held by a kube-apiserver is shown to the elector as free.
func (l *replacingLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.ownLock.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	l.deposing = record.HolderIdentity != "" && !strings.HasPrefix(record.HolderIdentity, v1alpha1.CoordinatorIdentityPrefix)
	if l.deposing {
		l.theirDuration = time.Duration(record.LeaseDurationSeconds) * time.Second
		shown := *record
		shown.HolderIdentity = ""
		return &shown, raw, nil
	}
	return record, raw, nil
}

// Update implements resourcelock.Interface.
func (l *replacingLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.deposing {
		// Their last renewal was before the Get that this compare-and-swap is based on. An elector of ours may
		// depose in the middle of its term, after a pause, so this is not for the beginning of a term alone.
		l.mu.Lock()
		l.activeFrom = time.Now().Add(l.theirDuration)
		l.mu.Unlock()
	}
	if err := l.ownLock.Update(ctx, record); err != nil {
		return err
	}
	l.deposing = false
	return nil
}

// term returns between which times this coordinator may act: not before a deposed in-tree coordinator has stopped.
func (l *replacingLock) term() (from, until time.Time) {
	_, until = l.ownLock.term()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.activeFrom, until
}
