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
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

var (
	t0  = time.Date(2030, time.January, 1, 0, 0, 0, 0, time.UTC)
	key = types.NamespacedName{Namespace: "default", Name: "lease"}
)

// at returns the time that many seconds after t0.
func at(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }

var version = 100

// leaseOf returns a lease as its holder writes it when it renews.
func leaseOf(holder string, acquired, renewed time.Time, seconds int32) *coordinationv1.Lease {
	version++
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: strconv.Itoa(version)},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       &holder,
			LeaseDurationSeconds: &seconds,
			AcquireTime:          ptr.To(metav1.NewMicroTime(acquired)),
			RenewTime:            ptr.To(metav1.NewMicroTime(renewed)),
		},
	}
}

func preferring(l *coordinationv1.Lease, preferred string) *coordinationv1.Lease {
	l = l.DeepCopy()
	l.Spec.PreferredHolder = &preferred
	version++
	l.ResourceVersion = strconv.Itoa(version)
	return l
}

func TestClaimRunsFromFirstSight(t *testing.T) {
	var o Observations
	// The stamp is an hour old, or an hour ahead: neither matters.
	for _, stamp := range []time.Time{t0.Add(-time.Hour), t0.Add(time.Hour)} {
		o = Observations{}
		l := leaseOf("a", stamp.Add(-time.Minute), stamp, 15)
		o.SeeLease(l, at(0))
		o.SeeLease(l, at(10))
		if got, want := o.Claim.End(), at(15); !got.Equal(want) {
			t.Errorf("stamp %s: the claim ends at %s, want %s", stamp, got, want)
		}
		o.SeeLease(leaseOf("a", stamp.Add(-time.Minute), stamp.Add(2*time.Second), 15), at(12))
		if got, want := o.Claim.End(), at(27); !got.Equal(want) {
			t.Errorf("stamp %s, renewed: the claim ends at %s, want %s", stamp, got, want)
		}
		if !o.HolderSince.Equal(at(0)) {
			t.Errorf("the holder is seen since %s", o.HolderSince)
		}
	}
}

func TestClaimDurations(t *testing.T) {
	tests := []struct {
		name   string
		change func(*coordinationv1.LeaseSpec)
		want   time.Duration
	}{
		{"as stated", func(*coordinationv1.LeaseSpec) {}, 30 * time.Second},
		{"never renewed", func(s *coordinationv1.LeaseSpec) { s.RenewTime = nil }, DefaultClaim},
		{"no duration", func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = nil }, DefaultClaim},
		{"zero", func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = ptr.To[int32](0) }, DefaultClaim},
		{"negative", func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = ptr.To[int32](-5) }, DefaultClaim},
		{"one second", func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = ptr.To[int32](1) }, time.Second},
		{"the longest", func(s *coordinationv1.LeaseSpec) { s.LeaseDurationSeconds = ptr.To[int32](1<<31 - 1) }, (1<<31 - 1) * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var o Observations
			l := leaseOf("a", at(-60), at(0), 30)
			tt.change(&l.Spec)
			o.SeeLease(l, at(0))
			if o.Claim.Duration != tt.want {
				t.Errorf("got %s, want %s", o.Claim.Duration, tt.want)
			}
		})
	}
}

func TestShorterDurationOfTheSameRenewalDoesNotCount(t *testing.T) {
	var o Observations
	l := leaseOf("a", at(-60), at(0), 15)
	o.SeeLease(l, at(0))
	shorter := l.DeepCopy()
	shorter.Spec.LeaseDurationSeconds = ptr.To[int32](1)
	o.SeeLease(shorter, at(1))
	if got, want := o.Claim.End(), at(15); !got.Equal(want) {
		t.Errorf("the claim ends at %s, want %s", got, want)
	}
	longer := l.DeepCopy()
	longer.Spec.LeaseDurationSeconds = ptr.To[int32](60)
	o.SeeLease(longer, at(2))
	if got, want := o.Claim.End(), at(60); !got.Equal(want) {
		t.Errorf("the claim ends at %s, want %s", got, want)
	}
}

