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
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lease-coordinator/coordinator/internal/explain"
	"github.com/lease-coordinator/coordinator/internal/explain/plan"
)

func planCommand(code *int) *cobra.Command {
	var r reading
	var options plan.Options
	var stepsFile string
	command := &cobra.Command{
		Use:   "plan -f DUMP [LEASE] STEP...",
		Short: "Foretells the leadership changes that will follow from upgrading nodes",
		Long: `plan plays an upgrade, or any other sequence of changes, by the very rules of the coordinator, in virtual time:
which leaders will change, to whom, when and why, and whether any was newer than the oldest candidate left.

A STEP is one of:

  NODE=VERSION[/EMULATION]   upgrade or roll back: the candidates of the node exit, and come back under a new name
  NODE-                      they exit for good
  +NODE=VERSION[/EMULATION]  a node joins

NODE is a node's or a candidate's name. Without EMULATION a binary emulates its own version. Each step is followed until
nothing more comes of it, then the next is taken. LEASE is a name or namespace/name; without it, all leases that have
candidates are played together. Candidates answer pings at once and poll every 2 s.

A leader that stops does not release its lease, as kube-controller-manager does not unless a feature gate has it to:
its claim runs out. With --release it releases, as kube-scheduler and most controllers do.

Exit codes: 0, 1 if it could not find out, 2 if the flags, the configuration file or the arguments are at fault.`,
		Example: `  kubectl -n kube-system get leases,leasecandidates -o yaml > dump.yaml
  coordinator plan -f dump.yaml kube-controller-manager n1=1.38.0 n2=1.38.0 n3=1.38.0`,
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := explain.ParseFormat(r.output)
			if err != nil {
				return fmt.Errorf("--output: %w", err)
			}
			if r.file == "" {
				return errors.New("--filename is required: plan starts from what 'kubectl get leases,leasecandidates -o yaml' saved")
			}
			if options.Down < 0 || options.Within <= options.Down {
				return fmt.Errorf("--down=%s must not be negative, and less than --within=%s", options.Down, options.Within)
			}
			name, steps, err := arguments(args)
			if err != nil {
				return err
			}
			if stepsFile != "" {
				if len(steps) > 0 {
					return fmt.Errorf("--steps=%q and step %q exclude each other", stepsFile, steps[0])
				}
				if steps, err = readSteps(stepsFile); err != nil {
					return err
				}
			}
			if len(steps) == 0 {
				return errors.New("no step is given: NODE=VERSION upgrades a node")
			}
			settings, err := r.options.ElectionSettings()
			if err != nil {
				return err
			}
			if err := r.checkName(name); err != nil {
				return err
			}
			c, err := r.load(cmd.InOrStdin())
			if err != nil {
				return err
			}
			now, asOf, err := r.at(c)
			if err != nil {
				return err
			}
			keys, err := r.leases(c, r.namespace, name)
			if err != nil {
				return err
			}
			if len(keys) == 0 {
				return failure{fmt.Errorf("no LeaseCandidate%s in the dump: there is nothing to play", where(r.namespace))}
			}
			view := c.At(now, settings, keys...)
			view.AsOf = asOf
			p, err := plan.Make(view, keys, steps, options)
			if err != nil {
				return failure{err}
			}
			if err := plan.Print(cmd.OutOrStdout(), format, p); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	fs := command.Flags()
	fs.SortFlags = false
	r.addFlags(fs)
	fs.StringVar(&stepsFile, "steps", "", "File with the steps, instead of arguments: separated by space, '#' begins a comment.")
	fs.BoolVar(&options.Release, "release", false, "A leader that stops releases its lease.")
	fs.DurationVar(&options.Down, "down", 10*time.Second, "How long it takes a process to come back.")
	fs.DurationVar(&options.Within, "within", time.Hour, "How long the effects of a step are waited for, such as the end of a minimum term.")
	return withFailures(command, code)
}

// arguments tells the lease's name from the steps.
func arguments(args []string) (name string, steps []plan.Step, err error) {
	for i, arg := range args {
		if i == 0 && arg != "" && !plan.IsStep(arg) {
			name = arg
			continue
		}
		step, err := plan.ParseStep(arg)
		if err != nil {
			return "", nil, err
		}
		steps = append(steps, step)
	}
	return name, steps, nil
}

func readSteps(name string) ([]plan.Step, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, failure{fmt.Errorf("opening the steps: %w", err)}
	}
	defer file.Close()
	steps, err := plan.ReadSteps(file)
	if err != nil {
		return nil, fmt.Errorf("--steps=%q: %w", name, err)
	}
	return steps, nil
}
