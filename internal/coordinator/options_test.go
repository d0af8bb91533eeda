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

package coordinator

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	configv1alpha1 "github.com/lease-coordinator/coordinator/api/config/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
)

const header = "apiVersion: config.lease-coordinator.dev/v1alpha1\nkind: CoordinatorConfiguration\n"

// withFlags returns the options that the flags make.
func withFlags(t *testing.T, flags ...string) *Options {
	t.Helper()
	o := NewOptions()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse(flags); err != nil {
		t.Fatal(err)
	}
	return o
}

// load returns what flags and the content of a file say together.
func load(t *testing.T, content string, flags ...string) (*Options, error) {
	t.Helper()
	return withFlags(t, append(flags, "--config=x.yaml")...).loadContent([]byte(content))
}

// settingOf returns the setting of a flag.
func settingOf(t *testing.T, flag string) setting {
	t.Helper()
	for _, s := range settings {
		if s.flag == flag {
			return s
		}
	}
	t.Fatalf("no setting has the flag --%s", flag)
	return setting{}
}

// inFile returns a file that says the same as the flags, each "flag=value".
func inFile(t *testing.T, flags ...string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(header)
	sections := map[string][]string{}
	for _, flag := range flags {
		name, value, _ := strings.Cut(flag, "=")
		s := settingOf(t, name)
		switch at := s.at(NewOptions()).(type) {
		case *bool, *int, *float32:
		case *[]string:
			value = fmt.Sprintf("[%q]", strings.ReplaceAll(value, ",", `", "`))
			value = strings.ReplaceAll(value, `\"`, `"`)
		case *string, *time.Duration, *configv1alpha1.InTreeMode:
			value = fmt.Sprintf("%q", value)
		default:
			t.Fatalf("--%s: unexpected %T", name, at)
		}
		if section, field, nested := strings.Cut(s.field, "."); nested {
			sections[section] = append(sections[section], field+": "+value)
		} else {
			fmt.Fprintf(&b, "%s: %s\n", s.field, value)
		}
	}
	for section, fields := range sections {
		fmt.Fprintf(&b, "%s:\n  %s\n", section, strings.Join(fields, "\n  "))
	}
	return b.String()
}

