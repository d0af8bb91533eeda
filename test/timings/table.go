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
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// target is what is aimed at with our coordinator and unmodified candidates, as a median.
var target = map[scenario]time.Duration{
	first:             2500 * time.Millisecond,
	plannedTotal:      15 * time.Second,
	plannedLeaderless: 4 * time.Second,
	exit:              17500 * time.Millisecond,
	crash:             17500 * time.Millisecond,
}

// figure is what was measured of one scenario with one way of electing.
type figure struct {
	Scenario scenario `json:"scenario"`
	System   string   `json:"system"`
	N        int      `json:"n"`
	Median   float64  `json:"median_ms"`
	P90      float64  `json:"p90_ms"`
	Max      float64  `json:"max_ms"`
}

func collect(systems []*system, courses []*course) []figure {
	var figures []figure
	for _, sc := range scenarios {
		for _, s := range systems {
			var all []time.Duration
			for _, c := range courses {
				if c.system == s {
					all = append(all, c.taken[sc]...)
				}
			}
			if len(all) == 0 {
				continue
			}
			slices.Sort(all)
			figures = append(figures, figure{sc, s.name, len(all),
				milliseconds(quantile(all, 0.5)), milliseconds(quantile(all, 0.9)), milliseconds(all[len(all)-1])})
		}
	}
	return figures
}

// quantile interpolates between the two nearest of sorted values.
func quantile(sorted []time.Duration, q float64) time.Duration {
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 >= len(sorted) {
		return sorted[below]
	}
	return sorted[below] + time.Duration((at-float64(below))*float64(sorted[below+1]-sorted[below]))
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func printTable(w io.Writer, figures []figure) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "scenario\tsystem\tn\tmedian\tp90\tmax\tto in-tree\ttarget")
	last := scenario("")
	for _, f := range figures {
		name := string(f.Scenario)
		if f.Scenario == last {
			name = ""
		}
		last = f.Scenario
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", name, f.System, f.N, seconds(f.Median), seconds(f.P90), seconds(f.Max), ratio(f, figures), verdict(f))
	}
	_ = tw.Flush()
}

func seconds(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}

func ratio(f figure, figures []figure) string {
	for _, other := range figures {
		if other.Scenario == f.Scenario && other.System == inTree && other.Median > 0 && f.System != inTree {
			return fmt.Sprintf("%.2f", f.Median/other.Median)
		}
	}
	return ""
}

func verdict(f figure) string {
	aim, ok := target[f.Scenario]
	if !ok || f.System != oursOn && f.System != oursOff {
		return ""
	}
	met := "met"
	if f.Median > milliseconds(aim) {
		met = "missed"
	}
	return fmt.Sprintf("%s, %s", seconds(milliseconds(aim)), met)
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
		milliseconds(quantile(all, 0.5)), milliseconds(quantile(all, 0.9)), milliseconds(all[len(all)-1]), len(all))
}

func writeJSON(path string, figures []figure) error {
	data, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the figures: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}
