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

package checks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

var (
	inTreeYield = &Outcome{
		ID: "in-tree-yield", Severity: Note,
		When:    "The in-tree coordinator is active, and ours yields to it.",
		Follows: "Leases whose candidates of coordination.k8s.io ask for OldestEmulationVersion are led as it decides, with its hand-offs of 15 to 20 s; ours coordinates the others.",
		Mend:    "Nothing has to be mended. For all leases: `--in-tree=replace`, on the coordinator and here.",
	}
	inTreeNotReplaced = &Outcome{
		ID: "in-tree-not-replaced", Severity: Warning,
		When:    "Ours is to replace the in-tree coordinator, but a kube-apiserver holds the lock and renews it.",
		Follows: "The in-tree coordinator is active and ours is not: only OldestEmulationVersion leases are coordinated.",
		Mend:    "See why no coordinator with `--in-tree=replace` runs: its log, and its /readyz/coordinating.",
	}
	inTreeSilent = &Outcome{
		ID: "in-tree-silent", Severity: Warning,
		When:    "The gate is on, but no kube-apiserver renews the in-tree coordinator's lock.",
		Follows: "The in-tree coordinator does not work, and is no standby for ours.",
		Mend:    "Look for leaderelection in kube-apiserver's log. It needs `--runtime-config=coordination.k8s.io/v1beta1=true`.",
	}
	inTreeElsewhere = &Outcome{
		ID: "in-tree-elsewhere", Severity: Warning,
		When:    "A kube-apiserver renews the in-tree coordinator's lock, but all answers say that the gate is off.",
		Follows: "One kube-apiserver has the gate on and was not reached: it coordinates leases with fields that others drop.",
		Mend:    "Give all kube-apiservers the same `--feature-gates=CoordinatedLeaderElection=...`.",
	}

	coordinatorNone = &Outcome{
		ID: "coordinator-none", Severity: Error,
		When:    "No coordinator holds the lock, and no in-tree coordinator is active.",
		Follows: "Leaders stay in office, but one that ends is replaced by nobody.",
		Mend:    "Start the coordinator (docs/deploy.md). If it runs with another lock, say which here: `--leader-elect-resource-namespace`, `--leader-elect-resource-name`, `--in-tree`.",
	}
	coordinatorSilent = &Outcome{
		ID: "coordinator-silent", Severity: Error,
		When:    "A coordinator holds the lock and does not renew it, and no in-tree coordinator is active.",
		Follows: "It is gone, or cannot reach the API server. Leaders stay in office, but one that ends is replaced by nobody.",
		Mend:    "See its log and its /readyz/coordinating, and whether its Pods run: `kubectl -n NAMESPACE get pods`.",
	}
	coordinatorInTree = &Outcome{
		ID: "coordinator-in-tree", Severity: Note,
		When:    "No coordinator of ours is active; the in-tree coordinator is.",
		Follows: "OldestEmulationVersion leases are coordinated by kube-apiserver, the others by nobody.",
		Mend:    "Start the coordinator (docs/deploy.md), if it is to run here.",
	}
	coordinatorForeign = &Outcome{
		ID: "coordinator-foreign", Severity: Error,
		When:    "Something else than a coordinator holds the coordinator's lock.",
		Follows: "No coordinator can become active while that is so.",
		Mend:    "Give the coordinator, or that program, another lock: `--leader-elect-resource-name`.",
	}
	coordinatorsSeveral = &Outcome{
		ID: "coordinators-several", Severity: Warning,
		When:    "Coordinators are active under different locks.",
		Follows: "Unless each has namespaces of its own, they decide about the same leases, possibly by different settings.",
		Mend:    "Give all coordinators of the same leases the same lock, and the same `--in-tree`.",
	}

	versionSkew = &Outcome{
		ID: "coordinator-version-skew", Severity: Note,
		When:    "The coordinator's Pods run different images.",
		Follows: "A rollout is under way, or was left half-way. Which version decides depends on who holds the lock.",
		Mend:    "`kubectl -n NAMESPACE rollout status deployment/lease-coordinator`; static Pods: bring the same manifest to every host.",
	}

	policyNone = &Outcome{
		ID: "policy-none", Severity: Note,
		When:    "No admission policy of this project guards LeaseCandidates.",
		Follows: "Whoever may create a LeaseCandidate can be appointed to the Lease that it names, whether or not its own rights would let it write that Lease.",
		Mend:    "`kubectl apply -k config/policy` (docs/trust-model.md).",
	}
	policyUnbound = &Outcome{
		ID: "policy-unbound", Severity: Warning,
		When:    "An admission policy of this project is installed, but no binding puts it in force.",
		Follows: "It admits everything.",
		Mend:    "`kubectl apply -k config/policy`, which has the bindings.",
	}
)

var coordinatorChecks = []Check{
	{ID: "in-tree", Question: "Is the coordinator inside kube-apiserver active? Its lock, Lease kube-system/leader-election-controller, is watched until it is renewed, for `--watch` at most.", Outcomes: []*Outcome{inTreeYield, inTreeNotReplaced, inTreeSilent, inTreeElsewhere}, run: checkInTree},
	{ID: "coordinator", Question: "Is a coordinator of this project active? Its lock is watched likewise.", Outcomes: []*Outcome{coordinatorNone, coordinatorSilent, coordinatorInTree, coordinatorForeign}, run: checkCoordinator},
	{ID: "coordinators", Question: "Is one coordinator active, and not several?", Outcomes: []*Outcome{coordinatorsSeveral}, run: checkCoordinators},
	{ID: "coordinator-version", Question: "Do all coordinators run one version? Told by the images of Pods labelled app.kubernetes.io/name=lease-coordinator.", Outcomes: []*Outcome{versionSkew}, run: checkVersions},
	{ID: "policy", Question: "Is it checked who may become a candidate for which lease?", Outcomes: []*Outcome{policyNone, policyUnbound}, run: checkPolicy},
}

