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
	"reflect"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Coordinator is a coordinator's process: the core, and a thin copy of the controller around it.
type Coordinator struct {
	process
	elector *elector
	active  bool

	observed election.Observations
	// lease is the newest known, in canonical form; nil if there is none. version is that of the newest change
	// known, deletions and lists included.
	lease   *coordinationv1.Lease
	version uint64

	candidates []*candidateView

	leaseWatch, candidateWatch     *watch
	leasesListed, candidatesListed bool

	// busy is set while a decision is carried out, writing while that is a write to the lease. What the watch
	// shows meanwhile is put aside, or else the coordinator might take its own write for somebody else's.
	busy    bool
	writing bool
	aside   []change
	// dirty says that there is more to decide once busy ends.
	dirty bool
	look  *timer

	// resting is the sentence of the last decision that wrote nothing, and heldOff whether that one held a better
	// candidate off.
	resting string
	heldOff bool
	// streak counts decisions carried out since it last rested.
	streak int
}

// candidateView is a candidate as the coordinator knows it.
type candidateView struct {
	object    *coordinationv1beta1.LeaseCandidate
	candidate *strategy.Candidate
	observed  election.CandidateObservations
	// lastWords counts the pings that it was sent since it renewed for having outlived its TTL.
	lastWords int
}

// AddCoordinator starts a coordinator.
func (w *World) AddCoordinator(name string, clockAhead time.Duration) *Coordinator {
	c := &Coordinator{}
	c.process = process{w: w, name: name, offset: clockAhead}
	w.coordinators = append(w.coordinators, c)
	c.start()
	return c
}

func (c *Coordinator) start() {
	c.begin()
	c.active = !c.w.Locking
	c.observed = election.Observations{}
	c.lease, c.version, c.candidates = nil, 0, nil
	c.busy, c.writing, c.aside, c.dirty, c.look, c.resting, c.streak = false, false, nil, false, nil, "", 0
	c.leasesListed, c.candidatesListed = false, false
	c.watchLeases()
	c.watchCandidates()
	if c.w.Locking {
		c.elector = &elector{
			p: &c.process, lease: lockName, identity: c.name, releases: true, timing: defaultTiming,
			started: func() {
				c.w.detailf("%s is the active coordinator", c.name)
				c.active = true
				c.decide()
			},
			renewed: func(time.Duration) {},
			stopped: func() {
				// The manager exits, and is started again.
				c.w.detailf("%s lost the lock", c.name)
				c.kill(time.Second)
			},
		}
		c.elector.acquire()
	}
}

// kill ends the process; it is started again after a while, unless that is 0.
func (c *Coordinator) kill(restartAfter time.Duration) {
	if !c.running {
		return
	}
	c.end()
	c.active = false
	life := c.life
	if restartAfter > 0 {
		c.w.after(restartAfter, func() {
			if c.life == life {
				c.start()
			}
		})
	}
}

// shutDown releases the lock and ends the process.
func (c *Coordinator) shutDown(restartAfter time.Duration) {
	if !c.running || c.paused {
		return
	}
	c.active = false
	if c.elector == nil {
		c.kill(restartAfter)
		return
	}
	c.elector.cancel(func() { c.kill(restartAfter) })
}

// watchLeases starts to watch, or to watch again after the watch was lost.
func (c *Coordinator) watchLeases() {
	c.leaseWatch.closeIfOpen()
	var listed *coordinationv1.Lease
	var version uint64
	c.leaseWatch = c.listAndWatch(
		func(ch change) bool { return ch.lease != nil && ch.lease.Name == leaseName },
		func() { listed, version = c.w.server.leases[leaseName], c.w.server.version },
		func() {
			if !c.leasesListed {
				// Nothing was watched before this list, however long the process has run.
				c.observed.Since, c.leasesListed = c.clock(), true
			}
			switch {
			case listed != nil:
				c.seeLease(change{lease: listed, version: versionOf(listed)}, false)
			case c.lease != nil:
				c.seeLease(change{lease: c.lease, deleted: true, version: version}, true)
			default:
				c.version = max(c.version, version)
				c.decide()
			}
		},
		func(ch change) { c.seeLease(ch, false) })
}

func (s *watch) closeIfOpen() {
	if s != nil {
		s.close()
	}
}

