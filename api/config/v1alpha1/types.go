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

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CoordinatorConfiguration is the coordinator's configuration file. The flag of the same meaning goes before a field,
// and the field before the default.
//
// A running coordinator picks up a changed file. What a field says takes effect at once (live), or when the
// coordinator is started again (restart).
//
// Durations are written as "1h30m", "15s" or "500ms".
//
// +kubebuilder:object:root=true
type CoordinatorConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// clientConnection says how to reach the API server. Restart.
	ClientConnection ClientConnectionConfiguration `json:"clientConnection,omitzero"`

	// leaderElection says how several coordinators decide which of them is active. Restart.
	LeaderElection LeaderElectionConfiguration `json:"leaderElection,omitzero"`

	// namespaces are those whose leases are coordinated, for a coordinator that may not watch the whole cluster. Default
	// none, which means all but kube-node-lease. Restart.
	Namespaces []string `json:"namespaces,omitempty"`

	// inTree says how to live beside the coordinator inside kube-apiserver: "yield" leaves OldestEmulationVersion
	// leases to it while it is active; "replace" takes over its lock, so that it becomes our standby. Default "yield".
	// Restart.
	InTree InTreeMode `json:"inTree,omitempty"`

	// dryRun has the coordinator decide, log and count, but write to no LeaseCandidate and to no Lease but its own
	// lock. Default false. Live.
	DryRun bool `json:"dryRun,omitempty"`

	// election has the times of elections. Live.
	Election ElectionConfiguration `json:"election,omitzero"`

	// strategies says which strategies leases may be led by: "*" enables all, "name" one, "-name" leaves one out;
	// without "*" only those named are enabled. Custom strategies count like any other. Default ["*"]. Live.
	Strategies []string `json:"strategies,omitempty"`

	// leaseStrategies says by which strategy leases are led, whatever their candidates ask for. Of several that match
	// a lease the most specific counts: a lease's name before a pattern, then a namespace's name before a pattern
	// before none, then more characters that are no pattern, then the later in the list. Default none. Live.
	LeaseStrategies []LeaseStrategy `json:"leaseStrategies,omitempty"`

	// customStrategies are strategies of your own, written in CEL. Default none. Live.
	CustomStrategies []CustomStrategy `json:"customStrategies,omitempty"`

	// metrics says where metrics are served. Restart.
	Metrics MetricsConfiguration `json:"metrics,omitzero"`

	// health says where /healthz and /readyz are served. Restart.
	Health HealthConfiguration `json:"health,omitzero"`

	// logging says how to log.
	Logging LoggingConfiguration `json:"logging,omitzero"`
}

// ClientConnectionConfiguration says how to reach the API server.
type ClientConnectionConfiguration struct {
	// kubeconfig is the path of a kubeconfig file. Default: $KUBECONFIG, the Pod's service account, or ~/.kube/config,
	// the first there is. Restart.
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// qps is how many requests per second are sent at most, 0 or more. 0, the default, leaves throttling to the API
	// server's priority and fairness. Restart.
	QPS float32 `json:"qps,omitempty"`

	// burst is how many requests may be sent at once, 0 or more; it counts if qps is not 0, and is then at least one
	// more than qps. Default 0. Restart.
	Burst int32 `json:"burst,omitempty"`
}

// LeaderElectionConfiguration says how several coordinators decide which of them is active: by the coordinator's own
// lock, a Lease.
type LeaderElectionConfiguration struct {
	// leaderElect turns the lock on. Turn it off only where a single coordinator runs. Default true. Restart.
	LeaderElect *bool `json:"leaderElect,omitempty"`

	// resourceNamespace is the lock's namespace. With inTree "replace" the lock is
	// kube-system/leader-election-controller instead. Default: the Pod's namespace, or lease-coordinator-system outside
	// a Pod. Restart.
	ResourceNamespace string `json:"resourceNamespace,omitempty"`

	// resourceName is the lock's name. Default "lease-coordinator". Restart.
	ResourceName string `json:"resourceName,omitempty"`

	// leaseDuration is how long a standby waits after the last renewal it saw before it takes the lock. Whole seconds,
	// more than renewDeadline. Default 15s. Restart.
	LeaseDuration *metav1.Duration `json:"leaseDuration,omitempty"`

	// renewDeadline is how long the active coordinator tries to renew the lock before it stops acting. More than 1.2
	// times retryPeriod. Default 10s. Restart.
	RenewDeadline *metav1.Duration `json:"renewDeadline,omitempty"`

	// retryPeriod is how long to wait between tries to take or renew the lock. More than 0. Default 2s. Restart.
	RetryPeriod *metav1.Duration `json:"retryPeriod,omitempty"`
}

