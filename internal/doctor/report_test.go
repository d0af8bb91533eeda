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

package doctor

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/doctor/checks"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/explain"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the diff and commit only what you understand")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is printed:\n%s", file, got)
	}
}

var now = time.Date(2026, 3, 2, 10, 0, 0, 250_000_000, time.UTC)

func settings(t *testing.T) *election.Settings {
	t.Helper()
	registry, err := strategy.NewRegistry(strategy.BuiltIn()...)
	if err != nil {
		t.Fatal(err)
	}
	return &election.Settings{Strategies: registry, ElectionDuration: election.DefaultElectionDuration, CandidateTTL: election.DefaultCandidateTTL}
}

func lease(namespace, name, holder string) *coordinationv1.Lease {
	acquired, renewed, seconds := metav1.NewMicroTime(now.Add(-time.Hour)), metav1.NewMicroTime(now.Add(-time.Second)), int32(15)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, AcquireTime: &acquired, RenewTime: &renewed, LeaseDurationSeconds: &seconds},
	}
}

func candidate(namespace, name, lease string, strategyName coordinationv1.CoordinatedLeaseStrategy, annotations map[string]string) checks.Candidate {
	renewed := metav1.NewMicroTime(now.Add(-time.Minute))
	return checks.Candidate{
		Candidate: strategy.NewCandidate(
			&metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
			strategy.Spec{LeaseName: lease, RenewTime: &renewed, BinaryVersion: "1.37.0", EmulationVersion: "1.37.0", Strategy: strategyName}),
		Resource: "leasecandidates.coordination.k8s.io",
	}
}

// fine is a cluster on which all is well.
func fine(t *testing.T) *checks.Facts {
	own := types.NamespacedName{Namespace: "lease-coordinator-system", Name: "lease-coordinator"}
	inTree := types.NamespacedName{Namespace: v1alpha1.InTreeLockNamespace, Name: v1alpha1.InTreeLockName}
	answer := checks.Answer{Version: "v1.37.2", Native: []string{"v1beta1"}}
	return &checks.Facts{
		Now: now, Settings: settings(t), Answers: slices.Repeat([]checks.Answer{answer}, 6), APIServers: 3,
		Understood: []string{"v1beta1"}, Removals: map[string]checks.Release{"v1beta1": {Major: 1, Minor: 39}},
		CRD:        checks.CRD{Shipped: shippedCRD()},
		OwnLock:    checks.Lock{Key: own, Lease: lease(own.Namespace, own.Name, "lease-coordinator_n1_1f"), Watched: time.Second, Renewed: true},
		InTreeLock: checks.Lock{Key: inTree},
		Pods:       checks.Pods{List: []checks.Pod{{Namespace: own.Namespace, Name: "c-1", Image: "registry.example.com/lease-coordinator:v1.0.0"}}},
		Policies:   checks.Policies{Installed: []string{"lease-coordinator-candidates", "lease-coordinator-leases"}, Bound: []string{"lease-coordinator-candidates", "lease-coordinator-leases"}},
		Rights: checks.Rights{Subject: "system:serviceaccount:lease-coordinator-system:lease-coordinator", How: "asked by SubjectAccessReview", Reviews: []checks.Review{
			{Right: checks.Right{Verb: "patch", Group: "coordination.k8s.io", Resource: "leases"}, Allowed: true},
			{Right: checks.Right{Verb: "patch", Group: "coordination.k8s.io", Resource: "leasecandidates"}, Allowed: true},
		}},
		Leases: checks.Leases{List: []*coordinationv1.Lease{lease("apps", "job", "n1")}},
		Candidates: checks.Candidates{List: []checks.Candidate{
			candidate("apps", "n1", "job", v1alpha1.OldestEmulationVersion, nil), candidate("apps", "n2", "job", v1alpha1.OldestEmulationVersion, nil),
		}},
	}
}

