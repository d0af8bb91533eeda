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
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
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
	// droppedUntil is until when a write that lost its fields has shown that they are not kept.
	droppedUntil time.Time
	leases       map[types.NamespacedName]*leaseState
	// leaseOf maps a candidate to the lease that it was last seen to name.
	leaseOf map[candidateID]types.NamespacedName
	// dropped is set for a kind, by whether it is the custom resource, that is not followed any more.
	dropped map[bool]bool
	// loads is where leases are led; loadChanged is set when others are to be decided on again for it.
	loads       election.Loads
	loadChanged bool
	// gone counts what was deleted since the last sweep.
	gone int
	// forgotten is called, with the observer locked, for each lease that is swept away. May be nil.
	forgotten func(types.NamespacedName)
}

// candidateID identifies a LeaseCandidate: there may be one of each kind with the same name.
type candidateID struct {
	types.NamespacedName
	customResource bool
}

func idOf(c *strategy.Candidate) candidateID {
	return candidateID{types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, c.CustomResource}
}

// leaseState is what is known of one lease.
type leaseState struct {
	// lease is the newest known, as the server has it; nil if there is none.
	lease    *coordinationv1.Lease
	version  uint64
	observed election.Observations

	candidates map[candidateID]*candidateState

	// writing is set while a write to the lease is under way. What the watch shows meanwhile is put aside, or
	// else the coordinator might take its own write for somebody else's.
	writing bool
	aside   []sighting

	// vacantSince is when the lease was first found vacant; zero while it is not.
	vacantSince time.Time
	// leaderlessSince is the same, until somebody leads again.
	leaderlessSince time.Time
	// termEndedAt is when this coordinator ended a term; zero once its successor leads.
	termEndedAt time.Time
	// appointedAt is when this coordinator last appointed a holder that has not taken up.
	appointedAt time.Time
	// intended is who is to be named by the decision that is being carried out.
	intended string
	// strategy is the one that the last decision went by.
	strategy strategy.Strategy
	// warned are the lease's warnings that were told.
	warned []string
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
	// warned are the candidate's warnings that were told.
	warned []string
	// priorityOver is set when the end of its priority was told, or had passed before anybody saw it.
	priorityOver bool
}

// NewObserver returns an observer that has seen nothing. identity is this coordinator's in its own lock. now is
// the clock; time.Now outside tests.
func NewObserver(identity string, fieldsKept bool, now func() time.Time) *Observer {
	return &Observer{
		now:        now,
		identity:   identity,
		fieldsKept: fieldsKept,
		leases:     map[types.NamespacedName]*leaseState{},
		leaseOf:    map[candidateID]types.NamespacedName{},
		dropped:    map[bool]bool{},
	}
}

// WhenForgotten has f called for each lease that is gone for good and of which nothing is remembered any more. Call it
// before anything is observed; f must not call the observer.
func (o *Observer) WhenForgotten(f func(types.NamespacedName)) { o.forgotten = f }

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

// droppedFor is how long a write that lost its fields counts for more than what the API server says: of several behind one
// address, one may keep what another drops, and to write again and again would only load both.
const droppedFor = time.Minute

// SetFieldsKept records what the API server was found to do with the fields of a Lease. It returns the leases to
// look at again if that has changed.
func (o *Observer) SetFieldsKept(kept bool) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.fieldsKept == kept || kept && o.now().Before(o.droppedUntil) {
		return nil
	}
	o.fieldsKept = kept
	return o.coordinated()
}

// FieldsKept returns what is taken to be so.
func (o *Observer) FieldsKept() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.fieldsKept
}

// FieldsDropped records that a write has lost its fields. It returns the leases to look at again.
func (o *Observer) FieldsDropped() []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.droppedUntil = o.now().Add(droppedFor)
	o.fieldsKept = false
	return o.coordinated()
}

// Lease returns the lease as it was last seen; nil if there was none, or nothing was seen yet. Read-only.
func (o *Observer) Lease(key types.NamespacedName) *coordinationv1.Lease {
	o.mu.Lock()
	defer o.mu.Unlock()
	if st := o.leases[key]; st != nil {
		return st.lease
	}
	return nil
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
	// Leaderless is how long the lease had no leader before that, and HandOff how long ago this coordinator had ended
	// the term before; 0 if it was, or had, not.
	Leaderless, HandOff time.Duration
	// LookAt are other leases to decide on, since it concerns them.
	LookAt []types.NamespacedName
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
	o.weigh(key, st)
}

