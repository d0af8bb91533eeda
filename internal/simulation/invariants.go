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
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// invariants is what the World knows to be true, and what it asserts of it.
type invariants struct {
	violation error

	// working are the processes that work as the leader, whatever the Lease says.
	working []*process
	// leaderlessSince is when the last of them stopped.
	leaderlessSince time.Duration

	// writer, writing and decision tell of the write by a coordinator that the server is about to carry out.
	writer   *Coordinator
	basis    *election.Snapshot
	decision election.Decision

	// lastToken is the highest fencing token so far, of tokenHolder.
	lastToken   uint64
	tokenHolder string

	// Counts since the World began.
	Appointments, LeaseWrites, Pings, Collections, Overlaps, Robberies int
}

// Violation returns the first invariant that broke, or nil.
func (w *World) Violation() error { return w.violation }

func (w *World) violated(format string, args ...any) {
	if w.violation == nil {
		w.violation = fmt.Errorf("at %.3fs: %s", w.now.Seconds(), fmt.Sprintf(format, args...))
		w.logf("VIOLATION %s", w.violation)
	}
}

// Leader returns who works, "" for nobody.
func (w *World) Leader() string {
	if len(w.working) == 0 {
		return ""
	}
	return w.working[0].name
}

// sure reports whether a process is to be counted on not to be wrong about its claim: it is not paused, and has
// renewed since it was.
func sure(p *process) bool { return !p.paused && !p.doubtful }

// startsWork asserts the first of all invariants. took says that the process took the lease itself, as a plain
// elector does.
func (w *World) startsWork(p *process, took bool) {
	w.logf("%s starts leading", p.name)
	for _, other := range w.working {
		switch {
		case !sure(other), !sure(p), other.robbed && took:
			// client-go cannot avoid that one of them has just woken from a pause, nor that a plain elector takes
			// a lease which a former holder has released in another's place.
			w.Overlaps++
		default:
			w.violated("%s starts leading while %s leads", p.name, other.name)
		}
	}
	w.working = append(w.working, p)
}

func (w *World) stopsWork(p *process, how string) {
	i := slices.Index(w.working, p)
	if i < 0 {
		return
	}
	w.working = slices.Delete(w.working, i, i+1)
	w.logf("%s %s and stops leading", p.name, how)
	if len(w.working) == 0 {
		w.leaderlessSince = w.now
	}
}

func (w *World) expectWrite(c *Coordinator, s *election.Snapshot, d election.Decision) {
	w.writer, w.basis, w.decision = c, s, d
}

// leaseWritten is called for each write that the server accepts; old is nil for a creation and equal to l for a
// write that changes nothing.
func (w *World) leaseWritten(by *process, old, l *coordinationv1.Lease) {
	if l.Name != leaseName {
		return
	}
	if w.writer == nil {
		w.robbed(by, l)
		return
	}
	d := w.decision
	w.LeaseWrites++
	if old == l {
		w.violated("I8: %s changed nothing: %s", by.name, d.Sentence())
	}
	if verdicts, _, _ := election.Rank(w.basis); len(verdicts) == 0 || verdicts[0].Inadmissible != "" {
		w.violated("I5: %s wrote to a lease without candidates: %s", by.name, d.Sentence())
	}
	named := recordOf(l).holder
	switch d.Action {
	case election.Appoint, election.Restore:
		for _, p := range w.working {
			if p.name != named && named != v1alpha1.RevokedHolder && sure(p) {
				w.violated("I1: %s named %s while %s leads: %s", by.name, named, p.name, d.Sentence())
			}
		}
	case election.Prefer:
		if recordOf(l).preferred == named {
			w.violated("%s preferred the holder itself", by.name)
		}
	}
	if d.Action == election.Appoint {
		w.appointed(by, old, l)
	}
}

// robbed notes that an elector released the lease of another. client-go's release reads the Lease anew, but goes by
// what it had observed before: after a pause, or a partition that ends while it tries, it wipes out its successor.
// Nobody can tell that from a release by the successor itself.
func (w *World) robbed(by *process, l *coordinationv1.Lease) {
	if by == nil || recordOf(l).holder != "" {
		return
	}
	for _, p := range w.working {
		if p != by {
			w.logf("%s releases the lease of %s", by.name, p.name)
			w.Robberies++
			p.robbed = true
			if by.doubtful {
				// A pause has no bound, and so there is none on how long such a release is to be doubted.
				p.doubtful, p.thawed = true, w.now
			}
		}
	}
}

