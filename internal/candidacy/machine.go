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
	"fmt"
	"time"
)

// Config is what a candidate is told once.
type Config struct {
	// Identity is the candidate's name, and its holder identity. No two processes may share it.
	Identity string
	// LeaseDuration is how long a claim holds without renewal, RenewDeadline how long the work goes on without, and
	// RetryPeriod the time between renewals. LeaseDuration > RenewDeadline > 1.2 x RetryPeriod.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// DrainLimit is how long the work may take to stop. At most LeaseDuration - RenewDeadline.
	DrainLimit time.Duration
	// HandOffWait is how long a candidate that resigns waits, its work having stopped, for a coordinator to name its
	// successor before it releases the lease.
	HandOffWait time.Duration
	// FallbackAfter is how long a lease must be vacant, without a sign of a coordinator, before the candidate takes it
	// by itself. Negative: never.
	FallbackAfter time.Duration
	// RegistrationPeriod is the longest time between renewals of the candidate's own object.
	RegistrationPeriod time.Duration
}

// ownStamps is how many of its last renewals a candidate remembers, to tell its own from those of a process that uses the
// same identity.
const ownStamps = 8

// minTakeUp is the shortest time an appointee is given to take up, since client-go's electors poll (rule 10 of
// docs/protocol.md).
const minTakeUp = 5 * time.Second

// Machine is one candidacy. It is a plain value: a copy is independent of the original. Not safe for concurrent use.
type Machine struct {
	config Config

	// lease as it was last seen, if it was, and when its present holder and renewTime were first.
	lease     Lease
	known     bool
	leaseSeen time.Duration
	// claimEnd is when the last claim that was seen on the lease has run out; it outlives the object.
	claimEnd time.Duration
	// stamps are the renewTimes that this process wrote last, or tried to.
	stamps    [ownStamps]Stamp
	nextStamp int

	// flight is the write to the lease that is under way.
	flight struct {
		why  Write
		base Lease
		next Lease
		sent time.Duration
		open bool
	}
	reading, mustRead bool
	// lookedAt is when the lease was last read, or seen to change.
	lookedAt time.Duration
	// retryAt is when the lease may be written again after a failure; conflicts counts those in a row.
	retryAt   time.Duration
	conflicts int

	// working is set from the start of the work until it has stopped, and cancelled once it was asked to.
	working, cancelled bool
	cancelledAt        time.Duration
	stoppedAt          time.Duration
	term               Term
	// renewedAt is when the last successful write of a claim was sent. The claim runs from then.
	renewedAt time.Duration
	claimed   bool
	ended     bool

	nominated bool
	// coordinatorSeen is when a coordinator last gave a sign.
	coordinatorSeen time.Duration

	registration        Registration
	registrationFlight  RegistrationWrite
	registrationRetryAt time.Duration
	registrationAt      time.Duration
	acked               Stamp
	deleteTries         int

	shutdown, unhealthy, done bool
}

// New returns a machine that has seen nothing, at that moment.
func New(config Config, at Instant) Machine {
	return Machine{config: config, coordinatorSeen: at.Mono}
}

// SeeLease takes in the lease as the watch shows it. Sightings may come late or twice: older versions are ignored.
func (m *Machine) SeeLease(l Lease, at Instant) []Effect {
	m.see(l, at.Mono)
	return m.advance(at)
}

// LeaseRead takes in the answer to ReadLease; failed says that there was none.
func (m *Machine) LeaseRead(l Lease, failed bool, at Instant) []Effect {
	m.reading = false
	if failed {
		m.mustRead = true
		m.retryAt = at.Mono + m.config.RetryPeriod/4
	} else {
		m.mustRead = false
		m.lookedAt = at.Mono
		m.see(l, at.Mono)
	}
	return m.advance(at)
}

