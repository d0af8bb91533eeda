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

	"github.com/lease-coordinator/coordinator/internal/election"
)

// LeaseStatus is how a lease is at the moment of a scrape.
type LeaseStatus struct {
	Namespace, Lease string
	// Holder is who leads; "" if nobody does.
	Holder string
	// Strategy is the one that the election goes by; "" if there is none.
	Strategy string
	// Reason is that of the decision that would be made now.
	Reason election.Reason
	// SinceRenewal is how long ago the holder was last seen to renew; 0 if never.
	SinceRenewal time.Duration
	// Candidates counts the candidates by state.
	Candidates map[election.State]int
}

// leaseDescriptions describe the metrics that are computed from statuses.
type leaseDescriptions struct {
	led, holder, sinceRenewal, candidates, blocked *prometheus.Desc
}

func newLeaseDescriptions(d *definer) leaseDescriptions {
	return leaseDescriptions{
		led: d.described("lease_led",
			"1 while somebody leads the lease, 0 while nobody does: it is vacant, or its appointee has not taken up.",
			"namespace", "lease"),
		holder: d.described("lease_holder_info",
			"Always 1; its labels say who leads the lease, and by which strategy it is coordinated. Absent while nobody leads.",
			"namespace", "lease", "holder", "strategy"),
		sinceRenewal: d.described("lease_seconds_since_renewal",
			"How long ago the holder of the lease was last seen to renew, by the coordinator's clock.",
			"namespace", "lease"),
		candidates: d.described("lease_candidates",
			"Candidates for the lease by state: Alive (heard of within the election duration), Unknown (not asked for a while), Waiting (asked, may still answer), Suspect (asked, did not answer), Inadmissible (does not count).",
			"namespace", "lease", "state"),
		blocked: d.described("lease_blocked",
			"1 while the lease is left alone for a reason that an operator may want to change; see the events of reason NotCoordinated.",
			"namespace", "lease"),
	}
}

// leaseCollector computes metrics when they are scraped, so that a renewal costs nothing and a lease that is gone leaves
// no series behind.
type leaseCollector struct {
	leaseDescriptions
	statuses func() []LeaseStatus
}

// CollectLeases registers the metrics of single leases. statuses is called at each scrape; it returns nothing on a
// coordinator that is not the active one, so that sums over all coordinators count each lease once.
func CollectLeases(r prometheus.Registerer, statuses func() []LeaseStatus) {
	r.MustRegister(&leaseCollector{leaseDescriptions: newLeaseDescriptions(&definer{}), statuses: statuses})
}

// Describe implements prometheus.Collector.
func (c *leaseCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.led, c.holder, c.sinceRenewal, c.candidates, c.blocked} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *leaseCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, s := range c.statuses() {
		led, blocked := 0., 0.
		if s.Holder != "" {
			led = 1
			gauge(c.holder, 1, s.Namespace, s.Lease, s.Holder, s.Strategy)
		}
		if Blocks(election.Decision{Reason: s.Reason}) {
			blocked = 1
		}
		gauge(c.led, led, s.Namespace, s.Lease)
		gauge(c.blocked, blocked, s.Namespace, s.Lease)
		gauge(c.sinceRenewal, s.SinceRenewal.Seconds(), s.Namespace, s.Lease)
		for _, state := range election.States() {
			gauge(c.candidates, float64(s.Candidates[state]), s.Namespace, s.Lease, string(state))
		}
	}
}
