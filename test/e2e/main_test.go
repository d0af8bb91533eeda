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

// Package e2e holds the suites on a real control plane: etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler as processes, the coordinator as it is shipped (with the race detector), and candidates built on
// unmodified client-go. Who leads is what the processes say and do, not what the Lease says.
package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

func TestMain(m *testing.M) {
	// Silences the warning that no logger was set; what matters is in the processes' own logs.
	ctrllog.SetLogger(logr.Discard())
	os.Exit(framework.Main(m))
}

// The durations of client-go's candidates, and what follows from them.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	// poll is the longest time between two looks of a client-go candidate at its Lease.
	poll = 4400 * time.Millisecond
	// slack is what a busy machine may add.
	slack = 3 * time.Second
	// failover is the longest a lease may be without a leader when the leader vanishes: its claim, the
	// appointee's poll, and slack.
	failover = leaseDuration + poll + slack
	// patience bounds waits whose length is not what a test is about.
	patience = 90 * time.Second
)

// coordinatorArgs returns what a coordinator needs to coordinate OldestEmulationVersion leases on that flavour.
func coordinatorArgs(flavour framework.Flavour) []string {
	if flavour == framework.GateOn {
		return []string{"--in-tree=replace"}
	}
	return nil
}

var (
	sharedMu           sync.Mutex
	sharedCoordinators = map[framework.Flavour]*framework.Coordinator{}
)

// arena is one test's namespace on a cluster that is coordinated, and what is recorded of it.
type arena struct {
	testing.TB
	ctx     context.Context
	cluster *framework.Cluster
	node    *framework.Node
	rec     *framework.Recorder
	ns      string
	// lease is "namespace/name" of the lease that candidates compete for by default.
	lease string
}

// newArena returns an arena on the shared cluster of that flavour, with one coordinator that all tests share.
func newArena(t *testing.T, flavour framework.Flavour) *arena {
	t.Helper()
	cluster := framework.Shared(t, flavour)
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if sharedCoordinators[flavour] == nil {
		args := append(coordinatorArgs(flavour), sharedArgs(t)...)
		// The coordinator outlives this test.
		sharedCoordinators[flavour] = startCoordinators(t, context.WithoutCancel(t.Context()), cluster.Nodes[0], 1, args...)[0]
		// So that whatever works here works with it.
		installPolicy(t, t.Context(), cluster.Nodes[0])
	}
	return newArenaOn(t, cluster)
}

// leaseByFlag is the name of leases that the shared coordinators lead by the newest binary version, since a flag says so.
const leaseByFlag = "by-flag"

// sharedArgs returns what the shared coordinators are given besides. It concerns no lease that does not ask for it.
func sharedArgs(t *testing.T) []string {
	t.Helper()
	root, err := framework.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"--config=" + filepath.Join(root, "config", "samples", "strategies.yaml"),
		"--lease-strategy=" + leaseByFlag + "=" + string(v1alpha1.NewestBinaryVersion),
	}
}

// newArenaOn returns an arena in a new namespace of the cluster.
func newArenaOn(t *testing.T, cluster *framework.Cluster) *arena {
	t.Helper()
	a := &arena{TB: t, ctx: t.Context(), cluster: cluster, node: cluster.Nodes[0], ns: framework.NewNamespace(t, cluster)}
	a.lease = a.ns + "/l"
	t.Cleanup(a.vacate)
	a.record(a.ns)
	return a
}

// endWithTest has the candidate end with the test. The cluster may outlive the test by far, and every test that comes later
// would share the machine with it.
func (a *arena) endWithTest(c *framework.Candidate) {
	a.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), moments)
		defer cancel()
		if err := c.Kill(ctx); err != nil {
			a.Errorf("ending %s: %v", c.Name(), err)
		}
	})
}

// vacate removes what the arena's candidates have registered, or else the coordinator asks them again and again.
func (a *arena) vacate() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), moments)
	defer cancel()
	// What cannot be removed, since the test has left the API server away, is no fault of the test.
	for _, list := range []client.Object{&coordinationv1beta1.LeaseCandidate{}, ourCandidate()} {
		_ = a.cluster.Client().DeleteAllOf(ctx, list, client.InNamespace(a.ns))
	}
}

// ourCandidate returns a LeaseCandidate of our kind.
func ourCandidate() client.Object {
	var u unstructured.Unstructured
	u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("LeaseCandidate"))
	return &u
}

func (a *arena) record(namespace string) {
	a.Helper()
	rec, err := a.cluster.Record(a.ctx, framework.RecorderOptions{Namespaces: []string{namespace}})
	a.must(err)
	a.rec = rec
	a.Cleanup(func() {
		rec.Stop()
		if a.Failed() {
			a.Logf("timeline of %s:\n%s", namespace, rec.Timeline())
		}
	})
}

// startCoordinators starts n coordinators with the shipped rights and waits until one of them is active.
func startCoordinators(t testing.TB, ctx context.Context, node *framework.Node, n int, args ...string) []*framework.Coordinator {
	t.Helper()
	if err := node.Cluster().ApplyKustomization(ctx, "config/rbac"); err != nil {
		t.Fatal(err)
	}
	var coordinators []*framework.Coordinator
	for range n {
		c, err := node.StartCoordinator(ctx, framework.CoordinatorOptions{Args: args})
		if err != nil {
			t.Fatal(err)
		}
		coordinators = append(coordinators, c)
	}
	waitActive(t, ctx, coordinators...)
	return coordinators
}