func (o *Observer) see(key types.NamespacedName, s sighting) LeaseSeen {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.state(key)
	if st.writing {
		st.aside = append(st.aside, s)
		return LeaseSeen{}
	}
	seen := o.apply(key, st, s)
	seen.LookAt = o.concerned(key)
	return seen
}

func (o *Observer) apply(key types.NamespacedName, st *leaseState, s sighting) LeaseSeen {
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
		o.weigh(key, st)
		o.sweep()
		return seen
	}
	st.lease = s.lease
	st.observed.SeeLease(leaseapi.Decode(s.lease, o.fieldsKept), o.now())
	if awaited != nil && st.observed.Appointment == nil && st.observed.Claim.Holder == awaited.Holder {
		now := o.now()
		seen.TookUp, seen.Holder = now.Sub(st.appointedAt), awaited.Holder
		if !st.leaderlessSince.IsZero() {
			seen.Leaderless = now.Sub(st.leaderlessSince)
		}
		if !st.termEndedAt.IsZero() {
			seen.HandOff = now.Sub(st.termEndedAt)
		}
		st.leaderlessSince, st.termEndedAt = time.Time{}, time.Time{}
	}
	if awaited == nil && isRenewal(before, s.lease) {
		seen.Decide = false
		return seen
	}
	o.weigh(key, st)
	return seen
}

// weigh counts who leads the lease, or is about to, for the decisions about others.
func (o *Observer) weigh(key types.NamespacedName, st *leaseState) {
	lease := st.lease
	if lease != nil {
		lease = leaseapi.Decode(lease, o.fieldsKept)
	}
	var leader *strategy.Candidate
	if cs := st.candidate(key.Namespace, cmp.Or(st.intended, election.Heir(lease))); cs != nil {
		leader = cs.candidate
	}
	_, spreads := st.strategy.(strategy.LoadDependent)
	moving := spreads && (st.intended != "" || election.Moving(lease, &st.observed))
	if o.loads.Set(key, leader, moving) {
		o.loadChanged = true
	}
}

// concerned returns, once, the leases to decide on since the load has changed, without that one.
func (o *Observer) concerned(but types.NamespacedName) []types.NamespacedName {
	if !o.loadChanged {
		return nil
	}
	o.loadChanged = false
	var keys []types.NamespacedName
	for key, st := range o.leases {
		if _, spreads := st.strategy.(strategy.LoadDependent); spreads && key != but && len(st.candidates) > 0 {
			keys = append(keys, key)
		}
	}
	return keys
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

// candidate returns, of the LeaseCandidates of that name, the one that counts; nil if there is none.
func (st *leaseState) candidate(namespace, name string) *candidateState {
	id := candidateID{types.NamespacedName{Namespace: namespace, Name: name}, false}
	a := st.candidates[id]
	id.customResource = true
	b := st.candidates[id]
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case election.Supersedes(&election.Candidate{Candidate: b.candidate, Observed: b.observed}, &election.Candidate{Candidate: a.candidate, Observed: a.observed}):
		return b
	}
	return a
}

// SeeCandidate records that the candidate is as given, and returns the leases to decide on. initial says that it is
// part of the first list.
func (o *Observer) SeeCandidate(c *strategy.Candidate, initial bool) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dropped[c.CustomResource] {
		// Read, after a conflict, before its kind was dropped. Nobody would notice when it goes.
		return nil
	}
	return append(o.seeCandidate(c, initial), o.concerned(types.NamespacedName{Namespace: c.Namespace, Name: c.LeaseName})...)
}

// SeeCandidates records that the given candidates are all there are of their kinds, each by whether it is the custom resource,
// and returns the leases to decide on.
func (o *Observer) SeeCandidates(all map[bool][]*strategy.Candidate) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seeCandidates(all)
}

func (o *Observer) seeCandidates(all map[bool][]*strategy.Candidate) []types.NamespacedName {
	gone := map[candidateID]bool{}
	for id := range o.leaseOf {
		if _, is := all[id.customResource]; is {
			gone[id] = true
		}
	}
	var decide []types.NamespacedName
	for customResource, candidates := range all {
		delete(o.dropped, customResource)
		for _, c := range candidates {
			delete(gone, idOf(c))
			decide = append(decide, o.seeCandidate(c, true)...)
		}
	}
	for id := range gone {
		decide = append(decide, o.candidateDeleted(id)...)
	}
	return append(decide, o.concerned(types.NamespacedName{})...)
}

