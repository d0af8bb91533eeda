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
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"

	"github.com/lease-coordinator/coordinator/internal/coordinator/configfile"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/observe"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

const (
	// filePeriod is how often the configuration file is read. Its content is compared and nothing else, so that it
	// does not matter how it changes: written in place, renamed, or by a link, as in a ConfigMap's volume.
	filePeriod = time.Second
	// settled is for how many periods a changed file must stay as it is before it counts: it may be half written.
	settled = 1
	// gone is the same for a file that cannot be read: it may just be replaced.
	gone = 5
)

// configuration is what is in force in a running coordinator, and what looks after the configuration file.
type configuration struct {
	// base are the options as the flags gave them.
	base    *Options
	logger  logr.Logger
	metrics *observe.Metrics
	// told has an event emitted about a changed file: whether it is in force, and the sentence. It may take a while.
	told func(ctx context.Context, inForce bool, note string)
	// changed is called when another configuration has come in force.
	changed func()

	current atomic.Pointer[inForce]
	// judged is the file that was last judged, and next the one that may have to be, for as many periods as count says.
	judged, next sighting
	count        int
}

// inForce is never changed.
type inForce struct {
	options  *Options
	settings *election.Settings
}

// sighting is what reading the file gave.
type sighting struct{ content, err string }

// newConfiguration puts loaded options in force.
func newConfiguration(o *Options, metrics *observe.Metrics, logger logr.Logger) (*configuration, error) {
	c := &configuration{base: o.loaded.base, metrics: metrics, logger: logger.WithName("configuration")}
	if o.loaded.file != nil {
		c.judged = sighting{content: string(o.loaded.file.Content)}
	}
	if err := c.enforce(o); err != nil {
		return nil, err
	}
	metrics.ConfigurationLoaded(time.Now())
	return c, nil
}

// options returns the options in force.
func (c *configuration) options() *Options { return c.current.Load().options }

// settings returns what decisions take of them.
func (c *configuration) settings() *election.Settings { return c.current.Load().settings }

func (c *configuration) dryRun() bool { return c.options().DryRun }

func (c *configuration) enforce(o *Options) error {
	settings, err := o.electionSettings(func(s strategy.Strategy) strategy.Strategy { return observe.Measured(s, c.metrics) })
	if err != nil {
		return err
	}
	c.current.Store(&inForce{options: o, settings: settings})
	if o.level != nil {
		o.level.SetLevel(levelOf(o.Verbosity))
	}
	return nil
}

// NeedLeaderElection tells the manager to start this runnable at once: standbys follow the file too.
func (c *configuration) NeedLeaderElection() bool { return false }

// Start follows the configuration file until ctx is done.
func (c *configuration) Start(ctx context.Context) error {
	if c.base.ConfigFile == "" {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(filePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			c.look(ctx)
		}
	}
}

// look reads the file, and judges it if it has changed and is settled.
func (c *configuration) look(ctx context.Context) {
	content, err := configfile.Read(c.base.ConfigFile)
	seen, periods := sighting{content: string(content)}, settled
	if err != nil {
		seen, periods = sighting{err: err.Error()}, gone
	}
	if seen != c.next {
		c.next, c.count = seen, 0
	} else if c.count <= periods {
		c.count++
	}
	if seen == c.judged || c.count < periods {
		return
	}
	c.judged = seen
	if err == nil {
		err = c.reload(ctx, content)
	}
	if err != nil {
		c.metrics.ConfigurationRefused()
		c.logger.Error(err, "Configuration refused; the one before stays in force")
		c.told(ctx, false, err.Error()+"; the configuration before stays in force")
	}
}

// reload puts the content in force, but for what takes a restart.
func (c *configuration) reload(ctx context.Context, content []byte) error {
	next, err := c.base.loadContent(content)
	if err != nil {
		return err
	}
	waiting := next.keep(c.options())
	if err := c.enforce(next); err != nil {
		return configfile.Wrap(c.base.ConfigFile, err)
	}
	c.metrics.ConfigurationReloaded(time.Now())
	note := fmt.Sprintf("configuration file %q is in force", c.base.ConfigFile)
	values := []any{"file", c.base.ConfigFile}
	if len(waiting) > 0 {
		note += ", but for what takes a restart: " + strings.Join(waiting, ", ")
		values = append(values, "waitingForRestart", waiting)
	}
	c.logger.Info("Configuration reloaded", values...)
	c.changed()
	c.told(ctx, true, note)
	return nil
}

// keep sets what takes a restart as it is in the running options, and returns the fields of the file in which that
// makes a difference.
func (o *Options) keep(running *Options) (waiting []string) {
	o.level = running.level
	for _, s := range settings {
		if s.live {
			continue
		}
		if !reflect.DeepEqual(s.value(o), s.value(running)) {
			waiting = append(waiting, s.field)
		}
		s.move(o, running)
	}
	return waiting
}

// levelOf returns zap's level of a verbosity: logr's counts up, zap's down.
func levelOf(verbosity int) zapcore.Level { return zapcore.Level(-min(verbosity, maxVerbosity)) }
