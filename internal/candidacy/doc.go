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

// Package candidacy is the candidate's core: the state machine of one candidate for one lease. It is pure: facts go in
// (the lease and the candidate's own object as they were seen, what became of a write, the work has stopped, the clock),
// effects come out (write this, start the work, cancel it, end the process, wake me then). It owns no client, clock,
// goroutine or random source. Package pkg/candidate gathers the facts and carries out the effects.
//
//	            named holder, own renewal has succeeded
//	following ------------------------------------------> leading
//	    ^                                                    | end of term, resignation, loss
//	    |   handed over, released, or lost                   v
//	    +------------------ holding <------------------- draining
//	                                the work has stopped
//
// Guarantees, whatever is delivered late, twice or never:
//
//   - The work runs only within a claim that a successful write of this process has made, counted from the moment before
//     that write was sent, by this process' own clock. If it has not stopped when the claim runs out, the process ends.
//   - The lease is handed over or released only when the work has stopped.
//   - Starts and stops of the work alternate; each start has a term of its own, or continues the term that was interrupted.
//   - Every write is a compare-and-swap. Since creating a lease is one on its absence alone, and somebody may lead whose
//     lease was deleted unseen, who creates it to lead first waits out a claim.
//   - Tokens grow from term to term.
//
// model_test.go explores all of that in every order of events. What is assumed: no two live processes share an identity; the
// monotonic clocks of all run at the same rate; a write that is reported as conflicted was not carried out; reads are not
// from a cache; whoever coordinates creates no lease under a claim.
//
// It is not fencing: what the work has sent before it was stopped may arrive later. Receivers that must not be fooled
// check the fencing token.
package candidacy
