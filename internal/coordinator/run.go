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
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/lease-coordinator/coordinator/internal/controller"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
	"github.com/lease-coordinator/coordinator/internal/observe"
)

const (
	// probePeriod is how often the API server is asked what it can do and what it allows, so that a feature gate
	// that is switched on in an upgrade is followed without restart, and a right that was taken away is missed
	// within half a minute: watches that are open go on without it.
	probePeriod = 20 * time.Second
	// retryPeriod is how often it is asked while the coordinator cannot work.
	retryPeriod = 5 * time.Second
	// probePause is the shortest time between two looks, however many failures ask for one.
	probePause = time.Second
	// requestTimeout bounds every request but watches.
	requestTimeout = 10 * time.Second
)

// Run runs the coordinator until ctx is done. It returns an error if the options are at fault or the manager
// cannot run; an API server that is away, refuses or lacks something is waited for, and the log and /readyz say so.
func Run(ctx context.Context, o *Options, logger logr.Logger) error {
	if o.loaded == nil {
		loaded, err := o.Load()
		if err != nil {
			return err
		}
		loaded.level = o.level
		o = loaded
	}
	ctrllog.SetLogger(logger)
	klog.SetLoggerWithOptions(logger.WithName("client-go"), klog.ContextualLogger(true))

	config, err := o.restConfig()
	if err != nil {
		return err
	}
	c, err := newCoordinator(o, config, logger)
	if err != nil {
		return err
	}
	logger.Info("Coordinator starting", "version", Version(), "server", config.Host, "inTree", o.InTree, "identity", c.leadership.identity)
	if err := c.manager.Start(logr.NewContext(ctx, logger)); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}
	logger.Info("Coordinator stopped")
	return nil
}

// restConfig finds the API server as kubectl does, or as a Pod does.
func (o *Options) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server (--kubeconfig=%q): %w", o.Kubeconfig, err)
	}
	config.UserAgent = "lease-coordinator/" + Version()
	// Without a limit of our own, the API server's priority and fairness decides.
	config.QPS, config.Burst = -1, 0
	if o.KubeAPIQPS > 0 {
		config.QPS, config.Burst = o.KubeAPIQPS, max(o.KubeAPIBurst, int(o.KubeAPIQPS)+1)
	}
	// The API server warns at each request for a deprecated version; once is enough.
	config.WarningHandlerWithContext = ctrllog.NewKubeAPIWarningLogger(ctrllog.KubeAPIWarningLoggerOptions{Deduplicate: true})
	return config, nil
}

// coordinator wires the parts together.
type coordinator struct {
	options    *Options
	logger     logr.Logger
	manager    manager.Manager
	discovery  discovery.DiscoveryInterfaceWithContext
	leadership *leadership
	observer   *controller.Observer
	metrics    *observe.Metrics
	reconciler *controller.Reconciler
	// configuration is what is in force of the options; options are those that the coordinator started with.
	configuration *configuration
	// problem is why the coordinator cannot work at present; nil if it can.
	problem atomic.Pointer[error]
	// probe asks for a look at what the API server can do, without waiting for the next.
	probe chan struct{}
}

var errStarting = errors.New("starting")

func newCoordinator(o *Options, config *rest.Config, logger logr.Logger) (*coordinator, error) {
	identity, err := newIdentity()
	if err != nil {
		return nil, err
	}
	c := &coordinator{options: o, logger: logger, probe: make(chan struct{}, 1)}
	c.problem.Store(&errStarting)
	metricsOptions := metricsserver.Options{BindAddress: o.MetricsAddress, SecureServing: o.MetricsSecure}
	if o.MetricsSecure {
		metricsOptions.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme:                 clientgoscheme.Scheme,
		MapperProvider:         newMapper,
		Logger:                 logger,
		Metrics:                metricsOptions,
		HealthProbeBindAddress: o.HealthAddress,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				// Every kubelet renews a Lease there, every 10 s.
				&coordinationv1.Lease{}: {Field: fields.OneTermNotEqualSelector("metadata.namespace", corev1.NamespaceNodeLease)},
			},
			DefaultWatchErrorHandler: toolscache.WatchErrorHandlerWithContext(c.watchFailed),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the discovery client: %w", err)
	}
	c.manager, c.discovery = mgr, discoveryClient
	c.observer = controller.NewObserver(identity, true, time.Now)
	c.metrics = observe.NewMetrics(metrics.Registry)
	if c.configuration, err = newConfiguration(o, c.metrics, logger); err != nil {
		return nil, err
	}
	c.configuration.told, c.configuration.changed = c.tellConfiguration, c.configurationChanged
	if c.leadership, err = newLeadership(o, config, identity, c.metrics, logger); err != nil {
		return nil, err
	}
	c.observer.WhenForgotten(c.metrics.Forget)
	observe.CollectLeases(metrics.Registry, c.leaseStatuses)
	c.leadership.elected = func() { c.reconciler.LookAt(c.observer.Coordinated()) }
	c.reconciler = &controller.Reconciler{
		Client:    mgr.GetClient(),
		Reader:    mgr.GetAPIReader(),
		Observer:  c.observer,
		Settings:  c.configuration.settings,
		Events:    observe.Events{Recorder: mgr.GetEventRecorder("lease-coordinator")},
		Metrics:   c.metrics,
		DryRun:    c.configuration.dryRun,
		Act:       c.leadership.Act,
		Surprised: c.askProbe,
	}
	if err := errors.Join(
		mgr.Add(c),
		mgr.Add(c.configuration),
		serveExplanations(mgr, observations{c.observer, c.configuration.settings}),
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("coordinating", c.ready),
	); err != nil {
		return nil, fmt.Errorf("adding to the manager: %w", err)
	}
	return c, nil
}

