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
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lease-coordinator/coordinator/test/e2e/compatibility"
)

func TestRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	stream := func(outcome compatibility.Outcome, result string) string {
		fact := compatibility.Fact{
			Cluster:    compatibility.Cluster{Version: "1.37", Coordinator: compatibility.Ours},
			Candidates: compatibility.Library, Outcome: outcome,
		}
		return fmt.Sprintf(`{"Action":"attr","Test":"TestA","Key":"compatibility","Value":%q}
{"Action":%q,"Test":"TestA"}
`, fact.Value(), result)
	}
	try := func(stream string, check bool) error {
		return run(strings.NewReader(stream), new(bytes.Buffer), file, check)
	}
	if err := try(stream(compatibility.Fields, "pass"), true); !os.IsNotExist(err) {
		t.Errorf("compared with a page that is not there: %v", err)
	}
	if err := try(stream(compatibility.Fields, "pass"), false); err != nil {
		t.Fatal(err)
	}
	if err := try(stream(compatibility.Fields, "pass"), true); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if err := try(stream(compatibility.Revoked, "pass"), true); err == nil ||
		!strings.Contains(err.Error(), "-| ours | 1.37 | off | none | – | – | – | fields | – |\n+| ours | 1.37 | off | none | – | – | – | revoked | – |") {
		t.Errorf("another outcome: %v", err)
	}
	if err := try(stream(compatibility.Revoked, "fail"), false); err == nil || !strings.Contains(err.Error(), "TestA") {
		t.Errorf("a test that failed: %v", err)
	}
	if err := try("", false); err == nil {
		t.Error("a page of nothing")
	}
}
