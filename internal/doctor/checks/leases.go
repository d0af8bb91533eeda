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

package checks

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
)

// longClaim is a lease duration that makes failovers long.
const longClaim = 5 * time.Minute

var (
	leaseExcluded = &Outcome{
		ID: "lease-excluded", Severity: Warning,
		When:    "Candidates name a Lease that is never coordinated: one in kube-node-lease, the in-tree coordinator's lock, or the coordinator's own.",
		Follows: "None of them is ever appointed.",
		Mend:    "Give the candidates a lease of their own.",
	}
	leaseNameInvalid = &Outcome{
		ID: "lease-name-invalid", Severity: Error,
		When:    "Candidates name a Lease that cannot exist: names are lower-case DNS subdomains of at most 253 characters.",
		Follows: "The API server refuses the Lease, so nobody ever leads.",
		Mend:    "Correct the lease's name where the candidates are configured. spec.leaseName cannot be changed, so delete their objects: `kubectl -n NAMESPACE delete RESOURCE SUBJECT`.",
	}

	leaseNobody = &Outcome{
		ID: "lease-no-live-candidate", Severity: Warning,
		When:    "No candidate of a lease may lead and answers: they have not renewed within the candidate TTL, were asked and did not answer, are marked never to lead, or cannot be ranked.",
		Follows: "If its leader ends, nobody is appointed.",
		Mend:    "See why each does not count: `coordinator explain -n NAMESPACE NAME`. Start the candidates, or delete the objects of those that are gone for good.",
	}
	leaseVacant = &Outcome{
		ID: "lease-vacant", Severity: Error,
		When:    "Candidates wait, but nobody leads: the claim on the lease ran out, or there never was one, and nobody was appointed for longer than an election takes.",
		Follows: "The work that the lease guards is not done.",
		Mend:    "See whether a coordinator is active (above), and what it would do: `coordinator explain -n NAMESPACE NAME`.",
	}

	strategyConflict = &Outcome{
		ID: "strategy-conflict", Severity: Error,
		When:    "The candidates of the highest binary version ask for different strategies.",
		Follows: "The lease is left alone until they agree: a leader that ends is replaced by nobody.",
		Mend:    "Have all candidates of that version ask for one strategy. Until then: `kubectl -n NAMESPACE annotate lease NAME lease-coordinator.dev/strategy-override=STRATEGY`, or `--lease-strategy` on the coordinator.",
	}
	strategyForeign = &Outcome{
		ID: "strategy-foreign", Severity: Warning,
		When:    "The candidates ask for a strategy that this coordinator does not have, or has turned off.",
		Follows: "The lease is left to whoever implements that strategy.",
		Mend:    "Correct its name where the candidates are configured, enable it with `--strategies`, or give the coordinator's `--config` here.",
	}

	kindsMixed = &Outcome{
		ID: "kinds-mixed", Severity: Note,
		When:    "A lease has native candidates and ours.",
		Follows: "They compete as one, as is meant for a migration. The in-tree coordinator sees the native ones only.",
		Mend:    "Nothing, while candidates are moved from one kind to the other.",
	}
	leaseShared = &Outcome{
		ID: "lease-shared", Severity: Warning,
		When:    "Candidates of two workloads seem to compete for one lease. Told by their labels app.kubernetes.io/name and app.kubernetes.io/instance where all have them, or else by the programs that write them and by the Deployments in the names of their Pods.",
		Follows: "One workload leads and the other stands still, for as long as both run.",
		Mend:    "Give each workload a lease name of its own. If they are one workload in two parts on purpose, give both the same labels app.kubernetes.io/name and app.kubernetes.io/instance.",
	}

	holderUncoordinated = &Outcome{
		ID: "holder-uncoordinated", Severity: Warning,
		When:    "A lease that has candidates is held by somebody who is none.",
		Follows: "An instance with plain leader election holds it, and is left alone until it stops renewing. The candidates wait.",
		Mend:    "Turn coordinated leader election on for that instance, or stop it. In the middle of a migration: nothing.",
	}

	timingNone = &Outcome{
		ID: "timing-no-duration", Severity: Note,
		When:    "The holder's claim states no duration, or was never renewed.",
		Follows: "It is honoured for 15 s from when the coordinator first sees it.",
		Mend:    "Have the holder write leaseDurationSeconds and renewTime.",
	}
	timingShort = &Outcome{
		ID: "timing-short", Severity: Warning,
		When:    "The holder's lease duration is not longer than the election duration.",
		Follows: "The successor cannot be known when the claim runs out, since candidates may take an election duration to answer. Failovers take longer than they have to, and one slow request ends a term.",
		Mend:    "Lengthen the candidates' lease duration (15 s is usual), or shorten `--election-duration` to somewhat more than one round trip of the slowest candidate.",
	}
	timingLong = &Outcome{
		ID: "timing-long", Severity: Note,
		When:    "The holder's lease duration is longer than five minutes.",
		Follows: "When a leader crashes nobody leads for that long.",
		Mend:    "Shorten the candidates' lease duration, unless it is meant to be so.",
	}
	timingTakeUp = &Outcome{
		ID: "timing-take-up", Severity: Warning,
		When:    "`--take-up-timeout` is shorter than a third of the lease duration that the holder wrote.",
		Follows: "Candidates that poll at the usual fraction of their lease duration may see their appointment too late, and are passed over.",
		Mend:    "Leave `--take-up-timeout` out: then it is a third of the lease duration.",
	}

	leasePaused = &Outcome{
		ID: "lease-paused", Severity: Note,
		When:    "A Lease has the annotation lease-coordinator.dev/paused.",
		Follows: "It is observed only: a leader that ends is replaced by nobody.",
		Mend:    "When it is no longer needed: `kubectl -n NAMESPACE annotate lease NAME lease-coordinator.dev/paused-`.",
	}
	leasePreemption = &Outcome{
		ID: "lease-preemption-never", Severity: Note,
		When:    "A Lease has the annotation lease-coordinator.dev/preemption=never.",
		Follows: "A healthy leader stays, whoever ranks above it.",
		Mend:    "When it is no longer needed: `kubectl -n NAMESPACE annotate lease NAME lease-coordinator.dev/preemption-`.",
	}
	leaseOverride = &Outcome{
		ID: "lease-strategy-override", Severity: Note,
		When:    "A Lease has the annotation lease-coordinator.dev/strategy-override.",
		Follows: "It is led by that strategy, whatever its candidates ask for, unless the coordinator's own settings say otherwise.",
		Mend:    "When it is no longer needed: `kubectl -n NAMESPACE annotate lease NAME lease-coordinator.dev/strategy-override-`.",
	}
	leaseAnnotation = &Outcome{
		ID: "lease-annotation-invalid", Severity: Warning,
		When:    "An annotation of ours on a Lease has a value that is not valid.",
		Follows: "It counts as absent.",
		Mend:    "Correct it, or remove it: `kubectl -n NAMESPACE annotate lease NAME ANNOTATION-`.",
	}
)

