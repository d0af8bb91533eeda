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
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// Every test runs in a bubble of virtual time, which fails if a goroutine or watch is left behind.
func inBubble(t *testing.T, f func(*testing.T, *fakeAPI)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newFakeAPI()) })
}

// leading returns a candidate that was appointed and leads.
func leading(t *testing.T, api *fakeAPI, identity string, change ...func(*player, *Config)) *player {
	t.Helper()
	p := join(t, api, identity, change...)
	pass(100 * time.Millisecond)
	api.appoint(identity)
	pass(100 * time.Millisecond)
	if !p.IsLeader() {
		t.Fatalf("%s was appointed and does not lead", identity)
	}
	return p
}

func TestFirstElection(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		api.coordinate(t.Context())
		began := time.Now()
		a := join(t, api, "a")
		pass(time.Second)
		// Discovery of the group and of two versions, list, create, appointment, take-up.
		within(t, "the first election", a.only("starts").Sub(began), 8*time.Millisecond)
		term, ok := a.Term()
		if !ok || !term.Valid() || term.Token == "" || term.Transitions != 1 || term != a.terms()[0] {
			t.Errorf("term %+v, %t; Lead's was %+v", term, ok, a.terms())
		}
		if a.Leader() != "a" || !a.IsLeader() {
			t.Errorf("leader %q", a.Leader())
		}
		lease := api.get("leases", "l")
		if got := spec(lease)["leaseDurationSeconds"]; got != float64(15) {
			t.Errorf("leaseDurationSeconds %v", got)
		}
		candidate := api.get(candidateResource, "a")
		if notes := child(meta(candidate), "annotations"); notes[v1alpha1.SignalAnnotation] != v1alpha1.SignalByAnnotations {
			t.Errorf("annotations %v", notes)
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
		if term.Valid() || a.IsLeader() {
			t.Error("the term is valid after its end")
		}
	})
}

func TestPlannedHandOff(t *testing.T) {
	for _, drops := range []bool{false, true} {
		t.Run(map[bool]string{false: "by fields", true: "by annotations"}[drops], func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				api.drops = drops
				a := leading(t, api, "a", func(p *player, _ *Config) { p.drain = 3 * time.Second })
				b := join(t, api, "b")
				pass(10 * time.Second)
				told := time.Now()
				api.prefer("b")
				pass(2 * time.Second)
				within(t, "the nomination", b.only("nominated").Sub(told), time.Millisecond)
				if api.holder() != "a" {
					t.Errorf("the lease was given away before the work had stopped")
				}
				if held, _ := a.claimLeft(); held < 12*time.Second {
					t.Errorf("the claim is not renewed while the work stops: %s left", held)
				}
				pass(5 * time.Second)
				within(t, "telling the holder", a.only("told to stop").Sub(told), 5*time.Millisecond)
				// One write by each.
				within(t, "the hand-off", b.only("starts").Sub(a.only("stops")), 2*time.Millisecond)
				alternate(t, a, b)
				if b.terms()[0].Transitions != 2 {
					t.Errorf("term %+v", b.terms()[0])
				}
				notes := child(meta(api.get("leases", "l")), "annotations")
				if _, ok := notes[v1alpha1.PreferredHolderAnnotation]; ok || spec(api.get("leases", "l"))["preferredHolder"] != nil {
					t.Errorf("the preferred holder is still there: %v", api.get("leases", "l"))
				}
				// And back.
				b.drain = 0
				api.prefer("a")
				pass(time.Second)
				if !a.IsLeader() || b.IsLeader() || b.Leader() != "a" {
					t.Errorf("a %t, b %t", a.IsLeader(), b.IsLeader())
				}
				for _, p := range []*player{a, b} {
					if err := p.end(); err != nil {
						t.Error(err)
					}
				}
				alternate(t, a, b)
			})
		})
	}
}

// claimLeft returns how long the claim of the work holds, whether or not it was told to stop.
func (p *player) claimLeft() (time.Duration, bool) {
	held := p.claim.Load()
	if held == nil {
		return 0, false
	}
	return held.left(), true
}

func TestGracefulExitOfLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		api.coordinate(t.Context())
		a := join(t, api, "a", func(p *player, _ *Config) { p.drain = 3 * time.Second })
		pass(time.Second)
		b := join(t, api, "b")
		pass(10 * time.Second)
		told := time.Now()
		a.cancel()
		pass(time.Second)
		if b.times("nominated") == nil || api.holder() != "a" || a.IsLeader() {
			t.Errorf("no successor was chosen while the work stops: holder %q", api.holder())
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
		within(t, "the exit", time.Since(told), 3*time.Second+10*time.Millisecond)
		pass(time.Second)
		within(t, "the hand-off", b.only("starts").Sub(a.only("stops")), 2*time.Millisecond)
		if api.get(candidateResource, "a") != nil {
			t.Error("the candidate's object is still there")
		}
		alternate(t, a, b)
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestExitWithoutSuccessor(t *testing.T) {
	for _, test := range []struct {
		name  string
		leads bool
		limit time.Duration
	}{{"a standby", false, 10 * time.Millisecond}, {"a leader", true, time.Second}} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				a := join(t, api, "a")
				pass(time.Second)
				if test.leads {
					api.appoint("a")
					pass(time.Second)
				}
				told := time.Now()
				if err := a.end(); err != nil {
					t.Error(err)
				}
				within(t, "the exit", time.Since(told), test.limit)
				if api.get(candidateResource, "a") != nil {
					t.Error("the candidate's object is still there")
				}
				if test.leads && api.holder() != "" {
					t.Errorf("the lease is held by %q", api.holder())
				}
				synctest.Wait()
				if n := api.openWatches(); n != 0 {
					t.Errorf("%d watches are open", n)
				}
			})
		})
	}
}

func TestExitBeforeAnythingWasReached(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		api.setFault(func(request) fault { return fault{hangs: true} })
		a := join(t, api, "a")
		pass(time.Minute)
		told := time.Now()
		if err := a.end(); err != nil {
			t.Error(err)
		}
		within(t, "the exit", time.Since(told), time.Millisecond)
	})
}

func TestExitWhileTheServerIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a")
		api.setFault(func(request) fault { return fault{refused: true} })
		told := time.Now()
		if err := a.end(); err != nil {
			t.Error(err)
		}
		within(t, "the exit", time.Since(told), 10*time.Second+100*time.Millisecond)
		if api.holder() != "a" {
			t.Errorf("holder %q", api.holder())
		}
	})
}

