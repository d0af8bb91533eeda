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
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	configv1alpha1 "github.com/lease-coordinator/coordinator/api/config/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/observe"
)

const documentation = "../../docs/configuration.md"

func readDocumentation(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(documentation)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// The example is accepted, and sets every field there is.
func TestDocumentedExample(t *testing.T) {
	_, rest, _ := strings.Cut(readDocumentation(t), "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found || !strings.Contains(example, configv1alpha1.Kind) {
		t.Fatalf("no example: %q", example)
	}
	o, err := load(t, example)
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range fieldsOf(reflect.TypeFor[configv1alpha1.CoordinatorConfiguration](), "", true) {
		list, element, isElement := strings.Cut(field, "[].")
		if !isElement && !o.loaded.file.Sets(list) {
			t.Errorf("the example does not set %s", field)
		}
		if isElement && !o.loaded.file.Sets(list+"[0]."+element) {
			t.Errorf("the example does not set %s in its first", field)
		}
	}
}

// Every field has a row, and what the row says of flag, default and restart is true.
func TestDocumentedFields(t *testing.T) {
	rows := map[string][]string{}
	for _, line := range strings.Split(readDocumentation(t), "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) == 5 {
			rows[strings.Trim(cells[0], "`")] = cells
		}
	}
	for _, field := range fieldsOf(reflect.TypeFor[configv1alpha1.CoordinatorConfiguration](), "", true) {
		if field == "apiVersion" || field == "kind" {
			continue
		}
		if rows[field] == nil {
			t.Errorf("%s has no row", field)
		}
	}
	code := regexp.MustCompile("^`([^`]+)`$")
	for _, s := range settings {
		cells := rows[s.field]
		if cells == nil {
			continue
		}
		if !strings.Contains(cells[1], "`--"+s.flag+"`") {
			t.Errorf("%s: flag %s, not --%s", s.field, cells[1], s.flag)
		}
		if want := map[bool]string{true: "live", false: "restart"}[s.live]; cells[4] != want {
			t.Errorf("%s: %q, not %q", s.field, cells[4], want)
		}
		stated := code.FindStringSubmatch(cells[2])
		if stated == nil {
			// The default depends on where it runs, or there is none.
			continue
		}
		want := strings.Trim(s.text(NewOptions()), `"`)
		if d, isDuration := s.value(NewOptions()).(time.Duration); isDuration {
			if got, err := time.ParseDuration(stated[1]); err != nil || got != d {
				t.Errorf("%s: default %s, not %s", s.field, stated[1], d)
			}
		} else if stated[1] != want {
			t.Errorf("%s: default %s, not %s", s.field, stated[1], want)
		}
	}
}

func TestDocumentedNames(t *testing.T) {
	text := readDocumentation(t)
	for _, name := range []string{observe.EventConfigurationReloaded, observe.EventConfigurationRefused} {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("event %s is not documented", name)
		}
	}
	for _, d := range observe.Definitions() {
		if strings.Contains(d.Name, "configuration") && !strings.Contains(text, d.Name) {
			t.Errorf("metric %s is not documented", d.Name)
		}
	}
}
