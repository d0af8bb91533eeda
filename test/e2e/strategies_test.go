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
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/observe"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// The durations of candidates in suites that are about who leads, not about how long it takes.
const (
	briskLease = 6 * time.Second
	briskRenew = 4 * time.Second
	briskRetry = 500 * time.Millisecond
	// briskPoll is the longest time between two looks of such a candidate at its Lease: client-go's jitter factor is 1.2.
	briskPoll = briskRetry * 22 / 10
	// briskHandOff is the longest a planned hand-off takes from the end of a term: the old leader's claim, the new
	// one's poll, and slack.
	briskHandOff = briskLease + briskPoll + slack
	// promptly is how soon the coordinator acts on what it sees.
	promptly = time.Second
	// soon bounds waits for what takes no more than a few requests.
	soon = 15 * time.Second
)

// brisk is for candidates that change leader in less time, and compete again when they have lost the lease.
func brisk(o *framework.CandidateOptions) {
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = briskLease, briskRenew, briskRetry
	o.Rejoin = true
}

// asking is for candidates that ask for a strategy.
func asking(strategy coordinationv1.CoordinatedLeaseStrategy) func(*framework.CandidateOptions) {
	return func(o *framework.CandidateOptions) { o.Strategy = string(strategy) }
}

// built is for candidates of a binary version.
func built(version string) func(*framework.CandidateOptions) {
	return func(o *framework.CandidateOptions) { o.BinaryVersion = version }
}

// patchMetadata sets labels or annotations, or removes those whose value is nil.
func (a *arena) patchMetadata(object client.Object, field string, values map[string]any) {
	a.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{field: values}})
	a.must(err)
	a.must(a.cluster.Client().Patch(a.ctx, object, client.RawPatch(types.MergePatchType, patch)))
}

// annotateLease sets annotations on a.lease, or removes those whose value is nil.
func (a *arena) annotateLease(values map[string]any) time.Time {
	a.Helper()
	at := time.Now()
	namespace, name, _ := strings.Cut(a.lease, "/")
	a.patchMetadata(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, "annotations", values)
	return at
}

// annotateCandidate sets annotations on a LeaseCandidate, or removes those whose value is nil.
func (a *arena) annotateCandidate(name string, values map[string]any) time.Time {
	a.Helper()
	at := time.Now()
	a.patchMetadata(a.candidateObject(name), "annotations", values)
	return at
}

// labelCandidate sets a label on a LeaseCandidate.
func (a *arena) labelCandidate(name, label, value string) time.Time {
	a.Helper()
	at := time.Now()
	a.patchMetadata(a.candidateObject(name), "labels", map[string]any{label: value})
	return at
}

func (a *arena) candidateObject(name string) *coordinationv1beta1.LeaseCandidate {
	namespace, _, _ := strings.Cut(a.lease, "/")
	return &coordinationv1beta1.LeaseCandidate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// registered creates the LeaseCandidate that a candidate of that name then finds: client-go only renews one that is there.
func (a *arena) registered(name string, strategy coordinationv1.CoordinatedLeaseStrategy, labels, annotations map[string]string) {
	a.Helper()
	namespace, lease, _ := strings.Cut(a.lease, "/")
	lc := liveCandidate(namespace, name, lease)
	lc.Labels, lc.Annotations = labels, annotations
	lc.Spec.Strategy = strategy
	a.must(a.cluster.Client().Create(a.ctx, lc))
}

// events returns the events of a reason about objects of a name in the namespace, oldest first.
func (a *arena) events(reason, regarding string) []eventsv1.Event {
	a.Helper()
	namespace, _, _ := strings.Cut(a.lease, "/")
	var list eventsv1.EventList
	a.must(a.cluster.Client().List(a.ctx, &list, client.InNamespace(namespace)))
	found := slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Reason != reason || e.Regarding.Name != regarding
	})
	slices.SortFunc(found, func(x, y eventsv1.Event) int { return x.EventTime.Compare(y.EventTime.Time) })
	return found
}

// note is what an event says, among other things.
type note []string

func (n note) in(e eventsv1.Event) bool {
	return !slices.ContainsFunc(n, func(part string) bool { return !strings.Contains(e.Note, part) })
}

