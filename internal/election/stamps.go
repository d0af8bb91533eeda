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
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// FromStamps returns what a coordinator would have observed by now that had watched the lease (nil for none) and its
// candidates all along, if every stamp were by its own clock. It is for explaining objects that somebody else saved or
// has just read, never for acting: other machines' clocks say nothing that safety may rest on.
//
// The lease is in canonical form. Its claim counts from its renewTime, its holder's term from its acquireTime. A
// candidate is seen since its creation; it moved at its renewTime, and was pinged at its pingTime if that is later.
// A stamp in the future counts as now.
//
// An appointment that is not taken up can not be told from a candidate that took the lease by itself a moment ago:
// both write equal times. It counts as an appointment, the first in a row, since coordinated electors never take a
// lease by themselves. What leaves no stamp is not known: who released the lease, who lost it or did not take it up
// before, whose term a revocation ended, and that a holder does not obey.
func FromStamps(lease *coordinationv1.Lease, candidates []*strategy.Candidate, now time.Time) (*Observations, []Candidate) {
	o := &Observations{}
	if lease != nil {
		o.seeStamps(lease, now)
	}
	list := make([]Candidate, 0, len(candidates))
	for _, c := range candidates {
		if a := o.Appointment; a == nil && lease != nil && c.Name == o.Claim.Holder && lease.Spec.RenewTime != nil && !renewedByHolder(lease) {
			o.Appointment = &Appointment{Holder: c.Name, RenewTime: renewTimeOf(lease), Count: 1}
		}
		list = append(list, Candidate{Candidate: c, Observed: observationsOf(c, now)})
	}
	return o, list
}

func (o *Observations) seeStamps(lease *coordinationv1.Lease, now time.Time) {
	acquired := now
	if t := lease.Spec.AcquireTime; t != nil && !t.IsZero() {
		acquired = earliest(t.Time, now)
	} else if !lease.CreationTimestamp.IsZero() {
		acquired = earliest(lease.CreationTimestamp.Time, now)
	}
	renewed := acquired
	if t := renewTimeOf(lease); !t.IsZero() {
		renewed = earliest(t, now)
	}
	o.SeeLease(lease, renewed)
	if o.Claim.Holder == "" {
		return
	}
	o.HolderSince = earliest(acquired, renewed)
	if o.Claim.Holder != v1alpha1.RevokedHolder {
		o.preferred = preferredOf(lease)
	}
}

func observationsOf(c *strategy.Candidate, now time.Time) CandidateObservations {
	seen := c.Created
	if seen.IsZero() {
		seen = c.Renewed
	}
	if seen.IsZero() {
		seen = now
	}
	o := CandidateObservations{Seen: earliest(seen, now), uid: c.UID, renewed: c.Renewed}
	// A stamp from well before the object was created came along with it, from a backup: nobody saw that renewal.
	if !c.Renewed.IsZero() && o.Seen.Sub(c.Renewed) <= DefaultElectionDuration {
		o.Moved = latest(o.Seen, earliest(c.Renewed, now))
	}
	if c.PingTime.After(c.Renewed) {
		o = o.Ping(latest(o.lastSign(), earliest(c.PingTime, now)))
	}
	return o
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
