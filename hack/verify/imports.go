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
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
)

func checkImports(t *tree) ([]finding, error) {
	var findings []finding
	folders := t.goFiles(func(name string) bool { return !isTest(name) })
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		rule := ruleOf(importRules, folder)
		if rule == nil {
			findings = append(findings, finding{folder, "has no import rule; give it one in hack/verify/rules.go"})
			continue
		}
		for _, name := range folders[folder] {
			source, err := t.read(name)
			if err != nil {
				return nil, err
			}
			found, err := importsAgainst(*rule, folder, name, source)
			if err != nil {
				return nil, err
			}
			findings = append(findings, found...)
		}
	}
	return findings, nil
}

// ruleOf returns the rule with the longest path that covers the folder, or nil.
func ruleOf(rules []importRule, folder string) *importRule {
	var best *importRule
	for i, rule := range rules {
		if under(folder, rule.of) && (best == nil || len(rule.of) > len(best.of)) {
			best = &rules[i]
		}
	}
	return best
}

// importsAgainst returns the imports of one file that its folder's rules do not allow.
func importsAgainst(rule importRule, folder, name string, source []byte) ([]finding, error) {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, name, source, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var findings []finding
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		where := fmt.Sprintf("%s:%d", name, positions.Position(spec.Pos()).Line)
		if own, found := strings.CutPrefix(imported, modulePath+"/"); found {
			if !allowed(rule, own) {
				findings = append(findings, finding{where, fmt.Sprintf("%s may not import %s: %s", folder, own, rule.why)})
			}
			continue
		}
		if modules, restricted := otherModules[folder]; restricted && !fromOneOf(modules, imported) {
			findings = append(findings, finding{where, fmt.Sprintf("%s may not import %s, but only %s",
				folder, imported, strings.Join(modules, " and "))})
		}
		if why := impure(imported); isPure(folder) && why != "" {
			findings = append(findings, finding{where, fmt.Sprintf("%s is pure and may not import %s: %s", folder, imported, why)})
		}
	}
	return findings, nil
}

func allowed(rule importRule, own string) bool {
	return under(own, rule.of) || slices.ContainsFunc(rule.may, func(folder string) bool { return under(own, folder) })
}

// fromOneOf reports whether a package is of one of the modules, or of the standard library.
func fromOneOf(modules []string, imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".") || slices.ContainsFunc(modules, func(module string) bool { return under(imported, module) })
}

func isPure(folder string) bool {
	return slices.ContainsFunc(purePackages, func(pure string) bool { return under(folder, pure) })
}

// impure returns why a pure package may not import a package, or "".
func impure(imported string) string {
	for _, banned := range slices.Sorted(maps.Keys(impureImports)) {
		if under(imported, banned) {
			return impureImports[banned]
		}
	}
	return ""
}
