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

package alerts

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"

	"github.com/lease-coordinator/coordinator/internal/observe"
)

const (
	ruleFile = "../../config/prometheus/rules/prometheus_rule.yaml"
	page     = "../../docs/alerts.md"
	pageURL  = "https://github.com/lease-coordinator/coordinator/blob/main/docs/alerts.md#"
)

var promQL = parser.NewParser(parser.Options{})

// shipped returns the alerts of config/prometheus, as Prometheus reads them.
func shipped(t *testing.T) []rulefmt.Rule {
	t.Helper()
	content, err := os.ReadFile(ruleFile)
	if err != nil {
		t.Fatal(err)
	}
	var object struct{ Spec map[string]any }
	if err := yaml.Unmarshal(content, &object); err != nil {
		t.Fatal(err)
	}
	// The spec of a PrometheusRule is the file of a Prometheus that no operator runs.
	spec, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(spec, false, model.LegacyValidation, promQL, promslog.NewNopLogger())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var list []rulefmt.Rule
	for _, group := range groups.Groups {
		list = append(list, group.Rules...)
	}
	if len(list) == 0 {
		t.Fatal("there are no alerts")
	}
	return list
}

// targetLabels are put on each sample by the monitors of config/prometheus.
var targetLabels = []string{"job", "pod"}

// Every metric and label that an alert names is one that the coordinator defines.
func TestAlertsNameWhatExists(t *testing.T) {
	defined := map[string][]string{}
	for _, d := range observe.Definitions() {
		defined[d.Name] = append(slices.Clone(d.Labels), targetLabels...)
		if d.Type == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				defined[d.Name+suffix] = append([]string{"le"}, defined[d.Name]...)
			}
		}
	}
	for _, rule := range shipped(t) {
		expr, err := promQL.ParseExpr(rule.Expr)
		if err != nil {
			t.Fatal(err)
		}
		parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
			switch n := node.(type) {
			case *parser.VectorSelector:
				known, ok := defined[n.Name]
				if !ok {
					t.Errorf("%s: no metric is called %s", rule.Alert, n.Name)
				}
				for _, m := range n.LabelMatchers {
					if m.Name != model.MetricNameLabel && !slices.Contains(known, m.Name) {
						t.Errorf("%s: %s has no label %s", rule.Alert, n.Name, m.Name)
					}
				}
			case *parser.AggregateExpr:
				for _, selector := range parser.ExtractSelectors(n.Expr) {
					name := selector[slices.IndexFunc(selector, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel })].Value
					for _, label := range n.Grouping {
						if !slices.Contains(defined[name], label) {
							t.Errorf("%s: %s has no label %s to be grouped by", rule.Alert, name, label)
						}
					}
				}
			}
			return nil
		})
	}
}

// Each alert says how bad it is and what to do, on a page that has a part about it.
func TestAlertsAreExplained(t *testing.T) {
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range shipped(t) {
		if !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
			t.Errorf("%s: severity %q", rule.Alert, rule.Labels["severity"])
		}
		if want := pageURL + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, want %q", rule.Alert, rule.Annotations["runbook_url"], want)
		}
		if !strings.Contains(string(content), "\n## "+rule.Alert+"\n") {
			t.Errorf("%s has no part of %s", rule.Alert, page)
		}
		if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
			t.Errorf("%s has no summary or no description", rule.Alert)
		}
	}
}