var leaseChecks = []Check{
	{ID: "elections", Question: "Which leases have candidates, and could all of them be read?", run: checkElections},
	{ID: "lease-names", Question: "Do candidates name leases that can be coordinated?", Outcomes: []*Outcome{leaseExcluded, leaseNameInvalid}, run: eachContest((*examination).checkName)},
	{ID: "leaders", Question: "Has every lease that has candidates a leader, and somebody to succeed it?", Outcomes: []*Outcome{leaseNobody, leaseVacant}, run: eachContest((*examination).checkLeader)},
	{ID: "strategies", Question: "Do the candidates of a lease agree on a strategy that the coordinator has?", Outcomes: []*Outcome{strategyConflict, strategyForeign}, run: eachContest((*examination).checkStrategy)},
	{ID: "shared-leases", Question: "Are the candidates of a lease of one kind, and of one workload?", Outcomes: []*Outcome{kindsMixed, leaseShared}, run: eachContest((*examination).checkShared)},
	{ID: "holders", Question: "Is the holder of a lease one of its candidates?", Outcomes: []*Outcome{holderUncoordinated}, run: eachContest((*examination).checkHolder)},
	{ID: "timing", Question: "Do the durations of a lease fit the coordinator's? A holder's renew deadline and retry period, and how long candidates take to answer, leave no trace that could be checked.", Outcomes: []*Outcome{timingNone, timingShort, timingLong, timingTakeUp}, run: eachContest((*examination).checkTiming)},
	{ID: "lease-annotations", Question: "What have operators set on leases?", Outcomes: []*Outcome{leasePaused, leasePreemption, leaseOverride, leaseAnnotation}, run: eachContest((*examination).checkLeaseAnnotations)},
}

