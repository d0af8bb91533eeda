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
	"strings"
	"testing"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

const builtIn = `"OldestEmulationVersion", "lease-coordinator.dev/NewestBinaryVersion", "lease-coordinator.dev/Spread", "lease-coordinator.dev/Sticky"`

// What is wrong with strategies, in whole messages.
func TestStrategiesThatAreRefused(t *testing.T) {
	const file = `configuration file "x.yaml": `
	for name, test := range map[string]struct {
		content string
		flags   []string
		says    []string
	}{
		"an override in words": {"", []string{"--lease-strategy=l"}, []string{`--lease-strategy: "l" has no "=": must be [namespace/]lease=strategy`}},
		"two flags contradict each other": {"", []string{"--lease-strategy=l=x/A", "--lease-strategy=l=x/B"}, []string{
			`--lease-strategy: "l" is given two strategies: "x/A" and "x/B"`,
		}},
		"a flag names no strategy": {"", []string{"--lease-strategy=ns/l*=x/A"}, []string{`--lease-strategy="ns/l*=x/A": no strategy is called "x/A": there are ` + builtIn}},
		"a flag names one that is not enabled": {"strategies: [OldestEmulationVersion]", []string{"--lease-strategy=l=lease-coordinator.dev/Spread"}, []string{
			`--lease-strategy="l=lease-coordinator.dev/Spread": strategy "lease-coordinator.dev/Spread" is not enabled: enabled are "OldestEmulationVersion"`,
		}},
		"the file names no strategy": {"leaseStrategies: [{lease: l, strategy: OldestEmulationVersion}, {lease: m, strategy: x/A}]", nil, []string{
			file + `leaseStrategies[1].strategy: no strategy is called "x/A": there are ` + builtIn,
		}},
		"the file names one that the flag leaves out": {"leaseStrategies: [{lease: l, strategy: OldestEmulationVersion}]", []string{"--strategies=*,-OldestEmulationVersion"}, []string{
			file + `leaseStrategies[0].strategy: strategy "OldestEmulationVersion" is not enabled: enabled are "lease-coordinator.dev/NewestBinaryVersion", "lease-coordinator.dev/Spread", "lease-coordinator.dev/Sticky"`,
		}},
		"entries that are not complete": {"leaseStrategies: [{lease: l}, {strategy: x/A}, {}]", nil, []string{
			file + `leaseStrategies[0].strategy: Required value: must be the name of a strategy`,
			file + `leaseStrategies[1].lease: Required value: must be [namespace/]lease`,
			file + `leaseStrategies[2].lease: Required value: must be [namespace/]lease`,
			file + `leaseStrategies[2].strategy: Required value: must be the name of a strategy`,
		}},
		"a bad pattern in the file": {"leaseStrategies: [{lease: 'ns/[a', strategy: OldestEmulationVersion}]", nil, []string{
			file + `leaseStrategies[0].lease: lease pattern "[a": syntax error in pattern`,
		}},
		"the file contradicts itself": {"leaseStrategies: [{lease: ns/l, strategy: x/A}, {lease: ns/l, strategy: x/B}]", nil, []string{
			file + `leaseStrategies: "ns/l" is given two strategies: "x/A" and "x/B"`,
		}},
		"the file's list of strategies": {"strategies: [Old, -OldestEmulationVersion, OldestEmulationVersion]", nil, []string{
			file + `strategies=Old,-OldestEmulationVersion,OldestEmulationVersion: no strategy is called "Old": there are ` + builtIn,
			file + `strategies=Old,-OldestEmulationVersion,OldestEmulationVersion: "OldestEmulationVersion" and "-OldestEmulationVersion" contradict each other`,
		}},
		"a custom strategy twice": {`customStrategies: [{name: x.y/A, prefer: ["1"]}, {name: x.y/A, prefer: ["2"]}]`, nil, []string{
			file + `customStrategies[1].name: Duplicate value: "x.y/A"`,
		}},
		"faults in values and in overrides": {"election: {minTerm: -1s}", []string{"--lease-strategy=l=x/A"}, []string{
			file + `election.minTerm=-1s: must not be negative`,
			`--lease-strategy="l=x/A": no strategy is called "x/A": there are ` + builtIn,
		}},
		"faults in values and in strategies": {"strategies: [Old]\nelection: {minTerm: -1s}", nil, []string{
			file + `election.minTerm=-1s: must not be negative`,
			file + `strategies=Old: no strategy is called "Old": there are ` + builtIn,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, header+test.content, test.flags...)
			if want := strings.Join(test.says, "\n"); err == nil || err.Error() != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
		})
	}
}

// The compiler's own messages are for its package to test; here each must come with the file's name and the path.
func TestFaultsInExpressions(t *testing.T) {
	_, err := load(t, header+`customStrategies: [{name: x.y/A, eligible: "candidate.nmae", prefer: ["1 +", "2"]}, {name: Sticky, prefer: ["1"]}]`)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, at := range []string{"customStrategies[0].eligible: ", "customStrategies[0].prefer[0]: ", "customStrategies[1].name: "} {
		if want := `configuration file "x.yaml": ` + at; strings.Count(err.Error(), want) != 1 {
			t.Errorf("not once %q in:\n%v", want, err)
		}
	}
}

