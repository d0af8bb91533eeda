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
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lease-coordinator/coordinator/hack/internal/manifests"
)

// The tests here show that every check can fail: a check that never does is worse than none.

// expect compares findings with the parts that each of them must contain, in order.
func expect(t *testing.T, findings []finding, want ...string) {
	t.Helper()
	if len(findings) != len(want) {
		t.Errorf("%d findings, want %d:", len(findings), len(want))
		for _, f := range findings {
			t.Errorf("    %s", f)
		}
		return
	}
	for i, part := range want {
		if !strings.Contains(findings[i].String(), part) {
			t.Errorf("finding %d is %q, want %q in it", i, findings[i], part)
		}
	}
}

func TestImports(t *testing.T) {
	const own = modulePath + "/"
	for _, test := range []struct {
		folder, imported string
		want             []string
	}{
		{"internal/election", own + "internal/strategy", nil},
		{"internal/election", own + "api/v1alpha1", nil},
		{"internal/election", own + "internal/election/testing", nil},
		{"internal/election", "k8s.io/api/coordination/v1", nil},
		{"internal/election", "maps", nil},
		{"internal/election", own + "internal/leaseapi", []string{"x.go:3: internal/election may not import internal/leaseapi"}},
		{"internal/election", own + "internal/strategyfoo", []string{"may not import internal/strategyfoo"}},
		{"internal/election", "k8s.io/client-go/tools/cache", []string{"no client"}},
		{"internal/election", "k8s.io/klog/v2", []string{"no logger"}},
		{"internal/strategy", "sigs.k8s.io/controller-runtime", []string{"no client"}},
		{"internal/strategy", "math/rand/v2", []string{"same input, same output"}},
		{"internal/strategy", "crypto/rand", []string{"same input, same output"}},
		{"internal/strategy", own + "internal/election", []string{"may not import internal/election"}},
		{"internal/candidacy", own + "internal/election", []string{"knows nothing of the coordinator"}},
		{"internal/candidacy", "sync/atomic", []string{"no goroutine"}},
		{"internal/controller", "k8s.io/client-go/tools/cache", nil},
		{"internal/controller", own + "internal/coordinator", []string{"may not import internal/coordinator"}},
		{"internal/controller", own + "internal/simulation", []string{"may not import internal/simulation"}},
		{"internal/leaseapi", own + "internal/election", []string{"decides nothing"}},
		{"internal/observe", own + "internal/controller", []string{"takes none"}},
		{"internal/coordinator", own + "test/e2e/framework", []string{"may not import test/e2e/framework"}},
		{"cmd/coordinator", own + "internal/controller", []string{"nothing else"}},
		{"pkg/candidate", own + "internal/election", []string{"share API types only"}},
		{"pkg/candidate", own + "internal/candidacy", nil},
		{"api/v1alpha1", own + "internal/strategy", []string{"other people's programs"}},
		{"api/v1alpha1", "k8s.io/apimachinery/pkg/runtime", nil},
		{"api/v1alpha1", "time", nil},
		{"api/v1alpha1", "sigs.k8s.io/controller-runtime/pkg/scheme", []string{"but only k8s.io/api and k8s.io/apimachinery"}},
		{"api/v1alpha1", "k8s.io/apiserver/pkg/cel", []string{"but only k8s.io/api and k8s.io/apimachinery"}},
		{"test/e2e", own + "internal/controller", nil},
		{"hack/verify", own + "internal/election", []string{"knows nothing else"}},
		{"hack/render", own + "internal/coordinator", []string{"apart from the product"}},
	} {
		t.Run(test.folder+" "+strings.TrimPrefix(test.imported, own), func(t *testing.T) {
			rule := ruleOf(importRules, test.folder)
			if rule == nil {
				t.Fatal("no rule")
			}
			source := "package x\n\nimport _ \"" + test.imported + "\"\n"
			findings, err := importsAgainst(*rule, test.folder, "x.go", []byte(source))
			if err != nil {
				t.Fatal(err)
			}
			expect(t, findings, test.want...)
		})
	}
}

func TestPackageWithoutImportRule(t *testing.T) {
	for _, folder := range []string{"internal/newcomer", "internal", "cmd/kubectl-coordinator", "internal/strategyfoo"} {
		if rule := ruleOf(importRules, folder); rule != nil {
			t.Errorf("%s falls under the rule of %s", folder, rule.of)
		}
	}
	if rule := ruleOf([]importRule{{of: "a/b"}, {of: "a"}}, "a/b/c"); rule == nil || rule.of != "a/b" {
		t.Errorf("the longest path does not count: %v", rule)
	}
}

