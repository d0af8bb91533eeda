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
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Definition describes one metric, for the reference page.
type Definition struct {
	Name, Type, Help string
	Labels           []string
}

// definer registers metrics and keeps their definitions.
type definer struct {
	registerer  prometheus.Registerer
	definitions []Definition
}

func (d *definer) define(kind, name, help string, labels ...string) string {
	d.definitions = append(d.definitions, Definition{Name: prometheus.BuildFQName(metricsNamespace, "", name), Type: kind, Help: help, Labels: labels})
	return d.definitions[len(d.definitions)-1].Name
}

func (d *definer) counters(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.define("counter", name, help, labels...), Help: help}, labels)
	d.registerer.MustRegister(v)
	return v
}

func (d *definer) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: d.define("gauge", name, help), Help: help})
	d.registerer.MustRegister(g)
	return g
}

// seconds defines a histogram of durations from a millisecond, a hand-off of the candidate library, to a minute.
func (d *definer) seconds(name, help string) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: d.define("histogram", name, help), Help: help,
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 15, 20, 30, 60},
	})
	d.registerer.MustRegister(h)
	return h
}

// described is a metric that is computed when it is scraped.
func (d *definer) described(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(d.define("gauge", name, help, labels...), help, labels, nil)
}

// Definitions returns every metric of the coordinator, by name.
func Definitions() []Definition {
	_, all := newMetrics(prometheus.NewRegistry())
	d := definer{}
	newLeaseDescriptions(&d)
	all = append(all, d.definitions...)
	slices.SortFunc(all, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
	return all
}
