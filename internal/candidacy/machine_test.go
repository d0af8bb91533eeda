// Copyright The lease-coordinator Authors.
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//	http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.
package candidacy

import (
	"reflect"
	"testing"
	"time"
)

const ms = time.Millisecond

func testConfig() Config {
	return Config{
		Identity: "n1", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		DrainLimit: 5 * time.Second, HandOffWait: time.Second, FallbackAfter: 30 * time.Second, RegistrationPeriod: 5 * time.Minute,
	}
}

func instant(mono time.Duration) Instant {
	return Instant{Mono: mono, Wall: Stamp((1000*time.Second + mono).Microseconds())}
}

// kinds returns the effects' types, and what the writes are for.
func kinds(effects []Effect) []string {
	names := []string{}
	for _, e := range effects {
		switch e := e.(type) {
		case WriteLease:
			names = append(names, string(e.Why))
		case WriteRegistration:
			names = append(names, string(e.Why))
		default:
			names = append(names, reflect.TypeOf(e).Name())
		}
	}
	return names
}

func registered() Registration {
	return Registration{Known: true, Exists: true, Current: true, Version: 3, Renewed: 1}
}

// following returns a machine that has registered at 0 and seen the lease.
func following(l Lease) Machine {
	m := New(testConfig(), instant(0))
	m.SeeRegistration(registered(), instant(0))
	r := registered()
	r.Version, r.Renewed = 4, 2
	m.RegistrationWritten(Succeeded, r, instant(0))
	m.SeeLease(l, instant(0))
	return m
}

// leading returns a machine whose claim was sent at 0, and whose work runs.
func leading(t *testing.T) Machine {
	m := following(Lease{Exists: true, Version: 10, Holder: "n1", Acquired: 5, Renewed: 5, Duration: 5 * time.Second, Transitions: 1, Token: "9", Coordinated: true})
	if effects := m.LeaseWritten(Succeeded, written(&m, 11), instant(0)); !reflect.DeepEqual(kinds(effects), []string{"StartWork"}) {
		t.Fatal(effects)
	}
	return m
}

func written(m *Machine, version uint64) Lease {
	l := m.flight.next
	l.Version = version
	return l
}

func held(by string) Lease {
	return Lease{Exists: true, Version: 10, Holder: by, Acquired: 5, Renewed: 6, Duration: 15 * time.Second, Transitions: 1, Token: "9"}
}

