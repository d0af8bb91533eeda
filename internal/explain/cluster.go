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
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Cluster holds the Leases and LeaseCandidates that were read, as the API server has them.
type Cluster struct {
	leases     map[types.NamespacedName]*coordinationv1.Lease
	candidates map[candidateKey]*strategy.Candidate
	// fieldsKept is what the API server said; nil if it was not asked.
	fieldsKept *bool
}

// NewCluster returns a cluster that nothing was read of.
func NewCluster() *Cluster {
	return &Cluster{
		leases:     map[types.NamespacedName]*coordinationv1.Lease{},
		candidates: map[candidateKey]*strategy.Candidate{},
	}
}

// addLease keeps the newest of what was read of a Lease.
func (c *Cluster) addLease(l *coordinationv1.Lease) {
	key := types.NamespacedName{Namespace: l.Namespace, Name: l.Name}
	if old := c.leases[key]; old == nil || !older(l.ResourceVersion, old.ResourceVersion) {
		c.leases[key] = l
	}
}

// candidateKey identifies a LeaseCandidate. Both kinds of it may have one of the same name.
type candidateKey struct {
	namespace, name string
	customResource  bool
}

// addCandidate keeps the newest of what was read of a candidate: one object may come in several API versions.
func (c *Cluster) addCandidate(candidate *strategy.Candidate) {
	key := candidateKey{candidate.Namespace, candidate.Name, candidate.CustomResource}
	if old := c.candidates[key]; old == nil || !older(candidate.ResourceVersion, old.ResourceVersion) {
		c.candidates[key] = candidate
	}
}

// older compares resourceVersions, which are numbers that grow (KEP-5504). What is no number is not known to be older.
func older(a, b string) bool {
	x, errX := strconv.ParseUint(a, 10, 64)
	y, errY := strconv.ParseUint(b, 10, 64)
	return errX == nil && errY == nil && x < y
}

// SetFieldsKept says what the API server does with spec.strategy and spec.preferredHolder, whatever the objects show.
func (c *Cluster) SetFieldsKept(kept bool) { c.fieldsKept = &kept }

// FieldsKept returns whether the API server keeps spec.strategy and spec.preferredHolder: by what it said, or else by
// what a coordinator wrote. A cluster in which none wrote anything yet is taken to keep them.
func (c *Cluster) FieldsKept() bool {
	if c.fieldsKept != nil {
		return *c.fieldsKept
	}
	kept, known := c.guessFieldsKept()
	return kept || !known
}

// guessFieldsKept goes by what a coordinator, ours or the in-tree one, wrote to a Lease.
func (c *Cluster) guessFieldsKept() (kept, known bool) {
	for _, l := range c.leases {
		if l.Spec.Strategy != nil || l.Spec.PreferredHolder != nil {
			return true, true
		}
		_, hasStrategy := l.Annotations[v1alpha1.StrategyAnnotation]
		_, hasPreferred := l.Annotations[v1alpha1.PreferredHolderAnnotation]
		known = known || hasStrategy || hasPreferred
	}
	return false, known
}

// Newest returns the newest stamp of a renewal, an acquisition or a creation; zero if there is none.
func (c *Cluster) Newest() time.Time {
	var newest time.Time
	consider := func(t time.Time) {
		if t.After(newest) {
			newest = t
		}
	}
	for _, l := range c.leases {
		consider(l.CreationTimestamp.Time)
		if l.Spec.RenewTime != nil {
			consider(l.Spec.RenewTime.Time)
		}
		if l.Spec.AcquireTime != nil {
			consider(l.Spec.AcquireTime.Time)
		}
	}
	for _, candidate := range c.candidates {
		consider(candidate.Created)
		consider(candidate.Renewed)
	}
	return newest
}

// Coordinated returns the leases of that namespace ("" for all) that have candidates, in order.
func (c *Cluster) Coordinated(namespace string) []types.NamespacedName {
	var keys []types.NamespacedName
	for _, candidate := range c.candidates {
		if namespace == "" || candidate.Namespace == namespace {
			keys = append(keys, types.NamespacedName{Namespace: candidate.Namespace, Name: candidate.LeaseName})
		}
	}
	slices.SortFunc(keys, byKey)
	return slices.Compact(keys)
}

// AmbiguousError says that leases in several namespaces have a name.
type AmbiguousError struct {
	Name string
	Keys []types.NamespacedName
}

// Error implements error.
func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("lease %q is in several namespaces: say which of %s", e.Name, keysText(e.Keys))
}

// UnknownError says that a lease is not known.
type UnknownError struct {
	Name string
	// Known are those that have candidates.
	Known []types.NamespacedName
}

// Error implements error.
func (e *UnknownError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("there is no lease %q, and no lease has candidates", e.Name)
	}
	return fmt.Sprintf("there is no lease %q: those with candidates are %s", e.Name, keysText(e.Known))
}

func keysText(keys []types.NamespacedName) string {
	names := make([]string, 0, len(keys))
	for _, key := range keys {
		names = append(names, key.String())
	}
	return strings.Join(names, ", ")
}

