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
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// Decide says what to do about one lease. It is a pure function: the same snapshot gives the same decision,
// whatever the order of its candidates. The numbered rules are those of docs/protocol.md.
func Decide(s *Snapshot) Decision {
	e := &evaluation{Snapshot: s, holder: holderOf(s.Lease)}
	return e.run()
}

func (e *evaluation) run() Decision {
	d := e.decide()
	if d.Action == None {
		d = e.collect(d)
	}
	d.Holder = e.holder
	if e.holder == v1alpha1.RevokedHolder && e.Observed.revokedFrom != "" {
		d.Holder = e.Observed.revokedFrom
	}
	if e.ranking.strategy != nil {
		d.Strategy = e.ranking.name
	}
	if d.Action == None && e.ranking.admissible > 0 {
		e.lookAgain(&d, e.nextCandidateDeadline())
	}
	return d
}

// evaluation is one run of Decide.
type evaluation struct {
	*Snapshot
	ranking ranking
	// holder is the present holder, or, where the lease was deleted, the one whose claim still runs.
	holder string
}

func (e *evaluation) decide() Decision {
	// Rule 1.
	if excluded(e.Key, e.Settings.Excluded) {
		return Decision{Action: None, Reason: ReasonExcluded}
	}
	stop := e.rank()
	switch {
	case stop.Reason == ReasonNoCandidates:
		stop.Action = None
		return stop
	case e.paused():
		return Decision{Action: None, Reason: ReasonPaused}
	}
	if e.InTreeActive {
		if inTree, due := e.inTree(); inTree {
			return Decision{Action: None, Reason: ReasonInTree, LookAgain: due}
		}
	}
	switch {
	case stop.Reason == ReasonStrategyConflict:
		stop.Action = None
		return e.verifyVoters(stop)
	case stop.Reason != "":
		stop.Action = None
		return stop
	}

	d := e.ofTerm(e.claim())
	if d.Action == None {
		// Rule 14.
		if stale := e.stale(); len(stale) > 0 {
			return Decision{Action: Ping, Reason: ReasonCandidateTTL, Pings: stale}
		}
		// Rule 15.
		if doubtful := e.doubtfulSuccessors(); len(doubtful) > 0 {
			return Decision{Action: Ping, Reason: ReasonCandidateJoined, Pings: doubtful}
		}
	}
	return d
}

// verifyVoters asks those that were not heard of for a while, all of whom may have a vote in the conflict: the dead
// have none, and must not block a lease that the living agree on (rule 3).
func (e *evaluation) verifyVoters(conflict Decision) Decision {
	for i := range e.ranking.best() {
		c := &e.ranking.verdicts[i]
		if !c.Observed.Pinged.IsZero() {
			continue
		}
		if due := c.Observed.lastSign().Add(rePingMax); e.Now.Before(due) {
			e.lookAgain(&conflict, due)
		} else {
			conflict.Action = Ping
			conflict.Pings = append(conflict.Pings, c.Name)
		}
	}
	return conflict
}

// claim returns the claim on the lease. What was observed should be of this very lease; if it is not, a claim that
// was never observed begins now.
func (e *evaluation) claim() Claim {
	claim := e.Observed.Claim
	if e.Lease != nil && e.holder != "" && (claim.Holder != e.holder || !claim.RenewTime.Equal(renewTimeOf(e.Lease))) {
		claim = Claim{Holder: e.holder, RenewTime: renewTimeOf(e.Lease), Seen: e.Now, Duration: durationOf(e.Lease)}
	}
	return claim
}

// appointment returns the appointment that is not taken up, if the lease is still as it was written then. The
// difference is between a holder that does not work yet and one that does.
func (e *evaluation) appointment() *Appointment {
	a := e.Observed.Appointment
	if a == nil || holderOf(e.Lease) != a.Holder || !renewTimeOf(e.Lease).Equal(a.RenewTime) {
		return nil
	}
	return a
}