// Each rule as the last values that it admits and the first that it does not, by flag and by file.
var rules = map[string]struct {
	good, bad []string
	// says is the whole message about flags.
	says string
}{
	"in-tree": {
		[]string{"in-tree=replace"}, []string{"in-tree=Replace"},
		`--in-tree="Replace": must be "yield" or "replace"`,
	},
	"replace needs a lock": {
		[]string{"in-tree=yield", "leader-elect=false"}, []string{"in-tree=replace", "leader-elect=false"},
		`--in-tree="replace" does not go with --leader-elect=false: it works by holding the in-tree coordinator's lock`,
	},
	"log format": {
		[]string{"log-format=json"}, []string{"log-format=xml"},
		`--log-format="xml": must be "text" or "json"`,
	},
	"verbosity": {
		[]string{"v=0"}, []string{"v=-1"},
		`--v=-1: must be from 0 to 127`,
	},
	"verbosity at most": {
		[]string{"v=127"}, []string{"v=128"},
		`--v=128: must be from 0 to 127`,
	},
	"whole seconds": {
		[]string{"leader-elect-lease-duration=11s"}, []string{"leader-elect-lease-duration=10.999999999s"},
		`--leader-elect-lease-duration=10.999999999s: must be whole seconds, at least 1s, since a Lease states its duration in seconds`,
	},
	"at least a second": {
		[]string{"leader-elect-lease-duration=1s", "leader-elect-renew-deadline=900ms", "leader-elect-retry-period=100ms"},
		[]string{"leader-elect-lease-duration=0s", "leader-elect-renew-deadline=-1ns", "leader-elect-retry-period=-1ns"},
		"--leader-elect-lease-duration=0s: must be whole seconds, at least 1s, since a Lease states its duration in seconds\n" +
			"--leader-elect-retry-period=-1ns: must be greater than 0",
	},
	"lease duration above renew deadline": {
		[]string{"leader-elect-renew-deadline=14.999999999s"}, []string{"leader-elect-lease-duration=15s", "leader-elect-renew-deadline=15s"},
		`--leader-elect-lease-duration=15s must be greater than --leader-elect-renew-deadline=15s`,
	},
	"the default is named as the rest": {
		nil, []string{"leader-elect-renew-deadline=15s"},
		`--leader-elect-lease-duration=15s must be greater than --leader-elect-renew-deadline=15s`,
	},
	"retry period": {
		[]string{"leader-elect-retry-period=1ns"}, []string{"leader-elect-retry-period=0s"},
		`--leader-elect-retry-period=0s: must be greater than 0`,
	},
	"renew deadline above 1.2 retry periods": {
		[]string{"leader-elect-renew-deadline=6.000000001s", "leader-elect-retry-period=5s"},
		[]string{"leader-elect-renew-deadline=6s", "leader-elect-retry-period=5s"},
		`--leader-elect-renew-deadline=6s must be greater than 1.2 times --leader-elect-retry-period=5s`,
	},
	"lock name": {
		[]string{"leader-elect-resource-name=a.b"}, []string{"leader-elect-resource-name=" + strings.Repeat("a", 254)},
		`--leader-elect-resource-name="` + strings.Repeat("a", 254) + `": must be no more than 253 characters`,
	},
	"lock namespace": {
		[]string{"leader-elect-resource-namespace=a-b"}, []string{"leader-elect-resource-namespace=a.b"},
		`--leader-elect-resource-namespace="a.b": must not contain dots`,
	},
	"election duration": {
		[]string{"election-duration=100ms"}, []string{"election-duration=99.999999ms"},
		`--election-duration=99.999999ms: must be at least 100ms, a candidate's round trip`,
	},
	"candidate TTL": {
		[]string{"candidate-ttl=10s"}, []string{"candidate-ttl=9.999999999s", "election-duration=5s"},
		`--candidate-ttl=9.999999999s must be at least twice --election-duration=5s`,
	},
	"take-up timeout": {
		[]string{"take-up-timeout=5s"}, []string{"take-up-timeout=4.999999999s"},
		`--take-up-timeout=4.999999999s: must be 0 or at least 5s, since client-go polls that slowly`,
	},
	"no take-up timeout": {
		[]string{"take-up-timeout=0s"}, []string{"take-up-timeout=-1ns"},
		`--take-up-timeout=-1ns: must be 0 or at least 5s, since client-go polls that slowly`,
	},
	"min term": {
		[]string{"min-term=0s"}, []string{"min-term=-1ns"},
		`--min-term=-1ns: must not be negative`,
	},
	"requests per second": {
		[]string{"kube-api-qps=0"}, []string{"kube-api-qps=-0.5"},
		`--kube-api-qps=-0.5: must not be negative`,
	},
	"burst": {
		[]string{"kube-api-burst=0"}, []string{"kube-api-burst=-1"},
		`--kube-api-burst=-1: must not be negative`,
	},
	"metrics address": {
		[]string{"metrics-bind-address=0"}, []string{"metrics-bind-address=8443"},
		`--metrics-bind-address="8443": must be host:port, or 0: address 8443: missing port in address`,
	},
	"namespaces": {
		[]string{"namespaces=a,kube-system"}, []string{"namespaces=a,B,kube-node-lease,a"},
		`--namespaces=a,B,kube-node-lease,a: "B": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
--namespaces=a,B,kube-node-lease,a: the leases of kube-node-lease are the kubelets' own and are never coordinated
--namespaces=a,B,kube-node-lease,a: a is named twice`,
	},
	"health address": {
		[]string{"health-probe-bind-address=[::1]:8081"}, []string{"health-probe-bind-address=::1:8081"},
		`--health-probe-bind-address="::1:8081": must be host:port, or 0: address ::1:8081: too many colons in address`,
	},
	"strategies": {
		[]string{"strategies=*,-OldestEmulationVersion"}, []string{"strategies=*,Newest"},
		`--strategies=*,Newest: no strategy is called "Newest": there are "OldestEmulationVersion", ` +
			`"lease-coordinator.dev/NewestBinaryVersion", "lease-coordinator.dev/Spread", "lease-coordinator.dev/Sticky"`,
	},
	"every fault": {
		nil, []string{"in-tree=no", "log-format=no", "min-term=-1s"},
		"--in-tree=\"no\": must be \"yield\" or \"replace\"\n--log-format=\"no\": must be \"text\" or \"json\"\n--min-term=-1s: must not be negative",
	},
}

