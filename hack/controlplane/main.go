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

// Command controlplane builds the control plane that the tests, the demo and the benchmarks run on:
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler, from the modules that go.mod
// beside it pins. What is built already is not built again.
//
//	go run -C hack/controlplane . build          # build what is missing, print the folder
//	go run -C hack/controlplane . build -o json  # the same, print the path of every binary
//	go run -C hack/controlplane . path           # build nothing, only print
//
// Standard output carries the result alone; progress and errors go to standard error. README.md
// describes the environment variables and how to move to another version.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const usage = `Usage: go run -C hack/controlplane . [build|path] [-o dir|json]

  build   build the binaries that are missing, then print where they are (default)
  path    print where they are, or would be; build nothing

Flags, after the command:
  -o dir    print the folder that holds the four binaries (default)
  -o json   print one JSON object: the path of each binary, and the versions

Environment:
  LEASE_COORDINATOR_CACHE   folder to keep the binaries in, instead of the user's cache folder
  KUBEBUILDER_ASSETS        folder with etcd and kube-apiserver to use instead of building these two
`

// errUsage marks a command line that could not be understood.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(ctx)
	go cancelWithoutParent(ctx, cancel)

	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	interrupted := context.Cause(ctx) != nil
	stop()
	cancel(nil)
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage)
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "controlplane: %v\n\n%s", err, usage)
		os.Exit(2)
	case interrupted:
		fmt.Fprintln(os.Stderr, "controlplane: interrupted; the next build goes on from here")
		os.Exit(130)
	default:
		fmt.Fprintf(os.Stderr, "controlplane: %v\n", err)
		os.Exit(1)
	}
}

// run is main without the process around it.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) error {
	command := "build"
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the usage, once.
	output := flags.String("o", "dir", "")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	switch {
	case command != "build" && command != "path":
		return fmt.Errorf("%w: unknown command %q", errUsage, command)
	case flags.NArg() > 0:
		return fmt.Errorf("%w: unexpected argument %q", errUsage, flags.Arg(0))
	case *output != "dir" && *output != "json":
		return fmt.Errorf("%w: -o %q is neither dir nor json", errUsage, *output)
	}

	goCommand, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("the go command is needed: %w", err)
	}
	recipe, err := readRecipe(ctx, goCommand)
	if err != nil {
		return err
	}
	root, err := cacheRoot(getenv)
	if err != nil {
		return err
	}
	plane := newPlane(recipe, root)
	if assets := getenv("KUBEBUILDER_ASSETS"); assets != "" {
		if err := plane.useAssets(assets); err != nil {
			return err
		}
	}

	if command == "build" {
		b := builder{plane: plane, report: newReporter(stderr), compile: recipe.compile}
		if err := b.build(ctx); err != nil {
			return err
		}
		if err := plane.link(); err != nil {
			return err
		}
	} else if missing := plane.missing(); len(missing) > 0 {
		fmt.Fprintf(stderr, "controlplane: not built yet: %s\n", names(missing))
	}
	return plane.print(stdout, *output)
}

// cacheRoot is the folder under which every version of the control plane has a folder of its own.
func cacheRoot(getenv func(string) string) (string, error) {
	const variable = "LEASE_COORDINATOR_CACHE"
	if dir := getenv(variable); dir != "" {
		// Our working directory is this module's, not the caller's, so a relative path would
		// not mean what its author thinks.
		if !filepath.IsAbs(dir) {
			return "", fmt.Errorf("%s=%q must be an absolute path", variable, dir)
		}
		return filepath.Join(dir, "controlplane"), nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's cache folder: %w; set %s to a folder to use", err, variable)
	}
	return filepath.Join(dir, "lease-coordinator", "controlplane"), nil
}

// print writes the result for scripts.
func (p *plane) print(w io.Writer, format string) error {
	if format == "dir" {
		_, err := fmt.Fprintln(w, p.dir())
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(p.result())
}

// cancelWithoutParent cancels when the parent process goes away: `go run` does not pass SIGTERM on to
// the program it runs, and nobody wants a compiler to go on for minutes after the caller was stopped.
func cancelWithoutParent(ctx context.Context, cancel context.CancelCauseFunc) {
	parent := os.Getppid()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if os.Getppid() != parent {
				cancel(errors.New("the parent process is gone"))
				return
			}
		}
	}
}