func TestChosenStrategies(t *testing.T) {
	const custom = `customStrategies: [{name: x.y/A, prefer: ["1"]}, {name: x.y/B, eligible: "true"}]` + "\n"
	for name, test := range map[string]struct {
		content string
		flags   []string
		enabled string
		// leases maps a lease to the override and its source.
		leases map[string]string
	}{
		"nothing said": {"", nil, builtIn, map[string]string{"ns/l": ""}},
		"custom ones":  {custom, nil, builtIn + `, "x.y/A", "x.y/B"`, nil},
		"a custom one left out by file": {
			custom + "strategies: ['*', -x.y/A]", nil, builtIn + `, "x.y/B"`, nil,
		},
		"a custom one left out by flag": {custom, []string{"--strategies=*,-x.y/B"}, builtIn + `, "x.y/A"`, nil},
		"the flag replaces the list":    {custom + "strategies: [x.y/A]", []string{"--strategies=x.y/B"}, `"x.y/B"`, nil},
		"two layers of overrides": {
			custom + "leaseStrategies: [{lease: ns/l, strategy: x.y/A}, {lease: '*', strategy: x.y/B}]",
			[]string{"--lease-strategy=l=OldestEmulationVersion"}, builtIn + `, "x.y/A", "x.y/B"`,
			map[string]string{"ns/l": "l=OldestEmulationVersion Flag", "ns/m": "*=x.y/B ConfigFile"},
		},
		"a flag may name the file's strategy": {custom, []string{"--lease-strategy=l=x.y/A"}, builtIn + `, "x.y/A", "x.y/B"`, map[string]string{"ns/l": "l=x.y/A Flag", "ns/m": ""}},
	} {
		t.Run(name, func(t *testing.T) {
			o := withFlags(t, append(test.flags, "--config="+writeFile(t, header+test.content), "--min-term=3s", "--leader-elect-resource-namespace=a", "--leader-elect-resource-name=b")...)
			settings, err := o.ElectionSettings()
			if err != nil {
				t.Fatal(err)
			}
			var strategies []strategy.Strategy
			for _, name := range settings.Strategies.Names() {
				strategies = append(strategies, settings.Strategies.Get(name))
			}
			if got := strategy.Names(strategies); got != test.enabled {
				t.Errorf("enabled are %s, want %s", got, test.enabled)
			}
			for lease, want := range test.leases {
				namespace, name, _ := strings.Cut(lease, "/")
				got := ""
				if override, source, found := settings.Overrides.For(namespace, name); found {
					got = override.String() + " " + string(source)
				}
				if got != want {
					t.Errorf("%s: %q, want %q", lease, got, want)
				}
			}
			if settings.MinTerm.String() != "3s" || settings.CandidateTTL != o.CandidateTTL || len(settings.Excluded) != 1 || settings.Excluded[0].String() != "a/b" {
				t.Errorf("settings %+v", settings)
			}
		})
	}
}

// Without a file there are settings as well, and loaded options do not read the file again.
func TestElectionSettings(t *testing.T) {
	if settings, err := NewOptions().ElectionSettings(); err != nil || len(settings.Strategies.Names()) != 4 {
		t.Error(settings, err)
	}
	loaded, err := load(t, header+"strategies: [OldestEmulationVersion]")
	if err != nil {
		t.Fatal(err)
	}
	if settings, err := loaded.ElectionSettings(); err != nil || len(settings.Strategies.Names()) != 1 {
		t.Error(settings, err)
	}
	if _, err := withFlags(t, "--config=/nonexistent").ElectionSettings(); err == nil {
		t.Error("a file that does not exist was read")
	}
}

// FuzzLoad loads whatever a file may hold, with a flag of each kind: what is accepted is fit to decide by.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		"", "election: {minTerm: 1h, electionDuration: 500ms}", "strategies: ['*', -x.y/A]\ncustomStrategies: [{name: x.y/A, prefer: ['1']}]",
		"leaseStrategies: [{lease: 'kube-*/[a-z]*', strategy: OldestEmulationVersion}]", "inTree: replace\nleaderElection: {leaderElect: false}",
		"customStrategies: [{name: x.y/A, eligible: \"candidate.labels['a'] == 'b'\"}]\nleaseStrategies: [{lease: '*', strategy: x.y/A}]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content string) {
		o, err := load(t, header+content, "--min-term=1s", "--lease-strategy=l=OldestEmulationVersion")
		if err != nil {
			return
		}
		s, err := o.ElectionSettings()
		if err != nil {
			t.Fatal(err)
		}
		for _, lease := range []string{"l", "m", "kube-scheduler"} {
			if override, _, found := s.Overrides.For("kube-system", lease); found && s.Strategies.Get(override.Strategy) == nil {
				t.Errorf("%s is led by %q, which is not enabled", lease, override)
			}
		}
	})
}