// waitActive waits until one of the coordinators is active, and returns it.
func waitActive(t testing.TB, ctx context.Context, coordinators ...*framework.Coordinator) *framework.Coordinator {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	active, err := framework.WaitActive(ctx, coordinators...)
	if err != nil {
		t.Fatal(err)
	}
	return active
}

func (a *arena) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

// candidate starts a candidate for a.lease. emulation is "1.36", say.
func (a *arena) candidate(name, emulation string, change ...func(*framework.CandidateOptions)) *framework.Candidate {
	a.Helper()
	namespace, lease, _ := strings.Cut(a.lease, "/")
	options := framework.CandidateOptions{Namespace: namespace, Lease: lease, Name: name, EmulationVersion: emulation + ".0"}
	for _, c := range change {
		c(&options)
	}
	c, err := a.node.StartCandidate(a.ctx, options)
	a.must(err)
	a.endWithTest(c)
	return c
}

// waitLeader waits until that identity leads by its own word, and returns its term.
func (a *arena) waitLeader(identity string, within time.Duration) framework.Term {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, within)
	defer cancel()
	term, err := a.rec.WaitForLeader(ctx, a.lease, func(t framework.Term) bool { return t.Identity == identity })
	if err != nil {
		a.Fatalf("%s does not lead within %s: %v", identity, within, err)
	}
	return term
}

// waitEvent waits for an event of a kind on a.lease after the given moment.
func (a *arena) waitEvent(kind framework.EventKind, subject string, after time.Time, within time.Duration) framework.Event {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, within)
	defer cancel()
	var found framework.Event
	err := a.rec.WaitFor(ctx, fmt.Sprintf("%s %s", kind, subject), func(t framework.Timeline) bool {
		for _, e := range t.Of(a.lease, kind) {
			if !e.Time.Before(after) && (subject == "" || e.Subject == subject) {
				found = e
				return true
			}
		}
		return false
	})
	a.must(err)
	return found
}

// waitCandidate waits until that candidate has registered.
func (a *arena) waitCandidate(name string) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	a.must(a.rec.WaitFor(ctx, name+" has registered", func(t framework.Timeline) bool {
		namespace, _, _ := strings.Cut(a.lease, "/")
		return len(t.WritesToCandidate(namespace, name)) > 0
	}))
}

// token returns the lease's fencing token.
func (a *arena) token() uint64 {
	a.Helper()
	token, err := strconv.ParseUint(a.get().Annotations[v1alpha1.FencingTokenAnnotation], 10, 64)
	a.must(err)
	return token
}

// observe lets that much time pass while the recorder records.
func (a *arena) observe(d time.Duration) {
	a.Helper()
	a.must(framework.Pause(a.ctx, d))
}

// safe asserts that no two leaders of the lease ever worked at once, and that every write of a coordinator was a
// compare-and-swap that changed something.
func (a *arena) safe() {
	a.Helper()
	timeline := a.rec.Timeline()
	for _, o := range timeline.Overlaps(a.lease) {
		a.Errorf("two leaders of %s at once, for %s: %s and %s", a.lease, o.Duration(), o.A, o.B)
	}
	for _, e := range timeline.Events {
		if e.WriterKind == framework.CoordinatorKind && (e.Blind || e.Kind == framework.WriteWithoutEffect) {
			a.Errorf("a coordinator's write was no compare-and-swap, or changed nothing: %v", e)
		}
	}
}

// longestGap asserts that the lease was never without a leader for longer.
func (a *arena) longestGap(limit time.Duration) {
	a.Helper()
	for _, g := range a.rec.Timeline().Gaps(a.lease) {
		if g.Duration() > limit {
			a.Errorf("%s was without a leader for %s, more than %s", a.lease, g.Duration(), limit)
		}
	}
}

// leaders returns the identities that have led, in order.
func (a *arena) leaders() []string {
	var ids []string
	for _, term := range a.rec.Timeline().Leaders(a.lease) {
		ids = append(ids, term.Identity)
	}
	return ids
}

func (a *arena) get() *coordinationv1.Lease {
	a.Helper()
	namespace, name, _ := strings.Cut(a.lease, "/")
	var lease coordinationv1.Lease
	a.must(a.cluster.Client().Get(a.ctx, types.NamespacedName{Namespace: namespace, Name: name}, &lease))
	return &lease
}

// change changes the lease, again and again until nobody else wrote in between.
func (a *arena) change(f func(*coordinationv1.Lease)) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	a.must(framework.WaitFor(ctx, "the lease is changed", func(ctx context.Context) (bool, error) {
		lease := a.get()
		f(lease)
		return a.cluster.Client().Update(ctx, lease) == nil, nil
	}))
}

// eachFlavour runs a test, in parallel, on a cluster of each flavour.
func eachFlavour(t *testing.T, test func(*testing.T, framework.Flavour)) {
	for _, flavour := range []framework.Flavour{framework.GateOn, framework.GateOff} {
		t.Run(string(flavour), func(t *testing.T) {
			t.Parallel()
			test(t, flavour)
		})
	}
}