// ofTerm decides by where the lease is in the life of a term (see the package comment).
func (e *evaluation) ofTerm(claim Claim) Decision {
	if e.Lease == nil {
		return e.leaseMissing(claim)
	}
	appointment := e.appointment()
	switch {
	case e.holder == "" && e.Now.Before(claim.End()):
		return e.beforeVacancy(claim, Decision{Action: None, Reason: ReasonContested, Candidate: claim.Holder})
	case e.holder == "":
		return e.elect(ReasonReleased)
	case appointment != nil:
		return e.appointed(claim, *appointment)
	case !e.Now.Before(claim.End()):
		if preferredOf(e.Lease) != "" || e.holder == v1alpha1.RevokedHolder {
			return e.elect(ReasonTermEnded)
		}
		return e.elect(ReasonExpired)
	case e.holder == v1alpha1.RevokedHolder:
		return e.beforeVacancy(claim, Decision{Action: None, Reason: ReasonEndOfTerm, Candidate: preferredOf(e.Lease)})
	}
	if holder := e.candidate(e.holder); holder != nil {
		return e.holderValid(claim, holder)
	}
	// Rule 5.
	return e.beforeVacancy(claim, Decision{Action: None, Reason: ReasonHolderNotCoordinated})
}

// excluded implements the second half of rule 1.
func excluded(key types.NamespacedName, more []types.NamespacedName) bool {
	return key.Namespace == "kube-node-lease" ||
		key == types.NamespacedName{Namespace: v1alpha1.InTreeLockNamespace, Name: v1alpha1.InTreeLockName} ||
		slices.Contains(more, key)
}

// leaseMissing decides where there is no lease (rule 13).
func (e *evaluation) leaseMissing(claim Claim) Decision {
	last := e.Observed.Last
	if last == nil {
		// Nothing was ever seen. If candidates were there before this coordinator watched, so may a Lease have
		// been, and a holder that still works.
		if known := e.Observed.Since.Add(DefaultClaim); e.Now.Before(known) && slices.ContainsFunc(e.ranking.best(), initial) {
			return Decision{Action: None, Reason: ReasonUnseenClaim, LookAgain: known}
		}
		return e.elect(ReasonNoLease)
	}
	if e.Observed.Appointment != nil || !e.Now.Before(claim.End()) {
		return e.elect(ReasonNoLease)
	}
	if claim.unsure || holderOf(last) == "" {
		// Whoever held it last may not be the one that works. If it is, it has lost the lease; better that than
		// to call another one back to work beside it.
		return e.beforeVacancy(claim, Decision{Action: None, Reason: ReasonUnseenClaim})
	}
	e.holder = claim.Holder
	if e.candidate(claim.Holder) == nil && claim.Holder != v1alpha1.RevokedHolder {
		// A plain elector puts its lease back itself at its next renewal.
		return e.beforeVacancy(claim, Decision{Action: None, Reason: ReasonLeaseDeleted})
	}
	return Decision{Action: Restore, Reason: ReasonLeaseDeleted}
}

func initial(v Verdict) bool { return v.Observed.Initial }

// appointed decides while an appointment of ours is not taken up (rule 11). Overwriting it is safe at any time:
// an appointee works only after a renewal of its own, which fails once the lease has changed.
func (e *evaluation) appointed(claim Claim, a Appointment) Decision {
	appointee := e.candidate(a.Holder)
	switch {
	case appointee == nil || appointee.Inadmissible != "":
		return e.electInstead(appointee)
	case e.state(appointee.Candidate, e.Now) == suspect:
		return e.electInstead(appointee)
	case !e.Now.Before(claim.End()):
		return e.elect(ReasonNotTakenUp)
	}
	better, unanswered, _ := e.better(appointee)
	if better != nil {
		return e.appoint(better.Candidate, ReasonBetterCandidate)
	}
	if len(unanswered) > 0 {
		return Decision{Action: Ping, Reason: ReasonBetterCandidate, Pings: unanswered}
	}
	return e.beforeVacancy(claim, Decision{Action: None, Reason: ReasonAwaitingTakeUp, Candidate: a.Holder})
}