// waitEvents waits for an event of a reason about an object of that name for each of the notes, and asserts that there
// are no more.
func (a *arena) waitEvents(reason, regarding string, notes ...note) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, soon)
	defer cancel()
	var found []eventsv1.Event
	err := framework.WaitFor(ctx, fmt.Sprintf("events %s about %s that say %q", reason, regarding, notes), func(context.Context) (bool, error) {
		found = a.events(reason, regarding)
		return !slices.ContainsFunc(notes, func(n note) bool { return !slices.ContainsFunc(found, n.in) }), nil
	})
	if err != nil {
		a.Errorf("%v; there are:%s", err, describeEvents(found))
		return
	}
	a.onlyEvents(reason, regarding, len(notes))
}

// onlyEvents asserts that there are so many events of a reason about objects of that name, and that none was repeated.
func (a *arena) onlyEvents(reason, regarding string, n int) {
	a.Helper()
	found := a.events(reason, regarding)
	repeated := slices.ContainsFunc(found, func(e eventsv1.Event) bool { return e.Series != nil })
	if len(found) != n || repeated {
		a.Errorf("events %s about %s, want %d, each once:%s", reason, regarding, n, describeEvents(found))
	}
}

func describeEvents(events []eventsv1.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "\n%s about %s %s: %s", e.Reason, e.Regarding.Kind, e.Regarding.Name, e.Note)
		if e.Series != nil {
			fmt.Fprintf(&b, " (%d times)", e.Series.Count)
		}
	}
	return b.String()
}

// strategyOf returns the strategy that the coordinator has written to the lease, wherever the API server keeps it.
func strategyOf(l *coordinationv1.Lease) string {
	if l.Spec.Strategy != nil {
		return string(*l.Spec.Strategy)
	}
	return l.Annotations[v1alpha1.StrategyAnnotation]
}

// led asserts who has led, in order.
func (a *arena) led(want ...string) {
	a.Helper()
	if got := a.leaders(); !slices.Equal(got, want) {
		a.Errorf("leaders = %v, want %v", got, want)
	}
}

// Candidates that ask for a strategy are led by it.
func TestStrategyAskedFor(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]func(*arena){
		"newest binary version": (*arena).newestStory,
		"sticky":                (*arena).stickyStory,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
				a := newArena(t, flavour)
				story(a)
				a.safe()
			})
		})
	}
}

// newestStory is a rolling update: leadership moves once, to the first of the new version, and back when it is gone.
func (a *arena) newestStory() {
	a.Helper()
	asks := asking(v1alpha1.NewestBinaryVersion)
	a.candidate("old", "1.36", brisk, asks, built("1.36.0"))
	a.waitLeader("old", patience)
	// Neither the emulation version nor a pre-release of the version that leads counts.
	a.candidate("same", "1.35", brisk, asks, built("1.36.0-rc.1"))
	a.waitCandidate("same")
	a.rec.Mark("the new version comes")
	newer := a.candidate("new", "1.36", brisk, asks, built("1.37.0"))
	a.waitLeader("new", patience)
	a.candidate("newer", "1.36", brisk, asks, built("1.37.0+build2"))
	a.waitCandidate("newer")
	a.quiet(briskLease)
	if s := strategyOf(a.get()); s != string(v1alpha1.NewestBinaryVersion) {
		a.Errorf("the lease says that its strategy is %q", s)
	}
	a.rec.Mark("the leader of the new version is killed")
	a.must(newer.Kill(a.ctx))
	a.waitLeader("newer", patience)
	a.led("old", "new", "newer")
}

// stickyStory: whoever leads is not preempted by anybody, whatever its version, and is replaced when it is gone.
func (a *arena) stickyStory() {
	a.Helper()
	asks := asking(v1alpha1.Sticky)
	leader := a.candidate("first", "1.36", brisk, asks)
	a.waitLeader("first", patience)
	a.candidate("older", "1.35", brisk, asks, built("1.36.0"))
	a.candidate("newer", "1.37", brisk, asks)
	a.waitCandidate("older")
	a.waitCandidate("newer")
	a.quiet(briskLease)
	a.must(leader.Kill(a.ctx))
	term := a.waitAnyLeader("older", "newer")
	a.quiet(briskLease)
	a.led("first", term.Identity)
}

