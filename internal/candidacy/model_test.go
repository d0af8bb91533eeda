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

package candidacy

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A model of everything around candidates: an API server, a coordinator that may do whatever the protocol allows, a network
// that delays, loses and reports wrongly, processes that die and come back. Each candidate runs the real Machine. All
// orders of events are explored, breadth first, so that what fails is shown by the shortest way there.
//
// Time passes in units of five seconds, in which any number of things happen in any order. That is coarse, but every
// limit of the machine is a multiple of it, so that everything that can coincide does. Stamps are as coarse: clocks that
// agree to the microsecond are the rule here.

var (
	deep     = flag.Bool("deep", false, "explore the model of candidates further, for minutes")
	walkSeed = flag.Uint64("seed", 0, "where random walks through the model begin; 0 for anywhere")
	walkLog  = flag.Int("walk", -1, "the walk to write down")
)

const unit = 5 * time.Second

// budget is how often the environment may do what hurts.
type budget struct {
	// faults counts requests that fail: executed and not reported, not executed, or executed at any time later.
	faults int8
	// delays counts watches and connections that become slow: until they recover, which they may at any time, what they
	// carry comes when it likes. Others are fast: what they carry comes before anything else happens.
	delays int8
	// coordinator counts the coordinator's writes.
	coordinator int8
	crashes     int8
	deletions   int8
	// whims counts changes of health, shutdowns and work that ends by itself.
	whims int8
}

type modelConfig struct {
	name       string
	identities []string
	skew       []Stamp
	fallback   time.Duration
	budget     budget
	// leading starts with the first candidate in office.
	leading bool
	mutate  mutation
	// states is where to stop. open is set if it is reached before all is explored.
	states int
	open   bool
}

// mutation breaks a machine: before is called before each input, after after it.
type mutation struct {
	before func(m *Machine, at Instant)
	after  func(m *Machine, in string, at Instant, effects []Effect) []Effect
}

type phase int8

const (
	idle phase = iota
	sent
	executed
)

type work int8

const (
	resting work = iota
	running
	draining
)

type modelCandidate struct {
	machine     Machine
	alive       bool
	identity    string
	wall        Stamp
	restarts    int8
	work        work
	cancelledAt time.Duration
	// claimSent is when the last write of a claim that is known to have succeeded was sent.
	claimSent time.Duration
	lastToken uint64
	events    backlog
	// lagging is set while the watch is slow, slow while requests and responses are.
	lagging, slow bool

	write   WriteLease
	sentAt  time.Duration
	state   phase
	outcome Outcome
	after   Lease

	reading      bool
	registration Registration
}

// backlog is what a watch has still to show. One that is too far behind misses events, as it does after it was broken.
type backlog struct {
	events [3]Lease
	n      int
	missed bool
}

func (b *backlog) add(l Lease) {
	if b.n == len(b.events) {
		copy(b.events[:], b.events[1:])
		b.n--
		b.missed = true
	}
	b.events[b.n] = l
	b.n++
}

func (b *backlog) take() Lease {
	l := b.events[0]
	copy(b.events[:], b.events[1:])
	b.n--
	b.events[b.n] = Lease{}
	return l
}

// modelCoordinator observes as internal/election does.
type modelCoordinator struct {
	lease    Lease
	last     Lease
	claimEnd time.Duration
	duration time.Duration
	// appointed is the version of its last appointment.
	appointed uint64
	unsure    bool
	events    backlog
	lagging   bool
}

type world struct {
	config  *modelConfig
	n       int
	now     time.Duration
	version uint64
	lease   Lease
	c       [4]modelCandidate
	co      modelCoordinator
	// limbo is a request that was reported to have failed and may still be carried out.
	limbo    WriteLease
	limboOf  int8
	inLimbo  bool
	left     budget
	maxToken uint64
	// terms counts the starts of work.
	terms int
	fault string
	log   *[]string
}

func (w *world) logf(format string, args ...any) {
	if w.log != nil {
		*w.log = append(*w.log, fmt.Sprintf("%4ds  ", int(w.now.Seconds()))+fmt.Sprintf(format, args...))
	}
}

func (w *world) failf(format string, args ...any) {
	if w.fault == "" {
		w.fault = fmt.Sprintf(format, args...)
		w.logf("FAULT %s", w.fault)
	}
}

func (w *world) at(i int) Instant {
	return Instant{Mono: w.now + offset(i), Wall: w.wall(i)}
}

// offset tells the candidates' monotonic clocks apart.
func offset(i int) time.Duration { return time.Duration(i+1) * 1000 * time.Hour }

func (w *world) wall(i int) Stamp {
	return 1_000_000 + Stamp(w.now/unit)*1000 + w.c[i].wall
}

func newWorld(config *modelConfig) *world {
	w := &world{config: config, n: len(config.identities), version: 10, now: 100 * unit, limboOf: -1}
	w.lease.Version = w.version
	w.co.lease, w.co.claimEnd = w.lease, w.now
	for i, id := range config.identities {
		if len(config.skew) > 0 {
			w.c[i].wall = config.skew[i]
		}
		w.start(i, id)
	}
	if config.leading {
		w.left = budget{coordinator: 1}
		w.coordinate(appoint, 0)
		w.calm()
		w.step()
		w.calm()
	}
	w.left = config.budget
	return w
}

