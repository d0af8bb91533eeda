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
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/observe"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Explained is a lease as it is known now, and what the coordinator makes of it.
type Explained struct {
	Key types.NamespacedName
	// Now is when it was decided.
	Now time.Time
	// Lease is in canonical form; nil if there is none. Read-only.
	Lease *coordinationv1.Lease
	// Claim is the claim on it.
	Claim election.Claim
	// AwaitingTakeUp is set while the holder was appointed and has not taken up.
	AwaitingTakeUp bool
	election.Explanation
}

// Holder returns who leads at that time; "" if nobody does, as far as the Lease shows it. Whoever was told to yield, by a
// preferred holder or by revoking the lease, leads until its claim runs out: client-go works on for most of that.
func (x *Explained) Holder(now time.Time) string {
	switch {
	case x.Lease == nil || x.Lease.Spec.HolderIdentity == nil:
		return ""
	case x.Decision.Vacancy() || x.AwaitingTakeUp || !now.Before(x.Claim.End()):
		return ""
	case *x.Lease.Spec.HolderIdentity == v1alpha1.RevokedHolder && x.Decision.Holder != v1alpha1.RevokedHolder:
		return x.Decision.Holder
	case *x.Lease.Spec.HolderIdentity == v1alpha1.RevokedHolder:
		// Another coordinator did that.
		return ""
	}
	return *x.Lease.Spec.HolderIdentity
}

// Explain decides on the lease as it is known now, writes nothing, and says what led to the decision. known is false
// for a lease that has no candidates.
func (o *Observer) Explain(key types.NamespacedName, settings *election.Settings) (x Explained, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	st := o.leases[key]
	if st == nil || len(st.candidates) == 0 {
		return Explained{}, false
	}
	s := o.snapshot(key, st, o.now(), settings)
	x = Explained{Key: key, Now: s.Now, Lease: s.Lease, Claim: st.observed.Claim, AwaitingTakeUp: st.observed.Appointment != nil}
	o.loads.Without(key, func(load strategy.Load) {
		s.Load = load
		x.Explanation = election.Explain(&s)
	})
	return x, true
}

// Leases returns the leases that have candidates, by namespace and name.
func (o *Observer) Leases() []types.NamespacedName {
	keys := o.Coordinated()
	slices.SortFunc(keys, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return keys
}

// Statuses returns, for monitoring, how each lease that has candidates is at this moment.
func (o *Observer) Statuses(settings *election.Settings) []observe.LeaseStatus {
	keys := o.Leases()
	list := make([]observe.LeaseStatus, 0, len(keys))
	for _, key := range keys {
		x, known := o.Explain(key, settings)
		if !known {
			continue
		}
		now := o.now()
		status := observe.LeaseStatus{
			Namespace: key.Namespace, Lease: key.Name, Holder: x.Holder(now),
			Strategy: string(x.Strategy), Reason: x.Decision.Reason,
			Candidates: make(map[election.State]int, len(x.Ranking)),
		}
		if !x.Claim.Seen.IsZero() {
			status.SinceRenewal = now.Sub(x.Claim.Seen)
		}
		for _, c := range x.Ranking {
			status.Candidates[c.State]++
		}
		list = append(list, status)
	}
	return list
}
