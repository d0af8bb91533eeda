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
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	configv1alpha1 "github.com/lease-coordinator/coordinator/api/config/v1alpha1"
	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/observe"
)

// leadership is the coordinator's own leader election. Unlike the manager's it survives the loss of the lock: the
// coordinator goes back to observing and competes again, in the same process and with what it has observed.
type leadership struct {
	options  *Options
	identity string
	lock     heldLock
	logger   logr.Logger
	// elected is called each time this coordinator becomes the active one.
	elected func()
	metrics *observe.Metrics

	// acting is held for reading while a decision is carried out, and for writing to change active.
	acting sync.RWMutex
	active bool
	// turnedAway is set when a decision was not carried out although active, since the lock was not surely held.
	turnedAway atomic.Bool
}

// heldLock is a lock that knows between which times its holder may act.
type heldLock interface {
	resourcelock.Interface
	term() (from, until time.Time)
}

// newIdentity returns an identity for this process in the coordinator's own lock.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("finding out this host's name: %w", err)
	}
	return v1alpha1.CoordinatorIdentityPrefix + host + "_" + string(uuid.NewUUID()), nil
}

// lockKey names the Lease that is the coordinator's own lock.
func (o *Options) lockKey() types.NamespacedName {
	if o.InTree == configv1alpha1.InTreeReplace {
		return types.NamespacedName{Namespace: v1alpha1.InTreeLockNamespace, Name: v1alpha1.InTreeLockName}
	}
	return types.NamespacedName{Namespace: o.LockNamespace, Name: o.LockName}
}

func newLeadership(o *Options, config *rest.Config, identity string, watch lockWatch, metrics *observe.Metrics, logger logr.Logger) (*leadership, error) {
	l := &leadership{options: o, identity: identity, elected: func() {}, metrics: metrics, logger: logger.WithName("leadership")}
	if !o.LeaderElect {
		return l, nil
	}
	// A request that hangs must leave time for another within the renew deadline.
	config = rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	config.Timeout = o.RenewDeadline / 2
	client, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client for leader election: %w", err)
	}
	key := o.lockKey()
	lock := &ownLock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Client:     &watchedLeases{LeasesGetter: client, watch: watch},
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		validFor:      o.RenewDeadline,
		beforeRelease: func() { l.setActive(false) },
		renewedLock:   l.renewed,
	}
	if l.lock = lock; o.InTree == configv1alpha1.InTreeReplace {
		l.lock = &replacingLock{ownLock: lock}
	}
	return l, nil
}

// NeedLeaderElection tells the manager to start this runnable at once.
func (l *leadership) NeedLeaderElection() bool { return false }

// Act implements controller.Reconciler's Act.
func (l *leadership) Act() (done func(), active bool) {
	l.acting.RLock()
	if !l.active {
		l.acting.RUnlock()
		return nil, false
	}
	if !l.inTerm() {
		// After a pause of this process. Set before the lock is let go, so that a renewal from now on sees it.
		l.turnedAway.Store(true)
		l.acting.RUnlock()
		return nil, false
	}
	return l.acting.RUnlock, true
}

// inTerm reports whether no other coordinator can be active now, provided that this one is.
func (l *leadership) inTerm() bool {
	if l.lock == nil {
		return true
	}
	from, until := l.lock.term()
	now := time.Now()
	return !now.Before(from) && now.Before(until)
}

// renewed makes up for the decisions that were not carried out while the lock was not surely held.
func (l *leadership) renewed() {
	l.acting.RLock()
	again := l.active && l.inTerm() && l.turnedAway.Swap(false)
	l.acting.RUnlock()
	if again {
		l.elected()
	}
}

// setActive returns when no decision is being carried out under the former state.
func (l *leadership) setActive(active bool) {
	l.acting.Lock()
	defer l.acting.Unlock()
	l.active = active
	l.metrics.Active(active)
}

// Start competes for the lock until ctx is done, then lets go of it once nothing is being carried out.
func (l *leadership) Start(ctx context.Context) error {
	if l.lock == nil {
		l.setActive(true)
		l.elected()
		<-ctx.Done()
		l.setActive(false)
		return nil
	}
	// The elector's context outlives ctx by as long as decisions are being carried out, so that the lock is
	// released only after that.
	electorCtx, cancel := context.WithCancel(logr.NewContext(context.WithoutCancel(ctx), l.logger))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		l.setActive(false)
		cancel()
	})
	defer stop()
	for electorCtx.Err() == nil {
		if err := l.compete(electorCtx); err != nil {
			return err
		}
	}
	return nil
}

// compete runs one elector: until it has lost the lock, or ctx is done.
func (l *leadership) compete(ctx context.Context) error {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            l.lock,
		Name:            l.lock.Describe(),
		LeaseDuration:   l.options.LeaseDuration,
		RenewDeadline:   l.options.RenewDeadline,
		RetryPeriod:     l.options.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { l.lead(ctx) },
			OnStoppedLeading: func() {
				l.setActive(false)
				l.logger.Info("Coordinator does not hold its lock", "lock", l.lock.Describe(), "identity", l.identity)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("creating the elector of the coordinator's own lock: %w", err)
	}
	elector.Run(ctx)
	return nil
}

// lead makes this coordinator the active one, once nobody else can be.
func (l *leadership) lead(ctx context.Context) {
	from, _ := l.lock.term()
	if wait := time.Until(from); wait > 0 {
		l.logger.Info("Lock taken from the in-tree coordinator; waiting until its claim has run out", "lock", l.lock.Describe(), "wait", wait.String())
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
	l.acting.Lock()
	// The lock may be lost already; whoever ends the term sets active to false after ctx is done.
	l.active = ctx.Err() == nil
	l.metrics.Active(l.active)
	l.acting.Unlock()
	if ctx.Err() != nil {
		return
	}
	l.logger.Info("Coordinator active", "lock", l.lock.Describe(), "identity", l.identity)
	l.elected()
}