// LeaseWritten takes in what became of a WriteLease. after is the lease as the server returned it, if it succeeded.
func (m *Machine) LeaseWritten(outcome Outcome, after Lease, at Instant) []Effect {
	f := m.flight
	m.flight.open = false
	switch outcome {
	case Succeeded:
		m.conflicts, m.retryAt = 0, 0
		m.see(after, at.Mono)
		switch f.why {
		case TakeUp, Renew, SelfClaim:
			m.claimed, m.renewedAt = true, f.sent
		case Transfer, Release:
			m.claimed = false
		}
	case Conflicted:
		m.mustRead = true
		if m.conflicts++; m.conflicts > 3 {
			m.retryAt = at.Mono + m.config.RetryPeriod/4
		}
	case Failed:
		m.mustRead = true
		m.retryAt = at.Mono + m.config.RetryPeriod/4
	}
	if outcome == Succeeded && (f.why == TakeUp || f.why == SelfClaim) && !m.working && m.holds() && !m.leaving() && at.Mono < m.renewDeadline() {
		m.working, m.cancelled = true, false
		m.term = Term{Token: m.lease.Token, Transitions: m.lease.Transitions}
		return append([]Effect{StartWork{m.term}}, m.advance(at)...)
	}
	return m.advance(at)
}

// SeeRegistration takes in the candidate's own object as the watch shows it.
func (m *Machine) SeeRegistration(r Registration, at Instant) []Effect {
	m.seeRegistration(r, at.Mono)
	return m.advance(at)
}

// RegistrationWritten takes in what became of a WriteRegistration. after is the object as the server returned it.
func (m *Machine) RegistrationWritten(outcome Outcome, after Registration, at Instant) []Effect {
	why := m.registrationFlight
	m.registrationFlight = ""
	if outcome == Succeeded {
		m.registrationRetryAt = 0
		if why == Create || why == Update || why == Ack {
			m.registrationAt = at.Mono
		}
		m.seeRegistration(after, at.Mono)
	} else {
		// The watch shows what is there now.
		m.registrationRetryAt = at.Mono + m.config.RetryPeriod/4
	}
	return m.advance(at)
}

// WorkStopped takes in that the work has ended, whether it was asked to or not.
func (m *Machine) WorkStopped(at Instant) []Effect {
	if !m.cancelled {
		// It gave up by itself: whoever leads without working helps nobody.
		m.shutdown = true
	}
	m.working, m.cancelled, m.ended, m.stoppedAt = false, false, false, at.Mono
	return m.advance(at)
}

// Shutdown ends the candidacy: the work is stopped, the lease handed over, the object removed, and then Done.
func (m *Machine) Shutdown(at Instant) []Effect {
	m.shutdown = true
	return m.advance(at)
}

// Health takes in whether the process is fit to lead. While it is not, it withdraws.
func (m *Machine) Health(healthy bool, at Instant) []Effect {
	m.unhealthy = !healthy
	return m.advance(at)
}

// Tick takes in nothing but that time has passed.
func (m *Machine) Tick(at Instant) []Effect { return m.advance(at) }

// Leading returns until when the work may go on, unless it is to stop before; ok is false if it must not.
func (m *Machine) Leading() (until time.Duration, term Term, ok bool) {
	if !m.working || m.cancelled {
		return 0, Term{}, false
	}
	return m.claimUntil(), m.term, true
}

// Following returns the lease as it was last seen, and whether it was.
func (m *Machine) Following() (Lease, bool) { return m.lease, m.known }

func (m *Machine) see(l Lease, now time.Duration) {
	if m.known && (l.Version < m.lease.Version || l.Version == m.lease.Version && l.Exists == m.lease.Exists) {
		return
	}
	before := m.lease
	m.lease, m.lookedAt = l, now
	switch {
	case !l.Exists:
		if !m.known {
			m.claimEnd = now
		}
	case l.Holder == "":
		if !m.known || before.Holder != "" || !before.Exists {
			m.claimEnd = now
		}
	case !m.known || !before.Exists || l.Holder != before.Holder || l.Renewed != before.Renewed:
		m.leaseSeen, m.claimEnd = now, now+l.claim()
	default:
		// Whoever shortens the duration of a renewal does not shorten what its holder believes.
		m.claimEnd = max(m.claimEnd, m.leaseSeen+l.claim())
	}
	m.known, m.mustRead = true, false
}

