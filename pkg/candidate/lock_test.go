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
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

var (
	_ resourcelock.Interface         = &ResourceLock{}
	_ manager.LeaderElectionRunnable = &Runnable{}
	_ manager.Runnable               = &Runnable{}
)

// operator is a process with a controller-runtime manager that leads by a ResourceLock.
type operator struct {
	*player
	lock *ResourceLock
}

// lockOf returns a lock in virtual time, and the player that notes what it does.
func lockOf(t *testing.T, api *fakeAPI, identity string, change ...func(*player, *Config)) *operator {
	t.Helper()
	p := &player{t: t, result: make(chan error, 1), quit: make(chan error)}
	c := config(api, identity)
	c.Logger = testLogger(t)
	for _, f := range change {
		f(p, &c)
	}
	lock, err := NewResourceLock(c)
	if err != nil {
		t.Fatal(err)
	}
	p.Candidate = lock.candidate
	begun := time.Now()
	lock.candidate.clock = func() time.Duration { return time.Hour + time.Since(begun) }
	lock.candidate.exit = func(int) { p.note("exit", Term{}) }
	return &operator{p, lock}
}

func testLogger(t *testing.T) logr.Logger {
	return funcr.New(func(prefix, args string) { t.Log(time.Now().Format("05.000"), prefix, args) }, funcr.Options{Verbosity: 1})
}

// Start is the controllers' work.
func (o *operator) Start(ctx context.Context) error {
	term, ok := o.lock.Term()
	if !ok {
		o.t.Errorf("the controllers of %s start without a term", o.Identity())
	}
	o.note("starts", term)
	<-ctx.Done()
	o.note("told to stop", term)
	if o.stubborn {
		<-o.quit
	}
	if o.drain > 0 {
		<-time.After(o.drain)
	}
	o.note("stops", term)
	return nil
}

// operate starts a manager with client-go's elector, both as they are.
func operate(t *testing.T, api *fakeAPI, identity string, change ...func(*player, *Config, *manager.Options)) *operator {
	t.Helper()
	options := manager.Options{
		LeaderElection: true, LeaderElectionReleaseOnCancel: true,
		Metrics: server.Options{BindAddress: "0"}, Logger: testLogger(t),
	}
	o := lockOf(t, api, identity, func(p *player, c *Config) {
		for _, f := range change {
			f(p, c, &options)
		}
	})
	options.LeaderElectionResourceLockInterface = o.lock
	mgr, err := manager.New(&rest.Config{Host: "http://fake", Transport: api}, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(mgr.Add(o.lock.Runnable()), mgr.Add(o)); err != nil {
		t.Fatal(err)
	}
	// A manager logs its last line after Start has returned.
	t.Cleanup(synctest.Wait)
	var ctx context.Context
	ctx, o.cancel = context.WithCancel(t.Context())
	go func() {
		err := mgr.Start(ctx)
		o.note("returned", Term{})
		o.result <- err
	}()
	return o
}

// withdrawn fails unless the candidate has left nothing behind.
func (o *operator) withdrawn(api *fakeAPI) {
	o.t.Helper()
	if api.get(candidateResource, o.Identity()) != nil {
		o.t.Errorf("the LeaseCandidate of %s is still there", o.Identity())
	}
	if api.holder() == o.Identity() {
		o.t.Errorf("%s still holds the lease", o.Identity())
	}
	if at := o.times("exit"); at != nil {
		o.t.Errorf("%s has ended its process", o.Identity())
	}
}

func TestManagerLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		api.coordinate(t.Context())
		began := time.Now()
		b := operate(t, api, "b", func(p *player, _ *Config, _ *manager.Options) { p.drain = 3 * time.Second })
		pass(time.Minute)
		// Discovery, list, create, appointment, take-up; no poll.
		within(t, "the first election", b.only("starts").Sub(began), 10*time.Millisecond)
		if !b.lock.IsLeader() || b.lock.Leader() != "b" || b.lock.Check(nil) != nil {
			t.Errorf("leads %t, leader %q, check %v", b.lock.IsLeader(), b.lock.Leader(), b.lock.Check(nil))
		}
		// The candidate renews; the elector asks the API server for nothing.
		if n := count(api.asked(time.Now().Add(-20*time.Second + time.Millisecond))); n["PATCH leases"] != 10 || len(n) != 1 {
			t.Errorf("requests in 20 s: %v", n)
		}

		told := time.Now()
		a := operate(t, api, "a")
		pass(2 * time.Second)
		if api.holder() != "b" || a.times("starts") != nil {
			t.Errorf("holder %q before the controllers have stopped", api.holder())
		}
		pass(10 * time.Second)
		within(t, "telling the controllers", b.only("told to stop").Sub(told), 15*time.Millisecond)
		within(t, "the hand-off", a.only("starts").Sub(b.only("stops")), 3*time.Millisecond)
		within(t, "the exit", b.only("returned").Sub(b.only("stops")), 5*time.Millisecond)
		if err := b.ended(); !errors.Is(err, ErrEndOfTerm) || errors.Is(err, ErrLostLease) || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("Start returned %v", err)
		}
		b.withdrawn(api)
		alternate(t, a.player, b.player)
		if err := a.end(); err != nil {
			t.Error(err)
		}
		a.withdrawn(api)
	})
}

func TestManagerIsToldToEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		api.coordinate(t.Context())
		a := operate(t, api, "a", func(p *player, _ *Config, _ *manager.Options) { p.drain = 3 * time.Second })
		b := operate(t, api, "b")
		c := operate(t, api, "c")
		pass(time.Minute)
		told := time.Now()
		a.cancel()
		pass(time.Second)
		if api.holder() != "a" || a.lock.IsLeader() {
			t.Errorf("holder %q while the controllers stop; leads %t", api.holder(), a.lock.IsLeader())
		}
		if err := a.ended(); err != nil {
			t.Error(err)
		}
		a.withdrawn(api)
		within(t, "the exit", time.Since(told), 3*time.Second+5*time.Millisecond)
		pass(time.Second)
		within(t, "the hand-off", b.only("starts").Sub(a.only("stops")), 3*time.Millisecond)

		told = time.Now()
		if err := c.end(); err != nil {
			t.Error(err)
		}
		within(t, "the exit of a standby", time.Since(told), 5*time.Millisecond)
		if c.times("starts") != nil {
			t.Error("a standby has worked")
		}
		c.withdrawn(api)
		if err := b.end(); err != nil {
			t.Error(err)
		}
		// Without a successor there is half a second for a coordinator to find one.
		b.withdrawn(api)
		alternate(t, a.player, b.player, c.player)
	})
}

// Nothing but a take-up of the candidate makes the elector lead, whatever the lease looks like.
func TestElectorTakesNothingByItself(t *testing.T) {
	for _, test := range []struct {
		name     string
		fallback time.Duration
		lease    func(*fakeAPI)
		starts   bool
	}{
		{"no lease", -1, func(*fakeAPI) {}, false},
		{"a vacant lease", -1, func(a *fakeAPI) { a.edit("leases", "l", func(l object) { spec(l)["holderIdentity"] = "" }) }, false},
		{"an expired lease", -1, func(a *fakeAPI) { a.appoint("somebody") }, false},
		{"a revoked lease", -1, func(a *fakeAPI) { a.appoint(v1alpha1.RevokedHolder) }, false},
		{"no lease, and the fallback", 0, func(*fakeAPI) {}, true},
		{"an expired lease, and the fallback", 0, func(a *fakeAPI) { a.appoint("somebody") }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				test.lease(api)
				a := operate(t, api, "a", func(_ *player, c *Config, _ *manager.Options) { c.FallbackAfter = test.fallback })
				pass(5 * time.Minute)
				if started := a.times("starts") != nil; started != test.starts {
					t.Errorf("started %t", started)
				}
				if n := count(api.asked(time.Time{})); !test.starts && n["PATCH leases"]+n["POST leases"] > 0 {
					t.Errorf("requests %v", n)
				}
				if err := a.end(); err != nil {
					t.Error(err)
				}
				a.withdrawn(api)
			})
		})
	}
}

