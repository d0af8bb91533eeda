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

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lease-coordinator/coordinator/test/figures"
)

func TestTable(t *testing.T) {
	b := &bench{taken: map[measure][]time.Duration{
		{planned, library}:  {9 * time.Millisecond},
		{planned, clientGo}: {1800 * time.Millisecond},
		{exit, library}:     {51 * time.Millisecond},
		{crash, library}:    {15200 * time.Millisecond},
	}}
	list := b.figures()
	want := []figures.Figure{
		{Scenario: "planned-handoff", System: "library", N: 1, Median: 9, P90: 9, Max: 9},
		{Scenario: "planned-handoff", System: "client-go", N: 1, Median: 1800, P90: 1800, Max: 1800},
		{Scenario: "graceful-exit", System: "library", N: 1, Median: 51, P90: 51, Max: 51},
		{Scenario: "crash", System: "library", N: 1, Median: 15200, P90: 15200, Max: 15200},
	}
	if !slices.Equal(list, want) {
		t.Errorf("got %+v, want %+v", list, want)
	}
	var out strings.Builder
	printTable(&out, list)
	table := `scenario         system     n  median   p90      max      to client-go  target
planned-handoff  library    1  9.0 ms   9.0 ms   9.0 ms   0.0050        <= 25.0 ms, met
planned-handoff  client-go  1  1.8 s    1.8 s    1.8 s                  
graceful-exit    library    1  51.0 ms  51.0 ms  51.0 ms                <= 50.0 ms, missed
crash            library    1  15.2 s   15.2 s   15.2 s                 <= 15.2 s, met
`
	if got := out.String(); got != table {
		t.Errorf("got\n%s\nwant\n%s", got, table)
	}
}

// A leader is who writes to the lease. What was before the time that is looked at, or is after it, does not count, except
// for watches, which may have been there for long.
func TestCount(t *testing.T) {
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var log strings.Builder
	request := func(after time.Duration, user, uid, verb, resource, stage string) {
		fmt.Fprintf(&log, `{"stage":%q,"verb":%q,"user":{"username":%q,"uid":%q},"objectRef":{"resource":%q},"requestReceivedTimestamp":%q}`+"\n",
			stage, verb, user, uid, resource, from.Add(after).Format("2006-01-02T15:04:05.000000Z"))
	}
	request(-time.Minute, "worker", "leader", "watch", "leases", "ResponseStarted")
	request(-time.Minute, "worker", "follower", "watch", "leases", "ResponseStarted")
	request(-time.Minute, "worker", "follower", "watch", "leasecandidates", "ResponseStarted")
	request(-time.Minute, "worker", "follower", "watch", "leases", "ResponseComplete")
	request(-time.Microsecond, "worker", "leader", "patch", "leases", "ResponseComplete")
	request(0, "worker", "leader", "patch", "leases", "ResponseComplete")
	request(time.Second, "worker", "leader", "patch", "leases", "ResponseComplete")
	request(time.Second, "worker", "leader", "patch", "leasecandidates", "ResponseComplete")
	request(time.Second, "candidate", "one", "get", "leases", "ResponseComplete")
	request(time.Second, "candidate", "other", "get", "leases", "ResponseComplete")
	request(time.Second, "candidate", "other", "get", "leases", "ResponseComplete")
	request(2*time.Second, "worker", "leader", "patch", "leases", "ResponseComplete")
	records, err := parseAudit([]byte(log.String()))
	if err != nil {
		t.Fatal(err)
	}
	want := []usage{
		{system: library, leader: true, n: 1, writes: 2, others: 1, watches: 1},
		{system: library, n: 1, watches: 2},
		{system: clientGo, n: 2, others: 1.5},
	}
	if got := count(records, from, from.Add(2*time.Second)); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
