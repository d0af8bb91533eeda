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
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/controller"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
	"github.com/lease-coordinator/coordinator/internal/observe"
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
	discovery  *leaseapi.Discovery
	leadership *leadership
	observer   *controller.Observer
	metrics    *observe.Metrics
	reconciler *controller.Reconciler
	// configuration is what is in force of the options; options are those that the coordinator started with.
	configuration *configuration
	// problem is why the coordinator cannot work at present; nil if it can.
	problem atomic.Pointer[error]
	// flavour is what the API server was last found to do; nil if that is not known yet.
	flavour atomic.Pointer[flavour]
	// wake asks for a full look at what the API server can do, without waiting for the next.
	wake chan struct{}

	// The rest belongs to Start. running is done when the coordinator ends, and started set once it has begun to work.
	running context.Context
	started bool
	kinds   kindChoice
}

var errStarting = errors.New("starting")

func newCoordinator(o *Options, config *rest.Config, logger logr.Logger) (*coordinator, error) {
	identity, err := newIdentity()
	if err != nil {
		return nil, err
	}
	c := &coordinator{options: o, logger: logger, wake: make(chan struct{}, 1)}
	c.problem.Store(&errStarting)
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return newCutOff(impatient{next}, c.lookAgain) })
	metricsOptions := metricsserver.Options{BindAddress: o.MetricsAddress, SecureServing: o.MetricsSecure}
	if o.MetricsSecure {
		metricsOptions.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme:         leaseapi.NewScheme(),
		MapperProvider: newMapper,
		Logger:         logger,
		Metrics:        metricsOptions,
		// Served by healthServer.
		HealthProbeBindAddress: "0",
		Cache:                  o.cacheOptions(c.watchFailed),
	})
	if err != nil {
		return nil, fmt.Errorf("creating the manager: %w", err)
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the discovery client: %w", err)
	}
	c.manager, c.discovery = mgr, leaseapi.NewDiscovery(discoveryClient)
	c.observer = controller.NewObserver(identity, true, time.Now)
	c.metrics = observe.NewMetrics(metrics.Registry)
	if c.configuration, err = newConfiguration(o, c.metrics, logger); err != nil {
		return nil, err
	}
	c.configuration.told, c.configuration.changed = c.tellConfiguration, c.configurationChanged
	if c.leadership, err = newLeadership(o, config, identity, lockWatch{seen: c.observer.Lease, failed: c.lockFailed}, c.metrics, logger); err != nil {
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
		Surprised: c.lookAgain,
	}
	if err := errors.Join(
		mgr.Add(c),
		mgr.Add(c.configuration),
		serveExplanations(mgr, observations{c.observer, c.configuration.settings}),
	); err != nil {
		return nil, fmt.Errorf("adding to the manager: %w", err)
	}
	if o.HealthAddress != "0" {
		if err := mgr.Add(c.healthServer(o.HealthAddress)); err != nil {
			return nil, fmt.Errorf("adding the health endpoints to the manager: %w", err)
		}
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
	c.lookAgain()
}

// tellConfiguration emits the event of a changed configuration file.
func (c *coordinator) tellConfiguration(ctx context.Context, inForce bool, note string) {
	c.tell(ctx, func(lock *lockObject) {
		if inForce {
			c.reconciler.Events.ConfigurationReloaded(lock, note)
		} else {
			c.reconciler.Events.ConfigurationRefused(lock, note)
		}
	})
}

// lockObject is the coordinator's own lock, which its events are about.
type lockObject = coordinationv1.Lease

// tell emits an event about the coordinator's own lock.
func (c *coordinator) tell(ctx context.Context, emit func(*lockObject)) {
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
	emit(lock)
}

// newMapper maps the kinds that the coordinator uses to their resources. They are known; the default, which asks the
// API server, could not even be created while that is away.
func newMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	reviews := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"SelfSubjectAccessReview", "SelfSubjectRulesReview"} {
		reviews.Add(authorizationv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{leaseapi.NewMapper(), reviews}}, nil
}

