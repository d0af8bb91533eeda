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
	"sync"
	"time"
)

// cutOff notices, of the requests to the API server, what an API server that starts again does to them: a watch that is begun
// anew before its time was over, and a request that gets no answer. client-go tells of neither. What starts again may have
// other features.
type cutOff struct {
	next    http.RoundTripper
	noticed func()

	mu sync.Mutex
	// until is when each watch is to end by itself.
	until map[string]time.Time
}

func newCutOff(next http.RoundTripper, noticed func()) *cutOff {
	return &cutOff{next: next, noticed: noticed, until: map[string]time.Time{}}
}

// RoundTrip implements http.RoundTripper.
func (c *cutOff) RoundTrip(r *http.Request) (*http.Response, error) {
	if query := r.URL.Query(); query.Has("watch") {
		seconds, err := strconv.Atoi(query.Get("timeoutSeconds"))
		if err == nil && c.begins(r.URL.Path+"?"+query.Get("fieldSelector"), time.Duration(seconds)*time.Second) {
			c.noticed()
		}
	}
	response, err := c.next.RoundTrip(r)
	if err != nil && r.Context().Err() == nil {
		c.noticed()
	}
	return response, err
}

// begins reports whether a watch that now begins was to last longer the last time.
func (c *cutOff) begins(watch string, lasts time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	early := now.Before(c.until[watch])
	c.until[watch] = now.Add(lasts)
	return early
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (c *cutOff) WrappedRoundTripper() http.RoundTripper { return c.next }