func (c *Coordinator) watchCandidates() {
	c.candidateWatch.closeIfOpen()
	var listed []*coordinationv1beta1.LeaseCandidate
	c.candidateWatch = c.listAndWatch(
		func(ch change) bool { return ch.candidate != nil },
		func() { listed = c.w.server.listCandidates() },
		func() {
			for _, v := range slices.Clone(c.candidates) {
				if !slices.ContainsFunc(listed, func(lc *coordinationv1beta1.LeaseCandidate) bool { return lc.Name == v.object.Name }) {
					c.forgetCandidate(v.object.Name)
				}
			}
			for _, lc := range listed {
				c.seeCandidate(lc, !c.candidatesListed)
			}
			c.candidatesListed = true
			c.decide()
		},
		func(ch change) {
			if ch.deleted {
				c.forgetCandidate(ch.candidate.Name)
			} else {
				c.seeCandidate(ch.candidate, false)
			}
			c.decide()
		})
}

// loseWatch drops what is on its way and lists again after the gap.
func (c *Coordinator) loseWatch(leases bool, gap time.Duration) {
	if !c.running {
		return
	}
	if leases {
		c.leaseWatch.closeIfOpen()
		c.after(gap, func() { c.watchLeases() })
		return
	}
	c.candidateWatch.closeIfOpen()
	c.after(gap, func() { c.watchCandidates() })
}

func versionOf(l *coordinationv1.Lease) uint64 {
	v, err := strconv.ParseUint(l.ResourceVersion, 10, 64)
	if err != nil {
		panic(err)
	}
	return v
}

func (c *Coordinator) seeLease(ch change, missed bool) {
	if c.writing {
		ch.missed = missed
		c.aside = append(c.aside, ch)
		return
	}
	if ch.version < c.version || ch.version == c.version && !ch.deleted {
		return
	}
	c.version = ch.version
	if ch.deleted {
		c.lease = nil
		c.observed.SeeDeleted(c.clock(), missed)
		c.decide()
		return
	}
	before, awaited := c.lease, c.observed.Appointment
	c.lease = c.decode(ch.lease)
	c.observed.SeeLease(c.lease, c.clock())
	if awaited == nil && isRenewal(before, c.lease) {
		return // A renewal costs no decision.
	}
	c.decide()
}

func isRenewal(before, after *coordinationv1.Lease) bool {
	if before == nil || before.UID != after.UID {
		return false
	}
	a, b := before.Spec, after.Spec
	a.AcquireTime, a.RenewTime, b.AcquireTime, b.RenewTime = nil, nil, nil, nil
	return recordOf(&coordinationv1.Lease{Spec: a}) == recordOf(&coordinationv1.Lease{Spec: b}) &&
		reflect.DeepEqual(before.Annotations, after.Annotations)
}

func (c *Coordinator) view(name string) *candidateView {
	for _, v := range c.candidates {
		if v.object.Name == name {
			return v
		}
	}
	return nil
}

func (c *Coordinator) seeCandidate(lc *coordinationv1beta1.LeaseCandidate, initial bool) {
	v := c.view(lc.Name)
	if v == nil {
		v = &candidateView{object: lc}
		c.candidates = append(c.candidates, v)
	} else if older(lc, v.object) {
		return
	}
	v.object = lc
	v.candidate = strategy.NewCandidate(lc, strategy.Spec{
		LeaseName: lc.Spec.LeaseName, BinaryVersion: lc.Spec.BinaryVersion, EmulationVersion: lc.Spec.EmulationVersion,
		Strategy: lc.Spec.Strategy, RenewTime: lc.Spec.RenewTime,
	})
	if v.observed = v.observed.See(v.candidate, c.clock(), initial); v.observed.Unanswered == 0 {
		v.lastWords = 0
	}
}

func older(a, b *coordinationv1beta1.LeaseCandidate) bool {
	return len(a.ResourceVersion) < len(b.ResourceVersion) ||
		len(a.ResourceVersion) == len(b.ResourceVersion) && a.ResourceVersion < b.ResourceVersion
}

func (c *Coordinator) forgetCandidate(name string) {
	c.candidates = slices.DeleteFunc(c.candidates, func(v *candidateView) bool { return v.object.Name == name })
	c.observed.Forget(name)
}

// forgetCandidateOf forgets the candidate unless there is a new one of that name.
func (c *Coordinator) forgetCandidateOf(name, uid string) {
	if v := c.view(name); v != nil && v.candidate.UID == uid {
		c.forgetCandidate(name)
	}
}

// decode and encode translate between a lease on the server and its canonical form: where the server drops the
// fields, annotations stand for them.
func (c *Coordinator) decode(l *coordinationv1.Lease) *coordinationv1.Lease {
	if c.w.FieldsKept || l == nil {
		return l
	}
	canonical := *l
	if v, set := l.Annotations[v1alpha1.StrategyAnnotation]; set {
		s := coordinationv1.CoordinatedLeaseStrategy(v)
		canonical.Spec.Strategy = &s
	}
	if v, set := l.Annotations[v1alpha1.PreferredHolderAnnotation]; set {
		canonical.Spec.PreferredHolder = &v
	}
	return &canonical
}

