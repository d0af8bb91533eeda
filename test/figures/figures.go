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

// Package figures sums up measurements of one thing and writes the sums down, in the one form that all programs here
// that measure share. It measures nothing itself, and does not judge.
package figures

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// Figure is what was measured of one scenario with one system.
type Figure struct {
	Scenario string  `json:"scenario"`
	System   string  `json:"system"`
	N        int     `json:"n"`
	Median   float64 `json:"median_ms"`
	P90      float64 `json:"p90_ms"`
	Max      float64 `json:"max_ms"`
}

// Of sums up measurements, of which there must be one at least.
func Of(scenario, system string, measured []time.Duration) Figure {
	sorted := slices.Sorted(slices.Values(measured))
	return Figure{
		Scenario: scenario, System: system, N: len(sorted),
		Median: Milliseconds(Quantile(sorted, 0.5)), P90: Milliseconds(Quantile(sorted, 0.9)), Max: Milliseconds(sorted[len(sorted)-1]),
	}
}

// Quantile interpolates between the two nearest of sorted values.
func Quantile(sorted []time.Duration, q float64) time.Duration {
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below+1 >= len(sorted) {
		return sorted[below]
	}
	return sorted[below] + time.Duration((at-float64(below))*float64(sorted[below+1]-sorted[below]))
}

// Milliseconds is d as figures have it, to the microsecond.
func Milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Text is a number of milliseconds for people.
func Text(ms float64) string {
	switch {
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.1f s", ms/1000)
	}
}

// WriteJSON writes a list of figures to a file.
func WriteJSON(path string, list []Figure) error {
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the figures: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}
