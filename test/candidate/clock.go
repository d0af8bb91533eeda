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
	if body, err = shiftStamps(body, s.offset); err != nil {
		return nil, err
	}
	// A RoundTripper must not modify the request.
	req = req.Clone(req.Context())
	req.Body = io.NopCloser(bytes.NewReader(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.ContentLength = int64(len(body))
	return s.next.RoundTrip(req)
}

// shiftStamps adds offset to the stamps in a Lease or LeaseCandidate in JSON
// that the writer made itself. Anything else it returns as it is.
//
// A renewTime is always the writer's own and of this moment. An acquireTime is
// so only when the lease is being acquired or released, in which case client-go
// writes one and the same time to both; otherwise it is what was read, and off
// already if it was ours. A LeaseCandidate's pingTime is the coordinator's.
func shiftStamps(body []byte, offset time.Duration) ([]byte, error) {
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
	renewed := spec["renewTime"]
	for _, field := range []string{"renewTime", "acquireTime"} {
		if !bytes.Equal(spec[field], renewed) {
			continue
		}
		var stamp metav1.MicroTime
		if err := json.Unmarshal(renewed, &stamp); err != nil {
			return nil, fmt.Errorf("shifting spec.%s: %w", field, err)
		}
		if stamp.IsZero() {
			continue
		}
		shifted, err := json.Marshal(metav1.NewMicroTime(stamp.Add(offset)))
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
