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

package candidate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

var (
	// ErrEndOfTerm says that another candidate is to lead: leadership ends as planned. It is the cause of the end of
	// Lead's context, and what the Runnable of a ResourceLock returns.
	ErrEndOfTerm = errors.New("the term has ended")
	// ErrLostLease is the same for an end that nobody has planned: the lease could not be renewed, somebody else holds it,
	// or Healthy says that this process is not fit to lead.
	ErrLostLease = errors.New("leadership was lost")
)

// ending returns the cause with which Lead's context ends. It runs in the loop's goroutine.
func (l *loop) ending(why string) error {
	cause := fmt.Errorf("leadership of %s/%s ends: %s", l.c.config.Namespace, l.c.config.LeaseName, why)
	lease, _ := l.machine.Following()
	id := l.c.config.Identity
	switch {
	case l.leaving:
		return cause
	case lease.Exists && lease.Holder == id && lease.Preferred != "" && lease.Preferred != id:
		return fmt.Errorf("%w: %w", ErrEndOfTerm, cause)
	}
	return fmt.Errorf("%w: %w", ErrLostLease, cause)
}

// startPatience is how long an elector waits for the Runnable to be started. A manager starts it before the elector.
const startPatience = 10 * time.Second

// nobody is the holder that an elector is shown while the lease has none: it must not take an empty one.
const nobody = v1alpha1.Group + "/nobody"

// ResourceLock makes an unmodified controller-runtime manager a candidate. Its leader elector asks the lock, and the lock
// answers for the Candidate in it: the elector leads from when the candidate has taken up a term until the manager has
// stopped what needs leadership, and sends no request of its own. Make it with NewResourceLock.
//
// All methods may be called from any goroutine at any time. Get, Create, Update, RecordEvent, Identity and Describe are for
// the elector.
type ResourceLock struct {
	candidate *Candidate
	runnable  *Runnable
	// released is closed when the elector has released the lease, and ended when the candidate's Run has returned.
	released, ended chan struct{}
	// told has the reason for which leadership ends, once it does, or why the manager is to end without ever having led.
	told chan error

	mu sync.Mutex
	// changed is closed, and made anew, with each change of what follows.
	changed chan struct{}
	// started is set when the Runnable was. stopping is set when it ends: from then on the manager stops what it runs.
	started, stopping bool
	resign            context.CancelFunc
	// term is what the elector may take, or has taken, and since when; nil if there is none.
	term  *Term
	since time.Time
	// taken is set once the elector leads, and gone once it does no more.
	taken, gone bool
}

// NewResourceLock checks a configuration, whose Lead must not be set, and returns a lock for one manager:
//
//	lock, err := candidate.NewResourceLock(config)
//	...
//	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
//		LeaderElection:                      true,
//		LeaderElectionReleaseOnCancel:       true,
//		LeaderElectionResourceLockInterface: lock,
//	})
//	...
//	err = mgr.Add(lock.Runnable())
//
// The manager registers as a candidate once its caches have synced, and starts its controllers as soon as the candidate has
// taken up the lease. At the end of its term, or on loss, its Start returns an error that wraps ErrEndOfTerm or ErrLostLease;
// if the context of Start ends, it returns nil. Either way, by the time that Start returns, the controllers have stopped,
// the lease was handed to the successor or released, and the LeaseCandidate is gone; or the API server has not answered for
// RenewDeadline. Like any manager with leader election, it cannot be started again, and its process must end then. RunManager
// is for a process that lives on.
//
// Who hands over too early has two leaders, so the lock believes a release only if the manager was stopping before, and
// expects of the manager that
//
//   - LeaderElectionReleaseOnCancel is set. Otherwise nothing says that the controllers have stopped, the lease is never
//     handed over, and the next leader waits until the claim has run out;
//   - GracefulShutdownTimeout is -1, or at least DrainLimit, as the default is. When that has passed, a manager releases
//     the lease although its controllers still run. DrainLimit ends the process before, and does not release.
//
// The lock is not for an elector of one's own whose context ends before the work has ended: that releases at once. Use New.
func NewResourceLock(config Config) (*ResourceLock, error) {
	l := &ResourceLock{
		released: make(chan struct{}), ended: make(chan struct{}), changed: make(chan struct{}), told: make(chan error, 1),
	}
	l.runnable = &Runnable{l}
	var fault error
	if config.Lead != nil {
		fault = errors.New("making the resource lock: Lead must not be set: the manager is what leads")
	}
	config.Lead = l.lead
	candidate, err := New(config)
	if err := errors.Join(fault, err); err != nil {
		return nil, err
	}
	l.candidate = candidate
	return l, nil
}

