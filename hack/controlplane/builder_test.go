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
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// gomod is what `go mod edit -json` prints, cut to what is read.
const gomod = `{"Module": {"Path": "` + modulePath + `"}, "Require": [
	{"Path": "k8s.io/kubernetes", "Version": "v1.37.2"},
	{"Path": "go.etcd.io/etcd/server/v3", "Version": "v3.7.0"}]}`

func testRecipe(t *testing.T) recipe {
	t.Helper()
	r := recipe{goCommand: "go", goVersion: "go1.26.8", platform: "linux-amd64", moduleDir: t.TempDir()}
	if err := r.readModule([]byte(gomod)); err != nil {
		t.Fatal(err)
	}
	if err := r.seal([]byte(gomod), nil); err != nil {
		t.Fatal(err)
	}
	return r
}

// screen is a writer that can be asked whether a text has been written, and be waited on for it.
type screen struct {
	mu      sync.Mutex
	changed sync.Cond
	text    strings.Builder
}

func newScreen() *screen {
	s := &screen{}
	s.changed.L = &s.mu
	return s
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.changed.Broadcast()
	return s.text.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *screen) waitFor(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !strings.Contains(s.text.String(), text) {
		s.changed.Wait()
	}
}

// install is a compiler that always succeeds.
func install(_ context.Context, c component, out string, _ *compileLog) error {
	return os.WriteFile(out, []byte(c.name), 0o755)
}

func neverCalled(t *testing.T) func(context.Context, component, string, *compileLog) error {
	return func(_ context.Context, c component, _ string, _ *compileLog) error {
		t.Errorf("%s is built again", c.name)
		return errors.New("built again")
	}
}

func TestBuildMakesWhatIsMissingOnce(t *testing.T) {
	p := newPlane(testRecipe(t), t.TempDir())
	b := builder{plane: p, report: newReporter(newScreen()), compile: install}
	if err := b.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range components {
		if content, err := os.ReadFile(p.path(c)); err != nil || string(content) != c.name {
			t.Errorf("%s holds %q, %v", p.path(c), content, err)
		}
	}
	quiet := newScreen()
	b = builder{plane: p, report: newReporter(quiet), compile: neverCalled(t)}
	if err := b.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	if quiet.String() != "" {
		t.Errorf("a build with nothing to do says %q", quiet)
	}
}

func TestBuildWaitsForAnotherBuild(t *testing.T) {
	r, root := testRecipe(t), t.TempDir()
	compiling, goOn := make(chan struct{}), make(chan struct{})
	var first sync.WaitGroup
	first.Go(func() {
		var once sync.Once
		b := builder{plane: newPlane(r, root), report: newReporter(newScreen()),
			compile: func(ctx context.Context, c component, out string, log *compileLog) error {
				once.Do(func() { close(compiling) })
				<-goOn
				return install(ctx, c, out, log)
			}}
		if err := b.build(t.Context()); err != nil {
			t.Error(err)
		}
	})
	<-compiling

	seen := newScreen()
	first.Go(func() {
		seen.waitFor("waiting for another build (process ")
		close(goOn)
	})
	b := builder{plane: newPlane(r, root), report: newReporter(seen), compile: neverCalled(t)}
	if err := b.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Wait()
}

func TestWaitingCanBeInterrupted(t *testing.T) {
	p := newPlane(testRecipe(t), t.TempDir())
	l, _, err := tryLock(p.home + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer l.release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := builder{plane: p, report: newReporter(newScreen()), compile: neverCalled(t)}
	if err := b.build(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("build returned %v, want %v", err, context.Canceled)
	}
}

func TestInterruptedBuildLeavesWholeBinariesOnly(t *testing.T) {
	p := newPlane(testRecipe(t), t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	b := builder{plane: p, report: newReporter(newScreen()),
		compile: func(ctx context.Context, c component, out string, log *compileLog) error {
			if c.name != "kube-apiserver" {
				return install(ctx, c, out, log)
			}
			if err := os.WriteFile(out, []byte("half"), 0o755); err != nil {
				return err
			}
			cancel()
			return errors.New("killed")
		}}
	if err := b.build(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("build returned %v, want %v", err, context.Canceled)
	}
	left, err := os.ReadDir(p.home)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Name() != "etcd" {
		t.Errorf("left behind: %v, want etcd alone", left)
	}
}

// A process that is killed outright cleans nothing up; the next build does.
func TestBuildClearsWhatAKilledOneLeft(t *testing.T) {
	p := newPlane(testRecipe(t), t.TempDir())
	scratch := filepath.Join(p.home, scratchName)
	if err := os.MkdirAll(filepath.Join(scratch, "123", "etcd"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := builder{plane: p, report: newReporter(newScreen()), compile: install}
	if err := b.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(scratch); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", scratch, err)
	}
}

func TestFailureNamesTheComponent(t *testing.T) {
	p := newPlane(testRecipe(t), t.TempDir())
	broken := errors.New("undefined: x")
	b := builder{plane: p, report: newReporter(newScreen()),
		compile: func(ctx context.Context, c component, out string, log *compileLog) error {
			if c.name == "kube-scheduler" {
				return broken
			}
			return install(ctx, c, out, log)
		}}
	err := b.build(t.Context())
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "kube-scheduler could not be built") {
		t.Errorf("build returned %v", err)
	}
}

func TestRunRejectsWhatItDoesNotUnderstand(t *testing.T) {
	for _, args := range [][]string{{"bild"}, {"-o", "yaml"}, {"build", "extra"}, {"build", "--frob"}} {
		err := run(t.Context(), args, func(string) string { return "" }, new(bytes.Buffer), new(bytes.Buffer))
		if !errors.Is(err, errUsage) {
			t.Errorf("run(%q) returned %v, want a usage error", args, err)
		}
	}
}

func TestCacheRoot(t *testing.T) {
	set := func(value string) func(string) string { return func(string) string { return value } }
	if got, err := cacheRoot(set("/var/cache/lc")); err != nil || got != "/var/cache/lc/controlplane" {
		t.Errorf("absolute override: %q, %v", got, err)
	}
	if got, err := cacheRoot(set("here")); err == nil {
		t.Errorf("a relative override is taken: %q", got)
	}
	t.Setenv("HOME", "/home/someone")
	t.Setenv("XDG_CACHE_HOME", "")
	if got, err := cacheRoot(set("")); err != nil || !strings.HasSuffix(got, "/lease-coordinator/controlplane") {
		t.Errorf("default: %q, %v", got, err)
	}
}

func TestProgress(t *testing.T) {
	for _, test := range []struct {
		name     string
		terminal bool
		want     string
	}{
		{"log", false, "controlplane: etcd 30s\ncontrolplane: etcd 1m0s\ncontrolplane: built\n"},
		{"terminal", true, "controlplane: etcd 30s\r\x1b[Kcontrolplane: etcd 1m0s\r\x1b[Kcontrolplane: built\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, ticks := newScreen(), make(chan time.Time)
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			var mu sync.Mutex
			r := newReporter(s)
			r.terminal = test.terminal
			r.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
			r.ticker = func(time.Duration) (<-chan time.Time, func()) { return ticks, func() {} }
			finish := r.during(func(elapsed time.Duration) string { return "etcd " + elapsed.String() })
			for _, seen := range []string{"30s", "1m0s"} {
				mu.Lock()
				now = now.Add(30 * time.Second)
				mu.Unlock()
				ticks <- time.Time{}
				s.waitFor(seen)
			}
			finish()
			r.line("built")
			if got := s.String(); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}
