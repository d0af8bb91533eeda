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

package election

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Explanation is a decision with all that led to it.
type Explanation struct {
	Decision Decision
	// Strategy is the one that the election goes by, and Source where it comes from; "" if there is none.
	Strategy coordinationv1.CoordinatedLeaseStrategy
	Source   strategy.Source
	// Ranking has the admissible candidates, best first, then the others by name.
	Ranking []Standing
	// Warnings are those of LeaseWarnings.
	Warnings []string
}

// Standing is what is known of one candidate, and how it ranks.
type Standing struct {
	Verdict
	State State
	// BenchedUntil is until when the candidate is not appointed, and HeldOffUntil until when it does not take over from
	// a healthy holder; zero, or in the past, if it may.
	BenchedUntil, HeldOffUntil time.Time
	// HeldOff says why.
	HeldOff string
}

// State is what is known of a candidate's process.
type State string

// States of a candidate.
const (
	// StateAlive: it acked, or showed itself, within the election duration.
	StateAlive State = "Alive"
	// StateUnknown: it was not asked for a while. It is before it is preferred or appointed.
	StateUnknown State = "Unknown"
	// StateWaiting: it was pinged and may still ack.
	StateWaiting State = "Waiting"
	// StateSuspect: it was pinged and did not ack in time.
	StateSuspect State = "Suspect"
	// StateInadmissible: it does not count.
	StateInadmissible State = "Inadmissible"
)

// States lists all states of a candidate.
func States() []State {
	return []State{StateAlive, StateUnknown, StateWaiting, StateSuspect, StateInadmissible}
}

// Explain decides as Decide does, and says what led to it.
func Explain(s *Snapshot) Explanation {
	e := &evaluation{Snapshot: s, holder: holderOf(s.Lease)}
	x := Explanation{Decision: e.run(), Warnings: LeaseWarnings(s.Lease, s.Settings)}
	if x.Decision.Reason == ReasonExcluded {
		// Nothing comes of it, but who would lead may still be asked.
		e.rank()
	}
	x.Strategy, x.Source = e.ranking.name, e.ranking.source
	for _, v := range e.ranking.verdicts {
		standing := Standing{Verdict: v, BenchedUntil: s.Observed.benchedUntil(v.Name)}
		standing.HeldOffUntil, standing.HeldOff = s.Observed.heldOff(v.Name)
		switch {
		case v.Inadmissible != "":
			standing.State = StateInadmissible
		default:
			standing.State = e.state(v.Candidate, s.Now).named()
		}
		x.Ranking = append(x.Ranking, standing)
	}
	return x
}

func (l liveness) named() State {
	switch l {
	case alive:
		return StateAlive
	case waiting:
		return StateWaiting
	case suspect:
		return StateSuspect
	}
	return StateUnknown
}

// LeaseWarnings returns, for people, the annotations on a Lease whose value is invalid and is treated as absent.
func LeaseWarnings(l *coordinationv1.Lease, settings *Settings) []string {
	if l == nil {
		return nil
	}
	var warnings []string
	invalid := func(annotation, want string) {
		warnings = append(warnings, fmt.Sprintf("annotation %s: %q is not %s", annotation, l.Annotations[annotation], want))
	}
	if v, set := l.Annotations[v1alpha1.PreemptionAnnotation]; set && v != v1alpha1.PreemptionNever {
		invalid(v1alpha1.PreemptionAnnotation, fmt.Sprintf("%q", v1alpha1.PreemptionNever))
	}
	if v, set := l.Annotations[v1alpha1.PausedAnnotation]; set && v != v1alpha1.PausedTrue {
		invalid(v1alpha1.PausedAnnotation, fmt.Sprintf("%q", v1alpha1.PausedTrue))
	}
	if v, set := l.Annotations[v1alpha1.StrategyOverrideAnnotation]; set {
		if settings.Strategies.Get(coordinationv1.CoordinatedLeaseStrategy(v)) == nil {
			invalid(v1alpha1.StrategyOverrideAnnotation, fmt.Sprintf("one of %q", settings.Strategies.Names()))
		}
	}
	return warnings
}
