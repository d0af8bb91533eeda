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

// Package coordinator is the coordinator as a program that can be embedded: options, their validation, and the
// wiring of the manager. cmd/coordinator only parses flags and calls Run.
package coordinator

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lease-coordinator/coordinator/internal/election"
)

// InTreeMode says how to live beside the coordinator inside kube-apiserver.
type InTreeMode string

const (
	// InTreeYield leaves OldestEmulationVersion leases to the in-tree coordinator while it is active.
	InTreeYield InTreeMode = "yield"
	// InTreeReplace takes over the in-tree coordinator's lock, so that exactly one coordinator, in-tree or ours,
	// is ever active, and the in-tree one is the standby of last resort.
	InTreeReplace InTreeMode = "replace"
)

// DefaultNamespace is where the coordinator's own lock lives unless it is told or finds out otherwise.
const DefaultNamespace = "lease-coordinator-system"

// Options are the coordinator's flags.
type Options struct {
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

	InTree InTreeMode

	ElectionDuration time.Duration
	CandidateTTL     time.Duration
	TakeUpTimeout    time.Duration
	MinTerm          time.Duration
	DryRun           bool

	// MetricsAddress and HealthAddress are host:port, or "0" for none.
	MetricsAddress string
	MetricsSecure  bool
	HealthAddress  string

	LogFormat string
	Verbosity int
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		LeaderElect:      true,
		LockNamespace:    podNamespace(),
		LockName:         "lease-coordinator",
		LeaseDuration:    15 * time.Second,
		RenewDeadline:    10 * time.Second,
		RetryPeriod:      2 * time.Second,
		InTree:           InTreeYield,
		ElectionDuration: election.DefaultElectionDuration,
		CandidateTTL:     election.DefaultCandidateTTL,
		MetricsAddress:   ":8443",
		MetricsSecure:    true,
		HealthAddress:    ":8081",
		LogFormat:        "text",
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

// AddFlags adds the options' flags, with the options' present values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Path to a kubeconfig file. Without it: $KUBECONFIG, the Pod's service account, or ~/.kube/config.")
	fs.Float32Var(&o.KubeAPIQPS, "kube-api-qps", o.KubeAPIQPS, "Requests per second to the API server at most. 0 leaves throttling to the API server's priority and fairness.")
	fs.IntVar(&o.KubeAPIBurst, "kube-api-burst", o.KubeAPIBurst, "Burst of requests to the API server, if --kube-api-qps is set.")

	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "Run behind a lock of its own, so that one of several coordinators is active and the others observe. Turn it off only where a single coordinator runs.")
	fs.StringVar(&o.LockNamespace, "leader-elect-resource-namespace", o.LockNamespace, "Namespace of the coordinator's own lock. With --in-tree=replace the lock is kube-system/leader-election-controller instead.")
	fs.StringVar(&o.LockName, "leader-elect-resource-name", o.LockName, "Name of the coordinator's own lock.")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", o.LeaseDuration, "How long a standby waits after the last renewal it saw before it takes the coordinator's own lock. Whole seconds. Must exceed --leader-elect-renew-deadline.")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", o.RenewDeadline, "How long the active coordinator tries to renew its own lock before it stops acting. Must exceed 1.2 times --leader-elect-retry-period.")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", o.RetryPeriod, "How long to wait between tries to take or renew the coordinator's own lock.")

	fs.StringVar((*string)(&o.InTree), "in-tree", string(o.InTree), "How to live beside the coordinator inside kube-apiserver (feature gate CoordinatedLeaderElection): 'yield' leaves OldestEmulationVersion leases to it while it is active; 'replace' takes over its lock, so that it becomes our standby.")

	fs.DurationVar(&o.ElectionDuration, "election-duration", o.ElectionDuration, "How long a pinged candidate has to answer. At least one round trip of the slowest candidate.")
	fs.DurationVar(&o.CandidateTTL, "candidate-ttl", o.CandidateTTL, "How long a candidate counts without renewing its LeaseCandidate. Candidates built on client-go renew every 5 minutes.")
	fs.DurationVar(&o.TakeUpTimeout, "take-up-timeout", o.TakeUpTimeout, "How long an appointed candidate has to take up its lease before it is appointed again or passed over; at least 5s. 0 means a third of the lease duration that the last holder wrote, but at least 5s.")
	fs.DurationVar(&o.MinTerm, "min-term", o.MinTerm, "How long a healthy leader stays in office before a better candidate is preferred.")
	fs.BoolVar(&o.DryRun, "dry-run", o.DryRun, "Decide, log and count, but write to no LeaseCandidate and to no Lease but the coordinator's own lock.")

	fs.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress, "Address of the metrics endpoint, host:port; '0' turns it off.")
	fs.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure, "Serve metrics over HTTPS, to clients that the API server authenticates and authorizes.")
	fs.StringVar(&o.HealthAddress, "health-probe-bind-address", o.HealthAddress, "Address of the endpoints /healthz and /readyz, host:port; '0' turns them off.")

	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "Format of the log: 'text' or 'json'.")
	fs.IntVarP(&o.Verbosity, "v", "v", o.Verbosity, "Verbosity of the log: 0 for what changes something, 1 for every decision, 4 and more for debugging.")
}

