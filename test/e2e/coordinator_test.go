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
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// fetch returns the status and the body of a page; 0 if nobody answers.
func fetch(ctx context.Context, t testing.TB, url, token string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// The coordinator serves metrics with a certificate that it made for itself.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// waitUnready waits until the coordinator is not ready and gives all of these reasons; it returns what it says.
func waitUnready(ctx context.Context, t testing.TB, c *framework.Coordinator, within time.Duration, reasons ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var said string
	err := framework.WaitFor(ctx, fmt.Sprintf("%s to be unready for %q", c.Name(), reasons), func(ctx context.Context) (bool, error) {
		status, body := fetch(ctx, t, c.HealthURL()+"/readyz/coordinating", "")
		if status == http.StatusOK {
			return false, nil
		}
		said = body
		return !slices.ContainsFunc(reasons, func(r string) bool { return !strings.Contains(body, r) }), nil
	})
	if err != nil {
		t.Fatalf("%v; it says: %s", err, said)
	}
	return said
}

// waitReady waits until the coordinator is ready again, in the same process.
func waitReady(ctx context.Context, t testing.TB, c *framework.Coordinator, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if info := c.Info(); info.Run != 1 {
		t.Errorf("%s is in its run %d", info.Name, info.Run)
	}
}

// What is wrong with the flags is said with their values, and the exit code tells it from a failure.
func TestCoordinatorFlags(t *testing.T) {
	t.Parallel()
	binary, err := framework.BuildCoordinator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"help":     {[]string{"--help"}, 0, []string{"--in-tree", "Exit codes"}},
		"version":  {[]string{"--version"}, 0, []string{"coordinator"}},
		"unknown":  {[]string{"--no-such-flag"}, 2, []string{"--no-such-flag", "--help"}},
		"argument": {[]string{"start"}, 2, []string{`"start"`}},
		"renew deadline above lease duration": {
			[]string{"--leader-elect-lease-duration=7s", "--leader-elect-renew-deadline=9s"}, 2,
			[]string{"--leader-elect-lease-duration=7s", "--leader-elect-renew-deadline=9s"},
		},
		"several faults at once": {
			[]string{"--leader-elect-retry-period=9s", "--election-duration=1h", "--in-tree=perhaps"}, 2,
			[]string{"--leader-elect-renew-deadline=10s", "--leader-elect-retry-period=9s", "--candidate-ttl=30m0s", "--election-duration=1h0m0s", `"perhaps"`},
		},
		"no kubeconfig": {[]string{"--kubeconfig=/nonexistent/file"}, 1, []string{"/nonexistent/file"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			output, err := exec.CommandContext(t.Context(), binary, test.args...).CombinedOutput()
			code := 0
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			for _, want := range test.says {
				if !strings.Contains(string(output), want) {
					t.Errorf("the output does not say %q:\n%s", want, output)
				}
			}
		})
	}
}

// A coordinator waits for an API server that forbids, lacks something or is away, says which of them, and works as
// soon as it can.
func TestCoordinatorWaits(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{NoLeaseCandidateAPI: true})
	ctx, node := t.Context(), cluster.Nodes[0]
	const soon = 15 * time.Second
	away := []string{"refused", strings.TrimPrefix(node.APIServer.URL(), "https://")}
	if err := node.APIServer.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := node.StartCoordinator(ctx, framework.CoordinatorOptions{NoWait: true})
	if err != nil {
		t.Fatal(err)
	}
	waitUnready(ctx, t, c, soon, away...)
	if err := node.APIServer.StartAgain(ctx); err != nil {
		t.Fatal(err)
	}
	waitUnready(ctx, t, c, soon, "list leases.coordination.k8s.io in all namespaces", "patch leasecandidates.coordination.k8s.io",
		fmt.Sprintf("update leases.coordination.k8s.io \"lease-coordinator\" in namespace %q", framework.CoordinatorNamespace))
	if err := cluster.ApplyKustomization(ctx, "config/rbac"); err != nil {
		t.Fatal(err)
	}
	waitUnready(ctx, t, c, soon, "serves no LeaseCandidate", "--runtime-config=coordination.k8s.io/v1beta1=true")
	if err := node.APIServer.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	waitUnready(ctx, t, c, soon, away...)
	for _, reason := range []string{"does not allow", "serves no LeaseCandidate", "refused"} {
		if len(c.LogLines("Coordinator cannot work; trying again", reason)) == 0 {
			t.Errorf("the log does not say %q", reason)
		}
	}
	if err := node.APIServer.Reconfigure(ctx, func(o *framework.Options) { o.NoLeaseCandidateAPI = false }); err != nil {
		t.Fatal(err)
	}
	waitReady(ctx, t, c, soon)
	a := newArenaOn(t, cluster)
	a.candidate("n36", "1.36")
	a.waitLeader("n36", patience)
}