// appointed asserts I3.
func (w *World) appointed(by *process, old, l *coordinationv1.Lease) {
	w.Appointments++
	holder := recordOf(l).holder
	token, err := strconv.ParseUint(l.Annotations[v1alpha1.FencingTokenAnnotation], 10, 64)
	switch {
	case err != nil:
		w.violated("I3: %s wrote a fencing token that is no number: %v", by.name, err)
	case token < w.lastToken || token == w.lastToken && holder != w.tokenHolder:
		w.violated("I3: the fencing token went from %d (%s) to %d (%s)", w.lastToken, w.tokenHolder, token, holder)
	}
	w.lastToken, w.tokenHolder = token, holder

	// A coordinator that never saw the last Lease cannot go on with its count.
	last := old
	if old == nil {
		last = w.basis.Observed.Last
	}
	if last == nil {
		return
	}
	was, is := recordOf(last), recordOf(l)
	if is.transitions < was.transitions || was.holder != is.holder && is.transitions == was.transitions && was.transitions < math.MaxInt32 {
		w.violated("I3: leaseTransitions went from %d (%s) to %d (%s)", was.transitions, was.holder, is.transitions, is.holder)
	}
}

// decided asserts what can be said of a decision itself.
func (w *World) decided(c *Coordinator, s *election.Snapshot, d election.Decision) {
	switch d.Action {
	case election.None:
		c.streak = 0
		if !d.LookAgain.IsZero() && !d.LookAgain.After(s.Now) {
			w.violated("%s looks again at once: %s", c.name, d.Sentence())
		}
	default:
		if c.streak++; c.streak > 30 {
			w.violated("I8: %s has decided %d times without rest, now: %s", c.name, c.streak, d.Sentence())
		}
	}
	switch d.Action {
	case election.Appoint, election.Prefer, election.Revoke:
		v := c.view(d.Candidate)
		if v == nil {
			w.violated("%s chose %s, which is no candidate", c.name, d.Candidate)
		} else if o := v.observed; o.Moved.IsZero() || !o.Pinged.IsZero() || s.Now.Sub(o.Moved) > s.Settings.ElectionDuration {
			w.violated("I2: %s chose %s, which has not acked", c.name, d.Candidate)
		}
	case election.Ping:
		for _, name := range d.Pings {
			v := c.view(name)
			again := v.observed.Unanswered > 0
			switch d.Reason {
			case election.ReasonNobodyAlive:
				continue
			case election.ReasonCandidateDead:
				again = v.lastWords >= 2
			}
			if again {
				w.violated("I8: %s asks %s again: %s", c.name, name, d.Sentence())
			}
		}
	}
	if w.Random == nil || w.seq%8 == 0 {
		// I6: the order of the candidates does not matter.
		shuffled := *s
		shuffled.Candidates = slices.Clone(s.Candidates)
		slices.Reverse(shuffled.Candidates)
		if other := election.Decide(&shuffled); !reflect.DeepEqual(d, other) {
			w.violated("I6: the order of candidates made a difference: %q or %q", d.Sentence(), other.Sentence())
		}
	}
}

// answerTime is how long a candidate that is well takes to answer a ping, at most: the watch shows it late, a request before
// has to time out, and the answer is slow.
const answerTime = 30 * time.Second

// collected asserts I9, at the deletion of a registration by a coordinator: nobody is behind it who might have answered, and
// it has not renewed since it was decided to be dead.
func (w *World) collected(c *Coordinator, dead *strategy.Candidate, lc *coordinationv1beta1.LeaseCandidate) {
	w.Collections++
	if p := w.candidate(lc.Name); p != nil && p.running && !p.paused && !p.cut && w.now-p.well > answerTime {
		w.violated("I9: %s deletes the registration of %s, which has been well for %s", c.name, lc.Name, w.now-p.well)
	}
	if renewed := lc.Spec.RenewTime; renewed != nil && !renewed.Time.Equal(dead.Renewed) {
		w.violated("I9: %s deletes the registration of %s, which has renewed meanwhile", c.name, lc.Name)
	}
}

func (w *World) pinged(c *Coordinator, after *coordinationv1beta1.LeaseCandidate) {
	w.Pings++
	if renewed := after.Spec.RenewTime; renewed != nil && !after.Spec.PingTime.After(renewed.Time) {
		w.violated("%s pinged %s with a pingTime that it does not answer", c.name, after.Name)
	}
}
