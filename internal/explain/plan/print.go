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

package plan

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/lease-coordinator/coordinator/internal/explain"
)

// Print prints a plan.
func Print(w io.Writer, format explain.Format, p *Plan) error {
	document := p.text()
	if format != explain.Text {
		var err error
		if document, err = explain.Encode(format, p); err != nil {
			return fmt.Errorf("printing the plan: %w", err)
		}
	}
	if _, err := w.Write(document); err != nil {
		return fmt.Errorf("printing the plan: %w", err)
	}
	return nil
}

// text returns the plan for people.
func (p *Plan) text() []byte {
	var b bytes.Buffer
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("From %s on, %s.\n", p.Now.UTC().Format(time.RFC3339), explain.Clean(p.asOf))
	for i, s := range p.Steps {
		name := "As it is"
		if i > 0 {
			name = fmt.Sprintf("Step %d, %s", i, explain.Clean(s.Step))
		}
		line("%s: %s", name, changes(s.Count))
		for _, c := range s.Changes {
			from := c.From
			if from == "" {
				from = "nobody"
			}
			line("  %s: %s -> %s (%s) after %s", explain.Clean(c.Lease), explain.Clean(from), explain.Clean(c.To), explain.Clean(version(c.Version, c.EmulationVersion)), seconds(c.AfterSeconds))
			line("    %s", explain.Clean(c.Why))
		}
		for _, lease := range s.Leaderless {
			line("  %s: nobody leads", explain.Clean(lease))
		}
		for _, waiting := range s.Waiting {
			line("  not settled: %s", explain.Clean(waiting))
		}
	}
	line("\nIn all: %s", changes(p.Total))
	for _, l := range p.Leaders {
		if l.Leader == "" {
			line("%s ends up without a leader: %s", explain.Clean(l.Lease), explain.Clean(l.Sentence))
		} else {
			line("%s ends up led by %s (%s)", explain.Clean(l.Lease), explain.Clean(l.Leader), explain.Clean(version(l.Version, l.EmulationVersion)))
		}
	}
	if len(p.Skews) == 0 {
		line("Version skew: at no time was a leader newer than the oldest candidate left.")
		return b.Bytes()
	}
	line("Version skew: a leader was newer than the oldest candidate left:")
	for _, s := range p.Skews {
		when := "as it is"
		if s.Step != "" {
			when = "from " + explain.Clean(s.Step) + " on"
		}
		line("  %s: %s (%s) led for %s beside %s (%s), %s", explain.Clean(s.Lease), explain.Clean(s.Leader), explain.Clean(s.Version),
			seconds(s.Seconds), explain.Clean(s.Oldest), explain.Clean(s.OldestVersion), when)
	}
	return b.Bytes()
}

func changes(n int) string {
	switch n {
	case 0:
		return "no change"
	case 1:
		return "1 leadership change"
	}
	return fmt.Sprintf("%d leadership changes", n)
}

func version(binary, emulation string) string {
	switch {
	case binary == "" && emulation == "":
		return "of no known version"
	case emulation == "" || emulation == binary:
		return binary
	}
	return binary + ", emulates " + emulation
}

func seconds(s float64) string {
	return explain.Rounded(time.Duration(s * float64(time.Second)))
}
