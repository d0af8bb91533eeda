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

// Package cel turns what operators write in their configuration file into strategies: expressions in the Common
// Expression Language, in Kubernetes' own environment, over the variables candidate and lease. Everything that can be
// wrong with an expression apart from the values that it meets is found when it is compiled. It does not read the file.
package cel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubecel "k8s.io/apiserver/pkg/cel"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// Definition is a strategy as the configuration file states it.
type Definition struct {
	// Name is a domain that is not ours or Kubernetes', a slash and a name.
	Name string
	// Eligible is an expression that is true for candidates that may lead; "" if all may.
	Eligible string
	// Prefer are the expressions that candidates are ranked by, the most important first. The smaller value is better.
	Prefer []string
}

// Compile compiles a definition. Path is the definition's place in the file, such as customStrategies[2]. It reports
// every fault, joined, each as a *field.Error.
func Compile(d Definition, path *field.Path) (strategy.Strategy, error) {
	env, err := newEnvironment()
	if err != nil {
		return nil, fmt.Errorf("building the environment of expressions: %w", err)
	}
	faults := validateName(d.Name, path.Child("name"))
	c := compiler{env: env, strategy: display(d.Name, len(faults) == 0)}
	s := &custom{name: coordinationv1.CoordinatedLeaseStrategy(d.Name)}
	if d.Eligible != "" {
		s.eligible = c.compile(d.Eligible, path.Child("eligible"), "eligible", checkEligible)
	}
	for i, text := range d.Prefer {
		place := fmt.Sprintf("prefer[%d]", i)
		s.prefer = append(s.prefer, c.compile(text, path.Child("prefer").Index(i), place, checkPrefer))
	}
	if d.Eligible == "" && len(d.Prefer) == 0 {
		c.faults = append(c.faults, field.Required(path.Child("prefer"),
			c.strategy+"must have at least one expression unless eligible is set: it would neither choose nor rank"))
	}
	faults = append(faults, c.faults...)
	if len(faults) > 0 {
		errs := make([]error, len(faults))
		for i, fault := range faults {
			errs[i] = fault
		}
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// reservedDomains are those in which others define the strategies, with what is below them.
var reservedDomains = []string{v1alpha1.Group, "kubernetes.io", "k8s.io"}

// validateName checks what a Lease admits as spec.strategy, apart from the names that are not the operator's to give.
func validateName(name string, path *field.Path) field.ErrorList {
	const want = `must be a domain of yours, a "/" and a name, such as "example.com/Nearest"`
	switch domain, _, qualified := strings.Cut(name, "/"); {
	case name == "":
		return field.ErrorList{field.Required(path, want)}
	case name == string(coordinationv1.OldestEmulationVersion):
		return field.ErrorList{field.Invalid(path, name, "is Kubernetes' own strategy: "+want)}
	case !qualified:
		return field.ErrorList{field.Invalid(path, name, want)}
	default:
		for _, reserved := range reservedDomains {
			if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
				return field.ErrorList{field.Invalid(path, name, fmt.Sprintf("domain %q is reserved: %s", reserved, want))}
			}
		}
	}
	var faults field.ErrorList
	for _, problem := range validation.IsQualifiedName(name) {
		faults = append(faults, field.Invalid(path, name, problem))
	}
	return faults
}

// display returns how faults begin that are not the name's.
func display(name string, valid bool) string {
	switch {
	case name == "":
		return ""
	case !valid:
		return fmt.Sprintf("strategy %q: ", name)
	}
	return "strategy " + name + ": "
}

// compiler compiles the expressions of one definition and collects their faults.
type compiler struct {
	env      *celgo.Env
	strategy string // what faults begin with
	faults   field.ErrorList
}

// compile returns nil if the expression is at fault. Place is its field in the definition; check says what is wrong
// with the expression's type, if anything is.
func (c *compiler) compile(text string, path *field.Path, place string, check func(*celgo.Type) string) *expression {
	if strings.TrimSpace(text) == "" {
		c.faults = append(c.faults, field.Required(path, c.strategy+"must be an expression"))
		return nil
	}
	ast, issues := c.env.Compile(text)
	if issues.Err() != nil {
		c.report(text, path, issues.Errors())
		return nil
	}
	if faults := unordered(ast.NativeRep()); len(faults) > 0 {
		c.report(text, path, faults)
		return nil
	}
	if problem := check(ast.OutputType()); problem != "" {
		c.faults = append(c.faults, field.Invalid(path, text, c.strategy+problem))
		return nil
	}
	program, err := c.env.Program(ast)
	if err != nil {
		c.faults = append(c.faults, field.Invalid(path, text, c.strategy+err.Error()))
		return nil
	}
	return newExpression(text, place, ast.OutputType(), program)
}

// report adds a fault for each issue, in the order of the text.
func (c *compiler) report(text string, path *field.Path, issues []*common.Error) {
	slices.SortStableFunc(issues, func(a, b *common.Error) int {
		if d := a.Location.Line() - b.Location.Line(); d != 0 {
			return d
		}
		return a.Location.Column() - b.Location.Column()
	})
	for _, issue := range issues {
		c.faults = append(c.faults, field.Invalid(path, text, c.strategy+describe(text, issue)))
	}
}

// describe returns "line:column: message" and the line with a mark below the column, as cel-go shows them.
func describe(text string, issue *common.Error) string {
	// The container is where cel-go looks names up. Here there is one, without a name.
	e := *issue
	e.Message = strings.TrimSuffix(e.Message, " (in container '')")
	if e.Location.Line() <= 0 {
		return e.Message
	}
	return strings.TrimPrefix(e.ToDisplayString(common.NewTextSource(text)), "ERROR: <input>:")
}

// checkEligible returns what is wrong with the type of eligible.
func checkEligible(t *celgo.Type) string {
	if t.IsExactType(celgo.BoolType) {
		return ""
	}
	return fmt.Sprintf("is of type %s: must be bool", t)
}

// rankable are the types that candidates can be ranked by. Each has a total order but for NaN.
var rankable = []*celgo.Type{
	celgo.IntType, celgo.UintType, celgo.DoubleType, celgo.StringType, celgo.TimestampType, celgo.DurationType, kubecel.SemverType,
}

// checkPrefer returns what is wrong with the type of an entry of prefer.
func checkPrefer(t *celgo.Type) string {
	if slices.ContainsFunc(rankable, t.IsExactType) {
		return ""
	}
	if t.IsExactType(celgo.BoolType) {
		return "is of type bool, which would rank false before true and so reads the wrong way round: write `cond ? 0 : 1`"
	}
	return fmt.Sprintf("is of type %s: must be int, uint, double, string, timestamp, duration or semver", t)
}