func TestPurity(t *testing.T) {
	exports, err := exportsOf(".", "time", "maps", "slices", "iter")
	if err != nil {
		t.Fatal(err)
	}
	const unordered = "in no particular order"
	for _, test := range []struct {
		name string
		body string
		want []string
	}{
		{"clock is read", "func f() { _ = time.Now() }", []string{"x.go:3: pure code uses time.Now"}},
		{"clock is handed on", "var now = time.Now", []string{"uses time.Now"}},
		{"since", "func f(t time.Time) { _ = time.Since(t) }", []string{"uses time.Since"}},
		{"until", "func f(t time.Time) { _ = time.Until(t) }", []string{"uses time.Until"}},
		{"after", "func f() { <-time.After(1) }", []string{"uses time.After"}},
		{"tick", "func f() { <-time.Tick(1) }", []string{"uses time.Tick"}},
		{"timer", "func f() { _ = time.NewTimer(1) }", []string{"uses time.NewTimer"}},
		{"ticker", "func f() { _ = time.NewTicker(1) }", []string{"uses time.NewTicker"}},
		{"sleep", "func f() { time.Sleep(1) }", []string{"uses time.Sleep"}},
		{"callback", "func f() { time.AfterFunc(1, func() {}) }", []string{"uses time.AfterFunc"}},
		{"arithmetic", "func f(t time.Time) bool { return t.Add(time.Second).After(t) }", nil},
		{"own name", "func Now() int { return 0 }\nvar _ = Now()", nil},
		{"goroutine", "func f() { go f() }", []string{"starts a goroutine"}},
		{"select", "func f(c chan int) { select { case <-c: } }", []string{"waits in a select"}},
		{"slice", "func f(s []int) { for range s {} }", nil},
		{"map", "func f(m map[int]int) { for range m {} }", []string{unordered}},
		{"named map", "type m map[int]int\nfunc f(m m) { for range m {} }", []string{unordered}},
		{"map of a struct", "type s struct { m map[int]int }\nfunc f(s s) { for range s.m {} }", []string{unordered}},
		{"excused above", "func f(m map[int]int) {\n//ordered: only counted\nfor range m {}\n}", nil},
		{"excused beside", "func f(m map[int]int) {\nfor range m { //ordered: only counted\n}\n}", nil},
		{"excused without reason", "func f(m map[int]int) {\n//ordered:\nfor range m {}\n}", []string{unordered}},
		{"excused elsewhere", "//ordered: only counted\n\nfunc f(m map[int]int) { for range m {} }", []string{unordered}},
		{"keys", "func f(m map[int]int) { for range maps.Keys(m) {} }", []string{"calls maps.Keys, " + unordered}},
		{"values", "func f(m map[int]int) []int { return slices.Collect(maps.Values(m)) }", []string{"calls maps.Values"}},
		{"all", "func f(m map[int]int) iter.Seq2[int, int] { return maps.All(m) }", []string{"calls maps.All"}},
		{"type arguments", "func f(m map[int]int) { for range maps.Keys[map[int]int](m) {} }", []string{"calls maps.Keys"}},
		{"sorted keys", "func f(m map[int]int) { for range slices.Sorted(maps.Keys(m)) {} }", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			source := "package x; import (\"time\"; \"maps\"; \"slices\"; \"iter\")\n" +
				"type _ struct { _ time.Time; _ iter.Seq[int] }; var _, _ = maps.Clone[map[int]int], slices.Clone[[]int]\n" + test.body + "\n"
			findings, err := impurities("internal/election", map[string][]byte{"x.go": []byte(source)}, exports)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, findings, test.want...)
		})
	}
	if _, err := impurities("internal/election", map[string][]byte{"x.go": []byte("package x; var x int = true")}, exports); err == nil {
		t.Error("a package that does not compile passes")
	}
}

// The tables must speak of what exists, or is planned: a misspelt folder would be a rule about nothing.
func TestRulesAreConsistent(t *testing.T) {
	for _, pure := range purePackages {
		if ruleOf(importRules, pure) == nil {
			t.Errorf("%s is pure and has no import rule", pure)
		}
	}
	for _, rule := range importRules {
		if rule.why == "" {
			t.Errorf("%s: no reason given", rule.of)
		}
		for _, folder := range rule.may {
			known := func(other importRule) bool { return under(folder, other.of) || under(other.of, folder) }
			if !slices.ContainsFunc(importRules, known) {
				t.Errorf("%s may import %s, of which no rule knows", rule.of, folder)
			}
		}
	}
}

