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

package controller

import (
	"maps"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

var inTreeLock = types.NamespacedName{Namespace: v1alpha1.InTreeLockNamespace, Name: v1alpha1.InTreeLockName}

// Observer keeps, for every lease, what a decision about it depends on. Watch events and the coordinator's own
// writes feed it, on standbys too, so that taking over costs no wait. It is the only state of the controller, and
// holds nothing that a restart may not forget. Safe for concurrent use.
type Observer struct {
	now      func() time.Time
	identity string

	mu sync.Mutex
	// since is when the watch of Leases had shown all there were; zero before.
	since      time.Time
	fieldsKept bool
	leases     map[types.NamespacedName]*leaseState
	// leaseOf maps a candidate to the lease that it was last seen to name.
	leaseOf map[types.NamespacedName]types.NamespacedName
	// gone counts what was deleted since the last sweep.
	gone int
}

// leaseState is what is known of one lease.
type leaseState struct {
	// lease is the newest known, as the server has it; nil if there is none.
	lease    *coordinationv1.Lease
	version  uint64
	observed election.Observations

	candidates map[string]*candidateState

	// writing is set while a write to the lease is under way. What the watch shows meanwhile is put aside, or
	// else the coordinator might take its own write for somebody else's.
	writing bool
	aside   []sighting

	// vacantSince is when the lease was first found vacant; zero while it is not.
	vacantSince time.Time
	// appointedAt is when this coordinator last appointed a holder that has not taken up.
	appointedAt time.Time
	// said and done are the sentences of the last decision to do nothing and to do something, so that one that
	// stays is reported once.
	said, done string
}

// sighting is one thing that the watch showed of a lease.
type sighting struct {
	lease   *coordinationv1.Lease
	deleted bool
	missed  bool
}

type candidateState struct {
	candidate *strategy.Candidate
	observed  election.CandidateObservations
}

// NewObserver returns an observer that has seen nothing. identity is this coordinator's in its own lock. now is
// the clock; time.Now outside tests.
func NewObserver(identity string, fieldsKept bool, now func() time.Time) *Observer {
	return &Observer{
		now:        now,
		identity:   identity,
		fieldsKept: fieldsKept,
		leases:     map[types.NamespacedName]*leaseState{},
		leaseOf:    map[types.NamespacedName]types.NamespacedName{},
	}
}

// Watching records that the watch of Leases has shown all there are. From now on a Lease that is not known does not
// exist, and was not deleted unseen.
func (o *Observer) Watching() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.watching()
}

func (o *Observer) watching() {
	if o.since.IsZero() {
		o.since = o.now()
	}
}

// SetFieldsKept records what the API server was found to do with the fields of a Lease. It returns the leases to
// look at again if that has changed.
func (o *Observer) SetFieldsKept(kept bool) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fieldsKept == kept {
		return nil
	}
	o.fieldsKept = kept
	return o.coordinated()
}

// Coordinated returns the leases that have candidates, in no particular order.
func (o *Observer) Coordinated() []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.coordinated()
}