func (e *evaluation) electInstead(appointee *Verdict) Decision {
	d := e.elect(ReasonAppointeeGone)
	if d.Reason == ReasonAppointeeGone {
		d.Detail = e.gone(appointee)
	}
	return d
}

// holderValid decides while the holder is a candidate and its claim holds (rules 6, 7 and 8).
func (e *evaluation) holderValid(claim Claim, holder *Verdict) Decision {
	if preferred := preferredOf(e.Lease); preferred != "" {
		return e.endOfTerm(claim, holder, preferred)
	}
	best, unanswered, passedOver := e.better(holder)
	if best == nil && len(unanswered) == 0 {
		switch passedOver.Reason {
		case "":
			passedOver = Decision{Action: None, Reason: ReasonOptimal}
		case ReasonBetterAsked:
			if stay := e.stays(passedOver.Candidate); stay.Reason != "" {
				passedOver = stay
			}
		}
		return e.beforeVacancy(claim, passedOver)
	}
	better := ""
	if best != nil {
		better = best.Name
	} else {
		better = unanswered[0]
	}
	if stay := e.stays(better); stay.Reason != "" {
		return e.beforeVacancy(claim, stay)
	}
	if len(unanswered) > 0 {
		return Decision{Action: Ping, Reason: ReasonBetterCandidate, Pings: unanswered}
	}
	return e.endTerm(best, holder)
}

// endOfTerm decides after the holder was told to yield to preferred: a lease must never wait for a successor that
// cannot take over (rule 8).
func (e *evaluation) endOfTerm(claim Claim, holder *Verdict, preferred string) Decision {
	p := e.candidate(preferred)
	goOn := Decision{Action: ClearPreferred, Reason: ReasonPreferredGone, Candidate: preferred}
	switch {
	case preferred == e.holder:
		// client-go steps down on any preferredHolder, its own name included.
		goOn.Detail = "is the holder itself"
		return goOn
	case e.preemptionForbidden():
		goOn.Detail = "must wait: the lease now forbids preemption"
		return goOn
	case p == nil, !e.mayStillTakeOver(p, holder), !e.obeysPreferred(holder):
		if best, _, _ := e.better(holder); best != nil {
			return e.endTerm(best, holder)
		}
		goOn.Detail = e.gone(p)
		return goOn
	}
	best, unanswered, _ := e.better(p)
	switch {
	case best != nil:
		return e.endTerm(best, holder)
	case len(unanswered) > 0:
		return Decision{Action: Ping, Reason: ReasonBetterCandidate, Pings: unanswered}
	}
	return e.beforeVacancy(claim, Decision{Action: None, Reason: ReasonEndOfTerm, Candidate: preferred})
}

// mayStillTakeOver reports whether the preferred candidate is still worth waiting for: it ranks above the holder
// and has not failed to answer. Whether it is alive is found out shortly before the claim runs out.
func (e *evaluation) mayStillTakeOver(p, holder *Verdict) bool {
	return e.outranks(p, holder) && e.state(p.Candidate, e.Now) != suspect && !e.Now.Before(e.Observed.benchedUntil(p.Name))
}

func (e *evaluation) paused() bool {
	return e.Lease != nil && e.Lease.Annotations[v1alpha1.PausedAnnotation] == v1alpha1.PausedTrue
}

func (e *evaluation) preemptionForbidden() bool {
	return e.Lease.Annotations[v1alpha1.PreemptionAnnotation] == v1alpha1.PreemptionNever
}

// stays returns why the holder stays in office although that candidate has more merit; an empty reason if it does not.
func (e *evaluation) stays(better string) Decision {
	d := Decision{Action: None, Candidate: better}
	switch termEnds := e.Observed.HolderSince.Add(e.Settings.MinTerm); {
	case e.preemptionForbidden():
		d.Reason = ReasonPreemptionNever
	case e.Now.Before(termEnds):
		d.Reason, d.LookAgain = ReasonMinTerm, termEnds
		d.Detail = "its minimum term ends at " + stamp(termEnds)
	case e.Now.Before(e.Observed.ignoredUntil):
		d.Reason, d.LookAgain = ReasonHoldOff, e.Observed.ignoredUntil
		d.Detail = "it renewed after it was told to yield, and is left alone until " + stamp(e.Observed.ignoredUntil)
	}
	return d
}

