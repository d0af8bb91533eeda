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
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// Each rule of Validate as the last value that it admits and the first that it does not.
func TestValidateBoundaries(t *testing.T) {
	for name, test := range map[string]struct {
		good, bad func(*Options)
		says      []string
	}{
		"in-tree": {
			func(o *Options) { o.InTree = InTreeReplace },
			func(o *Options) { o.InTree = "Replace" },
			[]string{`--in-tree="Replace"`, `"yield"`, `"replace"`},
		},
		"replace needs a lock": {
			func(o *Options) { o.InTree, o.LeaderElect = InTreeYield, false },
			func(o *Options) { o.InTree, o.LeaderElect = InTreeReplace, false },
			[]string{"--in-tree=replace", "--leader-elect"},
		},
		"log format": {
			func(o *Options) { o.LogFormat = "json" },
			func(o *Options) { o.LogFormat = "" },
			[]string{`--log-format=""`},
		},
		"whole seconds": {
			func(o *Options) { o.LeaseDuration = 11 * time.Second },
			func(o *Options) { o.LeaseDuration = 11*time.Second - 1 },
			[]string{"--leader-elect-lease-duration=10.999999999s", "whole seconds"},
		},
		"at least a second": {
			func(o *Options) {
				o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = time.Second, 900*time.Millisecond, 100*time.Millisecond
			},
			func(o *Options) { o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 0, -1, 1 },
			[]string{"--leader-elect-lease-duration=0s"},
		},
		"lease duration above renew deadline": {
			func(o *Options) { o.RenewDeadline = o.LeaseDuration - 1 },
			func(o *Options) { o.RenewDeadline = o.LeaseDuration },
			[]string{"--leader-elect-lease-duration=15s", "--leader-elect-renew-deadline=15s"},
		},
		"retry period": {
			func(o *Options) { o.RetryPeriod = 1 },
			func(o *Options) { o.RetryPeriod = 0 },
			[]string{"--leader-elect-retry-period=0s"},
		},
		"renew deadline above 1.2 retry periods": {
			func(o *Options) { o.RenewDeadline, o.RetryPeriod = 6*time.Second+1, 5*time.Second },
			func(o *Options) { o.RenewDeadline, o.RetryPeriod = 6*time.Second, 5*time.Second },
			[]string{"--leader-elect-renew-deadline=6s", "1.2", "--leader-elect-retry-period=5s"},
		},
		"lock name": {
			func(o *Options) { o.LockName = strings.Repeat("a", 253) },
			func(o *Options) { o.LockName = strings.Repeat("a", 254) },
			[]string{"--leader-elect-resource-name", "253"},
		},
		"lock namespace": {
			func(o *Options) { o.LockNamespace = "a-b" },
			func(o *Options) { o.LockNamespace = "a.b" },
			[]string{`--leader-elect-resource-namespace="a.b"`},
		},
		"election duration": {
			func(o *Options) { o.ElectionDuration = 100 * time.Millisecond },
			func(o *Options) { o.ElectionDuration = 100*time.Millisecond - 1 },
			[]string{"--election-duration=99.999999ms", "100ms"},
		},
		"candidate TTL": {
			func(o *Options) { o.CandidateTTL = 2 * o.ElectionDuration },
			func(o *Options) { o.CandidateTTL = 2*o.ElectionDuration - 1 },
			[]string{"--candidate-ttl=9.999999999s", "--election-duration=5s"},
		},
		"take-up timeout": {
			func(o *Options) { o.TakeUpTimeout = 5 * time.Second },
			func(o *Options) { o.TakeUpTimeout = 5*time.Second - 1 },
			[]string{"--take-up-timeout=4.999999999s", "5s"},
		},
		"min term": {
			func(o *Options) { o.MinTerm = 0 },
			func(o *Options) { o.MinTerm = -1 },
			[]string{"--min-term=-1ns"},
		},
		"throttling": {
			func(o *Options) { o.KubeAPIQPS, o.KubeAPIBurst = 0, 0 },
			func(o *Options) { o.KubeAPIBurst = -1 },
			[]string{"--kube-api-qps=0", "--kube-api-burst=-1"},
		},
		"metrics address": {
			func(o *Options) { o.MetricsAddress = "0" },
			func(o *Options) { o.MetricsAddress = "8443" },
			[]string{`--metrics-bind-address="8443"`, "host:port"},
		},
		"health address": {
			func(o *Options) { o.HealthAddress = "[::1]:8081" },
			func(o *Options) { o.HealthAddress = "::1:8081" },
			[]string{`--health-probe-bind-address="::1:8081"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			good := NewOptions()
			test.good(good)
			if err := good.Validate(); err != nil {
				t.Errorf("refused: %v", err)
			}
			bad := NewOptions()
			test.bad(bad)
			err := bad.Validate()
			if err == nil {
				t.Fatal("admitted")
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	o := NewOptions()
	o.InTree, o.LogFormat, o.MinTerm = "no", "no", -1
	err := o.Validate()
	for _, want := range []string{"--in-tree", "--log-format", "--min-term"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// Every flag has its effect, and its default is the option's.
func TestFlags(t *testing.T) {
	o := NewOptions()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(fs)
	before := *o
	if err := fs.Parse(nil); err != nil || *o != before {
		t.Errorf("without flags: %+v, %v", o, err)
	}
	set := map[string]string{
		"kubeconfig": "f", "kube-api-qps": "5", "kube-api-burst": "6",
		"leader-elect": "false", "leader-elect-resource-namespace": "ns", "leader-elect-resource-name": "n",
		"leader-elect-lease-duration": "9s", "leader-elect-renew-deadline": "8s", "leader-elect-retry-period": "7s",
		"in-tree": "replace", "election-duration": "4s", "candidate-ttl": "3h", "take-up-timeout": "6s", "min-term": "2m",
		"dry-run": "true", "metrics-bind-address": "0", "metrics-secure": "false", "health-probe-bind-address": "0",
		"log-format": "json", "v": "3",
	}
	fs.VisitAll(func(f *pflag.Flag) {
		value, known := set[f.Name]
		if !known {
			t.Errorf("--%s is not tested", f.Name)
			return
		}
		if f.Usage == "" || !strings.HasSuffix(f.Usage, ".") {
			t.Errorf("--%s has no sentence that explains it: %q", f.Name, f.Usage)
		}
		if err := fs.Set(f.Name, value); err != nil {
			t.Error(err)
		}
	})
	want := Options{
		Kubeconfig: "f", KubeAPIQPS: 5, KubeAPIBurst: 6, LockNamespace: "ns", LockName: "n",
		LeaseDuration: 9 * time.Second, RenewDeadline: 8 * time.Second, RetryPeriod: 7 * time.Second, InTree: InTreeReplace,
		ElectionDuration: 4 * time.Second, CandidateTTL: 3 * time.Hour, TakeUpTimeout: 6 * time.Second, MinTerm: 2 * time.Minute,
		DryRun: true, MetricsAddress: "0", HealthAddress: "0", LogFormat: "json", Verbosity: 3,
	}
	if *o != want {
		t.Errorf("options %+v, want %+v", *o, want)
	}
}

func TestPodNamespace(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "elsewhere")
	if o := NewOptions(); o.LockNamespace != "elsewhere" {
		t.Errorf("lock namespace %q", o.LockNamespace)
	}
}

func TestLockKey(t *testing.T) {
	o := NewOptions()
	o.LockNamespace, o.LockName = "ns", "n"
	if got := o.lockKey().String(); got != "ns/n" {
		t.Errorf("yield: %s", got)
	}
	o.InTree = InTreeReplace
	if got := o.lockKey().String(); got != "kube-system/leader-election-controller" {
		t.Errorf("replace: %s", got)
	}
}
