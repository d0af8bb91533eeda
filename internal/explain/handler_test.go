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

package explain

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/internal/election"
)

// source knows one lease.
type source struct{ facts Facts }

func (s source) Leases() []types.NamespacedName { return []types.NamespacedName{s.facts.Key} }

func (s source) Explain(key types.NamespacedName) (Facts, bool) { return s.facts, key == s.facts.Key }

func TestHandler(t *testing.T) {
	w := newWorld(t, "1.36.0", "1.37.0")
	w.hold("n1")
	x := w.explain()
	handler := Handler(source{Facts{Key: key, Lease: w.Lease, Claim: w.Observed.Claim, Now: w.Now, Explanation: election.Explain(&w.Snapshot)}})
	of := func(format Format) string {
		var b strings.Builder
		if err := Print(&b, format, x); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	const line = "/debug/leases/ns/lease  leader n1 kept: no live candidate ranks above it\n"
	const link = "<!DOCTYPE html><title>Leases</title><pre>\n<a href=\"/debug/leases/ns/lease\">ns/lease</a>  leader n1 kept: no live candidate ranks above it\n</pre>\n"
	for name, test := range map[string]struct {
		method, path, accept string
		code                 int
		contentType, body    string
	}{
		"list":             {"GET", "/debug/leases", "", 200, "text/plain; charset=utf-8", line},
		"list, with slash": {"GET", "/debug/leases/", "", 200, "text/plain; charset=utf-8", line},
		"list with links":  {"GET", "/debug/leases", "text/html,*/*", 200, "text/html; charset=utf-8", link},
		"text":             {"GET", "/debug/leases/ns/lease", "", 200, "text/plain; charset=utf-8", of(Text)},
		"JSON":             {"GET", "/debug/leases/ns/lease?o=json", "", 200, "application/json", of(JSON)},
		"YAML":             {"GET", "/debug/leases/ns/lease?o=yaml", "", 200, "application/yaml", of(YAML)},
		"bad format":       {"GET", "/debug/leases/ns/lease?o=xml", "", 400, "text/plain; charset=utf-8", "o=\"xml\" is no output format: must be text, json or yaml\n"},
		"unknown":          {"GET", "/debug/leases/ns/other", "", 404, "text/plain; charset=utf-8", "There is no such lease. Those with candidates are:\n" + line},
		"no name":          {"GET", "/debug/leases/ns", "", 404, "text/plain; charset=utf-8", "There is no such lease. Those with candidates are:\n" + line},
		"POST":             {"POST", "/debug/leases/ns/lease", "", 405, "text/plain; charset=utf-8", "Method Not Allowed\n"},
		"DELETE":           {"DELETE", "/debug/leases", "", 405, "text/plain; charset=utf-8", "Method Not Allowed\n"},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(test.method, test.path, nil)
			request.Header.Set("Accept", test.accept)
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			response := recorder.Result()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != test.code || response.Header.Get("Content-Type") != test.contentType || string(body) != test.body {
				t.Errorf("%d %s:\n%s\nwant %d %s:\n%s", response.StatusCode, response.Header.Get("Content-Type"), body, test.code, test.contentType, test.body)
			}
			if test.code == http.StatusOK && strings.HasSuffix(test.path, "json") && !json.Valid(body) {
				t.Error("not JSON")
			}
		})
	}
}