func (w *world) start(i int, identity string) {
	c := &w.c[i]
	*c = modelCandidate{alive: true, identity: identity, wall: c.wall, restarts: c.restarts, registration: c.registration, claimSent: -1000 * time.Hour}
	c.machine = New(Config{
		Identity: identity, LeaseDuration: 3 * unit, RenewDeadline: 2 * unit, RetryPeriod: unit, DrainLimit: unit,
		HandOffWait: unit, FallbackAfter: w.config.fallback, RegistrationPeriod: 10000 * time.Hour,
	}, w.at(i))
	c.registration.Known = true
	w.input(i, "SeeRegistration", func(m *Machine, at Instant) []Effect { return m.SeeRegistration(c.registration, at) })
	w.input(i, "SeeLease", func(m *Machine, at Instant) []Effect { return m.SeeLease(w.lease, at) })
}

// input gives the machine a fact, and carries out what it wants.
func (w *world) input(i int, name string, f func(m *Machine, at Instant) []Effect) {
	c := &w.c[i]
	at := w.at(i)
	mutate := &w.config.mutate
	if mutate.before != nil {
		mutate.before(&c.machine, at)
	}
	effects := f(&c.machine, at)
	if mutate.after != nil {
		effects = mutate.after(&c.machine, name, at, effects)
	}
	for len(effects) > 0 {
		e := effects[0]
		effects = effects[1:]
		if w.log != nil {
			w.logf("%s: %T%+v", c.identity, e, e)
		}
		switch e := e.(type) {
		case WriteLease:
			switch {
			case c.state != idle:
				w.failf("%s writes while a write is under way", c.identity)
			case e.Base.Version == 0:
				w.failf("%s writes without having seen the lease", c.identity)
			case (e.Why == Transfer || e.Why == Release) && c.work != resting:
				w.failf("%s: %s while the work has not stopped", c.identity, e.Why)
			}
			c.write, c.state, c.sentAt = e, sent, w.now
		case ReadLease:
			if c.reading {
				w.failf("%s reads while it reads", c.identity)
			}
			c.reading = true
		case WriteRegistration:
			effects = append(effects, w.writeRegistration(i, e, at)...)
		case StartWork:
			w.startWork(i, e.Term)
		case CancelWork:
			if c.work != running {
				w.failf("%s cancels work that does not run", c.identity)
			}
			c.work, c.cancelledAt = draining, w.now
		case EndProcess:
			if c.work == resting {
				w.failf("%s ends its process although no work runs", c.identity)
			}
			w.crash(i)
			return
		case Done:
			if c.work != resting || c.registration.Exists {
				w.failf("%s is done, with work %d and registration %v", c.identity, c.work, c.registration.Exists)
			}
			c.alive = false
		}
	}
}

func (w *world) writeRegistration(i int, e WriteRegistration, at Instant) []Effect {
	c := &w.c[i]
	r := &c.registration
	w.version++
	switch e.Why {
	case Create:
		*r = Registration{Exists: true, Current: true, Renewed: e.Renewed}
	case Update:
		r.Current, r.Resigned, r.Renewed = true, false, e.Renewed
	case Ack:
		r.Renewed = e.Renewed
	case Resign:
		r.Resigned = true
	case Delete:
		*r = Registration{}
	}
	r.Known, r.Version = true, w.version
	return c.machine.RegistrationWritten(Succeeded, *r, at)
}

func (w *world) startWork(i int, term Term) {
	c := &w.c[i]
	if c.work != resting {
		w.failf("%s starts work that runs", c.identity)
	}
	c.work = running
	w.terms++
	token, _ := strconv.ParseUint(term.Token, 10, 64)
	if token < w.maxToken || token == w.maxToken && c.lastToken != token {
		w.failf("%s starts with token %q after one of %d (I3)", c.identity, term.Token, w.maxToken)
	}
	w.maxToken, c.lastToken = max(w.maxToken, token), token
	if l, _, ok := c.machine.Leading(); !ok || l-offset(i) <= w.now {
		w.failf("%s starts without a claim", c.identity)
	}
}

// check holds for every state.
func (w *world) check() {
	busy := 0
	for i := range w.n {
		c := &w.c[i]
		if c.work == resting {
			continue
		}
		busy++
		switch {
		case c.work == running && w.now >= c.claimSent+2*unit:
			w.failf("%s works past its renew deadline", c.identity)
		case w.now >= c.claimSent+3*unit:
			w.failf("%s works past its claim", c.identity)
		case c.work == draining && w.now >= c.cancelledAt+unit:
			w.failf("%s works past its drain limit", c.identity)
		}
	}
	if busy > 1 {
		w.failf("two work at once (I1)")
	}
}

func (w *world) crash(i int) {
	c := &w.c[i]
	if c.state == sent {
		w.limbo, w.limboOf, w.inLimbo = c.write, int8(i), true
	}
	c.alive, c.work, c.state, c.reading = false, resting, idle, false
	c.events, c.lagging, c.slow = backlog{}, false, false
}

// execute carries out a request on the API server.
func (w *world) execute(r *WriteLease) (Outcome, Lease) {
	if r.Base.Exists != w.lease.Exists || r.Base.Exists && r.Base.Version != w.lease.Version {
		return Conflicted, Lease{}
	}
	w.put(r.Next)
	return Succeeded, w.lease
}