// quiet lets time pass and asserts that no coordinator writes the lease meanwhile.
func (a *arena) quiet(during time.Duration) {
	a.Helper()
	a.notWrittenByCoordinators(during)
}

// waitAnyLeader waits until one of these leads.
func (a *arena) waitAnyLeader(identities ...string) framework.Term {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	term, err := a.rec.WaitForLeader(ctx, a.lease, func(t framework.Term) bool { return slices.Contains(identities, t.Identity) })
	a.must(err)
	return term
}

// Six leases on two, three and four nodes: they are shared out evenly, one changes hands at a time, and no more of them
// than it takes.
func TestSpread(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		s := &spreadArena{arena: newArena(t, flavour)}
		for i := range 6 {
			s.leases = append(s.leases, fmt.Sprintf("%s/l%d", s.ns, i))
		}
		s.join("n1", "n2")
		s.waitSpread("n1", "n2")
		s.rec.Mark("a third node joins")
		before := s.moves()
		s.join("n3")
		s.waitSpread("n1", "n2", "n3")
		if moved := s.moves() - before; moved != 2 {
			t.Errorf("%d leases moved when the third node joined, want 2", moved)
		}
		s.rec.Mark("a fourth node joins")
		before = s.moves()
		s.join("n4")
		s.waitSpread("n1", "n2", "n3", "n4")
		// Whatever was about to move would by now.
		s.observe(2 * promptly)
		s.waitSpread("n1", "n2", "n3", "n4")
		if moved := s.moves() - before; moved < 1 || moved > 2 {
			t.Errorf("%d leases moved when the fourth node joined, want 1 or 2", moved)
		}
		s.oneAtATime()
		for _, s.lease = range s.leases {
			s.safe()
		}
	})
}

// spreadArena has several leases, each with a candidate on every node.
type spreadArena struct {
	*arena
	leases []string
}

// join starts a candidate for each lease on each of the nodes, under the names that client-go's users give themselves.
func (s *spreadArena) join(nodes ...string) {
	s.Helper()
	for _, node := range nodes {
		for _, s.lease = range s.leases {
			// Whatever is led anywhere in the cluster counts, so nodes of other tests must have other names.
			s.candidate(s.ns+"."+node+"_"+uuid.NewString(), "1.36", brisk, asking(v1alpha1.Spread), func(o *framework.CandidateOptions) {
				// There are many of them.
				o.RetryPeriod = time.Second
			})
		}
	}
}

func nodeOf(identity string) string {
	host, _, _ := strings.Cut(identity, "_")
	_, node, _ := strings.Cut(host, ".")
	return node
}

// waitSpread waits until every lease is led, none is about to move, and of these nodes none leads two more than another.
func (s *spreadArena) waitSpread(nodes ...string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	s.must(s.rec.WaitFor(ctx, fmt.Sprintf("the leases to be spread over %v", nodes), func(t framework.Timeline) bool {
		led := map[string]int{}
		for _, node := range nodes {
			led[node] = 0
		}
		for _, lease := range s.leases {
			term, ok := t.Leader(lease)
			if !ok || len(t.Of(lease, framework.LeasePreferred, framework.LeaseRevoked)) != len(ends(handOffs(t, lease))) {
				return false
			}
			led[nodeOf(term.Identity)]++
		}
		counts := slices.Collect(maps.Values(led))
		return len(led) == len(nodes) && slices.Max(counts)-slices.Min(counts) <= 1
	}))
}

// handOffs returns from the end of each term in favour of another candidate until that is done: somebody has taken up,
// or is appointed for the second time and may never take up, or the term goes on.
func handOffs(t framework.Timeline, lease string) []framework.Interval {
	var found []framework.Interval
	begun, appointed := time.Time{}, false
	for _, e := range t.WritesTo(lease) {
		switch e.Kind {
		case framework.LeasePreferred, framework.LeaseRevoked:
			if begun.IsZero() {
				begun = e.Time
			}
			continue
		case framework.LeaseAppointed:
			if !appointed {
				appointed = true
				continue
			}
		case framework.LeaseTakenUp, framework.LeasePreferenceCleared:
		default:
			continue
		}
		appointed = false
		if !begun.IsZero() {
			found = append(found, framework.Interval{Start: begun, End: e.Time})
			begun = time.Time{}
		}
	}
	if !begun.IsZero() {
		found = append(found, framework.Interval{Start: begun})
	}
	return found
}

