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

// Package v1alpha1 is the coordinator's configuration file, version config.lease-coordinator.dev/v1alpha1.
// docs/configuration.md describes it for operators.
//
// It imports nothing but API machinery: what a file means is for the coordinator to say.
//
// +kubebuilder:object:generate=true
// +groupName=config.lease-coordinator.dev
package v1alpha1