// leaseStatuses returns what monitoring sees of single leases. Standbys observe them too, but tell nothing.
func (c *coordinator) leaseStatuses() []observe.LeaseStatus {
	done, active := c.leadership.Act()
	if !active {
		return nil
	}
	defer done()
	return c.observer.Statuses(c.configuration.settings())
}

// configurationChanged has every lease decided on again. What the coordinator needs to be allowed may have changed too.
func (c *coordinator) configurationChanged() {
	c.reconciler.LookAt(c.observer.Coordinated())
	c.askProbe()
}

// tellConfiguration emits the event of a changed configuration file on the coordinator's own lock.
func (c *coordinator) tellConfiguration(ctx context.Context, inForce bool, note string) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	key := c.options.lockKey()
	lock := &coordinationv1.Lease{}
	if err := c.manager.GetAPIReader().Get(ctx, key, lock); err != nil {
		// The event has no UID then, and kubectl describe does not show it; kubectl events does.
		lock = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		// Events about one object in one version are taken for one event, with the note of the first.
		lock.ResourceVersion = strconv.FormatInt(time.Now().UnixNano(), 10)
	}
	if inForce {
		c.reconciler.Events.ConfigurationReloaded(lock, note)
	} else {
		c.reconciler.Events.ConfigurationRefused(lock, note)
	}
}

// newMapper maps the kinds that the coordinator uses to their resources. They are known; the default, which asks the
// API server, could not even be created while that is away.
func newMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, object := range append(leaseapi.Kinds(), &coordinationv1.Lease{}) {
		kind, err := apiutil.GVKForObject(object, clientgoscheme.Scheme)
		if err != nil {
			return nil, fmt.Errorf("mapping kinds to resources: %w", err)
		}
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	mapper.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	return mapper, nil
}

// watchFailed logs, in one line, a watch that failed, and has the reason found out; client-go tries again.
func (c *coordinator) watchFailed(_ context.Context, r *toolscache.Reflector, err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, io.EOF) {
		// The ordinary end of a watch.
		c.logger.V(2).Info("Watch ended; watching again", "kind", r.TypeDescription(), "why", err.Error())
		return
	}
	c.logger.Error(err, "Watch failed; trying again", "kind", r.TypeDescription())
	c.askProbe()
}

// ready says whether the coordinator can do its work, on the active one and on standbys alike.
func (c *coordinator) ready(*http.Request) error { return *c.problem.Load() }

func (c *coordinator) askProbe() {
	select {
	case c.probe <- struct{}{}:
	default:
	}
}

// NeedLeaderElection tells the manager to start this runnable at once.
func (c *coordinator) NeedLeaderElection() bool { return false }

// Start finds out what the API server can do, starts the controller as soon as it can work, and keeps an eye on
// what the API server can do.
func (c *coordinator) Start(ctx context.Context) error {
	started := false
	for {
		problem := c.prepare(ctx)
		if problem == nil && !started {
			if err := c.reconciler.SetupWithManager(c.manager); err != nil {
				return err
			}
			if err := c.manager.Add(c.leadership); err != nil {
				return fmt.Errorf("adding leader election to the manager: %w", err)
			}
			started = true
		}
		c.setProblem(problem)
		wait := probePeriod
		if problem != nil {
			wait = retryPeriod
		}
		if !pause(ctx, probePause, nil) || !pause(ctx, wait-probePause, c.probe) {
			return nil
		}
	}
}

// pause waits that long, or until woken. It returns false if ctx is done.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-timer.C:
	}
	return true
}

// setProblem logs a problem when it appears, changes and goes.
func (c *coordinator) setProblem(problem error) {
	before := *c.problem.Swap(&problem)
	switch {
	case problem == nil && before != nil:
		c.logger.Info("Coordinator ready", "candidates", c.reconciler.Kind.String())
	case problem != nil && (before == nil || before.Error() != problem.Error()):
		c.logger.Error(problem, "Coordinator cannot work; trying again", "every", retryPeriod.String())
	}
}

// prepare finds out whether the coordinator may and can work, and how.
func (c *coordinator) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := checkRights(ctx, c.manager.GetClient(), rights(c.options.lockKey(), c.configuration.dryRun())); err != nil {
		return err
	}
	kind, err := leaseapi.ServedCandidates(ctx, c.discovery)
	if err != nil {
		return err
	}
	if c.reconciler.Kind == nil {
		c.reconciler.Kind = kind
	}
	kept, err := leaseapi.FieldsKept(ctx, c.manager.GetClient(), c.options.lockKey().Namespace)
	if err != nil {
		return err
	}
	c.metrics.FieldsKept(kept)
	if changed := c.observer.SetFieldsKept(kept); changed != nil {
		c.logger.Info("What the API server does with spec.strategy and spec.preferredHolder of a Lease", "kept", kept)
		c.reconciler.LookAt(changed)
	}
	return nil
}
