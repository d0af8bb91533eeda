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
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A watch that lasts as long as it was to last is nothing; one that begins again before is.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var noticed int
		var failure error
		c := newCutOff(roundTrip(func(*http.Request) (*http.Response, error) { return nil, failure }), func() { noticed++ })
		send := func(ctx context.Context, path string, want int) {
			t.Helper()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://server"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = c.RoundTrip(r)
			if noticed != want {
				t.Errorf("%s: noticed %d times, want %d", path, noticed, want)
			}
			noticed = 0
		}
		const leases, candidates = "/leases?watch=true&timeoutSeconds=400&resourceVersion=", "/leasecandidates?watch=true&timeoutSeconds=400&resourceVersion="
		send(t.Context(), leases+"1", 0)
		send(t.Context(), candidates+"1", 0)
		pass(400 * time.Second)
		send(t.Context(), leases+"2", 0)
		pass(399 * time.Second)
		send(t.Context(), candidates+"2", 0)
		send(t.Context(), leases+"3", 1)
		send(t.Context(), "/leases", 0)
		failure = errors.New("connection refused")
		send(t.Context(), "/leases", 1)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		send(ended, "/leases", 0)
	})
}
