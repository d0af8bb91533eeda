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
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	on, tree := &system{name: oursOn}, &system{name: inTree}
	courses := []*course{
		{system: on, taken: map[scenario][]time.Duration{crash: {16 * time.Second}, exit: {18 * time.Second}}},
		{system: tree, taken: map[scenario][]time.Duration{crash: {20 * time.Second}}},
	}
	var b strings.Builder
	printTable(&b, collect([]*system{on, tree}, courses))
	want := `scenario                   system         n  median  p90     max     to in-tree  target
graceful exit, no release  ours, gate on  1  18.0 s  18.0 s  18.0 s              17.5 s, missed
crash                      ours, gate on  1  16.0 s  16.0 s  16.0 s  0.80        17.5 s, met
                           in-tree        1  20.0 s  20.0 s  20.0 s              
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