// TestBoundaries checks what a tick does at the last moment before each limit, and at the limit.
func TestBoundaries(t *testing.T) {
	none := []string{}
	tests := []struct {
		name         string
		machine      func(t *testing.T) Machine
		limit        time.Duration
		before, then []string
	}{
		{"a renewal is due a retry period after the last was sent", leading, 2 * time.Second, none, []string{"Renew"}},
		{"the work is cancelled at the renew deadline", func(t *testing.T) Machine {
			m := leading(t)
			m.Tick(instant(2 * time.Second)) // A renewal that is never answered.
			return m
		}, 10 * time.Second, none, []string{"CancelWork"}},
		{"the process ends when the claim has run out", func(t *testing.T) Machine {
			m := leading(t)
			m.Tick(instant(2 * time.Second))
			m.Tick(instant(10 * time.Second))
			return m
		}, 15 * time.Second, none, []string{"EndProcess"}},
		{"the process ends at the drain limit", func(t *testing.T) Machine {
			m := leading(t)
			m.Tick(instant(2 * time.Second))
			m.Shutdown(instant(3 * time.Second))
			return m
		}, 8 * time.Second, none, []string{"EndProcess"}},
		{"the claim ends before the drain limit if that is later", func(t *testing.T) Machine {
			m := leading(t)
			m.Tick(instant(2 * time.Second))
			m.Tick(instant(11 * time.Second))
			return m
		}, 15 * time.Second, none, []string{"EndProcess"}},
		{"who resigns waits for a successor to be named, then withdraws", func(t *testing.T) Machine {
			m := leading(t)
			m.Shutdown(instant(0))
			r := registered()
			r.Version, r.Resigned = 5, true
			m.RegistrationWritten(Succeeded, r, instant(0))
			m.WorkStopped(instant(500 * ms))
			return m
		}, 1500 * ms, none, []string{"Delete"}},
		{"a lease whose claim has run out is taken after the fallback", func(*testing.T) Machine {
			m := following(held("n2"))
			m.lookedAt = 40 * time.Second
			return m
		}, 45 * time.Second, none, []string{"SelfClaim"}},
		{"the fallback counts from the last ping if that is later", func(*testing.T) Machine {
			m := following(held("n2"))
			m.coordinatorSeen, m.lookedAt = 16*time.Second, 40*time.Second
			return m
		}, 46 * time.Second, none, []string{"SelfClaim"}},
		{"a claim without a duration holds for 15 s", func(*testing.T) Machine {
			l := held("n2")
			l.Duration = 0
			m := following(l)
			m.lookedAt = 40 * time.Second
			return m
		}, 45 * time.Second, none, []string{"SelfClaim"}},
		{"a longer claim is waited for (C50)", func(*testing.T) Machine {
			l := held("n2")
			l.Duration = 30 * time.Second
			m := following(l)
			m.lookedAt = 59 * time.Second
			return m
		}, 60 * time.Second, none, []string{"SelfClaim"}},
		{"a released lease is taken after the fallback", func(*testing.T) Machine {
			l := held("")
			l.Duration = time.Second
			m := following(l)
			m.lookedAt = 29 * time.Second
			return m
		}, 30 * time.Second, none, []string{"SelfClaim"}},
		{"a lease that is not there is read before it is created", func(*testing.T) Machine {
			m := following(Lease{Version: 10})
			m.lookedAt = 25 * time.Second
			return m
		}, 30 * time.Second, none, []string{"ReadLease"}},
		{"a lease that is not there is created after the fallback", func(*testing.T) Machine {
			m := following(Lease{Version: 10})
			m.lookedAt = 30 * time.Second
			return m
		}, 30 * time.Second, none, []string{"SelfClaim"}},
		{"a lease that names a former process of this name is taken after its claim and an election", func(*testing.T) Machine {
			m := following(held("n1"))
			m.lookedAt = 19 * time.Second
			return m
		}, 20 * time.Second, none, []string{"SelfClaim"}},
		{"who follows looks after two thirds of the claim", func(*testing.T) Machine { return following(held("n2")) },
			10 * time.Second, none, []string{"ReadLease"}},
		{"who follows a short claim looks after a retry period", func(*testing.T) Machine {
			l := held("")
			l.Duration = time.Second
			return following(l)
		}, 2 * time.Second, none, []string{"ReadLease"}},
		{"the object is renewed once in a registration period", func(*testing.T) Machine {
			m := following(held("n2"))
			m.lookedAt, m.claimEnd = 299*time.Second, 290*time.Second
			return m
		}, 300 * time.Second, none, []string{"Ack"}},
		{"a failed write is tried again after a quarter of the retry period", func(t *testing.T) Machine {
			m := leading(t)
			m.Tick(instant(2 * time.Second))
			m.LeaseWritten(Failed, Lease{}, instant(3*time.Second))
			return m
		}, 3500 * ms, none, []string{"ReadLease"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := test.machine(t)
			early, late := m, m
			if got := kinds(early.Tick(instant(test.limit - 1))); !reflect.DeepEqual(got, test.before) {
				t.Errorf("before: got %v, want %v", got, test.before)
			}
			if got := kinds(late.Tick(instant(test.limit))); !reflect.DeepEqual(got, test.then) {
				t.Errorf("at the limit: got %v, want %v", got, test.then)
			}
			if wake, ok := m.Wake(test.limit - 1); !ok || wake > test.limit {
				t.Errorf("Wake: got %v %v, want no later than %v", wake, ok, test.limit)
			}
		})
	}
}

// TestStart checks when a first renewal that has succeeded starts the work.
func TestStart(t *testing.T) {
	appointment := Lease{Exists: true, Version: 10, Holder: "n1", Acquired: 5, Renewed: 5, Duration: 5 * time.Second, Transitions: 1, Token: "9"}
	tests := []struct {
		name   string
		after  time.Duration
		happen func(m *Machine, at Instant)
		want   bool
	}{
		{"at the last moment before the renew deadline", 10*time.Second - 1, nil, true},
		{"not at the renew deadline", 10 * time.Second, nil, false},
		{"not if the candidate shuts down meanwhile", 0, func(m *Machine, at Instant) { m.Shutdown(at) }, false},
		{"not if it is not healthy any more", 0, func(m *Machine, at Instant) { m.Health(false, at) }, false},
		{"not if it is to yield", 0, func(m *Machine, at Instant) {
			l := written(m, 12)
			l.Preferred = "n2"
			m.SeeLease(l, at)
		}, false},
		{"not if another holds the lease by now", 0, func(m *Machine, at Instant) {
			l := held("n2")
			l.Version = 12
			m.SeeLease(l, at)
		}, false},
		{"not if it was appointed anew since", 0, func(m *Machine, at Instant) {
			l := appointment
			l.Version, l.Acquired, l.Renewed, l.Token = 13, 77, 77, "12"
			m.SeeLease(l, at)
		}, false},
		{"not if the lease is gone", 0, func(m *Machine, at Instant) { m.SeeLease(Lease{Version: 12}, at) }, false},
		{"if the watch has shown it already", 0, func(m *Machine, at Instant) { m.SeeLease(written(m, 11), at) }, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := following(appointment)
			after := written(&m, 11)
			if test.happen != nil {
				test.happen(&m, instant(test.after))
			}
			effects := m.LeaseWritten(Succeeded, after, instant(test.after))
			_, got := any(append(effects, Done{})[0]).(StartWork)
			if _, _, leads := m.Leading(); got != test.want || leads != test.want {
				t.Errorf("got %v and Leading %v, want %v", effects, leads, test.want)
			}
		})
	}
}

