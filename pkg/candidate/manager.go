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
	"time"
)

// Manager is what RunManager needs of a controller-runtime manager.
type Manager interface {
	// Start works until ctx ends, and returns when it has stopped.
	Start(ctx context.Context) error
}

// RunManager takes part in elections, and runs a manager while this candidate leads: a new one for each term, since a manager
// cannot be started twice. Loss of leadership ends that manager only; the process remains a candidate, under the same
// identity. RunManager returns when ctx has ended and everything is withdrawn, as Candidate.Run does, or if a manager cannot
// be made or ends by itself, with its error. Lead must not be set in the configuration.
//
// newManager makes a manager without leader election of its own. The context it is called with carries the Term; for
// controllers to find it in theirs, pass it on:
//
//	ctrl.Options{
//		LeaderElection: false,
//		BaseContext:    func() context.Context { return context.WithoutCancel(ctx) },
//		// How long stopping may take is for DrainLimit to say.
//		GracefulShutdownTimeout: ptr.To[time.Duration](-1),
//		// The managers of all terms have controllers of the same names.
//		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
//		// Served by all replicas, from outside; see below.
//		Metrics:                server.Options{BindAddress: "0"},
//		HealthProbeBindAddress: "0",
//	}
//
// What every replica serves must not be in that manager: a standby has none. Put webhooks, probes and the metrics endpoint
// into a manager that is always there, and add RunManager to it as a runnable. A manager that listens all the same binds its
// ports anew in each term, and the health and profiling endpoints already when it is made: if newManager returns an error after that,
// or the term is over by then, nothing closes them, and the next manager finds the ports in use.
//
// A manager that gives up waiting for its runnables says so by an error that wraps context.DeadlineExceeded. They may still
// be at work then, so the lease is not handed over: the process ends at DrainLimit, or when the claim has run out.
func RunManager(ctx context.Context, config Config, newManager func(ctx context.Context) (Manager, error)) error {
	r := managerRunner{newManager: newManager}
	candidate, err := r.candidate(config)
	if err != nil {
		return err
	}
	return r.run(ctx, candidate)
}

// managerRunner is the work of a candidate that runs managers.
type managerRunner struct {
	newManager func(ctx context.Context) (Manager, error)
	// end ends the candidacy, and failed says why.
	end    context.CancelFunc
	failed error
}

func (r *managerRunner) candidate(config Config) (*Candidate, error) {
	var faults []error
	if config.Lead != nil {
		faults = append(faults, errors.New("running managers: Lead must not be set: the manager is what leads"))
	}
	if r.newManager == nil {
		faults = append(faults, errors.New("running managers: a function that makes them is required"))
	}
	config.Lead = r.lead
	candidate, err := New(config)
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, err
	}
	return candidate, nil
}

func (r *managerRunner) run(ctx context.Context, candidate *Candidate) error {
	ctx, r.end = context.WithCancel(ctx)
	defer r.end()
	return errors.Join(candidate.Run(ctx), r.failed)
}

func (r *managerRunner) lead(ctx context.Context) error {
	term, _ := TermFromContext(ctx)
	manager, err := r.newManager(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("making the manager for term %s: %w", term.Token, err)
	case ctx.Err() != nil:
		return nil
	}
	if err = manager.Start(ctx); err == nil {
		return nil
	}
	err = fmt.Errorf("running the manager of term %s: %w", term.Token, err)
	if errors.Is(err, context.DeadlineExceeded) {
		r.failed = err
		r.end()
		outlast(term)
	}
	return err
}

// outlast waits until the claim of a term has run out, unless the process ends before. It is renewed until DrainLimit at most.
func outlast(term Term) {
	for left := term.claim.left(); left > 0; left = term.claim.left() {
		timer := time.NewTimer(left)
		<-timer.C
	}
}