func TestPrint(t *testing.T) {
	ill := func(f *checks.Facts) {
		for i := range f.Answers {
			f.Answers[i].FieldsKept = i < 4
		}
		f.Rights.Reviews[1].Allowed = false
		f.Candidates.List = append(f.Candidates.List,
			candidate("apps", "n3", "job", v1alpha1.Sticky, map[string]string{v1alpha1.PriorityAnnotation: "5", v1alpha1.PriorityUntilAnnotation: "2026-03-01T00:00:00Z"}),
			candidate("apps", "evil\x1b[2J\tname", "Upper_Case", v1alpha1.Sticky, nil),
		)
	}
	many := func(f *checks.Facts) {
		for i := range 12 {
			f.Candidates.List = append(f.Candidates.List, candidate("apps", fmt.Sprintf("p%02d", i), "job", v1alpha1.OldestEmulationVersion, map[string]string{v1alpha1.IneligibleAnnotation: "backup"}))
		}
	}
	for _, test := range []struct {
		golden string
		format explain.Format
		change func(*checks.Facts)
		code   int
	}{
		{"fine.txt", explain.Text, func(*checks.Facts) {}, 0},
		{"fine.json", explain.JSON, func(*checks.Facts) {}, 0},
		{"ill.txt", explain.Text, ill, ExitError},
		{"ill.json", explain.JSON, ill, ExitError},
		{"ill.yaml", explain.YAML, ill, ExitError},
		{"many.txt", explain.Text, many, 0},
		{"stranger.txt", explain.Text, func(f *checks.Facts) {
			no := `forbidden: User "jane" cannot list resource "leases" in API group "coordination.k8s.io" at the cluster scope`
			f.Leases, f.Candidates, f.Pods = checks.Leases{Unknown: no}, checks.Candidates{Unknown: no}, checks.Pods{Unknown: no}
		}, ExitUnchecked},
	} {
		t.Run(test.golden, func(t *testing.T) {
			facts := fine(t)
			test.change(facts)
			report := NewReport("https://10.0.0.1:6443", "v1.0.0", facts)
			if code := report.ExitCode(); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			var out bytes.Buffer
			if err := report.Print(&out, test.format); err != nil {
				t.Fatal(err)
			}
			golden(t, test.golden, out.Bytes())
			if test.format != explain.Text {
				return
			}
			for line := range strings.Lines(out.String()) {
				if strings.ContainsAny(line, "\x1b\t") {
					t.Errorf("%q moves the cursor", line)
				}
				// What is to be copied stays whole.
				if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width && !strings.Contains(line, "`") && strings.Contains(strings.TrimSpace(line), " ") {
					t.Errorf("%q is %d wide", line, n)
				}
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	for name, test := range map[string]struct {
		summary map[checks.Severity]int
		want    int
	}{
		"ok":                      {map[checks.Severity]int{checks.OK: 5}, 0},
		"a note":                  {map[checks.Severity]int{checks.OK: 5, checks.Note: 1}, 0},
		"not all was found out":   {map[checks.Severity]int{checks.Note: 1, checks.Unchecked: 1}, 1},
		"a warning goes before":   {map[checks.Severity]int{checks.Unchecked: 1, checks.Warning: 1}, 3},
		"an error goes before it": {map[checks.Severity]int{checks.Unchecked: 1, checks.Warning: 1, checks.Error: 1}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&Report{Summary: test.summary}).ExitCode(); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}

func TestWrap(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"empty":             {"", []string{""}},
		"fits":              {"ab cd", []string{"ab cd"}},
		"breaks":            {"abc defghi jkl", []string{"abc defghi", "jkl"}},
		"a long word":       {"a bcdefghijklmno p", []string{"a", "bcdefghijklmno", "p"}},
		"a command":         {"do `kubectl get x -n y`, then z", []string{"do", "`kubectl get x -n y`,", "then z"}},
		"two commands":      {"`a b` or `c d`", []string{"`a b` or", "`c d`"}},
		"not closed":        {"a `b c", []string{"a `b c`"}},
		"begins with a dot": {"`a`. b", []string{"`a`. b"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wrap(test.text, 10); !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
