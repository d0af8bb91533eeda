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
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// createAll creates objects, several at a time.
func (a *arena) createAll(objects ...client.Object) {
	a.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	cl := a.cluster.Client()
	for _, o := range objects {
		group.Go(func() error {
			if err := cl.Create(a.ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("creating %s/%s: %w", o.GetNamespace(), o.GetName(), err)
			}
			return nil
		})
	}
	a.must(group.Wait())
}

// liveCandidate is the LeaseCandidate of a process that has just registered.
func liveCandidate(namespace, name, lease string) *coordinationv1beta1.LeaseCandidate {
	now := metav1.NewMicroTime(time.Now())
	return &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: coordinationv1beta1.LeaseCandidateSpec{
			LeaseName: lease, BinaryVersion: "1.37.0", EmulationVersion: "1.36.0",
			Strategy: v1alpha1.OldestEmulationVersion, RenewTime: &now,
		},
	}
}

// heldLease is a Lease as a kubelet or a plain elector leaves it.
func heldLease(namespace, name string) *coordinationv1.Lease {
	now := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new(name), LeaseDurationSeconds: new(int32(40)), RenewTime: &now},
	}
}

// versions returns the resourceVersions of the Leases and LeaseCandidates of a namespace.
func (a *arena) versions(namespace string) map[string]string {
	a.Helper()
	found := map[string]string{}
	var leases coordinationv1.LeaseList
	a.must(a.cluster.Client().List(a.ctx, &leases, client.InNamespace(namespace)))
	for _, l := range leases.Items {
		found["lease "+l.Name] = l.ResourceVersion
	}
	var candidates coordinationv1beta1.LeaseCandidateList
	a.must(a.cluster.Client().List(a.ctx, &candidates, client.InNamespace(namespace)))
	for _, c := range candidates.Items {
		found["candidate "+c.Name] = c.ResourceVersion
	}
	return found
}

