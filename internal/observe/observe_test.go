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

package observe

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/lease-coordinator/coordinator/internal/election"
)

func TestShorten(t *testing.T) {
	for _, filling := range []string{"a", "é", "€", "🙂"} {
		for offset := range 4 {
			for _, length := range []int{0, 1, maxNote - 1, maxNote, maxNote + 1, maxNote + 3, 5 * maxNote} {
				note := strings.Repeat("x", offset) + strings.Repeat(filling, length/len(filling)+1)
				note = note[:len(note)-len(note)%len(filling)+offset%len(filling)]
				note = strings.ToValidUTF8(note, "")
				got := shorten(note)
				switch {
				case len(got) > maxNote || !utf8.ValidString(got):
					t.Errorf("%d bytes of %q: got %d bytes, valid %t", len(note), filling, len(got), utf8.ValidString(got))
				case len(note) <= maxNote && got != note:
					t.Errorf("%d bytes of %q: changed without need", len(note), filling)
				case len(note) > maxNote && (!strings.HasSuffix(got, "...") || len(got) <= maxNote-len("...")-utf8.UTFMax):
					t.Errorf("%d bytes of %q: cut to %d, ending in %q", len(note), filling, len(got), got[len(got)-6:])
				}
			}
		}
	}
}

func TestEventsOfDecisions(t *testing.T) {
	for action, want := range map[election.Action]string{
		election.Appoint:        "Normal LeaderAppointed appoint b",
		election.Prefer:         "Normal TermEnded end the term of a in favour of b",
		election.ClearPreferred: "Normal TermContinued let leader a go on",
		election.Revoke:         "Normal LeaseRevoked revoke the lease of a in favour of b",
		election.Restore:        "Normal LeaseRestored put the lease back for a",
		election.Ping:           "",
		election.None:           "",
	} {
		recorder := events.NewFakeRecorder(1)
		Events{Recorder: recorder}.Written(&coordinationv1.Lease{}, election.Decision{
			Action: action, Reason: election.ReasonBetterCandidate, Holder: "a", Candidate: "b",
		})
		select {
		case got := <-recorder.Events:
			if want == "" || !strings.HasPrefix(got, want) {
				t.Errorf("%s: event %q, want %q", action, got, want)
			}
		default:
			if want != "" {
				t.Errorf("%s: no event", action)
			}
		}
	}
	// Without a recorder there are no events, and no panic.
	Events{}.Written(&coordinationv1.Lease{}, election.Decision{Action: election.Appoint})
}

// A name with a % must not be taken for a format.
func TestEventNoteIsNoFormat(t *testing.T) {
	recorder := events.NewFakeRecorder(1)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}
	Events{Recorder: recorder}.Blocked(lease, election.Decision{Action: election.None, Reason: election.ReasonHolderNotCoordinated, Holder: "50%s"})
	if got := <-recorder.Events; !strings.Contains(got, "Warning NotCoordinated leader 50%s is no candidate") {
		t.Errorf("event %q", got)
	}
}

func TestBlocks(t *testing.T) {
	for reason, want := range map[election.Reason]bool{
		election.ReasonStrategyConflict:      true,
		election.ReasonNoAdmissibleCandidate: true,
		election.ReasonHolderNotCoordinated:  true,
		election.ReasonNobodyAlive:           true,
		election.ReasonUnseenClaim:           true,
		election.ReasonOptimal:               false,
		election.ReasonNoCandidates:          false,
		election.ReasonForeignStrategy:       false,
		election.ReasonInTree:                false,
		election.ReasonExcluded:              false,
	} {
		if got := Blocks(election.Decision{Reason: reason}); got != want {
			t.Errorf("%s: %t, want %t", reason, got, want)
		}
	}
}

// gather returns the values of all series; of histograms the counts.
func gather(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := fmt.Sprintf("%s{%s}", strings.TrimPrefix(family.GetName(), metricsNamespace+"_"), strings.Join(labels, ","))
			switch family.GetType() {
			case dto.MetricType_HISTOGRAM:
				values[name] = float64(m.GetHistogram().GetSampleCount())
			case dto.MetricType_GAUGE:
				values[name] = m.GetGauge().GetValue()
			default:
				values[name] = m.GetCounter().GetValue()
			}
		}
	}
	return values
}

// A counter that appears only with its first event makes the first event invisible to rate().
func TestMetricsStartAtZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	NewMetrics(registry)
	values := gather(t, registry)
	for _, want := range []string{
		"decisions_total{action=Ping}", "decisions_total{action=Appoint}", "decisions_total{action=Prefer}",
		"decisions_total{action=ClearPreferred}", "decisions_total{action=Revoke}", "decisions_total{action=Restore}",
		"failures_total{reason=conflict}", "failures_total{reason=forbidden}", "failures_total{reason=error}",
		"election_duration_seconds{}", "take_up_duration_seconds{}", "lease_fields_kept{}", "active{}",
	} {
		if value, found := values[want]; !found || value != 0 {
			t.Errorf("%s = %v, found %t", want, value, found)
		}
	}
}

func TestMetricsOfDecisions(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	key := types.NamespacedName{Namespace: "ns", Name: "l"}
	m.Written(key, election.Decision{Action: election.Appoint, Reason: election.ReasonExpired, Holder: "a", Candidate: "b"})
	// The same candidate once more: no change of leader.
	m.Written(key, election.Decision{Action: election.Appoint, Reason: election.ReasonNotTakenUp, Holder: "b", Candidate: "b"})
	m.Written(key, election.Decision{Action: election.Prefer, Holder: "b", Candidate: "c"})
	m.Written(key, election.Decision{Action: election.Revoke, Holder: "b", Candidate: "c"})
	m.Failed(FailureForbidden)
	m.Elected(time.Second)
	m.TakenUp(time.Second, 2*time.Second, 0)
	m.TakenUp(time.Second, 0, 3*time.Second)
	m.Active(true)
	m.FieldsKept(true)
	m.FieldsKept(false)
	values := gather(t, registry)
	for name, want := range map[string]float64{
		"leader_changes_total{lease=l,namespace=ns,reason=Expired}":    1,
		"decisions_total{action=Appoint}":                              2,
		"leader_preemptions_total{action=Prefer,lease=l,namespace=ns}": 1,
		"leader_preemptions_total{action=Revoke,lease=l,namespace=ns}": 1,
		"failures_total{reason=forbidden}":                             1,
		"election_duration_seconds{}":                                  1,
		"take_up_duration_seconds{}":                                   2,
		"leaderless_duration_seconds{}":                                1,
		"hand_off_duration_seconds{}":                                  1,
		"active{}":                                                     1,
		"lease_fields_kept{}":                                          0,
	} {
		if values[name] != want {
			t.Errorf("%s = %v, want %v", name, values[name], want)
		}
	}
	if _, found := values["leader_changes_total{lease=l,namespace=ns,reason=NotTakenUp}"]; found {
		t.Error("a repeated appointment counts as a change of leader")
	}
}
