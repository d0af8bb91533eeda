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
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// The coordinator as it is shipped works where there is nothing but itself and what a Pod is given: as a user without a
// name, without a shell, a temporary folder or anything else that it could read or write.
func TestEmptyRoot(t *testing.T) {
	t.Parallel()
	if why := framework.NoContainers(); why != nil {
		t.Skipf("cannot give a process another root directory: %v", why)
	}
	const version = "v1.2.3-e2e"
	binary, err := framework.BuildShippedCoordinator(t.Context(), version)
	if err != nil {
		t.Fatal(err)
	}
	cluster := framework.New(t, framework.Options{})
	a := newArenaOn(t, cluster)
	a.must(cluster.ApplyKustomization(a.ctx, "config/rbac"))
	c, err := a.node.StartCoordinator(a.ctx, framework.CoordinatorOptions{
		Binary: binary, Container: true,
		// As shipped: with a certificate that it makes for itself, and keeps nowhere.
		Args: []string{"--metrics-secure=true"},
	})
	a.must(err)
	before := listing(t, c.Root)

	for flag, says := range map[string]string{"--version": version, "--help": "--in-tree"} {
		cmd := exec.CommandContext(a.ctx, "/"+filepath.Base(binary), flag)
		framework.EnterRoot(cmd, c.Root)
		cmd.Env = []string{}
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte(says)) {
			t.Errorf("%s prints %q, %v", flag, out, err)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.Info().PID))
	a.must(err)
	if os.Getuid() == 0 && !strings.Contains(string(status), fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", framework.ImageUser)) {
		t.Errorf("it is another user:\n%s", status)
	}

	a.candidate("n36", "1.36")
	a.waitLeader("n36", patience)
	if status, body := fetch(a.ctx, t, c.MetricsURL(true), ""); status != http.StatusUnauthorized && status != http.StatusForbidden {
		t.Errorf("its metrics answer %d: %s", status, body)
	}
	a.must(c.Terminate(a.ctx))
	if err := c.ExitError(); err != nil {
		t.Error(err)
	}
	if after := listing(t, c.Root); after != before {
		t.Errorf("its root was\n%sand is\n%s", before, after)
	}
	a.safe()
}

// listing tells every file below a folder, with its mode, its size and when it was changed.
func listing(t *testing.T, root string) string {
	t.Helper()
	var list strings.Builder
	if err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s %d %s %s\n", info.Mode(), info.Size(), info.ModTime(), strings.TrimPrefix(name, root))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list.String()
}
