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

package framework

// auditPolicy logs complete writes to Leases and LeaseCandidates and nothing
// else: who wrote what, on which resourceVersion, when exactly and whether it
// was refused. A watch shows only what became of an object.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  namespaces: [kube-node-lease]
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources:
  - group: coordination.k8s.io
    resources: [leases, leasecandidates]
- level: None
`

// auditFeed passes on the audit events of a cluster's kube-apiservers.
type auditFeed struct{}

func (c *Cluster) auditLine(line string) {}
