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

// Package framework runs a real Kubernetes control plane, coordinators and
// candidates as processes on this machine, does to them what befalls processes,
// and records who leads.
//
// # A test
//
//	func TestMain(m *testing.M) { os.Exit(framework.Main(m)) }
//
//	func TestOldestLeads(t *testing.T) {
//		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
//		defer cancel()
//		c := framework.Shared(t, framework.GateOff)
//		ns := framework.NewNamespace(t, c)
//		rec, err := c.Record(ctx, framework.RecorderOptions{Namespaces: []string{ns}})
//		if err != nil {
//			t.Fatal(err)
//		}
//		defer rec.Stop()
//		for _, version := range []string{"1.37.0", "1.36.0"} {
//			if _, err := c.Nodes[0].StartCandidate(ctx, framework.CandidateOptions{
//				Namespace: ns, Lease: "job", Name: "at-" + version, EmulationVersion: version,
//			}); err != nil {
//				t.Fatal(err)
//			}
//		}
//		_, err = rec.WaitForLeader(ctx, ns+"/job", func(term framework.Term) bool {
//			return term.Process.Emulation == "1.36"
//		})
//		if err != nil {
//			t.Fatal(err) // tells the last events
//		}
//		if two := rec.Timeline().Overlaps(ns + "/job"); len(two) != 0 {
//			t.Errorf("two leaders at once: %+v", two)
//		}
//	}
//
// What is missing here is a coordinator: Cluster.ApplyKustomization("config/rbac")
// gives it the rights that are shipped and Node.StartCoordinator runs it with
// them, built with the race detector.
//
// # Clusters
//
// A Cluster is one etcd and one to three nodes; a Node is a kube-apiserver and
// what is started against it. Shared returns a cluster of one node that all
// tests of a binary share, in which they keep apart by namespaces. Tests that
// use the real kube-controller-manager or kube-scheduler, or that harm the
// control plane, take one of their own with New: a coordinated component always
// competes for kube-system/<its name>, so there can be one group of each to a
// cluster. Programs other than tests use Start and Cluster.Stop.
//
// The programs come from hack/controlplane, which builds them once. To use
// others, name a directory in LEASE_COORDINATOR_CONTROLPLANE.
//
// # Processes
//
// Etcd, APIServer, Component, Coordinator and Candidate are all a Process: Stop
// and Kill end it for good; Terminate (TERM), Crash (KILL) and its own exit are
// followed by a restart if its policy says so; Freeze and Thaw pause it.
// Restart of an APIServer or Component upgrades or rolls it back to another
// emulation version, and StartAgain revives what was stopped. Candidate is the
// program in test/candidate, built on unmodified client-go; it can have a wrong
// clock, be a plain elector, and stamp its work.
//
// Nothing outlives the test: its end, however violent, ends all processes and
// removes all files. If a test fails, the logs and timelines are first copied
// to the folder artifacts, or LEASE_COORDINATOR_ARTIFACTS, and the log says where.
//
// # Time lines
//
// Cluster.Record starts a Recorder, whose Timeline has every write to Leases
// and LeaseCandidates with its author, every leader's beginning and end, and
// what was done to the processes. A Timeline answers questions: Leaders,
// Overlaps, Gaps, Handoffs, SkewViolations, Reactions, WritesTo, Pings,
// BlindWrites. Leaders are those who say they are. The Lease has no say in it.
//
// Three things to know when asserting on it:
//
//   - A component of client-go that was frozen for longer than its lease goes
//     on working for up to its renew deadline after it is continued, whoever
//     holds the lease by then: it takes a refused renewal for a passing failure.
//     No coordinator can prevent that; Overlaps reports it.
//   - A leader's end is the moment it says that renewing has failed, which is
//     when client-go cancels its work, or its exit. kube-controller-manager
//     says nothing on TERM and just ends.
//   - Writes get their author from the audit log of the kube-apiserver that
//     served them. Those of a kube-apiserver that was killed meanwhile may have none.
package framework
