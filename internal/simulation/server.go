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
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// server is the API server. Objects that it hands out are shared: whoever wants to change one copies it first.
type server struct {
	w          *World
	version    uint64
	leases     map[string]*coordinationv1.Lease
	candidates map[string]*coordinationv1beta1.LeaseCandidate
	watches    []*watch
}

func newServer(w *World) *server {
	return &server{
		w:          w,
		version:    100,
		leases:     map[string]*coordinationv1.Lease{},
		candidates: map[string]*coordinationv1beta1.LeaseCandidate{},
	}
}

func (s *server) next() string {
	s.version++
	return strconv.FormatUint(s.version, 10)
}

// stamp fills in what the server decides at creation. Creation stamps have whole seconds.
func (s *server) stamp(m *metav1.ObjectMeta) {
	m.ResourceVersion = s.next()
	m.UID = types.UID("uid-" + m.ResourceVersion)
	m.CreationTimestamp = metav1.NewTime(epoch.Add(s.w.now).Truncate(time.Second))
}

// truncate gives a MicroTime the resolution that it has on the wire.
func truncate(t *metav1.MicroTime) *metav1.MicroTime {
	if t == nil || t.IsZero() {
		return nil
	}
	micro := metav1.NewMicroTime(t.Truncate(time.Microsecond))
	return &micro
}

// admit applies to a lease what encoding and field dropping do to it.
func (s *server) admit(l *coordinationv1.Lease) *coordinationv1.Lease {
	l = l.DeepCopy()
	l.Spec.AcquireTime, l.Spec.RenewTime = truncate(l.Spec.AcquireTime), truncate(l.Spec.RenewTime)
	if !s.w.FieldsKept {
		l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil
	}
	return l
}

func (s *server) createLease(by *process, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if s.leases[l.Name] != nil {
		return nil, errAlreadyExists
	}
	l = s.admit(l)
	s.stamp(&l.ObjectMeta)
	s.leases[l.Name] = l
	s.w.leaseWritten(by, nil, l)
	s.notify(change{lease: l, version: s.version})
	return l, nil
}

func (s *server) updateLease(by *process, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	old := s.leases[l.Name]
	switch {
	case old == nil:
		return nil, errNotFound
	case l.ResourceVersion != "" && l.ResourceVersion != old.ResourceVersion:
		return nil, errConflict
	}
	l = s.admit(l)
	l.ResourceVersion, l.UID, l.CreationTimestamp = old.ResourceVersion, old.UID, old.CreationTimestamp
	if equality.Semantic.DeepEqual(old, l) {
		s.w.leaseWritten(by, old, old)
		return old, nil
	}
	l.ResourceVersion = s.next()
	s.leases[l.Name] = l
	s.w.leaseWritten(by, old, l)
	s.notify(change{lease: l, version: s.version})
	return l, nil
}

func (s *server) deleteLease(name string) {
	if l := s.leases[name]; l != nil {
		s.next()
		delete(s.leases, name)
		s.notify(change{lease: l, deleted: true, version: s.version})
	}
}

func (s *server) lease(name string) (*coordinationv1.Lease, error) {
	if l := s.leases[name]; l != nil {
		return l, nil
	}
	return nil, errNotFound
}

func (s *server) createCandidate(c *coordinationv1beta1.LeaseCandidate) (*coordinationv1beta1.LeaseCandidate, error) {
	if s.candidates[c.Name] != nil {
		return nil, errAlreadyExists
	}
	c = c.DeepCopy()
	c.Spec.RenewTime, c.Spec.PingTime = truncate(c.Spec.RenewTime), truncate(c.Spec.PingTime)
	s.stamp(&c.ObjectMeta)
	s.candidates[c.Name] = c
	s.notify(change{candidate: c, version: s.version})
	return c, nil
}