func TestPackages(t *testing.T) {
	for name, test := range map[string]struct {
		folder, source string
		want           []string
	}{
		"good":                {"internal/x", "// Package x does.\npackage x\n", nil},
		"good command":        {"cmd/x", "// Command x does.\npackage main\n", nil},
		"none":                {"internal/x", "package x\n", []string{"no package comment"}},
		"licence only":        {"internal/x", "// Copyright\npackage x\n", []string{"no package comment"}},
		"detached":            {"internal/x", "// Package x does.\n\npackage x\n", []string{"no package comment"}},
		"says nothing":        {"internal/util", "// Package util has things.\npackage util\n", []string{"does not say"}},
		"folder says nothing": {"internal/common", "// Package x does.\npackage x\n", []string{"does not say"}},
		"test package":        {"test/helpers", "// Package helpers_test does.\npackage helpers_test\n", []string{"does not say"}},
	} {
		t.Run(name, func(t *testing.T) {
			findings, err := anonymous(test.folder, map[string][]byte{"x.go": []byte(test.source)})
			if err != nil {
				t.Fatal(err)
			}
			expect(t, findings, test.want...)
		})
	}
}

func TestSleeps(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		want   []string
	}{
		"sleeps":        {"package x\nimport \"time\"\nfunc f() { time.Sleep(1) }", []string{"x_test.go:3:"}},
		"alias":         {"package x\nimport clock \"time\"\nfunc f() { clock.Sleep(1) }", []string{"x_test.go:3:"}},
		"handed on":     {"package x\nimport \"time\"\nvar f = time.Sleep", []string{"x_test.go:3:"}},
		"another Sleep": {"package x\ntype t struct{}\nfunc (t) Sleep() {}\nfunc f(time t) { time.Sleep() }", nil},
		"no sleep":      {"package x\nimport \"time\"\nvar _ = time.Second", nil},
	} {
		t.Run(name, func(t *testing.T) {
			findings, err := sleepsIn("x_test.go", []byte(test.source))
			if err != nil {
				t.Fatal(err)
			}
			expect(t, findings, test.want...)
		})
	}
}

