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

// Command worker is a controller that must run once, reduced to its leadership: a candidate built on pkg/candidate, whose
// work consists in saying that it works. Tests run it as a process and read its output, which is that of test/candidate.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lease-coordinator/coordinator/pkg/candidate"
)

// workInterval is how often the work is stamped; an overlap of two leaders that is shorter cannot be told from none.
const workInterval = 20 * time.Millisecond

func main() {
	var (
		config     candidate.Config
		kubeconfig string
		strategy   string
		stamps     string
		drain      time.Duration
		stubborn   bool
		lastWords  time.Duration
	)
	flag.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file")
	flag.StringVar(&config.Namespace, "namespace", "default", "namespace of the Lease")
	flag.StringVar(&config.LeaseName, "lease", "", "name of the Lease")
	flag.StringVar(&config.Identity, "name", "", "holder identity (default <hostname>-<uuid>)")
	flag.StringVar(&config.BinaryVersion, "binary-version", "1.37.0", "binary version to register")
	flag.StringVar(&config.EmulationVersion, "emulation-version", "", "emulation version to register (default: the binary version)")
	flag.StringVar(&strategy, "strategy", "", "strategy to register (default OldestEmulationVersion)")
	flag.DurationVar(&config.LeaseDuration, "lease-duration", 0, "lease duration (default 15s)")
	flag.DurationVar(&config.RenewDeadline, "renew-deadline", 0, "renew deadline (default 10s)")
	flag.DurationVar(&config.RetryPeriod, "retry-period", 0, "retry period (default 2s)")
	flag.DurationVar(&config.DrainLimit, "drain-limit", 0, "drain limit (default: lease duration minus renew deadline)")
	flag.DurationVar(&config.FallbackAfter, "fallback-after", 0, "how long a lease is vacant before it is taken without a coordinator (default 30s, negative: never)")
	flag.DurationVar(&drain, "drain", 0, "how long the work takes to stop")
	flag.BoolVar(&stubborn, "stubborn", false, "do not stop the work")
	flag.DurationVar(&lastWords, "last-words", 0, "how much longer to live when the process is to end although it works, so as to say what it sees")
	flag.StringVar(&stamps, "work-log", "", "file to append a stamp to every 20 ms while working")
	flag.Parse()
	config.Strategy = coordinationv1.CoordinatedLeaseStrategy(strategy)

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	w := &worker{events: json.NewEncoder(os.Stdout), drain: drain, stubborn: stubborn, lastWords: lastWords}
	if err := w.run(ctx, config, kubeconfig, stamps); err != nil {
		fmt.Fprintf(os.Stderr, "worker: %v\n", err)
		os.Exit(1)
	}
}

func (w *worker) run(ctx context.Context, config candidate.Config, kubeconfig, stamps string) error {
	restConfig, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if stamps != "" {
		file, err := os.OpenFile(stamps, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("opening the work log: %w", err)
		}
		defer func() { _ = file.Close() }()
		w.stamps = file
	}
	config.RestConfig = restConfig
	config.Lead = w.lead
	if w.lastWords > 0 {
		config.OnDeadline = func(why string) {
			w.say("deadline", why)
			time.Sleep(w.lastWords)
			os.Exit(1)
		}
	}
	config.OnNominated = func() { w.say("nominated", "") }
	config.OnNewLeader = func(identity string) { w.say("new-leader", identity) }
	config.Logger = funcr.New(func(_, args string) {
		fmt.Fprintln(os.Stderr, time.Now().UTC().Format(time.RFC3339Nano), args)
	}, funcr.Options{Verbosity: 1})
	c, err := candidate.New(config)
	if err != nil {
		return err
	}
	w.identity = c.Identity()
	w.say("candidate-started", "")
	go w.watchPauses(c)
	go w.count(ctx)
	defer w.say("exiting", "")
	return c.Run(ctx)
}

type worker struct {
	identity string
	stamps   io.Writer
	drain    time.Duration
	stubborn bool
	// lastWords is how long the process lives on after it was to end.
	lastWords time.Duration

	mu     sync.Mutex
	events *json.Encoder
}

// event is one line of standard output.
type event struct {
	Time      time.Time `json:"time"`
	Event     string    `json:"event"`
	Identity  string    `json:"identity"`
	Monotonic int64     `json:"monotonic"`
	Detail    string    `json:"detail,omitempty"`
}

func (w *worker) say(what, detail string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Stamped inside the lock, so that the lines are in the order of their stamps.
	err := w.events.Encode(event{Time: time.Now(), Event: what, Identity: w.identity, Monotonic: monotonic(), Detail: detail})
	if err != nil {
		fmt.Fprintf(os.Stderr, "worker: writing an event: %v\n", err)
	}
}

// lead is what must never be done by two processes at once.
func (w *worker) lead(ctx context.Context) error {
	term, _ := candidate.TermFromContext(ctx)
	w.say("started-leading", "")
	w.say("token", term.Token)
	defer w.say("stopped-leading", "")
	ticker := time.NewTicker(workInterval)
	defer ticker.Stop()
	w.stamp(term)
	told := ctx.Done()
	var drained <-chan time.Time
	for {
		select {
		case <-told:
			w.say("told-to-stop", context.Cause(ctx).Error())
			if w.stubborn {
				told = nil
				continue
			}
			if w.drain == 0 {
				w.stamp(term)
				return nil
			}
			told, drained = nil, time.After(w.drain)
		case <-drained:
			w.stamp(term)
			return nil
		case <-ticker.C:
			w.stamp(term)
		}
	}
}

// suspension is a pause between two ticks that is no longer the scheduler's.
const suspension = 2 * time.Second

// watchPauses says what the candidate answers first after the process was suspended.
func (w *worker) watchPauses(c *candidate.Candidate) {
	before := monotonic()
	for range time.Tick(workInterval) {
		// In this order, so that the answer to a long pause is one from after it.
		now := monotonic()
		leads := c.IsLeader()
		if time.Duration(now-before) > suspension {
			w.say("woke", fmt.Sprintf("leads=%t", leads))
		}
		before = now
	}
}

// count says how many goroutines there are when it is asked by a signal.
func (w *worker) count(ctx context.Context) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	defer signal.Stop(asked)
	for {
		select {
		case <-asked:
			w.say("goroutines", strconv.Itoa(runtime.NumGoroutine()))
		case <-ctx.Done():
			return
		}
	}
}

// stamp does a piece of the work, unless the term is over: after a suspension this may come before everything else.
func (w *worker) stamp(term candidate.Term) {
	// Read first: suspended after it has looked at the term, it would stamp a moment at which it did not look.
	at := monotonic()
	if w.stamps == nil || !term.Valid() {
		return
	}
	// One short write in append mode is atomic.
	if _, err := fmt.Fprintf(w.stamps, "%d %s\n", at, w.identity); err != nil {
		fmt.Fprintf(os.Stderr, "worker: stamping the work: %v\n", err)
	}
}

// monotonic is the time since boot in nanoseconds, which all processes of a machine share and nobody can set.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("reading the monotonic clock: %v", err))
	}
	return ts.Nano()
}