// healthy is what two coordinators serve for two hours in which nothing happens that anybody has to know of: a take-over at
// 30 min, a leader that is missed for four minutes, an election now and then, conflicts once in a while, a gate that is off.
const healthy = `
load 1m
  coordinated_leader_election_active{job="lc",pod="a"} 1x30 0x90
  coordinated_leader_election_active{job="lc",pod="b"} 0x28 1x92
  coordinated_leader_election_failures_total{job="lc",pod="a",reason="conflict"} 0+1x120
  coordinated_leader_election_failures_total{job="lc",pod="a",reason="error"} 0x50 3x70
  coordinated_leader_election_failures_total{job="lc",pod="a",reason="forbidden"} 0x120
  coordinated_leader_election_configuration_last_reload_successful{job="lc",pod="a"} 1x50 0x3 1x70
  coordinated_leader_election_lease_fields_kept{job="lc",pod="a"} 0x120
  coordinated_leader_election_strategy_failures_total{job="lc",pod="a",strategy="s"} 0x120
  coordinated_leader_election_lease_led{job="lc",pod="a",namespace="n",lease="l"} 1x20 0x3 1x97
  coordinated_leader_election_lease_blocked{job="lc",pod="a",namespace="n",lease="l"} 0x50 1x10 0x60
  coordinated_leader_election_leader_changes_total{job="lc",pod="a",namespace="n",lease="l",reason="Vacant"} 1x40 2x40 3x40
  coordinated_leader_election_lease_candidates{job="lc",pod="a",namespace="n",lease="l",state="Suspect"} 0x40 1x35 0x45
  coordinated_leader_election_lease_candidates{job="lc",pod="a",namespace="n",lease="l",state="Alive"} 3x120
  coordinated_leader_election_leaderless_duration_seconds_bucket{job="lc",pod="a",le="20"} 0x40 1x40 3x40
  coordinated_leader_election_leaderless_duration_seconds_bucket{job="lc",pod="a",le="30"} 0x40 1x40 3x40
  coordinated_leader_election_leaderless_duration_seconds_bucket{job="lc",pod="a",le="60"} 0x40 1x40 3x40
  coordinated_leader_election_leaderless_duration_seconds_bucket{job="lc",pod="a",le="+Inf"} 0x40 1x40 3x40
  coordinated_leader_election_skew_preventions_total{job="lc",pod="a",namespace="n",lease="l"} 0x60 2x60
`

// minute is the time between two scrapes, and between two evaluations.
const minute = time.Minute

// firing evaluates the alerts every minute and returns, for each that ever fired, the first minute in which it did.
func firing(t *testing.T, series string, minutes int) map[string]int {
	t.Helper()
	data, err := promqltest.NewLazyLoader(series, promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = data.Close() }()
	query := rules.EngineQueryFunc(data.QueryEngine(), data.Queryable())
	var alerts []*rules.AlertingRule
	for _, rule := range shipped(t) {
		expr, err := promQL.ParseExpr(rule.Expr)
		if err != nil {
			t.Fatal(err)
		}
		alerts = append(alerts, rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
			labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, promslog.NewNopLogger()))
	}
	first := map[string]int{}
	for m := range minutes + 1 {
		now := time.Unix(0, 0).UTC().Add(time.Duration(m) * minute)
		data.WithSamplesTill(now, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		})
		for _, alert := range alerts {
			if _, err := alert.Eval(data.Context(), 0, now, query, nil, 0); err != nil {
				t.Fatalf("%s: %v", alert.Name(), err)
			}
			for _, a := range alert.ActiveAlerts() {
				for name, text := range a.Annotations.Map() {
					if strings.Contains(text, "<error") || strings.Contains(text, "<no value>") {
						t.Errorf("%s of %s is %q", name, alert.Name(), text)
					}
				}
				if _, known := first[alert.Name()]; a.State == rules.StateFiring && !known {
					first[alert.Name()] = m
				}
			}
		}
	}
	return first
}

// What happens in a healthy cluster wakes nobody.
func TestNoAlertWithoutReason(t *testing.T) {
	if fired := firing(t, healthy, 120); len(fired) > 0 {
		t.Errorf("fired at minute: %v", fired)
	}
}

