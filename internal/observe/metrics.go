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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/internal/election"
)

// Metrics are the coordinator's own. Their names follow KEP-4355 where it gives them. Labels that name a lease have as
// many values as there are leases with candidates: see Forget.
type Metrics struct {
	leaderChanges   *prometheus.CounterVec
	preemptions     *prometheus.CounterVec
	skewPreventions *prometheus.CounterVec
	decisions       *prometheus.CounterVec
	failures        *prometheus.CounterVec
	election        prometheus.Histogram
	takeUp          prometheus.Histogram
	leaderless      prometheus.Histogram
	handOff         prometheus.Histogram
	fieldsKept      prometheus.Gauge
	active          prometheus.Gauge
	configuration   configurationMetrics
	strategies      *prometheus.CounterVec
}

const metricsNamespace = "coordinated_leader_election"

// Why a write failed: the label values of coordinated_leader_election_failures_total.
const (
	// FailureConflict: somebody else wrote first. The coordinator looked again.
	FailureConflict = "conflict"
	// FailureForbidden: a right is missing.
	FailureForbidden = "forbidden"
	// FailureError: anything else.
	FailureError = "error"
)

// NewMetrics registers the metrics. Counters with a closed set of labels start at zero.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m, _ := newMetrics(r)
	return m
}

func newMetrics(r prometheus.Registerer) (*Metrics, []Definition) {
	d := definer{registerer: r}
	m := &Metrics{
		leaderChanges: d.counters("leader_changes_total",
			"Appointments of a holder that was not the holder before, by lease and by the reason of the vacancy.",
			"namespace", "lease", "reason"),
		preemptions: d.counters("leader_preemptions_total",
			"Terms ended in favour of a better candidate, by lease and by the way the holder was told (Prefer, Revoke).",
			"namespace", "lease", "action"),
		skewPreventions: d.counters("skew_preventions_total",
			"Appointments, by lease, of a candidate although one of a newer emulation version might have led.",
			"namespace", "lease"),
		decisions: d.counters("decisions_total",
			"Decisions carried out, by action; in a dry run those that would have been.",
			"action"),
		failures: d.counters("failures_total",
			"Writes that failed, by reason: conflict (somebody else wrote first; the coordinator looks again), forbidden, error.",
			"reason"),
		election: d.seconds("election_duration_seconds",
			"From the moment the coordinator saw a lease vacant to the appointment."),
		takeUp: d.seconds("take_up_duration_seconds",
			"From an appointment to the appointee's first own renewal."),
		leaderless: d.seconds("leaderless_duration_seconds",
			"From the moment the coordinator saw a lease vacant to the first own renewal of whoever it appointed: how long nobody led, as the Lease shows it."),
		handOff: d.seconds("hand_off_duration_seconds",
			"From the end of a term in favour of a better candidate (preferred holder set, or lease revoked) to the first own renewal of the next leader."),
		fieldsKept: d.gauge("lease_fields_kept",
			"1 if the API server keeps spec.strategy and spec.preferredHolder on Leases, 0 if it drops them and the coordinator revokes."),
		active: d.gauge("active",
			"1 while this coordinator is the active one, 0 while it is a standby."),
		strategies: d.counters("strategy_failures_total",
			"Rankings of a candidate that its strategy failed in, by strategy: a CEL expression met a missing key or cost too much. The candidate does not count meanwhile.",
			"strategy"),
		configuration: newConfigurationMetrics(&d),
	}
	for _, a := range election.Actions() {
		m.decisions.WithLabelValues(string(a))
	}
	for _, reason := range []string{FailureConflict, FailureForbidden, FailureError} {
		m.failures.WithLabelValues(reason)
	}
	return m, d.definitions
}

// Written counts a decision that was carried out.
func (m *Metrics) Written(key types.NamespacedName, d election.Decision) {
	m.decisions.WithLabelValues(string(d.Action)).Inc()
	switch d.Action {
	case election.Appoint:
		if d.Holder != d.Candidate {
			m.leaderChanges.WithLabelValues(key.Namespace, key.Name, string(d.Reason)).Inc()
			if d.SkewPrevented {
				m.skewPreventions.WithLabelValues(key.Namespace, key.Name).Inc()
			}
		}
	case election.Prefer, election.Revoke:
		m.preemptions.WithLabelValues(key.Namespace, key.Name, string(d.Action)).Inc()
	}
}

// Forget drops the series of a lease that is gone, so that labels stay bounded.
func (m *Metrics) Forget(key types.NamespacedName) {
	labels := prometheus.Labels{"namespace": key.Namespace, "lease": key.Name}
	for _, v := range []*prometheus.CounterVec{m.leaderChanges, m.preemptions, m.skewPreventions} {
		v.DeletePartialMatch(labels)
	}
}

// Failed counts a write that failed.
func (m *Metrics) Failed(reason string) { m.failures.WithLabelValues(reason).Inc() }

// Elected observes how long an election took.
func (m *Metrics) Elected(d time.Duration) { m.election.Observe(d.Seconds()) }

// TakenUp observes how long an appointee took to take up, how long nobody led before that, and how long ago the term
// before was ended; 0 where it was not.
func (m *Metrics) TakenUp(takeUp, leaderless, handOff time.Duration) {
	m.takeUp.Observe(takeUp.Seconds())
	if leaderless > 0 {
		m.leaderless.Observe(leaderless.Seconds())
	}
	if handOff > 0 {
		m.handOff.Observe(handOff.Seconds())
	}
}

// FieldsKept says what the API server was found to do with the fields of a Lease.
func (m *Metrics) FieldsKept(kept bool) { set(m.fieldsKept, kept) }

// Active says whether this coordinator is the active one.
func (m *Metrics) Active(active bool) { set(m.active, active) }

func set(gauge prometheus.Gauge, on bool) {
	if on {
		gauge.Set(1)
		return
	}
	gauge.Set(0)
}
