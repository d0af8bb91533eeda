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

package leaseapi

import (
	"context"
	"fmt"
	"time"

	coordinationv1alpha2 "k8s.io/api/coordination/v1alpha2"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// native is a LeaseCandidate of coordination.k8s.io, in one of its versions.
type native struct {
	version string
	empty   func() client.Object
	spec    func(client.Object) (strategy.Spec, bool)
}

// nativeKinds are the versions that this coordinator understands, the preferred one first.
var nativeKinds = []native{
	{
		version: coordinationv1beta1.SchemeGroupVersion.Version,
		empty:   func() client.Object { return &coordinationv1beta1.LeaseCandidate{} },
		spec: func(obj client.Object) (strategy.Spec, bool) {
			c, ok := obj.(*coordinationv1beta1.LeaseCandidate)
			if !ok {
				return strategy.Spec{}, false
			}
			return strategy.Spec{
				LeaseName: c.Spec.LeaseName, Strategy: c.Spec.Strategy, PingTime: c.Spec.PingTime, RenewTime: c.Spec.RenewTime,
				BinaryVersion: c.Spec.BinaryVersion, EmulationVersion: c.Spec.EmulationVersion,
			}, true
		},
	},
	{
		version: coordinationv1alpha2.SchemeGroupVersion.Version,
		empty:   func() client.Object { return &coordinationv1alpha2.LeaseCandidate{} },
		spec: func(obj client.Object) (strategy.Spec, bool) {
			c, ok := obj.(*coordinationv1alpha2.LeaseCandidate)
			if !ok {
				return strategy.Spec{}, false
			}
			return strategy.Spec{
				LeaseName: c.Spec.LeaseName, Strategy: c.Spec.Strategy, PingTime: c.Spec.PingTime, RenewTime: c.Spec.RenewTime,
				BinaryVersion: c.Spec.BinaryVersion, EmulationVersion: c.Spec.EmulationVersion,
			}, true
		},
	},
}

var _ CandidateKind = native{}

// String implements CandidateKind.
func (n native) String() string {
	return fmt.Sprintf("%s/%s %s", coordinationv1beta1.GroupName, n.version, candidateKindName)
}

// New implements CandidateKind.
func (n native) New() client.Object { return n.empty() }

// Candidate implements CandidateKind.
func (n native) Candidate(obj client.Object) *strategy.Candidate {
	spec, ok := n.spec(obj)
	if !ok {
		return nil
	}
	return strategy.NewCandidate(obj, spec)
}

// Ping implements CandidateKind.
func (n native) Ping(ctx context.Context, c client.Client, candidate *strategy.Candidate, pingTime time.Time) (string, error) {
	obj := n.empty()
	obj.SetNamespace(candidate.Namespace)
	obj.SetName(candidate.Name)
	if err := c.Patch(ctx, obj, pingPatch(candidate, pingTime)); err != nil {
		return "", fmt.Errorf("pinging candidate %s/%s: %w", candidate.Namespace, candidate.Name, err)
	}
	return obj.GetResourceVersion(), nil
}

const (
	candidateKindName = "LeaseCandidate"
	candidateResource = "leasecandidates"
)
