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
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Snapshot is everything a decision about one lease depends on.
type Snapshot struct {
	// Now is the coordinator's clock. Its monotonic reading decides about claims; its wall-clock reading is
	// only written into stamps, and compared with the stamps of candidates that were never seen to move.
	Now time.Time
	// Key names the lease.
	Key types.NamespacedName
	// Lease is the lease as the coordinator last saw it, or nil if there is none. spec.strategy and
	// spec.preferredHolder are set, also where the server keeps them in annotations.
	Lease *coordinationv1.Lease
	// Candidates are those that name this lease, in any order, each with what was observed of it.
	Candidates []Candidate
	// Observed is what the coordinator saw of this lease over time.
	Observed *Observations
	// Load is where the other leases are led; see Loads.
	Load strategy.Load
	// InTreeActive is set while a kube-apiserver's own coordinator is at work beside this one.
	InTreeActive bool
	// FieldsKept is set where the API server keeps spec.strategy and spec.preferredHolder.
	FieldsKept bool

	Settings *Settings
}

// Candidate is a candidate and what was observed of it.
type Candidate struct {
	*strategy.Candidate
	Observed CandidateObservations
}

// Settings are the operator's choices. They are read-only.
type Settings struct {
	// Strategies are those that this coordinator knows.
	Strategies *strategy.Registry
	// Overrides are the leases that the operator has led by a strategy of their own. May be nil.
	Overrides *strategy.Overrides
	// Excluded leases are never coordinated, whoever names them: the coordinator's own lock.
	Excluded []types.NamespacedName
	// ElectionDuration is how long a pinged candidate has to ack. It must be at least one candidate's round
	// trip. Default 5 s, as in-tree.
	ElectionDuration time.Duration
	// CandidateTTL is how long a candidate counts without renewing. Default 30 min, as in-tree; client-go's
	// candidates renew every 5 min.
	CandidateTTL time.Duration
	// TakeUpTimeout is how long an appointee has to take up its lease. 0, the default, means a third of the
	// last duration that a holder wrote. Never below MinTakeUp.
	TakeUpTimeout time.Duration
	// MinTerm is how long a healthy holder stays in office before a better candidate is preferred. Default 0.
	MinTerm time.Duration
}

// Defaults of Settings.
const (
	DefaultElectionDuration = 5 * time.Second
	DefaultCandidateTTL     = 30 * time.Minute
)

const (
	// DefaultClaim is how long a claim is honoured, from first sight, that states no duration or was never
	// renewed; and how long a coordinator that has just started assumes that a lease which it finds missing,
	// with candidates waiting for it, may have been deleted under a live holder.
	DefaultClaim = 15 * time.Second

	// MinTakeUp is the shortest time an appointee is given. client-go's electors poll every 2 to 4.4 s
	// (retry period 2 s, jitter factor 1.2).
	MinTakeUp = 5 * time.Second

	// MaxTakeUp bounds how far the take-up limit grows for a candidate that was benched for being slow.
	MaxTakeUp = 2 * time.Minute

	// MaxAppointments is how often in a row a candidate is appointed that does not take up.
	MaxAppointments = 3

	// benchBase and benchMax bound the back-off of a candidate that did not take up.
	benchBase = 10 * time.Second
	benchMax  = 10 * time.Minute

	// holdOffBase and holdOffMax bound how long a candidate that lost a lease by expiry is not preferred to
	// a healthy holder. The count is forgotten after lossMemory without a loss.
	// client-go's electors go on for up to 10 s after they were paused, and then exit: until then their
	// LeaseCandidate answers, but they would not take up.
	holdOffBase = 30 * time.Second
	holdOffMax  = 5 * time.Minute
	lossMemory  = 30 * time.Minute

	// idleHoldOffBase and idleHoldOffMax bound how long a candidate that was benched is not preferred to a
	// healthy holder: longer than the bench, since each time that it does not take up, nobody leads meanwhile.
	idleHoldOffBase = 10 * time.Minute
	idleHoldOffMax  = 2 * time.Hour

	// ignoredHoldOff is how long a holder that wiped its preferredHolder and renewed is left alone: it does
	// not obey, and would wipe it at each renewal.
	ignoredHoldOff = 5 * time.Minute

	// rePingMax bounds the back-off between pings of suspects while nobody else could lead, and is the time between
	// pings of candidates whose strategies conflict.
	rePingMax = time.Minute
)

// backoff returns base doubled n times, at most limit.
func backoff(base, limit time.Duration, n int) time.Duration {
	for ; n > 0 && base < limit; n-- {
		base *= 2
	}
	return min(base, limit)
}
