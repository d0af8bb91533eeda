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
	"slices"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

var leaseKey = types.NamespacedName{Namespace: "ns", Name: "l"}

// fixture is an observer with a clock of its own, and settings to decide by.
type fixture struct {
	*testing.T
	*Observer
	clock    time.Time
	version  int
	settings *election.Settings
}

const identity = v1alpha1.CoordinatorIdentityPrefix + "a"

func newFixture(t *testing.T) *fixture {
	t.Helper()
	registry, err := strategy.NewRegistry(strategy.BuiltIn()...)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, clock: time.Unix(1_700_000_000, 0), settings: &election.Settings{
		Strategies: registry, ElectionDuration: election.DefaultElectionDuration, CandidateTTL: election.DefaultCandidateTTL,
	}}
	f.Observer = NewObserver(identity, true, func() time.Time { return f.clock })
	return f
}

func (f *fixture) elapse(d time.Duration) { f.clock = f.clock.Add(d) }

// lease returns a Lease as its holder writes it now.
func (f *fixture) lease(holder string) *coordinationv1.Lease {
	f.version++
	now := metav1.NewMicroTime(f.clock)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: leaseKey.Namespace, Name: leaseKey.Name, UID: "u", ResourceVersion: strconv.Itoa(f.version)},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)), RenewTime: &now},
	}
}

// candidate returns a candidate as it renews now.
func (f *fixture) candidate(name, emulation string) *strategy.Candidate {
	f.version++
	return &strategy.Candidate{
		Namespace: leaseKey.Namespace, Name: name, UID: name, ResourceVersion: strconv.Itoa(f.version), LeaseName: leaseKey.Name,
		Strategy: v1alpha1.OldestEmulationVersion, Created: f.clock, Renewed: f.clock,
		Binary: strategy.ParseVersion("1.37.0"), Emulation: strategy.ParseVersion(emulation),
	}
}

func (f *fixture) decides(want election.Action, candidate string) decided {
	f.Helper()
	d := f.decide(leaseKey, f.settings)
	if d.Action != want || d.Candidate != candidate && candidate != "*" {
		f.Fatalf("decided %s %q (%s), want %s %q", d.Action, d.Candidate, d.Sentence(), want, candidate)
	}
	return d
}

// written carries a decision out as the API server does, and returns the Lease.
func (f *fixture) written(d decided) *coordinationv1.Lease {
	f.Helper()
	if !f.begin(leaseKey, d) {
		f.Fatal("the lease is not what was decided on")
	}
	after := f.compose(d, "base")
	f.version++
	after.ResourceVersion, after.UID = strconv.Itoa(f.version), "u"
	return after
}

func TestOldEventsAreIgnored(t *testing.T) {
	f := newFixture(t)
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	old := f.lease("b")
	d := f.decides(election.Appoint, "a")
	after := f.written(d)
	f.wrote(leaseKey, d, after)
	// The watch lags behind: this was before the write.
	if seen := f.SeeLease(old); seen.Decide {
		t.Error("an event from before the write asks for a decision")
	}
	if d := f.decides(election.None, "a"); d.Reason != election.ReasonAwaitingTakeUp {
		t.Errorf("reason %s", d.Reason)
	}
	if seen := f.SeeLease(after); seen.Decide {
		t.Error("the watch's echo of the write asks for a decision")
	}
	if f.Observer.leases[leaseKey].observed.Appointment == nil {
		t.Error("the echo of the appointment was taken for the appointee's renewal")
	}
}

// The watch may show the write, and what came after it, before the write's own answer arrives.
func TestEventsDuringWriteArePutAside(t *testing.T) {
	f := newFixture(t)
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	d := f.decides(election.Appoint, "a")
	after := f.written(d)
	f.elapse(time.Second)
	renewed := f.lease("a")
	renewed.Annotations = after.Annotations
	for _, event := range []*coordinationv1.Lease{after, renewed} {
		if seen := f.SeeLease(event); seen.Decide || seen.Holder != "" {
			t.Errorf("an event during a write had the outcome %+v", seen)
		}
	}
	f.SeeLeaseMissing(leaseKey)
	f.elapse(time.Second)
	seen := f.wrote(leaseKey, d, after)
	if !seen.Decide || seen.Holder != "a" {
		t.Errorf("the take-up that was put aside had the outcome %+v", seen)
	}
	if d := f.decides(election.None, ""); d.Reason != election.ReasonOptimal || d.Holder != "a" {
		t.Errorf("reason %s, holder %s", d.Reason, d.Holder)
	}
}

