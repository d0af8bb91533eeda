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
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lease-coordinator/coordinator/internal/coordinator/configfile"
)

// setting is a value that both a flag and a field of the configuration file choose.
type setting struct {
	// flag and field are what it is called there.
	flag, field string
	// live says that a running coordinator takes it from a changed file. The others take a restart.
	live bool
	// at returns where it is in the options: a pointer.
	at func(*Options) any
}

// settings are all there are. The strategies of single leases are not among them: flags and file are two layers of
// those.
var settings = []setting{
	{"kubeconfig", "clientConnection.kubeconfig", false, func(o *Options) any { return &o.Kubeconfig }},
	{"kube-api-qps", "clientConnection.qps", false, func(o *Options) any { return &o.KubeAPIQPS }},
	{"kube-api-burst", "clientConnection.burst", false, func(o *Options) any { return &o.KubeAPIBurst }},

	{"leader-elect", "leaderElection.leaderElect", false, func(o *Options) any { return &o.LeaderElect }},
	{"leader-elect-resource-namespace", "leaderElection.resourceNamespace", false, func(o *Options) any { return &o.LockNamespace }},
	{"leader-elect-resource-name", "leaderElection.resourceName", false, func(o *Options) any { return &o.LockName }},
	{"leader-elect-lease-duration", "leaderElection.leaseDuration", false, func(o *Options) any { return &o.LeaseDuration }},
	{"leader-elect-renew-deadline", "leaderElection.renewDeadline", false, func(o *Options) any { return &o.RenewDeadline }},
	{"leader-elect-retry-period", "leaderElection.retryPeriod", false, func(o *Options) any { return &o.RetryPeriod }},

	{"namespaces", "namespaces", false, func(o *Options) any { return &o.Namespaces }},
	{"in-tree", "inTree", false, func(o *Options) any { return &o.InTree }},
	{"dry-run", "dryRun", true, func(o *Options) any { return &o.DryRun }},

	{"election-duration", "election.electionDuration", true, func(o *Options) any { return &o.ElectionDuration }},
	{"candidate-ttl", "election.candidateTTL", true, func(o *Options) any { return &o.CandidateTTL }},
	{"take-up-timeout", "election.takeUpTimeout", true, func(o *Options) any { return &o.TakeUpTimeout }},
	{"min-term", "election.minTerm", true, func(o *Options) any { return &o.MinTerm }},

	{"strategies", "strategies", true, func(o *Options) any { return &o.Strategies }},

	{"metrics-bind-address", "metrics.bindAddress", false, func(o *Options) any { return &o.MetricsAddress }},
	{"metrics-secure", "metrics.secure", false, func(o *Options) any { return &o.MetricsSecure }},
	{"health-probe-bind-address", "health.bindAddress", false, func(o *Options) any { return &o.HealthAddress }},

	{"log-format", "logging.format", false, func(o *Options) any { return &o.LogFormat }},
	{"v", "logging.verbosity", true, func(o *Options) any { return &o.Verbosity }},
}

// value returns what a setting is in the options.
func (s setting) value(o *Options) any { return reflect.ValueOf(s.at(o)).Elem().Interface() }

// text returns the value for people.
func (s setting) text(o *Options) string {
	value := s.value(o)
	if list, isList := value.([]string); isList {
		return strings.Join(list, ",")
	}
	if v := reflect.ValueOf(value); v.Kind() == reflect.String {
		return strconv.Quote(v.String())
	}
	return fmt.Sprint(value)
}

// move sets a setting in the options as it is in other options.
func (s setting) move(to, from *Options) {
	reflect.ValueOf(s.at(to)).Elem().Set(reflect.ValueOf(s.at(from)).Elem())
}

// byFlag reports whether the flag was given.
func (o *Options) byFlag(name string) bool {
	if o.flags == nil {
		return false
	}
	f := o.flags.Lookup(name)
	return f != nil && f.Changed
}

// byFile reports whether the setting is as the configuration file says.
func (o *Options) byFile(s setting) bool {
	return o.loaded != nil && o.loaded.file.Sets(s.field) && !o.byFlag(s.flag)
}

// faults collects what is wrong with options.
type faults struct {
	options *Options
	list    []error
}

// add adds a fault. An argument that is a pointer to a setting of the options is printed as its value, by the name
// under which it was chosen: "--min-term=-1s" or "election.minTerm=-1s". Where one comes from the configuration file,
// the file is named as well, and so are its fields where values are the defaults.
func (f *faults) add(format string, args ...any) {
	chosen := make([]*setting, len(args))
	var inFile bool
	for i, arg := range args {
		for _, s := range settings {
			if s.at(f.options) == arg {
				chosen[i] = &s
				inFile = inFile || f.options.byFile(s)
			}
		}
	}
	printed := slices.Clone(args)
	for i, s := range chosen {
		if s == nil {
			continue
		}
		name := "--" + s.flag
		if inFile && !f.options.byFlag(s.flag) {
			name = s.field
		}
		printed[i] = name + "=" + s.text(f.options)
	}
	err := fmt.Errorf(format, printed...)
	if inFile {
		err = configfile.Wrap(f.options.loaded.file.Name, err)
	}
	f.list = append(f.list, err)
}

// inFile adds a fault of the configuration file.
func (f *faults) inFile(err error) {
	f.list = append(f.list, configfile.Wrap(f.options.loaded.file.Name, err))
}
