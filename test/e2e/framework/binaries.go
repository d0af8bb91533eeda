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

package framework

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

const modulePath = "github.com/lease-coordinator/coordinator"

// ControlPlaneEnv names the environment variable that, if set, holds a
// directory with etcd, kube-apiserver, kube-controller-manager and
// kube-scheduler, which are then used instead of those that hack/controlplane
// builds.
const ControlPlaneEnv = "LEASE_COORDINATOR_CONTROLPLANE"

// Binaries are the paths of the control plane's programs.
type Binaries struct {
	Etcd              string `json:"etcd"`
	APIServer         string `json:"kube-apiserver"`
	ControllerManager string `json:"kube-controller-manager"`
	Scheduler         string `json:"kube-scheduler"`
	// KubernetesVersion and EtcdVersion are "" if ControlPlaneEnv is set.
	KubernetesVersion string `json:"kubernetesVersion"`
	EtcdVersion       string `json:"etcdVersion"`
}

var binaries struct {
	mu    sync.Mutex
	found *Binaries
}

// FindBinaries returns the control plane's programs. Where they do not exist
// yet they are built, which takes minutes; progress goes to standard error.
func FindBinaries(ctx context.Context) (*Binaries, error) {
	binaries.mu.Lock()
	defer binaries.mu.Unlock()
	if binaries.found != nil {
		return binaries.found, nil
	}
	b, err := findBinaries(ctx)
	if err != nil {
		return nil, err
	}
	for _, path := range []string{b.Etcd, b.APIServer, b.ControllerManager, b.Scheduler} {
		if _, err := exec.LookPath(path); err != nil {
			return nil, fmt.Errorf("looking for the control plane's programs: %w", err)
		}
	}
	binaries.found = b
	return b, nil
}

func findBinaries(ctx context.Context) (*Binaries, error) {
	if dir := os.Getenv(ControlPlaneEnv); dir != "" {
		return &Binaries{
			Etcd:              filepath.Join(dir, "etcd"),
			APIServer:         filepath.Join(dir, "kube-apiserver"),
			ControllerManager: filepath.Join(dir, "kube-controller-manager"),
			Scheduler:         filepath.Join(dir, "kube-scheduler"),
		}, nil
	}
	root, err := RepositoryRoot()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "run", "-C", filepath.Join(root, "hack", "controlplane"), ".", "build", "-o", "json")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("building the control plane (%s): %w", cmd, err)
	}
	b := &Binaries{}
	if err := json.Unmarshal(out.Bytes(), b); err != nil {
		return nil, fmt.Errorf("reading what %q printed: %w", cmd, err)
	}
	return b, nil
}

// RepositoryRoot is the directory of the checkout these tests belong to.
func RepositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the repository: %w", err)
	}
	if root := findModule(dir); root != "" {
		return root, nil
	}
	if _, file, _, ok := runtime.Caller(0); ok {
		if root := findModule(filepath.Dir(file)); root != "" {
			return root, nil
		}
	}
	return "", errors.New("looking for the repository: not inside a checkout of " + modulePath)
}

func findModule(dir string) string {
	for ; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module "+modulePath+"\n") {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// builds remembers the programs of this repository that were built already. Whoever needs one waits for nobody who builds
// another: that takes many times what tests wait for a program to start.
var builds struct {
	mu       sync.Mutex
	programs map[string]*program
}

// program is built by whoever needs it first.
type program struct {
	mu   sync.Mutex
	path string
}

// BuildCoordinator builds cmd/coordinator with the race detector, once per
// test run, and returns its path.
func BuildCoordinator(ctx context.Context) (string, error) {
	return build(ctx, "cmd/coordinator", true)
}

// BuildCoordinatorAs is BuildCoordinator with another version stamped on it.
func BuildCoordinatorAs(ctx context.Context, version string) (string, error) {
	root, err := RepositoryRoot()
	if err != nil {
		return "", err
	}
	return buildOnce("coordinator-race-"+version, func(out string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "go", "build", "-race",
			"-ldflags=-X "+modulePath+"/internal/coordinator.version="+version, "-o", out, "./cmd/coordinator")
		cmd.Dir = root
		return cmd
	})
}

// ShippedVersion is the version that BuildShippedCoordinator stamps by default.
const ShippedVersion = "v0.0.0-e2e"

// BuildShippedCoordinator is BuildCoordinator as it is shipped, static and
// without the race detector, and says that it is that version. It is for
// measuring memory and CPU use, which the race detector multiplies, and for
// tests of what is shipped.
func BuildShippedCoordinator(ctx context.Context, version string) (string, error) {
	root, err := RepositoryRoot()
	if err != nil {
		return "", err
	}
	return buildOnce("coordinator-"+version, func(out string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(root, "hack", "build.sh"), out)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "VERSION="+version)
		return cmd
	})
}

// BuildCandidate builds test/candidate, once per test run, and returns its path.
func BuildCandidate(ctx context.Context) (string, error) {
	return build(ctx, "test/candidate", false)
}

// BuildWorker builds test/worker with the race detector, once per test run, and returns its path.
func BuildWorker(ctx context.Context) (string, error) {
	return build(ctx, "test/worker", true)
}

// BuildWorkerWithoutRace is BuildWorker as a program is shipped, for measuring how long things take.
func BuildWorkerWithoutRace(ctx context.Context) (string, error) {
	return build(ctx, "test/worker", false)
}

// BuildFootprint builds test/bench/footprint, once per test run, and returns its path.
func BuildFootprint(ctx context.Context) (string, error) {
	return build(ctx, "test/bench/footprint", false)
}

func build(ctx context.Context, pkg string, race bool) (string, error) {
	root, err := RepositoryRoot()
	if err != nil {
		return "", err
	}
	name := filepath.Base(pkg)
	args := []string{"build"}
	if race {
		args = append(args, "-race")
		name += "-race"
	}
	return buildOnce(name, func(out string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "go", append(args, "-o", out, "./"+pkg)...)
		cmd.Dir = root
		return cmd
	})
}

// buildOnce runs the command that builds the file of that name, unless that was done already, and returns its path.
func buildOnce(name string, command func(out string) *exec.Cmd) (string, error) {
	sb, err := theSandbox()
	if err != nil {
		return "", err
	}
	builds.mu.Lock()
	if builds.programs == nil {
		builds.programs = map[string]*program{}
	}
	p := builds.programs[name]
	if p == nil {
		p = &program{}
		builds.programs[name] = p
	}
	builds.mu.Unlock()

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path != "" {
		return p.path, nil
	}
	out := filepath.Join(sb.dir, "bin", name)
	if msg, err := command(out).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, msg)
	}
	p.path = out
	return out, nil
}
