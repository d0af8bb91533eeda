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
	"testing"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
	"github.com/lease-coordinator/coordinator/test/upgrade"
)

// Three nodes are upgraded one by one and rolled back one by one, and at no moment does a component lead that is
// newer than a running kube-apiserver. On the same nodes, through the same steps, go components that elect plainly,
// for contrast.
func TestSkewedUpgrade(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, upgrade.ClusterOptions(nil))
	begun := time.Now()
	script, err := upgrade.New(t.Context(), cluster, upgrade.Options{
		Elections: []upgrade.Election{upgrade.Coordinated, upgrade.Plain},
		// Twice the default: beside other tests a kube-apiserver can take 10 s to restart, and if a leader gives up
		// meanwhile, no candidate of its version is left in the middle of the rollback.
		RenewDeadline: 2 * renewDeadline,
		OnStep: func(s upgrade.Step) {
			if s.Done {
				t.Logf("%5.1fs  step %d of %d, %v of %s from %s to %s: %.1fs", time.Since(begun).Seconds(),
					s.Number, upgrade.Steps, s.Programs, s.Node, s.From, s.To, s.After.Seconds())
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("timeline:\n%s", script.Recorder.Timeline())
		}
	})
	t.Logf("%5.1fs  everything has a leader", time.Since(begun).Seconds())
	if err := script.Upgrade(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := script.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}

	for _, v := range script.Judge() {
		for _, c := range v.Changes {
			t.Logf("%s: %s -> %s, %.1fs leaderless: %q", v.Component, c.From, c.To, c.Leaderless.Seconds(), c.Because)
		}
		if v.Component.Election == upgrade.Plain {
			// It is luck whether plain leader election violates the policy, so that is only told. That it was
			// measured, for a component that did change hands, is what can be asserted.
			t.Logf("%s: %d skew violations, %s", v.Component, len(v.Violations), v.Skewed())
			if len(v.Changes) == 0 {
				t.Errorf("%s: no change of leader was seen, although every node was restarted", v.Component)
			}
			continue
		}
		if err := v.Err(); err != nil {
			t.Error(err)
		}
		if len(v.Changes) == 0 {
			t.Errorf("%s: no change of leader was seen, although every node was restarted", v.Component)
		}
	}
	for _, blind := range script.Recorder.Timeline().BlindWrites() {
		if blind.WriterKind == framework.CoordinatorKind {
			t.Errorf("a coordinator wrote without compare-and-swap: %v", blind)
		}
	}
}
