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
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/candidacy"
)

// input tells the state machine something. It runs in the loop's goroutine.
type input func(at candidacy.Instant) []candidacy.Effect

// loop is one goroutine that owns the state machine: it feeds it what others post, and has its effects carried out. It
// waits for nothing else, so that no request or callback can keep it from noticing that a claim runs out.
type loop struct {
	c       *Candidate
	log     logr.Logger
	machine candidacy.Machine

	// base is the context of requests and of the work. It has the values of Run's, but not its end.
	base   context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// inputs is what others post, until over is closed.
	inputs chan input
	over   chan struct{}
	worked chan error

	// work is what runs between StartWork and its end.
	work *work
	// lead is what Lead returned by itself.
	lead error
	// leaving is set, and left closed, once the candidacy is to end, and endBy is when it does in any case.
	leaving bool
	endBy   time.Duration
	left    chan struct{}

	// lease is the Lease as it was last seen to exist.
	lease *unstructured.Unstructured
	// kind, object and written are the LeaseCandidate's kind, the object as it was last seen, of that version, and the UID
	// of the one that was written last.
	kind          schema.GroupVersionResource
	object        *unstructured.Unstructured
	objectVersion uint64
	written       types.UID
	// former are kinds of which there may still be an object, and removing says that one is being removed.
	former      []schema.GroupVersionResource
	removing    bool
	leaseNews   freshness
	objectNews  freshness
	renewLease  chan struct{}
	renewObject chan struct{}
	nominated   chan struct{}
	holders     chan string
	trouble     *trouble
	// refusals counts the writes to the candidate in a row that the API server refused.
	refusals int
	// at is the moment of the input that is being dealt with, and claimedAt that before the last successful claim.
	at, claimedAt time.Duration
}

func newLoop(c *Candidate, ctx context.Context, log logr.Logger) *loop {
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	return &loop{
		c: c, log: log, base: base, cancel: cancel,
		inputs: make(chan input), over: make(chan struct{}), left: make(chan struct{}), worked: make(chan error, 1),
		renewLease: make(chan struct{}, 1), renewObject: make(chan struct{}, 1),
		nominated: make(chan struct{}, 1), holders: make(chan string, 1),
		trouble: &trouble{log: log, last: map[string]error{}},
	}
}

func (l *loop) now() candidacy.Instant {
	return candidacy.Instant{Mono: l.c.clock(), Wall: candidacy.Stamp(time.Now().UnixMicro())}
}

func (l *loop) run(ctx context.Context) error {
	defer l.tasks.Wait()
	defer l.cancel()
	defer close(l.over)

	l.beat()
	l.machine = candidacy.New(l.c.machineConfig(), l.now())
	l.tasks.Go(l.followLease)
	l.tasks.Go(l.followRegistration)
	l.startCallbacks()

	ended := ctx.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var in input
		select {
		case in = <-l.inputs:
		case err := <-l.worked:
			in = func(at candidacy.Instant) []candidacy.Effect { return l.workStopped(err, at) }
		case <-ended:
			ended = nil
			in = l.shutdown
		case <-timer.C:
			in = l.machine.Tick
		}
		at := l.now()
		l.at = at.Mono
		effects := in(at)
		l.beat()
		for _, e := range effects {
			if _, done := e.(candidacy.Done); done {
				l.removeFormer()
				l.log.Info("The candidacy has ended")
				return l.lead
			}
			l.carryOut(e)
		}
		l.publish()
		now := l.c.clock()
		if l.leaving && l.work == nil && now >= l.endBy {
			l.log.Error(l.trouble.all(), "The candidacy has ended; what could not be withdrawn runs out by itself")
			return l.lead
		}
		l.refresh(now)
		timer.Reset(l.pause(now))
	}
}

func (l *loop) beat() { l.c.beat.Store(int64(l.c.clock())) }

// pause returns how long to wait for anything to happen. The loop turns at least once in a RetryPeriod, since Go's timers
// stand still while the machine is suspended, and to show that it is alive.
func (l *loop) pause(now time.Duration) time.Duration {
	pause := l.c.config.RetryPeriod
	if wake, ok := l.machine.Wake(now); ok {
		pause = min(pause, wake-now)
	}
	if l.leaving {
		pause = min(pause, max(l.endBy-now, time.Millisecond))
	}
	return pause
}

// post has the loop take in something. Nobody listens any more when the candidacy has ended.
func (l *loop) post(in input) {
	select {
	case l.inputs <- in:
	case <-l.over:
	}
}

func (l *loop) shutdown(at candidacy.Instant) []candidacy.Effect {
	l.leave()
	return l.machine.Shutdown(at)
}

func (l *loop) leave() {
	if !l.leaving {
		l.leaving = true
		close(l.left)
	}
	l.endBy = l.c.clock() + l.c.config.RenewDeadline
}

// publish shows the outside what is so now.
func (l *loop) publish() {
	if until, _, leads := l.machine.Leading(); leads && l.work != nil {
		l.work.term.claim.extend(until)
		l.c.leading.Store(&l.work.term)
	} else {
		l.c.leading.Store(nil)
	}
	lease, known := l.machine.Following()
	if !known {
		return
	}
	holder := lease.Holder
	if holder == v1alpha1.RevokedHolder {
		holder = ""
	}
	if holder == value(l.c.holder.Load()) {
		return
	}
	l.c.holder.Store(&holder)
	if l.c.config.OnNewLeader == nil {
		return
	}
	// The latest counts.
	select {
	case <-l.holders:
	default:
	}
	l.holders <- holder
}

func (l *loop) startCallbacks() {
	if f := l.c.config.OnNominated; f != nil {
		l.tasks.Go(func() {
			for {
				select {
				case <-l.nominated:
					f()
				case <-l.over:
					return
				}
			}
		})
	}
	if f := l.c.config.OnNewLeader; f != nil {
		l.tasks.Go(func() {
			for {
				select {
				case holder := <-l.holders:
					f(holder)
				case <-l.over:
					return
				}
			}
		})
	}
	if l.c.config.Healthy != nil {
		l.tasks.Go(l.watchHealth)
	}
}

func (l *loop) carryOut(e candidacy.Effect) {
	switch e := e.(type) {
	case candidacy.StartWork:
		l.startWork(e.Term)
	case candidacy.CancelWork:
		l.cancelWork(e.Why)
	case candidacy.EndProcess:
		if l.work != nil {
			l.deadline(l.work, e.Why)
		}
	case candidacy.Nominate:
		l.log.Info("Nominated to lead next")
		select {
		case l.nominated <- struct{}{}:
		default:
		}
	case candidacy.WriteLease:
		sent, former := l.at, l.lease
		l.tasks.Go(func() { l.writeLease(e, sent, former) })
	case candidacy.ReadLease:
		l.tasks.Go(l.readLease)
	case candidacy.WriteRegistration:
		l.writeRegistration(e)
	}
}