func (w *world) put(l Lease) {
	w.version++
	l.Version = w.version
	w.lease = l
	for i := range w.n {
		if w.c[i].alive {
			w.c[i].events.add(l)
		}
	}
	w.co.events.add(l)
	if w.log != nil {
		w.logf("lease is %+v", l)
	}
}

func (w *world) answer(i int, outcome Outcome, after Lease) {
	c := &w.c[i]
	c.state = idle
	if outcome == Succeeded {
		switch c.write.Why {
		case TakeUp, Renew, SelfClaim:
			c.claimSent = c.sentAt
		}
	}
	w.input(i, "LeaseWritten", func(m *Machine, at Instant) []Effect { return m.LeaseWritten(outcome, after, at) })
}

func (w *world) step() {
	w.now += unit
	for i := range w.n {
		if w.c[i].alive {
			w.input(i, "Tick", func(m *Machine, at Instant) []Effect { return m.Tick(at) })
		}
	}
}

func (w *world) seeCoordinator(l Lease) {
	co := &w.co
	if l.Version < co.lease.Version || l.Version == co.lease.Version && l.Exists {
		return
	}
	before := co.lease
	co.lease = l
	if l.Version != co.appointed {
		if l.Exists || co.events.missed {
			co.appointed = 0
		}
	}
	switch {
	case !l.Exists:
		co.unsure = co.events.missed
		if co.unsure {
			co.claimEnd = w.now + max(co.duration, DefaultClaim)
		}
	case l.Holder == "":
		co.claimEnd = w.now
	case !before.Exists || l.Holder != before.Holder || l.Renewed != before.Renewed:
		co.claimEnd, co.duration = w.now+l.claim(), l.claim()
	}
	if l.Exists {
		co.last = l
		co.events.missed = false
	}
}

type action int8

const (
	tick action = iota
	show
	carryOut
	respond
	loseResponse
	loseRequest
	loseToLimbo
	fromLimbo
	answerRead
	failRead
	stopWork
	endWork
	crash
	restart
	restartSame
	sicken
	shutDown
	remove
	coordinatorSees
	appoint
	prefer
	clear
	revoke
	restore
	lag
	recover
	slowDown
	speedUp
	lagCoordinator
	recoverCoordinator
	actions
)

var actionNames = [actions]string{
	"a unit of time passes", "the watch shows", "the request is carried out", "the response comes", "the response is lost",
	"the request is lost", "the request seems lost", "the request that seemed lost is carried out", "the read is answered",
	"the read fails", "the work stops", "the work ends by itself", "the process dies", "starts anew under another name",
	"starts anew under the same name", "health changes", "is shut down", "the lease is deleted",
	"the coordinator's watch shows", "the coordinator appoints", "the coordinator prefers", "the coordinator clears",
	"the coordinator revokes", "the coordinator restores",
	"the watch becomes slow", "the watch recovers", "requests become slow", "requests recover", "the coordinator's watch becomes slow",
	"the coordinator's watch recovers",
}

// do carries out the action on candidate i and what follows at once, and reports whether it could.
func (w *world) do(a action, i int) bool {
	if !w.try(a, i) {
		return false
	}
	w.check()
	for busy := true; busy && w.fault == ""; {
		busy = false
		for j := range w.n {
			c := &w.c[j]
			busy = !c.lagging && w.try(show, j) || !c.slow && (w.try(respond, j) || w.try(answerRead, j)) || busy
			w.check()
		}
		busy = !w.co.lagging && w.try(coordinatorSees, 0) || busy
	}
	return true
}

