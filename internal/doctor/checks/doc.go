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

// Package checks is what coordinator doctor knows: facts about a cluster in, findings out. Each check is a function in
// the table of All, with every outcome that it can have; docs/doctor.md is printed from that table. It is pure: package
// doctor gathers the facts, and prints the findings.
//
// Who leads a lease and why is for internal/election to say; the checks here ask it.
package checks
