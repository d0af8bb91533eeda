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

package election

import (
	"slices"
	"testing"
	"time"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// collectCourse drives one candidate, of ours, beside a live leader.
type collectCourse struct {
	*testing.T
	s *Snapshot
}

func newCollectCourse(t *testing.T) *collectCourse {
	s := steady(t, 1)
	dead := candidateOf("dead", "1.36.0", -10)
	s.Candidates = append(s.Candidates, dead)
	s.FieldsKept = false
	return &collectCourse{t, s}
}

func (c *collectCourse) dead() *Candidate { return &c.s.Candidates[len(c.s.Candidates)-1] }

// pass lets time pass, in which the leader renews its Lease and answers all pings.
func (c *collectCourse) pass(d time.Duration) {
	c.s.Now = c.s.Now.Add(d)
	c.s.Observed.Claim.Seen = c.s.Now
	for i := range c.s.Candidates[:len(c.s.Candidates)-1] {
		o := &c.s.Candidates[i].Observed
		o.Moved, o.Pinged, o.pingedBefore, o.Unanswered = c.s.Now, time.Time{}, time.Time{}, 0
	}
}

// run decides and pings, until there is nothing to do; it returns whether the dead one was collected.
func (c *collectCourse) run() (collected bool) {
	c.Helper()
	for range 5 {
		d := Decide(c.s)
		switch d.Action {
		case None:
			return false
		case Ping:
			for i := range c.s.Candidates {
				if slices.Contains(d.Pings, c.s.Candidates[i].Name) {
					c.s.Candidates[i].Observed = c.s.Candidates[i].Observed.Ping(c.s.Now)
				}
			}
		case Collect:
			if len(d.Dead) != 1 || d.Dead[0] != c.dead().Candidate {
				c.Fatalf("%s", d.Sentence())
			}
			return true
		default:
			c.Fatalf("%s", d.Sentence())
		}
	}
	c.Fatal("no end of pings")
	return false
}

// A candidate is collected when it was silent for its TTL and has answered neither of two pings after that; not a moment
// before, and whatever its stamps say.
func TestCollect(t *testing.T) {
	c := newCollectCourse(t)
	// A clock that is years ahead, or behind, says nothing.
	c.dead().Renewed = c.s.Now.Add(100 * 365 * 24 * time.Hour)
	ttl := c.s.Settings.CandidateTTL
	c.dead().Observed.Moved = c.s.Now
	for range 10 {
		if c.run() {
			t.Fatalf("collected after %s", c.s.Now.Sub(c.dead().Observed.Moved))
		}
		c.pass(ttl / 10)
	}
	if c.run() || c.dead().Observed.Unanswered != 1 {
		t.Fatalf("when its TTL ends: %+v", c.dead().Observed)
	}
	c.pass(1)
	if c.run() {
		t.Fatal("collected at the first ping after its TTL")
	}
	if o := c.dead().Observed; !o.Pinged.Equal(c.s.Now) {
		t.Fatalf("not pinged after its TTL: %+v", o)
	}
	c.pass(lastWordAfter - time.Second)
	if d := Decide(c.s); d.Action != None || d.LookAgain.Sub(c.s.Now) > time.Second {
		t.Fatalf("before the second ping is due: %s, looking again in %s", d.Sentence(), d.LookAgain.Sub(c.s.Now))
	}
	c.pass(time.Second)
	if c.run() {
		t.Fatal("collected at the second ping")
	}
	c.pass(c.s.Settings.ElectionDuration - time.Millisecond)
	if c.run() {
		t.Fatal("collected before it could answer the second ping")
	}
	c.pass(time.Millisecond)
	if !c.run() {
		t.Fatalf("not collected: %s", Decide(c.s).Sentence())
	}
}

// collectable returns a course in which the dead one is due.
func collectable(t *testing.T) *collectCourse {
	c := newCollectCourse(t)
	for range 20 {
		c.run()
		c.pass(c.s.Settings.CandidateTTL / 10)
	}
	if d := Decide(c.s); d.Action != Collect {
		t.Fatalf("not due: %s", d.Sentence())
	}
	return c
}

// What keeps a candidate from being collected, each by itself.
func TestNotCollected(t *testing.T) {
	for name, test := range map[string]func(*collectCourse){
		"it renewed": func(c *collectCourse) {
			renewed := *c.dead().Candidate
			renewed.Renewed = renewed.Renewed.Add(time.Microsecond)
			c.dead().Observed = c.dead().Observed.See(&renewed, c.s.Now, false)
			c.dead().Candidate = &renewed
		},
		"it came back under another UID": func(c *collectCourse) {
			reborn := *c.dead().Candidate
			reborn.UID = "reborn"
			c.dead().Observed = c.dead().Observed.See(&reborn, c.s.Now, false)
			c.dead().Candidate = &reborn
		},
		"kube-apiserver collects its own": func(c *collectCourse) { c.s.FieldsKept = true },
		"the lease is paused": func(c *collectCourse) {
			c.s.Lease.Annotations = map[string]string{v1alpha1.PausedAnnotation: v1alpha1.PausedTrue}
		},
		"the lease is somebody else's": func(c *collectCourse) {
			for i := range c.s.Candidates {
				c.s.Candidates[i].Strategy = "example.com/Other"
			}
		},
		"the lease is never coordinated": func(c *collectCourse) { c.s.Settings.Excluded = append(c.s.Settings.Excluded, c.s.Key) },
		"it holds the lease": func(c *collectCourse) {
			c.s.Lease.Spec.HolderIdentity = &c.dead().Name
			c.s.Observed.SeeLease(c.s.Lease, c.s.Now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := collectable(t)
			test(c)
			if d := Decide(c.s); d.Action == Collect {
				t.Errorf("%s", d.Sentence())
			}
		})
	}
	// Of our own kind it is ours to collect, whoever keeps fields, and though it is the last.
	c := collectable(t)
	c.s.FieldsKept, c.dead().CustomResource = true, true
	if d := Decide(c.s); d.Action != Collect {
		t.Errorf("of our own kind: %s", d.Sentence())
	}
	c = collectable(t)
	c.s.Candidates = c.s.Candidates[len(c.s.Candidates)-1:]
	c.s.Lease, c.s.Observed = nil, &Observations{Since: c.s.Observed.Since}
	if d := Decide(c.s); d.Action != Collect {
		t.Errorf("the last of its lease: %s", d.Sentence())
	}
}

// A process that has moved to the other kind of LeaseCandidate is one candidate, by the registration that it keeps alive;
// the one that it left behind is collected after its TTL.
func TestMovedToTheOtherKind(t *testing.T) {
	s := steady(t, 2)
	leader := s.Candidates[0]
	moved := *leader.Candidate
	moved.CustomResource, moved.UID, moved.Renewed = true, "moved", leader.Renewed.Add(time.Second)
	s.Candidates = append(s.Candidates, Candidate{Candidate: &moved, Observed: CandidateObservations{}.See(&moved, s.Now, false)})
	s.Candidates[1].Observed.Moved, s.Candidates[2].Observed.Moved = s.Now, s.Now

	verdicts, _, _ := Rank(s)
	var counted, superseded int
	for _, v := range verdicts {
		switch {
		case v.Name == moved.Name && v.Superseded:
			superseded++
			if v.CustomResource || v.Inadmissible == "" {
				t.Errorf("%+v", v)
			}
		case v.Inadmissible == "":
			counted++
		}
	}
	if counted != 2 || superseded != 1 {
		t.Errorf("%d count and %d do not", counted, superseded)
	}
	if d := Decide(s); d.Action != None || d.Reason != ReasonOptimal {
		t.Errorf("the move made a difference: %s", d.Sentence())
	}
	// kube-apiserver has the fields, and collects what it serves; here it does neither.
	s.FieldsKept = false
	s.Now = s.Now.Add(s.Settings.CandidateTTL + time.Second)
	s.Observed.Claim.Seen = s.Now
	for i := range s.Candidates[1:] {
		s.Candidates[1+i].Observed.Moved = s.Now
	}
	if d := Decide(s); d.Action != Collect || len(d.Dead) != 1 || d.Dead[0] != leader.Candidate {
		t.Errorf("%s", d.Sentence())
	}
}

// Whom the in-tree coordinator does not see it does not lead; and it leads whom it sees, whatever the others ask for.
func TestInTreeSeesItsOwnKind(t *testing.T) {
	for name, test := range map[string]struct {
		custom []bool
		asks   []string
		inTree bool
	}{
		"both native":                         {[]bool{false, false}, []string{"", ""}, true},
		"both ours":                           {[]bool{true, true}, []string{"", ""}, false},
		"one of each":                         {[]bool{false, true}, []string{"", ""}, true},
		"ours is newer and asks for another":  {[]bool{false, true}, []string{"", string(v1alpha1.Sticky)}, true},
		"native asks for another than itself": {[]bool{false, true}, []string{string(v1alpha1.Sticky), ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := steady(t, 2)
			s.InTreeActive = true
			for i := range s.Candidates {
				s.Candidates[i].CustomResource = test.custom[i]
				if test.asks[i] != "" {
					s.Candidates[i].Strategy = v1alpha1.Sticky
				}
			}
			if d := Decide(s); (d.Reason == ReasonInTree) != test.inTree {
				t.Errorf("%s", d.Sentence())
			}
		})
	}
}

// Whom the in-tree coordinator sees may all be dead, which it knows and for long does nothing about. The others do not wait.
func TestInTreeSeesNobodyAlive(t *testing.T) {
	const ed = 5
	ping := func(c *Candidate, when float64) {
		pinged := *c.Candidate
		pinged.PingTime = at(when)
		c.Candidate, c.Observed = &pinged, c.Observed.See(&pinged, at(when), false)
	}
	for name, test := range map[string]struct {
		// n1 leads until 15 and is native; n2 is native, and n3 and n4 are ours.
		pings  func(*Snapshot)
		ours   func(*Snapshot)
		inTree map[float64]bool
		again  float64
	}{
		"nobody was asked": {pings: func(*Snapshot) {}, inTree: map[float64]bool{16: true, 60: true}},
		"one was not asked": {
			pings:  func(s *Snapshot) { ping(&s.Candidates[0], 16) },
			inTree: map[float64]bool{17: true, 60: true},
		},
		"both are silent": {
			pings:  func(s *Snapshot) { ping(&s.Candidates[0], 16); ping(&s.Candidates[1], 17) },
			inTree: map[float64]bool{18: true, 17 + ed - 0.001: true, 17 + ed: false},
			again:  17 + ed,
		},
		"both are asked again and again": {
			pings: func(s *Snapshot) {
				for when := float64(16); when < 60; when += ed - 1 {
					ping(&s.Candidates[0], when)
					ping(&s.Candidates[1], when)
				}
			},
			inTree: map[float64]bool{16 + ed - 0.001: true, 16 + ed: false},
			again:  16 + ed,
		},
		"the holder is silent and its claim runs": {
			pings:  func(s *Snapshot) { ping(&s.Candidates[0], 1); ping(&s.Candidates[1], 1) },
			inTree: map[float64]bool{1 + ed: true, 14.999: true, 15: false},
			again:  15,
		},
		"one has answered": {
			pings: func(s *Snapshot) {
				ping(&s.Candidates[0], 16)
				ping(&s.Candidates[1], 16)
				answered := *s.Candidates[1].Candidate
				answered.Renewed = at(17)
				s.Candidates[1].Candidate, s.Candidates[1].Observed = &answered, s.Candidates[1].Observed.See(&answered, at(17), false)
			},
			inTree: map[float64]bool{18: true, 60: true},
		},
		"one was born again": {
			pings: func(s *Snapshot) {
				ping(&s.Candidates[0], 16)
				ping(&s.Candidates[1], 16)
				reborn := *s.Candidates[1].Candidate
				reborn.UID, reborn.PingTime, reborn.Renewed = "another", time.Time{}, at(20)
				s.Candidates[1].Candidate, s.Candidates[1].Observed = &reborn, s.Candidates[1].Observed.See(&reborn, at(20), false)
			},
			inTree: map[float64]bool{22: true, 60: true},
		},
		"there are no others": {
			pings:  func(s *Snapshot) { ping(&s.Candidates[0], 16); ping(&s.Candidates[1], 16) },
			ours:   func(s *Snapshot) { s.Candidates = s.Candidates[:2] },
			inTree: map[float64]bool{17: true, 60: true},
		},
		"the others never lead": {
			pings: func(s *Snapshot) { ping(&s.Candidates[0], 16); ping(&s.Candidates[1], 16) },
			ours: func(s *Snapshot) {
				s.Candidates[2].Ineligible, s.Candidates[3].Ineligible = "resigning", "resigning"
			},
			inTree: map[float64]bool{17: true, 60: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := steady(t, 4)
			s.InTreeActive = true
			s.Candidates[2].CustomResource, s.Candidates[3].CustomResource = true, true
			test.pings(s)
			if test.ours != nil {
				test.ours(s)
			}
			for when, inTree := range test.inTree {
				s.Now = at(when)
				d := Decide(s)
				if (d.Reason == ReasonInTree) != inTree {
					t.Errorf("after %v s: %s", when, d.Sentence())
				}
				if again := test.again; inTree && again > 0 && !d.LookAgain.Equal(at(again)) {
					t.Errorf("after %v s: looks again at %s, want %s", when, d.LookAgain, at(again))
				}
			}
		})
	}
}
