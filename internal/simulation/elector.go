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

package simulation

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// timing is an elector's three durations.
type timing struct{ lease, renewDeadline, retry time.Duration }

// defaultTiming is that of the Kubernetes components.
var defaultTiming = timing{15 * time.Second, 10 * time.Second, 2 * time.Second}

// jitterFactor is client-go's.
const jitterFactor = 1.2

// record is client-go's LeaderElectionRecord.
type record struct {
	holder      string
	seconds     int32
	acquire     time.Time
	renew       time.Time
	transitions int32
	preferred   string
	strategy    coordinationv1.CoordinatedLeaseStrategy
}

// raw is a record as it is compared: encoded, its times have whole seconds.
func (r record) raw() record {
	r.acquire, r.renew = r.acquire.Truncate(time.Second), r.renew.Truncate(time.Second)
	return r
}

func recordOf(l *coordinationv1.Lease) record {
	var r record
	s := l.Spec
	if s.HolderIdentity != nil {
		r.holder = *s.HolderIdentity
	}
	if s.LeaseDurationSeconds != nil {
		r.seconds = *s.LeaseDurationSeconds
	}
	if s.LeaseTransitions != nil {
		r.transitions = *s.LeaseTransitions
	}
	if s.AcquireTime != nil {
		r.acquire = s.AcquireTime.Time
	}
	if s.RenewTime != nil {
		r.renew = s.RenewTime.Time
	}
	if s.PreferredHolder != nil {
		r.preferred = *s.PreferredHolder
	}
	if s.Strategy != nil {
		r.strategy = *s.Strategy
	}
	return r
}

func (r record) spec() coordinationv1.LeaseSpec {
	spec := coordinationv1.LeaseSpec{
		HolderIdentity:       &r.holder,
		LeaseDurationSeconds: &r.seconds,
		AcquireTime:          &metav1.MicroTime{Time: r.acquire},
		RenewTime:            &metav1.MicroTime{Time: r.renew},
		LeaseTransitions:     &r.transitions,
	}
	if r.preferred != "" {
		spec.PreferredHolder = &r.preferred
	}
	if r.strategy != "" {
		spec.Strategy = &r.strategy
	}
	return spec
}

// elector is client-go's LeaderElector (tools/leaderelection/leaderelection.go, v0.37.2) with its LeaseLock, step by
// step. Its comments say only where the model simplifies.
type elector struct {
	p           *process
	lease       string
	identity    string
	coordinated bool
	// releases is ReleaseOnCancel. The model's work always stops before the release, as client-go demands.
	releases bool
	timing

	started func()
	stopped func()
	// renewed is called after each success with when the request that succeeded was sent.
	renewed func(sent time.Duration)

	observed    record
	observedRaw record
	observedAt  time.Time
	cached      *coordinationv1.Lease

	leading bool
	// unseen says that the last success may have changed nothing on the server.
	unseen bool
	// round grows when what is under way is cancelled.
	round int
}

// requestTimeout is what the Kubernetes components set for the client of their elector.
func (e *elector) requestTimeout() time.Duration { return e.renewDeadline / 2 }

func (e *elector) isLeader() bool { return e.observed.holder == e.identity }

func (e *elector) valid(now time.Time) bool {
	return e.observedAt.Add(time.Duration(e.observed.seconds) * time.Second).After(now)
}

func (e *elector) observe(r record) { e.observed, e.observedAt = r, e.p.clock() }

// acquire starts the elector.
func (e *elector) acquire() {
	round := e.round
	sent := e.p.w.now
	e.attempt(round, func(ok bool) {
		if e.round != round {
			return
		}
		if !ok {
			e.p.after(e.p.w.jitter(e.retry, jitterFactor), e.acquire)
			return
		}
		e.leading = true
		e.started()
		e.renewed(sent)
		e.renew()
	})
}

// renew is one round of the renew loop: attempts until one succeeds or the deadline passes.
func (e *elector) renew() {
	e.round++
	round := e.round
	deadline := e.p.after(e.renewDeadline, func() {
		if e.round == round {
			e.stop()
		}
	})
	var try func()
	try = func() {
		if e.round != round {
			return
		}
		began := e.p.w.now
		e.attempt(round, func(ok bool) {
			switch {
			case e.round != round:
			case ok:
				deadline.stop()
				e.round++
				if !e.unseen {
					e.renewed(began)
				}
				e.unseen = false
				e.p.after(e.retry, e.renew)
			default:
				e.p.after(began+e.retry-e.p.w.now, try)
			}
		})
	}
	try()
}

// stop ends leading, or trying to.
func (e *elector) stop() {
	e.round++
	led := e.leading
	e.leading = false
	if led {
		e.stopped()
	}
}

// cancel ends the elector's context: it stops, releases if it is to, and then calls done.
func (e *elector) cancel(done func()) {
	led := e.leading
	if led {
		e.p.w.stopsWork(e.p, "shuts down")
	}
	e.round++
	e.leading = false
	if led && e.releases {
		e.release(done)
		return
	}
	done()
}

