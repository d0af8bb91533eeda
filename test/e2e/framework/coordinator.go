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
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	dto "github.com/prometheus/client_model/go"
)

// CoordinatorOptions describe a coordinator process.
type CoordinatorOptions struct {
	// Name is the process's name within the cluster. Default "coordinator".
	// A name in use gets a number.
	Name string
	// User it authenticates as. Default CoordinatorUser, whose rights are the
	// shipped ones: apply config/rbac first, see Cluster.ApplyKustomization.
	User string
	// Args are flags beyond --kubeconfig, the addresses and the log settings;
	// for instance "--in-tree=replace". They come last, so they win.
	Args []string
	// Restart starts the coordinator again when it exits, as a kubelet would.
	Restart bool
	// Binary to run. Default: what BuildCoordinator builds.
	Binary string
	// Container runs it as the shipped image does: Binary, which must be static,
	// is alone in a root directory that it cannot write, as the image's user, and
	// finds the API server as a Pod does, by its service account's files and
	// environment. User is that service account.
	Container bool
	// NoWait returns at once instead of when the coordinator is ready, for one
	// that is meant to fail.
	NoWait bool
}

// Coordinator is a process of cmd/coordinator.
type Coordinator struct {
	*Process
	node       *Node
	healthURL  string
	metricsURL string
	// Root is the root directory of its container, if it has one.
	Root string
}

// StartCoordinator runs a coordinator against the node's kube-apiserver and
// returns when it is ready.
func (n *Node) StartCoordinator(ctx context.Context, opts CoordinatorOptions) (*Coordinator, error) {
	if opts.Name == "" {
		opts.Name = string(CoordinatorKind)
	}
	if opts.User == "" {
		opts.User = CoordinatorUser
	}
	if opts.Binary == "" {
		bin, err := BuildCoordinator(ctx)
		if err != nil {
			return nil, err
		}
		opts.Binary = bin
	}
	var c *Coordinator
	err := n.cluster.retryBind(func() (*Process, error) {
		health, err := thePorts.take()
		if err != nil {
			return nil, err
		}
		metrics, err := thePorts.take()
		if err != nil {
			return nil, err
		}
		p := n.cluster.newProcess(ProcessInfo{Name: opts.Name, Kind: CoordinatorKind, Node: n.Name}, opts.Binary)
		var credentials []string
		var root string
		if opts.Container {
			if p.container, err = n.newContainer(ctx, opts.Binary); err != nil {
				return nil, err
			}
			root, p.path = p.container.root, "/"+filepath.Base(opts.Binary)
		} else {
			kubeconfig, err := n.kubeconfig(n.cluster.creds.take(opts.User, p.Info()), p.Name())
			if err != nil {
				return nil, err
			}
			credentials = []string{"--kubeconfig=" + kubeconfig}
		}
		healthAddress := fmt.Sprintf("%s:%d", loopback, health)
		metricsAddress := fmt.Sprintf("%s:%d", loopback, metrics)
		p.args = slices.Concat(credentials, []string{
			"--health-probe-bind-address=" + healthAddress,
			"--metrics-bind-address=" + metricsAddress,
			"--metrics-secure=false",
			"--log-format=json",
			"-v=2",
		}, opts.Args)
		// A data race must end the process, or its report would go unnoticed.
		p.env = []string{"GORACE=halt_on_error=1"}
		c = &Coordinator{
			Process: p, node: n,
			healthURL:  "http://" + healthAddress,
			metricsURL: "http://" + metricsAddress + "/metrics",
			Root:       root,
		}
		if err := p.Start(); err != nil {
			return nil, err
		}
		if opts.NoWait {
			return p, nil
		}
		return p, c.WaitReady(ctx)
	})
	if err != nil {
		return nil, err
	}
	c.SetRestart(opts.Restart)
	return c, nil
}

// WaitReady waits until /readyz says yes.
func (c *Coordinator) WaitReady(ctx context.Context) error {
	return c.waitReady(ctx, http.DefaultClient, c.healthURL+"/readyz", "")
}

// StartAgain starts a stopped coordinator as it was and waits until it is ready.
func (c *Coordinator) StartAgain(ctx context.Context) error {
	if err := c.Process.Start(); err != nil {
		return err
	}
	return c.WaitReady(ctx)
}

// Active returns the one of the coordinators that says that it is active, or nil.
func Active(ctx context.Context, coordinators ...*Coordinator) *Coordinator {
	for _, c := range coordinators {
		if v, ok, err := c.Metric(ctx, "coordinated_leader_election_active", nil); err == nil && ok && v == 1 {
			return c
		}
	}
	return nil
}

// WaitActive waits until one of the coordinators says that it is active, and returns it.
func WaitActive(ctx context.Context, coordinators ...*Coordinator) (active *Coordinator, err error) {
	err = WaitFor(ctx, "a coordinator to be active", func(ctx context.Context) (bool, error) {
		active = Active(ctx, coordinators...)
		return active != nil, nil
	})
	return active, err
}

// Metrics scrapes the coordinator's metrics, by name.
func (c *Coordinator) Metrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	body, err := httpGet(ctx, http.DefaultClient, c.metricsURL, "")
	if err != nil {
		return nil, fmt.Errorf("scraping %s: %w", c.Name(), err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("scraping %s: %w", c.Name(), err)
	}
	return families, nil
}

// Metric returns the sum of a metric's values over all series that have the
// given labels, and whether there are any. For histograms it is the count.
func (c *Coordinator) Metric(ctx context.Context, name string, labels map[string]string) (float64, bool, error) {
	families, err := c.Metrics(ctx)
	if err != nil {
		return 0, false, err
	}
	sum, found := sumSeries(families[name], labels)
	return sum, found, nil
}

func sumSeries(family *dto.MetricFamily, labels map[string]string) (sum float64, found bool) {
	for _, m := range family.GetMetric() {
		matching := 0
		for _, l := range m.GetLabel() {
			if want, ok := labels[l.GetName()]; ok && want == l.GetValue() {
				matching++
			}
		}
		if matching != len(labels) {
			continue
		}
		found = true
		switch {
		case m.Histogram != nil:
			sum += float64(m.GetHistogram().GetSampleCount())
		case m.Counter != nil:
			sum += m.GetCounter().GetValue()
		case m.Gauge != nil:
			sum += m.GetGauge().GetValue()
		default:
			sum += m.GetUntyped().GetValue()
		}
	}
	return sum, found
}
