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

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkerOptions describe a process of test/worker: a controller built on pkg/candidate that works while it leads.
type WorkerOptions struct {
	// Namespace and Lease it competes for. Required.
	Namespace, Lease string
	// Name is its holder identity and, with a number if taken, the name of the process. Required.
	Name string
	// BinaryVersion and EmulationVersion default to the control plane's version, as "major.minor.0".
	BinaryVersion, EmulationVersion string
	// Drain is how long its work takes to stop.
	Drain time.Duration
	// Args are further flags.
	Args []string
	// Binary to run. Default: what BuildWorker builds.
	Binary string
}

// StartWorker runs a worker against the node's kube-apiserver. It does not wait for it to register; see Recorder.WaitFor.
func (n *Node) StartWorker(ctx context.Context, opts WorkerOptions) (*Candidate, error) {
	if opts.Namespace == "" || opts.Lease == "" || opts.Name == "" {
		return nil, fmt.Errorf("starting worker %q: Namespace, Lease and Name are required", opts.Name)
	}
	if opts.Binary == "" {
		bin, err := BuildWorker(ctx)
		if err != nil {
			return nil, err
		}
		opts.Binary = bin
	}
	if opts.BinaryVersion == "" {
		opts.BinaryVersion = n.cluster.version + ".0"
	}
	if opts.EmulationVersion == "" {
		opts.EmulationVersion = n.cluster.version + ".0"
	}
	p := n.cluster.newProcess(ProcessInfo{
		Name: opts.Name, Kind: CandidateKind, Node: n.Name,
		Lease: opts.Namespace + "/" + opts.Lease, Emulation: majorMinor(opts.EmulationVersion), Identity: opts.Name,
	}, opts.Binary)
	kubeconfig, err := n.kubeconfig(n.cluster.creds.take(WorkerUser, p.Info()), p.Name())
	if err != nil {
		return nil, err
	}
	w := &Candidate{Process: p, Identity: opts.Name, WorkLog: filepath.Join(n.cluster.dir, "logs", p.Name()+".work")}
	p.args = append([]string{
		"--kubeconfig=" + kubeconfig,
		"--namespace=" + opts.Namespace,
		"--lease=" + opts.Lease,
		"--name=" + opts.Name,
		"--binary-version=" + opts.BinaryVersion,
		"--emulation-version=" + opts.EmulationVersion,
		"--drain=" + opts.Drain.String(),
		"--work-log=" + w.WorkLog,
	}, opts.Args...)
	// A data race must end the process, or its report would go unnoticed.
	p.env = []string{"GORACE=halt_on_error=1"}
	return w, p.Start()
}

// AllowWorkers gives the workers of a namespace what docs/library.md says that a candidate needs, and nothing else.
func (c *Cluster) AllowWorkers(ctx context.Context, namespace, lease string) error {
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "candidate"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{lease}, Verbs: []string{"list", "watch", "patch"}},
			{APIGroups: []string{"coordination.k8s.io", "lease-coordinator.dev"}, Resources: []string{"leasecandidates"}, Verbs: []string{"create", "list", "watch", "patch", "delete"}},
		},
	}
	rbac := c.Clientset().RbacV1()
	if _, err := rbac.Roles(namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the workers' role: %w", err)
	}
	if _, err := rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "candidate"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "candidate"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: WorkerUser}},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("binding the workers' role: %w", err)
	}
	return nil
}
