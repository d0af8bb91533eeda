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
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/observe"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

const (
	metricPrefix = "coordinated_leader_election_"
	// scrapePause is the time between two scrapes.
	scrapePause = 100 * time.Millisecond
	// lag is how much later than the API server's audit log a busy coordinator may notice a change.
	lag = time.Second
)

// scrape is what a coordinator's metrics endpoint served: the values of the coordinator's own series by what is before
// them in the text, such as `active` or `lease_led{lease="l",namespace="x"}`.
type scrape struct {
	framework.Interval
	series map[string]float64
}

// scrapeOf scrapes the coordinator. ok is false if it did not answer.
func scrapeOf(ctx context.Context, t testing.TB, c *framework.Coordinator) (s scrape, ok bool) {
	t.Helper()
	s = scrape{series: map[string]float64{}}
	s.Start = time.Now()
	status, body := fetch(ctx, t, c.MetricsURL(false), "")
	s.End = time.Now()
	if status != http.StatusOK {
		return s, false
	}
	lines := bufio.NewScanner(strings.NewReader(body))
	lines.Buffer(nil, len(body)+1)
	for lines.Scan() {
		line, ours := strings.CutPrefix(lines.Text(), metricPrefix)
		if !ours {
			continue
		}
		i := strings.LastIndex(line, " ")
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Errorf("%s serves %q: %v", c.Name(), lines.Text(), err)
		}
		s.series[line[:i]] = v
	}
	return s, true
}

// of returns the series of a metric that have all of these labels, given as in `action="Ping"`.
func (s scrape) of(name string, labels ...string) map[string]float64 {
	found := map[string]float64{}
	for series, v := range s.series {
		metric, rest, _ := strings.Cut(series, "{")
		if metric == name && !slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			found[series] = v
		}
	}
	return found
}

// sum returns the sum of the values of those series.
func (s scrape) sum(name string, labels ...string) float64 {
	var sum float64
	for _, v := range s.of(name, labels...) {
		sum += v
	}
	return sum
}

// by returns the sums of a metric's values by the value of a label.
func (s scrape) by(name, label string, labels ...string) map[string]float64 {
	sums := map[string]float64{}
	for series, v := range s.of(name, labels...) {
		_, rest, _ := strings.Cut(series, label+`="`)
		value, _, _ := strings.Cut(rest, `"`)
		sums[value] += v
	}
	return sums
}

// perLease returns the series of a scrape that are about single leases.
func (s scrape) perLease() []string {
	return slices.Sorted(maps.Keys(maps.Collect(func(yield func(string, float64) bool) {
		for series, v := range s.series {
			if strings.Contains(series, `lease="`) && !yield(series, v) {
				return
			}
		}
	})))
}

// scrapeUntil scrapes each of the coordinators again and again, until the returned function is called; it returns what
// they served.
func scrapeUntil(ctx context.Context, t testing.TB, coordinators ...*framework.Coordinator) (stop func() map[*framework.Coordinator][]scrape) {
	done := make(chan struct{})
	end := sync.OnceFunc(func() { close(done) })
	var running sync.WaitGroup
	var mu sync.Mutex
	all := map[*framework.Coordinator][]scrape{}
	for _, c := range coordinators {
		running.Go(func() {
			ticker := time.NewTicker(scrapePause)
			defer ticker.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-done:
					return
				case <-ticker.C:
				}
				if s, ok := scrapeOf(ctx, t, c); ok {
					mu.Lock()
					all[c] = append(all[c], s)
					mu.Unlock()
				}
			}
		})
	}
	t.Cleanup(func() { end(); running.Wait() })
	return func() map[*framework.Coordinator][]scrape {
		end()
		running.Wait()
		return all
	}
}

