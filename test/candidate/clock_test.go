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
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestShift(t *testing.T) {
	tests := []struct {
		name, body, want string
		offset           time.Duration
	}{{
		name:   "a renewal keeps the acquire time that it read",
		offset: -time.Minute,
		body:   `{"kind":"Lease","spec":{"acquireTime":"2026-01-01T00:00:00.000001Z","renewTime":"2026-01-01T00:01:00.123456Z"}}`,
		want:   `{"kind":"Lease","spec":{"acquireTime":"2026-01-01T00:00:00.000001Z","renewTime":"2026-01-01T00:00:00.123456Z"}}`,
	}, {
		name:   "an acquisition has one time twice",
		offset: time.Minute,
		body:   `{"kind":"Lease","spec":{"acquireTime":"2026-01-01T00:01:00.100000Z","renewTime":"2026-01-01T00:01:00.100000Z"}}`,
		want:   `{"kind":"Lease","spec":{"acquireTime":"2026-01-01T00:02:00.100000Z","renewTime":"2026-01-01T00:02:00.100000Z"}}`,
	}, {
		name:   "a whole second keeps its six digits, or the API would refuse it",
		offset: -1500 * time.Millisecond,
		body:   `{"kind":"Lease","spec":{"renewTime":"2026-01-01T00:00:02.500000Z"}}`,
		want:   `{"kind":"Lease","spec":{"renewTime":"2026-01-01T00:00:01.000000Z"}}`,
	}, {
		name:   "a candidate's ping time is not its own",
		offset: time.Minute,
		body:   `{"kind":"LeaseCandidate","spec":{"pingTime":"2026-01-01T00:00:00.000000Z","renewTime":"2026-01-01T00:00:00.000003Z"}}`,
		want:   `{"kind":"LeaseCandidate","spec":{"pingTime":"2026-01-01T00:00:00.000000Z","renewTime":"2026-01-01T00:01:00.000003Z"}}`,
	}, {
		name:   "no stamp, nothing to do",
		offset: time.Minute,
		body:   `{"kind":"Lease","spec":{"holderIdentity":"a"}}`,
		want:   `{"kind":"Lease","spec":{"holderIdentity":"a"}}`,
	}, {
		name:   "a null stamp stays null",
		offset: time.Minute,
		body:   `{"kind":"Lease","spec":{"acquireTime":null,"renewTime":null}}`,
		want:   `{"kind":"Lease","spec":{"acquireTime":null,"renewTime":null}}`,
	}, {
		name:   "other kinds are left alone",
		offset: time.Minute,
		body:   `{"kind":"Event","spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}`,
		want:   `{"kind":"Event","spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}`,
	}, {
		name:   "large numbers and unknown fields survive",
		offset: time.Second,
		body:   `{"kind":"Lease","metadata":{"generation":9007199254740993},"spec":{"renewTime":"2026-01-01T00:00:00.000000Z","x":[1]}}`,
		want:   `{"kind":"Lease","metadata":{"generation":9007199254740993},"spec":{"renewTime":"2026-01-01T00:00:01.000000Z","x":[1]}}`,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := (&clockShifter{offset: tt.offset}).shift([]byte(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	for _, bad := range []string{"", "k8s\x00protobuf", `{"kind":"Lease","spec":{"renewTime":"yesterday"}}`} {
		if got, err := (&clockShifter{offset: time.Second}).shift([]byte(bad)); err == nil {
			t.Errorf("shift(%q) = %q, want an error: an unshifted write would spoil the test silently", bad, got)
		}
	}
}

func TestShiftRemembersTheAcquisition(t *testing.T) {
	s := &clockShifter{offset: -time.Hour}
	for _, step := range []struct{ body, want string }{{
		`{"kind":"Lease","spec":{"acquireTime":"2026-01-01T05:00:00.000000Z","renewTime":"2026-01-01T05:00:00.000000Z"}}`,
		`{"kind":"Lease","spec":{"acquireTime":"2026-01-01T04:00:00.000000Z","renewTime":"2026-01-01T04:00:00.000000Z"}}`,
	}, { // renewed from memory
		`{"kind":"Lease","spec":{"acquireTime":"2026-01-01T05:00:00.000000Z","renewTime":"2026-01-01T05:00:02.000000Z"}}`,
		`{"kind":"Lease","spec":{"acquireTime":"2026-01-01T04:00:00.000000Z","renewTime":"2026-01-01T04:00:02.000000Z"}}`,
	}, { // renewed after reading
		`{"kind":"Lease","spec":{"acquireTime":"2026-01-01T04:00:00.000000Z","renewTime":"2026-01-01T05:00:04.000000Z"}}`,
		`{"kind":"Lease","spec":{"acquireTime":"2026-01-01T04:00:00.000000Z","renewTime":"2026-01-01T04:00:04.000000Z"}}`,
	}} {
		got, err := s.shift([]byte(step.body))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != step.want {
			t.Errorf("got  %s\nwant %s", got, step.want)
		}
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestClockShifter(t *testing.T) {
	const body = `{"kind":"Lease","spec":{"renewTime":"2026-01-01T00:00:00.000000Z"}}`
	for path, want := range map[string]string{
		"/apis/coordination.k8s.io/v1/namespaces/a/leases/l": `{"kind":"Lease","spec":{"renewTime":"2026-01-01T00:00:30.000000Z"}}`,
		"/api/v1/namespaces/a/configmaps/l":                  body,
	} {
		var sent string
		var length int64
		shifter := &clockShifter{offset: 30 * time.Second, next: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			b, err := io.ReadAll(r.Body)
			sent, length = string(b), r.ContentLength
			return &http.Response{}, err
		})}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "https://127.0.0.1"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := shifter.RoundTrip(req); err != nil {
			t.Fatal(err)
		}
		if sent != want || length != int64(len(want)) {
			t.Errorf("%s: sent %s with length %d, want %s", path, sent, length, want)
		}
	}
}
