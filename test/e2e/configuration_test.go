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
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/internal/observe"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// A running coordinator follows its configuration file: an override moves a lease without a restart, and a file at fault
// changes nothing.
func TestConfigurationReload(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{})
	a := newArenaOn(t, cluster)
	file := filepath.Join(t.TempDir(), "config.yaml")
	write := func(content string) {
		t.Helper()
		content = "apiVersion: config.lease-coordinator.dev/v1alpha1\nkind: CoordinatorConfiguration\n" + content
		// Renamed into place, as by an editor.
		a.must(os.WriteFile(file+".new", []byte(content), 0o600))
		a.must(os.Rename(file+".new", file))
	}
	write("")
	c := startCoordinators(t, a.ctx, a.node, 1, "--config="+file)[0]

	version := func(v string) func(*framework.CandidateOptions) {
		return func(o *framework.CandidateOptions) { o.BinaryVersion = v }
	}
	a.candidate("n36", "1.36", version("1.36.0"))
	a.waitLeader("n36", patience)
	a.candidate("n37", "1.37", version("1.37.0"))
	a.waitCandidate("n37")

	a.rec.Mark("a file at fault")
	write("leaseStrategies: [{lease: " + a.ns + "/*, strategy: Newest}]")
	a.waitNote(observe.EventConfigurationRefused, `leaseStrategies[0].strategy: no strategy is called "Newest"`)
	if n, _, err := c.Metric(a.ctx, "coordinated_leader_election_configuration_last_reload_successful", nil); err != nil || n != 0 {
		t.Errorf("last reload successful: %v, %v", n, err)
	}

	a.rec.Mark("an override")
	write("leaseStrategies: [{lease: " + a.ns + "/*, strategy: example.com/Newest}]\n" +
		"customStrategies: [{name: example.com/Newest, prefer: ['-semver(candidate.binaryVersion).minor()']}]\n")
	a.waitLeader("n37", patience)
	a.waitNote(observe.EventConfigurationReloaded, "is in force")
	if info := c.Info(); info.Run != 1 || !c.Running() {
		t.Errorf("the coordinator is in run %d, running %t", info.Run, c.Running())
	}
	if n, _, err := c.Metric(a.ctx, "coordinated_leader_election_configuration_reloads_total", map[string]string{"result": "success"}); err != nil || n != 1 {
		t.Errorf("reloads: %v, %v", n, err)
	}
	a.safe()
}

// waitNote waits for an event on the coordinators' lock.
func (a *arena) waitNote(reason, note string) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	a.must(framework.WaitFor(ctx, fmt.Sprintf("an event %s that says %q", reason, note), func(ctx context.Context) (bool, error) {
		var events eventsv1.EventList
		if err := a.cluster.Client().List(ctx, &events, client.InNamespace(framework.CoordinatorNamespace)); err != nil {
			return false, err
		}
		for _, e := range events.Items {
			if e.Reason == reason && strings.Contains(e.Note, note) && e.Regarding.Kind == "Lease" && e.Regarding.Name == "lease-coordinator" && e.Regarding.UID != "" {
				return true, nil
			}
		}
		return false, nil
	}))
}
