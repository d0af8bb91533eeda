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
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// The lease to play with: in the namespace that kubectl uses when told nothing.
const (
	playNamespace = metav1.NamespaceDefault
	playLease     = "controller"
)

// playground leaves a control plane running, with the coordinator and three candidates, until it is interrupted.
func playground(ctx context.Context, s *screen) error {
	s.sayIn(dim, 0, "building the coordinator")
	binary, err := framework.BuildShippedCoordinator(ctx, framework.ShippedVersion)
	if err != nil {
		return err
	}
	// The zero options are what an operator gets who only enables the API for candidates.
	return withCluster(ctx, s, framework.Options{}, func(ctx context.Context, cluster *framework.Cluster) error {
		node := cluster.Nodes[0]
		recorder, err := cluster.Record(ctx, framework.RecorderOptions{Namespaces: []string{playNamespace}})
		if err != nil {
			return err
		}
		if err := cluster.ApplyKustomization(ctx, "config/rbac"); err != nil {
			return err
		}
		coordinator, err := node.StartCoordinator(ctx, framework.CoordinatorOptions{Binary: binary, Restart: true})
		if err != nil {
			return err
		}
		var candidates []*framework.Candidate
		for _, c := range []struct{ name, emulation string }{{"ann", "1.37"}, {"ben", "1.36"}, {"cat", "1.37"}} {
			candidate, err := node.StartCandidate(ctx, framework.CandidateOptions{
				Namespace: playNamespace, Lease: playLease, Name: c.name, EmulationVersion: c.emulation + ".0", Restart: true,
			})
			if err != nil {
				return err
			}
			candidates = append(candidates, candidate)
		}
		kubeconfig, err := node.Kubeconfig(framework.AdminUser)
		if err != nil {
			return err
		}
		leading, cancel := context.WithTimeout(ctx, framework.StartTimeout)
		_, err = recorder.WaitForLeader(leading, playNamespace+"/"+playLease, func(t framework.Term) bool { return t.Identity == "ben" })
		cancel()
		if err != nil {
			return err
		}
		s.lines(invitation(kubeconfig)...)

		l := newTeller(s)
		every(ctx, tellEvery, func() {
			t := recorder.Timeline()
			all := terms(t, playNamespace+"/"+playLease, func(term framework.Term) string {
				return term.Identity + " (" + term.Process.Emulation + ")"
			})
			for _, d := range decisions([]*framework.Coordinator{coordinator}) {
				all = append(all, d.news())
			}
			l.tell(time.Now().Add(-lateness), all)
			s.pin(standing(t, candidates))
		})
		return nil
	})
}

// standing shows the candidates and who leads.
func standing(t framework.Timeline, candidates []*framework.Candidate) []string {
	var parts []string
	for _, c := range candidates {
		part := fmt.Sprintf("%s (%s, pid %d)", c.Identity, version(c.Process), c.Info().PID)
		if leader, ok := t.Leader(playNamespace + "/" + playLease); ok && leader.Process.Name == c.Name() {
			part += " leads"
		}
		parts = append(parts, part)
	}
	return []string{strings.Join(parts, "   ")}
}

// invitation says what to try.
func invitation(kubeconfig string) []string {
	text := `
A control plane runs, with the coordinator and three candidates for one lease:
ann and cat at version 1.37, and ben, who leads because 1.36 is older. Paste
this into another terminal:

export KUBECONFIG=KUBECONFIG-FILE

and try, while what the coordinator does about it shows here:

kubectl get leases,leasecandidates      who leads, and who could
kubectl get events -w                   what is decided, and why
kubectl annotate leasecandidate cat lease-coordinator.dev/priority=10
                                        cat takes over: planned, in about 15 s
kubectl annotate leasecandidate cat lease-coordinator.dev/priority-
                                        and ben again
kubectl delete lease controller         put back before anybody else can lead
pkill -KILL -f -- --name=ben            a crash: ben is started again, goes on
pkill -STOP -f -- --name=ben            a hang: another one leads, in about 15 s
pkill -CONT -f -- --name=ben            client-go takes up to 10 s to notice its
                                        loss; then ben joins and leads again

Ctrl-C ends it and leaves nothing behind.
`
	return strings.Split(strings.ReplaceAll(text, "KUBECONFIG-FILE", kubeconfig), "\n")
}
