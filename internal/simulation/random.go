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
	"time"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
)

// Phases of a random run.
const (
	// faultsEnd is when everything that is broken is mended.
	faultsEnd = 11 * time.Minute
	// quietFrom is when every hold-off and back-off is over, so that nothing is left to write.
	quietFrom = 18 * time.Minute
	// RunLength is how long a random run takes in virtual time.
	RunLength = 20 * time.Minute
)

// faults is a random run: a cluster drawn at random, and what happens to it.
type faults struct {
	w   *World
	rng *rand.Rand
	// silence is what long silences are drawn from, if there are any.
	silence *rand.Rand
	// deletions says that the Lease may be deleted: not where plain electors wait, for they take a Lease that is
	// not there whoever works; nor where claims are longer than a coordinator that has just started assumes.
	deletions bool
	added     int
	// maxLeaderless is the longest time that nobody led since the faults ended.
	maxLeaderless time.Duration
	bound         time.Duration
}

// Result is what a random run came to.
type Result struct {
	Violation error
	// Leaderless is the longest time that nobody led after the faults had ended.
	Leaderless                                 time.Duration
	Appointments, LeaseWrites, Pings, Overlaps int
	// Collections are deletions of registrations by coordinators.
	Collections int
	Transcript  string
}

// Mutate changes the options of a random run, to show that its invariants can fail.
type Mutate func(*Options)

// RandomRun plays the run of the seed.
func RandomRun(seed uint64, trace bool, mutate ...Mutate) Result {
	rng := rand.New(rand.NewPCG(seed, 0x1ea5e))
	f := &faults{rng: rng}
	o := Options{
		Random: rng, FieldsKept: f.chance(0.5), Locking: true, Trace: trace, Details: trace,
	}
	if f.chance(0.2) {
		o.Settings.MinTerm = f.upTo(time.Minute)
	}
	if f.chance(0.2) {
		o.Settings.TakeUpTimeout = 5*time.Second + f.upTo(10*time.Second)
	}
	// From a source of its own, so that the rest of the run is as it would be without.
	if silence := rand.New(rand.NewPCG(seed, 0x771)); silence.Float64() < 0.5 {
		f.silence = silence
		o.Settings.CandidateTTL = 30*time.Second + time.Duration(silence.Int64N(int64(2*time.Minute)))
	}
	for _, m := range mutate {
		m(&o)
	}
	f.w = New(o)
	f.populate()
	f.silences()
	f.play()
	w := f.w
	return Result{
		Violation: w.Violation(), Leaderless: f.maxLeaderless,
		Appointments: w.Appointments, LeaseWrites: w.LeaseWrites, Pings: w.Pings, Overlaps: w.Overlaps, Collections: w.Collections,
		Transcript: w.Transcript(),
	}
}

func (f *faults) chance(p float64) bool { return f.rng.Float64() < p }

func (f *faults) upTo(d time.Duration) time.Duration {
	return time.Duration(f.rng.Int64N(int64(d) + 1))
}

func pick[T any](f *faults, from []T) T { return from[f.rng.IntN(len(from))] }

// clockError is none half of the time, else up to an hour either way.
func (f *faults) clockError() time.Duration {
	switch {
	case f.chance(0.5):
		return 0
	case f.chance(0.5):
		return f.upTo(2*time.Minute) - time.Minute
	}
	return f.upTo(2*time.Hour) - time.Hour
}

func (f *faults) spec() CandidateSpec {
	f.added++
	spec := CandidateSpec{
		Name:         fmt.Sprintf("n%d", f.added),
		Binary:       pick(f, []string{"1.37.0", "1.37.0", "1.38.0"}),
		Emulation:    pick(f, []string{"1.35.0", "1.36.0", "1.37.0"}),
		Releases:     f.chance(0.3),
		Restart:      pick(f, []Restart{Never, SameName, NewName, NewName}),
		RestartAfter: 100*time.Millisecond + f.upTo(20*time.Second),
		ClockAhead:   f.clockError(),
	}
	if f.chance(0.1) {
		spec.Annotations = map[string]string{v1alpha1.PriorityAnnotation: "10"}
	}
	switch {
	case f.deletions:
	case f.chance(0.1):
		spec.Disobedient = true
	case f.chance(0.2):
		spec.Lease, spec.RenewDeadline, spec.Retry = 45*time.Second, 30*time.Second, 8*time.Second
	}
	return spec
}

func (f *faults) populate() {
	for i := range 1 + f.rng.IntN(3) {
		f.w.AddCoordinator(fmt.Sprintf("coordinator-%d", i+1), f.clockError())
	}
	plain := 0
	if f.deletions = f.chance(0.6); !f.deletions {
		plain = f.rng.IntN(3)
	}
	for range plain {
		spec := f.spec()
		spec.Plain = true
		f.start(spec)
	}
	for range 2 + f.rng.IntN(4) {
		f.start(f.spec())
	}
}

