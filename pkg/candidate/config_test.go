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

package candidate

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"

	"github.com/lease-coordinator/coordinator/internal/strategy"
)

func valid() Config {
	return Config{
		RestConfig: &rest.Config{Host: "http://127.0.0.1:1"}, Namespace: "ns", LeaseName: "l", BinaryVersion: "1.29.3",
		Lead: func(context.Context) error { return nil },
	}
}

func TestDefaults(t *testing.T) {
	c, err := New(valid())
	if err != nil {
		t.Fatal(err)
	}
	got := c.config
	if got.LeaseDuration != 15*time.Second || got.RenewDeadline != 10*time.Second || got.RetryPeriod != 2*time.Second ||
		got.DrainLimit != 5*time.Second || got.FallbackAfter != 30*time.Second || got.HealthPeriod != 5*time.Second {
		t.Errorf("durations %+v", got)
	}
	if got.EmulationVersion != "1.29.3" || got.Strategy != "OldestEmulationVersion" {
		t.Errorf("emulation version %q, strategy %q", got.EmulationVersion, got.Strategy)
	}
	other, err := New(valid())
	if err != nil {
		t.Fatal(err)
	}
	if c.Identity() == other.Identity() || len(validation.IsDNS1123Subdomain(c.Identity())) > 0 {
		t.Errorf("identities %q and %q", c.Identity(), other.Identity())
	}
}

func TestVersions(t *testing.T) {
	for _, test := range []struct{ binary, emulation, wantBinary, wantEmulation string }{
		{"v1.29.3", "", "1.29.3", "1.29.3"},
		{"1.29", "", "1.29.0", "1.29.0"},
		{"v1.30.1-rc.1+abc", "1.29", "1.30.1-rc.1+abc", "1.29.0"},
		{"1.30.0", "1.30.0", "1.30.0", "1.30.0"},
		{"0.0.1", "", "0.0.1", "0.0.1"},
	} {
		c := valid()
		c.BinaryVersion, c.EmulationVersion = test.binary, test.emulation
		got, err := New(c)
		if err != nil {
			t.Errorf("%q, %q: %v", test.binary, test.emulation, err)
			continue
		}
		if got.config.BinaryVersion != test.wantBinary || got.config.EmulationVersion != test.wantEmulation {
			t.Errorf("%q, %q became %q, %q", test.binary, test.emulation, got.config.BinaryVersion, got.config.EmulationVersion)
		}
	}
}

func TestValidation(t *testing.T) {
	set := func(lease, renew, retry, drain time.Duration) func(*Config) {
		return func(c *Config) {
			c.LeaseDuration, c.RenewDeadline, c.RetryPeriod, c.DrainLimit = lease, renew, retry, drain
		}
	}
	const s = time.Second
	for _, test := range []struct {
		name   string
		change func(*Config)
		// want are parts of the error; none for a valid configuration.
		want []string
	}{
		{"a valid one", func(*Config) {}, nil},
		{"no RestConfig", func(c *Config) { c.RestConfig = nil }, []string{"RestConfig is required"}},
		{"no Lead", func(c *Config) { c.Lead = nil }, []string{"Lead is required"}},
		{"a commit hash for a version", func(c *Config) { c.BinaryVersion = "abc1234" }, []string{`BinaryVersion "abc1234"`}},
		{"a hash of digits", func(c *Config) { c.BinaryVersion = "1234567" }, []string{`BinaryVersion "1234567"`}},
		{"a version of a build without one", func(c *Config) { c.BinaryVersion = "0.0.0" }, []string{`BinaryVersion "0.0.0"`}},
		{"no version", func(c *Config) { c.BinaryVersion = "" }, []string{`BinaryVersion ""`, "required"}},
		{"a bad emulation version", func(c *Config) { c.EmulationVersion = "1.x" }, []string{`EmulationVersion "1.x"`}},
		{"emulation above binary", func(c *Config) { c.BinaryVersion, c.EmulationVersion = "1.29.0", "1.30.0" },
			[]string{`EmulationVersion "1.30.0"`, `BinaryVersion "1.29.0"`}},
		{"a lease name that ends in a dot", func(c *Config) { c.LeaseName = "abc." }, []string{`LeaseName "abc."`, "lowercase RFC 1123 subdomain must consist of"}},
		{"a lease name in capitals", func(c *Config) { c.LeaseName = "ABC" }, []string{`LeaseName "ABC"`, "lowercase RFC 1123 subdomain"}},
		{"a lease name of 253 characters", func(c *Config) { c.LeaseName = strings.Repeat("a", 253) }, nil},
		{"a lease name of 254 characters", func(c *Config) { c.LeaseName = strings.Repeat("a", 254) }, []string{"LeaseName", "253"}},
		{"no namespace", func(c *Config) { c.Namespace = "" }, []string{`Namespace ""`}},
		{"an identity with a slash", func(c *Config) { c.Identity = "a/b" }, []string{`Identity "a/b"`}},
		{"an unknown strategy", func(c *Config) { c.Strategy = "Mine" }, []string{`Strategy "Mine"`}},
		{"a strategy of a domain", func(c *Config) { c.Strategy = "example.com/Mine" }, nil},
		{"a strategy with two slashes", func(c *Config) { c.Strategy = "a/b/c" }, []string{`Strategy "a/b/c"`}},
		{"a label that is none", func(c *Config) { c.Labels = map[string]string{"a b": "c"} }, []string{"a b"}},

		{"a lease as long as the deadline", set(10*s, 10*s, 2*s, 0), []string{"LeaseDuration 10s", "RenewDeadline 10s"}},
		{"a lease just longer", set(11*s, 10*s, 2*s, 0), nil},
		{"a lease shorter than the default deadline", set(8*s, 0, 0, 0), []string{"LeaseDuration 8s", "RenewDeadline 10s"}},
		{"a deadline of 1.2 retry periods", set(15*s, 12*s, 10*s, 0), []string{"RenewDeadline 12s", "RetryPeriod 10s"}},
		{"a deadline just above", set(15*s, 12*s+1, 10*s, 0), nil},
		{"a drain limit that is too long", set(15*s, 10*s, 2*s, 5*s+1), []string{"DrainLimit 5.000000001s", "LeaseDuration 15s", "RenewDeadline 10s"}},
		{"the longest drain limit", set(15*s, 10*s, 2*s, 5*s), nil},
		{"half a second", set(s/2, s/4, s/10, 0), []string{"LeaseDuration 500ms"}},
		{"one second", set(s, s/2, s/4, 0), nil},
		{"a second and a half", set(3*s/2, s, s/4, 0), []string{"LeaseDuration 1.5s", "whole number of seconds"}},
		{"longer than the field can say", set(1<<32*s, 10*s, 2*s, 0), []string{"LeaseDuration"}},
		{"a negative lease duration", set(-s, 0, 0, 0), []string{"LeaseDuration -1s"}},
		{"a negative retry period", set(0, 0, -s, 0), []string{"RetryPeriod -1s"}},
		{"no fallback", func(c *Config) { c.FallbackAfter = -1 }, nil},
		{"all faults at once", func(c *Config) {
			c.Namespace, c.LeaseName, c.BinaryVersion, c.LeaseDuration = "A", "B", "c", 3*s
		}, []string{`Namespace "A"`, `LeaseName "B"`, `BinaryVersion "c"`, "LeaseDuration 3s"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := valid()
			test.change(&c)
			_, err := New(c)
			if len(test.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}
		})
	}
}

