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
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// OperatorOptions describe a process of examples/operator.
type OperatorOptions struct {
	// Namespace and Lease it competes for. Required.
	Namespace, Lease string
	// Name is its holder identity and, with a number if taken, the name of the process. Required.
	Name string
	// BinaryVersion it registers. Required.
	BinaryVersion string
	// Args are further flags.
	Args []string
}

// Operator is a process of examples/operator.
type Operator struct {
	*Process
	// Identity is its holder identity and the name of its LeaseCandidate.
	Identity string
	readyURL string
}

// StartOperator runs an operator against the node's kube-apiserver and returns when it is ready, with the rights of
// Cluster.AllowOperators. When it leads is what the candidate library in it says: from before its controllers start until they have
// all returned.
func (n *Node) StartOperator(ctx context.Context, opts OperatorOptions) (*Operator, error) {
	if opts.Namespace == "" || opts.Lease == "" || opts.Name == "" || opts.BinaryVersion == "" {
		return nil, fmt.Errorf("starting operator %q: Namespace, Lease, Name and BinaryVersion are required", opts.Name)
	}
	bin, err := build(ctx, "examples/operator", true)
	if err != nil {
		return nil, err
	}
	var o *Operator
	err = n.cluster.retryBind(func() (*Process, error) {
		port, err := thePorts.take()
		if err != nil {
			return nil, err
		}
		p := n.cluster.newProcess(ProcessInfo{
			Name: opts.Name, Kind: CandidateKind, Node: n.Name,
			Lease: opts.Namespace + "/" + opts.Lease, Identity: opts.Name,
		}, bin)
		p.line = n.cluster.operatorLine
		kubeconfig, err := n.kubeconfig(n.cluster.creds.take(WorkerUser, p.Info()), p.Name())
		if err != nil {
			return nil, err
		}
		address := fmt.Sprintf("%s:%d", loopback, port)
		p.args = append([]string{
			"--kubeconfig=" + kubeconfig,
			"--namespace=" + opts.Namespace,
			"--lease-name=" + opts.Lease,
			"--identity=" + opts.Name,
			"--binary-version=" + opts.BinaryVersion,
			"--health-probe-bind-address=" + address,
			"--zap-encoder=json",
			"--zap-time-encoding=rfc3339nano",
		}, opts.Args...)
		// A data race must end the process, or its report would go unnoticed. Otherwise it ends without the second that the
		// race detector would sleep.
		p.env = []string{"GORACE=halt_on_error=1 atexit_sleep_ms=0"}
		o = &Operator{Process: p, Identity: opts.Name, readyURL: "http://" + address + "/readyz"}
		if err := p.Start(); err != nil {
			return nil, err
		}
		return p, p.waitReady(ctx, http.DefaultClient, o.readyURL, "")
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// The words of pkg/candidate, which every program logs that is built on it.
const (
	wordStartedLeading = "Started leading"
	wordStoppedLeading = "Stopped leading"
)

// operatorLine publishes what an operator says about its own leadership.
func (c *Cluster) operatorLine(info ProcessInfo, at time.Time, line string) {
	var said struct{ Msg, Reason, Lease string }
	if json.Unmarshal([]byte(line), &said) != nil || said.Lease != info.Lease {
		return
	}
	e := Event{Time: at, Subject: info.Name, Process: info, Lease: info.Lease}
	switch {
	case said.Msg == wordStartedLeading:
		e.Kind = StartedLeading
	case strings.HasPrefix(said.Msg, wordStoppedLeading):
		e.Kind = StoppedLeading
	default:
		return
	}
	if stamp, ok := ownStamp(at, line); ok {
		e.Time = stamp
	}
	c.bus.publish(e)
}

// AllowOperators gives the operators of a namespace what examples/operator/config does, and nothing else.
func (c *Cluster) AllowOperators(ctx context.Context, namespace string) error {
	objects, err := BuildKustomization("examples/operator/config")
	if err != nil {
		return err
	}
	var rights []*unstructured.Unstructured
	for _, o := range objects {
		switch o.GetKind() {
		case "Role":
		case "RoleBinding":
			// The user that processes outside Pods are.
			subject := map[string]any{"apiGroup": rbacv1.GroupName, "kind": rbacv1.UserKind, "name": WorkerUser}
			if err := unstructured.SetNestedSlice(o.Object, []any{subject}, "subjects"); err != nil {
				return fmt.Errorf("binding the operators' role: %w", err)
			}
		default:
			continue
		}
		o.SetNamespace(namespace)
		rights = append(rights, o)
	}
	return c.Apply(ctx, rights...)
}
