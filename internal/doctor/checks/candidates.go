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
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
)

// lastingPriority is for how long a priority without an end may stand without a word.
const lastingPriority = 24 * time.Hour

var (
	candidateSilent = &Outcome{
		ID: "candidate-silent", Severity: Note,
		When:    "A candidate was asked for a sign of life and did not answer within the election duration.",
		Follows: "It is not appointed until it renews. It keeps nobody waiting, and its object is collected when the candidate TTL has passed.",
		Mend:    "See whether its process runs and reaches the API server. If it is gone for good: `kubectl -n NAMESPACE delete RESOURCE NAME`.",
	}

	clockCandidate = &Outcome{
		ID: "clock-candidate", Severity: Warning,
		When:    "The stamps of a candidate, or of the holder of a lease, differ from the API server's time by more than two seconds.",
		Follows: "The coordinator goes by its own clock and is not misled. The in-tree coordinator and plain electors on old versions are: they may take a lease too early, or too late.",
		Mend:    "Check time synchronization (NTP) on the host that it runs on.",
	}
	clockLocal = &Outcome{
		ID: "clock-local", Severity: Note,
		When:    "The clock of this machine differs from the API server's by more than two seconds.",
		Follows: "Nothing for the cluster. This examination goes by the API server's.",
		Mend:    "Check time synchronization (NTP) here.",
	}

	priorityOver = &Outcome{
		ID: "priority-over", Severity: Warning,
		When:    "A candidate's lease-coordinator.dev/priority-until has passed.",
		Follows: "Its priority no longer counts. Whoever set it may think that it does.",
		Mend:    "`kubectl -n NAMESPACE annotate RESOURCE NAME lease-coordinator.dev/priority- lease-coordinator.dev/priority-until-`.",
	}
	priorityLasting = &Outcome{
		ID: "priority-lasting", Severity: Note,
		When:    "A candidate has had a lease-coordinator.dev/priority without an end for more than a day.",
		Follows: "It goes before the strategy for ever.",
		Mend:    "If it is no longer meant: `kubectl -n NAMESPACE annotate RESOURCE NAME lease-coordinator.dev/priority-`.",
	}

	candidateIneligible = &Outcome{
		ID: "candidate-ineligible", Severity: Note,
		When:    "A candidate is marked never to lead.",
		Follows: "It is not appointed, even where it is alone.",
		Mend:    "When it is no longer needed: `kubectl -n NAMESPACE annotate RESOURCE NAME lease-coordinator.dev/ineligible-`.",
	}
	candidateAnnotation = &Outcome{
		ID: "candidate-annotation-invalid", Severity: Warning,
		When:    "An annotation of ours on a LeaseCandidate has a value that is not valid.",
		Follows: "A priority that is not valid counts as absent; lease-coordinator.dev/ineligible keeps a candidate from leading with any value.",
		Mend:    "Correct it, or remove it: `kubectl -n NAMESPACE annotate RESOURCE NAME ANNOTATION-`.",
	}
)

var candidateChecks = []Check{
	{ID: "candidates", Question: "Do candidates answer the coordinator's pings?", Outcomes: []*Outcome{candidateSilent}, run: checkSilent},
	{ID: "clocks", Question: "By how much do clocks differ? Stamps in Leases and LeaseCandidates are compared with when the API server took them, as it noted in managedFields in whole seconds.", Outcomes: []*Outcome{clockCandidate, clockLocal}, run: checkClocks},
	{ID: "priorities", Question: "Are there priorities that were forgotten?", Outcomes: []*Outcome{priorityOver, priorityLasting}, run: eachCandidate((*examination).checkPriority)},
	{ID: "candidate-annotations", Question: "What else is set on candidates?", Outcomes: []*Outcome{candidateIneligible, candidateAnnotation}, run: eachCandidate((*examination).checkCandidateAnnotations)},
}

func (c Candidate) about() object { return object{"LeaseCandidate", c.Namespace, c.Name} }

// eachCandidate is a check of all candidates.
func eachCandidate(check func(*examination, Candidate, *findings)) func(*examination, *findings) {
	return func(x *examination, f *findings) {
		if x.Candidates.Unknown != "" {
			f.unchecked(cluster, x.Candidates.Unknown)
			return
		}
		for _, c := range x.Candidates.List {
			check(x, c, f)
		}
		if len(f.list) == 0 {
			f.fine(plural(len(x.Candidates.List), "candidate"))
		}
	}
}

