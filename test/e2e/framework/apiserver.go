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
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// APIServer is a node's kube-apiserver.
type APIServer struct {
	*Process
	node *Node
	port int
	// opts are those of the cluster, of which the emulation version may change.
	mu        sync.Mutex
	emulation string
}

// URL is where it serves.
func (a *APIServer) URL() string { return fmt.Sprintf("https://%s:%d", loopback, a.port) }

func (n *Node) startAPIServer(ctx context.Context) error {
	return n.cluster.retryBind(func() (*Process, error) {
		port, err := thePorts.take()
		if err != nil {
			return nil, err
		}
		info := ProcessInfo{Name: n.Name + "/kube-apiserver", Kind: APIServerKind, Node: n.Name}
		p := n.cluster.newProcess(info, n.cluster.bin.APIServer)
		if !n.cluster.opts.NoAudit {
			p.stdout = func(line string) { n.cluster.audit.line(p.Name(), line) }
		}
		a := &APIServer{Process: p, node: n, port: port}
		n.APIServer = a
		a.configure(n.cluster.opts.EmulationVersion)
		if err := p.Start(); err != nil {
			return nil, err
		}
		if err := a.WaitReady(ctx); err != nil {
			return p, err
		}
		// From here on: one that cannot start at all is not to be tried for ever.
		p.SetRestart(true)
		return p, nil
	})
}

// configure sets what the next run is started with.
func (a *APIServer) configure(emulation string) {
	c := a.node.cluster
	runtimeConfig := "true"
	if c.opts.NoLeaseCandidateAPI {
		runtimeConfig = "false"
	}
	args := []string{
		"--etcd-servers=" + c.Etcd.Endpoint,
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		"--secure-port=" + strconv.Itoa(a.port),
		"--cert-dir=" + filepath.Join(c.dir, "certs"),
		"--tls-cert-file=" + c.pki.certFile,
		"--tls-private-key-file=" + c.pki.keyFile,
		"--token-auth-file=" + c.tokenFile(),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pki.serviceAccountCert,
		"--service-account-signing-key-file=" + c.pki.serviceAccountKey,
		"--service-cluster-ip-range=10.96.0.0/16",
		fmt.Sprintf("--feature-gates=CoordinatedLeaderElection=%t", c.opts.CoordinatedLeaderElection),
		"--runtime-config=coordination.k8s.io/v1beta1=" + runtimeConfig,
		// There are no Pods, hence nothing to admit them with and no endpoints.
		"--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none",
		"--profiling=false",
		// Ends watches on TERM. Without it an open watch keeps the process from
		// ending for as long as a request may take.
		"--shutdown-watch-termination-grace-period=2s",
		"--v=1",
	}
	if !c.opts.NoAudit {
		// Writes to Leases and LeaseCandidates go to standard output as they
		// happen, see audit.go.
		args = append(args,
			"--audit-policy-file="+c.auditPolicyFile(),
			"--audit-log-path=-",
			"--audit-log-mode=blocking")
	}
	if len(c.Nodes) > 1 {
		// A kube-apiserver takes its identity from the hostname. Those of one
		// machine would fight over one identity Lease, and take each other for
		// themselves when they proxy requests that only another version serves.
		args = append(args, "--feature-gates=APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false")
	}
	if emulation != "" {
		args = append(args, "--emulated-version="+emulation)
	}
	args = append(args, c.opts.APIServerArgs...)

	a.mu.Lock()
	a.emulation = emulation
	a.mu.Unlock()
	a.Process.mu.Lock()
	defer a.Process.mu.Unlock()
	a.Process.args = args
	a.Process.info.Emulation = c.emulationOrDefault(emulation)
}

// Restart ends the kube-apiserver and starts it at another emulation version,
// "" for none, on the same port, and waits until it is ready.
func (a *APIServer) Restart(ctx context.Context, emulation string) error {
	if err := a.Stop(ctx); err != nil {
		return err
	}
	a.configure(emulation)
	return a.StartAgain(ctx)
}

// StartAgain starts a stopped kube-apiserver as it was and waits until it is ready.
func (a *APIServer) StartAgain(ctx context.Context) error {
	if err := a.Process.Start(); err != nil {
		return err
	}
	return a.WaitReady(ctx)
}

// WaitReady waits until /readyz says yes and checks that the emulation version
// is the one asked for.
func (a *APIServer) WaitReady(ctx context.Context) error {
	client, ready := a.node.cluster.httpClient, a.URL()+"/readyz"
	if except := a.node.cluster.opts.NeverReady; len(except) > 0 {
		ready += "?" + url.Values{"exclude": except}.Encode()
	}
	if err := a.waitReady(ctx, client, ready, a.node.cluster.admin.token); err != nil {
		return err
	}
	got, err := a.ServedEmulationVersion(ctx)
	if err != nil {
		return err
	}
	if want := a.Info().Emulation; got != want {
		return fmt.Errorf("%s emulates %s, not %s", a.Name(), got, want)
	}
	return nil
}

// ServedEmulationVersion asks /version for the emulation version, as "major.minor".
func (a *APIServer) ServedEmulationVersion(ctx context.Context) (string, error) {
	body, err := httpGet(ctx, a.node.cluster.httpClient, a.URL()+"/version", a.node.cluster.admin.token)
	if err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", a.Name(), err)
	}
	var v struct {
		EmulationMajor, EmulationMinor string
		Major, Minor                   string
	}
	if err := json.Unmarshal(body, &v); err != nil {
		return "", fmt.Errorf("asking %s for its version: %w", a.Name(), err)
	}
	if v.EmulationMajor != "" {
		return v.EmulationMajor + "." + v.EmulationMinor, nil
	}
	return v.Major + "." + strings.TrimSuffix(v.Minor, "+"), nil
}

// bindFailure reports whether the process ended because its port was taken.
func (p *Process) bindFailure() bool {
	return !p.Running() && strings.Contains(p.LogTail(200), "address already in use")
}

// retryBind calls start, which is to choose new ports each time, again when
// the process it started found its ports taken.
func (c *Cluster) retryBind(start func() (*Process, error)) error {
	const attempts = 5
	for i := 1; ; i++ {
		p, err := start()
		if err == nil {
			return nil
		}
		if p == nil {
			return err
		}
		taken := p.bindFailure()
		// A process that never became ready is of no use, and one whose
		// restart policy is on would go on failing.
		ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
		_ = p.Kill(ctx)
		cancel()
		if !taken || i == attempts {
			return err
		}
		c.forget(p)
	}
}

// waitReady polls a health endpoint until it answers 200, or the process has
// ended and is not going to be started again.
func (p *Process) waitReady(ctx context.Context, client *http.Client, url, token string) error {
	run := p.Info().Run
	var last error
	err := WaitFor(ctx, p.Name()+" to be ready", func(ctx context.Context) (bool, error) {
		if p.gone() {
			return false, fmt.Errorf("it has ended:\n%s", p.LogTail(10))
		}
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, last = httpGet(ctx, client, url, token)
		return last == nil, nil
	})
	if err != nil {
		if last != nil && ctx.Err() != nil {
			return fmt.Errorf("%w (%w); its log ends with:\n%s", err, last, p.LogTail(5))
		}
		return err
	}
	if info := p.Info(); info.Run >= run {
		p.bus.publish(Event{Kind: ProcessReady, Subject: info.Name, Process: info})
	}
	return nil
}
