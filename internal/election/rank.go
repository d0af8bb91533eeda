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

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
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

// superseded returns which candidates' processes have a LeaseCandidate of the other kind that counts instead, as while
// candidates move from one kind to the other: a process is known by its name. Nil if there is one kind only.
func (s *Snapshot) superseded() map[*Candidate]bool {
	if !slices.ContainsFunc(s.Candidates, func(c Candidate) bool { return c.CustomResource != s.Candidates[0].CustomResource }) {
		return nil
	}
	superseded, of := map[*Candidate]bool{}, map[string]*Candidate{}
	for i := range s.Candidates {
		c := &s.Candidates[i]
		switch other := of[c.Name]; {
		case other == nil:
			of[c.Name] = c
		case Supersedes(other, c):
			superseded[c] = true
		default:
			superseded[other], of[c.Name] = true, c
		}
	}
	return superseded
}

// Supersedes reports which of two LeaseCandidates of one process, of either kind, counts: the one that gave the later sign
// of life. Where neither has given one since we watch, the stamps decide; both are of the same clock.
func Supersedes(a, b *Candidate) bool {
	if !a.Observed.Moved.Equal(b.Observed.Moved) {
		return a.Observed.Moved.After(b.Observed.Moved)
	}
	if !a.Renewed.Equal(b.Renewed) {
		return a.Renewed.After(b.Renewed)
	}
	return b.CustomResource
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
	// Superseded is set for a LeaseCandidate whose process has another one, of the other kind, that counts instead.
	Superseded bool
	// Inadmissible says why the candidate does not count; "" if it does.
	Inadmissible string
	// Priority is the one that counts now, 0 for none. It goes before the keys.
	Priority int32
	// Keys are what the strategy ranks the candidate by; nil if it is inadmissible.
	Keys []strategy.Key
}

// ranking is the outcome of rules 2 to 4.
type ranking struct {
	strategy strategy.Strategy
	name     coordinationv1.CoordinatedLeaseStrategy
	source   strategy.Source
	election strategy.Election
	// admissible candidates, best first, then the others by name.
	verdicts   []Verdict
	admissible int
}

// Rank judges and orders the candidates (rules 2 to 4): the admissible ones, best first, then the others by name.
// It returns the strategy's name and why there is no order, if there is none.
func Rank(s *Snapshot) ([]Verdict, coordinationv1.CoordinatedLeaseStrategy, Reason) {
	e := &evaluation{Snapshot: s}
	stop := e.rank()
	return e.ranking.verdicts, e.ranking.name, stop.Reason
}

func (r *ranking) best() []Verdict { return r.verdicts[:r.admissible] }

// rank fills in the ranking, and returns a decision with a reason if the lease is to be left alone for want of one.
func (e *evaluation) rank() Decision {
	r := &e.ranking
	r.election = strategy.Election{Namespace: e.Key.Namespace, Lease: e.Key.Name, Holder: holderOf(e.Lease), Load: e.Load}
	if e.Lease != nil {
		r.election.Labels, r.election.Annotations = e.Lease.Labels, e.Lease.Annotations
	}
	r.verdicts = make([]Verdict, 0, len(e.Candidates))
	superseded := e.superseded()
	for i := range e.Candidates {
		c := &e.Candidates[i]
		v := Verdict{Candidate: c, Inadmissible: e.inadmissible(c), Priority: c.PriorityAt(e.Now)}
		if superseded[c] {
			v.Superseded, v.Inadmissible = true, "has moved to the other kind of LeaseCandidate"
		}
		if v.Inadmissible == "" {
			r.admissible++
		}
		r.verdicts = append(r.verdicts, v)
	}
	if len(r.verdicts) == 0 {
		return Decision{Reason: ReasonNoCandidates}
	}
	if r.admissible == 0 {
		slices.SortFunc(r.verdicts, byAdmissibleThenName)
		return Decision{Reason: ReasonNoAdmissibleCandidate, Detail: reasonsOf(r.verdicts)}
	}
	if stop := e.chooseStrategy(); stop.Reason != "" {
		slices.SortFunc(r.verdicts, byAdmissibleThenName)
		return stop
	}
	r.admissible = 0
	keys := make([]strategy.Key, 0, 2*len(r.verdicts))
	for i := range r.verdicts {
		v := &r.verdicts[i]
		if v.Inadmissible != "" {
			continue
		}
		first := len(keys)
		all, err := r.strategy.Keys(keys, v.Candidate.Candidate, &r.election)
		if err != nil {
			v.Inadmissible = err.Error()
			continue
		}
		keys = all
		v.Keys = keys[first:len(keys):len(keys)]
		r.admissible++
	}
	slices.SortFunc(r.verdicts, func(a, b Verdict) int {
		if a.Inadmissible != "" || b.Inadmissible != "" {
			return byAdmissibleThenName(a, b)
		}
		return order(&a, &b)
	})
	if r.admissible == 0 {
		return Decision{Reason: ReasonNoAdmissibleCandidate, Strategy: r.name, Detail: reasonsOf(r.verdicts)}
	}
	return Decision{}
}

func byAdmissibleThenName(a, b Verdict) int {
	if (a.Inadmissible == "") != (b.Inadmissible == "") {
		if a.Inadmissible == "" {
			return -1
		}
		return 1
	}
	return byNameThenKind(&a, &b)
}

func byNameThenKind(a, b *Verdict) int {
	if a.CustomResource != b.CustomResource && a.Name == b.Name {
		if b.CustomResource {
			return -1
		}
		return 1
	}
	return cmp.Compare(a.Name, b.Name)
}

