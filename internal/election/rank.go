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
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// inadmissible returns why the candidate does not count, whatever the strategy; "" if it does (rule 2).
func (s *Snapshot) inadmissible(c *Candidate) string {
	switch {
	case c.Namespace != s.Key.Namespace || c.LeaseName != s.Key.Name:
		return "is a candidate for another lease"
	case c.Renewed.IsZero():
		return "never renewed"
	case !s.fresh(c):
		return fmt.Sprintf("has not renewed for %s", s.Settings.CandidateTTL)
	case c.Ineligible != "":
		return "is marked never to lead: " + c.Ineligible
	}
	return ""
}

// fresh reports whether the candidate may have renewed within the TTL, by our clock. One that was never seen to
// renew has as long since it was first seen: going by its own stamp, a coordinator whose clock is wrong would find
// nobody to lead when it starts. A dead one costs a ping.
func (s *Snapshot) fresh(c *Candidate) bool {
	return s.Now.Sub(c.Observed.lastSign()) <= s.Settings.CandidateTTL
}

// votes reports whether the candidate has a say in the choice of strategy: not if it is likely dead. Here a wrong
// clock does no harm, since all have a say if nobody else has.
func (s *Snapshot) votes(c *Candidate) bool {
	o := c.Observed
	if !o.Pinged.IsZero() && s.Now.Sub(o.Pinged) >= s.Settings.ElectionDuration {
		return false
	}
	return !o.Moved.IsZero() || s.Now.Sub(c.Renewed) <= s.Settings.CandidateTTL
}

// Verdict is what the ranking says of one candidate.
type Verdict struct {
	*Candidate
	// Inadmissible says why the candidate does not count; "" if it does.
	Inadmissible string
}

// ranking is the outcome of rules 2 to 4.
type ranking struct {
	strategy strategy.Strategy
	name     coordinationv1.CoordinatedLeaseStrategy
	election strategy.Election
	now      time.Time
	// admissible candidates, best first, then the others by name.
	verdicts   []Verdict
	admissible int
}

func (r *ranking) best() []Verdict { return r.verdicts[:r.admissible] }

// Rank judges and orders the candidates (rules 2 to 4): the admissible ones, best first, then the others by name.
// It returns the strategy's name and why there is no order, if there is none.
func Rank(s *Snapshot) ([]Verdict, coordinationv1.CoordinatedLeaseStrategy, Reason) {
	r, stop := s.rank()
	return r.verdicts, r.name, stop.Reason
}

// rank returns the ranking, and a decision with a reason if the lease is to be left alone for want of one.
func (s *Snapshot) rank() (ranking, Decision) {
	r := ranking{
		now:      s.Now,
		election: strategy.Election{Namespace: s.Key.Namespace, Lease: s.Key.Name, Holder: holderOf(s.Lease)},
		verdicts: make([]Verdict, 0, len(s.Candidates)),
	}
	for i := range s.Candidates {
		c := &s.Candidates[i]
		v := Verdict{Candidate: c, Inadmissible: s.inadmissible(c)}
		if v.Inadmissible == "" {
			r.admissible++
		}
		r.verdicts = append(r.verdicts, v)
	}
	if len(r.verdicts) == 0 {
		return r, Decision{Reason: ReasonNoCandidates}
	}
	slices.SortFunc(r.verdicts, byAdmissibleThenName)
	if r.admissible == 0 {
		return r, Decision{Reason: ReasonNoAdmissibleCandidate, Detail: reasonsOf(r.verdicts)}
	}
	voters := slices.DeleteFunc(slices.Clone(r.best()), func(v Verdict) bool { return !s.votes(v.Candidate) })
	if len(voters) == 0 {
		voters = r.best()
	}
	name, conflict := consensus(voters)
	if conflict != "" {
		return r, Decision{Reason: ReasonStrategyConflict, Detail: conflict}
	}
	r.name = name
	if r.strategy = s.Settings.Strategies.Get(name); r.strategy == nil {
		return r, Decision{Reason: ReasonForeignStrategy, Strategy: name}
	}
	r.admissible = 0
	for i := range r.verdicts {
		v := &r.verdicts[i]
		if v.Inadmissible != "" {
			continue
		}
		if err := r.strategy.Eligible(v.Candidate.Candidate); err != nil {
			v.Inadmissible = err.Error()
			continue
		}
		r.admissible++
	}
	slices.SortFunc(r.verdicts, func(a, b Verdict) int {
		if a.Inadmissible != "" || b.Inadmissible != "" {
			return byAdmissibleThenName(a, b)
		}
		return r.order(a.Candidate, b.Candidate)
	})
	if r.admissible == 0 {
		return r, Decision{Reason: ReasonNoAdmissibleCandidate, Strategy: name, Detail: reasonsOf(r.verdicts)}
	}
	return r, Decision{}
}

func byAdmissibleThenName(a, b Verdict) int {
	if (a.Inadmissible == "") != (b.Inadmissible == "") {
		if a.Inadmissible == "" {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.Name, b.Name)
}

// merit is negative if a makes the better leader: the higher priority, then the strategy (rule 4). Only merit
// preempts a healthy holder.
func (r *ranking) merit(a, b *Candidate) int {
	if d := cmp.Compare(b.PriorityAt(r.now), a.PriorityAt(r.now)); d != 0 {
		return d
	}
	return r.strategy.Compare(a.Candidate, b.Candidate, r.election)
}

// order is total: merit, then the older, then the lower name.
func (r *ranking) order(a, b *Candidate) int {
	return cmp.Or(r.merit(a, b), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

// consensus returns the strategy that the candidates of the highest binary version ask for, or how they differ
// (rule 3). Candidates of lower versions never block: they follow when they are upgraded. Nor do the dead.
func consensus(candidates []Verdict) (coordinationv1.CoordinatedLeaseStrategy, string) {
	var highest semver.Version
	var chosen *Candidate
	for _, v := range candidates {
		// As in-tree, a version that does not parse counts as the lowest here; whether its owner can be
		// ranked is for the strategy to say.
		var version semver.Version
		if v.Binary.Err == nil {
			version = v.Binary.Semver
		}
		if chosen == nil || version.GT(highest) {
			highest, chosen = version, v.Candidate
		}
	}
	for _, v := range candidates {
		same := v.Binary.Err == nil && v.Binary.Semver.EQ(highest) || v.Binary.Err != nil && highest.EQ(semver.Version{})
		if same && v.Strategy != chosen.Strategy {
			return "", fmt.Sprintf("%s: %s, %s: %s", chosen.Name, chosen.Strategy, v.Name, v.Strategy)
		}
	}
	return chosen.Strategy, ""
}

// reasonsOf lists why candidates are inadmissible, for people: the first few by name.
func reasonsOf(verdicts []Verdict) string {
	const most = 5
	var parts []string
	for _, v := range verdicts {
		if len(parts) == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(verdicts)-most))
			break
		}
		parts = append(parts, v.Name+" "+v.Inadmissible)
	}
	return strings.Join(parts, "; ")
}