// DropCandidates records that the candidates of a kind are not followed any more, and returns the leases to decide on.
func (o *Observer) DropCandidates(customResource bool) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	decide := o.seeCandidates(map[bool][]*strategy.Candidate{customResource: nil})
	o.dropped[customResource] = true
	return decide
}

func (o *Observer) seeCandidate(c *strategy.Candidate, initial bool) []types.NamespacedName {
	id := idOf(c)
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.LeaseName}
	decide := []types.NamespacedName{key}
	if old, known := o.leaseOf[id]; known {
		if parseVersion(c.ResourceVersion) < parseVersion(o.leases[old].candidates[id].candidate.ResourceVersion) {
			return nil
		}
		if old != key {
			o.forget(old, id)
			decide = append(decide, old)
		}
	}
	o.leaseOf[id] = key
	st := o.state(key)
	cs := st.candidates[id]
	if cs == nil {
		cs = &candidateState{}
		if st.candidates == nil {
			st.candidates = map[candidateID]*candidateState{}
		}
		st.candidates[id] = cs
	}
	if cs.candidate == nil || !cs.candidate.PriorityUntil.Equal(c.PriorityUntil) {
		cs.priorityOver = !c.PriorityUntil.IsZero() && !o.now().Before(c.PriorityUntil)
	}
	cs.candidate = c
	cs.observed = cs.observed.See(c, o.now(), initial)
	o.weigh(key, st)
	return decide
}

// SeeCandidateDeleted records that the candidate no longer exists, and returns the leases to decide on. Another that was
// created under its name since stays.
func (o *Observer) SeeCandidateDeleted(c *strategy.Candidate) []types.NamespacedName {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := idOf(c)
	if key, known := o.leaseOf[id]; !known || o.leases[key].candidates[id].candidate.UID != c.UID {
		return nil
	}
	keys := o.candidateDeleted(id)
	return append(keys, o.concerned(keys[0])...)
}

func (o *Observer) candidateDeleted(id candidateID) []types.NamespacedName {
	key := o.leaseOf[id]
	delete(o.leaseOf, id)
	o.forget(key, id)
	return []types.NamespacedName{key}
}

