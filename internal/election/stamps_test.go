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
	"reflect"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

func TestFromStampsOfLease(t *testing.T) {
	stamped := func(holder string, acquired, renewed *metav1.MicroTime, seconds *int32) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at(-3600))},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, AcquireTime: acquired, RenewTime: renewed, LeaseDurationSeconds: seconds},
		}
	}
	micro := func(seconds float64) *metav1.MicroTime { return new(metav1.NewMicroTime(at(seconds))) }
	tests := []struct {
		name        string
		lease       *coordinationv1.Lease
		claim       Claim
		since       time.Time
		duration    time.Duration
		appointment *Appointment
		preferred   string
	}{
		{name: "no lease"},
		{
			name: "held", lease: stamped("n1", micro(-600), micro(-2), new(int32(20))),
			claim: Claim{Holder: "n1", RenewTime: at(-2), Seen: at(-2), Duration: 20 * time.Second}, since: at(-600), duration: 20 * time.Second,
		},
		{
			name: "expired", lease: stamped("n1", micro(-600), micro(-100), new(int32(20))),
			claim: Claim{Holder: "n1", RenewTime: at(-100), Seen: at(-100), Duration: 20 * time.Second}, since: at(-600), duration: 20 * time.Second,
		},
		{
			name: "renewed in the future", lease: stamped("n1", micro(-600), micro(30), new(int32(20))),
			claim: Claim{Holder: "n1", RenewTime: at(30), Seen: at(0), Duration: 20 * time.Second}, since: at(-600), duration: 20 * time.Second,
		},
		{
			name: "acquired after it was renewed", lease: stamped("n1", micro(-1), micro(-2), new(int32(20))),
			claim: Claim{Holder: "n1", RenewTime: at(-2), Seen: at(-2), Duration: 20 * time.Second}, since: at(-2), duration: 20 * time.Second,
		},
		{
			name: "never renewed: since it was acquired", lease: stamped("n1", micro(-10), nil, nil),
			claim: Claim{Holder: "n1", Seen: at(-10), Duration: DefaultClaim}, since: at(-10),
		},
		{
			name: "no stamp: since it was created", lease: stamped("n1", nil, nil, nil),
			claim: Claim{Holder: "n1", Seen: at(-3600), Duration: DefaultClaim}, since: at(-3600),
		},
		{
			name: "no stamp at all: since now", lease: &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("n1")}},
			claim: Claim{Holder: "n1", Seen: at(0), Duration: DefaultClaim}, since: at(0),
		},
		{
			name: "a candidate named a moment ago", lease: stamped("n1", micro(-3), micro(-3), new(int32(5))),
			claim: Claim{Holder: "n1", RenewTime: at(-3), Seen: at(-3), Duration: 5 * time.Second}, since: at(-3),
			appointment: &Appointment{Holder: "n1", RenewTime: at(-3), Count: 1},
		},
		{
			name: "somebody else named a moment ago", lease: stamped("x", micro(-3), micro(-3), new(int32(15))),
			claim: Claim{Holder: "x", RenewTime: at(-3), Seen: at(-3), Duration: 15 * time.Second}, since: at(-3),
		},
		{
			name: "told to yield", lease: preferring(stamped("n1", micro(-600), micro(-2), new(int32(20))), "n2"),
			claim: Claim{Holder: "n1", RenewTime: at(-2), Seen: at(-2), Duration: 20 * time.Second}, since: at(-600), duration: 20 * time.Second,
			preferred: "n2",
		},
		{
			name: "revoked", lease: preferring(stamped(v1alpha1.RevokedHolder, micro(-600), micro(-2), new(int32(20))), "n2"),
			claim: Claim{Holder: v1alpha1.RevokedHolder, RenewTime: at(-2), Seen: at(-2), Duration: 20 * time.Second}, since: at(-600),
		},
		{name: "released", lease: stamped("", micro(-2), micro(-2), new(int32(1)))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			candidate := candidateOf("n1", "1.30.0", -60).Candidate
			got, candidates := FromStamps(tt.lease, []*strategy.Candidate{candidate}, at(0))
			want := &Observations{
				Claim: tt.claim, Last: tt.lease, HolderSince: tt.since, HolderDuration: tt.duration,
				Appointment: tt.appointment, preferred: tt.preferred,
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if len(candidates) != 1 || candidates[0].Candidate != candidate {
				t.Errorf("got candidates %v", candidates)
			}
		})
	}
}

func TestFromStampsOfCandidates(t *testing.T) {
	tests := []struct {
		name                     string
		created, renewed, pinged float64 // none for no stamp
		want                     CandidateObservations
	}{
		{"renewed", -600, -60, none, CandidateObservations{Seen: at(-600), Moved: at(-60), renewed: at(-60)}},
		{"renewed in the future", -600, 60, none, CandidateObservations{Seen: at(-600), Moved: at(0), renewed: at(60)}},
		{"created in the future", 60, 60, none, CandidateObservations{Seen: at(0), Moved: at(0), renewed: at(60)}},
		{"never renewed", -600, none, none, CandidateObservations{Seen: at(-600)}},
		{"no stamp", none, none, none, CandidateObservations{Seen: at(0)}},
		{"no creation", none, -60, none, CandidateObservations{Seen: at(-60), Moved: at(-60), renewed: at(-60)}},
		{"created just after its stamp", -60, -65, none, CandidateObservations{Seen: at(-60), Moved: at(-60), renewed: at(-65)}},
		{"stamp from before it was created", -60, -65.000001, none, CandidateObservations{Seen: at(-60), renewed: at(-65.000001)}},
		{"pinged", -600, -60, -3, CandidateObservations{Seen: at(-600), Moved: at(-60), Pinged: at(-3), Unanswered: 1, renewed: at(-60)}},
		{"acked", -600, -2.9, -3, CandidateObservations{Seen: at(-600), Moved: at(-2.9), renewed: at(-2.9)}},
		{"acked with the very stamp", -600, -3, -3, CandidateObservations{Seen: at(-600), Moved: at(-3), renewed: at(-3)}},
		{"pinged in the future", -600, -60, 60, CandidateObservations{Seen: at(-600), Moved: at(-60), Pinged: at(0), Unanswered: 1, renewed: at(-60)}},
		{"pinged before it renewed at all", -600, none, -3, CandidateObservations{Seen: at(-600), Pinged: at(-3), Unanswered: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &strategy.Candidate{Name: "n1", UID: "uid"}
			for stamp, seconds := range map[*time.Time]float64{&c.Created: tt.created, &c.Renewed: tt.renewed, &c.PingTime: tt.pinged} {
				if seconds != none {
					*stamp = at(seconds)
				}
			}
			tt.want.uid = "uid"
			_, got := FromStamps(nil, []*strategy.Candidate{c}, at(0))
			if !reflect.DeepEqual(got, []Candidate{{Candidate: c, Observed: tt.want}}) {
				t.Errorf("got %+v, want %+v", got[0].Observed, tt.want)
			}
		})
	}
}

// none stands for no stamp.
const none = 1e9

// TestFromStampsDecides: what was never watched is decided on as if it had been.
func TestFromStampsDecides(t *testing.T) {
	s := steady(t, 3)
	var candidates []*strategy.Candidate
	for _, c := range s.Candidates {
		candidates = append(candidates, c.Candidate)
	}
	want := wantDecision(t, s, None, ReasonOptimal)
	s.Observed, s.Candidates = FromStamps(s.Lease, candidates, s.Now)
	if got := Decide(s); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
