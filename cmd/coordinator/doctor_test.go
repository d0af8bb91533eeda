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

// TestDoctorFaults: what comes in the place of a table. The table itself is tested where it is made, and on a real cluster.
func TestDoctorFaults(t *testing.T) {
	nobody := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(nobody, []byte(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args   []string
		code   int
		stderr string
	}{
		"format":        {[]string{"-o", "table"}, 2, `error: --output: "table" is no output format`},
		"watch":         {[]string{"--watch=-1s"}, 2, "error: --watch=-1s must not be negative\n"},
		"argument":      {[]string{"kube-system"}, 2, `error: unknown command "kube-system"`},
		"in-tree":       {[]string{"--in-tree=both"}, 2, "error: --in-tree="},
		"configuration": {[]string{"--config=/nowhere"}, 2, "error: "},
		"kubeconfig":    {[]string{"--kubeconfig=/nowhere"}, 1, `error: finding the API server (--kubeconfig="/nowhere"`},
		"context":       {[]string{"--kubeconfig", nobody, "--context=d"}, 1, "error: finding the API server"},
		"nobody there":  {[]string{"--kubeconfig", nobody}, 1, "error: asking https://127.0.0.1:1: asking for its version: "},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), append([]string{"doctor"}, test.args...), &stdout, &stderr); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			if !strings.HasPrefix(stderr.String(), test.stderr) {
				t.Errorf("stderr:\n%s\nwant:\n%s", &stderr, test.stderr)
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout:\n%s", &stdout)
			}
		})
	}
}

// TestDoctorFlags: the flags that say which lock is the coordinator's mean what they mean to the coordinator.
func TestDoctorFlags(t *testing.T) {
	code := 0
	command := doctorCommand(&code)
	for _, name := range []string{"in-tree", "leader-elect-resource-namespace", "leader-elect-resource-name", "config", "election-duration"} {
		if command.Flags().Lookup(name) == nil {
			t.Errorf("there is no --%s", name)
		}
	}
	if got := command.Flags().Lookup("leader-elect-resource-name").DefValue; got != "lease-coordinator" {
		t.Errorf("--leader-elect-resource-name=%s", got)
	}
}
