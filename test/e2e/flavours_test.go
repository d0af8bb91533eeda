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
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// waitCondition waits until the coordinator, which is ready, says that of what the API server does.
func (a *arena) waitCondition(c *framework.Coordinator, within time.Duration, condition string) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, within)
	defer cancel()
	var said string
	if err := framework.WaitFor(ctx, fmt.Sprintf("%s to say %q", c.Name(), condition), func(ctx context.Context) (bool, error) {
		var status int
		status, said = fetch(ctx, a, c.HealthURL()+"/readyz?verbose", "")
		return status == http.StatusOK && strings.Contains(said, "\n"+condition+"\n"), nil
	}); err != nil {
		a.Fatalf("%v; it says: %s", err, said)
	}
}

// What the API server serves changes under leaders, and nobody is started again: first there is only our kind, then
// Kubernetes' own as well, on one lease, then only ours again, as after an upgrade to a server without v1beta1. Leadership
// moves when a better candidate comes or the leader goes, whichever kind either is of, and not otherwise.
func TestServerFollowed(t *testing.T) {
	t.Parallel()
	a := newOurArena(t)
	c := startCoordinators(t, a.ctx, a.node, 1)[0]
	const own, native = "candidates: lease-coordinator.dev/v1alpha1 LeaseCandidate", "candidates: coordination.k8s.io/v1beta1 LeaseCandidate"
	const dropped = "spec.strategy and spec.preferredHolder of Leases: dropped by the API server; the coordinator keeps them in annotations"
	w37 := a.worker("w37", "1.37")
	a.waitLeader("w37", patience)
	a.waitCondition(c, moments, own)
	a.waitCondition(c, moments, dropped)
	unmoved := func(when string, by func()) {
		t.Helper()
		before := a.get()
		by()
		if now := a.get(); *now.Spec.LeaseTransitions != *before.Spec.LeaseTransitions || *now.Spec.HolderIdentity != *before.Spec.HolderIdentity ||
			now.Annotations[v1alpha1.FencingTokenAnnotation] != before.Annotations[v1alpha1.FencingTokenAnnotation] {
			t.Errorf("%s the lease went from %v to %v", when, before.Spec, now.Spec)
		}
	}

	unmoved("when v1beta1 was switched on,", func() {
		a.must(a.node.APIServer.Reconfigure(a.ctx, func(o *framework.Options) { o.NoLeaseCandidateAPI = false }))
		a.waitCondition(c, patience, native+", lease-coordinator.dev/v1alpha1 LeaseCandidate")
	})
	// Of Kubernetes' own kind, whatever the leader is of by now.
	n36 := a.candidate("n36", "1.36")
	a.waitLeader("n36", patience)

	unmoved("when v1beta1 was switched off,", func() {
		a.must(a.node.APIServer.Reconfigure(a.ctx, func(o *framework.Options) { o.NoLeaseCandidateAPI = true }))
		a.waitCondition(c, patience, own)
		a.waitKinds("w37", patience, ourKind)
	})
	// It is no candidate any more that anybody can see, but it leads until it ends.
	a.must(n36.Kill(a.ctx))
	a.waitLeader("w37", failover+patience)

	if info := c.Info(); info.Run != 1 {
		t.Errorf("the coordinator is in its run %d", info.Run)
	}
	if info := w37.Info(); info.Run != 1 {
		t.Errorf("w37 is in its run %d", info.Run)
	}
	a.safe()
}

// Registrations of the dead are deleted where kube-apiserver does not do it, of either kind; those of the living are not,
// though their clocks be wrong.
func TestCandidatesCollected(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{})
	if err := cluster.ApplyKustomization(t.Context(), "config/crd"); err != nil {
		t.Fatal(err)
	}
	a := newArenaOn(t, cluster)
	a.allowWorkers()
	// The longest that this takes is two pings a minute apart after the TTL.
	c := startCoordinators(t, a.ctx, a.node, 1, "--candidate-ttl=15s", "--election-duration=5s")[0]
	a.candidate("n36", "1.36")
	a.waitLeader("n36", patience)
	a.worker("w37", "1.37")
	dead := a.candidate("n37", "1.37")
	a.waitCandidate("w37")
	a.waitCandidate("n37")
	a.must(dead.Kill(a.ctx))

	// One without a process, whose clock is an hour ahead.
	gone, err := a.candidates(nativeKind).Get(a.ctx, "n37", metav1.GetOptions{})
	a.must(err)
	ours := gone.DeepCopy()
	ours.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
	ours.SetName("ours")
	ours.SetUID("")
	ours.SetResourceVersion("")
	ours.SetManagedFields(nil)
	spec := ours.Object["spec"].(map[string]any)
	spec["renewTime"] = time.Now().Add(time.Hour).UTC().Format("2006-01-02T15:04:05.000000Z")
	_, err = a.candidates(ourKind).Create(a.ctx, ours, metav1.CreateOptions{})
	a.must(err)

	const silent = 15*time.Second + time.Minute + 5*time.Second
	a.waitKinds("n37", silent+patience)
	a.waitKinds("ours", patience)
	for _, name := range []string{"n36", "w37"} {
		if _, err := a.candidates(nativeKind).Get(a.ctx, name, metav1.GetOptions{}); err != nil {
			t.Errorf("the living %s: %v", name, err)
		}
	}
	if n, _, err := c.Metric(a.ctx, "coordinated_leader_election_decisions_total", map[string]string{"action": "Collect"}); err != nil || n < 1 || n > 2 {
		t.Errorf("collections counted: %v, %v", n, err)
	}
	if holder := a.get().Spec.HolderIdentity; *holder != "n36" {
		t.Errorf("%s leads", *holder)
	}
	a.safe()
}
