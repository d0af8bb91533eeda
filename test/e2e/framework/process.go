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
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stopGrace is how long a process may take to end after TERM before it is
	// killed. kube-apiserver would linger for a minute if its etcd is gone.
	stopGrace = 5 * time.Second
	// A kubelet waits 10 s before the second restart; tests have less time.
	restartBackoffMin = 200 * time.Millisecond
	restartBackoffMax = 5 * time.Second
	// restartBackoffReset forgets earlier exits of a process that ran this long.
	restartBackoffReset = 10 * time.Second
	// drainLimit bounds the wait for the rest of the output of an exited
	// process, in case something inherited its pipe.
	drainLimit = 2 * time.Second
	// logRule begins the lines in logs that are not the process's own.
	logRule = "==== "
)

// Process is a supervised operating system process. All methods may be called
// at any time and from any goroutine.
//
// It runs in its own process group, so that Ctrl-C in a terminal reaches only
// the test or demo, which then stops it in order; and it is killed by the
// kernel (or, where that is not possible, by the reaper) if the test itself
// dies without having done so.
type Process struct {
	rt  *sandbox
	bus *bus

	baseName string // info.Name without its number
	path     string
	logPath  string
	env      []string
	// container, if set, is what path is looked up in, and what the environment comes from.
	container *container
	// stdout, if set, receives the lines of standard output, which then do not
	// go to the log. line receives each line of the log.
	stdout func(line string)
	line   func(info ProcessInfo, at time.Time, line string)

	mu      sync.Mutex
	info    ProcessInfo
	args    []string
	restart bool
	wanted  bool          // Stop has not been called
	quit    chan struct{} // closed by Stop
	done    chan struct{} // closed when supervision has ended
	run     *processRun
}

type processRun struct {
	info    ProcessInfo
	cmd     *exec.Cmd
	started time.Time
	frozen  bool
	exited  chan struct{} // closed when gone, its output read, the event published
	err     error         // valid once exited: nil for exit status 0
}

func (r *processRun) alive() bool {
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

// Info describes the present or last run.
func (p *Process) Info() ProcessInfo {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.info
}

// Name is unique within the cluster.
func (p *Process) Name() string { return p.Info().Name }

// LogPath is the file that all runs of this process append their output to.
func (p *Process) LogPath() string { return p.logPath }

// SetRestart says whether the process is started again when it exits by
// itself or is crashed, as a kubelet would. It does not revive a process that
// has already been left exited.
func (p *Process) SetRestart(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restart = on
}

// Running reports whether the process exists now.
func (p *Process) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run != nil && p.run.alive()
}

// gone reports whether the process has ended and will stay so.
func (p *Process) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run == nil || !p.run.alive() && !(p.wanted && p.restart)
}

// Start starts a process that is not running and supervises it.
func (p *Process) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done != nil {
		select {
		case <-p.done:
		default:
			return fmt.Errorf("starting %s: it has been started already", p.info.Name)
		}
	}
	r, err := p.spawnLocked()
	if err != nil {
		return err
	}
	p.wanted, p.quit, p.done = true, make(chan struct{}), make(chan struct{})
	go p.supervise(r, p.quit, p.done)
	return nil
}

func (p *Process) supervise(r *processRun, quit, done chan struct{}) {
	defer close(done)
	backoff := restartBackoffMin
	for {
		<-r.exited
		if time.Since(r.started) > restartBackoffReset {
			backoff = restartBackoffMin
		}
		p.mu.Lock()
		again := p.wanted && p.restart
		p.mu.Unlock()
		if !again {
			return
		}
		timer := time.NewTimer(backoff)
		select {
		case <-timer.C:
		case <-quit:
			timer.Stop()
			return
		}
		backoff = min(2*backoff, restartBackoffMax)

		p.mu.Lock()
		if !p.wanted {
			p.mu.Unlock()
			return
		}
		next, err := p.spawnLocked()
		p.mu.Unlock()
		if err != nil {
			info := p.Info()
			p.bus.publish(Event{Kind: ProcessExited, Subject: info.Name, Process: info, Detail: err.Error()})
			return
		}
		r = next
	}
}