// ends returns the intervals that have one.
func ends(intervals []framework.Interval) []framework.Interval {
	return slices.DeleteFunc(intervals, func(i framework.Interval) bool { return i.End.IsZero() })
}

// moves counts the hand-offs so far.
func (s *spreadArena) moves() int {
	n, t := 0, s.rec.Timeline()
	for _, lease := range s.leases {
		n += len(handOffs(t, lease))
	}
	return n
}

// oneAtATime asserts that no lease was told to change hands while another did.
func (s *spreadArena) oneAtATime() {
	s.Helper()
	type move struct {
		framework.Interval
		lease string
	}
	var all []move
	t := s.rec.Timeline()
	for _, lease := range s.leases {
		for _, i := range handOffs(t, lease) {
			all = append(all, move{i, lease})
		}
	}
	slices.SortFunc(all, func(x, y move) int { return x.Start.Compare(y.Start) })
	for i := 1; i < len(all); i++ {
		if last := all[i-1]; all[i].Start.Before(last.End) || last.End.IsZero() {
			s.Errorf("%s was told to change hands %s before %s had", all[i].lease, last.End.Sub(all[i].Start), last.lease)
		}
	}
	s.Logf("%d hand-offs", len(all))
}

// The strategies of config/samples/strategies.yaml, which every shared coordinator is given: what they say is what
// happens, and who cannot be judged does not lead.
func TestCustomStrategies(t *testing.T) {
	t.Parallel()
	t.Run("prefer a zone", func(t *testing.T) {
		t.Parallel()
		eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
			a := newArena(t, flavour)
			asks := asking("example.com/NearDatabase")
			a.candidate("far", "1.36", brisk, asks)
			a.waitLeader("far", patience)
			a.candidate("near", "1.36", brisk, asks)
			a.waitCandidate("near")
			a.labelCandidate("far", corev1.LabelTopologyZone, "eu-central-1b")
			a.quiet(2 * promptly)
			moved := a.labelCandidate("near", corev1.LabelTopologyZone, "eu-central-1a")
			term := a.waitLeader("near", patience)
			a.Logf("near leads %s after it was labelled", term.Start.Sub(moved).Round(time.Millisecond))
			a.led("far", "near")
			a.safe()
		})
	})
	t.Run("a missing label", func(t *testing.T) {
		t.Parallel()
		eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
			a := newArena(t, flavour)
			const strategy, site = "example.com/ActivePassive", "example.com/site"
			asks := asking(strategy)
			a.candidate("lost", "1.36", brisk, asks)
			a.waitEvents(observe.EventNotCoordinated, "l", note{"lost eligible", "no such key"})
			a.candidate("passive", "1.36", brisk, asks)
			a.waitCandidate("passive")
			a.labelCandidate("passive", site, "b")
			active := a.candidate("active", "1.36", brisk, asks)
			a.waitCandidate("active")
			a.labelCandidate("active", site, "a")
			a.waitLeader("active", patience)
			a.waitMetric(flavour, "coordinated_leader_election_lease_candidates", map[string]string{"state": "Inadmissible"}, 2)
			if n, _, err := sharedCoordinator(flavour).Metric(a.ctx, "coordinated_leader_election_strategy_failures_total", map[string]string{"strategy": strategy}); err != nil || n == 0 {
				t.Errorf("the strategy has failed %v times (%v)", n, err)
			}

			a.rec.Mark("site a goes; site b may not lead until somebody says so")
			a.must(active.Kill(a.ctx))
			gone := time.Now()
			a.observe(briskHandOff + defaultElectionDuration)
			if writes := a.rec.Timeline().Of(a.lease, framework.LeaseAppointed); len(writes) != 1 {
				t.Errorf("%d appointments, want that of the active site alone", len(writes))
			}
			allowed := a.annotateLease(map[string]any{"example.com/failover": "allowed"})
			term := a.waitLeader("passive", patience)
			t.Logf("the passive site leads %s after it was allowed to, and %s after the active one went", term.Start.Sub(allowed).Round(time.Millisecond), term.Start.Sub(gone).Round(time.Millisecond))
			a.led("active", "passive")
			a.safe()
		})
	})
}