func (m *Machine) seeRegistration(r Registration, now time.Duration) {
	if m.registration.Known && r.Version < m.registration.Version {
		return
	}
	if r.Exists && r.Ping != 0 && r.Ping != m.registration.Ping {
		m.coordinatorSeen = now
	}
	m.registration = r
	m.registration.Known = true
}

// advance decides what follows from the facts.
func (m *Machine) advance(at Instant) []Effect {
	var effects []Effect
	now := at.Mono
	if m.working && !m.cancelled {
		if why := m.stopReason(now); why != "" {
			m.cancelled, m.cancelledAt = true, now
			effects = append(effects, CancelWork{why})
		}
	}
	if m.working && !m.ended && now >= m.workLimit() {
		m.ended = true
		effects = append(effects, EndProcess{fmt.Sprintf("the work has not stopped %s after it was asked to", now-m.cancelledAt)})
	}
	nominated := m.known && m.lease.Exists && m.lease.Preferred == m.config.Identity && m.lease.Holder != m.config.Identity
	if nominated && !m.nominated && !m.leaving() {
		effects = append(effects, Nominate{})
	}
	m.nominated = nominated
	if e := m.onLease(at); e != nil {
		effects = append(effects, e)
	}
	if e := m.onRegistration(at); e != nil {
		effects = append(effects, e)
	}
	if m.shutdown && !m.done && !m.working && !m.flight.open && !m.holds() && m.registrationFlight == "" && m.gone() {
		m.done = true
		effects = append(effects, Done{})
	}
	return effects
}

// stopReason says why the work is to stop; "" if it may go on.
func (m *Machine) stopReason(now time.Duration) string {
	switch {
	case now >= m.renewDeadline():
		return "the lease was not renewed within the renew deadline"
	case m.lease.Exists && m.lease.Holder != m.config.Identity:
		return fmt.Sprintf("the lease is held by %q", m.lease.Holder)
	case m.foreign():
		return "another process renews the lease under the same identity"
	case m.lease.Exists && m.lease.Token != m.term.Token:
		return "another term has begun"
	case m.shutdown:
		return "the candidate shuts down"
	case m.unhealthy:
		return "the candidate is not healthy"
	case m.endOfTerm():
		return fmt.Sprintf("end of term in favour of %q", m.lease.Preferred)
	}
	return ""
}

// resigning reports whether the candidate does not want to lead; leaving, whether it is to make room for that or another
// reason.
func (m *Machine) resigning() bool { return m.shutdown || m.unhealthy }
func (m *Machine) leaving() bool   { return m.resigning() || m.endOfTerm() }

// endOfTerm reports whether the holder, who is this candidate, was told to yield. One that is told to yield to itself
// goes on: the coordinator will notice.
func (m *Machine) endOfTerm() bool {
	return m.lease.Exists && m.lease.Holder == m.config.Identity && m.lease.Preferred != "" && m.lease.Preferred != m.config.Identity
}

// holds reports whether this process holds the lease, as it was last seen: it was appointed, or renewed it itself.
func (m *Machine) holds() bool {
	return m.known && m.lease.Exists && m.lease.Holder == m.config.Identity && !m.foreign()
}

// foreign reports whether another process has renewed the lease under this one's identity: a twin, or a former process of
// the same name, which may still work.
func (m *Machine) foreign() bool {
	return m.lease.Exists && m.lease.Holder == m.config.Identity && !m.lease.appointment() && !m.own(m.lease.Renewed)
}

func (m *Machine) own(s Stamp) bool {
	for _, o := range m.stamps {
		if o == s && s != 0 {
			return true
		}
	}
	return false
}