func checkSilent(x *examination, f *findings) {
	if why := x.unread(); why != "" {
		f.unchecked(cluster, why)
		return
	}
	for _, c := range x.contests {
		for _, s := range c.standings {
			if s.State != election.StateSuspect {
				continue
			}
			i := slices.IndexFunc(c.candidates, func(candidate Candidate) bool { return candidate.Name == s.Name })
			f.add(candidateSilent, c.candidates[i].about(), fmt.Sprintf("was asked %s ago, and renewed last %s ago", seconds(x.Now.Sub(s.PingTime)), seconds(x.Now.Sub(s.Renewed))),
				values{"RESOURCE": c.candidates[i].Resource})
		}
	}
	if len(f.list) == 0 {
		f.fine(plural(len(x.Candidates.List), "candidate"))
	}
}

// offset returns by how much, at least, the clock of whoever wrote a stamp is ahead of the API server's, and whether that
// is known. The API server's note is of whole seconds, and stamps are older than the request that brings them: what may
// come from these counts as none.
func offset(managed []metav1.ManagedFieldsEntry, stamp time.Time, path ...string) (time.Duration, bool) {
	_, at := writer(managed, path...)
	if at.IsZero() || stamp.IsZero() {
		return 0, false
	}
	switch ahead := stamp.Sub(at); {
	case ahead > time.Second:
		return ahead - time.Second, true
	case ahead < 0:
		return ahead, true
	}
	return 0, true
}

func checkClocks(x *examination, f *findings) {
	if x.Ahead > clockTolerance || x.Ahead < -clockTolerance {
		direction, by := "behind", x.Ahead
		if x.Ahead < 0 {
			direction, by = "ahead of", -x.Ahead
		}
		f.add(clockLocal, cluster, fmt.Sprintf("this machine's clock is %s %s the API server's", seconds(by), direction))
	}
	if x.unread() != "" {
		f.unchecked(cluster, x.unread())
		return
	}
	known := 0
	var largest time.Duration
	told := map[string]bool{}
	look := func(about object, who string, managed []metav1.ManagedFieldsEntry, stamp time.Time) {
		ahead, ok := offset(managed, stamp, "spec", "renewTime")
		if !ok {
			return
		}
		known++
		by, direction := ahead, "ahead of"
		if ahead < 0 {
			by, direction = -ahead, "behind"
		}
		largest = max(largest, by)
		// A candidate that leads writes both.
		if key := about.namespace + "/" + who; by > clockTolerance && !told[key] {
			told[key] = true
			f.add(clockCandidate, about, fmt.Sprintf("the clock of %s is %s %s the API server's", who, seconds(by), direction))
		}
	}
	for _, c := range x.Candidates.List {
		look(c.about(), c.Name, c.Managed, c.Renewed)
	}
	coordinated := map[object]bool{x.InTreeLock.about(): true, x.OwnLock.about(): true}
	for _, c := range x.contests {
		coordinated[c.about()] = true
	}
	seen := map[object]bool{}
	for _, l := range slices.Concat(x.Leases.List, locks(x.InTreeLock, x.OwnLock)) {
		about := object{"Lease", l.Namespace, l.Name}
		if !coordinated[about] || seen[about] || l.Spec.RenewTime == nil || l.Spec.HolderIdentity == nil {
			continue
		}
		seen[about] = true
		holder := *l.Spec.HolderIdentity
		if l.Spec.AcquireTime != nil && l.Spec.RenewTime.Equal(l.Spec.AcquireTime) || holder == v1alpha1.RevokedHolder {
			// Whoever appointed or revoked wrote the stamp.
			holder = "whoever wrote it"
		}
		look(about, holder, l.ManagedFields, l.Spec.RenewTime.Time)
	}
	if len(f.list) == 0 {
		f.fine(fmt.Sprintf("%s compared; the largest offset seen is %s", plural(known, "stamp"), seconds(largest)))
	}
}

func (x *examination) checkPriority(c Candidate, f *findings) {
	resource := values{"RESOURCE": c.Resource}
	switch {
	case c.Priority == 0:
	case !c.PriorityUntil.IsZero() && !x.Now.Before(c.PriorityUntil):
		f.add(priorityOver, c.about(), fmt.Sprintf("priority %d counted until %s", c.Priority, c.PriorityUntil.UTC().Format(time.RFC3339)), resource)
	case c.PriorityUntil.IsZero():
		_, at := writer(c.Managed, "metadata", "annotations", v1alpha1.PriorityAnnotation)
		if age := x.Now.Sub(at); !at.IsZero() && age > lastingPriority {
			f.add(priorityLasting, c.about(), fmt.Sprintf("priority %d since %s, without an end", c.Priority, at.UTC().Format(time.RFC3339)), resource)
		}
	}
}

func (x *examination) checkCandidateAnnotations(c Candidate, f *findings) {
	resource := values{"RESOURCE": c.Resource}
	if c.Ineligible != "" {
		f.add(candidateIneligible, c.about(), "marked never to lead: "+c.Ineligible, resource)
	}
	for _, warning := range c.Warnings {
		f.add(candidateAnnotation, c.about(), warning, resource)
	}
}
