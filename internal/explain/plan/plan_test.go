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

package plan

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/explain"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

func TestParseStep(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"n1=1.38.0", "0 n1 1.38.0 1.38.0"},
		{"n1=v1.38", "0 n1 v1.38 v1.38"},
		{"n1=1.38.0/1.37.0", "0 n1 1.38.0 1.37.0"},
		{"a=b=1.38.0", "0 a=b 1.38.0 1.38.0"},
		{"n1-", "1 n1  "},
		{"host_7-", "1 host_7  "},
		{"n-1=1.0.0-rc.1+k3s1", "0 n-1 1.0.0-rc.1+k3s1 1.0.0-rc.1+k3s1"},
		{"+n4=1.38.0/1.37", "2 n4 1.38.0 1.37"},
		{"n1", "error"}, {"-", "error"}, {"+n1-", "error"}, {"+n1", "error"}, {"", "error"}, {"=1.0.0", "error"}, {"+=1.0.0", "error"},
		{"n1=", "error"}, {"n1=1.0.0/", "error"}, {"n1=one", "error"},
	} {
		got := "error"
		if s, err := ParseStep(test.text); err == nil {
			got = fmt.Sprintf("%d %s %s %s", s.Kind, s.Node, s.Binary.Text, s.Emulation.Text)
			if s.String() != test.text {
				t.Errorf("%q prints as %q", test.text, s)
			}
		} else if !strings.Contains(err.Error(), fmt.Sprintf("%q", test.text)) {
			t.Errorf("%q: the error does not show it: %v", test.text, err)
		}
		if got != test.want {
			t.Errorf("%q: %q, want %q", test.text, got, test.want)
		}
	}
}

func settings(t testing.TB) *election.Settings {
	t.Helper()
	registry, err := strategy.NewRegistry(strategy.BuiltIn()...)
	if err != nil {
		t.Fatal(err)
	}
	return &election.Settings{
		Strategies: registry, ElectionDuration: election.DefaultElectionDuration, CandidateTTL: election.DefaultCandidateTTL,
	}
}

// makePlan plays steps on a dump, for all its leases.
func makePlan(t testing.TB, dump []byte, o Options, steps ...string) (*Plan, error) {
	t.Helper()
	c, err := explain.Read(bytes.NewReader(dump))
	if err != nil {
		return nil, err
	}
	var list []Step
	for _, text := range steps {
		step, err := ParseStep(text)
		if err != nil {
			return nil, err
		}
		list = append(list, step)
	}
	return Make(c.At(c.Newest(), settings(t)), c.Coordinated(""), list, o)
}

var defaults = Options{Down: 10 * time.Second, Within: time.Hour}

// TestSamePlan: one input, one plan.
func TestSamePlan(t *testing.T) {
	dump, err := os.ReadFile("../../../cmd/coordinator/testdata/explain/spread.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var first *Plan
	for range 20 {
		p, err := makePlan(t, dump, defaults, "node1=1.0.1", "node2=1.0.1", "+node3=1.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = p
		}
		if !reflect.DeepEqual(p, first) {
			t.Fatal("another plan")
		}
	}
}

// TestUpgradesInEveryOrder: under OldestEmulationVersion leadership moves exactly when the leader's own node is upgraded,
// and no leader is ever newer than the oldest candidate left.
func TestUpgradesInEveryOrder(t *testing.T) {
	dump, err := os.ReadFile("../../../cmd/coordinator/testdata/plan/control_plane.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range []bool{false, true} {
		for _, order := range [][]int{{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}} {
			var steps []string
			for _, n := range order {
				steps = append(steps, fmt.Sprintf("n%d=1.38.0", n))
			}
			o := defaults
			o.Release = release
			p, err := makePlan(t, dump, o, steps...)
			if err != nil {
				t.Fatal(err)
			}
			// n1 leads, and whoever leads moves on only when its own node is upgraded.
			if len(p.Skews) > 0 {
				t.Errorf("%v: skew %+v", steps, p.Skews[0])
			}
			if p.Leaders[0].Version != "1.38.0" || !p.Steps[3].Settled {
				t.Errorf("%v: ends with %+v", steps, p.Leaders[0])
			}
			for i, s := range p.Steps[1:] {
				last := "n1"
				if i > 0 {
					last = leaderAfter(p.Steps[:i+1])
				}
				upgraded := strings.HasPrefix(last, fmt.Sprintf("n%d", order[i]))
				if upgraded != (s.Count == 1) {
					t.Errorf("%v: step %s with leader %s has %d changes", steps, s.Step, last, s.Count)
				}
			}
		}
	}
}

func leaderAfter(steps []*StepResult) string {
	leader := "n1"
	for _, s := range steps {
		for _, c := range s.Changes {
			leader = c.To
		}
	}
	return leader
}

// FuzzPlan: whatever the dump, a plan ends and is consistent.
func FuzzPlan(f *testing.F) {
	files, err := filepath.Glob("../../../cmd/coordinator/testdata/*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content, "n1=1.38.0 n2- +n9=1.35.0", true)
	}
	f.Fuzz(func(t *testing.T, dump []byte, steps string, release bool) {
		if len(dump) > 1<<14 || len(steps) > 100 {
			return
		}
		p, err := makePlan(t, dump, Options{Release: release, Down: 10 * time.Second, Within: 10 * time.Minute}, strings.Fields(steps)...)
		if err != nil {
			if strings.Contains(err.Error(), errRestless.Error()) {
				t.Error(err)
			}
			return
		}
		total := 0
		leader := map[string]string{}
		for _, s := range p.Steps {
			total += len(s.Changes)
			for _, c := range s.Changes {
				if c.From == c.To || leader[c.Lease] != "" && c.From != leader[c.Lease] {
					t.Errorf("%s: %+v follows %q", s.Step, c, leader[c.Lease])
				}
				leader[c.Lease] = c.To
			}
		}
		if total != p.Total {
			t.Errorf("%d changes, but %d in all", total, p.Total)
		}
		for _, format := range []explain.Format{explain.Text, explain.JSON, explain.YAML} {
			var b bytes.Buffer
			if err := Print(&b, format, p); err != nil || b.Len() == 0 {
				t.Errorf("%s: %v", format, err)
			}
		}
	})
}
