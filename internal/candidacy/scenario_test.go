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

package candidacy

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestScenarios plays the files in testdata: one candidate, n1, and what happens to it. To write the expected output anew,
// run it with -rewrite; then read the diff, and commit only what you can explain.
//
// Each line of a block called do is something that happens:
//
//	run 10s                  time passes
//	appoint n1 | prefer n2 | clear | revoke n2 | in-tree n1 | ping
//	                         the coordinator does that
//	take n2 | wipe | twin | delete | pause
//	                         the lease is taken, emptied, renewed by another process of this name, deleted, annotated
//	forget | mark | outdate | unserved
//	                         the candidate's object is deleted, marked never to lead, has old versions, its API is gone
//	api down | api up        requests fail
//	hold | answer | lose     requests do not get through; those held succeed; those held are carried out, and seem lost
//	through                  those held succeed, and the next are held
//	watch off | watch on     the watch shows nothing
//	again                    the watch shows the lease once more, and then as it was before
//	work stops | work ends   as it was asked to, or by itself
//	sick | well | shutdown   the process
//
// The block called leading begins with n1 in office.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios:", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			var s *scenario
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				switch d.Cmd {
				case "new", "leading":
					s = newScenario()
					if d.Cmd == "leading" {
						s.play(t, d, "appoint n1")
						s.out.Reset()
					}
				case "do":
				default:
					d.Fatalf(t, "unknown command %q", d.Cmd)
				}
				for line := range strings.Lines(d.Input) {
					s.play(t, d, strings.TrimSpace(line))
				}
				if s.out.Len() == 0 {
					return "nothing\n"
				}
				defer s.out.Reset()
				return s.out.String()
			})
		})
	}
}

type scenario struct {
	out     strings.Builder
	m       Machine
	now     time.Duration
	version uint64
	lease   Lease
	before  Lease
	object  Registration
	down    bool
	holding bool
	blind   bool
	held    []Effect
}

func newScenario() *scenario {
	s := &scenario{version: 100}
	s.lease.Version = 100
	s.object = Registration{Known: true, Version: 100}
	s.m = New(Config{
		Identity: "n1", LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		DrainLimit: 5 * time.Second, HandOffWait: time.Second, FallbackAfter: 30 * time.Second, RegistrationPeriod: 5 * time.Minute,
	}, s.at())
	s.carryOut(s.m.SeeRegistration(s.object, s.at()))
	s.carryOut(s.m.SeeLease(s.lease, s.at()))
	return s
}

// at is the moment in microseconds since the beginning, which is 1,000 s after 1970 to tell a stamp from none.
func (s *scenario) at() Instant {
	return Instant{Mono: s.now, Wall: Stamp((1000*time.Second + s.now).Microseconds())}
}

func (s *scenario) printf(format string, args ...any) {
	fmt.Fprintf(&s.out, "%8.2f  %s\n", s.now.Seconds(), fmt.Sprintf(format, args...))
}

func seconds(stamp Stamp) string {
	if stamp == 0 {
		return "none"
	}
	us := int64(stamp) - 1_000_000_000
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%06d", us/1e6, us%1e6), "0"), ".")
}

func describe(l Lease) string {
	holder := l.Holder
	if holder == "" {
		holder = "nobody"
	}
	text := fmt.Sprintf("holder=%s renewed=%s duration=%v transitions=%d token=%s", holder, seconds(l.Renewed), l.Duration.Seconds(), l.Transitions, l.Token)
	if l.Acquired == l.Renewed {
		text += " appointed"
	}
	if l.Preferred != "" {
		text += " preferred=" + l.Preferred
	}
	return text
}

func (s *scenario) carryOut(effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case WriteLease:
			what := "write"
			if !e.Base.Exists {
				what = "create"
			}
			s.printf("%s %s: %s", what, e.Why, describe(e.Next))
		case ReadLease:
			s.printf("read the lease")
		case WriteRegistration:
			s.printf("candidate: %s", e.Why)
		case StartWork:
			s.printf("START WORK, token %s", e.Term.Token)
		case CancelWork:
			s.printf("CANCEL WORK: %s", e.Why)
		case EndProcess:
			s.printf("END PROCESS: %s", e.Why)
		case Nominate:
			s.printf("nominated")
		case Done:
			s.printf("DONE")
		}
	}
	for _, e := range effects {
		if s.holding {
			s.held = append(s.held, e)
		} else {
			s.serve(e, false)
		}
	}
}

