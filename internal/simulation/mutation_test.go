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

package simulation

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/lease-coordinator/coordinator/internal/election"
)

// TestMutationsAreCaught shows that the invariants can fail: each coordinator here makes one mistake that somebody
// has made before, and must be found out within the given number of runs.
func TestMutationsAreCaught(t *testing.T) {
	tests := []struct {
		name   string
		mutate Mutate
		// want is part of the violation.
		want   string
		within uint64
	}{
		{
			// The in-tree coordinator does this (kubernetes/kubernetes#125761 and its kind).
			name: "compares the holder's stamps with its own clock",
			mutate: mutateSnapshot(func(s *election.Snapshot) {
				if s.Lease != nil && s.Lease.Spec.RenewTime != nil {
					s.Observed.Claim.Seen = s.Lease.Spec.RenewTime.Time
				}
			}),
			want:   "I1", // or a start of work beside another, whichever comes first
			within: 100,
		},
		{
			name: "creates a deleted lease at once for the best candidate",
			mutate: mutateSnapshot(func(s *election.Snapshot) {
				if s.Lease == nil {
					s.Observed.Claim = election.Claim{}
				}
			}),
			want:   "I1",
			within: 100,
		},
		{
			name:   "writes without a resourceVersion",
			mutate: rewrite(func(_ election.Decision, l *coordinationv1.Lease) { l.ResourceVersion = "" }),
			want:   "I1",
			within: 300,
		},
		{
			name: "empties the lease of a holder that cannot be told to yield",
			mutate: rewrite(func(d election.Decision, l *coordinationv1.Lease) {
				if d.Action == election.Revoke {
					l.Spec.HolderIdentity = nil
				}
			}),
			want:   "leads",
			within: 100,
		},
		{
			name: "takes a holder at work for an appointee that has not begun",
			mutate: mutateSnapshot(func(s *election.Snapshot) {
				if c := s.Observed.Claim; c.Holder != "" && s.Observed.Appointment == nil {
					s.Observed.Appointment = &election.Appointment{Holder: c.Holder, RenewTime: c.RenewTime, Count: 1}
				}
			}),
			want:   "I1",
			within: 100,
		},
		{
			name: "believes that all candidates live",
			mutate: mutateSnapshot(func(s *election.Snapshot) {
				for i := range s.Candidates {
					s.Candidates[i].Observed.Moved, s.Candidates[i].Observed.Pinged = s.Now, time.Time{}
				}
			}),
			want:   "I2",
			within: 10,
		},
		{
			name: "forgets whom it has pinged",
			mutate: mutateSnapshot(func(s *election.Snapshot) {
				for i := range s.Candidates {
					s.Candidates[i].Observed.Pinged = time.Time{}
				}
			}),
			want:   "I8",
			within: 10,
		},
		{
			name: "keeps the fencing token",
			mutate: rewrite(func(_ election.Decision, l *coordinationv1.Lease) {
				l.Annotations["lease-coordinator.dev/fencing-token"] = "1"
			}),
			want:   "I3",
			within: 10,
		},
		{
			name: "starts to count transitions anew",
			mutate: rewrite(func(d election.Decision, l *coordinationv1.Lease) {
				if d.Action == election.Appoint {
					l.Spec.LeaseTransitions = new(int32)
				}
			}),
			want:   "I3",
			within: 10,
		},
		{
			name: "deletes who has not renewed for its TTL, without asking",
			mutate: instead(func(s *election.Snapshot, d election.Decision) election.Decision {
				if d.Action != election.Ping || d.Reason != election.ReasonCandidateDead {
					return d
				}
				collect := election.Decision{Action: election.Collect, Reason: d.Reason}
				for _, c := range s.Candidates {
					if slices.Contains(d.Pings, c.Name) {
						collect.Dead = append(collect.Dead, c.Candidate)
					}
				}
				return collect
			}),
			want:   "I9",
			within: 50,
		},
		{
			name: "deletes by name alone",
			mutate: instead(func(_ *election.Snapshot, d election.Decision) election.Decision {
				for i, c := range d.Dead {
					nameOnly := *c
					nameOnly.UID, nameOnly.ResourceVersion = "", ""
					d.Dead[i] = &nameOnly
				}
				return d
			}),
			want:   "I9",
			within: 200,
		},
		{
			name:   "waits for a candidate for ever",
			mutate: func(o *Options) { o.Settings.ElectionDuration = 3 * time.Minute },
			want:   "I7",
			within: 50,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var other error
			for s := uint64(1); s <= tt.within; s++ {
				switch err := RandomRun(s, false, tt.mutate).Violation; {
				case err == nil:
				case strings.Contains(err.Error(), tt.want):
					t.Logf("seed %d: %v", s, err)
					return
				default:
					other = err
				}
			}
			t.Errorf("not caught within %d runs; other violation: %v", tt.within, other)
		})
	}
}

// mutateSnapshot lets the mistake be made on a copy of the observations, as they are shared with later decisions.
func mutateSnapshot(mistake func(*election.Snapshot)) Mutate {
	return func(o *Options) { o.Mutation = mistake }
}

func instead(other func(*election.Snapshot, election.Decision) election.Decision) Mutate {
	return func(o *Options) { o.Instead = other }
}

func rewrite(mistake func(election.Decision, *coordinationv1.Lease)) Mutate {
	return func(o *Options) { o.Rewrite = mistake }
}
