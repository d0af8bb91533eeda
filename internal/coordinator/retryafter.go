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
	"net/http"
	"strconv"
)

// longestWait is for how many seconds an API server that is busy can have a request wait before it is sent again.
const longestWait = 1

// impatient is a transport that shortens the Retry-After of answers. client-go sends such a request again by itself after that
// time, and kube-apiserver's priority and fairness asks for up to half a minute of it: longer than any lease lasts, while the
// request is one of few, and most likely served when it comes again.
type impatient struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return response, err
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > longestWait {
		response.Header.Set("Retry-After", strconv.Itoa(longestWait))
	}
	return response, nil
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (t impatient) WrappedRoundTripper() http.RoundTripper { return t.next }