// Through the life of a lease, whatever monitoring is told is what the recorder saw: numbers, durations, who leads, and
// the events that people read.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		cluster := framework.New(t, framework.Options{CoordinatedLeaderElection: flavour == framework.GateOn})
		a := newArenaOn(t, cluster)
		coordinators := startCoordinators(t, a.ctx, a.node, 2, coordinatorArgs(flavour)...)
		active := waitActive(t, a.ctx, coordinators...)
		standby := coordinators[0]
		if standby == active {
			standby = coordinators[1]
		}
		for _, c := range coordinators {
			a.startsAtZero(c)
		}
		stop := scrapeUntil(a.ctx, t, active, standby)

		a.rec.Mark("a first election")
		n37 := a.candidate("n37", "1.37", brisk)
		a.waitLeader("n37", patience)
		spare := a.candidate("spare", "1.37", brisk)
		a.waitCandidate("spare")
		a.rec.Mark("a planned hand-off")
		n36 := a.candidate("n36", "1.36", brisk, func(o *framework.CandidateOptions) { o.ReleaseOnCancel, o.Rejoin = true, false })
		a.waitLeader("n36", patience)
		// A release that comes sooner might be that of n37.
		a.observe(briskLease)
		a.rec.Mark("a graceful exit")
		a.must(n36.Stop(a.ctx))
		a.waitLeader("n37", patience)
		a.observe(2 * lag)
		a.rec.Mark("a crash")
		a.must(n37.Kill(a.ctx))
		a.waitLeader("spare", patience)
		// Until the two that are gone are known to be.
		a.waitScrape(active, "n36 and n37 are suspect", func(s scrape) bool {
			return s.sum("lease_candidates", `state="Suspect"`) == 2 && s.sum("lease_candidates") == 3
		})
		timeline := a.rec.Timeline()
		last, ok := scrapeOf(a.ctx, t, active)
		if !ok {
			t.Fatal("the active coordinator does not serve its metrics")
		}
		scrapes := stop()

		terms := termsOf(timeline, a.lease)
		a.countsAgree(last, timeline)
		a.durationsAgree(last, terms)
		a.gaugesAgree(scrapes[active], terms)
		a.eventsAgree(timeline)
		for _, s := range scrapes[standby] {
			if series := s.perLease(); len(series) > 0 || s.series["active"] != 0 {
				t.Errorf("the standby serves series of single leases, or says that it is active: %q", series)
				break
			}
		}
		for _, s := range scrapes[active] {
			if s.series["active"] != 1 {
				t.Error("the active coordinator says that it is not")
				break
			}
		}

		a.rec.Mark("the lease is given up")
		a.must(spare.Kill(a.ctx))
		a.must(cluster.Client().DeleteAllOf(a.ctx, &coordinationv1beta1.LeaseCandidate{}, client.InNamespace(a.ns)))
		a.must(cluster.Client().DeleteAllOf(a.ctx, &coordinationv1.Lease{}, client.InNamespace(a.ns)))
		a.waitScrape(active, "the gauges of the lease are gone", func(s scrape) bool {
			return !slices.ContainsFunc(s.perLease(), func(series string) bool { return strings.HasPrefix(series, "lease_") })
		})
		a.safe()
	})
}

// waitScrape waits until a scrape is as it should be.
func (a *arena) waitScrape(c *framework.Coordinator, what string, cond func(scrape) bool) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	var last scrape
	err := framework.WaitFor(ctx, what, func(ctx context.Context) (bool, error) {
		var ok bool
		last, ok = scrapeOf(ctx, a, c)
		return ok && cond(last), nil
	})
	if err != nil {
		a.Fatalf("%v; %s serves of leases: %v", err, c.Name(), last.perLease())
	}
}

// startsAtZero asserts that a coordinator that has done nothing says so, rather than nothing.
func (a *arena) startsAtZero(c *framework.Coordinator) {
	a.Helper()
	s, ok := scrapeOf(a.ctx, a, c)
	if !ok {
		a.Fatalf("%s does not serve its metrics", c.Name())
	}
	zero := func(name, label string, values ...string) {
		a.Helper()
		want := map[string]float64{}
		for _, v := range values {
			want[v] = 0
		}
		if got := s.by(name, label); !maps.Equal(got, want) {
			a.Errorf("%s starts with %s %v, want %v", c.Name(), name, got, want)
		}
	}
	zero("decisions_total", "action", "Ping", "Appoint", "Prefer", "ClearPreferred", "Revoke", "Restore", "Collect")
	zero("failures_total", "reason", observe.FailureConflict, observe.FailureForbidden, observe.FailureError)
	zero("configuration_reloads_total", "result", observe.ReloadSuccess, observe.ReloadFailure)
	zero("strategy_failures_total", "strategy",
		string(v1alpha1.OldestEmulationVersion), string(v1alpha1.NewestBinaryVersion), string(v1alpha1.Spread), string(v1alpha1.Sticky))
	for _, name := range []string{"election", "take_up", "leaderless", "hand_off"} {
		if n, ok := s.series[name+"_duration_seconds_count"]; !ok || n != 0 {
			a.Errorf("%s starts with %s_duration_seconds_count %v, %t", c.Name(), name, n, ok)
		}
	}
	if series := s.perLease(); len(series) > 0 {
		a.Errorf("%s starts with series of single leases: %q", c.Name(), series)
	}
}