// removeVerbs takes rights from the shipped roles.
func (a *arena) removeVerbs(remove func(verb, resource string) bool) {
	a.Helper()
	without := func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		for i := range rules {
			rules[i].Verbs = slices.DeleteFunc(rules[i].Verbs, func(verb string) bool { return remove(verb, rules[i].Resources[0]) })
		}
		// A rule without verbs is not valid.
		return slices.DeleteFunc(rules, func(rule rbacv1.PolicyRule) bool { return len(rule.Verbs) == 0 })
	}
	var everywhere rbacv1.ClusterRole
	a.must(a.cluster.Client().Get(a.ctx, types.NamespacedName{Name: "lease-coordinator"}, &everywhere))
	everywhere.Rules = without(everywhere.Rules)
	a.must(a.cluster.Client().Update(a.ctx, &everywhere))
	var lock rbacv1.Role
	a.must(a.cluster.Client().Get(a.ctx, types.NamespacedName{Namespace: framework.CoordinatorNamespace, Name: "lease-coordinator-lock"}, &lock))
	lock.Rules = without(lock.Rules)
	a.must(a.cluster.Client().Update(a.ctx, &lock))
}

// A write that is forbidden is noticed at once, not when rights are checked next.
func TestCoordinatorWriteForbidden(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{})
	c := startCoordinators(t, t.Context(), cluster.Nodes[0], 1)[0]
	a := newArenaOn(t, cluster)
	a.removeVerbs(func(verb, _ string) bool { return verb == "create" })
	a.candidate("n36", "1.36")
	a.waitCandidate("n36")
	waitUnready(a.ctx, t, c, 5*time.Second, "create leases.coordination.k8s.io")
	if n, ok, err := c.Metric(a.ctx, "coordinated_leader_election_failures_total", map[string]string{"reason": "forbidden"}); err != nil || !ok || n == 0 {
		t.Errorf("forbidden writes counted: %v, %v", n, err)
	}
	a.must(cluster.ApplyKustomization(a.ctx, "config/rbac"))
	a.waitLeader("n36", patience)
	waitReady(a.ctx, t, c, 15*time.Second)
}

// What an operator does with coordinators: tries one out, looks at its metrics, runs two, ends one.
func TestCoordinatorOperations(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{})
	a := newArenaOn(t, cluster)
	a.must(cluster.ApplyKustomization(a.ctx, "config/rbac"))
	lock, err := cluster.Record(a.ctx, framework.RecorderOptions{Namespaces: []string{framework.CoordinatorNamespace}})
	a.must(err)
	a.candidate("n36", "1.36")
	a.waitCandidate("n36")

	a.rec.Mark("a dry run, with secured metrics")
	dry, err := a.node.StartCoordinator(a.ctx, framework.CoordinatorOptions{
		Name: "dry-run", Args: []string{"--dry-run", "--metrics-secure=true", "--leader-elect=false"},
	})
	a.must(err)
	a.waitMetricsSecured(dry)
	a.must(dry.Stop(a.ctx))
	if err := dry.ExitError(); err != nil {
		t.Errorf("%s ended with %v", dry.Name(), err)
	}
	if lines := dry.LogLines("dry run", a.lease, "n36"); len(lines) == 0 {
		t.Error("the dry run does not say what it would do")
	}
	for _, e := range a.rec.Timeline().ByCoordinators() {
		t.Errorf("the dry run wrote: %s %s", e.Object, e.Kind)
	}

	a.rec.Mark("two coordinators")
	coordinators := startCoordinators(t, a.ctx, a.node, 2)
	active := waitActive(t, a.ctx, coordinators...)
	standby := coordinators[0]
	if standby == active {
		standby = coordinators[1]
	}
	a.waitLeader("n36", patience)
	ended := time.Now()
	a.must(active.Terminate(a.ctx))
	took := time.Since(ended)
	if err := active.ExitError(); err != nil || took > 5*time.Second {
		t.Errorf("%s ended with %v %s after TERM", active.Name(), err, took)
	}
	waitActive(t, a.ctx, standby)
	took = time.Since(ended)
	t.Logf("standby active %s after the active coordinator was told to end", took.Round(time.Millisecond))
	if took > poll+slack {
		t.Errorf("the standby was active only %s after TERM", took)
	}
	lockName := framework.CoordinatorNamespace + "/lease-coordinator"
	if released := lock.Timeline().Of(lockName, framework.LeaseReleased); len(released) != 1 || released[0].Writer != active.Name() {
		t.Errorf("releases of the coordinators' lock: %v", released)
	}
	a.safe()
}

