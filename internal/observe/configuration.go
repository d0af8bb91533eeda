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
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// ConfigurationReloaded emits the event of a changed configuration file that is in force.
func (e Events) ConfigurationReloaded(lock *coordinationv1.Lease, note string) {
	e.note(lock, corev1.EventTypeNormal, EventConfigurationReloaded, "Reload", note)
}

// ConfigurationRefused emits the event of a changed configuration file that was refused.
func (e Events) ConfigurationRefused(lock *coordinationv1.Lease, note string) {
	e.note(lock, corev1.EventTypeWarning, EventConfigurationRefused, "Reload", note)
}

// configurationMetrics tell of the configuration file of a running coordinator.
type configurationMetrics struct {
	reloads *prometheus.CounterVec
	// successful and at are of the last reload.
	successful, at prometheus.Gauge
}

// Reasons of events on the coordinator's own lock.
const (
	// EventConfigurationReloaded: a changed configuration file is in force.
	EventConfigurationReloaded = "ConfigurationReloaded"
	// EventConfigurationRefused: a changed configuration file is at fault; the one before stays in force.
	EventConfigurationRefused = "ConfigurationRefused"
)

// Outcomes of a reload: the label values of coordinated_leader_election_configuration_reloads_total.
const (
	// ReloadSuccess: the changed file is in force.
	ReloadSuccess = "success"
	// ReloadFailure: the changed file was refused; the one before stays in force.
	ReloadFailure = "failure"
)

func newConfigurationMetrics(d *definer) configurationMetrics {
	m := configurationMetrics{
		reloads: d.counters("configuration_reloads_total",
			"Changes of the configuration file that a running coordinator met, by result: success (in force), failure (refused; the one before stays in force).",
			"result"),
		successful: d.gauge("configuration_last_reload_successful",
			"1 if the configuration file, as it is now, is in force; 0 if it was refused."),
		at: d.gauge("configuration_last_reload_success_timestamp_seconds",
			"When the configuration in force was read, in seconds since 1970."),
	}
	for _, result := range []string{ReloadSuccess, ReloadFailure} {
		m.reloads.WithLabelValues(result)
	}
	return m
}

// ConfigurationLoaded says that a coordinator starts with the configuration that it read at that time.
func (m *Metrics) ConfigurationLoaded(at time.Time) {
	m.configuration.successful.Set(1)
	m.configuration.at.Set(float64(at.UnixNano()) / 1e9)
}

// ConfigurationReloaded counts a changed configuration that is in force from that time on.
func (m *Metrics) ConfigurationReloaded(at time.Time) {
	m.configuration.reloads.WithLabelValues(ReloadSuccess).Inc()
	m.ConfigurationLoaded(at)
}

// ConfigurationRefused counts a changed configuration that was refused.
func (m *Metrics) ConfigurationRefused() {
	m.configuration.reloads.WithLabelValues(ReloadFailure).Inc()
	m.configuration.successful.Set(0)
}
