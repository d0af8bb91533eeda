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
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the diff and commit only what you understand")

// golden compares the complete standard output of a command with a file.
func golden(t *testing.T, file string, args ...string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Fatalf("coordinator %s: exit code %d\n%s", strings.Join(args, " "), code, &stderr)
	}
	if *update {
		if err := os.WriteFile(file, stdout.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stdout.Bytes(), want) {
		t.Errorf("coordinator %s does not print %s. It prints:\n%s", strings.Join(args, " "), file, &stdout)
	}
}

func TestExplainDumps(t *testing.T) {
	const newest = "lease-coordinator.dev/NewestBinaryVersion"
	for _, test := range []struct {
		golden string
		dump   string
		args   []string
	}{
		{"steady.txt", "steady", nil},
		{"steady.json", "steady", []string{"-o", "json"}},
		{"steady_expiring.txt", "steady", []string{"--now=2026-03-02T10:00:12Z"}},
		{"waiting.txt", "waiting", nil},
		{"waiting.json", "waiting", []string{"-o=json"}},
		{"answering.txt", "answering", nil},
		{"min_term.txt", "gate_off", []string{"--fields-kept", "--min-term=2h"}},
		{"handoff.txt", "handoff", nil},
		{"handoff.json", "handoff", []string{"-o=json"}},
		{"priority.txt", "priority", nil},
		{"priority.json", "priority", []string{"-o=json"}},
		{"ineligible.txt", "ineligible", []string{"kube-controller-manager"}},
		{"ineligible.json", "ineligible", []string{"kube-controller-manager", "-o=json"}},
		{"ineligible_leader.txt", "ineligible_leader", nil},
		{"conflict.txt", "conflict", nil},
		{"conflict.json", "conflict", []string{"-o=json"}},
		{"conflict_overridden.txt", "conflict", []string{"--lease-strategy=kube-*=" + newest}},
		{"foreign.txt", "foreign", nil},
		{"foreign_turned_off.txt", "steady", []string{"--strategies=" + newest}},
		{"vacant.txt", "vacant", nil},
		{"vacant.json", "vacant", []string{"-o=json"}},
		{"released.txt", "released", nil},
		{"unparsable.txt", "unparsable", nil},
		{"paused.txt", "paused", nil},
		{"preemption_never.txt", "preemption_never", nil},
		{"override_annotation.txt", "override", nil},
		{"override_flag.txt", "override", []string{"--lease-strategy=kube-system/kube-controller-manager=lease-coordinator.dev/Sticky"}},
		{"gate_off.txt", "gate_off", nil},
		{"gate_off.json", "gate_off", []string{"-o=json"}},
		{"gate_off_told_otherwise.txt", "gate_off", []string{"--fields-kept"}},
		{"gate_off_revoked.txt", "gate_off_revoked", nil},
		{"spread.txt", "spread", nil},
		{"spread.json", "spread", []string{"-o=json", "apps/a"}},
		{"uncoordinated.txt", "uncoordinated", nil},
		{"not_taken_up.txt", "not_taken_up", nil},
		{"in_tree.txt", "in_tree", nil},
		{"in_tree_ours.txt", "in_tree_ours", nil},
		{"in_tree_elsewhere.json", "in_tree_elsewhere", []string{"-o=json"}},
		{"excluded.txt", "excluded", nil},
		{"several.txt", "several", nil},
		{"several.json", "several", []string{"-o=json"}},
		{"several.yaml", "several", []string{"-o=yaml"}},
		{"several_one_namespace.txt", "several", []string{"-n", "other"}},
	} {
		t.Run(test.golden, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"explain", "-f", filepath.Join("testdata", "explain", test.dump+".yaml")}, test.args...)
			golden(t, filepath.Join("testdata", "explain", "golden", test.golden), args...)
		})
	}
}