// waitMetricsSecured waits until the metrics endpoint serves, and asserts that it serves those who may read.
func (a *arena) waitMetricsSecured(c *framework.Coordinator) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	url := c.MetricsURL(true)
	a.must(framework.WaitFor(ctx, "the metrics endpoint refuses anonymous clients", func(ctx context.Context) (bool, error) {
		status, _ := fetch(ctx, a, url, "")
		if status == http.StatusOK {
			return false, errors.New("it serves them")
		}
		return status == http.StatusUnauthorized || status == http.StatusForbidden, nil
	}))
	token := a.node.ConfigFor(framework.CandidateUser).BearerToken
	if status, _ := fetch(ctx, a, url, token); status != http.StatusForbidden {
		a.Errorf("the metrics endpoint answers %d to a user without the role", status)
	}
	a.must(a.cluster.Client().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-metrics-reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "lease-coordinator-metrics-reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: framework.CandidateUser}},
	}))
	a.must(framework.WaitFor(ctx, "the metrics endpoint serves users with the role", func(ctx context.Context) (bool, error) {
		status, body := fetch(ctx, a, url, token)
		return status == http.StatusOK && strings.Contains(body, "coordinated_leader_election_active"), nil
	}))
}

// A coordinator that was frozen for longer than its lock lasts finds a successor when it is thawed. It must not write
// beside it, and takes over again in the same process when that one is gone.
func TestCoordinatorFrozen(t *testing.T) {
	t.Parallel()
	eachFlavour(t, func(t *testing.T, flavour framework.Flavour) {
		cluster := framework.New(t, framework.Options{CoordinatedLeaderElection: flavour == framework.GateOn})
		if flavour == framework.GateOn {
			waitInTree(t.Context(), t, cluster, patience)
		}
		a := newArenaOn(t, cluster)
		coordinators := startCoordinators(t, a.ctx, a.node, 2, coordinatorArgs(flavour)...)
		first := waitActive(t, a.ctx, coordinators...)
		second := coordinators[0]
		if second == first {
			second = coordinators[1]
		}
		a.rec.Mark("%s freezes", first.Name())
		a.must(first.Freeze(a.ctx))
		frozen := time.Now()
		waitActive(t, a.ctx, second)
		t.Logf("%s is active %s after %s froze", second.Name(), time.Since(frozen).Round(time.Millisecond), first.Name())
		a.observe(time.Until(frozen.Add(leaseDuration + 5*time.Second)))

		// Many leases that want a write every few seconds, just when it comes back.
		leases := a.restlessLeases(20)
		a.must(first.Thaw())
		thawed := time.Now()
		a.observe(leaseDuration)
		a.rec.Mark("%s is killed", second.Name())
		a.must(second.Kill(a.ctx))
		killed := time.Now()
		waitActive(t, a.ctx, first)
		if flavour == framework.GateOff && time.Since(killed) > failover {
			t.Errorf("%s is active only %s after %s was killed", first.Name(), time.Since(killed), second.Name())
		}
		activatedAgain := activations(t, first)
		if len(activatedAgain) != 2 || first.Info().Run != 1 {
			t.Fatalf("%s became active at %v, in run %d", first.Name(), activatedAgain, first.Info().Run)
		}
		a.observe(poll)

		writes := map[string]int{}
		for _, e := range a.rec.Timeline().ByCoordinators() {
			if !slices.Contains(leases, e.Lease) {
				continue
			}
			writes[e.Writer]++
			if e.Writer == first.Name() && e.Time.After(thawed) && e.Time.Before(activatedAgain[1]) {
				t.Errorf("%s wrote %s after it was thawed, while %s was active: %s %s", first.Name(), e.Time.Sub(thawed), second.Name(), e.Object, e.Kind)
			}
		}
		t.Logf("writes: %v", writes)
		for _, c := range coordinators {
			if writes[c.Name()] == 0 {
				t.Errorf("%s wrote nothing", c.Name())
			}
		}
	})
}

// restlessLeases makes leases whose candidates show themselves once and take nothing up: coordinators are busy with
// them. It returns the leases as "namespace/name".
func (a *arena) restlessLeases(n int) []string {
	a.Helper()
	var leases []string
	for i := range n {
		name := fmt.Sprintf("restless-%d", i)
		now := metav1.NewMicroTime(time.Now())
		a.must(a.cluster.Client().Create(a.ctx, &coordinationv1beta1.LeaseCandidate{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: name},
			Spec: coordinationv1beta1.LeaseCandidateSpec{
				LeaseName: name, BinaryVersion: "1.37.0", EmulationVersion: "1.37.0",
				Strategy: coordinationv1.CoordinatedLeaseStrategy(v1alpha1.OldestEmulationVersion), RenewTime: &now,
			},
		}))
		leases = append(leases, a.ns+"/"+name)
	}
	return leases
}