// Thousands of Leases that are none of the coordinator's business, and candidates for Leases that must never be
// coordinated, whoever names them.
func TestForeignLeases(t *testing.T) {
	t.Parallel()
	// At this verbosity it logs every request.
	cluster := framework.New(t, framework.Options{APIServerArgs: []string{"--v=3"}})
	a := newArenaOn(t, cluster)
	foreign := framework.NewNamespace(t, cluster)
	var objects []client.Object
	for i := range 2000 {
		objects = append(objects, heldLease(foreign, fmt.Sprintf("lease-%d", i)))
	}
	for i := range 500 {
		name := fmt.Sprintf("node-%d", i)
		objects = append(objects, heldLease(corev1.NamespaceNodeLease, name))
		if i%50 == 0 {
			objects = append(objects, liveCandidate(corev1.NamespaceNodeLease, name, name))
		}
	}
	a.createAll(objects...)
	coordinator := startCoordinators(t, a.ctx, a.node, 1)[0]
	a.createAll(
		liveCandidate(v1alpha1.InTreeLockNamespace, "usurper", v1alpha1.InTreeLockName),
		liveCandidate(framework.CoordinatorNamespace, "usurper", "lease-coordinator"),
		liveCandidate(corev1.NamespaceNodeLease, "late", "node-1"),
	)
	before := map[string]map[string]string{foreign: a.versions(foreign), corev1.NamespaceNodeLease: a.versions(corev1.NamespaceNodeLease)}

	// What it is there for works as ever.
	a.candidate("n36", "1.36")
	a.waitLeader("n36", patience)
	a.candidate("n37", "1.37")
	a.waitCandidate("n37")
	a.observe(poll)

	// A leader that renews costs the coordinator no write, and a look only when its claim might have run out.
	const quiet = 30 * time.Second
	looks := func() float64 {
		n, _, err := coordinator.Metric(a.ctx, "controller_runtime_reconcile_total", map[string]string{"controller": "election"})
		a.must(err)
		return n
	}
	first := looks()
	a.notWrittenByCoordinators(quiet)
	if most := float64(quiet/(leaseDuration*2/3)) + 1; looks()-first > most {
		t.Errorf("%v reconciles in %s, more than %v", looks()-first, quiet, most)
	}
	if rss, err := coordinator.RSS(); err == nil {
		// With the race detector it takes several times what it does without.
		t.Logf("resident memory with 2000 foreign leases: %d MiB", rss>>20)
	}
	a.candidate("n35", "1.35")
	a.waitLeader("n35", patience)
	a.safe()

	for namespace, old := range before {
		now := a.versions(namespace)
		for object, version := range old {
			if now[object] != version {
				t.Errorf("%s in %s was written: resourceVersion %s, then %q", object, namespace, version, now[object])
			}
		}
		if len(now) != len(old) {
			t.Errorf("%d objects in %s, then %d", len(old), namespace, len(now))
		}
	}
	var usurper coordinationv1beta1.LeaseCandidate
	for _, namespace := range []string{v1alpha1.InTreeLockNamespace, framework.CoordinatorNamespace} {
		a.must(cluster.Client().Get(a.ctx, types.NamespacedName{Namespace: namespace, Name: "usurper"}, &usurper))
		if usurper.Spec.PingTime != nil {
			t.Errorf("the candidate for the lock in %s was pinged", namespace)
		}
	}
	var lock coordinationv1.Lease
	err := cluster.Client().Get(a.ctx, types.NamespacedName{Namespace: v1alpha1.InTreeLockNamespace, Name: v1alpha1.InTreeLockName}, &lock)
	if !apierrors.IsNotFound(err) {
		t.Errorf("the in-tree coordinator's lock: %v, %v", lock.Spec, err)
	}
	a.must(cluster.Client().Get(a.ctx, types.NamespacedName{Namespace: framework.CoordinatorNamespace, Name: "lease-coordinator"}, &lock))
	if !strings.HasPrefix(*lock.Spec.HolderIdentity, v1alpha1.CoordinatorIdentityPrefix) {
		t.Errorf("the coordinators' own lock is held by %s", *lock.Spec.HolderIdentity)
	}

	a.must(coordinator.Stop(a.ctx))
	a.noNodeLeasesWatched()
}

// noNodeLeasesWatched asserts from what the kube-apiserver logged that whatever the coordinator listed or watched of
// all namespaces' Leases left out those of the kubelets.
func (a *arena) noNodeLeasesWatched() {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	// A watch is logged when it has ended.
	a.must(framework.WaitFor(ctx, "the end of the coordinator's watch of Leases in the log", func(context.Context) (bool, error) {
		watched := false
		for _, line := range a.node.APIServer.LogLines(`URI="/apis/coordination.k8s.io/v1/leases?`, `userAgent="lease-coordinator/`) {
			if !strings.Contains(line, "fieldSelector=metadata.namespace%21%3Dkube-node-lease") {
				return false, fmt.Errorf("node leases are not left out: %s", line)
			}
			watched = watched || strings.Contains(line, `verb="WATCH"`)
		}
		return watched, nil
	}))
}