func TestRulesByFlag(t *testing.T) {
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			if _, err := withFlags(t, dashed(rule.good)...).Load(); err != nil {
				t.Errorf("refused: %v", err)
			}
			bad := withFlags(t, dashed(rule.bad)...)
			if _, err := bad.Load(); err == nil || err.Error() != rule.says {
				t.Errorf("got  %v\nwant %s", err, rule.says)
			}
			if err := bad.Validate(); err == nil || err.Error() != rule.says {
				t.Errorf("before loading: got  %v\nwant %s", err, rule.says)
			}
		})
	}
}

func TestRulesByFile(t *testing.T) {
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			if _, err := load(t, inFile(t, rule.good...)); err != nil {
				t.Errorf("refused: %v", err)
			}
			// The same words, with the names of the fields.
			var want []string
			for _, line := range strings.Split(rule.says, "\n") {
				for _, s := range settings {
					line = strings.ReplaceAll(line, "--"+s.flag+"=", s.field+"=")
				}
				want = append(want, `configuration file "x.yaml": `+line)
			}
			if _, err := load(t, inFile(t, rule.bad...)); err == nil || err.Error() != strings.Join(want, "\n") {
				t.Errorf("got  %v\nwant %s", err, strings.Join(want, "\n"))
			}
		})
	}
}

func dashed(flags []string) []string {
	var result []string
	for _, flag := range flags {
		result = append(result, "--"+flag)
	}
	return result
}

// What flag and file bring about together is named by both.
func TestRulesByFlagAndFile(t *testing.T) {
	for name, test := range map[string]struct{ file, flag, says string }{
		"file with a flag":       {"election: {candidateTTL: 9s}", "--election-duration=5s", `configuration file "x.yaml": election.candidateTTL=9s must be at least twice --election-duration=5s`},
		"flag with the file":     {"election: {electionDuration: 10s}", "--candidate-ttl=19s", `configuration file "x.yaml": --candidate-ttl=19s must be at least twice election.electionDuration=10s`},
		"file with a default":    {"election: {electionDuration: 20m}", "", `configuration file "x.yaml": election.candidateTTL=30m0s must be at least twice election.electionDuration=20m0s`},
		"flag with a default":    {"dryRun: true", "--election-duration=20m", `--candidate-ttl=30m0s must be at least twice --election-duration=20m0s`},
		"flag over the file":     {"election: {minTerm: 1s}", "--min-term=-1s", `--min-term=-1s: must not be negative`},
		"the flag hides a fault": {"election: {electionDuration: 1ns}", "--election-duration=6s", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var flags []string
			if test.flag != "" {
				flags = append(flags, test.flag)
			}
			_, err := load(t, header+test.file, flags...)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != test.says {
				t.Errorf("got  %s\nwant %s", got, test.says)
			}
		})
	}
}

// others has two further values for every setting.
var others = map[string][2]string{
	"kubeconfig": {"f", "g"}, "kube-api-qps": {"5", "5.5"}, "kube-api-burst": {"6", "7"},
	"leader-elect": {"false", "true"}, "leader-elect-resource-namespace": {"ns", "ms"}, "leader-elect-resource-name": {"n", "m"},
	"leader-elect-lease-duration": {"14s", "13s"}, "leader-elect-renew-deadline": {"8s", "9s"}, "leader-elect-retry-period": {"3s", "4s"},
	"namespaces": {"a,b", "c"}, "in-tree": {"replace", "yield"}, "dry-run": {"true", "false"},
	"election-duration": {"4s", "6s"}, "candidate-ttl": {"3h0m0s", "4h0m0s"}, "take-up-timeout": {"7s", "0s"}, "min-term": {"2m0s", "0s"},
	"strategies":           {"OldestEmulationVersion", "*"},
	"metrics-bind-address": {"0", ":1"}, "metrics-secure": {"false", "true"}, "health-probe-bind-address": {"0", ":2"},
	"log-format": {"json", "text"}, "v": {"3", "0"},
}

