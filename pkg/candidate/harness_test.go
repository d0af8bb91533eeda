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

package candidate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// player is a candidate of a test, and what it did. Times are virtual, so that they are exact.
type player struct {
	*Candidate
	t      *testing.T
	cancel context.CancelFunc
	result chan error

	mu        sync.Mutex
	did       []deed
	deadlines []string
	skew      time.Duration
	healthErr error
	drain     time.Duration
	stubborn  bool
	quit      chan error
}

// deed is something that a player did.
type deed struct {
	at   time.Time
	who  string
	what string
	term Term
}

func config(api *fakeAPI, identity string) Config {
	return Config{
		RestConfig: &rest.Config{Host: "http://fake", Transport: api},
		Namespace:  "ns", LeaseName: "l", Identity: identity, BinaryVersion: "1.37.0",
	}
}

// join starts a candidate with 15/10/2 s. change may change its configuration.
func join(t *testing.T, api *fakeAPI, identity string, change ...func(*player, *Config)) *player {
	t.Helper()
	p := &player{t: t, result: make(chan error, 1), quit: make(chan error)}
	c := config(api, identity)
	c.Lead = p.lead
	c.OnNominated = func() { p.note("nominated", Term{}) }
	c.OnNewLeader = func(id string) { p.note("sees "+id, Term{}) }
	c.Logger = funcr.New(func(prefix, args string) { t.Log(time.Now().Format("05.000"), prefix, args) }, funcr.Options{Verbosity: 1})
	c.OnDeadline = func(why string) {
		p.note("deadline", Term{})
		p.mu.Lock()
		defer p.mu.Unlock()
		p.deadlines = append(p.deadlines, why)
	}
	for _, f := range change {
		f(p, &c)
	}
	candidate, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	p.Candidate = candidate
	begun := time.Now()
	candidate.clock = func() time.Duration {
		p.mu.Lock()
		defer p.mu.Unlock()
		return time.Hour + time.Since(begun) + p.skew
	}
	candidate.exit = func(int) { p.note("exit", Term{}) }
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(t.Context())
	go func() { p.result <- candidate.Run(ctx) }()
	return p
}

func (p *player) lead(ctx context.Context) error {
	term, ok := TermFromContext(ctx)
	if !ok {
		p.t.Error("the context has no term")
	}
	p.note("starts", term)
	var err error
	select {
	case <-ctx.Done():
		p.note("told to stop", term)
		if p.stubborn {
			err = <-p.quit
			break
		}
		if p.drain > 0 {
			<-time.After(p.drain)
		}
	case err = <-p.quit:
	}
	p.note("stops", term)
	return err
}

func (p *player) note(what string, term Term) {
	p.mu.Lock()
	defer p.mu.Unlock()
	who := ""
	if p.Candidate != nil {
		who = p.Identity()
	}
	p.did = append(p.did, deed{time.Now(), who, what, term})
}

// times returns when the player did something.
func (p *player) times(what string) []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	var at []time.Time
	for _, d := range p.did {
		if d.what == what {
			at = append(at, d.at)
		}
	}
	return at
}

// only returns the one time when the player did it.
func (p *player) only(what string) time.Time {
	p.t.Helper()
	at := p.times(what)
	if len(at) != 1 {
		p.t.Fatalf("%s %s %d times, want once", p.Identity(), what, len(at))
	}
	return at[0]
}

func (p *player) terms() []Term {
	p.mu.Lock()
	defer p.mu.Unlock()
	var terms []Term
	for _, d := range p.did {
		if d.what == "starts" {
			terms = append(terms, d.term)
		}
	}
	return terms
}

func (p *player) jump(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.skew += d
}

// end ends the candidacy and returns Run's result.
func (p *player) end() error {
	p.t.Helper()
	p.cancel()
	return p.ended()
}