func (p *Process) spawnLocked() (*processRun, error) {
	logFile, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", p.info.Name, err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		_ = logFile.Close()
		return nil, fmt.Errorf("making a pipe for %s: %w", p.info.Name, err)
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		_, _, _ = logFile.Close(), outR.Close(), outW.Close()
		return nil, fmt.Errorf("making a pipe for %s: %w", p.info.Name, err)
	}

	cmd := exec.Command(p.path, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Dir = filepath.Dir(p.logPath)
	// Files rather than writers: Wait then returns when the process is gone,
	// whoever else may hold the pipe.
	cmd.Stdout, cmd.Stderr = outW, errW
	cmd.SysProcAttr = sysProcAttr()
	if p.container != nil {
		p.container.enter(cmd)
	}
	started := now()
	err = spawn(cmd)
	_, _ = outW.Close(), errW.Close()
	if err != nil {
		_, _, _ = logFile.Close(), outR.Close(), errR.Close()
		return nil, fmt.Errorf("starting %s: %w", p.info.Name, err)
	}
	p.info.Run++
	p.info.PID = cmd.Process.Pid
	r := &processRun{info: p.info, cmd: cmd, started: started, exited: make(chan struct{})}
	p.run = r
	p.rt.noteStarted(cmd.Process.Pid)
	log := &lineLog{file: logFile}
	fmt.Fprintf(log, logRule+"%s run %d: %s %s\n", started.Format(time.RFC3339Nano), r.info.Run, p.path, strings.Join(p.args, " "))
	p.bus.publish(Event{
		Time: started, Kind: ProcessStarted, Subject: r.info.Name, Process: r.info,
		Detail: fmt.Sprintf("pid %d, run %d%s", r.info.PID, r.info.Run, emulationNote(r.info.Emulation)),
	})

	toLog := func(line string) {
		at := now()
		fmt.Fprintln(log, line)
		if p.line != nil {
			p.line(r.info, at, line)
		}
	}
	onOut := toLog
	if p.stdout != nil {
		onOut = p.stdout
	}
	var readers sync.WaitGroup
	readers.Go(func() { readLines(outR, onOut) })
	readers.Go(func() { readLines(errR, toLog) })
	go func() {
		err := cmd.Wait()
		at := now()
		p.rt.noteExited(r.info.PID)
		// What it printed last belongs before its exit.
		deadline := time.Now().Add(drainLimit)
		_, _ = outR.SetReadDeadline(deadline), errR.SetReadDeadline(deadline)
		readers.Wait()
		_, _ = outR.Close(), errR.Close()
		fmt.Fprintf(log, logRule+"%s run %d ended: %s\n", at.Format(time.RFC3339Nano), r.info.Run, cmd.ProcessState)
		_ = logFile.Close()
		p.bus.publish(Event{Time: at, Kind: ProcessExited, Subject: r.info.Name, Process: r.info, Detail: cmd.ProcessState.String()})
		r.err = err
		close(r.exited)
	}()
	return r, nil
}

func emulationNote(v string) string {
	if v == "" {
		return ""
	}
	return ", emulation version " + v
}

// Exited returns a channel that is closed when the present run has ended. It
// is closed already if there is none.
func (p *Process) Exited() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil {
		c := make(chan struct{})
		close(c)
		return c
	}
	return p.run.exited
}

// ExitError is nil if the last run ended with exit status 0, and otherwise
// says how it ended. It is an error to ask while it runs.
func (p *Process) ExitError() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil || p.run.alive() {
		return fmt.Errorf("%s has not exited", p.info.Name)
	}
	return p.run.err
}

// Signal sends sig to the present run. The restart policy then applies.
func (p *Process) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signalLocked(sig)
}

func (p *Process) signalLocked(sig syscall.Signal) error {
	if p.run == nil || !p.run.alive() {
		return fmt.Errorf("sending %s to %s: it is not running", sig, p.info.Name)
	}
	// os.Process knows whether it has been reaped, so a reused pid is never hit.
	if err := p.run.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("sending %s to %s: %w", sig, p.info.Name, err)
	}
	return nil
}

// Crash kills the present run, leaves the rest to the restart policy, and
// returns when that run is gone.
func (p *Process) Crash(ctx context.Context) error { return p.endRun(ctx, syscall.SIGKILL) }

// Terminate asks the present run to end, leaves the rest to the restart
// policy, and returns when that run is gone. Unlike Stop it does not escalate.
func (p *Process) Terminate(ctx context.Context) error { return p.endRun(ctx, syscall.SIGTERM) }

func (p *Process) endRun(ctx context.Context, sig syscall.Signal) error {
	p.mu.Lock()
	r := p.run
	err := p.signalLocked(sig)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-r.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s to end after %s: %w", p.Name(), sig, ctx.Err())
	}
}

// Stop ends the process for good: TERM, and KILL after a few seconds or when
// ctx ends. Stopping what does not run is no error.
func (p *Process) Stop(ctx context.Context) error { return p.stop(ctx, syscall.SIGTERM) }

// Kill ends the process for good, at once.
func (p *Process) Kill(ctx context.Context) error { return p.stop(ctx, syscall.SIGKILL) }

func (p *Process) stop(ctx context.Context, sig syscall.Signal) error {
	p.mu.Lock()
	if p.done == nil {
		p.mu.Unlock()
		return nil
	}
	if p.wanted {
		p.wanted = false
		close(p.quit)
	}
	r, done := p.run, p.done
	if r.alive() {
		// A run that ends by itself just now makes these fail; that is as good.
		_ = p.signalLocked(sig)
		if r.frozen {
			// TERM is delivered only once it is continued.
			_ = p.signalLocked(syscall.SIGCONT)
		}
	}
	p.mu.Unlock()

	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-done:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	_ = p.Signal(syscall.SIGKILL)
	// Nothing withstands KILL for long, not even with ctx at its end.
	last := time.NewTimer(stopGrace)
	defer last.Stop()
	select {
	case <-done:
		return nil
	case <-last.C:
		return fmt.Errorf("stopping %s: still there %s after KILL", p.Name(), stopGrace)
	}
}

