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
	"math"
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

// maxTries is how often a candidate that shuts down tries to remove its object, or to find out what became of its last
// write, before it gives up.
const maxTries = 4

// Machine is one candidacy. It is a plain value: a copy is independent of the original. Not safe for concurrent use.
type Machine struct {
	config Config

	// lease as it was last seen, if it was, and when its present holder and renewTime were first.
	lease     Lease
	known     bool
	leaseSeen time.Duration
	// claimEnd is when the last claim that was seen on the lease has run out; it outlives the object. claimDuration is for
	// how long that claim held.
	claimEnd, claimDuration time.Duration
	// vacantAt is before when the lease must not be taken for vacant, although it looks so: it is gone, or was released by
	// somebody who may just have lost it. contestedUntil is until when a release may be such a one.
	vacantAt, contestedUntil time.Duration
	// transitions is the highest leaseTransitions ever seen; it outlives the object.
	transitions int32
	// coordinated is set if a coordinator has written the lease under its present holder.
	coordinated bool
	// stamps are the renewTimes that this process wrote last, or tried to.
	stamps    [ownStamps]ownStamp
	nextStamp int

	// flight is the write to the lease that is under way.
	flight struct {
		why  Write
		base Lease
		next Lease
		sent time.Duration
		open bool
	}
	// reading is set while the lease is read, mustRead if it has to be before the next write; readAt is when it may be.
	reading, mustRead bool
	readAt            time.Duration
	// lookedAt is when the lease was last read, or seen to change.
	lookedAt time.Duration
	// retryAt is when the lease may be written again after a failure; conflicts and failures count those in a row.
	retryAt             time.Duration
	conflicts, failures int

	// working is set from the start of the work until it has stopped, and cancelled once it was asked to. idleSince is
	// since when this process has held the lease without working.
	working, cancelled bool
	cancelledAt        time.Duration
	idleSince          time.Duration
	term               Term
	// acquired is the acquireTime of the term, for when the lease has to be put back.
	acquired Stamp
	// doubtful is set while this process holds a lease that it created, and does not know what was before; until then it
	// neither works nor hands over.
	doubtful   bool
	doubtUntil time.Duration
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
	// registered is set once this process has renewed its object, and registrationAt is when it last has.
	registered     bool
	registrationAt time.Duration
	// deleteTries counts the attempts to delete the object since the candidate last wanted to lead.
	deleteTries int

	shutdown, unhealthy, done bool
}

// ownStamp is a renewTime that this process wrote, or tried to.
type ownStamp struct {
	at Stamp
	// created is set if it was written by creating the lease. A creation is a compare-and-swap on nothing but absence: one
	// that is carried out late may come after others have led and their lease has been deleted, too.
	created bool
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
		m.failures++
		m.readAt = at.Mono + m.config.RetryPeriod
		if m.working || m.holds() {
			m.readAt = at.Mono + m.config.RetryPeriod/4
		}
	} else {
		m.mustRead, m.lookedAt = false, at.Mono
		m.see(l, at.Mono)
	}
	return m.advance(at)
}

// LeaseWritten takes in what became of a WriteLease. after is the lease as the server returned it, if it succeeded.
func (m *Machine) LeaseWritten(outcome Outcome, after Lease, at Instant) []Effect {
	f := m.flight
	m.flight.open = false
	var effects []Effect
	switch outcome {
	case Succeeded:
		m.conflicts, m.failures, m.retryAt = 0, 0, 0
		m.see(after, at.Mono)
		if m.lease.Renewed == f.next.Renewed {
			m.settleCreated(at.Mono)
		} else {
			m.settle(f.next.Renewed, true)
		}
		switch f.why {
		case TakeUp, Renew, SelfClaim:
			m.claimed, m.renewedAt = true, f.sent
		case Transfer, Release:
			m.claimed = false
		}
		if f.why == TakeUp || f.why == SelfClaim {
			effects = m.takenUp(f.next, at)
		}
	case Conflicted:
		// It was not carried out. A twin may have written the very same at the very same moment: the stamp would be its.
		m.settle(f.next.Renewed, false)
		if m.lease.Version <= f.base.Version {
			m.mustRead = true
		}
		if m.conflicts++; m.conflicts > 3 {
			m.retryAt = at.Mono + m.config.RetryPeriod/4
		}
	case Failed:
		if m.lease.Exists && m.lease.Renewed == f.next.Renewed {
			m.settleCreated(at.Mono)
		}
		m.failures++
		m.mustRead = true
		m.retryAt = at.Mono + m.config.RetryPeriod/4
	}
	return append(effects, m.advance(at)...)
}

