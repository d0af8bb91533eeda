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

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// operatorHandOff is what a change of leaders may cost operators. They take less than a tenth of a second; the rest is for a
// busy machine that starts and ends many of these processes, which are bigger than test/worker's.
const operatorHandOff = 2 * time.Second

// eachOperator runs a test, in parallel, with each of the two ways in which a controller-runtime manager leads, on a cluster
// of each flavour.
func eachOperator(t *testing.T, test func(t *testing.T, o *operators)) {
	t.Parallel()
	for _, way := range []struct {
		name string
		args []string
	}{{"one manager", nil}, {"a manager per term", []string{"--per-term-manager"}}} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
				a := newArena(t, flavour)
				a.lease = a.ns + "/example-operator"
				a.must(a.cluster.AllowOperators(a.ctx, a.ns))
				o := &operators{arena: a, perTerm: len(way.args) > 0, args: append(way.args, "--interval=50ms")}
				o.followStamps()
				test(t, o)
			})
		})
	}
}

// operators are processes of examples/operator, and what they have done.
type operators struct {
	*arena
	perTerm bool
	args    []string
	started []*framework.Operator

	mu     sync.Mutex
	stamps []stamp
}

// stamp is what an operator wrote on a ConfigMap.
type stamp struct {
	version, by string
	token       uint64
}

func (o *operators) start(name, version string) *framework.Operator {
	o.Helper()
	namespace, lease, _ := strings.Cut(o.lease, "/")
	op, err := o.node.StartOperator(o.ctx, framework.OperatorOptions{
		Namespace: namespace, Lease: lease, Name: name, BinaryVersion: version, Args: o.args,
	})
	o.must(err)
	// As the kubelet does.
	op.SetRestart(true)
	o.started = append(o.started, op)
	o.waitCandidate(name)
	return op
}

// followStamps makes the ConfigMap and takes down every change of it.
func (o *operators) followStamps() {
	o.Helper()
	objects := o.cluster.Clientset().CoreV1().ConfigMaps(o.ns)
	made, err := objects.Create(o.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "stamped", Labels: map[string]string{"operator.example.com/stamp": "true"},
	}}, metav1.CreateOptions{})
	o.must(err)
	ctx, cancel := context.WithCancel(o.ctx)
	w, err := objects.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=stamped", ResourceVersion: made.ResourceVersion})
	o.must(err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range w.ResultChan() {
			object, ok := e.Object.(*corev1.ConfigMap)
			switch {
			case ctx.Err() != nil:
				return
			case !ok:
				o.Errorf("watching the stamps: %v", e)
				return
			}
			notes := object.Annotations
			token, err := strconv.ParseUint(notes["operator.example.com/fencing-token"], 10, 64)
			if err != nil {
				o.Errorf("reading the token of a stamp: %v", err)
			}
			o.mu.Lock()
			o.stamps = append(o.stamps, stamp{notes["operator.example.com/version"], notes["operator.example.com/by"], token})
			o.mu.Unlock()
		}
	}()
	o.Cleanup(func() {
		cancel()
		<-ended
	})
}

// waitStamp waits until that operator has stamped, after all that is there already.
func (o *operators) waitStamp(by string) {
	o.Helper()
	ctx, cancel := context.WithTimeout(o.ctx, patience)
	defer cancel()
	o.mu.Lock()
	from := len(o.stamps)
	o.mu.Unlock()
	o.must(framework.WaitFor(ctx, by+" stamps", func(context.Context) (bool, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		return slices.ContainsFunc(o.stamps[from:], func(s stamp) bool { return s.by == by }), nil
	}))
}

// terms returns the runs of stamps by one operator with one token, as the API server has put them in order.
func (o *operators) terms() []stamp {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Compact(slices.Clone(o.stamps))
}