// defaultElectionDuration is for how long a candidate that may win is waited for.
const defaultElectionDuration = 5 * time.Second

// sharedCoordinator returns the coordinator of the shared cluster.
func sharedCoordinator(flavour framework.Flavour) *framework.Coordinator {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	return sharedCoordinators[flavour]
}

// waitMetric waits until a metric of a.lease has a value.
func (a *arena) waitMetric(flavour framework.Flavour, name string, labels map[string]string, want float64) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	namespace, lease, _ := strings.Cut(a.lease, "/")
	all := map[string]string{"namespace": namespace, "lease": lease}
	maps.Copy(all, labels)
	var got float64
	err := framework.WaitFor(ctx, fmt.Sprintf("%s%v to be %v", name, all, want), func(ctx context.Context) (bool, error) {
		var err error
		got, _, err = sharedCoordinator(flavour).Metric(ctx, name, all)
		return err == nil && got == want, nil
	})
	if err != nil {
		a.Errorf("%v; it is %v", err, got)
	}
}

// The operator's strategy goes before that which candidates ask for, and moves leadership.
func TestStrategyOverride(t *testing.T) {
	t.Parallel()
	t.Run("annotation", func(t *testing.T) {
		t.Parallel()
		eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
			a := newArena(t, flavour)
			a.candidate("old", "1.36", brisk, built("1.36.0"))
			a.waitLeader("old", patience)
			a.candidate("new", "1.36", brisk, built("1.37.0"))
			a.waitCandidate("new")

			a.rec.Mark("an override that names no strategy")
			a.annotateLease(map[string]any{v1alpha1.StrategyOverrideAnnotation: "example.com/Nonsense"})
			a.waitEvents(observe.EventInvalidAnnotation, "l", note{`"example.com/Nonsense"`})
			a.quiet(briskLease)
			a.onlyEvents(observe.EventInvalidAnnotation, "l", 1)
			a.led("old")

			a.rec.Mark("one that does")
			moved := a.annotateLease(map[string]any{v1alpha1.StrategyOverrideAnnotation: string(v1alpha1.NewestBinaryVersion)})
			term := a.waitLeader("new", briskHandOff+promptly)
			t.Logf("new leads %s after the override", term.Start.Sub(moved).Round(time.Millisecond))
			if s := strategyOf(a.get()); s != string(v1alpha1.NewestBinaryVersion) {
				t.Errorf("the lease says that its strategy is %q", s)
			}

			a.rec.Mark("and is taken away")
			a.annotateLease(map[string]any{v1alpha1.StrategyOverrideAnnotation: nil})
			a.waitLeader("old", briskHandOff+promptly)
			a.led("old", "new", "old")
			a.onlyEvents(observe.EventInvalidAnnotation, "l", 1)
			a.safe()
		})
	})
	t.Run("flag", func(t *testing.T) {
		t.Parallel()
		eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
			a := newArena(t, flavour)
			a.lease = a.ns + "/" + leaseByFlag
			a.candidate("old", "1.36", brisk, built("1.36.0"))
			a.waitLeader("old", patience)
			a.candidate("new", "1.36", brisk, built("1.37.0"))
			a.waitLeader("new", patience)
			a.rec.Mark("the flag goes before an annotation")
			a.annotateLease(map[string]any{v1alpha1.StrategyOverrideAnnotation: string(v1alpha1.OldestEmulationVersion)})
			a.quiet(briskLease)
			a.led("old", "new")
			a.safe()
		})
	})
}