// silences has candidates be silent for longer than their TTL, and be back at the very moment that they are given up.
func (f *faults) silences() {
	if f.silence == nil {
		return
	}
	w := f.w
	for range 1 + f.silence.IntN(3) {
		begin := time.Minute + time.Duration(f.silence.Int64N(int64(5*time.Minute)))
		length := w.Settings.CandidateTTL + time.Minute + time.Duration(f.silence.Int64N(int64(2*time.Minute)))
		cut := f.silence.Float64() < 0.5
		w.after(begin, func() {
			c := w.candidates[f.silence.IntN(len(w.candidates))]
			w.detailf("%s is silent for %s (cut off: %t)", c.name, length, cut)
			if cut {
				c.partition()
				w.after(length, c.heal)
			} else {
				c.pause()
				w.after(length, c.thaw)
			}
		})
	}
	w.deleting = func(name string) {
		if c := w.candidate(name); c != nil && f.silence.Float64() < 0.5 {
			c.thaw()
			c.heal()
			// So that its answer may be there before the deletion.
			w.slow = true
			w.after(10*time.Second, func() { w.slow = false })
		}
	}
}

// start starts a candidate within the first minute, or soon.
func (f *faults) start(spec CandidateSpec) {
	f.w.after(f.upTo(20*time.Second), func() { f.w.AddCandidate(spec) })
}

func (f *faults) play() {
	w := f.w
	for w.now < faultsEnd && w.violation == nil {
		w.Run(f.upTo(30 * time.Second))
		f.strike()
	}
	if w.violation != nil {
		return
	}
	f.mend()
	f.bound = f.leaderlessBound()
	mended := w.now
	writes := 0
	for w.now < RunLength && w.violation == nil {
		w.Run(500 * time.Millisecond)
		for _, c := range w.coordinators {
			if !c.running {
				c.start()
			}
		}
		if !f.somebodyAble() {
			mended = w.now
		}
		if len(w.working) == 0 {
			f.maxLeaderless = max(f.maxLeaderless, w.now-max(w.leaderlessSince, mended))
		}
		if f.maxLeaderless > f.bound {
			w.violated("I7: nobody has led for %s", f.maxLeaderless)
		}
		switch {
		case w.now < quietFrom:
			writes = w.LeaseWrites
		case w.LeaseWrites > writes && !f.disobeyed():
			w.violated("I8: the coordinator still writes: %s", w.decision.Sentence())
		}
	}
	f.settled()
}

// somebodyAble reports whether a candidate is there to be appointed: client-go's candidates register again only
// minutes after their object was deleted.
func (f *faults) somebodyAble() bool {
	for _, c := range f.w.candidates {
		if c.running && !c.Plain && f.w.server.candidates[c.name] != nil {
			return true
		}
	}
	return false
}

// leaderlessBound is I7's: the coordinators' lock changes hands, the claim of a leader that was not seen to die runs
// out, an election takes its time, and the winner polls.
func (f *faults) leaderlessBound() time.Duration {
	lease, retry := election.DefaultClaim, defaultTiming.retry
	for _, c := range f.w.candidates {
		lease, retry = max(lease, c.elector.timing.lease), max(retry, c.elector.retry)
	}
	poll := func(retry time.Duration) time.Duration { return time.Duration((1 + jitterFactor) * float64(retry)) }
	return defaultTiming.lease + poll(defaultTiming.retry) + lease + 2*election.DefaultElectionDuration + poll(retry) + 10*time.Second
}

// strike breaks something.
func (f *faults) strike() {
	w := f.w
	if len(w.candidates) == 0 {
		return
	}
	c := f.victim()
	k := pick(f, w.coordinators)
	d := f.upTo(time.Minute)
	if f.chance(0.5) {
		d = f.upTo(20 * time.Second)
	}
	switch f.rng.IntN(20) {
	case 0, 1:
		c.kill()
	case 2:
		c.shutDown()
	case 3, 4:
		w.detailf("%s is paused for %s", c.name, d)
		c.pause()
		w.after(d, c.thaw)
	case 5, 6:
		w.detailf("%s is cut off for %s", c.name, d)
		c.partition()
		w.after(d, c.heal)
	case 7:
		if len(w.candidates) < 10 {
			f.start(f.spec())
		}
	case 8, 9:
		if f.deletions {
			w.detailf("the lease is deleted")
			w.server.deleteLease(leaseName)
		}
	case 10:
		w.detailf("the candidate %s is deleted", c.name)
		w.server.deleteCandidate(c.name)
	case 11:
		w.detailf("%s is killed", k.name)
		k.kill(f.upTo(40*time.Second) + time.Second)
	case 12:
		w.detailf("%s is shut down", k.name)
		k.shutDown(f.upTo(40*time.Second) + time.Second)
	case 13:
		w.detailf("%s is paused for %s", k.name, d)
		k.pause()
		w.after(d, k.thaw)
	case 14:
		w.detailf("%s is cut off for %s", k.name, d)
		k.partition()
		w.after(d, k.heal)
	case 15, 16:
		leases := f.chance(0.6)
		w.detailf("%s loses a watch (leases: %t) for %s", k.name, leases, d)
		k.loseWatch(leases, d)
	case 17:
		f.annotate(c, d)
	case 18:
		if l := w.server.leases[leaseName]; l != nil && d < 20*time.Second {
			w.detailf("preemption is forbidden for %s", d)
			f.annotateLease(v1alpha1.PreemptionNever)
			w.after(d, func() { f.annotateLease("") })
		}
	case 19:
		w.detailf("the network is slow for %s", d)
		w.slow = true
		w.after(d, func() { w.slow = false })
	}
}

