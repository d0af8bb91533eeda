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
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

func TestImpatient(t *testing.T) {
	for says, want := range map[string]string{
		"": "", "0": "0", "1": "1", "2": "1", "32": "1",
		// client-go does not understand it, and does not wait.
		"Wed, 21 Oct 2026 07:28:00 GMT": "Wed, 21 Oct 2026 07:28:00 GMT",
	} {
		transport := impatient{roundTrip(func(*http.Request) (*http.Response, error) {
			response := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{}}
			if says != "" {
				response.Header.Set("Retry-After", says)
			}
			return response, nil
		})}
		response, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
		if err != nil {
			t.Fatal(err)
		}
		if got := response.Header.Get("Retry-After"); got != want {
			t.Errorf("Retry-After %q became %q, want %q", says, got, want)
		}
	}
	failure := errors.New("connection refused")
	if _, err := (impatient{roundTrip(func(*http.Request) (*http.Response, error) { return nil, failure })}).RoundTrip(nil); !errors.Is(err, failure) {
		t.Errorf("%v", err)
	}
}

// client-go itself waits no longer than that.
func TestImpatientClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		config := &rest.Config{Host: "https://server", Transport: impatient{roundTrip(func(*http.Request) (*http.Response, error) {
			recorder := httptest.NewRecorder()
			if sent++; sent < 3 {
				recorder.Header().Set("Retry-After", "30")
				recorder.WriteHeader(http.StatusTooManyRequests)
			}
			return recorder.Result(), nil
		})}}
		config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
		client, err := rest.UnversionedRESTClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := client.Get().AbsPath("/").Do(t.Context()).Error(); err != nil || sent != 3 {
			t.Errorf("%d requests, %v", sent, err)
		}
		if took := time.Since(began); took > 2*longestWait*time.Second {
			t.Errorf("took %s", took)
		}
	})
}