// serve is the API server. lost has what is carried out seem to fail.
func (s *scenario) serve(e Effect, lost bool) {
	switch e := e.(type) {
	case WriteLease:
		outcome, after := Conflicted, Lease{}
		switch {
		case s.down:
			outcome = Failed
		case e.Base.Exists == s.lease.Exists && (!e.Base.Exists || e.Base.Version == s.lease.Version):
			outcome, after = Succeeded, e.Next
			s.version++
			after.Version = s.version
			s.before, s.lease = s.lease, after
		}
		if lost {
			outcome = Failed
		}
		if outcome != Succeeded {
			s.printf("(%s %s)", e.Why, map[Outcome]string{Failed: "fails", Conflicted: "conflicts"}[outcome])
		}
		s.carryOut(s.m.LeaseWritten(outcome, after, s.at()))
	case ReadLease:
		l := s.lease
		if !l.Exists {
			l.Version = s.version
		}
		s.carryOut(s.m.LeaseRead(l, s.down, s.at()))
	case WriteRegistration:
		if s.down {
			s.carryOut(s.m.RegistrationWritten(Failed, Registration{}, s.at()))
			return
		}
		s.version++
		r := &s.object
		r.Version = s.version
		switch e.Why {
		case Create, Update:
			r.Exists, r.Current, r.Resigned, r.Renewed = true, true, false, e.Renewed
		case Ack:
			r.Renewed = e.Renewed
		case Resign:
			r.Resigned = true
		case Delete:
			*r = Registration{Known: true, Version: s.version}
		}
		s.carryOut(s.m.RegistrationWritten(Succeeded, *r, s.at()))
	}
}

func (s *scenario) put(change func(l *Lease)) {
	s.before = s.lease
	change(&s.lease)
	s.version++
	s.lease.Version = s.version
	s.show()
}

func (s *scenario) show() {
	if !s.blind {
		s.carryOut(s.m.SeeLease(s.lease, s.at()))
	}
}

func (s *scenario) putObject(change func(r *Registration)) {
	change(&s.object)
	s.version++
	s.object.Version = s.version
	s.carryOut(s.m.SeeRegistration(s.object, s.at()))
}

// run lets time pass as a library would, from wake-up to wake-up.
func (s *scenario) run(d time.Duration) {
	end := s.now + d
	for {
		wake, ok := s.m.Wake(s.now)
		if !ok || wake > end {
			break
		}
		s.now = wake
		s.carryOut(s.m.Tick(s.at()))
	}
	s.now = end
	s.carryOut(s.m.Tick(s.at()))
}

func (s *scenario) play(t *testing.T, d *datadriven.TestData, line string) {
	t.Helper()
	verb, arg, _ := strings.Cut(line, " ")
	wall := s.at().Wall
	switch verb {
	case "run":
		pause, err := time.ParseDuration(arg)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.run(pause)
	case "appoint":
		s.put(func(l *Lease) {
			l.Transitions, l.Token = l.Transitions+1, strconv.FormatUint(l.Version, 10)
			l.Exists, l.Holder, l.Preferred, l.Coordinated, l.Acquired, l.Renewed, l.Duration = true, arg, "", true, wall, wall, 5*time.Second
		})
	case "in-tree":
		s.put(func(l *Lease) {
			l.Exists, l.Holder, l.Preferred, l.Coordinated, l.Acquired, l.Renewed, l.Duration = true, arg, "", true, 0, wall, 5*time.Second
		})
	case "prefer":
		s.put(func(l *Lease) { l.Preferred = arg })
	case "clear":
		s.put(func(l *Lease) { l.Preferred = "" })
	case "revoke":
		s.put(func(l *Lease) { l.Holder, l.Renewed, l.Preferred = "lease-coordinator.dev/revoked", wall, arg })
	case "take":
		s.put(func(l *Lease) {
			l.Exists, l.Holder, l.Acquired, l.Renewed, l.Duration = true, arg, wall-1, wall, 15*time.Second
			l.Transitions++
		})
	case "wipe":
		s.put(func(l *Lease) { l.Holder, l.Duration = "", time.Second })
	case "twin":
		s.put(func(l *Lease) { l.Renewed += 7 })
	case "delete":
		s.put(func(l *Lease) { *l = Lease{} })
	case "pause":
		s.put(func(l *Lease) { l.Paused = true })
	case "ping":
		s.putObject(func(r *Registration) { r.Ping = max(wall, r.Renewed+1) })
	case "forget":
		s.putObject(func(r *Registration) { *r = Registration{Known: true} })
	case "mark":
		s.putObject(func(r *Registration) { r.Ineligible = true })
	case "outdate":
		s.putObject(func(r *Registration) { r.Current = false })
	case "unserved":
		s.putObject(func(r *Registration) { *r = Registration{Known: true, Unserved: true} })
	case "api":
		s.down = arg == "down"
	case "hold":
		s.holding = true
	case "answer", "lose":
		held := s.held
		s.holding, s.held = false, nil
		for _, e := range held {
			s.serve(e, verb == "lose")
		}
	case "through":
		held := s.held
		s.held = nil
		for _, e := range held {
			s.serve(e, false)
		}
	case "watch":
		if s.blind = arg == "off"; !s.blind {
			s.show()
		}
	case "again":
		s.carryOut(s.m.SeeLease(s.lease, s.at()))
		s.carryOut(s.m.SeeLease(s.before, s.at()))
	case "work":
		s.carryOut(s.m.WorkStopped(s.at()))
	case "sick", "well":
		s.carryOut(s.m.Health(verb == "well", s.at()))
	case "shutdown":
		s.carryOut(s.m.Shutdown(s.at()))
	default:
		d.Fatalf(t, "unknown %q", line)
	}
}
