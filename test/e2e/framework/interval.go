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
	"cmp"
	"slices"
	"time"
)

// Interval is a span of time that includes its start and not its end.
type Interval struct{ Start, End time.Time }

// Duration is how long it lasts.
func (i Interval) Duration() time.Duration { return i.End.Sub(i.Start) }

// Contains reports whether t is within the interval.
func (i Interval) Contains(t time.Time) bool { return !t.Before(i.Start) && t.Before(i.End) }

// intersect returns what two intervals have in common.
func (i Interval) intersect(j Interval) (Interval, bool) {
	if j.Start.After(i.Start) {
		i.Start = j.Start
	}
	if j.End.Before(i.End) {
		i.End = j.End
	}
	return i, i.Start.Before(i.End)
}

func compareIntervals(a, b Interval) int {
	return cmp.Or(a.Start.Compare(b.Start), a.End.Compare(b.End))
}

// union returns the least number of intervals that cover the same time, in order.
func union(intervals []Interval) []Interval {
	sorted := slices.Clone(intervals)
	slices.SortFunc(sorted, compareIntervals)
	var merged []Interval
	for _, i := range sorted {
		if !i.Start.Before(i.End) {
			continue
		}
		if n := len(merged); n > 0 && !i.Start.After(merged[n-1].End) {
			if i.End.After(merged[n-1].End) {
				merged[n-1].End = i.End
			}
			continue
		}
		merged = append(merged, i)
	}
	return merged
}

// subtract returns what of whole is in none of the parts, in order.
func subtract(whole Interval, parts []Interval) []Interval {
	var rest []Interval
	for _, p := range union(parts) {
		p, ok := whole.intersect(p)
		if !ok {
			continue
		}
		if whole.Start.Before(p.Start) {
			rest = append(rest, Interval{whole.Start, p.Start})
		}
		whole.Start = p.End
	}
	if whole.Start.Before(whole.End) {
		rest = append(rest, whole)
	}
	return rest
}
