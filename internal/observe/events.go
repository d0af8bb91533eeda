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

// Package observe is what people and their monitoring see of the coordinator: the one home of event reasons and
// wordings, and of metric definitions.
package observe

import (
	"fmt"
	"time"
	"unicode/utf8"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Reasons of events on a Lease. Their note is the decision's sentence.
const (
	// EventLeaderAppointed: a holder was named.
	EventLeaderAppointed = "LeaderAppointed"
	// EventTermEnded: the holder was told to yield to a better candidate.
	EventTermEnded = "TermEnded"
	// EventTermContinued: the holder was told that it need not yield after all.
	EventTermContinued = "TermContinued"
	// EventLeaseRevoked: the lease was taken from a holder that cannot be told to yield.
	EventLeaseRevoked = "LeaseRevoked"
	// EventLeaseRestored: a Lease that was deleted under a live holder was put back.
	EventLeaseRestored = "LeaseRestored"
	// EventNotCoordinated: the lease is left alone for a reason that an operator may want to change.
	EventNotCoordinated = "NotCoordinated"
)

// Reasons of events on a Lease or a LeaseCandidate.
const (
	// EventInvalidAnnotation: an annotation of ours has a value that does not count.
	EventInvalidAnnotation = "InvalidAnnotation"
	// EventPriorityEnded: the time up to which a candidate's priority counts has come.
	EventPriorityEnded = "PriorityEnded"
)

// Reasons of events on the coordinator's own lock; see also configuration.go.
const (
	// EventServerChanged: what the API server does was found to differ from before, or from what coordinated leader
	// election was made for: which kinds of LeaseCandidate it serves, and whether it keeps the fields of a Lease.
	EventServerChanged = "ServerChanged"
)

// ServerChanged emits the event of an API server that does something else than before.
func (e Events) ServerChanged(lock runtime.Object, note string) {
	e.note(lock, corev1.EventTypeNormal, EventServerChanged, "Adapt", note)
}

// Events emits the events of decisions.
type Events struct {
	Recorder events.EventRecorder
}

// Written emits the event of a decision that changed the lease.
func (e Events) Written(lease *coordinationv1.Lease, d election.Decision) {
	var reason string
	switch d.Action {
	case election.Appoint:
		reason = EventLeaderAppointed
	case election.Prefer:
		reason = EventTermEnded
	case election.ClearPreferred:
		reason = EventTermContinued
	case election.Revoke:
		reason = EventLeaseRevoked
	case election.Restore:
		reason = EventLeaseRestored
	default:
		return
	}
	e.emit(lease, corev1.EventTypeNormal, reason, d)
}

// Blocked emits the event of a decision that leaves the lease alone although somebody may want it led. The caller
// emits it once for each change of mind.
func (e Events) Blocked(lease *coordinationv1.Lease, d election.Decision) {
	e.emit(lease, corev1.EventTypeWarning, EventNotCoordinated, d)
}

// Blocks reports whether a decision leaves the lease alone for a reason that an operator should hear of.
func Blocks(d election.Decision) bool {
	switch d.Reason {
	case election.ReasonStrategyConflict, election.ReasonNoAdmissibleCandidate, election.ReasonPaused, election.ReasonHolderNotCoordinated,
		election.ReasonNobodyAlive, election.ReasonUnseenClaim:
		return true
	}
	return false
}

// InvalidAnnotation emits the event of an annotation that does not count. The caller emits it once for each change.
func (e Events) InvalidAnnotation(about runtime.Object, warning string) {
	e.note(about, corev1.EventTypeWarning, EventInvalidAnnotation, "Ignore", warning)
}

// PriorityEnded emits the event of a priority that no longer counts.
func (e Events) PriorityEnded(about runtime.Object, c *strategy.Candidate) {
	e.note(about, corev1.EventTypeNormal, EventPriorityEnded, "Ignore",
		fmt.Sprintf("priority %d counted until %s; annotation %s can be removed", c.Priority, c.PriorityUntil.UTC().Format(time.RFC3339), v1alpha1.PriorityAnnotation))
}

func (e Events) emit(lease *coordinationv1.Lease, eventType, reason string, d election.Decision) {
	e.note(lease, eventType, reason, string(d.Action), d.Sentence())
}

func (e Events) note(about runtime.Object, eventType, reason, action, note string) {
	if e.Recorder == nil {
		return
	}
	e.Recorder.Eventf(about, nil, eventType, reason, action, "%s", shorten(note))
}

// maxNote is how many bytes the API server takes as an event's note.
const maxNote = 1024

// shorten cuts a note to maxNote, between characters: half a character would have the API server refuse the event.
func shorten(note string) string {
	if len(note) <= maxNote {
		return note
	}
	const ellipsis = "..."
	end := maxNote - len(ellipsis)
	for !utf8.RuneStart(note[end]) {
		end--
	}
	return note[:end] + ellipsis
}
