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

package simulation

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	seed = flag.Uint64("seed", 0, "play the random run of this seed alone, and print its transcript")
	runs = flag.Int("runs", 500, "how many random runs to play")
)

// TestRandomRuns plays random runs, each of twenty virtual minutes. The seeds are fixed, so that a change is judged by
// the same runs as the change before; -runs adds more.
func TestRandomRuns(t *testing.T) {
	if *seed != 0 {
		r := RandomRun(*seed, true)
		fmt.Fprint(os.Stdout, r.Transcript)
		if r.Violation != nil {
			t.Fatalf("seed %d: %v", *seed, r.Violation)
		}
		return
	}
	n := *runs
	if testing.Short() {
		n = min(n, 50)
	}
	var total Result
	failed := 0
	for s := uint64(1); s <= uint64(n); s++ {
		r := RandomRun(s, false)
		total.Appointments += r.Appointments
		total.LeaseWrites += r.LeaseWrites
		total.Pings += r.Pings
		total.Overlaps += r.Overlaps
		total.Collections += r.Collections
		total.Leaderless = max(total.Leaderless, r.Leaderless)
		if r.Violation == nil {
			continue
		}
		failed++
		t.Errorf("seed %d: %v\n\tgo test ./internal/simulation -run TestRandomRuns -seed %d", s, r.Violation, s)
		if failed == 1 {
			t.Log("\n" + RandomRun(s, true).Transcript)
		}
		if failed == 20 {
			t.Fatal("enough")
		}
	}
	if total.Collections == 0 {
		t.Error("no registration was ever deleted")
	}
	t.Logf("%s virtual, %d appointments, %d writes to leases, %d pings, %d registrations deleted; at most %s without a leader after the faults; %d overlaps with a process that had just woken",
		time.Duration(n)*RunLength, total.Appointments, total.LeaseWrites, total.Pings, total.Collections, total.Leaderless, total.Overlaps)
}
