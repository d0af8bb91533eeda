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

package controller

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/observe"
)

// told returns the events since the last call, that are not about decisions.
func (s *server) told() string {
	var told []string
	for {
		select {
		case e := <-s.events.Events:
			if strings.Contains(e, observe.EventInvalidAnnotation) || strings.Contains(e, observe.EventPriorityEnded) {
				told = append(told, e)
			}
		default:
			return strings.Join(told, "\n")
		}
	}
}

// annotate changes an annotation of a candidate, and has the watch show it.
func (s *server) annotate(name, annotation, value string) {
	s.Helper()
	obj := native.New()
	s.must(s.api.Get(s.Context(), types.NamespacedName{Namespace: leaseKey.Namespace, Name: name}, obj))
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotation] = value
	obj.SetAnnotations(annotations)
	s.must(s.api.Update(s.Context(), obj))
	s.syncCandidates()
}

func TestInvalidAnnotationsAreToldOnce(t *testing.T) {
	s := newServer(t)
	s.join("a", "1.36.0")
	s.annotate("a", v1alpha1.PriorityAnnotation, "high")
	s.reconcile()
	if got := s.told(); !strings.Contains(got, `"high" is not a whole number`) || strings.Count(got, "\n") != 0 {
		t.Fatalf("told %q", got)
	}
	s.syncCandidates()
	s.reconcile()
	if got := s.told(); got != "" {
		t.Errorf("told again: %q", got)
	}
	s.annotate("a", v1alpha1.PriorityAnnotation, "-7")
	s.reconcile()
	if got := s.told(); !strings.Contains(got, `"-7"`) || strings.Contains(got, "high") {
		t.Errorf("after another change: told %q", got)
	}
	s.annotate("a", v1alpha1.PriorityAnnotation, "7")
	s.reconcile()
	if got := s.told(); got != "" {
		t.Errorf("after it was mended: told %q", got)
	}

	lease := s.stored()
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, v1alpha1.PausedAnnotation, "maybe")
	s.must(s.api.Update(s.Context(), lease))
	s.syncLease()
	s.reconcile()
	if got := s.told(); !strings.Contains(got, `"maybe" is not "true"`) {
		t.Errorf("of the lease: told %q", got)
	}
	s.reconcile()
	if got := s.told(); got != "" {
		t.Errorf("of the lease: told again: %q", got)
	}
}

// distinct is a recorder that finds events which client-go would drop, taking them for one that was there before.
type distinct struct {
	testing.TB
	notes map[string]string
}

func (d distinct) Eventf(regarding, _ runtime.Object, eventType, reason, action, note string, args ...any) {
	about := regarding.(metav1.Object)
	key := strings.Join([]string{eventType, reason, action, about.GetName(), string(about.GetUID()), about.GetResourceVersion()}, " ")
	note = fmt.Sprintf(note, args...)
	if before, known := d.notes[key]; known {
		d.Errorf("two events of the key %q: %q and %q", key, before, note)
	}
	d.notes[key] = note
}

func (s *server) versionOf(candidate string) int {
	s.Helper()
	obj := native.New()
	s.must(s.api.Get(s.Context(), types.NamespacedName{Namespace: leaseKey.Namespace, Name: candidate}, obj))
	version, err := strconv.Atoi(obj.GetResourceVersion())
	s.must(err)
	return version
}

func (d distinct) says(parts ...string) {
	d.Helper()
	for _, note := range d.notes {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(note, part) }) {
			return
		}
	}
	d.Errorf("no event says all of %q: %q", parts, d.notes)
}

// TestEventsAreNotTakenForOneAnother: whether there is a Lease or not, and however many values are invalid at once.
func TestEventsAreNotTakenForOneAnother(t *testing.T) {
	s := newServer(t)
	d := distinct{t, map[string]string{}}
	s.r.Events.Recorder = d
	newest := 0
	// newer makes the candidate the newest object of all: the server in memory counts the versions of each by itself.
	newer := func(name string) {
		for newest += 10; s.versionOf(name) < newest; {
			s.annotate(name, "example.com/version", strconv.Itoa(s.versionOf(name)))
		}
	}
	s.join("a", "1.36.0")
	s.annotate("a", v1alpha1.IneligibleAnnotation, "backup")
	s.reconcile()
	d.says("no candidate may lead", "a is marked never to lead: backup")
	s.join("b", "1.36.0")
	newer("b")
	s.annotate("b", v1alpha1.IneligibleAnnotation, "false")
	s.reconcile()
	d.says("no candidate may lead", "backup", "b is marked never to lead: false")
	d.says(`"false" keeps the candidate from leading`)
	s.annotate("b", v1alpha1.IneligibleAnnotation, "no")
	s.reconcile()
	d.says(`"no" keeps the candidate from leading`)

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: leaseKey.Namespace, Name: leaseKey.Name, Annotations: map[string]string{
		v1alpha1.PausedAnnotation: "yes", v1alpha1.PreemptionAnnotation: "sometimes",
	}}}
	s.must(s.api.Create(t.Context(), lease))
	s.syncLease()
	s.reconcile()
	d.says(`"yes" is not "true"`, `"sometimes" is not "never"`)
	// Nobody renews this lease.
	newer("a")
	s.annotate("a", v1alpha1.IneligibleAnnotation, "backup of a")
	s.reconcile()
	d.says("no candidate may lead", "backup of a")
}

