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
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/explain"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// explainer runs "coordinator explain" as somebody who may only list Leases and LeaseCandidates of the arena's namespace,
// with the flags that the shared coordinator has.
type explainer struct {
	*arena
	binary, kubeconfig string
	flags              []string
}

func newExplainer(t *testing.T, a *arena) *explainer {
	t.Helper()
	x := &explainer{arena: a, flags: sharedArgs(t)}
	var err error
	x.binary, err = framework.BuildCoordinator(a.ctx)
	a.must(err)
	x.kubeconfig, err = a.node.Kubeconfig(framework.ReaderUser)
	a.must(err)
	a.createAll(
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: "reader"},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases", "leasecandidates"}, Verbs: []string{"list"}},
			},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: "reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: framework.ReaderUser}},
		},
	)
	return x
}

// run returns the exit code, the output and what was said besides.
func (x *explainer) run(args ...string) (code int, stdout, stderr string) {
	x.Helper()
	command := exec.CommandContext(x.ctx, x.binary, append(append([]string{"explain"}, x.flags...), args...)...)
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	err := command.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		x.must(err)
	}
	return code, out.String(), said.String()
}

// explained is what the explanations of one moment have in common, whoever gives them: all but how long ago things were.
type explained struct {
	Lease, Strategy         string
	Source                  string
	Holder, PreferredHolder string
	Ranking                 []string
	Action, Subject         string
	Reason, Sentence        string
	Warnings                string
}

func (x *explainer) decode(data string) explained {
	x.Helper()
	var e explain.Explanation
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		x.Fatalf("%v in %q", err, data)
	}
	common := explained{
		Lease: e.Lease, Strategy: e.Strategy, Source: string(e.StrategySource), Holder: e.Holder, PreferredHolder: e.PreferredHolder,
		Action: string(e.Action), Subject: e.Subject, Reason: string(e.Reason), Sentence: e.Sentence, Warnings: strings.Join(e.Warnings, "\n"),
	}
	for _, s := range e.Ranking {
		standing, err := json.Marshal([]any{s.Name, s.Admissible, s.Keys})
		x.must(err)
		common.Ranking = append(common.Ranking, string(standing))
	}
	return common
}

// explain returns what the command says of a.lease.
func (x *explainer) explain(args ...string) explained {
	x.Helper()
	code, stdout, stderr := x.run(append(args, "-o", "json", x.lease)...)
	if code != 0 {
		x.Fatalf("explain %q ended with %d: %s", args, code, stderr)
	}
	return x.decode(stdout)
}

func (x *explainer) live() explained { x.Helper(); return x.explain("--kubeconfig", x.kubeconfig) }

// dump saves what "kubectl get leases,leasecandidates -o yaml" prints of the namespace, changed before that, and returns
// the file.
func (x *explainer) dump(change func(*coordinationv1.Lease)) string {
	x.Helper()
	list := metav1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	add := func(gv schema.GroupVersion, kind string, object client.Object) {
		x.Helper()
		object.GetObjectKind().SetGroupVersionKind(gv.WithKind(kind))
		data, err := json.Marshal(object)
		x.must(err)
		list.Items = append(list.Items, runtime.RawExtension{Raw: data})
	}
	var candidates coordinationv1beta1.LeaseCandidateList
	x.must(x.cluster.Client().List(x.ctx, &candidates, client.InNamespace(x.ns)))
	var leases coordinationv1.LeaseList
	x.must(x.cluster.Client().List(x.ctx, &leases, client.InNamespace(x.ns)))
	for i := range leases.Items {
		change(&leases.Items[i])
		add(coordinationv1.SchemeGroupVersion, "Lease", &leases.Items[i])
	}
	for i := range candidates.Items {
		add(coordinationv1beta1.SchemeGroupVersion, "LeaseCandidate", &candidates.Items[i])
	}
	data, err := yaml.Marshal(list)
	x.must(err)
	file := filepath.Join(x.TempDir(), "dump.yaml")
	x.must(os.WriteFile(file, data, 0o600))
	return file
}

// served returns what the coordinator itself says of a.lease, on its metrics server.
func (x *explainer) served(c *framework.Coordinator) explained {
	x.Helper()
	url := strings.TrimSuffix(c.MetricsURL(false), "/metrics") + explain.HandlerPath + "/" + x.lease
	status, body := fetch(x.ctx, x, url+"?o=json", "")
	if status != http.StatusOK {
		x.Fatalf("GET %s: %d %s", url, status, body)
	}
	return x.decode(body)
}

// agree asserts that explanations of what should be one moment are alike.
func (x *explainer) agree(want explained, others map[string]explained) {
	x.Helper()
	for name, got := range others {
		w, err := json.MarshalIndent(want, "", " ")
		x.must(err)
		g, err := json.MarshalIndent(got, "", " ")
		x.must(err)
		if !bytes.Equal(w, g) {
			x.Errorf("%s says\n%s\nwant\n%s", name, g, w)
		}
	}
}

