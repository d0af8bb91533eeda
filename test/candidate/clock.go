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
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clockShifter makes the stamps of this process come from a clock that is off:
// it adds offset to those in the bodies of requests that write Leases and
// LeaseCandidates. The process's own sense of time stays right, as that of a
// machine with a wrong wall clock does: client-go measures durations by the
// monotonic clock.
type clockShifter struct {
	next   http.RoundTripper
	offset time.Duration

	mu sync.Mutex
	// acquired is the acquireTime of the present term as client-go remembers
	// it, that is not shifted.
	acquired json.RawMessage
}

func (s *clockShifter) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body == nil || !strings.Contains(req.URL.Path, "/apis/coordination.k8s.io/") {
		return s.next.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	_ = req.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading a request to shift its stamps: %w", err)
	}
	if body, err = s.shift(body); err != nil {
		return nil, err
	}
	// A RoundTripper must not modify the request.
	req = req.Clone(req.Context())
	req.Body = io.NopCloser(bytes.NewReader(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.ContentLength = int64(len(body))
	return s.next.RoundTrip(req)
}

// shift adds the offset to the stamps in a Lease or LeaseCandidate in JSON that
// the writer made itself. Anything else it returns as it is.
//
// A renewTime is always the writer's own and of this moment. When client-go
// acquires or releases a lease it writes one and the same time to acquireTime.
// Later it writes the acquireTime that it remembers from then, if it renews
// without reading first, or else the one that it read, which is shifted already
// or the coordinator's. A LeaseCandidate's pingTime is the coordinator's.
func (s *clockShifter) shift(body []byte) ([]byte, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return nil, fmt.Errorf("shifting stamps: the request is not a JSON object: %w", err)
	}
	var kind string
	// A kind that is not a string is none of ours.
	_ = json.Unmarshal(object["kind"], &kind)
	if kind != "Lease" && kind != "LeaseCandidate" {
		return body, nil
	}
	var spec map[string]json.RawMessage
	if err := json.Unmarshal(object["spec"], &spec); err != nil || spec["renewTime"] == nil {
		return body, nil
	}
	own := []string{"renewTime"}
	s.mu.Lock()
	if acquired := spec["acquireTime"]; acquired != nil {
		if bytes.Equal(acquired, spec["renewTime"]) {
			s.acquired = acquired
		}
		if bytes.Equal(acquired, s.acquired) {
			own = append(own, "acquireTime")
		}
	}
	s.mu.Unlock()
	for _, field := range own {
		var stamp metav1.MicroTime
		if err := json.Unmarshal(spec[field], &stamp); err != nil {
			return nil, fmt.Errorf("shifting spec.%s: %w", field, err)
		}
		if stamp.IsZero() {
			continue
		}
		shifted, err := json.Marshal(metav1.NewMicroTime(stamp.Add(s.offset)))
		if err != nil {
			return nil, fmt.Errorf("shifting spec.%s: %w", field, err)
		}
		spec[field] = shifted
	}
	var err error
	if object["spec"], err = json.Marshal(spec); err != nil {
		return nil, fmt.Errorf("shifting stamps: %w", err)
	}
	shifted, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("shifting stamps: %w", err)
	}
	return shifted, nil
}
