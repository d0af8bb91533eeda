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

package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// fleet is a set of nodes, each with a candidate for every lease, that behave as client-go's do: they ack, take up,
// renew, and stop renewing when they are told to yield.
type fleet struct {
	*fixture
	leases    []types.NamespacedName
	stored    map[types.NamespacedName]*coordinationv1.Lease
	nodes     map[string]string // node to version
	queue     []types.NamespacedName
	lookAgain map[types.NamespacedName]time.Time
	shuffle   *rand.Rand

	// moves counts ended terms; most is the largest number of leases that changed hands at once.
	moves, most int
}

func newFleet(t *testing.T, leases int, seed uint64) *fleet {
	f := &fleet{
		fixture: newFixture(t), stored: map[types.NamespacedName]*coordinationv1.Lease{}, nodes: map[string]string{},
		lookAgain: map[types.NamespacedName]time.Time{}, shuffle: rand.New(rand.NewPCG(seed, 0)),
	}
	for i := range leases {
		f.leases = append(f.leases, types.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("lease-%d", i)})
	}
	return f
}

func (f *fleet) candidateOn(node string, key types.NamespacedName) *strategy.Candidate {
	f.version++
	now := metav1.NewMicroTime(f.clock)
	name := node + "-" + key.Name
	return strategy.NewCandidate(&metav1.ObjectMeta{
		Namespace: key.Namespace, Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(f.version),
		CreationTimestamp: metav1.NewTime(f.clock), Labels: map[string]string{corev1.LabelHostname: node},
	}, strategy.Spec{LeaseName: key.Name, Strategy: v1alpha1.Spread, BinaryVersion: f.nodes[node], RenewTime: &now})
}

func (f *fleet) join(node, version string) {
	f.nodes[node] = version
	for _, key := range f.leases {
		f.queue = append(f.queue, f.SeeCandidate(f.candidateOn(node, key), false)...)
	}
}

func (f *fleet) leave(node string) {
	delete(f.nodes, node)
	for _, key := range f.leases {
		f.queue = append(f.queue, f.SeeCandidateDeleted(f.candidateOn(node, key))...)
	}
}

// run lets that much time pass, a second at a time.
func (f *fleet) run(d time.Duration) {
	f.Helper()
	for end := f.clock.Add(d); f.clock.Before(end); f.elapse(time.Second) {
		f.coordinate()
		f.holders()
		moving := 0
		for _, lease := range f.stored {
			if lease.Spec.PreferredHolder != nil {
				moving++
			}
		}
		f.most = max(f.most, moving)
	}
}

// coordinate decides on what is due, in random order, as parallel workers do: each decision is made before the one
// before it is carried out.
func (f *fleet) coordinate() {
	f.Helper()
	for _, key := range f.leases {
		if at := f.lookAgain[key]; !at.IsZero() && !f.clock.Before(at) {
			f.queue = append(f.queue, key)
		}
	}
	for round := 0; len(f.queue) > 0; round++ {
		if round > 100 {
			f.Fatal("the coordinator does not come to rest")
		}
		due := map[types.NamespacedName]bool{}
		for _, key := range f.queue {
			due[key] = true
		}
		f.queue = nil
		keys := slices.SortedFunc(maps.Keys(due), func(a, b types.NamespacedName) int {
			return len(a.Name) - len(b.Name) + slices.Compare([]byte(a.Name), []byte(b.Name))
		})
		f.shuffle.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		var open []decided
		for _, key := range keys {
			d := f.decide(key, f.settings)
			f.queue = append(f.queue, d.lookAt...)
			f.lookAgain[key] = d.LookAgain
			if d.Action != election.None {
				open = append(open, d)
			}
		}
		for _, d := range open {
			f.carryOut(d)
			f.queue = append(f.queue, d.snapshot.Key)
		}
	}
}

func (f *fleet) carryOut(d decided) {
	f.Helper()
	key := d.snapshot.Key
	if d.Action == election.Ping && !slices.Contains(f.leases, key) {
		// Its candidates are deaf.
		for _, c := range d.snapshot.Candidates {
			if slices.Contains(d.Pings, c.Name) {
				f.pinged(key, c.Candidate)
			}
		}
		return
	}
	if d.Action == election.Ping {
		for node := range f.nodes {
			f.queue = append(f.queue, f.SeeCandidate(f.candidateOn(node, key), false)...)
		}
		return
	}
	if !f.begin(key, d) {
		f.Fatalf("%s: not what was decided on", key)
	}
	after := f.compose(d, "base")
	f.version++
	after.ResourceVersion, after.UID = strconv.Itoa(f.version), types.UID(key.Name)
	f.stored[key] = after
	f.queue = append(f.queue, f.wrote(key, d, after).LookAt...)
	if d.Action == election.Prefer {
		f.moves++
	}
}