// verdict asserts that no two operators ever worked at once, by what they say and by what they wrote.
func (o *operators) verdict() {
	o.Helper()
	o.safe()
	var last stamp
	for _, s := range o.terms() {
		if s.token <= last.token {
			o.Errorf("%+v stamped after %+v", s, last)
		}
		last = s
	}
	for _, op := range o.started {
		if late := op.LogLines("Not stamping"); len(late) > 0 {
			o.Errorf("%s would have stamped after its successor: %s", op.Name(), late[0])
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Logf("%d stamps", len(o.stamps))
}

// changes returns how often leadership has changed since the lease had that many transitions.
func (o *operators) changes(since int32) int32 { return *o.get().Spec.LeaseTransitions - since }

// Three replicas of an operator are rolled, one by one: leadership changes once.
func TestOperatorRollout(t *testing.T) {
	eachOperator(t, func(t *testing.T, o *operators) {
		var replicas []*framework.Operator
		for i := range 3 {
			replicas = append(replicas, o.start(fmt.Sprintf("old-%d", i), "1.0.0"))
		}
		// The first to register is elected, and no equal interrupts it.
		o.waitLeader("old-0", patience)
		o.waitStamp("old-0")
		before := *o.get().Spec.LeaseTransitions

		// Its leader is the last of the old ones to go.
		for i, old := range []*framework.Operator{replicas[1], replicas[2], replicas[0]} {
			name := fmt.Sprintf("new-%d", i)
			replicas = append(replicas, o.start(name, "1.1.0"))
			o.waitStamp("new-0")
			o.must(old.Stop(o.ctx))
		}
		o.observe(5 * time.Second)
		if n := o.changes(before); n != 1 {
			t.Errorf("leadership changed %d times in the rollout, want once", n)
		}
		terms := o.terms()
		if len(terms) != 2 || terms[0].by != "old-0" || terms[0].version != "1.0.0" || terms[1].by != "new-0" || terms[1].version != "1.1.0" {
			t.Errorf("stamps %+v", terms)
		}
		change := o.handedOff("new-0")
		t.Logf("planned: nobody worked for %s", change.Leaderless.Round(100*time.Microsecond))
		if change.Leaderless > operatorHandOff {
			t.Errorf("planned hand-off with a gap of %s", change.Leaderless)
		}
		if restarted := replicas[0].Info().Run > 1; restarted == o.perTerm {
			t.Errorf("the process whose term has ended was restarted: %t", restarted)
		}

		// The leader is told to end, as its Pod is when a node is drained.
		var gaps, exits []string
		for _, round := range []struct{ leader, next string }{{"new-0", "new-1"}, {"new-1", "new-2"}} {
			i := slices.IndexFunc(replicas, func(r *framework.Operator) bool { return r.Identity == round.leader })
			told := time.Now()
			o.must(replicas[i].Stop(o.ctx))
			exits = append(exits, time.Since(told).Round(time.Millisecond).String())
			o.waitLeader(round.next, patience)
			gap := o.handedOff(round.next).Leaderless
			gaps = append(gaps, gap.Round(100*time.Microsecond).String())
			if gap > operatorHandOff {
				t.Errorf("exit of the leader with a gap of %s", gap)
			}
			if err := replicas[i].ExitError(); err != nil {
				t.Errorf("%s ended with %v", round.leader, err)
			}
			o.waitStamp(round.next)
		}
		t.Logf("SIGTERM: nobody worked for %s; the process had ended after %s", strings.Join(gaps, ", "), strings.Join(exits, ", "))
		candidates, err := o.node.Candidates(o.ctx, o.ns, "example-operator")
		o.must(err)
		if len(candidates) != 1 {
			t.Errorf("%d candidates are there after the exit of all but one", len(candidates))
		}
		o.verdict()
	})
}

// An operator that was stopped past its claim finds that another one leads: it writes nothing more, and its process ends.
func TestOperatorFrozen(t *testing.T) {
	eachOperator(t, func(t *testing.T, o *operators) {
		first := o.start("first", "1.0.0")
		o.waitLeader("first", patience)
		o.start("second", "1.0.0")
		o.waitStamp("first")
		o.must(first.Freeze(o.ctx))
		o.waitLeader("second", failover)
		o.must(first.Thaw())
		select {
		case <-first.Exited():
			// It was started again by now, or will be.
		case <-time.After(slack):
			t.Error("a process that has outlived its claim is still there")
		}
		o.waitStamp("second")
		o.observe(2 * time.Second)
		if now, ok := o.rec.Timeline().Leader(o.lease); !ok || now.Identity != "second" {
			t.Errorf("leaders %v", o.leaders())
		}
		for _, overlap := range o.rec.Timeline().Overlaps(o.lease) {
			// From the thaw until it notices.
			t.Logf("deposed leader: gone %s after the thaw", overlap.Duration().Round(time.Millisecond))
		}
		terms := o.terms()
		if len(terms) != 2 || terms[1].by != "second" || terms[1].token <= terms[0].token {
			t.Errorf("stamps %+v", terms)
		}
	})
}
