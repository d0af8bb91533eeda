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

package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Format is how something is printed.
type Format string

// Formats.
const (
	Text Format = "text"
	JSON Format = "json"
	YAML Format = "yaml"
)

// ParseFormat returns the format of that name.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case Text, JSON, YAML:
		return f, nil
	}
	return "", fmt.Errorf("%q is no output format: must be text, json or yaml", name)
}

// Print prints explanations, each as a document of its own.
func Print(w io.Writer, format Format, explanations ...*Explanation) error {
	for i, x := range explanations {
		var document []byte
		var err error
		if format == Text {
			document = x.text()
			if i > 0 {
				document = append([]byte("\n"), document...)
			}
		} else if document, err = Encode(format, x); err != nil {
			return fmt.Errorf("printing lease %s: %w", x.Lease, err)
		} else if format == YAML && i > 0 {
			document = append([]byte("---\n"), document...)
		}
		if _, err := w.Write(document); err != nil {
			return fmt.Errorf("printing lease %s: %w", x.Lease, err)
		}
	}
	return nil
}

// Encode returns a value as an indented JSON or a YAML document.
func Encode(format Format, value any) ([]byte, error) {
	if format == YAML {
		return yaml.Marshal(value)
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(value)
	return b.Bytes(), err
}

// sources says, for people, where a strategy comes from.
func sourceText(s strategy.Source) string {
	switch s {
	case strategy.SourceFlag:
		return "by --lease-strategy"
	case strategy.SourceConfigFile:
		return "by the configuration file"
	case strategy.SourceLeaseAnnotation:
		return "by the Lease's annotation " + v1alpha1.StrategyOverrideAnnotation
	case strategy.SourceCandidates:
		return "as its candidates ask for"
	}
	return string(s)
}

// text returns the explanation for people.
func (x *Explanation) text() []byte {
	var b bytes.Buffer
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(cells ...string) { fmt.Fprintln(table, strings.Join(cells, "\t")) }
	row("Lease:", Clean(x.Lease))
	switch {
	case x.Strategy == "":
		row("Strategy:", "none")
	default:
		row("Strategy:", fmt.Sprintf("%s (%s)", Clean(x.Strategy), sourceText(x.StrategySource)))
	}
	row("Holder:", x.holderText())
	if x.PreferredHolder != "" {
		row("Preferred:", Clean(x.PreferredHolder))
	}
	if x.asOf != "" {
		row("As of:", fmt.Sprintf("%s, %s", stamp(x.Now.Time), x.asOf))
	}
	flush(table)
	if len(x.Ranking) > 0 {
		fmt.Fprintln(&b)
		head := []string{"RANK", "NAME", "STATE"}
		width := 0
		for _, c := range x.Ranking {
			// All that are ranked have keys of the same names.
			if len(c.Keys) > width {
				head = head[:3]
				for _, k := range c.Keys {
					head = append(head, strings.ToUpper(Clean(k.Name)))
				}
				width = len(c.Keys)
			}
		}
		row(append(head, "WHY")...)
		for i, c := range x.Ranking {
			rank := "-"
			if c.Admissible && x.ranked {
				rank = fmt.Sprint(i + 1)
			}
			cells := []string{rank, Clean(c.Name), string(c.State)}
			for _, k := range c.Keys {
				cells = append(cells, Clean(k.text()))
			}
			for range width - len(c.Keys) {
				cells = append(cells, "-")
			}
			row(append(cells, Clean(c.Reason))...)
		}
		flush(table)
	}
	fmt.Fprintf(&b, "\nNext: %s\n", Clean(x.Sentence))
	if x.LookAgainAt == nil {
		fmt.Fprintln(&b, "Looks again when something changes.")
	} else {
		fmt.Fprintf(&b, "Looks again %s, at %s, or when something changes.\n", relative(x.LookAgainAt.Sub(x.Now.Time)), stamp(x.LookAgainAt.Time))
	}
	for _, warning := range x.Warnings {
		fmt.Fprintf(&b, "Warning: %s\n", Clean(warning))
	}
	return b.Bytes()
}

// flush ends a table. Its writer is a buffer, which takes everything.
func flush(table *tabwriter.Writer) { _ = table.Flush() }

func (x *Explanation) holderText() string {
	switch {
	case x.Holder == "" && x.claim.Holder != "":
		return fmt.Sprintf("none, but the claim of %s %s", Clean(x.claim.Holder), x.claimText())
	case x.Holder == "":
		return "none"
	}
	return fmt.Sprintf("%s (renewed %s ago; its claim %s)", Clean(x.Holder), Rounded(x.Now.Sub(x.claim.Seen)), x.claimText())
}

func (x *Explanation) claimText() string {
	left := x.claim.End().Sub(x.Now.Time)
	if left <= 0 {
		return fmt.Sprintf("ran out %s ago", Rounded(-left))
	}
	return fmt.Sprintf("runs out in %s", Rounded(left))
}

func relative(d time.Duration) string {
	if d <= 0 {
		return "at once"
	}
	return "in " + Rounded(d)
}

// Rounded prints a duration as far as people care for it.
func Rounded(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(100 * time.Millisecond)
	default:
		d = d.Round(time.Millisecond)
	}
	text := d.String()
	// 15m0s says no more than 15m.
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Clean keeps what somebody wrote into an object from moving the reader's cursor or the table's cells.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, text)
}