// TestHolderDuration: the take-up limit goes by what holders write, not by what coordinators do.
func TestHolderDuration(t *testing.T) {
	var o Observations
	o.SeeLease(leaseOf("a", at(0), at(0), 5), at(0)) // another coordinator's appointment
	if o.HolderDuration != 0 {
		t.Errorf("after an appointment: %s", o.HolderDuration)
	}
	o.SeeLease(leaseOf("a", at(0), at(2), 137), at(2))
	if o.HolderDuration != 137*time.Second {
		t.Errorf("after a renewal: %s", o.HolderDuration)
	}
	o.SeeLease(leaseOf(v1alpha1.RevokedHolder, at(0), at(4), 15), at(4))
	o.SeeLease(leaseOf("", at(6), at(6), 1), at(6))
	o.SeeLease(leaseOf("b", at(7), at(7), 46), at(7))
	if o.HolderDuration != 137*time.Second {
		t.Errorf("after revocation, release and appointment: %s", o.HolderDuration)
	}
}

func TestRevocationEndsWhenTheClaimBeforeItWouldHave(t *testing.T) {
	o := Observations{}
	before := leaseOf("a", at(-60), at(0), 15)
	o.SeeLease(before, at(0))
	d := Decision{Action: Revoke, Reason: ReasonBetterCandidate, Candidate: "b"}
	s := &Snapshot{Now: at(7), Key: key, Lease: before, Observed: &o}
	after := d.Write(s, before.ResourceVersion)
	if holderOf(after) != v1alpha1.RevokedHolder || preferredOf(after) != "b" || *after.Spec.LeaseDurationSeconds != 15 {
		t.Errorf("revoked: %+v", after.Spec)
	}
	if !after.Spec.RenewTime.Time.Equal(at(7)) {
		t.Error("other electors would take the revoked lease for an expired one")
	}
	o.Wrote(d, before, after, at(7))
	o.SeeLease(after, at(8)) // the watch shows it, too
	if got, want := o.Claim.End(), at(15); !got.Equal(want) {
		t.Errorf("the claim ends at %s, want %s", got, want)
	}

	// A standby, or the next coordinator, knows only the revocation.
	var standby Observations
	standby.SeeLease(after, at(8))
	if got, want := standby.Claim.End(), at(23); !got.Equal(want) {
		t.Errorf("for a standby, the claim ends at %s, want %s", got, want)
	}
}

func TestIgnoredPreferredHolder(t *testing.T) {
	base := leaseOf("a", at(-60), at(0), 15)
	told := preferring(base, "b")
	tests := []struct {
		name  string
		after *coordinationv1.Lease
		want  bool
	}{
		{"renewed and wiped", leaseOf("a", at(-60), at(2), 15), true},
		{"renewed and kept", preferring(leaseOf("a", at(-60), at(2), 15), "b"), false},
		{"somebody else holds it", leaseOf("c", at(2), at(2), 15), false},
		{"released", leaseOf("", at(2), at(2), 1), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var o Observations
			o.SeeLease(base, at(0))
			o.Wrote(Decision{Action: Prefer, Candidate: "b"}, base, told, at(1))
			o.SeeLease(tt.after, at(2))
			if got := at(2).Before(o.ignoredUntil); got != tt.want {
				t.Errorf("held back: %t, want %t", got, tt.want)
			}
		})
	}
	t.Run("taken back by us", func(t *testing.T) {
		var o Observations
		o.SeeLease(base, at(0))
		o.Wrote(Decision{Action: Prefer, Candidate: "b"}, base, told, at(1))
		o.Wrote(Decision{Action: ClearPreferred, Candidate: "b"}, told, base, at(2))
		o.SeeLease(leaseOf("a", at(-60), at(3), 15), at(3))
		if !o.ignoredUntil.IsZero() {
			t.Error("the holder is held back for what we did")
		}
	})
}

