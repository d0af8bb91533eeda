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

// Command footprint measures what a coordinator takes: from applying config/default to the first lease that it has
// coordinated; then, while nothing happens, its requests to the API server and its memory, active and as a standby; and then
// its memory, and what it does, while many leases are renewed.
//
//	go run ./test/footprint [-idle 4m] [-leases 10000]
//
// Its control plane is on this machine. The image need not be pulled there, and the scheduler has nothing to do.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// settle is how long after the start nothing is left of it.
const settle = 30 * time.Second

func main() {
	idle := flag.Duration("idle", 4*time.Minute, "for how long requests are counted; a full look at the API server is due every 200 s")
	leases := flag.Int("leases", 10_000, "how many leases are made then; none if 0")
	flag.Parse()
	if *idle <= 0 || *leases < 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	// Silences the warning that no logger was set.
	ctrllog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *idle, *leases); err != nil {
		fmt.Fprintf(os.Stderr, "footprint: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, idle time.Duration, leases int) (err error) {
	binary, err := framework.BuildShippedCoordinator(ctx, framework.ShippedVersion)
	if err != nil {
		return err
	}
	cluster, err := framework.Start(ctx, framework.Options{NoAudit: true})
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, cluster.Stop(stopping))
	}()
	node := cluster.Nodes[0]
	namespace, err := cluster.CreateNamespace(ctx, "footprint")
	if err != nil {
		return err
	}
	recorder, err := cluster.Record(ctx, framework.RecorderOptions{Namespaces: []string{namespace}})
	if err != nil {
		return err
	}
	if _, err := node.StartCandidate(ctx, framework.CandidateOptions{Namespace: namespace, Lease: "l", Name: "n1"}); err != nil {
		return err
	}

	installed := time.Now()
	if err := cluster.ApplyKustomization(ctx, "config/default"); err != nil {
		return err
	}
	active, err := node.StartCoordinator(ctx, framework.CoordinatorOptions{Name: "active", Binary: binary})
	if err != nil {
		return err
	}
	if _, err := recorder.WaitForLeader(ctx, namespace+"/l", func(framework.Term) bool { return true }); err != nil {
		return err
	}
	fmt.Printf("from install to the first coordinated lease: %s\n\n", time.Since(installed).Round(100*time.Millisecond))

	standby, err := node.StartCoordinator(ctx, framework.CoordinatorOptions{Name: "standby", Binary: binary})
	if err != nil {
		return err
	}
	coordinators := []*framework.Coordinator{active, standby}
	if err := framework.Pause(ctx, settle); err != nil {
		return err
	}
	before, err := count(ctx, coordinators)
	if err != nil {
		return err
	}
	if err := framework.Pause(ctx, idle); err != nil {
		return err
	}
	after, err := count(ctx, coordinators)
	if err != nil {
		return err
	}
	fmt.Printf("idle for %s, with one lease; requests in 10 s:\n", idle)
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "coordinator\town lock (PUT)\tothers, watches among them\tRSS")
	for i, c := range coordinators {
		rss, err := c.RSS()
		if err != nil {
			return err
		}
		per := func(n float64) float64 { return n * 10 / idle.Seconds() }
		lock := after[i].lock - before[i].lock
		fmt.Fprintf(tw, "%s\t%.2f\t%.2f\t%.1f MiB\n", c.Name(), per(lock), per(after[i].all-before[i].all-lock), float64(rss)/(1<<20))
	}
	if err := tw.Flush(); err != nil || leases == 0 {
		return err
	}
	return scale(ctx, cluster, coordinators, leases)
}

// requests are those of one coordinator since its start. Nothing is updated but its own lock.
type requests struct{ all, lock float64 }

func count(ctx context.Context, coordinators []*framework.Coordinator) ([]requests, error) {
	var counts []requests
	for _, c := range coordinators {
		all, _, err := c.Metric(ctx, "rest_client_requests_total", nil)
		if err != nil {
			return nil, err
		}
		lock, _, err := c.Metric(ctx, "rest_client_requests_total", map[string]string{"method": "PUT"})
		if err != nil {
			return nil, err
		}
		counts = append(counts, requests{all, lock})
	}
	return counts, nil
}
