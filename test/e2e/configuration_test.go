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
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/internal/observe"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// configurationHeader begins every configuration file.
const configurationHeader = "apiVersion: config.lease-coordinator.dev/v1alpha1\nkind: CoordinatorConfiguration\n"

// configMapVolume is a folder that changes as the kubelet changes the volume of a ConfigMap: the files are links into a
// folder that is itself behind a link, which is replaced.
type configMapVolume struct {
	testing.TB
	dir     string
	version int
}

func newConfigMapVolume(t testing.TB, content string) *configMapVolume {
	t.Helper()
	v := &configMapVolume{TB: t, dir: t.TempDir()}
	v.set(content)
	if err := os.Symlink(filepath.Join("..data", "config.yaml"), v.file()); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *configMapVolume) file() string { return filepath.Join(v.dir, "config.yaml") }

// set changes the file to the header and that content.
func (v *configMapVolume) set(content string) {
	v.Helper()
	old, link := v.folder(), filepath.Join(v.dir, "..data")
	v.version++
	err := errors.Join(
		os.Mkdir(filepath.Join(v.dir, v.folder()), 0o755),
		os.WriteFile(filepath.Join(v.dir, v.folder(), "config.yaml"), []byte(configurationHeader+content), 0o600),
		os.Symlink(v.folder(), link+"_tmp"),
		os.Rename(link+"_tmp", link),
		os.RemoveAll(filepath.Join(v.dir, old)),
	)
	if err != nil {
		v.Fatal(err)
	}
}

func (v *configMapVolume) folder() string { return fmt.Sprintf("..%d", v.version) }

// A running coordinator follows its configuration file: a lease's strategy changes, and its leader, without a restart. A
// file at fault changes nothing but what is told of it.
func TestConfigurationReload(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{})
	a := newArenaOn(t, cluster)
	volume := newConfigMapVolume(t, "")
	c := startCoordinators(t, a.ctx, a.node, 1, "--config="+volume.file())[0]
	// followed waits until the file, as it is now, is judged, and asserts what is then said of it.
	reloads := map[string]float64{}
	followed := func(result string) {
		t.Helper()
		reloads[result]++
		a.waitReloads(c, reloads)
		successful := map[string]float64{observe.ReloadSuccess: 1, observe.ReloadFailure: 0}[result]
		if n, ok, err := c.Metric(a.ctx, "coordinated_leader_election_configuration_last_reload_successful", nil); err != nil || !ok || n != successful {
			t.Errorf("last reload successful: %v, %v", n, err)
		}
		if status, body := fetch(a.ctx, t, c.HealthURL()+"/readyz", ""); status != http.StatusOK {
			t.Errorf("the coordinator is not ready: %d %s", status, body)
		}
	}
	readAt := func() float64 {
		t.Helper()
		n, _, err := c.Metric(a.ctx, "coordinated_leader_election_configuration_last_reload_success_timestamp_seconds", nil)
		a.must(err)
		return n
	}
	a.waitReloads(c, reloads)
	started := readAt()

	a.candidate("n36", "1.36", brisk, built("1.36.0"))
	a.waitLeader("n36", patience)
	a.candidate("n37", "1.37", brisk, built("1.37.0"))
	a.waitCandidate("n37")

	newest := "leaseStrategies: [{lease: " + a.ns + "/*, strategy: example.com/Newest}]\n" +
		"customStrategies: [{name: example.com/Newest, prefer: ['-semver(candidate.binaryVersion).minor()']}]\n"
	a.rec.Mark("files at fault")
	volume.set(newest + "election: {minTrem: 1h}\n")
	followed(observe.ReloadFailure)
	a.waitConfigurationEvent(observe.EventConfigurationRefused, `unknown field "election.minTrem"`, volume.file(), "the configuration before stays in force")
	volume.set(strings.Replace(newest, "binaryVersion", "version", 1))
	followed(observe.ReloadFailure)
	a.waitConfigurationEvent(observe.EventConfigurationRefused, "customStrategies[0].prefer[0]", `"-semver(candidate.version).minor()"`, "1:18: undefined field 'version'")
	if at := readAt(); at != started {
		t.Errorf("the configuration in force was read at %f, then at %f", started, at)
	}
	a.quiet(2 * promptly)
	a.led("n36")

	a.rec.Mark("mended: a strategy for all leases of the namespace")
	volume.set(newest)
	changed := time.Now()
	followed(observe.ReloadSuccess)
	t.Logf("in force %s after the file changed", time.Since(changed).Round(time.Millisecond))
	if at := readAt(); at <= started {
		t.Errorf("the configuration in force was read at %f, then at %f", started, at)
	}
	a.waitLeader("n37", briskHandOff+promptly)
	a.waitConfigurationEvent(observe.EventConfigurationReloaded, "is in force")

	a.rec.Mark("what takes a restart waits for it; the rest is in force")
	volume.set("inTree: replace\n")
	followed(observe.ReloadSuccess)
	a.waitConfigurationEvent(observe.EventConfigurationReloaded, "but for what takes a restart: inTree")
	a.waitLeader("n36", briskHandOff+promptly)
	a.led("n36", "n37", "n36")
	if info := c.Info(); info.Run != 1 || !c.Running() {
		t.Errorf("the coordinator is in run %d, running %t", info.Run, c.Running())
	}
	a.safe()
}

