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

package candidate

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lease-coordinator/coordinator/internal/candidacy"
)

// Term is one term of office. Terms of the same Candidate may be compared with ==.
type Term struct {
	// Token is the fencing token: a decimal number of up to 20 digits that is higher in each later term of the same lease,
	// whoever leads, also if the Lease is deleted and made again. A receiver that remembers the highest it was shown, and
	// refuses lower ones, is not fooled by what a former leader sent.
	Token string
	// Transitions is the Lease's leaseTransitions in this term.
	Transitions int32

	claim *claim
}

// Valid reports whether the claim of this term holds at this moment, by this process' own clock: no other candidate can
// have begun to lead. It stays true while the work drains, and is false from the moment that the claim runs out or Lead
// returns, whether or not anything in this process has noticed. It makes no request, may be called from any goroutine,
// and is false for the zero Term.
//
// What is sent after Valid said yes may still arrive after the claim has run out. That is what Token is for.
func (t Term) Valid() bool { return t.claim.holds() }

// claim is until when a term holds.
type claim struct {
	clock func() time.Duration
	end   atomic.Int64
}

func (c *claim) holds() bool { return c != nil && c.left() > 0 }

func (c *claim) left() time.Duration { return time.Duration(c.end.Load()) - c.clock() }

func (c *claim) extend(until time.Duration) { c.end.Store(int64(until)) }

// finish ends the claim, as far as this process is concerned.
func (c *claim) finish() { c.end.Store(0) }

func newTerm(t candidacy.Term, clock func() time.Duration, until time.Duration) Term {
	c := &claim{clock: clock}
	c.extend(until)
	return Term{Token: t.Token, Transitions: t.Transitions, claim: c}
}

type termKey struct{}

// TermFromContext returns the term that Lead was called for, from its context or one that is derived from it. It does so
// whether or not the term has ended; see Term.Valid.
func TermFromContext(ctx context.Context) (Term, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t, ok
}
