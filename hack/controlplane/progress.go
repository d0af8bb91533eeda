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

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// How often a long step shows that it is alive: a terminal's line is rewritten, a log gets a new line, so
// that nobody takes a quiet CI job for a hung one.
const (
	terminalInterval = time.Second
	logInterval      = 30 * time.Second
)

// reporter tells people how the build goes.
type reporter struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	drawn    bool // the cursor is on a line that will be rewritten

	// Replaced by tests.
	now    func() time.Time
	ticker func(time.Duration) (ticks <-chan time.Time, stop func())
}

func newReporter(w io.Writer) *reporter {
	return &reporter{
		w:        w,
		terminal: isTerminal(w),
		now:      time.Now,
		ticker: func(d time.Duration) (<-chan time.Time, func()) {
			t := time.NewTicker(d)
			return t.C, t.Stop
		},
	}
}

// isTerminal: a character device that is not /dev/null's kind of black hole is near enough, and a mistake
// costs a carriage return in a log.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// line prints a line that stays.
func (r *reporter) line(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.erase()
	fmt.Fprintf(r.w, "controlplane: "+format+"\n", args...)
}

// during shows a step's state, again and again, until the function it returns is called; that one returns
// how long the step took.
func (r *reporter) during(state func(elapsed time.Duration) string) (finish func() time.Duration) {
	interval := logInterval
	if r.terminal {
		interval = terminalInterval
	}
	started := r.now()
	ticks, stop := r.ticker(interval)
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-ticks:
				r.show(state(r.now().Sub(started)))
			}
		}
	})
	return func() time.Duration {
		stop()
		close(done)
		running.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.erase()
		return r.now().Sub(started)
	}
}

func (r *reporter) show(state string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.terminal {
		fmt.Fprintf(r.w, "controlplane: %s\n", state)
		return
	}
	r.erase()
	fmt.Fprintf(r.w, "controlplane: %s", state)
	r.drawn = true
}

// erase takes back a line that was drawn to be rewritten.
func (r *reporter) erase() {
	if r.drawn {
		fmt.Fprint(r.w, "\r\x1b[K")
		r.drawn = false
	}
}