// Validate returns every fault in the options, each with the offending values.
func (o *Options) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if o.InTree != InTreeYield && o.InTree != InTreeReplace {
		fault("--in-tree=%q: must be %q or %q", o.InTree, InTreeYield, InTreeReplace)
	}
	if o.InTree == InTreeReplace && !o.LeaderElect {
		fault("--in-tree=%s needs --leader-elect: it works by holding the in-tree coordinator's lock", InTreeReplace)
	}
	if o.LogFormat != "text" && o.LogFormat != "json" {
		fault("--log-format=%q: must be \"text\" or \"json\"", o.LogFormat)
	}
	if o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0 {
		fault("--leader-elect-lease-duration=%s: must be whole seconds, at least 1s, since a Lease states its duration in seconds", o.LeaseDuration)
	}
	if o.LeaseDuration <= o.RenewDeadline {
		fault("--leader-elect-lease-duration=%s must be greater than --leader-elect-renew-deadline=%s", o.LeaseDuration, o.RenewDeadline)
	}
	if o.RetryPeriod <= 0 {
		fault("--leader-elect-retry-period=%s: must be greater than 0", o.RetryPeriod)
	}
	if float64(o.RenewDeadline) <= 1.2*float64(o.RetryPeriod) {
		fault("--leader-elect-renew-deadline=%s must be greater than 1.2 times --leader-elect-retry-period=%s", o.RenewDeadline, o.RetryPeriod)
	}
	for _, problem := range validation.IsDNS1123Subdomain(o.LockName) {
		fault("--leader-elect-resource-name=%q: %s", o.LockName, problem)
	}
	for _, problem := range validation.IsDNS1123Label(o.LockNamespace) {
		fault("--leader-elect-resource-namespace=%q: %s", o.LockNamespace, problem)
	}
	if o.ElectionDuration < 100*time.Millisecond {
		fault("--election-duration=%s: must be at least 100ms, a candidate's round trip", o.ElectionDuration)
	}
	if o.CandidateTTL < 2*o.ElectionDuration {
		fault("--candidate-ttl=%s must be at least twice --election-duration=%s", o.CandidateTTL, o.ElectionDuration)
	}
	if o.TakeUpTimeout != 0 && o.TakeUpTimeout < election.MinTakeUp {
		fault("--take-up-timeout=%s: must be 0 or at least %s, since client-go polls that slowly", o.TakeUpTimeout, election.MinTakeUp)
	}
	if o.MinTerm < 0 {
		fault("--min-term=%s: must not be negative", o.MinTerm)
	}
	if o.KubeAPIQPS < 0 || o.KubeAPIBurst < 0 {
		fault("--kube-api-qps=%v, --kube-api-burst=%d: must not be negative", o.KubeAPIQPS, o.KubeAPIBurst)
	}
	for flag, address := range map[string]string{"--metrics-bind-address": o.MetricsAddress, "--health-probe-bind-address": o.HealthAddress} {
		if address == "0" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			fault("%s=%q: must be host:port, or 0: %w", flag, address, err)
		}
	}
	return errors.Join(errs...)
}
