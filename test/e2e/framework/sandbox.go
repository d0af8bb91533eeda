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

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// sandbox is the one directory in which everything of this operating system
// process lives, and the reaper that removes it should this process not.
type sandbox struct {
	dir string
	// reaper's standard input: it acts when the last writer is gone, that is
	// when this process ends, however it ends.
	reaper io.WriteCloser
}

// reaperScript waits for the end of its standard input, kills what is still
// listed as running, and removes the sandbox. Processes may take a moment to
// die and write files while they do, hence the attempts.
const reaperScript = `
trap '' INT TERM HUP
while read -r _; do :; done
for f in "$0"/pids/*; do
	[ -e "$f" ] && kill -KILL "${f##*/}" 2>/dev/null
done
i=0
while [ -e "$0" ] && [ $i -lt 50 ]; do
	rm -rf "$0" 2>/dev/null
	[ -e "$0" ] && sleep 0.1
	i=$((i + 1))
done
`

var theSandbox = sync.OnceValues(newSandbox)

func newSandbox() (*sandbox, error) {
	dir, err := os.MkdirTemp("", "lease-coordinator-")
	if err != nil {
		return nil, fmt.Errorf("making a working directory: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "pids"), 0o755); err != nil {
		return nil, fmt.Errorf("making a working directory: %w", err)
	}
	cmd := exec.Command("/bin/sh", "-c", reaperScript, dir)
	cmd.Dir = "/"
	// Standard output and error stay closed: whoever waits for ours to be
	// closed, such as "go test", must not wait for the reaper.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the reaper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the reaper: %w", err)
	}
	return &sandbox{dir: dir, reaper: stdin}, nil
}

func (s *sandbox) pidFile(pid int) string {
	return filepath.Join(s.dir, "pids", strconv.Itoa(pid))
}

func (s *sandbox) noteStarted(pid int) { _ = os.WriteFile(s.pidFile(pid), nil, 0o644) }
func (s *sandbox) noteExited(pid int)  { _ = os.Remove(s.pidFile(pid)) }

// ports hands out loopback ports below the range the kernel takes the local
// ends of outgoing connections from: a kube-apiserver that is restarted must
// find its port free, although hundreds of connections come and go meanwhile.
type ports struct {
	mu    sync.Mutex
	taken map[int]bool
}

var thePorts = &ports{taken: map[int]bool{}}

const portsFrom, portsTo = 20000, 32000

func (p *ports) take() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 1000 {
		// Random, so that test binaries that run at once seldom meet; a bind
		// failure that happens all the same is answered by another attempt.
		port := portsFrom + rand.IntN(portsTo-portsFrom)
		if p.taken[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return 0, fmt.Errorf("releasing a probed port: %w", err)
		}
		p.taken[port] = true
		return port, nil
	}
	return 0, errors.New("finding a free loopback port: none in 1000 attempts")
}

const loopback = "127.0.0.1"

// pollInterval is how often conditions are looked at.
const pollInterval = 20 * time.Millisecond

// Pause lets that much time pass, or less if ctx ends, whose error it returns then.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// WaitFor waits until cond says yes or returns an error, or ctx ends. An error
// of WaitFor says what was waited for.
func WaitFor(ctx context.Context, what string, cond func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, cond); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}
