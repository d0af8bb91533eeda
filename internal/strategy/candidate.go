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

package strategy

import (
	"fmt"
	"strconv"
	"time"

	"github.com/blang/semver/v4"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// Candidate is a LeaseCandidate of any served version, parsed once. It is read-only after NewCandidate.
type Candidate struct {
	Namespace, Name, UID, ResourceVersion string
	// LeaseName is the Lease that the candidate wants to lead, in its own namespace.
	LeaseName string
	// Strategy is the one that the candidate asks for.
	Strategy coordinationv1.CoordinatedLeaseStrategy
	// Created is the API server's stamp, with a resolution of one second.
	Created time.Time
	// Renewed is the candidate's own last stamp, by its own clock; zero if it never renewed.
	Renewed time.Time

	Binary, Emulation Version

	// Ineligible says why the candidate must never lead (IneligibleAnnotation); "" if it may.
	Ineligible string
	// Priority is positive, or 0 for none (PriorityAnnotation). It counts until PriorityUntil, if that is set.
	Priority      int32
	PriorityUntil time.Time
	// ObeysAnnotations is set for a candidate that, as a holder, reads the annotations on its Lease.
	ObeysAnnotations bool
	// Warnings lists annotations whose value was invalid and is treated as absent.
	Warnings []string
}

// Spec is the part of a LeaseCandidate that all its versions share.
type Spec struct {
	LeaseName, BinaryVersion, EmulationVersion string
	Strategy                                   coordinationv1.CoordinatedLeaseStrategy
	RenewTime                                  *metav1.MicroTime
}

// NewCandidate parses a LeaseCandidate. Whatever the object holds, it never fails: what cannot be parsed is
// left for Eligible to refuse, or reported in Warnings and treated as absent.
func NewCandidate(meta metav1.Object, spec Spec) *Candidate {
	c := &Candidate{
		Namespace:       meta.GetNamespace(),
		Name:            meta.GetName(),
		UID:             string(meta.GetUID()),
		ResourceVersion: meta.GetResourceVersion(),
		LeaseName:       spec.LeaseName,
		Strategy:        spec.Strategy,
		Created:         meta.GetCreationTimestamp().Time,
		Binary:          ParseVersion(spec.BinaryVersion),
		Emulation:       ParseVersion(spec.EmulationVersion),
	}
	if spec.RenewTime != nil {
		c.Renewed = spec.RenewTime.Time
	}
	annotations := meta.GetAnnotations()
	c.ObeysAnnotations = annotations[v1alpha1.SignalAnnotation] == v1alpha1.SignalByAnnotations
	if why, set := annotations[v1alpha1.IneligibleAnnotation]; set {
		if c.Ineligible = why; why == "" {
			c.Ineligible = "no reason given"
		}
	}
	c.parsePriority(annotations)
	return c
}

func (c *Candidate) parsePriority(annotations map[string]string) {
	text, set := annotations[v1alpha1.PriorityAnnotation]
	if !set {
		return
	}
	priority, err := strconv.ParseInt(text, 10, 32)
	if err != nil || priority <= 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("annotation %s: %q is not a whole number from 1 to 2147483647", v1alpha1.PriorityAnnotation, text))
		return
	}
	if until, set := annotations[v1alpha1.PriorityUntilAnnotation]; set {
		t, err := time.Parse(time.RFC3339, until)
		if err != nil {
			// A priority whose end cannot be read would never end by itself.
			c.Warnings = append(c.Warnings, fmt.Sprintf("annotation %s: %q is not an RFC 3339 time", v1alpha1.PriorityUntilAnnotation, until))
			return
		}
		c.PriorityUntil = t
	}
	c.Priority = int32(priority)
}

// PriorityAt returns the priority that counts at that time, 0 for none.
func (c *Candidate) PriorityAt(now time.Time) int32 {
	if !c.PriorityUntil.IsZero() && !now.Before(c.PriorityUntil) {
		return 0
	}
	return c.Priority
}

// Version is a version as a candidate wrote it, and parsed.
type Version struct {
	// Text is what the candidate wrote.
	Text string
	// Semver is valid only if Err is nil.
	Semver semver.Version
	// Err says why Text is no version.
	Err error
}

// ParseVersion parses a version as leniently as the in-tree coordinator does ("v1.29.3", "1.29").
func ParseVersion(text string) Version {
	v, err := semver.ParseTolerant(text)
	return Version{Text: text, Semver: v, Err: err}
}
