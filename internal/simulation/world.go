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
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// epoch is when virtual time starts. It is a whole second, so that transcripts are easy to read.
var epoch = time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)

const (
	namespace = "default"
	// leaseName is the one lease that is coordinated in a World.
	leaseName = "lease"
	// lockName is the lock of the coordinators.
	lockName = "coordinator-lock"
)

var leaseKey = types.NamespacedName{Namespace: namespace, Name: leaseName}

// MaxResponse bounds how long after a request was applied its sender may learn of it.
const MaxResponse = 2900 * time.Millisecond

// Options describe a World.
type Options struct {
	// Random is the source of delays and jitter; nil makes every delay fixed and the jitter zero.
	Random *rand.Rand
	// FieldsKept says that the API server keeps spec.strategy and spec.preferredHolder.
	FieldsKept bool
	// Locking makes coordinators compete for a lock. Without it, the one coordinator is active as it starts.
	Locking bool
	// Settings are the coordinators'; zero durations mean the defaults.
	Settings election.Settings
	// Trace records a transcript.
	Trace bool
	// Details adds coordinators' resting decisions and API errors to the transcript.
	Details bool

	// Mutation, if set, falsifies what a coordinator knows before it decides, and Rewrite what it writes then:
	// only to show that the invariants notice.
	Mutation func(*election.Snapshot)
	Rewrite  func(election.Decision, *coordinationv1.Lease)
	// Instead, if set, has something else carried out than what was decided, to the same end.
	Instead func(*election.Snapshot, election.Decision) election.Decision
	// ResponsesLate delivers watch events before the response of the write that caused them.
	ResponsesLate bool
}

// World is a cluster in virtual time. It is not safe for concurrent use.
type World struct {
	Options
	now    time.Duration
	queue  queue
	seq    uint64
	server *server

	candidates   []*Candidate
	coordinators []*Coordinator

	// deleting, if set, is called when a coordinator is about to have a registration deleted.
	deleting func(name string)
	// slow stretches network delays while set.
	slow bool

	transcript strings.Builder
	invariants
}

// New returns an empty World.
func New(o Options) *World {
	if o.Settings.ElectionDuration == 0 {
		o.Settings.ElectionDuration = election.DefaultElectionDuration
	}
	if o.Settings.CandidateTTL == 0 {
		o.Settings.CandidateTTL = election.DefaultCandidateTTL
	}
	if o.Settings.Strategies == nil {
		registry, err := strategy.NewRegistry(strategy.BuiltIn()...)
		if err != nil {
			panic(err)
		}
		o.Settings.Strategies = registry
	}
	w := &World{Options: o}
	w.server = newServer(w)
	return w
}

// Now returns for how long the World has existed.
func (w *World) Now() time.Duration { return w.now }

// Run lets that much time pass, or less if an invariant breaks: see Violation.
func (w *World) Run(d time.Duration) {
	end := w.now + d
	for len(w.queue) > 0 && w.queue[0].at <= end && w.violation == nil {
		e := w.queue.pop()
		w.now = e.at
		e.run()
	}
	if w.violation == nil {
		w.now = end
	}
}

// Transcript returns what happened since the last call.
func (w *World) Transcript() string {
	text := w.transcript.String()
	w.transcript.Reset()
	return text
}

func (w *World) logf(format string, args ...any) {
	if w.Trace {
		fmt.Fprintf(&w.transcript, "%9.3f  %s\n", w.now.Seconds(), fmt.Sprintf(format, args...))
	}
}

func (w *World) detailf(format string, args ...any) {
	if w.Details {
		w.logf(format, args...)
	}
}

// between returns a random duration, or low where delays are fixed.
func (w *World) between(low, high time.Duration) time.Duration {
	if w.Random == nil || high <= low {
		return low
	}
	return low + time.Duration(w.Random.Int64N(int64(high-low)))
}

func (w *World) chance(p float64) bool { return w.Random != nil && w.Random.Float64() < p }

// requestDelay is how long a request takes to reach the server, responseDelay how long the response takes back,
// and watchDelay how long an event takes to a watcher. Fixed, the response comes first.
func (w *World) requestDelay() time.Duration {
	switch {
	case w.slow && w.chance(0.3):
		return w.between(100*time.Millisecond, 8*time.Second)
	case w.chance(0.02):
		return w.between(20*time.Millisecond, time.Second)
	}
	return w.between(time.Millisecond, 10*time.Millisecond)
}

func (w *World) responseDelay() time.Duration {
	switch {
	case w.slow && w.chance(0.3):
		return w.between(100*time.Millisecond, MaxResponse)
	case w.chance(0.02):
		return w.between(20*time.Millisecond, time.Second)
	case w.ResponsesLate:
		return 50 * time.Millisecond
	}
	return w.between(time.Millisecond, 10*time.Millisecond)
}

func (w *World) watchDelay() time.Duration {
	switch {
	case w.slow && w.chance(0.3):
		return w.between(100*time.Millisecond, 6*time.Second)
	case w.chance(0.02):
		return w.between(20*time.Millisecond, 3*time.Second)
	}
	return w.between(2*time.Millisecond, 20*time.Millisecond)
}

// jitter returns d stretched by up to the factor, as wait.Jitter does.
func (w *World) jitter(d time.Duration, factor float64) time.Duration {
	if w.Random == nil {
		return d
	}
	return d + time.Duration(w.Random.Float64()*factor*float64(d))
}