func TestManagerLosesTheLease(t *testing.T) {
	for _, test := range []struct {
		name string
		lose func(*fakeAPI)
		// after is when the controllers are told, at the earliest and at the latest.
		after, before time.Duration
	}{
		{"the API server is away", func(a *fakeAPI) { a.setFault(func(request) fault { return fault{refused: true} }) },
			7 * time.Second, 10 * time.Second},
		{"somebody else holds it", func(a *fakeAPI) { a.appoint("somebody") }, 0, 2 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				a := operate(t, api, "a", func(p *player, _ *Config, _ *manager.Options) { p.drain = time.Second })
				pass(100 * time.Millisecond)
				api.appoint("a")
				pass(10 * time.Second)
				lost := time.Now()
				test.lose(api)
				err := a.ended()
				if !errors.Is(err, ErrLostLease) || errors.Is(err, ErrEndOfTerm) {
					t.Errorf("Start returned %v", err)
				}
				if d := a.only("told to stop").Sub(lost); d < test.after || d > test.before {
					t.Errorf("the controllers were told after %s", d)
				}
				if a.times("exit") != nil {
					t.Error("the process was ended")
				}
				a.only("stops")
				api.setFault(nil)
				// The candidate's own end is bounded, whatever becomes of the manager.
				pass(time.Minute)
			})
		})
	}
}

// A process that is not fit to lead ends, and whoever restarts it sees to that.
func TestManagerThatIsNotHealthy(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		api.coordinate(t.Context())
		var sick atomic.Bool
		a := operate(t, api, "a", func(_ *player, c *Config, _ *manager.Options) {
			c.Healthy = func(context.Context) error {
				if sick.Load() {
					return errors.New("the disk is full")
				}
				return nil
			}
		})
		b := operate(t, api, "b")
		pass(time.Minute)
		sick.Store(true)
		if err := a.ended(); !errors.Is(err, ErrLostLease) || !strings.Contains(err.Error(), "not healthy") {
			t.Errorf("Start returned %v", err)
		}
		a.withdrawn(api)
		pass(time.Second)
		// Resignation, preference, transfer and take-up: the controllers stop before a successor is chosen.
		within(t, "the hand-off", b.only("starts").Sub(a.only("stops")), 5*time.Millisecond)
		alternate(t, a.player, b.player)
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

// Lead can tell why its context has ended.
func TestCauseOfTheEnd(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*fakeAPI, *player)
		want error
	}{
		{"another is preferred", func(a *fakeAPI, _ *player) { a.prefer("b") }, ErrEndOfTerm},
		{"another holds the lease", func(a *fakeAPI, _ *player) { a.appoint("b") }, ErrLostLease},
		{"the lease was released", func(a *fakeAPI, _ *player) {
			a.edit("leases", "l", func(l object) { spec(l)["holderIdentity"] = "" })
		}, ErrLostLease},
		{"the candidate was told to end", func(_ *fakeAPI, p *player) { p.cancel() }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				causes := make(chan error, 1)
				p := leading(t, api, "a", func(_ *player, c *Config) {
					c.Lead = func(ctx context.Context) error {
						<-ctx.Done()
						causes <- context.Cause(ctx)
						return nil
					}
				})
				test.end(api, p)
				cause := <-causes
				for _, known := range []error{ErrEndOfTerm, ErrLostLease} {
					if errors.Is(cause, known) != (known == test.want) {
						t.Errorf("the context ends because of %q", cause)
					}
				}
				if err := p.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Controllers that do not stop are ended with the process, and the lease is not given away.
func TestManagerThatDoesNotStop(t *testing.T) {
	for name, end := range map[string]func(*fakeAPI, *operator){
		"at the end of its term": func(a *fakeAPI, _ *operator) { a.prefer("b") },
		"when it is told to end": func(_ *fakeAPI, o *operator) { o.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				a := operate(t, api, "a", func(p *player, _ *Config, _ *manager.Options) { p.stubborn = true })
				pass(100 * time.Millisecond)
				api.appoint("a")
				pass(10 * time.Second)
				told := time.Now()
				end(api, a)
				pass(5*time.Second + 10*time.Millisecond)
				if d := a.only("exit").Sub(told); d < 5*time.Second || d > 5*time.Second+5*time.Millisecond {
					t.Errorf("the process was ended after %s", d)
				}
				if api.holder() != "a" {
					t.Errorf("the lease was given to %q", api.holder())
				}
				// In a test it goes on.
				close(a.quit)
				_ = a.ended()
			})
		})
	}
}