// unread returns why leases with candidates are not known; "" if they are.
func (x *examination) unread() string {
	if x.Candidates.Unknown != "" {
		return x.Candidates.Unknown
	}
	return x.Leases.Unknown
}

func checkElections(x *examination, f *findings) {
	if why := x.unread(); why != "" {
		f.unchecked(cluster, why)
		return
	}
	where := ""
	for _, only := range []string{x.Candidates.Only, x.Leases.Only} {
		if only != "" {
			where = only
		}
	}
	found := plural(len(x.contests), "lease") + " with " + plural(len(x.Candidates.List), "candidate")
	if where != "" {
		f.unchecked(cluster, fmt.Sprintf("namespaces other than %q, which you may not read; in it: %s", where, found))
		return
	}
	f.fine(found)
}

// eachContest is a check of all leases that have candidates.
func eachContest(check func(*examination, *contest, *findings)) func(*examination, *findings) {
	return func(x *examination, f *findings) {
		if why := x.unread(); why != "" {
			f.unchecked(cluster, why)
			return
		}
		for i := range x.contests {
			check(x, &x.contests[i], f)
		}
		if len(f.list) == 0 {
			f.fine(plural(len(x.contests), "lease"))
		}
	}
}

func (x *examination) checkName(c *contest, f *findings) {
	if faults := validation.IsDNS1123Subdomain(c.key.Name); len(faults) > 0 {
		by := names(c.candidates)
		f.add(leaseNameInvalid, c.about(), fmt.Sprintf("named by %s: %s", few(by), strings.Join(faults, "; ")),
			values{"SUBJECT": strings.Join(by, " "), "RESOURCE": c.candidates[0].Resource})
		return
	}
	if !c.excluded {
		return
	}
	why := "the lock of a coordinator"
	if c.key.Namespace == corev1.NamespaceNodeLease {
		why = "a Lease of a node"
	}
	f.add(leaseExcluded, c.about(), fmt.Sprintf("%s, named by %s", why, few(names(c.candidates))))
}

// coordinable reports whether the lease is one that is coordinated at all.
func (c *contest) coordinable() bool {
	return !c.excluded && len(validation.IsDNS1123Subdomain(c.key.Name)) == 0
}

