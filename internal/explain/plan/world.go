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

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/explain"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

const (
	// defaultLease is client-go's lease duration, for leaders that have not shown theirs. An elector renews and polls
	// pollsPerLease times within it (every 2 s of 15 s), and gives up after two thirds of it.
	defaultLease  = 15 * time.Second
	pollsPerLease = 7.5

	// quiet is how long nothing must have happened, where nothing more is due, before a step counts as over. It covers
	// the time after which candidates whose strategies differ are asked whether they are still there.
	quiet = 2 * time.Minute

	// mostDecisions bounds the decisions at one instant. No rule needs as many for one candidate as this allows.
	mostDecisions = 50
)

// world plays the processes of all candidates, and one coordinator.
type world struct {
	view    *explain.View
	options Options
	now     time.Time
	leases  []*lease // those that are planned, in order
	byKey   map[types.NamespacedName]*lease
	timers  []timer
	sequence,
	// version is the newest resourceVersion.
	version uint64
	// active is when something last happened.
	active time.Time
	// plan and step are what is being played.
	plan *Plan
	step *StepResult
}

type timer struct {
	at       time.Time
	sequence uint64
	fire     func()
}

// lease is one lease, and the processes behind its candidates.
type lease struct {
	*election.Snapshot
	name      string
	processes []*process
	next      time.Time // when the coordinator looks again; zero for never
	dirty     bool
	decision  election.Decision
	by        coordinationv1.CoordinatedLeaseStrategy
	// leader is who leads; nil for nobody.
	leader *process
	// last is who led or was appointed last, by name; "" for nobody.
	last   string
	skewed *Skew
}

// process is what is behind a candidate, or behind a holder that is none.
type process struct {
	name, node string
	alive      bool
	// plain is set for a holder that is no candidate.
	plain bool
	// leads is set while it renews the lease, at polledAt and from then on with each poll.
	leads    bool
	polledAt time.Time
	duration time.Duration
	// terms counts the ends and continuations of its terms.
	terms int
	// incarnation counts the processes that came one after another, and base is what they are called after.
	incarnation int
	base        string
	// binary and emulation are for people.
	binary, emulation strategy.Version
	candidate         *strategy.Candidate
}

func newWorld(view *explain.View, keys []types.NamespacedName, o Options) *world {
	w := &world{view: view, options: o, now: view.Now, active: view.Now, byKey: map[types.NamespacedName]*lease{}, version: 1}
	for _, key := range keys {
		s := view.Snapshots[key]
		if s.Lease != nil {
			// What is written to it must not change what others hold.
			s.Lease = s.Lease.DeepCopy()
			if v, err := strconv.ParseUint(s.Lease.ResourceVersion, 10, 63); err == nil {
				w.version = max(w.version, v)
			}
		}
		l := &lease{Snapshot: s, name: key.String(), dirty: true}
		for i := range s.Candidates {
			c := &s.Candidates[i]
			l.processes = append(l.processes, &process{
				name: c.Name, node: cmp.Or(c.Node, c.Name), incarnation: 1, base: baseOf(c.Candidate), alive: l.isThere(i),
				binary: c.Binary, emulation: c.Emulation, candidate: c.Candidate,
			})
		}
		w.adoptHolder(l)
		w.leases = append(w.leases, l)
		w.byKey[key] = l
	}
	return w
}

// isThere judges whether there is a process behind a candidate: not if it has expired or has not answered a ping, nor
// if it fell silent before another candidate of its node was created, which is what is left of a process that was
// started again.
func (l *lease) isThere(i int) bool {
	c := &l.Candidates[i]
	if holder := heldBy(l.Lease); holder == c.Name && l.Now.Before(l.Observed.Claim.End()) {
		return true
	}
	o := c.Observed
	switch {
	case c.Renewed.IsZero(), l.Now.Sub(latest(o.Seen, o.Moved)) > l.Settings.CandidateTTL:
		return false
	case !o.Pinged.IsZero() && l.Now.Sub(o.Pinged) >= l.Settings.ElectionDuration:
		return false
	}
	for j := range l.Candidates {
		other := &l.Candidates[j]
		if j != i && c.Node != "" && other.Node == c.Node && c.Renewed.Before(other.Created) {
			return false
		}
	}
	return true
}