// Without ReleaseOnCancel nothing says that the controllers have stopped: the claim runs out.
func TestManagerThatDoesNotRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := operate(t, api, "a", func(_ *player, _ *Config, o *manager.Options) { o.LeaderElectionReleaseOnCancel = false })
		pass(100 * time.Millisecond)
		api.appoint("a")
		pass(10 * time.Second)
		told := time.Now()
		if err := a.end(); err != nil {
			t.Error(err)
		}
		within(t, "the exit", time.Since(told), 5*time.Millisecond)
		if api.holder() != "a" {
			t.Errorf("the lease was given to %q", api.holder())
		}
		pass(10 * time.Millisecond)
		if notes := child(meta(api.get(candidateResource, "a")), "annotations"); notes[v1alpha1.IneligibleAnnotation] != resigning {
			t.Errorf("the candidate does not say that it leaves: %v", notes)
		}
		// A process that is still there is ended.
		pass(6 * time.Second)
		a.only("exit")
		// For the bubble to end.
		close(a.lock.released)
		pass(time.Minute)
	})
}

// A manager that does not wait for its controllers releases before they have been told. That is not believed.
func TestManagerThatDoesNotWait(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := operate(t, api, "a", func(p *player, _ *Config, _ *manager.Options) { p.drain = 2 * time.Second })
		pass(100 * time.Millisecond)
		api.appoint("a")
		pass(10 * time.Second)
		if err := a.lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err == nil {
			t.Error("the lease was released under the controllers")
		}
		if err := a.ended(); !errors.Is(err, ErrLostLease) {
			t.Errorf("Start returned %v", err)
		}
		if at := a.only("stops"); a.only("returned").Before(at) || api.holder() == "a" {
			t.Errorf("holder %q", api.holder())
		}
		a.withdrawn(api)
	})
}

// A manager may be told to end between the take-up and the elector's asking.
func TestTakenUpButNotAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := lockOf(t, api, "a")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { a.result <- a.lock.Runnable().Start(ctx) }()
		pass(100 * time.Millisecond)
		api.appoint("a")
		pass(time.Second)
		if !a.lock.IsLeader() {
			t.Error("the lease was not taken up")
		}
		// A term that ends before it was used costs nobody the process.
		api.prefer("b")
		pass(time.Second)
		if api.holder() != "b" || len(a.result) != 0 {
			t.Errorf("holder %q, ended %t", api.holder(), len(a.result) != 0)
		}
		api.appoint("a")
		pass(time.Second)
		told := time.Now()
		cancel()
		if err := a.ended(); err != nil {
			t.Error(err)
		}
		within(t, "the exit", time.Since(told), time.Second)
		a.withdrawn(api)
		if err := a.lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a"}); err == nil {
			t.Error("the elector may lead by a lease that was released")
		}
		// Nor does a late elector hang.
		electing, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		record, _, err := a.lock.Get(electing)
		if err != nil || record.HolderIdentity == "" || record.HolderIdentity == "a" || electing.Err() == nil {
			t.Errorf("record %v, %v", record, err)
		}
	})
}

