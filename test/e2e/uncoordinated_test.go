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

package e2e

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/internal/observe"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// leftAlone is for how long a lease must not be written by a coordinator to count as left alone: longer than any
// deadline of a lease of 15 s.
const leftAlone = leaseDuration + 5*time.Second

// notWrittenByCoordinators lets time pass and asserts that no coordinator writes the lease meanwhile.
func (a *arena) notWrittenByCoordinators(during time.Duration) {
	a.Helper()
	from := time.Now()
	a.observe(during)
	for _, e := range a.coordinatorWrites(a.lease) {
		if e.Time.After(from) {
			a.Errorf("%s wrote %s, which is none of its business: %s %s", e.Writer, a.lease, e.Kind, e.Detail)
		}
	}
}

// coordinatorWrites returns the writes of our coordinators to a Lease.
func (a *arena) coordinatorWrites(lease string) []framework.Event {
	return slices.DeleteFunc(a.rec.Timeline().WritesTo(lease), func(e framework.Event) bool {
		return e.WriterKind != framework.CoordinatorKind
	})
}

// A component without coordination holds the lease when coordinated ones join (an upgrade), and takes it again when
// they have gone (a downgrade). It would not obey, so it is left alone for as long as it renews.
func TestUncoordinatedHolder(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		stop func(*arena, *framework.Candidate) error
		// within is the longest the lease may be without a leader after that.
		within time.Duration
	}{
		"released": {func(a *arena, c *framework.Candidate) error { return c.Stop(a.ctx) }, poll + slack},
		"killed":   {func(a *arena, c *framework.Candidate) error { return c.Kill(a.ctx) }, failover},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
				a := newArena(t, flavour)
				plain := func(o *framework.CandidateOptions) { o.Plain, o.ReleaseOnCancel = true, true }
				release := func(o *framework.CandidateOptions) { o.ReleaseOnCancel = true }

				a.rec.Mark("an upgrade: coordinated candidates join a plain elector")
				old := a.candidate("plain", "1.35", plain)
				a.waitLeader("plain", patience)
				newer := a.candidate("n37", "1.37", release)
				leader := a.candidate("n36", "1.36", release)
				a.waitCandidate("n36")
				a.waitCandidate("n37")
				a.notWrittenByCoordinators(leftAlone)
				a.saidNotCoordinated(flavour, "plain")

				stopped := time.Now()
				a.must(end.stop(a, old))
				term := a.waitLeader("n36", end.within)
				t.Logf("n36 leads %s after the plain elector was told to end", term.Start.Sub(stopped).Round(time.Millisecond))

				a.rec.Mark("a downgrade: the candidates go, a plain elector comes")
				a.must(newer.Stop(a.ctx))
				a.candidate("plain-again", "1.35", plain)
				stopped = time.Now()
				a.must(end.stop(a, leader))
				// client-go's candidates leave their LeaseCandidates behind. n36 acked a moment ago, so it may be
				// appointed once more, and to a plain elector that is a claim like any other.
				term = a.waitLeader("plain-again", 2*failover)
				t.Logf("plain-again leads %s after n36 ended", term.Start.Sub(stopped).Round(time.Millisecond))
				a.notWrittenByCoordinators(leftAlone)

				if got := a.leaders(); !slices.Equal(got, []string{"plain", "n36", "plain-again"}) {
					t.Errorf("leaders = %v", got)
				}
				a.safe()
			})
		})
	}
}

// saidNotCoordinated asserts that people can learn, and are told once, that the holder is not coordinated.
func (a *arena) saidNotCoordinated(flavour framework.Flavour, holder string) {
	a.Helper()
	sharedMu.Lock()
	coordinator := sharedCoordinators[flavour]
	sharedMu.Unlock()
	if lines := coordinator.LogLines(a.lease, "HolderNotCoordinated", "Lease not coordinated", holder); len(lines) != 1 {
		a.Errorf("%d log lines say that the holder is not coordinated: %q", len(lines), lines)
	}
	events, err := a.cluster.Clientset().EventsV1().Events(a.ns).List(a.ctx, metav1.ListOptions{})
	a.must(err)
	var notes []string
	for _, e := range events.Items {
		if e.Reason == observe.EventNotCoordinated {
			notes = append(notes, e.Note)
		}
		if e.Series != nil {
			a.Errorf("event %s %q was repeated %d times", e.Reason, e.Note, e.Series.Count)
		}
	}
	if len(notes) != 1 {
		a.Errorf("events that say that the lease is not coordinated: %q, want one", notes)
	}
}
