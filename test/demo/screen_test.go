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
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestWrap(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		width int
		want  []string
	}{
		"a text that just fits":               {"one two", 7, []string{"one two"}},
		"a text that just does not":           {"one two", 6, []string{"one", "  two"}},
		"a word that is too long stays whole": {"a kube-controller-manager b", 8, []string{"a", "  kube-controller-manager", "  b"}},
		"nothing":                             {"", 8, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := wrap(tc.text, tc.width, 2); !slices.Equal(got, tc.want) {
				t.Errorf("wrap = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCut(t *testing.T) {
	for name, tc := range map[string]struct {
		line, want string
	}{
		"a line that just fits":         {"12345", "12345"},
		"a line that just does not":     {"123456", "12345"},
		"styles take no room":           {bold + "12345" + reset, bold + "12345" + reset},
		"a style that is cut is ended":  {bold + "123456" + reset, bold + "12345" + reset},
		"characters are not torn apart": {"äöüßé!", "äöüßé"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cut(tc.line, 5); got != tc.want {
				t.Errorf("cut = %q, want %q", got, tc.want)
			}
		})
	}
}

// Where there is no terminal, lines are plain, and nothing is drawn that would have to be erased.
func TestScreenWithoutTerminal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	s := newScreen(out)
	s.pin([]string{"how things stand"})
	s.sayIn(bold, 0, "a step")
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := " 0:00  a step\n"; string(got) != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}
