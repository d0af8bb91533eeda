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

package coordinator

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lease-coordinator/coordinator/internal/observe"
)

// running is a configuration that follows its file, and what it told.
type running struct {
	*configuration
	t        *testing.T
	file     string
	registry *prometheus.Registry
	// logged, events and looked are since the last look at them.
	mu             sync.Mutex
	logged, events []string
	looked         int
}

// follow runs a configuration. It must be called in a bubble, whose clock passes.
func follow(t *testing.T, file string, flags ...string) *running {
	t.Helper()
	r := &running{t: t, file: file, registry: prometheus.NewRegistry()}
	o, err := withFlags(t, append(flags, "--config="+file)...).Load()
	if err != nil {
		t.Fatal(err)
	}
	locked := func(f func()) {
		r.mu.Lock()
		defer r.mu.Unlock()
		f()
	}
	logger := funcr.New(func(_, args string) { locked(func() { r.logged = append(r.logged, args) }) }, funcr.Options{})
	if r.configuration, err = newConfiguration(o, observe.NewMetrics(r.registry), logger); err != nil {
		t.Fatal(err)
	}
	r.told = func(_ context.Context, inForce bool, note string) {
		locked(func() { r.events = append(r.events, fmt.Sprintf("%t %s", inForce, note)) })
	}
	r.changed = func() { locked(func() { r.looked++ }) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (r *running) write(content string) {
	r.t.Helper()
	if err := os.WriteFile(r.file, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// expect checks what was told since it was last called: the events, and how often leases were looked at.
func (r *running) expect(when string, events ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.events, events) {
		r.t.Errorf("%s: events %q, want %q", when, r.events, events)
	}
	wanted := 0
	for _, e := range events {
		if strings.HasPrefix(e, "true ") {
			wanted++
		}
	}
	if r.looked != wanted || len(r.logged) != len(events) {
		r.t.Errorf("%s: leases looked at %d times, logged %q, with events %q", when, r.looked, r.logged, events)
	}
	r.events, r.logged, r.looked = nil, nil, 0
}

// expectMetrics checks the metrics of reloads, and that the failures of every enabled strategy are counted.
func (r *running) expectMetrics(success, failure, successful float64, at time.Time) {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	got, measured := map[string]float64{}, map[string]float64{}
	for _, family := range families {
		name := strings.TrimPrefix(family.GetName(), "coordinated_leader_election_configuration_")
		for _, m := range family.GetMetric() {
			switch {
			case name == "coordinated_leader_election_strategy_failures_total":
				measured[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			case m.GetCounter() != nil && len(m.GetLabel()) > 0:
				got[name+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				got[name] = m.GetGauge().GetValue()
			}
		}
	}
	for name, want := range map[string]float64{
		"reloads_total success": success, "reloads_total failure": failure, "last_reload_successful": successful,
		"last_reload_success_timestamp_seconds": float64(at.Unix()),
	} {
		if value, found := got[name]; !found || value != want {
			r.t.Errorf("%s = %v, found %t; want %v", name, value, found, want)
		}
	}
	for _, name := range r.settings().Strategies.Names() {
		if value, found := measured[string(name)]; !found || value != 0 {
			r.t.Errorf("failures of %s: %v, found %t", name, value, found)
		}
	}
}

func TestReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := follow(t, writeFile(t, header))
		start := time.Now()
		r.expectMetrics(0, 0, 1, start)
		pass(time.Minute)
		r.expect("nothing has changed")

		r.write(header + "election: {minTerm: 1m}\ndryRun: true\ncustomStrategies: [{name: x.y/A, prefer: ['1']}]\nleaseStrategies: [{lease: l, strategy: lease-coordinator.dev/Sticky}]")
		pass(filePeriod * (1 + settled))
		inForce := fmt.Sprintf("true configuration file %q is in force", r.file)
		r.expect("a good file", inForce)
		if s := r.settings(); s.MinTerm != time.Minute || !r.dryRun() {
			t.Errorf("min term %s, dry run %t", s.MinTerm, r.dryRun())
		}
		if o, source, _ := r.settings().Overrides.For("ns", "l"); o.Strategy != "lease-coordinator.dev/Sticky" || source != "ConfigFile" {
			t.Errorf("override %q from %q", o, source)
		}
		r.expectMetrics(1, 0, 1, time.Now())
		good := time.Now()

		before := r.current.Load()
		r.write(header + "election: {minTerm: -1m, candidateTTL: 1h}")
		pass(time.Minute)
		r.expect("a bad file, told once", fmt.Sprintf(`false configuration file %q: election.minTerm=-1m0s: must not be negative; the configuration before stays in force`, r.file))
		if r.current.Load() != before {
			t.Error("a part of a bad file is in force")
		}
		r.expectMetrics(1, 1, 0, good)

		r.write(header + "elections: {}")
		pass(time.Minute)
		r.expect("another bad file", fmt.Sprintf(`false configuration file %q: unknown field "elections"; the configuration before stays in force`, r.file))
		r.expectMetrics(1, 2, 0, good)

		r.write(header)
		pass(filePeriod * (1 + settled))
		r.expect("the file as it was", inForce)
		if s := r.settings(); s.MinTerm != 0 || r.dryRun() {
			t.Errorf("min term %s, dry run %t", s.MinTerm, r.dryRun())
		}
		r.expectMetrics(2, 2, 1, time.Now())
	})
}

// A file that is being written is not judged half way.
func TestReloadWaitsUntilTheFileIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := follow(t, writeFile(t, header))
		// Out of step with the looks at the file.
		pass(filePeriod / 2)
		for i := range 10 {
			r.write(header + strings.Repeat("#", i) + "\nelection: {")
			pass(filePeriod)
			r.expect("half written")
		}
		r.write(header + "dryRun: true")
		pass(filePeriod * (1 + settled))
		r.expect("written", fmt.Sprintf("true configuration file %q is in force", r.file))

		// There and back again is no change.
		r.write(header)
		pass(filePeriod)
		r.write(header + "dryRun: true")
		pass(time.Minute)
		r.expect("there and back again")
	})
}

