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

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/access"
	"github.com/lease-coordinator/coordinator/internal/coordinator"
	"github.com/lease-coordinator/coordinator/internal/doctor"
	"github.com/lease-coordinator/coordinator/internal/doctor/checks"
	"github.com/lease-coordinator/coordinator/internal/explain"
)

func doctorCommand(code *int) *cobra.Command {
	options := coordinator.NewOptions()
	var kubeconfig, kubeContext, namespace, output, user string
	var watch time.Duration
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Examines a cluster: what the coordinator can do there, and what stands in its way",
		Long: `doctor asks the cluster, with your kubeconfig, what it serves, who coordinates, what the coordinator may do, and how its
leases and candidates are, and prints a table of checks: what was found, what follows from it, and the mend. It stores
nothing: besides reading, it creates a Lease by dry run and asks for access reviews. What you may not read is in the
table as not checked. Give the flags, or the --config, that the coordinator runs with.

Exit codes: 0 if all is well, also with notes; 1 if it could not find out, or not all of it, and what it found is well;
2 if the flags or the configuration file are at fault; 3 if the worst that it found is a warning; 4 if it is an error.`,
		Example: `  coordinator doctor
  coordinator doctor --context staging -o json | jq '.findings[] | select(.severity == "error")'
  coordinator doctor --in-tree=replace --coordinator-user=lease-coordinator`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			format, err := explain.ParseFormat(output)
			if err != nil {
				return fmt.Errorf("--output: %w", err)
			}
			if watch < 0 {
				return fmt.Errorf("--watch=%s must not be negative", watch)
			}
			loaded, err := options.Load()
			if err != nil {
				return err
			}
			settings, err := loaded.ElectionSettings()
			if err != nil {
				return err
			}
			o := doctor.Options{Settings: settings, Watch: watch, CoordinatorUser: user}
			o.Lock, o.Replace = loaded.Lock()
			if user == "" {
				o.CoordinatorUser = "system:serviceaccount:" + loaded.LockNamespace + ":lease-coordinator"
			}
			o.Rights = rightsOf(o.Lock, loaded.Namespaces)
			config, contextNamespace, err := connect(kubeconfig, kubeContext)
			if err != nil {
				return failure{err}
			}
			config.UserAgent = "lease-coordinator-doctor/" + coordinator.Version()
			if o.Namespace = namespace; namespace == "" {
				o.Namespace = contextNamespace
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), watch+requestTimeout)
			defer cancel()
			facts, err := doctor.Gather(ctx, config, o)
			if err != nil {
				return failure{fmt.Errorf("asking %s: %w", config.Host, err)}
			}
			report := doctor.NewReport(config.Host, coordinator.Version(), facts)
			if err := report.Print(cmd.OutOrStdout(), format); err != nil {
				return failure{err}
			}
			*code = report.ExitCode()
			return nil
		},
	}
	fs := command.Flags()
	fs.SortFlags = false
	fs.StringVar(&kubeconfig, "kubeconfig", "", "Path to a kubeconfig file. Without it: $KUBECONFIG, ~/.kube/config, or the Pod's service account.")
	fs.StringVar(&kubeContext, "context", "", "Context of the kubeconfig file.")
	fs.StringVarP(&namespace, "namespace", "n", "", "Namespace in which a Lease is created by dry run, and that is looked at where you may not look at all. Without it: the context's.")
	fs.StringVarP(&output, "output", "o", string(explain.Text), "Output format: 'text', 'json' or 'yaml'.")
	fs.DurationVar(&watch, "watch", 15*time.Second, "How long the locks of coordinators are watched at most, to see whether they are renewed; the lease duration of a lock is enough. 0 goes by their stamps.")
	fs.StringVar(&user, "coordinator-user", "", "Whom the coordinator is to the API server. Without it: service account lease-coordinator of the namespace of --leader-elect-resource-namespace. The static Pod's is 'lease-coordinator'.")
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	options.AddFlags(all)
	// The flags of the coordinator that say which lock is its own, and what it needs to be allowed.
	for _, name := range []string{"namespaces", "in-tree", "leader-elect-resource-namespace", "leader-elect-resource-name"} {
		fs.AddFlag(all.Lookup(name))
	}
	options.AddElectionFlags(fs)
	return withFailures(command, code)
}

// rightsOf lists what a coordinator with that lock has to be allowed in those namespaces, or in all.
func rightsOf(lock types.NamespacedName, namespaces []string) []checks.Right {
	scope := access.Scope{Lock: lock, Namespaces: namespaces, CandidateGroups: []string{coordinationv1.GroupName, v1alpha1.Group}}
	var list []checks.Right
	for _, r := range append(scope.Wanted(), scope.WantedForLocks()...) {
		list = append(list, checks.Right{Verb: r.Verb, Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name})
	}
	return list
}