// A write whose outcome is unknown may have succeeded: what the watch showed counts.
func TestFailedWriteSeesWhatWasPutAside(t *testing.T) {
	f := newFixture(t)
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	d := f.decides(election.Appoint, "a")
	f.written(d)
	f.SeeLease(f.lease("b"))
	if seen := f.failed(leaseKey); !seen.Decide {
		t.Error("what was put aside asks for no decision")
	}
	if d := f.decides(election.None, ""); d.Holder != "b" {
		t.Errorf("holder %s, want b", d.Holder)
	}
}

func TestWriteNeedsTheLeaseThatWasDecidedOn(t *testing.T) {
	f := newFixture(t)
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	d := f.decides(election.Appoint, "a")
	f.SeeLease(f.lease("b"))
	if f.begin(leaseKey, d) {
		t.Error("a decision on no lease may be carried out although there is one by now")
	}
	if seen := f.SeeLease(f.lease("b")); seen.Decide {
		t.Error("a renewal asks for a decision")
	}
}

func TestRenewalAsksForNoDecision(t *testing.T) {
	f := newFixture(t)
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	if seen := f.SeeLease(f.lease("a")); !seen.Decide {
		t.Error("the first sight of a lease asks for no decision")
	}
	f.elapse(2 * time.Second)
	if seen := f.SeeLease(f.lease("a")); seen.Decide {
		t.Error("a renewal asks for a decision")
	}
	for name, change := range map[string]func(*coordinationv1.Lease){
		"holder":      func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("b") },
		"no holder":   func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil },
		"duration":    func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(5)) },
		"preferred":   func(l *coordinationv1.Lease) { l.Spec.PreferredHolder = new("a") },
		"strategy":    func(l *coordinationv1.Lease) { l.Spec.Strategy = new(v1alpha1.OldestEmulationVersion) },
		"transitions": func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = new(int32(1)) },
		"annotation":  func(l *coordinationv1.Lease) { l.Annotations = map[string]string{"a": "b"} },
		"re-created":  func(l *coordinationv1.Lease) { l.UID = "other" },
	} {
		f.SeeLease(f.lease("a"))
		lease := f.lease("a")
		change(lease)
		if seen := f.SeeLease(lease); !seen.Decide {
			t.Errorf("%s: asks for no decision", name)
		}
	}
}

func TestLeaseWithoutCandidatesAsksForNoDecision(t *testing.T) {
	f := newFixture(t)
	if seen := f.SeeLease(f.lease("a")); seen.Decide {
		t.Error("a lease without candidates asks for a decision")
	}
	if keys := f.Coordinated(); len(keys) != 0 {
		t.Errorf("coordinated: %v", keys)
	}
	if seen := f.SeeLeaseDeleted(f.lease("a"), false); seen.Decide {
		t.Error("its deletion does")
	}
}

func TestTakeUpIsReportedOnce(t *testing.T) {
	f := newFixture(t)
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	d := f.decides(election.Appoint, "a")
	after := f.written(d)
	f.wrote(leaseKey, d, after)
	f.elapse(1500 * time.Millisecond)
	if seen := f.SeeLease(f.lease("a")); seen.Holder != "a" || seen.TookUp != 1500*time.Millisecond || !seen.Decide {
		t.Errorf("take-up: %+v", seen)
	}
	f.elapse(2 * time.Second)
	if seen := f.SeeLease(f.lease("a")); seen.Holder != "" || seen.TookUp != 0 {
		t.Errorf("a renewal was reported as take-up: %+v", seen)
	}
}

// The candidate acks before the server's answer to the ping arrives: it must not count as silent.
func TestAckRacesPing(t *testing.T) {
	f := newFixture(t)
	pinged := f.candidate("a", "1.36")
	f.SeeCandidate(pinged, false)
	f.elapse(time.Minute)
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	f.pinged(leaseKey, pinged)
	if o := f.Observer.leases[leaseKey].candidate("ns", "a").observed; !o.Pinged.IsZero() || o.Unanswered != 0 {
		t.Errorf("after the ack: %+v", o)
	}
	f.decides(election.Appoint, "a")

	// Without an ack the ping counts, and a candidate of the same name that came after it was not pinged.
	f.elapse(time.Minute)
	present := f.Observer.leases[leaseKey].candidate("ns", "a").candidate
	f.pinged(leaseKey, present)
	if o := f.Observer.leases[leaseKey].candidate("ns", "a").observed; !o.Pinged.Equal(f.clock) {
		t.Errorf("after the ping: %+v", o)
	}
	reborn := f.candidate("a", "1.36")
	reborn.UID, reborn.Renewed = "other", present.Renewed
	f.SeeCandidate(reborn, false)
	f.pinged(leaseKey, present)
	if o := f.Observer.leases[leaseKey].candidate("ns", "a").observed; !o.Pinged.IsZero() {
		t.Errorf("the newcomer counts as pinged: %+v", o)
	}
	f.SeeCandidateDeleted(reborn)
	f.pinged(leaseKey, reborn)
}

