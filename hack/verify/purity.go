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
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func checkPurity(t *tree) ([]finding, error) {
	folders := t.goFiles(func(name string) bool { return !isTest(name) && isPure(name) })
	if len(folders) == 0 {
		return nil, nil
	}
	var packages []string
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		packages = append(packages, "./"+folder)
	}
	exports, err := exportsOf(t.root, packages...)
	if err != nil {
		return nil, err
	}
	var findings []finding
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		sources := map[string][]byte{}
		for _, name := range folders[folder] {
			if sources[name], err = t.read(name); err != nil {
				return nil, err
			}
		}
		found, err := impurities(folder, sources, exports)
		if err != nil {
			return nil, err
		}
		findings = append(findings, found...)
	}
	return findings, nil
}

// exportsOf returns, for each of the packages and whatever they import, the file with its types. The go command
// writes them as it builds.
func exportsOf(root string, packages ...string) (map[string]string, error) {
	list, err := output(root, "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, packages...)...)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for line := range strings.Lines(list) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[name] = file
	}
	return exports, nil
}

// impurities type-checks one package and returns what a pure one may not contain. Types are needed to tell a
// map from a slice, and package time from a variable of that name.
func impurities(folder string, sources map[string][]byte, exports map[string]string) ([]finding, error) {
	positions := token.NewFileSet()
	var files []*ast.File
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		file, err := parser.ParseFile(positions, name, sources[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(positions, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(exports[path])
	})}
	if _, err := config.Check(modulePath+"/"+folder, positions, files, info); err != nil {
		return nil, err
	}
	p := &purity{positions: positions, info: info}
	for _, file := range files {
		p.inspect(file)
	}
	return p.findings, nil
}

// purity collects the findings of one package.
type purity struct {
	positions *token.FileSet
	info      *types.Info
	excused   map[int]bool      // lines of the file that bear the mark, and those below them
	sorted    map[ast.Expr]bool // iterators that are put in order where they are made
	findings  []finding
}

func (p *purity) inspect(file *ast.File) {
	p.excused, p.sorted = map[int]bool{}, map[ast.Expr]bool{}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if reason, found := strings.CutPrefix(comment.Text, orderedMark); found && strings.TrimSpace(reason) != "" {
				line := p.positions.Position(comment.End()).Line
				p.excused[line], p.excused[line+1] = true, true
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.GoStmt:
			p.report(node, "starts a goroutine")
		case *ast.SelectStmt:
			p.report(node, "waits in a select")
		case *ast.RangeStmt:
			if _, isMap := p.info.TypeOf(node.X).Underlying().(*types.Map); isMap {
				p.reportUnordered(node, "ranges over a map")
			}
		case *ast.CallExpr:
			p.call(node)
		case *ast.Ident:
			// An identifier rather than a call: handing time.Now on as a value is no better.
			if f := p.function(node); f != nil && f.Pkg().Path() == "time" && clockCalls[f.Name()] {
				p.report(node, "uses time."+f.Name()+"; the clock is an argument")
			}
		}
		return true
	})
}

// call looks for iterators over maps. slices.Sorted(maps.Keys(m)) and its like are the way to have them; the
// outer call is seen before the inner one.
func (p *purity) call(call *ast.CallExpr) {
	f := p.function(call.Fun)
	if f == nil {
		return
	}
	switch f.Pkg().Path() + "." + f.Name() {
	case "slices.Sorted", "slices.SortedFunc", "slices.SortedStableFunc":
		p.sorted[ast.Unparen(call.Args[0])] = true
	case "maps.All", "maps.Keys", "maps.Values":
		if !p.sorted[call] {
			p.reportUnordered(call, "calls maps."+f.Name())
		}
	}
}

// function returns the package-level function of another package that an expression names, or nil.
func (p *purity) function(expr ast.Expr) *types.Func {
	switch e := ast.Unparen(expr).(type) {
	case *ast.Ident:
		f, isFunc := p.info.Uses[e].(*types.Func)
		if !isFunc || f.Pkg() == nil || f.Signature().Recv() != nil {
			return nil
		}
		return f
	case *ast.SelectorExpr:
		return p.function(e.Sel)
	case *ast.IndexExpr: // type arguments
		return p.function(e.X)
	case *ast.IndexListExpr:
		return p.function(e.X)
	}
	return nil
}

func (p *purity) report(node ast.Node, what string) {
	position := p.positions.Position(node.Pos())
	p.findings = append(p.findings, finding{fmt.Sprintf("%s:%d", position.Filename, position.Line), "pure code " + what})
}

func (p *purity) reportUnordered(node ast.Node, what string) {
	if !p.excused[p.positions.Position(node.Pos()).Line] {
		p.report(node, what+", in no particular order; sort first, or say after "+orderedMark+" why it cannot be seen")
	}
}
