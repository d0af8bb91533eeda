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
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lease-coordinator/coordinator/internal/coordinator/configfile"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/strategy"
	"github.com/lease-coordinator/coordinator/internal/strategy/cel"
)

// Load returns what the flags and the configuration file, if there is one, say together, or every fault in it. What the
// flags do not say is as the file says, or else has its default.
func (o *Options) Load() (*Options, error) {
	if o.ConfigFile == "" {
		return o.load(nil)
	}
	content, err := configfile.Read(o.ConfigFile)
	if err != nil {
		return nil, err
	}
	return o.loadContent(content)
}

// loadContent is Load with the content of the configuration file.
func (o *Options) loadContent(content []byte) (*Options, error) {
	file, err := configfile.Decode(o.ConfigFile, content)
	if err != nil {
		return nil, err
	}
	return o.load(file)
}

func (o *Options) load(file *configfile.File) (*Options, error) {
	result := *o
	if file != nil {
		result = *fromConfiguration(file.Configuration)
		result.ConfigFile, result.LeaseStrategies, result.flags = o.ConfigFile, o.LeaseStrategies, o.flags
		for _, s := range settings {
			if o.byFlag(s.flag) {
				s.move(&result, o)
			}
		}
	}
	result.loaded = &loaded{base: o, file: file}
	if err := result.Validate(); err != nil {
		return nil, err
	}
	return &result, nil
}

// ElectionSettings returns all that a decision takes of the flags and the configuration file, which it reads. It needs
// no cluster.
func (o *Options) ElectionSettings() (*election.Settings, error) {
	if o.loaded == nil {
		loaded, err := o.Load()
		if err != nil {
			return nil, err
		}
		o = loaded
	}
	return o.electionSettings(func(s strategy.Strategy) strategy.Strategy { return s })
}

// electionSettings returns all that a decision takes of loaded options. decorate is applied to each strategy.
func (o *Options) electionSettings(decorate func(strategy.Strategy) strategy.Strategy) (*election.Settings, error) {
	var strategies []strategy.Strategy
	for _, s := range o.loaded.strategies {
		strategies = append(strategies, decorate(s))
	}
	registry, err := strategy.NewRegistry(strategies...)
	if err != nil {
		return nil, err
	}
	return &election.Settings{
		Strategies:       registry,
		Overrides:        o.loaded.overrides,
		Excluded:         []types.NamespacedName{o.lockKey()},
		ElectionDuration: o.ElectionDuration,
		CandidateTTL:     o.CandidateTTL,
		TakeUpTimeout:    o.TakeUpTimeout,
		MinTerm:          o.MinTerm,
	}, nil
}

// chooseStrategies finds out which strategies there are, which of them are enabled, and which leases are led by which. Of
// options that are not loaded, but have a configuration file, it looks only at what does not depend on that.
func (o *Options) chooseStrategies(f *faults) {
	before := len(f.list)
	flags := o.flagOverrides(f)
	if o.loaded == nil && o.ConfigFile != "" {
		return
	}
	known := slices.Concat(strategy.BuiltIn(), o.customStrategies(f))
	enabled, err := strategy.Select(known, o.Strategies)
	for _, fault := range parts(err) {
		f.add("%s: %w", &o.Strategies, fault)
	}
	file := o.fileOverrides(f)
	// As long as anything is wrong with them, it is not known which strategies there are.
	if len(f.list) > before {
		return
	}
	for _, override := range flags {
		if err := isEnabled(override.Strategy, known, enabled); err != nil {
			f.list = append(f.list, fmt.Errorf("--lease-strategy=%q: %w", override, err))
		}
	}
	for i, override := range file {
		if err := isEnabled(override.Strategy, known, enabled); err != nil {
			f.inFile(fmt.Errorf("%s: %w", leaseStrategiesField.Index(i).Child("strategy"), err))
		}
	}
	overrides, err := strategy.NewOverrides(flags, file)
	if err != nil {
		// Each layer was admitted by itself.
		f.list = append(f.list, err)
	}
	if o.loaded != nil {
		o.loaded.strategies, o.loaded.overrides = enabled, overrides
	}
}