// inTreeActive reports whether a kube-apiserver's own coordinator is active.
func (x *examination) inTreeActive() bool { return x.inTree.holding == heldByOther && x.inTree.alive }

func (l Lock) about() object { return object{"Lease", l.Key.Namespace, l.Key.Name} }

func checkInTree(x *examination, f *findings) {
	s, about := x.inTree, x.InTreeLock.about()
	switch {
	case s.unknown != "":
		f.unchecked(about, s.unknown)
	case x.inTreeActive() && x.gate == gateOff:
		f.add(inTreeElsewhere, about, fmt.Sprintf("%s %s", s.holder, s.how))
	case x.inTreeActive() && x.Replace:
		f.add(inTreeNotReplaced, about, fmt.Sprintf("%s %s", s.holder, s.how))
	case x.inTreeActive() && x.own.holding == heldByCoordinator && x.own.alive:
		f.add(inTreeYield, about, fmt.Sprintf("active: %s %s", s.holder, s.how))
	case x.inTreeActive():
		f.fine(fmt.Sprintf("active: %s %s", s.holder, s.how))
	case s.holding == heldByCoordinator && s.alive:
		f.fine(fmt.Sprintf("replaced by ours: %s %s", s.holder, s.how))
	case x.gate == gateOn || x.gate == gateMixed:
		found := "nobody holds the lock"
		if s.holder != "" {
			found = fmt.Sprintf("%s %s", s.holder, s.how)
		}
		f.add(inTreeSilent, about, found)
	case x.gate == gateUnknown:
		f.fine("not active")
	default:
		f.fine("not active: the gate is off")
	}
}

func checkCoordinator(x *examination, f *findings) {
	s, about := x.own, x.OwnLock.about()
	found := "nobody holds the lock " + x.OwnLock.Key.String()
	if s.holder != "" {
		found = fmt.Sprintf("%s %s", s.holder, s.how)
	}
	foreign := s.holding == heldByOther && !x.Replace && s.alive
	switch {
	case s.unknown != "":
		f.unchecked(about, s.unknown)
	case s.holding == heldByCoordinator && s.alive:
		f.fine("active: " + found)
	case foreign:
		f.add(coordinatorForeign, about, found)
	case x.inTreeActive():
		f.add(coordinatorInTree, about, found)
	case s.holding == heldByCoordinator:
		f.add(coordinatorSilent, about, found)
	case x.inTree.holding == heldByCoordinator && x.inTree.alive:
		f.fine(fmt.Sprintf("active in the in-tree coordinator's place: %s %s", x.inTree.holder, x.inTree.how))
	default:
		f.add(coordinatorNone, about, found)
	}
}

func checkCoordinators(x *examination, f *findings) {
	if x.Leases.Unknown != "" {
		f.unchecked(cluster, x.Leases.Unknown)
		return
	}
	locks := map[string]string{}
	see := func(l Lock) {
		if s := l.state(x.Now); s.holding == heldByCoordinator && s.alive {
			locks[l.Key.String()] = s.holder
		}
	}
	for _, l := range x.Leases.List {
		lock := Lock{Lease: l}
		lock.Key.Namespace, lock.Key.Name = l.Namespace, l.Name
		see(lock)
	}
	see(x.InTreeLock)
	see(x.OwnLock)
	if len(locks) <= 1 {
		f.fine(plural(len(locks), "active coordinator"))
		return
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(locks)) {
		parts = append(parts, locks[key]+" by "+key)
	}
	f.add(coordinatorsSeveral, cluster, strings.Join(parts, ", "))
}

func checkVersions(x *examination, f *findings) {
	if x.Pods.Unknown != "" {
		f.unchecked(cluster, x.Pods.Unknown)
		return
	}
	images := map[string][]Pod{}
	for _, p := range x.Pods.List {
		images[p.Image] = append(images[p.Image], p)
	}
	switch names := slices.Sorted(maps.Keys(images)); len(names) {
	case 0:
		f.fine("no Pod has the label app.kubernetes.io/name=lease-coordinator")
	case 1:
		f.fine(fmt.Sprintf("%s of %s", plural(len(x.Pods.List), "Pod"), names[0]))
	default:
		var parts []string
		for _, image := range names {
			first := images[image][0]
			parts = append(parts, fmt.Sprintf("%s of %s (%s/%s)", plural(len(images[image]), "Pod"), image, first.Namespace, first.Name))
		}
		f.add(versionSkew, cluster, strings.Join(parts, ", "), values{"NAMESPACE": x.Pods.List[0].Namespace})
	}
}

func checkPolicy(x *examination, f *findings) {
	p := x.Policies
	var unbound []string
	for _, name := range p.Installed {
		if !slices.Contains(p.Bound, name) {
			unbound = append(unbound, name)
		}
	}
	switch {
	case p.Unknown != "":
		f.unchecked(cluster, p.Unknown)
	case len(p.Installed) == 0:
		f.add(policyNone, cluster, "no ValidatingAdmissionPolicy of "+v1alpha1.Group)
	case len(unbound) > 0:
		f.add(policyUnbound, cluster, "without a binding: "+few(unbound))
	default:
		f.fine("in force: " + few(p.Installed))
	}
}
