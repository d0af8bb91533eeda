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
	"net/http"
	"testing"
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// ofOurKind starts a candidate of pkg/candidate that reaches the API server by one that does not serve v1beta1, as while
// kube-apiservers are being upgraded, and hence is of our kind.
func (a *arena) ofOurKind(name, emulation string) *framework.Candidate {
	a.Helper()
	w, _ := a.behind(func(c framework.Call) framework.Fault {
		if c == (framework.Call{Verb: "discover", Resource: coordinationv1beta1.SchemeGroupVersion.String()}) {
			return framework.Fault{Code: http.StatusNotFound}
		}
		return framework.Fault{}
	}, name, emulation)
	a.waitCandidate(name)
	a.waitKinds(name, moments, ourKind)
	return w
}

// Candidates of Kubernetes' own kind, which unmodified client-go registers, and of ours share a lease while the in-tree
// coordinator is there.
func TestKindsSideBySide(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{CoordinatedLeaderElection: true})
	if err := cluster.ApplyKustomization(t.Context(), "config/crd"); err != nil {
		t.Fatal(err)
	}
	waitInTree(t.Context(), t, cluster, patience)
	yielding := startCoordinators(t, t.Context(), cluster.Nodes[0], 1, "--in-tree=yield")[0]
	sideBySideYield(newSideBySide(t, cluster))
	a := newSideBySide(t, cluster)
	a.must(yielding.Stop(a.ctx))
	startCoordinators(t, a.ctx, a.node, 1, "--in-tree=replace")
	sideBySideReplace(a)
}

func newSideBySide(t *testing.T, cluster *framework.Cluster) *arena {
	t.Helper()
	a := newArenaOn(t, cluster)
	a.allowWorkers()
	return a
}

// In the in-tree coordinator's place all are ours: the lower version leads, whichever kind it is of.
func sideBySideReplace(a *arena) {
	n37 := a.candidate("n37", "1.37", rejoin)
	a.waitLeader("n37", patience)
	w36 := a.ofOurKind("w36", "1.36")
	a.waitLeader("w36", patience)
	n35 := a.candidate("n35", "1.35", rejoin)
	a.waitLeader("n35", patience)
	w34 := a.ofOurKind("w34", "1.34")
	a.waitLeader("w34", patience)
	a.inFields("w34")
	a.must(w34.Terminate(a.ctx))
	a.waitLeader("n35", patience)
	for _, e := range a.coordinating(a.lease) {
		if e.WriterKind == framework.APIServerKind {
			a.Errorf("the in-tree coordinator wrote: %s %s", e.Kind, e.Detail)
		}
	}
	a.safe()
	a.alternated(n37, w36, n35, w34)
}

// Beside the in-tree coordinator a lease is ours until there is a candidate that it sees, and again when that is dead.
func sideBySideYield(a *arena) {
	w37 := a.ofOurKind("w37", "1.37")
	a.waitLeader("w37", patience)
	w36 := a.ofOurKind("w36", "1.36")
	a.changedHands("w36")

	a.rec.Mark("a candidate that the in-tree coordinator sees")
	joined := time.Now()
	n35 := a.candidate("n35", "1.35", rejoin)
	a.waitLeader("n35", patience)
	// Better, but not for a coordinator that does not see it.
	w34 := a.ofOurKind("w34", "1.34")
	a.observe(pingPatience)
	for _, e := range a.coordinating(a.lease) {
		if e.WriterKind == framework.CoordinatorKind && e.Time.After(joined.Add(slack)) {
			a.Errorf("%s wrote beside the in-tree coordinator: %s %s %s", e.Writer, e.Object, e.Kind, e.Detail)
		}
	}

	a.rec.Mark("it dies")
	a.must(n35.Kill(a.ctx))
	a.waitLeader("w34", failover+pingPatience+slack)
	appointments := a.rec.Timeline().Of(a.lease, framework.LeaseAppointed)
	if last := appointments[len(appointments)-1]; last.Subject != "w34" || last.WriterKind != framework.CoordinatorKind {
		a.Errorf("w34 was not appointed; the last appointment is of %s by %s", last.Subject, last.Writer)
	}

	a.rec.Mark("it is back")
	a.must(n35.Start())
	a.waitLeader("n35", patience)
	a.safe()
	a.alternated(w37, w36, n35, w34)
	a.must(n35.Stop(a.ctx))
}

func rejoin(o *framework.CandidateOptions) { o.Rejoin = true }
