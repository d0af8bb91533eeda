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
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	coordinationv1 "k8s.io/api/coordination/v1"
	kubecel "k8s.io/apiserver/pkg/cel"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// custom is a compiled definition.
type custom struct {
	name     coordinationv1.CoordinatedLeaseStrategy
	eligible *expression // nil if all are
	prefer   []*expression
}

var _ strategy.Strategy = (*custom)(nil)

// Name implements strategy.Strategy.
func (s *custom) Name() coordinationv1.CoordinatedLeaseStrategy { return s.name }

// Keys implements strategy.Strategy. What cannot be evaluated is a *strategy.Failure: a default in its place would
// rank the candidate by what nobody wrote.
func (s *custom) Keys(keys []strategy.Key, c *strategy.Candidate, e *strategy.Election) ([]strategy.Key, error) {
	vars := newVariables(c, e)
	if s.eligible != nil {
		result, err := s.eligible.evaluate(vars)
		if err != nil {
			return keys, err
		}
		if result != types.True {
			return keys, fmt.Errorf("%s is false", s.eligible)
		}
	}
	ranked := keys
	for _, x := range s.prefer {
		result, err := x.evaluate(vars)
		if err != nil {
			return keys, err
		}
		value, err := x.native(result)
		if err != nil {
			return keys, err
		}
		ranked = append(ranked, strategy.Key{Name: x.name, Value: value})
	}
	return ranked, nil
}

// expression is a compiled expression. It is safe for concurrent use.
type expression struct {
	// place is the field in the definition, such as prefer[0].
	place string
	// text is the expression, shortened for people.
	text string
	// name is that of the key.
	name    string
	typ     *celgo.Type
	program celgo.Program
}

const (
	// maxName is how long an expression may be, in bytes, for its key to be named after it.
	maxName = 60
	// maxDetail is how much is told of what went wrong, in bytes: an annotation's value is up to 256 KiB long.
	maxDetail = 200
)

func newExpression(text, place string, typ *celgo.Type, program celgo.Program) *expression {
	x := &expression{place: place, text: shorten(text, maxName), name: strings.TrimSpace(text), typ: typ, program: program}
	if len(x.name) > maxName || strings.ContainsAny(x.name, "\r\n") {
		x.name = place
	}
	return x
}

// String returns the place and the text, shortened.
func (x *expression) String() string { return fmt.Sprintf("%s `%s`", x.place, x.text) }

func (x *expression) failure(detail string) error {
	return &strategy.Failure{Err: fmt.Errorf("%s: %s", x, shorten(detail, maxDetail))}
}

// evaluate returns a value of the expression's type.
func (x *expression) evaluate(vars *variables) (ref.Val, error) {
	result, _, err := x.program.Eval(vars)
	if cancelled := (interpreter.EvalCancelledError{}); errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded {
		return nil, x.failure(fmt.Sprintf("takes more than %d units of cost", costLimit))
	}
	if err != nil {
		return nil, x.failure(err.Error())
	}
	// Keys of different types have no order that anybody wrote.
	if result.Type().TypeName() != x.typ.TypeName() {
		return nil, x.failure(fmt.Sprintf("is of type %s, not %s", result.Type().TypeName(), x.typ))
	}
	return result, nil
}

// native returns a value of one of the types that a key may have.
func (x *expression) native(result ref.Val) (any, error) {
	switch v := result.(type) {
	case types.Int:
		return int64(v), nil
	case types.Uint:
		return uint64(v), nil
	case types.Double:
		if math.IsNaN(float64(v)) {
			return nil, x.failure("is not a number (NaN)")
		}
		return float64(v), nil
	case types.String:
		return string(v), nil
	case types.Timestamp:
		return v.Time, nil
	case types.Duration:
		return v.Duration, nil
	case kubecel.Semver:
		return &v.Version, nil
	}
	return nil, x.failure(fmt.Sprintf("is of type %s, which has no order", result.Type().TypeName()))
}

// shorten puts a text on one line of so many bytes at most.
func shorten(text string, limit int) string {
	const more = "..."
	// Only as much as can be shown is looked at, and some more for the space in it.
	if len(text) > 4*limit {
		text = text[:4*limit] + more
	}
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "\uFFFD")
	if len(text) <= limit {
		return text
	}
	cut := limit - len(more)
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + more
}