// appointAgain lets the coordinator appoint the candidate, as it sees fit, without anybody taking up.
func appointAgain(o *Observations, before *coordinationv1.Lease, candidate string, why Reason, now time.Time) *coordinationv1.Lease {
	after := leaseOf(candidate, now, now, 5)
	o.Wrote(Decision{Action: Appoint, Reason: why, Candidate: candidate}, before, after, now)
	return after
}

func TestBenchGrows(t *testing.T) {
	var o Observations
	var l *coordinationv1.Lease
	now := at(0)
	for i := range MaxAppointments {
		l = appointAgain(&o, l, "a", ReasonNotTakenUp, now)
		if o.Appointment.Count != i+1 {
			t.Fatalf("appointment %d counts as %d", i+1, o.Appointment.Count)
		}
		now = now.Add(5 * time.Second)
	}
	// Its last appointment ends now; the bench begins there, also if nobody else was appointed.
	if got, want := o.benchedUntil("a"), now.Add(benchBase); !got.Equal(want) {
		t.Errorf("benched until %s, want %s", got, want)
	}
	l = appointAgain(&o, l, "b", ReasonNotTakenUp, now)
	if got, want := o.benchedUntil("a"), now.Add(benchBase); !got.Equal(want) {
		t.Errorf("after another was appointed: benched until %s, want %s", got, want)
	}
	for range MaxAppointments {
		l = appointAgain(&o, l, "a", ReasonNotTakenUp, now)
	}
	l = appointAgain(&o, l, "b", ReasonNotTakenUp, now)
	if got, want := o.benchedUntil("a"), now.Add(2*benchBase); !got.Equal(want) {
		t.Errorf("the second time: benched until %s, want %s", got, want)
	}
	// Whoever takes up has served its time.
	appointAgain(&o, l, "a", ReasonNotTakenUp, now)
	o.SeeLease(leaseOf("a", now, now.Add(time.Second), 15), now.Add(time.Second))
	if got := o.benchedUntil("a"); !got.IsZero() {
		t.Errorf("after it took up: benched until %s", got)
	}
	if o.Appointment != nil {
		t.Error("its appointment still stands")
	}
}

func TestAppointmentAgainAfterTheBench(t *testing.T) {
	var o Observations
	var l *coordinationv1.Lease
	for range MaxAppointments + 1 {
		l = appointAgain(&o, l, "a", ReasonNotTakenUp, at(0))
	}
	if o.Appointment.Count != 1 {
		t.Errorf("it counts as appointment %d in a row", o.Appointment.Count)
	}
	if got := o.benches["a"].count; got != 1 {
		t.Errorf("benched %d times", got)
	}
}

func heldOffUntil(o *Observations, candidate string) time.Time {
	until, _ := o.heldOff(candidate)
	return until
}

// TestBenchedDoNotPreempt: whoever did not take up is long not preferred to a healthy holder, or else one broken
// candidate would take the lease from it again and again.
func TestBenchedDoNotPreempt(t *testing.T) {
	var o Observations
	var l *coordinationv1.Lease
	fail := func(now time.Time) {
		for range MaxAppointments {
			l = appointAgain(&o, l, "a", ReasonNotTakenUp, now)
		}
		l = appointAgain(&o, l, "b", ReasonNotTakenUp, now)
	}
	fail(at(0))
	if got, want := heldOffUntil(&o, "a"), at(0).Add(idleHoldOffBase); !got.Equal(want) {
		t.Errorf("held off until %s, want %s", got, want)
	}
	fail(at(1000))
	if got, want := heldOffUntil(&o, "a"), at(1000).Add(2*idleHoldOffBase); !got.Equal(want) {
		t.Errorf("the second time: until %s, want %s", got, want)
	}
	for range 20 {
		fail(at(1000))
	}
	if got, want := heldOffUntil(&o, "a"), at(1000).Add(idleHoldOffMax); !got.Equal(want) {
		t.Errorf("after many failures: until %s, want %s", got, want)
	}
	l = appointAgain(&o, l, "a", ReasonNotTakenUp, at(1000))
	o.SeeLease(leaseOf("a", at(1000), at(1001), 15), at(1001))
	if got := heldOffUntil(&o, "a"); !got.IsZero() {
		t.Errorf("after it took up: until %s", got)
	}
}