// A deletion that the watch saw happens at the last state it showed; before one that it missed the holder may have
// renewed until just now.
func TestDeletionSeenOrMissed(t *testing.T) {
	for name, missed := range map[string]bool{"seen": false, "missed": true} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.SeeLease(f.lease("a"))
			f.SeeCandidate(f.candidate("b", "1.36"), false)
			f.elapse(10 * time.Second)
			last := f.Observer.leases[leaseKey].lease
			if missed {
				f.SeeLeaseDeleted(last, true)
			} else {
				deleted := last.DeepCopy()
				f.version++
				deleted.ResourceVersion = strconv.Itoa(f.version)
				f.SeeLeaseDeleted(deleted, false)
			}
			f.elapse(5 * time.Second)
			f.SeeCandidate(f.candidate("b", "1.36"), false)
			if !missed {
				f.decides(election.Appoint, "b")
				return
			}
			f.decides(election.None, "*")
			f.elapse(10 * time.Second)
			f.SeeCandidate(f.candidate("b", "1.36"), false)
			f.decides(election.Appoint, "b")
		})
	}
}

func TestLeaseMissing(t *testing.T) {
	f := newFixture(t)
	f.SeeLeaseMissing(leaseKey)
	f.SeeLease(f.lease("a"))
	f.elapse(14 * time.Second)
	f.SeeLeaseMissing(leaseKey)
	st := f.Observer.leases[leaseKey]
	if st.lease != nil || !st.observed.Claim.End().Equal(f.clock.Add(15*time.Second)) {
		t.Errorf("lease %v, claim until %s from now", st.lease, st.observed.Claim.End().Sub(f.clock))
	}
	// The same once more changes nothing.
	f.elapse(time.Second)
	f.SeeLeaseMissing(leaseKey)
	if !st.observed.Claim.End().Equal(f.clock.Add(14 * time.Second)) {
		t.Error("a lease that is still missing extends the claim on it")
	}
}

func TestCandidateMovesBetweenLeases(t *testing.T) {
	f := newFixture(t)
	other := types.NamespacedName{Namespace: "ns", Name: "other"}
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	moved := f.candidate("a", "1.36")
	moved.LeaseName = other.Name
	keys := f.SeeCandidate(moved, false)
	if !slices.Contains(keys, leaseKey) || !slices.Contains(keys, other) || len(keys) != 2 {
		t.Errorf("to decide on: %v", keys)
	}
	if got := f.Coordinated(); !slices.Equal(got, []types.NamespacedName{other}) {
		t.Errorf("coordinated: %v", got)
	}
	if keys := f.SeeCandidateDeleted(f.candidate("a", "1.36")); !slices.Equal(keys, []types.NamespacedName{other}) {
		t.Errorf("to decide on after its deletion: %v", keys)
	}
	if keys := f.SeeCandidateDeleted(f.candidate("a", "1.36")); keys != nil {
		t.Errorf("to decide on after its second deletion: %v", keys)
	}
	if len(f.Observer.leaseOf) != 0 {
		t.Errorf("remembered of a candidate that is gone: %v", f.Observer.leaseOf)
	}
}

// Leases and candidates that come and go, under ever new names, leave nothing behind once no claim runs any more.
func TestWhatIsGoneIsForgotten(t *testing.T) {
	f := newFixture(t)
	for i := range 10_000 {
		lease := f.lease("a")
		lease.Name = strconv.Itoa(i)
		f.SeeLease(lease)
		candidate := f.candidate("c"+lease.Name, "1.36")
		candidate.LeaseName = lease.Name
		f.SeeCandidate(candidate, false)
		f.SeeLeaseDeleted(lease, false)
		for _, key := range f.SeeCandidateDeleted(candidate) {
			f.decide(key, f.settings)
		}
		f.elapse(time.Second)
	}
	// Those of the last 15 s, and some that were not swept yet.
	if got := len(f.Observer.leases); got > 100 {
		t.Errorf("%d leases are remembered", got)
	}
}