func (e *elector) release(done func()) {
	e.get(e.renewDeadline, func(old record, err error) {
		if err != nil || !e.isLeader() {
			done()
			return
		}
		now := e.p.clock().Truncate(time.Second)
		r := record{transitions: old.transitions, seconds: 1, renew: now, acquire: now}
		e.update(r, func(err error) {
			if err == errConflict {
				e.release(done)
				return
			}
			done()
		})
	})
}

func (e *elector) get(timeout time.Duration, done func(record, error)) {
	var got *coordinationv1.Lease
	e.p.call(timeout, func() (err error) {
		got, err = e.p.w.server.lease(e.lease)
		return err
	}, func(err error) {
		if err != nil {
			done(record{}, err)
			return
		}
		e.cached = got
		done(recordOf(got), nil)
	})
}

func (e *elector) create(r record, done func(error)) {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: e.lease}, Spec: r.spec()}
	var created *coordinationv1.Lease
	e.p.call(e.requestTimeout(), func() (err error) {
		created, err = e.p.w.server.createLease(e.p, l)
		return err
	}, func(err error) {
		if err == nil {
			e.cached = created
		}
		done(err)
	})
}

func (e *elector) update(r record, done func(error)) {
	if e.cached == nil {
		done(errNotFound)
		return
	}
	// Only the spec is replaced: annotations stay.
	l := *e.cached
	l.Spec = r.spec()
	var updated *coordinationv1.Lease
	e.p.call(e.requestTimeout(), func() (err error) {
		updated, err = e.p.w.server.updateLease(e.p, &l)
		return err
	}, func(err error) {
		if err == nil {
			e.cached = updated
		}
		done(err)
	})
}

// attempt is tryCoordinatedRenew or tryAcquireOrRenew. Nothing more is sent once the round is over.
func (e *elector) attempt(round int, done func(bool)) {
	now := e.p.clock()
	mine := record{holder: e.identity, seconds: int32(e.timing.lease / time.Second), renew: now, acquire: now}
	if e.coordinated {
		e.coordinatedRenew(round, now, mine, done)
		return
	}
	if e.isLeader() && e.valid(now) {
		fast := mine
		fast.acquire, fast.transitions = e.observed.acquire, e.observed.transitions
		e.update(fast, func(err error) {
			switch {
			case e.round != round:
			case err == nil:
				e.observe(fast)
				done(true)
			default:
				e.acquireOrRenew(round, now, mine, func(ok bool) {
					// The second try of one attempt writes the stamp of the first. If the first was applied and only
					// its response was lost, the second changes nothing: the elector believes that it has renewed
					// just now, but nobody else can see that.
					e.p.doubtful = e.p.doubtful || ok && err == errTimeout
					e.unseen = ok && err == errTimeout
					done(ok)
				})
			}
		})
		return
	}
	e.acquireOrRenew(round, now, mine, done)
}

func (e *elector) coordinatedRenew(round int, now time.Time, mine record, done func(bool)) {
	e.get(e.requestTimeout(), func(old record, err error) {
		if e.round != round {
			return
		}
		if err != nil {
			done(false)
			return
		}
		if raw := old.raw(); raw != e.observedRaw {
			e.observe(old)
			e.observedRaw = raw
		}
		expired := e.observedAt.Add(time.Duration(old.seconds) * time.Second).Before(now)
		if expired || !e.isLeader() || old.preferred != "" {
			done(false)
			return
		}
		mine.acquire, mine.transitions, mine.strategy = old.acquire, old.transitions, old.strategy
		e.updateAs(round, mine, done)
	})
}

func (e *elector) acquireOrRenew(round int, now time.Time, mine record, done func(bool)) {
	e.get(e.requestTimeout(), func(old record, err error) {
		if e.round != round {
			return
		}
		if err == errNotFound {
			e.create(mine, func(err error) {
				if e.round != round {
					return
				}
				if err == nil {
					e.observe(mine)
				}
				done(err == nil)
			})
			return
		}
		if err != nil {
			done(false)
			return
		}
		if raw := old.raw(); raw != e.observedRaw {
			e.observe(old)
			e.observedRaw = raw
		}
		if old.holder != "" && e.valid(now) && !e.isLeader() {
			done(false)
			return
		}
		if e.isLeader() {
			mine.acquire, mine.transitions = old.acquire, old.transitions
		} else {
			mine.transitions = old.transitions + 1
			// Whoever renews within the same second of its clock as the record that was observed, is not seen to:
			// with clocks that differ, that second may be any.
			e.p.doubtful = e.p.doubtful || old.holder != "" && old != e.observed
		}
		e.updateAs(round, mine, done)
	})
}

func (e *elector) updateAs(round int, mine record, done func(bool)) {
	e.update(mine, func(err error) {
		if e.round != round {
			return
		}
		if err == nil {
			e.observe(mine)
		}
		done(err == nil)
	})
}
