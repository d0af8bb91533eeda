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
	"text/tabwriter"

	"github.com/lease-coordinator/coordinator/test/figures"
)

// target is what is aimed at with the library, in milliseconds, as a median. The gap of a planned hand-off does not count
// how long the work takes to stop, and a crash is one lease duration and what follows.
var target = map[string]float64{planned: 25, exit: 50, crash: 15_200}

func (b *bench) figures() []figures.Figure {
	var list []figures.Figure
	for _, scenario := range scenarios {
		for _, s := range systems {
			if all := b.taken[measure{scenario, s.name}]; len(all) > 0 {
				list = append(list, figures.Of(scenario, s.name, all))
			}
		}
	}
	return list
}

func printTable(w io.Writer, list []figures.Figure) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "scenario\tsystem\tn\tmedian\tp90\tmax\tto client-go\ttarget")
	for _, f := range list {
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", f.Scenario, f.System, f.N,
			figures.Text(f.Median), figures.Text(f.P90), figures.Text(f.Max), ratio(f, list), verdict(f))
	}
	_ = tw.Flush()
}

func ratio(f figures.Figure, list []figures.Figure) string {
	for _, other := range list {
		if f.System == library && other.System == clientGo && other.Scenario == f.Scenario && other.Median > 0 {
			return fmt.Sprintf("%.4f", f.Median/other.Median)
		}
	}
	return ""
}

func verdict(f figures.Figure) string {
	if f.System != library {
		return ""
	}
	return judge(figures.Text(target[f.Scenario]), f.Median <= target[f.Scenario])
}

func judge(aim string, met bool) string {
	if met {
		return "<= " + aim + ", met"
	}
	return "<= " + aim + ", missed"
}