// What the watch shows late, after a read past it, is not news.
func TestOldCandidateIsIgnored(t *testing.T) {
	f := newFixture(t)
	old := f.candidate("a", "1.36")
	f.elapse(time.Second)
	f.SeeCandidate(f.candidate("a", "1.35"), false)
	if keys := f.SeeCandidate(old, false); keys != nil {
		t.Errorf("to decide on: %v", keys)
	}
	if got := f.Observer.leases[leaseKey].candidate("ns", "a").candidate.Emulation.Text; got != "1.35" {
		t.Errorf("emulation version %s", got)
	}
	elsewhere := *old
	elsewhere.LeaseName = "other"
	f.SeeCandidate(&elsewhere, false)
	if got := f.Observer.leaseOf[candidateID{types.NamespacedName{Namespace: "ns", Name: "a"}, false}]; got != leaseKey {
		t.Errorf("an old event moved the candidate to %s", got)
	}
}

func TestInTreeActive(t *testing.T) {
	f := newFixture(t)
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	lock := f.lease("kube-apiserver-x")
	lock.Namespace, lock.Name = inTreeLock.Namespace, inTreeLock.Name
	f.SeeLease(lock)
	d := f.decides(election.None, "*")
	if d.Reason != election.ReasonInTree || !d.LookAgain.Equal(f.clock.Add(15*time.Second)) {
		t.Errorf("reason %s, to look again in %s", d.Reason, d.LookAgain.Sub(f.clock))
	}
	// The lock as our own (--in-tree=replace).
	own := f.lease(identity)
	own.Namespace, own.Name = inTreeLock.Namespace, inTreeLock.Name
	f.SeeLease(own)
	f.decides(election.Appoint, "a")
	f.elapse(time.Second)
	released := f.lease("")
	released.Namespace, released.Name = inTreeLock.Namespace, inTreeLock.Name
	f.SeeLease(released)
	f.decides(election.Appoint, "a")
}

func TestFieldsKeptChanges(t *testing.T) {
	f := newFixture(t)
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	if keys := f.SetFieldsKept(true); keys != nil {
		t.Errorf("unchanged: %v", keys)
	}
	if keys := f.SetFieldsKept(false); !slices.Equal(keys, []types.NamespacedName{leaseKey}) {
		t.Errorf("changed: %v", keys)
	}
}

func TestNewsIsReportedOnce(t *testing.T) {
	f := newFixture(t)
	f.SeeLease(f.lease("plain"))
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	if d := f.decides(election.None, ""); !d.news || d.Reason != election.ReasonHolderNotCoordinated {
		t.Errorf("first: news %t, %s", d.news, d.Reason)
	}
	f.elapse(time.Second)
	if d := f.decides(election.None, ""); d.news {
		t.Error("the same decision is news twice")
	}
}

// A take-up and a deletion that both come while a write is under way are seen in their order: the claim on the deleted
// lease is that of a holder who works.
func TestObserverKeepsTheOrderOfWhatWasPutAside(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	o := NewObserver("me", true, func() time.Time { return now })
	key := types.NamespacedName{Namespace: "ns", Name: "l"}
	holder, seconds := "n1", int32(15)
	stamp := func(after time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: now.Add(after)} }
	lease := func(version string, renewed *metav1.MicroTime) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "u", ResourceVersion: version},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: renewed},
		}
	}
	o.state(key).writing = true
	o.SeeLease(lease("2", stamp(time.Second)))
	o.SeeLeaseDeleted(lease("3", stamp(time.Second)), false)
	appointed := lease("1", stamp(0))
	o.wrote(key, decided{Decision: election.Decision{Action: election.Appoint, Candidate: holder}, fieldsKept: true}, appointed)

	st := o.state(key)
	if st.lease != nil || st.observed.Appointment != nil {
		t.Errorf("lease = %v, appointment = %v, want a deleted lease that was taken up", st.lease, st.observed.Appointment)
	}
	if claim := st.observed.Claim; claim.Holder != holder || !claim.RenewTime.Equal(now.Add(time.Second)) {
		t.Errorf("claim = %+v, want that of the renewal before the deletion", claim)
	}
}

// Until the watch of Leases has shown all there are, a Lease that is not known may well exist.
func TestObserverCountsFromTheFirstList(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	o := NewObserver("me", true, func() time.Time { return now })
	now = now.Add(time.Hour)
	o.Watching()
	began := now
	now = now.Add(time.Second)
	o.Watching()
	d := o.decide(types.NamespacedName{Namespace: "ns", Name: "l"}, &election.Settings{})
	if got := d.snapshot.Observed.Since; !got.Equal(began) {
		t.Errorf("observed since %v, want %v", got, began)
	}
}