// Priorities decide before the strategy does, for as long as they count.
func TestPriority(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.candidate("host-c", "1.35", brisk)
		a.waitLeader("host-c", patience)
		a.candidate("host-a", "1.36", brisk)
		b := a.candidate("host-b", "1.37", brisk)
		a.waitCandidate("host-a")
		a.waitCandidate("host-b")

		a.rec.Mark("b has a priority, and a a lower one")
		given := a.annotateCandidate("host-b", map[string]any{v1alpha1.PriorityAnnotation: "100"})
		a.annotateCandidate("host-a", map[string]any{v1alpha1.PriorityAnnotation: "10"})
		term := a.waitLeader("host-b", briskHandOff+promptly)
		t.Logf("b leads %s after it was given its priority", term.Start.Sub(given).Round(time.Millisecond))
		a.quiet(2 * promptly)
		a.led("host-c", "host-b")

		a.rec.Mark("b is killed")
		a.must(b.Kill(a.ctx))
		killed := time.Now()
		term = a.waitLeader("host-a", briskHandOff)
		t.Logf("a leads %s after b was killed", term.Start.Sub(killed).Round(time.Millisecond))

		a.rec.Mark("the priority of a ends")
		// The annotation has whole seconds.
		until := time.Now().Add(2 * time.Second).Truncate(time.Second)
		a.annotateCandidate("host-a", map[string]any{v1alpha1.PriorityUntilAnnotation: until.UTC().Format(time.RFC3339)})
		term = a.waitLeader("host-c", time.Until(until)+briskHandOff+promptly)
		t.Logf("c leads %s after the priority of a has ended", term.Start.Sub(until).Round(time.Millisecond))
		a.led("host-c", "host-b", "host-a", "host-c")
		a.waitEvents(observe.EventPriorityEnded, "host-a", note{"priority 10 counted until " + until.UTC().Format(time.RFC3339)})
		told := a.rec.Timeline().Of(a.lease, framework.LeasePreferred, framework.LeaseRevoked)
		if len(told) != 2 {
			t.Errorf("leaders were told %d times to yield, want twice", len(told))
		}
		if len(told) > 0 && told[len(told)-1].Time.Before(until) {
			t.Errorf("a was told to yield %s before its priority ended", until.Sub(told[len(told)-1].Time))
		}
		a.safe()
	})
}

// A candidate that must never lead does not, even alone; why nobody leads is told once, candidate by candidate; and the
// first that may lead does so at once.
func TestIneligible(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		const strategy, site = "example.com/ActivePassive", "example.com/site"
		a.registered("backup", strategy, map[string]string{site: "a"}, map[string]string{v1alpha1.IneligibleAnnotation: "backup node"})
		a.candidate("backup", "1.36", brisk)
		a.waitEvents(observe.EventNotCoordinated, "l", note{"backup is marked never to lead: backup node"})
		a.observe(briskLease)
		a.nobodyLed()
		a.onlyEvents(observe.EventNotCoordinated, "l", 1)

		a.rec.Mark("others that may not lead for other reasons")
		a.registered("passive", strategy, map[string]string{site: "b"}, nil)
		a.candidate("passive", "1.36", brisk)
		a.registered("unlabelled", strategy, nil, nil)
		a.candidate("unlabelled", "1.36", brisk)
		a.waitEventOf(observe.EventNotCoordinated, "l", "backup is marked never to lead: backup node", "passive eligible", "unlabelled eligible", "no such key")
		a.nobodyLed()

		a.rec.Mark("one of them may lead")
		a.annotateCandidate("backup", map[string]any{v1alpha1.IneligibleAnnotation: nil})
		term := a.waitLeader("backup", promptly+briskPoll+slack)
		t1 := a.rec.Timeline()
		writes := t1.WritesToCandidate(a.ns, "backup")
		i := slices.IndexFunc(writes, func(e framework.Event) bool { return e.Kind == framework.CandidateUpdated })
		if i < 0 {
			t.Fatal("the timeline lacks the change of the annotation")
		}
		appointed := t1.Of(a.lease, framework.LeaseAppointed)[0].Time.Sub(writes[i].Time)
		t.Logf("appointed %s, leading %s after it may lead", appointed.Round(time.Millisecond), term.Start.Sub(writes[i].Time).Round(time.Millisecond))
		if appointed > promptly+slack {
			t.Errorf("appointed only %s after it may lead", appointed)
		}
		a.led("backup")
		a.safe()
	})
}

// nobodyLed asserts that the lease has never had a holder.
func (a *arena) nobodyLed() {
	a.Helper()
	a.led()
	for _, e := range a.rec.Timeline().WritesTo(a.lease) {
		a.Errorf("the lease was written, although nobody may lead it: %s %s", e.Kind, e.Detail)
	}
}