func (p *player) ended() error {
	p.t.Helper()
	select {
	case err := <-p.result:
		return err
	case <-time.After(5 * time.Minute):
		p.t.Fatalf("%s does not end", p.Identity())
		return nil
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// within fails unless d is positive and at most limit.
func within(t *testing.T, what string, d, limit time.Duration) {
	t.Helper()
	if d < 0 || d > limit {
		t.Errorf("%s took %s, want at most %s", what, d, limit)
	}
}

// alternate fails if any two of the players' calls of Lead overlap, or a term's token does not exceed those before.
func alternate(t *testing.T, players ...*player) {
	t.Helper()
	var all []deed
	for _, p := range players {
		p.mu.Lock()
		for _, d := range p.did {
			if d.what == "starts" || d.what == "stops" {
				all = append(all, d)
			}
		}
		p.mu.Unlock()
	}
	slices.SortStableFunc(all, func(a, b deed) int {
		return cmp.Or(a.at.Compare(b.at), -strings.Compare(a.what, b.what))
	})
	var last uint64
	working := ""
	for _, d := range all {
		switch {
		case d.what == "stops":
			working = ""
		case working != "":
			t.Errorf("%s starts while %s works", d.who, working)
		default:
			working = d.who
			token, err := strconv.ParseUint(d.term.Token, 10, 64)
			if err != nil || token <= last {
				t.Errorf("%s starts with token %q after %d", d.who, d.term.Token, last)
			}
			last = token
		}
	}
}

func stampNow() string { return time.Now().UTC().Format(metav1.RFC3339Micro) }

// appoint is a coordinator's appointment.
func (a *fakeAPI) appoint(identity string) {
	a.edit("leases", "l", func(l object) { a.appointment(l, identity) })
}

func (a *fakeAPI) appointment(l object, identity string) {
	s, notes := spec(l), child(meta(l), "annotations")
	transitions, _ := s["leaseTransitions"].(float64)
	if s["holderIdentity"] != identity {
		transitions++
	}
	token, ok := meta(l)["resourceVersion"].(string)
	if !ok {
		token = strconv.FormatUint(a.version, 10)
	}
	now := stampNow()
	maps.Copy(s, object{
		"holderIdentity": identity, "acquireTime": now, "renewTime": now, "leaseTransitions": transitions,
		"leaseDurationSeconds": 5, "strategy": "OldestEmulationVersion",
	})
	delete(s, "preferredHolder")
	delete(notes, v1alpha1.PreferredHolderAnnotation)
	notes[v1alpha1.FencingTokenAnnotation] = token
	notes[v1alpha1.StrategyAnnotation] = "OldestEmulationVersion"
}

// prefer ends the holder's term.
func (a *fakeAPI) prefer(identity string) {
	a.edit("leases", "l", func(l object) {
		if a.drops {
			child(meta(l), "annotations")[v1alpha1.PreferredHolderAnnotation] = identity
		} else {
			spec(l)["preferredHolder"] = identity
		}
	})
}

func (a *fakeAPI) ping(identity string) {
	a.edit(candidateResource, identity, func(c object) { spec(c)["pingTime"] = stampNow() })
}

// coordinate is a coordinator that prefers the candidate whose name is first, until ctx ends. It acts a millisecond
// after each change.
func (a *fakeAPI) coordinate(ctx context.Context) {
	poked := make(chan struct{}, 1)
	poked <- struct{}{}
	a.mu.Lock()
	a.changed = func(change) {
		select {
		case poked <- struct{}{}:
		default:
		}
	}
	a.mu.Unlock()
	go func() {
		for {
			select {
			case <-poked:
			case <-ctx.Done():
				return
			}
			if sleep(ctx, time.Millisecond) != nil {
				return
			}
			a.coordinateOnce()
		}
	}()
}

func (a *fakeAPI) coordinateOnce() {
	a.mu.Lock()
	defer a.mu.Unlock()
	best := ""
	// The kinds are side by side, and one candidate may be of both.
	candidates := maps.Clone(a.objects[ourResource])
	maps.Copy(candidates, a.objects[candidateResource])
	for _, name := range slices.Sorted(maps.Keys(candidates)) {
		if _, marked := child(meta(clone(candidates[name])), "annotations")[v1alpha1.IneligibleAnnotation]; !marked {
			best = name
			break
		}
	}
	if best == "" {
		return
	}
	name, _ := spec(clone(candidates[best]))["leaseName"].(string)
	lease := a.objects["leases"][name]
	var holder, preferred string
	if lease != nil {
		holder, _ = spec(clone(lease))["holderIdentity"].(string)
		preferred, _ = spec(clone(lease))["preferredHolder"].(string)
	}
	switch {
	case holder == "":
		a.editLocked("leases", name, func(l object) { a.appointment(l, best) })
	case holder != best && preferred != best:
		a.editLocked("leases", name, func(l object) { spec(l)["preferredHolder"] = best })
	}
}

func (a *fakeAPI) holder() string {
	l := a.get("leases", "l")
	if l == nil {
		return ""
	}
	return fmt.Sprint(spec(l)["holderIdentity"])
}
