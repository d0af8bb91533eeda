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

package framework

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// classifyLease says what a write to a Lease was about. writer is the program
// that made it, "" if unknown; registered says whether the holder after the
// write is the name of a candidate.
func classifyLease(before, after *coordinationv1.Lease, writer ProcessKind, registered bool) EventKind {
	// Somebody else named the holder, or gave it more time.
	named := false
	switch writer {
	case CoordinatorKind:
		// It holds its own lock as anybody does.
		named = !isCoordinatorsLock(after)
	case APIServerKind, "":
		// kube-apiservers have Leases of their own too, without candidates. A
		// candidate of client-go waits to be named.
		named = registered
	}
	switch {
	case after == nil:
		return LeaseDeleted
	case holder(after) == v1alpha1.RevokedHolder && holder(before) != v1alpha1.RevokedHolder:
		return LeaseRevoked
	case holder(after) == "" && before == nil:
		return LeaseCreated
	case holder(after) == "" && holder(before) != "":
		return LeaseReleased
	case holder(after) != holder(before) && named:
		return LeaseAppointed
	case holder(after) != holder(before):
		return LeaseAcquired
	case preferred(after) != preferred(before) && preferred(after) != "":
		return LeasePreferred
	case moved(renewTime(before), renewTime(after)) && named && writer != "":
		return LeaseAppointed
	case moved(renewTime(before), renewTime(after)):
		return LeaseRenewed
	case preferred(after) != preferred(before):
		return LeasePreferenceCleared
	default:
		return LeaseUpdated
	}
}

// isCoordinatorsLock reports whether a Lease is held by a coordinator, in-tree
// or ours, as the lock by which coordinators elect one among themselves.
func isCoordinatorsLock(l *coordinationv1.Lease) bool {
	if l == nil {
		return false
	}
	return l.Namespace == v1alpha1.InTreeLockNamespace && l.Name == v1alpha1.InTreeLockName ||
		strings.HasPrefix(holder(l), v1alpha1.CoordinatorIdentityPrefix)
}

// classify fills in the kinds and descriptions of the writes among events,
// which must be in the order in which they were seen.
func classify(events []Event) {
	registered := map[string]bool{} // "lease candidate"
	// A kube-apiserver may name a candidate before the recorder sees its registration, which comes by another watch.
	everRegistered := map[string]bool{}
	for _, e := range events {
		if e.CandidateBefore != nil || e.CandidateAfter != nil {
			everRegistered[e.Lease+" "+e.Subject] = true
		}
	}
	appointed := map[string]string{}
	for i := range events {
		e := &events[i]
		switch {
		case e.CandidateBefore != nil || e.CandidateAfter != nil:
			if e.Kind != CandidateSeen {
				e.Kind = classifyCandidate(e.CandidateBefore, e.CandidateAfter)
			}
			e.Detail = describeCandidate(e.CandidateBefore, e.CandidateAfter)
			registered[e.Lease+" "+e.Subject] = true
		case e.LeaseBefore != nil || e.LeaseAfter != nil:
			if e.Kind != LeaseSeen {
				candidate := e.Lease + " " + holder(e.LeaseAfter)
				e.Kind = classifyLease(e.LeaseBefore, e.LeaseAfter, e.WriterKind,
					registered[candidate] || e.WriterKind == APIServerKind && everRegistered[candidate])
			}
			e.Detail = describeLease(e.LeaseBefore, e.LeaseAfter)
			switch e.Kind {
			case LeaseAppointed:
				appointed[e.Lease] = holder(e.LeaseAfter)
			case LeaseRenewed:
				if appointed[e.Lease] == holder(e.LeaseAfter) {
					e.Kind = LeaseTakenUp
				}
				fallthrough
			case LeaseAcquired, LeaseReleased, LeaseRevoked, LeaseDeleted:
				delete(appointed, e.Lease)
			}
		}
	}
}

// classifyCandidate says what a write to a LeaseCandidate was about.
func classifyCandidate(before, after *coordinationv1beta1.LeaseCandidate) EventKind {
	switch {
	case after == nil:
		return CandidateDeleted
	case before == nil:
		return CandidateCreated
	case moved(before.Spec.PingTime, after.Spec.PingTime):
		return CandidatePinged
	case moved(before.Spec.RenewTime, after.Spec.RenewTime):
		if p := before.Spec.PingTime; p != nil && (before.Spec.RenewTime == nil || before.Spec.RenewTime.Before(p)) {
			return CandidateAcked
		}
		return CandidateRenewed
	default:
		return CandidateUpdated
	}
}

