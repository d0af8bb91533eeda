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

package checks

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Facts are all that is known of a cluster. In each part, Unknown says why it could not be found out; "" if it was.
// Facts are read-only.
type Facts struct {
	// Now is the API server's time.
	Now time.Time
	// Ahead is by how much the API server's clock is ahead of this machine's, as far as that is known.
	Ahead time.Duration

	// Settings are those of the coordinator, and Replace is set if it is to hold the in-tree coordinator's lock.
	Settings *election.Settings
	Replace  bool
	// Namespaces are those that it coordinates; none stands for all.
	Namespaces []string

	// Answers are what connections to the API server found, each by itself.
	Answers []Answer
	// APIServers is how many kube-apiservers have a Lease of their own; 0 if that is not known.
	APIServers int
	// Understood are the native versions of LeaseCandidate that somebody serves and this program understands, and
	// Removals has the release that serves a version no more, where Kubernetes has announced one.
	Understood []string
	Removals   map[string]Release
	// ServerWarnings are what the API server said in warning headers.
	ServerWarnings []string

	CRD CRD

	// InTreeLock is the in-tree coordinator's lock, and OwnLock the coordinator's: the same if Replace.
	InTreeLock, OwnLock Lock
	Pods                Pods
	Policies            Policies

	// Rights are those of the coordinator, OwnRights those of whoever asks.
	Rights, OwnRights Rights

	Leases     Leases
	Candidates Candidates
}

// Answer is what one connection to the API server found: behind a load balancer each may end at another kube-apiserver.
type Answer struct {
	// Version is the server's, "v1.37.2"; "" if that is not known.
	Version string
	// Ahead is by how much its clock is ahead of this machine's.
	Ahead time.Duration
	// FieldsKept is whether it keeps spec.strategy and spec.preferredHolder on a Lease.
	FieldsKept    bool
	FieldsUnknown string
	// Native are the versions of coordination.k8s.io that have LeaseCandidates, and Custom those of
	// lease-coordinator.dev.
	Native, Custom []string
	KindsUnknown   string
}

// Release is a minor release of Kubernetes. The zero value stands for none that is known.
type Release struct{ Major, Minor int }

// CRD is the definition of LeaseCandidate in lease-coordinator.dev.
type CRD struct {
	Unknown string
	// Installed is what the cluster has; nil for none. Shipped is what this program comes with; nil for none.
	Installed, Shipped map[string]any
}

// Lock is a Lease by which coordinators elect the active one.
type Lock struct {
	Key     types.NamespacedName
	Unknown string
	// Lease is nil if there is none.
	Lease *coordinationv1.Lease
	// Watched is for how long it was watched, and Renewed whether its holder renewed it meanwhile.
	Watched time.Duration
	Renewed bool
}

// Pods are the coordinator's.
type Pods struct {
	Unknown string
	List    []Pod
}

// Pod is one of the coordinator's.
type Pod struct {
	Namespace, Name, Image string
	Ready                  bool
}

// Policies are the admission policies that guard LeaseCandidates.
type Policies struct {
	Unknown string
	// Installed are the names of ValidatingAdmissionPolicies of this project, and Bound those that a binding puts in
	// force.
	Installed, Bound []string
}

// Right is one thing that somebody may do, or not.
type Right struct {
	Verb, Group, Resource string
	// Name is "" for any, and Namespace "" for all.
	Name, Namespace string
}

// Rights are what somebody may do.
type Rights struct {
	// Unknown says why nothing could be found out.
	Unknown string
	// Subject is whose they are, and How how they were found out.
	Subject, How string
	Reviews      []Review
}

// Review is whether a right is granted.
type Review struct {
	Right   Right
	Allowed bool
	Unknown string
	// For says what it is needed for; "" for the coordinator's work.
	For string
}

// Leases are those of the cluster, but for kube-node-lease.
type Leases struct {
	Unknown string
	// Only is the namespace that they are of; "" for all.
	Only string
	List []*coordinationv1.Lease
}

// Candidates are the LeaseCandidates of all kinds.
type Candidates struct {
	Unknown string
	Only    string
	List    []Candidate
}

// Candidate is a LeaseCandidate of any kind.
type Candidate struct {
	*strategy.Candidate
	// Resource is that of its kind, "leasecandidates.coordination.k8s.io".
	Resource string
	// Managed says who wrote what when, by the API server's clock.
	Managed []metav1.ManagedFieldsEntry
}

// locks returns the Leases of the locks that there are.
func locks(of ...Lock) []*coordinationv1.Lease {
	var list []*coordinationv1.Lease
	for _, l := range of {
		if l.Lease != nil {
			list = append(list, l.Lease)
		}
	}
	return list
}
