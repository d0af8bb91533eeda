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

package cel

import (
	"maps"
	"reflect"
	"slices"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// costLimit is what one evaluation of one expression may cost, in CEL's units: reading a variable or a field is one,
// a call is one or more by the length of what it goes through. It is about a millisecond, and some hundred times
// what an expression costs that ranks by a few labels. An election evaluates every expression for every candidate. A
// call is counted when it has returned, so the limit ends loops rather than one long call.
const costLimit = 10_000

// newEnvironment returns Kubernetes' environment for new expressions with the variables of a strategy. Kubernetes
// keeps the costly part of it, so that one for each definition takes a fraction of a millisecond.
func newEnvironment() (*celgo.Env, error) {
	base, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Env(environment.NewExpressions)
	if err != nil {
		return nil, err
	}
	return base.Extend(
		celgo.Variable(candidateVariable, candidateType.typ),
		celgo.Variable(leaseVariable, leaseType.typ),
		celgo.CustomTypeProvider(provider{base.CELTypeProvider()}),
		celgo.CustomTypeAdapter(adapter{base.CELTypeAdapter()}),
		celgo.Lib(limits{}),
	)
}

// limits is a library for what it says of programs.
type limits struct{}

func (limits) CompileOptions() []celgo.EnvOption { return nil }

func (limits) ProgramOptions() []celgo.ProgramOption {
	return []celgo.ProgramOption{celgo.CostLimit(costLimit)}
}

const (
	candidateVariable = "candidate"
	leaseVariable     = "lease"
)

// variables are what an expression sees. They read the candidate and the election only as they are asked.
type variables struct {
	candidate *strategy.Candidate
	election  *strategy.Election
	// The objects are here so that handing them out allocates nothing.
	candidateObject, leaseObject object
}

func newVariables(c *strategy.Candidate, e *strategy.Election) *variables {
	v := &variables{candidate: c, election: e}
	v.candidateObject = object{candidateType, v}
	v.leaseObject = object{leaseType, v}
	return v
}

// ResolveName implements interpreter.Activation.
func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case candidateVariable:
		return &v.candidateObject, true
	case leaseVariable:
		return &v.leaseObject, true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (v *variables) Parent() celgo.Activation { return nil }

// objectType is the type of a variable.
type objectType struct {
	typ    *types.Type
	fields map[string]objectField
}

// objectField is a field of a variable.
type objectField struct {
	typ *types.Type
	get func(*variables) any // a ref.Val, or a map[string]string
}

// Types have names that no expression can spell, so none can make an object of its own.
var (
	candidateType = &objectType{types.NewObjectType("lease-coordinator.dev/Candidate", traits.FieldTesterType|traits.IndexerType), map[string]objectField{
		"name":              {types.StringType, func(v *variables) any { return types.String(v.candidate.Name) }},
		"labels":            {stringMapType, func(v *variables) any { return v.candidate.Labels }},
		"annotations":       {stringMapType, func(v *variables) any { return v.candidate.Annotations }},
		"emulationVersion":  {types.StringType, func(v *variables) any { return types.String(canonical(&v.candidate.Emulation)) }},
		"binaryVersion":     {types.StringType, func(v *variables) any { return types.String(canonical(&v.candidate.Binary)) }},
		"creationTimestamp": {types.TimestampType, func(v *variables) any { return types.Timestamp{Time: v.candidate.Created} }},
		"priority":          {types.IntType, func(v *variables) any { return types.Int(v.candidate.Priority) }},
		"node":              {types.StringType, func(v *variables) any { return types.String(v.candidate.Node) }},
		"zone":              {types.StringType, func(v *variables) any { return types.String(v.candidate.Zone) }},
		"isHolder":          {types.BoolType, func(v *variables) any { return types.Bool(v.candidate.Name == v.election.Holder) }},
	}}
	leaseType = &objectType{types.NewObjectType("lease-coordinator.dev/Lease", traits.FieldTesterType|traits.IndexerType), map[string]objectField{
		"name":        {types.StringType, func(v *variables) any { return types.String(v.election.Lease) }},
		"namespace":   {types.StringType, func(v *variables) any { return types.String(v.election.Namespace) }},
		"labels":      {stringMapType, func(v *variables) any { return v.election.Labels }},
		"annotations": {stringMapType, func(v *variables) any { return v.election.Annotations }},
		"holder":      {types.StringType, func(v *variables) any { return types.String(v.election.Holder) }},
	}}
	stringMapType = types.NewMapType(types.StringType, types.StringType)
)

// canonical returns the version as SemVer spells it, so that semver() takes it; or else as the candidate wrote it.
func canonical(v *strategy.Version) string {
	if v.Err != nil {
		return v.Text
	}
	return v.Semver.String()
}

func objectTypeOf(name string) *objectType {
	switch name {
	case candidateType.typ.TypeName():
		return candidateType
	case leaseType.typ.TypeName():
		return leaseType
	}
	return nil
}

// provider tells the types of the variables to the type checker, and of all others what Kubernetes does.
type provider struct{ types.Provider }

// FindStructType implements types.Provider.
func (p provider) FindStructType(name string) (*types.Type, bool) {
	if t := objectTypeOf(name); t != nil {
		return types.NewTypeTypeWithParam(t.typ), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	if t := objectTypeOf(name); t != nil {
		return slices.Sorted(maps.Keys(t.fields)), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (p provider) FindStructFieldType(name, fieldName string) (*types.FieldType, bool) {
	t := objectTypeOf(name)
	if t == nil {
		return p.Provider.FindStructFieldType(name, fieldName)
	}
	f, found := t.fields[fieldName]
	if !found {
		return nil, false
	}
	return &types.FieldType{
		Type: f.typ,
		IsSet: func(target any) bool {
			o, isObject := target.(*object)
			return isObject && isSet(f.get(o.variables))
		},
		GetFrom: func(target any) (any, error) {
			o, isObject := target.(*object)
			if !isObject {
				return nil, types.NewErr("no such field '%s'", fieldName).(*types.Err)
			}
			return f.get(o.variables), nil
		},
	}, true
}

// isSet reports what has() does: as everywhere in CEL, a field with the value of its type that says nothing is not set.
func isSet(value any) bool {
	switch v := value.(type) {
	case map[string]string:
		return len(v) > 0
	case types.Timestamp:
		return !v.IsZero()
	case traits.Zeroer:
		return !v.IsZeroValue()
	}
	return true
}

// adapter makes CEL's values of Go's.
type adapter struct{ types.Adapter }

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(value any) ref.Val {
	if m, isMap := value.(map[string]string); isMap {
		return sortedMap{types.NewStringStringMap(a, m), m}
	}
	return a.Adapter.NativeToValue(value)
}

// sortedMap is a map that is gone through in the order of its keys: same input, same output.
type sortedMap struct {
	traits.Mapper
	entries map[string]string
}

// Iterator implements traits.Iterable.
func (m sortedMap) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, slices.Sorted(maps.Keys(m.entries))).Iterator()
}

// object is the value of a variable. The fields of a checked expression are read through provider; the methods serve
// expressions that hide the type, as dyn(candidate).name does.
type object struct {
	*objectType
	variables *variables
}

// ConvertToNative implements ref.Val.
func (o *object) ConvertToNative(t reflect.Type) (any, error) {
	if reflect.TypeOf(o).AssignableTo(t) {
		return o, nil
	}
	return nil, types.NewErr("type conversion error from '%s' to '%s'", o.typ, t).(*types.Err)
}

// ConvertToType implements ref.Val.
func (o *object) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case o.typ:
		return o
	case types.TypeType:
		return o.typ
	}
	return types.NewErr("type conversion error from '%s' to '%s'", o.typ, t.TypeName())
}