func (w *world) try(a action, i int) bool {
	c := &w.c[i]
	spend := func(b *int8) bool {
		if *b == 0 {
			return false
		}
		*b--
		return true
	}
	switch a {
	case tick:
		if i != 0 {
			return false
		}
		for j := range w.n {
			o := &w.c[j]
			if o.reading || o.state != idle && (!o.slow || w.now >= o.sentAt+2*unit) {
				return false
			}
		}
		w.step()
	case show:
		if !c.alive || c.events.n == 0 {
			return false
		}
		l := c.events.take()
		w.input(i, "SeeLease", func(m *Machine, at Instant) []Effect { return m.SeeLease(l, at) })
	case carryOut:
		if c.state != sent {
			return false
		}
		if (c.write.Why == Transfer || c.write.Why == Release) && c.work != resting {
			w.failf("%s is carried out while the work of %s runs", c.write.Why, c.identity)
		}
		c.outcome, c.after = w.execute(&c.write)
		c.state = executed
	case respond:
		if c.state != executed {
			return false
		}
		w.answer(i, c.outcome, c.after)
	case loseResponse:
		if c.state == idle || !spend(&w.left.faults) {
			return false
		}
		if c.state == sent {
			w.execute(&c.write)
		}
		w.answer(i, Failed, Lease{})
	case loseRequest:
		if c.state != sent || !spend(&w.left.faults) {
			return false
		}
		w.answer(i, Failed, Lease{})
	case loseToLimbo:
		if c.state != sent || w.inLimbo || !spend(&w.left.faults) {
			return false
		}
		w.limbo, w.limboOf, w.inLimbo = c.write, int8(i), true
		w.answer(i, Failed, Lease{})
	case fromLimbo:
		if !w.inLimbo || i != 0 {
			return false
		}
		o := &w.c[w.limboOf]
		if outcome, _ := w.execute(&w.limbo); outcome == Succeeded && (w.limbo.Why == Transfer || w.limbo.Why == Release) &&
			o.identity == w.limbo.Base.Holder && o.work != resting {
			w.failf("late %s while the work of %s runs", w.limbo.Why, o.identity)
		}
		w.inLimbo, w.limbo, w.limboOf = false, WriteLease{}, -1
	case answerRead:
		if !c.reading {
			return false
		}
		c.reading = false
		l := w.lease
		w.input(i, "LeaseRead", func(m *Machine, at Instant) []Effect { return m.LeaseRead(l, false, at) })
	case failRead:
		if !c.reading || !spend(&w.left.faults) {
			return false
		}
		c.reading = false
		w.input(i, "LeaseRead", func(m *Machine, at Instant) []Effect { return m.LeaseRead(Lease{}, true, at) })
	case stopWork, endWork:
		if a == stopWork && c.work != draining || a == endWork && (c.work != running || !spend(&w.left.whims)) {
			return false
		}
		c.work = resting
		w.input(i, "WorkStopped", func(m *Machine, at Instant) []Effect { return m.WorkStopped(at) })
	case crash:
		if !c.alive || !spend(&w.left.crashes) {
			return false
		}
		w.crash(i)
	case restart, restartSame:
		if c.alive || c.restarts > 0 {
			return false
		}
		c.restarts++
		identity := c.identity
		if a == restart {
			identity = strings.TrimRight(identity, "'")
			if identity == c.identity {
				identity += "'"
			}
			c.registration = Registration{}
		}
		w.start(i, identity)
	case sicken:
		if !c.alive || c.machine.shutdown || !c.machine.unhealthy && !spend(&w.left.whims) {
			return false
		}
		healthy := c.machine.unhealthy
		w.input(i, "Health", func(m *Machine, at Instant) []Effect { return m.Health(healthy, at) })
	case shutDown:
		if !c.alive || c.machine.shutdown || !spend(&w.left.whims) {
			return false
		}
		w.input(i, "Shutdown", func(m *Machine, at Instant) []Effect { return m.Shutdown(at) })
	case remove:
		if i != 0 || !w.lease.Exists || !spend(&w.left.deletions) {
			return false
		}
		w.put(Lease{})
	case coordinatorSees:
		if i != 0 || w.co.events.n == 0 {
			return false
		}
		w.seeCoordinator(w.co.events.take())
	case lag:
		if !c.alive || c.lagging || !spend(&w.left.delays) {
			return false
		}
		c.lagging = true
	case slowDown:
		if !c.alive || c.slow || !spend(&w.left.delays) {
			return false
		}
		c.slow = true
	case lagCoordinator:
		if i != 0 || w.co.lagging || !spend(&w.left.delays) {
			return false
		}
		w.co.lagging = true
	case recover:
		if !c.lagging {
			return false
		}
		c.lagging = false
	case speedUp:
		if !c.slow {
			return false
		}
		c.slow = false
	case recoverCoordinator:
		if i != 0 || !w.co.lagging {
			return false
		}
		w.co.lagging = false
	default:
		return w.left.coordinator > 0 && w.coordinate(a, i)
	}
	return true
}

// coordinate has the coordinator write, if its rules allow that.
func (w *world) coordinate(a action, i int) bool {
	co := &w.co
	l, next, name := co.lease, co.lease, w.c[i].identity
	stamp := 1_000_000 + Stamp(w.now/unit)*1000
	appointment := co.appointed != 0 && (!l.Exists || l.Version == co.appointed)
	vacant := appointment || w.now >= co.claimEnd
	end := co.claimEnd
	switch a {
	case appoint:
		if !vacant || !l.Exists && co.events.n > 0 {
			return false
		}
		if !appointment || l.Holder != name {
			next.Token = strconv.FormatUint(l.Version, 10)
		}
		next.Transitions = max(l.Transitions, co.last.Transitions)
		if l.Holder != name {
			next.Transitions++
		}
		next.Exists, next.Holder, next.Preferred, next.Coordinated = true, name, "", true
		next.Acquired, next.Renewed, next.Duration = stamp, stamp, minTakeUp
	case prefer:
		if !l.Exists || vacant || l.Holder == "" || l.Holder == name || l.Preferred == name || l.Holder == "revoked" {
			return false
		}
		next.Preferred, next.Coordinated = name, true
	case clear:
		if i != 0 || !l.Exists || l.Preferred == "" {
			return false
		}
		next.Preferred = ""
	case revoke:
		if !l.Exists || vacant || l.Holder == "" || l.Holder == name || l.Holder == "revoked" {
			return false
		}
		next.Holder, next.Renewed, next.Duration, next.Preferred, next.Coordinated = "revoked", stamp, co.duration, name, true
	case restore:
		if i != 0 || l.Exists || vacant || co.unsure || !co.last.Exists || co.last.Holder == "" {
			return false
		}
		next = co.last
	}
	w.left.coordinator--
	r := WriteLease{Base: l, Next: next}
	outcome, after := w.execute(&r)
	if outcome != Succeeded {
		return true
	}
	w.seeCoordinator(after)
	switch a {
	case appoint:
		co.appointed = after.Version
		co.claimEnd, co.duration = w.now+minTakeUp, minTakeUp
	case revoke, prefer, clear:
		co.claimEnd = end
	}
	return true
}

