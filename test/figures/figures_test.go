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

package figures

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	values := []time.Duration{1 * time.Second, 2 * time.Second, 4 * time.Second}
	for q, want := range map[float64]time.Duration{0: time.Second, 0.5: 2 * time.Second, 0.75: 3 * time.Second, 1: 4 * time.Second} {
		if got := Quantile(values, q); got != want {
			t.Errorf("quantile %v = %s, want %s", q, got, want)
		}
	}
	if got := Quantile(values[:1], 0.9); got != time.Second {
		t.Errorf("quantile of one value = %s, want that value", got)
	}
}

func TestOf(t *testing.T) {
	measured := []time.Duration{4 * time.Millisecond, 1500 * time.Microsecond, 2 * time.Millisecond}
	want := Figure{Scenario: "crash", System: "library", N: 3, Median: 2, P90: 3.6, Max: 4}
	if got := Of("crash", "library", measured); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if measured[0] != 4*time.Millisecond {
		t.Error("the caller's measurements were put into another order")
	}
}

func TestText(t *testing.T) {
	for ms, want := range map[float64]string{0.04: "0.0 ms", 9.96: "10.0 ms", 99.9: "99.9 ms", 100: "100 ms", 999: "999 ms", 1000: "1.0 s", 15260: "15.3 s"} {
		if got := Text(ms); got != want {
			t.Errorf("%v ms is %q, want %q", ms, got, want)
		}
	}
}

// Others read these files: neither a name nor a unit may change.
func TestWriteJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.json")
	if err := WriteJSON(path, []Figure{{"planned-handoff", "library", 30, 8.5, 12.25, 20}}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := `[
  {
    "scenario": "planned-handoff",
    "system": "library",
    "n": 30,
    "median_ms": 8.5,
    "p90_ms": 12.25,
    "max_ms": 20
  }
]
`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