func (o *Observer) coordinated() []types.NamespacedName {
	var keys []types.NamespacedName
	for key, st := range o.leases {
		if len(st.candidates) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

func (o *Observer) state(key types.NamespacedName) *leaseState {
	st := o.leases[key]
	if st == nil {
		st = &leaseState{}
		o.leases[key] = st
	}
	return st
}

// LeaseSeen is what came of a sighting.
type LeaseSeen struct {
	// Decide is set if the lease is to be decided on: not for a renewal, nor for a lease without candidates.
	Decide bool
	// TookUp is set if an appointee of this coordinator took up, after that time.
	TookUp time.Duration
	// Holder is who took up.
	Holder string
}

// SeeLease records that the lease is as given.
func (o *Observer) SeeLease(lease *coordinationv1.Lease) LeaseSeen {
	return o.see(types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}, sighting{lease: lease})
}

// SeeLeaseDeleted records that the lease was deleted. missed says that the watch may have missed events before.
func (o *Observer) SeeLeaseDeleted(lease *coordinationv1.Lease, missed bool) LeaseSeen {
	return o.see(types.NamespacedName{Namespace: lease.Namespace, Name: lease.Name}, sighting{lease: lease, deleted: true, missed: missed})
}

// SeeLeaseMissing records that the API server says the lease does not exist, although the watch has not shown its
// deletion.
func (o *Observer) SeeLeaseMissing(key types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.state(key)
	if st.writing || st.lease == nil {
		return
	}
	st.lease = nil
	st.observed.SeeDeleted(o.now(), true)
}

func (o *Observer) see(key types.NamespacedName, s sighting) LeaseSeen {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.state(key)
	if st.writing {
		st.aside = append(st.aside, s)
		return LeaseSeen{}
	}
	return o.apply(st, s)
}

func (o *Observer) apply(st *leaseState, s sighting) LeaseSeen {
	version := parseVersion(s.lease.ResourceVersion)
	if version < st.version || version == st.version && !s.deleted {
		return LeaseSeen{}
	}
	before, awaited := st.lease, st.observed.Appointment
	st.version = version
	seen := LeaseSeen{Decide: len(st.candidates) > 0}
	if s.deleted {
		st.lease = nil
		st.observed.SeeDeleted(o.now(), s.missed)
		o.sweep()
		return seen
	}
	st.lease = s.lease
	st.observed.SeeLease(leaseapi.Decode(s.lease, o.fieldsKept), o.now())
	if awaited != nil && st.observed.Appointment == nil && st.observed.Claim.Holder == awaited.Holder {
		seen.TookUp, seen.Holder = o.now().Sub(st.appointedAt), awaited.Holder
	}
	if awaited == nil && isRenewal(before, s.lease) {
		seen.Decide = false
	}
	return seen
}

// isRenewal reports whether nothing but the stamp of an unchanged holder has moved: it postpones deadlines, and is
// noticed when they come.
func isRenewal(before, after *coordinationv1.Lease) bool {
	if before == nil || after == nil || before.UID != after.UID {
		return false
	}
	a, b := before.Spec, after.Spec
	return equal(a.HolderIdentity, b.HolderIdentity) &&
		equal(a.LeaseDurationSeconds, b.LeaseDurationSeconds) &&
		equal(a.LeaseTransitions, b.LeaseTransitions) &&
		equal(a.Strategy, b.Strategy) &&
		equal(a.PreferredHolder, b.PreferredHolder) &&
		maps.Equal(before.Annotations, after.Annotations)
}

func equal[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// SeeCandidate records that the candidate is as given, and returns the leases to decide on. initial says that it is
// part of the first list.
func (o *Observer) SeeCandidate(c *strategy.Candidate, initial bool) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.LeaseName}
	decide := []types.NamespacedName{key}
	if old, known := o.leaseOf[id]; known {
		if parseVersion(c.ResourceVersion) < parseVersion(o.leases[old].candidates[c.Name].candidate.ResourceVersion) {
			return nil
		}
		if old != key {
			o.forget(old, c.Name)
			decide = append(decide, old)
		}
	}
	o.leaseOf[id] = key
	st := o.state(key)
	cs := st.candidates[c.Name]
	if cs == nil {
		cs = &candidateState{}
		if st.candidates == nil {
			st.candidates = map[string]*candidateState{}
		}
		st.candidates[c.Name] = cs
	}
	cs.candidate = c
	cs.observed = cs.observed.See(c, o.now(), initial)
	return decide
}

// SeeCandidateDeleted records that the candidate no longer exists, and returns the leases to decide on.
func (o *Observer) SeeCandidateDeleted(namespace, name string) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := types.NamespacedName{Namespace: namespace, Name: name}
	key, known := o.leaseOf[id]
	if !known {
		return nil
	}
	delete(o.leaseOf, id)
	o.forget(key, name)
	return []types.NamespacedName{key}
}

func (o *Observer) forget(key types.NamespacedName, candidate string) {
	st := o.state(key)
	delete(st.candidates, candidate)
	st.observed.Forget(candidate)
	o.sweep()
}

// sweep forgets, once in a while, the leases that are gone and that nobody wants to lead. Those whose claim still runs
// are kept: a candidate that comes now must wait for it.
func (o *Observer) sweep() {
	const least = 16
	if o.gone++; o.gone < least+len(o.leases)/4 {
		return
	}
	o.gone = 0
	maps.DeleteFunc(o.leases, func(_ types.NamespacedName, st *leaseState) bool {
		return st.lease == nil && len(st.candidates) == 0 && !st.writing && !o.now().Before(st.observed.Claim.End())
	})
}

// parseVersion reads a resourceVersion. They are numbers that grow (KEP-5504); an unknown form counts as newest.
func parseVersion(resourceVersion string) uint64 {
	v, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 1<<64 - 1
	}
	return v
}

// decided is a decision and what it takes to carry it out.
type decided struct {
	election.Decision
	snapshot election.Snapshot
	// before is the lease that was decided on, as the server has it; nil for none.
	before     *coordinationv1.Lease
	fieldsKept bool
	// vacantFor is how long the lease has been vacant.
	vacantFor time.Duration
	// news is set if the decision differs from the last one of its kind, to do nothing or something.
	news bool
}

