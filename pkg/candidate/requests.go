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
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lease-coordinator/coordinator/internal/candidacy"
)

func (l *loop) readLease() {
	obj, version, err := l.c.api.read(l.base, l.c.api.leases(), l.c.config.LeaseName)
	var lease candidacy.Lease
	if err == nil {
		lease, err = leaseFrom(obj, version)
	}
	l.trouble.report(l.base, "reading the lease", err)
	if refused(err) {
		l.hold(l.c.config.RetryPeriod)
	}
	l.post(func(at candidacy.Instant) []candidacy.Effect {
		if err == nil {
			l.leaseNews.learn(lease.Version, at.Mono)
		}
		if l.work == nil && (err != nil || lease.Version == l.leaseNews.shown) {
			// The holder is silent, or all is. Whoever answers the coordinator now leads next, and a connection may be dead
			// although its peer answers for it.
			poke(l.renewLease)
			poke(l.renewObject)
		}
		return l.machine.LeaseRead(lease, err != nil, at)
	})
}

func (l *loop) writeLease(w candidacy.WriteLease, sent time.Duration, former *unstructured.Unstructured) {
	outcome, after, err := l.c.api.writeLease(l.base, l.c.config.LeaseName, &w, former)
	if outcome == candidacy.Conflicted {
		l.log.V(1).Info("Somebody else wrote the lease first", "write", w.Why)
		err = nil
	}
	l.trouble.report(l.base, "writing the lease", err)
	if refused(err) {
		l.hold(l.c.config.RetryPeriod)
	}
	l.post(func(at candidacy.Instant) []candidacy.Effect {
		if outcome == candidacy.Succeeded {
			l.leaseNews.learn(after.Version, at.Mono)
			l.claimed(w, sent)
		}
		return l.machine.LeaseWritten(outcome, after, at)
	})
}

// claimed takes in that a write has succeeded that was sent no earlier than that.
func (l *loop) claimed(w candidacy.WriteLease, sent time.Duration) {
	switch w.Why {
	case candidacy.Renew:
		// The state machine says whether a Lease that was put back is ours; it tells publish.
		if l.work != nil && w.Base.Exists {
			l.work.term.claim.extend(sent + l.c.config.LeaseDuration)
		}
	case candidacy.TakeUp:
		l.claimedAt = sent
	case candidacy.SelfClaim:
		l.claimedAt = sent
		l.log.Info("Took the lease, since no coordinator does anything about it")
	case candidacy.Transfer:
		l.log.Info("Handed the lease over")
	case candidacy.Release:
		l.log.Info("Released the lease")
	}
}

func (l *loop) followLease() {
	f := follower{
		api: l.c.api, of: l.c.api.leases(), name: l.c.config.LeaseName, renew: l.renewLease, retry: l.c.config.RetryPeriod,
		complain: func(err error) { l.trouble.report(l.base, "following the lease", err) },
		see: func(obj *unstructured.Unstructured, version uint64) {
			lease, err := leaseFrom(obj, version)
			l.trouble.report(l.base, "reading the lease", err)
			if err != nil {
				return
			}
			l.post(func(at candidacy.Instant) []candidacy.Effect {
				l.leaseNews.show(version, at.Mono)
				if obj != nil {
					l.lease = obj
				}
				return l.machine.SeeLease(lease, at)
			})
		},
	}
	for {
		err := f.run(l.base)
		if l.base.Err() != nil {
			return
		}
		f.complain(err)
		if sleep(l.base, jitter(l.c.config.RetryPeriod)) != nil {
			return
		}
	}
}

func (l *loop) unserved() {
	l.post(func(at candidacy.Instant) []candidacy.Effect {
		l.object = nil
		return l.machine.SeeRegistration(candidacy.Registration{Known: true, Unserved: true, Kind: l.kind.Group, Version: l.objectVersion}, at)
	})
}

func (l *loop) seeRegistration(kind schema.GroupVersionResource, obj *unstructured.Unstructured, version uint64) {
	seen, err := l.c.registration.from(kind, obj, version)
	l.trouble.report(l.base, "reading the candidate", err)
	if err != nil {
		return
	}
	l.post(func(at candidacy.Instant) []candidacy.Effect {
		l.turnTo(kind)
		l.objectNews.show(version, at.Mono)
		l.remember(obj, version)
		return l.machine.SeeRegistration(seen, at)
	})
}

