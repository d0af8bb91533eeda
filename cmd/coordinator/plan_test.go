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

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlans(t *testing.T) {
	for _, test := range []struct {
		golden string
		dump   string
		args   []string
	}{
		{"oldest_upgrade.txt", "control_plane", []string{"n1=1.38.0", "n2=1.38.0", "n3=1.38.0"}},
		{"oldest_upgrade.json", "control_plane", []string{"-o=json", "n1=1.38.0", "n2=1.38.0", "n3=1.38.0"}},
		{"oldest_upgrade_leader_last.txt", "control_plane", []string{"n2=1.38.0", "n3=1.38.0", "n1=1.38.0"}},
		{"oldest_upgrade_emulating.txt", "control_plane", []string{"n1=1.38.0/1.37.0", "n2=1.38.0/1.37.0", "n3=1.38.0/1.37.0"}},
		{"oldest_rollback.txt", "control_plane", []string{"--lease-strategy=*=OldestEmulationVersion", "n1=1.36.0", "n2=1.36.0", "n3=1.36.0"}},
		{"oldest_there_and_back.txt", "control_plane", []string{"n1=1.38.0", "n2=1.38.0", "n1=1.37.0", "n2=1.37.0"}},
		{"oldest_release.txt", "control_plane", []string{"--release", "n1=1.38.0", "n2=1.38.0", "n3=1.38.0"}},
		{"newest_upgrade.txt", "newest", []string{"n2=1.1.0", "n3=1.1.0", "n1=1.1.0"}},
		{"newest_rollback.txt", "newest", []string{"n1=0.9.0", "n2=0.9.0", "n3=0.9.0"}},
		{"newest_min_term.txt", "newest", []string{"--min-term=90m", "n2=1.1.0"}},
		{"newest_min_term_too_long.txt", "newest", []string{"--min-term=24h", "n2=1.1.0"}},
		{"join_and_leave.txt", "control_plane", []string{"+n4=1.36.0", "n4-", "n1-", "n2-", "n3-"}},
		{"join_and_leave.json", "control_plane", []string{"-o=json", "+n4=1.36.0", "n4-", "n1-", "n2-", "n3-"}},
		{"two_leases.txt", "two_leases", []string{"n1=1.38.0", "n2=1.38.0"}},
		{"two_leases_one.yaml", "two_leases", []string{"-o=yaml", "kube-scheduler", "n1=1.38.0"}},
		{"gate_off.txt", "gate_off", []string{"n2=1.36.0"}},
		{"restarted.txt", "restarted", []string{"n1=1.36.0", "n2=1.38.0"}},
		{"spread.txt", "../explain/spread", []string{"node2-"}},
		{"uncoordinated.txt", "../explain/uncoordinated", []string{"n1=1.38.0", "legacy_1-"}},
		{"handoff.txt", "../explain/handoff", []string{"n1-"}},
		{"preferred_gone.txt", "preferred_gone", []string{"n3=1.38.0"}},
		{"annotations_stay_behind.txt", "../explain/ineligible", []string{"kube-controller-manager", "n1=1.36.0"}},
		{"paused.txt", "../explain/paused", []string{"n2-"}},
		{"steps.txt", "control_plane", []string{"--steps=testdata/plan/steps"}},
	} {
		t.Run(test.golden, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"plan", "-f", filepath.Join("testdata", "plan", test.dump+".yaml")}, test.args...)
			golden(t, filepath.Join("testdata", "plan", "golden", test.golden), args...)
		})
	}
}

func TestPlanFaults(t *testing.T) {
	steps := filepath.Join(t.TempDir(), "steps")
	if err := os.WriteFile(steps, []byte("n1=1.38.0\nn2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dump := "testdata/plan/control_plane.yaml"
	for name, test := range map[string]struct {
		args   []string
		code   int
		stderr string
	}{
		"no dump":         {[]string{"n1=1.38.0"}, 2, "error: --filename is required"},
		"no step":         {[]string{"-f", dump, "kube-controller-manager"}, 2, "error: no step is given"},
		"lease after":     {[]string{"-f", dump, "n1=1.38.0", "kube-controller-manager"}, 2, "error: step \"kube-controller-manager\": must be node=version"},
		"no version":      {[]string{"-f", dump, "n1=latest"}, 2, "error: step \"n1=latest\": \"latest\" is not a version"},
		"no emulation":    {[]string{"-f", dump, "n1=1.38.0/"}, 2, "error: step \"n1=1.38.0/\": \"\" is not a version"},
		"no node":         {[]string{"-f", dump, "=1.38.0"}, 2, "error: step \"=1.38.0\": has no node"},
		"join nothing":    {[]string{"-f", dump, "+n4"}, 2, "error: step \"+n4\": must be"},
		"unknown node":    {[]string{"-f", dump, "n9=1.38.0"}, 1, "error: step \"n9=1.38.0\": no candidate that is there is on a node \"n9\", or is called so: there are n1, n2, n3\n"},
		"gone twice":      {[]string{"-f", dump, "n3-", "n3-"}, 1, "error: step \"n3-\": no candidate that is there is on a node \"n3\", or is called so: there are n1, n2\n"},
		"joins twice":     {[]string{"-f", dump, "+n1=1.38.0"}, 1, "error: step \"+n1=1.38.0\": there is a candidate on node \"n1\" already\n"},
		"no candidate":    {[]string{"-f", "testdata/explain/uncoordinated.yaml", "legacy_1=1.38.0"}, 1, "error: step \"legacy_1=1.38.0\": leader legacy_1"},
		"unknown lease":   {[]string{"-f", dump, "x", "n1=1.38.0"}, 1, "error: there is no lease \"x\""},
		"nothing to play": {[]string{"-f", "testdata/explain/empty.yaml", "n1=1.38.0"}, 1, "error: no LeaseCandidate in the dump"},
		"steps twice":     {[]string{"-f", dump, "--steps", steps, "n1-"}, 2, "error: --steps="},
		"steps at fault":  {[]string{"-f", dump, "--steps", steps}, 2, "error: --steps=\"" + steps + "\": line 2: step \"n2\": must be"},
		"down":            {[]string{"-f", dump, "--down=1h", "n1-"}, 2, "error: --down=1h0m0s must not be negative, and less than --within=1h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), append([]string{"plan"}, test.args...), &stdout, &stderr); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if !strings.HasPrefix(stderr.String(), test.stderr) {
				t.Errorf("stderr:\n%s\nwant:\n%s", &stderr, test.stderr)
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout is not empty:\n%s", &stdout)
			}
		})
	}
}
