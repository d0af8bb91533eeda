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

package candidacy

import "time"

// Effect is something to do. Effects are carried out in their order; none is waited for.
type Effect interface{ effect() }

type (
	// WriteLease changes Base into Next by compare-and-swap on Base.Version, or creates Next if Base does not exist.
	// Machine.LeaseWritten is to be told what became of it.
	WriteLease struct {
		Why        Write
		Base, Next Lease
	}
	// ReadLease reads the lease from the API server. Machine.LeaseRead is to be told.
	ReadLease struct{}
	// WriteRegistration changes the candidate's own object. Machine.RegistrationWritten is to be told.
	WriteRegistration struct {
		Why RegistrationWrite
		// Renewed is the renewTime to write.
		Renewed Stamp
	}
	// StartWork starts the work of a term. Machine.WorkStopped is to be told when it has ended, for whatever reason.
	StartWork struct{ Term Term }
	// CancelWork asks the work to stop.
	CancelWork struct{ Why string }
	// Nominate says that this candidate is going to be the next leader.
	Nominate struct{}
	// EndProcess ends the process: the work has not stopped in time, and somebody else may work from now on.
	EndProcess struct{ Why string }
	// Done says that the candidacy is over: the work has stopped, the lease is handed over or lost, and the
	// candidate's object is gone; or the API server has refused so often that it is left to run out.
	Done struct{}
)

func (WriteLease) effect()        {}
func (ReadLease) effect()         {}
func (WriteRegistration) effect() {}
func (StartWork) effect()         {}
func (CancelWork) effect()        {}
func (Nominate) effect()          {}
func (EndProcess) effect()        {}
func (Done) effect()              {}

// Write says what a write to the lease is for.
type Write string

const (
	// TakeUp is the first own renewal of a term. The work starts when it has succeeded.
	TakeUp Write = "TakeUp"
	// Renew keeps the claim.
	Renew Write = "Renew"
	// Transfer appoints the preferred holder, now that the work has stopped.
	Transfer Write = "Transfer"
	// Release gives up the lease for whoever takes it.
	Release Write = "Release"
	// SelfClaim takes a vacant lease that no coordinator cares for.
	SelfClaim Write = "SelfClaim"
)

// RegistrationWrite says what a write to the candidate's own object is for.
type RegistrationWrite string

const (
	// Create makes the object.
	Create RegistrationWrite = "Create"
	// Update brings versions, strategy, labels and owner up to date, and takes back a resignation.
	Update RegistrationWrite = "Update"
	// Ack moves renewTime, in answer to a ping or since it is due.
	Ack RegistrationWrite = "Ack"
	// Resign marks the candidate, which holds the lease, as one that must not lead, so that a successor is chosen while
	// its work stops.
	Resign RegistrationWrite = "Resign"
	// Delete removes the object.
	Delete RegistrationWrite = "Delete"
)

// Term is one term of office.
type Term struct {
	// Token is the fencing token: it grows from term to term of a lease.
	Token string
	// Transitions is the lease's leaseTransitions.
	Transitions int32
}

// Outcome is what became of a write.
type Outcome int

const (
	// Succeeded: it was carried out.
	Succeeded Outcome = iota
	// Conflicted: somebody else wrote first, or the object is not there, or is. It was not carried out, for certain.
	Conflicted
	// Failed: it may or may not have been carried out.
	Failed
)

// Instant is a moment by this process' clocks.
type Instant struct {
	// Mono is the time since some fixed moment, by a clock that never jumps and goes on while the process or the
	// machine is suspended.
	Mono time.Duration
	// Wall is for stamps only.
	Wall Stamp
}