// merit is negative if a makes the better leader: the higher priority, then the strategy's keys (rule 4). Only merit
// preempts a healthy holder.
func merit(a, b *Verdict) int {
	if d := cmp.Compare(b.Priority, a.Priority); d != 0 {
		return d
	}
	return strategy.Compare(a.Keys, b.Keys)
}

// order is total: merit, then the older, then the lower name.
func order(a, b *Verdict) int {
	if d := merit(a, b); d != 0 {
		return d
	}
	return cmp.Or(a.Created.Compare(b.Created), byNameThenKind(a, b))
}

// chooseStrategy implements rule 3: an override of the operator's, or else what the candidates ask for.
func (e *evaluation) chooseStrategy() Decision {
	r := &e.ranking
	asked, conflict := e.consensus(func(*Candidate) bool { return true })
	switch override, source := e.override(); {
	case source != "":
		r.name, r.source = override, source
	case conflict != "":
		return Decision{Reason: ReasonStrategyConflict, Detail: conflict}
	default:
		r.name, r.source = asked, strategy.SourceCandidates
	}
	if r.strategy = e.Settings.Strategies.Get(r.name); r.strategy == nil {
		return Decision{Reason: ReasonForeignStrategy, Strategy: r.name}
	}
	return Decision{}
}

// override returns the strategy that the operator has set for this lease, and where; "" if nowhere. The coordinator's
// own settings go before the Lease, which may be somebody else's to write. An annotation that names no strategy of
// ours is treated as absent, and told of by LeaseWarnings.
func (e *evaluation) override() (coordinationv1.CoordinatedLeaseStrategy, strategy.Source) {
	if o, source, found := e.Settings.Overrides.For(e.Key.Namespace, e.Key.Name); found {
		return o.Strategy, source
	}
	if e.Lease == nil {
		return "", ""
	}
	name := coordinationv1.CoordinatedLeaseStrategy(e.Lease.Annotations[v1alpha1.StrategyOverrideAnnotation])
	if name == "" || e.Settings.Strategies.Get(name) == nil {
		return "", ""
	}
	return name, strategy.SourceLeaseAnnotation
}

// inTree reports whether the in-tree coordinator, which is at work, coordinates this lease: it knows of no override and
// sees no candidate but those of its own kind, and may take even this lease for its own where others ask for something else.
// If it may come to be ours, due is when.
func (e *evaluation) inTree() (inTree bool, due time.Time) {
	asked, conflict := e.consensus(func(c *Candidate) bool { return !c.CustomResource })
	if conflict != "" || asked != v1alpha1.OldestEmulationVersion {
		return false, time.Time{}
	}
	due = e.inTreeAtALoss()
	return due.IsZero() || e.Now.Before(due), due
}

// inTreeAtALoss returns from when on the in-tree coordinator appoints nobody, although there are candidates, for all whom it
// sees are silent; zero if that is not so. It asks them when the lease is vacant. Those whom it does not see must not wait
// until it deletes the dead.
func (e *evaluation) inTreeAtALoss() (from time.Time) {
	var others bool
	for i := range e.ranking.verdicts {
		c := &e.ranking.verdicts[i]
		switch {
		case c.Inadmissible != "":
		case c.CustomResource:
			others = true
		case c.Observed.asked.IsZero():
			return time.Time{}
		default:
			from = latest(from, c.Observed.asked.Add(e.Settings.ElectionDuration))
			if c.Name == e.holder {
				from = latest(from, e.claim().End())
			}
		}
	}
	if !others {
		return time.Time{}
	}
	return from
}

// consensus returns the strategy that the candidates of the highest binary version ask for, or how they differ
// (rule 3). Candidates of lower versions never block: they follow when they are upgraded. Nor do the dead. Only those that
// are asked count; without any there is no strategy.
func (e *evaluation) consensus(asked func(*Candidate) bool) (coordinationv1.CoordinatedLeaseStrategy, string) {
	mayVote := func(v *Verdict) bool { return v.Inadmissible == "" && asked(v.Candidate) }
	// If nobody is known to be alive, all have a say.
	all := !slices.ContainsFunc(e.ranking.verdicts, func(v Verdict) bool { return mayVote(&v) && e.votes(v.Candidate) })
	var highest semver.Version
	var chosen *Candidate
	for i := range e.ranking.verdicts {
		v := &e.ranking.verdicts[i]
		if !mayVote(v) || !all && !e.votes(v.Candidate) {
			continue
		}
		version := voteOf(v.Candidate)
		if chosen == nil || version.GT(highest) || version.EQ(highest) && v.Name < chosen.Name {
			highest, chosen = version, v.Candidate
		}
	}
	if chosen == nil {
		return "", ""
	}
	var other *Candidate
	for i := range e.ranking.verdicts {
		v := &e.ranking.verdicts[i]
		if !mayVote(v) || v.Strategy == chosen.Strategy || !all && !e.votes(v.Candidate) {
			continue
		}
		if voteOf(v.Candidate).EQ(highest) && (other == nil || v.Name < other.Name) {
			other = v.Candidate
		}
	}
	if other != nil {
		return "", fmt.Sprintf("%s: %s, %s: %s", chosen.Name, chosen.Strategy, other.Name, other.Strategy)
	}
	return chosen.Strategy, ""
}

// voteOf returns the version by which a candidate's vote counts. As in-tree, one that does not parse counts as the
// lowest here; whether its owner can be ranked is for the strategy to say.
func voteOf(c *Candidate) semver.Version {
	if c.Binary.Err != nil {
		return semver.Version{}
	}
	return c.Binary.Semver
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