// Whatever the API server admits in a Lease or a LeaseCandidate, the coordinator neither ends nor neglects the others.
func TestMalformed(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		cluster := framework.New(t, framework.Options{CoordinatedLeaderElection: flavour == framework.GateOn})
		a := newArenaOn(t, cluster)
		coordinator := startCoordinators(t, a.ctx, a.node, 1, coordinatorArgs(flavour)...)[0]
		lonely := framework.NewNamespace(t, cluster)
		refused := 0
		create := func(o client.Object) {
			a.Helper()
			switch err := cluster.Client().Create(a.ctx, o); {
			case apierrors.IsInvalid(err):
				refused++
				t.Logf("not admitted: %v", err)
			case err != nil:
				t.Error(err)
			}
		}

		leases := malformedLeases()
		for i, change := range leases {
			name := fmt.Sprintf("malformed-%d", i)
			// One without and one with somebody who wants to lead it.
			for _, namespace := range []string{lonely, a.ns} {
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
				change(lease)
				create(lease)
			}
			create(liveCandidate(a.ns, name, name))
		}
		candidates := malformedCandidates()
		for i, change := range candidates {
			name := fmt.Sprintf("odd-%d", i)
			candidate := liveCandidate(a.ns, name, name)
			change(candidate)
			create(candidate)
			// And one beside a good candidate.
			candidate = liveCandidate(a.ns, name+"-b", fmt.Sprintf("mixed-%d", i))
			change(candidate)
			candidate.Spec.LeaseName = fmt.Sprintf("mixed-%d", i)
			create(candidate)
			create(liveCandidate(a.ns, name+"-good", candidate.Spec.LeaseName))
		}
		if refused > (2*len(leases)+2*len(candidates))/2 {
			t.Errorf("%d objects were not admitted: this tests little", refused)
		}
		before := a.versions(lonely)

		a.candidate("n37", "1.37")
		a.waitLeader("n37", patience)
		a.candidate("n36", "1.36")
		a.waitLeader("n36", patience)
		a.safe()

		if now := a.versions(lonely); len(now) != len(before) {
			t.Errorf("%d leases without candidates, then %d", len(before), len(now))
		} else {
			for object, version := range before {
				if now[object] != version {
					t.Errorf("%s has no candidates and was written", object)
				}
			}
		}
		// One bad candidate never spoils the election for the rest.
		appointed := a.rec.Timeline().Filter(func(e framework.Event) bool { return e.Kind == framework.LeaseAppointed })
		for i := range len(candidates) - 1 {
			lease := fmt.Sprintf("%s/mixed-%d", a.ns, i)
			if !slices.ContainsFunc(appointed, func(e framework.Event) bool { return e.Lease == lease }) {
				t.Errorf("nobody was appointed for %s, beside odd candidate %d", lease, i)
			}
		}
		if info := coordinator.Info(); info.Run != 1 || !coordinator.Running() {
			t.Errorf("the coordinator is in run %d, running %t", info.Run, coordinator.Running())
		}
		for _, word := range []string{"panic", "Observed a panic", "DATA RACE"} {
			if lines := coordinator.LogLines(word); len(lines) > 0 {
				t.Errorf("the log says %q: %s", word, lines[0])
			}
		}
		if n, _, err := coordinator.Metric(a.ctx, "coordinated_leader_election_failures_total", map[string]string{"reason": "error"}); err != nil || n != 0 {
			t.Errorf("%v writes failed (%v):\n%s", n, err, strings.Join(coordinator.LogLines("error"), "\n"))
		}
	})
}

func malformedLeases() []func(*coordinationv1.Lease) {
	at := func(year int) *metav1.MicroTime {
		t := metav1.NewMicroTime(time.Date(year, 1, 2, 3, 4, 5, 6000, time.UTC))
		return &t
	}
	annotated := func(key, value string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{key: value}
			l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = new("x"), at(2020), new(int32(1))
		}
	}
	return []func(*coordinationv1.Lease){
		func(*coordinationv1.Lease) {},
		func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("") },
		func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new("x") },
		func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new(strings.Repeat("é", 5000)) },
		func(l *coordinationv1.Lease) { l.Spec.HolderIdentity, l.Spec.RenewTime = new("x"), at(2026) },
		func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = new("x"), new(int32(1))
		},
		func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = new("x"), at(1), new(int32(1))
			l.Spec.LeaseTransitions = new(int32(math.MaxInt32))
		},
		func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = new("x"), at(9999), new(int32(1))
			l.Spec.AcquireTime = at(1)
		},
		func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = new("x"), at(2026), new(int32(math.MaxInt32))
		},
		func(l *coordinationv1.Lease) {
			l.Spec.LeaseDurationSeconds, l.Spec.LeaseTransitions = new(int32(math.MaxInt32)), new(int32(math.MaxInt32))
		},
		func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = new(int32(0)) },
		func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = new(int32(-1)) },
		func(l *coordinationv1.Lease) {
			// The holder is the candidate of the same name.
			l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &l.Name, at(2026), new(int32(15))
			l.Spec.PreferredHolder, l.Spec.Strategy = &l.Name, new(v1alpha1.OldestEmulationVersion)
			l.Annotations = map[string]string{v1alpha1.PreferredHolderAnnotation: l.Name}
		},
		func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity = new(v1alpha1.RevokedHolder)
			l.Spec.PreferredHolder, l.Spec.Strategy = new("nobody"), new(coordinationv1.CoordinatedLeaseStrategy("example.com/x"))
		},
		func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = new(v1alpha1.CoordinatorIdentityPrefix + "x") },
		annotated(v1alpha1.FencingTokenAnnotation, "garbage"),
		annotated(v1alpha1.FencingTokenAnnotation, "-1"),
		annotated(v1alpha1.PreferredHolderAnnotation, "no such candidate"),
		annotated(v1alpha1.StrategyAnnotation, "%s\n"),
		annotated(v1alpha1.PreemptionAnnotation, "sometimes"),
	}
}