// TestExplainFields: programs read the JSON, so its fields are a promise.
func TestExplainFields(t *testing.T) {
	files, err := filepath.Glob("testdata/explain/golden/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	fields := func(object map[string]json.RawMessage) []string {
		var names []string
		for name := range object {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		documents := json.NewDecoder(bytes.NewReader(content))
		for {
			var document map[string]json.RawMessage
			if err := documents.Decode(&document); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			want := []string{"action", "holder", "lease", "lookAgainAt", "now", "preferredHolder", "ranking", "reason", "sentence", "strategy", "strategySource", "subject", "warnings"}
			if got := fields(document); !slices.Equal(got, want) {
				t.Errorf("%s has fields %q, want %q", file, got, want)
			}
			var ranking []map[string]json.RawMessage
			if err := json.Unmarshal(document["ranking"], &ranking); err != nil {
				t.Fatal(err)
			}
			for _, c := range ranking {
				if got, want := fields(c), []string{"admissible", "keys", "name", "reason", "state"}; !slices.Equal(got, want) {
					t.Errorf("%s: a candidate has fields %q, want %q", file, got, want)
				}
				if string(c["reason"]) == `""` {
					t.Errorf("%s: candidate %s has no reason", file, c["name"])
				}
				var keys []map[string]json.RawMessage
				if err := json.Unmarshal(c["keys"], &keys); err != nil {
					t.Fatal(err)
				}
				for _, key := range keys {
					if got, want := fields(key), []string{"name", "value"}; !slices.Equal(got, want) {
						t.Errorf("%s: a key has fields %q, want %q", file, got, want)
					}
				}
			}
		}
	}
}

func TestExplainFaults(t *testing.T) {
	folder := t.TempDir()
	write := func(name, content string) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	several, empty := "testdata/explain/several.yaml", "testdata/explain/empty.yaml"
	malformed := write("malformed", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}},`+
		`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"namespace":"kube-system","name":"l"},"spec":{"renewTime":"yesterday"}}]}`)
	for name, test := range map[string]struct {
		args   []string
		code   int
		stderr string
	}{
		"unknown lease":        {[]string{"-f", several, "kube-sheduler"}, 1, "error: there is no lease \"kube-sheduler\": those with candidates are kube-system/kube-controller-manager, kube-system/kube-scheduler, other/kube-scheduler\n"},
		"unknown in namespace": {[]string{"-f", several, "-n", "kube-public", "kube-scheduler"}, 1, "error: there is no lease \"kube-public/kube-scheduler\": those with candidates are kube-system/kube-controller-manager, kube-system/kube-scheduler, other/kube-scheduler\n"},
		"ambiguous":            {[]string{"-f", several, "kube-scheduler"}, 2, "error: lease \"kube-scheduler\" is in several namespaces: say which of kube-system/kube-scheduler, other/kube-scheduler\nSee coordinator explain --help.\n"},
		"two namespaces":       {[]string{"-f", several, "-n", "a", "b/c"}, 2, "error: lease \"b/c\" is not in --namespace=\"a\"\nSee coordinator explain --help.\n"},
		"unknown in nothing":   {[]string{"-f", empty, "x"}, 1, "error: there is no lease \"x\", and no lease has candidates\n"},
		"nothing":              {[]string{"-f", empty}, 0, "No LeaseCandidate found: there is no election to explain.\n"},
		"nothing there":        {[]string{"-f", several, "-n", "a"}, 0, "No LeaseCandidate found in namespace \"a\": there is no election to explain.\n"},
		"no file":              {[]string{"-f", "nonexistent"}, 1, "error: opening the dump: open nonexistent: no such file or directory\n"},
		"output":               {[]string{"-f", several, "-o", "xml"}, 2, "error: --output: \"xml\" is no output format: must be text, json or yaml\nSee coordinator explain --help.\n"},
		"now":                  {[]string{"-f", several, "--now", "noon"}, 2, "error: --now=\"noon\" is not an RFC 3339 time such as 2030-01-02T03:04:05Z\nSee coordinator explain --help.\n"},
		"two sources":          {[]string{"-f", several, "--context", "c"}, 2, "error: --filename and --kubeconfig or --context exclude each other: objects come from a file or from a cluster\nSee coordinator explain --help.\n"},
		"settings":             {[]string{"-f", several, "--lease-strategy", "x=Nearest"}, 2, "error: --lease-strategy=\"x=Nearest\": no strategy is called \"Nearest\""},
		"malformed":            {[]string{"-f", malformed}, 1, "error: " + malformed + ": reading the dump: document 1: item 2: Lease kube-system/l: parsing time \"yesterday\""},
		"two leases":           {[]string{"-f", several, "a", "b"}, 2, "error: accepts at most 1 arg(s), received 2\nSee coordinator explain --help.\n"},
		"no kubeconfig":        {[]string{"--kubeconfig=/nonexistent", "x"}, 1, "error: finding the API server (--kubeconfig=\"/nonexistent\", --context=\"\")"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), append([]string{"explain"}, test.args...), &stdout, &stderr); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			whole := strings.HasSuffix(test.stderr, "\n")
			if got := stderr.String(); whole && got != test.stderr || !strings.HasPrefix(got, test.stderr) {
				t.Errorf("stderr:\n%s\nwant:\n%s", got, test.stderr)
			}
			if stdout.Len() > 0 {
				t.Errorf("stdout is not empty:\n%s", &stdout)
			}
		})
	}
}

func TestExplainStandardInput(t *testing.T) {
	dump, err := os.Open("testdata/explain/steady.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer dump.Close()
	code := 0
	var stdout bytes.Buffer
	root := &cobra.Command{Use: "coordinator"}
	root.AddCommand(explainCommand(&code))
	root.SetIn(dump)
	root.SetOut(&stdout)
	root.SetArgs([]string{"explain", "-f", "-"})
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/explain/golden/steady.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stdout.Bytes(), want) {
		t.Errorf("it prints:\n%s", &stdout)
	}
}

// documented are the pages whose samples are run.
const documented = "../../docs/explain.md"

// TestDocumentedSamples runs every command in docs/explain.md that reads a file of this repository, and compares what it
// prints with what the page shows.
func TestDocumentedSamples(t *testing.T) {
	page, err := os.ReadFile(documented)
	if err != nil {
		t.Fatal(err)
	}
	text, ran := string(page), 0
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "```console\n$ coordinator ")
		if !found {
			break
		}
		block, remaining, _ := strings.Cut(after, "```")
		rest = remaining
		line, shown, _ := strings.Cut(block, "\n")
		args := strings.Fields(line)
		for i, arg := range args {
			if strings.HasPrefix(arg, "cmd/coordinator/") {
				args[i] = strings.TrimPrefix(arg, "cmd/coordinator/")
			}
		}
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
			t.Fatalf("coordinator %s: %s", line, &stderr)
		}
		ran++
		if stdout.String() == shown {
			continue
		}
		if !*update {
			t.Errorf("coordinator %s does not print what the page shows. It prints:\n%s", line, &stdout)
		}
		text = strings.Replace(text, line+"\n"+shown, line+"\n"+stdout.String(), 1)
	}
	if ran == 0 {
		t.Error("the page has no sample")
	}
	if *update {
		if err := os.WriteFile(documented, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// apiServer serves what explain asks for, out of a dump, and records what it was asked.
type apiServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
}

// newAPIServer serves a dump. If restricted, only one namespace may be listed, and nothing may be created. If without
// candidates, no LeaseCandidate is served.
func newAPIServer(t *testing.T, dump string, restricted, candidates bool) *apiServer {
	t.Helper()
	lists := map[string][]json.RawMessage{}
	raw, err := os.ReadFile(dump)
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []json.RawMessage }
	if err := yaml.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		var head struct {
			Kind     string
			Metadata struct{ Namespace string }
		}
		if err := json.Unmarshal(item, &head); err != nil {
			t.Fatal(err)
		}
		resource := strings.ToLower(head.Kind) + "s"
		lists[resource] = append(lists[resource], item)
		lists[head.Metadata.Namespace+"/"+resource] = append(lists[head.Metadata.Namespace+"/"+resource], item)
	}
	s := &apiServer{}
	answer := func(w http.ResponseWriter, code int, body any) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Date", "Mon, 02 Mar 2026 10:00:00 GMT")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
	refuse := func(w http.ResponseWriter, code int, reason string) {
		answer(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason})
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		path := strings.TrimPrefix(r.URL.Path, "/apis/coordination.k8s.io/")
		version, path, _ := strings.Cut(path, "/")
		parts := strings.Split(path, "/")
		switch {
		case r.Method != http.MethodGet:
			refuse(w, http.StatusForbidden, "Forbidden")
		case r.URL.Path == "/api":
			answer(w, http.StatusOK, map[string]any{"kind": "APIVersions", "apiVersion": "v1", "versions": []string{"v1"}})
		case r.URL.Path == "/apis":
			versions := []any{map[string]any{"groupVersion": "coordination.k8s.io/v1", "version": "v1"}}
			if candidates {
				versions = append(versions, map[string]any{"groupVersion": "coordination.k8s.io/v1beta1", "version": "v1beta1"})
			}
			answer(w, http.StatusOK, map[string]any{"kind": "APIGroupList", "apiVersion": "v1",
				"groups": []any{map[string]any{"name": "coordination.k8s.io", "versions": versions}}})
		case path == "" && version == "v1":
			answer(w, http.StatusOK, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "coordination.k8s.io/v1",
				"resources": []any{map[string]any{"name": "leases", "kind": "Lease", "namespaced": true}}})
		case path == "" && version == "v1beta1" && candidates:
			answer(w, http.StatusOK, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "coordination.k8s.io/v1beta1",
				"resources": []any{map[string]any{"name": "leasecandidates", "kind": "LeaseCandidate", "namespaced": true}}})
		case len(parts) == 1 && path != "" && restricted:
			refuse(w, http.StatusForbidden, "Forbidden")
		case len(parts) == 1 && path != "":
			answer(w, http.StatusOK, listOf(version, path, lists[path]))
		case path == "namespaces/kube-system/leases/leader-election-controller":
			for _, item := range lists["kube-system/leases"] {
				if bytes.Contains(item, []byte(`"leader-election-controller"`)) {
					answer(w, http.StatusOK, item)
					return
				}
			}
			refuse(w, http.StatusNotFound, "NotFound")
		case len(parts) == 3 && parts[0] == "namespaces":
			answer(w, http.StatusOK, listOf(version, parts[2], lists[parts[1]+"/"+parts[2]]))
		default:
			refuse(w, http.StatusNotFound, "NotFound")
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func listOf(version, resource string, items []json.RawMessage) map[string]any {
	kind := map[string]string{"leases": "LeaseList", "leasecandidates": "LeaseCandidateList"}[resource]
	if items == nil {
		items = []json.RawMessage{}
	}
	return map[string]any{"kind": kind, "apiVersion": "coordination.k8s.io/" + version, "metadata": map[string]any{}, "items": items}
}

