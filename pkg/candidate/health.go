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

package candidate

import (
	"context"
	"time"

	"github.com/lease-coordinator/coordinator/internal/candidacy"
)

// unhealthyAfter is how many failures in a row make a process unfit to lead: one is nothing to move leadership for.
const unhealthyAfter = 3

// watchHealth asks again and again whether the process is fit to lead.
func (l *loop) watchHealth() {
	period := l.c.config.HealthPeriod
	timer := time.NewTimer(period)
	defer timer.Stop()
	// open is the call that has not returned yet.
	var open chan error
	failures := 0
	for {
		select {
		case <-timer.C:
		case <-l.over:
			awaitHealthy(open)
			return
		}
		timer.Reset(period)
		var err error
		ctx, cancel := context.WithTimeout(l.base, period)
		if open == nil {
			open = make(chan error, 1)
			go func() { open <- l.c.config.Healthy(ctx) }()
		}
		select {
		case err = <-open:
			open = nil
		case <-ctx.Done():
			err = ctx.Err()
		}
		cancel()
		if l.base.Err() != nil {
			awaitHealthy(open)
			return
		}
		switch {
		case err == nil:
			if failures >= unhealthyAfter {
				l.log.Info("Healthy again")
				l.post(func(at candidacy.Instant) []candidacy.Effect { return l.machine.Health(true, at) })
			}
			failures = 0
		default:
			if failures++; failures == unhealthyAfter {
				l.log.Error(err, "Withdrawing, since the process is not healthy", "failures", failures)
				l.post(func(at candidacy.Instant) []candidacy.Effect { return l.machine.Health(false, at) })
			}
		}
	}
}

// patience is how long the caller's code is waited for where there is no time to wait: a call of Healthy, and the log, at
// the end.
const patience = time.Second

// awaitHealthy gives a call that is under way the time to see that its context has ended, but does not let one that hangs
// keep the process from ending.
func awaitHealthy(open <-chan error) {
	if open == nil {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-open:
	case <-timer.C:
	}
}
