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
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// Defaults of the durations in Config, which are those of the Kubernetes components.
const (
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
	DefaultFallbackAfter = 30 * time.Second
	DefaultHealthPeriod  = 5 * time.Second
)

// maxLeaseDuration is what leaseDurationSeconds, a 32-bit number, can say.
const maxLeaseDuration = math.MaxInt32 * time.Second

// Config says what to lead, as whom, and what to do then. New copies it; changing it later has no effect.
//
// Durations obey the timing rule, which New enforces:
//
//	LeaseDuration > RenewDeadline > 1.2 x RetryPeriod
//	DrainLimit <= LeaseDuration - RenewDeadline
//
// The zero value of a duration means its default.
type Config struct {
	// RestConfig says how to reach and authenticate to the API server. Required. It is copied. Its rate limiter, QPS,
	// burst, user agent, timeout, content type and warning handler are not used: what a controller allows itself for its
	// work must not delay a renewal. Connections are not shared with other clients. If Transport is set, it is used as it
	// is, and it is then up to the caller that a dead connection is noticed and not shared by all requests.
	RestConfig *rest.Config

	// Namespace and LeaseName are those of the Lease to lead. Required. A LeaseName is a DNS subdomain of at most 253
	// characters.
	Namespace, LeaseName string

	// Identity is the holder identity, and the name of the LeaseCandidate. At most 253 characters out of letters, digits,
	// "-", "_" and ".". To register on API servers that serve no LeaseCandidates but those of lease-coordinator.dev, it must
	// be a DNS-1123 subdomain: lower case letters, digits, "-" and ".", with a letter or digit at both ends and beside each
	// "."; where it is not, the candidate says so in its log, and takes part by FallbackAfter alone. No two processes may
	// use the same at the same time; a process that is started again may use the identity of its predecessor.
	// Default: "<hostname>-<random UUID>", a new one for each Candidate, with the hostname made a DNS-1123 subdomain.
	Identity string

	// BinaryVersion is the version of the program, EmulationVersion the version as which it behaves: semantic versions,
	// with or without a leading "v", and with or without the patch number. BinaryVersion is required; EmulationVersion
	// defaults to it, and cannot be higher. What is no version, such as a commit hash, or 0.0.0, is refused.
	BinaryVersion, EmulationVersion string

	// Strategy by which the coordinator is to choose among the candidates. Default: OldestEmulationVersion. All candidates
	// of a lease that have the highest binary version must ask for the same.
	Strategy coordinationv1.CoordinatedLeaseStrategy

	// Labels of the LeaseCandidate. Labels that others have put on it are left alone.
	Labels map[string]string

	// LeaseDuration is how long a claim holds without renewal, and how long others wait before they take over from a leader
	// that has vanished. Whole seconds, at least one. Default 15s.
	LeaseDuration time.Duration
	// RenewDeadline is how long the work goes on without a successful renewal. A request is given up after a quarter of
	// it, and tried again. Default 10s.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals. Default 2s. The leader makes one request in that time.
	RetryPeriod time.Duration
	// DrainLimit is how long Lead may go on after its context has ended; after that, OnDeadline. The lease is renewed
	// meanwhile. Default, and highest value, LeaseDuration - RenewDeadline.
	DrainLimit time.Duration

	// FallbackAfter is how long the lease must be without a valid holder, and without a sign of a coordinator, before the
	// candidate takes it by itself, as plain leader election would. Default 30s; negative: never. Below the few seconds
	// that a coordinator may take for an election, the strategy is no longer reliable.
	FallbackAfter time.Duration

	// Lead is the work. Required. It is called, in a goroutine of its own, each time the candidate becomes leader, never
	// twice at once. It must return soon after ctx is done, and in any case within DrainLimit: only then is the lease
	// handed over. Everything that must not be done by two processes at once must have ended when it returns, goroutines
	// that it has started included. ctx carries the Term (TermFromContext) and the values of Run's context;
	// context.Cause(ctx) says why it has ended.
	//
	// If it returns before ctx is done, the candidate resigns, and Run returns the error. What it returns after that is
	// only logged. It may be called again, by the same Run, when leadership was lost and has come back. A panic is not
	// recovered.
	Lead func(ctx context.Context) error

	// OnNominated, if set, is called when this candidate is going to be the next leader: the time to fill caches. Nothing
	// follows from that with certainty, and it may be called again. It must not do the work. A call does not delay
	// anything but the next such call and, at the end, Run.
	OnNominated func()

	// OnNewLeader, if set, is called with the holder's identity when another one is seen than before, this candidate's own
	// included, and with "" when there is none. Calls come one after the other; if one takes long, the next tells the
	// latest and those in between are left out. It must not block for long: Run waits for it at the end.
	OnNewLeader func(identity string)

	// OnDeadline is called, at most once in a term and in a goroutine of its own, when Lead has not returned although the
	// claim has run out or DrainLimit has passed. From that moment on another process may lead. Default: write a log line
	// and call os.Exit(1). If a handler returns, the lease is not renewed any more, and the candidacy goes on when Lead
	// returns.
	OnDeadline func(why string)

	// Healthy, if set, is asked every HealthPeriod whether this process is fit to lead. Three errors in a row, and the
	// candidate resigns and withdraws; the first success brings it back. Taking longer than HealthPeriod is an error, and
	// there is never more than one call at a time. It must return when ctx is done.
	Healthy func(ctx context.Context) error
	// HealthPeriod is the time between two calls of Healthy. Default 5s.
	HealthPeriod time.Duration

	// Logger for what the candidate does: a line at level 0 for each change, errors once until they change. Default: the
	// one in Run's context, and none if that has none.
	Logger logr.Logger
}