func (s *apiServer) kubeconfig(t *testing.T, namespace string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{"clusters":[{"name":"c","cluster":{"server":"` + s.URL + `"}}],` +
		`"contexts":[{"name":"c","context":{"cluster":"c","namespace":"` + namespace + `"}}],"current-context":"c"}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestExplainCluster: of a cluster it says what it says of a dump of it, with the right to read alone.
func TestExplainCluster(t *testing.T) {
	for name, test := range map[string]struct {
		dump       string
		namespace  string
		restricted bool
		args       []string
		want       string // of the golden files
	}{
		"the context's namespace":        {"steady", "kube-system", false, []string{"kube-controller-manager"}, "steady.json"},
		"one namespace may be read":      {"steady", "kube-system", true, []string{"kube-controller-manager"}, "steady.json"},
		"a namespace by flag":            {"steady", "default", true, []string{"-n", "kube-system", "kube-controller-manager"}, "steady.json"},
		"a namespace before the name":    {"steady", "default", true, []string{"kube-system/kube-controller-manager"}, "steady.json"},
		"all of the namespace":           {"steady", "kube-system", false, nil, "steady.json"},
		"the in-tree coordinator's lock": {"in_tree_elsewhere", "other", true, []string{"kube-scheduler"}, "in_tree_elsewhere.json"},
		"all namespaces":                 {"several", "default", false, []string{"-A"}, "several.json"},
		"the fields are in annotations":  {"gate_off", "kube-system", false, nil, "gate_off.json"},
		"the API server's clock is ours": {"priority", "kube-system", false, nil, "priority.json"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t, "testdata/explain/"+test.dump+".yaml", test.restricted, true)
			var stdout, stderr bytes.Buffer
			args := append([]string{"explain", "-o=json", "--now=2026-03-02T10:00:00Z", "--kubeconfig=" + server.kubeconfig(t, test.namespace)}, test.args...)
			if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
				t.Fatalf("exit code %d: %s", code, &stderr)
			}
			want, err := os.ReadFile("testdata/explain/golden/" + test.want)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(stdout.Bytes(), want) {
				t.Errorf("it prints:\n%s", &stdout)
			}
			for _, request := range server.requests {
				if !strings.HasPrefix(request, "GET ") {
					t.Errorf("it asked for %s", request)
				}
			}
		})
	}
}