func (c *Coordinator) encode(l *coordinationv1.Lease) *coordinationv1.Lease {
	if c.w.FieldsKept {
		return l
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	delete(l.Annotations, v1alpha1.StrategyAnnotation)
	delete(l.Annotations, v1alpha1.PreferredHolderAnnotation)
	if l.Spec.Strategy != nil {
		l.Annotations[v1alpha1.StrategyAnnotation] = string(*l.Spec.Strategy)
	}
	if l.Spec.PreferredHolder != nil {
		l.Annotations[v1alpha1.PreferredHolderAnnotation] = *l.Spec.PreferredHolder
	}
	return l
}

// snapshot gathers what the decision depends on.
func (c *Coordinator) snapshot() *election.Snapshot {
	s := &election.Snapshot{
		Now: c.clock(), Key: leaseKey, Lease: c.lease, Observed: &c.observed,
		FieldsKept: c.w.FieldsKept, Settings: &c.w.Settings,
		Candidates: make([]election.Candidate, 0, len(c.candidates)),
	}
	for _, v := range c.candidates {
		s.Candidates = append(s.Candidates, election.Candidate{Candidate: v.candidate, Observed: v.observed})
	}
	return s
}

// decide decides and carries out, until there is nothing to do.
func (c *Coordinator) decide() {
	switch {
	case !c.active || !c.leasesListed || !c.candidatesListed:
		// A standby only observes; and nobody decides on a cache that was never filled.
		return
	case c.busy:
		c.dirty = true
		return
	}
	c.look.stop()
	s := c.snapshot()
	if c.w.Mutation != nil {
		observed := c.observed
		s.Observed = &observed
		c.w.Mutation(s)
	}
	d := election.Decide(s)
	c.w.decided(c, s, d)
	if c.w.Instead != nil {
		d = c.w.Instead(s, d)
	}
	c.heldOff = d.Reason == election.ReasonHoldOff
	if d.Action == election.None {
		if text := d.Sentence(); text != c.resting {
			c.resting = text
			c.w.detailf("%s rests: %s", c.name, text)
		}
		if !d.LookAgain.IsZero() {
			c.look = c.after(max(d.LookAgain.Sub(c.clock()), time.Millisecond), c.decide)
		}
		return
	}
	c.resting = ""
	c.busy = true
	switch d.Action {
	case election.Ping:
		c.w.logf("%s: %s", c.name, d.Sentence())
		c.ping(d)
	case election.Collect:
		c.w.logf("%s: %s", c.name, d.Sentence())
		c.collect(d)
	default:
		c.write(s, d)
	}
}

// carriedOut ends what decide began. After an error it waits a little.
func (c *Coordinator) carriedOut(err error) {
	c.busy, c.dirty = false, false
	if err != nil && !errors.Is(err, errConflict) {
		c.streak = 0
		c.look = c.after(c.w.between(time.Second, 2*time.Second), c.decide)
		return
	}
	c.decide()
}

const coordinatorTimeout = 5 * time.Second

func (c *Coordinator) ping(d election.Decision) {
	finish := c.carriedOutEach(len(d.Pings))
	for _, name := range d.Pings {
		v := c.view(name)
		was := v.candidate
		lc := v.object.DeepCopy()
		t := metav1.NewMicroTime(election.PingTime(election.Candidate{Candidate: was, Observed: v.observed}, c.clock()))
		lc.Spec.PingTime = &t
		var pinged *coordinationv1beta1.LeaseCandidate
		c.call(coordinatorTimeout, func() (err error) {
			pinged, err = c.w.server.updateCandidate(lc)
			if err == nil {
				c.w.pinged(c, pinged)
			}
			return err
		}, func(err error) {
			switch err {
			case nil:
				if now := c.view(name); now != nil && now.candidate.UID == was.UID && now.candidate.Renewed.Equal(was.Renewed) {
					now.observed = now.observed.Ping(c.clock())
					if d.Reason == election.ReasonCandidateDead {
						now.lastWords++
					}
					if older(now.object, pinged) {
						now.object = pinged
					}
				}
				finish(nil)
			case errConflict, errNotFound:
				c.rereadCandidate(name, finish)
			default:
				finish(err)
			}
		})
	}
}

// carriedOutEach returns what is to be called with the outcome of each of n writes.
func (c *Coordinator) carriedOutEach(n int) (finish func(error)) {
	var failure error
	return func(err error) {
		if err != nil && (failure == nil || errors.Is(failure, errConflict)) {
			failure = err
		}
		if n--; n == 0 {
			c.carriedOut(failure)
		}
	}
}

// collect deletes the registrations of the dead. One that has changed meanwhile is looked at again.
func (c *Coordinator) collect(d election.Decision) {
	finish := c.carriedOutEach(len(d.Dead))
	for _, dead := range d.Dead {
		if c.w.deleting != nil {
			c.w.deleting(dead.Name)
		}
		c.call(coordinatorTimeout, func() error {
			return c.w.server.collectCandidate(c, dead)
		}, func(err error) {
			switch err {
			case nil:
				c.forgetCandidateOf(dead.Name, dead.UID)
				finish(nil)
			case errConflict, errNotFound:
				c.w.detailf("%s could not delete the registration of %s: %v", c.name, dead.Name, err)
				c.rereadCandidate(dead.Name, finish)
			default:
				finish(err)
			}
		})
	}
}

func (c *Coordinator) rereadCandidate(name string, finish func(error)) {
	var got *coordinationv1beta1.LeaseCandidate
	c.call(coordinatorTimeout, func() error {
		if got = c.w.server.candidates[name]; got == nil {
			return errNotFound
		}
		return nil
	}, func(err error) {
		switch err {
		case nil:
			c.seeCandidate(got, false)
			err = errConflict
		case errNotFound:
			c.forgetCandidate(name)
			err = errConflict
		}
		finish(err)
	})
}

// write carries out a decision that writes the lease.
func (c *Coordinator) write(s *election.Snapshot, d election.Decision) {
	if s.Lease != nil {
		c.send(s, d, s.Lease.ResourceVersion)
		return
	}
	// The fencing token of a new Lease is the version of a list that shows there is none.
	var found *coordinationv1.Lease
	var version uint64
	c.call(coordinatorTimeout, func() error {
		found, version = c.w.server.leases[leaseName], c.w.server.version
		return nil
	}, func(err error) {
		switch {
		case err != nil:
			c.carriedOut(err)
		case found != nil:
			c.seeLease(change{lease: found, version: versionOf(found)}, false)
			c.carriedOut(errConflict)
		case c.lease != nil:
			c.carriedOut(errConflict)
		default:
			c.send(s, d, strconv.FormatUint(version, 10))
		}
	})
}

func (c *Coordinator) send(s *election.Snapshot, d election.Decision, base string) {
	l := d.Write(s, base)
	if c.w.Rewrite != nil {
		c.w.Rewrite(d, l)
	}
	l = c.encode(l)
	c.writing = true
	var after *coordinationv1.Lease
	c.call(coordinatorTimeout, func() (err error) {
		c.w.expectWrite(c, s, d)
		defer c.w.expectWrite(nil, nil, election.Decision{})
		if s.Lease == nil {
			after, err = c.w.server.createLease(&c.process, l)
		} else {
			after, err = c.w.server.updateLease(&c.process, l)
		}
		if err == nil {
			c.w.logf("%s: %s", c.name, d.Sentence())
		}
		return err
	}, func(err error) {
		c.writing = false
		if err == nil {
			canonical := c.decode(after)
			c.observed.Wrote(d, s.Lease, canonical, c.clock())
			c.lease, c.version = canonical, versionOf(after)
		} else {
			c.w.detailf("%s could not: %s: %v", c.name, d.Sentence(), err)
		}
		c.seeAside()
		switch err {
		case errConflict, errAlreadyExists, errNotFound:
			c.rereadLease()
		default:
			c.carriedOut(err)
		}
	})
}

// seeAside sees what was put aside.
func (c *Coordinator) seeAside() {
	aside := c.aside
	c.aside = nil
	for _, ch := range aside {
		c.seeLease(ch, ch.missed)
	}
}

func (c *Coordinator) rereadLease() {
	var got *coordinationv1.Lease
	c.call(coordinatorTimeout, func() (err error) {
		got, err = c.w.server.lease(leaseName)
		return err
	}, func(err error) {
		switch {
		case err == nil:
			c.seeLease(change{lease: got, version: versionOf(got)}, false)
			err = errConflict
		case err == errNotFound && c.lease != nil:
			// The watch will show the deletion, too; this is seen first.
			c.lease = nil
			c.observed.SeeDeleted(c.clock(), true)
			err = errConflict
		case err == errNotFound:
			err = errConflict
		}
		c.carriedOut(err)
	})
}
