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
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/observe"
)

// memoryLock is a lock in memory, with compare-and-swap as each holder's LeaseLock has it.
type memoryLock struct {
	identity string
	store    *lockStore
	seen     int
	// fails, if set, is what writes end in.
	fails error
}

type lockStore struct {
	record  resourcelock.LeaderElectionRecord
	version int
}

var errConflict = errors.New("conflict")

func (m *memoryLock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	m.seen = m.store.version
	record := m.store.record
	return &record, []byte{byte(m.store.version)}, nil
}

func (m *memoryLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return m.Update(ctx, record)
}

func (m *memoryLock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	if m.fails != nil {
		return m.fails
	}
	if m.seen != m.store.version {
		return errConflict
	}
	m.store.record = record
	m.store.version++
	m.seen = m.store.version
	return nil
}

func (m *memoryLock) RecordEvent(string) {}
func (m *memoryLock) Identity() string   { return m.identity }
func (m *memoryLock) Describe() string   { return "memory" }

const (
	ours        = v1alpha1.CoordinatorIdentityPrefix + "a"
	othersOfUs  = v1alpha1.CoordinatorIdentityPrefix + "b"
	theirs      = "kube-apiserver-x"
	leaseLength = 15 * time.Second
	deadline    = 10 * time.Second
)

func record(holder string) resourcelock.LeaderElectionRecord {
	now := metav1.NewTime(time.Now())
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15, AcquireTime: now, RenewTime: now}
}

// newTestLock returns a lock and how often it was released and renewed.
func newTestLock(store *lockStore) (lock *ownLock, inner *memoryLock, released, renewed *int) {
	released, renewed = new(int), new(int)
	inner = &memoryLock{identity: ours, store: store}
	return &ownLock{
		Interface: inner, validFor: deadline,
		beforeRelease: func() { *released++ },
		renewedLock:   func() { *renewed++ },
	}, inner, released, renewed
}

func TestOwnLockTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock, inner, released, renewed := newTestLock(&lockStore{})
		if _, until := lock.term(); until.After(time.Now()) {
			t.Error("a lock that was never taken is held")
		}
		if err := lock.Create(t.Context(), record(ours)); err != nil || *renewed != 1 {
			t.Fatalf("created: %v, %d renewals", err, *renewed)
		}
		taken := time.Now()
		elapse(2 * time.Second)
		inner.fails = errors.New("away")
		if err := lock.Update(t.Context(), record(ours)); err == nil {
			t.Fatal("the failure was lost")
		}
		if _, until := lock.term(); !until.Equal(taken.Add(deadline)) || *renewed != 1 {
			t.Errorf("a renewal that failed extends the term until %s after it was taken", until.Sub(taken))
		}
		inner.fails = nil
		if err := lock.Update(t.Context(), record(ours)); err != nil {
			t.Fatal(err)
		}
		if _, until := lock.term(); !until.Equal(taken.Add(2*time.Second + deadline)) {
			t.Errorf("renewed, it is held until %s after it was taken", until.Sub(taken))
		}
		// Whoever acts must have stopped before the lock is let go, whether or not that succeeds.
		inner.fails = errors.New("away")
		_ = lock.Update(t.Context(), record(""))
		if *released != 1 || *renewed != 2 {
			t.Errorf("%d releases, %d renewals", *released, *renewed)
		}
	})
}

// The in-tree coordinator's lock is taken at once, but acted on only when its claim has run out; a lock of our own is
// waited for.
func TestReplacingLock(t *testing.T) {
	for name, test := range map[string]struct {
		holder string
		shown  string
		wait   time.Duration
	}{
		"in-tree":          {theirs, "", leaseLength},
		"free":             {"", "", 0},
		"another of ours":  {othersOfUs, othersOfUs, 0},
		"this coordinator": {ours, ours, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &lockStore{record: record(test.holder)}
				own, _, _, _ := newTestLock(store)
				lock := &replacingLock{ownLock: own}
				shown, raw, err := lock.Get(t.Context())
				if err != nil || shown.HolderIdentity != test.shown || len(raw) == 0 {
					t.Fatalf("shown %q, %v", shown.HolderIdentity, err)
				}
				if store.record.HolderIdentity != test.holder {
					t.Error("reading changed the lock")
				}
				elapse(time.Second)
				if err := lock.Update(t.Context(), record(ours)); err != nil {
					t.Fatal(err)
				}
				if from, _ := lock.term(); max(time.Until(from), 0) != test.wait {
					t.Errorf("to wait %s, want %s", time.Until(from), test.wait)
				}
				// A renewal does not put off the beginning.
				before, _ := lock.term()
				if _, _, err := lock.Get(t.Context()); err != nil {
					t.Fatal(err)
				}
				elapse(2 * time.Second)
				if err := lock.Update(t.Context(), record(ours)); err != nil {
					t.Fatal(err)
				}
				if from, _ := lock.term(); !from.Equal(before) {
					t.Errorf("a renewal moved the beginning by %s", from.Sub(before))
				}
			})
		})
	}
}

