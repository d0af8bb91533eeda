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

// Command timings measures how long leadership takes to move between candidates built on unmodified client-go, with
// our coordinator, with the one inside kube-apiserver, and with plain leader election.
//
//	go run ./test/timings [-n leases] [-o timings.json]
//
// Each way of electing has a control plane of its own on this machine, and all of them are measured at once, in
// the same minutes: what disturbs one disturbs the others.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
	"github.com/lease-coordinator/coordinator/test/figures"
)

func main() {
	n := flag.Int("n", 5, "leases for each way of electing, which go through all scenarios side by side")
	out := flag.String("o", "", "file to write the figures to, as JSON")
	flag.Parse()
	if *n < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	// Silences the warning that no logger was set.
	ctrllog.SetLogger(logr.Discard())

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *n, *out)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		os.Exit(130)
	case err != nil:
		fmt.Fprintf(os.Stderr, "timings: %v\n", err)
		os.Exit(1)
	}
}

// system is a way of electing.
type system struct {
	name string
	// gateOn is kube-apiserver's CoordinatedLeaderElection.
	gateOn bool
	// ours are the flags of our coordinator; nil for none.
	ours []string
	// plain candidates register nowhere.
	plain bool

	cluster     *framework.Cluster
	recorder    *framework.Recorder
	namespace   string
	coordinator *framework.Coordinator
}

const (
	oursOn  = "ours, gate on"
	oursOff = "ours, gate off"
	inTree  = "in-tree"
	plainly = "plain"
)

// idleTime is how long the coordinators have nothing to do before their memory is looked at.
const idleTime = time.Minute

func run(ctx context.Context, n int, out string) (err error) {
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	systems := []*system{
		{name: oursOn, gateOn: true, ours: []string{"--in-tree=replace"}},
		{name: oursOff, ours: []string{}},
		{name: inTree, gateOn: true},
		{name: plainly, plain: true},
	}
	if _, err := framework.FindBinaries(ctx); err != nil {
		return err
	}
	say("building the coordinator")
	binary, err := framework.BuildShippedCoordinator(ctx, framework.ShippedVersion)
	if err != nil {
		return err
	}
	if _, err := framework.BuildCandidate(ctx); err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		for _, s := range systems {
			if s.cluster != nil {
				err = errors.Join(err, s.cluster.Stop(stopping))
			}
		}
	}()
	for _, s := range systems {
		say("starting the control plane for: %s", s.name)
		if err := s.start(ctx, binary); err != nil {
			return err
		}
	}
	say("letting the coordinators idle for %s", idleTime)
	if err := framework.Pause(ctx, idleTime); err != nil {
		return err
	}
	var memory []string
	for _, s := range systems {
		if s.coordinator == nil {
			continue
		}
		rss, err := s.coordinator.RSS()
		if err != nil {
			return err
		}
		memory = append(memory, fmt.Sprintf("%.1f MiB (%s)", float64(rss)/(1<<20), s.name))
		if err := s.waitActive(ctx); err != nil {
			return err
		}
	}

	say("measuring %d leases for each of %d ways of electing; this takes about %s", n, len(systems), (3*time.Minute + time.Duration(n*len(systems))*stagger).Round(10*time.Second))
	courses := make([]*course, 0, n*len(systems))
	var group sync.WaitGroup
	for i := range n {
		for _, s := range systems {
			c := newCourse(s, i)
			start := time.Duration(len(courses)) * stagger
			courses = append(courses, c)
			group.Go(func() {
				if c.err = framework.Pause(ctx, start); c.err == nil {
					c.err = c.run(ctx)
				}
			})
		}
	}
	group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}

	measured := collect(systems, courses)
	printTable(os.Stdout, measured)
	for _, s := range systems {
		if s.coordinator != nil {
			fmt.Printf("reaction of the coordinator (%s), candidate's write to its own: %s\n", s.name, reactions(s, courses))
		}
	}
	fmt.Printf("memory of a coordinator after %s of idling: %s\n", idleTime, strings.Join(memory, ", "))
	if out != "" {
		if err := figures.WriteJSON(out, measured); err != nil {
			return err
		}
	}
	var errs []error
	for _, c := range courses {
		if c.err != nil {
			errs = append(errs, fmt.Errorf("%s, lease %s: %w", c.system.name, c.lease, c.err))
		}
	}
	return errors.Join(errs...)
}

// stagger is the time between the starts of two leases: starting programs takes CPU, which the others should not
// feel more than they must.
const stagger = 700 * time.Millisecond

func (s *system) start(ctx context.Context, binary string) error {
	starting, cancel := context.WithTimeout(ctx, framework.StartTimeout)
	defer cancel()
	var err error
	if s.cluster, err = framework.Start(starting, framework.Options{CoordinatedLeaderElection: s.gateOn}); err != nil {
		return err
	}
	if s.namespace, err = s.cluster.CreateNamespace(ctx, "timings"); err != nil {
		return err
	}
	if s.recorder, err = s.cluster.Record(ctx, framework.RecorderOptions{Namespaces: []string{s.namespace}}); err != nil {
		return err
	}
	if s.ours == nil {
		return nil
	}
	if err := s.cluster.ApplyKustomization(ctx, "config/rbac"); err != nil {
		return err
	}
	s.coordinator, err = s.cluster.Nodes[0].StartCoordinator(ctx, framework.CoordinatorOptions{Binary: binary, Args: s.ours})
	return err
}

func (s *system) waitActive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, framework.StartTimeout)
	defer cancel()
	_, err := framework.WaitActive(ctx, s.coordinator)
	return err
}