// Runnable returns what the manager has to run for the lock to work.
func (l *ResourceLock) Runnable() *Runnable { return l.runnable }

// IsLeader is Candidate.IsLeader. It says no from the moment that the term is to end, while controllers are still being
// stopped.
func (l *ResourceLock) IsLeader() bool { return l.candidate.IsLeader() }

// Term is Candidate.Term. It has the fencing token for what a controller writes.
func (l *ResourceLock) Term() (Term, bool) { return l.candidate.Term() }

// Leader is Candidate.Leader.
func (l *ResourceLock) Leader() string { return l.candidate.Leader() }

// Check is Candidate.Check, for mgr.AddHealthzCheck.
func (l *ResourceLock) Check(r *http.Request) error { return l.candidate.Check(r) }

// Identity returns the holder identity.
func (l *ResourceLock) Identity() string { return l.candidate.Identity() }

// Describe returns namespace and name of the lease.
func (l *ResourceLock) Describe() string {
	return l.candidate.config.Namespace + "/" + l.candidate.config.LeaseName
}

// RecordEvent does nothing: coordinators record changes of leadership, and candidates need no right to do so.
func (l *ResourceLock) RecordEvent(string) {}

// Get returns the election record as the elector is to see it. Until the candidate leads, it does not return before ctx ends:
// an elector that was told anything else would not ask again for a RetryPeriod or two.
func (l *ResourceLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := l.await(ctx); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	record := &resourcelock.LeaderElectionRecord{
		HolderIdentity:       nobody,
		LeaseDurationSeconds: int(l.candidate.config.LeaseDuration / time.Second),
		AcquireTime:          metav1.NewTime(now),
		RenewTime:            metav1.NewTime(now),
	}
	l.mu.Lock()
	if l.holdsLocked() {
		record.HolderIdentity = l.Identity()
		record.AcquireTime = metav1.NewTime(l.since)
		record.LeaderTransitions = int(l.term.Transitions)
	} else if holder := l.candidate.Leader(); holder != "" && holder != l.Identity() {
		record.HolderIdentity = holder
	}
	l.mu.Unlock()
	raw, err := json.Marshal(record)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the record of lease %s: %w", l.Describe(), err)
	}
	// An elector goes by whether the record has changed since it last looked, and its times are whole seconds.
	return record, append(raw, strconv.FormatInt(now.UnixNano(), 10)...), nil
}

// await waits until there is something to see: the candidate has taken up a term, the elector leads or has led, or ctx ends.
func (l *ResourceLock) await(ctx context.Context) error {
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	for {
		l.mu.Lock()
		changed, started, settled := l.changed, l.started, l.taken || l.holdsLocked()
		l.mu.Unlock()
		if settled || ctx.Err() != nil {
			return nil
		}
		overdue := patience.C
		if started {
			overdue = nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-overdue:
			return fmt.Errorf("reading lease %s: its Runnable has not been started for %s: add Runnable() of the lock to the manager", l.Describe(), startPatience)
		}
	}
}

// Create refuses: a lease is made by a coordinator, or by the candidate.
func (l *ResourceLock) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	return fmt.Errorf("creating lease %s: only its candidate may", l.Describe())
}

