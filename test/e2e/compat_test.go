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
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
	"github.com/lease-coordinator/coordinator/test/e2e/compatibility"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// The durations of the candidates of the matrix, whatever they are built on: shorter than usual, since every cell waits
// for several of them, and long enough for a busy machine.
const (
	cellLease    = 8 * time.Second
	cellDeadline = 5 * time.Second
	cellRetry    = time.Second
	// cellPoll is the longest time between two looks of a client-go candidate at its Lease.
	cellPoll = 2200 * time.Millisecond
	// cellFallback is after how much time of vacancy the library does without a coordinator, where there is none.
	cellFallback = 3 * time.Second
)

// surroundings are what candidates find in a cluster.
type surroundings struct {
	name string
	// shared is the flavour of the shared cluster that it is; if that is empty it is a cluster of its own, with server.
	shared      framework.Flavour
	server      framework.Options
	coordinator compatibility.Coordinator
	// kinds of candidates are tried alone, and mixed says that they are on one lease as well.
	kinds []kind
	mixed bool
}

// emulated are the versions that kube-apiserver can be, besides its own.
var emulated = []string{"1.36", "1.35", "1.34"}

func everySurroundings() []*surroundings {
	all := []kind{ofLibrary, ofClientGo, ofPlain}
	return []*surroundings{
		{name: "ours/gate-on", shared: framework.GateOn, coordinator: compatibility.Replace, kinds: all, mixed: true},
		{name: "ours/gate-off", shared: framework.GateOff, coordinator: compatibility.Ours, kinds: all, mixed: true},
		{name: "in-tree", server: framework.Options{CoordinatedLeaderElection: true}, coordinator: compatibility.InTree, kinds: all, mixed: true},
		{name: "none", coordinator: compatibility.None, kinds: all, mixed: true},
	}
}

// emulatedSurroundings are kube-apiservers of the versions before.
func emulatedSurroundings() []*surroundings {
	var every []*surroundings
	for _, v := range emulated {
		both := []kind{ofLibrary, ofClientGo}
		every = append(every,
			&surroundings{name: "gate-on/" + v, server: framework.Options{CoordinatedLeaderElection: true, EmulationVersion: v},
				coordinator: compatibility.Replace, kinds: both},
			&surroundings{name: "gate-off/" + v, server: framework.Options{EmulationVersion: v},
				coordinator: compatibility.Ours, kinds: both})
	}
	oldest := emulated[len(emulated)-1]
	return append(every, &surroundings{name: "own-kind/" + oldest,
		server:      framework.Options{NoLeaseCandidateAPI: true, EmulationVersion: oldest},
		coordinator: compatibility.Ours, kinds: []kind{ofLibrary}})
}

// open starts what there is to be started, and returns what makes an arena there.
func (s *surroundings) open(t *testing.T) func(*testing.T) *arena {
	t.Helper()
	if s.shared != "" {
		return func(t *testing.T) *arena { return newArena(t, s.shared) }
	}
	cluster := framework.New(t, s.server)
	if s.server.NoLeaseCandidateAPI {
		if err := cluster.ApplyKustomization(t.Context(), "config/crd"); err != nil {
			t.Fatal(err)
		}
	}
	switch s.coordinator {
	case compatibility.InTree:
		waitInTree(t.Context(), t, cluster, patience)
	case compatibility.Replace:
		startCoordinators(t, t.Context(), cluster.Nodes[0], 1, coordinatorArgs(framework.GateOn)...)
	case compatibility.Ours:
		startCoordinators(t, t.Context(), cluster.Nodes[0], 1, coordinatorArgs(framework.GateOff)...)
	}
	return func(t *testing.T) *arena { return newArenaOn(t, cluster) }
}

// ours says that our coordinator is there, elects that there is any.
func (s *surroundings) ours() bool   { return s.elects() && s.coordinator != compatibility.InTree }
func (s *surroundings) elects() bool { return s.coordinator != compatibility.None }