func (s *server) updateCandidate(c *coordinationv1beta1.LeaseCandidate) (*coordinationv1beta1.LeaseCandidate, error) {
	old := s.candidates[c.Name]
	switch {
	case old == nil:
		return nil, errNotFound
	case c.ResourceVersion != "" && c.ResourceVersion != old.ResourceVersion:
		return nil, errConflict
	}
	c = c.DeepCopy()
	c.Spec.RenewTime, c.Spec.PingTime = truncate(c.Spec.RenewTime), truncate(c.Spec.PingTime)
	c.ResourceVersion, c.UID, c.CreationTimestamp = old.ResourceVersion, old.UID, old.CreationTimestamp
	if equality.Semantic.DeepEqual(old, c) {
		return old, nil
	}
	c.ResourceVersion = s.next()
	s.candidates[c.Name] = c
	s.notify(change{candidate: c, version: s.version})
	return c, nil
}

func (s *server) deleteCandidate(name string) {
	if c := s.candidates[name]; c != nil {
		s.next()
		delete(s.candidates, name)
		s.notify(change{candidate: c, deleted: true, version: s.version})
	}
}

// collectCandidate deletes the candidate if it is still the one that was seen; an empty uid or version is not compared.
func (s *server) collectCandidate(c *Coordinator, seen *strategy.Candidate) error {
	old := s.candidates[seen.Name]
	switch {
	case old == nil:
		return errNotFound
	case seen.UID != "" && seen.UID != string(old.UID), seen.ResourceVersion != "" && seen.ResourceVersion != old.ResourceVersion:
		return errConflict
	}
	s.w.collected(c, seen, old)
	s.deleteCandidate(seen.Name)
	return nil
}

// listCandidates returns the candidates by name.
func (s *server) listCandidates() []*coordinationv1beta1.LeaseCandidate {
	list := make([]*coordinationv1beta1.LeaseCandidate, 0, len(s.candidates))
	for _, c := range s.candidates {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *coordinationv1beta1.LeaseCandidate) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list
}

func (s *server) notify(c change) {
	kept := s.watches[:0]
	for _, s := range s.watches {
		if s.closed {
			continue
		}
		kept = append(kept, s)
		if s.wants(c) {
			s.send(c)
		}
	}
	clear(s.watches[len(kept):])
	s.watches = kept
}

// change is a watch event.
type change struct {
	lease     *coordinationv1.Lease
	candidate *coordinationv1beta1.LeaseCandidate
	deleted   bool
	// missed says that changes before a deletion may have been missed.
	missed  bool
	version uint64
}

// watch delivers changes to a process, in order, each after a delay.
type watch struct {
	p     *process
	wants func(change) bool
	see   func(change)
	// last is when the last change that was sent arrives.
	last time.Duration
	// waiting holds back changes until the list that the watch starts from was seen.
	waiting bool
	backlog []change
	closed  bool
}

func (s *watch) close() { s.closed = true }

func (s *watch) send(c change) {
	w := s.p.w
	s.last = max(s.last, w.now+w.watchDelay())
	s.p.after(s.last-w.now, func() { s.receive(c) })
}

func (s *watch) receive(c change) {
	switch {
	case s.closed:
	case s.waiting || s.p.cut || len(s.backlog) > 0:
		s.backlog = append(s.backlog, c)
		if !s.waiting && !s.p.cut {
			s.flush()
		}
	default:
		s.see(c)
	}
}

func (s *watch) flush() {
	for !s.closed && !s.waiting && !s.p.cut && len(s.backlog) > 0 {
		c := s.backlog[0]
		s.backlog = s.backlog[1:]
		s.see(c)
	}
}

// listAndWatch calls capture when the server takes the list, listed when the list has arrived, and see for each
// change since. It tries again until it succeeds.
func (p *process) listAndWatch(wants func(change) bool, capture func(), listed func(), see func(change)) *watch {
	s := &watch{p: p, wants: wants, see: see, waiting: true}
	p.watches = append(p.watches, s)
	var list func()
	list = func() {
		if s.closed {
			return
		}
		life := p.life
		p.call(30*time.Second, func() error {
			// A sender that is gone has no use for the watch.
			if p.life == life && !s.closed {
				capture()
				s.backlog = nil
				if !slices.Contains(p.w.server.watches, s) {
					p.w.server.watches = append(p.w.server.watches, s)
				}
			}
			return nil
		}, func(err error) {
			if s.closed {
				return
			}
			if err != nil {
				p.after(p.w.between(time.Second, 2*time.Second), list)
				return
			}
			s.waiting = false
			listed()
			s.flush()
		})
	}
	list()
	return s
}
