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
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Action is what a decision does.
type Action string

// Actions. Each is at most one write to the Lease, or one to each of the candidates that are pinged or collected.
const (
	// None writes nothing.
	None Action = "None"
	// Ping moves the pingTime of candidates, to hear whether they are alive: those in Decision.Pings.
	Ping Action = "Ping"
	// Appoint names the candidate as holder.
	Appoint Action = "Appoint"
	// Prefer sets preferredHolder to the candidate: the holder's end of term.
	Prefer Action = "Prefer"
	// ClearPreferred takes preferredHolder back.
	ClearPreferred Action = "ClearPreferred"
	// Revoke takes the lease in the coordinator's name, to end the term of a holder that cannot be told to yield.
	Revoke Action = "Revoke"
	// Restore puts back a Lease that was deleted under a live holder, as it was last seen.
	Restore Action = "Restore"
	// Collect deletes the LeaseCandidates of processes that are gone: those in Decision.Dead.
	Collect Action = "Collect"
)

// Actions lists all actions that write.
func Actions() []Action {
	return []Action{Ping, Appoint, Prefer, ClearPreferred, Revoke, Restore, Collect}
}

// Reason says, for machines, why a decision is what it is.
type Reason string

// Reasons to touch nothing.
const (
	// ReasonExcluded: the lease is never coordinated.
	ReasonExcluded Reason = "Excluded"
	// ReasonNoCandidates: nobody wants to lead the lease.
	ReasonNoCandidates Reason = "NoCandidates"
	// ReasonNoAdmissibleCandidate: there are candidates, but none that may lead.
	ReasonNoAdmissibleCandidate Reason = "NoAdmissibleCandidate"
	// ReasonStrategyConflict: the candidates of the highest binary version ask for different strategies.
	ReasonStrategyConflict Reason = "StrategyConflict"
	// ReasonForeignStrategy: the strategy is not one of ours.
	ReasonForeignStrategy Reason = "ForeignStrategy"
	// ReasonPaused: the Lease is annotated to be left alone.
	ReasonPaused Reason = "Paused"
	// ReasonInTree: the lease is left to the in-tree coordinator.
	ReasonInTree Reason = "InTree"
	// ReasonHolderNotCoordinated: the holder is no candidate; it leads until it stops renewing.
	ReasonHolderNotCoordinated Reason = "HolderNotCoordinated"
)

// Reasons in the course of a term.
const (
	// ReasonOptimal: no live candidate has more merit than the holder.
	ReasonOptimal Reason = "Optimal"
	// ReasonBetterCandidate: a candidate has more merit than the holder, or than the appointee.
	ReasonBetterCandidate Reason = "BetterCandidate"
	// ReasonBetterAsked: a candidate that has more merit than the holder was asked for a sign of life and may still answer.
	ReasonBetterAsked Reason = "BetterAsked"
	// ReasonPreemptionNever: a better candidate waits, but the lease forbids planned hand-offs.
	ReasonPreemptionNever Reason = "PreemptionNever"
	// ReasonMinTerm: a better candidate waits for the holder's minimum term to end.
	ReasonMinTerm Reason = "MinTerm"
	// ReasonHoldOff: a better candidate is held off since it lost the lease, or the holder since it does not obey.
	ReasonHoldOff Reason = "HoldOff"
	// ReasonEndOfTerm: the holder was told to yield; its claim still runs.
	ReasonEndOfTerm Reason = "EndOfTerm"
	// ReasonPreferredGone: the preferred candidate vanished, fell silent or is no longer better.
	ReasonPreferredGone Reason = "PreferredGone"
	// ReasonCandidateTTL: a candidate has not renewed for half its TTL.
	ReasonCandidateTTL Reason = "CandidateTTL"
	// ReasonCandidateDead: a candidate has not renewed for its TTL, whatever it was asked.
	ReasonCandidateDead Reason = "CandidateDead"
	// ReasonCandidateJoined: a candidate that might succeed the holder was not heard of since another joined.
	ReasonCandidateJoined Reason = "CandidateJoined"
)