// takenUp starts the work, now that a claim of this process' own has been written, unless that has changed since.
func (m *Machine) takenUp(written Lease, at Instant) []Effect {
	if m.working || !m.holds() || m.lease.Renewed != written.Renewed || m.lease.Token != written.Token {
		return nil
	}
	if m.doubtful && at.Mono < m.doubtUntil {
		return nil
	}
	m.doubtful = false
	if m.leaving() || at.Mono >= m.renewDeadline() {
		m.idleSince = at.Mono
		return nil
	}
	m.working, m.cancelled = true, false
	m.term = Term{Token: m.lease.Token, Transitions: m.lease.Transitions}
	m.acquired = m.lease.Acquired
	return []Effect{StartWork{m.term}}
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
		switch why {
		case Create, Update, Ack:
			m.seeRegistration(after, at.Mono)
			m.registered, m.registrationAt = true, at.Mono
		case Resign:
			m.seeRegistration(after, at.Mono)
		case Delete:
			// The server does not say at which version it was deleted.
			m.registration = Registration{Known: true, Kind: m.registration.Kind, Version: max(m.registration.Version, after.Version)}
		}
	} else {
		// The watch shows what is there now.
		m.registrationRetryAt = at.Mono + m.config.RetryPeriod/4
	}
	return m.advance(at)
}

// WorkStopped takes in that the work has ended, whether it was asked to or not.
func (m *Machine) WorkStopped(at Instant) []Effect {
	if !m.working {
		return m.advance(at)
	}
	if !m.cancelled {
		// It gave up by itself: whoever leads without working helps nobody.
		m.shutdown = true
	}
	m.working, m.cancelled, m.ended, m.idleSince = false, false, false, at.Mono
	return m.advance(at)
}

// Shutdown ends the candidacy: the work is stopped, the lease handed over, the object removed, and then Done.
func (m *Machine) Shutdown(at Instant) []Effect {
	m.shutdown, m.failures = true, 0
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
	// At the same version, what is gone was there before.
	if m.known && (l.Version < m.lease.Version || l.Version == m.lease.Version && (l.Exists || !m.lease.Exists)) {
		return
	}
	before := m.lease
	m.lease, m.lookedAt = l, now
	switch {
	case !l.Exists:
		if !m.known {
			m.claimEnd = now
		}
		if !m.known || before.Exists {
			// Its holder works on, and may have renewed it, or changed, unseen.
			m.vacantAt = now + m.unseenClaim()
		}
	case l.Holder == "":
		if now < m.contestedUntil {
			// client-go's release goes by what its elector saw last: shortly after it has lost the lease, a former
			// holder may wipe out its successor, who works on until it notices.
			m.vacantAt = max(m.vacantAt, m.claimEnd)
		}
		if !m.known || before.Holder != "" || !before.Exists {
			m.claimEnd = now
		}
	case !m.known || !before.Exists || l.Holder != before.Holder || l.Renewed != before.Renewed:
		if m.known && before.Holder != "" && l.Holder != before.Holder {
			m.contestedUntil = max(m.contestedUntil, now+m.claimDuration)
		}
		m.leaseSeen, m.claimEnd, m.claimDuration = now, now+l.claim(), l.claim()
	default:
		// Whoever shortens the duration of a renewal does not shorten what its holder believes.
		m.claimEnd, m.claimDuration = max(m.claimEnd, m.leaseSeen+l.claim()), max(m.claimDuration, l.claim())
	}
	m.known, m.mustRead = true, false
	if l.Exists {
		m.transitions = max(m.transitions, l.Transitions)
		m.coordinated = l.Coordinated || m.coordinated && l.Holder == m.config.Identity
	}
	m.doubtful = m.doubtful && m.holds() && !l.appointment()
	if !m.flight.open || m.flight.next.Renewed != l.Renewed {
		m.settleCreated(now)
	}
}

// settleCreated decides what the lease is worth if this process has created it. While the claim before that runs, nobody
// else can have led. Otherwise somebody may have, and may do so still, whose lease was deleted unseen: creating is no
// compare-and-swap on what was seen before. Its claim is waited out.
func (m *Machine) settleCreated(now time.Duration) {
	for _, o := range m.stamps {
		if m.lease.Exists && m.lease.Holder == m.config.Identity && o.created && o.at == m.lease.Renewed {
			m.settle(o.at, true)
			if !m.claimRuns(now) {
				m.doubtful, m.doubtUntil = true, now+m.unseenClaim()
			}
		}
	}
}

