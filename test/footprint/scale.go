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

package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

const (
	// leaseSeconds is so long that no lease runs out while others are made.
	leaseSeconds = 3600
	// perLease is how many candidates each lease has.
	perLease = 3
	// writers is how many writes to the API server are under way at once.
	writers = 16
	// renewals is for how long leases are renewed while the coordinators are measured.
	renewals = time.Minute
)

// many is a number of leases, each led by the best of its candidates. They have no processes: this program renews the
// leases in turn, as fast as the API server takes it.
type many struct {
	client    kubernetes.Interface
	namespace string
	n         int
}

func lease(i int) string { return fmt.Sprintf("lease-%05d", i) }

func (m *many) create(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range m.n {
		group.Go(func() error {
			now := metav1.NowMicro()
			// The leader is there before its candidates, and the best of them comes first, so that nobody has to be asked whether
			// it lives.
			if _, err := m.client.CoordinationV1().Leases(m.namespace).Create(ctx, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: lease(i)},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: new(lease(i) + "-0"), LeaseDurationSeconds: new(int32(leaseSeconds)), AcquireTime: &now, RenewTime: &now,
				},
			}, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("creating a lease: %w", err)
			}
			for c := range perLease {
				if _, err := m.client.CoordinationV1beta1().LeaseCandidates(m.namespace).Create(ctx, &coordinationv1beta1.LeaseCandidate{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", lease(i), c)},
					Spec: coordinationv1beta1.LeaseCandidateSpec{
						LeaseName: lease(i), BinaryVersion: "1.37.0", EmulationVersion: fmt.Sprintf("1.%d.0", 35+c),
						Strategy: v1alpha1.OldestEmulationVersion, RenewTime: &now,
					},
				}, metav1.CreateOptions{}); err != nil {
					return fmt.Errorf("creating a candidate: %w", err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// renew renews leases in turn for that long, and returns how many.
func (m *many) renew(ctx context.Context, d time.Duration) (int, error) {
	until := time.Now().Add(d)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	n := 0
	for ; time.Now().Before(until) && ctx.Err() == nil; n++ {
		name := lease(n % m.n)
		group.Go(func() error {
			patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
			if _, err := m.client.CoordinationV1().Leases(m.namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				return fmt.Errorf("renewing a lease: %w", err)
			}
			return nil
		})
	}
	return n, group.Wait()
}

// scale measures the coordinators with so many leases.
func scale(ctx context.Context, cluster *framework.Cluster, coordinators []*framework.Coordinator, leases int) error {
	namespace, err := cluster.CreateNamespace(ctx, "footprint")
	if err != nil {
		return err
	}
	m := &many{client: cluster.Clientset(), namespace: namespace, n: leases}
	began := time.Now()
	if err := m.create(ctx); err != nil {
		return err
	}
	fmt.Printf("\n%d leases with %d candidates each, made in %s\n", leases, perLease, time.Since(began).Round(time.Second))

	// A coordinator that starts lists all of them at once.
	for _, c := range coordinators {
		if err := c.Stop(ctx); err != nil {
			return err
		}
		if err := c.StartAgain(ctx); err != nil {
			return err
		}
	}
	if err := framework.WaitFor(ctx, "a coordinator to know all leases", func(ctx context.Context) (bool, error) {
		for _, c := range coordinators {
			if led, _, err := c.Metric(ctx, "coordinated_leader_election_lease_led", nil); err == nil && led >= float64(leases) {
				return true, nil
			}
		}
		return false, nil
	}); err != nil {
		return err
	}
	if err := framework.Pause(ctx, settle); err != nil {
		return err
	}

	type sample struct {
		cpu                  time.Duration
		reconciles, requests float64
	}
	take := func() ([]sample, error) {
		var all []sample
		for _, c := range coordinators {
			cpu, err := c.CPUTime()
			if err != nil {
				return nil, err
			}
			reconciles, _, err := c.Metric(ctx, "controller_runtime_reconcile_total", map[string]string{"controller": "election"})
			if err != nil {
				return nil, err
			}
			requests, _, err := c.Metric(ctx, "rest_client_requests_total", nil)
			if err != nil {
				return nil, err
			}
			all = append(all, sample{cpu, reconciles, requests})
		}
		return all, nil
	}
	before, err := take()
	if err != nil {
		return err
	}
	n, err := m.renew(ctx, renewals)
	if err != nil {
		return err
	}
	after, err := take()
	if err != nil {
		return err
	}
	fmt.Printf("%d renewals in %s; meanwhile:\n", n, renewals)
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "coordinator\tcores\tCPU per renewal\treconciles\trequests\tRSS")
	for i, c := range coordinators {
		rss, err := c.RSS()
		if err != nil {
			return err
		}
		cpu := after[i].cpu - before[i].cpu
		fmt.Fprintf(tw, "%s\t%.2f\t%s\t%.0f\t%.0f\t%.1f MiB\n", c.Name(), cpu.Seconds()/renewals.Seconds(), (cpu / time.Duration(n)).Round(time.Microsecond),
			after[i].reconciles-before[i].reconciles, after[i].requests-before[i].requests, float64(rss)/(1<<20))
	}
	return tw.Flush()
}
