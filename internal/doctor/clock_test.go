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
	"testing"
	"time"
)

func TestServerClock(t *testing.T) {
	at := func(milliseconds int) time.Time {
		return now.Truncate(time.Second).Add(time.Duration(milliseconds) * time.Millisecond)
	}
	type response struct{ sent, date, arrived int }
	for name, test := range map[string]struct {
		responses []response
		want      time.Duration
	}{
		"nothing heard":             {nil, 0},
		"they agree":                {[]response{{100, 0, 200}, {900, 0, 1100}}, 0},
		"a slow response":           {[]response{{100, 0, 5200}}, 0},
		"a stamp of the end":        {[]response{{100, 5000, 5200}}, 0},
		"a quick one tells more":    {[]response{{100, 0, 5200}, {6000, 10000, 6100}}, 3900 * time.Millisecond},
		"the server is behind":      {[]response{{10100, 5000, 10200}}, -4100 * time.Millisecond},
		"behind, as a later tells":  {[]response{{10100, 5000, 10200}, {10500, 5000, 10600}}, -4500 * time.Millisecond},
		"by no more than its stamp": {[]response{{1000, 0, 1100}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var c serverClock
			for _, r := range test.responses {
				c.hear(at(r.sent), at(r.date), at(r.arrived))
			}
			if got := c.difference(); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}