// TestSightings checks that what comes late or twice changes nothing.
func TestSightings(t *testing.T) {
	now := held("n2")
	tests := []struct {
		name string
		see  Lease
		want Lease
	}{
		{"an older version", Lease{Exists: true, Version: 9, Holder: "n1", Acquired: 5, Renewed: 5}, now},
		{"an older absence", Lease{Version: 9}, now},
		{"the same again", now, now},
		{"a deletion that is shown with the version of what was deleted", Lease{Version: 10}, Lease{Version: 10}},
		{"a newer version", Lease{Exists: true, Version: 11, Holder: "n3"}, Lease{Exists: true, Version: 11, Holder: "n3"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := following(now)
			m.SeeLease(test.see, instant(time.Second))
			if m.lease != test.want {
				t.Errorf("got %+v, want %+v", m.lease, test.want)
			}
		})
	}
	m := following(Lease{Version: 10})
	if m.SeeLease(now, instant(0)); m.lease.Exists {
		t.Error("what was deleted at a version came back at the same")
	}
}

// TestManyFailedRenewals: however often writing fails, the last renewal stays the candidate's own (C07).
func TestManyFailedRenewals(t *testing.T) {
	m := leading(t)
	own := m.lease
	for n := range 4 * ownStamps {
		at := instant(2*time.Second + time.Duration(n)*100*ms)
		m.retryAt, m.readAt = 0, 0
		m.Tick(at)
		m.LeaseWritten(Failed, Lease{}, at)
		m.retryAt = 0
		m.Tick(at)
		m.LeaseRead(own, false, at)
		if _, _, ok := m.Leading(); !ok {
			t.Fatalf("stopped after %d failures", n+1)
		}
	}
}

// TestPurity: a copy is independent, and the same input has the same effects.
func TestPurity(t *testing.T) {
	m := leading(t)
	a, b := m, m
	if x, y := a.Tick(instant(3*time.Second)), b.Tick(instant(3*time.Second)); !reflect.DeepEqual(x, y) || a != b {
		t.Errorf("got %v and %v", x, y)
	}
	if m == a {
		t.Error("the original changed with its copy")
	}
}

// TestSpuriousEnd: the end of work that does not run means nothing.
func TestSpuriousEnd(t *testing.T) {
	m := following(held("n2"))
	if effects := m.WorkStopped(instant(0)); len(effects) > 0 || m.shutdown {
		t.Errorf("got %v", effects)
	}
}

// A server that turns to another kind of object, whose versions count from elsewhere, is believed; an object that is found
// there was not renewed for a while; and what it says does not touch a term.
func TestAnotherKind(t *testing.T) {
	m := leading(t)
	if got := kinds(m.SeeRegistration(Registration{Kind: "b", Version: 1}, instant(0))); !reflect.DeepEqual(got, []string{"Create"}) {
		t.Errorf("another kind without an object: %v", got)
	}
	created := registered()
	created.Kind, created.Version = "b", 2
	if got := kinds(m.RegistrationWritten(Succeeded, created, instant(0))); len(got) > 0 {
		t.Errorf("registered: %v", got)
	}
	older := Registration{Kind: "b", Version: 1}
	if got := kinds(m.SeeRegistration(older, instant(0))); len(got) > 0 {
		t.Errorf("what was before: %v", got)
	}
	back := registered()
	if got := kinds(m.SeeRegistration(back, instant(0))); !reflect.DeepEqual(got, []string{"Ack"}) {
		t.Errorf("back to an object that is there: %v", got)
	}
	back.Version++
	if got := kinds(m.RegistrationWritten(Succeeded, back, instant(0))); len(got) > 0 {
		t.Errorf("renewed: %v", got)
	}
	if got := kinds(m.SeeRegistration(Registration{Unserved: true}, instant(0))); len(got) > 0 {
		t.Errorf("nothing is served: %v", got)
	}
	if got := kinds(m.SeeRegistration(registered(), instant(0))); !reflect.DeepEqual(got, []string{"Ack"}) {
		t.Errorf("served again, with an object that is there: %v", got)
	}
	if _, _, leads := m.Leading(); !leads {
		t.Error("it does not lead any more")
	}
}
