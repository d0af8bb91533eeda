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

// Command candidate is a controller that must run once, reduced to its
// leadership: a candidate built on unmodified client-go, whose work consists
// in saying that it works. Tests run it as a process and read its output.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// workInterval is how often the work is stamped; an overlap of two leaders
// that is shorter cannot be told from none.
const workInterval = 20 * time.Millisecond

type config struct {
	kubeconfig       string
	namespace, lease string
	name             string
	binaryVersion    string
	emulationVersion string
	strategy         string
	coordinated      bool
	leaseDuration    time.Duration
	renewDeadline    time.Duration
	retryPeriod      time.Duration
	releaseOnCancel  bool
	clockOffset      time.Duration
	rejoin           bool
	workLog          string
}

func main() {
	var cfg config
	flag.StringVar(&cfg.kubeconfig, "kubeconfig", "", "kubeconfig file")
	flag.StringVar(&cfg.namespace, "namespace", "default", "namespace of the Lease")
	flag.StringVar(&cfg.lease, "lease", "", "name of the Lease")
	flag.StringVar(&cfg.name, "name", "", "holder identity (default <hostname>_<uuid>)")
	flag.StringVar(&cfg.binaryVersion, "binary-version", "1.37.0", "binary version to register")
	flag.StringVar(&cfg.emulationVersion, "emulation-version", "1.37.0", "emulation version to register")
	flag.StringVar(&cfg.strategy, "strategy", string(coordinationv1.OldestEmulationVersion), "strategy to register")
	flag.BoolVar(&cfg.coordinated, "coordinated", true, "register a LeaseCandidate and lead only when named; else elect as plain client-go does")
	flag.DurationVar(&cfg.leaseDuration, "lease-duration", 15*time.Second, "lease duration")
	flag.DurationVar(&cfg.renewDeadline, "renew-deadline", 10*time.Second, "renew deadline")
	flag.DurationVar(&cfg.retryPeriod, "retry-period", 2*time.Second, "retry period")
	flag.BoolVar(&cfg.releaseOnCancel, "release-on-cancel", false, "release the lease when told to end")
	flag.DurationVar(&cfg.clockOffset, "clock-offset", 0, "what to add to every time stamp written to the API")
	flag.BoolVar(&cfg.rejoin, "rejoin", false, "compete again after a loss instead of exiting")
	flag.StringVar(&cfg.workLog, "work-log", "", "file to append a stamp to every 20 ms while leading")
	klog.InitFlags(nil)
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cfg, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "candidate: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.lease == "" {
		return fmt.Errorf("--lease is required")
	}
	if cfg.name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("choosing an identity: %w", err)
		}
		cfg.name = host + "_" + uuid.NewString()
	}
	restConfig, err := clientcmd.BuildConfigFromFlags("", cfg.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	restConfig.UserAgent = "candidate/" + cfg.name
	restConfig.QPS = -1
	// As the components do: an attempt that hangs must not use up the deadline.
	restConfig.Timeout = cfg.renewDeadline / 2
	if cfg.clockOffset != 0 {
		// Stamps are only ever rewritten as JSON.
		restConfig.ContentType = "application/json"
		restConfig.Wrap(func(rt http.RoundTripper) http.RoundTripper {
			return &clockShifter{next: rt, offset: cfg.clockOffset}
		})
	}

	c := &candidate{config: cfg, events: json.NewEncoder(out)}
	c.say("candidate-started")
	defer c.say("exiting")
	if cfg.workLog != "" {
		file, err := os.OpenFile(cfg.workLog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("opening the work log: %w", err)
		}
		defer func() { _ = file.Close() }()
		c.work = file
	}
	return c.compete(ctx, restConfig)
}

type candidate struct {
	config
	work io.Writer

	mu     sync.Mutex
	events *json.Encoder
}

// event is one line of standard output.
type event struct {
	Time      time.Time `json:"time"`
	Event     string    `json:"event"`
	Identity  string    `json:"identity"`
	Monotonic int64     `json:"monotonic"`
}

func (c *candidate) say(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Stamped inside the lock, so that the lines are in the order of their stamps.
	if err := c.events.Encode(event{Time: time.Now(), Event: what, Identity: c.name, Monotonic: monotonic()}); err != nil {
		fmt.Fprintf(os.Stderr, "candidate: writing an event: %v\n", err)
	}
}

// compete registers the candidate and takes part in elections until ctx ends
// or, unless it is to rejoin, leadership was lost.
func (c *candidate) compete(ctx context.Context, restConfig *rest.Config) error {
	// Registration ends with competing: an object that still answers pings for
	// a process that no longer listens to its Lease would be appointed in vain.
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()

	clientset, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if c.coordinated {
		watchConfig := rest.CopyConfig(restConfig)
		// A watch is meant to take long.
		watchConfig.Timeout = 0
		watchClient, err := kubernetes.NewForConfig(watchConfig)
		if err != nil {
			return fmt.Errorf("making a client: %w", err)
		}
		registration, _, err := leaderelection.NewCandidate(watchClient, c.namespace, c.name, c.lease,
			c.binaryVersion, c.emulationVersion, coordinationv1.CoordinatedLeaseStrategy(c.strategy))
		if err != nil {
			return fmt.Errorf("registering the candidate: %w", err)
		}
		background.Go(func() { registration.Run(ctx) })
	}
	for {
		if err := c.lead(ctx, clientset); err != nil {
			return err
		}
		if !c.rejoin || ctx.Err() != nil {
			return nil
		}
	}
}

// lead waits for leadership and works until it is lost or ctx ends.
func (c *candidate) lead(ctx context.Context, clientset kubernetes.Interface) error {
	term := &term{}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, c.namespace, c.lease,
		clientset.CoreV1(), clientset.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: c.name, EventRecorder: term})
	if err != nil {
		return fmt.Errorf("making the lock: %w", err)
	}
	worked := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            lock,
		LeaseDuration:   c.leaseDuration,
		RenewDeadline:   c.renewDeadline,
		RetryPeriod:     c.retryPeriod,
		ReleaseOnCancel: c.releaseOnCancel,
		Coordinated:     c.coordinated,
		Name:            c.lease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				defer close(worked)
				c.doWork(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("making the elector: %w", err)
	}
	elector.Run(ctx)
	if term.began.Load() {
		// Run does not wait for the callback that it started.
		<-worked
	}
	return nil
}

// term learns from the elector's own event whether it became leader: nothing
// else tells, once Run has returned, whether OnStartedLeading will be called.
type term struct{ began atomic.Bool }

func (t *term) Eventf(_ runtime.Object, _, _, message string, args ...any) {
	if strings.HasSuffix(fmt.Sprintf(message, args...), "became leader") {
		t.began.Store(true)
	}
}

// doWork is what must never be done by two processes at once.
func (c *candidate) doWork(ctx context.Context) {
	c.say("started-leading")
	defer c.say("stopped-leading")
	ticker := time.NewTicker(workInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// Both may be ready after a pause.
		if ctx.Err() != nil {
			return
		}
		if c.work == nil {
			continue
		}
		// One short write in append mode is atomic.
		if _, err := fmt.Fprintf(c.work, "%d %s\n", monotonic(), c.name); err != nil {
			fmt.Fprintf(os.Stderr, "candidate: stamping the work: %v\n", err)
		}
	}
}

// monotonic is the time since boot in nanoseconds, which all processes of a
// machine share and nobody can set.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("reading the monotonic clock: %v", err))
	}
	return ts.Nano()
}