// Freeze stops the process in its tracks (SIGSTOP), as a paused VM or a node
// short of CPU would, and returns when it no longer runs.
func (p *Process) Freeze(ctx context.Context) error {
	p.mu.Lock()
	r := p.run
	err := p.signalLocked(syscall.SIGSTOP)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	err = WaitFor(ctx, p.Name()+" to be frozen", func(context.Context) (bool, error) {
		return !r.alive() || stopped(r.info.PID), nil
	})
	if err != nil {
		return err
	}
	p.mu.Lock()
	r.frozen = true
	p.mu.Unlock()
	p.bus.publish(Event{Kind: ProcessFrozen, Subject: r.info.Name, Process: r.info})
	return nil
}

// Thaw lets a frozen process go on (SIGCONT).
func (p *Process) Thaw() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run == nil || !p.run.alive() {
		return fmt.Errorf("thawing %s: it is not running", p.info.Name)
	}
	// Before the signal: from here on it may work.
	p.bus.publish(Event{Kind: ProcessThawed, Subject: p.info.Name, Process: p.run.info})
	p.run.frozen = false
	return p.signalLocked(syscall.SIGCONT)
}

// LogTail returns the last n lines of the log, for error messages.
func (p *Process) LogTail(n int) string {
	data, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n"))
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return string(bytes.Join(lines, []byte("\n")))
}

// LogLines returns the lines that the process printed, in any of its runs, and
// that contain all of the given strings.
func (p *Process) LogLines(containing ...string) []string {
	var lines []string
line:
	for line := range strings.Lines(p.LogTail(1 << 30)) {
		if strings.HasPrefix(line, logRule) {
			continue
		}
		for _, s := range containing {
			if !strings.Contains(line, s) {
				continue line
			}
		}
		lines = append(lines, strings.TrimRight(line, "\n"))
	}
	return lines
}

// RSS is the resident memory of the present run in bytes.
func (p *Process) RSS() (int64, error) {
	if !p.Running() {
		return 0, fmt.Errorf("reading the memory use of %s: it is not running", p.Name())
	}
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Info().PID), "status"))
	if err != nil {
		return 0, fmt.Errorf("reading the memory use of %s: %w", p.Name(), err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("reading the memory use of %s: %w", p.Name(), err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("reading the memory use of %s: no VmRSS, it has ended", p.Name())
}

// CPUTime is the processor time the present run has used so far.
func (p *Process) CPUTime() (time.Duration, error) {
	if !p.Running() {
		return 0, fmt.Errorf("reading the CPU time of %s: it is not running", p.Name())
	}
	fields, err := procStat(p.Info().PID)
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of %s: %w", p.Name(), err)
	}
	// utime and stime are fields 14 and 15 of proc_pid_stat(5); fields starts at 3.
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of %s: %w", p.Name(), err)
		}
		ticks += n
	}
	const userHZ = 100 // fixed in Linux's user-space interface
	return time.Duration(ticks) * time.Second / userHZ, nil
}

// procStat returns the fields of /proc/<pid>/stat from the third, the state, on.
func procStat(pid int) ([]string, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return nil, err
	}
	// The second field is the program's name in parentheses and may contain anything.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 15 {
		return nil, errors.New("unexpected format of /proc/<pid>/stat")
	}
	return fields, nil
}

// stopped reports whether the kernel has stopped the process. Without /proc
// there is nothing to wait for: signals are delivered soon enough.
func stopped(pid int) bool {
	if runtime.GOOS != "linux" {
		return true
	}
	fields, err := procStat(pid)
	return err == nil && (fields[0] == "T" || fields[0] == "t")
}

// lineLog makes whole writes to one file from several goroutines.
type lineLog struct {
	mu   sync.Mutex
	file *os.File
}

func (l *lineLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Write(b)
}

// readLines calls fn for each line until the end of r. It never stops reading
// early: a full pipe would stall the process.
func readLines(r io.Reader, fn func(string)) {
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := br.ReadString('\n')
		if line != "" {
			fn(strings.TrimRight(line, "\r\n"))
		}
		if err != nil {
			return
		}
	}
}

var spawner struct {
	once sync.Once
	work chan func()
}

// spawn starts cmd from one operating system thread that lives as long as this
// process. The parent-death signal is tied to the *thread* that forked: with
// any other, the Go runtime might retire it and the child would be killed.
func spawn(cmd *exec.Cmd) error {
	spawner.once.Do(func() {
		spawner.work = make(chan func())
		go func() {
			runtime.LockOSThread()
			for fn := range spawner.work {
				fn()
			}
		}()
	})
	result := make(chan error)
	spawner.work <- func() { result <- cmd.Start() }
	return <-result
}