func holder(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// preferred finds the preferred holder in whichever of the two places it is kept.
func preferred(l *coordinationv1.Lease) string {
	if l == nil {
		return ""
	}
	if l.Spec.PreferredHolder != nil && *l.Spec.PreferredHolder != "" {
		return *l.Spec.PreferredHolder
	}
	return l.Annotations[v1alpha1.PreferredHolderAnnotation]
}

func renewTime(l *coordinationv1.Lease) *metav1.MicroTime {
	if l == nil {
		return nil
	}
	return l.Spec.RenewTime
}

func moved(before, after *metav1.MicroTime) bool { return !before.Equal(after) }

// describeLease says in words what changed on a Lease, besides its renewTime.
func describeLease(before, after *coordinationv1.Lease) string {
	if after == nil {
		return "held by " + quoted(holder(before))
	}
	old := before
	if old == nil {
		old = &coordinationv1.Lease{}
	}
	var d []string
	change := func(name, from, to string) {
		switch {
		case from == to:
		case from == "":
			d = append(d, name+" "+to)
		case to == "":
			d = append(d, "no "+name)
		default:
			d = append(d, fmt.Sprintf("%s %s -> %s", name, from, to))
		}
	}
	change("holder", holder(old), holder(after))
	change("preferred", preferred(old), preferred(after))
	change("strategy", strategy(old), strategy(after))
	change("duration", seconds(old.Spec.LeaseDurationSeconds), seconds(after.Spec.LeaseDurationSeconds))
	change("transitions", number(old.Spec.LeaseTransitions), number(after.Spec.LeaseTransitions))
	change("acquired", stamp(old.Spec.AcquireTime), stamp(after.Spec.AcquireTime))
	for _, key := range slices.Sorted(maps.Keys(merge(old.Annotations, after.Annotations))) {
		switch key {
		case v1alpha1.PreferredHolderAnnotation, v1alpha1.StrategyAnnotation:
		default:
			change(strings.TrimPrefix(key, v1alpha1.Group+"/"), old.Annotations[key], after.Annotations[key])
		}
	}
	return strings.Join(d, ", ")
}

// describeCandidate says in words what a candidate is, or what changed.
func describeCandidate(before, after *coordinationv1beta1.LeaseCandidate) string {
	switch {
	case after == nil:
		return ""
	case before == nil:
		return fmt.Sprintf("binary %s, emulation %s, %s", after.Spec.BinaryVersion, after.Spec.EmulationVersion, after.Spec.Strategy)
	case before.Spec.BinaryVersion != after.Spec.BinaryVersion || before.Spec.EmulationVersion != after.Spec.EmulationVersion:
		return fmt.Sprintf("binary %s -> %s, emulation %s -> %s",
			before.Spec.BinaryVersion, after.Spec.BinaryVersion, before.Spec.EmulationVersion, after.Spec.EmulationVersion)
	case !equality.Semantic.DeepEqual(before.Annotations, after.Annotations):
		return fmt.Sprintf("annotations %v -> %v", before.Annotations, after.Annotations)
	default:
		return ""
	}
}

func strategy(l *coordinationv1.Lease) string {
	if l.Spec.Strategy != nil {
		return string(*l.Spec.Strategy)
	}
	return l.Annotations[v1alpha1.StrategyAnnotation]
}

func seconds(n *int32) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%ds", *n)
}

func number(n *int32) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

func stamp(t *metav1.MicroTime) string {
	if t == nil {
		return ""
	}
	if t.IsZero() {
		return "at zero time" // what the in-tree coordinator's null becomes in client-go
	}
	return t.UTC().Format("15:04:05.000")
}

func quoted(s string) string {
	if s == "" {
		return "nobody"
	}
	return s
}

func merge(a, b map[string]string) map[string]string {
	m := maps.Clone(a)
	if m == nil {
		m = map[string]string{}
	}
	maps.Copy(m, b)
	return m
}
