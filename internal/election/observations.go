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

package election

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Observations is what one coordinator saw of one lease over time, by its own clock. Standbys keep them too, so
// that taking over costs no wait. The zero value, with Since set, has seen nothing. Not safe for concurrent use.
type Observations struct {
	// Since is when the coordinator began to watch.
	Since time.Time
	// Claim is the last claim seen. It outlives the Lease object: deleting a Lease does not stop its holder.
	Claim Claim
	// Last is the lease as it was last seen to exist; nil if it never was.
	Last *coordinationv1.Lease
	// HolderSince is when the present holder was first seen.
	HolderSince time.Time
	// HolderDuration is the last lease duration that a holder wrote, as opposed to a coordinator; 0 if unknown.
	HolderDuration time.Duration
	// Appointment is this coordinator's last appointment, while it is not taken up.
	Appointment *Appointment
	// releasedBy is who held the lease when it was released, while nobody holds it.
	releasedBy string
	// preferred is the preferredHolder that this coordinator wrote and has not taken back.
	preferred string
	// revokedFrom is whose term this coordinator last ended by revoking.
	revokedFrom string
	// ignoredUntil is set when the holder was seen to ignore preferredHolder.
	ignoredUntil time.Time
	// contestedUntil is until when a release of the lease may be that of a former holder who has just lost it.
	contestedUntil time.Time

	benches map[string]bench
	losses  map[string]loss
}

// Claim is a holder's right to its lease.
type Claim struct {
	Holder    string
	RenewTime time.Time
	// Seen is when this holder and renewTime were first seen, by our clock.
	Seen time.Time
	// Duration is how long the claim holds from then on.
	Duration time.Duration
	// unsure is set if the lease was found deleted and its holder may have changed unseen before that: then
	// Holder is only the last one known, and "" may be somebody, too.
	unsure bool
}

// End is when the claim has run out.
func (c Claim) End() time.Time { return c.Seen.Add(c.Duration) }

// Appointment is an appointment of ours that its appointee has not taken up.
type Appointment struct {
	Holder string
	// RenewTime is the stamp that the appointment was written with. It is taken up when that has moved.
	RenewTime time.Time
	// Count is how often in a row this candidate was appointed without taking up.
	Count int
}

// bench keeps a candidate that does not take up from being appointed.
type bench struct {
	until, failed time.Time
	count         int
}

// loss counts how often a candidate let its claim run out.
type loss struct {
	at    time.Time
	count int
}

// SeeDeleted records that the lease no longer exists. The claim on it goes on. missed says that events may have
// been missed before the deletion: then its holder may have taken up, renewed, or changed, up to this moment.
func (o *Observations) SeeDeleted(now time.Time, missed bool) {
	o.Claim.unsure = missed
	if !missed {
		return
	}
	o.Appointment = nil
	o.Claim.Seen = now
	o.Claim.Duration = max(o.Claim.Duration, o.HolderDuration, DefaultClaim)
}

// SeeLease records the lease as it is now.
func (o *Observations) SeeLease(lease *coordinationv1.Lease, now time.Time) {
	holder, renewed, duration := holderOf(lease), renewTimeOf(lease), durationOf(lease)
	if a := o.Appointment; a != nil && (holder != a.Holder || !renewed.Equal(a.RenewTime)) {
		if holder == a.Holder {
			delete(o.benches, holder)
		}
		o.Appointment = nil
	}
	previous := o.Last
	o.Last = lease
	switch {
	case holder == "" && now.Before(o.contestedUntil):
		// client-go's release goes by what its elector observed last, on the Lease as it is now: shortly after it
		// lost the lease, a former holder may wipe out its successor, who works on until it notices. The claim
		// stays.
	case holder == "":
		if o.Claim.Holder != "" {
			o.releasedBy = o.Claim.Holder
		}
		o.Claim = Claim{}
	case holder != o.Claim.Holder || !renewed.Equal(o.Claim.RenewTime):
		if holder != o.Claim.Holder {
			if o.Claim.Holder != "" && !(now.Before(o.Claim.End()) && handedOver(previous, lease)) {
				o.contestedUntil = latest(o.contestedUntil, now.Add(o.Claim.Duration))
			}
			o.HolderSince = now
			o.releasedBy = ""
			o.preferred, o.ignoredUntil = "", time.Time{}
		} else if o.preferred != "" && preferredOf(lease) == "" && previous != nil && preferredOf(previous) != "" {
			// It renewed and wiped what it was told: an elector that knows nothing of end of term.
			o.preferred, o.ignoredUntil = "", now.Add(ignoredHoldOff)
		}
		o.Claim = Claim{Holder: holder, RenewTime: renewed, Seen: now, Duration: duration}
	default:
		// The same renewal. Whoever shortens its duration does not shorten what the holder believes.
		o.Claim.Duration = max(o.Claim.Duration, duration)
	}
	if holder != "" && holder != v1alpha1.RevokedHolder && renewedByHolder(lease) && lease.Spec.LeaseDurationSeconds != nil {
		o.HolderDuration = duration
	}
}