// Flags go before the file, and the file before the defaults: each setting by itself, and also where the value that
// goes before is the default.
func TestFlagsGoBeforeTheFile(t *testing.T) {
	for _, s := range settings {
		t.Run(s.flag, func(t *testing.T) {
			values, known := others[s.flag]
			if !known {
				t.Fatal("not tested")
			}
			unquoted := func(o *Options) string { return strings.Trim(s.text(o), `"`) }
			for _, value := range values {
				o, err := withFlags(t, "--"+s.flag+"="+value).Load()
				if err != nil || unquoted(o) != value {
					t.Errorf("by flag: %s, %v", s.text(o), err)
				}
				if o, err = load(t, inFile(t, s.flag+"="+value)); err != nil || unquoted(o) != value {
					t.Errorf("by file: %s, %v", s.text(o), err)
				}
			}
			for i, value := range values {
				o, err := load(t, inFile(t, s.flag+"="+values[1-i]), "--"+s.flag+"="+value)
				if err != nil || unquoted(o) != value {
					t.Errorf("the flag says %s and the file %s: %s, %v", value, values[1-i], s.text(o), err)
				}
			}
			o, err := load(t, header)
			if want := s.value(NewOptions()); err != nil || !reflect.DeepEqual(s.value(o), want) {
				t.Errorf("by neither: %s, want %v, %v", s.text(o), want, err)
			}
		})
	}
}

// Every flag has its effect, and its default is the option's.
func TestFlags(t *testing.T) {
	o := NewOptions()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	before := *o
	o.AddFlags(fs)
	before.flags = fs
	if err := fs.Parse(nil); err != nil || !reflect.DeepEqual(*o, before) {
		t.Errorf("without flags: %+v, %v", o, err)
	}
	fs.VisitAll(func(f *pflag.Flag) {
		value, known := others[f.Name]
		switch {
		case f.Name == "config":
			value[0] = "c"
		case f.Name == "lease-strategy":
			value[0] = "a,b=c"
		case !known:
			t.Errorf("--%s is not tested", f.Name)
			return
		}
		if f.Usage == "" || !strings.HasSuffix(f.Usage, ".") {
			t.Errorf("--%s has no sentence that explains it: %q", f.Name, f.Usage)
		}
		if err := fs.Set(f.Name, value[0]); err != nil {
			t.Error(err)
		}
	})
	for flag, value := range map[string]string{"strategies": "-a,b", "lease-strategy": "d=e"} {
		if err := fs.Set(flag, value); err != nil {
			t.Error(err)
		}
	}
	want := Options{
		ConfigFile: "c", Strategies: []string{"OldestEmulationVersion", "-a", "b"}, LeaseStrategies: []string{"a,b=c", "d=e"},
		Kubeconfig: "f", KubeAPIQPS: 5, KubeAPIBurst: 6, LockNamespace: "ns", LockName: "n",
		LeaseDuration: 14 * time.Second, RenewDeadline: 8 * time.Second, RetryPeriod: 3 * time.Second, Namespaces: []string{"a", "b"}, InTree: "replace",
		ElectionDuration: 4 * time.Second, CandidateTTL: 3 * time.Hour, TakeUpTimeout: 7 * time.Second, MinTerm: 2 * time.Minute,
		DryRun: true, MetricsAddress: "0", HealthAddress: "0", LogFormat: "json", Verbosity: 3, flags: fs,
	}
	if !reflect.DeepEqual(*o, want) {
		t.Errorf("options %+v, want %+v", *o, want)
	}
}

