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

package doctor

import (
	"net/http"
	"sync"
	"time"
)

// serverClock learns an API server's time from its responses. Each is stamped in whole seconds at some time between the
// request and its arrival, so that each bounds by how much the server's clock is ahead of ours.
type serverClock struct {
	mu              sync.Mutex
	atLeast, atMost time.Duration
	heard           bool
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c *serverClock) listen(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		sent := time.Now()
		response, err := next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			c.hear(sent, date, time.Now())
		}
		return response, nil
	})
}

// hear takes the stamp of a response. The server's clock showed that, or up to a second more.
func (c *serverClock) hear(sent, date, arrived time.Time) {
	atLeast, atMost := date.Sub(arrived), date.Add(time.Second).Sub(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.heard {
		c.heard, c.atLeast, c.atMost = true, atLeast, atMost
	}
	c.atLeast, c.atMost = max(c.atLeast, atLeast), min(c.atMost, atMost)
}

// difference returns by how much the server's clock is surely ahead of ours, or behind; 0 if they may agree.
func (c *serverClock) difference() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.atLeast > 0:
		return c.atLeast
	case c.atMost < 0:
		return c.atMost
	}
	return 0
}

func (c *serverClock) now() time.Time { return time.Now().Add(c.difference()) }