// A Pod in another namespace must not own the candidate: the garbage collector would take it for orphaned.
func TestPodOwner(t *testing.T) {
	for _, test := range []struct {
		name string
		env  map[string]string
		want bool
	}{
		{"all of it", map[string]string{"POD_NAME": "p", "POD_UID": "u", "POD_NAMESPACE": "ns"}, true},
		{"another namespace", map[string]string{"POD_NAME": "p", "POD_UID": "u", "POD_NAMESPACE": "other"}, false},
		{"no namespace", map[string]string{"POD_NAME": "p", "POD_UID": "u"}, false},
		{"no UID", map[string]string{"POD_NAME": "p", "POD_NAMESPACE": "ns"}, false},
		{"nothing", nil, false},
	} {
		if got := podOwner(func(key string) string { return test.env[key] }, "ns"); (got != nil) != test.want {
			t.Errorf("%s: owner %v", test.name, got)
		}
	}
}

// The default identity can be the name of every kind of LeaseCandidate, and the coordinator finds the host in it.
func TestDefaultIdentity(t *testing.T) {
	nodeOf := func(name string) string {
		return strategy.NewCandidate(&metav1.ObjectMeta{Name: name}, strategy.Spec{}).Node
	}
	for _, test := range []struct{ host, want string }{
		{"node-1", "node-1"},
		{"web-6d4cf56db6-x2x7f", "web-6d4cf56db6-x2x7f"},
		{"ip-10-0-0-1.eu-central-1.compute.internal", "ip-10-0-0-1.eu-central-1.compute.internal"},
		{"Johns-MacBook.local", "johns-macbook.local"},
		{"build_host", "build-host"},
		{"_x_", "x"},
		{"a..b", "a.b"},
		{"a-.-b", "a.b"},
		{".a.", "a"},
		{"büro", "b-ro"},
		{"büro\xff", "b-ro"},
		{"", ""}, {"...", ""}, {"___", ""}, {"局", ""},
		{strings.Repeat("a", 216), strings.Repeat("a", 216)},
		{strings.Repeat("a", 217), strings.Repeat("a", 216)},
		{strings.Repeat("a", 215) + ".b", strings.Repeat("a", 215)},
	} {
		if got := nodeOf(defaultIdentity(test.host)); got != test.want {
			t.Errorf("%q: host %q, want %q", test.host, got, test.want)
		}
	}
	fit := func(t *rapid.T, host string) {
		identity := defaultIdentity(host)
		for _, faults := range [][]string{validation.IsDNS1123Subdomain(identity), validation.IsConfigMapKey(identity)} {
			if len(faults) > 0 {
				t.Errorf("%q: identity %q: %v", host, identity, faults)
			}
		}
		if other := defaultIdentity(host); other == identity {
			t.Errorf("%q: twice %q", host, identity)
		}
		if want := subdomainOf(host, 216); nodeOf(identity) != want {
			t.Errorf("%q: host %q, want %q", host, nodeOf(identity), want)
		}
	}
	rapid.Check(t, func(t *rapid.T) { fit(t, rapid.String().Draw(t, "host")) })
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.StringMatching(`[A-Za-z0-9._-]{0,300}`).Draw(t, "host")
		fit(t, host)
		if len(host) <= 216 && len(validation.IsDNS1123Subdomain(host)) == 0 && subdomainOf(host, 216) != host {
			t.Errorf("%q, a valid name, became %q", host, subdomainOf(host, 216))
		}
	})
}