// decides is how long the coordinator may take from the news to naming somebody: for both the election duration, and for
// the one in kube-apiserver another round, since it looks every 5 s.
func (s *surroundings) decides() time.Duration {
	switch {
	case s.ours():
		return 5 * time.Second
	case s.elects():
		return 10 * time.Second
	default:
		return 0
	}
}

// kind is what a candidate is built on.
type kind struct {
	name string
	of   compatibility.Candidates
	// coordinated candidates register; notices says that it learns at once what is decided about it, and hands over.
	coordinated, notices bool
	start                func(a *arena, s *surroundings, name, emulation string) *framework.Candidate
}

var (
	ofLibrary = kind{"library", compatibility.Library, true, true, func(a *arena, s *surroundings, name, emulation string) *framework.Candidate {
		return a.worker(name, emulation, func(o *framework.WorkerOptions) {
			o.Args = []string{"--lease-duration=" + cellLease.String(), "--renew-deadline=" + cellDeadline.String(), "--retry-period=" + cellRetry.String()}
			if !s.elects() {
				o.Args = append(o.Args, "--fallback-after="+cellFallback.String())
			}
		})
	}}
	ofClientGo = kind{"client-go-coordinated", compatibility.ClientGo, true, false, func(a *arena, _ *surroundings, name, emulation string) *framework.Candidate {
		return a.candidate(name, emulation, cellDurations)
	}}
	ofPlain = kind{"client-go-plain", compatibility.Plain, false, false, func(a *arena, _ *surroundings, name, emulation string) *framework.Candidate {
		return a.candidate(name, emulation, cellDurations, func(o *framework.CandidateOptions) { o.Plain, o.ReleaseOnCancel = true, true })
	}}
)

func cellDurations(o *framework.CandidateOptions) {
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod, o.Rejoin = cellLease, cellDeadline, cellRetry, true
}

// Candidates of the library, coordinated ones of client-go and plain electors, each kind alone and all of them on one
// lease, with our coordinator, with the one in kube-apiserver and with none: whoever is together, one of them leads.
func TestCompatibility(t *testing.T) {
	t.Parallel()
	// What is measured from the start of a process does not count how long it takes to build.
	for _, build := range []func(context.Context) (string, error){framework.BuildWorker, framework.BuildCandidate} {
		if _, err := build(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range everySurroundings() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.try(t)
		})
	}
	// One after the other: each has a cluster of its own.
	t.Run("emulated", func(t *testing.T) {
		t.Parallel()
		for _, s := range emulatedSurroundings() {
			t.Run(s.name, s.try)
		}
	})
}

// try tries every kind of candidates there.
func (s *surroundings) try(t *testing.T) {
	arena := s.open(t)
	try := func(name string, run func(*cell)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &cell{arena: arena(t), surroundings: s}
			c.allowWorkers()
			run(c)
			c.assertSound()
		})
	}
	for _, k := range s.kinds {
		try(k.name, func(c *cell) {
			c.alone(k)
			c.tells(s.coordinator, k.of)
		})
	}
	switch {
	case !s.mixed:
	case s.elects():
		try("mixed", (*cell).mixed)
		try("mixed-with-plain", (*cell).mixedWithPlain)
	default:
		try("mixed", (*cell).mixedUncoordinated)
		try("mixed-with-plain", (*cell).mixedUncoordinatedWithPlain)
	}
}

// tells has docs/compatibility.md say how leadership of the arena's lease, whose candidates are all of one kind, moved.
func (a *arena) tells(coordinator compatibility.Coordinator, of compatibility.Candidates) {
	a.Helper()
	fact := compatibility.Fact{Cluster: compatibility.Cluster{Coordinator: coordinator}, Candidates: of, Outcome: a.outcome()}
	var err error
	fact.Version, err = a.node.APIServer.ServedEmulationVersion(a.ctx)
	a.must(err)
	fact.FieldsKept, err = leaseapi.FieldsKept(a.ctx, a.cluster.Client(), a.ns)
	a.must(err)
	client, err := discovery.NewDiscoveryClientForConfig(a.node.Config())
	a.must(err)
	kinds, err := leaseapi.NewDiscovery(client).Candidates(a.ctx)
	if err != nil && !errors.Is(err, leaseapi.ErrNoCandidates) {
		a.Fatal(err)
	}
	for _, k := range kinds {
		fact.Kinds = append(fact.Kinds, k.GroupVersionKind().GroupVersion().String())
	}
	a.Attr(compatibility.Attribute, fact.Value())
}

