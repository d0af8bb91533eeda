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
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// Everything that the API server admits in a Lease is read here, and nowhere else: any field may be nil.

func holderOf(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func preferredOf(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.PreferredHolder == nil {
		return ""
	}
	return *l.Spec.PreferredHolder
}

func renewTimeOf(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil {
		return time.Time{}
	}
	return l.Spec.RenewTime.Time
}

// durationOf returns for how long a claim holds from first sight.
func durationOf(l *coordinationv1.Lease) time.Duration {
	if l.Spec.RenewTime == nil || l.Spec.LeaseDurationSeconds == nil || *l.Spec.LeaseDurationSeconds <= 0 {
		return DefaultClaim
	}
	return time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
}

// renewedByHolder reports whether the lease was renewed since its holder was named. Whoever names a holder, a
// coordinator or the holder itself, writes equal times; what a coordinator wrote says nothing about the holder.
func renewedByHolder(l *coordinationv1.Lease) bool {
	return l.Spec.RenewTime != nil && !l.Spec.RenewTime.Equal(l.Spec.AcquireTime)
}

// Write returns the lease to write for the decision: an Update of s.Lease where there is one, else a Create. It
// returns nil for a decision that writes no lease. base is the resourceVersion that the decision is based on: of
// s.Lease, or of a list that showed none.
func (d Decision) Write(s *Snapshot, base string) *coordinationv1.Lease {
	now := metav1.NewMicroTime(s.Now)
	var l *coordinationv1.Lease
	if s.Lease != nil {
		l = s.Lease.DeepCopy()
	} else {
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.Key.Namespace, Name: s.Key.Name}}
	}
	switch d.Action {
	case Appoint:
		l.Spec.LeaseTransitions = d.transitions(s)
		if l.Annotations == nil {
			l.Annotations = map[string]string{}
		}
		if !d.sameTerm(s) || l.Annotations[v1alpha1.FencingTokenAnnotation] == "" {
			l.Annotations[v1alpha1.FencingTokenAnnotation] = base
		}
		l.Spec.HolderIdentity = &d.Candidate
		l.Spec.AcquireTime, l.Spec.RenewTime = &now, &now
		seconds := int32(math.Ceil(d.TakeUp.Seconds()))
		l.Spec.LeaseDurationSeconds = &seconds
		l.Spec.PreferredHolder = nil
		l.Spec.Strategy = &d.Strategy
	case Prefer:
		l.Spec.PreferredHolder = &d.Candidate
		l.Spec.Strategy = &d.Strategy
	case ClearPreferred:
		l.Spec.PreferredHolder = nil
	case Revoke:
		holder := v1alpha1.RevokedHolder
		l.Spec.HolderIdentity = &holder
		l.Spec.RenewTime = &now
		seconds := int32(math.Ceil(s.Observed.Claim.Duration.Seconds()))
		l.Spec.LeaseDurationSeconds = &seconds
		l.Spec.PreferredHolder = &d.Candidate
		l.Spec.Strategy = &d.Strategy
	case Restore:
		l.Spec = *s.Observed.Last.Spec.DeepCopy()
		l.Annotations, l.Labels = s.Observed.Last.Annotations, s.Observed.Last.Labels
		return l.DeepCopy()
	default:
		return nil
	}
	return l
}

// sameTerm tells a repeated appointment, which nobody took up, from a new term.
func (d Decision) sameTerm(s *Snapshot) bool {
	return s.Observed.Appointment != nil && s.Lease != nil && holderOf(s.Lease) == d.Candidate
}

// transitions returns the leaseTransitions of an appointment: one more than ever seen with each change of holder.
// A revocation is no transition, so the count before it goes on.
func (d Decision) transitions(s *Snapshot) *int32 {
	var n int32
	if last := s.Observed.Last; last != nil && last.Spec.LeaseTransitions != nil {
		n = *last.Spec.LeaseTransitions
	}
	if s.Lease != nil && s.Lease.Spec.LeaseTransitions != nil {
		n = max(n, *s.Lease.Spec.LeaseTransitions)
	}
	if (s.Lease == nil || holderOf(s.Lease) != d.Candidate) && n < math.MaxInt32 {
		n++
	}
	return &n
}
