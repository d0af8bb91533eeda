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

package strategy

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/blang/semver/v4"
)

// Key is one thing that a candidate is ranked by: the smaller value is better, or the larger if Descending.
type Key struct {
	// Name says, for people, what is compared.
	Name string
	// Value is a bool (false is the smaller), int64, uint64, float64 (NaN is the smallest), string, time.Time,
	// time.Duration or *semver.Version.
	Value any
	// Descending puts the larger value first. It depends on the strategy and the key's place alone.
	Descending bool
}

// String returns the name and the value.
func (k Key) String() string { return k.Name + "=" + k.Text() }

// Text returns the value for people.
func (k Key) Text() string {
	switch v := k.Value.(type) {
	case string:
		return strconv.Quote(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(k.Value)
}

// Compare orders candidates by their keys: negative if a is the better, 0 if neither is. It is a total order over
// whatever the keys are: where values are of different types, which no strategy should return, the type decides.
func Compare(a, b []Key) int {
	for i := range min(len(a), len(b)) {
		d := compareValues(a[i].Value, b[i].Value)
		if d == 0 {
			continue
		}
		if a[i].Descending {
			return -d
		}
		return d
	}
	return cmp.Compare(len(a), len(b))
}

func compareValues(a, b any) int {
	switch a := a.(type) {
	case *semver.Version:
		if b, same := b.(*semver.Version); same {
			return a.Compare(*b)
		}
	case bool:
		if b, same := b.(bool); same {
			return cmp.Compare(number(a), number(b))
		}
	case int64:
		if b, same := b.(int64); same {
			return cmp.Compare(a, b)
		}
	case uint64:
		if b, same := b.(uint64); same {
			return cmp.Compare(a, b)
		}
	case float64:
		if b, same := b.(float64); same {
			return cmp.Compare(a, b)
		}
	case string:
		if b, same := b.(string); same {
			return cmp.Compare(a, b)
		}
	case time.Time:
		if b, same := b.(time.Time); same {
			return a.Compare(b)
		}
	case time.Duration:
		if b, same := b.(time.Duration); same {
			return cmp.Compare(a, b)
		}
	}
	return cmp.Compare(fmt.Sprintf("%T", a), fmt.Sprintf("%T", b))
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
