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

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/doctor"
	"github.com/lease-coordinator/coordinator/internal/doctor/checks"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// examinee runs "coordinator doctor" on the arena's cluster.
type examinee struct {
	*arena
	binary, kubeconfig string
}

func newExaminee(a *arena, user string) *examinee {
	a.Helper()
	p := &examinee{arena: a}
	var err error
	p.binary, err = framework.BuildCoordinator(a.ctx)
	a.must(err)
	p.kubeconfig, err = a.node.Kubeconfig(user)
	a.must(err)
	return p
}

// run returns the exit code, the output and what was said besides.
func (p *examinee) run(args ...string) (code int, stdout, stderr string) {
	p.Helper()
	command := exec.CommandContext(p.ctx, p.binary, append([]string{"doctor", "--kubeconfig", p.kubeconfig, "-n", p.ns}, args...)...)
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	err := command.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		p.must(err)
	}
	return code, out.String(), said.String()
}

// diagnosis is a report, and how the command ended.
type diagnosis struct {
	*examinee
	doctor.Report
	code int
}

func (p *examinee) examine(args ...string) *diagnosis {
	p.Helper()
	code, stdout, stderr := p.run(append(args, "-o", "json")...)
	d := &diagnosis{examinee: p, code: code}
	if stdout == "" && code == doctor.ExitUnchecked {
		// Who asks eventually may find nobody at home.
		p.Logf("doctor: %s", stderr)
		return d
	}
	if err := json.Unmarshal([]byte(stdout), &d.Report); err != nil || stderr != "" {
		p.Fatalf("doctor %q ended with %d and %v: %s%s", args, code, err, stdout, stderr)
	}
	return d
}

// of returns the findings of a check.
func (d *diagnosis) of(check string) []checks.Finding {
	var list []checks.Finding
	for _, f := range d.Findings {
		if f.Check == check {
			list = append(list, f)
		}
	}
	return list
}

// has asserts that a check found that, in the arena's namespace or in the cluster, and that the text has all parts.
func (d *diagnosis) has(check, outcome string, severity checks.Severity, parts ...string) {
	d.Helper()
	for _, f := range d.of(check) {
		text := f.Object + " " + f.Found + " " + f.Mend
		if f.Outcome == outcome && f.Severity == severity && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) }) {
			return
		}
	}
	d.Errorf("check %s did not find %s %q that says %q; it found %+v", check, severity, outcome, parts, d.of(check))
}

// eventually examines until a check has found that.
func (p *examinee) eventually(check, outcome string, args ...string) *diagnosis {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	var d *diagnosis
	if err := framework.WaitFor(ctx, "doctor finds "+outcome, func(context.Context) (bool, error) {
		d = p.examine(args...)
		return slices.ContainsFunc(d.of(check), func(f checks.Finding) bool { return f.Outcome == outcome }), nil
	}); err != nil {
		p.Fatalf("%v; the last that it found was %+v", err, d.of(check))
	}
	return d
}

// allowExamining gives the reader what an examination takes.
func (a *arena) allowExamining() {
	a.Helper()
	a.createAll(
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "examiner"},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "create"}},
				{APIGroups: []string{coordinationv1.GroupName, v1alpha1.Group}, Resources: []string{"leasecandidates"}, Verbs: []string{"list"}},
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
				{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"}},
				{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"}, Verbs: []string{"list"}},
				{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
			},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "examiner"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "examiner"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: framework.ReaderUser}},
		},
	)
}

// unmanned returns a LeaseCandidate that has no process.
func (a *arena) unmanned(name, lease string, strategy coordinationv1.CoordinatedLeaseStrategy, annotations map[string]string) client.Object {
	now := metav1.NowMicro()
	return &coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: name, Annotations: annotations},
		Spec: coordinationv1beta1.LeaseCandidateSpec{
			LeaseName: lease, Strategy: strategy, BinaryVersion: "1.37.0", EmulationVersion: "1.37.0", RenewTime: &now,
		},
	}
}

