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
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ComponentOptions describe a kube-controller-manager or kube-scheduler.
type ComponentOptions struct {
	// EmulationVersion, such as "1.36". Default: none.
	EmulationVersion string
	// Plain turns the component's own CoordinatedLeaderElection gate off: it
	// competes as components do today.
	Plain bool
	// LeaseNamespace and LeaseName are those of the Lease it competes for.
	// Default: kube-system and the component's name. They can be set only with
	// Plain, because a coordinated component registers its LeaseCandidate for
	// kube-system/<component's name> whatever its flags say.
	LeaseNamespace, LeaseName string
	// LeaseDuration, RenewDeadline and RetryPeriod default to 15, 10 and 2 s.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// NoRestart leaves the component exited when it exits. The default is to
	// start it again, as a kubelet would: it exits whenever it loses its lease.
	NoRestart bool
	// Args are further flags.
	Args []string
}

// Component is a kube-controller-manager or a kube-scheduler.
type Component struct {
	*Process
	node *Node
	kind ProcessKind
	port int
	cred credential

	mu   sync.Mutex
	opts ComponentOptions
}

// StartControllerManager starts a kube-controller-manager against the node's
// kube-apiserver and returns when it is healthy.
func (n *Node) StartControllerManager(ctx context.Context, opts ComponentOptions) (*Component, error) {
	return n.startComponent(ctx, ControllerManagerKind, n.cluster.bin.ControllerManager, ControllerManagerUser, opts)
}

// StartScheduler starts a kube-scheduler against the node's kube-apiserver and
// returns when it is healthy.
func (n *Node) StartScheduler(ctx context.Context, opts ComponentOptions) (*Component, error) {
	return n.startComponent(ctx, SchedulerKind, n.cluster.bin.Scheduler, SchedulerUser, opts)
}

func (n *Node) startComponent(ctx context.Context, kind ProcessKind, bin, user string, opts ComponentOptions) (*Component, error) {
	if !opts.Plain && (opts.LeaseNamespace != "" || opts.LeaseName != "") {
		return nil, fmt.Errorf("a coordinated %s always competes for kube-system/%s", kind, kind)
	}
	if opts.LeaseNamespace == "" {
		opts.LeaseNamespace = metav1.NamespaceSystem
	}
	if opts.LeaseName == "" {
		opts.LeaseName = string(kind)
	}
	defaultDurations(&opts.LeaseDuration, &opts.RenewDeadline, &opts.RetryPeriod)
	if err := n.cluster.allowLeaderElection(ctx, user, opts.LeaseNamespace); err != nil {
		return nil, err
	}
	var c *Component
	err := n.cluster.retryBind(func() (*Process, error) {
		port, err := thePorts.take()
		if err != nil {
			return nil, err
		}
		p := n.cluster.newProcess(ProcessInfo{Name: n.Name + "/" + string(kind), Kind: kind, Node: n.Name}, bin)
		c = &Component{Process: p, node: n, kind: kind, port: port, opts: opts, cred: n.cluster.creds.take(user, p.Info())}
		if err := c.configure(); err != nil {
			return nil, err
		}
		if err := p.Start(); err != nil {
			return nil, err
		}
		return p, c.WaitHealthy(ctx)
	})
	if err != nil {
		return nil, err
	}
	c.SetRestart(!opts.NoRestart)
	return c, nil
}

func defaultDurations(lease, renew, retry *time.Duration) {
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{{lease, 15 * time.Second}, {renew, 10 * time.Second}, {retry, 2 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.fallback
		}
	}
}

func (c *Component) configure() error {
	cl := c.node.cluster
	kubeconfig, err := c.node.kubeconfig(c.cred, c.Name())
	if err != nil {
		return err
	}
	c.mu.Lock()
	opts := c.opts
	c.mu.Unlock()
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--bind-address=" + loopback,
		"--secure-port=" + strconv.Itoa(c.port),
		"--cert-dir=" + filepath.Join(cl.dir, "certs"),
		"--tls-cert-file=" + cl.pki.certFile,
		"--tls-private-key-file=" + cl.pki.keyFile,
		"--authentication-skip-lookup",
		"--leader-elect",
		"--leader-elect-resource-namespace=" + opts.LeaseNamespace,
		"--leader-elect-resource-name=" + opts.LeaseName,
		"--leader-elect-lease-duration=" + opts.LeaseDuration.String(),
		"--leader-elect-renew-deadline=" + opts.RenewDeadline.String(),
		"--leader-elect-retry-period=" + opts.RetryPeriod.String(),
		fmt.Sprintf("--feature-gates=CoordinatedLeaderElection=%t", !opts.Plain),
		"--profiling=false",
		"--v=2",
	}
	if c.kind == ControllerManagerKind {
		// One cheap controller will do: it is its leadership that matters.
		args = append(args, "--controllers=namespace-controller")
	}
	if opts.EmulationVersion != "" {
		args = append(args, "--emulated-version="+opts.EmulationVersion)
	}
	args = append(args, opts.Args...)

	c.Process.mu.Lock()
	defer c.Process.mu.Unlock()
	c.Process.args = args
	c.Process.info.Emulation = cl.emulationOrDefault(opts.EmulationVersion)
	c.Process.info.Lease = opts.LeaseNamespace + "/" + opts.LeaseName
	return nil
}

// Restart ends the component and starts it at another emulation version, ""
// for none, as an upgrade or rollback of it would, and waits until it is
// healthy. Its holder identity is a new one.
func (c *Component) Restart(ctx context.Context, emulation string) error {
	if err := c.Stop(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	c.opts.EmulationVersion = emulation
	c.mu.Unlock()
	if err := c.configure(); err != nil {
		return err
	}
	return c.StartAgain(ctx)
}

// StartAgain starts a stopped component as it was and waits until it is healthy.
func (c *Component) StartAgain(ctx context.Context) error {
	if err := c.Process.Start(); err != nil {
		return err
	}
	return c.WaitHealthy(ctx)
}

// WaitHealthy waits until /healthz says yes. That takes no leadership.
func (c *Component) WaitHealthy(ctx context.Context) error {
	url := fmt.Sprintf("https://%s:%d/healthz", loopback, c.port)
	return c.waitReady(ctx, c.node.cluster.httpClient, url, "")
}

// httpGet returns the body of a 200 answer.
func httpGet(ctx context.Context, client *http.Client, url, token string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s: %.300s", url, resp.Status, body)
	}
	return body, nil
}

var versionPattern = regexp.MustCompile(`v(\d+\.\d+)\.`)

// binaryVersion asks a Kubernetes program for its version, as "major.minor".
func binaryVersion(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", path, err)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return "", errors.New("asking " + path + " for its version: it says " + string(out))
	}
	return string(m[1]), nil
}
