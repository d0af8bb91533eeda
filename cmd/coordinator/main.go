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

// Command coordinator elects leaders by strategy: it watches Leases and LeaseCandidates, and appoints, prefers and
// replaces holders.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lease-coordinator/coordinator/internal/coordinator"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// gcPercent, where the environment does not set GOGC, trades processor time, of which a coordinator uses next to none, for
// memory: nearly all of its heap is what it knows of the cluster, and twice that for a moment when it lists it.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	options, code := coordinator.NewOptions(), 0
	command := &cobra.Command{
		Use:   "coordinator",
		Short: "Elects leaders by strategy",
		Long: `coordinator watches Leases and LeaseCandidates, ranks the candidates of each lease with a strategy, and
appoints, prefers and replaces its holder. It drives unmodified kube-controller-manager, kube-scheduler and any
other controller that uses client-go's coordinated leader election.

Exit codes: 0 after SIGTERM or SIGINT, 1 if it could not run, 2 if the flags or the configuration file are at fault.`,
		Args:          cobra.NoArgs,
		Version:       coordinator.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := options.Load()
			if err != nil {
				return err
			}
			if err := coordinator.Run(cmd.Context(), loaded, loaded.NewLogger(stderr)); err != nil {
				code = exitFailed
				return err
			}
			return nil
		},
	}
	command.Flags().SortFlags = false
	options.AddFlags(command.Flags())
	command.AddCommand(explainCommand(&code), planCommand(&code), doctorCommand(&code))
	command.CompletionOptions.DisableDefaultCmd = true
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	if executed, err := command.ExecuteContextC(ctx); err != nil {
		fmt.Fprintf(stderr, "error: %v\n", err)
		if code == 0 {
			code = exitUsage
			fmt.Fprintf(stderr, "See %s --help.\n", executed.CommandPath())
		}
	}
	return code
}
