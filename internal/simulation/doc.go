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
//   - coordinators, each with a thin copy of the controller's duties: observe, decide, carry out, look again;
//   - candidates as client-go v0.37 makes them, coordinated and plain, down to their flaws;
//   - crashes, pauses, partitions, slow and lost responses, clocks that are set wrong.
//
// Invariants are asserted inside the World, at every write and every start of work, against what the model knows
// to be true, not against what a coordinator believes.
//
// # What the model does not show
//
// Clocks run at equal rates and never step. A response that comes later than MaxResponse is out of bounds: an
// elector with client-go's defaults that learns of its own renewal more than 3 s after the server applied it may
// work past its claim (2 s until it tries again and 10 s until it gives up, of 15 s), whoever coordinates it.
package simulation