// leaseTerm is how one leader came to lead, by what was written to the lease.
type leaseTerm struct {
	holder string
	// change is set if another one led before.
	change bool
	// reason is why the lease was vacant.
	reason election.Reason
	// ended is when the one before was told to yield; zero if it was not.
	ended time.Time
	// vacant is when the lease became so, appointed when the leader was last appointed, and takenUp when it took up.
	vacant, appointed, takenUp time.Time
}

// termsOf returns how the leaders of a lease of brisk candidates came to lead.
func termsOf(t framework.Timeline, lease string) []leaseTerm {
	var terms []leaseTerm
	next := leaseTerm{reason: election.ReasonNoLease}
	holder := ""
	var claimEnd time.Time
	for _, e := range t.Of(lease) {
		switch e.Kind {
		case framework.CandidateCreated:
			if len(terms) == 0 && next.vacant.IsZero() {
				next.vacant = e.Time
			}
		case framework.LeasePreferred, framework.LeaseRevoked:
			next.reason, next.ended = election.ReasonTermEnded, e.Time
		case framework.LeaseReleased:
			next.reason, next.vacant = election.ReasonReleased, e.Time
		case framework.LeaseAppointed:
			if next.reason == "" {
				next.reason = election.ReasonExpired
			}
			if next.vacant.IsZero() {
				next.vacant = claimEnd
			}
			next.holder, next.change, next.appointed = e.Subject, holder != e.Subject, e.Time
		case framework.LeaseTakenUp:
			next.takenUp, holder, claimEnd = e.Time, next.holder, e.Time.Add(briskLease)
			terms = append(terms, next)
			next = leaseTerm{}
		case framework.LeaseRenewed:
			claimEnd = e.Time.Add(briskLease)
		}
	}
	return terms
}

// countsAgree asserts that the counters say what the recorder saw.
func (a *arena) countsAgree(s scrape, t framework.Timeline) {
	a.Helper()
	byKind := framework.Count(slices.DeleteFunc(t.Of(a.lease), func(e framework.Event) bool { return e.WriterKind != framework.CoordinatorKind }))
	reasons := map[string]float64{}
	var skewed float64
	for _, term := range termsOf(t, a.lease) {
		if term.change {
			reasons[string(term.reason)]++
		}
		// The older one leads although n37 might.
		if term.holder == "n36" {
			skewed++
		}
	}
	a.Logf("changes of leader by reason: %v; writes of the coordinator: %v", reasons, byKind)
	if got := s.by("leader_changes_total", "reason", a.labels()...); !maps.Equal(got, reasons) {
		a.Errorf("leader_changes_total by reason %v, the recorder saw %v", got, reasons)
	}
	if got := s.sum("skew_preventions_total", a.labels()...); got != skewed {
		a.Errorf("skew_preventions_total %v, the recorder saw %v", got, skewed)
	}
	preemptions := map[string]float64{}
	decisions := map[string]float64{}
	for action, kind := range map[election.Action]framework.EventKind{
		election.Appoint:        framework.LeaseAppointed,
		election.Prefer:         framework.LeasePreferred,
		election.Revoke:         framework.LeaseRevoked,
		election.ClearPreferred: framework.LeasePreferenceCleared,
	} {
		n := float64(byKind[kind])
		decisions[string(action)] = n
		if n > 0 && (action == election.Prefer || action == election.Revoke) {
			preemptions[string(action)] = n
		}
	}
	if got := s.by("leader_preemptions_total", "action", a.labels()...); !maps.Equal(got, preemptions) {
		a.Errorf("leader_preemptions_total %v, the recorder saw %v", got, preemptions)
	}
	got := s.by("decisions_total", "action")
	// One decision pings several candidates, if need be.
	if n := got[string(election.Ping)]; n == 0 || n > float64(byKind[framework.CandidatePinged]) {
		a.Errorf("%v decisions to ping, the recorder saw %d pings", n, byKind[framework.CandidatePinged])
	}
	delete(got, string(election.Ping))
	decisions[string(election.Restore)], decisions[string(election.Collect)] = 0, 0
	if !maps.Equal(got, decisions) {
		a.Errorf("decisions_total %v, the recorder saw %v", got, decisions)
	}
	if n := s.sum("failures_total", `reason="error"`) + s.sum("failures_total", `reason="forbidden"`); n != 0 {
		a.Errorf("%v writes failed", n)
	}
}

// labels returns those of a.lease.
func (a *arena) labels() []string {
	namespace, lease, _ := strings.Cut(a.lease, "/")
	return []string{fmt.Sprintf("namespace=%q", namespace), fmt.Sprintf("lease=%q", lease)}
}