// obeysPreferred reports whether the holder can be told of its end of term by preferredHolder.
func (e *evaluation) obeysPreferred(holder *Verdict) bool {
	return e.FieldsKept || holder.ObeysAnnotations
}

// endTerm tells the holder to yield to best, by whatever it obeys.
func (e *evaluation) endTerm(best, holder *Verdict) Decision {
	action := Prefer
	if !e.obeysPreferred(holder) {
		action = Revoke
	}
	return Decision{Action: action, Reason: ReasonBetterCandidate, Candidate: best.Name}
}

// better looks among the candidates that have more merit than v. It returns the first that is alive, provided that
// none better is still to answer, or whom to ping to find out. If it returns neither, passedOver says whether
// anybody was passed over who may come into question later.
func (e *evaluation) better(v *Verdict) (best *Verdict, ping []string, passedOver Decision) {
	for i := range e.ranking.best() {
		c := &e.ranking.verdicts[i]
		if !e.outranks(c, v) {
			break
		}
		if e.Now.Before(e.Observed.benchedUntil(c.Name)) {
			continue
		}
		if until, why := e.Observed.heldOff(c.Name); e.Now.Before(until) {
			if passedOver.Reason == "" {
				passedOver = Decision{Action: None, Reason: ReasonHoldOff, Candidate: c.Name, LookAgain: until,
					Detail: why + ", and is held off until " + stamp(until)}
			}
			continue
		}
		switch e.state(c.Candidate, e.Now) {
		case suspect:
		case unknown:
			ping = append(ping, c.Name)
		case waiting:
			return nil, ping, Decision{Action: None, Reason: ReasonBetterAsked, Candidate: c.Name}
		case alive:
			if len(ping) > 0 {
				return nil, ping, passedOver
			}
			return c, nil, passedOver
		}
	}
	return nil, ping, passedOver
}

// outranks reports whether c has more merit than v. A holder that is inadmissible has less than any other.
func (e *evaluation) outranks(c, v *Verdict) bool {
	if c.Name == v.Name || c.Inadmissible != "" {
		return false
	}
	return v.Inadmissible != "" || merit(c, v) < 0
}

// beforeVacancy is the first half of rule 9: shortly before the claim runs out, whoever might win is pinged, so
// that the winner is known when it does. Until then d stands.
func (e *evaluation) beforeVacancy(claim Claim, d Decision) Decision {
	end := claim.End()
	start := end.Add(-min(claim.Duration/3, e.Settings.ElectionDuration))
	if e.Now.Before(start) {
		e.lookAgain(&d, start)
		return d
	}
	e.lookAgain(&d, end)
	if ping := e.contenders(end, ""); len(ping) > 0 {
		switch d.Reason {
		case ReasonEndOfTerm, ReasonAwaitingTakeUp, ReasonUnseenClaim, ReasonContested, ReasonLeaseDeleted:
		default:
			d.Reason = ReasonExpiring
		}
		return Decision{Action: Ping, Reason: d.Reason, Candidate: d.Candidate, Pings: ping}
	}
	return d
}

// contenders returns who is to be pinged to know, at that time, who wins: all that rank above the first that will
// then be alive. Nobody asks whoever has just let go of the lease.
func (e *evaluation) contenders(at time.Time, releaser string) []string {
	var ping []string
	for i := range e.ranking.best() {
		c := &e.ranking.verdicts[i]
		if c.Name == releaser || at.Before(e.Observed.benchedUntil(c.Name)) {
			continue
		}
		switch e.state(c.Candidate, at) {
		case alive:
			return ping
		case unknown:
			ping = append(ping, c.Name)
		case suspect, waiting:
		}
	}
	return ping
}