func (o *Observer) forget(key types.NamespacedName, id candidateID) {
	st := o.state(key)
	delete(st.candidates, id)
	if st.candidate(id.Namespace, id.Name) == nil {
		st.observed.Forget(id.Name)
	}
	o.weigh(key, st)
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
	maps.DeleteFunc(o.leases, func(key types.NamespacedName, st *leaseState) bool {
		if st.lease != nil || len(st.candidates) > 0 || st.writing || o.now().Before(st.observed.Claim.End()) {
			return false
		}
		if o.forgotten != nil {
			o.forgotten(key)
		}
		return true
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
	// notices are to be told, once.
	notices []notice
	// lookAt are other leases to decide on, since the decision concerns them.
	lookAt []types.NamespacedName
}

// notice is something about an object that its owner should hear of, once.
type notice struct {
	// candidate is whom it is about; nil for the Lease.
	candidate *strategy.Candidate
	// warning tells of its invalid values that were not told of; "" for the end of the candidate's priority.
	warning string
}

// decide decides on the lease as it is known now. A decision that writes the lease must be followed by wrote, failed or
// abandon.
func (o *Observer) decide(key types.NamespacedName, settings *election.Settings) decided {
	o.mu.Lock()
	defer o.mu.Unlock()
	st, now := o.state(key), o.now()
	// The controller decides only after its caches have synced.
	o.watching()
	st.intended = ""
	o.weigh(key, st)
	d := decided{before: st.lease, fieldsKept: o.fieldsKept, snapshot: o.snapshot(key, st, now, settings)}
	o.loads.Without(key, func(load strategy.Load) {
		d.snapshot.Load = load
		d.Decision = election.Decide(&d.snapshot)
		d.snapshot.Load = strategy.Load{}
	})
	st.strategy = settings.Strategies.Get(d.Strategy)
	switch d.Action {
	case election.Appoint, election.Prefer, election.Revoke:
		st.intended = d.Candidate
	}
	o.weigh(key, st)
	if d.Reason == election.ReasonInTree {
		if until := o.inTreeActiveUntil(); d.LookAgain.IsZero() || until.Before(d.LookAgain) {
			d.LookAgain = until
		}
	}
	if d.Vacancy() && st.vacantSince.IsZero() {
		st.vacantSince = now
		if st.leaderlessSince.IsZero() {
			st.leaderlessSince = now
		}
	}
	if !st.vacantSince.IsZero() {
		d.vacantFor = now.Sub(st.vacantSince)
		if !d.Vacancy() {
			st.vacantSince = time.Time{}
			if st.observed.Appointment == nil {
				// Somebody took the lease without being appointed.
				st.leaderlessSince = time.Time{}
			}
		}
	}
	said := &st.said
	if d.Action != election.None {
		said = &st.done
	}
	if sentence := d.Sentence(); sentence != *said {
		*said, d.news = sentence, true
	}
	d.notices = st.notices(&d.snapshot)
	d.lookAt = o.concerned(key)
	return d
}

// snapshot returns all that a decision about the lease depends on, but the load.
func (o *Observer) snapshot(key types.NamespacedName, st *leaseState, now time.Time, settings *election.Settings) election.Snapshot {
	st.observed.Since = o.since
	s := election.Snapshot{
		Now: now, Key: key,
		Candidates:   make([]election.Candidate, 0, len(st.candidates)),
		Observed:     &st.observed,
		InTreeActive: now.Before(o.inTreeActiveUntil()),
		FieldsKept:   o.fieldsKept,
		Settings:     settings,
	}
	if st.lease != nil {
		s.Lease = leaseapi.Decode(st.lease, o.fieldsKept)
	}
	for _, cs := range st.candidates {
		s.Candidates = append(s.Candidates, election.Candidate{Candidate: cs.candidate, Observed: cs.observed})
	}
	return s
}

// notices returns what is to be told of the lease and its candidates, and notes that it was.
func (st *leaseState) notices(s *election.Snapshot) []notice {
	var list []notice
	tell := func(told *[]string, warnings []string, c *strategy.Candidate) {
		if slices.Equal(*told, warnings) {
			return
		}
		var news []string
		for _, w := range warnings {
			if !slices.Contains(*told, w) {
				news = append(news, w)
			}
		}
		// Together, since there is one event about an object as of one resourceVersion; see decided.about.
		if len(news) > 0 {
			list = append(list, notice{candidate: c, warning: strings.Join(news, "; ")})
		}
		*told = warnings
	}
	tell(&st.warned, election.LeaseWarnings(s.Lease, s.Settings), nil)
	for _, cs := range st.candidates {
		c := cs.candidate
		tell(&cs.warned, c.Warnings, c)
		if !cs.priorityOver && c.Priority > 0 && !c.PriorityUntil.IsZero() && !s.Now.Before(c.PriorityUntil) {
			cs.priorityOver = true
			list = append(list, notice{candidate: c})
		}
	}
	return list
}

// abandon says that a decision is not carried out.
func (o *Observer) abandon(key types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.state(key)
	st.intended = ""
	o.weigh(key, st)
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
	switch d.Action {
	case election.Appoint:
		st.appointedAt, st.vacantSince = now, time.Time{}
	case election.Prefer, election.Revoke:
		if st.termEndedAt.IsZero() {
			st.termEndedAt = now
		}
	case election.ClearPreferred:
		st.termEndedAt = time.Time{}
	}
	return o.end(key, st)
}

// failed closes a write that did not succeed, or of which that is not known.
func (o *Observer) failed(key types.NamespacedName) LeaseSeen {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.end(key, o.state(key))
}

func (o *Observer) end(key types.NamespacedName, st *leaseState) LeaseSeen {
	aside := st.aside
	st.writing, st.aside, st.intended = false, nil, ""
	o.weigh(key, st)
	var all LeaseSeen
	for _, s := range aside {
		// All of them in order, since a claim depends on what went before a deletion.
		seen := o.apply(key, st, s)
		if seen.Holder == "" {
			seen.Holder, seen.TookUp, seen.Leaderless, seen.HandOff = all.Holder, all.TookUp, all.Leaderless, all.HandOff
		}
		seen.Decide = all.Decide || seen.Decide
		all = seen
	}
	all.LookAt = o.concerned(key)
	return all
}

// pinged records that the candidate was pinged. It may have acked before the server's answer arrived.
func (o *Observer) pinged(key types.NamespacedName, c *strategy.Candidate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	cs := o.state(key).candidates[idOf(c)]
	if cs == nil || cs.candidate.UID != c.UID || !cs.candidate.Renewed.Equal(c.Renewed) {
		return
	}
	cs.observed = cs.observed.Ping(o.now())
}