// The volume of a ConfigMap: the file is a link into a folder that is a link, and that one is replaced.
func TestReloadOfAConfigMapsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		volume := t.TempDir()
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		project := func(version, content string) {
			t.Helper()
			check(os.Mkdir(filepath.Join(volume, version), 0o700))
			check(os.WriteFile(filepath.Join(volume, version, "config.yaml"), []byte(content), 0o600))
			check(os.Symlink(version, filepath.Join(volume, "..data_tmp")))
			check(os.Rename(filepath.Join(volume, "..data_tmp"), filepath.Join(volume, "..data")))
		}
		project("..v1", header)
		check(os.Symlink(filepath.Join("..data", "config.yaml"), filepath.Join(volume, "config.yaml")))
		r := follow(t, filepath.Join(volume, "config.yaml"))
		for i := 2; i < 5; i++ {
			project(fmt.Sprintf("..v%d", i), fmt.Sprintf("%selection: {minTerm: %ds}", header, i))
			check(os.RemoveAll(filepath.Join(volume, fmt.Sprintf("..v%d", i-1))))
			pass(filePeriod * (1 + settled))
			r.expect("a new version", fmt.Sprintf("true configuration file %q is in force", r.file))
			if got := r.settings().MinTerm; got != time.Duration(i)*time.Second {
				t.Errorf("version %d: min term %s", i, got)
			}
		}
	})
}

func TestReloadOfAFileThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := follow(t, writeFile(t, header+"dryRun: true"))
		remove := func() {
			t.Helper()
			if err := os.Remove(r.file); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		pass(filePeriod / 2)
		remove()
		pass(filePeriod * gone)
		r.write(header + "dryRun: true")
		pass(time.Minute)
		r.expect("away for a moment")
		r.expectMetrics(0, 0, 1, start)

		remove()
		pass(filePeriod * gone)
		r.expect("about to be missed")
		pass(filePeriod)
		away := fmt.Sprintf("false reading configuration file %q: no such file or directory; the configuration before stays in force", r.file)
		r.expect("missed", away)
		pass(time.Hour)
		r.expect("missed once")
		r.expectMetrics(0, 1, 0, start)
		if !r.dryRun() {
			t.Error("a file that is away changed something")
		}

		r.write(header + "dryRun: true")
		pass(filePeriod * (1 + settled))
		r.expect("back", fmt.Sprintf("true configuration file %q is in force", r.file))
		r.expectMetrics(1, 1, 1, time.Now())
	})
}

