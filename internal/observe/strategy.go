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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Measured returns the strategy as it is, and counts its failures: strategies themselves are pure. The count starts at
// zero. A strategy that depends on the load still shows that it does.
func Measured(s strategy.Strategy, m *Metrics) strategy.Strategy {
	measured := measuredStrategy{s, m.strategies.WithLabelValues(string(s.Name()))}
	if depends, isLoadDependent := s.(strategy.LoadDependent); isLoadDependent {
		return measuredLoadDependent{measured, depends}
	}
	return measured
}

type measuredStrategy struct {
	strategy.Strategy
	failures prometheus.Counter
}

// Keys implements strategy.Strategy.
func (m measuredStrategy) Keys(keys []strategy.Key, c *strategy.Candidate, e *strategy.Election) ([]strategy.Key, error) {
	keys, err := m.Strategy.Keys(keys, c, e)
	if failure := (*strategy.Failure)(nil); errors.As(err, &failure) {
		m.failures.Inc()
	}
	return keys, err
}

type measuredLoadDependent struct {
	measuredStrategy
	depends strategy.LoadDependent
}

// DependsOnLoad implements strategy.LoadDependent.
func (m measuredLoadDependent) DependsOnLoad() { m.depends.DependsOnLoad() }
