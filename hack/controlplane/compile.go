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
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tailLines is how much of a failed compiler's output is worth showing.
const tailLines = 25

// compile builds one component with the go command and checks that it says the version it should.
func (r recipe) compile(ctx context.Context, c component, out string, log *compileLog) error {
	args, err := r.buildArgs(c, out)
	if err != nil {
		return err
	}
	if err := r.execute(ctx, log, r.goCommand, args...); err != nil {
		return err
	}
	said, err := exec.CommandContext(ctx, out, "--version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("  %s --version: %w\n%s", out, err, indent(string(said)))
	}
	if want := r.stampOf(c); !strings.Contains(string(said), want) {
		return fmt.Errorf("  it was built, but its --version lacks %q; it says:\n%s", want, indent(string(said)))
	}
	return nil
}

// execute runs a command in this module and, when it fails, says which one it was and how it ended.
func (r recipe) execute(ctx context.Context, log *compileLog, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.moduleDir
	cmd.Env = append(os.Environ(), r.buildEnv()...)
	cmd.Stdout, cmd.Stderr = log, log
	// The go command leaves its compilers running when it is killed, so the whole group is stopped.
	// A group of its own also keeps Ctrl-C from reaching it before us.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if err == nil {
		return nil
	}
	line := strings.Join(r.buildEnv(), " ") + " " + quoted(append([]string{name}, args...))
	return fmt.Errorf("  command: (cd %s && %s)\n  ended:   %w\n  output:\n%s",
		quote(r.moduleDir), line, err, indent(log.tail()))
}

// compileLog reads what `go build -v` writes: it counts the packages, and keeps the end of the rest.
type compileLog struct {
	mu       sync.Mutex
	partial  string
	packages int
	fetching string
	lines    []string
}

func (l *compileLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.partial + string(p)
	for {
		line, rest, found := strings.Cut(text, "\n")
		if !found {
			l.partial = text
			return len(p), nil
		}
		l.take(line)
		text = rest
	}
}

func (l *compileLog) take(line string) {
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		l.fetching = strings.TrimPrefix(line, "go: downloading ")
	case isPackage(line):
		l.packages++
		l.fetching = ""
	case strings.TrimSpace(line) != "":
		l.lines = append(l.lines, line)
		if len(l.lines) > tailLines {
			l.lines = l.lines[1:]
		}
	}
}

// isPackage tells the lines that -v adds, bare import paths, from what a compiler has to say.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " \t:()") && !strings.HasPrefix(line, "#")
}

func (l *compileLog) state() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.fetching != "":
		return "downloading " + l.fetching
	case l.packages == 0:
		return "compiling and linking"
	default:
		return fmt.Sprintf("%d packages compiled", l.packages)
	}
}

func (l *compileLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	if l.partial != "" {
		lines = append(lines[:len(lines):len(lines)], l.partial)
	}
	if len(lines) == 0 {
		return "(nothing)"
	}
	return strings.Join(lines, "\n")
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

func quoted(words []string) string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = quote(word)
	}
	return strings.Join(all, " ")
}

// quote makes a word safe to paste into a shell.
func quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:@%+,", r)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
