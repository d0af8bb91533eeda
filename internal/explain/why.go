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

package explain

import (
	"fmt"
	"slices"
	"time"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// why finds, for each candidate of a lease, the phrase that says why it does not lead. It takes no decision: the
// order is the ranking's, and what follows from it the decision's.
type why struct {
	*Facts
	// holder leads, or is about to take up; "" if nobody does. taken is false in the latter case.
	holder string
	taken  bool
	// holderAt is its place in the ranking; -1 if it is no candidate, or inadmissible.
	holderAt int
	// next is the place of whoever is chosen to succeed; -1 if nobody is yet.
	next int
}

func newWhy(f *Facts) *why {
	w := &why{Facts: f, holderAt: -1, next: -1}
	w.holder, w.taken = f.led()
	chosen := ""
	switch d := f.Decision; {
	case d.Action == election.Appoint, d.Action == election.Prefer, d.Action == election.Revoke, d.Reason == election.ReasonEndOfTerm:
		chosen = d.Candidate
	}
	for i, c := range f.Ranking {
		if c.Inadmissible != "" {
			continue
		}
		if c.Name == w.holder {
			w.holderAt = i
		}
		if chosen != "" && c.Name == chosen {
			w.next = i
		}
	}
	return w
}

// of returns the phrase for the candidate at that place of the ranking.
func (w *why) of(i int) string {
	c := &w.Ranking[i]
	holds := c.Name == w.holder && w.holder != ""
	expired := w.holder == "" && w.Lease != nil && c.Name == textOf(w.Lease.Spec.HolderIdentity) && !w.Now.Before(w.Claim.End())
	switch {
	case c.Inadmissible != "" && holds && w.taken:
		return "leads, but " + c.Inadmissible
	case c.Inadmissible != "":
		return c.Inadmissible
	case holds:
		return w.ofHolder()
	}
	if expired {
		return "let its claim run out; " + w.other(i)
	}
	return w.other(i)
}

// other returns the phrase for an admissible candidate that does not hold the lease.
func (w *why) other(i int) string {
	if text := w.unranked(&w.Ranking[i]); text != "" {
		return text
	}
	// Whoever is chosen, or else leads, is what the others are measured by.
	switch {
	case i == w.next:
		return w.ofNext()
	case w.next >= 0 && i > w.next:
		if w.holderAt >= 0 && w.holderAt < i {
			return w.below(i, w.holderAt)
		}
		return w.below(i, w.next)
	case w.holderAt >= 0 && (i > w.holderAt || !w.moreMerit(i, w.holderAt)):
		return w.below(i, w.holderAt)
	}
	return w.above(i)
}

func (w *why) ofHolder() string {
	d := w.Decision
	switch {
	case !w.taken && d.Action == election.Appoint:
		return fmt.Sprintf("appointed and has not taken up; gives way to %s", d.Candidate)
	case !w.taken:
		return "appointed, and has not taken up yet"
	case d.Action == election.Prefer, d.Action == election.Revoke, d.Reason == election.ReasonEndOfTerm && d.Candidate != "":
		return "leads, until it has yielded to " + d.Candidate
	case d.Reason == election.ReasonExpiring:
		return "leads, but does not renew"
	}
	return "leads"
}

// unranked returns why there is no order to go by; "" if there is one.
func (w *why) unranked(c *election.Standing) string {
	d := w.Decision
	switch d.Reason {
	case election.ReasonExcluded:
		return "this lease is never coordinated"
	case election.ReasonStrategyConflict:
		return fmt.Sprintf("not ranked while the candidates differ: it asks for %s", c.Strategy)
	case election.ReasonForeignStrategy:
		return fmt.Sprintf("not ranked: strategy %s is left to whoever implements it", w.Explanation.Strategy)
	}
	if !w.ranked() {
		// Blocked, and paused or left to the in-tree coordinator besides.
		return fmt.Sprintf("not ranked: it asks for %s", c.Strategy)
	}
	return ""
}

func (w *why) ofNext() string {
	d := w.Decision
	switch {
	case d.Action == election.Appoint:
		return "is appointed next"
	case w.holder == v1alpha1.RevokedHolder:
		return "is appointed when the claim of the revoked leader has run out, at " + stamp(w.Claim.End())
	case d.Reason == election.ReasonEndOfTerm:
		return fmt.Sprintf("is preferred: takes over when the claim of %s has run out, or it has released", w.holder)
	}
	return "is preferred next, and then takes over from " + w.holder
}

// above says why a candidate does not lead that nobody who leads or is chosen has more merit than.
func (w *why) above(i int) string {
	c, d := &w.Ranking[i], w.Decision
	ranks := "ranks first among those that may lead"
	if best := w.best(); best >= 0 && best != i {
		ranks = w.below(i, best)
	} else if w.holderAt >= 0 {
		ranks = "ranks above " + w.holder
	}
	switch {
	case c.BenchedUntil.After(w.Now):
		return fmt.Sprintf("benched until %s: it was appointed and did not take up", stamp(c.BenchedUntil))
	case c.State == election.StateSuspect:
		return "suspect: did not answer a ping"
	case c.HeldOffUntil.After(w.Now) && w.holderAt >= 0:
		return fmt.Sprintf("held off until %s: %s", stamp(c.HeldOffUntil), c.HeldOff)
	}
	switch d.Reason {
	case election.ReasonPaused:
		return ranks + "; the lease is paused"
	case election.ReasonInTree:
		return ranks + "; the lease is left to the in-tree coordinator"
	case election.ReasonPreemptionNever:
		return ranks + "; the lease forbids preemption"
	case election.ReasonMinTerm, election.ReasonHoldOff:
		if d.Detail != "" && w.holder != "" {
			return fmt.Sprintf("%s; that one is kept: %s", ranks, d.Detail)
		}
	case election.ReasonReleased:
		if d.Action == election.Appoint {
			return ranks + "; has just released the lease"
		}
	case election.ReasonContested, election.ReasonUnseenClaim, election.ReasonLeaseDeleted:
		return ranks + "; " + d.Sentence()
	}
	switch {
	case d.Action == election.Ping && slices.Contains(d.Pings, c.Name):
		return ranks + "; is asked for a sign of life first"
	case c.State == election.StateWaiting:
		return ranks + "; was asked for a sign of life, and has not answered yet"
	case w.holder != "" && w.holder != v1alpha1.RevokedHolder && w.holderAt < 0:
		return fmt.Sprintf("%s; %s leads as long as it renews", ranks, w.holder)
	}
	return ranks + "; nobody is appointed yet"
}

// best returns the place of the first that could be appointed for all that is known; -1 if there is none.
func (w *why) best() int {
	for i, c := range w.Ranking {
		if c.Inadmissible == "" && c.State != election.StateSuspect && !c.BenchedUntil.After(w.Now) {
			return i
		}
	}
	return -1
}

// moreMerit reports whether a ranks above b by more than creation time or name.
func (w *why) moreMerit(a, b int) bool { return a < b && w.difference(a, b) != "" }

// difference returns by which priority or key the later of two candidates ranks below the earlier; "" if they have the
// same merit.
func (w *why) difference(a, b int) string {
	x, y := &w.Ranking[min(a, b)], &w.Ranking[max(a, b)]
	if x.Priority != y.Priority {
		return fmt.Sprintf("priority %d after %d", y.Priority, x.Priority)
	}
	for i := range min(len(x.Keys), len(y.Keys)) {
		if strategy.Compare(x.Keys[i:i+1], y.Keys[i:i+1]) != 0 {
			return fmt.Sprintf("%s %s after %s", y.Keys[i].Name, y.Keys[i].Text(), x.Keys[i].Text())
		}
	}
	return ""
}

// below says why the candidate at i does not go before the one at better.
func (w *why) below(i, better int) string {
	c, b := &w.Ranking[i], &w.Ranking[better]
	switch text := w.difference(i, better); {
	case text != "":
		return fmt.Sprintf("ranks below %s: %s", b.Name, text)
	case i < better:
		return fmt.Sprintf("has no more merit than %s, and a tie never preempts", b.Name)
	case c.Created.After(b.Created):
		return "created later than " + b.Name
	}
	return "name after " + b.Name
}

// stamp prints a time for people, as the decision's sentence does.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
