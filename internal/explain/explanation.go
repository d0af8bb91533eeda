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

// Package explain says why the present leader of a lease leads and each other candidate does not: of objects that
// somebody saved, of a cluster, and of what a running coordinator knows. What is decided and why comes from
// internal/election; this package gathers the facts and puts the answer into words and JSON. It writes nothing to a
// cluster. What would follow from a change is for package plan below it.
package explain

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/blang/semver/v4"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Facts are a lease, and what the election makes of it at one time.
type Facts struct {
	Key types.NamespacedName
	// Lease is in canonical form; nil if there is none. Read-only.
	Lease *coordinationv1.Lease
	// Claim is the claim on it.
	Claim election.Claim
	// AwaitingTakeUp is set while the holder was appointed and has not taken up.
	AwaitingTakeUp bool
	// Now is when it was decided.
	Now time.Time
	election.Explanation
}

// Explanation is what is shown of a lease: the wire form. Programs read it, so fields are only ever added.
type Explanation struct {
	// Lease is "namespace/name".
	Lease string `json:"lease"`
	// Strategy is the one that the election goes by, and StrategySource where it comes from; "" if there is none.
	Strategy       string          `json:"strategy"`
	StrategySource strategy.Source `json:"strategySource"`
	// Holder and PreferredHolder are the Lease's; "" if there is none.
	Holder          string `json:"holder"`
	PreferredHolder string `json:"preferredHolder"`
	// Ranking has the admissible candidates, best first, then the others by name.
	Ranking []Standing `json:"ranking"`
	// Action is what the coordinator does next, and Subject whom that, or else the reason, is about.
	Action  election.Action `json:"action"`
	Subject string          `json:"subject"`
	// Reason and Sentence say why, for machines and for people.
	Reason   election.Reason `json:"reason"`
	Sentence string          `json:"sentence"`
	// LookAgainAt is when that changes by the passing of time alone; null for never.
	LookAgainAt *metav1.MicroTime `json:"lookAgainAt"`
	// Warnings tells of values that do not count.
	Warnings []string `json:"warnings"`
	// Now is the time at which all this holds.
	Now metav1.MicroTime `json:"now"`

	claim election.Claim
	// ranked is set if the order of the ranking means anything.
	ranked bool
	// asOf says where Now comes from, for people.
	asOf string
}

// Standing is what is shown of a candidate.
type Standing struct {
	Name       string         `json:"name"`
	Admissible bool           `json:"admissible"`
	State      election.State `json:"state"`
	// Reason says why the candidate does not lead, or that it does.
	Reason string `json:"reason"`
	// Keys are what it is ranked by, the most important first; its priority before them if any candidate has one.
	Keys []Key `json:"keys"`
}

// Key is one thing that a candidate is ranked by.
type Key struct {
	Name string `json:"name"`
	// Value is a bool, a number or a text.
	Value any `json:"value"`
}

// New puts facts into the wire form.
func New(f Facts) *Explanation {
	d := f.Decision
	x := &Explanation{
		Lease: f.Key.String(), Strategy: string(f.Strategy), StrategySource: f.Source,
		Ranking: make([]Standing, 0, len(f.Ranking)),
		Action:  d.Action, Subject: subject(d), Reason: d.Reason, Sentence: d.Sentence(),
		Warnings: []string{},
		Now:      metav1.NewMicroTime(f.Now.UTC()),
		claim:    f.Claim,
		ranked:   f.ranked(),
	}
	if f.Lease != nil {
		x.Holder, x.PreferredHolder = textOf(f.Lease.Spec.HolderIdentity), textOf(f.Lease.Spec.PreferredHolder)
	}
	if !d.LookAgain.IsZero() {
		t := metav1.NewMicroTime(d.LookAgain.UTC())
		x.LookAgainAt = &t
	}
	prioritized := false
	for _, c := range f.Ranking {
		prioritized = prioritized || c.Priority > 0
	}
	why := newWhy(&f)
	for i := range f.Ranking {
		c := &f.Ranking[i]
		x.Ranking = append(x.Ranking, Standing{
			Name: c.Name, Admissible: c.Inadmissible == "", State: c.State, Reason: why.of(i), Keys: keysOf(c, prioritized),
		})
	}
	x.Warnings = append(x.Warnings, f.Warnings...)
	for _, c := range f.Ranking {
		for _, w := range c.Warnings {
			x.Warnings = append(x.Warnings, "candidate "+c.Name+": "+w)
		}
	}
	return x
}

// subject returns whom the decision is about.
func subject(d election.Decision) string {
	if d.Action == election.Ping {
		return joined(d.Pings)
	}
	return d.Candidate
}

func joined(names []string) string {
	var text string
	for i, name := range names {
		if i > 0 {
			text += ", "
		}
		text += name
	}
	return text
}

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

const priorityKey = "priority"

// keysOf returns what the candidate is ranked by. An inadmissible one is not ranked.
func keysOf(c *election.Standing, prioritized bool) []Key {
	keys := make([]Key, 0, len(c.Keys)+1)
	if c.Inadmissible != "" {
		return keys
	}
	if prioritized {
		keys = append(keys, Key{Name: priorityKey, Value: int64(c.Priority)})
	}
	for _, k := range c.Keys {
		keys = append(keys, Key{Name: k.Name, Value: wireValue(k)})
	}
	return keys
}

// wireValue keeps what JSON has a type for; the rest becomes text.
func wireValue(k strategy.Key) any {
	switch v := k.Value.(type) {
	case bool, int64, uint64, string:
		return v
	case float64:
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v
		}
	case *semver.Version:
		return v.String()
	}
	return k.Text()
}

// text returns the value for people.
func (k Key) text() string { return fmt.Sprint(k.Value) }

// ranked reports whether the candidates could be ranked: not if they differ, or their strategy is not known.
func (f *Facts) ranked() bool {
	switch f.Decision.Reason {
	case election.ReasonForeignStrategy:
		return false
	case election.ReasonExcluded:
		return true
	}
	return f.Decision.Strategy != ""
}

// led reports who leads by the facts: the holder whose claim holds. taken is false while it was only appointed.
func (f *Facts) led() (holder string, taken bool) {
	if f.Lease == nil || !f.Now.Before(f.Claim.End()) {
		return "", false
	}
	return textOf(f.Lease.Spec.HolderIdentity), !f.AwaitingTakeUp
}

// byKey orders leases by namespace and name.
func byKey(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