// TestExplainClusterClock: the API server's clock counts, whatever ours says.
func TestExplainClusterClock(t *testing.T) {
	server := newAPIServer(t, "testdata/explain/steady.yaml", false, true)
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"explain", "-o=json", "--kubeconfig=" + server.kubeconfig(t, "kube-system")}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var x struct{ Now time.Time }
	if err := json.Unmarshal(stdout.Bytes(), &x); err != nil {
		t.Fatal(err)
	}
	if off := x.Now.Sub(time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)); off < 0 || off > time.Minute {
		t.Errorf("it judged as of %s", x.Now)
	}
}

func TestExplainClusterFaults(t *testing.T) {
	steady := "testdata/explain/steady.yaml"
	without := newAPIServer(t, steady, false, false)
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"explain", "x", "--kubeconfig=" + without.kubeconfig(t, "")}, &stdout, &stderr); code != exitFailed ||
		!strings.Contains(stderr.String(), "serves no LeaseCandidate") || !strings.Contains(stderr.String(), without.URL) {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
	// A cluster on which nobody has written anything yet is asked by a dry run, which this one forbids.
	fresh := newAPIServer(t, "testdata/explain/empty.yaml", false, true)
	stderr.Reset()
	if code := run(t.Context(), []string{"explain", "--kubeconfig=" + fresh.kubeconfig(t, "")}, &stdout, &stderr); code != 0 ||
		stderr.String() != "No LeaseCandidate found in namespace \"default\": there is no election to explain.\n" {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
	if !slices.Contains(fresh.requests, "POST /apis/coordination.k8s.io/v1/namespaces/default/leases") {
		t.Errorf("it asked for %q", fresh.requests)
	}
}
