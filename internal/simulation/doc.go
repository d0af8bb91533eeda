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

// Package simulation runs whole elections in virtual time, for tests only. It is deterministic: a World is driven
// by one goroutine and an event queue, reads no clock and takes its randomness from the caller, so the same seed
// gives the same run, event by event.
//
// What is real is the decision core, internal/election. Around it the World models what the core cannot see:
//
//   - an API server with resourceVersions, compare-and-swap, watches that lag or break, one-second creation stamps,
//     microsecond renewals, and, if so set, without spec.strategy and spec.preferredHolder;
//   - coordinators, each with a thin copy of the controller's duties: observe, decide, carry out, look again; they delete the
//     registrations of the dead where the server drops the fields, as no collector of kube-apiserver's runs there;
//   - candidates as client-go v0.37 makes them, coordinated and plain, down to their flaws;
//   - crashes, pauses, partitions, slow and lost responses, clocks that are set wrong.
//
// Invariants are asserted inside the World, at every write and every start of work, against what the model knows
// to be true, not against what a coordinator believes.
//
// # What the model does not show
//
// Clocks run at equal rates and never step. A Lease is not deleted while plain electors wait for it: they take a Lease
// that is not there, whoever works.
//
// # What no coordinator can prevent
//
// Some overlaps of two leaders are client-go's own. They are counted, not held against the coordinator, unless it
// names somebody meanwhile:
//
//   - An elector that was paused for longer than its claim works on for up to its renew deadline when it wakes.
//   - An elector that learns of its own renewal late counts from then. With the defaults it may work past its claim if
//     that is more than 3 s after the server applied it (2 s until it tries again and 10 s until it gives up, of 15 s);
//     so responses take at most MaxResponse here.
//   - A plain elector whose renewal was applied and timed out writes the same stamp again in the same attempt. That
//     changes nothing on the server, but it believes that it has renewed just now.
//   - A release goes by what the elector observed last, on the Lease as it is now: a former holder may wipe out its
//     successor. The coordinator doubts such a release for a while; a plain elector takes the lease at once.
//   - Records are compared with their times cut to seconds: a renewal that falls into the same second of another clock
//     as the one before it is not seen.
package simulation
