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

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LeaseCandidate is a candidate for the leadership of a Lease of its namespace, on API servers that do not serve
// coordination.k8s.io LeaseCandidates. Its name is the holder identity of the process behind it. Unlike there it
// must be a DNS-1123 subdomain, as the name of every custom resource.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=leasecandidates,scope=Namespaced,shortName=lcand,categories=lease-coordinator
// +kubebuilder:selectablefield:JSONPath=`.spec.leaseName`
// +kubebuilder:printcolumn:name=Lease,type=string,JSONPath=`.spec.leaseName`,description="Name of the Lease"
// +kubebuilder:printcolumn:name=Binary-Version,type=string,JSONPath=`.spec.binaryVersion`,description="Version of the program"
// +kubebuilder:printcolumn:name=Emulation-Version,type=string,JSONPath=`.spec.emulationVersion`,description="Version that the program emulates"
// +kubebuilder:printcolumn:name=Strategy,type=string,JSONPath=`.spec.strategy`,description="How the candidate wants the leader to be chosen"
// +kubebuilder:printcolumn:name=Renewed,type=date,JSONPath=`.spec.renewTime`,description="When the candidate last showed that it is alive"
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`,description="When the candidate was created"
type LeaseCandidate struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the candidate says of itself.
	// +required
	Spec LeaseCandidateSpec `json:"spec"`
}

// LeaseCandidateSpec is what a candidate says of itself, and the ping that it answers. It has the fields, and the
// rules, of coordination.k8s.io/v1beta1 (k8s.io/kubernetes pkg/apis/coordination/validation), with the same words where
// the schema can have them. test/e2e holds both kinds against each other.
//
// +kubebuilder:validation:XValidation:fieldPath=".binaryVersion",rule="!has(self.emulationVersion) || !isSemver(self.emulationVersion) || !isSemver(self.binaryVersion) || semver(self.binaryVersion).compareTo(semver(self.emulationVersion)) >= 0",message="must be greater than or equal to `emulationVersion`"
// +kubebuilder:validation:XValidation:fieldPath=".emulationVersion",reason=FieldValueRequired,rule="self.strategy != 'OldestEmulationVersion' || has(self.emulationVersion) && isSemver(self.emulationVersion) && semver(self.emulationVersion).compareTo(semver('0.0.0')) != 0",message="must be specified when `strategy` is 'OldestEmulationVersion'"
type LeaseCandidateSpec struct {
	// leaseName is the name of the Lease, in the same namespace, that this candidate is for. It cannot be changed.
	// +required
	// +kubebuilder:validation:XValidation:reason=FieldValueRequired,rule="self != ''",message="must be specified"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable"
	LeaseName string `json:"leaseName"`

	// pingTime is when the coordinator last asked the candidate to renew. The candidate answers by moving renewTime.
	// It is an RFC 3339 time with six digits after the second.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.,][0-9]{6}(Z|[+-]([01][0-9]|2[0-4]):([0-5][0-9]|60))$`
	PingTime *metav1.MicroTime `json:"pingTime,omitempty"`

	// renewTime is when the candidate last showed that it is alive, an RFC 3339 time with six digits after the second.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.,][0-9]{6}(Z|[+-]([01][0-9]|2[0-4]):([0-5][0-9]|60))$`
	RenewTime *metav1.MicroTime `json:"renewTime,omitempty"`

	// binaryVersion is the version of the program, a semantic version without leading `v`.
	// +required
	// +kubebuilder:validation:XValidation:reason=FieldValueRequired,rule="self != ''",message="must be specified"
	// +kubebuilder:validation:XValidation:rule="self == '' || isSemver(self)",message="must be a valid semantic version"
	BinaryVersion string `json:"binaryVersion"`

	// emulationVersion is the version that the program emulates, a semantic version without leading `v`. It must not be
	// greater than binaryVersion, and be given when strategy is "OldestEmulationVersion".
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == '' || isSemver(self)",message="must be a valid semantic version"
	EmulationVersion string `json:"emulationVersion,omitempty"`

	// strategy is how the leader is to be chosen. If the candidates of a Lease differ, those with the highest
	// binaryVersion decide. A name without a prefix is Kubernetes' own: "OldestEmulationVersion". Others have a domain
	// before them, as "lease-coordinator.dev/Sticky".
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:reason=FieldValueRequired,rule="self != ''",message="must be specified"
	// +kubebuilder:validation:XValidation:rule="self == '' || self == 'OldestEmulationVersion' || self.contains('/')",message="supported values without a prefix: \"OldestEmulationVersion\""
	// +kubebuilder:validation:XValidation:rule="!self.contains('/') || !format.qualifiedName().validate(self).hasValue()",messageExpression="format.qualifiedName().validate(self).value()[0]"
	Strategy coordinationv1.CoordinatedLeaseStrategy `json:"strategy"`
}

// LeaseCandidateList is a list of LeaseCandidates.
//
// +kubebuilder:object:root=true
type LeaseCandidateList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LeaseCandidate `json:"items"`
}
