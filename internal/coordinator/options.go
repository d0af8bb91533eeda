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

// Package coordinator is the coordinator as a program that can be embedded: options, the configuration file, their
// validation, and the wiring of the manager. cmd/coordinator only parses flags and calls Run.
package coordinator

import (
	"cmp"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	uberzap "go.uber.org/zap"

	configv1alpha1 "github.com/lease-coordinator/coordinator/api/config/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/coordinator/configfile"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// DefaultNamespace is where the coordinator's own lock lives unless it is told or finds out otherwise.
const DefaultNamespace = "lease-coordinator-system"

// Options are what a coordinator is told: by its flags, and, once loaded, by its configuration file.
type Options struct {
	// ConfigFile is the configuration file's path; empty means none.
	ConfigFile string

	// Kubeconfig is a file's path; empty means $KUBECONFIG, ~/.kube/config or the Pod's service account.
	Kubeconfig string
	// KubeAPIQPS and KubeAPIBurst throttle requests on our side; 0 leaves that to the API server.
	KubeAPIQPS   float32
	KubeAPIBurst int

	LeaderElect   bool
	LockNamespace string
	LockName      string
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration

	// Namespaces are those that are coordinated; none means all.
	Namespaces []string
	InTree     configv1alpha1.InTreeMode

	ElectionDuration time.Duration
	CandidateTTL     time.Duration
	TakeUpTimeout    time.Duration
	MinTerm          time.Duration
	DryRun           bool

	// Strategies enables and leaves out strategies; see strategy.Select.
	Strategies []string
	// LeaseStrategies are overrides, [namespace/]lease=strategy. They go before the configuration file's.
	LeaseStrategies []string

	// MetricsAddress and HealthAddress are host:port, or "0" for none.
	MetricsAddress string
	MetricsSecure  bool
	HealthAddress  string

	LogFormat string
	Verbosity int

	// flags tells which flags were given. Nil means none.
	flags *pflag.FlagSet
	// loaded is set once the configuration file, if there is one, has been read.
	loaded *loaded
	// level is that of the logger, if NewLogger made it.
	level *uberzap.AtomicLevel
}

// loaded is what comes with the configuration file.
type loaded struct {
	// base are the options as the flags gave them.
	base *Options
	// file is nil if there is none.
	file *configfile.File
	// strategies are those that are enabled, custom ones included.
	strategies []strategy.Strategy
	overrides  *strategy.Overrides
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	c := &configv1alpha1.CoordinatorConfiguration{}
	configv1alpha1.SetDefaults(c)
	return fromConfiguration(c)
}

// fromConfiguration returns the options that a configuration with its defaults says. Leases' strategies and custom
// strategies are not among them: they come with the file.
func fromConfiguration(c *configv1alpha1.CoordinatorConfiguration) *Options {
	lock := &c.LeaderElection
	return &Options{
		Kubeconfig:       c.ClientConnection.Kubeconfig,
		KubeAPIQPS:       c.ClientConnection.QPS,
		KubeAPIBurst:     int(c.ClientConnection.Burst),
		LeaderElect:      *lock.LeaderElect,
		LockNamespace:    cmp.Or(lock.ResourceNamespace, podNamespace()),
		LockName:         lock.ResourceName,
		LeaseDuration:    lock.LeaseDuration.Duration,
		RenewDeadline:    lock.RenewDeadline.Duration,
		RetryPeriod:      lock.RetryPeriod.Duration,
		Namespaces:       c.Namespaces,
		InTree:           c.InTree,
		ElectionDuration: c.Election.ElectionDuration.Duration,
		CandidateTTL:     c.Election.CandidateTTL.Duration,
		TakeUpTimeout:    c.Election.TakeUpTimeout.Duration,
		MinTerm:          c.Election.MinTerm.Duration,
		DryRun:           c.DryRun,
		Strategies:       c.Strategies,
		MetricsAddress:   c.Metrics.BindAddress,
		MetricsSecure:    *c.Metrics.Secure,
		HealthAddress:    c.Health.BindAddress,
		LogFormat:        c.Logging.Format,
		Verbosity:        int(c.Logging.Verbosity),
	}
}

// podNamespace returns the namespace of the Pod that this process runs in, or DefaultNamespace.
func podNamespace() string {
	if ns := os.Getenv("POD_NAMESPACE"); ns != "" {
		return ns
	}
	if data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace"); err == nil {
		if ns := strings.TrimSpace(string(data)); ns != "" {
			return ns
		}
	}
	return DefaultNamespace
}

