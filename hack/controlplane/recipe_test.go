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
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRecipeReadsVersionsFromGoMod(t *testing.T) {
	r := testRecipe(t)
	if !strings.HasPrefix(r.name(), "kubernetes-v1.37.2_etcd-v3.7.0_linux-amd64_") {
		t.Errorf("the folder is called %s", r.name())
	}
	args, err := r.buildArgs(components[1], "out")
	if err != nil {
		t.Fatal(err)
	}
	ldflags := args[slices.Index(args, "-ldflags")+1]
	for _, want := range []string{"version.gitVersion=v1.37.2", "version.gitMajor=1", "version.gitMinor=37"} {
		if !strings.Contains(ldflags, want) {
			t.Errorf("%q lacks %s", ldflags, want)
		}
	}
}

func TestRecipeRefusesAForeignGoMod(t *testing.T) {
	for name, content := range map[string]string{
		"another module": `{"Module": {"Path": "example.com/x"}}`,
		"no etcd":        `{"Module": {"Path": "` + modulePath + `"}, "Require": [{"Path": "k8s.io/kubernetes", "Version": "v1.37.2"}]}`,
		"not JSON":       `module x`,
	} {
		if err := new(recipe).readModule([]byte(content)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := (&recipe{kubernetes: "v1"}).seal(nil, nil); err == nil {
		t.Error("a version that is not three numbers is accepted")
	}
}

func TestHashFollowsWhatIsBuilt(t *testing.T) {
	base := testRecipe(t)
	for name, change := range map[string]func(*recipe) (gosum string){
		"version":    func(r *recipe) string { r.kubernetes = "v1.37.3"; return "" },
		"go version": func(r *recipe) string { r.goVersion = "go1.26.9"; return "" },
		"platform":   func(r *recipe) string { r.platform = "darwin-arm64"; return "" },
		"go.sum":     func(*recipe) string { return "k8s.io/api v0.37.2 h1:x\n" },
	} {
		changed := base
		gosum := change(&changed)
		if err := changed.seal([]byte(gomod), []byte(gosum)); err != nil {
			t.Fatal(err)
		}
		if changed.hash == base.hash {
			t.Errorf("the hash does not see a change of the %s", name)
		}
	}
	same := base
	same.moduleDir = "/another/checkout"
	if err := same.seal([]byte(gomod), nil); err != nil {
		t.Fatal(err)
	}
	if same.hash != base.hash {
		t.Error("two checkouts of one recipe do not share their binaries")
	}
}

// The real go.mod must keep satisfying the code beside it.
func TestOwnGoMod(t *testing.T) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command:", err)
	}
	r, err := readRecipe(t.Context(), goCommand)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	// A published staging module is v0.37.2 where Kubernetes is v1.37.2; one left behind in a bump
	// would build, and lie about its version.
	staging := "v0" + strings.TrimPrefix(r.kubernetes, "v1")
	replaced := 0
	for line := range strings.Lines(string(file)) {
		if _, right, found := strings.Cut(line, " => k8s.io/"); found {
			replaced++
			if !strings.HasSuffix(strings.TrimSpace(right), " "+staging) {
				t.Errorf("go.mod replaces by another version than %s: %s", staging, line)
			}
		}
	}
	if replaced == 0 {
		t.Error("go.mod replaces nothing")
	}
}

func TestAssetsWin(t *testing.T) {
	kit := t.TempDir()
	p := newPlane(testRecipe(t), t.TempDir())
	if err := p.useAssets(kit); err == nil || !strings.Contains(err.Error(), "no executable etcd") {
		t.Errorf("an empty folder: %v", err)
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if err := os.WriteFile(filepath.Join(kit, name), []byte("kit"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.useAssets("bin"); err == nil {
		t.Error("a relative folder is accepted")
	}
	if err := p.useAssets(kit); err != nil {
		t.Fatal(err)
	}
	if got, want := names(p.missing()), "kube-controller-manager, kube-scheduler"; got != want {
		t.Errorf("to be built: %s, want %s", got, want)
	}
	b := builder{plane: p, report: newReporter(newScreen()), compile: install}
	if err := b.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time everything is there already
		if err := p.link(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"etcd": "kit", "kube-apiserver": "kit",
		"kube-controller-manager": "kube-controller-manager", "kube-scheduler": "kube-scheduler"} {
		if got, err := os.ReadFile(filepath.Join(p.dir(), name)); err != nil || string(got) != want {
			t.Errorf("%s/%s holds %q, %v; want %q", p.dir(), name, got, err, want)
		}
	}

	var printed bytes.Buffer
	if err := p.print(&printed, "json"); err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(printed.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"etcd":              filepath.Join(kit, "etcd"),
		"kube-apiserver":    filepath.Join(kit, "kube-apiserver"),
		"kube-scheduler":    filepath.Join(p.home, "kube-scheduler"),
		"kubernetesVersion": "v1.37.2",
		"etcdVersion":       "3.7.0",
		"assets":            kit,
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
}
