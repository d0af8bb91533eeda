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

	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// ownLock is the coordinator's own lock.
type ownLock struct {
	*resourcelock.LeaseLock
	// beforeRelease is called before the lock is let go. client-go's elector calls OnStoppedLeading only after,
	// when somebody else may hold the lock already.
	beforeRelease func()
}

// Update implements resourcelock.Interface.
func (l *ownLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		l.beforeRelease()
	}
	return l.LeaseLock.Update(ctx, record)
}

// replacingLock is the in-tree coordinator's lock as ours: whatever kube-apiserver holds it, we take it at once, by
// compare-and-swap, and wait its claim out before we act. The deposed in-tree coordinator stops when its renew
// deadline has passed, and takes the lock back like any plain elector once we stop renewing. A lock held by another
// coordinator of this project is waited for as usual.
//
// It is used by one elector, from one goroutine; ActiveFrom may be called from any.
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
	if err := l.ownLock.Update(ctx, record); err != nil {
		return err
	}
	if l.deposing {
		l.deposing = false
		l.mu.Lock()
		l.activeFrom = time.Now().Add(l.theirDuration)
		l.mu.Unlock()
	}
	return nil
}

// ActiveFrom returns the time before which a deposed in-tree coordinator may still be at work.
func (l *replacingLock) ActiveFrom() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.activeFrom
}