// durationsAgree asserts that the histograms say what the recorder saw.
func (a *arena) durationsAgree(s scrape, terms []leaseTerm) {
	a.Helper()
	for name, of := range map[string]func(leaseTerm) (from, to time.Time){
		"election":   func(t leaseTerm) (time.Time, time.Time) { return t.vacant, t.appointed },
		"take_up":    func(t leaseTerm) (time.Time, time.Time) { return t.appointed, t.takenUp },
		"leaderless": func(t leaseTerm) (time.Time, time.Time) { return t.vacant, t.takenUp },
		"hand_off":   func(t leaseTerm) (time.Time, time.Time) { return t.ended, t.takenUp },
	} {
		var n, sum float64
		for _, t := range terms {
			if from, to := of(t); !from.IsZero() {
				n++
				sum += to.Sub(from).Seconds()
			}
		}
		count, total := s.series[name+"_duration_seconds_count"], s.series[name+"_duration_seconds_sum"]
		a.Logf("%s: %v times, %.3f s; the recorder saw %v times, %.3f s", name, count, total, n, sum)
		if count != n || total < sum-n*lag.Seconds() || total > sum+n*lag.Seconds() {
			a.Errorf("%s_duration_seconds: %v times, %v s in all; the recorder saw %v times, %v s", name, count, total, n, sum)
		}
		if inf := s.sum(name+"_duration_seconds_bucket", `le="+Inf"`); inf != count {
			a.Errorf("%s_duration_seconds has %v in its buckets, and counts %v", name, inf, count)
		}
	}
}

// gaugesAgree asserts that, at every scrape, the gauges of the lease said who led, and that nobody did while nobody did.
func (a *arena) gaugesAgree(scrapes []scrape, terms []leaseTerm) {
	a.Helper()
	checked, gaps := 0, 0
	said := map[string]bool{}
	// fault tells of each kind of fault once: what is wrong is so in many scrapes.
	fault := func(s scrape, format string, args ...any) {
		a.Helper()
		if !said[format] {
			a.Errorf("at %s: "+format, append([]any{s.Start.Sub(terms[0].vacant).Round(time.Millisecond)}, args...)...)
		}
		said[format] = true
	}
	for _, s := range scrapes {
		if n := len(s.of("lease_led", a.labels()...)); n != 1 {
			if n > 1 || s.Start.After(terms[0].takenUp) {
				fault(s, "%d series lease_led", n)
			}
			continue
		}
		checked++
		led := s.sum("lease_led", a.labels()...) == 1
		holders := s.by("lease_holder_info", "holder", a.labels()...)
		since := s.sum("lease_seconds_since_renewal", a.labels()...)
		switch {
		case led && len(holders) != 1, !led && len(holders) != 0:
			fault(s, "lease_led is %t, lease_holder_info names %v", led, holders)
		case led && since >= briskLease.Seconds():
			fault(s, "led by a renewal %v s ago", since)
		case led && len(s.of("lease_holder_info", fmt.Sprintf("strategy=%q", v1alpha1.OldestEmulationVersion))) != 1:
			fault(s, "led by another strategy: %v", s.of("lease_holder_info"))
		}
		if blocked := s.sum("lease_blocked", a.labels()...); blocked != 0 {
			fault(s, "lease_blocked is %v", blocked)
		}
		for i, t := range terms {
			// The coordinator learns of what happens later than the API server, never earlier.
			if s.Start.After(t.vacant.Add(lag)) && s.End.Before(t.takenUp) && led {
				fault(s, "said to be led by %v; nobody did from %s to %s", holders, t.vacant.Sub(terms[0].vacant), t.takenUp.Sub(terms[0].vacant))
			}
			end := s.End.Add(1)
			if i+1 < len(terms) {
				end = terms[i+1].vacant
			}
			if s.Start.After(t.takenUp.Add(lag)) && s.End.Before(end) && holders[t.holder] != 1 {
				fault(s, "said to be led by %v; it was by %s, from %s on", holders, t.holder, t.takenUp.Sub(terms[0].vacant))
			}
		}
	}
	for _, t := range terms {
		inGap := slices.ContainsFunc(scrapes, func(s scrape) bool {
			return s.Start.After(t.vacant) && s.End.Before(t.takenUp) && len(s.of("lease_led", a.labels()...)) == 1 && s.sum("lease_led", a.labels()...) == 0
		})
		if inGap {
			gaps++
		}
	}
	// A busy machine may leave no scrape within a short gap, but not within all of them.
	if gaps == 0 {
		a.Errorf("no scrape shows that nobody led before any of %d terms", len(terms))
	}
	a.Logf("%d scrapes in %s show the lease, %d of %d times without a leader", checked, scrapes[len(scrapes)-1].End.Sub(scrapes[0].Start).Round(time.Millisecond), gaps, len(terms))
}