// waitLog waits until the log has so many lines, or more, with all of these parts.
func (a *arena) waitLog(c *framework.Coordinator, n int, parts ...string) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, soon)
	defer cancel()
	var lines []string
	err := framework.WaitFor(ctx, fmt.Sprintf("%d lines in the log of %s that say %q", n, c.Name(), parts), func(context.Context) (bool, error) {
		lines = c.LogLines(parts...)
		return len(lines) >= n, nil
	})
	if err != nil {
		a.Errorf("%v; there are: %q", err, lines)
	}
}

// Whoever explains a lease, from the cluster, from a dump or in the coordinator, says what the coordinator then does.
func TestExplain(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		a := newArena(t, flavour)
		coordinator := sharedCoordinator(flavour)
		x := newExplainer(t, a)
		a.candidate("n37", "1.37", brisk, func(o *framework.CandidateOptions) {
			// Its hand-off is to last longer than it takes to start a process.
			o.LeaseDuration, o.RenewDeadline = 2*briskLease, 2*briskRenew
		})
		a.waitLeader("n37", patience)
		a.annotateLease(map[string]any{v1alpha1.PreemptionAnnotation: v1alpha1.PreemptionNever})
		a.candidate("n36", "1.36", brisk)
		a.waitCandidate("n36")

		a.rec.Mark("a better candidate must wait")
		kept := x.served(coordinator)
		if kept.Holder != "n37" || kept.Action != string(election.None) || kept.Reason != string(election.ReasonPreemptionNever) || kept.Subject != "n36" {
			t.Errorf("the coordinator says of a lease that forbids preemption: %+v", kept)
		}
		x.agree(kept, map[string]explained{
			"explain":    x.live(),
			"explain -f": x.explain("-f", x.dump(func(*coordinationv1.Lease) {})),
		})

		a.rec.Mark("and may lead")
		foretold := x.explain("-f", x.dump(func(l *coordinationv1.Lease) { delete(l.Annotations, v1alpha1.PreemptionAnnotation) }))
		t.Logf("foretold: %s", foretold.Sentence)
		allowed := a.annotateLease(map[string]any{v1alpha1.PreemptionAnnotation: nil})
		ended, action := framework.LeasePreferred, election.Prefer
		if flavour == framework.GateOff {
			ended, action = framework.LeaseRevoked, election.Revoke
		}
		a.waitEvent(ended, "", allowed, soon)
		if foretold.Subject != "n36" || foretold.Action != string(action) && foretold.Action != string(election.Ping) {
			t.Errorf("it was foretold that the coordinator would %s %s; it did %s n36", foretold.Action, foretold.Subject, action)
		}
		// The log has it in JSON.
		said, err := json.Marshal(foretold.Sentence)
		a.must(err)
		a.waitLog(coordinator, 1, a.lease, string(said))

		a.rec.Mark("the end of a term")
		during := x.served(coordinator)
		live := x.live()
		if during.PreferredHolder != "n36" || during.Reason != string(election.ReasonEndOfTerm) {
			t.Errorf("the coordinator says during a hand-off: %+v", during)
		}
		if live.PreferredHolder != "n36" || live.Reason != during.Reason || !slices.Equal(live.Ranking, during.Ranking) {
			t.Errorf("during a hand-off explain says %+v, the coordinator %+v", live, during)
		}

		a.waitLeader("n36", patience)
		code, stdout, stderr := x.run("--kubeconfig", x.kubeconfig, "-n", a.ns)
		for _, want := range []string{"Lease:     " + a.lease, "Strategy:  OldestEmulationVersion (as its candidates ask for)", "Holder:    n36 (renewed ", "leads", "1.36.0"} {
			if code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("explain, with exit code %d, does not say %q:\n%s%s", code, want, stdout, stderr)
			}
		}
		if code, _, stderr := x.run("--kubeconfig", x.kubeconfig, a.ns+"/none"); code != 1 || !strings.Contains(stderr, "none") {
			t.Errorf("of a lease that there is not, explain says, with exit code %d: %s", code, stderr)
		}
		if status, body := fetch(a.ctx, t, strings.TrimSuffix(coordinator.MetricsURL(false), "/metrics")+explain.HandlerPath, ""); status != http.StatusOK || !strings.Contains(body, explain.HandlerPath+"/"+a.lease+" ") {
			t.Errorf("the coordinator's list of leases, %d, lacks %s:\n%s", status, a.lease, body)
		}
		for _, e := range a.rec.Timeline().Events {
			if strings.Contains(e.Writer, framework.ReaderUser) {
				t.Errorf("explain wrote, or tried to: %s %s %s", e.Kind, e.Object, e.Detail)
			}
		}
		a.led("n37", "n36")
		a.safe()
	})
}