// waitReloads waits until the coordinator counts so many reloads, by result, and no others.
func (a *arena) waitReloads(c *framework.Coordinator, want map[string]float64) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, soon)
	defer cancel()
	got := map[string]float64{}
	err := framework.WaitFor(ctx, fmt.Sprintf("the reloads counted to be %v", want), func(ctx context.Context) (bool, error) {
		for _, result := range []string{observe.ReloadSuccess, observe.ReloadFailure} {
			n, ok, err := c.Metric(ctx, "coordinated_leader_election_configuration_reloads_total", map[string]string{"result": result})
			if err != nil {
				return false, nil
			}
			if !ok {
				return false, fmt.Errorf("there is no series of result %s", result)
			}
			if got[result] = n; n != want[result] {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		a.Fatalf("%v; they are %v", err, got)
	}
}

// waitConfigurationEvent waits for an event on the coordinators' lock that says all of this.
func (a *arena) waitConfigurationEvent(reason string, parts ...string) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, soon)
	defer cancel()
	kind := map[string]string{observe.EventConfigurationReloaded: "Normal", observe.EventConfigurationRefused: "Warning"}[reason]
	var events eventsv1.EventList
	err := framework.WaitFor(ctx, fmt.Sprintf("a %s event %s that says %q", kind, reason, parts), func(ctx context.Context) (bool, error) {
		if err := a.cluster.Client().List(ctx, &events, client.InNamespace(framework.CoordinatorNamespace)); err != nil {
			return false, err
		}
		for _, e := range events.Items {
			if e.Reason == reason && e.Type == kind && note(parts).in(e) && e.Regarding.Kind == "Lease" && e.Regarding.Name == "lease-coordinator" && e.Regarding.UID != "" {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		a.Errorf("%v; there are:%s", err, describeEvents(events.Items))
	}
}

// A coordinator does not start with a configuration that is at fault: it says where all of it is wrong, before it looks
// for a cluster, and its exit code tells that from a failure.
func TestConfigurationRefusedAtStart(t *testing.T) {
	t.Parallel()
	binary, err := framework.BuildCoordinator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		// file is the content of config.yaml after the header; without one there is no such file.
		file string
		args []string
		want string
	}{
		"unknown field": {
			file: "election: {minTrem: 5m}\n",
			want: `error: configuration file "config.yaml": unknown field "election.minTrem"
`,
		},
		"types that do not fit": {
			file: `customStrategies:
- name: example.com/Nearest
  prefer:
  - 'candidate.zone == "a"'
- name: example.com/Best
  eligible: |-
    candidate.labels["a"] == "x" &&
      candidate.nod == "y"
  prefer:
  - 'candidate.name + 1'
`,
			want: `error: configuration file "config.yaml": customStrategies[0].prefer[0]: Invalid value: "candidate.zone == \"a\"": strategy example.com/Nearest: is of type bool, which would rank false before true and so reads the wrong way round: write ` + "`cond ? 0 : 1`" + `
configuration file "config.yaml": customStrategies[1].eligible: Invalid value: "candidate.labels[\"a\"] == \"x\" &&\n  candidate.nod == \"y\"": strategy example.com/Best: 2:12: undefined field 'nod'
 |   candidate.nod == "y"
 | ...........^
configuration file "config.yaml": customStrategies[1].prefer[0]: Invalid value: "candidate.name + 1": strategy example.com/Best: 1:16: found no matching overload for '_+_' applied to '(string, int)'
 | candidate.name + 1
 | ...............^
`,
		},
		"file and flags": {
			file: "election: {electionDuration: 1h}\nleaseStrategies: [{lease: kube-system/x, strategy: Newest}]\n",
			args: []string{"--min-term=-1s"},
			want: `error: configuration file "config.yaml": election.candidateTTL=30m0s must be at least twice election.electionDuration=1h0m0s
--min-term=-1s: must not be negative
configuration file "config.yaml": leaseStrategies[0].strategy: no strategy is called "Newest": there are "OldestEmulationVersion", "lease-coordinator.dev/NewestBinaryVersion", "lease-coordinator.dev/Spread", "lease-coordinator.dev/Sticky"
`,
		},
		"no file": {
			want: `error: reading configuration file "config.yaml": no such file or directory
`,
		},
		"flag": {
			file: "dryRun: true\n",
			args: []string{"--lease-strategy=kube-system/x=Newest"},
			want: `error: --lease-strategy="kube-system/x=Newest": no strategy is called "Newest": there are "OldestEmulationVersion", "lease-coordinator.dev/NewestBinaryVersion", "lease-coordinator.dev/Spread", "lease-coordinator.dev/Sticky"
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), binary, append([]string{"--config=config.yaml"}, test.args...)...)
			command.Dir = t.TempDir()
			// Whoever looked for a cluster would fail in another way.
			command.Env = append(os.Environ(), "KUBECONFIG=/nonexistent")
			if test.file != "" {
				if err := os.WriteFile(filepath.Join(command.Dir, "config.yaml"), []byte(configurationHeader+test.file), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			output, err := command.CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Errorf("it ended with %v, want exit code 2", err)
			}
			if want := test.want + "See coordinator --help.\n"; string(output) != want {
				t.Errorf("it says\n%swant\n%s", output, want)
			}
		})
	}
}