// parts returns the errors that were joined to the given one.
func parts(err error) []error {
	switch joined := err.(type) {
	case nil:
		return nil
	case interface{ Unwrap() []error }:
		return joined.Unwrap()
	case interface{ Errors() []error }:
		return joined.Errors()
	}
	return []error{err}
}

var (
	leaseStrategiesField  = field.NewPath("leaseStrategies")
	customStrategiesField = field.NewPath("customStrategies")
)

// flagOverrides parses the overrides of the flags.
func (o *Options) flagOverrides(f *faults) []strategy.Override {
	var overrides []strategy.Override
	for _, text := range o.LeaseStrategies {
		override, err := strategy.ParseOverride(text)
		if err != nil {
			f.list = append(f.list, fmt.Errorf("--lease-strategy: %w", err))
			continue
		}
		overrides = append(overrides, override)
	}
	_, err := strategy.NewOverrides(overrides, nil)
	for _, fault := range parts(err) {
		f.list = append(f.list, fmt.Errorf("--lease-strategy: %w", fault))
	}
	return overrides
}

// fileOverrides reads the overrides of the configuration file. If there is a fault, the result is not complete.
func (o *Options) fileOverrides(f *faults) []strategy.Override {
	if o.loaded == nil || o.loaded.file == nil {
		return nil
	}
	var overrides []strategy.Override
	for i, entry := range o.loaded.file.Configuration.LeaseStrategies {
		at := leaseStrategiesField.Index(i)
		if entry.Lease == "" {
			f.inFile(field.Required(at.Child("lease"), "must be [namespace/]lease"))
		}
		if entry.Strategy == "" {
			f.inFile(field.Required(at.Child("strategy"), "must be the name of a strategy"))
		}
		if entry.Lease == "" || entry.Strategy == "" {
			continue
		}
		override, err := strategy.NewOverride(entry.Lease, coordinationv1.CoordinatedLeaseStrategy(entry.Strategy))
		if err != nil {
			f.inFile(fmt.Errorf("%s: %w", at.Child("lease"), err))
			continue
		}
		overrides = append(overrides, override)
	}
	_, err := strategy.NewOverrides(nil, overrides)
	for _, fault := range parts(err) {
		f.inFile(fmt.Errorf("%s: %w", leaseStrategiesField, fault))
	}
	return overrides
}

// isEnabled returns an error unless leases can be led by the strategy.
func isEnabled(name coordinationv1.CoordinatedLeaseStrategy, known, enabled []strategy.Strategy) error {
	is := func(s strategy.Strategy) bool { return s.Name() == name }
	switch {
	case slices.ContainsFunc(enabled, is):
		return nil
	case slices.ContainsFunc(known, is):
		return fmt.Errorf("strategy %q is not enabled: enabled are %s", name, strategy.Names(enabled))
	}
	return fmt.Errorf("no strategy is called %q: there are %s", name, strategy.Names(known))
}

// customStrategies compiles the custom strategies. If there is a fault, the result is not complete.
func (o *Options) customStrategies(f *faults) []strategy.Strategy {
	if o.loaded == nil || o.loaded.file == nil {
		return nil
	}
	var custom []strategy.Strategy
	taken := strategy.BuiltIn()
	for i, definition := range o.loaded.file.Configuration.CustomStrategies {
		at := customStrategiesField.Index(i)
		s, err := cel.Compile(cel.Definition{Name: definition.Name, Eligible: definition.Eligible, Prefer: definition.Prefer}, at)
		for _, fault := range parts(err) {
			f.inFile(fault)
		}
		if err != nil {
			continue
		}
		if slices.ContainsFunc(taken, func(other strategy.Strategy) bool { return other.Name() == s.Name() }) {
			f.inFile(field.Duplicate(at.Child("name"), string(s.Name())))
			continue
		}
		taken = append(taken, s)
		custom = append(custom, s)
	}
	return custom
}
