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
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/test/e2e/compatibility"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// newOurArena returns an arena on a cluster of its own that serves no LeaseCandidates but those of our group, and whose
// workers may be candidates. The Lease is there, and vacant, so that the fallback comes soon where it is the only way.
func newOurArena(t *testing.T) *arena {
	t.Helper()
	cluster := framework.New(t, framework.Options{NoLeaseCandidateAPI: true})
	if err := cluster.ApplyKustomization(t.Context(), "config/crd"); err != nil {
		t.Fatal(err)
	}
	a := newArenaOn(t, cluster)
	a.allowWorkers()
	return a
}

// vacantLease makes the Lease, without a holder: one that is not there may have been deleted under a leader, and is not
// taken so soon.
func (a *arena) vacantLease() {
	a.Helper()
	namespace, name, _ := strings.Cut(a.lease, "/")
	a.must(a.cluster.Client().Create(a.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}))
}

// candidates returns the API of a kind of LeaseCandidates in the arena.
func (a *arena) candidates(kind string) dynamic.ResourceInterface {
	a.Helper()
	client, err := dynamic.NewForConfig(a.node.Config())
	a.must(err)
	return client.Resource(candidateKinds[kind]).Namespace(a.ns)
}

// waitKinds waits until the candidate has an object of these kinds, and of no other, and returns the last of them.
func (a *arena) waitKinds(name string, within time.Duration, kinds ...string) *unstructured.Unstructured {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, within)
	defer cancel()
	var object *unstructured.Unstructured
	a.must(framework.WaitFor(ctx, "candidate "+name+" to be there as "+strings.Join(kinds, " and "), func(ctx context.Context) (bool, error) {
		var found []string
		for _, kind := range []string{nativeKind, ourKind} {
			o, err := a.candidates(kind).Get(ctx, name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				return false, nil
			default:
				found, object = append(found, kind), o
			}
		}
		return strings.Join(found, " ") == strings.Join(kinds, " "), nil
	}))
	return object
}

// moments is how long a busy machine may take for what takes moments.
const moments = 5 * time.Second

// A candidate of pkg/candidate on a server that has only our kind: it registers, is back when it is deleted, leads by the
// fallback, and is gone after its end.
func TestLibraryOnOurKind(t *testing.T) {
	t.Parallel()
	a := newOurArena(t)
	a.vacantLease()
	w := a.worker("a", "1.36", func(o *framework.WorkerOptions) { o.Args = []string{"--fallback-after=3s"} })
	a.waitCandidate("a")
	first := a.waitKinds("a", moments, ourKind)
	if lease, _, _ := unstructured.NestedString(first.Object, "spec", "leaseName"); lease != "l" {
		t.Errorf("registered as %v", first.Object)
	}
	a.waitLeader("a", patience)
	deleted := time.Now()
	a.must(a.candidates(ourKind).Delete(a.ctx, "a", metav1.DeleteOptions{}))
	ctx, cancel := context.WithTimeout(a.ctx, moments)
	defer cancel()
	a.must(framework.WaitFor(ctx, "the candidate to be back", func(ctx context.Context) (bool, error) {
		o, err := a.candidates(ourKind).Get(ctx, "a", metav1.GetOptions{})
		return err == nil && o.GetUID() != first.GetUID(), nil
	}))
	t.Logf("back %s after its deletion", time.Since(deleted).Round(time.Millisecond))

	// The default identity can be the name of one.
	unnamed := a.worker("unnamed", "1.36", func(o *framework.WorkerOptions) { o.Args = []string{"--name=", "--fallback-after=-1s"} })
	ctx, cancel = context.WithTimeout(a.ctx, patience)
	defer cancel()
	a.must(framework.WaitFor(ctx, "a candidate with the default identity", func(ctx context.Context) (bool, error) {
		list, err := a.candidates(ourKind).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name!=a"})
		if err != nil || len(list.Items) == 0 {
			return false, nil
		}
		t.Logf("default identity %s", list.Items[0].GetName())
		return true, nil
	}))
	a.must(unnamed.Signal(syscall.SIGTERM))

	a.must(w.Terminate(a.ctx))
	if list, err := a.candidates(ourKind).Get(a.ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after its end the candidate is %v, %v", list, err)
	}
	a.must(framework.WaitFor(ctx, "no candidates", func(ctx context.Context) (bool, error) {
		list, err := a.candidates(ourKind).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, nil
	}))
	a.safe()
}