func TestLockThatIsWiredWrongly(t *testing.T) {
	t.Run("no elector", func(t *testing.T) {
		inBubble(t, func(t *testing.T, api *fakeAPI) {
			a := lockOf(t, api, "a")
			go func() { a.result <- a.lock.Runnable().Start(t.Context()) }()
			pass(100 * time.Millisecond)
			api.appoint("a")
			pass(10*time.Second - time.Millisecond)
			if len(a.result) != 0 {
				t.Error("the elector had less than 10 s to ask")
			}
			pass(time.Second)
			if err := a.ended(); err == nil || !strings.Contains(err.Error(), "LeaderElectionResourceLockInterface") {
				t.Errorf("Start returned %v", err)
			}
			a.withdrawn(api)
		})
	})
	t.Run("no Runnable", func(t *testing.T) {
		inBubble(t, func(t *testing.T, api *fakeAPI) {
			a := lockOf(t, api, "a")
			began := time.Now()
			if _, _, err := a.lock.Get(t.Context()); err == nil || !strings.Contains(err.Error(), "Runnable()") {
				t.Errorf("Get returned %v", err)
			}
			if d := time.Since(began); d != startPatience {
				t.Errorf("Get took %s", d)
			}
		})
	})
	t.Run("two managers", func(t *testing.T) {
		inBubble(t, func(t *testing.T, api *fakeAPI) {
			a := lockOf(t, api, "a")
			ctx, cancel := context.WithCancel(t.Context())
			go func() { a.result <- a.lock.Runnable().Start(ctx) }()
			pass(time.Second)
			if err := a.lock.Runnable().Start(ctx); err == nil {
				t.Error("the Runnable was started twice")
			}
			cancel()
			if err := a.ended(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("configuration", func(t *testing.T) {
		c := config(newFakeAPI(), "a")
		c.Lead, c.LeaseName = func(context.Context) error { return nil }, "Upper"
		if _, err := NewResourceLock(c); err == nil || !strings.Contains(err.Error(), "Lead must not be set") || !strings.Contains(err.Error(), "Upper") {
			t.Errorf("NewResourceLock returned %v", err)
		}
	})
}

// client-go's elector without a manager, whose context ends when the work has.
func TestPlainElector(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := lockOf(t, api, "a", func(_ *player, c *Config) { c.FallbackAfter = -1 })
		ctx, cancel := context.WithCancel(t.Context())
		go func() { a.result <- a.lock.Runnable().Start(ctx) }()
		started, stopped := make(chan struct{}), make(chan struct{})
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: a.lock, LeaseDuration: DefaultLeaseDuration, RenewDeadline: DefaultRenewDeadline, RetryPeriod: DefaultRetryPeriod,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { close(started) },
				OnStoppedLeading: func() { close(stopped) },
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		electing, stopElector := context.WithCancel(t.Context())
		go elector.Run(electing)
		pass(time.Minute)
		appointed := time.Now()
		api.appoint("a")
		<-started
		within(t, "the elector", time.Since(appointed), 5*time.Millisecond)
		if elector.GetLeader() != "a" || !elector.IsLeader() || elector.Check(0) != nil {
			t.Errorf("leader %q, check %v", elector.GetLeader(), elector.Check(0))
		}
		pass(10 * time.Minute)
		select {
		case <-stopped:
			t.Fatal("the elector has stopped by itself")
		default:
		}
		cancel()
		if err := a.ended(); err != nil {
			t.Error(err)
		}
		pass(4 * time.Second)
		if api.holder() != "a" {
			t.Error("the lease was released before the elector has")
		}
		stopElector()
		<-stopped
		a.withdrawn(api)
		synctest.Wait()
	})
}

// While the elector is asked to stop, the view that it has is that of the candidate's claim.
func TestElectorOfAClaimThatHasRunOut(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := operate(t, api, "a", func(p *player, c *Config, _ *manager.Options) {
			p.stubborn = true
			c.OnDeadline = func(string) { p.note("exit", Term{}) }
		})
		pass(100 * time.Millisecond)
		api.appoint("a")
		pass(10 * time.Second)
		api.setFault(func(request) fault { return fault{refused: true} })
		pass(20 * time.Second)
		a.only("exit")
		if err := a.lock.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a"}); err == nil {
			t.Error("the elector may renew a claim that has run out")
		}
		one, raw, err := a.lock.Get(t.Context())
		pass(time.Millisecond)
		_, again, _ := a.lock.Get(t.Context())
		if err != nil || one.HolderIdentity != nobody || one.LeaseDurationSeconds != 15 || string(raw) == string(again) {
			t.Errorf("the elector sees %+v, %v", one, err)
		}
		close(a.quit)
		_ = a.ended()
		close(a.lock.released)
		pass(time.Minute)
	})
}

func TestCreateIsRefused(t *testing.T) {
	a := lockOf(t, newFakeAPI(), "a")
	if err := a.lock.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "a"}); err == nil {
		t.Error("the elector may create the lease")
	}
	if got := a.lock.Describe(); got != "ns/l" {
		t.Errorf("Describe: %q", got)
	}
	a.lock.RecordEvent("became leader")
}
