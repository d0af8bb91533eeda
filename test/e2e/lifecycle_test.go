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
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// The coordinator comes, is upgraded while a hand-off is under way, sees kube-apiserver's gate switched under another
// hand-off, is downgraded, and goes; leaders stay in office through all of it, until they are told to go.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	for name, course := range map[string]struct {
		gate bool
		args []string
	}{
		// Each way of working is rolled once, and the gate is switched both ways.
		"replacing the in-tree coordinator, then without it": {true, []string{"--in-tree=replace"}},
		"alone, then beside the in-tree coordinator":         {false, []string{"--in-tree=yield"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := framework.New(t, framework.Options{CoordinatedLeaderElection: course.gate})
			if course.gate {
				waitInTree(t.Context(), t, cluster, patience)
			}
			l := &lifecycle{arena: newArenaOn(t, cluster), args: course.args, gate: course.gate}
			l.install()
			l.roll("v1.1.0", true)
			l.switchGate()
			l.roll("v1.0.0", false)
			l.uninstall()
			l.cleanUp()
			l.doWithout()
			for _, lease := range append(l.steady(), l.moved...) {
				l.lease = lease
				l.safe()
			}
		})
	}
}

// Candidates of these outlive a restart of the only kube-apiserver, which takes 10 s on a busy machine.
const (
	patientLease    = 2 * leaseDuration
	patientDeadline = 2 * renewDeadline
)

type lifecycle struct {
	*arena
	args         []string
	gate         bool
	coordinators []*framework.Coordinator
	// every one that there was.
	all []*framework.Coordinator
	// oldest, newest and library are leases that nobody has reason to move.
	oldest, newest, library string
	leaders                 map[string]*framework.Candidate
	standbys                map[string]*framework.Candidate
	// moved are the leases that were handed off meanwhile.
	moved []string
}

func (l *lifecycle) steady() []string { return []string{l.oldest, l.newest, l.library} }

func patient(o *framework.CandidateOptions) {
	o.LeaseDuration, o.RenewDeadline, o.Rejoin, o.ReleaseOnCancel = patientLease, patientDeadline, true, true
}

func (l *lifecycle) install() {
	l.Helper()
	binary, err := framework.BuildCoordinatorAs(l.ctx, "v1.0.0")
	l.must(err)
	l.must(l.cluster.ApplyKustomization(l.ctx, "config/rbac"))
	for range 2 {
		l.coordinators = append(l.coordinators, l.start(binary))
	}
	l.all = slices.Clone(l.coordinators)
	waitActive(l, l.ctx, l.coordinators...)

	l.leaders, l.standbys = map[string]*framework.Candidate{}, map[string]*framework.Candidate{}
	l.oldest, l.newest, l.library = l.ns+"/oldest", l.ns+"/newest", l.ns+"/library"
	newest := func(o *framework.CandidateOptions) {
		o.Strategy, o.BinaryVersion = string(v1alpha1.NewestBinaryVersion), o.EmulationVersion
	}
	worker := func(o *framework.WorkerOptions) {
		o.Args = []string{"--lease-duration=" + patientLease.String(), "--renew-deadline=" + patientDeadline.String(), "--fallback-after=3s"}
	}
	l.lease = l.library
	l.allowWorkers()
	l.leaders[l.library] = l.worker("l36", "1.36", worker)
	l.lease = l.newest
	l.leaders[l.newest] = l.candidate("b37", "1.37", patient, newest)
	l.lease = l.oldest
	l.leaders[l.oldest] = l.candidate("n36", "1.36", patient)
	for _, lease := range l.steady() {
		l.lease = lease
		l.waitLeader(l.leaders[lease].Identity, patience)
	}
	l.lease = l.library
	l.standbys[l.library] = l.worker("l37", "1.37", worker)
	l.lease = l.newest
	l.standbys[l.newest] = l.candidate("b36", "1.36", patient, newest)
	l.lease = l.oldest
	l.standbys[l.oldest] = l.candidate("n37", "1.37", patient)
	for _, lease := range l.steady() {
		l.lease = lease
		l.waitCandidate(l.standbys[lease].Identity)
	}
}

func (l *lifecycle) start(binary string) *framework.Coordinator {
	l.Helper()
	c, err := l.node.StartCoordinator(l.ctx, framework.CoordinatorOptions{Binary: binary, Args: l.args})
	l.must(err)
	return c
}

