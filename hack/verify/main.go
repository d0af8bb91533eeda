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

// Command verify checks by machine what the design asks of this repository and no compiler knows. It only
// reads. The rules are tables in rules.go.
//
//	go run ./hack/verify            # every check
//	go run ./hack/verify imports    # one
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// check is one thing that is looked at.
type check struct {
	name  string
	about string
	run   func(*tree) ([]finding, error)
}

// finding is a rule that was broken, and where. An error of a check is something else: it could not look.
type finding struct {
	where string // file, file:line or folder
	what  string
}

func (f finding) String() string { return f.where + ": " + f.what }

var checks = []check{
	{"imports", "packages import what their place in the house allows", checkImports},
	{"purity", "pure packages own no client, clock, random source or goroutine", checkPurity},
	{"packages", "every package says what it is for, and has a telling name", checkPackages},
	{"sleeps", "no test waits by sleeping", checkSleeps},
	{"licences", "every source file carries the licence header", checkLicences},
	{"manifests", "config/ renders, and is what an API server takes", checkManifests},
	{"make", "make help lists every target", checkMake},
	{"links", "links between documents lead somewhere", checkLinks},
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "verify: %v\n", err)
		os.Exit(1)
	}
}

func run(wanted []string) error {
	for _, name := range wanted {
		if !slices.ContainsFunc(checks, func(c check) bool { return c.name == name }) {
			return fmt.Errorf("there is no check %q", name)
		}
	}
	t, err := openTree(".")
	if err != nil {
		return err
	}
	broken := 0
	for _, c := range checks {
		if len(wanted) > 0 && !slices.Contains(wanted, c.name) {
			continue
		}
		started := time.Now()
		findings, err := c.run(t)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		verdict := "ok  "
		if len(findings) > 0 {
			verdict = "FAIL"
		}
		fmt.Printf("%s  %-10s %s (%s)\n", verdict, c.name, c.about, time.Since(started).Round(10*time.Millisecond))
		for _, f := range findings {
			fmt.Printf("        %s\n", f)
		}
		broken += len(findings)
	}
	if broken > 0 {
		return fmt.Errorf("found %d things to put right", broken)
	}
	return nil
}

// tree is the repository's files: those that are tracked or could be, not what builds leave behind.
type tree struct {
	root  string
	files []string // relative to root, with slashes, sorted
}

// modulePath is this module's.
const modulePath = "github.com/lease-coordinator/coordinator"

func openTree(dir string) (*tree, error) {
	root, err := output(dir, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	t := &tree{root: strings.TrimSpace(root)}
	list, err := output(t.root, "git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		// A file that is tracked but deleted is still listed.
		if info, err := os.Lstat(t.path(name)); err == nil && info.Mode().IsRegular() {
			t.files = append(t.files, name)
		}
	}
	slices.Sort(t.files)
	t.files = slices.Compact(t.files)
	return t, nil
}

func (t *tree) path(name string) string { return filepath.Join(t.root, filepath.FromSlash(name)) }

func (t *tree) read(name string) ([]byte, error) { return os.ReadFile(t.path(name)) }

// goFiles returns this module's Go files for which want is true, by folder, without testdata, which the go
// command does not see either.
func (t *tree) goFiles(want func(name string) bool) map[string][]string {
	byFolder := map[string][]string{}
	for _, name := range t.files {
		if path.Ext(name) == ".go" && !inOwnModule(name) && !inTestdata(name) && want(name) {
			byFolder[path.Dir(name)] = append(byFolder[path.Dir(name)], name)
		}
	}
	return byFolder
}

func inOwnModule(name string) bool {
	return slices.ContainsFunc(ownModules, func(folder string) bool { return under(name, folder) })
}

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

func inTestdata(name string) bool { return slices.Contains(strings.Split(name, "/"), "testdata") }

// under tells whether a path is a folder or lies below it.
func under(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}

func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return "", fmt.Errorf("%s: %w", cmd, err)
	}
	return string(out), nil
}
