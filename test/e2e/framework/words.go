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

package framework

import (
	"context"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The words of client-go's elector (tools/leaderelection), which every
// component and the coordinator log whatever they do besides. A start is logged
// just before the callback that does the work; a failed renewal just before the
// leading context is cancelled and, where configured, the lease is released.
const (
	wordAcquired = "successfully acquired lease"
	wordLost     = "failed to renew lease"
)

// leadershipWord recognizes what a process says about its own leadership.
func leadershipWord(info ProcessInfo, at time.Time, line string) (Event, bool) {
	e := Event{Time: at, Subject: info.Name, Process: info, Lease: info.Lease}
	if info.Kind == CandidateKind {
		return candidateWord(e, line)
	}
	lower := strings.ToLower(line)
	switch {
	case strings.Contains(lower, wordAcquired):
		e.Kind = StartedLeading
	case strings.Contains(lower, wordLost):
		e.Kind = StoppedLeading
		e.Detail = lossReason(line)
	default:
		return Event{}, false
	}
	if lock, ok := logValue(line, "lock"); ok && strings.Contains(lock, "/") {
		e.Lease = lock
	}
	if stamp, ok := ownStamp(at, line); ok {
		e.Time = stamp
	}
	return e, true
}

// CandidateLine is what test/candidate prints for each of its events.
type CandidateLine struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Identity string    `json:"identity"`
	// Monotonic is CLOCK_MONOTONIC in nanoseconds.
	Monotonic int64 `json:"monotonic"`
	// Detail is what test/worker adds.
	Detail string `json:"detail"`
}

func candidateWord(e Event, line string) (Event, bool) {
	var said CandidateLine
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &said) != nil {
		return Event{}, false
	}
	switch said.Event {
	case string(StartedLeading):
		e.Kind = StartedLeading
	case string(StoppedLeading):
		e.Kind = StoppedLeading
	default:
		return Event{}, false
	}
	e.Time = said.Time.Round(0)
	return e, true
}

// Said returns what the candidate has printed so far of an event of test/candidate or test/worker, in order.
func (c *Candidate) Said(event EventKind) []CandidateLine {
	var said []CandidateLine
	for _, line := range c.LogLines(`"event":"` + string(event) + `"`) {
		var l CandidateLine
		if json.Unmarshal([]byte(line), &l) == nil {
			said = append(said, l)
		}
	}
	return said
}

// LastSaid returns when the candidate last printed the event, by the machine's monotonic clock; 0 if it has not.
func (c *Candidate) LastSaid(event EventKind) time.Duration {
	said := c.Said(event)
	if len(said) == 0 {
		return 0
	}
	return time.Duration(said[len(said)-1].Monotonic)
}

// WaitLeads waits until the candidate has begun to lead for the nth time, by its own word.
func (c *Candidate) WaitLeads(ctx context.Context, n int) error {
	return WaitFor(ctx, c.Name()+" to lead", func(context.Context) (bool, error) {
		return len(c.Said(StartedLeading)) >= n, nil
	})
}

// Gap is from when one candidate last stopped leading to when the other last began, by their own stamps of the machine's
// monotonic clock.
func Gap(from, to *Candidate) time.Duration {
	return to.LastSaid(StartedLeading) - from.LastSaid(StoppedLeading)
}

func lossReason(line string) string {
	if reason, ok := logValue(line, "err"); ok {
		return reason
	}
	return ""
}

var logValuePattern = regexp.MustCompile(`(?:^|[\s,{])"?(\w+)"?[=:]\s*("(?:[^"\\]|\\.)*")`)

// logValue finds a quoted value in a line of klog's text format (key="value")
// or of JSON ("key":"value").
func logValue(line, key string) (string, bool) {
	for _, m := range logValuePattern.FindAllStringSubmatch(line, -1) {
		if m[1] == key {
			value, err := strconv.Unquote(m[2])
			return value, err == nil
		}
	}
	return "", false
}

var klogHeader = regexp.MustCompile(`^[IWEF](\d{4} \d{2}:\d{2}:\d{2}\.\d{6})\s`)

// maxStampAge is how far a process's own stamp may be from the moment its line
// arrived here before it is no longer believed: a stamp is more exact than an
// arrival on a busy machine, unless it is something else altogether.
const maxStampAge = 30 * time.Second

// ownStamp finds the time at which the process itself says it wrote the line.
func ownStamp(at time.Time, line string) (time.Time, bool) {
	var stamp time.Time
	if m := klogHeader.FindStringSubmatch(line); m != nil {
		// klog leaves out the year.
		t, err := time.ParseInLocation("2006 0102 15:04:05.000000", strconv.Itoa(at.Year())+" "+m[1], time.Local)
		if err != nil {
			return time.Time{}, false
		}
		stamp = t
	} else {
		for _, key := range []string{"ts", "time"} {
			value, ok := logValue(line, key)
			if !ok {
				continue
			}
			for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.000Z0700"} {
				if t, err := time.Parse(layout, value); err == nil {
					stamp = t
					break
				}
			}
		}
	}
	if stamp.IsZero() || at.Sub(stamp).Abs() > maxStampAge {
		return time.Time{}, false
	}
	return stamp, true
}
