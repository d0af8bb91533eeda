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

package coordinator

import (
	"errors"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	configv1alpha1 "github.com/lease-coordinator/coordinator/api/config/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
)

// maxVerbosity is the highest verbosity that the logger knows.
const maxVerbosity = 127

// Validate returns every fault in the options, each with the offending values and the name of the flag or field that
// they were given by. What takes the configuration file to judge is left to Load.
func (o *Options) Validate() error {
	f := &faults{options: o}
	o.validateValues(f)
	o.chooseStrategies(f)
	return errors.Join(f.list...)
}

func (o *Options) validateValues(f *faults) {
	if o.InTree != configv1alpha1.InTreeYield && o.InTree != configv1alpha1.InTreeReplace {
		f.add("%s: must be %q or %q", &o.InTree, configv1alpha1.InTreeYield, configv1alpha1.InTreeReplace)
	}
	for i, namespace := range o.Namespaces {
		for _, problem := range validation.IsDNS1123Label(namespace) {
			f.add("%s: %q: %s", &o.Namespaces, namespace, problem)
		}
		if namespace == corev1.NamespaceNodeLease {
			f.add("%s: the leases of %s are the kubelets' own and are never coordinated", &o.Namespaces, namespace)
		}
		if slices.Contains(o.Namespaces[:i], namespace) {
			f.add("%s: %s is named twice", &o.Namespaces, namespace)
		}
	}
	if o.InTree == configv1alpha1.InTreeReplace && !o.LeaderElect {
		f.add("%s does not go with %s: it works by holding the in-tree coordinator's lock", &o.InTree, &o.LeaderElect)
	}
	if o.LogFormat != "text" && o.LogFormat != "json" {
		f.add(`%s: must be "text" or "json"`, &o.LogFormat)
	}
	if o.Verbosity < 0 || o.Verbosity > maxVerbosity {
		f.add("%s: must be from 0 to %d", &o.Verbosity, maxVerbosity)
	}
	if o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0 {
		f.add("%s: must be whole seconds, at least 1s, since a Lease states its duration in seconds", &o.LeaseDuration)
	}
	if o.LeaseDuration <= o.RenewDeadline {
		f.add("%s must be greater than %s", &o.LeaseDuration, &o.RenewDeadline)
	}
	if o.RetryPeriod <= 0 {
		f.add("%s: must be greater than 0", &o.RetryPeriod)
	}
	if float64(o.RenewDeadline) <= 1.2*float64(o.RetryPeriod) {
		f.add("%s must be greater than 1.2 times %s", &o.RenewDeadline, &o.RetryPeriod)
	}
	for _, problem := range validation.IsDNS1123Subdomain(o.LockName) {
		f.add("%s: %s", &o.LockName, problem)
	}
	for _, problem := range validation.IsDNS1123Label(o.LockNamespace) {
		f.add("%s: %s", &o.LockNamespace, problem)
	}
	if o.ElectionDuration < 100*time.Millisecond {
		f.add("%s: must be at least 100ms, a candidate's round trip", &o.ElectionDuration)
	}
	if o.CandidateTTL < 2*o.ElectionDuration {
		f.add("%s must be at least twice %s", &o.CandidateTTL, &o.ElectionDuration)
	}
	if o.TakeUpTimeout != 0 && o.TakeUpTimeout < election.MinTakeUp {
		f.add("%s: must be 0 or at least %s, since client-go polls that slowly", &o.TakeUpTimeout, election.MinTakeUp)
	}
	if o.MinTerm < 0 {
		f.add("%s: must not be negative", &o.MinTerm)
	}
	if o.KubeAPIQPS < 0 {
		f.add("%s: must not be negative", &o.KubeAPIQPS)
	}
	if o.KubeAPIBurst < 0 {
		f.add("%s: must not be negative", &o.KubeAPIBurst)
	}
	for _, address := range []*string{&o.MetricsAddress, &o.HealthAddress} {
		if *address == "0" {
			continue
		}
		if _, _, err := net.SplitHostPort(*address); err != nil {
			f.add("%s: must be host:port, or 0: %w", address, err)
		}
	}
}