// coordinatorOf names the coordinator that coordinatorArgs makes.
func coordinatorOf(flavour framework.Flavour) compatibility.Coordinator {
	if flavour == framework.GateOn {
		return compatibility.Replace
	}
	return compatibility.Ours
}

// outcome returns how the first leader was told to make room, if it was.
func (a *arena) outcome() compatibility.Outcome {
	for _, e := range a.rec.Timeline().Of(a.lease, framework.LeasePreferred, framework.LeaseRevoked) {
		switch {
		case e.Kind == framework.LeaseRevoked:
			return compatibility.Revoked
		case e.LeaseAfter.Spec.PreferredHolder != nil:
			return compatibility.Fields
		default:
			return compatibility.Annotation
		}
	}
	if len(a.leaders()) == 0 {
		return compatibility.Nobody
	}
	return compatibility.Waits
}

// cell is one combination of candidates and surroundings.
type cell struct {
	*arena
	*surroundings
	candidates []*framework.Candidate
	// library is set once the library has led.
	library bool
}

func (c *cell) start(k kind, name, emulation string) *framework.Candidate {
	c.Helper()
	candidate := k.start(c.arena, c.surroundings, name, emulation)
	c.candidates = append(c.candidates, candidate)
	if k.coordinated {
		c.waitCandidate(name)
	}
	return candidate
}

// leads waits until the candidate leads, at most so long after that moment, and marks the lease for the end, when the marks
// must still be there.
func (c *cell) leads(k kind, candidate *framework.Candidate, from time.Time, within time.Duration) {
	c.Helper()
	term := c.waitLeader(candidate.Identity, time.Until(from.Add(within)))
	c.Logf("%s (%s) leads after %s, of %s at most", candidate.Identity, k.name, term.Start.Sub(from).Round(time.Millisecond), within)
	c.library = c.library || k.name == ofLibrary.name
	if c.get().Annotations[foreignNote] == "" {
		c.change(func(l *coordinationv1.Lease) {
			if l.Annotations == nil {
				l.Annotations = map[string]string{}
			}
			l.Annotations[foreignNote] = "somebody's"
			l.Labels = map[string]string{foreignNote: "somebodys"}
		})
	}
}

// foreignNote is an annotation and a label that are none of anybody's business.
const foreignNote = "example.com/note"

// takesUp is how long a candidate that is there takes to begin once it is named.
func takesUp(k kind) time.Duration {
	if k.notices {
		return slack
	}
	return cellPoll + slack
}

// elected is how long after its start the first candidate of a kind leads at the latest.
func (c *cell) elected(k kind) time.Duration {
	switch {
	case !k.coordinated:
		return takesUp(k)
	case c.elects():
		return c.decides() + takesUp(k)
	default:
		// The lease may just have been deleted under a leader, and another one just before this candidate created it. Each
		// may have had the usual duration.
		return 2*leaseDuration + cellFallback + takesUp(k)
	}
}

// preferred is how long after a better candidate's appearance it leads at the latest.
func (c *cell) preferred(from, to kind) time.Duration {
	if from.notices {
		return c.decides() + takesUp(to)
	}
	// client-go stops when its renew deadline has passed, and the rest of its claim must run out.
	return c.decides() + cellLease + c.decides() + takesUp(to)
}

// succeeded is how long after a leader was told to end the next one leads at the latest.
func (c *cell) succeeded(from, to kind) time.Duration {
	wait := takesUp(to)
	switch {
	case to.coordinated && c.elects():
		wait += c.decides()
	case to.coordinated:
		wait += cellFallback
	}
	if !from.notices && from.coordinated {
		// It does not release the lease.
		wait += cellLease
	}
	return wait
}