// elect names the winner of a vacancy, or finds out who is alive (rule 9). Whoever released the lease is about to
// go, or does not want it: it comes into question only if nobody else does.
func (e *evaluation) elect(why Reason) Decision {
	if why == ReasonReleased && e.Observed.releasedBy != "" {
		if d := e.electAmong(why, e.Observed.releasedBy); d.Reason != ReasonNobodyAlive {
			return d
		}
	}
	return e.electAmong(why, "")
}

// electAmong elects among all but the releaser.
func (e *evaluation) electAmong(why Reason, releaser string) Decision {
	if ping := e.contenders(e.Now, releaser); len(ping) > 0 {
		return Decision{Action: Ping, Reason: why, Candidate: e.holder, Pings: ping}
	}
	silent := e.silentHolder(why)
	for i := range e.ranking.best() {
		c := &e.ranking.verdicts[i]
		if c.Name == releaser || e.Now.Before(e.Observed.benchedUntil(c.Name)) {
			continue
		}
		switch e.state(c.Candidate, e.Now) {
		case alive:
			return e.appoint(c.Candidate, why)
		case waiting:
			if c.Name == silent {
				continue
			}
			return Decision{Action: None, Reason: ReasonAwaitingAcks, Candidate: c.Name, LookAgain: c.Observed.Pinged.Add(e.Settings.ElectionDuration)}
		case suspect, unknown:
		}
	}
	return e.nobodyAlive()
}

// silentHolder returns the holder that let its claim, or its appointment, run out: it had all that time to show
// itself, and is not waited for once more.
func (e *evaluation) silentHolder(why Reason) string {
	switch why {
	case ReasonExpired, ReasonTermEnded, ReasonNotTakenUp:
		return e.holder
	}
	return ""
}

// nobodyAlive keeps looking for a sign of life, ever more slowly, so that a lease whose candidates were all cut
// off for a while gets a leader when they are back. As long as anybody else can lead, suspects are left alone
// (rule 12).
func (e *evaluation) nobodyAlive() Decision {
	d := Decision{Action: None, Reason: ReasonNobodyAlive}
	for i := range e.ranking.best() {
		c := &e.ranking.verdicts[i]
		if until := e.Observed.benchedUntil(c.Name); e.Now.Before(until) {
			e.lookAgain(&d, until)
			continue
		}
		next := c.Observed.Pinged.Add(backoff(e.Settings.ElectionDuration, rePingMax, c.Observed.Unanswered-1))
		if e.Now.Before(next) {
			e.lookAgain(&d, next)
			continue
		}
		d.Pings = append(d.Pings, c.Name)
	}
	if len(d.Pings) > 0 {
		d.Action = Ping
	}
	return d
}

// appoint implements rule 10.
func (e *evaluation) appoint(c *Candidate, why Reason) Decision {
	return Decision{
		Action: Appoint, Reason: why, Candidate: c.Name, Strategy: e.ranking.name, TakeUp: e.takeUp(c.Name),
		SkewPrevented: e.newerThan(c),
	}
}

// newerThan reports whether a candidate that may lead emulates a newer version than c does.
func (e *evaluation) newerThan(c *Candidate) bool {
	if c.Emulation.Err != nil {
		return false
	}
	return slices.ContainsFunc(e.ranking.best(), func(v Verdict) bool {
		return v.Emulation.Err == nil && v.Emulation.Semver.GT(c.Emulation.Semver)
	})
}

// stamp prints a time for people, to the second: it must not change from one decision to the next.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// takeUp returns how long the appointee has to take up: longer each time it was benched, since it may only be slow.
func (e *evaluation) takeUp(candidate string) time.Duration {
	limit := e.Settings.TakeUpTimeout
	if limit == 0 {
		limit = max(e.Observed.HolderDuration/3, MinTakeUp)
	}
	return backoff(limit, max(limit, MaxTakeUp), e.Observed.benches[candidate].count)
}

