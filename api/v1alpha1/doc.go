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

// Package v1alpha1 holds what the coordinator, its candidates and other programs must agree on: the names
// this project writes into the Kubernetes API, and the LeaseCandidate of servers that have none of their own
// (config/crd). It imports nothing but API types and API machinery, so that anything may import it.
//
// +kubebuilder:object:generate=true
// +groupName=lease-coordinator.dev
package v1alpha1