func TestSteadyState(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a")
		b := join(t, api, "b")
		pass(time.Second)
		since := time.Now()
		pass(3 * time.Minute)
		got := count(api.asked(since))
		if len(got) != 1 || got["PATCH leases"] != 90 {
			t.Errorf("requests of a leader and a standby in 3 minutes: %v, want 90 renewals", got)
		}
		since = time.Now()
		pass(time.Hour)
		got = count(api.asked(since))
		if n := got["PATCH leases"]; n < 1795 || n > 1800 {
			t.Errorf("%d renewals in an hour", n)
		}
		if n := got["PATCH leasecandidates"]; n != 12 {
			t.Errorf("%d writes to two candidates in an hour, want 12", n)
		}
		// Watches end after five to ten minutes.
		for _, kind := range []string{"leases", candidateResource} {
			if n := got["WATCH "+kind]; n < 2*5 || n > 2*13 || n != got["LIST "+kind] {
				t.Errorf("%d watches and %d lists of %s in an hour", n, got["LIST "+kind], kind)
			}
		}
		if len(a.times("starts")) != 1 || len(a.times("stops")) != 0 || b.times("starts") != nil {
			t.Error("leadership has moved")
		}
		for _, p := range []*player{a, b} {
			if err := p.end(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestAcks(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := join(t, api, "a")
		pass(time.Second)
		before := spec(api.get(candidateResource, "a"))["renewTime"]
		since := time.Now()
		api.ping("a")
		pass(5 * time.Millisecond)
		candidate := spec(api.get(candidateResource, "a"))
		if candidate["renewTime"] == before || candidate["renewTime"].(string) <= candidate["pingTime"].(string) {
			t.Errorf("no ack: %v", candidate)
		}
		pass(time.Second)
		if got := count(api.asked(since)); got["PATCH leasecandidates"] != 1 || len(got) != 1 {
			t.Errorf("requests for one ack: %v", got)
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestOutages(t *testing.T) {
	hang := func(request) fault { return fault{hangs: true} }
	refuse := func(request) fault { return fault{refused: true} }
	stall := func(d time.Duration) func(request) fault {
		stalled := false
		return func(r request) fault {
			if r.verb == "PATCH" && !stalled {
				stalled = true
				return fault{stalls: d}
			}
			return fault{}
		}
	}
	for _, test := range []struct {
		name  string
		fault func(request) fault
		// lasts is how long, from a renewal on.
		lasts time.Duration
		kept  bool
	}{
		{"one call stalls for 6 s", stall(6 * time.Second), 20 * time.Second, true},
		{"nothing gets through for 6 s", hang, 6 * time.Second, true},
		{"the server is away for 8 s", refuse, 8 * time.Second, true},
		{"the server is away for 12 s", refuse, 12 * time.Second, false},
		{"nothing gets through for 12 s", hang, 12 * time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				a := leading(t, api, "a", func(p *player, _ *Config) { p.drain = time.Second })
				renewed := nextRenewal(t, api)
				api.setFault(test.fault)
				pass(test.lasts - time.Since(renewed))
				api.setFault(nil)
				pass(20 * time.Second)
				if test.kept {
					if len(a.times("told to stop")) != 0 || !a.IsLeader() {
						t.Error("leadership was lost")
					}
				} else {
					if lost := a.only("told to stop").Sub(renewed); lost < 10*time.Second-5*time.Millisecond || lost > 10*time.Second {
						t.Errorf("leadership was lost after %s", lost)
					}
					// The lease still names it: nobody else took over, so it leads on, in the same process.
					if len(a.times("starts")) != 2 || !a.IsLeader() {
						t.Errorf("it does not lead again: %v", a.times("starts"))
					}
				}
				if len(a.times("deadline")) != 0 {
					t.Error("OnDeadline was called")
				}
				if err := a.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// nextRenewal lets time pass up to a renewal and returns when that was sent.
func nextRenewal(t *testing.T, api *fakeAPI) time.Time {
	t.Helper()
	before := len(renewals(api))
	for range 5000 {
		pass(time.Millisecond)
		if r := renewals(api); len(r) > before {
			pass(2 * time.Millisecond)
			return r[len(r)-1].at
		}
	}
	t.Fatal("no renewal")
	return time.Time{}
}

func renewals(api *fakeAPI) []request {
	var some []request
	for _, r := range api.asked(time.Time{}) {
		if r.String() == "PATCH leases" {
			some = append(some, r)
		}
	}
	return some
}

func TestTooManyRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a")
		n := 0
		api.setFault(func(request) fault {
			if n++; n%10 < 3 {
				return fault{status: 429, retryAfter: "1"}
			}
			return fault{}
		})
		pass(5 * time.Minute)
		if len(a.times("starts")) != 1 || !a.IsLeader() {
			t.Error("leadership was lost")
		}
		api.setFault(nil)
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// What is refused is not repeated in a hurry, and works without a restart once it is granted.
func TestMissingRights(t *testing.T) {
	for _, test := range []struct {
		verb, resource string
		limit          int
	}{
		{"LIST", "leases", 90}, {"WATCH", "leases", 90}, {"POST", "leases", 90}, {"PATCH", "leases", 90},
		{"LIST", candidateResource, 30}, {"WATCH", candidateResource, 60}, {"POST", candidateResource, 12}, {"PATCH", candidateResource, 12},
	} {
		t.Run(test.verb+" "+test.resource, func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				api.setFault(func(r request) fault {
					if r.verb == test.verb && r.resource == test.resource {
						return fault{status: 403}
					}
					return fault{}
				})
				a := join(t, api, "a", func(_ *player, c *Config) { c.FallbackAfter = time.Second })
				began := time.Now()
				pass(3 * time.Minute)
				if n := count(api.asked(began))[test.verb+" "+test.resource]; n > test.limit {
					t.Errorf("%d requests that are refused in 3 minutes", n)
				}
				api.setFault(nil)
				pass(time.Minute)
				if !a.IsLeader() || api.get(candidateResource, "a") == nil || api.openWatches() != 2 {
					t.Errorf("leads %t, candidate %v, %d watches", a.IsLeader(), api.get(candidateResource, "a"), api.openWatches())
				}
				if err := a.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A process that was suspended says no before anything in it has noticed.
func TestSuspended(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a")
		term, _ := a.Term()
		a.jump(15*time.Second - time.Second)
		if !a.IsLeader() || !term.Valid() {
			t.Error("it does not lead although its claim holds")
		}
		a.jump(time.Minute)
		if _, ok := a.Term(); ok || a.IsLeader() || term.Valid() {
			t.Error("it leads although its claim has run out")
		}
		if a.Check(nil) == nil {
			t.Error("Check says that all is well")
		}
		// The loop turns within a retry period.
		pass(2 * time.Second)
		a.only("told to stop")
		a.only("deadline")
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestWorkThatDoesNotStop(t *testing.T) {
	for _, test := range []struct {
		name string
		// limit is from when the work was told to stop.
		drain, limit time.Duration
		away         bool
	}{
		{"told by the coordinator", 0, 5 * time.Second, false},
		{"with a shorter limit", time.Second, time.Second, false},
		{"cut off", 0, 5 * time.Second, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				a := leading(t, api, "a", func(p *player, c *Config) {
					p.stubborn = true
					c.DrainLimit = test.drain
				})
				b := join(t, api, "b")
				renewed := nextRenewal(t, api)
				if test.away {
					api.setFault(func(request) fault { return fault{refused: true} })
				} else {
					api.prefer("b")
				}
				pass(30 * time.Second)
				within(t, "the limit", a.only("deadline").Sub(a.only("told to stop"))-test.limit, time.Millisecond)
				if test.away {
					within(t, "the claim", a.only("deadline").Sub(renewed), 15*time.Second)
				}
				if api.holder() != "a" {
					t.Errorf("the lease was given to %q while the work goes on", api.holder())
				}
				writes := len(renewals(api))
				if a.IsLeader() {
					t.Error("it leads")
				}
				if a.Check(nil) == nil {
					t.Error("Check says that all is well")
				}
				if !test.away && writes != len(renewals(api)) {
					t.Error("the lease is renewed for work that does not stop")
				}
				// The handler has returned: the candidacy goes on when the work stops at last.
				api.setFault(nil)
				a.quit <- errors.New("at last")
				pass(time.Second)
				if err := a.Check(nil); err != nil {
					t.Error(err)
				}
				for _, p := range []*player{b, a} {
					p.cancel()
					pass(time.Second)
					select {
					case p.quit <- nil:
					default:
					}
					if err := p.ended(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// stuckLog is a log that takes a line only when it is let go on.
type stuckLog struct {
	logr.LogSink
	line string
	on   chan struct{}
}

func (s stuckLog) Info(level int, message string, values ...any) {
	if message == s.line {
		<-s.on
	}
	s.LogSink.Info(level, message, values...)
}

func (s stuckLog) WithValues(...any) logr.LogSink { return s }

// Whatever the event loop is stuck in, the work does not outlive its claim.
func TestStuckLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		on := make(chan struct{})
		a := leading(t, api, "a", func(_ *player, c *Config) {
			c.Logger = logr.New(stuckLog{c.Logger.GetSink(), "Stopping to lead", on})
		})
		renewed := nextRenewal(t, api)
		api.appoint("b")
		pass(14 * time.Second)
		if a.Check(nil) == nil {
			t.Error("a loop that is stuck is not noticed")
		}
		pass(2 * time.Second)
		within(t, "the deadline", a.only("deadline").Sub(renewed), 15*time.Second)
		if a.IsLeader() {
			t.Error("it leads although its claim has run out")
		}
		close(on)
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// A log that is stuck does not keep the process from ending.
func TestStuckLogAtDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		on := make(chan struct{})
		a := leading(t, api, "a", func(p *player, c *Config) {
			p.stubborn, c.OnDeadline = true, nil
			c.Logger = logr.New(stuckError{c.Logger.GetSink(), on})
		})
		api.prefer("b")
		pass(10 * time.Second)
		a.only("exit")
		close(on)
		a.quit <- nil
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

type stuckError struct {
	logr.LogSink
	on chan struct{}
}

func (s stuckError) Error(err error, message string, values ...any) {
	<-s.on
	s.LogSink.Error(err, message, values...)
}

func (s stuckError) WithValues(...any) logr.LogSink { return s }

func TestDefaultOnDeadlineExits(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a", func(p *player, c *Config) { p.stubborn, c.OnDeadline = true, nil })
		api.prefer("b")
		pass(10 * time.Second)
		a.only("exit")
		a.quit <- nil
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestWorkThatEndsByItself(t *testing.T) {
	for _, want := range []error{errors.New("no disk"), nil} {
		inBubble(t, func(t *testing.T, api *fakeAPI) {
			a := leading(t, api, "a")
			a.quit <- want
			if err := a.ended(); !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("Run returned %v, want %v", err, want)
			}
			if api.holder() != "" || api.get(candidateResource, "a") != nil {
				t.Errorf("holder %q, candidate %v", api.holder(), api.get(candidateResource, "a"))
			}
			if a.Check(nil) == nil {
				t.Error("Check says that all is well although the candidacy has ended")
			}
		})
	}
}

func TestRunTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := join(t, api, "a")
		pass(time.Second)
		if err := a.Run(t.Context()); err == nil {
			t.Error("a second Run was accepted")
		}
		if err := a.Check(nil); err != nil {
			t.Error(err)
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestFallback(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*fakeAPI)
		after  time.Duration
		want   time.Duration
	}{
		{"no coordinator", func(*fakeAPI) {}, 0, 30 * time.Second},
		{"no LeaseCandidates", func(a *fakeAPI) { a.served = nil }, 20 * time.Second, 20 * time.Second},
		{"no right to LeaseCandidates", func(a *fakeAPI) {
			a.fault = func(r request) fault {
				if r.resource == candidateResource {
					return fault{status: 403}
				}
				return fault{}
			}
		}, 20 * time.Second, 20 * time.Second},
		{"never", func(*fakeAPI) {}, -1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				test.change(api)
				began := time.Now()
				a := join(t, api, "a", func(_ *player, c *Config) { c.FallbackAfter = test.after })
				pass(5 * time.Minute)
				if test.want == 0 {
					if api.get("leases", "l") != nil {
						t.Error("the lease was taken")
					}
				} else {
					// A Lease that is not there may have been deleted under a leader, whose claim is waited for.
					within(t, "the fallback", a.only("starts").Sub(began)-test.want, 15*time.Second+10*time.Millisecond)
				}
				if err := a.end(); err != nil {
					t.Error(err)
				}
				if test.want != 0 && api.holder() != "" {
					t.Errorf("the lease is held by %q", api.holder())
				}
			})
		})
	}
}

// A leader that dies while no coordinator is there is replaced by its claim's end and FallbackAfter; the coordinator, back,
// finds a holder and lets it be.
func TestFallbackAfterCrash(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		b := join(t, api, "b")
		pass(100 * time.Millisecond)
		api.appoint("dead")
		began := time.Now()
		pass(time.Minute)
		within(t, "the fallback", b.only("starts").Sub(began)-35*time.Second, 10*time.Millisecond)
		if err := b.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestServedLater(t *testing.T) {
	for kind, resource := range map[string]string{
		"coordination.k8s.io/v1beta1":    candidateResource,
		"coordination.k8s.io/v1alpha2":   candidateResource,
		"lease-coordinator.dev/v1alpha1": ourResource,
	} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				api.served = map[string]bool{}
				a := join(t, api, "a")
				pass(10 * time.Minute)
				if got := count(api.asked(time.Now().Add(-9 * time.Minute))); got["GET "] > 3*9*3 || got["LIST "+resource] > 0 {
					t.Errorf("requests: %v", got)
				}
				api.mu.Lock()
				api.served[kind] = true
				api.mu.Unlock()
				pass(31 * time.Second)
				candidate := api.get(resource, "a")
				if candidate == nil || candidate["apiVersion"] != kind {
					t.Errorf("candidate %v", candidate)
				}
				// And gone again.
				api.serveOnly()
				pass(2 * time.Minute)
				if err := a.end(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestObjectIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := join(t, api, "a", func(_ *player, c *Config) { c.Labels = map[string]string{"app": "x"} })
		pass(time.Minute)
		first := meta(api.get(candidateResource, "a"))["uid"]
		deleted := time.Now()
		api.del(candidateResource, "a")
		pass(5 * time.Millisecond)
		if c := api.get(candidateResource, "a"); c == nil || meta(c)["uid"] == first {
			t.Errorf("%s after its deletion the object is %v", time.Since(deleted), c)
		}
		api.edit(candidateResource, "a", func(c object) { child(meta(c), "labels")["app"] = "y" })
		pass(5 * time.Millisecond)
		if got := child(meta(api.get(candidateResource, "a")), "labels")["app"]; got != "x" {
			t.Errorf("label %v", got)
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
		if api.get(candidateResource, "a") != nil {
			t.Error("the object is still there")
		}
	})
}

// A former process of the same name has left its object behind.
func TestObjectIsTakenOver(t *testing.T) {
	leftover := func(lease string) func(object) {
		return func(c object) {
			c["spec"] = object{"leaseName": lease, "binaryVersion": "1.36.0", "emulationVersion": "1.36.0", "strategy": "OldestEmulationVersion",
				"renewTime": stampNow(), "future": "field"}
			meta(c)["labels"] = object{"app": "old", "theirs": "kept"}
			meta(c)["annotations"] = object{"theirs": "kept", v1alpha1.IneligibleAnnotation: resigning}
			meta(c)["ownerReferences"] = []any{object{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "other"}}
		}
	}
	t.Run("of the same lease", func(t *testing.T) {
		t.Setenv("POD_NAME", "pod")
		t.Setenv("POD_UID", "pod-uid")
		t.Setenv("POD_NAMESPACE", "ns")
		inBubble(t, func(t *testing.T, api *fakeAPI) {
			api.edit(candidateResource, "a", leftover("l"))
			uid := meta(api.get(candidateResource, "a"))["uid"]
			a := join(t, api, "a", func(_ *player, c *Config) { c.Labels = map[string]string{"app": "new"} })
			pass(10 * time.Millisecond)
			c := api.get(candidateResource, "a")
			labels, notes, owners := child(meta(c), "labels"), child(meta(c), "annotations"), meta(c)["ownerReferences"].([]any)
			if meta(c)["uid"] != uid || spec(c)["binaryVersion"] != "1.37.0" || spec(c)["emulationVersion"] != "1.37.0" || spec(c)["future"] != "field" {
				t.Errorf("object %v", c)
			}
			if labels["app"] != "new" || labels["theirs"] != "kept" || notes["theirs"] != "kept" || notes[v1alpha1.IneligibleAnnotation] != nil {
				t.Errorf("labels %v, annotations %v", labels, notes)
			}
			if len(owners) != 2 || owners[1].(object)["uid"] != "pod-uid" {
				t.Errorf("owners %v", owners)
			}
			if err := a.end(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("of another lease", func(t *testing.T) {
		inBubble(t, func(t *testing.T, api *fakeAPI) {
			api.edit(candidateResource, "a", leftover("other"))
			a := join(t, api, "a")
			pass(10 * time.Millisecond)
			if c := api.get(candidateResource, "a"); c == nil || spec(c)["leaseName"] != "l" {
				t.Errorf("object %v", c)
			}
			if err := a.end(); err != nil {
				t.Error(err)
			}
		})
	})
}

// An operator's mark is not ours to remove, and does as well as our own.
func TestOperatorsMark(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a", func(p *player, c *Config) {
			p.drain = time.Second
			c.Healthy = func(context.Context) error { return p.health() }
			c.HealthPeriod = time.Second
		})
		api.edit(candidateResource, "a", func(c object) {
			child(meta(c), "annotations")[v1alpha1.IneligibleAnnotation] = "maintenance"
		})
		pass(time.Second)
		if !a.IsLeader() {
			t.Error("the coordinator decides what follows from the mark")
		}
		since := time.Now()
		a.sick(errors.New("sick"))
		pass(3500 * time.Millisecond)
		for _, r := range api.asked(since) {
			if r.String() == "PATCH leasecandidates" {
				t.Errorf("it wrote %s", r.body)
			}
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestHealth(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		api.coordinate(t.Context())
		a := join(t, api, "a", func(p *player, c *Config) {
			c.Healthy = func(context.Context) error { return p.health() }
			c.HealthPeriod = time.Second
		})
		pass(10 * time.Millisecond)
		b := join(t, api, "b")
		pass(10*time.Second - 10*time.Millisecond)
		a.sick(errors.New("sick"))
		pass(2500 * time.Millisecond)
		if !a.IsLeader() {
			t.Error("two failures ended the term")
		}
		a.sick(nil)
		pass(2 * time.Second)
		sick := time.Now()
		a.sick(errors.New("sick"))
		pass(4 * time.Second)
		within(t, "the resignation", a.only("told to stop").Sub(sick), 3*time.Second)
		if !b.IsLeader() || api.get(candidateResource, "a") != nil {
			t.Errorf("leader %q, candidate %v", b.Leader(), api.get(candidateResource, "a"))
		}
		a.sick(nil)
		pass(1100 * time.Millisecond)
		if c := api.get(candidateResource, "a"); c == nil {
			t.Error("the candidate has not come back")
		}
		pass(time.Second)
		if !a.IsLeader() {
			t.Error("the best candidate does not lead")
		}
		alternate(t, a, b)
		for _, p := range []*player{b, a} {
			if err := p.end(); err != nil {
				t.Error(err)
			}
		}
	})
}

func (p *player) health() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.healthErr
}

func (p *player) sick(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healthErr = err
}

func TestHealthThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		calls := 0
		release := make(chan struct{})
		a := leading(t, api, "a", func(_ *player, c *Config) {
			c.Healthy = func(context.Context) error { calls++; <-release; return nil }
			c.HealthPeriod = time.Second
		})
		pass(10 * time.Second)
		if a.IsLeader() || calls != 1 {
			t.Errorf("it leads: %t, after %d calls", a.IsLeader(), calls)
		}
		told := time.Now()
		if err := a.end(); err != nil {
			t.Error(err)
		}
		within(t, "the exit", time.Since(told), 2*time.Second)
		close(release)
	})
}

// The connection of a watch is dead, and neither end has noticed.
func TestDeadWatches(t *testing.T) {
	t.Run("of a standby that is appointed", func(t *testing.T) {
		inBubble(t, func(t *testing.T, api *fakeAPI) {
			b := join(t, api, "b")
			pass(time.Second)
			api.appoint("dead")
			pass(time.Second)
			api.breakWatches()
			api.appoint("b")
			appointed := time.Now()
			pass(4 * time.Second)
			within(t, "the take-up", b.only("starts").Sub(appointed), 5*time.Second*2/3)
			// Both watches are whole again.
			pass(10 * time.Second)
			since := time.Now()
			api.ping("b")
			api.prefer("c")
			pass(10 * time.Millisecond)
			if got := count(api.asked(since)); got["PATCH leasecandidates"] != 1 || got["LIST leases"] != 0 || len(b.times("told to stop")) != 1 {
				t.Errorf("requests: %v", got)
			}
			if err := b.end(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("of a standby whose leader is gone", func(t *testing.T) {
		inBubble(t, func(t *testing.T, api *fakeAPI) {
			b := join(t, api, "b")
			pass(time.Second)
			api.appoint("dead")
			pass(time.Second)
			api.breakWatches()
			// By the end of the claim it must be there to be elected.
			pass(4 * time.Second)
			since := time.Now()
			api.ping("b")
			pass(10 * time.Millisecond)
			if got := count(api.asked(since)); got["PATCH leasecandidates"] != 1 {
				t.Errorf("requests: %v", got)
			}
			appointed := time.Now()
			api.appoint("b")
			pass(time.Second)
			within(t, "the take-up", b.only("starts").Sub(appointed), 10*time.Millisecond)
			if err := b.end(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("of a leader whose term is ended", func(t *testing.T) {
		inBubble(t, func(t *testing.T, api *fakeAPI) {
			a := leading(t, api, "a")
			api.breakWatches()
			api.prefer("b")
			told := time.Now()
			pass(5 * time.Second)
			within(t, "telling the holder", a.only("told to stop").Sub(told), 2*time.Second+10*time.Millisecond)
			if err := a.end(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("of a leader in peace", func(t *testing.T) {
		inBubble(t, func(t *testing.T, api *fakeAPI) {
			a := leading(t, api, "a")
			pass(time.Second)
			api.breakWatches()
			pass(6 * time.Second)
			since := time.Now()
			api.ping("a")
			pass(10 * time.Millisecond)
			if got := count(api.asked(since)); got["PATCH leasecandidates"] != 1 {
				t.Errorf("requests: %v", got)
			}
			pass(time.Minute)
			if n := count(api.asked(since))["WATCH leases"]; n != 0 {
				t.Errorf("%d watches were begun anew without need", n)
			}
			if err := a.end(); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestServerRestarts(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a")
		for range 3 {
			api.endWatches()
			pass(10 * time.Second)
		}
		if n := api.openWatches(); n != 2 {
			t.Errorf("%d watches", n)
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// A request that was carried out although its answer was lost.
func TestLostAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a")
		n := 0
		api.setFault(func(r request) fault {
			n++
			return fault{lost: r.verb == "PATCH" && n%3 == 0}
		})
		pass(time.Minute)
		api.setFault(nil)
		if len(a.times("starts")) != 1 || !a.IsLeader() {
			t.Error("leadership was lost")
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// A renewal that was carried out although the server says otherwise, and asks for another attempt, is not taken for that of
// somebody else.
func TestCarriedOutAllTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a")
		n := 0
		api.setFault(func(r request) fault {
			if r.String() == "PATCH leases" {
				if n++; n%3 == 1 {
					return fault{status: 500, retryAfter: "1", done: true}
				}
			}
			return fault{}
		})
		pass(time.Minute)
		api.setFault(nil)
		if len(a.times("starts")) != 1 || !a.IsLeader() {
			t.Error("leadership was lost")
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// A leader that has seen nothing of its successor does not touch the lease.
func TestRenewalIsCompareAndSwap(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a")
		nextRenewal(t, api)
		api.breakWatches()
		api.appoint("b")
		before := spec(api.get("leases", "l"))
		pass(3 * time.Second)
		a.only("stops")
		if after := spec(api.get("leases", "l")); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("the successor's lease was %v and is %v", before, after)
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// A process of the same identity has taken over, and this one has not noticed: it does not remove the other's object.
func TestSuccessorsObjectIsLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := join(t, api, "a")
		pass(time.Second)
		api.breakWatches()
		mine := api.get(candidateResource, "a")
		api.del(candidateResource, "a")
		api.edit(candidateResource, "a", func(c object) { c["spec"] = spec(mine) })
		if err := a.end(); err != nil {
			t.Error(err)
		}
		if api.get(candidateResource, "a") == nil {
			t.Error("the object of another process was removed")
		}
	})
}

// A watch of which not even the head of the answer arrives.
func TestWatchThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		hung := 0
		api.setFault(func(r request) fault {
			if r.verb == "WATCH" && hung < 2 {
				hung++
				return fault{hangs: true}
			}
			return fault{}
		})
		a := join(t, api, "a")
		pass(time.Second)
		api.appoint("a")
		appointed := time.Now()
		pass(10 * time.Second)
		// A quarter of the renew deadline, and a pause.
		within(t, "the take-up", a.only("starts").Sub(appointed), 2500*time.Millisecond)
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// What this library does not know survives its writes.
func TestUnknownFieldsSurvive(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		api.edit("leases", "l", func(l object) {
			spec(l)["future"] = "field"
			meta(l)["labels"] = object{"theirs": "kept"}
			child(meta(l), "annotations")["theirs"] = "kept"
		})
		a := leading(t, api, "a")
		pass(10 * time.Second)
		if err := a.end(); err != nil {
			t.Error(err)
		}
		l := api.get("leases", "l")
		if spec(l)["future"] != "field" || child(meta(l), "labels")["theirs"] != "kept" || child(meta(l), "annotations")["theirs"] != "kept" ||
			spec(l)["strategy"] != "OldestEmulationVersion" {
			t.Errorf("lease %v", l)
		}
	})
}

func TestLeaseDeletedUnderLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a")
		term, _ := a.Term()
		pass(10 * time.Second)
		api.edit("leases", "l", func(l object) { child(meta(l), "annotations")["theirs"] = "kept" })
		pass(10 * time.Millisecond)
		api.del("leases", "l")
		pass(5 * time.Second)
		if now, ok := a.Term(); !ok || now != term || len(a.times("starts")) != 1 {
			t.Errorf("term %+v, was %+v", now, term)
		}
		l := api.get("leases", "l")
		if l == nil || spec(l)["holderIdentity"] != "a" || child(meta(l), "annotations")[v1alpha1.FencingTokenAnnotation] != term.Token ||
			child(meta(l), "annotations")["theirs"] != "kept" || spec(l)["strategy"] != "OldestEmulationVersion" {
			t.Errorf("lease %v", l)
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestSomebodyElseHoldsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a")
		api.appoint("b")
		at := time.Now()
		pass(10 * time.Millisecond)
		within(t, "stopping", a.only("stops").Sub(at), 2*time.Millisecond)
		if a.Leader() != "b" {
			t.Errorf("leader %q", a.Leader())
		}
		api.edit("leases", "l", func(l object) { spec(l)["holderIdentity"] = v1alpha1.RevokedHolder })
		pass(10 * time.Millisecond)
		if a.Leader() != "" {
			t.Errorf("leader %q of a revoked lease", a.Leader())
		}
		if got := len(a.times("sees a")) + len(a.times("sees b")) + len(a.times("sees ")); got != 3 {
			t.Errorf("OnNewLeader was called %d times, want 3", got)
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// Losing leadership again and again is no reason to give up.
func TestForcedLosses(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a")
		for n := 2; n <= 5; n++ {
			api.appoint("somebody")
			pass(time.Second)
			api.appoint("a")
			pass(time.Second)
			if !a.IsLeader() || len(a.times("starts")) != n {
				t.Fatalf("it does not lead after loss %d", n-1)
			}
		}
		alternate(t, a)
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

func TestCheck(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		c := config(api, "idle")
		c.Lead = func(context.Context) error { return nil }
		idle, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := idle.Check(nil); err != nil {
			t.Errorf("before Run: %v", err)
		}
		a := leading(t, api, "a")
		b := join(t, api, "b")
		for range 60 {
			pass(time.Second)
			if err := errors.Join(a.Check(nil), b.Check(nil)); err != nil {
				t.Fatal(err)
			}
		}
		api.setFault(func(request) fault { return fault{hangs: true} })
		for range 60 {
			pass(time.Second)
			if err := errors.Join(a.Check(nil), b.Check(nil)); err != nil {
				t.Fatalf("the server is away, and that is no fault: %v", err)
			}
		}
		api.setFault(nil)
		// A loop that does not turn.
		b.beat.Store(int64(b.clock() - 11*time.Second))
		if b.Check(nil) == nil {
			t.Error("a loop that is stuck is not noticed")
		}
		for _, p := range []*player{b, a} {
			if err := p.end(); err != nil {
				t.Error(err)
			}
		}
	})
}

// What the caller allows itself for its work must not delay a renewal.
func TestOwnConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		a := leading(t, api, "a", func(_ *player, c *Config) {
			c.RestConfig.QPS, c.RestConfig.Burst, c.RestConfig.RateLimiter = 0.001, 1, blockingLimiter{}
			c.RestConfig.UserAgent, c.RestConfig.Timeout = "caller", time.Millisecond
		})
		for _, r := range api.asked(time.Time{}) {
			if r.agent != "lease-coordinator-candidate" {
				t.Errorf("user agent %q", r.agent)
			}
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// blockingLimiter never lets anything through.
type blockingLimiter struct{ flowcontrol.RateLimiter }

func (blockingLimiter) Wait(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
func (blockingLimiter) Accept()                        { select {} }