// Each alert fires for what it is about, when it should, and no other does.
func TestAlertsFire(t *testing.T) {
	const active = "\n  coordinated_leader_election_active{job=\"lc\",pod=\"a\"} 1x3000\n"
	tests := map[string]struct {
		series  string
		minutes int
		want    map[string]int
	}{
		"no coordinator": {`coordinated_leader_election_active{job="lc",pod="a"} 1x10 stale`, 30,
			map[string]int{"LeaseCoordinatorDown": 16}},
		"standbys only": {`coordinated_leader_election_active{job="lc",pod="a"} 1x10 0x30
		  coordinated_leader_election_active{job="lc",pod="b"} 0x40`, 30, map[string]int{"LeaseCoordinatorNotActive": 13}},
		"two active": {active + `coordinated_leader_election_active{job="lc",pod="b"} 0x10 1x40`, 30,
			map[string]int{"LeaseCoordinatorSeveralActive": 16}},
		"one active in each of two installations": {active + `coordinated_leader_election_active{job="team",pod="c"} 1x40`, 30, nil},
		"forbidden": {active + `coordinated_leader_election_failures_total{job="lc",pod="a",reason="forbidden"} 0x10 1x40`, 30,
			map[string]int{"LeaseCoordinatorWritesForbidden": 12}},
		"errors": {active + `coordinated_leader_election_failures_total{job="lc",pod="a",reason="error"} 0x10 0+6x40`, 40,
			map[string]int{"LeaseCoordinatorWritesFailing": 27}},
		"conflicts": {active + `coordinated_leader_election_failures_total{job="lc",pod="a",reason="conflict"} 0+120x60`, 40,
			map[string]int{"LeaseCoordinatorWritesConflicting": 21}},
		"configuration": {active + `coordinated_leader_election_configuration_last_reload_successful{job="lc",pod="a"} 1x10 0x40`, 30,
			map[string]int{"LeaseCoordinatorConfigurationRefused": 16}},
		"fields kept no more": {active + `coordinated_leader_election_lease_fields_kept{job="lc",pod="a"} 1x10 0x40`, 30,
			map[string]int{"LeaseCoordinatorFieldsDropped": 21}},
		"strategy": {active + `coordinated_leader_election_strategy_failures_total{job="lc",pod="a",strategy="s"} 0+1x40`, 30,
			map[string]int{"LeaseCoordinatorStrategyFailing": 11}},
		"no leader": {active + `coordinated_leader_election_lease_led{job="lc",pod="a",namespace="n",lease="l"} 1x10 0x40
		  coordinated_leader_election_lease_led{job="lc",pod="a",namespace="n",lease="m"} 1x50`, 30,
			map[string]int{"LeaseWithoutLeader": 16}},
		"no leader, over a take-over of the coordinator": {`coordinated_leader_election_active{job="lc",pod="a"} 1x12 0x40
		  coordinated_leader_election_active{job="lc",pod="b"} 0x12 1x40
		  coordinated_leader_election_lease_led{job="lc",pod="a",namespace="n",lease="l"} 1x10 0x2 stale
		  coordinated_leader_election_lease_led{job="lc",pod="b",namespace="n",lease="l"} _x12 0x40`, 30,
			map[string]int{"LeaseWithoutLeader": 16}},
		"blocked": {active + `coordinated_leader_election_lease_blocked{job="lc",pod="a",namespace="n",lease="l"} 0x10 1x40`, 40,
			map[string]int{"LeaseNotCoordinated": 26}},
		"unstable": {active + `coordinated_leader_election_leader_changes_total{job="lc",pod="a",namespace="n",lease="l",reason="Expired"} 1+1x60`, 40,
			map[string]int{"LeaseLeadershipUnstable": 11}},
		"suspects": {active + `coordinated_leader_election_lease_candidates{job="lc",pod="a",namespace="n",lease="l",state="Suspect"} 0x10 1x80`, 80,
			map[string]int{"LeaseCandidatesSuspect": 56}},
		"slow": {active + `coordinated_leader_election_leaderless_duration_seconds_bucket{job="lc",pod="a",le="30"} 0x80
		  coordinated_leader_election_leaderless_duration_seconds_bucket{job="lc",pod="a",le="60"} 0x10 1x70
		  coordinated_leader_election_leaderless_duration_seconds_bucket{job="lc",pod="a",le="+Inf"} 0x10 1x70`, 40,
			map[string]int{"LeaseElectionsSlow": 16}},
		"skew for a day": {active + `coordinated_leader_election_skew_preventions_total{job="lc",pod="a",namespace="n",lease="l"} 0+1x3000`, 1500,
			map[string]int{"LeaseVersionSkewLasts": 1081}},
		"skew for an hour": {active + `coordinated_leader_election_skew_preventions_total{job="lc",pod="a",namespace="n",lease="l"} 0+1x60 60x2900`, 1500, nil},
	}
	fired := map[string]bool{}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			series := "load 1m\n"
			for line := range strings.Lines(test.series) {
				if line = strings.TrimSpace(line); line != "" {
					series += "  " + line + "\n"
				}
			}
			got := firing(t, series, test.minutes)
			if !maps.Equal(got, test.want) {
				t.Errorf("fired at minute: %v, want %v", got, test.want)
			}
		})
		for alert := range test.want {
			fired[alert] = true
		}
	}
	for _, rule := range shipped(t) {
		if !fired[rule.Alert] {
			t.Errorf("%s has no test", rule.Alert)
		}
	}
}