// A doctor finds what is wrong with a coordinated cluster, as somebody who may do no more than that takes, and says so by
// its exit code. It changes nothing.
func TestDoctor(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{})
	startCoordinators(t, t.Context(), cluster.Nodes[0], 1)
	a := newArenaOn(t, cluster)
	a.record(metav1.NamespaceAll)
	a.allowExamining()
	p := newExaminee(a, framework.ReaderUser)
	a.candidate("n37", "1.37", brisk)
	a.waitLeader("n37", patience)

	a.rec.Mark("all is well")
	d := p.examine()
	d.has("server", "", checks.OK, "kube-apiserver v"+cluster.Version())
	d.has("gate", "gate-off", checks.Note)
	d.has("candidate-api", "", checks.OK, "coordination.k8s.io/v1beta1")
	d.has("candidate-api-lifetime", "candidate-api-limited", checks.Note, "v1.38, as kube-apiserver warns")
	d.has("in-tree", "", checks.OK)
	d.has("coordinator", "", checks.OK, v1alpha1.CoordinatorIdentityPrefix, "seen to renew")
	d.has("rights", "", checks.OK, framework.CoordinatorUser)
	d.has("your-rights", "your-rights-missing", checks.Note, "patch leases.coordination.k8s.io")
	d.has("elections", "", checks.OK, "1 lease with 1 candidate")
	d.has("leaders", "", checks.OK)
	d.has("clocks", "", checks.OK)
	if d.code != 0 {
		t.Errorf("where all is well, doctor ends with %d: %v", d.code, d.Summary)
	}
	if code, stdout, stderr := p.run("--watch=0"); code != 0 || !strings.Contains(stdout, "STATE") || !strings.Contains(stdout, "by its stamp") || stderr != "" {
		t.Errorf("doctor --watch=0 ends with %d: %s%s", code, stdout, stderr)
	}

	a.rec.Mark("a clock that is wrong")
	a.candidate("late", "1.37", brisk, clockOff(-time.Minute), func(o *framework.CandidateOptions) { o.Lease = "of-late" })
	d = p.eventually("clocks", "clock-candidate")
	d.has("clocks", "clock-candidate", checks.Warning, "the clock of late is ", "behind the API server's")
	d.has("leaders", "", checks.OK)

	a.rec.Mark("a stale priority")
	a.must(cluster.Client().Patch(a.ctx, &coordinationv1beta1.LeaseCandidate{ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: "n37"}},
		client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.PriorityAnnotation+`":"5","`+v1alpha1.PriorityUntilAnnotation+`":"2020-01-01T00:00:00Z"}}}`))))
	d = p.examine()
	d.has("priorities", "priority-over", checks.Warning, a.ns+"/n37", "kubectl -n "+a.ns+" annotate leasecandidates.coordination.k8s.io n37")
	if d.code != doctor.ExitWarning {
		t.Errorf("with a warning, doctor ends with %d: %v", d.code, d.Summary)
	}

	a.rec.Mark("candidates at odds, and others that nobody could appoint")
	a.createAll(
		a.unmanned("c1", "conflict", v1alpha1.OldestEmulationVersion, nil),
		a.unmanned("c2", "conflict", v1alpha1.Sticky, nil),
		a.unmanned("c3", "Not_A_Lease", v1alpha1.Sticky, nil),
		a.unmanned("c4", "foreign", "example.com/Other", map[string]string{v1alpha1.PriorityAnnotation: "high"}),
	)
	d = p.eventually("strategies", "strategy-conflict")
	d.has("strategies", "strategy-conflict", checks.Error, a.ns+"/conflict", "c1: OldestEmulationVersion; c2: lease-coordinator.dev/Sticky")
	d.has("strategies", "strategy-foreign", checks.Warning, a.ns+"/foreign", "example.com/Other")
	d.has("lease-names", "lease-name-invalid", checks.Error, a.ns+"/Not_A_Lease", "c3")
	d.has("candidate-annotations", "candidate-annotation-invalid", checks.Warning, a.ns+"/c4", `"high"`)
	if d.code != doctor.ExitError {
		t.Errorf("with an error, doctor ends with %d: %v", d.code, d.Summary)
	}
	p.eventually("candidates", "candidate-silent").has("candidates", "candidate-silent", checks.Note, a.ns+"/c")

	a.rec.Mark("a right less")
	role := &rbacv1.ClusterRole{}
	a.must(cluster.Client().Get(a.ctx, types.NamespacedName{Name: "lease-coordinator"}, role))
	for i := range role.Rules {
		if rule := &role.Rules[i]; slices.Contains(rule.Resources, "leasecandidates") {
			rule.Verbs = slices.DeleteFunc(rule.Verbs, func(verb string) bool { return verb == "patch" })
		}
	}
	a.must(cluster.Client().Update(a.ctx, role))
	p.eventually("rights", "rights-missing").has("rights", "rights-missing", checks.Error,
		framework.CoordinatorUser+" may not patch leasecandidates.coordination.k8s.io in all namespaces")

	a.rec.Mark("a stranger")
	a.must(cluster.Client().Delete(a.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "examiner"}}))
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	a.must(framework.WaitFor(ctx, "the stranger's rights are gone", func(context.Context) (bool, error) {
		d = p.examine()
		return d.Summary[checks.Warning]+d.Summary[checks.Error] == 0, nil
	}))
	for _, check := range []string{"gate", "crd", "in-tree", "coordinator", "rights", "elections", "leaders", "priorities"} {
		d.has(check, "", checks.Unchecked, `User "`+framework.ReaderUser+`" cannot`)
	}
	d.has("candidate-api", "", checks.OK)
	if d.code != doctor.ExitUnchecked {
		t.Errorf("where little may be read, doctor ends with %d: %v", d.code, d.Summary)
	}

	for _, e := range a.rec.Timeline().Events {
		if strings.Contains(e.Writer, framework.ReaderUser) && e.Kind != framework.WriteRefused {
			t.Errorf("doctor wrote: %s %s %s", e.Kind, e.Object, e.Detail)
		}
	}
}