// calm lets everything that is under way come to its end, without faults.
func (w *world) calm() {
	for range 200 {
		busy := false
		for _, a := range []action{carryOut, respond, answerRead, show, stopWork, coordinatorSees} {
			for i := range w.n {
				busy = (a != show || !w.c[i].lagging) && w.do(a, i) || busy
			}
		}
		if !busy {
			return
		}
		w.check()
	}
	w.failf("no calm: the machines go on and on at one moment")
}

// settles checks that, once nothing more goes wrong and no coordinator is left, somebody leads before long, and stays.
func (w *world) settles() bool {
	w.left, w.inLimbo, w.co.lagging = budget{}, false, false
	// A broken watch is no reason not to lead: it is what looking at the lease now and then is for.
	fit := false
	for i := range w.n {
		c := &w.c[i]
		c.slow = false
		if c.alive && c.machine.unhealthy {
			w.do(sicken, i)
		}
		fit = fit || c.alive && !c.machine.shutdown
	}
	leader := -1
	for n := range 24 {
		w.calm()
		now := -1
		for i := range w.n {
			if w.c[i].work == running {
				now = i
			}
		}
		switch {
		case w.fault != "":
			return false
		case n < 18:
		case fit && now < 0:
			w.failf("nobody leads, %d units after all has been well", n)
		case n > 18 && now != leader:
			w.failf("leadership moves although all is well")
		}
		leader = now
		w.step()
		w.check()
	}
	for i := range w.n {
		if c := &w.c[i]; c.alive && c.machine.shutdown {
			w.failf("%s shuts down and is never done", c.identity)
		}
	}
	return w.fault == ""
}

// encoder writes a state down so that states that behave alike look alike: times count from now, versions and stamps by
// their order.
type encoder struct {
	collect  bool
	versions []uint64
	stamps   []Stamp
	base     time.Duration
	low      Stamp
	out      []byte
	maxTrans int32
}

func (e *encoder) int(n int64) { e.out = binary.AppendVarint(e.out, n) }
func (e *encoder) bits(b ...bool) {
	var n int64
	for i, set := range b {
		if set {
			n |= 1 << i
		}
	}
	e.int(n)
}
func (e *encoder) str(s string) { e.out = append(append(e.out, s...), 0) }

// time writes a moment. How long ago it was does not matter beyond so many units.
func (e *encoder) time(t time.Duration, units time.Duration) {
	e.int(int64(max(t-e.base, -units*unit) / (unit / 4)))
}
func (e *encoder) ver(v uint64) {
	if e.collect {
		e.versions = append(e.versions, v)
		return
	}
	n, _ := slices.BinarySearch(e.versions, v)
	e.int(int64(n))
}
func (e *encoder) token(s string) {
	v, _ := strconv.ParseUint(s, 10, 64)
	e.ver(v)
}

// stamp writes a stamp of a lease.
func (e *encoder) stamp(s Stamp) {
	if e.collect {
		e.stamps = append(e.stamps, s)
		return
	}
	if s >= e.low {
		e.int(int64(s - e.low + 1000))
		return
	}
	n, _ := slices.BinarySearch(e.stamps, s)
	e.int(int64(n))
}

// own writes a stamp that a machine remembers: it matters only if some lease has it.
func (e *encoder) own(s Stamp) {
	if e.collect {
		return
	}
	if _, ok := slices.BinarySearch(e.stamps, s); ok || s >= e.low {
		e.stamp(s)
	} else {
		e.int(-1)
	}
}
func (e *encoder) trans(n int32) {
	if e.collect {
		e.maxTrans = max(e.maxTrans, n)
	}
	e.int(int64(e.maxTrans - n))
}

func (e *encoder) lease(l *Lease) {
	e.bits(l.Exists, l.Coordinated, l.Paused)
	e.ver(l.Version)
	if !l.Exists {
		return
	}
	e.str(l.Holder)
	e.str(l.Preferred)
	e.stamp(l.Acquired)
	e.stamp(l.Renewed)
	e.int(int64(l.Duration / time.Second))
	e.trans(l.Transitions)
	e.token(l.Token)
}

func (e *encoder) request(r *WriteLease) {
	e.str(string(r.Why))
	e.lease(&r.Base)
	e.lease(&r.Next)
}

func (e *encoder) backlog(b *backlog) {
	e.int(int64(b.n))
	e.bits(b.missed)
	for i := range b.n {
		e.lease(&b.events[i])
	}
}

func (e *encoder) machine(m *Machine) {
	e.bits(m.known, m.coordinated, m.flight.open, m.reading, m.mustRead, m.working, m.cancelled, m.claimed, m.ended, m.nominated,
		m.shutdown, m.unhealthy, m.done, m.registered, m.doubtful, m.registration.Exists, m.registration.Resigned)
	e.lease(&m.lease)
	e.time(m.leaseSeen, 4)
	e.time(m.claimEnd, 4)
	e.int(int64(m.claimDuration / unit))
	e.time(m.vacantAt, 0)
	e.time(m.contestedUntil, 0)
	e.trans(m.transitions)
	for i := range ownStamps {
		s := m.stamps[(m.nextStamp+i)%ownStamps]
		e.own(s.at)
		e.bits(s.created)
	}
	if m.flight.open {
		e.time(m.flight.sent, 4)
	}
	e.time(m.readAt, 0)
	e.time(m.lookedAt, 5)
	e.time(m.retryAt, 0)
	e.int(int64(min(m.conflicts, 4)))
	e.int(int64(min(m.failures, maxTries)))
	e.int(int64(min(m.deleteTries, maxTries)))
	if m.cancelled {
		e.time(m.cancelledAt, 2)
	}
	e.time(m.idleSince, 2)
	e.token(m.term.Token)
	if m.working {
		e.trans(m.term.Transitions)
		e.stamp(m.acquired)
	}
	e.time(m.renewedAt, 4)
	if m.doubtful {
		e.time(m.doubtUntil, 0)
	}
	e.time(m.coordinatorSeen, 4)
}

