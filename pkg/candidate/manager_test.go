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

package candidate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// managers are those that one process has run, one after the other.
type managers struct {
	t    *testing.T
	api  *fakeAPI
	mu   sync.Mutex
	made int
	said []string
	// fail, if set, ends a manager by itself; wrap changes what Start returns.
	fail chan error
	wrap func(error) error
	// drain is how long controllers take to stop.
	drain time.Duration
}

func (m *managers) say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, fmt.Sprintf(format, args...))
}

func (m *managers) words() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(slices.Clone(m.said), ", ")
}

// make makes a real manager with one controller.
func (m *managers) make(ctx context.Context) (Manager, error) {
	m.mu.Lock()
	m.made++
	n := m.made
	m.mu.Unlock()
	mgr, err := manager.New(&rest.Config{Host: "http://fake", Transport: m.api}, manager.Options{
		BaseContext:             func() context.Context { return context.WithoutCancel(ctx) },
		GracefulShutdownTimeout: ptr.To[time.Duration](-1),
		Metrics:                 server.Options{BindAddress: "0"},
		Logger:                  testLogger(m.t),
	})
	if err != nil {
		return nil, err
	}
	return wrapped{mgr, m.wrap}, mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		term, ok := TermFromContext(ctx)
		m.say("%d starts in term %t", n, ok && term.Valid())
		defer m.say("%d stops", n)
		select {
		case <-ctx.Done():
			<-time.After(m.drain)
			return nil
		case err := <-m.fail:
			return err
		}
	}))
}

type wrapped struct {
	Manager
	wrap func(error) error
}

func (w wrapped) Start(ctx context.Context) error {
	err := w.Manager.Start(ctx)
	if w.wrap != nil {
		err = w.wrap(err)
	}
	return err
}

// runManagers is RunManager with the candidate's clock in virtual time.
func runManagers(t *testing.T, m *managers, change ...func(*Config)) (end context.CancelFunc, result <-chan error) {
	t.Helper()
	c := config(m.api, "a")
	c.Logger = testLogger(t)
	for _, f := range change {
		f(&c)
	}
	r := managerRunner{newManager: m.make}
	candidate, err := r.candidate(c)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	candidate.clock = func() time.Duration { return time.Hour + time.Since(begun) }
	// A manager logs its last line after Start has returned.
	t.Cleanup(synctest.Wait)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.run(ctx, candidate) }()
	pass(100 * time.Millisecond)
	return cancel, done
}

func TestManagerForEachTerm(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		m := &managers{t: t, api: api, drain: time.Second}
		end, result := runManagers(t, m)
		api.appoint("a")
		pass(time.Second)
		// A planned end.
		api.prefer("b")
		pass(900 * time.Millisecond)
		if api.holder() != "a" {
			t.Errorf("the lease is held by %q while the manager stops", api.holder())
		}
		pass(200 * time.Millisecond)
		if api.holder() != "b" {
			t.Errorf("the lease is held by %q when the manager has stopped", api.holder())
		}
		// A loss.
		api.appoint("a")
		pass(time.Second)
		api.appoint("b")
		pass(2 * time.Second)
		api.appoint("a")
		pass(time.Second)
		if len(result) != 0 || api.get(candidateResource, "a") == nil {
			t.Error("the process is no candidate any more")
		}
		end()
		if err := <-result; err != nil {
			t.Error(err)
		}
		if got, want := m.words(), "1 starts in term true, 1 stops, 2 starts in term true, 2 stops, 3 starts in term true, 3 stops"; got != want {
			t.Errorf("managers: %s\nwant: %s", got, want)
		}
		if api.holder() != "" || api.get(candidateResource, "a") != nil {
			t.Errorf("held by %q after the end", api.holder())
		}
	})
}

func TestManagerThatEndsByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		m := &managers{t: t, api: api, fail: make(chan error, 1)}
		_, result := runManagers(t, m)
		api.appoint("a")
		pass(time.Second)
		broken := errors.New("the controller is broken")
		m.fail <- broken
		if err := <-result; !errors.Is(err, broken) {
			t.Errorf("RunManager returned %v", err)
		}
		if api.holder() != "" || api.get(candidateResource, "a") != nil {
			t.Errorf("held by %q after the end", api.holder())
		}
	})
}

func TestManagerThatCannotBeMade(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		c := config(api, "a")
		taken := errors.New("the port is in use")
		done := make(chan error, 1)
		go func() {
			done <- RunManager(t.Context(), c, func(context.Context) (Manager, error) { return nil, taken })
		}()
		pass(100 * time.Millisecond)
		api.appoint("a")
		if err := <-done; !errors.Is(err, taken) {
			t.Errorf("RunManager returned %v", err)
		}
		if api.holder() == "a" {
			t.Error("the lease was not released")
		}
	})
}

// A manager that has given up waiting has not stopped, whenever it says so.
func TestManagerThatGivesUpWaiting(t *testing.T) {
	for name, end := range map[string]func(*fakeAPI, *managers){
		"when another is preferred": func(a *fakeAPI, _ *managers) { a.prefer("b") },
		"by itself":                 func(_ *fakeAPI, m *managers) { m.fail <- errors.New("broken") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				m := &managers{t: t, api: api, fail: make(chan error, 1)}
				m.wrap = func(err error) error {
					return errors.Join(err, fmt.Errorf("failed waiting for all runnables to end: %w", context.DeadlineExceeded))
				}
				deadline := make(chan time.Time, 1)
				_, result := runManagers(t, m, func(c *Config) { c.OnDeadline = func(string) { deadline <- time.Now() } })
				api.appoint("a")
				pass(time.Second)
				told := time.Now()
				end(api, m)
				if d := (<-deadline).Sub(told); d < 5*time.Second || d > 5*time.Second+100*time.Millisecond {
					t.Errorf("the process is ended after %s", d)
				}
				if api.holder() != "a" {
					t.Errorf("the lease was given to %q", api.holder())
				}
				// Where the handler does not end it, the claim runs out.
				if err := <-result; !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("RunManager returned %v", err)
				}
				if d := time.Since(told); d < 15*time.Second {
					t.Errorf("the candidacy has ended after %s", d)
				}
			})
		})
	}
}

func TestManagersConfiguration(t *testing.T) {
	c := config(newFakeAPI(), "a")
	c.Lead, c.LeaseName = func(context.Context) error { return nil }, "Upper"
	err := RunManager(t.Context(), c, nil)
	for _, want := range []string{"Lead must not be set", "a function that makes them is required", "Upper"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("RunManager returned %v, want %q", err, want)
		}
	}
}