// decide decides on the lease as it is known now. A decision that writes the lease must be followed by wrote or
// failed.
func (o *Observer) decide(key types.NamespacedName, settings *election.Settings) decided {
	o.mu.Lock()
	defer o.mu.Unlock()
	st, now := o.state(key), o.now()
	// The controller decides only after its caches have synced.
	o.watching()
	st.observed.Since = o.since
	d := decided{before: st.lease, fieldsKept: o.fieldsKept, snapshot: election.Snapshot{
		Now: now, Key: key,
		Candidates:   make([]election.Candidate, 0, len(st.candidates)),
		Observed:     &st.observed,
		InTreeActive: now.Before(o.inTreeActiveUntil()),
		FieldsKept:   o.fieldsKept,
		Settings:     settings,
	}}
	if st.lease != nil {
		d.snapshot.Lease = leaseapi.Decode(st.lease, o.fieldsKept)
	}
	for _, cs := range st.candidates {
		d.snapshot.Candidates = append(d.snapshot.Candidates, election.Candidate{Candidate: cs.candidate, Observed: cs.observed})
	}
	d.Decision = election.Decide(&d.snapshot)
	if d.Reason == election.ReasonInTree {
		d.LookAgain = o.inTreeActiveUntil()
	}
	if d.Vacancy() && st.vacantSince.IsZero() {
		st.vacantSince = now
	}
	if !st.vacantSince.IsZero() {
		d.vacantFor = now.Sub(st.vacantSince)
		if !d.Vacancy() {
			st.vacantSince = time.Time{}
		}
	}
	said := &st.said
	if d.Action != election.None {
		said = &st.done
	}
	if sentence := d.Sentence(); sentence != *said {
		*said, d.news = sentence, true
	}
	return d
}

// inTreeActiveUntil returns until when the in-tree coordinator must be taken to be at work, by what is known of its
// lock; zero if it is not. A lock that another coordinator of this project holds means the same to us.
func (o *Observer) inTreeActiveUntil() time.Time {
	st := o.leases[inTreeLock]
	if st == nil || st.observed.Claim.Holder == "" || st.observed.Claim.Holder == o.identity {
		return time.Time{}
	}
	return st.observed.Claim.End()
}

// compose returns the lease to write for the decision, as the server shall have it. Call begin first.
func (o *Observer) compose(d decided, base string) *coordinationv1.Lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	return leaseapi.Encode(d.Write(&d.snapshot, base), d.fieldsKept)
}

// begin opens a write to the lease. It returns false if the lease is no longer the one that was decided on.
func (o *Observer) begin(key types.NamespacedName, d decided) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.state(key)
	if st.lease != d.before {
		return false
	}
	st.writing = true
	return true
}

// wrote closes a write that succeeded. after is what the server returned.
func (o *Observer) wrote(key types.NamespacedName, d decided, after *coordinationv1.Lease) LeaseSeen {
	o.mu.Lock()
	defer o.mu.Unlock()
	st, now := o.state(key), o.now()
	canonical := leaseapi.Decode(after, d.fieldsKept)
	st.observed.Wrote(d.Decision, d.snapshot.Lease, canonical, now)
	st.lease, st.version = after, parseVersion(after.ResourceVersion)
	if d.Action == election.Appoint {
		st.appointedAt, st.vacantSince = now, time.Time{}
	}
	return o.end(st)
}

// failed closes a write that did not succeed, or of which that is not known.
func (o *Observer) failed(key types.NamespacedName) LeaseSeen {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.end(o.state(key))
}

func (o *Observer) end(st *leaseState) LeaseSeen {
	aside := st.aside
	st.writing, st.aside = false, nil
	var all LeaseSeen
	for _, s := range aside {
		// All of them in order, since a claim depends on what went before a deletion.
		seen := o.apply(st, s)
		all.Decide = all.Decide || seen.Decide
		if seen.Holder != "" {
			all.Holder, all.TookUp = seen.Holder, seen.TookUp
		}
	}
	return all
}

// pinged records that the candidate was pinged. It may have acked before the server's answer arrived.
func (o *Observer) pinged(key types.NamespacedName, c *strategy.Candidate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	cs := o.state(key).candidates[c.Name]
	if cs == nil || cs.candidate.UID != c.UID || !cs.candidate.Renewed.Equal(c.Renewed) {
		return
	}
	cs.observed = cs.observed.Ping(o.now())
}
