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

// Command compatibility reads what go test -json prints, prints what go test -v would have, and writes the page that the
// tests' facts make, or with -check compares it to the one that is there:
//
//	go test -json ./test/e2e | go run ./hack/compatibility [-check] docs/compatibility.md
//
// It exits with 1 if a test failed, or the page is another one.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/lease-coordinator/coordinator/test/e2e/compatibility"
)

func main() {
	check := flag.Bool("check", false, "compare the page, and do not write it")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: go test -json ... | compatibility [-check] FILE")
		os.Exit(2)
	}
	if err := run(os.Stdin, os.Stdout, flag.Arg(0), *check); err != nil {
		fmt.Fprintln(os.Stderr, "compatibility:", err)
		os.Exit(1)
	}
}

func run(stream io.Reader, text io.Writer, file string, check bool) error {
	told, failed, err := compatibility.Read(stream, text)
	switch {
	case err != nil:
		return err
	case len(failed) > 0:
		return fmt.Errorf("%s not compared with the tests, since some failed: %s", file, strings.Join(failed, ", "))
	case len(told) == 0:
		return errors.New("no test told anything")
	}
	page, err := compatibility.Page(told)
	if err != nil {
		return err
	}
	if !check {
		return os.WriteFile(file, []byte(page), 0o644)
	}
	there, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if string(there) == page {
		return nil
	}
	return fmt.Errorf("%s is not what the tests saw (make compatibility writes it anew):\n%s", file, differences(string(there), page))
}

// differences returns the lines that only one of the two has.
func differences(old, new string) string {
	was, is := strings.Split(old, "\n"), strings.Split(new, "\n")
	var lines []string
	for _, l := range was {
		if !slices.Contains(is, l) {
			lines = append(lines, "-"+l)
		}
	}
	for _, l := range is {
		if !slices.Contains(was, l) {
			lines = append(lines, "+"+l)
		}
	}
	return strings.Join(lines, "\n")
}