// Reasons around a vacancy.
const (
	// ReasonNoLease: there was no lease.
	ReasonNoLease Reason = "NoLease"
	// ReasonReleased: the holder released the lease.
	ReasonReleased Reason = "Released"
	// ReasonExpired: the holder's claim ran out.
	ReasonExpired Reason = "Expired"
	// ReasonTermEnded: the claim of a holder that was told to yield ran out.
	ReasonTermEnded Reason = "TermEnded"
	// ReasonNotTakenUp: the appointee did not take up in time.
	ReasonNotTakenUp Reason = "NotTakenUp"
	// ReasonAppointeeGone: the appointee vanished or fell silent before it took up.
	ReasonAppointeeGone Reason = "AppointeeGone"
	// ReasonExpiring: the holder has not renewed for most of its lease duration.
	ReasonExpiring Reason = "Expiring"
	// ReasonAwaitingTakeUp: the appointee has not taken up yet.
	ReasonAwaitingTakeUp Reason = "AwaitingTakeUp"
	// ReasonAwaitingAcks: candidates that might win were pinged and have not acked.
	ReasonAwaitingAcks Reason = "AwaitingAcks"
	// ReasonNobodyAlive: no candidate that may be appointed acked.
	ReasonNobodyAlive Reason = "NobodyAlive"
	// ReasonLeaseDeleted: the Lease was deleted while the claim on it still ran.
	ReasonLeaseDeleted Reason = "LeaseDeleted"
	// ReasonContested: the lease was released so soon after it changed hands by force that it may have been the
	// former holder who released it; the claim of the present one still runs.
	ReasonContested Reason = "Contested"
	// ReasonUnseenClaim: there is no lease, but this coordinator has not watched long enough, or missed too much,
	// to know that none was deleted under a live holder.
	ReasonUnseenClaim Reason = "UnseenClaim"
)

// Decision is what to do about one lease: one action, when to look again if nothing happens before, and why.
type Decision struct {
	Action Action
	Reason Reason
	// Holder is the lease's holder when the decision was made, "" if it was vacant.
	Holder string
	// Candidate is whom the action, or else the reason, is about.
	Candidate string
	// Pings names the candidates to ping, best first.
	Pings []string
	// Dead are the candidates to collect, by name.
	Dead []*strategy.Candidate
	// Strategy is the one the election goes by.
	Strategy coordinationv1.CoordinatedLeaseStrategy
	// TakeUp is the limit that an appointment comes with.
	TakeUp time.Duration
	// SkewPrevented is set for an appointment where a candidate of a newer emulation version might have led.
	SkewPrevented bool
	// LookAgain is when to decide again if no event comes before; zero for never.
	LookAgain time.Time
	// Detail says more, for people; it is set only where Reason, Holder and Candidate do not say all.
	Detail string
}

// Sentence says in plain words what was decided and why. It is the log detail, the event's note, the transcript
// line and what explain prints.
func (d Decision) Sentence() string {
	switch d.Action {
	case Ping:
		return fmt.Sprintf("ask %s for a sign of life: %s", strings.Join(d.Pings, ", "), d.why())
	case Appoint:
		return fmt.Sprintf("appoint %s: %s", d.Candidate, d.why())
	case Prefer:
		return fmt.Sprintf("end the term of %s in favour of %s: %s", d.Holder, d.Candidate, d.why())
	case ClearPreferred:
		return fmt.Sprintf("let leader %s go on: %s", d.Holder, d.why())
	case Revoke:
		return fmt.Sprintf("revoke the lease of %s in favour of %s: %s", d.Holder, d.Candidate, d.why())
	case Restore:
		return fmt.Sprintf("put the lease back for %s: %s", d.Holder, d.why())
	case Collect:
		names := make([]string, len(d.Dead))
		for i, c := range d.Dead {
			names[i] = c.Name
		}
		return fmt.Sprintf("delete the registration of %s: %s", strings.Join(names, ", "), d.why())
	}
	if d.Reason == ReasonOptimal {
		return fmt.Sprintf("leader %s kept: %s", d.Holder, d.why())
	}
	return d.why()
}

