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

// Command flavours measures planned hand-offs and graceful exits of candidates of pkg/candidate on kube-apiservers of every
// flavour, side by side: with the fields of a Lease or annotations in their place, and with Kubernetes' own kind of
// LeaseCandidate or this project's.
//
//	go run ./test/flavours [-n leases]
//
// The control planes are all on this machine, and are measured in turn, in the same minutes. The gaps are between the workers'
// own stamps of the machine's monotonic clock.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
	"github.com/lease-coordinator/coordinator/test/figures"
)

func main() {
	n := flag.Int("n", 15, "leases of each flavour")
	flag.Parse()
	if *n < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	// Silences the warning that no logger was set.
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *n); err != nil {
		fmt.Fprintf(os.Stderr, "flavours: %v\n", err)
		os.Exit(1)
	}
}

// rest is the time between two hand-offs, in which a leader renews.
const rest = 2500 * time.Millisecond

const (
	// planned is from the end of the old leader's work to the beginning of the new one's, when a better candidate appears;
	// exit is the same when the leader is told to end.
	planned = "planned hand-off"
	exit    = "graceful exit"
)

// flavour is what a kube-apiserver is like, and what was measured there.
type flavour struct {
	name    string
	server  framework.Options
	cluster *framework.Cluster
	taken   map[string][]time.Duration
}

// flavours starts with the one that the others are compared to. With the gate on and no LeaseCandidate of its own a
// kube-apiserver never becomes ready.
func flavours() []*flavour {
	all := []*flavour{
		{name: "fields, coordination.k8s.io", server: framework.Options{CoordinatedLeaderElection: true}},
		{name: "annotations, coordination.k8s.io"},
		{name: "annotations, lease-coordinator.dev", server: framework.Options{NoLeaseCandidateAPI: true}},
	}
	for _, f := range all {
		f.server.NoAudit = true
		f.taken = map[string][]time.Duration{}
	}
	return all
}

func run(ctx context.Context, n int) (err error) {
	coordinator, err := framework.BuildShippedCoordinator(ctx, framework.ShippedVersion)
	if err != nil {
		return err
	}
	worker, err := framework.BuildWorkerWithoutRace(ctx)
	if err != nil {
		return err
	}
	all := flavours()
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		for _, f := range all {
			if f.cluster != nil {
				err = errors.Join(err, f.cluster.Stop(stopping))
			}
		}
	}()
	for _, f := range all {
		if err := f.start(ctx, coordinator); err != nil {
			return fmt.Errorf("starting a cluster with %s: %w", f.name, err)
		}
	}

	// Only one is measured at a time; the rest of a course is waiting.
	var quiet sync.Mutex
	var courses sync.WaitGroup
	errs := make([]error, len(all))
	for i, f := range all {
		courses.Go(func() {
			for range n {
				if err := f.course(ctx, worker, &quiet); err != nil {
					errs[i] = fmt.Errorf("measuring %s: %w", f.name, err)
					return
				}
			}
		})
	}
	courses.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return printTable(os.Stdout, all)
}

func (f *flavour) start(ctx context.Context, binary string) (err error) {
	if f.cluster, err = framework.Start(ctx, f.server); err != nil {
		return err
	}
	for _, folder := range []string{"config/crd", "config/rbac"} {
		if folder == "config/crd" && !f.server.NoLeaseCandidateAPI {
			continue
		}
		if err := f.cluster.ApplyKustomization(ctx, folder); err != nil {
			return err
		}
	}
	var args []string
	if f.server.CoordinatedLeaderElection {
		args = []string{"--in-tree=replace"}
	}
	c, err := f.cluster.Nodes[0].StartCoordinator(ctx, framework.CoordinatorOptions{Binary: binary, Args: args})
	if err != nil {
		return err
	}
	_, err = framework.WaitActive(ctx, c)
	return err
}

// course has a better candidate join the leader of a new lease, and end.
func (f *flavour) course(ctx context.Context, binary string, quiet *sync.Mutex) error {
	namespace, err := f.cluster.CreateNamespace(ctx, "flavours")
	if err != nil {
		return err
	}
	if err := f.cluster.AllowWorkers(ctx, namespace, "l"); err != nil {
		return err
	}
	start := func(name, emulation string) (*framework.Candidate, error) {
		return f.cluster.Nodes[0].StartWorker(ctx, framework.WorkerOptions{
			Namespace: namespace, Lease: "l", Name: namespace + "-" + name, EmulationVersion: emulation, Binary: binary,
		})
	}
	leader, err := start("n37", "1.37.0")
	if err != nil {
		return err
	}
	if err := leads(ctx, leader, 1); err != nil {
		return err
	}
	if err := framework.Pause(ctx, rest); err != nil {
		return err
	}
	alone := func(scenario string, do func() error) error {
		quiet.Lock()
		defer quiet.Unlock()
		if err := do(); err != nil {
			return fmt.Errorf("%s: %w", scenario, err)
		}
		return nil
	}
	var better *framework.Candidate
	if err := alone(planned, func() (err error) {
		if better, err = start("n36", "1.36.0"); err != nil {
			return err
		}
		return leads(ctx, better, 1)
	}); err != nil {
		return err
	}
	f.take(planned, leader, better)
	if err := framework.Pause(ctx, rest); err != nil {
		return err
	}
	if err := alone(exit, func() error {
		if err := better.Terminate(ctx); err != nil {
			return err
		}
		return leads(ctx, leader, 2)
	}); err != nil {
		return err
	}
	f.take(exit, better, leader)
	return leader.Stop(ctx)
}

func (f *flavour) take(scenario string, from, to *framework.Candidate) {
	f.taken[scenario] = append(f.taken[scenario], framework.Gap(from, to))
}

// leads waits until the candidate leads for the nth time by its own word.
func leads(ctx context.Context, c *framework.Candidate, n int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return c.WaitLeads(ctx, n)
}

// printTable prints the gaps, and how each flavour's median is to the first one's.
func printTable(w io.Writer, all []*flavour) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "scenario\tfields or annotations, kind of LeaseCandidate\tn\tmedian\tp90\tmax\tratio")
	for _, scenario := range []string{planned, exit} {
		var first float64
		for i, f := range all {
			figure := figures.Of(scenario, f.name, f.taken[scenario])
			if i == 0 {
				first = figure.Median
			}
			fmt.Fprintf(tw, "%s\t%s\t%d\t%s\t%s\t%s\t%.2f\n", scenario, f.name, figure.N,
				figures.Text(figure.Median), figures.Text(figure.P90), figures.Text(figure.Max), figure.Median/first)
		}
	}
	return tw.Flush()
}
