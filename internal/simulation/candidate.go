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

package simulation

import (
	"maps"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Restart says what becomes of a candidate whose process has ended.
type Restart int

// What a kubelet does with it.
const (
	// Never: it stays down.
	Never Restart = iota
	// SameName restarts it under the same identity.
	SameName
	// NewName restarts it under a new identity, as the Kubernetes components do: what it was stays behind as a
	// candidate that is dead.
	NewName
)

// CandidateSpec describes a candidate.
type CandidateSpec struct {
	Name              string
	Binary, Emulation string
	Strategy          coordinationv1.CoordinatedLeaseStrategy
	Annotations       map[string]string
	// Plain makes it an elector that knows nothing of coordination and registers no candidate.
	Plain bool
	// Disobedient registers a candidate, but elects like a plain elector.
	Disobedient bool
	// Releases is client-go's ReleaseOnCancel.
	Releases bool
	Restart  Restart
	// RestartAfter is how long a restart takes.
	RestartAfter time.Duration
	// ClockAhead is by how much its clock is ahead.
	ClockAhead time.Duration
	// Lease, RenewDeadline and Retry are the elector's durations; zero for client-go's 15, 10 and 2 s.
	Lease, RenewDeadline, Retry time.Duration
}

// Candidate is a process that wants to lead.
type Candidate struct {
	process
	CandidateSpec
	elector *elector
	client  *candidateClient
	// restarts counts new names.
	restarts int
}

// AddCandidate starts a candidate.
func (w *World) AddCandidate(spec CandidateSpec) *Candidate {
	if spec.Strategy == "" {
		spec.Strategy = coordinationv1.OldestEmulationVersion
	}
	c := &Candidate{CandidateSpec: spec}
	c.process = process{w: w, name: spec.Name, offset: spec.ClockAhead}
	w.candidates = append(w.candidates, c)
	c.start()
	return c
}

// candidate returns the candidate of that name, or nil.
func (w *World) candidate(name string) *Candidate {
	for _, c := range w.candidates {
		if c.name == name {
			return c
		}
	}
	return nil
}

func (c *Candidate) start() {
	c.begin()
	t := defaultTiming
	if c.Lease != 0 {
		t = timing{c.Lease, c.RenewDeadline, c.Retry}
	}
	c.elector = &elector{
		p: &c.process, lease: leaseName, identity: c.name, coordinated: !c.Plain && !c.Disobedient, releases: c.Releases, timing: t,
		started: func() { c.w.startsWork(&c.process, c.Plain || c.Disobedient) },
		renewed: func(sent time.Duration) {
			if sent >= c.thawed {
				c.doubtful, c.robbed = false, false
			}
		},
		stopped: func() {
			c.w.stopsWork(&c.process, "gives up")
			// client-go's callers exit. A process that lost its lease releases it if it can.
			if c.Releases {
				c.elector.release(c.exit)
				return
			}
			c.exit()
		},
	}
	if !c.Plain {
		c.client = &candidateClient{c: c}
		c.client.run()
	}
	c.elector.acquire()
}

// exit ends the process by its own will.
func (c *Candidate) exit() {
	c.w.stopsWork(&c.process, "exits")
	c.end()
	c.comeBack()
}

func (c *Candidate) comeBack() {
	if c.Restart == Never {
		return
	}
	life := c.life
	c.w.after(c.RestartAfter, func() {
		if c.life == life {
			c.restart()
		}
	})
}

func (c *Candidate) restart() {
	if c.Restart == NewName {
		c.restarts++
		c.name = c.Name + "-" + strconv.Itoa(c.restarts)
	}
	c.w.detailf("%s starts", c.name)
	c.start()
}

// kill ends the process at once.
func (c *Candidate) kill() {
	if !c.running {
		return
	}
	c.w.stopsWork(&c.process, "dies")
	c.end()
	c.comeBack()
}

// shutDown ends the process in an orderly way.
func (c *Candidate) shutDown() {
	if c.running && !c.paused {
		c.elector.cancel(c.exit)
	}
}

// candidateClient is client-go's LeaseCandidate (tools/leaderelection/leasecandidate.go, v0.37.2).
type candidateClient struct {
	c *Candidate
	// cached is the informer's copy.
	cached *coordinationv1beta1.LeaseCandidate
	// failures is what the rate limiter remembers: client-go never forgets one.
	failures int
	busy     bool
	again    bool
	renewal  *timer
	renewAt  time.Duration
}

const (
	// candidateRequeue is both how often a candidate renews and how often its informer shows it again.
	candidateRequeue = 5 * time.Minute
	candidateTimeout = 10 * time.Second
)

func (cc *candidateClient) run() {
	p := &cc.c.process
	var listed *coordinationv1beta1.LeaseCandidate
	name := p.name
	p.listAndWatch(
		func(ch change) bool { return ch.candidate != nil && ch.candidate.Name == name },
		func() { listed = p.w.server.candidates[name] },
		func() {
			cc.cached = listed
			cc.enqueue()
			cc.resync()
		},
		func(ch change) {
			old := cc.cached
			if ch.deleted {
				cc.cached = nil
				return
			}
			cc.cached = ch.candidate
			if old != nil {
				cc.updated()
			}
		})
}

// updated is the informer's update handler.
func (cc *candidateClient) updated() {
	s := cc.cached.Spec
	if s.PingTime != nil && s.RenewTime != nil && s.PingTime.After(s.RenewTime.Time) {
		cc.enqueue()
	}
}

func (cc *candidateClient) resync() {
	cc.c.after(candidateRequeue, func() {
		if cc.cached != nil {
			cc.updated()
		}
		cc.resync()
	})
}

func (cc *candidateClient) enqueue() {
	if cc.busy {
		cc.again = true
		return
	}
	cc.busy = true
	cc.ensure(func(err error) {
		cc.busy = false
		if err == nil {
			cc.renewWithin(candidateRequeue)
		} else {
			delay := 5 * time.Millisecond << min(cc.failures, 18)
			cc.failures++
			cc.renewWithin(min(delay, 1000*time.Second))
		}
		if cc.again {
			cc.again = false
			cc.enqueue()
		}
	})
}

// renewWithin is the queue's AddAfter: the earlier of two times counts.
func (cc *candidateClient) renewWithin(d time.Duration) {
	at := cc.c.w.now + d
	if cc.renewal != nil && !cc.renewal.stopped && cc.renewAt > cc.c.w.now && cc.renewAt <= at {
		return
	}
	cc.renewal.stop()
	cc.renewAt = at
	cc.renewal = cc.c.after(d, cc.enqueue)
}

func (cc *candidateClient) ensure(done func(error)) {
	c := cc.c
	now := metav1.NewMicroTime(c.clock())
	if cc.cached == nil {
		lc := &coordinationv1beta1.LeaseCandidate{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.name, Annotations: maps.Clone(c.Annotations)},
			Spec: coordinationv1beta1.LeaseCandidateSpec{
				LeaseName: leaseName, BinaryVersion: c.Binary, EmulationVersion: c.Emulation, Strategy: c.Strategy, RenewTime: &now,
			},
		}
		c.call(candidateTimeout, func() error {
			_, err := c.w.server.createCandidate(lc)
			return err
		}, done)
		return
	}
	lc := cc.cached.DeepCopy()
	lc.Spec.RenewTime = &now
	c.call(candidateTimeout, func() error {
		_, err := c.w.server.updateCandidate(lc)
		return err
	}, done)
}