func TestHoldOffGrows(t *testing.T) {
	var o Observations
	lose := func(now time.Time) {
		before := leaseOf("a", now.Add(-time.Minute), now.Add(-20*time.Second), 15)
		o.SeeLease(before, now.Add(-20*time.Second))
		appointAgain(&o, before, "b", ReasonExpired, now)
		o.SeeLease(leaseOf("b", now, now.Add(time.Second), 15), now.Add(time.Second))
	}
	lose(at(100))
	if got, want := heldOffUntil(&o, "a"), at(100).Add(holdOffBase); !got.Equal(want) {
		t.Errorf("after the first loss: until %s, want %s", got, want)
	}
	lose(at(200))
	if got, want := heldOffUntil(&o, "a"), at(200).Add(2*holdOffBase); !got.Equal(want) {
		t.Errorf("after the second loss: until %s, want %s", got, want)
	}
	for range 20 {
		lose(at(200))
	}
	if got, want := heldOffUntil(&o, "a"), at(200).Add(holdOffMax); !got.Equal(want) {
		t.Errorf("after many losses: until %s, want %s", got, want)
	}
	forgotten := at(200).Add(lossMemory + 1)
	lose(forgotten)
	if got, want := heldOffUntil(&o, "a"), forgotten.Add(holdOffBase); !got.Equal(want) {
		t.Errorf("after a long time: until %s, want %s", got, want)
	}
	o.Forget("a")
	if got := heldOffUntil(&o, "a"); !got.IsZero() {
		t.Errorf("after it was forgotten: until %s", got)
	}
}

func TestNoHoldOffFor(t *testing.T) {
	renewed := leaseOf("a", at(-60), at(0), 15)
	tests := []struct {
		name   string
		before *coordinationv1.Lease
		why    Reason
	}{
		{"whoever was told to yield", preferring(renewed, "b"), ReasonTermEnded},
		{"whoever was told to yield, and is found expired", preferring(renewed, "b"), ReasonExpired},
		{"whoever released", leaseOf("", at(0), at(0), 1), ReasonReleased},
		{"whoever another coordinator appointed in vain", leaseOf("a", at(0), at(0), 5), ReasonExpired},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var o Observations
			o.SeeLease(tt.before, at(0))
			appointAgain(&o, tt.before, "b", tt.why, at(20))
			if got := heldOffUntil(&o, "a"); !got.IsZero() {
				t.Errorf("held off until %s", got)
			}
		})
	}
}

func TestDeletionKeepsTheClaim(t *testing.T) {
	t.Run("seen", func(t *testing.T) {
		var o Observations
		o.SeeLease(leaseOf("a", at(-60), at(0), 15), at(0))
		o.SeeDeleted(at(5), false)
		if got, want := o.Claim.End(), at(15); !got.Equal(want) || o.Claim.unsure {
			t.Errorf("the claim ends at %s, want %s; unsure: %t", got, want, o.Claim.unsure)
		}
	})
	t.Run("missed", func(t *testing.T) {
		var o Observations
		o.SeeLease(leaseOf("a", at(-60), at(0), 15), at(0))
		o.SeeDeleted(at(5), true)
		if got, want := o.Claim.End(), at(20); !got.Equal(want) || !o.Claim.unsure {
			t.Errorf("the claim ends at %s, want %s; unsure: %t", got, want, o.Claim.unsure)
		}
	})
	t.Run("missed, then seen", func(t *testing.T) {
		var o Observations
		o.SeeLease(leaseOf("a", at(-60), at(0), 15), at(0))
		o.SeeDeleted(at(5), true)
		o.SeeDeleted(at(6), false)
		if o.Claim.unsure {
			t.Error("unsure, although the watch has shown everything up to the deletion")
		}
	})
	t.Run("missed, while nobody was known to hold it", func(t *testing.T) {
		var o Observations
		o.SeeLease(leaseOf("", at(0), at(0), 1), at(0))
		o.SeeDeleted(at(100), true)
		if got, want := o.Claim.End(), at(115); !got.Equal(want) {
			t.Errorf("somebody's claim ends at %s, want %s", got, want)
		}
	})
	t.Run("missed, while an appointment was not taken up", func(t *testing.T) {
		var o Observations
		appointAgain(&o, nil, "a", ReasonNoLease, at(0))
		o.SeeDeleted(at(3), true)
		if o.Appointment != nil {
			t.Error("it may have been taken up, unseen")
		}
	})
}

