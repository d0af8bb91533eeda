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

// Package election is the coordinator's core: every rule by which a holder of a Lease is named, and nothing
// else. It is pure. Decide maps a Snapshot to a Decision; the clock is an argument, writes are data. The same
// code runs in the controller, in the simulation and wherever a decision is to be explained.
//
// # The life of a term
//
//	           appoint                 first own renewal             prefer
//	vacant ------------> appointed ----------------------> leading ----------> end of term
//	  ^                      | not taken up                   | renewals stop       | claim runs out, or
//	  |<---------------------+                                |                     | the holder releases
//	  |<------------------------------------------------------+---------------------+
//
// Where the API server drops the field that tells a holder of its end of term, and the holder does not read
// annotations, the coordinator revokes: it takes the lease in its own name, and the lease is vacant when that
// claim has run out.
//
// # Guarantees
//
//   - I1: a candidate is named only when no other's claim can still be valid, or the holder released it. A claim
//     runs out when its leaseDurationSeconds have passed since this coordinator first saw its holder and
//     renewTime; no timestamp of another machine is compared with our clock to decide that. An appointment that
//     was not taken up is no claim: a holder works only after its own first renewal has succeeded, and that
//     renewal fails once the appointment was overwritten.
//   - I2: a candidate that is preferred or appointed acked within the election duration.
//   - I3: the fencing token grows with every term, leaseTransitions with every change of holder.
//   - I4: every write is a compare-and-swap on the resourceVersion that was decided on.
//   - I5: nothing is written to a Lease without admissible candidates.
//   - I6: same snapshot, same decision, whatever the order of its candidates.
//   - I7: some live candidate leads within lease duration + election duration + one retry of a vacancy.
//   - I8: no decision repeats a write that changes nothing.
//   - I9: no registration of a live process is deleted, whatever its clock says.
//
// # Non-guarantees
//
// Naming a holder is not fencing it. A holder that was paused past the end of its claim may act until it
// notices; receivers of its actions that must not be fooled check the fencing token.
package election