// eventsAgree asserts that there is one event for each change that the recorder saw, and none besides.
func (a *arena) eventsAgree(t framework.Timeline) {
	a.Helper()
	byKind := framework.Count(slices.DeleteFunc(t.Of(a.lease), func(e framework.Event) bool { return e.WriterKind != framework.CoordinatorKind }))
	want := map[string]int{}
	for reason, kind := range map[string]framework.EventKind{
		observe.EventLeaderAppointed: framework.LeaseAppointed,
		observe.EventTermEnded:       framework.LeasePreferred,
		observe.EventLeaseRevoked:    framework.LeaseRevoked,
		observe.EventTermContinued:   framework.LeasePreferenceCleared,
	} {
		if n := byKind[kind]; n > 0 {
			want[reason] = n
		}
	}
	ctx, cancel := context.WithTimeout(a.ctx, soon)
	defer cancel()
	var list eventsv1.EventList
	got := map[string]int{}
	err := framework.WaitFor(ctx, fmt.Sprintf("the events %v", want), func(ctx context.Context) (bool, error) {
		if err := a.cluster.Client().List(ctx, &list, client.InNamespace(a.ns)); err != nil {
			return false, err
		}
		got = map[string]int{}
		for _, e := range list.Items {
			got[e.Reason]++
			if e.Series != nil || e.Regarding.Name != "l" || e.ReportingController != "lease-coordinator" {
				return false, fmt.Errorf("an event was repeated, or is about something else")
			}
		}
		return maps.Equal(got, want), nil
	})
	if err != nil {
		a.Errorf("%v; there are:%s", err, describeEvents(list.Items))
	}
}

// A dry run decides, counts and logs as ever, and writes nothing; what it counts of leases that are gone is forgotten.
func TestMonitoringDryRun(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{})
	a := newArenaOn(t, cluster)
	c := startCoordinators(t, a.ctx, a.node, 1, "--dry-run")[0]

	a.rec.Mark("a first election")
	n37 := a.candidate("n37", "1.37", brisk, func(o *framework.CandidateOptions) { o.ReleaseOnCancel, o.Rejoin = true, false })
	a.waitScrape(c, "an appointment is counted", func(s scrape) bool { return s.sum("leader_changes_total", `reason="NoLease"`) == 1 })
	// Somebody else does what the coordinator would.
	now := metav1.NowMicro()
	a.must(cluster.Client().Create(a.ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: "l"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("n37"), LeaseDurationSeconds: new(int32(15)), AcquireTime: &now, RenewTime: &now,
		},
	}))
	a.waitLeader("n37", patience)
	a.waitScrape(c, "n37 is said to lead", func(s scrape) bool { return s.sum("lease_led") == 1 && s.sum("lease_holder_info", `holder="n37"`) == 1 })
	a.rec.Mark("a better candidate")
	a.candidate("n36", "1.36", brisk)
	a.waitScrape(c, "the end of a term is counted", func(s scrape) bool { return s.sum("leader_preemptions_total", `action="Revoke"`) == 1 })
	a.rec.Mark("a graceful exit")
	before, _ := scrapeOf(a.ctx, t, c)
	a.must(n37.Stop(a.ctx))
	a.waitScrape(c, "another decision is counted", func(s scrape) bool {
		// It depends on how long ago n36 came whether it is asked for a sign of life first.
		return s.sum("lease_led") == 0 && s.sum("decisions_total") > before.sum("decisions_total")
	})

	a.rec.Mark("leases come and go")
	leases := a.restlessLeases(40)
	a.waitScrape(c, "each of them is counted", func(s scrape) bool { return s.sum("leader_changes_total", `lease="restless-`) == float64(len(leases)) })
	a.must(cluster.Client().DeleteAllOf(a.ctx, &coordinationv1beta1.LeaseCandidate{}, client.InNamespace(a.ns)))
	var left int
	a.waitScrape(c, "most of them are forgotten", func(s scrape) bool {
		left = len(s.of("leader_changes_total"))
		return left <= 20 && len(s.of("lease_led")) == 0
	})
	t.Logf("%d of %d leases that are gone are still counted", left, len(leases)+1)

	a.waitLog(c, 3, "Decision not carried out: dry run", a.lease)
	for _, e := range a.rec.Timeline().ByCoordinators() {
		t.Errorf("the dry run wrote: %s %s %s", e.Object, e.Kind, e.Detail)
	}
}