func names(candidates []Candidate) []string {
	var list []string
	for _, c := range candidates {
		list = append(list, c.Name)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (c *contest) annotation(name string) string {
	if c.lease == nil {
		return ""
	}
	return c.lease.Annotations[name]
}

func (x *examination) checkLeader(c *contest, f *findings) {
	if !c.coordinable() {
		return
	}
	live := c.live()
	if live == 0 {
		var why []string
		for _, s := range c.standings {
			reason := s.Inadmissible
			if s.State == election.StateSuspect {
				reason = "did not answer a ping"
			}
			why = append(why, s.Name+" "+reason)
		}
		f.add(leaseNobody, c.about(), few(why))
	}
	if c.stop == election.ReasonForeignStrategy || live == 0 {
		return
	}
	// From the end of the last claim, or from when there were candidates: an election, and its appointee's time to take
	// up.
	patience := x.Settings.ElectionDuration + election.MaxTakeUp
	if c.claim.Holder != "" && c.claim.Holder != v1alpha1.RevokedHolder {
		if over := x.Now.Sub(c.claim.End()); over > patience {
			f.add(leaseVacant, c.about(), fmt.Sprintf("the claim of %s ran out %s ago, and %s", c.claim.Holder, seconds(over), waiting(live)))
		}
		return
	}
	since := x.youngest(c)
	if c.lease != nil && c.lease.Spec.RenewTime != nil {
		if renewed := leaseByServerClock(c.lease).Spec.RenewTime.Time; renewed.After(since) {
			since = renewed
		}
	}
	if waited := x.Now.Sub(since); waited > patience {
		f.add(leaseVacant, c.about(), fmt.Sprintf("nobody has held it for %s, and %s", seconds(waited), waiting(live)))
	}
}

func waiting(n int) string {
	if n == 1 {
		return "1 candidate waits"
	}
	return plural(n, "candidate") + " wait"
}

// youngest returns when the last of the candidates was created.
func (x *examination) youngest(c *contest) time.Time {
	var last time.Time
	for _, candidate := range c.candidates {
		if candidate.Created.After(last) {
			last = candidate.Created
		}
	}
	return last
}

func (x *examination) checkStrategy(c *contest, f *findings) {
	if !c.coordinable() {
		return
	}
	switch c.stop {
	case election.ReasonStrategyConflict:
		asked := map[string][]Candidate{}
		for _, candidate := range c.candidates {
			asked[string(candidate.Strategy)] = append(asked[string(candidate.Strategy)], candidate)
		}
		var parts []string
		for _, s := range slices.Sorted(maps.Keys(asked)) {
			parts = append(parts, fmt.Sprintf("%s: %s", few(names(asked[s])), s))
		}
		f.add(strategyConflict, c.about(), strings.Join(parts, "; "))
	case election.ReasonForeignStrategy:
		f.add(strategyForeign, c.about(), fmt.Sprintf("%q; there are %s", c.strategy, few(strategyNames(x.Settings))))
	}
}

func strategyNames(s *election.Settings) []string {
	var list []string
	for _, name := range s.Strategies.Names() {
		list = append(list, string(name))
	}
	return list
}

func (x *examination) checkShared(c *contest, f *findings) {
	if !c.coordinable() {
		return
	}
	kinds := map[string]int{}
	var present []Candidate
	for _, candidate := range c.candidates {
		if x.Now.Sub(candidate.byServerClock().Renewed) > x.Settings.CandidateTTL {
			// What is left of a former workload competes with nobody.
			continue
		}
		kinds[candidate.Resource]++
		present = append(present, candidate)
	}
	if len(kinds) > 1 {
		var parts []string
		for _, resource := range slices.Sorted(maps.Keys(kinds)) {
			parts = append(parts, fmt.Sprintf("%d %s", kinds[resource], resource))
		}
		f.add(kindsMixed, c.about(), strings.Join(parts, ", "))
	}
	if by := workloads(present); by != "" {
		f.add(leaseShared, c.about(), by)
	}
}

// workloads says, for people, by what candidates seem to be of several workloads; "" if they do not.
//
// Labels are somebody's word, and settle it where all candidates have them. Next are the programs that registered the
// candidates, by the names that they give themselves. Last come the Deployments in names "<deployment>-<hash>-<pod>_<id>";
// one that starts with the other's name is taken for its canary.
func workloads(candidates []Candidate) string {
	const name, instance = "app.kubernetes.io/name", "app.kubernetes.io/instance"
	labelled := map[string][]Candidate{}
	programs := map[string][]Candidate{}
	deployments := map[string][]Candidate{}
	for _, c := range candidates {
		if c.Labels[name] != "" {
			text := c.Labels[name]
			if i := c.Labels[instance]; i != "" {
				text += " (instance " + i + ")"
			}
			labelled[text] = append(labelled[text], c)
		}
		if program, _ := writer(c.Managed, "spec", "leaseName"); program != "" && program != libraryProgram {
			programs[program] = append(programs[program], c)
		}
		if m := podOfDeployment.FindStringSubmatch(c.Name); m != nil {
			deployments[m[1]] = append(deployments[m[1]], c)
		}
	}
	all := func(of map[string][]Candidate) bool {
		n := 0
		//ordered: only counted
		for _, list := range of {
			n += len(list)
		}
		return n == len(candidates)
	}
	tell := func(of map[string][]Candidate, by string) string {
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(of)) {
			parts = append(parts, fmt.Sprintf("%s: %s", key, few(names(of[key]))))
		}
		return by + " " + strings.Join(parts, "; ")
	}
	switch {
	case all(labelled):
		if len(labelled) > 1 {
			return tell(labelled, "by label")
		}
		return ""
	case len(labelled) > 1:
		return tell(labelled, "by label, where there is one:")
	case all(programs) && len(programs) > 1:
		return tell(programs, "by program")
	case all(deployments) && len(deployments) > 1:
		keys := slices.Sorted(maps.Keys(deployments))
		for _, key := range keys[1:] {
			if !strings.HasPrefix(key, keys[0]) {
				return tell(deployments, "by the names of Pods")
			}
		}
	}
	return ""
}

// libraryProgram is what pkg/candidate calls itself, whatever the program. It says nothing about who uses it.
const libraryProgram = "lease-coordinator-candidate"

// podOfDeployment matches the name that a Pod of a Deployment gives itself as a candidate: the ReplicaSet's hash and the
// Pod's own part have no vowels, so that they are no words.
var podOfDeployment = regexp.MustCompile(`^(.+)-[bcdfghjklmnpqrstvwxz2456789]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}(_.*)?$`)

func (x *examination) checkHolder(c *contest, f *findings) {
	holder := c.claim.Holder
	if !c.coordinable() || holder == "" || holder == v1alpha1.RevokedHolder || !x.Now.Before(c.claim.End()) {
		return
	}
	if slices.ContainsFunc(c.candidates, func(candidate Candidate) bool { return candidate.Name == holder }) {
		return
	}
	f.add(holderUncoordinated, c.about(), fmt.Sprintf("held by %s, who is none of %s", holder, few(names(c.candidates))))
}

func (x *examination) checkTiming(c *contest, f *findings) {
	if !c.coordinable() || c.claim.Holder == "" || c.claim.Holder == v1alpha1.RevokedHolder {
		return
	}
	spec := c.lease.Spec
	if spec.RenewTime == nil || spec.LeaseDurationSeconds == nil || *spec.LeaseDurationSeconds <= 0 {
		f.add(timingNone, c.about(), c.claim.Holder+" states no duration, or never renewed")
		return
	}
	d := c.holderDuration
	if d == 0 {
		// The duration of an appointment is the take-up limit.
		return
	}
	if d <= x.Settings.ElectionDuration {
		f.add(timingShort, c.about(), fmt.Sprintf("%s holds it for %s at a time, with an election duration of %s", c.claim.Holder, seconds(d), seconds(x.Settings.ElectionDuration)))
	}
	if d > longClaim {
		f.add(timingLong, c.about(), fmt.Sprintf("%s holds it for %s at a time", c.claim.Holder, seconds(d)))
	}
	if t := x.Settings.TakeUpTimeout; t > 0 && t < d/3 {
		f.add(timingTakeUp, c.about(), fmt.Sprintf("--take-up-timeout is %s, a third of the lease duration is %s", seconds(t), seconds(d/3)))
	}
}

func (x *examination) checkLeaseAnnotations(c *contest, f *findings) {
	if c.annotation(v1alpha1.PausedAnnotation) == v1alpha1.PausedTrue {
		f.add(leasePaused, c.about(), "paused")
	}
	if c.annotation(v1alpha1.PreemptionAnnotation) == v1alpha1.PreemptionNever {
		f.add(leasePreemption, c.about(), "preemption never")
	}
	for _, warning := range c.warnings {
		f.add(leaseAnnotation, c.about(), warning)
	}
	if s := c.annotation(v1alpha1.StrategyOverrideAnnotation); s != "" && slices.Contains(strategyNames(x.Settings), s) {
		f.add(leaseOverride, c.about(), s)
	}
}