func (c *cell) alone(k kind) {
	began := time.Now()
	first := c.start(k, "n37", "1.37")
	if k.coordinated && !k.notices && !c.elects() {
		c.nobodyLeads(k)
		return
	}
	c.leads(k, first, began, c.elected(k))
	joined := time.Now()
	better := c.start(k, "n36", "1.36")
	leader, next := first, better
	expected := []string{"n37", "n36"}
	if k.coordinated && c.elects() {
		c.leads(k, better, joined, c.preferred(k, k))
		leader, next = better, first
		expected = append(expected, "n37")
	} else {
		c.observe(2 * cellPoll)
	}
	c.leads(k, next, c.exits(leader), c.succeeded(k, k))
	c.observe(cellPoll)
	if got := c.leaders(); !slices.Equal(got, expected) {
		c.Errorf("leaders %v, want %v", got, expected)
	}
	if writes := c.coordinatorWrites(c.lease); !k.coordinated && len(writes) > 0 {
		c.Errorf("a coordinator wrote a lease without candidates: %v", writes)
	}
}

// exits has a leader lead a while, ends it gracefully and returns when it was told to.
func (c *cell) exits(candidate *framework.Candidate) time.Time {
	c.Helper()
	// So that it has renewed; and a candidate of the library may lead for so short a time between two terms of another that
	// the other's stamps of its work look like one term.
	c.observe(cellRetry)
	told := time.Now()
	c.must(candidate.Terminate(c.ctx))
	return told
}

// nobodyLeads asserts that coordinated candidates of client-go whom nobody names wait, and do no harm.
func (c *cell) nobodyLeads(k kind) {
	c.start(k, "n36", "1.36")
	c.observe(cellLease)
	if got := c.leaders(); len(got) > 0 {
		c.Errorf("%v led without having been named", got)
	}
	if writes := c.rec.Timeline().WritesTo(c.lease); len(writes) > 0 {
		c.Errorf("the lease was written by candidates whom nobody named: %v", writes)
	}
	for _, candidate := range c.candidates {
		if !candidate.Running() {
			c.Errorf("%s has ended", candidate.Name())
		}
	}
}

// mixed has candidates of the library and of client-go hand the lease to each other, both ways, and both ways exit.
func (c *cell) mixed() {
	clientGo, library, standby := c.mixedHandOff()
	// The older one of two equals.
	c.leads(ofClientGo, clientGo, c.exits(library), c.succeeded(ofLibrary, ofClientGo))
	joined := time.Now()
	oldest := c.start(ofClientGo, "n35", "1.35")
	c.leads(ofClientGo, oldest, joined, c.preferred(ofClientGo, ofClientGo))
	c.must(clientGo.Stop(c.ctx))
	c.leads(ofLibrary, standby, c.exits(oldest), c.succeeded(ofClientGo, ofLibrary))
	c.observe(cellPoll)
	if got, want := c.leaders(), []string{"n37", "n36", "n37", "n35", "l37"}; !slices.Equal(got, want) {
		c.Errorf("leaders %v, want %v", got, want)
	}
}

// mixedWithPlain has a plain elector beside them. Whoever finds an empty lease first may take it, and a coordinator leaves
// a plain elector alone, so that who leads is nobody's choice: one leader after the other is told to end, and the next one,
// whoever it is, is there in time.
func (c *cell) mixedWithPlain() {
	_, leader, _ := c.mixedHandOff()
	c.start(ofPlain, "plain", "1.37")
	for range 3 {
		leader = c.anyLeads(c.exits(leader), c.succeeded(ofClientGo, ofClientGo))
	}
	c.observe(cellPoll)
	if got := c.leaders(); len(got) != 5 {
		c.Errorf("leaders %v, want five in turn", got)
	}
}

// mixedHandOff has a better candidate of the library take over from one of client-go, and another one stand by.
func (c *cell) mixedHandOff() (clientGo, library, standby *framework.Candidate) {
	began := time.Now()
	clientGo = c.start(ofClientGo, "n37", "1.37")
	c.leads(ofClientGo, clientGo, began, c.elected(ofClientGo))
	joined := time.Now()
	library = c.start(ofLibrary, "n36", "1.36")
	c.leads(ofLibrary, library, joined, c.preferred(ofClientGo, ofLibrary))
	return clientGo, library, c.start(ofLibrary, "l37", "1.37")
}

