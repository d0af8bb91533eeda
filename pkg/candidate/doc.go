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

// Package candidate makes a program a candidate for the leadership of a Lease: it registers, answers the coordinator's
// pings, works while it is the leader, and hands the lease over in milliseconds when another is to lead.
//
//	c, err := candidate.New(candidate.Config{
//		RestConfig:    restConfig,
//		Namespace:     "default",
//		LeaseName:     "my-controller",
//		BinaryVersion: version,
//		Lead:          controller.Run, // func(context.Context) error, returns when the context is done
//	})
//	if err != nil {
//		return err
//	}
//	return c.Run(ctx)
//
// Who leads is chosen by a coordinator: lease-coordinator's, or the one in kube-apiserver. Without any, the candidate takes
// a vacant lease by itself after FallbackAfter. Candidates of this package, coordinated electors of client-go and plain
// ones may compete for the same lease. docs/library.md has the way from client-go and controller-runtime to here, the rights
// that a candidate needs, and what happens when.
//
// # Guarantees
//
//   - Lead runs only within a claim that a successful write of this process has made, counted from before that write was
//     sent, by a clock of this process that nobody can set and that, on Linux, goes on while the machine is suspended.
//   - Its context ends at the latest RenewDeadline after the last renewal that succeeded, and at once when the lease is
//     held by somebody else. If Lead has not returned when the claim runs out, or DrainLimit after it was told to,
//     OnDeadline ends the process.
//   - The lease is handed over or released only when Lead has returned, and is renewed until then.
//   - IsLeader, Term and Term.Valid look at the clock: they say no from the moment that the claim runs out.
//   - Lead is never called twice at once, and each term has a higher fencing token than those before. A term that was
//     interrupted, by a Lease that was deleted, say, goes on with its token if the lease can be put back in time.
//   - Losing leadership is no error: the candidate goes on, in the same process and under the same identity.
//   - A request that hangs takes nothing else with it: each is given up after a quarter of RenewDeadline, together with its
//     connection. None goes through the caller's rate limiter.
//
// # Non-guarantees
//
//   - It is not fencing. What the work has sent before it was stopped may arrive after the next leader has begun. Receivers
//     that must not be fooled check Term.Token.
//   - Between a look at IsLeader and what is done because of it, the process may be suspended for any time.
//   - After a suspension, Lead's context ends when the process comes to run: within RetryPeriod at most, while another may
//     be leading already. The process ends then, by OnDeadline, if its claim has run out.
//   - A clock that runs at another rate than those of the other candidates and the coordinator is off by that rate times
//     LeaseDuration.
//   - OnNominated and OnNewLeader tell what was seen. They may come late or not at all, and repeat.
package candidate