// annotate bars a candidate from leading for a while.
func (f *faults) annotate(c *Candidate, d time.Duration) {
	name := c.name
	set := func(why string) {
		lc := f.w.server.candidates[name]
		if lc == nil {
			return
		}
		lc = lc.DeepCopy()
		if lc.Annotations == nil {
			lc.Annotations = map[string]string{}
		}
		if lc.Annotations[v1alpha1.IneligibleAnnotation] = why; why == "" {
			delete(lc.Annotations, v1alpha1.IneligibleAnnotation)
		}
		if _, err := f.w.server.updateCandidate(lc); err != nil {
			f.w.violated("annotating %s: %v", name, err)
		}
	}
	f.w.detailf("%s is barred from leading for %s", name, d)
	set("drill")
	f.w.after(d, func() { set("") })
}

func (f *faults) annotateLease(preemption string) {
	l := f.w.server.leases[leaseName]
	if l == nil {
		return
	}
	l = l.DeepCopy()
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	if l.Annotations[v1alpha1.PreemptionAnnotation] = preemption; preemption == "" {
		delete(l.Annotations, v1alpha1.PreemptionAnnotation)
	}
	if _, err := f.w.server.updateLease(nil, l); err != nil {
		f.w.violated("annotating the lease: %v", err)
	}
}

// victim prefers who leads.
func (f *faults) victim() *Candidate {
	if f.chance(0.5) {
		for _, c := range f.w.candidates {
			if c.name == f.w.Leader() {
				return c
			}
		}
	}
	return pick(f, f.w.candidates)
}

// mend repairs everything, and makes sure that there is a candidate and a coordinator.
func (f *faults) mend() {
	w := f.w
	w.detailf("everything is mended")
	w.slow = false
	for _, c := range w.candidates {
		c.thaw()
		c.heal()
	}
	for _, c := range w.coordinators {
		c.thaw()
		c.heal()
		if !c.running {
			c.start()
		}
	}
	alive := 0
	for _, c := range w.candidates {
		if !c.running && c.Restart != Never {
			c.restart()
		}
		if c.running && !c.Plain {
			alive++
		}
	}
	if alive == 0 {
		w.AddCandidate(f.spec())
	}
}

// disobeyed reports whether a leader does not yield when told: it is told again every few minutes.
func (f *faults) disobeyed() bool {
	c := f.w.candidate(f.w.Leader())
	return c != nil && c.Disobedient
}

// settled asserts that the best of the living leads at the end, unless a plain elector holds the lease, which nobody
// can take it from.
func (f *faults) settled() {
	w := f.w
	if w.violation != nil {
		return
	}
	leader := w.candidate(w.Leader())
	if leader == nil {
		return // Whether somebody should is what I7 says.
	}
	if l := w.server.leases[leaseName]; l == nil || l.Annotations[v1alpha1.PreemptionAnnotation] != "" {
		return // The lease was deleted while it forbade preemption, and put back as it was.
	}
	if leader.Plain || leader.Disobedient && w.FieldsKept || w.server.candidates[leader.name] == nil {
		return
	}
	for _, c := range w.coordinators {
		if c.heldOff {
			return
		}
	}
	for _, c := range w.candidates {
		if c.running && !c.Plain && f.merit(c, leader) < 0 && w.server.candidates[c.name] != nil {
			w.violated("%s leads in the end, but %s is better", leader.name, c.name)
		}
	}
}

// merit is OldestEmulationVersion and priority once more, as plainly as can be.
func (f *faults) merit(a, b *Candidate) int {
	key := func(c *Candidate) string {
		rank := "1"
		if c.Annotations[v1alpha1.PriorityAnnotation] != "" {
			rank = "0"
		}
		return rank + " " + c.Emulation + " " + c.Binary
	}
	switch ka, kb := key(a), key(b); {
	case ka < kb:
		return -1
	case ka > kb:
		return 1
	}
	return 0
}
