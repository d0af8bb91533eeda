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
	"strings"
	"testing"
)

func parseAll(t *testing.T, texts ...string) []Override {
	t.Helper()
	var list []Override
	for _, text := range texts {
		o, err := ParseOverride(text)
		if err != nil {
			t.Fatal(err)
		}
		if o.String() != text {
			t.Errorf("%q is written as %q", text, o)
		}
		list = append(list, o)
	}
	return list
}

func TestParseOverride(t *testing.T) {
	for text, want := range map[string]Override{
		"l=OldestEmulationVersion":              {"", "l", "OldestEmulationVersion"},
		"ns/l=lease-coordinator.dev/Spread":     {"ns", "l", "lease-coordinator.dev/Spread"},
		"l=lease-coordinator.dev/Spread":        {"", "l", "lease-coordinator.dev/Spread"},
		"kube-*/*=a.b/C":                        {"kube-*", "*", "a.b/C"},
		"a[b-d].e?/f=a.b/C":                     {"", "", ""},
		"a/f[^x-z].g?*=a.b/C":                   {"a", "f[^x-z].g?*", "a.b/C"},
		"l=a=b":                                 {"", "l", "a=b"},
		strings.Repeat("a", 253) + "=a.b/C":     {"", strings.Repeat("a", 253), "a.b/C"},
		strings.Repeat("n", 63) + "/my.l=a.b/C": {strings.Repeat("n", 63), "my.l", "a.b/C"},
		strings.Repeat("n", 64) + "/my.l=a.b/C": {"", "", ""},
		strings.Repeat("a", 254) + "=a.b/C":     {"", "", ""},
	} {
		got, err := ParseOverride(text)
		if got != want || (err == nil) != (want != Override{}) {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
		if err == nil && got.String() != text {
			t.Errorf("%q is written as %q", text, got)
		}
	}
}

func TestParseOverrideSaysWhatIsWrong(t *testing.T) {
	const subdomain = "a lowercase RFC 1123 subdomain must consist of"
	for text, want := range map[string]string{
		"":             `"" has no "=": must be [namespace/]lease=strategy`,
		"ns/l":         `"ns/l" has no "=": must be [namespace/]lease=strategy`,
		"l=":           `"l=" names no strategy`,
		"ns/l=":        `"ns/l=" names no strategy`,
		"/l=a.b/C":     `"/l" has nothing before its "/": leave the "/" out for any namespace`,
		"=a.b/C":       `lease "": ` + subdomain,
		"ns/=a.b/C":    `lease "": ` + subdomain,
		"a/b/c=a.b/C":  `lease "b/c": ` + subdomain,
		"My_L=a.b/C":   `lease "My_L": ` + subdomain,
		"n.s/l=a.b/C":  `namespace "n.s": must not contain dots`,
		"[a=a.b/C":     `lease pattern "[a": syntax error in pattern`,
		"a]*[/l=a.b/C": `namespace pattern "a]*[": syntax error in pattern`,
		"n.*/l=a.b/C":  `namespace pattern "n.*": no namespace has the character '.' in its name`,
		"L*=a.b/C":     `lease pattern "L*": no lease has the character 'L' in its name`,
		"l_*=a.b/C":    `lease pattern "l_*": no lease has the character '_' in its name`,
		"é*=a.b/C":     `lease pattern "é*": no lease has the character 'é' in its name`,
		`\**=a.b/C`:    `lease pattern "\\**": no name has a character that needs a "\"`,
		" l =a.b/C":    `lease " l ": ` + subdomain,
	} {
		_, err := ParseOverride(text)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

// The most specific counts, wherever it stands in its list.
func TestOverridePrecedence(t *testing.T) {
	for name, test := range map[string]struct {
		flags, file []string
		lease       string
		want        string
		source      Source
	}{
		"none":                                   {nil, nil, "ns/l", "", ""},
		"no match":                               {[]string{"other/l=x/A"}, []string{"m*=x/B"}, "ns/l", "", ""},
		"any namespace":                          {nil, []string{"l=x/A"}, "ns/l", "l=x/A", SourceConfigFile},
		"a flag":                                 {[]string{"l=x/A"}, nil, "ns/l", "l=x/A", SourceFlag},
		"any flag before any entry of the file":  {[]string{"*=x/A"}, []string{"ns/l=x/B"}, "ns/l", "*=x/A", SourceFlag},
		"the file where no flag matches":         {[]string{"m=x/A"}, []string{"*=x/B"}, "ns/l", "*=x/B", SourceConfigFile},
		"name before pattern":                    {nil, []string{"l=x/A", "ns/l*=x/B"}, "ns/l", "l=x/A", SourceConfigFile},
		"name before pattern, the other way":     {nil, []string{"ns/l*=x/B", "l=x/A"}, "ns/l", "l=x/A", SourceConfigFile},
		"namespace before namespace pattern":     {nil, []string{"ns/l=x/A", "n*/l=x/B"}, "ns/l", "ns/l=x/A", SourceConfigFile},
		"namespace pattern before none":          {nil, []string{"*/l=x/A", "l=x/B"}, "ns/l", "*/l=x/A", SourceConfigFile},
		"namespace before more literals":         {nil, []string{"ns/*=x/A", "n*/long-*=x/B"}, "ns/long-l", "ns/*=x/A", SourceConfigFile},
		"namespace pattern before more literals": {nil, []string{"*/*=x/A", "long-*=x/B"}, "ns/long-l", "*/*=x/A", SourceConfigFile},
		"more literals":                          {nil, []string{"long-*=x/A", "l*=x/B"}, "ns/long-l", "long-*=x/A", SourceConfigFile},
		"more literals, the other way":           {nil, []string{"l*=x/B", "long-*=x/A"}, "ns/long-l", "long-*=x/A", SourceConfigFile},
		"literals of both parts count":           {nil, []string{"name*/*=x/A", "n*/l*=x/B"}, "namespace/l", "name*/*=x/A", SourceConfigFile},
		"a set is no literal":                    {nil, []string{"[l-n]*=x/A", "l*=x/B"}, "ns/l", "l*=x/B", SourceConfigFile},
		"the last of equals":                     {nil, []string{"a*=x/A", "*b=x/B"}, "ns/ab", "*b=x/B", SourceConfigFile},
		"the last of equals, the other way":      {nil, []string{"*b=x/B", "a*=x/A"}, "ns/ab", "a*=x/A", SourceConfigFile},
		"the same twice":                         {nil, []string{"l=x/A", "l=x/A"}, "ns/l", "l=x/A", SourceConfigFile},
		"a flag and the file differ":             {[]string{"l=x/A"}, []string{"l=x/B"}, "ns/l", "l=x/A", SourceFlag},
		"a pattern does not cross the slash":     {nil, []string{"n*l=x/A"}, "ns/l", "", ""},
		"dots":                                   {nil, []string{"a.*.c=x/A"}, "ns/a.b.c", "a.*.c=x/A", SourceConfigFile},
	} {
		t.Run(name, func(t *testing.T) {
			overrides, err := NewOverrides(parseAll(t, test.flags...), parseAll(t, test.file...))
			if err != nil {
				t.Fatal(err)
			}
			namespace, lease, _ := strings.Cut(test.lease, "/")
			got, source, found := overrides.For(namespace, lease)
			text := ""
			if found {
				text = got.String()
			}
			if text != test.want || source != test.source || found != (test.want != "") {
				t.Errorf("%q from %q, found %t; want %q from %q", text, source, found, test.want, test.source)
			}
		})
	}
}

func TestNoOverrides(t *testing.T) {
	for name, o := range map[string]*Overrides{"nil": nil, "zero": {}} {
		if got, source, found := o.For("ns", "l"); found || source != "" || got != (Override{}) {
			t.Errorf("%s: %q from %q, found %t", name, got, source, found)
		}
	}
}

func TestOverridesThatContradict(t *testing.T) {
	if _, err := NewOverrides(parseAll(t, "ns/l*=x/A", "m=x/C", "ns/l*=x/B"), nil); err == nil || err.Error() != `"ns/l*" is given two strategies: "x/A" and "x/B"` {
		t.Error(err)
	}
	if _, err := NewOverrides(nil, []Override{{Lease: "[", Strategy: "x/A"}}); err == nil || err.Error() != `lease pattern "[": syntax error in pattern` {
		t.Error(err)
	}
	// Lists are not changed, and not kept.
	list := parseAll(t, "*=x/A", "l=x/B")
	overrides, err := NewOverrides(list, nil)
	if err != nil {
		t.Fatal(err)
	}
	list[1].Strategy = "x/C"
	if got, _, _ := overrides.For("ns", "l"); got.Strategy != "x/B" || list[0].Lease != "*" {
		t.Errorf("%q; list %q", got, list)
	}
}

// FuzzOverride parses whatever a flag may hold: what is accepted comes out as it went in, and matches without fault.
func FuzzOverride(f *testing.F) {
	for _, seed := range []string{"l=x/A", "ns/l=x/A", "*/*=x/A", "[a-z]/[^b]*?=x/A", "[=x/A", "[]=x/A", "[a=b]=x", `\=x/A`, "//=", "a[b/c]=d"} {
		f.Add(seed, "ns", "l")
	}
	f.Fuzz(func(t *testing.T, text, namespace, lease string) {
		o, err := ParseOverride(text)
		if err != nil {
			return
		}
		if o.String() != text {
			t.Errorf("%q is written as %q", text, o)
		}
		overrides, err := NewOverrides([]Override{o}, nil)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		overrides.For(namespace, lease)
		if isName(o.Lease) && isName(o.Namespace) {
			if _, _, found := overrides.For(o.Namespace, o.Lease); !found {
				t.Errorf("%q does not match itself", text)
			}
		}
	})
}