func TestReleaseByAFormerHolder(t *testing.T) {
	took := func() *Observations {
		o := &Observations{}
		o.SeeLease(leaseOf("a", at(-60), at(0), 15), at(0))
		o.SeeLease(leaseOf("b", at(15), at(15), 15), at(15)) // b took the lease of a, whose claim has run out
		o.SeeLease(leaseOf("b", at(15), at(17), 15), at(17))
		return o
	}
	released := leaseOf("", at(29), at(29), 1)
	o := took()
	o.SeeLease(released, at(30).Add(-1))
	if o.Claim.Holder != "b" {
		t.Error("just before the contest is over, the claim of b was given up")
	}
	o = took()
	o.SeeLease(released, at(30))
	if o.Claim.Holder != "" {
		t.Error("when the contest is over, the claim of b was kept")
	}
}

func TestCandidateObservations(t *testing.T) {
	for _, tt := range []struct {
		name             string
		created, renewed time.Time
		alive            bool
	}{
		{"just now", at(-1), at(-0.5), true},
		{"just now, by a stamp without a creation time", time.Time{}, at(-0.5), true},
		{"an election duration ago", at(-5), at(-5), true},
		{"longer ago", at(-5).Add(-1), at(-0.5), false},
		{"with an old stamp", at(-1), at(-5).Add(-1), false},
		{"with a stamp from the future", at(-1), at(3600), false},
		{"without a stamp", at(-1), time.Time{}, false},
	} {
		c := &strategy.Candidate{Name: "a", UID: "1", Created: tt.created, Renewed: tt.renewed}
		o := CandidateObservations{}.See(c, at(0), false)
		if alive := o.Moved.Equal(at(0)); o.Initial || alive != tt.alive {
			t.Errorf("seen created, %s: %+v", tt.name, o)
		}
	}
	c := &strategy.Candidate{Name: "a", UID: "1", Renewed: at(-100)}
	o := CandidateObservations{}.See(c, at(0), true)
	if !o.Initial || !o.Moved.IsZero() || !o.Seen.Equal(at(0)) {
		t.Errorf("found there: %+v", o)
	}
	o = o.Ping(at(1)).Ping(at(2)).See(c, at(3), false)
	if !o.Pinged.Equal(at(2)) || o.Unanswered != 2 || !o.Moved.IsZero() {
		t.Errorf("pinged twice: %+v", o)
	}
	acked := *c
	acked.Renewed = at(-99) // its clock is behind; it moved all the same
	o = o.See(&acked, at(4), false)
	if !o.Pinged.IsZero() || o.Unanswered != 0 || !o.Moved.Equal(at(4)) {
		t.Errorf("acked: %+v", o)
	}
	back := *c
	back.Renewed = at(-200)
	o = o.Ping(at(5)).See(&back, at(6), false)
	if !o.Pinged.IsZero() || !o.Moved.Equal(at(6)) {
		t.Errorf("acked after its clock was set back: %+v", o)
	}
	again := back
	again.UID, again.Renewed = "2", at(8)
	o = o.Ping(at(7)).See(&again, at(8), false)
	if !o.Seen.Equal(at(8)) || !o.Pinged.IsZero() || !o.Moved.Equal(at(8)) {
		t.Errorf("created anew: %+v", o)
	}
	never := &strategy.Candidate{Name: "b", UID: "3"}
	if o = (CandidateObservations{}).See(never, at(0), false); !o.Moved.IsZero() {
		t.Errorf("created without a renewTime: %+v", o)
	}
}