func (m *Machine) claimUntil() time.Duration    { return m.renewedAt + m.config.LeaseDuration }
func (m *Machine) renewDeadline() time.Duration { return m.renewedAt + m.config.RenewDeadline }

// workLimit is when the work must have stopped.
func (m *Machine) workLimit() time.Duration {
	if m.cancelled {
		return min(m.claimUntil(), m.cancelledAt+m.config.DrainLimit)
	}
	return m.claimUntil()
}

// onLease returns the next read or write of the lease, if one is due.
func (m *Machine) onLease(at Instant) Effect {
	now := at.Mono
	if m.flight.open || m.reading || now < m.retryAt {
		return nil
	}
	if m.mustRead {
		m.reading = true
		return ReadLease{}
	}
	switch {
	case !m.known || m.done:
		return nil
	case m.holds() && m.working:
		if m.ended {
			// The lease must be free for others some time.
			return nil
		}
		if now >= m.renewedAt+m.config.RetryPeriod || m.conflicts > 0 {
			return m.write(Renew, m.renewed(at), at)
		}
	case m.holds() && m.leaving():
		return m.handOver(at)
	case m.holds():
		next := m.renewed(at)
		if next.Acquired == 0 {
			// The in-tree coordinator writes no acquireTime, and leaves the token of the term before.
			next.Acquired, next.Token = m.lease.Renewed, m.lease.nextToken()
		}
		if next.Token == "" {
			next.Token = m.lease.nextToken()
		}
		return m.write(TakeUp, next, at)
	case !m.lease.Exists && m.working && !m.cancelled:
		if now >= m.renewedAt+m.config.RetryPeriod {
			// Deleted under a live holder: put back for the same term.
			next := m.renewed(at)
			next.Holder, next.Token, next.Transitions = m.config.Identity, m.term.Token, m.term.Transitions
			return m.write(Renew, next, at)
		}
	case m.mayFallBack() && now >= m.fallbackAt():
		next := m.lease
		if next.Holder != m.config.Identity || !next.Exists {
			next.Transitions++
		}
		next.Exists, next.Holder, next.Preferred, next.Token = true, m.config.Identity, "", m.lease.nextToken()
		next.Acquired, next.Duration = m.fresh(at.Wall), m.config.LeaseDuration
		// Equal stamps would make it an appointment, for a twin to take up.
		next.Renewed = next.Acquired + 1
		return m.write(SelfClaim, next, at)
	case !m.working && now >= m.lookAt():
		m.reading = true
		return ReadLease{}
	}
	return nil
}

// lookAt is when a candidate that follows reads the lease, since the watch has shown nothing for so long that it may be
// broken: a holder would have renewed by then.
func (m *Machine) lookAt() time.Duration {
	return m.lookedAt + max(m.lease.claim()*2/3, m.config.RetryPeriod)
}

// renewed returns the lease with a fresh claim. Two renewals never carry the same stamp, whatever the wall clock does.
func (m *Machine) renewed(at Instant) Lease {
	next := m.lease
	next.Exists, next.Renewed, next.Duration = true, m.fresh(at.Wall), m.config.LeaseDuration
	return next
}

func (m *Machine) fresh(wall Stamp) Stamp {
	for wall == m.lease.Renewed || wall == m.lease.Acquired || m.own(wall) {
		wall++
	}
	return wall
}

// handOver gives the lease on, now that the work has stopped.
func (m *Machine) handOver(at Instant) Effect {
	next := m.lease
	if m.endOfTerm() {
		next.Holder, next.Preferred, next.Token = m.lease.Preferred, "", m.lease.nextToken()
		next.Acquired = m.fresh(at.Wall)
		next.Renewed = next.Acquired
		next.Duration = max(m.config.LeaseDuration/3, minTakeUp)
		next.Transitions++
		return m.write(Transfer, next, at)
	}
	if m.awaitsSuccessor(at.Mono) || !m.withdrawn() {
		return nil
	}
	next.Holder, next.Preferred = "", ""
	next.Renewed = m.fresh(at.Wall)
	next.Duration = time.Second
	return m.write(Release, next, at)
}

