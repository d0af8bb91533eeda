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
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

func checkPackages(t *tree) ([]finding, error) {
	var findings []finding
	folders := t.goFiles(func(string) bool { return true })
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		sources := map[string][]byte{}
		for _, name := range folders[folder] {
			source, err := t.read(name)
			if err != nil {
				return nil, err
			}
			sources[name] = source
		}
		found, err := anonymous(folder, sources)
		if err != nil {
			return nil, err
		}
		findings = append(findings, found...)
	}
	return findings, nil
}

// anonymous returns what keeps a reader from knowing what a package is for.
func anonymous(folder string, sources map[string][]byte) ([]finding, error) {
	var findings []finding
	documented := false
	name := path.Base(folder)
	for _, file := range slices.Sorted(maps.Keys(sources)) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, sources[file], parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		if parsed.Name.Name != "main" {
			name = strings.TrimSuffix(parsed.Name.Name, "_test")
		}
		documented = documented || hasPackageComment(parsed)
	}
	if bannedPackageNames[name] || bannedPackageNames[path.Base(folder)] {
		findings = append(findings, finding{folder, fmt.Sprintf("package %s: the name does not say what is in it", name)})
	}
	if !documented {
		findings = append(findings, finding{folder, "has no package comment that begins with \"Package " + name + "\" (or \"Command\")"})
	}
	return findings, nil
}

// hasPackageComment tells a package comment from a licence that touches the package clause.
func hasPackageComment(file *ast.File) bool {
	if file.Doc == nil {
		return false
	}
	text := file.Doc.Text()
	return strings.HasPrefix(text, "Package ") || file.Name.Name == "main" && strings.HasPrefix(text, "Command ")
}

func checkSleeps(t *tree) ([]finding, error) {
	var findings []finding
	for _, name := range t.files {
		if !isTest(name) || allowedSleeps[name] != "" {
			continue
		}
		source, err := t.read(name)
		if err != nil {
			return nil, err
		}
		found, err := sleepsIn(name, source)
		if err != nil {
			return nil, err
		}
		findings = append(findings, found...)
	}
	return findings, nil
}

func sleepsIn(name string, source []byte) ([]finding, error) {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	local := importedAs(file, "time")
	if local == "" {
		return nil, nil
	}
	var findings []finding
	ast.Inspect(file, func(node ast.Node) bool {
		selector, isSelector := node.(*ast.SelectorExpr)
		if !isSelector || selector.Sel.Name != "Sleep" {
			return true
		}
		if pkg, isIdent := selector.X.(*ast.Ident); isIdent && pkg.Name == local {
			where := fmt.Sprintf("%s:%d", name, positions.Position(node.Pos()).Line)
			findings = append(findings, finding{where, "a test that sleeps is slow, or flaky, or both"})
		}
		return true
	})
	return findings, nil
}

// importedAs returns the name by which a file knows a package, or "".
func importedAs(file *ast.File, imported string) string {
	for _, spec := range file.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err != nil || name != imported {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(imported)
	}
	return ""
}

const boilerplate = "hack/boilerplate.go.txt"

func checkLicences(t *tree) ([]finding, error) {
	header, err := t.read(boilerplate)
	if err != nil {
		return nil, err
	}
	var findings []finding
	for _, name := range t.files {
		if !needsLicence(name) {
			continue
		}
		source, err := t.read(name)
		if err != nil {
			return nil, err
		}
		if !hasLicence(source, header) {
			findings = append(findings, finding{name, "does not begin with the licence header of " + boilerplate})
		}
	}
	return findings, nil
}

// needsLicence: what people write, in languages with comments, and may copy as a file.
func needsLicence(name string) bool {
	if inTestdata(name) {
		return false
	}
	switch path.Base(name) {
	case "Makefile", "Dockerfile":
		return true
	}
	switch path.Ext(name) {
	case ".go", ".sh", ".yaml", ".yml", ".mk":
		return true
	}
	return under(name, ".ci")
}

// hasLicence compares words, so that // and # and /* */ will all do.
func hasLicence(source, header []byte) bool {
	words := func(text []byte) []byte {
		for _, mark := range []string{"//", "/*", "*/", "#"} {
			text = bytes.ReplaceAll(text, []byte(mark), []byte(" "))
		}
		return bytes.Join(bytes.Fields(text), []byte(" "))
	}
	// Little may stand before it: #!, a build constraint, the --- of a YAML document.
	start := source[:min(len(source), len(header)+200)]
	return bytes.Contains(words(start), words(header))
}