func (d Decision) why() string {
	switch d.Reason {
	case ReasonExcluded:
		return "this lease is never coordinated"
	case ReasonNoCandidates:
		return "no candidate names this lease"
	case ReasonNoAdmissibleCandidate:
		return "no candidate may lead (" + d.Detail + ")"
	case ReasonStrategyConflict:
		return "the candidates of the highest binary version ask for different strategies (" + d.Detail + ")"
	case ReasonForeignStrategy:
		return fmt.Sprintf("strategy %q is left to whoever implements it", d.Strategy)
	case ReasonPaused:
		return "this lease is paused: nothing is written until its annotation " + v1alpha1.PausedAnnotation + " is removed"
	case ReasonInTree:
		return "the in-tree coordinator is active and coordinates this lease"
	case ReasonHolderNotCoordinated:
		return fmt.Sprintf("leader %s is no candidate and is left alone until it stops renewing", d.Holder)
	case ReasonOptimal:
		return "no live candidate ranks above it"
	case ReasonBetterCandidate:
		if d.Action == Ping {
			return "better than " + d.Holder
		}
		return fmt.Sprintf("%s ranks above %s", d.Candidate, d.Holder)
	case ReasonBetterAsked:
		return fmt.Sprintf("leader %s kept while %s, which ranks above it, is asked for a sign of life", d.Holder, d.Candidate)
	case ReasonPreemptionNever:
		return fmt.Sprintf("leader %s kept although %s ranks above it: the lease forbids preemption", d.Holder, d.Candidate)
	case ReasonMinTerm:
		return fmt.Sprintf("leader %s kept although %s ranks above it: %s", d.Holder, d.Candidate, d.Detail)
	case ReasonHoldOff:
		return fmt.Sprintf("leader %s kept although %s ranks above it: %s", d.Holder, d.Candidate, d.Detail)
	case ReasonEndOfTerm:
		return fmt.Sprintf("the term of %s ends in favour of %s when its claim runs out", d.Holder, d.Candidate)
	case ReasonPreferredGone:
		return fmt.Sprintf("%s, which was preferred, %s", d.Candidate, d.Detail)
	case ReasonCandidateTTL:
		return "not heard of for half the candidate TTL"
	case ReasonCandidateDead:
		if d.Action == Ping {
			return "not heard of for the candidate TTL"
		}
		return "not heard of for the candidate TTL, and no answer to two pings since"
	case ReasonCandidateJoined:
		return "not heard of since another candidate joined"
	case ReasonNoLease:
		return "there is no lease yet"
	case ReasonReleased:
		return "the lease was released"
	case ReasonExpired:
		return fmt.Sprintf("the claim of %s has run out", d.Holder)
	case ReasonTermEnded:
		return fmt.Sprintf("the term of %s has ended", d.Holder)
	case ReasonNotTakenUp:
		return fmt.Sprintf("%s did not take up its appointment in time", d.Holder)
	case ReasonAppointeeGone:
		return fmt.Sprintf("%s, which was appointed, %s", d.Holder, d.Detail)
	case ReasonExpiring:
		return fmt.Sprintf("%s does not renew", d.Holder)
	case ReasonAwaitingTakeUp:
		return fmt.Sprintf("%s was appointed and has not taken up yet", d.Holder)
	case ReasonAwaitingAcks:
		return fmt.Sprintf("waiting for a sign of life from %s", d.Candidate)
	case ReasonNobodyAlive:
		return "no candidate gives a sign of life"
	case ReasonLeaseDeleted:
		if d.Action == Restore {
			return "it was deleted while the claim on it still runs"
		}
		return fmt.Sprintf("the lease was deleted while the claim of %s still runs", d.Holder)
	case ReasonUnseenClaim:
		return "there is no lease, but one may have been deleted, unseen, under a live holder"
	case ReasonContested:
		return fmt.Sprintf("the lease was released, perhaps not by %s, whose claim still runs", d.Candidate)
	}
	return string(d.Reason)
}

// Vacancy reports whether the lease was found without a leader: nobody holds it, or the holder's claim has run out,
// or its appointee did not take up.
func (d Decision) Vacancy() bool {
	switch d.Reason {
	case ReasonNoLease, ReasonReleased, ReasonExpired, ReasonTermEnded, ReasonNotTakenUp, ReasonAppointeeGone,
		ReasonAwaitingAcks, ReasonNobodyAlive:
		return true
	}
	return false
}
