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

package strategy

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
)

func TestSelect(t *testing.T) {
	known := []Strategy{selectable("Old"), selectable("x/New"), selectable("x/Spread")}
	for name, test := range map[string]struct {
		patterns  []string
		want, err string
	}{
		"none is all":                {nil, `"Old", "x/New", "x/Spread"`, ""},
		"all":                        {[]string{"*"}, `"Old", "x/New", "x/Spread"`, ""},
		"one":                        {[]string{"x/New"}, `"x/New"`, ""},
		"the order is the known one": {[]string{"x/Spread", "Old"}, `"Old", "x/Spread"`, ""},
		"all but one":                {[]string{"*", "-x/New"}, `"Old", "x/Spread"`, ""},
		"all but one, first":         {[]string{"-x/New", "*"}, `"Old", "x/Spread"`, ""},
		"all and one":                {[]string{"*", "x/New"}, `"Old", "x/New", "x/Spread"`, ""},
		"twice":                      {[]string{"x/New", "x/New", "-Old", "-Old"}, `"x/New"`, ""},
		"unknown":                    {[]string{"*", "Spread"}, "", `no strategy is called "Spread": there are "Old", "x/New", "x/Spread"`},
		"unknown left out":           {[]string{"*", "-Spread"}, "", `no strategy is called "Spread": there are "Old", "x/New", "x/Spread"`},
		"empty":                      {[]string{""}, "", `no strategy is called "": there are "Old", "x/New", "x/Spread"`},
		"contradiction":              {[]string{"Old", "-Old"}, "", `"Old" and "-Old" contradict each other`},
		"contradiction, other way":   {[]string{"*", "-Old", "Old"}, "", `"Old" and "-Old" contradict each other`},
		"nothing enabled":            {[]string{"-Old"}, "", `["-Old"] enable no strategy: add "*" for all that are not left out`},
		"all left out":               {[]string{"*", "-Old", "-x/New", "-x/Spread"}, "", `["*" "-Old" "-x/New" "-x/Spread"] enable no strategy: add "*" for all that are not left out`},
		"every fault": {[]string{"a", "b"}, "",
			"no strategy is called \"a\": there are \"Old\", \"x/New\", \"x/Spread\"\nno strategy is called \"b\": there are \"Old\", \"x/New\", \"x/Spread\""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Select(known, test.patterns)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != test.err || err == nil && Names(got) != test.want {
				t.Errorf("%s, %v; want %s, %s", Names(got), err, test.want, test.err)
			}
		})
	}
}

type selectable string

func (s selectable) Name() coordinationv1.CoordinatedLeaseStrategy {
	return coordinationv1.CoordinatedLeaseStrategy(s)
}

func (selectable) Keys(keys []Key, _ *Candidate, _ *Election) ([]Key, error) { return keys, nil }