// anyLeads waits until a candidate leads that was not told to end, at most so long after that moment.
func (c *cell) anyLeads(from time.Time, within time.Duration) *framework.Candidate {
	c.Helper()
	ctx, cancel := context.WithDeadline(c.ctx, from.Add(within))
	defer cancel()
	term, err := c.rec.WaitForLeader(ctx, c.lease, func(t framework.Term) bool { return t.Start.After(from) })
	c.must(err)
	c.Logf("%s leads after %s, of %s at most", term.Identity, term.Start.Sub(from).Round(time.Millisecond), within)
	for _, candidate := range c.candidates {
		if candidate.Identity == term.Identity {
			return candidate
		}
	}
	c.Fatalf("%s leads, who is none of the candidates", term)
	return nil
}

// mixedUncoordinated has the library lead, by falling back to plain leader election, since nobody names client-go's.
func (c *cell) mixedUncoordinated() {
	// That was led before, and released.
	c.createAll(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: "l"}})
	c.start(ofClientGo, "n35", "1.35")
	began := time.Now()
	library := c.start(ofLibrary, "n37", "1.37")
	c.leads(ofLibrary, library, began, cellFallback+takesUp(ofLibrary))
	next := c.start(ofLibrary, "n36", "1.36")
	c.observe(2 * cellPoll)
	c.leads(ofLibrary, next, c.exits(library), c.succeeded(ofLibrary, ofLibrary))
	c.observe(cellPoll)
	if got, want := c.leaders(), []string{"n37", "n36"}; !slices.Equal(got, want) {
		c.Errorf("leaders %v, want %v", got, want)
	}
}

// mixedUncoordinatedWithPlain has the library and plain electors take the lease from each other, as plain electors do.
func (c *cell) mixedUncoordinatedWithPlain() {
	began := time.Now()
	plain := c.start(ofPlain, "plain", "1.37")
	c.leads(ofPlain, plain, began, c.elected(ofPlain))
	c.start(ofClientGo, "n35", "1.35")
	library := c.start(ofLibrary, "n36", "1.36")
	c.observe(2 * cellPoll)
	c.leads(ofLibrary, library, c.exits(plain), c.succeeded(ofPlain, ofLibrary))
	again := c.start(ofPlain, "again", "1.37")
	c.observe(2 * cellPoll)
	c.leads(ofPlain, again, c.exits(library), c.succeeded(ofLibrary, ofPlain))
	c.observe(cellPoll)
	if got, want := c.leaders(), []string{"plain", "n36", "again"}; !slices.Equal(got, want) {
		c.Errorf("leaders %v, want %v", got, want)
	}
}

// assertSound asserts what is so in every cell: never two leaders at once, by their own stamps; nobody's annotations are
// lost by anybody's writes; and fencing tokens never shrink.
func (c *cell) assertSound() {
	c.Helper()
	c.safe()
	c.alternated(c.candidates...)
	if len(c.leaders()) == 0 {
		return
	}
	lease := c.get()
	if lease.Annotations[foreignNote] == "" || lease.Labels[foreignNote] == "" {
		c.Errorf("annotations %v and labels %v: not all have survived", lease.Annotations, lease.Labels)
	}
	var last uint64
	for _, e := range c.rec.Timeline().WritesTo(c.lease) {
		if e.LeaseAfter == nil {
			c.Errorf("the lease was deleted by %s", e.Writer)
			continue
		}
		text, ok := e.LeaseAfter.Annotations[v1alpha1.FencingTokenAnnotation]
		if !ok && last == 0 {
			continue
		}
		token, err := strconv.ParseUint(text, 10, 64)
		if err != nil || token < last {
			c.Errorf("fencing token %q after %d, written by %s: %s %s", text, last, e.Writer, e.Kind, e.Detail)
		}
		last = max(last, token)
	}
	if last == 0 && (c.library || c.ours() && len(c.coordinatorWrites(c.lease)) > 0) {
		c.Error("there is no fencing token")
	}
}
