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
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestCompileLog(t *testing.T) {
	log := &compileLog{}
	write := func(text string) {
		t.Helper()
		if n, err := log.Write([]byte(text)); n != len(text) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", text, n, err)
		}
	}
	expect := func(want string) {
		t.Helper()
		if got := log.state(); got != want {
			t.Errorf("state is %q, want %q", got, want)
		}
	}
	expect("compiling and linking")
	write("go: downloading k8s.io/api v0.37.2\n")
	expect("downloading k8s.io/api v0.37.2")
	write("k8s.io/api/core/v1\nk8s.io/a")
	expect("1 packages compiled")
	write("pi/apps/v1\n# k8s.io/broken\n./x.go:3:2: undefined: y\nand more")
	expect("2 packages compiled")
	if got, want := log.tail(), "# k8s.io/broken\n./x.go:3:2: undefined: y\nand more"; got != want {
		t.Errorf("tail is %q, want %q", got, want)
	}
	for i := range 2 * tailLines {
		write(fmt.Sprintf("error number %d\n", i))
	}
	if got := strings.Count(log.tail(), "\n") + 1; got != tailLines {
		t.Errorf("tail has %d lines, want %d", got, tailLines)
	}
}

func TestExecuteSaysWhatFailed(t *testing.T) {
	r := testRecipe(t)
	err := r.execute(t.Context(), &compileLog{}, "sh", "-c", "echo it is broken >&2; exit 3")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatalf("execute returned %v, want exit status 3", err)
	}
	for _, want := range []string{
		"(cd " + r.moduleDir + " && CGO_ENABLED=0 GOWORK=off sh -c 'echo it is broken >&2; exit 3')",
		"    it is broken",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing from:\n%v", want, err)
		}
	}
}

// The go command's compilers hold its output open. That execute returns without having to give up on
// that output shows that they are gone too.
func TestExecuteStopsTheWholeGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	started := filepath.Join(t.TempDir(), "started")
	if err := syscall.Mkfifo(started, 0o600); err != nil {
		t.Fatal(err)
	}
	r, done := testRecipe(t), make(chan error, 1)
	go func() {
		done <- r.execute(ctx, &compileLog{}, "sh", "-c", "sleep 600 & echo >"+quote(started)+"; wait")
	}()
	if _, err := os.ReadFile(started); err != nil { // waits for the shell to open its end
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err == nil || errors.Is(err, exec.ErrWaitDelay) {
		t.Errorf("execute returned %v, want the end of every process in the group", err)
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"":            "''",
		"-s":          "-s",
		"-s -w":       "'-s -w'",
		"it's":        `'it'\''s'`,
		"a/b.go:3=@%": "a/b.go:3=@%",
	} {
		if got := quote(in); got != want {
			t.Errorf("quote(%q) = %s, want %s", in, got, want)
		}
	}
}