// Update takes the lease for the elector, or keeps it, if the candidate's claim holds at this moment; the candidate renews it.
// An Update to no holder releases it, and returns when the lease was handed over and the candidate has withdrawn.
func (l *ResourceLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != l.Identity() {
		return l.release(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.holdsLocked() {
		return fmt.Errorf("renewing lease %s: %s does not hold it", l.Describe(), l.Identity())
	}
	if !l.taken {
		l.taken = true
		l.changedLocked()
	}
	return nil
}

func (l *ResourceLock) release(ctx context.Context) error {
	l.mu.Lock()
	if !l.stopping {
		// The elector has given up by itself, with all that needs leadership still at work.
		l.mu.Unlock()
		l.tell(fmt.Errorf("%w: the elector of lease %s has given up", ErrLostLease, l.Describe()))
		return fmt.Errorf("releasing lease %s: what needs leadership has not been stopped", l.Describe())
	}
	if !l.gone {
		l.gone = true
		close(l.released)
		l.changedLocked()
	}
	l.mu.Unlock()
	select {
	case <-l.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("releasing lease %s: %w", l.Describe(), ctx.Err())
	}
}

// holdsLocked reports whether the elector is to see this candidate as the holder. That goes on while the manager stops, or
// the elector would not release.
func (l *ResourceLock) holdsLocked() bool { return l.term != nil && l.term.Valid() && !l.gone }

func (l *ResourceLock) changedLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// lead is the candidate's work: it lasts until the elector has released the lease.
func (l *ResourceLock) lead(ctx context.Context) error {
	term, _ := TermFromContext(ctx)
	l.offer(term)
	limit := l.candidate.config.RenewDeadline
	unused := time.NewTimer(limit)
	defer unused.Stop()
	select {
	case <-l.released:
		return nil
	case <-ctx.Done():
	case <-unused.C:
		if l.withdraw() {
			return fmt.Errorf("leading by lease %s: no elector has asked for it in %s: set LeaderElection and "+
				"LeaderElectionResourceLockInterface of the manager's options", l.Describe(), limit)
		}
		select {
		case <-l.released:
			return nil
		case <-ctx.Done():
		}
	}
	if l.withdraw() {
		return nil
	}
	l.tell(context.Cause(ctx))
	<-l.released
	return nil
}

// offer lets the elector take the lease.
func (l *ResourceLock) offer(term Term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping {
		return
	}
	l.term, l.since = &term, time.Now()
	l.changedLocked()
}

// withdraw takes an offer back, and reports false if the elector has taken it.
func (l *ResourceLock) withdraw() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.taken {
		l.term = nil
	}
	return !l.taken
}

// tell has the Runnable return an error, if it still runs.
func (l *ResourceLock) tell(err error) {
	select {
	case l.told <- err:
	default:
	}
}

// stop has the candidate resign, and reports whether the elector has a lease to release.
func (l *ResourceLock) stop() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopping = true
	if !l.taken {
		l.term = nil
	}
	l.resign()
	return l.taken
}

// Runnable registers the candidate of a ResourceLock, answers the coordinator, and renews the lease. It is a
// manager.Runnable of controller-runtime, and runs in every replica.
type Runnable struct{ lock *ResourceLock }

// NeedLeaderElection returns false: without it there would be no leader.
func (r *Runnable) NeedLeaderElection() bool { return false }

// Start takes part in elections until ctx ends or leadership has been given to this process and is to end. It may be called
// once. A manager stops everything else when it returns; the lease is renewed until that is done, and then handed over.
func (r *Runnable) Start(ctx context.Context) error {
	l := r.lock
	// The manager ends this context first, while the controllers still work.
	run, resign := context.WithCancel(context.WithoutCancel(ctx))
	l.mu.Lock()
	if l.started {
		l.mu.Unlock()
		resign()
		return fmt.Errorf("starting the candidate of lease %s: a lock works for one manager only", l.Describe())
	}
	l.started, l.resign = true, resign
	l.changedLocked()
	l.mu.Unlock()

	var result error
	go func() {
		defer close(l.ended)
		defer resign()
		result = l.candidate.Run(run)
	}()
	var told error
	select {
	case <-ctx.Done():
	case told = <-l.told:
	case <-l.ended:
	}
	if l.stop() {
		return told
	}
	// Nothing has to be stopped or released.
	<-l.ended
	return errors.Join(told, result)
}