// Find returns the lease that is meant by "name", in that namespace if it is not "", or "namespace/name". It has
// candidates, or exists; an ambiguous name means a lease with candidates first.
func (c *Cluster) Find(namespace, name string) (types.NamespacedName, error) {
	text := name
	if ns, rest, found := strings.Cut(name, "/"); found {
		namespace, name = ns, rest
	} else if namespace != "" {
		text = namespace + "/" + name
	}
	match := func(keys []types.NamespacedName) (found []types.NamespacedName) {
		for _, key := range keys {
			if key.Name == name && (namespace == "" || key.Namespace == namespace) {
				found = append(found, key)
			}
		}
		return found
	}
	coordinated := c.Coordinated("")
	found := match(coordinated)
	if len(found) == 0 {
		var keys []types.NamespacedName
		for key := range c.leases {
			keys = append(keys, key)
		}
		slices.SortFunc(keys, byKey)
		found = match(keys)
	}
	switch len(found) {
	case 0:
		return types.NamespacedName{}, &UnknownError{Name: text, Known: coordinated}
	case 1:
		return found[0], nil
	}
	return types.NamespacedName{}, &AmbiguousError{Name: name, Keys: found}
}

// View is a cluster at one time, under one coordinator's settings.
type View struct {
	Now        time.Time
	Settings   *election.Settings
	FieldsKept bool
	// AsOf says where Now comes from, for people; "" needs no saying.
	AsOf string
	// Snapshots are of the leases that have candidates, and of those that were asked for, without their load.
	Snapshots map[types.NamespacedName]*election.Snapshot
	// InTreeUntil is until when the in-tree coordinator must be taken to be at work.
	InTreeUntil time.Time
	// Loads is where leases are led.
	Loads election.Loads
}

// At returns the cluster as it is at that time: every lease that has candidates, and those given.
func (c *Cluster) At(now time.Time, settings *election.Settings, also ...types.NamespacedName) *View {
	v := &View{Now: now, Settings: settings, FieldsKept: c.FieldsKept(), Snapshots: map[types.NamespacedName]*election.Snapshot{}}
	v.InTreeUntil = c.inTreeUntil(now)
	byLease := map[types.NamespacedName][]*strategy.Candidate{}
	for _, candidate := range c.candidates {
		key := types.NamespacedName{Namespace: candidate.Namespace, Name: candidate.LeaseName}
		byLease[key] = append(byLease[key], candidate)
	}
	for _, key := range also {
		if byLease[key] == nil {
			byLease[key] = []*strategy.Candidate{}
		}
	}
	for key, candidates := range byLease {
		slices.SortFunc(candidates, func(a, b *strategy.Candidate) int { return cmp.Compare(a.Name, b.Name) })
		s := &election.Snapshot{
			Now: now, Key: key, InTreeActive: now.Before(v.InTreeUntil), FieldsKept: v.FieldsKept, Settings: settings,
		}
		if l := c.leases[key]; l != nil {
			s.Lease = leaseapi.Decode(l, v.FieldsKept)
		}
		s.Observed, s.Candidates = election.FromStamps(s.Lease, candidates, now)
		v.Snapshots[key] = s
	}
	for key, s := range v.Snapshots {
		v.Weigh(key, election.Decide(s).Strategy)
	}
	return v
}

// Weigh counts who leads the lease, or is about to, for the decisions about others. by is the strategy that it is led
// by.
func (v *View) Weigh(key types.NamespacedName, by coordinationv1.CoordinatedLeaseStrategy) (changed bool) {
	s := v.Snapshots[key]
	var leader *strategy.Candidate
	heir := election.Heir(s.Lease)
	for _, c := range s.Candidates {
		if c.Name == heir {
			leader = c.Candidate
		}
	}
	_, spreads := v.Settings.Strategies.Get(by).(strategy.LoadDependent)
	return v.Loads.Set(key, leader, spreads && election.Moving(s.Lease, s.Observed))
}

// inTreeUntil returns until when the in-tree coordinator must be taken to be at work, by the stamps of its lock. A
// coordinator of ours that holds that lock is the one whose decisions are explained.
func (c *Cluster) inTreeUntil(now time.Time) time.Time {
	lock := c.leases[types.NamespacedName{Namespace: v1alpha1.InTreeLockNamespace, Name: v1alpha1.InTreeLockName}]
	if lock == nil {
		return time.Time{}
	}
	observed, _ := election.FromStamps(lock, nil, now)
	if holder := observed.Claim.Holder; holder == "" || strings.HasPrefix(holder, v1alpha1.CoordinatorIdentityPrefix) {
		return time.Time{}
	}
	return observed.Claim.End()
}

// Explain says what the election makes of a lease of the view.
func (v *View) Explain(key types.NamespacedName) *Explanation {
	s := v.Snapshots[key]
	f := Facts{Key: key, Lease: s.Lease, Claim: s.Observed.Claim, AwaitingTakeUp: s.Observed.Appointment != nil, Now: v.Now}
	v.Loads.Without(key, func(load strategy.Load) {
		s.Load = load
		f.Explanation = election.Explain(s)
		if f.Decision.Reason == election.ReasonExcluded {
			// It is decided before anybody is ranked, but every candidate has its line.
			verdicts, _, _ := election.Rank(s)
			for _, verdict := range verdicts {
				standing := election.Standing{Verdict: verdict, State: election.StateUnknown}
				if verdict.Inadmissible != "" {
					standing.State = election.StateInadmissible
				}
				f.Ranking = append(f.Ranking, standing)
			}
		}
		s.Load = strategy.Load{}
	})
	if f.Decision.Reason == election.ReasonInTree {
		f.Decision.LookAgain = v.InTreeUntil
	}
	x := New(f)
	x.asOf = v.AsOf
	return x
}
