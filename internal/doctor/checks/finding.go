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

package checks

import (
	"slices"
	"strings"
)

// Severity says how much a finding matters.
type Severity string

// Severities, the least first.
const (
	// OK: the check found nothing to say more about.
	OK Severity = "ok"
	// Note: it is as somebody wants it, and worth knowing.
	Note Severity = "note"
	// Unchecked: it could not be found out, most often for want of a right.
	Unchecked Severity = "unchecked"
	// Warning: it works, until something else happens.
	Warning Severity = "warning"
	// Error: something does not work.
	Error Severity = "error"
)

// Severities lists all severities, the worst first.
func Severities() []Severity { return []Severity{Error, Warning, Unchecked, Note, OK} }

// Worse reports whether s matters more than other.
func (s Severity) Worse(other Severity) bool {
	all := Severities()
	return slices.Index(all, s) < slices.Index(all, other)
}

// Finding is one row of the table: the wire form. Programs read it, so fields are only ever added.
type Finding struct {
	// Check is the check's ID.
	Check string `json:"check"`
	// Outcome is the outcome's ID; "" for a check that is fine, or could not be made.
	Outcome  string   `json:"outcome"`
	Severity Severity `json:"severity"`
	// Object is what it is about, as "Kind namespace/name"; "" for the cluster.
	Object string `json:"object"`
	// Found says what was found, Follows what follows from it, and Mend what to do about it; "" if there is nothing to
	// say.
	Found   string `json:"found"`
	Follows string `json:"follows"`
	Mend    string `json:"mend"`
}

// Outcome is something that a check can find, besides that all is well.
type Outcome struct {
	// ID is unique among all outcomes.
	ID       string
	Severity Severity
	// When says, for the documentation, when this is what was found.
	When string
	// Follows and Mend are those of a Finding. Words of placeholders are replaced.
	Follows, Mend string
}

// placeholders are the words that Outcome.Follows and Outcome.Mend may have in the place of what was found.
var placeholders = []string{"NAMESPACE", "NAME", "RESOURCE", "SUBJECT", "VERSION"}

// values are what placeholders stand for.
type values map[string]string

// fill replaces the placeholders of a text.
func (v values) fill(text string) string {
	var pairs []string
	for _, p := range placeholders {
		if value, set := v[p]; set {
			pairs = append(pairs, p, value)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// object is what a finding is about.
type object struct{ kind, namespace, name string }

// cluster is what findings are about that are about no object.
var cluster = object{}

func (o object) String() string {
	switch {
	case o.kind == "":
		return ""
	case o.namespace == "":
		return o.kind + " " + o.name
	}
	return o.kind + " " + o.namespace + "/" + o.name
}

// findings collects what one check finds.
type findings struct {
	check string
	list  []Finding
}

// add adds a finding. NAMESPACE and NAME in the outcome's texts are the object's unless more says otherwise.
func (f *findings) add(outcome *Outcome, about object, found string, more ...values) {
	v := values{}
	if about != cluster {
		v["NAMESPACE"], v["NAME"] = about.namespace, about.name
	}
	for _, m := range more {
		//ordered: keys of a map to be
		for key, value := range m {
			v[key] = value
		}
	}
	f.list = append(f.list, Finding{
		Check: f.check, Outcome: outcome.ID, Severity: outcome.Severity, Object: about.String(),
		Found: found, Follows: v.fill(outcome.Follows), Mend: v.fill(outcome.Mend),
	})
}

// unchecked adds that something could not be found out, and why.
func (f *findings) unchecked(about object, why string) {
	f.list = append(f.list, Finding{Check: f.check, Severity: Unchecked, Object: about.String(), Found: "not checked: " + why})
}

// fine adds that something is as it should be.
func (f *findings) fine(found string) {
	f.list = append(f.list, Finding{Check: f.check, Severity: OK, Found: found})
}