// unseenClaim is how long to wait for a claim of which nothing is known.
func (m *Machine) unseenClaim() time.Duration {
	return max(DefaultClaim, m.config.LeaseDuration, m.claimDuration)
}

// settle has the stamp count as this process' own from now on, or not.
func (m *Machine) settle(s Stamp, own bool) {
	for i := range m.stamps {
		if o := &m.stamps[i]; o.at == s {
			o.created = false
			if !own {
				o.at = 0
			}
		}
	}
}

// claimRuns reports whether this process' claim holds.
func (m *Machine) claimRuns(now time.Duration) bool { return m.claimed && now < m.claimUntil() }

func (m *Machine) seeRegistration(r Registration, now time.Duration) {
	have := &m.registration
	same := have.Known && !have.Unserved && have.Kind == r.Kind
	if same && !r.Unserved &&
		(r.Version < have.Version || r.Version == have.Version && r.Exists && !have.Exists) {
		return
	}
	if r.Exists && r.Ping != 0 && r.Ping != have.Ping {
		m.coordinatorSeen = now
	}
	if !same {
		// Whatever is there was not renewed for a while.
		m.registered = false
	}
	m.registration = r
	m.registration.Known = true
}

// advance decides what follows from the facts.
func (m *Machine) advance(at Instant) []Effect {
	if m.done {
		return nil
	}
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
	nominated := m.known && m.lease.Exists && m.lease.Preferred == m.config.Identity && m.lease.Holder != m.config.Identity &&
		!m.resigning()
	if nominated && !m.nominated {
		effects = append(effects, Nominate{})
	}
	m.nominated = nominated
	if e := m.onLease(at); e != nil {
		effects = append(effects, e)
	}
	if e := m.onRegistration(at); e != nil {
		effects = append(effects, e)
	}
	if m.over(now) {
		m.done = true
		effects = append(effects, Done{})
	}
	return effects
}

// over reports whether a candidate that shuts down has nothing left to do, or cannot do it.
func (m *Machine) over(now time.Duration) bool {
	if !m.shutdown || m.working || m.flight.open || m.registrationFlight != "" {
		return false
	}
	if !m.gone() && m.deleteTries < maxTries {
		return false
	}
	if m.holds() && m.doubtful {
		return true
	}
	if m.mustRead || m.holds() {
		// A claim that has run out needs no release. While it runs, the next leader would have to wait for it.
		return m.failures >= maxTries && !m.claimRuns(now)
	}
	return true
}