func TestPingTime(t *testing.T) {
	tests := []struct {
		name     string
		renewed  time.Time
		observed CandidateObservations
		now      time.Time
		want     time.Time
	}{
		{"clocks agree", at(0), CandidateObservations{Seen: at(0), Moved: at(0)}, at(10), at(10)},
		{"its clock is an hour behind", at(-3600), CandidateObservations{Seen: at(0), Moved: at(0)}, at(10), at(-3590)},
		{"its clock is an hour ahead", at(3600), CandidateObservations{Seen: at(0), Moved: at(0)}, at(10), at(3610)},
		{"never seen to move", at(-3600), CandidateObservations{Seen: at(5)}, at(10), at(-3595)},
		{"at once", at(0), CandidateObservations{Seen: at(0), Moved: at(0)}, at(0), at(0).Add(time.Microsecond)},
		{"after nanoseconds", at(0), CandidateObservations{Seen: at(0), Moved: at(0)}, at(0).Add(999), at(0).Add(time.Microsecond)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := Candidate{Candidate: &strategy.Candidate{Renewed: tt.renewed}, Observed: tt.observed}
			got := PingTime(c, tt.now)
			if !got.Equal(tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if !got.Truncate(time.Microsecond).After(tt.renewed) {
				t.Error("client-go does not answer a pingTime that is not after its renewTime")
			}
		})
	}
}

// TestReleaseAfterHandOver: a release is doubted shortly after the lease changed hands by force, since the former holder
// may have made it; not where the former holder has itself handed the lease over.
func TestReleaseAfterHandOver(t *testing.T) {
	tests := []struct {
		name      string
		preferred string
		change    func(before, after *coordinationv1.Lease)
		at        time.Time
		contested bool
	}{
		{"handed over", "n2", func(_, _ *coordinationv1.Lease) {}, at(5), false},
		{"to another than the preferred", "n3", func(_, _ *coordinationv1.Lease) {}, at(5), true},
		{"although it was not told to", "", func(_, _ *coordinationv1.Lease) {}, at(5), true},
		{"without a token of its own", "n2", func(_, after *coordinationv1.Lease) { after.Annotations = nil }, at(5), true},
		{"not on what was seen last", "n2", func(before, _ *coordinationv1.Lease) { before.ResourceVersion = "7" }, at(5), true},
		{"taken, not given", "n2", func(_, after *coordinationv1.Lease) { after.Spec.RenewTime = ptr.To(metav1.NewMicroTime(at(4))) }, at(5), true},
		{"when the former claim had run out", "n2", func(_, _ *coordinationv1.Lease) {}, at(15), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := &Observations{Since: at(-3600)}
			before := leaseOf("n1", at(-600), at(0), 15)
			if tt.preferred != "" {
				before = preferring(before, tt.preferred)
			}
			after := leaseOf("n2", at(3), at(3), 5)
			after.Annotations = map[string]string{v1alpha1.FencingTokenAnnotation: before.ResourceVersion}
			tt.change(before, after)
			o.SeeLease(before, at(0))
			o.SeeLease(after, tt.at)
			o.SeeLease(leaseOf("n2", at(3), at(6), 15), tt.at.Add(time.Second))
			o.SeeLease(leaseOf("", at(3), at(7), 1), tt.at.Add(2*time.Second))
			if contested := o.Claim.Holder != ""; contested != tt.contested {
				t.Errorf("the release is contested: %t, want %t", contested, tt.contested)
			}
		})
	}
}
