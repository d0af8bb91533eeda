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

package framework_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { os.Exit(framework.Main(m)) }

func TestSmoke(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	start := time.Now()
	c := framework.New(t, framework.Options{CoordinatedLeaderElection: true})
	t.Log("cluster", time.Since(start))
	start = time.Now()
	m, err := c.Nodes[0].StartControllerManager(ctx, framework.ComponentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("kcm", time.Since(start))
	start = time.Now()
	s, err := c.Nodes[0].StartScheduler(ctx, framework.ComponentOptions{EmulationVersion: "1.36"})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("sched", time.Since(start))
	for _, l := range []string{"kube-controller-manager", "kube-scheduler"} {
		if err := framework.WaitFor(ctx, l, func(ctx context.Context) (bool, error) {
			lease, err := c.Clientset().CoordinationV1().Leases("kube-system").Get(ctx, l, metav1.GetOptions{})
			return err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.LeaseDurationSeconds == 15, nil
		}); err != nil {
			t.Error(err)
		}
	}
	t.Log("led", time.Since(start))
	for _, p := range []*framework.Process{m.Process, s.Process, c.Nodes[0].APIServer.Process, c.Etcd.Process} {
		rss, err := p.RSS()
		t.Log(p.Name(), rss>>20, err)
	}
}
