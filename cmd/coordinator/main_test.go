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
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// output collects what a program prints, from any goroutine.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
	// printed is closed when a line with the awaited words has come.
	awaited string
	printed chan struct{}
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.awaited != "" && strings.Contains(o.buf.String(), o.awaited)
	n, err := o.buf.Write(b)
	if o.awaited != "" && !before && strings.Contains(o.buf.String(), o.awaited) {
		close(o.printed)
	}
	return n, err
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func TestExitCodes(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args           []string
		code           int
		stdout, stderr []string
	}{
		"help":      {[]string{"--help"}, 0, []string{"Usage:", "--in-tree", "Exit codes: 0 after SIGTERM"}, nil},
		"version":   {[]string{"--version"}, 0, []string{"coordinator version v"}, nil},
		"unknown":   {[]string{"--nonsense"}, exitUsage, nil, []string{"error: unknown flag: --nonsense", "See coordinator --help."}},
		"no value":  {[]string{"--min-term"}, exitUsage, nil, []string{"--min-term"}},
		"bad value": {[]string{"--min-term=soon"}, exitUsage, nil, []string{`"soon"`, "--min-term"}},
		"argument":  {[]string{"run"}, exitUsage, nil, []string{`"run"`}},
		"two faults": {
			[]string{"--election-duration=20s", "--candidate-ttl=30s", "--log-format=xml"}, exitUsage, nil,
			[]string{"--candidate-ttl=30s", "--election-duration=20s", `--log-format="xml"`, "See coordinator --help."},
		},
		"no file":  {[]string{"--config=/nonexistent"}, exitUsage, nil, []string{`error: reading configuration file "/nonexistent": no such file or directory`}},
		"bad file": {[]string{"--config=" + bad}, exitUsage, nil, []string{`error: configuration file "` + bad + `": is empty`}},
		"no strategy": {
			[]string{"--lease-strategy=l=example.com/A"}, exitUsage, nil,
			[]string{`--lease-strategy="l=example.com/A": no strategy is called "example.com/A": there are "OldestEmulationVersion"`},
		},
		"no kubeconfig": {[]string{"--kubeconfig=/nonexistent"}, exitFailed, nil, []string{"error: ", `--kubeconfig="/nonexistent"`}},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr output
			if code := run(t.Context(), test.args, &stdout, &stderr); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			for _, want := range test.stdout {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("stdout does not say %q:\n%s", want, &stdout)
				}
			}
			for _, want := range test.stderr {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("stderr does not say %q:\n%s", want, &stderr)
				}
			}
			if test.code == exitFailed && strings.Contains(stderr.String(), "--help") {
				t.Error("the flags are not at fault, but it points to their help")
			}
		})
	}
}

// Without an API server it keeps trying and says so, and ends with 0 when told to.
func TestEndsWhenTold(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{"clusters":[{"name":"c","cluster":{"server":"http://` + address + `"}}],` +
		`"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stderr := &output{awaited: "Coordinator cannot work; trying again", printed: make(chan struct{})}
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"--kubeconfig=" + kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=0"}, &output{}, stderr)
	}()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	select {
	case <-stderr.printed:
	case code := <-ended:
		t.Fatalf("ended with %d:\n%s", code, stderr)
	case <-deadline.C:
		t.Fatalf("it does not say what is wrong:\n%s", stderr)
	}
	if !strings.Contains(stderr.String(), address) {
		t.Errorf("it does not say which server it cannot reach:\n%s", stderr)
	}
	stop()
	select {
	case code := <-ended:
		if code != 0 {
			t.Errorf("exit code %d:\n%s", code, stderr)
		}
	case <-deadline.C:
		t.Fatalf("it does not end:\n%s", stderr)
	}
}