func malformedCandidates() []func(*coordinationv1beta1.LeaseCandidate) {
	at := func(year int) *metav1.MicroTime {
		t := metav1.NewMicroTime(time.Date(year, 1, 2, 3, 4, 5, 6000, time.UTC))
		return &t
	}
	annotated := func(pairs ...string) func(*coordinationv1beta1.LeaseCandidate) {
		return func(c *coordinationv1beta1.LeaseCandidate) {
			c.Annotations = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				c.Annotations[pairs[i]] = pairs[i+1]
			}
		}
	}
	return []func(*coordinationv1beta1.LeaseCandidate){
		func(c *coordinationv1beta1.LeaseCandidate) { c.Spec.RenewTime = nil },
		func(c *coordinationv1beta1.LeaseCandidate) { c.Spec.RenewTime = at(1) },
		func(c *coordinationv1beta1.LeaseCandidate) { c.Spec.RenewTime = at(9999) },
		func(c *coordinationv1beta1.LeaseCandidate) { c.Spec.PingTime = at(9999) },
		func(c *coordinationv1beta1.LeaseCandidate) { c.Spec.RenewTime, c.Spec.PingTime = nil, at(1) },
		func(c *coordinationv1beta1.LeaseCandidate) { c.Spec.EmulationVersion = "" },
		func(c *coordinationv1beta1.LeaseCandidate) {
			c.Spec.BinaryVersion, c.Spec.EmulationVersion = "1.37.0-alpha.1+build.5", "1.36.0-rc.1"
		},
		func(c *coordinationv1beta1.LeaseCandidate) {
			c.Spec.BinaryVersion, c.Spec.EmulationVersion = "v1.37.0", "1.36"
		},
		func(c *coordinationv1beta1.LeaseCandidate) {
			c.Spec.BinaryVersion, c.Spec.EmulationVersion = "0.0.0", "0.0.0"
		},
		func(c *coordinationv1beta1.LeaseCandidate) { c.Spec.BinaryVersion = "99999999999999999999.0.0" },
		func(c *coordinationv1beta1.LeaseCandidate) { c.Name = "Upper_" + c.Name },
		func(c *coordinationv1beta1.LeaseCandidate) { c.Name = strings.Repeat("a", 253-len(c.Name)) + c.Name },
		annotated(v1alpha1.PriorityAnnotation, "-1"),
		annotated(v1alpha1.PriorityAnnotation, "99999999999"),
		annotated(v1alpha1.PriorityAnnotation, "2147483647", v1alpha1.PriorityUntilAnnotation, "garbage"),
		annotated(v1alpha1.PriorityAnnotation, "1", v1alpha1.PriorityUntilAnnotation, "9999-12-31T23:59:59Z"),
		annotated(v1alpha1.IneligibleAnnotation, ""),
		annotated(v1alpha1.SignalAnnotation, "smoke"),
		// The last: it rightly blocks the good candidate of the same version.
		func(c *coordinationv1beta1.LeaseCandidate) { c.Spec.Strategy = "example.com/Other" },
	}
}
