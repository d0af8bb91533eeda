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

package framework

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// shell makes a process that runs a script, and returns what it published.
func shell(t *testing.T, script string) (*Process, func() []EventKind) {
	t.Helper()
	sb, err := theSandbox()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var kinds []EventKind
	b := &bus{}
	b.subscribe(func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		kinds = append(kinds, e.Kind)
	})
	p := &Process{
		rt: sb, bus: b, path: "/bin/sh", args: []string{"-c", script},
		logPath: filepath.Join(t.TempDir(), "log"), info: ProcessInfo{Name: "shell"},
	}
	t.Cleanup(func() {
		if err := p.Kill(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return p, func() []EventKind {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(kinds)
	}
}

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestProcessRestarts(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	p, _ := shell(t, "echo ran; exit 3")
	p.SetRestart(true)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := WaitFor(ctx, "three runs", func(context.Context) (bool, error) { return len(p.LogLines("ran")) >= 3, nil }); err != nil {
		t.Fatal(err)
	}
	// The run that is under way, or about to begin, ends by itself.
	p.SetRestart(false)
	if err := WaitFor(ctx, "the last run's end", func(context.Context) (bool, error) {
		return !p.Running() && len(p.LogLines("ran")) == p.Info().Run, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if p.Running() {
		t.Error("it runs after Stop")
	}
	if err := p.ExitError(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("it ended with %v, want exit status 3", err)
	}
	if err := p.Start(); err != nil {
		t.Errorf("starting it again: %v", err)
	}
}

func TestProcessLeftExited(t *testing.T) {
	t.Parallel()
	p, kinds := shell(t, "exit 0")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if err := p.ExitError(); err != nil {
		t.Error(err)
	}
	if err := p.Signal(syscall.SIGTERM); err == nil {
		t.Error("a signal to a process that has ended was no error")
	}
	if got, want := kinds(), []EventKind{ProcessStarted, ProcessExited}; !slices.Equal(got, want) {
		t.Errorf("events: %v, want %v", got, want)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("stopping it: %v", err)
	}
}

func TestProcessCrashAndTerminate(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	p, _ := shell(t, "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done")
	p.SetRestart(true)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err == nil {
		t.Error("it was started twice")
	}
	for run, end := range []func(context.Context) error{p.Crash, p.Terminate} {
		if err := WaitFor(ctx, "the next run", func(context.Context) (bool, error) {
			return len(p.LogLines("up")) == run+1, nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := WaitFor(ctx, "the third run", func(context.Context) (bool, error) { return p.Info().Run == 3, nil }); err != nil {
		t.Fatal(err)
	}
}

func TestProcessFreeze(t *testing.T) {
	t.Parallel()
	ctx := soon(t)
	p, kinds := shell(t, "while :; do echo tick; sleep 0.01; done")
	ticks := func() int { return len(p.LogLines("tick")) }
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := WaitFor(ctx, "a tick", func(context.Context) (bool, error) { return ticks() > 0, nil }); err != nil {
		t.Fatal(err)
	}
	if err := p.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	if !stopped(p.Info().PID) {
		t.Error("the kernel does not report it as stopped")
	}
	if err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	before := ticks()
	if err := WaitFor(ctx, "it to go on", func(context.Context) (bool, error) { return ticks() > before+1, nil }); err != nil {
		t.Fatal(err)
	}
	// A frozen process can be stopped as well.
	if err := p.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	want := []EventKind{ProcessStarted, ProcessFrozen, ProcessThawed, ProcessFrozen, ProcessExited}
	if got := kinds(); !slices.Equal(got, want) {
		t.Errorf("events: %v, want %v", got, want)
	}
}

func TestProcessStopEscalates(t *testing.T) {
	t.Parallel()
	p, _ := shell(t, "trap '' TERM; echo up; while :; do sleep 0.05; done")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := WaitFor(soon(t), "it to be up", func(context.Context) (bool, error) { return len(p.LogLines("up")) > 0, nil }); err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Stop(impatient); err != nil {
		t.Fatal(err)
	}
	if p.Running() {
		t.Error("it runs after Stop")
	}
}

func TestProcessOutputComesBeforeItsExit(t *testing.T) {
	t.Parallel()
	for i := range 20 {
		p, _ := shell(t, "echo last words >&2")
		var heard string
		p.line = func(_ ProcessInfo, _ time.Time, line string) { heard = line }
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		<-p.Exited()
		if heard != "last words" {
			t.Fatalf("attempt %d: heard %q before the exit", i, heard)
		}
	}
}

func TestProcessStartFails(t *testing.T) {
	t.Parallel()
	p, kinds := shell(t, "")
	p.path = "/nonexistent"
	if err := p.Start(); err == nil {
		t.Fatal("a program that does not exist was started")
	}
	if got := kinds(); got != nil {
		t.Errorf("events: %v, want none", got)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRetryBind(t *testing.T) {
	t.Parallel()
	attempts := 0
	c := &Cluster{names: map[string]int{}}
	err := c.retryBind(func() (*Process, error) {
		attempts++
		p, _ := shell(t, "echo listen tcp: bind: address already in use; exit 1")
		if attempts == 3 {
			return p, nil
		}
		if err := p.Start(); err != nil {
			return nil, err
		}
		<-p.Exited()
		return p, fmt.Errorf("attempt %d failed", attempts)
	})
	if err != nil || attempts != 3 {
		t.Errorf("after %d attempts: %v; want success at the third", attempts, err)
	}

	attempts = 0
	err = c.retryBind(func() (*Process, error) {
		attempts++
		p, _ := shell(t, "echo bad flag; exit 1")
		if err := p.Start(); err != nil {
			return nil, err
		}
		<-p.Exited()
		return p, fmt.Errorf("attempt %d failed", attempts)
	})
	if err == nil || attempts != 1 {
		t.Errorf("after %d attempts: %v; want the error of the first", attempts, err)
	}
}

func TestPortsAreNotHandedOutTwice(t *testing.T) {
	t.Parallel()
	p := &ports{taken: map[int]bool{}}
	seen := map[int]bool{}
	for range 200 {
		port, err := p.take()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d twice", port)
		}
		seen[port] = true
	}
}
