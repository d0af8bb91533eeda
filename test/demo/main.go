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

// Command demo shows the coordinator at work on a real control plane, which it starts and removes again.
//
//	go run ./test/demo       leads a control plane through an upgrade and back, and judges what happened
//	go run ./test/demo run   leaves one running, with three candidates, to try kubectl on
//
// It exits with 0 if every leader was the right one at every moment, 1 if not or if something broke, 2 if the
// command line is wrong, and 130 if it was interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

const usage = "usage: demo [run]"

// errFaults says that the demo ran to its end and found faults, which it has told already.
var errFaults = errors.New("faults found")

func main() {
	var show func(context.Context, *screen) error
	switch args := os.Args[1:]; {
	case len(args) == 0:
		show = showUpgrade
	case len(args) == 1 && args[0] == "run":
		show = playground
	default:
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	// Silences the warning that no logger was set.
	ctrllog.SetLogger(logr.Discard())

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	s := newScreen(os.Stdout)
	err := show(ctx, s)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		s.say("stopped; nothing is left running")
		os.Exit(130)
	case errors.Is(err, errFaults):
		os.Exit(1)
	case err != nil:
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

// withCluster starts a cluster, lets do use it, and removes it whatever happens. If do fails, and not because it
// was interrupted, the logs of all processes are kept.
func withCluster(ctx context.Context, s *screen, opts framework.Options, do func(context.Context, *framework.Cluster) error) (err error) {
	if _, err := framework.FindBinaries(ctx); err != nil {
		return err
	}
	opts.Progress = s.writer()
	starting, cancel := context.WithTimeout(ctx, framework.StartTimeout)
	cluster, err := framework.Start(starting, opts)
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		s.pin(nil)
		if err != nil && ctx.Err() == nil {
			if dir, err := cluster.SaveArtifacts("demo"); err == nil {
				s.say("the logs of all processes and the timeline: %s", dir)
			}
		}
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, cluster.Stop(stopping))
	}()
	return do(ctx, cluster)
}