// A program that explains elections has the flags that decide them and no others.
func TestElectionFlags(t *testing.T) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	NewOptions().AddElectionFlags(fs)
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	want := []string{"candidate-ttl", "config", "election-duration", "lease-strategy", "min-term", "strategies", "take-up-timeout"}
	if !reflect.DeepEqual(names, want) {
		t.Errorf("flags %q, want %q", names, want)
	}
}

// Every field of the file is a setting, or one of the lists that only the file has.
func TestEveryFieldIsASetting(t *testing.T) {
	bound := map[string]bool{"apiVersion": true, "kind": true, "leaseStrategies": true, "customStrategies": true}
	for _, s := range settings {
		if bound[s.field] {
			t.Errorf("%s is two settings", s.field)
		}
		bound[s.field] = true
	}
	fields := fieldsOf(reflect.TypeFor[configv1alpha1.CoordinatorConfiguration](), "", false)
	for _, field := range fields {
		if !bound[field] {
			t.Errorf("%s is no setting", field)
		}
		delete(bound, field)
	}
	if len(bound) > 0 {
		t.Errorf("not in the file: %v", bound)
	}
}

// fieldsOf returns the paths of the fields of a struct, and of those of the elements of its lists if asked to.
func fieldsOf(t reflect.Type, path string, elements bool) []string {
	var fields []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case options == "inline":
			fields = append(fields, fieldsOf(f.Type, path, elements)...)
		case f.Type.Kind() == reflect.Struct && strings.HasSuffix(f.Type.PkgPath(), "api/config/v1alpha1"):
			fields = append(fields, fieldsOf(f.Type, path+name+".", elements)...)
		case elements && f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			fields = append(fields, fieldsOf(f.Type.Elem(), path+name+"[].", elements)...)
		default:
			fields = append(fields, path+name)
		}
	}
	return fields
}

// The election's own defaults, which simulation and tests go by, are those of the coordinator.
func TestDefaultsAreTheElections(t *testing.T) {
	o := NewOptions()
	if o.ElectionDuration != election.DefaultElectionDuration || o.CandidateTTL != election.DefaultCandidateTTL {
		t.Errorf("%s, %s", o.ElectionDuration, o.CandidateTTL)
	}
}

func TestPodNamespace(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "elsewhere")
	if o := NewOptions(); o.LockNamespace != "elsewhere" {
		t.Errorf("lock namespace %q", o.LockNamespace)
	}
	// Also where a file says nothing of it.
	if o, err := load(t, header); err != nil || o.LockNamespace != "elsewhere" {
		t.Errorf("with a file: %v, %v", o, err)
	}
}

func TestLockKey(t *testing.T) {
	o := NewOptions()
	o.LockNamespace, o.LockName = "ns", "n"
	if got := o.lockKey().String(); got != "ns/n" {
		t.Errorf("yield: %s", got)
	}
	o.InTree = configv1alpha1.InTreeReplace
	if got := o.lockKey().String(); got != "kube-system/leader-election-controller" {
		t.Errorf("replace: %s", got)
	}
}

// What is shipped must be accepted.
func TestShippedConfiguration(t *testing.T) {
	for _, name := range []string{"../../config/manager/coordinator.yaml", "../../config/samples/strategies.yaml"} {
		o := withFlags(t, "--config="+name)
		// The flags alone must not need the file: the manifests' are checked where it does not exist.
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
		if _, err := o.Load(); err != nil {
			t.Error(err)
		}
	}
}

func TestValidateDoesNotNeedTheFile(t *testing.T) {
	o := withFlags(t, "--config=/nonexistent/x.yaml", "--strategies=example.com/Mine", "--lease-strategy=l=example.com/Mine")
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	const want = `reading configuration file "/nonexistent/x.yaml": no such file or directory`
	if _, err := o.Load(); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	o = withFlags(t, "--config=/nonexistent/x.yaml", "--lease-strategy=l", "--min-term=-1s")
	const both = "--min-term=-1s: must not be negative\n--lease-strategy: \"l\" has no \"=\": must be [namespace/]lease=strategy"
	if err := o.Validate(); err == nil || err.Error() != both {
		t.Errorf("got  %v\nwant %s", err, both)
	}
}

// writeFile writes a configuration file and returns its name.
func writeFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
