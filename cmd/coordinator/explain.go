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
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lease-coordinator/coordinator/internal/coordinator"
	"github.com/lease-coordinator/coordinator/internal/explain"
)

// requestTimeout bounds how long a cluster may take to answer altogether.
const requestTimeout = 30 * time.Second

// failure is an error that is not the fault of the flags.
type failure struct{ error }

// Unwrap returns what failed.
func (f failure) Unwrap() error { return f.error }

// reading is what explain and plan have in common: where the objects come from, and by which settings they are judged.
type reading struct {
	file       string
	namespace  string
	output     string
	now        string
	fieldsKept bool

	options *coordinator.Options
	flags   *pflag.FlagSet
}

func (r *reading) addFlags(fs *pflag.FlagSet) {
	r.flags, r.options = fs, coordinator.NewOptions()
	fs.StringVarP(&r.file, "filename", "f", "", "File with Leases and LeaseCandidates, as 'kubectl get leases,leasecandidates -o yaml' or '-o json' prints them; '-' reads standard input.")
	fs.StringVarP(&r.namespace, "namespace", "n", "", "Namespace of the lease.")
	fs.StringVarP(&r.output, "output", "o", string(explain.Text), "Output format: 'text', 'json' or 'yaml'.")
	fs.StringVar(&r.now, "now", "", "Judge as of this time, in RFC 3339. Without it: a file as of the newest stamp in it, a cluster as of now.")
	fs.BoolVar(&r.fieldsKept, "fields-kept", true, "Whether the API server keeps spec.strategy and spec.preferredHolder on Leases. Without it: as the Leases show.")
	r.options.AddElectionFlags(fs)
}

// load reads the dump.
func (r *reading) load(stdin io.Reader) (*explain.Cluster, error) {
	if r.file == "-" {
		c, err := explain.Read(stdin)
		if err != nil {
			return nil, failure{fmt.Errorf("standard input: %w", err)}
		}
		return c, nil
	}
	file, err := os.Open(r.file)
	if err != nil {
		return nil, failure{fmt.Errorf("opening the dump: %w", err)}
	}
	defer file.Close()
	c, err := explain.Read(file)
	if err != nil {
		return nil, failure{fmt.Errorf("%s: %w", r.file, err)}
	}
	return c, nil
}

// at returns the time as of which a dump is judged, and where that comes from.
func (r *reading) at(c *explain.Cluster) (now time.Time, asOf string, err error) {
	if r.flags.Changed("fields-kept") {
		c.SetFieldsKept(r.fieldsKept)
	}
	switch now, err = r.givenTime(); {
	case err != nil:
		return time.Time{}, "", err
	case !now.IsZero():
		return now, "as --now says", nil
	}
	if now = c.Newest(); now.IsZero() {
		// Nothing in it has a stamp: then no time fits better than another.
		return time.Now(), "since the dump has no stamp", nil
	}
	return now, "the newest stamp in the dump", nil
}

func (r *reading) givenTime() (time.Time, error) {
	if r.now == "" {
		return time.Time{}, nil
	}
	now, err := time.Parse(time.RFC3339, r.now)
	if err != nil {
		return time.Time{}, fmt.Errorf("--now=%q is not an RFC 3339 time such as 2030-01-02T03:04:05Z", r.now)
	}
	return now, nil
}

// leases returns those that are asked about: the one named, or else all that have candidates.
func (r *reading) leases(c *explain.Cluster, namespace, name string) ([]types.NamespacedName, error) {
	if name == "" {
		return c.Coordinated(namespace), nil
	}
	if err := r.checkName(name); err != nil {
		return nil, err
	}
	key, err := c.Find(namespace, name)
	var unknown *explain.UnknownError
	if errors.As(err, &unknown) {
		err = failure{err}
	}
	if err != nil {
		return nil, err
	}
	return []types.NamespacedName{key}, nil
}

// checkName refuses a lease whose namespace is given twice, differently.
func (r *reading) checkName(name string) error {
	if namespace, _, found := strings.Cut(name, "/"); found && r.namespace != "" && r.namespace != namespace {
		return fmt.Errorf("lease %q is not in --namespace=%q", name, r.namespace)
	}
	return nil
}