// What takes a restart stays as it is, and is told each time; the rest of the file is in force.
func TestReloadTellsWhatTakesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := follow(t, writeFile(t, header), "--leader-elect-resource-name=n", "--metrics-secure=false")
		// The two settings that flags set stay as they are and wait for nothing. inTree "replace" needs the lock, so
		// one of them changes at a time.
		all := func(but string) string {
			var changed []string
			for _, s := range settings {
				if s.flag != but {
					changed = append(changed, s.flag+"="+others[s.flag][0])
				}
			}
			return inFile(t, changed...)
		}
		inForce := func(waiting string) string {
			return fmt.Sprintf("true configuration file %q is in force, but for what takes a restart: %s", r.file, waiting)
		}
		r.write(all("in-tree"))
		pass(filePeriod * (1 + settled))
		r.expect("all but inTree changed", inForce("clientConnection.kubeconfig, clientConnection.qps, clientConnection.burst, leaderElection.leaderElect, "+
			"leaderElection.resourceNamespace, leaderElection.leaseDuration, leaderElection.renewDeadline, leaderElection.retryPeriod, "+
			"namespaces, metrics.bindAddress, health.bindAddress, logging.format"))
		r.write(all("leader-elect"))
		pass(filePeriod * (1 + settled))
		const waiting = "clientConnection.kubeconfig, clientConnection.qps, clientConnection.burst, " +
			"leaderElection.resourceNamespace, leaderElection.leaseDuration, leaderElection.renewDeadline, leaderElection.retryPeriod, namespaces, inTree, " +
			"metrics.bindAddress, health.bindAddress, logging.format"
		r.expect("all but leaderElect changed", inForce(waiting))

		want := NewOptions()
		want.LockName, want.MetricsSecure = "n", false
		for _, s := range settings {
			if got := s.text(r.options()); !s.live && got != s.text(want) {
				t.Errorf("%s changed to %s without a restart", s.field, got)
			} else if s.live && strings.Trim(got, `"`) != others[s.flag][0] {
				t.Errorf("%s is %s, but is live", s.field, got)
			}
		}
		if got := r.settings().Excluded[0]; got != r.options().lockKey() || got.Name != "n" || got.Namespace != want.LockNamespace {
			t.Errorf("lock %s", got)
		}

		r.write(all("leader-elect") + "# once more\n")
		pass(filePeriod * (1 + settled))
		r.expect("still waiting", inForce(waiting))
		r.write(header)
		pass(filePeriod * (1 + settled))
		r.expect("as it was", fmt.Sprintf("true configuration file %q is in force", r.file))
	})
}

// A flag that was given stays in force whatever the file says.
func TestReloadStaysBelowTheFlags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := follow(t, writeFile(t, header), "--min-term=7s", "--lease-strategy=l=OldestEmulationVersion")
		r.write(header + "election: {minTerm: 1m, takeUpTimeout: 9s}\nleaseStrategies: [{lease: '*', strategy: lease-coordinator.dev/Sticky}]")
		pass(filePeriod * (1 + settled))
		r.expect("a good file", fmt.Sprintf("true configuration file %q is in force", r.file))
		s := r.settings()
		if s.MinTerm != 7*time.Second || s.TakeUpTimeout != 9*time.Second {
			t.Errorf("min term %s, take-up timeout %s", s.MinTerm, s.TakeUpTimeout)
		}
		for lease, want := range map[string]string{"l": "l=OldestEmulationVersion", "m": "*=lease-coordinator.dev/Sticky"} {
			if o, _, _ := s.Overrides.For("ns", lease); o.String() != want {
				t.Errorf("%s: %q, want %q", lease, o, want)
			}
		}
	})
}

func TestReloadOfVerbosity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		file := writeFile(t, header)
		loaded, err := withFlags(t, "--config="+file).Load()
		if err != nil {
			t.Fatal(err)
		}
		logger := loaded.NewLogger(&log)
		c, err := newConfiguration(loaded, observe.NewMetrics(prometheus.NewRegistry()), logger)
		if err != nil {
			t.Fatal(err)
		}
		says := func(verbosity int) bool {
			log.Reset()
			logger.WithName("n").V(verbosity).Info("said")
			return strings.Contains(log.String(), "said")
		}
		for verbosity := range 9 {
			next, err := c.base.loadContent(fmt.Appendf(nil, "%slogging: {verbosity: %d}", header, verbosity))
			if err != nil {
				t.Fatal(err)
			}
			next.keep(c.options())
			if err := c.enforce(next); err != nil {
				t.Fatal(err)
			}
			if !says(verbosity) || says(verbosity+1) {
				t.Errorf("verbosity %d: says %t, and the next %t", verbosity, says(verbosity), says(verbosity+1))
			}
		}
	})
}

// Without a file there is nothing to follow.
func TestNoFileToFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := NewOptions().Load()
		if err != nil {
			t.Fatal(err)
		}
		c, err := newConfiguration(o, observe.NewMetrics(prometheus.NewRegistry()), funcr.New(func(string, string) {}, funcr.Options{}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := c.Start(ctx); err != nil {
			t.Error(err)
		}
	})
}