// liveness is what is known of a candidate's process.
type liveness int

const (
	unknown liveness = iota
	alive            // it acked, or showed itself, within the election duration
	waiting          // it was pinged and may still ack
	suspect          // it was pinged and did not ack in time
)

// state returns what will be known of the candidate at that time if it shows no further sign of life.
func (e *evaluation) state(c *Candidate, at time.Time) liveness {
	o := c.Observed
	switch {
	case !o.Moved.IsZero() && at.Sub(o.Moved) <= e.Settings.ElectionDuration && o.Pinged.IsZero():
		return alive
	case o.Pinged.IsZero():
		return unknown
	case e.Now.Sub(o.Pinged) < e.Settings.ElectionDuration:
		return waiting
	}
	return suspect
}

func (e *evaluation) candidate(name string) *Verdict {
	for i := range e.ranking.verdicts {
		if e.ranking.verdicts[i].Name == name && !e.ranking.verdicts[i].Superseded {
			return &e.ranking.verdicts[i]
		}
	}
	return nil
}

// gone says what became of a candidate that was preferred or appointed.
func (e *evaluation) gone(c *Verdict) string {
	switch {
	case c == nil:
		return "is no longer a candidate"
	case c.Inadmissible != "":
		return c.Inadmissible
	case e.state(c.Candidate, e.Now) == suspect:
		return "gives no sign of life"
	}
	return "no longer ranks above the holder"
}

// lookAgain brings forward d.LookAgain to t, unless t is zero.
func (e *evaluation) lookAgain(d *Decision, t time.Time) {
	if !t.IsZero() && (d.LookAgain.IsZero() || t.Before(d.LookAgain)) {
		d.LookAgain = t
	}
}

// stale returns who is to be pinged so that the dead are noticed before their TTL ends (rule 14). Suspects were
// asked already.
func (e *evaluation) stale() []string {
	var ping []string
	for i := range e.ranking.best() {
		c := &e.ranking.verdicts[i]
		if c.Observed.Pinged.IsZero() && e.Now.Sub(c.Observed.lastSign()) >= e.Settings.CandidateTTL/2 {
			ping = append(ping, c.Name)
		}
	}
	return ping
}

// doubtfulSuccessors returns who ranks above the best that is known to be there besides the holder, and has not been
// heard of since another candidate joined. A process that is started again leaves a registration behind under its
// former name, often one that ranks high: asked now, it does not hold up the next election (rule 15).
func (e *evaluation) doubtfulSuccessors() []string {
	var joined time.Time
	for i := range e.ranking.best() {
		if o := e.ranking.verdicts[i].Observed; !o.Initial {
			joined = latest(joined, o.Seen)
		}
	}
	var ping []string
	for i := range e.ranking.best() {
		c := &e.ranking.verdicts[i]
		o := c.Observed
		if c.Name == e.holder || !o.Pinged.IsZero() || e.Now.Before(e.Observed.benchedUntil(c.Name)) {
			continue
		}
		if !o.lastSign().Before(joined) {
			return ping
		}
		ping = append(ping, c.Name)
	}
	return ping
}

// nextCandidateDeadline returns when a candidate's standing changes by the passing of time alone.
func (e *evaluation) nextCandidateDeadline() time.Time {
	var next time.Time
	consider := func(t time.Time) {
		if t.After(e.Now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for i := range e.ranking.best() {
		c := &e.ranking.verdicts[i]
		last := c.Observed.lastSign()
		consider(last.Add(e.Settings.CandidateTTL / 2))
		consider(last.Add(e.Settings.CandidateTTL + 1))
		if !c.Observed.Pinged.IsZero() {
			consider(c.Observed.Pinged.Add(e.Settings.ElectionDuration))
		}
		consider(c.PriorityUntil)
		consider(e.Observed.benchedUntil(c.Name))
		heldOff, _ := e.Observed.heldOff(c.Name)
		consider(heldOff)
	}
	return next
}
