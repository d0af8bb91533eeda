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
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"
)

// ArtifactsEnv names the environment variable that says where to keep the logs
// and the timeline of failed tests. Default: the folder "artifacts" in the repository.
const ArtifactsEnv = "LEASE_COORDINATOR_ARTIFACTS"

// StartTimeout bounds how long a cluster may take to start; it does not count
// the one-time build of its programs.
const StartTimeout = 60 * time.Second

// New starts a cluster for one test and stops it when the test ends. If the
// test has failed by then, all logs go to the artifacts folder.
func New(t testing.TB, opts Options) *Cluster {
	t.Helper()
	c, err := startWithTimeout(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.keepIfFailed(t)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), StartTimeout)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("stopping the cluster: %v", err)
		}
	})
	return c
}

func startWithTimeout(ctx context.Context, opts Options) (*Cluster, error) {
	if _, err := FindBinaries(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	return Start(ctx, opts)
}

// Flavour is a kind of cluster that tests can share.
type Flavour string

// The flavours.
const (
	// GateOn has coordinated leader election on: the in-tree coordinator runs.
	GateOn Flavour = "gate-on"
	// GateOff has it off, with LeaseCandidates served.
	GateOff Flavour = "gate-off"
)

func (f Flavour) options() Options {
	return Options{CoordinatedLeaderElection: f == GateOn}
}

type sharedCluster struct {
	once    sync.Once
	cluster *Cluster
	err     error
}

var shared struct {
	mu       sync.Mutex
	clusters map[Flavour]*sharedCluster
}

// Shared returns the cluster of one node that all tests of this binary which
// ask for that flavour share, started when the first one asks. It lives until
// Main ends. Tests keep apart by namespaces, see NewNamespace; those that use
// real components or disturb the control plane need a cluster of their own.
func Shared(t testing.TB, flavour Flavour) *Cluster {
	t.Helper()
	shared.mu.Lock()
	if shared.clusters == nil {
		shared.clusters = map[Flavour]*sharedCluster{}
	}
	s := shared.clusters[flavour]
	if s == nil {
		s = &sharedCluster{}
		shared.clusters[flavour] = s
	}
	shared.mu.Unlock()
	s.once.Do(func() {
		// It outlives the test that happens to be first.
		s.cluster, s.err = startWithTimeout(context.WithoutCancel(t.Context()), flavour.options())
	})
	if s.err != nil {
		t.Fatalf("starting the shared cluster: %v", s.err)
	}
	t.Cleanup(func() { s.cluster.keepIfFailed(t) })
	return s.cluster
}

// NewNamespace creates a namespace for one test.
func NewNamespace(t testing.TB, c *Cluster) string {
	t.Helper()
	ns, err := c.CreateNamespace(t.Context(), "e2e")
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// Main is for TestMain: it runs the tests and stops the shared clusters.
//
//	func TestMain(m *testing.M) { os.Exit(framework.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for flavour, s := range shared.clusters {
		if s.cluster == nil {
			continue
		}
		wg.Go(func() {
			if err := s.cluster.Stop(ctx); err != nil {
				fmt.Fprintf(os.Stderr, "stopping the %s cluster: %v\n", flavour, err)
			}
		})
	}
	wg.Wait()
	return code
}

var unsafeInPath = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// ArtifactsDir is where the artifacts of something called name belong.
func ArtifactsDir(name string) (string, error) {
	dir := os.Getenv(ArtifactsEnv)
	if dir == "" {
		root, err := RepositoryRoot()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "artifacts")
	}
	return filepath.Join(dir, unsafeInPath.ReplaceAllString(name, "_")), nil
}

func (c *Cluster) keepIfFailed(t testing.TB) {
	if !t.Failed() {
		return
	}
	dir, err := c.SaveArtifacts(t.Name())
	if err != nil {
		t.Logf("keeping the artifacts: %v", err)
		return
	}
	t.Logf("logs of all processes and the timeline: %s", dir)
}

// SaveArtifacts copies the logs of all processes and the timelines of all
// recorders to the artifacts folder of something called name, in place of what
// was there, and returns its path.
func (c *Cluster) SaveArtifacts(name string) (string, error) {
	dir, err := ArtifactsDir(name)
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("clearing %s: %w", dir, err)
	}
	if err := copyTree(filepath.Join(c.dir, "logs"), dir); err != nil {
		return "", fmt.Errorf("copying the logs to %s: %w", dir, err)
	}
	c.mu.Lock()
	recorders := slices.Clone(c.recorders)
	c.mu.Unlock()
	names := map[string]int{}
	for _, r := range recorders {
		name := r.opts.Name
		names[name]++
		if n := names[name]; n > 1 {
			name = fmt.Sprintf("%s-%d", name, n)
		}
		if err := r.save(filepath.Join(dir, name+".txt")); err != nil {
			return "", err
		}
	}
	return dir, nil
}