// handedOver reports whether the holder of before has itself appointed its successor, as candidates of the library do when
// they were told to yield and their work has stopped: it knows that it holds the lease no more. Nobody else appoints the
// preferred holder while the former claim runs.
func handedOver(before, after *coordinationv1.Lease) bool {
	return before != nil && preferredOf(before) != "" && preferredOf(before) == holderOf(after) && !renewedByHolder(after) &&
		before.ResourceVersion != "" && after.Annotations[v1alpha1.FencingTokenAnnotation] == before.ResourceVersion
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Wrote records that the given decision was carried out: before is the lease it was based on (nil for none),
// after is what the server returned.
func (o *Observations) Wrote(d Decision, before, after *coordinationv1.Lease, now time.Time) {
	switch d.Action {
	case Appoint:
		count := 1
		if a := o.Appointment; a != nil {
			switch {
			case a.Holder == d.Candidate:
				count = a.Count + 1
				if a.Count >= MaxAppointments {
					// Its time on the bench is over; start again.
					o.bench(a.Holder, now, now)
					count = 1
				}
			case a.Count >= MaxAppointments:
				o.bench(a.Holder, now, now.Add(o.benchTime(a.Holder)))
			}
		} else if before != nil && d.Reason == ReasonExpired && preferredOf(before) == "" && renewedByHolder(before) {
			o.lose(o.Claim.Holder, now)
		}
		o.Appointment = nil
		o.SeeLease(after, now)
		// The take-up limit runs from now, also if the stamp happens to be the one of the holder's last renewal.
		o.Claim.Seen, o.Claim.Duration = now, durationOf(after)
		o.Appointment = &Appointment{Holder: d.Candidate, RenewTime: renewTimeOf(after), Count: count}
	case Revoke:
		// The write was a compare-and-swap on the holder's last renewal that we saw, so the holder has made
		// none since: its claim runs out when it would have, however fresh the revocation's stamp.
		ended := o.Claim
		o.SeeLease(after, now)
		o.revokedFrom = ended.Holder
		o.Claim.Seen, o.Claim.Duration = ended.Seen, ended.Duration
	case Prefer:
		o.SeeLease(after, now)
		o.preferred = d.Candidate
	case ClearPreferred:
		o.preferred = ""
		o.SeeLease(after, now)
	default:
		o.SeeLease(after, now)
	}
}

// bench counts a candidate's failure to take up; until then it is passed over.
func (o *Observations) bench(candidate string, now, until time.Time) {
	if o.benches == nil {
		o.benches = map[string]bench{}
	}
	o.benches[candidate] = bench{until: until, failed: now, count: o.benches[candidate].count + 1}
}

// benchTime returns how long the candidate is benched if it now fails to take up once more.
func (o *Observations) benchTime(candidate string) time.Duration {
	return backoff(benchBase, benchMax, o.benches[candidate].count)
}

func (o *Observations) lose(candidate string, now time.Time) {
	if o.losses == nil {
		o.losses = map[string]loss{}
	}
	l := o.losses[candidate]
	if now.Sub(l.at) > lossMemory {
		l.count = 0
	}
	o.losses[candidate] = loss{at: now, count: l.count + 1}
}

// benchedUntil returns until when the candidate is not to be appointed; in the past or zero if it may be.
func (o *Observations) benchedUntil(candidate string) time.Time {
	if a := o.Appointment; a != nil && a.Holder == candidate && a.Count >= MaxAppointments {
		return o.Claim.End().Add(o.benchTime(candidate))
	}
	return o.benches[candidate].until
}

// heldOff returns until when the candidate is not to be preferred to a healthy holder, and why.
func (o *Observations) heldOff(candidate string) (until time.Time, why string) {
	if l, lost := o.losses[candidate]; lost {
		until, why = l.at.Add(backoff(holdOffBase, holdOffMax, l.count-1)), "it lost the lease by expiry a while ago"
	}
	if b, benched := o.benches[candidate]; benched {
		if t := b.failed.Add(backoff(idleHoldOffBase, idleHoldOffMax, b.count-1)); t.After(until) {
			until, why = t, "it was appointed a while ago and did not take up"
		}
	}
	return until, why
}

// Forget drops what was remembered of a candidate that no longer exists.
func (o *Observations) Forget(candidate string) {
	delete(o.benches, candidate)
	delete(o.losses, candidate)
}

// CandidateObservations is what one coordinator saw of one candidate over time, by its own clock.
type CandidateObservations struct {
	// Seen is when the candidate, in its present incarnation (UID), was first seen.
	Seen time.Time
	// Initial is set if it was there already when the coordinator began to watch.
	Initial bool
	// Moved is when the candidate was seen to renew, or seen created; zero if neither was.
	Moved time.Time
	// Pinged is when it was pinged, if it has not renewed since.
	Pinged time.Time
	// Unanswered counts the pings since it last moved.
	Unanswered int
	// pingedBefore is when the ping before the last was sent, if it has not renewed since.
	pingedBefore time.Time
	// asked is when it was first seen to be pinged, by whatever coordinator, if it has not renewed since.
	asked time.Time

	uid     string
	renewed time.Time
}

// See records the candidate as it is now. initial says that it is part of the list with which the coordinator
// began to watch: such a candidate may have died long ago.
func (o CandidateObservations) See(c *strategy.Candidate, now time.Time, initial bool) CandidateObservations {
	asked := now
	if o.uid == c.UID && c.Renewed.Equal(o.renewed) && !o.asked.IsZero() {
		asked = o.asked
	}
	switch {
	case o.Seen.IsZero() || o.uid != c.UID:
		o = CandidateObservations{Seen: now, Initial: initial, uid: c.UID, renewed: c.Renewed}
		if !initial && justCreated(c, now) {
			o.Moved = now
		}
	case !c.Renewed.Equal(o.renewed):
		o.Moved, o.renewed = now, c.Renewed
		o.Pinged, o.pingedBefore, o.Unanswered = time.Time{}, time.Time{}, 0
	}
	if o.asked = asked; !c.PingTime.After(c.Renewed) {
		o.asked = time.Time{}
	}
	return o
}

// justCreated reports whether a candidate that was not there before has shown itself by that. One that was found after
// events were missed may have died since. Clocks that are off cost a ping here, and nothing else.
func justCreated(c *strategy.Candidate, now time.Time) bool {
	recent := func(t time.Time) bool { return now.Sub(t).Abs() <= DefaultElectionDuration }
	return recent(c.Renewed) && (c.Created.IsZero() || recent(c.Created))
}

// lastSign returns when the candidate last gave a sign of life, or was first seen.
func (o CandidateObservations) lastSign() time.Time {
	if o.Moved.IsZero() {
		return o.Seen
	}
	return o.Moved
}

// Ping records that a ping was sent at that time.
func (o CandidateObservations) Ping(now time.Time) CandidateObservations {
	o.pingedBefore, o.Pinged = o.Pinged, now
	o.Unanswered++
	return o
}

// PingTime returns the pingTime to write for a candidate, given that it is now: just above its renewTime, by as
// much as has passed since that was seen. client-go's candidates ack only if pingTime > renewTime as stored, and
// do so again and again as long as that stays so; a pingTime by our clock would keep a candidate whose clock runs
// behind renewing in a loop until its clock has caught up, and would never reach one whose clock runs ahead.
//
// One that never renewed has no renewTime to go by.
func PingTime(c Candidate, now time.Time) time.Time {
	if c.Renewed.IsZero() {
		return now.Truncate(time.Microsecond)
	}
	return c.Renewed.Add(max(now.Sub(c.Observed.lastSign()), time.Microsecond)).Truncate(time.Microsecond)
}