func TestLicences(t *testing.T) {
	header, err := os.ReadFile("../boilerplate.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	slashes := string(header)
	hashes := "#" + strings.ReplaceAll(slashes, "\n//", "\n#")[2:]
	for name, test := range map[string]struct {
		source string
		want   bool
	}{
		"slashes":            {slashes + "\npackage x\n", true},
		"block":              {"/*\n" + strings.ReplaceAll(slashes, "\n//", "\n")[2:] + "*/\n\npackage x\n", true},
		"hashes":             {"#!/usr/bin/env bash\n" + hashes, true},
		"build constraint":   {"//go:build linux\n\n" + slashes, true},
		"none":               {"package x\n", false},
		"empty":              {"", false},
		"another holder":     {strings.Replace(slashes, "The lease-coordinator Authors", "Someone", 1), false},
		"cut short":          {slashes[:len(slashes)-20], false},
		"at the wrong end":   {"package x\n" + strings.Repeat("var _ = 0\n", 100) + slashes, false},
		"mentioned, no text": {"// Copyright The lease-coordinator Authors.\n", false},
	} {
		if got := hasLicence([]byte(test.source), header); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	for name, want := range map[string]bool{
		"Makefile": true, "Dockerfile": true, ".ci/run": true, "hack/x.sh": true, "config/x.yaml": true, "a/b.go": true,
		"README.md": false, "internal/x/testdata/y.go": false, "go.mod": false,
	} {
		if got := needsLicence(name); got != want {
			t.Errorf("needsLicence(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestManifestsThatWouldNotWork(t *testing.T) {
	const good = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: lease-coordinator, namespace: lease-coordinator-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lease-coordinator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lease-coordinator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lease-coordinator}
subjects: [{kind: ServiceAccount, name: lease-coordinator, namespace: lease-coordinator-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: lease-coordinator-lock, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: lease-coordinator-lock, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: lease-coordinator-lock}
subjects: [{kind: ServiceAccount, name: lease-coordinator, namespace: lease-coordinator-system}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: lease-coordinator, namespace: lease-coordinator-system}
spec: {template: {metadata: {labels: {app: x}}, spec: {serviceAccountName: lease-coordinator, containers: [{name: coordinator, args: [--in-tree=yield, --config=/etc/x/c.yaml], volumeMounts: [{name: v, mountPath: /etc/x}]}], volumes: [{name: v, configMap: {name: lease-coordinator}}]}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: lease-coordinator, namespace: lease-coordinator-system}
data: {c.yaml: anything}
---
apiVersion: v1
kind: Service
metadata: {name: lease-coordinator-metrics, namespace: lease-coordinator-system}
spec: {selector: {app: x}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: lease-coordinator, namespace: lease-coordinator-system}
spec: {selector: {matchLabels: {app: x}}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: lease-coordinator, namespace: lease-coordinator-system}
spec: {podSelector: {matchLabels: {app: x}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: lease-coordinator-leases}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: lease-coordinator-leases}
spec: {policyName: lease-coordinator-leases}
`
	for name, test := range map[string]struct {
		from, to string
		want     []string
	}{
		"good":            {"", "", nil},
		"role":            {"ClusterRole, name: lease-coordinator}", "ClusterRole, name: lease-coordinators}", []string{"binds ClusterRole/lease-coordinators"}},
		"role's place":    {"lease-coordinator-lock, namespace: kube-system", "lease-coordinator-lock, namespace: lease-coordinator-system", []string{"RoleBinding/lease-coordinator-lock binds Role/kube-system/lease-coordinator-lock"}},
		"policy":          {"podSelector: {matchLabels: {app: x}}", "podSelector: {matchLabels: {app: other}}", []string{"NetworkPolicy/lease-coordinator selects no Pod"}},
		"subject":         {"ServiceAccount, name: lease-coordinator,", "ServiceAccount, name: default,", []string{"is for ServiceAccount lease-coordinator-system/default"}},
		"subject's place": {"namespace: lease-coordinator-system}]", "namespace: default}]", []string{"is for ServiceAccount default/"}},
		"flag":            {"--in-tree", "--intree", []string{"would not start: unknown flag: --intree"}},
		"flag's value":    {"=yield", "=yields", []string{"would not start: --in-tree=\"yields\""}},
		"argument":        {"[--in-tree=yield,", "[serve,", []string{"unexpected argument \"serve\""}},
		"file":            {"x/c.yaml", "x/d.yaml", []string{"would not start: --config=\"/etc/x/d.yaml\": no ConfigMap puts a file there"}},
		"file's folder":   {"mountPath: /etc/x", "mountPath: /etc/y", []string{"no ConfigMap puts a file there"}},
		"file's map":      {"configMap: {name: lease-coordinator}", "configMap: {name: other}", []string{"no ConfigMap puts a file there"}},
		"container":       {"name: coordinator,", "name: manager,", []string{"has no container \"coordinator\""}},
		"account":         {"serviceAccountName: lease-coordinator", "serviceAccountName: x", []string{"runs as ServiceAccount \"x\""}},
		"service":         {"spec: {selector: {app: x}}", "spec: {selector: {app: other}}", []string{"Service/lease-coordinator-metrics selects no Pod"}},
		"budget":          {"matchLabels: {app: x}", "matchLabels: {app: other}", []string{"PodDisruptionBudget/lease-coordinator selects no Pod"}},
		"admission":       {"policyName: lease-coordinator-leases", "policyName: leases", []string{"binds ValidatingAdmissionPolicy \"leases\""}},
		"name":            {"lease-coordinator-metrics,", "metrics,", []string{"Service/metrics does not begin with"}},
		"object's place":  {"lease-coordinator-metrics, namespace: lease-coordinator-system", "lease-coordinator-metrics, namespace: default", []string{"is in namespace \"default\""}},
	} {
		t.Run(name, func(t *testing.T) {
			stream := strings.Replace(good, test.from, test.to, 1)
			if test.from != "" && stream == good {
				t.Fatal("the test changes nothing")
			}
			objects, err := manifests.Decode([]byte(stream))
			if err != nil {
				t.Fatal(err)
			}
			expect(t, inconsistencies("config/x", systemNamespace, objects), test.want...)
		})
	}
}

func TestMakeTargetsThatHelpForgets(t *testing.T) {
	const makefile = `
GOFLAGS := -x
.PHONY: build test secret
build: ## Build.
	go build
test: build
secret :
	@echo unlisted: here
VAR = a:b
`
	expect(t, unlisted(makefile, "Build\n  build   Build, then test.\n"), `"test"`, `"secret"`)
	expect(t, unlisted(makefile, "  build  x\n  test  x\n  secret  x\n"))
}

func TestDeadLinks(t *testing.T) {
	text := "[a](there.md) [b](there.md#part) [c](#here) [d](https://example.com/x)\n![e](../gone.svg) [f](mailto:a@b.c)"
	exists := func(target string) bool { return target == "docs/there.md" }
	expect(t, deadLinks("docs/x.md", text, exists), "docs/x.md:2: links to ../gone.svg")
}

func TestUnknownCheck(t *testing.T) {
	if err := run([]string{"improts"}); err == nil {
		t.Error("a check that does not exist passes")
	}
}
