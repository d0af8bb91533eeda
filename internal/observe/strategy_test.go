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
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/events"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// failing ranks by one key, or gives an error.
type failing struct{ err error }

func (failing) Name() coordinationv1.CoordinatedLeaseStrategy { return "example.com/Failing" }

func (f failing) Keys(keys []strategy.Key, _ *strategy.Candidate, _ *strategy.Election) ([]strategy.Key, error) {
	return append(keys, strategy.Key{Name: "k", Value: int64(1)}), f.err
}

func TestMeasuredStrategyCountsFailures(t *testing.T) {
	fault := errors.New("no such key")
	for name, test := range map[string]struct {
		err  error
		want float64
	}{
		"ranked":            {nil, 0},
		"refused":           {errors.New("a candidate it does not want"), 0},
		"failed":            {&strategy.Failure{Err: fault}, 1},
		"failed, and wraps": {fmt.Errorf("ranking: %w", &strategy.Failure{Err: fault}), 1},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			s := Measured(failing{test.err}, NewMetrics(registry))
			const series = "strategy_failures_total{strategy=example.com/Failing}"
			if value, found := gather(t, registry)[series]; !found || value != 0 {
				t.Errorf("before: %v, found %t", value, found)
			}
			before := []strategy.Key{{Name: "first", Value: "x"}}
			got, err := s.Keys(before, nil, nil)
			want, _ := failing{test.err}.Keys(before, nil, nil)
			if !reflect.DeepEqual(got, want) || err != test.err {
				t.Errorf("keys %v, %v; want %v, %v", got, err, want, test.err)
			}
			if value := gather(t, registry)[series]; value != test.want {
				t.Errorf("after: %v, want %v", value, test.want)
			}
		})
	}
}

// What a strategy shows of itself, it shows behind the decorator as well.
func TestMeasuredStrategyLooksLikeTheStrategy(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	for _, s := range strategy.BuiltIn() {
		measured := Measured(s, m)
		if measured.Name() != s.Name() {
			t.Errorf("%s is called %s", s.Name(), measured.Name())
		}
		_, want := s.(strategy.LoadDependent)
		depends, got := measured.(strategy.LoadDependent)
		if got != want {
			t.Errorf("%s depends on the load: %t, want %t", s.Name(), got, want)
		}
		if got {
			depends.DependsOnLoad()
		}
	}
}

func TestEventsOfConfigurations(t *testing.T) {
	recorder := events.NewFakeRecorder(2)
	e := Events{Recorder: recorder}
	e.ConfigurationReloaded(&coordinationv1.Lease{}, "50%s in force")
	e.ConfigurationRefused(&coordinationv1.Lease{}, strings.Repeat("x", 2*maxNote))
	if got := <-recorder.Events; got != "Normal ConfigurationReloaded 50%s in force" {
		t.Errorf("event %q", got)
	}
	if got := <-recorder.Events; got != "Warning ConfigurationRefused "+strings.Repeat("x", maxNote-3)+"..." {
		t.Errorf("event %q", got)
	}
	Events{}.ConfigurationRefused(&coordinationv1.Lease{}, "nobody listens")
}
