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
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// makeTarget matches a rule's target, but not an assignment with :=.
var makeTarget = regexp.MustCompile(`(?m)^([A-Za-z0-9][A-Za-z0-9_-]*)\s*:(?:[^=]|$)`)

func checkMake(t *tree) ([]finding, error) {
	makefile, err := t.read("Makefile")
	if err != nil {
		return nil, err
	}
	help, err := output(t.root, "make", "--no-print-directory", "help")
	if err != nil {
		return nil, err
	}
	return unlisted(string(makefile), help), nil
}

// unlisted returns the targets that help does not show. One that a developer needs and cannot find there is as
// good as absent.
func unlisted(makefile, help string) []finding {
	listed := map[string]bool{}
	for line := range strings.Lines(help) {
		if words := strings.Fields(line); len(words) > 0 {
			listed[words[0]] = true
		}
	}
	var findings []finding
	for _, match := range makeTarget.FindAllStringSubmatch(makefile, -1) {
		if !listed[match[1]] {
			findings = append(findings, finding{"Makefile", fmt.Sprintf("make help does not list %q; give it a ## comment", match[1])})
		}
	}
	return slices.Compact(findings)
}

// markdownLink matches the target of [text](target).
var markdownLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func checkLinks(t *tree) ([]finding, error) {
	var findings []finding
	for _, name := range t.files {
		if path.Ext(name) != ".md" {
			continue
		}
		text, err := t.read(name)
		if err != nil {
			return nil, err
		}
		findings = append(findings, deadLinks(name, string(text), func(target string) bool {
			_, err := os.Stat(t.path(target))
			return err == nil
		})...)
	}
	return findings, nil
}

// deadLinks returns the links of a document to files that do not exist. The rest of the web is not asked.
func deadLinks(name, text string, exists func(target string) bool) []finding {
	var findings []finding
	for i, line := range strings.Split(text, "\n") {
		for _, match := range markdownLink.FindAllStringSubmatch(line, -1) {
			target, _, _ := strings.Cut(match[1], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if !exists(path.Join(path.Dir(name), target)) {
				findings = append(findings, finding{fmt.Sprintf("%s:%d", name, i+1), fmt.Sprintf("links to %s, which does not exist", target)})
			}
		}
	}
	return findings
}
