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
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/lease-coordinator/coordinator/test/figures"
)

// target is what is aimed at with our coordinator and unmodified candidates, as a median.
var target = map[scenario]time.Duration{
	first:             2500 * time.Millisecond,
	plannedTotal:      15 * time.Second,
	plannedLeaderless: 4 * time.Second,
	exit:              17500 * time.Millisecond,
	crash:             17500 * time.Millisecond,
}

func collect(systems []*system, courses []*course) []figures.Figure {
	var list []figures.Figure
	for _, sc := range scenarios {
		for _, s := range systems {
			var all []time.Duration
			for _, c := range courses {
				if c.system == s {
					all = append(all, c.taken[sc]...)
				}
			}
			if len(all) > 0 {
				list = append(list, figures.Of(string(sc), s.name, all))
			}
		}
	}
	return list
}

func printTable(w io.Writer, list []figures.Figure) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "scenario\tsystem\tn\tmedian\tp90\tmax\tto in-tree\ttarget")
	last := ""
	for _, f := range list {
		name := f.Scenario
		if f.Scenario == last {
			name = ""
		}
		last = f.Scenario
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", name, f.System, f.N,
			figures.Text(f.Median), figures.Text(f.P90), figures.Text(f.Max), ratio(f, list), verdict(f))
	}
	_ = tw.Flush()
}

func ratio(f figures.Figure, list []figures.Figure) string {
	for _, other := range list {
		if other.Scenario == f.Scenario && other.System == inTree && other.Median > 0 && f.System != inTree {
			return fmt.Sprintf("%.2f", f.Median/other.Median)
		}
	}
	return ""
}

func verdict(f figures.Figure) string {
	aim, ok := target[scenario(f.Scenario)]
	if !ok || f.System != oursOn && f.System != oursOff {
		return ""
	}
	limit := figures.Milliseconds(aim)
	met := "met"
	if f.Median > limit {
		met = "missed"
	}
	return fmt.Sprintf("%s, %s", figures.Text(limit), met)
}

// reactions sums up how soon a coordinator wrote after a candidate did.
func reactions(s *system, courses []*course) string {
	// What comes later was not prompted by the candidate's write but by a deadline.
	const prompt = 500 * time.Millisecond
	var all []time.Duration
	t := s.recorder.Timeline()
	for _, c := range courses {
		if c.system != s {
			continue
		}
		for _, r := range t.Reactions(c.lease, prompt) {
			all = append(all, r.Latency)
		}
	}
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	return fmt.Sprintf("median %.1f ms, p90 %.1f ms, max %.1f ms (n=%d)",
		figures.Milliseconds(figures.Quantile(all, 0.5)), figures.Milliseconds(figures.Quantile(all, 0.9)), figures.Milliseconds(all[len(all)-1]), len(all))
}