// Equal implements ref.Val. An evaluation has one object of each type.
func (o *object) Equal(other ref.Val) ref.Val { return types.Bool(o == other) }

// Type implements ref.Val.
func (o *object) Type() ref.Type { return o.typ }

// Value implements ref.Val.
func (o *object) Value() any { return o }

// Get implements traits.Indexer.
func (o *object) Get(index ref.Val) ref.Val {
	f, found := o.field(index)
	if !found {
		return types.NewErr("no such key: %v", index)
	}
	return adapter{types.DefaultTypeAdapter}.NativeToValue(f.get(o.variables))
}

// IsSet implements traits.FieldTester.
func (o *object) IsSet(index ref.Val) ref.Val {
	f, found := o.field(index)
	if !found {
		return types.NewErr("no such key: %v", index)
	}
	return types.Bool(isSet(f.get(o.variables)))
}

func (o *object) field(index ref.Val) (objectField, bool) {
	name, isString := index.(types.String)
	f, found := o.fields[string(name)]
	return f, found && isString
}

// unordered returns a fault for each loop over a map that has no order of its own: its result could differ from one
// evaluation to the next. Labels and annotations have one (sortedMap).
func unordered(a *ast.AST) []*common.Error {
	var faults []*common.Error
	for _, e := range ast.MatchDescendants(ast.NavigateAST(a), ast.KindMatcher(ast.ComprehensionKind)) {
		over := e.AsComprehension().IterRange()
		t := a.GetType(over.ID())
		if t.Kind() == types.ListKind {
			continue
		}
		if over.Kind() == ast.SelectKind && objectTypeOf(a.GetType(over.AsSelect().Operand().ID()).TypeName()) != nil {
			continue
		}
		faults = append(faults, common.NewError(e.ID(),
			"loops over a "+t.String()+" whose order may vary: must be a list, or the labels or annotations of candidate or lease themselves",
			a.SourceInfo().GetStartLocation(e.ID())))
	}
	return faults
}
