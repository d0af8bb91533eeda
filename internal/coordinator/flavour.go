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

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/access"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
)

const (
	// lookPeriod is how often the API server is asked what it allows, so that a right that was taken away is missed within
	// half a minute: watches that are open go on without it.
	lookPeriod = 25 * time.Second
	// fullLook is how many looks there are to one that asks as well what the API server can do, so that a feature gate
	// that is switched on in an upgrade, or a CRD that is installed, is followed without restart. An API server that starts
	// again ends the watches, and is looked at in full at once.
	fullLook = 8
	// retryPeriod is how often it is looked at in full while the coordinator cannot work.
	retryPeriod = 5 * time.Second
	// lookPause is the shortest time between two looks, however many failures ask for one.
	lookPause = time.Second
	// requestTimeout bounds every request but watches.
	requestTimeout = 10 * time.Second
	// missedLooks is in how many full looks in a row a kind that was served must be missing before it is taken to be gone:
	// in an upgrade, several API servers behind one address give different answers.
	missedLooks = 3
)

// flavour is what the API server was found to do.
type flavour struct {
	kinds      []leaseapi.CandidateKind
	fieldsKept bool
}

// conditions says it for people, a line each.
func (f *flavour) conditions() []string {
	fields := "dropped by the API server; the coordinator keeps them in annotations"
	if f.fieldsKept {
		fields = "kept by the API server"
	}
	var names []string
	for _, k := range f.kinds {
		names = append(names, k.String())
	}
	if len(names) == 0 {
		names = []string{"none are served"}
	}
	return []string{
		"spec.strategy and spec.preferredHolder of Leases: " + fields,
		"candidates: " + strings.Join(names, ", "),
	}
}

// kindChoice chooses which kinds of LeaseCandidate to follow as the API server's answers change: one of each group, and in
// that version as long as it is served.
type kindChoice struct {
	following []leaseapi.CandidateKind
	missed    map[bool]int
}

// next returns which kinds to follow, given those that are served now. sure is false if one of them is not served any more,
// by the API server that answered.
func (k *kindChoice) next(served []leaseapi.CandidateKind) (follow []leaseapi.CandidateKind, sure bool) {
	if k.missed == nil {
		k.missed = map[bool]int{}
	}
	sure = true
	for _, customResource := range []bool{false, true} {
		same := func(k leaseapi.CandidateKind) bool { return k.CustomResource() == customResource }
		present, before := slices.IndexFunc(served, same), slices.IndexFunc(k.following, same)
		switch {
		case present < 0 && before < 0:
		case present < 0:
			if k.missed[customResource]++; k.missed[customResource] < missedLooks {
				follow = append(follow, k.following[before])
				sure = false
			}
			continue
		case before >= 0 && slices.ContainsFunc(served, func(s leaseapi.CandidateKind) bool {
			return s.GroupVersionKind() == k.following[before].GroupVersionKind()
		}):
			follow = append(follow, k.following[before])
		default:
			// They are sorted.
			follow = append(follow, served[present])
		}
		k.missed[customResource] = 0
	}
	k.following = follow
	return follow, sure
}

// scope returns what the coordinator's rights depend on.
func (c *coordinator) scope(kinds []leaseapi.CandidateKind) access.Scope {
	s := access.Scope{Lock: c.options.lockKey(), Namespaces: c.options.Namespaces, DryRun: c.configuration.dryRun()}
	for _, k := range kinds {
		s.CandidateGroups = append(s.CandidateGroups, k.GroupVersionKind().Group)
	}
	return s
}