// Whatever the flavour, doctor finds it out, and who coordinates.
func TestDoctorFlavours(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		p := newExaminee(a, framework.AdminUser)
		a.candidate("n37", "1.37", brisk)
		a.waitLeader("n37", patience)
		d := p.examine(append(coordinatorArgs(flavour), sharedArgs(t)...)...)
		d.has("coordinator", "", checks.OK, v1alpha1.CoordinatorIdentityPrefix)
		if flavour == framework.GateOff {
			d.has("gate", "gate-off", checks.Note, "6 of 6 answers")
			d.has("in-tree", "", checks.OK, "not active")
			return
		}
		d.has("gate", "", checks.OK, "6 of 6 answers")
		d.has("in-tree", "", checks.OK, "replaced by ours")
		// Not told so, it finds it.
		d = p.examine()
		d.has("coordinator", "", checks.OK, "in the in-tree coordinator's place")
	})
}

// On a cluster of its own without a coordinator, doctor tells what kube-apiserver lacks, and sees our own LeaseCandidate
// come, as it is shipped and otherwise.
func TestDoctorWithoutAPI(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{NoLeaseCandidateAPI: true})
	a := newUnrecordedArena(t, cluster)
	p := newExaminee(a, framework.AdminUser)
	d := p.examine()
	d.has("gate", "gate-off", checks.Note)
	d.has("candidate-api", "candidate-api-none", checks.Error, "kubectl apply -k config/crd")
	d.has("coordinator", "coordinator-none", checks.Error)
	d.has("candidate-api-lifetime", "", checks.OK)
	d.has("crd", "", checks.OK, "not installed")
	if d.code != doctor.ExitError {
		t.Errorf("without LeaseCandidates, doctor ends with %d: %v", d.code, d.Summary)
	}

	a.must(cluster.ApplyKustomization(a.ctx, "config/crd"))
	a.must(framework.WaitFor(a.ctx, "our LeaseCandidate is served", func(context.Context) (bool, error) {
		d = p.examine()
		return slices.ContainsFunc(d.of("candidate-api"), func(f checks.Finding) bool { return strings.Contains(f.Found, v1alpha1.Group+"/v1alpha1") }), nil
	}))
	d.has("crd", "", checks.OK, "the one of this release")
	d.has("candidate-api", "", checks.OK)
	d.has("policy", "policy-none", checks.Note)
	a.must(cluster.ApplyKustomization(a.ctx, "config/policy"))
	p.examine().has("policy", "", checks.OK, "in force: ")

	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	a.must(cluster.Client().Get(a.ctx, types.NamespacedName{Name: "leasecandidates." + v1alpha1.Group}, crd))
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	a.must(err)
	version := versions[0].(map[string]any)
	a.must(unstructured.SetNestedField(version, "string", "schema", "openAPIV3Schema", "properties", "spec", "properties", "note", "type"))
	a.must(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
	a.must(cluster.Client().Update(a.ctx, crd))
	p.examine().has("crd", "crd-drift", checks.Warning, "schema.openAPIV3Schema.properties.spec.properties.note")

	// kube-apiserver with the gate on waits for LeaseCandidates of its own and never becomes ready, but answers.
	starting, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	restarted := make(chan error, 1)
	go func() {
		restarted <- a.node.APIServer.Reconfigure(starting, func(o *framework.Options) { o.CoordinatedLeaderElection = true })
	}()
	p.eventually("candidate-api", "candidate-api-missing").has("candidate-api", "candidate-api-missing", checks.Error, "--runtime-config=coordination.k8s.io/v1beta1=true")
	cancel()
	if err := <-restarted; err == nil {
		t.Error("kube-apiserver became ready with the gate on and without the API; say so in docs/doctor.md")
	}
}

// newUnrecordedArena returns an arena of which nothing is recorded.
func newUnrecordedArena(t *testing.T, cluster *framework.Cluster) *arena {
	t.Helper()
	return &arena{TB: t, ctx: t.Context(), cluster: cluster, node: cluster.Nodes[0], ns: framework.NewNamespace(t, cluster)}
}