// awaitsSuccessor reports whether a coordinator is likely to name a successor at any moment.
func (m *Machine) awaitsSuccessor(now time.Duration) bool {
	return m.lease.Coordinated && m.claimed && now < m.stoppedAt+m.config.HandOffWait
}

// withdrawn reports whether the candidate's object is gone, or could not be removed: a coordinator that does not know of
// resignations would appoint a candidate that has just released its lease once more.
func (m *Machine) withdrawn() bool {
	return m.gone() || m.deleteTries > 1
}

// gone reports whether the candidate has no object.
func (m *Machine) gone() bool {
	return m.registration.Unserved || m.registration.Known && !m.registration.Exists
}

func (m *Machine) mayFallBack() bool {
	return m.config.FallbackAfter >= 0 && !m.working && !m.resigning() && !m.holds() && !m.lease.Paused && !m.registration.Ineligible
}

// fallbackAt is when a lease has been vacant, without a sign of a coordinator, for as long as it takes.
func (m *Machine) fallbackAt() time.Duration {
	return max(m.claimEnd, m.coordinatorSeen) + m.config.FallbackAfter
}

func (m *Machine) write(why Write, next Lease, at Instant) Effect {
	m.flight.open, m.flight.why, m.flight.base, m.flight.next, m.flight.sent = true, why, m.lease, next, at.Mono
	if next.Holder == m.config.Identity {
		m.stamps[m.nextStamp%ownStamps] = next.Renewed
		m.nextStamp = (m.nextStamp + 1) % ownStamps
	}
	return WriteLease{Why: why, Base: m.lease, Next: next}
}

// onRegistration returns the next write of the candidate's own object, if one is due.
func (m *Machine) onRegistration(at Instant) Effect {
	r := &m.registration
	if !r.Known || r.Unserved || m.registrationFlight != "" || at.Mono < m.registrationRetryAt {
		return nil
	}
	write := func(why RegistrationWrite) Effect {
		m.registrationFlight = why
		// The in-tree coordinator wants renewTime past pingTime, whatever this machine's clock says.
		return WriteRegistration{Why: why, Renewed: max(at.Wall, r.Renewed+1, r.Ping+1)}
	}
	if m.resigning() {
		inOffice := m.working || m.holds()
		switch {
		case !r.Exists:
			return nil
		case !inOffice || !m.working && !m.endOfTerm() && !m.awaitsSuccessor(at.Mono):
			m.deleteTries++
			return write(Delete)
		case !r.Resigned:
			return write(Resign)
		}
		return nil
	}
	m.deleteTries = 0
	switch {
	case !r.Exists:
		return write(Create)
	case !r.Current || r.Resigned:
		return write(Update)
	case r.Ping > r.Renewed && r.Ping != m.acked:
		m.acked = r.Ping
		return write(Ack)
	case at.Mono >= m.registrationAt+m.config.RegistrationPeriod:
		return write(Ack)
	}
	return nil
}

// Wake returns when Tick is to be called if nothing happens before; ok is false for never.
func (m *Machine) Wake(now time.Duration) (at time.Duration, ok bool) {
	consider := func(t time.Duration) {
		if t > now && (!ok || t < at) {
			at, ok = t, true
		}
	}
	if m.working {
		consider(m.renewDeadline())
		consider(m.workLimit())
		consider(m.renewedAt + m.config.RetryPeriod)
	}
	consider(m.retryAt)
	if m.holds() && !m.working {
		consider(m.stoppedAt + m.config.HandOffWait)
	}
	if m.known && m.mayFallBack() {
		consider(m.fallbackAt())
	}
	if m.known && !m.working {
		consider(m.lookAt())
	}
	consider(m.registrationRetryAt)
	if m.registration.Exists {
		consider(m.registrationAt + m.config.RegistrationPeriod)
	}
	return at, ok
}
