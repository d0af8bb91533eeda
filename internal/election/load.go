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
	"cmp"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Loads keeps count of where leases are led, for strategies whose ranking depends on it. The zero value counts none.
// Not safe for concurrent use.
type Loads struct {
	byNode, byZone map[string]int
	leases         map[types.NamespacedName]load
	moving         int
}

// load is what one lease adds to the counts.
type load struct {
	node, zone string
	moving     bool
}

// Set records that the lease is led, or is about to be, by that candidate (nil for none that is known), and whether it
// is changing hands. It reports whether that changes what others are ranked by.
func (l *Loads) Set(key types.NamespacedName, leader *strategy.Candidate, moving bool) (changed bool) {
	before, after := l.leases[key], load{moving: moving}
	if leader != nil {
		after.node, after.zone = cmp.Or(leader.Node, leader.Name), leader.Zone
	}
	if before == after {
		return false
	}
	l.add(before, -1)
	l.add(after, 1)
	if after == (load{}) {
		delete(l.leases, key)
		return true
	}
	if l.leases == nil {
		l.leases = map[types.NamespacedName]load{}
	}
	l.leases[key] = after
	return true
}

func (l *Loads) add(of load, n int) {
	if l.byNode == nil {
		l.byNode, l.byZone = map[string]int{}, map[string]int{}
	}
	count := func(in map[string]int, where string) {
		if where == "" {
			return
		}
		if in[where] += n; in[where] == 0 {
			delete(in, where)
		}
	}
	count(l.byNode, of.node)
	count(l.byZone, of.zone)
	if of.moving {
		l.moving += n
	}
}

// Without calls decide with the load of all leases but that one. The load is not valid after decide has returned.
func (l *Loads) Without(key types.NamespacedName, decide func(strategy.Load)) {
	own := l.leases[key]
	l.add(own, -1)
	defer l.add(own, 1)
	decide(strategy.Load{ByNode: l.byNode, ByZone: l.byZone, Moving: l.moving > 0})
}

// Heir returns who leads the lease, or is about to by what was written to it: the preferred holder, or else the holder.
func Heir(l *coordinationv1.Lease) string {
	return cmp.Or(preferredOf(l), heldBy(l))
}

func heldBy(l *coordinationv1.Lease) string {
	if holder := holderOf(l); holder != v1alpha1.RevokedHolder {
		return holder
	}
	return ""
}

// Moving reports whether the lease is changing hands: its holder was told to yield, or was appointed and has not taken
// up. An appointee that needs a second appointment may never take up, and nobody is to wait for it.
func Moving(l *coordinationv1.Lease, o *Observations) bool {
	return holderOf(l) != "" && (preferredOf(l) != "" || o.Appointment != nil && o.Appointment.Count == 1)
}
