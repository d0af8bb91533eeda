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

package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// examination is the facts, and what several checks make of them.
type examination struct {
	*Facts
	gate gate
	// inTree and own are the states of the two locks.
	inTree, own lockState
	// contests are the leases that have candidates, by name.
	contests []contest
}

// contest is a lease with its candidates.
type contest struct {
	key types.NamespacedName
	// lease is as the API server has it, stamps included; nil for none.
	lease      *coordinationv1.Lease
	candidates []Candidate
	// claim is the claim on the lease, by the API server's clock.
	claim election.Claim
	// holderDuration is the last duration that a holder wrote; 0 if that is not known.
	holderDuration time.Duration
	excluded       bool
	standings      []election.Standing
	strategy       coordinationv1.CoordinatedLeaseStrategy
	// stop is why there is no order among the candidates; "" if there is.
	stop     election.Reason
	warnings []string
}

// about returns the lease as the object of a finding.
func (c *contest) about() object { return object{"Lease", c.key.Namespace, c.key.Name} }

// live returns those of the candidates that may lead and are not known to be silent.
func (c *contest) live() int {
	n := 0
	for _, s := range c.standings {
		if s.State != election.StateInadmissible && s.State != election.StateSuspect {
			n++
		}
	}
	return n
}

func newExamination(f *Facts) *examination {
	x := &examination{Facts: f}
	x.gate = x.whichGate()
	x.inTree, x.own = f.InTreeLock.state(f.Now), f.OwnLock.state(f.Now)
	x.contests = x.contest()
	return x
}

// gate is what kube-apiservers make of the fields of a Lease.
type gate int

const (
	gateUnknown gate = iota
	gateOff
	gateOn
	gateMixed
)

func (x *examination) whichGate() gate {
	found := gateUnknown
	for _, a := range x.Answers {
		if a.FieldsUnknown != "" {
			continue
		}
		this := gateOff
		if a.FieldsKept {
			this = gateOn
		}
		if found != gateUnknown && found != this {
			return gateMixed
		}
		found = this
	}
	return found
}

// fieldsShown reports whether a Lease shows what is made of its fields.
func (x *examination) fieldsShown() gate {
	for _, l := range x.Leases.List {
		if l.Spec.Strategy != nil || l.Spec.PreferredHolder != nil {
			return gateOn
		}
	}
	return gateUnknown
}

// fieldsKept is whether leases are to be read by their fields, as far as that is known.
func (x *examination) fieldsKept() bool {
	return x.gate == gateOn || x.gate == gateMixed || x.gate == gateUnknown && x.fieldsShown() == gateOn
}

// holding is who holds a coordinators' lock.
type holding int

const (
	heldByNobody holding = iota
	heldByCoordinator
	heldByOther
)

// lockState is what is to be made of a Lock.
type lockState struct {
	unknown string
	holding holding
	holder  string
	// alive is set if the holder renews, and how says how that is known.
	alive bool
	how   string
}

func (l Lock) state(now time.Time) lockState {
	s := lockState{unknown: l.Unknown}
	if l.Unknown != "" || l.Lease == nil {
		return s
	}
	observed, _ := election.FromStamps(leaseByServerClock(l.Lease), nil, now)
	claim := observed.Claim
	if s.holder = claim.Holder; s.holder == "" {
		return s
	}
	s.holding = heldByOther
	if strings.HasPrefix(s.holder, v1alpha1.CoordinatorIdentityPrefix) {
		s.holding = heldByCoordinator
	}
	age := now.Sub(claim.Seen)
	switch {
	case l.Renewed:
		s.alive, s.how = true, "seen to renew"
	case l.Watched >= claim.Duration:
		s.how = "did not renew while it was watched for " + seconds(l.Watched)
	case now.Before(claim.End()):
		s.alive, s.how = true, "renewed "+seconds(age)+" ago by its stamp"
	default:
		s.how = "renewed last " + seconds(age) + " ago by its stamp, with a duration of " + seconds(claim.Duration)
	}
	return s
}

// contest puts candidates and leases together.
func (x *examination) contest() []contest {
	leases := map[types.NamespacedName]*coordinationv1.Lease{}
	for _, l := range x.Leases.List {
		leases[types.NamespacedName{Namespace: l.Namespace, Name: l.Name}] = l
	}
	for _, l := range []Lock{x.InTreeLock, x.OwnLock} {
		if l.Lease != nil {
			leases[l.Key] = l.Lease
		}
	}
	sorted := slices.Clone(x.Candidates.List)
	slices.SortFunc(sorted, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.LeaseName, b.LeaseName), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Resource, b.Resource))
	})
	var contests []contest
	for i := 0; i < len(sorted); {
		key := types.NamespacedName{Namespace: sorted[i].Namespace, Name: sorted[i].LeaseName}
		end := i
		for end < len(sorted) && sorted[end].Namespace == key.Namespace && sorted[end].LeaseName == key.Name {
			end++
		}
		// Those of other namespaces than a coordinator's are somebody else's.
		if len(x.Namespaces) == 0 || slices.Contains(x.Namespaces, key.Namespace) {
			contests = append(contests, x.judge(key, leases[key], sorted[i:end]))
		}
		i = end
	}
	return contests
}

// judge asks the election about a lease. It sees the stamps as of when they were written, by the API server's clock.
func (x *examination) judge(key types.NamespacedName, l *coordinationv1.Lease, candidates []Candidate) contest {
	c := contest{key: key, lease: l, candidates: candidates, warnings: election.LeaseWarnings(l, x.Settings)}
	s := &election.Snapshot{Now: x.Now, Key: key, FieldsKept: x.fieldsKept(), Settings: x.Settings}
	if l != nil {
		s.Lease = leaseapi.Decode(leaseByServerClock(l), s.FieldsKept)
	}
	var list []*strategy.Candidate
	for _, candidate := range candidates {
		// One process may have an object of each kind, under one name.
		if n := len(list); n == 0 || list[n-1].Name != candidate.Name {
			list = append(list, candidate.byServerClock())
		} else if clocked := candidate.byServerClock(); clocked.Renewed.After(list[n-1].Renewed) {
			list[n-1] = clocked
		}
	}
	s.Observed, s.Candidates = election.FromStamps(s.Lease, list, x.Now)
	c.claim, c.holderDuration = s.Observed.Claim, s.Observed.HolderDuration
	_, c.strategy, c.stop = election.Rank(s)
	explanation := election.Explain(s)
	c.standings = explanation.Ranking
	c.excluded = explanation.Decision.Reason == election.ReasonExcluded
	return c
}

// plural returns "1 lease" or "2 leases".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