func (e *encoder) world(w *world) {
	e.out = e.out[:0]
	e.base = w.now
	e.lease(&w.lease)
	e.bits(w.inLimbo)
	if w.inLimbo {
		e.request(&w.limbo)
		e.int(int64(w.limboOf))
	}
	b := w.left
	for _, n := range []int8{b.faults, b.coordinator, b.crashes, b.deletions, b.whims, b.delays} {
		e.int(int64(n))
	}
	e.ver(w.maxToken)
	co := &w.co
	e.lease(&co.lease)
	if !co.lease.Exists {
		e.lease(&co.last)
	}
	e.time(co.claimEnd, 0)
	e.int(int64(co.duration / time.Second))
	e.ver(co.appointed)
	e.bits(co.unsure, co.lagging)
	e.backlog(&co.events)
	for i := range w.n {
		c := &w.c[i]
		e.str(c.identity)
		e.int(int64(c.restarts))
		e.bits(c.alive, c.reading, c.registration.Exists, c.registration.Resigned, c.lastToken == w.maxToken,
			c.lagging, c.slow)
		if !c.alive {
			continue
		}
		e.base = w.now
		e.int(int64(c.work))
		e.time(c.claimSent, 4)
		if c.work == draining {
			e.time(c.cancelledAt, 2)
		}
		e.int(int64(c.state))
		if c.state != idle {
			e.time(c.sentAt, 4)
			e.request(&c.write)
		}
		if c.state == executed {
			e.int(int64(c.outcome))
			e.lease(&c.after)
		}
		e.backlog(&c.events)
		e.base = w.now + offset(i)
		e.machine(&c.machine)
	}
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func (e *encoder) hash(w *world) [2]uint64 {
	e.collect, e.versions, e.stamps, e.maxTrans = true, e.versions[:0], e.stamps[:0], 0
	e.low = w.wall(0)
	for i := range w.n {
		e.low = min(e.low, w.wall(i))
	}
	e.world(w)
	slices.Sort(e.versions)
	e.versions = slices.Compact(e.versions)
	slices.Sort(e.stamps)
	e.stamps = slices.Compact(e.stamps)
	e.collect = false
	e.world(w)
	return [2]uint64{maphash.Bytes(seeds[0], e.out), maphash.Bytes(seeds[1], e.out)}
}

type step struct {
	parent int32
	a      action
	i      int8
}

type exploration struct {
	states, depth int
	closed        bool
	fault         string
	trace         []string
}

func explore(config *modelConfig) exploration {
	limit := config.states
	var e encoder
	start := newWorld(config)
	type node struct {
		w  world
		id int32
	}
	seen := map[[2]uint64]struct{}{e.hash(start): {}}
	steps := []step{{parent: -1}}
	layer := []node{{*start, 0}}
	fail := func(id int32, fault string, settling bool) exploration {
		var way []step
		for ; id > 0; id = steps[id].parent {
			way = append(way, steps[id])
		}
		var log []string
		w := newWorld(config)
		w.log = &log
		for _, s := range slices.Backward(way) {
			w.logf("--- %s: %s", w.c[s.i].identity, actionNames[s.a])
			w.do(s.a, int(s.i))
		}
		if settling {
			w.logf("=== from here on all is well")
			w.settles()
		}
		return exploration{states: len(seen), depth: len(way), fault: fault, trace: log}
	}
	if start.fault != "" {
		return exploration{fault: start.fault}
	}
	depth := 0
	var w world
	for len(layer) > 0 {
		var next []node
		for k := range layer {
			n := &layer[k]
			if n.id%16 == 0 {
				if w = n.w; !w.settles() {
					return fail(n.id, w.fault, true)
				}
			}
			w = n.w
			for a := range actions {
				for i := range n.w.n {
					if !w.do(a, i) {
						continue
					}
					if w.fault != "" {
						id := int32(len(steps))
						steps = append(steps, step{n.id, a, int8(i)})
						return fail(id, w.fault, false)
					}
					h := e.hash(&w)
					if _, ok := seen[h]; !ok {
						seen[h] = struct{}{}
						next = append(next, node{w, int32(len(steps))})
						steps = append(steps, step{n.id, a, int8(i)})
					}
					w = n.w
				}
			}
			if len(seen) >= limit {
				return exploration{states: len(seen), depth: depth}
			}
		}
		layer = next
		depth++
	}
	return exploration{states: len(seen), depth: depth, closed: true}
}

var two, twins, three = []string{"a", "b"}, []string{"a", "a"}, []string{"a", "b", "c"}

// modelConfigs are explored to the end by default, and with more of everything by -deep.
var modelConfigs = []modelConfig{
	{name: "two writes of the coordinator", identities: two, fallback: 3 * unit, leading: true, budget: budget{coordinator: 2}},
	{name: "a coordinator and a fault", identities: two, fallback: 3 * unit, leading: true, budget: budget{coordinator: 1, faults: 1}},
	{name: "a coordinator and a slow connection", identities: two, skew: []Stamp{0, -1000}, fallback: 3 * unit, leading: true,
		budget: budget{coordinator: 1, delays: 1}},
	{name: "a coordinator and a deletion", identities: two, budget: budget{coordinator: 1, deletions: 1}},
	{name: "a coordinator and a whim", identities: two, fallback: 3 * unit, leading: true, budget: budget{coordinator: 1, whims: 1}},
	{name: "a coordinator and a crash", identities: two, leading: true, budget: budget{coordinator: 1, crashes: 1}},
	{name: "a fault and a deletion", identities: two, fallback: unit, leading: true, budget: budget{faults: 1, deletions: 1}},
	{name: "a slow connection and a deletion", identities: two, leading: true, budget: budget{delays: 1, deletions: 1}},
	{name: "two whims", identities: two, fallback: 2 * unit, leading: true, budget: budget{whims: 2}},
	{name: "a whim and a fault", identities: two, leading: true, budget: budget{whims: 1, faults: 1}},
	{name: "a crash and a deletion", identities: two, leading: true, budget: budget{crashes: 1, deletions: 1}},
	{name: "a crash and a slow connection", identities: two, fallback: unit, leading: true, open: true, budget: budget{crashes: 1, delays: 1}},
	{name: "two faults", identities: two, fallback: unit, leading: true, budget: budget{faults: 2}},
	{name: "twins", identities: twins, budget: budget{coordinator: 2}},
	{name: "twins and a deletion", identities: twins, leading: true, budget: budget{coordinator: 1, deletions: 1}},
	{name: "three candidates", identities: three, fallback: 3 * unit, leading: true, budget: budget{coordinator: 2}},
	{name: "three candidates and a fault", identities: three, leading: true, budget: budget{faults: 1}},
}

// TestModel explores the model: all there is to it, unless -deep.
func TestModel(t *testing.T) {
	for _, config := range modelConfigs {
		t.Run(config.name, func(t *testing.T) {
			t.Parallel()
			config.states = 60_000
			if config.open {
				config.states = 20_000
			}
			if *deep {
				config.states = 200_000
				b := &config.budget
				b.faults, b.delays, b.coordinator, b.whims = b.faults+1, b.delays+1, b.coordinator+1, b.whims+1
			}
			began := time.Now()
			x := explore(&config)
			if x.fault != "" {
				t.Fatalf("%s\n%s", x.fault, strings.Join(x.trace, "\n"))
			}
			t.Logf("%d states, to a depth of %d, in %s", x.states, x.depth, time.Since(began).Round(time.Millisecond))
			if !x.closed && !config.open && !*deep {
				t.Errorf("there are more states than that")
			}
		})
	}
}

// breakages are machines with a fault each. The model must find every one, or it proves nothing.
var breakages = []struct {
	name string
	// in is the part of the model that finds it.
	in string
	mutation
}{
	{"work starts when the watch shows the appointment", "two writes of the coordinator", mutation{after: func(m *Machine, in string, at Instant, effects []Effect) []Effect {
		if in == "SeeLease" && !m.working && m.holds() && m.lease.appointment() && !m.leaving() {
			m.working, m.cancelled, m.renewedAt = true, false, at.Mono
			m.term = Term{Token: m.lease.Token, Transitions: m.lease.Transitions}
			return append(effects, StartWork{m.term})
		}
		return effects
	}}},
	{"the claim counts from the response", "a coordinator and a slow connection", mutation{after: func(m *Machine, in string, at Instant, effects []Effect) []Effect {
		if in == "LeaseWritten" && m.claimed && m.conflicts == 0 && m.failures == 0 {
			m.renewedAt = at.Mono
		}
		return effects
	}}},
	{"the lease is handed over before the work has stopped", "two writes of the coordinator", mutation{after: func(m *Machine, _ string, at Instant, effects []Effect) []Effect {
		if m.working && m.cancelled && m.endOfTerm() && !m.flight.open {
			return append(effects, m.handOver(at))
		}
		return effects
	}}},
	{"the lease is released before the work has stopped", "a coordinator and a whim", mutation{after: func(m *Machine, _ string, at Instant, effects []Effect) []Effect {
		if m.working && m.cancelled && m.resigning() && m.holds() && !m.flight.open {
			next := m.renewed(at)
			next.Holder = ""
			return append(effects, m.write(Release, next, at))
		}
		return effects
	}}},
	{"a renewal by another process counts as its own", "twins", mutation{after: func(m *Machine, _ string, at Instant, effects []Effect) []Effect {
		m.stamps[0] = ownStamp{at: m.lease.Renewed}
		return effects
	}}},
	{"the renew deadline is ignored", "a coordinator and a fault", mutation{before: func(m *Machine, _ Instant) { m.config.RenewDeadline = 3 * unit }}},
	{"the process does not end", "two writes of the coordinator", mutation{after: func(_ *Machine, _ string, _ Instant, effects []Effect) []Effect {
		return slices.DeleteFunc(effects, func(e Effect) bool { _, ok := e.(EndProcess); return ok })
	}}},
	{"the drain is not limited", "two writes of the coordinator", mutation{before: func(m *Machine, _ Instant) { m.config.DrainLimit = 1000 * unit }}},
	{"a claim is not waited for", "a coordinator and a deletion", mutation{before: func(m *Machine, at Instant) { m.claimEnd = min(m.claimEnd, at.Mono) }}},
	{"a lease that is gone counts as vacant at once", "a coordinator and a deletion", mutation{
		before: func(m *Machine, _ Instant) { m.vacantAt = 0 },
		after: func(m *Machine, _ string, at Instant, effects []Effect) []Effect {
			if !m.doubtful {
				return effects
			}
			m.doubtful = false
			return append(effects, m.advance(at)...)
		}}},
	{"a creation that seemed lost is trusted", "a coordinator and a deletion", mutation{before: func(m *Machine, _ Instant) {
		m.doubtful = false
		for i := range m.stamps {
			m.stamps[i].created = false
		}
	}}},
	{"a lease is put back without acquireTime", "twins and a deletion", mutation{after: func(m *Machine, _ string, _ Instant, effects []Effect) []Effect {
		m.acquired = 0
		return effects
	}}},
	{"a new term keeps the token", "two writes of the coordinator", mutation{after: func(_ *Machine, _ string, _ Instant, effects []Effect) []Effect {
		for i, e := range effects {
			if w, ok := e.(WriteLease); ok && w.Base.Token != "" {
				w.Next.Token = w.Base.Token
				effects[i] = w
			}
		}
		return effects
	}}},
	{"stopped work is started again after it was revoked", "two writes of the coordinator", mutation{before: func(m *Machine, _ Instant) {
		if m.lease.Holder == "revoked" && !m.flight.open {
			m.lease.Holder = m.config.Identity
		}
	}}},
	{"nobody takes a vacant lease", "two writes of the coordinator", mutation{before: func(m *Machine, _ Instant) { m.config.FallbackAfter = -1 }}},
	{"the lease is not renewed while the work stops", "two writes of the coordinator", mutation{after: func(m *Machine, _ string, _ Instant, effects []Effect) []Effect {
		if m.working && m.cancelled {
			m.retryAt = 1 << 62
		}
		return effects
	}}},
}

// TestModelFindsBreakages tests the test.
func TestModelFindsBreakages(t *testing.T) {
	for _, b := range breakages {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			config := modelConfigs[slices.IndexFunc(modelConfigs, func(c modelConfig) bool { return c.name == b.in })]
			config.mutate, config.states = b.mutation, 20_000
			if x := explore(&config); x.fault != "" {
				t.Logf("%s, after %d steps and %d states", x.fault, x.depth, x.states)
				return
			}
			t.Error("the model does not find it")
		})
	}
}

