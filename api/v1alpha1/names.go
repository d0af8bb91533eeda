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

import coordinationv1 "k8s.io/api/coordination/v1"

// Group is the API group, and the prefix of every label and annotation of this project.
const Group = "lease-coordinator.dev"

// Annotations on a Lease.
const (
	// FencingTokenAnnotation holds the fencing token of the present term: the resourceVersion that its
	// appointment was based on. A decimal number that only grows from holder to holder of a Lease, also
	// across deletion and re-creation of the Lease, unlike spec.leaseTransitions.
	FencingTokenAnnotation = Group + "/fencing-token"

	// StrategyAnnotation stands for spec.strategy where the API server drops that field: the coordinator writes it.
	StrategyAnnotation = Group + "/strategy"

	// PreferredHolderAnnotation stands for spec.preferredHolder where the API server drops that field.
	PreferredHolderAnnotation = Group + "/preferred-holder"

	// PreemptionAnnotation with the value "never" keeps a healthy holder in office, whoever ranks above it.
	PreemptionAnnotation = Group + "/preemption"

	// StrategyOverrideAnnotation names the strategy by which the lease is to be led, whatever its candidates ask
	// for. The coordinator's flags and configuration file go before it.
	StrategyOverrideAnnotation = Group + "/strategy-override"

	// PausedAnnotation with the value "true" has the coordinator observe the lease and write nothing to it or its
	// candidates. A leader that goes is then replaced by nobody.
	PausedAnnotation = Group + "/paused"
)

// PreemptionNever is the value of PreemptionAnnotation that forbids planned hand-offs.
const PreemptionNever = "never"

// PausedTrue is the value of PausedAnnotation that counts.
const PausedTrue = "true"

// Annotations on a LeaseCandidate.
const (
	// IneligibleAnnotation marks a candidate that must never lead. Its value says why, for people.
	IneligibleAnnotation = Group + "/ineligible"

	// PriorityAnnotation is a positive 32-bit integer. The highest priority leads; the strategy decides
	// among equals. No annotation ranks below any priority.
	PriorityAnnotation = Group + "/priority"

	// PriorityUntilAnnotation is an RFC 3339 time after which PriorityAnnotation no longer counts.
	PriorityUntilAnnotation = Group + "/priority-until"

	// SignalAnnotation with the value "annotations" says that this candidate, while it holds the lease,
	// obeys PreferredHolderAnnotation like spec.preferredHolder. Without it the coordinator ends the term
	// of a holder by revoking the lease where the API server drops the field.
	SignalAnnotation = Group + "/signal"
)

// SignalByAnnotations is the value of SignalAnnotation of a candidate that obeys the annotations on its Lease.
const SignalByAnnotations = "annotations"

// RevokedHolder is the holderIdentity of a Lease that the coordinator has taken to end a term. No candidate
// can have this name: a LeaseCandidate's name has no slash. It leads nothing; it only keeps other electors
// from taking the lease while the former holder may still work.
const RevokedHolder = Group + "/revoked"

// CoordinatorIdentityPrefix starts the identity of every coordinator of this project in its own
// leader-election lock. It tells ours from a kube-apiserver's in the in-tree coordinator's lock.
const CoordinatorIdentityPrefix = "lease-coordinator_"

// InTreeLockNamespace and InTreeLockName name the Lease by which the kube-apiservers elect the one whose
// built-in coordinator is active (k8s.io/kubernetes pkg/controlplane/controller/leaderelection).
const (
	InTreeLockNamespace = "kube-system"
	InTreeLockName      = "leader-election-controller"
)

// Names of strategies.
const (
	// OldestEmulationVersion is Kubernetes' own strategy (KEP-4355).
	OldestEmulationVersion = coordinationv1.OldestEmulationVersion
	// NewestBinaryVersion lets the highest binary version lead.
	NewestBinaryVersion coordinationv1.CoordinatedLeaseStrategy = Group + "/NewestBinaryVersion"
	// Spread shares leases out over nodes and zones, within the version rule of OldestEmulationVersion.
	Spread coordinationv1.CoordinatedLeaseStrategy = Group + "/Spread"
	// Sticky keeps whoever leads.
	Sticky coordinationv1.CoordinatedLeaseStrategy = Group + "/Sticky"
)
