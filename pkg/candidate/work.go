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

	"github.com/lease-coordinator/coordinator/internal/candidacy"
)

// work is one call of Lead.
type work struct {
	term      Term
	cancel    context.CancelCauseFunc
	cancelled bool
	stopped   chan struct{}
	deadline  sync.Once
}

func (l *loop) startWork(t candidacy.Term) {
	term := newTerm(t, l.c.clock, l.claimedAt+l.c.config.LeaseDuration)
	ctx, cancel := context.WithCancelCause(context.WithValue(l.base, termKey{}, term))
	w := &work{term: term, cancel: cancel, stopped: make(chan struct{})}
	l.work = w
	l.c.claim.Store(term.claim)
	l.c.leading.Store(&w.term)
	l.log.Info("Started leading", "token", term.Token, "transitions", term.Transitions)
	l.tasks.Go(func() { l.guard(w) })
	l.tasks.Go(func() {
		// Also when Lead ends its goroutine, as a failing test does. The channel has room: a panic is not held up.
		err := errors.New("ending the goroutine of Lead instead of returning")
		defer func() { l.worked <- err }()
		err = l.c.config.Lead(ctx)
	})
}

func (l *loop) cancelWork(why string) {
	if l.work == nil {
		return
	}
	l.log.Info("Stopping to lead", "reason", why)
	l.c.leading.Store(nil)
	l.work.cancelled = true
	l.work.cancel(l.ending(why))
}

func (l *loop) workStopped(err error, at candidacy.Instant) []candidacy.Effect {
	w := l.work
	w.term.claim.finish()
	close(w.stopped)
	l.work = nil
	l.c.claim.Store(nil)
	l.c.leading.Store(nil)
	switch {
	case !w.cancelled:
		l.lead = err
		l.leave()
		l.log.Info("Stopped leading, since the work has ended by itself", "error", fmt.Sprint(err))
	case err != nil && !errors.Is(err, context.Canceled):
		l.log.Error(err, "Stopped leading")
	default:
		l.log.Info("Stopped leading")
	}
	w.cancel(nil)
	if l.leaving {
		// What is left to do gets its full time.
		l.leave()
	}
	return l.machine.WorkStopped(at)
}

// guardPeriod is how often the guard looks at the clock: its timers stand still while the machine is suspended.
const guardPeriod = time.Second

// guard sees to it that the work does not outlive its claim, should the loop not.
func (l *loop) guard(w *work) {
	for {
		left := w.term.claim.left()
		if left <= 0 {
			break
		}
		timer := time.NewTimer(min(left, guardPeriod))
		select {
		case <-timer.C:
		case <-w.stopped:
			timer.Stop()
			return
		}
	}
	select {
	case <-w.stopped:
	default:
		l.deadline(w, "the claim has run out and the work has not stopped")
	}
}

func (l *loop) deadline(w *work, why string) {
	w.deadline.Do(func() {
		l.tasks.Go(func() {
			if l.c.config.OnDeadline != nil {
				l.c.config.OnDeadline(why)
				return
			}
			// Should the log be what is stuck.
			sure := time.AfterFunc(patience, func() { l.c.exit(1) })
			l.log.Error(nil, "Ending the process: another one may lead from now on", "reason", why)
			if sure.Stop() {
				l.c.exit(1)
			}
		})
	})
}
