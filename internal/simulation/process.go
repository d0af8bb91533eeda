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
	"errors"
	"time"
)

// event is something that is to happen.
type event struct {
	at  time.Duration
	seq uint64
	// process, if set, is whose event it is: it happens only in that life of the process, and not while the
	// process is paused.
	process *process
	life    int
	timer   *timer
	do      func()
}

func (e event) run() {
	p := e.process
	switch {
	case e.timer != nil && e.timer.stopped:
	case p == nil:
		e.do()
	case p.life != e.life:
	case p.paused:
		p.held = append(p.held, e)
	default:
		e.do()
	}
}

// queue is a binary heap of events by time, then by when they were added.
type queue []event

func (q queue) less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}

func (q *queue) push(e event) {
	h := append(*q, e)
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
	*q = h
}

func (q *queue) pop() event {
	h := *q
	top, last := h[0], len(h)-1
	h[0] = h[last]
	h[last] = event{}
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			break
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
	*q = h
	return top
}

type timer struct{ stopped bool }

func (t *timer) stop() {
	if t != nil {
		t.stopped = true
	}
}

// after lets the World do something later.
func (w *World) after(d time.Duration, do func()) {
	w.seq++
	w.queue.push(event{at: w.now + max(d, 0), seq: w.seq, do: do})
}

// process is a program on a machine of its own: it can be killed, paused, cut off from the API server, and its
// clock may be set wrong.
type process struct {
	w    *World
	name string
	// life grows with every start and every end, so that what one life scheduled does not reach the next.
	life    int
	running bool
	paused  bool
	// held is what came due during a pause: timers fire late, and responses are read late.
	held []event
	// well is since when it runs, is neither paused nor cut off; of no meaning while it is.
	well time.Duration
	// cut says that neither requests nor responses nor events get through.
	cut bool
	// offset is by how much its clock is ahead.
	offset  time.Duration
	watches []*watch

	// thawed is when the last pause ended. doubtful is set from then until a renewal that was sent since has
	// succeeded: an elector that was paused for longer than its claim goes on working until it finds out. It is
	// also set while the elector is mistaken about its last renewal.
	thawed   time.Duration
	doubtful bool
	// robbed is set from when a former holder released the lease that this process works under, until it renews.
	robbed bool
}

func (p *process) clock() time.Time { return epoch.Add(p.w.now + p.offset) }

func (p *process) after(d time.Duration, do func()) *timer {
	p.w.seq++
	t := &timer{}
	p.w.queue.push(event{at: p.w.now + max(d, 0), seq: p.w.seq, process: p, life: p.life, timer: t, do: do})
	return t
}

// begin and end start and end a life.
func (p *process) begin() {
	p.life++
	p.running, p.paused, p.doubtful, p.robbed, p.held = true, false, false, false, nil
	p.well = p.w.now
}

func (p *process) end() {
	p.life++
	p.running, p.paused, p.doubtful, p.robbed, p.held = false, false, false, false, nil
	for _, s := range p.watches {
		s.close()
	}
	p.watches = nil
}

func (p *process) pause() {
	if p.running {
		p.paused = true
	}
}

func (p *process) thaw() {
	if !p.paused {
		return
	}
	p.paused, p.doubtful, p.thawed, p.well = false, true, p.w.now, p.w.now
	held := p.held
	p.held = nil
	for _, e := range held {
		// Added anew, in their order, they come before whatever is due later.
		p.w.seq++
		e.at, e.seq = p.w.now, p.w.seq
		p.w.queue.push(e)
	}
}

func (p *process) partition() { p.cut = true }

func (p *process) heal() {
	if !p.cut {
		return
	}
	p.cut, p.well = false, p.w.now
	for _, s := range p.watches {
		p.after(0, s.flush)
	}
}

// What a request can fail with.
var (
	errTimeout       = errors.New("timed out")
	errConflict      = errors.New("conflict")
	errNotFound      = errors.New("not found")
	errAlreadyExists = errors.New("already exists")
)

// call sends a request. op is carried out by the server when the request gets there, even if its sender is gone by
// then. done runs at the sender, with op's error or after the timeout.
func (p *process) call(timeout time.Duration, op func() error, done func(error)) {
	w, sent := p.w, p.w.now
	lost := func() { p.after(sent+timeout-w.now, func() { done(errTimeout) }) }
	if p.cut {
		lost()
		return
	}
	request, life := w.requestDelay(), p.life
	w.after(request, func() {
		if p.cut {
			if p.life == life {
				lost()
			}
			return
		}
		err := op()
		if p.life != life {
			return
		}
		response := w.responseDelay()
		if w.slow && w.chance(0.02) || request+response >= timeout {
			lost() // The request was applied, but its sender will never know.
			return
		}
		p.after(response, func() {
			if p.cut {
				lost()
				return
			}
			done(err)
		})
	})
}