// A server that comes to serve the native kind, and later no longer does, is followed by a leader that leads on in the same
// term, and by a candidate whose identity our kind cannot have.
func TestLibraryFollowsServer(t *testing.T) {
	t.Parallel()
	a := newOurArena(t)
	a.vacantLease()
	a.worker("a", "1.36", func(o *framework.WorkerOptions) { o.Args = []string{"--fallback-after=3s"} })
	a.waitLeader("a", patience)
	a.waitKinds("a", moments, ourKind)
	const unfit = "Node_1"
	capital := a.worker(unfit, "1.37", func(o *framework.WorkerOptions) { o.Args = []string{"--fallback-after=-1s"} })
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	a.must(framework.WaitFor(ctx, "the log to say that the identity does not fit", func(context.Context) (bool, error) {
		return len(capital.LogLines(unfit, "cannot be the name of a LeaseCandidate", validation.IsDNS1123Subdomain(unfit)[0][:40])) > 0, nil
	}))
	a.waitKinds(unfit, moments)

	a.must(a.node.APIServer.Reconfigure(a.ctx, func(o *framework.Options) { o.NoLeaseCandidateAPI = false }))
	a.waitKinds("a", patience, nativeKind)
	a.waitKinds(unfit, patience, nativeKind)

	a.must(a.node.APIServer.Reconfigure(a.ctx, func(o *framework.Options) { o.NoLeaseCandidateAPI = true }))
	a.waitKinds("a", patience, ourKind)
	if leaders := a.leaders(); len(leaders) != 1 {
		t.Errorf("leaders %v, want the same in the same term", leaders)
	}
	a.safe()
}

// Where the API server has neither LeaseCandidates nor the fields of coordinated leases, candidates of pkg/candidate are
// elected, hand over directly, and replace one that crashed, as anywhere else.
func TestLibraryOnOurKindCoordinated(t *testing.T) {
	t.Parallel()
	a := newOurArena(t)
	coordinator := startCoordinators(t, a.ctx, a.node, 1)[0]
	n37 := a.worker("n37", "1.37")
	a.waitLeader("n37", patience)
	n36 := a.worker("n36", "1.36", func(o *framework.WorkerOptions) { o.Drain = 200 * time.Millisecond })
	a.waitLeader("n36", patience)
	planned := a.handedOff("n36").Leaderless
	t.Logf("planned: gap %s", planned.Round(time.Millisecond))
	if planned > handOff {
		t.Errorf("planned hand-off with a gap of %s", planned)
	}
	lease := a.get()
	if lease.Spec.Strategy != nil || lease.Spec.PreferredHolder != nil || lease.Annotations[v1alpha1.StrategyAnnotation] != string(v1alpha1.OldestEmulationVersion) {
		t.Errorf("the strategy is %v in the field and %q in the annotation", lease.Spec.Strategy, lease.Annotations[v1alpha1.StrategyAnnotation])
	}
	a.tells(compatibility.Ours, compatibility.Library)
	before := a.token()

	a.must(n36.Kill(a.ctx))
	a.waitLeader("n37", failover)
	crash := a.handedOff("n37").Leaderless
	t.Logf("crash: gap %s", crash.Round(time.Millisecond))
	if crash < renewDeadline || crash > leaseDuration+slack {
		t.Errorf("crash of the leader with a gap of %s", crash)
	}
	if a.token() <= before {
		t.Error("the fencing token has not grown")
	}

	// An exit, in favour of a newcomer.
	next := a.worker("next", "1.37")
	a.waitCandidate("next")
	a.must(n37.Terminate(a.ctx))
	a.waitLeader("next", patience)
	if gap := a.handedOff("next").Leaderless; gap > handOff {
		t.Errorf("exit of the leader with a gap of %s", gap)
	}
	a.waitKinds("n37", moments)
	if faults := coordinator.LogLines("ERROR"); len(faults) > 0 {
		t.Errorf("the coordinator complains: %s", faults[0])
	}
	a.safe()
	a.alternated(n37, n36, next)
}
