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

package doctor

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/internal/doctor/checks"
	"github.com/lease-coordinator/coordinator/internal/explain"
)

// Report is what was found: the wire form. Programs read it, so fields are only ever added.
type Report struct {
	// Server is the API server's address, Version this program's, and Now the API server's time.
	Server  string      `json:"server"`
	Version string      `json:"version"`
	Now     metav1.Time `json:"now"`
	// Summary counts the findings by severity.
	Summary map[checks.Severity]int `json:"summary"`
	// Findings are in the order of the checks, what is worse first.
	Findings []checks.Finding `json:"findings"`
}

// NewReport judges facts.
func NewReport(server, version string, facts *checks.Facts) *Report {
	r := &Report{
		Server: server, Version: version, Now: metav1.NewTime(facts.Now.UTC().Truncate(time.Second)),
		Summary:  map[checks.Severity]int{},
		Findings: checks.Examine(facts),
	}
	for _, s := range checks.Severities() {
		r.Summary[s] = 0
	}
	for _, f := range r.Findings {
		r.Summary[f.Severity]++
	}
	return r
}

// Exit codes of a report, besides 0. What could not be found out has that of any command that could not find out.
const (
	ExitUnchecked = 1
	ExitWarning   = 3
	ExitError     = 4
)

// ExitCode goes by the worst finding.
func (r *Report) ExitCode() int {
	switch {
	case r.Summary[checks.Error] > 0:
		return ExitError
	case r.Summary[checks.Warning] > 0:
		return ExitWarning
	case r.Summary[checks.Unchecked] > 0:
		return ExitUnchecked
	}
	return 0
}

// Print prints the report.
func (r *Report) Print(w io.Writer, format explain.Format) error {
	document := r.text()
	if format != explain.Text {
		var err error
		if document, err = explain.Encode(format, r); err != nil {
			return fmt.Errorf("printing the report: %w", err)
		}
	}
	if _, err := w.Write(document); err != nil {
		return fmt.Errorf("printing the report: %w", err)
	}
	return nil
}

const (
	// width is that of the table: a common terminal's, so that what is piped looks as on screen.
	width = 100
	// most rows are printed of one outcome. Programs get them all.
	most = 10
)

// text returns the report as a table for people.
func (r *Report) text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s at %s, by lease-coordinator %s\n\n", explain.Clean(r.Server), r.Now.UTC().Format(time.RFC3339), r.Version)
	second := len("CHECK")
	for _, f := range r.Findings {
		second = max(second, len(f.Check))
	}
	first := len(checks.Unchecked)
	indent := strings.Repeat(" ", first+2+second+2)
	row := func(severity checks.Severity, check, text string) {
		lines := wrap(explain.Clean(text), width-len(indent))
		fmt.Fprintf(&b, "%-*s  %-*s  %s\n", first, severity, second, check, lines[0])
		for _, line := range lines[1:] {
			fmt.Fprintf(&b, "%s%s\n", indent, line)
		}
	}
	more := func(text string) {
		for _, line := range wrap(explain.Clean(text), width-len(indent)) {
			fmt.Fprintf(&b, "%s%s\n", indent, line)
		}
	}
	fmt.Fprintf(&b, "%-*s  %-*s  %s\n", first, "STATE", second, "CHECK", "FOUND")
	said := ""
	for i := 0; i < len(r.Findings); {
		f := r.Findings[i]
		same := i
		for same < len(r.Findings) && r.Findings[same].Check == f.Check && r.Findings[same].Outcome == f.Outcome && f.Outcome != "" {
			same++
		}
		same = max(same, i+1)
		for j, f := range r.Findings[i:same] {
			if j == most {
				more(fmt.Sprintf("... and %d more like this; -o json has them all.", same-i-most))
				break
			}
			text := f.Found
			if f.Severity == checks.Unchecked && text == said {
				// One right that is missing leaves many checks undone.
				text = "not checked: as above"
			}
			said = f.Found
			if f.Object != "" {
				text = f.Object + ": " + text
			}
			row(f.Severity, f.Check, text)
			last := j == min(same-i, most)-1
			// What follows is the same for all of one outcome.
			if f.Follows != "" && last {
				more("Follows: " + f.Follows)
			}
			if f.Mend != "" && (last || f.Mend != r.Findings[i+j+1].Mend) {
				more("Mend: " + f.Mend)
			}
		}
		i = same
	}
	var counts []string
	for _, s := range checks.Severities() {
		counts = append(counts, fmt.Sprintf("%d %s", r.Summary[s], s))
	}
	fmt.Fprintf(&b, "\n%s\n", strings.Join(counts, ", "))
	return b.Bytes()
}

// wrap breaks a text into lines, at least one, of that width; a command between backquotes stays whole, so that it can be
// copied.
func wrap(text string, width int) []string {
	var words []string
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			// It sticks to what is around it.
			words[len(words)-1] += "`" + part + "`"
			continue
		}
		pieces := strings.Split(part, " ")
		if i > 0 {
			words[len(words)-1] += pieces[0]
			pieces = pieces[1:]
		}
		words = append(words, pieces...)
	}
	lines := []string{""}
	for _, word := range words {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len([]rune(*last))+1+len([]rune(word)) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}