// An in-tree coordinator that renews between our look and our write keeps the lock.
func TestReplacingLockLosesRace(t *testing.T) {
	store := &lockStore{record: record(theirs)}
	own, _, _, renewed := newTestLock(store)
	lock := &replacingLock{ownLock: own}
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	rival := &memoryLock{identity: theirs, store: store, seen: store.version}
	if err := rival.Update(t.Context(), record(theirs)); err != nil {
		t.Fatal(err)
	}
	if err := lock.Update(t.Context(), record(ours)); !errors.Is(err, errConflict) || *renewed != 0 {
		t.Errorf("the rival's renewal was overwritten: %v", err)
	}
	if !lock.deposing {
		t.Error("forgot that the lock is the in-tree coordinator's")
	}
}

func newTestLeadership(lock heldLock) (*leadership, *int) {
	o, elected := NewOptions(), new(int)
	return &leadership{
		options: o, identity: ours, lock: lock, logger: logr.Discard(),
		elected: func() { *elected++ },
		metrics: observe.NewMetrics(prometheus.NewRegistry()),
	}, elected
}

// After a pause nothing is done under a lock that may be another's by now, and what was left undone is made up for
// when the lock turns out to be still ours.
func TestActOnlyInTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, _, _, _ := newTestLock(&lockStore{})
		l, elected := newTestLeadership(own)
		own.renewedLock = l.renewed
		if _, active := l.Act(); active {
			t.Error("active before it has led")
		}
		if err := own.Update(t.Context(), record(ours)); err != nil {
			t.Fatal(err)
		}
		l.lead(t.Context())
		done, active := l.Act()
		if !active || *elected != 1 {
			t.Fatalf("active %t after it was elected %d times", active, *elected)
		}
		done()
		elapse(deadline - 1)
		if done, active := l.Act(); !active {
			t.Error("not active within the renew deadline")
		} else {
			done()
		}
		elapse(1)
		if _, active := l.Act(); active {
			t.Error("active at the end of the renew deadline")
		}
		if err := own.Update(t.Context(), record(ours)); err != nil || *elected != 2 {
			t.Errorf("after the renewal it looked again %d times, %v", *elected-1, err)
		}
		if err := own.Update(t.Context(), record(ours)); err != nil || *elected != 2 {
			t.Errorf("with nothing left undone it looked again %d times, %v", *elected-1, err)
		}
		if done, active := l.Act(); !active {
			t.Error("not active after the renewal")
		} else {
			done()
		}
	})
}

// A coordinator that finds, in the middle of its term, that a kube-apiserver took the lock while it was paused takes
// it back at once, but waits that claim out before it acts.
func TestActWaitsForDeposedInMidTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lockStore{}
		own, _, _, _ := newTestLock(store)
		lock := &replacingLock{ownLock: own}
		l, elected := newTestLeadership(lock)
		own.renewedLock = l.renewed
		if err := lock.Update(t.Context(), record(ours)); err != nil {
			t.Fatal(err)
		}
		l.lead(t.Context())
		elapse(20 * time.Second)
		store.record, store.version = record(theirs), store.version+1
		if _, _, err := lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := lock.Update(t.Context(), record(ours)); err != nil {
			t.Fatal(err)
		}
		for range 7 {
			if _, active := l.Act(); active {
				t.Fatal("active beside the in-tree coordinator")
			}
			elapse(2 * time.Second)
			if err := lock.Update(t.Context(), record(ours)); err != nil {
				t.Fatal(err)
			}
		}
		elapse(time.Second)
		if err := lock.Update(t.Context(), record(ours)); err != nil {
			t.Fatal(err)
		}
		if done, active := l.Act(); !active || *elected != 2 {
			t.Errorf("15 s later active %t, looked again %d times", active, *elected-1)
		} else {
			done()
		}
	})
}

// Nobody is told that this coordinator has stopped before what it does has ended.
func TestSetActiveWaitsForWork(t *testing.T) {
	l, _ := newTestLeadership(nil)
	l.setActive(true)
	done, active := l.Act()
	if !active {
		t.Fatal("not active")
	}
	var working atomic.Bool
	working.Store(true)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		l.setActive(false)
		if working.Load() {
			t.Error("stopped in the middle of a decision")
		}
	}()
	// Until it waits for the decision to end, another may begin.
	for l.acting.TryRLock() {
		l.acting.RUnlock()
		runtime.Gosched()
	}
	working.Store(false)
	done()
	<-stopped
	if _, active := l.Act(); active {
		t.Error("active after it has stopped")
	}
}

// elapse lets that much virtual time pass.
func elapse(d time.Duration) { <-time.After(d) }
