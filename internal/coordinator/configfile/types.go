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

package configfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkTypes returns what cannot become a configuration, and takes down which fields are set.
func (f *File) checkTypes(content any) []error {
	return f.check(nil, reflect.TypeOf(*f.Configuration), content)
}

var durationType = reflect.TypeFor[metav1.Duration]()

// check compares a value, as JSON has it, with the type that it is to become.
func (f *File) check(path *field.Path, t reflect.Type, value any) []error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil {
		return nil
	}
	wrong := func(want string) []error {
		return []error{fmt.Errorf("%s: must be %s, not %s", path, want, describe(value))}
	}
	if t == durationType {
		text, isText := value.(string)
		if _, err := time.ParseDuration(text); !isText || err != nil {
			return wrong(`a duration such as "15s" or "1h30m"`)
		}
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		object, isObject := value.(map[string]any)
		if !isObject {
			return wrong("a mapping")
		}
		return f.checkFields(path, t, object)
	case reflect.Slice:
		list, isList := value.([]any)
		if !isList {
			return wrong("a list")
		}
		var faults []error
		for i, element := range list {
			if element == nil {
				faults = append(faults, fmt.Errorf("%s: must not be null", path.Index(i)))
			}
			faults = append(faults, f.check(path.Index(i), t.Elem(), element)...)
		}
		return faults
	case reflect.String:
		if _, isText := value.(string); !isText {
			return wrong("a string")
		}
	case reflect.Bool:
		if _, isBool := value.(bool); !isBool {
			return wrong("true or false")
		}
	case reflect.Int32:
		if n, isInteger := value.(int64); !isInteger || n < math.MinInt32 || n > math.MaxInt32 {
			return wrong(fmt.Sprintf("a whole number from 0 to %d", math.MaxInt32))
		}
	case reflect.Float32:
		switch n := value.(type) {
		case int64:
		case float64:
			if math.Abs(n) > math.MaxFloat32 {
				return wrong("a smaller number")
			}
		default:
			return wrong("a number")
		}
	default:
		// A new kind of field needs a case of its own; the decoder judges it meanwhile.
	}
	return nil
}

func (f *File) checkFields(path *field.Path, t reflect.Type, object map[string]any) []error {
	var faults []error
	types := fieldTypes(t)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		at := field.NewPath(name)
		if path != nil {
			at = path.Child(name)
		}
		fieldType, known := types[name]
		if !known {
			faults = append(faults, fmt.Errorf("unknown field %q", at))
			continue
		}
		if object[name] != nil {
			f.set[at.String()] = true
		}
		faults = append(faults, f.check(at, fieldType, object[name])...)
	}
	return faults
}

// fieldTypes returns the types of a struct's fields by their names in JSON.
func fieldTypes(t reflect.Type) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name == "" && options == "inline" {
			maps.Copy(types, fieldTypes(t.Field(i).Type))
			continue
		}
		types[name] = t.Field(i).Type
	}
	return types
}

// describe returns a value for people.
func describe(value any) string {
	switch value.(type) {
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}