// AddElectionFlags adds the flags that decide who leads, for programs that explain elections rather than hold them.
func (o *Options) AddElectionFlags(fs *pflag.FlagSet) {
	o.flags = fs
	fs.StringVar(&o.ConfigFile, "config", o.ConfigFile, "Path of a configuration file, kind CoordinatorConfiguration. Flags that are given go before it. A coordinator that runs picks up changes.")
	fs.StringSliceVar(&o.Strategies, "strategies", o.Strategies, "Strategies that leases may be led by: '*' enables all, 'name' one, '-name' leaves one out. Without '*' only those named are enabled. There are "+builtInNames()+", and those of the configuration file.")
	fs.StringArrayVar(&o.LeaseStrategies, "lease-strategy", o.LeaseStrategies, "Strategy by which leases are led, whatever their candidates ask for, as [namespace/]lease=strategy; namespace and lease may be patterns with '*', '?' and '[a-z]'. The most specific counts. May be repeated; goes before the configuration file.")
	fs.DurationVar(&o.ElectionDuration, "election-duration", o.ElectionDuration, "How long a pinged candidate has to answer. At least one round trip of the slowest candidate.")
	fs.DurationVar(&o.CandidateTTL, "candidate-ttl", o.CandidateTTL, "How long a candidate counts without renewing its LeaseCandidate. Candidates built on client-go renew every 5 minutes.")
	fs.DurationVar(&o.TakeUpTimeout, "take-up-timeout", o.TakeUpTimeout, "How long an appointed candidate has to take up its lease before it is appointed again or passed over; at least 5s. 0 means a third of the lease duration that the last holder wrote, but at least 5s.")
	fs.DurationVar(&o.MinTerm, "min-term", o.MinTerm, "How long a healthy leader stays in office before a better candidate is preferred.")
}

func builtInNames() string {
	var names []string
	for _, s := range strategy.BuiltIn() {
		names = append(names, string(s.Name()))
	}
	return strings.Join(names, ", ")
}

// AddFlags adds the options' flags, with the options' present values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.AddElectionFlags(fs)
	fs.StringSliceVar(&o.Namespaces, "namespaces", o.Namespaces, "Namespaces whose leases are coordinated, for a coordinator that may not watch the whole cluster. None, the default, means all but kube-node-lease.")
	fs.StringVar((*string)(&o.InTree), "in-tree", string(o.InTree), "How to live beside the coordinator inside kube-apiserver (feature gate CoordinatedLeaderElection): 'yield' leaves OldestEmulationVersion leases to it while it is active; 'replace' takes over its lock, so that it becomes our standby.")
	fs.BoolVar(&o.DryRun, "dry-run", o.DryRun, "Decide, log and count, but write to no LeaseCandidate and to no Lease but the coordinator's own lock.")

	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Path to a kubeconfig file. Without it: $KUBECONFIG, the Pod's service account, or ~/.kube/config.")
	fs.Float32Var(&o.KubeAPIQPS, "kube-api-qps", o.KubeAPIQPS, "Requests per second to the API server at most. 0 leaves throttling to the API server's priority and fairness.")
	fs.IntVar(&o.KubeAPIBurst, "kube-api-burst", o.KubeAPIBurst, "Burst of requests to the API server, if --kube-api-qps is set.")

	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "Run behind a lock of its own, so that one of several coordinators is active and the others observe. Turn it off only where a single coordinator runs.")
	fs.StringVar(&o.LockNamespace, "leader-elect-resource-namespace", o.LockNamespace, "Namespace of the coordinator's own lock. With --in-tree=replace the lock is kube-system/leader-election-controller instead.")
	fs.StringVar(&o.LockName, "leader-elect-resource-name", o.LockName, "Name of the coordinator's own lock.")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration, "How long a standby waits after the last renewal it saw before it takes the coordinator's own lock. Whole seconds. Must exceed --leader-elect-renew-deadline.")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline, "How long the active coordinator tries to renew its own lock before it stops acting. Must exceed 1.2 times --leader-elect-retry-period.")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod, "How long to wait between tries to take or renew the coordinator's own lock.")

	fs.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress, "Address of the metrics endpoint, host:port; '0' turns it off.")
	fs.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure, "Serve metrics over HTTPS, to clients that the API server authenticates and authorizes.")
	fs.StringVar(&o.HealthAddress, "health-probe-bind-address", o.HealthAddress, "Address of the endpoints /healthz and /readyz, host:port; '0' turns them off.")

	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "Format of the log: 'text' or 'json'.")
	fs.IntVarP(&o.Verbosity, "v", "v", o.Verbosity, "Verbosity of the log: 0 for what changes something, 1 for every decision, 4 and more for debugging.")
}