// adoptHolder has the present holder go on, if its claim holds.
func (w *world) adoptHolder(l *lease) {
	claim, holder := l.Observed.Claim, heldBy(l.Lease)
	l.last = holder
	if holder == "" || !w.now.Before(claim.End()) {
		return
	}
	p := l.process(holder)
	if p == nil {
		p = &process{name: holder, node: holder, alive: true, plain: true, incarnation: 1}
		l.processes = append(l.processes, p)
	}
	p.duration, p.polledAt = cmp.Or(l.Observed.HolderDuration, claim.Duration), claim.Seen
	switch {
	case l.Observed.Appointment != nil:
		p.duration = cmp.Or(l.Observed.HolderDuration, defaultLease)
		w.after(p.poll(), func() { w.takeUp(l, p) })
	case preferredOf(l.Lease) != "" && !p.plain:
		l.leader = p
		w.yield(l, p)
	default:
		l.leader, p.leads = p, true
	}
}

func (l *lease) process(name string) *process {
	for _, p := range l.processes {
		if p.name == name {
			return p
		}
	}
	return nil
}

func heldBy(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == v1alpha1.RevokedHolder {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func preferredOf(l *coordinationv1.Lease) string {
	if l == nil || l.Spec.PreferredHolder == nil {
		return ""
	}
	return *l.Spec.PreferredHolder
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// baseOf returns what a candidate and its successors are called after: client-go's names are "<host>_<uuid>",
// pkg/candidate's "<host>-<uuid>".
func baseOf(c *strategy.Candidate) string {
	rest, found := strings.CutPrefix(c.Name, c.Node)
	if c.Node != "" && found && (strings.HasPrefix(rest, "_") || strings.HasPrefix(rest, "-") && uuid.Validate(rest[1:]) == nil) {
		return c.Node
	}
	return c.Name
}

func (p *process) poll() time.Duration {
	return time.Duration(float64(p.duration) / pollsPerLease)
}

func (w *world) after(d time.Duration, fire func()) {
	w.sequence++
	w.timers = append(w.timers, timer{w.now.Add(d), w.sequence, fire})
}

// catchUp renews a lease as its leader has done up to now: what happens at every poll needs no event of its own.
func (w *world) catchUp(l *lease) {
	p := l.leader
	if p == nil || !p.leads || l.Lease == nil {
		return
	}
	polls := w.now.Sub(p.polledAt) / p.poll()
	if polls <= 0 {
		return
	}
	p.polledAt = p.polledAt.Add(polls * p.poll())
	w.renew(l, p)
}

func (w *world) renew(l *lease, p *process) {
	renewed := l.Lease.DeepCopy()
	stamp, seconds := metav1.NewMicroTime(p.polledAt), int32(p.duration/time.Second)
	renewed.Spec.RenewTime, renewed.Spec.LeaseDurationSeconds = &stamp, &seconds
	w.put(l, renewed)
	l.Observed.SeeLease(l.Lease, p.polledAt)
}

func (w *world) put(l *lease, after *coordinationv1.Lease) {
	w.version++
	after.ResourceVersion = strconv.FormatUint(w.version, 10)
	l.Lease = after
}

// run plays until nothing more follows, or until that much time has passed. It reports whether nothing more follows.
func (w *world) run() (settled bool, err error) {
	w.active = w.now
	limit := w.now.Add(w.options.Within)
	for {
		if err := w.decide(); err != nil {
			return false, err
		}
		next, due := w.nextEvent()
		resting := len(w.timers) == 0 && !slices.ContainsFunc(w.leases, func(l *lease) bool { return !l.resting() })
		if end := w.active.Add(quiet); resting && (!due || !next.Before(end)) {
			w.now = latest(w.now, end)
			return true, nil
		}
		if !due || next.After(limit) {
			w.now = limit
			return resting, nil
		}
		w.now = latest(w.now, next)
		w.fire()
	}
}

func (w *world) nextEvent() (next time.Time, due bool) {
	consider := func(t time.Time) {
		if !t.IsZero() && (!due || t.Before(next)) {
			next, due = t, true
		}
	}
	for _, t := range w.timers {
		consider(t.at)
	}
	for _, l := range w.leases {
		consider(l.next)
	}
	return next, due
}

// fire has happen what is due, in order.
func (w *world) fire() {
	for {
		first := -1
		for i, t := range w.timers {
			if t.at.After(w.now) {
				continue
			}
			if first < 0 || t.at.Before(w.timers[first].at) || t.at.Equal(w.timers[first].at) && t.sequence < w.timers[first].sequence {
				first = i
			}
		}
		if first < 0 {
			break
		}
		t := w.timers[first]
		w.timers = slices.Delete(w.timers, first, first+1)
		w.active = w.now
		t.fire()
	}
	for _, l := range w.leases {
		if !l.next.IsZero() && !l.next.After(w.now) {
			l.dirty = true
		}
	}
}

// resting reports whether what was decided last may stay so for good, if nothing else happens.
func (l *lease) resting() bool {
	if l.decision.Action != election.None {
		return false
	}
	switch l.decision.Reason {
	case election.ReasonOptimal, election.ReasonPreemptionNever, election.ReasonHolderNotCoordinated, election.ReasonPaused,
		election.ReasonInTree, election.ReasonStrategyConflict, election.ReasonForeignStrategy, election.ReasonExcluded,
		election.ReasonNoCandidates, election.ReasonNoAdmissibleCandidate:
		return true
	}
	return false
}

var errRestless = errors.New("the decisions do not come to rest")

// decide decides on what has changed, carries it out, and so on, until nothing is left to do at this instant.
func (w *world) decide() error {
	for round := 0; ; round++ {
		again := false
		for _, l := range w.leases {
			if !l.dirty {
				continue
			}
			if again = true; round > mostDecisions*(1+len(l.processes)) {
				return fmt.Errorf("lease %s at %s: %w: last %q", l.name, w.now.UTC().Format(time.RFC3339), errRestless, l.decision.Sentence())
			}
			w.decideOn(l)
		}
		if !again {
			return nil
		}
	}
}

func (w *world) decideOn(l *lease) {
	l.dirty = false
	w.catchUp(l)
	l.Now = w.now
	w.view.Loads.Without(l.Key, func(load strategy.Load) {
		l.Load = load
		l.decision = election.Decide(l.Snapshot)
		l.Load = strategy.Load{}
	})
	d := l.decision
	l.next, l.by = d.LookAgain, d.Strategy
	if !l.next.IsZero() && !l.next.After(w.now) {
		// Never a standstill.
		l.next = w.now.Add(time.Second)
	}
	switch d.Action {
	case election.None:
	case election.Ping:
		w.ping(l, d.Pings)
		w.active, l.dirty = w.now, true
	default:
		before := l.Lease
		w.put(l, d.Write(l.Snapshot, strconv.FormatUint(w.version, 10)))
		l.Observed.Wrote(d, before, l.Lease, w.now)
		w.active, l.dirty = w.now, true
		w.carriedOut(l, d)
	}
	w.weigh(l)
}

// weigh tells the other leases whose ranking depends on it where this one is led.
func (w *world) weigh(l *lease) {
	if !w.view.Weigh(l.Key, l.by) {
		return
	}
	for _, other := range w.leases {
		if _, spreads := l.Settings.Strategies.Get(other.by).(strategy.LoadDependent); spreads && other != l {
			other.dirty = true
		}
	}
}

// ping has those that are there ack at once.
func (w *world) ping(l *lease, names []string) {
	for i := range l.Candidates {
		c := &l.Candidates[i]
		if !slices.Contains(names, c.Name) {
			continue
		}
		c.Observed = c.Observed.Ping(w.now)
		if p := l.process(c.Name); p != nil && p.alive {
			acked := *c.Candidate
			acked.Renewed = latest(w.now, acked.Renewed.Add(time.Microsecond))
			c.Candidate, p.candidate = &acked, &acked
			c.Observed = c.Observed.See(&acked, w.now, false)
		}
	}
}

// carriedOut has the processes react to what the coordinator wrote.
func (w *world) carriedOut(l *lease, d election.Decision) {
	switch d.Action {
	case election.Appoint:
		if old := l.leader; old != nil && old.name != d.Candidate {
			w.endLeading(l, old)
		}
		w.changed(l, d)
		p := l.process(d.Candidate)
		if p == nil || !p.alive {
			return
		}
		if p.duration == 0 {
			p.duration = cmp.Or(l.Observed.HolderDuration, defaultLease)
		}
		w.after(p.poll(), func() { w.takeUp(l, p) })
	case election.Prefer, election.Revoke:
		if old := l.leader; old != nil {
			w.yield(l, old)
		}
	case election.ClearPreferred:
		if p := l.leader; p != nil && p.name == heldBy(l.Lease) {
			// It finds out at its next poll.
			p.leads, p.terms = true, p.terms+1
		}
	}
}

// takeUp is an appointee's first renewal of its own.
func (w *world) takeUp(l *lease, p *process) {
	if !p.alive || heldBy(l.Lease) != p.name || preferredOf(l.Lease) != "" {
		return
	}
	p.polledAt, p.leads = w.now, true
	w.renew(l, p)
	l.leader, l.dirty = p, true
	w.lookAtSkew(l)
}

// yield has a holder that was told to stop renew no more. It works on until its renew deadline has passed, exits, as
// the Kubernetes components do, and is started again.
func (w *world) yield(l *lease, p *process) {
	p.leads, p.terms = false, p.terms+1
	term, deadline := p.terms, p.polledAt.Add(p.duration*2/3)
	w.after(latest(w.now, deadline).Sub(w.now), func() {
		if !p.alive || p.terms != term {
			return
		}
		w.exit(l, p)
		w.after(w.options.Down, func() { w.start(l, p.node, p.binary, p.emulation, p) })
	})
}

// endLeading records that a process no longer works.
func (w *world) endLeading(l *lease, p *process) {
	p.leads = false
	if l.leader == p {
		l.leader = nil
		w.lookAtSkew(l)
	}
}

// exit ends a process.
func (w *world) exit(l *lease, p *process) {
	w.catchUp(l)
	p.alive = false
	w.endLeading(l, p)
	if w.options.Release && heldBy(l.Lease) == p.name {
		// As client-go does it.
		released := l.Lease.DeepCopy()
		holder, stamp, seconds := "", metav1.NewMicroTime(w.now), int32(1)
		released.Spec.HolderIdentity, released.Spec.LeaseDurationSeconds = &holder, &seconds
		released.Spec.AcquireTime, released.Spec.RenewTime = &stamp, &stamp
		released.Spec.PreferredHolder = nil
		w.put(l, released)
		l.Observed.SeeLease(released, w.now)
	}
	l.dirty = true
	w.lookAtSkew(l)
}

// start starts a process, under a new name if like is the one before.
func (w *world) start(l *lease, node string, binary, emulation strategy.Version, like *process) {
	p := &process{node: node, alive: true, incarnation: 1, base: node, binary: binary, emulation: emulation}
	c := &strategy.Candidate{
		Namespace: l.Key.Namespace, LeaseName: l.Key.Name, Node: node, Binary: binary, Emulation: emulation,
		Created: w.now.Truncate(time.Second), Renewed: w.now,
	}
	if like != nil {
		p.incarnation, p.base, p.duration = like.incarnation+1, like.base, like.duration
		base := *like.candidate
		base.Binary, base.Emulation, base.Created, base.Renewed = c.Binary, c.Emulation, c.Created, c.Renewed
		base.PingTime = time.Time{}
		// What an operator wrote to the former object stays with that.
		base.Annotations, base.Warnings, base.Ineligible, base.Priority, base.PriorityUntil = nil, nil, "", 0, time.Time{}
		c = &base
	} else {
		// It wants what the others want.
		c.Strategy = v1alpha1.OldestEmulationVersion
		if len(l.Candidates) > 0 {
			newest := slices.MaxFunc(l.Candidates, func(a, b election.Candidate) int {
				return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(b.Name, a.Name))
			})
			c.Strategy, c.ObeysAnnotations = newest.Strategy, newest.ObeysAnnotations
		}
	}
	p.name = p.base
	for ; p.incarnation > 1 || l.process(p.name) != nil; p.incarnation++ {
		if p.name = fmt.Sprintf("%s_%d", p.base, p.incarnation); l.process(p.name) == nil {
			break
		}
	}
	c.Name, c.UID = p.name, "plan-"+p.name
	p.candidate = c
	l.processes = append(l.processes, p)
	l.Candidates = append(l.Candidates, election.Candidate{Candidate: c, Observed: election.CandidateObservations{}.See(c, w.now, false)})
	l.dirty = true
	w.lookAtSkew(l)
}
