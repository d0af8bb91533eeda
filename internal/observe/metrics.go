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

// Metrics are the coordinator's own. Their names follow KEP-4355 where it gives them.
type Metrics struct {
	leaderChanges *prometheus.CounterVec
	preemptions   *prometheus.CounterVec
	decisions     *prometheus.CounterVec
	failures      *prometheus.CounterVec
	election      prometheus.Histogram
	takeUp        prometheus.Histogram
	fieldsKept    prometheus.Gauge
	active        prometheus.Gauge
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
	seconds := []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 20, 30, 60}
	m := &Metrics{
		leaderChanges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Name: "leader_changes_total",
			Help: "Appointments of a holder that was not the holder before, by lease and by the reason of the vacancy.",
		}, []string{"namespace", "lease", "reason"}),
		preemptions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Name: "leader_preemptions_total",
			Help: "Terms ended in favour of a better candidate, by lease and by the way the holder was told (Prefer, Revoke).",
		}, []string{"namespace", "lease", "action"}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Name: "decisions_total",
			Help: "Decisions carried out, by action; in a dry run those that would have been.",
		}, []string{"action"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: metricsNamespace, Name: "failures_total",
			Help: "Writes that failed, by reason: conflict (somebody else wrote first; the coordinator looks again), forbidden, error.",
		}, []string{"reason"}),
		election: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Name: "election_duration_seconds",
			Help: "From the moment the coordinator saw a lease vacant to the appointment.", Buckets: seconds,
		}),
		takeUp: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: metricsNamespace, Name: "take_up_duration_seconds",
			Help: "From an appointment to the appointee's first own renewal.", Buckets: seconds,
		}),
		fieldsKept: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: metricsNamespace, Name: "lease_fields_kept",
			Help: "1 if the API server keeps spec.strategy and spec.preferredHolder on Leases, 0 if it drops them and the coordinator revokes.",
		}),
	}
	m.active = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: metricsNamespace, Name: "active",
		Help: "1 while this coordinator is the active one, 0 while it is a standby.",
	})
	for _, a := range []election.Action{election.Ping, election.Appoint, election.Prefer, election.ClearPreferred, election.Revoke, election.Restore} {
		m.decisions.WithLabelValues(string(a))
	}
	for _, reason := range []string{FailureConflict, FailureForbidden, FailureError} {
		m.failures.WithLabelValues(reason)
	}
	r.MustRegister(m.leaderChanges, m.preemptions, m.decisions, m.failures, m.election, m.takeUp, m.fieldsKept, m.active)
	return m
}

// Written counts a decision that was carried out.
func (m *Metrics) Written(key types.NamespacedName, d election.Decision) {
	m.decisions.WithLabelValues(string(d.Action)).Inc()
	switch d.Action {
	case election.Appoint:
		if d.Holder != d.Candidate {
			m.leaderChanges.WithLabelValues(key.Namespace, key.Name, string(d.Reason)).Inc()
		}
	case election.Prefer, election.Revoke:
		m.preemptions.WithLabelValues(key.Namespace, key.Name, string(d.Action)).Inc()
	}
}

// Failed counts a write that failed.
func (m *Metrics) Failed(reason string) { m.failures.WithLabelValues(reason).Inc() }

// Elected observes how long an election took.
func (m *Metrics) Elected(d time.Duration) { m.election.Observe(d.Seconds()) }

// TakenUp observes how long an appointee took to take up.
func (m *Metrics) TakenUp(d time.Duration) { m.takeUp.Observe(d.Seconds()) }

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
