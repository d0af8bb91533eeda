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
	"net/http"
	"path/filepath"
)

// Etcd is the one etcd of a cluster. Freezing it is how storage outages are made.
type Etcd struct {
	*Process
	// Endpoint is its client URL.
	Endpoint string
}

func (c *Cluster) startEtcd(ctx context.Context) error {
	return c.retryBind(func() (*Process, error) {
		client, err := thePorts.take()
		if err != nil {
			return nil, err
		}
		peer, err := thePorts.take()
		if err != nil {
			return nil, err
		}
		clientURL := fmt.Sprintf("http://%s:%d", loopback, client)
		peerURL := fmt.Sprintf("http://%s:%d", loopback, peer)
		p := c.newProcess(ProcessInfo{Name: "etcd", Kind: EtcdKind}, c.bin.Etcd)
		p.args = []string{
			"--name=e2e",
			"--data-dir=" + filepath.Join(c.dir, "etcd"),
			"--listen-client-urls=" + clientURL,
			"--advertise-client-urls=" + clientURL,
			"--listen-peer-urls=" + peerURL,
			"--initial-advertise-peer-urls=" + peerURL,
			"--initial-cluster=e2e=" + peerURL,
			// The data need not survive the machine.
			"--unsafe-no-fsync",
			"--log-level=warn",
		}
		if err := p.Start(); err != nil {
			return nil, err
		}
		c.Etcd = &Etcd{Process: p, Endpoint: clientURL}
		return p, p.waitReady(ctx, http.DefaultClient, clientURL+"/readyz", "")
	})
}