// cacheOptions says what is watched: of Leases those of all namespaces but one, or of the chosen namespaces and, to know
// whether it is at work, the in-tree coordinator's lock.
func (o *Options) cacheOptions(watchFailed toolscache.WatchErrorHandlerWithContext) cache.Options {
	options := cache.Options{
		DefaultTransform:         cache.TransformStripManagedFields(),
		DefaultWatchErrorHandler: watchFailed,
	}
	if len(o.Namespaces) == 0 {
		options.ByObject = map[client.Object]cache.ByObject{
			// Every kubelet renews a Lease there, every 10 s.
			&coordinationv1.Lease{}: {Field: fields.OneTermNotEqualSelector("metadata.namespace", corev1.NamespaceNodeLease)},
		}
		return options
	}
	options.DefaultNamespaces = map[string]cache.Config{}
	leases := map[string]cache.Config{
		v1alpha1.InTreeLockNamespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", v1alpha1.InTreeLockName)},
	}
	for _, namespace := range o.Namespaces {
		options.DefaultNamespaces[namespace], leases[namespace] = cache.Config{}, cache.Config{}
	}
	options.ByObject = map[client.Object]cache.ByObject{&coordinationv1.Lease{}: {Namespaces: leases}}
	return options
}

// watchFailed logs, in one line, a watch that failed, and has the reason found out; client-go tries again.
func (c *coordinator) watchFailed(_ context.Context, r *toolscache.Reflector, err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, io.EOF) {
		// The ordinary end of a watch.
		c.logger.V(2).Info("Watch ended; watching again", "kind", r.TypeDescription(), "why", err.Error())
		return
	}
	c.logger.Error(err, "Watch failed; trying again", "kind", r.TypeDescription())
	c.lookAgain()
}

// lockFailed has the reason found out why the lock could not be read or written.
func (c *coordinator) lockFailed(err error) {
	if apierrors.IsForbidden(err) {
		c.lookAgain()
	}
}

// ready says whether the coordinator can do its work, on the active one and on standbys alike.
func (c *coordinator) ready(*http.Request) error { return *c.problem.Load() }

func (c *coordinator) lookAgain() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// NeedLeaderElection tells the manager to start this runnable at once.
func (c *coordinator) NeedLeaderElection() bool { return false }

// Start finds out what the API server can do, starts the controller as soon as it can work, and keeps an eye on
// what the API server can do.
func (c *coordinator) Start(ctx context.Context) error {
	c.running = ctx
	for n := 0; ; n++ {
		full := n%fullLook == 0 || *c.problem.Load() != nil
		looking, cancel := context.WithTimeout(ctx, requestTimeout)
		wait, problem := c.look(looking, full)
		cancel()
		var cannotRun cannotRunError
		if errors.As(problem, &cannotRun) {
			return cannotRun.error
		}
		c.setProblem(problem)
		if problem != nil {
			wait = retryPeriod
			// It may have failed by what it asks for another look at.
			select {
			case <-c.wake:
			default:
			}
		}
		if _, ok := pause(ctx, lookPause, nil); !ok {
			return nil
		}
		woken, ok := pause(ctx, wait-lookPause, c.wake)
		if !ok {
			return nil
		}
		if woken || wait == retryPeriod {
			// The next look is a full one, and takes nothing for granted.
			n = -1
			c.discovery.Forget()
		}
	}
}

// cannotRunError is one that no API server can mend.
type cannotRunError struct{ error }

// start starts the controller, once.
func (c *coordinator) start() error {
	if c.started {
		return nil
	}
	if err := c.reconciler.SetupWithManager(c.manager); err != nil {
		return cannotRunError{err}
	}
	if err := c.manager.Add(c.leadership); err != nil {
		return cannotRunError{fmt.Errorf("adding leader election to the manager: %w", err)}
	}
	c.started = true
	return nil
}

// pause waits that long, or until woken. ok is false if ctx is done.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) (woken, ok bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, false
	case <-wake:
		return true, true
	case <-timer.C:
	}
	return false, true
}

// setProblem logs a problem when it appears, changes and goes.
func (c *coordinator) setProblem(problem error) {
	before := *c.problem.Swap(&problem)
	switch {
	case problem == nil && before != nil:
		c.logger.Info("Coordinator ready")
	case problem != nil && (before == nil || before.Error() != problem.Error()):
		c.logger.Error(problem, "Coordinator cannot work; trying again", "every", retryPeriod.String())
	}
}