// waitEventOf waits for an event that says all of this; there may be others.
func (a *arena) waitEventOf(reason, regarding string, parts ...string) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, soon)
	defer cancel()
	err := framework.WaitFor(ctx, fmt.Sprintf("an event %s about %s that says %q", reason, regarding, parts), func(context.Context) (bool, error) {
		return slices.ContainsFunc(a.events(reason, regarding), note(parts).in), nil
	})
	if err != nil {
		a.Errorf("%v; there are:%s", err, describeEvents(a.events(reason, regarding)))
	}
}

// Nothing is written to a lease that is paused, nor to its candidates, not even when its leader dies.
func TestPaused(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		leader := a.candidate("first", "1.36", brisk)
		a.waitLeader("first", patience)
		a.candidate("second", "1.36", brisk)
		a.waitCandidate("second")
		a.annotateLease(map[string]any{v1alpha1.PausedAnnotation: v1alpha1.PausedTrue})
		a.waitEvents(observe.EventNotCoordinated, "l", note{"this lease is paused"})
		paused := time.Now()
		a.must(leader.Kill(a.ctx))
		a.observe(briskLease + defaultElectionDuration)
		for _, e := range a.rec.Timeline().ByCoordinators() {
			if e.Lease == a.lease && e.Time.After(paused) {
				t.Errorf("%s wrote to the paused lease or its candidates: %s %s %s", e.Writer, e.Object, e.Kind, e.Detail)
			}
		}
		a.onlyEvents(observe.EventNotCoordinated, "l", 1)
		a.led("first")

		a.rec.Mark("the pause ends")
		resumed := a.annotateLease(map[string]any{v1alpha1.PausedAnnotation: nil})
		// Whoever might have died meanwhile is waited for.
		term := a.waitLeader("second", defaultElectionDuration+promptly+briskPoll+slack)
		t.Logf("second leads %s after the pause has ended", term.Start.Sub(resumed).Round(time.Millisecond))
		a.led("first", "second")
		a.safe()
	})
}

// Each value that does not count is told once, on the object that has it, and does nothing.
func TestInvalidAnnotations(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		a.candidate("first", "1.36", brisk)
		a.waitLeader("first", patience)
		a.candidate("second", "1.36", brisk)
		a.waitCandidate("second")

		// Those of one object that come at once are told at once.
		a.annotateLease(map[string]any{
			v1alpha1.PreemptionAnnotation:       "sometimes",
			v1alpha1.PausedAnnotation:           "yes",
			v1alpha1.StrategyOverrideAnnotation: "Newest",
		})
		a.annotateCandidate("second", map[string]any{
			v1alpha1.PriorityAnnotation:   "-1",
			v1alpha1.IneligibleAnnotation: "false",
		})
		lease := []note{{v1alpha1.PreemptionAnnotation + `: "sometimes"`, v1alpha1.PausedAnnotation + `: "yes"`, v1alpha1.StrategyOverrideAnnotation + `: "Newest"`}}
		second := []note{{v1alpha1.PriorityAnnotation + `: "-1"`, v1alpha1.IneligibleAnnotation + `: "false"`}}
		a.waitEvents(observe.EventInvalidAnnotation, "l", lease...)
		a.waitEvents(observe.EventInvalidAnnotation, "second", second...)

		a.rec.Mark("other values that do not count either")
		a.annotateCandidate("second", map[string]any{
			v1alpha1.PriorityAnnotation:      "1",
			v1alpha1.PriorityUntilAnnotation: "tomorrow",
		})
		second = append(second, note{v1alpha1.PriorityUntilAnnotation + `: "tomorrow"`})
		a.waitEvents(observe.EventInvalidAnnotation, "second", second...)
		a.annotateLease(map[string]any{v1alpha1.PreemptionAnnotation: "seldom"})
		lease = append(lease, note{v1alpha1.PreemptionAnnotation + `: "seldom"`})
		a.waitEvents(observe.EventInvalidAnnotation, "l", lease...)
		a.quiet(briskLease)
		// Renewals of the lease repeat none of them.
		a.onlyEvents(observe.EventInvalidAnnotation, "l", len(lease))
		a.onlyEvents(observe.EventInvalidAnnotation, "second", len(second))
		a.led("first")
		a.safe()
	})
}