// TestRandom walks at random through a model in which everything goes wrong again and again, and checks now and then that
// somebody leads once all is well. Unlike the exploration it goes far.
func TestRandom(t *testing.T) {
	seed := *walkSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	walks := 150
	if *deep {
		walks = 5_000
	}
	// What happens without anybody's doing is likelier than what goes wrong.
	var urn []action
	for a := range actions {
		n := 2
		switch a {
		case tick:
			n = 100
		case crash, sicken, shutDown, remove:
			n = 1
		case carryOut, respond, answerRead, show, stopWork, recover, speedUp, recoverCoordinator, coordinatorSees, restart, restartSame:
			n = 50
		case appoint, prefer:
			n = 10
		}
		for range n {
			urn = append(urn, a)
		}
	}
	fallbacks := []time.Duration{0, unit, 3 * unit, 6 * unit}
	terms := 0
	for n := range walks {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		config := modelConfig{name: "random", identities: []string{"a", "b", "c", "d"}[:2+n%3], fallback: fallbacks[r.IntN(len(fallbacks))]}
		for range config.identities {
			config.skew = append(config.skew, Stamp(r.IntN(5)-2)*1000)
		}
		w := newWorld(&config)
		var log []string
		check := func(w *world) {
			if w.fault != "" {
				t.Fatalf("walk %d of -seed=%d: %s\n%s", n, seed, w.fault, strings.Join(log[max(0, len(log)-150):], "\n"))
			}
		}
		for s := range 30_000 {
			w.left = budget{faults: 1, delays: 1, coordinator: 1, crashes: 1, deletions: 1, whims: 1}
			a, i := urn[r.IntN(len(urn))], r.IntN(w.n)
			if w.log = nil; n == *walkLog {
				w.log = &log
				w.logf("--- %s: %s", w.c[i].identity, actionNames[a])
			}
			w.c[i].restarts = 0
			w.do(a, i)
			check(w)
			if s%1000 == 999 {
				calm := *w
				calm.settles()
				check(&calm)
			}
		}
		terms += w.terms
	}
	t.Logf("%d walks of -seed=%d, work was started %d times", walks, seed, terms)
	if terms < 20*walks {
		t.Error("hardly anybody ever led: the walks prove little")
	}
}

// TestModelKnowsTheMachine fails when Machine gets a field that the model's encoder may not know.
func TestModelKnowsTheMachine(t *testing.T) {
	if n := reflect.TypeFor[Machine]().NumField(); n != 42 {
		t.Errorf("Machine has %d fields: see to encoder.machine, then correct the number here", n)
	}
}
