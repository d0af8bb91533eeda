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
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
)

// EventKind says what an Event is about.
type EventKind string

// What happens to processes, as the framework itself sees or does it.
const (
	// ProcessStarted is recorded once the process exists.
	ProcessStarted EventKind = "process-started"
	// ProcessReady is recorded when its health endpoint says so for the first time.
	ProcessReady EventKind = "process-ready"
	// ProcessExited is recorded when the process is gone, for whatever reason.
	ProcessExited EventKind = "process-exited"
	// ProcessFrozen is recorded once the kernel reports the process as stopped.
	ProcessFrozen EventKind = "process-frozen"
	// ProcessThawed is recorded just before the process is continued.
	ProcessThawed EventKind = "process-thawed"
)

// What processes say about their own leadership. It is what they do that
// counts, so these come from their output, never from the Lease.
const (
	// StartedLeading is a process's word that its work begins.
	StartedLeading EventKind = "started-leading"
	// StoppedLeading is a process's word that its work has ended, or that it
	// is about to exit because it lost the lease.
	StoppedLeading EventKind = "stopped-leading"
)

// What is written to Leases.
const (
	// LeaseSeen is the state a Lease was in when the recorder first looked.
	LeaseSeen EventKind = "lease-seen"
	// LeaseCreated is a Lease created without a holder.
	LeaseCreated EventKind = "lease-created"
	// LeaseAppointed is a holder named by somebody else.
	LeaseAppointed EventKind = "lease-appointed"
	// LeaseAcquired is a holder that wrote its own name, as plain leader
	// election does.
	LeaseAcquired EventKind = "lease-acquired"
	// LeaseTakenUp is an appointee's first own renewal.
	LeaseTakenUp EventKind = "lease-taken-up"
	// LeaseRenewed is any further renewal by the holder.
	LeaseRenewed EventKind = "lease-renewed"
	// LeasePreferred is a preferred holder set or changed.
	LeasePreferred EventKind = "lease-preferred"
	// LeasePreferenceCleared is a preferred holder removed while the holder stays.
	LeasePreferenceCleared EventKind = "lease-preference-cleared"
	// LeaseRevoked is a lease taken by the coordinator in its own name.
	LeaseRevoked EventKind = "lease-revoked"
	// LeaseReleased is a holder removed.
	LeaseReleased EventKind = "lease-released"
	// LeaseUpdated is any other change.
	LeaseUpdated EventKind = "lease-updated"
	// LeaseDeleted is the end of a Lease object.
	LeaseDeleted EventKind = "lease-deleted"
)

// What is written to LeaseCandidates.
const (
	// CandidateSeen is the state a candidate was in when the recorder first looked.
	CandidateSeen EventKind = "candidate-seen"
	// CandidateCreated is a candidate that registered.
	CandidateCreated EventKind = "candidate-created"
	// CandidatePinged is a moved ping time.
	CandidatePinged EventKind = "candidate-pinged"
	// CandidateAcked is a renewal that answers an outstanding ping.
	CandidateAcked EventKind = "candidate-acked"
	// CandidateRenewed is a renewal nobody asked for.
	CandidateRenewed EventKind = "candidate-renewed"
	// CandidateUpdated is any other change.
	CandidateUpdated EventKind = "candidate-updated"
	// CandidateDeleted is the end of a candidate object.
	CandidateDeleted EventKind = "candidate-deleted"
)

const (
	// WriteRefused is a write the kube-apiserver turned down; Detail has the code.
	WriteRefused EventKind = "write-refused"
	// WriteWithoutEffect is a write that the kube-apiserver accepted and that
	// changed nothing; Detail has the verb.
	WriteWithoutEffect EventKind = "write-without-effect"
	// Mark is a remark made by the test itself, see Recorder.Mark.
	Mark EventKind = "mark"
)

// Event is one line of a Timeline.
type Event struct {
	// Time is when it happened: the process's own stamp, the kube-apiserver's
	// audit stamp, or else the moment the framework learned of it. All come
	// from the one clock of this machine.
	Time time.Time
	Kind EventKind
	// Lease is "namespace/name" of the lease concerned, if any.
	Lease string
	// Subject is the process for process and leadership events, the Lease's
	// holder for writes to Leases, the candidate's name for writes to candidates.
	Subject string
	// Writer is the process or else the user that made a write, and WriterKind
	// its program; both are "" if that could not be found out. A kube-apiserver
	// as writer means what runs inside it, the in-tree coordinator for one.
	Writer     string
	WriterKind ProcessKind
	// Detail is for people.
	Detail string

	// Process describes the process of process and leadership events.
	Process ProcessInfo
	// Object is "lease/namespace/name" or "leasecandidate/namespace/name" for
	// writes; LeaseCandidates of our group are "leasecandidate.lease-coordinator.dev/namespace/name".
	Object string
	// ResourceVersion is that of the object after the write.
	ResourceVersion string
	// LeaseBefore and LeaseAfter are the Lease around a write; nil where there
	// was none. They must not be modified.
	LeaseBefore, LeaseAfter *coordinationv1.Lease
	// CandidateBefore and CandidateAfter are the same for LeaseCandidates.
	CandidateBefore, CandidateAfter *coordinationv1beta1.LeaseCandidate
	// Blind is set on a write to a Lease or LeaseCandidate by update or patch
	// whose request carried no resourceVersion: it could overwrite anything.
	Blind bool
}

// ProcessInfo identifies one run of one process.
type ProcessInfo struct {
	// Name is unique within a cluster, such as "n1/kube-scheduler".
	Name string
	// Kind is the program.
	Kind ProcessKind
	// Node is the node it belongs to, "" for etcd.
	Node string
	// Lease is the "namespace/name" it competes for, "" if it does not.
	Lease string
	// Identity is its holder identity, "" where the process chooses that itself.
	Identity string
	// Emulation is the emulation version as "major.minor", "" where that means nothing.
	Emulation string
	// Run counts the starts of this process, from 1.
	Run int
	// PID is the process id of that run.
	PID int
}

// ProcessKind is a program the framework runs.
type ProcessKind string

// The programs.
const (
	EtcdKind              ProcessKind = "etcd"
	APIServerKind         ProcessKind = "kube-apiserver"
	ControllerManagerKind ProcessKind = "kube-controller-manager"
	SchedulerKind         ProcessKind = "kube-scheduler"
	CoordinatorKind       ProcessKind = "coordinator"
	CandidateKind         ProcessKind = "candidate"
)

// bus carries the events of one cluster's processes to its recorders. It keeps
// them all, so that a recorder started late still knows who leads.
type bus struct {
	mu   sync.Mutex
	past []Event
	subs map[int]func(Event)
	next int
}

func (b *bus) publish(e Event) {
	if e.Time.IsZero() {
		e.Time = now()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.past = append(b.past, e)
	for _, deliver := range b.subs {
		deliver(e)
	}
}

// subscribe replays the past to deliver and then passes on what follows, in
// order, until the returned function is called. deliver must not block.
func (b *bus) subscribe(deliver func(Event)) (cancel func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.past {
		deliver(e)
	}
	if b.subs == nil {
		b.subs = map[int]func(Event){}
	}
	id := b.next
	b.next++
	b.subs[id] = deliver
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs, id)
	}
}

// now is the wall clock without Go's monotonic reading: these times are
// compared with stamps that other processes print, which have none.
func now() time.Time { return time.Now().Round(0) }