func explainCommand(code *int) *cobra.Command {
	var r reading
	var kubeconfig, kubeContext string
	var allNamespaces bool
	command := &cobra.Command{
		Use:   "explain [LEASE]",
		Short: "Says why the leader of a lease leads and each other candidate does not",
		Long: `explain ranks the candidates of a lease as a coordinator would, and says why its leader leads, why each other
candidate does not, and what the coordinator would do next. It goes by what 'kubectl get' saved, with -f, or by what
the cluster has now. It takes the stamps in the objects at their word, and writes nothing.

LEASE is a name or namespace/name. Without it, all leases that have candidates are explained.

Exit codes: 0, 1 if it could not find out, 2 if the flags, the configuration file or the arguments are at fault.`,
		Example: `  kubectl get leases,leasecandidates -A -o yaml | coordinator explain -f -
  coordinator explain -n kube-system kube-controller-manager`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			format, err := explain.ParseFormat(r.output)
			if err != nil {
				return fmt.Errorf("--output: %w", err)
			}
			settings, err := r.options.ElectionSettings()
			if err != nil {
				return err
			}
			name, namespace := "", r.namespace
			if len(args) > 0 {
				name = args[0]
				if name == "" {
					return errors.New("the lease's name is empty")
				}
				if err := r.checkName(name); err != nil {
					return err
				}
			}
			var c *explain.Cluster
			var now time.Time
			var asOf string
			if r.file != "" {
				if kubeconfig != "" || kubeContext != "" {
					return errors.New("--filename and --kubeconfig or --context exclude each other: objects come from a file or from a cluster")
				}
				if c, err = r.load(cmd.InOrStdin()); err != nil {
					return err
				}
				if now, asOf, err = r.at(c); err != nil {
					return err
				}
			} else {
				given, err := r.givenTime()
				if err != nil {
					return err
				}
				if c, namespace, now, err = fetch(cmd.Context(), kubeconfig, kubeContext, namespace, name); err != nil {
					return failure{err}
				}
				if !given.IsZero() {
					now, asOf = given, "as --now says"
				}
				if r.flags.Changed("fields-kept") {
					c.SetFieldsKept(r.fieldsKept)
				}
				if allNamespaces {
					namespace = ""
				}
			}
			keys, err := r.leases(c, namespace, name)
			if err != nil {
				return err
			}
			if len(keys) == 0 {
				fmt.Fprintln(cmd.ErrOrStderr(), "No LeaseCandidate found"+where(namespace)+": there is no election to explain.")
				return nil
			}
			view := c.At(now, settings, keys...)
			view.AsOf = asOf
			explanations := make([]*explain.Explanation, 0, len(keys))
			for _, key := range keys {
				explanations = append(explanations, view.Explain(key))
			}
			if err := explain.Print(cmd.OutOrStdout(), format, explanations...); err != nil {
				return failure{err}
			}
			return nil
		},
	}
	fs := command.Flags()
	fs.SortFlags = false
	r.addFlags(fs)
	fs.StringVar(&kubeconfig, "kubeconfig", "", "Path to a kubeconfig file. Without it: $KUBECONFIG, ~/.kube/config, or the Pod's service account.")
	fs.StringVar(&kubeContext, "context", "", "Context of the kubeconfig file.")
	fs.BoolVarP(&allNamespaces, "all-namespaces", "A", false, "Without LEASE: of a cluster, explain the leases of all namespaces. A file's always are, unless --namespace is given.")
	return withFailures(command, code)
}

func where(namespace string) string {
	if namespace == "" {
		return ""
	}
	return fmt.Sprintf(" in namespace %q", namespace)
}

// fetch reads the cluster. It returns the namespace that a name without one is of: that given, or else the context's.
func fetch(ctx context.Context, kubeconfig, kubeContext, namespace, name string) (*explain.Cluster, string, time.Time, error) {
	config, contextNamespace, err := connect(kubeconfig, kubeContext)
	if err != nil {
		return nil, "", time.Time{}, err
	}
	if namespace == "" {
		namespace = contextNamespace
	}
	config.UserAgent = "lease-coordinator-explain/" + coordinator.Version()
	readIn := namespace
	if of, _, found := strings.Cut(name, "/"); found {
		readIn = of
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	c, now, err := explain.Fetch(ctx, config, readIn)
	if err != nil {
		return nil, "", time.Time{}, fmt.Errorf("asking %s: %w", config.Host, err)
	}
	return c, namespace, now, nil
}

// connect returns how to reach the API server, and the context's namespace.
func connect(kubeconfig, kubeContext string) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	client := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: kubeContext})
	config, err := client.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("finding the API server (--kubeconfig=%q, --context=%q): %w", kubeconfig, kubeContext, err)
	}
	namespace, _, err := client.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("finding the context's namespace (--kubeconfig=%q, --context=%q): %w", kubeconfig, kubeContext, err)
	}
	return config, namespace, nil
}

// withFailures has the command set the exit code where neither flags nor arguments are at fault.
func withFailures(command *cobra.Command, code *int) *cobra.Command {
	inner := command.RunE
	command.RunE = func(cmd *cobra.Command, args []string) error {
		err := inner(cmd, args)
		var f failure
		if errors.As(err, &f) {
			*code = exitFailed
		}
		return err
	}
	return command
}