// InTreeMode says how to live beside the coordinator inside kube-apiserver.
type InTreeMode string

const (
	// InTreeYield leaves OldestEmulationVersion leases to the in-tree coordinator while it is active.
	InTreeYield InTreeMode = "yield"
	// InTreeReplace takes over the in-tree coordinator's lock, so that exactly one coordinator, in-tree or ours,
	// is ever active, and the in-tree one is the standby of last resort.
	InTreeReplace InTreeMode = "replace"
)

// ElectionConfiguration has the times of elections.
type ElectionConfiguration struct {
	// electionDuration is how long a pinged candidate has to answer: at least one round trip of the slowest, and at
	// least 100ms. Default 5s. Live.
	ElectionDuration *metav1.Duration `json:"electionDuration,omitempty"`

	// candidateTTL is how long a candidate counts without renewing its LeaseCandidate: at least twice
	// electionDuration. Candidates built on client-go renew every 5 minutes. Default 30m. Live.
	CandidateTTL *metav1.Duration `json:"candidateTTL,omitempty"`

	// takeUpTimeout is how long an appointed candidate has to take up its lease before it is appointed again or passed
	// over: at least 5s. 0, the default, means a third of the lease duration that the last holder wrote, but at
	// least 5s. Live.
	TakeUpTimeout metav1.Duration `json:"takeUpTimeout,omitzero"`

	// minTerm is how long a healthy leader stays in office before a better candidate is preferred: 0 or more.
	// Default 0. Live.
	MinTerm metav1.Duration `json:"minTerm,omitzero"`
}

// LeaseStrategy says by which strategy the leases that match are led.
type LeaseStrategy struct {
	// lease is [namespace/]lease, each a name or a pattern: "*" stands for any characters, "?" for one, and "[a-f]" for
	// one of a set. Without a namespace it is for all. Required, and no two entries may have the same with different
	// strategies.
	Lease string `json:"lease,omitempty"`

	// strategy is the name of an enabled strategy. Required.
	Strategy string `json:"strategy,omitempty"`
}

// CustomStrategy is a strategy of your own, written in CEL.
type CustomStrategy struct {
	// name is what candidates, Leases and leaseStrategies call the strategy: a domain of yours, a slash and a name,
	// such as "example.com/Nearest". Required.
	Name string `json:"name,omitempty"`

	// eligible is a CEL expression that is true for candidates that may lead. Default: all may, and prefer is required.
	Eligible string `json:"eligible,omitempty"`

	// prefer are CEL expressions that candidates are ranked by: the first that differs counts, and the smaller value
	// leads. Default: all rank the same, the oldest leads, and eligible is required.
	Prefer []string `json:"prefer,omitempty"`
}

// MetricsConfiguration says where metrics are served.
type MetricsConfiguration struct {
	// bindAddress is host:port, or "0" for none. Default ":8443". Restart.
	BindAddress string `json:"bindAddress,omitempty"`

	// secure serves metrics over HTTPS, to clients that the API server authenticates and authorizes. Default true.
	// Restart.
	Secure *bool `json:"secure,omitempty"`
}

// HealthConfiguration says where /healthz and /readyz are served.
type HealthConfiguration struct {
	// bindAddress is host:port, or "0" for none. Default ":8081". Restart.
	BindAddress string `json:"bindAddress,omitempty"`
}

// LoggingConfiguration says how to log.
type LoggingConfiguration struct {
	// format is "text" or "json". Default "text". Restart.
	Format string `json:"format,omitempty"`

	// verbosity is 0 for what changes something, 1 for every decision, 4 and more for debugging. 0 to 127. Default 0.
	// Live.
	Verbosity int32 `json:"verbosity,omitempty"`
}
