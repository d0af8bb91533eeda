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
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/lease-coordinator/coordinator/internal/candidacy"
)

// handOffWait is how long a candidate that resigns holds the lease for a coordinator to name its successor, once the work
// has stopped. One that is there needs milliseconds.
const handOffWait = 500 * time.Millisecond

// registrationPeriod is the longest time between renewals of the candidate's object. A coordinator pings those it has not
// heard of for 15 minutes, so that there are no pings in a steady state.
const registrationPeriod = 10 * time.Minute

// lookAgain is how long a candidate waits, with half as much again by chance, before it asks anew whether the API server
// serves LeaseCandidates: none is to be missing for longer than half a minute once it does.
const lookAgain = 20 * time.Second

// Candidate is one candidacy for one lease. Make it with New, and call Run once. All methods may be called from any
// goroutine at any time, also before and after Run, and none of them but Run makes requests or blocks.
type Candidate struct {
	config       Config
	api          *api
	registration registration
	clock        func() time.Duration
	exit         func(code int)

	started atomic.Bool
	ended   atomic.Bool
	// leading is the present term while the work may go on, nil otherwise.
	leading atomic.Pointer[Term]
	// claim is that of the work that has not stopped yet, nil if there is none.
	claim  atomic.Pointer[claim]
	holder atomic.Pointer[string]
	// beat is when the event loop last turned.
	beat atomic.Int64
}

// New checks a configuration and returns a candidate for it. The error names every fault, with the offending values. New
// makes no request and starts no goroutine.
func New(config Config) (*Candidate, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	api, err := connect(config.RestConfig, config.Namespace, config.RenewDeadline/4)
	if err != nil {
		return nil, err
	}
	return &Candidate{
		config: config,
		api:    api,
		registration: registration{
			name: config.Identity, lease: config.LeaseName, labels: config.Labels,
			binary: config.BinaryVersion, emulation: config.EmulationVersion, strategy: string(config.Strategy),
			owner: podOwner(os.Getenv, config.Namespace),
		},
		clock: sinceBoot,
		exit:  os.Exit,
	}, nil
}

// Run takes part in elections, and leads when it is this candidate's turn, until ctx ends or Lead returns by itself. It
// may be called once.
//
// When ctx ends, the candidate resigns: it marks its LeaseCandidate, so that a coordinator chooses the successor; cancels
// Lead's context; hands the lease over, or releases it, when Lead has returned; and removes its LeaseCandidate. That takes
// as long as Lead takes to stop and, if the API server does not answer, RenewDeadline at most; what could not be withdrawn
// by then is logged, and runs out by itself. Run returns nil if ctx ended, and what Lead returned if that ended by itself.
//
// An API server that is away, refuses requests, or serves no LeaseCandidates is no reason to return: Run goes on trying.
//
// When Run returns, Lead, the callbacks and all goroutines, watches and connections of the candidate have ended, except
// for a call of Healthy that ignores its context.
func (c *Candidate) Run(ctx context.Context) error {
	if !c.started.CompareAndSwap(false, true) {
		return errors.New("running candidate " + c.config.Identity + ": Run may be called only once")
	}
	defer c.ended.Store(true)
	log := c.config.Logger
	if log.GetSink() == nil {
		log = logr.FromContextOrDiscard(ctx)
	}
	log = log.WithValues("lease", c.config.Namespace+"/"+c.config.LeaseName, "candidate", c.config.Identity)
	l := newLoop(c, logr.NewContext(ctx, log), log)
	defer c.api.close()
	return l.run(ctx)
}

// Identity returns the holder identity, which is the name of the LeaseCandidate.
func (c *Candidate) Identity() string { return c.config.Identity }

// IsLeader reports whether this candidate leads at this moment and is not about to stop. It looks at the clock: from the
// moment that the claim runs out it says no, also if the process was suspended and nothing else has noticed yet. What it
// says holds for no moment but this one; see Term.Token.
func (c *Candidate) IsLeader() bool {
	_, ok := c.Term()
	return ok
}

// Term returns the present term if IsLeader, and false otherwise.
func (c *Candidate) Term() (Term, bool) {
	if t := c.leading.Load(); t != nil && t.Valid() {
		return *t, true
	}
	return Term{}, false
}

// Leader returns the identity of the holder of the lease as it was last seen, which may be out of date while the API
// server is away, and "" if there was none.
func (c *Candidate) Leader() string {
	if holder := c.holder.Load(); holder != nil {
		return *holder
	}
	return ""
}

// Check returns an error if this process should be restarted: the candidate's event loop is stuck or has ended, or Lead
// goes on although the claim has run out. Being a standby is no error, nor is an API server that is away, nor not having
// been started yet. It fits controller-runtime's healthz.Checker, for a liveness probe, and ignores the request.
func (c *Candidate) Check(*http.Request) error {
	if !c.started.Load() {
		return nil
	}
	if c.ended.Load() {
		return fmt.Errorf("candidate %s of lease %s/%s has ended", c.config.Identity, c.config.Namespace, c.config.LeaseName)
	}
	if held := c.claim.Load(); held != nil && !held.holds() {
		return fmt.Errorf("candidate %s leads %s/%s although its claim ran out %s ago",
			c.config.Identity, c.config.Namespace, c.config.LeaseName, -held.left())
	}
	if idle := c.clock() - time.Duration(c.beat.Load()); idle > c.config.RenewDeadline {
		return fmt.Errorf("candidate %s of lease %s/%s has been stuck for %s", c.config.Identity, c.config.Namespace, c.config.LeaseName, idle)
	}
	return nil
}

func (c *Candidate) machineConfig() candidacy.Config {
	return candidacy.Config{
		Identity:           c.config.Identity,
		LeaseDuration:      c.config.LeaseDuration,
		RenewDeadline:      c.config.RenewDeadline,
		RetryPeriod:        c.config.RetryPeriod,
		DrainLimit:         c.config.DrainLimit,
		HandOffWait:        min(handOffWait, c.config.RenewDeadline/4),
		FallbackAfter:      c.config.FallbackAfter,
		RegistrationPeriod: registrationPeriod,
	}
}
