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
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

func TestMain(m *testing.M) { os.Exit(framework.Main(m)) }

const (
	managerLease = "kube-system/kube-controller-manager"
	inTreeLock   = "kube-system/leader-election-controller"
)

// deadline is for tests on a real control plane, which -short leaves out.
func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// The in-tree coordinator hands kube-controller-manager's lease from the newer
// emulation version to the older one: the recorder must tell who worked when,
// and what was written by whom.
func TestInTreeHandoff(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 90*time.Second)
	c := framework.New(t, framework.Options{CoordinatedLeaderElection: true})
	n := c.Nodes[0]
	rec, err := c.Record(ctx, framework.RecorderOptions{Namespaces: []string{"kube-system"}})
	if err != nil {
		t.Fatal(err)
	}
	newer, err := n.StartControllerManager(ctx, framework.ComponentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	first, err := rec.WaitForLeader(ctx, managerLease, nil)
	if err != nil {
		t.Fatal(err)
	}
	if first.Process.Name != newer.Name() {
		t.Fatalf("%s leads, want %s", first, newer.Name())
	}
	rec.Mark("an older one joins")
	older, err := n.StartControllerManager(ctx, framework.ComponentOptions{EmulationVersion: "1.36"})
	if err != nil {
		t.Fatal(err)
	}
	second, err := rec.WaitForLeader(ctx, managerLease, func(term framework.Term) bool {
		return term.Process.Name == older.Name()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.WaitFor(ctx, "the restart of the one that lost", func(tl framework.Timeline) bool {
		return newer.Info().Run == 2 && newer.Running()
	}); err != nil {
		t.Fatal(err)
	}

	tl := rec.Timeline()
	t.Logf("\n%s", tl)
	terms := tl.Leaders(managerLease)
	if len(terms) != 2 || !terms[1].Ongoing || terms[0].Ongoing {
		t.Fatalf("terms: %+v", terms)
	}
	if terms[0].Process.Emulation != c.Version() || terms[1].Process.Emulation != "1.36" {
		t.Errorf("emulation versions of the leaders: %s, then %s", terms[0].Process.Emulation, terms[1].Process.Emulation)
	}
	if first.Identity == "" || second.Identity == "" || first.Identity == second.Identity {
		t.Errorf("identities of the leaders: %q, then %q", first.Identity, second.Identity)
	}
	if overlaps := tl.Overlaps(managerLease); len(overlaps) != 0 {
		t.Errorf("two worked at once: %+v", overlaps)
	}
	if gaps := tl.Gaps(managerLease); len(gaps) != 1 {
		t.Errorf("leaderless times: %v, want one", gaps)
	}
	if v := tl.SkewViolations(managerLease); len(v) != 0 {
		t.Errorf("skew violations: %+v", v)
	}
	count := framework.Count(tl.WritesTo(managerLease))
	for kind, want := range map[framework.EventKind]int{
		framework.LeaseAppointed: 2, framework.LeaseTakenUp: 2, framework.LeasePreferred: 1,
	} {
		if count[kind] != want {
			t.Errorf("%d %s, want %d", count[kind], kind, want)
		}
	}
	for _, e := range tl.Of(managerLease, framework.LeaseAppointed, framework.LeasePreferred) {
		if e.Writer != n.APIServer.Name() {
			t.Errorf("%s at %s was written by %q, want the kube-apiserver", e.Kind, e.Time, e.Writer)
		}
	}
	for _, e := range tl.Of(managerLease, framework.LeaseRenewed) {
		if want := terms[0].Process.Name; e.LeaseAfter.Spec.HolderIdentity != nil && *e.LeaseAfter.Spec.HolderIdentity == first.Identity && e.Writer != want {
			t.Errorf("a renewal was written by %q, want %s", e.Writer, want)
		}
	}
	if reactions := tl.Reactions(managerLease, 10*time.Second); len(reactions) == 0 {
		t.Error("no reactions of the coordinator found")
	}
	if lock := tl.Leaders(inTreeLock); len(lock) != 1 || lock[0].Process.Kind != framework.APIServerKind {
		t.Errorf("terms of the in-tree coordinator: %+v", lock)
	}
}

// Candidates come and go, are frozen, killed and started again, and the
// recorder and their own stamps agree on who worked.
func TestCandidates(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 90*time.Second)
	c := framework.Shared(t, framework.GateOn)
	ns := framework.NewNamespace(t, c)
	lease := ns + "/job"
	rec, err := c.Record(ctx, framework.RecorderOptions{Namespaces: []string{ns}})
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Stop()
	start := func(opts framework.CandidateOptions) *framework.Candidate {
		t.Helper()
		opts.Namespace, opts.Lease = ns, "job"
		opts.LeaseDuration, opts.RenewDeadline, opts.RetryPeriod = 3*time.Second, 2*time.Second, 500*time.Millisecond
		cand, err := c.Nodes[0].StartCandidate(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := cand.Stop(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		})
		return cand
	}
	leads := func(c *framework.Candidate, run int) func(framework.Term) bool {
		return func(term framework.Term) bool { return term.Identity == c.Identity && term.Process.Run == run }
	}

	a := start(framework.CandidateOptions{Name: "a", Plain: true, Restart: true})
	if _, err := rec.WaitForLeader(ctx, lease, leads(a, 1)); err != nil {
		t.Fatal(err)
	}

	rec.Mark("freeze a between two renewals, let b take over")
	// In the middle of a renewal its renew deadline would have passed when it is continued, and it would stop at once.
	renewals := len(rec.Timeline().Of(lease, framework.LeaseRenewed))
	if err := rec.WaitFor(ctx, "the next renewal of a", func(tl framework.Timeline) bool {
		return len(tl.Of(lease, framework.LeaseRenewed)) > renewals
	}); err != nil {
		t.Fatal(err)
	}
	if err := a.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	b := start(framework.CandidateOptions{Name: "b", Plain: true, ReleaseOnCancel: true, ClockOffset: -time.Minute})
	if _, err := rec.WaitForLeader(ctx, lease, leads(b, 1)); err != nil {
		t.Fatal(err)
	}
	if overlaps := rec.Timeline().Overlaps(lease); len(overlaps) != 0 {
		t.Errorf("while frozen a counts as working: %+v", overlaps)
	}
	rec.Mark("thaw a: it notices, exits, and is started again")
	if err := a.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := rec.WaitFor(ctx, "the second run of a", func(framework.Timeline) bool { return a.Info().Run == 2 }); err != nil {
		t.Fatal(err)
	}

	rec.Mark("b ends and releases")
	if err := b.Terminate(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.ExitError(); err != nil {
		t.Errorf("b ended with %v, want exit status 0", err)
	}
	if _, err := rec.WaitForLeader(ctx, lease, leads(a, 2)); err != nil {
		t.Fatal(err)
	}
	rec.Mark("a crashes, and leads again under the same identity")
	worked := func(terms int) {
		t.Helper()
		if err := framework.WaitFor(ctx, "work to be stamped", func(context.Context) (bool, error) {
			spans, err := framework.Work(a)
			return len(spans) >= terms, err
		}); err != nil {
			t.Fatal(err)
		}
	}
	worked(3) // frozen, it made a pause
	if err := a.Crash(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := rec.WaitForLeader(ctx, lease, leads(a, 3)); err != nil {
		t.Fatal(err)
	}
	worked(4)
	a.SetRestart(false)
	if err := a.Crash(ctx); err != nil {
		t.Fatal(err)
	}

	tl := rec.Timeline()
	if t.Failed() || testing.Verbose() {
		t.Logf("\n%s", tl)
	}
	var order []string
	for _, term := range tl.Leaders(lease) {
		order = append(order, term.Identity)
	}
	if want := []string{"a", "b", "a", "a"}; !slices.Equal(order, want) {
		t.Errorf("leaders were %v, want %v", order, want)
	}
	if tl.Leaders(lease)[0].Suspended == nil {
		t.Error("the first term of a was not suspended")
	}
	count := framework.Count(tl.WritesTo(lease))
	if count[framework.LeaseAcquired] != 3 || count[framework.LeaseReleased] != 1 || count[framework.LeaseAppointed] != 0 {
		t.Errorf("writes: %v", count)
	}
	for _, e := range tl.Of(lease, framework.LeaseAcquired) {
		if off := e.LeaseAfter.Spec.RenewTime.Sub(e.Time); e.Subject == "b" && (off > -59*time.Second || off < -61*time.Second) {
			t.Errorf("the stamps of b are off by %s, want a minute behind", off)
		}
	}
	work, err := framework.Work(a, b)
	if err != nil {
		t.Fatal(err)
	}
	// Two measures of one thing: once continued, client-go goes on working until
	// its renew deadline has passed anew, although the lease is another's.
	byWord, byStamp := tl.Overlaps(lease), framework.WorkOverlaps(work)
	if len(byWord) != 1 || len(byStamp) != 1 {
		t.Fatalf("two worked at once: %+v by their words, %+v by their stamps; want it once", byWord, byStamp)
	}
	if off := (byWord[0].Duration() - byStamp[0].Duration()).Abs(); off > 150*time.Millisecond {
		t.Errorf("two worked at once for %s by their words and %s by their stamps", byWord[0].Duration(), byStamp[0].Duration())
	}
}

// A test binary that is killed leaves neither processes nor files.
func TestNothingIsLeftBehind(t *testing.T) {
	if os.Getenv("E2E_CHILD") != "" {
		t.Skip("this is the child")
	}
	t.Parallel()
	ctx := deadline(t, 60*time.Second)
	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestChild$", "-test.v")
	child.Env = append(os.Environ(), "E2E_CHILD=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	child.Stderr = os.Stderr
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Process.Kill() }()
	var dir string
	pids := map[string]int{}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var name string
		var pid int
		if _, err := fmt.Sscanf(lines.Text(), "CHILD %s %d", &name, &pid); err == nil {
			pids[name] = pid
		}
		if _, err := fmt.Sscanf(lines.Text(), "CHILD-DIR %s", &dir); err == nil {
			break
		}
	}
	if dir == "" || len(pids) < 3 {
		t.Fatalf("the child did not start: directory %q, processes %v", dir, pids)
	}
	for name, pid := range pids {
		if err := syscall.Kill(pid, 0); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	for name, pid := range pids {
		if err := framework.WaitFor(ctx, name+" to be gone", func(context.Context) (bool, error) {
			return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH), nil
		}); err != nil {
			t.Error(err)
		}
	}
	if err := framework.WaitFor(ctx, dir+" to be gone", func(context.Context) (bool, error) {
		_, err := os.Stat(dir)
		return os.IsNotExist(err), nil
	}); err != nil {
		t.Error(err)
	}
}

func TestChild(t *testing.T) {
	if os.Getenv("E2E_CHILD") == "" {
		t.Skip("run by TestNothingIsLeftBehind")
	}
	ctx := deadline(t, 60*time.Second)
	c := framework.New(t, framework.Options{})
	if _, err := c.Nodes[0].StartScheduler(ctx, framework.ComponentOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Etcd.Freeze(ctx); err != nil { // stopped processes must go as well
		t.Fatal(err)
	}
	for _, p := range c.Processes() {
		fmt.Printf("CHILD %s %d\n", p.Name(), p.Info().PID)
	}
	fmt.Printf("CHILD-DIR %s\n", filepath.Dir(filepath.Dir(filepath.Dir(c.Etcd.LogPath()))))
	<-ctx.Done()
}

// Three nodes at an older version, one kube-apiserver of which is upgraded,
// crashes, and is frozen, while the recorder looks on through the others.
func TestNodes(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 120*time.Second)
	begun := time.Now()
	c := framework.New(t, framework.Options{Nodes: 3, EmulationVersion: "1.36"})
	t.Logf("three nodes after %s", time.Since(begun))
	rec, err := c.Record(ctx, framework.RecorderOptions{Namespaces: []string{"kube-system"}})
	if err != nil {
		t.Fatal(err)
	}
	const lease = managerLease
	// Not a kube-scheduler: a newer one never leads before a kube-apiserver of its
	// version has granted it what it wants to read, which the skew policy forbids.
	opts := framework.ComponentOptions{Plain: true, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 500 * time.Millisecond}
	newer, err := c.Nodes[1].StartControllerManager(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rec.WaitForLeader(ctx, lease, nil); err != nil {
		t.Fatal(err)
	}
	rec.Mark("a kube-controller-manager at %s leads, kube-apiservers are at 1.36", c.Version())

	for _, emulation := range []string{"", "1.36"} {
		server := c.Nodes[0].APIServer
		url := server.URL()
		if err := server.Restart(ctx, emulation); err != nil {
			t.Fatal(err)
		}
		if server.URL() != url {
			t.Errorf("after the restart it serves at %s, before at %s", server.URL(), url)
		}
	}
	rec.Mark("the kube-apiserver of n1 crashes")
	if err := c.Nodes[0].APIServer.Crash(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Nodes[0].APIServer.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	rec.Mark("the kube-apiserver of n1 is frozen")
	if err := c.Nodes[0].APIServer.Freeze(ctx); err != nil {
		t.Fatal(err)
	}
	renewals := func(tl framework.Timeline) int { return framework.Count(tl.WritesTo(lease))[framework.LeaseRenewed] }
	before := renewals(rec.Timeline())
	if err := rec.WaitFor(ctx, "renewals to be seen through another kube-apiserver", func(tl framework.Timeline) bool {
		return renewals(tl) > before+2
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Nodes[0].APIServer.Thaw(); err != nil {
		t.Fatal(err)
	}
	rec.Mark("the kube-controller-manager is rolled back")
	if err := newer.Restart(ctx, "1.36"); err != nil {
		t.Fatal(err)
	}
	if _, err := rec.WaitForLeader(ctx, lease, func(term framework.Term) bool { return term.Process.Emulation == "1.36" }); err != nil {
		t.Fatal(err)
	}

	tl := rec.Timeline()
	terms := tl.Leaders(lease)
	if len(terms) != 2 || terms[0].Identity == terms[1].Identity || terms[0].Identity == "" || terms[1].Identity == "" {
		t.Fatalf("terms: %+v", terms)
	}
	violations := tl.SkewViolations(lease)
	for _, v := range violations {
		if v.Leader.Process.Emulation != c.Version() || v.APIServer.Emulation != "1.36" {
			t.Errorf("not a violation: %+v", v)
		}
	}
	servers := map[string]bool{}
	for _, v := range violations {
		servers[v.APIServer.Name] = true
	}
	if len(servers) != 3 {
		t.Errorf("violations with %v, want all three kube-apiservers", servers)
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("\n%s", tl)
	}
}

// The coordinator runs with the rights that are shipped, and its own account of
// itself can be read.
func TestCoordinator(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 120*time.Second)
	c := framework.New(t, framework.Options{})
	ns := framework.NewNamespace(t, c)
	if err := c.ApplyKustomization(ctx, "config/rbac"); err != nil {
		t.Fatal(err)
	}
	rec, err := c.Record(ctx, framework.RecorderOptions{Namespaces: []string{ns, framework.CoordinatorNamespace}})
	if err != nil {
		t.Fatal(err)
	}
	coordinator, err := c.Nodes[0].StartCoordinator(ctx, framework.CoordinatorOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cand, err := c.Nodes[0].StartCandidate(ctx, framework.CandidateOptions{Namespace: ns, Lease: "job", Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rec.WaitForLeader(ctx, ns+"/job", nil); err != nil {
		t.Fatal(err)
	}
	tl := rec.Timeline()
	appointed := tl.Of(ns+"/job", framework.LeaseAppointed)
	if len(appointed) == 0 || appointed[0].Writer != coordinator.Name() {
		t.Errorf("appointments: %+v, want one by %s", appointed, coordinator.Name())
	}
	if blind := tl.BlindWrites(); len(blind) != 0 {
		t.Errorf("updates that are no compare-and-swap: %+v", blind)
	}
	if v, ok, err := coordinator.Metric(ctx, "go_goroutines", nil); err != nil || !ok || v == 0 {
		t.Errorf("go_goroutines = %v, found %t, error %v", v, ok, err)
	}
	if rss, err := coordinator.RSS(); err != nil || rss < 1<<20 {
		t.Errorf("resident memory: %d, %v", rss, err)
	}
	if cpu, err := coordinator.CPUTime(); err != nil || cpu <= 0 {
		t.Errorf("CPU time: %s, %v", cpu, err)
	}
	if err := cand.Stop(ctx); err != nil {
		t.Error(err)
	}
	if err := coordinator.Terminate(ctx); err != nil {
		t.Fatal(err)
	}
	if err := coordinator.ExitError(); err != nil {
		t.Errorf("the coordinator ended with %v:\n%s", err, coordinator.LogTail(20))
	}
}
