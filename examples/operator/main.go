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

// Command operator is a small controller-runtime operator that leads by lease-coordinator: it stamps the ConfigMaps that
// ask for it with its version and the fencing token of its term. It shows both ways of leading: one manager that ends with
// its term, and with it the process; or, with --per-term-manager, a manager for each term in a process that lives on. It is
// an example, and not part of the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/pkg/candidate"
)

// version is set by -ldflags "-X main.version=1.2.3".
var version = "0.1.0"

// untilStopped has a manager wait for its controllers as long as it takes, which is for DrainLimit to bound: one that gives up
// waiting would hand over with controllers at work.
const untilStopped = time.Duration(-1)

// operator is what the flags say.
type operator struct {
	namespace, lease, identity, version string
	interval                            time.Duration
	perTerm                             bool
	probes, metrics                     string
	logging                             zap.Options
}

func (o *operator) addFlags(flags *flag.FlagSet) {
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		namespace = "default"
	}
	flags.StringVar(&o.namespace, "namespace", namespace, "namespace of the Lease and of the ConfigMaps")
	flags.StringVar(&o.lease, "lease-name", "example-operator", "name of the Lease")
	flags.StringVar(&o.identity, "identity", "", "holder identity (default: the name of the host, which is that of the Pod)")
	flags.StringVar(&o.version, "binary-version", version, "version to register and to stamp with")
	flags.DurationVar(&o.interval, "interval", 10*time.Second, "time between two stamps of a ConfigMap")
	flags.BoolVar(&o.perTerm, "per-term-manager", false, "run a manager for each term, and live on when one ends")
	flags.StringVar(&o.probes, "health-probe-bind-address", ":8081", "where to serve /healthz and /readyz; 0: nowhere")
	flags.StringVar(&o.metrics, "metrics-bind-address", "0", "where to serve /metrics, without authentication; 0: nowhere")
	o.logging.BindFlags(flags)
}

func main() {
	var o operator
	o.addFlags(flag.CommandLine)
	flag.Parse()
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&o.logging)))

	err := o.run(ctrl.SetupSignalHandler())
	switch {
	case errors.Is(err, candidate.ErrEndOfTerm):
		// As planned. In a Deployment the kubelet starts the process again, as a standby.
		ctrl.Log.Info("Ending, since another one leads", "reason", err.Error())
	case err != nil:
		ctrl.Log.Error(err, "Ending")
		os.Exit(1)
	}
}

func (o *operator) run(ctx context.Context) error {
	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the API server: %w", err)
	}
	if o.identity == "" {
		if o.identity, err = os.Hostname(); err != nil {
			return fmt.Errorf("finding the host's name: %w", err)
		}
	}
	if o.perTerm {
		return o.runManagerPerTerm(ctx, restConfig)
	}
	return o.runManager(ctx, restConfig)
}

func (o *operator) candidate(restConfig *rest.Config) candidate.Config {
	return candidate.Config{
		RestConfig:    restConfig,
		Namespace:     o.namespace,
		LeaseName:     o.lease,
		Identity:      o.identity,
		BinaryVersion: o.version,
		// Moves leadership once in a rolling update.
		Strategy: v1alpha1.NewestBinaryVersion,
		Logger:   ctrl.Log.WithName("candidate"),
	}
}

// runManager runs one manager with leader election. A standby's caches are warm, so that it begins at once when it leads.
func (o *operator) runManager(ctx context.Context, restConfig *rest.Config) error {
	lock, err := candidate.NewResourceLock(o.candidate(restConfig))
	if err != nil {
		return err
	}
	mgr, err := manager.New(restConfig, manager.Options{
		LeaderElection:                      true,
		LeaderElectionReleaseOnCancel:       true,
		LeaderElectionResourceLockInterface: lock,

		GracefulShutdownTimeout: ptr.To(untilStopped),
		Cache:                   o.cache(),
		Controller:              ctrlconfig.Controller{EnableWarmup: ptr.To(true)},
		HealthProbeBindAddress:  o.probes,
		Metrics:                 server.Options{BindAddress: o.metrics},
	})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	if err := mgr.Add(lock.Runnable()); err != nil {
		return fmt.Errorf("adding the candidate: %w", err)
	}
	// Readiness has nothing to do with leadership, or a rolling update would wait for ever.
	if err := errors.Join(mgr.AddHealthzCheck("candidate", lock.Check), mgr.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return fmt.Errorf("adding the probes: %w", err)
	}
	term := func(context.Context) (candidate.Term, bool) { return lock.Term() }
	if err := o.setUp(mgr, term); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// runManagerPerTerm runs a manager that is always there, for what every replica serves, and in it one for each term.
func (o *operator) runManagerPerTerm(ctx context.Context, restConfig *rest.Config) error {
	always, err := manager.New(restConfig, manager.Options{
		GracefulShutdownTimeout: ptr.To(untilStopped),
		HealthProbeBindAddress:  o.probes,
		Metrics:                 server.Options{BindAddress: o.metrics},
	})
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	if err := errors.Join(always.AddHealthzCheck("ping", healthz.Ping), always.AddReadyzCheck("ping", healthz.Ping)); err != nil {
		return fmt.Errorf("adding the probes: %w", err)
	}
	newManager := func(ctx context.Context) (candidate.Manager, error) {
		mgr, err := manager.New(restConfig, manager.Options{
			// The controllers' contexts carry the term. That they end is up to the manager, in the right order.
			BaseContext:             func() context.Context { return context.WithoutCancel(ctx) },
			GracefulShutdownTimeout: ptr.To(untilStopped),
			Cache:                   o.cache(),
			// The next term has controllers of the same names.
			Controller:             ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
			HealthProbeBindAddress: "0",
			Metrics:                server.Options{BindAddress: "0"},
		})
		if err != nil {
			return nil, err
		}
		return mgr, o.setUp(mgr, func(ctx context.Context) (candidate.Term, bool) {
			term, ok := candidate.TermFromContext(ctx)
			return term, ok && term.Valid()
		})
	}
	err = always.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return candidate.RunManager(ctx, o.candidate(restConfig), newManager)
	}))
	if err != nil {
		return fmt.Errorf("adding the candidate: %w", err)
	}
	return always.Start(ctx)
}

// cache holds what this operator may read, and needs to.
func (o *operator) cache() cache.Options {
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{o.namespace: {}},
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Label: labels.SelectorFromSet(labels.Set{stampLabel: "true"})},
		},
	}
}