// holders renew, unless they are gone or were told to yield.
func (f *fleet) holders() {
	for _, key := range f.leases {
		lease := f.stored[key]
		if lease == nil || lease.Spec.PreferredHolder != nil || f.nodes[f.nodeOf(key)] == "" {
			continue
		}
		lease = lease.DeepCopy()
		now := metav1.NewMicroTime(f.clock)
		lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &now, new(int32(15))
		f.version++
		lease.ResourceVersion = strconv.Itoa(f.version)
		f.stored[key] = lease
		seen := f.SeeLease(lease)
		f.queue = append(f.queue, seen.LookAt...)
		if seen.Decide {
			f.queue = append(f.queue, key)
		}
	}
}

func (f *fleet) nodeOf(key types.NamespacedName) string {
	lease := leaseapi.Decode(f.stored[key], true)
	if lease == nil || lease.Spec.HolderIdentity == nil {
		return ""
	}
	return (*lease.Spec.HolderIdentity)[:len(*lease.Spec.HolderIdentity)-len(key.Name)-1]
}

// perNode counts the leases that each node leads.
func (f *fleet) perNode() map[string]int {
	counts := map[string]int{}
	for node := range f.nodes {
		counts[node] = 0
	}
	for _, key := range f.leases {
		counts[f.nodeOf(key)]++
	}
	return counts
}

func (f *fleet) evenly(when string) {
	f.Helper()
	counts := slices.Sorted(maps.Values(f.perNode()))
	if spread := counts[len(counts)-1] - counts[0]; spread > 1 {
		f.Fatalf("%s: %v: the fullest and the emptiest node differ by %d", when, f.perNode(), spread)
	}
}

// TestSpreadSettles is case C48, from many orders of events.
func TestSpreadSettles(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := newFleet(t, 6, seed)
			for i := range 3 {
				f.join(fmt.Sprintf("n%d", i), "1.0.0")
			}
			f.run(time.Minute)
			f.evenly("at first")
			if f.moves != 0 {
				t.Errorf("%d moves of leases that were spread from the start", f.moves)
			}

			f.join("n3", "1.0.0")
			f.run(5 * time.Minute)
			f.evenly("with one more node")
			if f.moves != 1 {
				t.Errorf("%d moves, where one is needed", f.moves)
			}

			f.leave("n0")
			f.run(5 * time.Minute)
			f.evenly("with one node less")

			f.moves = 0
			f.join("n4", "1.0.0")
			f.join("n5", "1.0.0")
			f.join("n6", "1.0.0")
			f.run(10 * time.Minute)
			f.evenly("with three more nodes")
			if f.moves > 3 {
				t.Errorf("%d moves to three new nodes", f.moves)
			}
			if f.most > 1 {
				t.Errorf("%d leases moved at once", f.most)
			}
		})
	}
}

// TestSpreadKeepsTheVersionRule: nodes that are upgraded lead nothing as long as others are left.
func TestSpreadKeepsTheVersionRule(t *testing.T) {
	f := newFleet(t, 6, 1)
	for i := range 3 {
		f.join(fmt.Sprintf("n%d", i), "1.0.0")
	}
	f.run(time.Minute)
	f.leave("n0")
	f.join("n0", "1.1.0")
	f.run(5 * time.Minute)
	if got := f.perNode(); got["n0"] != 0 || got["n1"] != 3 || got["n2"] != 3 {
		t.Errorf("with n0 upgraded: %v", got)
	}
	for _, node := range []string{"n1", "n2"} {
		f.leave(node)
		f.join(node, "1.1.0")
		f.run(5 * time.Minute)
	}
	f.run(10 * time.Minute)
	f.evenly("with all upgraded")
}

// TestSpreadKeepsTheMinimumTerm: leases that could be spread better wait for it.
func TestSpreadKeepsTheMinimumTerm(t *testing.T) {
	f := newFleet(t, 4, 1)
	f.settings.MinTerm = 10 * time.Minute
	f.join("n0", "1.0.0")
	f.run(time.Minute)
	f.join("n1", "1.0.0")
	f.run(8 * time.Minute)
	if f.moves != 0 {
		t.Fatalf("%d moves within the minimum term", f.moves)
	}
	f.run(8 * time.Minute)
	f.evenly("after the minimum term")
}

// TestSpreadDoesNotWaitForOneThatNeverTakesUp: an appointee that is deaf holds up its own lease only.
func TestSpreadDoesNotWaitForOneThatNeverTakesUp(t *testing.T) {
	f := newFleet(t, 4, 1)
	f.join("n0", "1.0.0")
	f.run(time.Minute)
	stuck := f.leases[0]
	f.leases = f.leases[1:]
	// n0's candidate for the stuck lease is gone; the only other one acks but does not take up.
	f.SeeCandidateDeleted(f.candidateOn("n0", stuck))
	f.nodes["deaf"] = "1.0.0"
	f.SeeCandidate(f.candidateOn("deaf", stuck), false)
	delete(f.nodes, "deaf")
	for range 40 {
		if d := f.decide(stuck, f.settings); d.Action != election.None {
			f.carryOut(d)
		}
		f.elapse(time.Second)
		f.holders()
	}
	f.join("n1", "1.0.0")
	f.run(5 * time.Minute)
	f.evenly("beside a lease that nobody takes up")
}