// roll replaces the coordinators by others of that version, as a Deployment does: a new one that is ready, then an old one
// that ends. With underWay, the holder of a lease has just been told to make room.
func (l *lifecycle) roll(version string, underWay bool) {
	l.Helper()
	binary, err := framework.BuildCoordinatorAs(l.ctx, version)
	l.must(err)
	var successor string
	if underWay {
		successor = l.beginHandOff("rolled")
	}
	begun := l.mark("coordinators are rolled to %s", version)
	// The active one first, so that all but the last could become active on the way.
	old := slices.Clone(l.coordinators)
	active := waitActive(l, l.ctx, old...)
	slices.SortStableFunc(old, func(a, b *framework.Coordinator) int {
		switch active {
		case a:
			return -1
		case b:
			return 1
		}
		return 0
	})
	l.coordinators = nil
	for _, c := range old {
		next := l.start(binary)
		l.coordinators, l.all = append(l.coordinators, next), append(l.all, next)
		l.must(c.Terminate(l.ctx))
		if err := c.ExitError(); err != nil {
			l.Errorf("%s ended with %v", c.Name(), err)
		}
	}
	active = waitActive(l, l.ctx, l.coordinators...)
	l.Logf("rolled to %s in %s; %s is active", version, time.Since(begun).Round(time.Millisecond), active.Name())
	if said := active.LogLines("Coordinator starting", version); len(said) != 1 {
		l.Errorf("%s does not say that it is %s", active.Name(), version)
	}
	if underWay {
		l.completeHandOff("rolled", successor, begun)
	}
	l.stayed(begun)
	l.oneActive()
}

// beginHandOff has a holder of its own lease told to make room, and returns for whom.
func (l *lifecycle) beginHandOff(name string) (successor string) {
	l.Helper()
	l.lease = l.ns + "/" + name
	l.moved = append(l.moved, l.lease)
	holder, successor := name+"-37", name+"-36"
	l.candidate(holder, "1.37", patient)
	l.waitLeader(holder, patience)
	l.candidate(successor, "1.36", patient)
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	l.must(l.rec.WaitFor(ctx, "the term of "+holder+" is ended", func(t framework.Timeline) bool {
		return len(t.Of(l.lease, framework.LeasePreferred, framework.LeaseRevoked)) > 0
	}))
	return successor
}

func (l *lifecycle) completeHandOff(name, successor string, begun time.Time) {
	l.Helper()
	l.lease = l.ns + "/" + name
	term := l.waitLeader(successor, patience)
	l.Logf("%s leads %s after the change began", successor, term.Start.Sub(begun).Round(time.Millisecond))
	if got, want := l.arena.leaders(), []string{name + "-37", successor}; !slices.Equal(got, want) {
		l.Errorf("leaders of %s: %v, want %v", l.lease, got, want)
	}
}

func (l *lifecycle) mark(format string, args ...any) time.Time {
	l.rec.Mark(format, args...)
	return time.Now()
}

// stayed waits until every leader has renewed, and asserts that since then none of them was asked to go, nor named anew.
func (l *lifecycle) stayed(since time.Time) {
	l.Helper()
	now := time.Now()
	for _, lease := range l.steady() {
		l.lease = lease
		leader := l.leaders[lease].Identity
		l.waitEvent(framework.LeaseRenewed, leader, now, patience)
		if got := l.arena.leaders(); !slices.Equal(got, []string{leader}) {
			l.Errorf("leaders of %s: %v, want %s alone", lease, got, leader)
		}
		for _, e := range l.rec.Timeline().WritesTo(lease) {
			if e.Time.Before(since) || e.LeaseAfter == nil {
				continue
			}
			if holder := e.LeaseAfter.Spec.HolderIdentity; holder == nil || *holder != leader {
				l.Errorf("%s wrote %s: %s %s", e.Writer, lease, e.Kind, e.Detail)
			}
			preferred := e.LeaseAfter.Spec.PreferredHolder
			if preferred != nil && *preferred != "" || e.LeaseAfter.Annotations[v1alpha1.PreferredHolderAnnotation] != "" {
				l.Errorf("%s preferred another holder of %s: %s", e.Writer, lease, e.Detail)
			}
		}
	}
}