// look finds out whether the coordinator may and can work. A full look finds out how, too, and has it work that way. It
// returns how long to wait for the next.
func (c *coordinator) look(ctx context.Context, full bool) (wait time.Duration, problem error) {
	if !full {
		scope := c.scope(c.kinds.following)
		return lookPeriod, access.Check(ctx, c.manager.GetClient(), append(scope.Wanted(), scope.WantedForLocks()...), scope.Lock.Namespace)
	}
	served, err := c.discovery.Candidates(ctx)
	if err != nil && !errors.Is(err, leaseapi.ErrNoCandidates) {
		return retryPeriod, err
	}
	follow, sure := c.kinds.next(served)
	wait = lookPeriod
	if !sure {
		wait = retryPeriod
	}
	if len(follow) == 0 {
		if c.started {
			if err := c.reconciler.Follow(c.running, c.manager.GetCache(), nil); err != nil {
				return retryPeriod, err
			}
			c.flavour.Store(&flavour{fieldsKept: c.observer.FieldsKept()})
		}
		// Whatever is going to be served, what is missing for it can be said now.
		scope := c.scope(nil)
		scope.CandidateGroups = []string{coordinationv1.GroupName, v1alpha1.Group}
		missing := access.Check(ctx, c.manager.GetClient(), append(scope.Wanted(), scope.WantedForLocks()...), access.NoNamespaceOfOurs)
		return retryPeriod, errors.Join(leaseapi.ErrNoCandidates, missing)
	}
	scope := c.scope(follow)
	problem = access.Check(ctx, c.manager.GetClient(), append(scope.Wanted(), scope.WantedForLocks()...), access.NoNamespaceOfOurs)
	if problem != nil && !c.started {
		return retryPeriod, problem
	}
	kept, err := leaseapi.FieldsKept(ctx, c.manager.GetClient(), c.options.lockKey().Namespace)
	if err != nil {
		return retryPeriod, errors.Join(problem, err)
	}
	if err := c.start(); err != nil {
		return retryPeriod, err
	}
	c.settle(ctx, &flavour{kinds: follow, fieldsKept: kept})
	if err := c.reconciler.Follow(c.running, c.manager.GetCache(), allowed(follow, problem, c.options.Namespaces)); err != nil {
		return retryPeriod, errors.Join(problem, err)
	}
	for _, late := range c.reconciler.Late() {
		// Its log has the API server's answers.
		problem = errors.Join(problem, fmt.Errorf("the API server does not list %s: its candidates do not count yet", late))
	}
	return wait, problem
}

// allowed leaves out the kinds whose candidates the coordinator may watch nowhere: their watches would fail again and again,
// and must not keep the others from being followed. One that it may watch in some of the namespaces stays, or else whoever
// deletes one namespace would end elections in all.
func allowed(kinds []leaseapi.CandidateKind, problem error, namespaces []string) []leaseapi.CandidateKind {
	var missing access.MissingError
	if !errors.As(problem, &missing) {
		return kinds
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(k leaseapi.CandidateKind) bool {
		refused := map[string]bool{}
		for _, r := range missing.Missing {
			if r.Group == k.GroupVersionKind().Group && r.Resource == "leasecandidates" && (r.Verb == "list" || r.Verb == "watch") {
				refused[r.Namespace] = true
			}
		}
		return len(refused) >= max(1, len(namespaces))
	})
}

// settle works by what the API server was found to do, and says so when that has changed.
func (c *coordinator) settle(ctx context.Context, found *flavour) {
	if changed := c.observer.SetFieldsKept(found.fieldsKept); changed != nil {
		c.reconciler.LookAt(changed)
	}
	// It may know better: a write has shown that they are dropped.
	found.fieldsKept = c.observer.FieldsKept()
	c.metrics.FieldsKept(found.fieldsKept)
	before := c.flavour.Swap(found)
	conditions := found.conditions()
	if before != nil && slices.Equal(before.conditions(), conditions) {
		return
	}
	c.logger.Info("What the API server does", "fieldsKept", found.fieldsKept, "candidates", strings.TrimPrefix(conditions[1], "candidates: "))
	if before == nil && found.fieldsKept {
		// As it is in Kubernetes' own coordinated leader election.
		return
	}
	c.tell(ctx, func(about *lockObject) { c.reconciler.Events.ServerChanged(about, strings.Join(conditions, "; ")) })
}
