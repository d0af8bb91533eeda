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
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// modulePath is this module's. Building with another module's go.mod would build other versions.
const modulePath = "github.com/lease-coordinator/coordinator/hack/controlplane"

const (
	kubernetesModule = "k8s.io/kubernetes"
	etcdModule       = "go.etcd.io/etcd/server/v3"
)

// component is one binary of the control plane.
type component struct {
	name    string
	pkg     string // its main package
	fromKit bool   // KUBEBUILDER_ASSETS holds one too
}

// components in the order they are built. etcd comes first because it is small: whoever watches sees
// the first result within a minute. kube-apiserver compiles most of what the other two link.
var components = []component{
	{name: "etcd", pkg: etcdModule, fromKit: true},
	{name: "kube-apiserver", pkg: kubernetesModule + "/cmd/kube-apiserver", fromKit: true},
	{name: "kube-controller-manager", pkg: kubernetesModule + "/cmd/kube-controller-manager"},
	{name: "kube-scheduler", pkg: kubernetesModule + "/cmd/kube-scheduler"},
}

// recipe is all that decides what the binaries contain.
type recipe struct {
	kubernetes string // version with its v: v1.37.2
	etcd       string

	goCommand string
	goVersion string
	platform  string // linux-amd64
	moduleDir string
	goCache   string

	hash string // of everything above that changes the binaries, and of go.mod and go.sum
}

// moduleFile is the part of `go mod edit -json` that is read here.
type moduleFile struct {
	Module  struct{ Path string }
	Require []struct{ Path, Version string }
}

// readRecipe reads go.mod and asks the go command what it would build with.
func readRecipe(ctx context.Context, goCommand string) (recipe, error) {
	var env struct{ GOMOD, GOVERSION, GOOS, GOARCH, GOCACHE string }
	out, err := output(ctx, goCommand, "env", "-json", "GOMOD", "GOVERSION", "GOOS", "GOARCH", "GOCACHE")
	if err != nil {
		return recipe{}, err
	}
	if err := json.Unmarshal(out, &env); err != nil {
		return recipe{}, fmt.Errorf("reading the go command's environment: %w", err)
	}
	// The parsed form, so that a comment changes no hash and rebuilds nothing.
	gomod, err := output(ctx, goCommand, "mod", "edit", "-json")
	if err != nil {
		return recipe{}, err
	}
	gosum, err := os.ReadFile(filepath.Join(filepath.Dir(env.GOMOD), "go.sum"))
	if err != nil {
		return recipe{}, err
	}
	r := recipe{
		goCommand: goCommand,
		goVersion: env.GOVERSION,
		platform:  env.GOOS + "-" + env.GOARCH,
		moduleDir: filepath.Dir(env.GOMOD),
		goCache:   env.GOCACHE,
	}
	if err := r.readModule(gomod); err != nil {
		return recipe{}, fmt.Errorf("%s: %w", env.GOMOD, err)
	}
	if err := r.seal(gomod, gosum); err != nil {
		return recipe{}, fmt.Errorf("%s: %w", env.GOMOD, err)
	}
	return r, nil
}

// readModule takes the versions from go.mod, the one place that names them.
func (r *recipe) readModule(gomod []byte) error {
	var file moduleFile
	if err := json.Unmarshal(gomod, &file); err != nil {
		return err
	}
	if file.Module.Path != modulePath {
		return fmt.Errorf("this is module %q; run it as: go run -C hack/controlplane . (wanted module %q)",
			file.Module.Path, modulePath)
	}
	for _, require := range file.Require {
		switch require.Path {
		case kubernetesModule:
			r.kubernetes = require.Version
		case etcdModule:
			r.etcd = require.Version
		}
	}
	if r.kubernetes == "" || r.etcd == "" {
		return fmt.Errorf("%s and %s must both be required, found versions %q and %q",
			kubernetesModule, etcdModule, r.kubernetes, r.etcd)
	}
	return nil
}

// seal computes the hash. Two recipes of the same hash build the same binaries.
func (r *recipe) seal(gomod, gosum []byte) error {
	h := sha256.New()
	for _, c := range components {
		args, err := r.buildArgs(c, "OUT")
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %q %q\n", c.name, args, r.buildEnv())
	}
	fmt.Fprintf(h, "%s %s\n", r.goVersion, r.platform)
	fmt.Fprintf(h, "go.mod %d\n%s\ngo.sum %d\n%s", len(gomod), gomod, len(gosum), gosum)
	r.hash = hex.EncodeToString(h.Sum(nil))[:10]
	return nil
}

// name is the folder's: people should see what is in it, the hash keeps apart what only machines see.
func (r *recipe) name() string {
	return fmt.Sprintf("kubernetes-%s_etcd-%s_%s_%s", r.kubernetes, r.etcd, r.platform, r.hash)
}

// buildArgs is the go command line for one component. Without the version stamps the components call
// themselves v0.0.0, and then refuse every emulated version.
func (r *recipe) buildArgs(c component, out string) ([]string, error) {
	parts := strings.SplitN(strings.TrimPrefix(r.kubernetes, "v"), ".", 3)
	if len(parts) != 3 {
		return nil, fmt.Errorf("%s version %q is not vMAJOR.MINOR.PATCH", kubernetesModule, r.kubernetes)
	}
	const stamp = " -X k8s.io/component-base/version."
	ldflags := "-s -w" +
		stamp + "gitVersion=" + r.kubernetes +
		stamp + "gitMajor=" + parts[0] +
		stamp + "gitMinor=" + parts[1]
	return []string{"build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", out, c.pkg}, nil
}

// buildEnv is set on top of the caller's environment, which is kept.
func (r *recipe) buildEnv() []string {
	return []string{"CGO_ENABLED=0", "GOWORK=off"}
}

// stampOf is what a component prints about its own version, to be looked for in `--version`.
func (r *recipe) stampOf(c component) string {
	if c.pkg == etcdModule {
		return "etcd Version: " + strings.TrimPrefix(r.etcd, "v")
	}
	return "Kubernetes " + r.kubernetes
}

// output runs the go command and returns what it prints. Its own words explain a failure best.
func output(ctx context.Context, goCommand string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, goCommand, args...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}
