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
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// Candidate is a LeaseCandidate of any served version, parsed once. It is read-only after NewCandidate.
type Candidate struct {
	Namespace, Name, UID, ResourceVersion string
	// Labels and Annotations are the object's. Read-only.
	Labels, Annotations map[string]string
	// Node and Zone are where the candidate runs; "" if that is not known. See NewCandidate.
	Node, Zone string
	// CustomResource is set for a LeaseCandidate of this project's own kind, which the in-tree coordinator does not see.
	CustomResource bool
	// LeaseName is the Lease that the candidate wants to lead, in its own namespace.
	LeaseName string
	// Strategy is the one that the candidate asks for.
	Strategy coordinationv1.CoordinatedLeaseStrategy
	// Created is the API server's stamp, with a resolution of one second.
	Created time.Time
	// Renewed is the candidate's own last stamp, by its own clock; zero if it never renewed.
	Renewed time.Time
	// PingTime is the stamp of the coordinator's last ping; zero if there was none.
	PingTime time.Time

	Binary, Emulation Version

	// Ineligible says why the candidate must never lead (IneligibleAnnotation); "" if it may.
	Ineligible string
	// Priority is positive, or 0 for none (PriorityAnnotation). It counts until PriorityUntil, if that is set.
	Priority      int32
	PriorityUntil time.Time
	// ObeysAnnotations is set for a candidate that, as a holder, reads the annotations on its Lease.
	ObeysAnnotations bool
	// Warnings lists, for people, annotations whose value is invalid, and what was made of them.
	Warnings []string
}

// Spec is the part of a LeaseCandidate that all its versions share.
type Spec struct {
	LeaseName                       string
	PingTime, RenewTime             *metav1.MicroTime
	BinaryVersion, EmulationVersion string
	Strategy                        coordinationv1.CoordinatedLeaseStrategy
}

// NewCandidate parses a LeaseCandidate. Whatever the object holds, it never fails: what cannot be parsed is
// left for the strategy to refuse, or reported in Warnings and treated as absent.
//
// Its node is that of the label kubernetes.io/hostname, or else the host in the name "<hostname>_<uuid>" that client-go
// and the Kubernetes components give themselves, or in "<hostname>-<uuid>", which pkg/candidate does; its zone is that of
// the label topology.kubernetes.io/zone.
func NewCandidate(meta metav1.Object, spec Spec) *Candidate {
	c := &Candidate{
		Namespace:       meta.GetNamespace(),
		Name:            meta.GetName(),
		UID:             string(meta.GetUID()),
		ResourceVersion: meta.GetResourceVersion(),
		Labels:          meta.GetLabels(),
		Annotations:     meta.GetAnnotations(),
		Node:            meta.GetLabels()[corev1.LabelHostname],
		Zone:            meta.GetLabels()[corev1.LabelTopologyZone],
		LeaseName:       spec.LeaseName,
		Strategy:        spec.Strategy,
		Created:         meta.GetCreationTimestamp().Time,
		Binary:          ParseVersion(spec.BinaryVersion),
		Emulation:       ParseVersion(spec.EmulationVersion),
	}
	if spec.RenewTime != nil {
		c.Renewed = spec.RenewTime.Time
	}
	if spec.PingTime != nil {
		c.PingTime = spec.PingTime.Time
	}
	if c.Node == "" {
		c.Node = hostOf(c.Name)
	}
	annotations := c.Annotations
	c.ObeysAnnotations = annotations[v1alpha1.SignalAnnotation] == v1alpha1.SignalByAnnotations
	if why, set := annotations[v1alpha1.IneligibleAnnotation]; set {
		switch strings.ToLower(why) {
		case "":
			why = "no reason given"
		case "false", "no", "0":
			// Whoever wrote it may have meant the opposite. Not to lead is the safe half.
			c.Warnings = append(c.Warnings, fmt.Sprintf("annotation %s: %q keeps the candidate from leading, as any value does; remove the annotation to let it lead", v1alpha1.IneligibleAnnotation, why))
		}
		c.Ineligible = why
	}
	c.parsePriority(annotations)
	return c
}

// hostOf returns the host in "<hostname>_<uuid>" or "<hostname>-<uuid>", or "".
func hostOf(name string) string {
	const uuidLength = 36
	end := len(name) - uuidLength - 1
	if end < 1 || name[end] != '_' && name[end] != '-' || uuid.Validate(name[end+1:]) != nil {
		return ""
	}
	return name[:end]
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

// valid returns an error that names the field unless the version parsed.
func (v *Version) valid(field string) error {
	if v.Err != nil {
		return fmt.Errorf("%s %q is not a version: %w", field, v.Text, v.Err)
	}
	return nil
}

// ParseVersion parses a version as leniently as the in-tree coordinator does ("v1.29.3", "1.29").
//
// Versions are ordered as SemVer 2.0 says, vendors' included. What follows a "-" makes a pre-release, below the release:
// 1.31.2-gke.100 < 1.31.2-gke.1000 < 1.31.2, and 1.31.2-eks-<hash> is ordered by its hash, which means nothing but is
// stable. What follows a "+" does not count: 1.31.2+k3s1 and 1.31.2+k3s2 are equal, and the older candidate leads.
func ParseVersion(text string) Version {
	v, err := semver.ParseTolerant(text)
	return Version{Text: text, Semver: v, Err: err}
}