// remember keeps the latest state of the candidate's object.
func (l *loop) remember(obj *unstructured.Unstructured, version uint64) {
	if version >= l.objectVersion {
		l.object, l.objectVersion = obj, version
	}
}

func (l *loop) writeRegistration(w candidacy.WriteRegistration) {
	kind, seen, version, written := l.kind, l.object, l.objectVersion, l.written
	pause := min(l.c.config.RetryPeriod<<min(l.refusals, 10), maxPause)
	l.tasks.Go(func() {
		obj, err := l.c.api.writeRegistration(l.base, &l.c.registration, kind, w, seen, written)
		var after candidacy.Registration
		if l.c.api.noted(err) == nil && obj != nil {
			version, err = parseObjectVersion(obj.GetResourceVersion())
		}
		if err == nil {
			after, err = l.c.registration.from(kind, obj, version)
		}
		outcome := outcomeOf(err, candidacy.Conflicted)
		if w.Why == candidacy.Resign && outcome == candidacy.Succeeded {
			// Also if it is an operator's mark that says so.
			after.Resigned = true
		}
		if outcome == candidacy.Conflicted {
			err = nil
		}
		l.trouble.report(l.base, "writing the candidate", err)
		turnedDown := refused(err)
		if turnedDown {
			l.hold(jitter(pause))
		}
		l.post(func(at candidacy.Instant) []candidacy.Effect {
			l.refusals++
			if !turnedDown {
				l.refusals = 0
			}
			switch {
			case kind.Group != l.kind.Group:
				// The candidate has turned to another kind meanwhile, and this is no news of the object there.
				return l.machine.RegistrationWritten(candidacy.Failed, candidacy.Registration{}, at)
			case outcome != candidacy.Succeeded:
				// What is there now is news.
				poke(l.renewObject)
			case obj != nil:
				l.written = obj.GetUID()
				l.objectNews.learn(version, at.Mono)
				l.remember(obj, version)
				l.leaveFormer()
			default:
				l.remember(nil, version)
			}
			return l.machine.RegistrationWritten(outcome, after, at)
		})
	})
}

// maxPause is the longest time between attempts to write what the API server refuses.
const maxPause = 30 * time.Second

// refused reports whether the API server has refused a request for a reason that only people can change: a right that is
// missing, a value that it does not accept.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsMethodNotSupported(err)
}

// hold keeps a result back for a while, so that a request which is refused is not repeated in a hurry; the state machine
// sends no other of its kind meanwhile. A candidate that leaves does not wait.
func (l *loop) hold(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.left:
	case <-l.over:
	}
}

// refresh begins watches anew that do not show what is known from elsewhere. A connection may be dead without either end
// having noticed.
func (l *loop) refresh(now time.Duration) {
	grace := l.c.config.RetryPeriod
	leaseStale, objectStale := l.leaseNews.stale(now, grace), l.objectNews.stale(now, grace)
	if leaseStale {
		l.log.V(1).Info("Watching the lease anew")
		l.leaseNews.since = now
		poke(l.renewLease)
	}
	// Both took the same way.
	if leaseStale || objectStale {
		l.objectNews.since = now
		poke(l.renewObject)
	}
}

func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// trouble has each fault logged once, until it changes or goes.
type trouble struct {
	log  logr.Logger
	mu   sync.Mutex
	last map[string]error
}

// report says how an attempt went. What fails because the candidacy has ended does not count.
func (t *trouble) report(ctx context.Context, attempt string, err error) {
	if ctx.Err() != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last := t.last[attempt]
	switch {
	case err == nil && last == nil:
	case err == nil:
		delete(t.last, attempt)
		t.log.V(1).Info("What failed works again", "attempt", attempt)
	default:
		t.last[attempt] = fmt.Errorf("%s: %w", attempt, err)
		if last == nil || last.Error() != t.last[attempt].Error() {
			t.log.Error(err, "Trying again", "attempt", attempt)
		}
	}
}

// all returns what is wrong at present.
func (t *trouble) all() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var faults []error
	for _, err := range t.last {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}