// oneActive asserts that only that coordinator of ours wrote anything that had become active last.
func (l *lifecycle) oneActive() {
	l.Helper()
	type term struct {
		from time.Time
		who  string
	}
	var terms []term
	for _, c := range l.all {
		for _, at := range activations(l, c) {
			terms = append(terms, term{at, c.Name()})
		}
	}
	slices.SortFunc(terms, func(a, b term) int { return a.from.Compare(b.from) })
	for _, e := range l.rec.Timeline().ByCoordinators() {
		active := "nobody"
		for _, t := range terms {
			if t.from.Before(e.Time) {
				active = t.who
			}
		}
		if e.WriterKind == framework.CoordinatorKind && e.Writer != active {
			l.Errorf("%s wrote while %s was active: %s %s %s", e.Writer, active, e.Object, e.Kind, e.Detail)
		}
	}
}

// switchGate restarts kube-apiserver with its gate the other way.
func (l *lifecycle) switchGate() {
	l.Helper()
	before := map[string]*coordinationv1.Lease{}
	for _, lease := range l.steady() {
		l.lease = lease
		before[lease] = l.get()
	}
	successor := l.beginHandOff("switched")
	l.gate = !l.gate
	begun := l.mark("kube-apiserver's gate is switched: %t", l.gate)
	l.must(l.node.APIServer.Reconfigure(l.ctx, func(o *framework.Options) { o.CoordinatedLeaderElection = l.gate }))
	l.Logf("kube-apiserver was away for %s", time.Since(begun).Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(l.ctx, patience)
	defer cancel()
	want := map[bool]float64{true: 1}[l.gate]
	for _, c := range l.coordinators {
		l.must(framework.WaitFor(ctx, c.Name()+" knows that the gate is switched", func(ctx context.Context) (bool, error) {
			got, _, err := c.Metric(ctx, "coordinated_leader_election_lease_fields_kept", nil)
			return err == nil && got == want, nil
		}))
	}
	l.Logf("the coordinators know after %s", time.Since(begun).Round(time.Millisecond))
	l.completeHandOff("switched", successor, begun)
	l.stayed(begun)
	for _, lease := range l.steady() {
		l.lease = lease
		token := v1alpha1.FencingTokenAnnotation
		if now := l.get(); now.Annotations[token] != before[lease].Annotations[token] || now.Annotations[token] == "" {
			l.Errorf("%s had the fencing token %q, and has %q", lease, before[lease].Annotations[token], now.Annotations[token])
		}
	}
}

// uninstall removes the coordinators.
func (l *lifecycle) uninstall() {
	l.Helper()
	begun := l.mark("the coordinators are removed")
	for _, c := range l.coordinators {
		l.must(c.Stop(l.ctx))
	}
	l.stayed(begun)
}

// cleanUp does what the documentation says.
func (l *lifecycle) cleanUp() {
	l.Helper()
	root, err := framework.RepositoryRoot()
	l.must(err)
	text, err := os.ReadFile(filepath.Join(root, "docs", "upgrade.md"))
	l.must(err)
	var patches, tokenPatches []string
	for _, m := range regexp.MustCompile(`(?m)^kubectl -n NAMESPACE annotate lease NAME ([^#\n]*)`).FindAllStringSubmatch(string(text), -1) {
		annotations := map[string]any{}
		for word := range strings.FieldsSeq(m[1]) {
			annotations[strings.TrimSuffix(word, "-")] = nil
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
		l.must(err)
		if _, ok := annotations[v1alpha1.FencingTokenAnnotation]; ok {
			tokenPatches = append(tokenPatches, string(patch))
		} else {
			patches = append(patches, string(patch))
		}
	}
	m := regexp.MustCompile(`(?m)^kubectl -n NAMESPACE patch lease NAME --type=merge -p '(.*)'$`).FindStringSubmatch(string(text))
	if len(patches) == 0 || len(tokenPatches) != 1 || m == nil {
		l.Fatal("docs/upgrade.md does not say how to clean up")
	}
	patches = append(patches, m[1])

	begun := l.mark("the leases are cleaned up")
	for _, lease := range l.steady() {
		l.lease = lease
		left := l.get()
		l.Logf("left on %s: %v, strategy %v, preferred holder %v", lease, left.Annotations, deref(left.Spec.Strategy), deref(left.Spec.PreferredHolder))
		todo := slices.Clone(patches)
		if lease != l.library {
			todo = append(todo, tokenPatches...)
		}
		for _, patch := range todo {
			l.must(l.cluster.Client().Patch(l.ctx, left, client.RawPatch(types.MergePatchType, []byte(patch))))
		}
	}
	l.stayed(begun)
	for _, lease := range l.steady() {
		l.lease = lease
		for name, value := range l.get().Annotations {
			if strings.HasPrefix(name, v1alpha1.Group+"/") && (name != v1alpha1.FencingTokenAnnotation || lease != l.library) {
				l.Errorf("%s has %s=%s again, or still", lease, name, value)
			}
		}
	}
}

func deref[T any](p *T) any {
	if p == nil {
		return nil
	}
	return *p
}

// doWithout ends every leader, and looks who takes over where there is no coordinator of ours.
func (l *lifecycle) doWithout() {
	l.Helper()
	begun := l.mark("the leaders end")
	// One that crashes. The library would hand over otherwise.
	l.must(l.leaders[l.library].Kill(l.ctx))
	l.must(l.leaders[l.oldest].Stop(l.ctx))
	l.must(l.leaders[l.newest].Stop(l.ctx))

	l.lease = l.oldest
	if l.gate {
		l.waitLeader(l.standbys[l.oldest].Identity, patience)
		for _, e := range l.rec.Timeline().Of(l.oldest, framework.LeaseAppointed) {
			if e.Time.After(begun) && e.WriterKind != framework.APIServerKind {
				l.Errorf("%s appointed %s", e.Writer, e.Subject)
			}
		}
		l.must(l.standbys[l.oldest].Stop(l.ctx))
	}
	// One that was restarted without its feature gate.
	plain := l.candidate("plain", "1.37", patient, func(o *framework.CandidateOptions) { o.Plain = true })
	l.waitLeader(plain.Identity, patience)
	l.waitEvent(framework.LeaseRenewed, plain.Identity, time.Now(), patience)
	if spec := l.get().Spec; spec.Strategy != nil || spec.PreferredHolder != nil {
		l.Errorf("strategy %v and preferred holder %v have outlived a plain holder", deref(spec.Strategy), deref(spec.PreferredHolder))
	}

	l.lease = l.library
	l.waitLeader(l.standbys[l.library].Identity, patientLease+patience)
	l.Logf("the library did without a coordinator %s after its leader was killed", time.Since(begun).Round(time.Millisecond))
	l.token()

	// Nobody takes this one: the strategy is not the in-tree coordinator's.
	l.lease = l.newest
	if got := l.arena.leaders(); !slices.Equal(got, []string{l.leaders[l.newest].Identity}) {
		l.Errorf("leaders of %s: %v", l.newest, got)
	}
	l.must(l.cluster.Clientset().CoordinationV1beta1().LeaseCandidates(l.ns).DeleteCollection(l.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	for lease, c := range l.standbys {
		if lease != l.oldest && !c.Running() {
			l.Errorf("%s has ended: %v", c.Name(), fmt.Sprint(c.ExitError()))
		}
	}
}

// With the definition of our kind go its candidates. Their leader stays, they do without, and are back when it is.
func TestUninstallOurKind(t *testing.T) {
	t.Parallel()
	root, err := framework.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "upgrade.md"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^kubectl delete customresourcedefinition (\S+)$`).FindStringSubmatch(string(text))
	if command == nil {
		t.Fatal("docs/upgrade.md does not say how to remove our kind")
	}
	a := newOurArena(t)
	a.vacantLease()
	fallback := func(o *framework.WorkerOptions) { o.Args = []string{"--fallback-after=3s"} }
	first := a.worker("a", "1.36", fallback)
	a.waitLeader("a", patience)
	second := a.worker("b", "1.37", fallback)
	a.waitKinds("b", patience, ourKind)

	removed := time.Now()
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName(command[1])
	a.must(a.cluster.Client().Delete(a.ctx, definition))
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	a.must(framework.WaitFor(ctx, "our kind is not served any more", func(ctx context.Context) (bool, error) {
		_, err := a.candidates(ourKind).List(ctx, metav1.ListOptions{})
		return apierrors.IsNotFound(err), nil
	}))
	a.waitEvent(framework.LeaseRenewed, "a", time.Now(), patience)
	a.must(first.Terminate(a.ctx))
	a.waitLeader("b", patience)
	a.Logf("b leads, without a coordinator and without candidates, %s after the removal", time.Since(removed).Round(time.Millisecond))

	a.must(a.cluster.ApplyKustomization(a.ctx, "config/crd"))
	a.waitKinds("b", patience, ourKind)
	if got := a.leaders(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("leaders %v", got)
	}
	a.safe()
	a.alternated(first, second)
}
