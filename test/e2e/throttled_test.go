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

package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// throttle answers three of ten calls of any kind with 429 while it is on, but no three of a kind in a row.
type throttle struct {
	mu               sync.Mutex
	on               bool
	random           *rand.Rand
	row              map[framework.Call]int
	calls, throttled int
}

func newThrottle(seed uint64) *throttle {
	return &throttle{random: rand.New(rand.NewPCG(seed, 0)), row: map[framework.Call]int{}}
}

func (t *throttle) turn(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.on = on
}

func (t *throttle) do(c framework.Call) framework.Fault {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.on {
		return framework.Fault{}
	}
	t.calls++
	if t.random.Float64() >= 0.3 || t.row[c] == 2 {
		t.row[c] = 0
		return framework.Fault{}
	}
	t.row[c]++
	t.throttled++
	return framework.Fault{Code: http.StatusTooManyRequests}
}

func (t *throttle) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%d/%d", t.throttled, t.calls)
}

// An API server that is busy throttles the coordinator and its candidates, and asks them to come back in half a minute, as
// kube-apiserver's priority and fairness does at worst. No leadership is lost, and it changes hands as it should.
func TestThrottled(t *testing.T) {
	t.Parallel()
	a := newArenaOn(t, framework.New(t, framework.Options{}))
	a.allowWorkers()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	throttles := map[string]*throttle{}
	for i, name := range []string{"coordinator", "n37", "n36"} {
		throttles[name] = newThrottle(seed + uint64(i))
	}
	proxy, err := framework.StartProxy(a.node, throttles["coordinator"].do)
	a.must(err)
	t.Cleanup(proxy.Close)
	c := startCoordinators(t, a.ctx, proxy.Node(), 1)[0]
	n37, _ := a.behind(throttles["n37"].do, "n37", "1.37")
	a.waitLeader("n37", patience)
	token := a.token()

	a.rec.Mark("throttled")
	for _, each := range throttles {
		each.turn(true)
	}
	a.observe(2 * leaseDuration)
	a.undisturbed(n37, token)
	n36, _ := a.behind(throttles["n36"].do, "n36", "1.36")
	a.waitLeader("n36", failover)
	t.Logf("planned: gap %s", a.handedOff("n36").Leaderless.Round(time.Millisecond))
	token = a.token()
	a.observe(leaseDuration)
	a.undisturbed(n36, token)
	a.must(n36.Terminate(a.ctx))
	a.waitLeader("n37", failover)
	t.Logf("exit: gap %s", a.handedOff("n37").Leaderless.Round(time.Millisecond))
	t.Logf("throttled calls: %v", throttles)

	if at := activations(t, c); len(at) != 1 {
		t.Errorf("the coordinator became active %d times: %v", len(at), at)
	}
	if active, _, err := c.Metric(a.ctx, "coordinated_leader_election_active", nil); err != nil || active != 1 {
		t.Errorf("active %v, %v", active, err)
	}
	if terms := a.leaders(); len(terms) != 3 {
		t.Errorf("leaders %v", terms)
	}
	for _, each := range throttles {
		each.turn(false)
	}
	a.must(c.WaitReady(a.ctx))
	a.paired(n37, n36)
	a.safe()
	a.alternated(n37, n36)
}