// complete returns the configuration with its defaults, and every fault that it has.
func (c Config) complete() (Config, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	if c.RestConfig == nil {
		fault("RestConfig is required")
	} else {
		c.RestConfig = rest.CopyConfig(c.RestConfig)
	}
	if c.Lead == nil {
		fault("Lead is required")
	}
	for _, message := range validation.IsDNS1123Label(c.Namespace) {
		fault("Namespace %q: %s", c.Namespace, message)
	}
	for _, message := range validation.IsDNS1123Subdomain(c.LeaseName) {
		fault("LeaseName %q: %s", c.LeaseName, message)
	}
	if c.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			fault("Identity is required, since the host has no name: %w", err)
		}
		c.Identity = defaultIdentity(host)
	}
	// What kube-apiserver asks of a LeaseCandidate's name.
	for _, message := range validation.IsConfigMapKey(c.Identity) {
		fault("Identity %q: %s", c.Identity, message)
	}

	if c.EmulationVersion == "" {
		c.EmulationVersion = c.BinaryVersion
	}
	binary, err := parseVersion(c.BinaryVersion)
	if err != nil {
		fault("BinaryVersion %q: %w", c.BinaryVersion, err)
	}
	emulation, emulationErr := parseVersion(c.EmulationVersion)
	if emulationErr != nil && (err == nil || c.EmulationVersion != c.BinaryVersion) {
		fault("EmulationVersion %q: %w", c.EmulationVersion, emulationErr)
	}
	if err == nil && emulationErr == nil {
		if emulation.GT(binary) {
			fault("EmulationVersion %q must not be higher than BinaryVersion %q", c.EmulationVersion, c.BinaryVersion)
		}
		c.BinaryVersion, c.EmulationVersion = binary.String(), emulation.String()
	}

	if c.Strategy == "" {
		c.Strategy = v1alpha1.OldestEmulationVersion
	}
	if strings.Contains(string(c.Strategy), "/") {
		for _, message := range validation.IsQualifiedName(string(c.Strategy)) {
			fault("Strategy %q: %s", c.Strategy, message)
		}
	} else if c.Strategy != v1alpha1.OldestEmulationVersion {
		fault("Strategy %q: must be %q or have a domain, as in %q", c.Strategy, v1alpha1.OldestEmulationVersion, v1alpha1.Sticky)
	}
	if errs := metav1validation.ValidateLabels(c.Labels, field.NewPath("Labels")); len(errs) > 0 {
		faults = append(faults, errs.ToAggregate().Errors()...)
	}
	c.Labels = maps.Clone(c.Labels)

	faults = append(faults, c.completeTiming()...)
	if len(faults) > 0 {
		return c, fmt.Errorf("validating the candidate's configuration: %w", errors.Join(faults...))
	}
	return c, nil
}

func (c *Config) completeTiming() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	for _, d := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"LeaseDuration", &c.LeaseDuration, DefaultLeaseDuration},
		{"RenewDeadline", &c.RenewDeadline, DefaultRenewDeadline},
		{"RetryPeriod", &c.RetryPeriod, DefaultRetryPeriod},
		{"DrainLimit", &c.DrainLimit, 0},
		{"HealthPeriod", &c.HealthPeriod, DefaultHealthPeriod},
	} {
		if *d.value < 0 {
			fault("%s %s must be positive", d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	if c.FallbackAfter == 0 {
		c.FallbackAfter = DefaultFallbackAfter
	}
	if len(faults) > 0 {
		return faults
	}
	if c.LeaseDuration%time.Second != 0 || c.LeaseDuration > maxLeaseDuration {
		fault("LeaseDuration %s must be a whole number of seconds, at least 1s and at most %s", c.LeaseDuration, maxLeaseDuration)
	}
	if c.LeaseDuration <= c.RenewDeadline {
		fault("LeaseDuration %s must be longer than RenewDeadline %s", c.LeaseDuration, c.RenewDeadline)
	}
	// In whole numbers, so that the boundary is exact.
	if c.RenewDeadline-c.RetryPeriod <= c.RetryPeriod/5 {
		fault("RenewDeadline %s must be longer than 1.2 times RetryPeriod %s", c.RenewDeadline, c.RetryPeriod)
	}
	spare := c.LeaseDuration - c.RenewDeadline
	switch {
	case spare <= 0:
	case c.DrainLimit == 0:
		c.DrainLimit = spare
	case c.DrainLimit > spare:
		fault("DrainLimit %s must not be longer than LeaseDuration %s minus RenewDeadline %s, which is %s",
			c.DrainLimit, c.LeaseDuration, c.RenewDeadline, spare)
	}
	return faults
}

// parseVersion reads a version as people write them, but nothing that only looks like one: a commit hash or a date of
// digits alone would rank above every real version.
func parseVersion(s string) (semver.Version, error) {
	if s == "" {
		return semver.Version{}, errors.New("a version is required")
	}
	if !strings.Contains(s, ".") {
		return semver.Version{}, errors.New(`not a version: at least major and minor are needed, as in "1.29"`)
	}
	v, err := semver.ParseTolerant(s)
	if err != nil {
		return semver.Version{}, fmt.Errorf("not a semantic version: %w", err)
	}
	if v.Major == 0 && v.Minor == 0 && v.Patch == 0 {
		return semver.Version{}, errors.New("not a version: programs that were built without version information call themselves that")
	}
	return v, nil
}