// stopReason says why the work is to stop; "" if it may go on.
func (m *Machine) stopReason(now time.Duration) string {
	switch {
	case now >= m.renewDeadline():
		return "the lease was not renewed within the renew deadline"
	case m.lease.Exists && m.lease.Holder == "":
		return "the lease was released by somebody else"
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
		if o.at == s && s != 0 {
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
	if m.flight.open || now < m.retryAt {
		return nil
	}
	if m.mustRead {
		return m.read(now)
	}
	switch {
	case !m.known:
		return nil
	case m.holds() && m.working:
		if m.ended {
			// The lease must be free for others some time.
			return nil
		}
		if now >= m.renewedAt+m.config.RetryPeriod || m.conflicts > 0 {
			return m.write(Renew, m.renewed(at), at)
		}
	case m.holds() && m.doubtful && now < m.doubtUntil:
		if now >= m.renewedAt+m.config.RetryPeriod {
			return m.write(Renew, m.renewed(at), at)
		}
	case m.holds() && m.leaving():
		return m.handOver(at)
	case m.holds():
		next := m.renewed(at)
		if continued := m.lease.Token == m.term.Token && !m.doubtful; m.lease.Acquired == 0 || !m.lease.appointment() && !continued {
			// A term that nobody has numbered. The in-tree coordinator writes no acquireTime, and leaves token and
			// transitions of the term before; what a write of ours has made that seemed lost may be older than our
			// last term; and of a lease that was created in doubt, somebody else may have had the same.
			next.Acquired, next.Token = m.lease.Renewed, m.lease.nextToken()
			if m.lease.Acquired == 0 || m.doubtful || m.lease.Transitions < m.transitions {
				next.Transitions = m.nextTransitions()
			}
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
			// Without an acquireTime it would be an appointment.
			next.Acquired, next.Coordinated = m.acquired, m.coordinated
			return m.write(Renew, next, at)
		}
	case m.mayClaim() && now >= m.claimAt():
		if !m.lease.Exists && m.lookedAt < m.claimAt() {
			// A creation is no compare-and-swap on what was seen; at least it was seen just before.
			return m.read(now)
		}
		next := m.lease
		if next.Holder != m.config.Identity || !next.Exists {
			next.Transitions = m.nextTransitions()
		}
		next.Exists, next.Holder, next.Preferred, next.Token = true, m.config.Identity, "", m.lease.nextToken()
		next.Acquired, next.Duration = m.fresh(at.Wall), m.config.LeaseDuration
		// Equal stamps would make it an appointment, for a twin to take up.
		next.Renewed = m.fresh(next.Acquired + 1)
		return m.write(SelfClaim, next, at)
	case !m.working && now >= m.lookAt():
		return m.read(now)
	}
	return nil
}

func (m *Machine) read(now time.Duration) Effect {
	if m.reading || now < m.readAt {
		return nil
	}
	m.reading = true
	return ReadLease{}
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

// nextTransitions returns the leaseTransitions of a new holder's term: one more than ever seen.
func (m *Machine) nextTransitions() int32 {
	if m.transitions == math.MaxInt32 {
		return m.transitions
	}
	return m.transitions + 1
}

func (m *Machine) fresh(wall Stamp) Stamp {
	for wall == 0 || wall == m.lease.Renewed || wall == m.lease.Acquired || wall == m.acquired || m.own(wall) {
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
		next.Transitions = m.nextTransitions()
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
	return m.coordinated && m.claimed && now < m.idleSince+m.config.HandOffWait
}

// withdrawn reports whether the candidate's object is gone, or could not be removed: a coordinator that does not know of
// resignations would appoint a candidate that has just released its lease once more.
func (m *Machine) withdrawn() bool {
	return m.gone() || m.deleteTries > 1
}

// gone reports whether the candidate has no object, as far as it knows.
func (m *Machine) gone() bool {
	return m.registration.Unserved || !m.registration.Exists
}

// mayClaim reports whether the candidate would take the lease by itself if it were vacant for long enough.
func (m *Machine) mayClaim() bool {
	if m.working || m.resigning() || m.holds() || m.registration.Ineligible {
		return false
	}
	return m.named() || m.config.FallbackAfter >= 0 && !m.lease.Paused
}

// named reports whether the lease names this candidate, although another process has renewed it: most likely a former
// one that had the same name.
func (m *Machine) named() bool { return m.lease.Exists && m.lease.Holder == m.config.Identity }

// claimAt is when the candidate takes the lease by itself.
func (m *Machine) claimAt() time.Duration {
	if m.named() {
		// The in-tree coordinator does not name again whom the lease names already, and pings it for ever. One that would
		// rather have another has had the time to say so.
		return m.claimEnd + minTakeUp
	}
	// The lease has been vacant, without a sign of a coordinator, for as long as it takes.
	return max(max(m.claimEnd, m.coordinatorSeen)+m.config.FallbackAfter, m.vacantAt)
}

func (m *Machine) write(why Write, next Lease, at Instant) Effect {
	m.flight.open, m.flight.why, m.flight.base, m.flight.next, m.flight.sent = true, why, m.lease, next, at.Mono
	if next.Holder == m.config.Identity {
		if m.stamps[m.nextStamp].at == m.lease.Renewed {
			// However often writing fails, the last renewal stays this process' own.
			m.nextStamp = (m.nextStamp + 1) % ownStamps
		}
		m.stamps[m.nextStamp] = ownStamp{next.Renewed, !m.lease.Exists}
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
		case !r.Exists || m.deleteTries >= maxTries:
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
	case r.Ping > r.Renewed, !m.registered, at.Mono >= m.registrationAt+m.config.RegistrationPeriod:
		return write(Ack)
	}
	return nil
}

// Wake returns when Tick is to be called if nothing happens before; ok is false for never.
func (m *Machine) Wake(now time.Duration) (at time.Duration, ok bool) {
	if m.done {
		return 0, false
	}
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
	consider(m.readAt)
	if m.doubtful {
		consider(m.doubtUntil)
		consider(m.renewedAt + m.config.RetryPeriod)
	}
	if m.holds() && !m.working {
		consider(m.idleSince + m.config.HandOffWait)
	}
	if m.shutdown && m.claimed {
		consider(m.claimUntil())
	}
	if m.known && m.mayClaim() {
		consider(m.claimAt())
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
