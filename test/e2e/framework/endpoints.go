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

package framework

import "strings"

// HealthURL is where /healthz and /readyz are. /readyz/coordinating says why a
// coordinator is not ready.
func (c *Coordinator) HealthURL() string { return c.healthURL }

// MetricsURL is where its metrics are, with the scheme that --metrics-secure=true
// asks for or the default of the framework.
func (c *Coordinator) MetricsURL(secure bool) string {
	if secure {
		return strings.Replace(c.metricsURL, "http://", "https://", 1)
	}
	return c.metricsURL
}
