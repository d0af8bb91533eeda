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
	"bufio"
	"fmt"
	"os"
	"slices"
	"time"
)

// workPause is the longest time between two stamps of work that counts as
// uninterrupted: candidates stamp every 20 ms, if the machine lets them.
const workPause = 100 * time.Millisecond

// WorkSpan is a time of uninterrupted work of one candidate, since boot.
type WorkSpan struct {
	Identity   string
	Start, End time.Duration
}

// Duration is how long the work lasted.
func (s WorkSpan) Duration() time.Duration { return s.End - s.Start }

// Work returns the times in which candidates worked, by their own stamps of
// the machine's monotonic clock, in order. It is the finest measure there is of
// two leaders at once: no clock is read but that of the workers.
func Work(candidates ...*Candidate) ([]WorkSpan, error) {
	var spans []WorkSpan
	seen := map[string]bool{}
	for _, c := range candidates {
		if seen[c.WorkLog] {
			continue
		}
		seen[c.WorkLog] = true
		stamps, err := readStamps(c.WorkLog)
		if err != nil {
			return nil, fmt.Errorf("reading the work of %s: %w", c.Name(), err)
		}
		spans = append(spans, workSpans(c.Identity, stamps)...)
	}
	slices.SortStableFunc(spans, func(a, b WorkSpan) int { return int(a.Start - b.Start) })
	return spans, nil
}

// WorkOverlaps returns the pairs of spans of different candidates that share
// time, as the spans they share, with the identities joined by " and ".
func WorkOverlaps(spans []WorkSpan) []WorkSpan {
	var both []WorkSpan
	for i, a := range spans {
		for _, b := range spans[i+1:] {
			start, end := max(a.Start, b.Start), min(a.End, b.End)
			if a.Identity != b.Identity && start <= end {
				both = append(both, WorkSpan{a.Identity + " and " + b.Identity, start, end})
			}
		}
	}
	return both
}

func readStamps(path string) ([]time.Duration, error) {
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil // it has not even started
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var stamps []time.Duration
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var at int64
		if _, err := fmt.Sscan(lines.Text(), &at); err != nil {
			return nil, fmt.Errorf("unexpected line %q: %w", lines.Text(), err)
		}
		stamps = append(stamps, time.Duration(at))
	}
	return stamps, lines.Err()
}

// workSpans joins stamps that follow one another closely.
func workSpans(identity string, stamps []time.Duration) []WorkSpan {
	var spans []WorkSpan
	for _, at := range stamps {
		if n := len(spans); n > 0 && at-spans[n-1].End <= workPause {
			spans[n-1].End = at
			continue
		}
		spans = append(spans, WorkSpan{identity, at, at})
	}
	return spans
}