func TestEndOfAPriorityIsToldOnce(t *testing.T) {
	s := newServer(t)
	s.join("a", "1.36.0")
	end := s.clock.Add(time.Minute)
	s.annotate("a", v1alpha1.PriorityAnnotation, "5")
	s.annotate("a", v1alpha1.PriorityUntilAnnotation, end.UTC().Format(time.RFC3339))
	s.reconcile()
	if got := s.told(); got != "" {
		t.Fatalf("before its end: told %q", got)
	}
	s.clock = end
	s.reconcile()
	if got := s.told(); !strings.Contains(got, observe.EventPriorityEnded) || !strings.Contains(got, "priority 5 counted until "+end.UTC().Format(time.RFC3339)) {
		t.Errorf("at its end: told %q", got)
	}
	s.reconcile()
	if got := s.told(); got != "" {
		t.Errorf("told again: %q", got)
	}
	// A coordinator that starts now has not seen it count, and has nothing to tell.
	other := newServer(t)
	other.clock = end.Add(time.Hour)
	other.join("a", "1.36.0")
	other.annotate("a", v1alpha1.PriorityAnnotation, "5")
	other.annotate("a", v1alpha1.PriorityUntilAnnotation, end.UTC().Format(time.RFC3339))
	other.reconcile()
	if got := other.told(); got != "" {
		t.Errorf("by a coordinator that came later: %q", got)
	}
}

// TestStatuses: what monitoring sees through an election, a term, and a leader that dies.
func TestStatuses(t *testing.T) {
	f := newFixture(t)
	status := func() observe.LeaseStatus {
		t.Helper()
		list := f.Statuses(f.settings)
		if len(list) != 1 {
			t.Fatalf("%d leases: %+v", len(list), list)
		}
		return list[0]
	}
	if list := f.Statuses(f.settings); len(list) != 0 {
		t.Errorf("before anything is seen: %+v", list)
	}
	// A lease that nobody wants to coordinate is no business of ours.
	f.SeeLease(f.lease("plain"))
	if list := f.Statuses(f.settings); len(list) != 0 {
		t.Errorf("without candidates: %+v", list)
	}
	f = newFixture(t)
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	if s := status(); s.Holder != "" || s.Candidates[election.StateAlive] != 1 || s.Strategy != string(v1alpha1.OldestEmulationVersion) {
		t.Errorf("vacant: %+v", s)
	}
	d := f.decides(election.Appoint, "a")
	f.wrote(leaseKey, d, f.written(d))
	if s := status(); s.Holder != "" || s.Reason != election.ReasonAwaitingTakeUp {
		t.Errorf("appointed: %+v", s)
	}
	f.elapse(time.Second)
	seen := f.SeeLease(f.lease("a"))
	if seen.Leaderless != time.Second || seen.HandOff != 0 || seen.TookUp != time.Second {
		t.Errorf("taken up: %+v", seen)
	}
	f.elapse(9 * time.Second)
	if s := status(); s.Holder != "a" || s.SinceRenewal != 9*time.Second || s.Candidates[election.StateUnknown] != 1 {
		t.Errorf("led: %+v", s)
	}
	f.elapse(7 * time.Second)
	if s := status(); s.Holder != "" || s.SinceRenewal != 16*time.Second {
		t.Errorf("run out: %+v", s)
	}
	// Forgotten when it is gone.
	var gone []types.NamespacedName
	f.WhenForgotten(func(key types.NamespacedName) { gone = append(gone, key) })
	f.SeeLeaseDeleted(f.lease("a"), false)
	f.elapse(time.Minute)
	for range 40 {
		f.SeeCandidateDeleted(f.candidate("a", "1.36"))
		f.SeeCandidate(f.candidate("a", "1.36"), false)
		f.SeeCandidateDeleted(f.candidate("a", "1.36"))
	}
	if len(gone) == 0 || gone[0] != leaseKey || len(f.Statuses(f.settings)) != 0 {
		t.Errorf("forgotten: %v", gone)
	}
}

// TestStatusOfARevokedLease: whoever was told to yield leads until its claim runs out, however it was told.
func TestStatusOfARevokedLease(t *testing.T) {
	f := newFixture(t)
	f.SetFieldsKept(false)
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	f.SeeLease(f.lease("a"))
	f.elapse(time.Second)
	f.SeeCandidate(f.candidate("b", "1.35"), false)
	d := f.decides(election.Revoke, "b")
	f.wrote(leaseKey, d, f.written(d))
	holder := func() string { return f.Statuses(f.settings)[0].Holder }
	if h := holder(); h != "a" {
		t.Errorf("revoked: led by %q", h)
	}
	f.elapse(14*time.Second - 1)
	if h := holder(); h != "a" {
		t.Errorf("before its claim runs out: led by %q", h)
	}
	f.elapse(1)
	if h := holder(); h != "" {
		t.Errorf("when its claim has run out: led by %q", h)
	}
}

// TestHandOffIsMeasured from the end of the term to the take-up, and the time without a leader as part of it.
func TestHandOffIsMeasured(t *testing.T) {
	f := newFixture(t)
	f.SeeCandidate(f.candidate("a", "1.36"), false)
	f.SeeLease(f.lease("a"))
	f.SeeCandidate(f.candidate("b", "1.35"), false)
	d := f.decides(election.Prefer, "b")
	f.wrote(leaseKey, d, f.written(d))
	f.elapse(15 * time.Second)
	f.decides(election.Ping, "*")
	f.pinged(leaseKey, f.candidateState("b").candidate)
	f.SeeCandidate(f.candidate("b", "1.35"), false)
	d = f.decides(election.Appoint, "b")
	f.wrote(leaseKey, d, f.written(d))
	f.elapse(3 * time.Second)
	if seen := f.SeeLease(f.lease("b")); seen.HandOff != 18*time.Second || seen.Leaderless != 3*time.Second {
		t.Errorf("measured %+v", seen)
	}
}

func (f *fixture) candidateState(name string) *candidateState {
	return f.state(leaseKey).candidate("ns", name)
}
