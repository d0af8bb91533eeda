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

// Command bench measures how long leadership takes to move between candidates of pkg/candidate, side by side with those of
// plain client-go leader election, and what a candidate costs while nothing happens.
//
//	go run ./test/bench [-n leases] [-drain duration] [-gate] [-o bench-results.json]
//
// Both run on one control plane on this machine, in the same minutes, with the same durations (15, 10 and 2 s). The gaps
// are between the workers' own stamps of the machine's monotonic clock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
	"github.com/lease-coordinator/coordinator/test/figures"
)

func main() {
	b := &bench{taken: map[measure][]time.Duration{}}
	flag.IntVar(&b.n, "n", 30, "leases of each system, each of which goes through every scenario once")
	flag.DurationVar(&b.drain, "drain", 0, "how long the library's work takes to stop")
	flag.BoolVar(&b.gateOn, "gate", false, "turn kube-apiserver's CoordinatedLeaderElection on")
	out := flag.String("o", "bench-results.json", "file to write the figures to")
	flag.Parse()
	if b.n < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	// Silences the warning that no logger was set.
	ctrllog.SetLogger(logr.Discard())

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := b.run(ctx, *out)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		os.Exit(130)
	case err != nil:
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}

type bench struct {
	n      int
	drain  time.Duration
	gateOn bool

	cluster *framework.Cluster
	worker  string
	audit   string

	// quiet is held while something is measured that takes milliseconds, and while a program starts, which takes more.
	quiet sync.Mutex

	mu    sync.Mutex
	taken map[measure][]time.Duration
}

// startTimeout bounds what takes seconds at most.
const startTimeout = time.Minute

func (b *bench) run(ctx context.Context, out string) (err error) {
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	began := time.Now()
	say("building")
	binary, err := framework.BuildShippedCoordinator(ctx, framework.ShippedVersion)
	if err != nil {
		return err
	}
	if b.worker, err = framework.BuildWorkerWithoutRace(ctx); err != nil {
		return err
	}
	if _, err := framework.BuildCandidate(ctx); err != nil {
		return err
	}
	if _, err := framework.BuildFootprint(ctx); err != nil {
		return err
	}

	say("starting the control plane")
	dir, err := os.MkdirTemp("", "lease-coordinator-bench-")
	if err != nil {
		return fmt.Errorf("making a folder for the audit log: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
		defer cancel()
		if b.cluster != nil {
			err = errors.Join(err, b.cluster.Stop(stopping))
		}
	}()
	if err := b.start(ctx, binary, dir); err != nil {
		return err
	}
	latency, err := b.writeLatency(ctx)
	if err != nil {
		return err
	}

	probes, err := b.startFootprints(ctx)
	defer func() {
		for _, p := range probes {
			p.stop()
		}
	}()
	if err != nil {
		return err
	}
	started := time.Now()
	say("counting requests for %s", steadyTime)
	requests, err := b.steady(ctx)
	if err != nil {
		return err
	}

	say("measuring %d leases of each system", b.n)
	load := []string{loadAverage()}
	if err := b.courses(ctx); err != nil {
		return err
	}
	load = append(load, loadAverage())
	if err := framework.Pause(ctx, time.Until(started.Add(footprintAge))); err != nil {
		return err
	}
	footprints, err := sumUp(probes)
	if err != nil {
		return err
	}

	measured := b.figures()
	printTable(os.Stdout, measured)
	fmt.Println()
	printRequests(os.Stdout, requests)
	fmt.Println()
	printFootprints(os.Stdout, footprints)
	fmt.Printf("\nA write of a Lease takes the API server %s (median of %d), as a client on this machine sees it.\n",
		figures.Text(figures.Milliseconds(latency)), latencyWrites)
	fmt.Printf("Work of the library takes %s to stop. Load of the machine before and after (1, 5, 15 min): %s.\n", b.drain, strings.Join(load, "; "))
	say("took %s", time.Since(began).Round(time.Second))
	return figures.WriteJSON(out, measured)
}

func (b *bench) start(ctx context.Context, binary, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*startTimeout)
	defer cancel()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	b.audit = filepath.Join(dir, "audit.log")
	var err error
	b.cluster, err = framework.Start(ctx, framework.Options{
		CoordinatedLeaderElection: b.gateOn,
		// The framework's log has complete writes and holds requests up until they are written. This one must not be felt.
		NoAudit: true,
		APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + b.audit,
			"--audit-log-mode=batch", "--audit-log-batch-max-wait=500ms"},
	})
	if err != nil {
		return err
	}
	if err := b.cluster.ApplyKustomization(ctx, "config/rbac"); err != nil {
		return err
	}
	var args []string
	if b.gateOn {
		args = []string{"--in-tree=replace"}
	}
	coordinator, err := b.cluster.Nodes[0].StartCoordinator(ctx, framework.CoordinatorOptions{Binary: binary, Args: args})
	if err != nil {
		return err
	}
	_, err = framework.WaitActive(ctx, coordinator)
	return err
}

const latencyWrites = 200

// writeLatency is how long the API server takes for a write of a Lease, of which each hop of a hand-off needs one.
func (b *bench) writeLatency(ctx context.Context) (time.Duration, error) {
	namespace, err := b.cluster.CreateNamespace(ctx, "bench")
	if err != nil {
		return 0, err
	}
	leases := b.cluster.Clientset().CoordinationV1().Leases(namespace)
	lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("creating a lease: %w", err)
	}
	var all []time.Duration
	for i := range latencyWrites {
		lease.Spec.LeaseTransitions = new(int32(i))
		began := time.Now()
		if lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
			return 0, fmt.Errorf("writing a lease: %w", err)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return figures.Quantile(all, 0.5), nil
}

// inFlight is how many leases of a system are measured at once. Nearly all of their time passes in waiting.
const inFlight = 8

// courses leads every lease through all scenarios, those of both systems in turn.
func (b *bench) courses(ctx context.Context) error {
	var group sync.WaitGroup
	errs := make(chan error, 2*b.n)
	for _, s := range systems {
		slots := make(chan struct{}, inFlight)
		group.Go(func() {
			var leases sync.WaitGroup
			defer leases.Wait()
			for i := range b.n {
				slots <- struct{}{}
				leases.Go(func() {
					defer func() { <-slots }()
					if err := s.course(b, ctx, i); err != nil {
						errs <- fmt.Errorf("%s, lease %d: %w", s.name, i, err)
					}
				})
			}
		})
	}
	group.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(all...)
}

func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}

// rest lets a time pass that has nothing to do with anybody's period: client-go's longest is 4.4 s.
func rest(ctx context.Context) error {
	return framework.Pause(ctx, 200*time.Millisecond+rand.N(4400*time.Millisecond))
}
