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

import (
	"strconv"
	"time"
)

// Stamp is a wall-clock time as the API carries it, in microseconds since 1970; 0 is none. Stamps of other machines are
// compared for equality only.
type Stamp int64

// Lease is a Lease as a candidate sees it, whether the API server keeps strategy and preferred holder in fields or in
// annotations.
type Lease struct {
	// Exists is false if there is no Lease. Version is then that of a list that showed none.
	Exists  bool
	Version uint64
	// Holder and Preferred are "" for none.
	Holder, Preferred string
	Acquired, Renewed Stamp
	// Duration is what the holder, or whoever appointed it, wrote; 0 for none.
	Duration    time.Duration
	Transitions int32
	// Token is the fencing token of the term; "" for none.
	Token string
	// Coordinated is set if the Lease names a strategy: a coordinator has written it.
	Coordinated bool
	// Paused is set if the Lease is annotated to be left alone.
	Paused bool
}

// DefaultClaim is how long a claim is honoured, from first sight, that states no duration or was never renewed.
const DefaultClaim = 15 * time.Second

// claim returns for how long the holder's claim holds from first sight.
func (l *Lease) claim() time.Duration {
	if l.Renewed == 0 || l.Duration <= 0 {
		return DefaultClaim
	}
	return l.Duration
}

// appointment reports whether the holder was named and has not renewed since. Our coordinator writes equal stamps, the
// in-tree one no acquireTime.
func (l *Lease) appointment() bool { return l.Acquired == 0 || l.Acquired == l.Renewed }

// nextToken returns the fencing token of a term that starts with a write based on this lease.
func (l *Lease) nextToken() string { return strconv.FormatUint(l.Version, 10) }

// Registration is the candidate's own LeaseCandidate as it was seen.
type Registration struct {
	// Known is false until it was looked for. Unserved is set if the API server serves no LeaseCandidates: then nothing
	// but the fallback makes a leader.
	Known, Exists, Unserved bool
	// Kind is which of several kinds of object this is. Versions of different kinds say nothing about each other, nor does
	// the last renewal of one about another.
	Kind          string
	Version       uint64
	Ping, Renewed Stamp
	// Current is set if versions, strategy, labels and owner are as configured.
	Current bool
	// Resigned is set if the candidate has marked itself as resigning, and Ineligible if somebody has marked it never
	// to lead.
	Resigned, Ineligible bool
}
