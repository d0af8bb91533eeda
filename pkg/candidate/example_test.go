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

package candidate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/lease-coordinator/coordinator/pkg/candidate"
)

// restConfig is rest.InClusterConfig() in a program.
func restConfig(ctx context.Context) *rest.Config { return candidate.FakeCluster(ctx) }

// A controller that must run once: it works while its context lasts, and the lease is handed over when it has stopped.
func Example() {
	// In a program: signal.NotifyContext, or ctrl.SetupSignalHandler.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()

	c, err := candidate.New(candidate.Config{
		RestConfig:    restConfig(ctx),
		Namespace:     "default",
		LeaseName:     "my-controller",
		BinaryVersion: "v1.4.2",
		Lead: func(ctx context.Context) error {
			fmt.Println("leading")
			<-ctx.Done()
			fmt.Println("stopped")
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ended:", c.Run(ctx))
	// Output:
	// leading
	// stopped
	// ended: <nil>
}

// Work that cannot go on says so by returning: the candidate resigns, another one leads, and Run returns the error.
func ExampleConfig_lead() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := candidate.New(candidate.Config{
		RestConfig: restConfig(ctx), Namespace: "default", LeaseName: "l", BinaryVersion: "1.0",
		Lead: func(context.Context) error { return errors.New("the disk is full") },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Run(ctx))
	// Output: the disk is full
}

// A receiver that remembers the highest fencing token it was shown refuses what a former leader sent late.
func ExampleTermFromContext() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	write := func(token, what string) { fmt.Println("wrote", what, "with a token:", token != "") }
	c, err := candidate.New(candidate.Config{
		RestConfig: restConfig(ctx), Namespace: "default", LeaseName: "l", BinaryVersion: "1.0",
		Lead: func(ctx context.Context) error {
			term, _ := candidate.TermFromContext(ctx)
			// Saves a request that would be refused. It is the token, not this, that makes it safe.
			if term.Valid() {
				write(term.Token, "a row")
			}
			<-ctx.Done()
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = c.Run(ctx)
	// Output: wrote a row with a token: true
}

// A controller-runtime manager as the work. It is made anew for each term, since a manager cannot be started twice.
func ExampleConfig_manager() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	log.SetLogger(logr.Discard())
	config := restConfig(ctx)
	c, err := candidate.New(candidate.Config{
		RestConfig: config, Namespace: "default", LeaseName: "l", BinaryVersion: "1.0",
		Lead: func(ctx context.Context) error {
			mgr, err := manager.New(config, manager.Options{
				LeaderElection: false,
				// Start returns when everything has ended. How long that may take is for DrainLimit to say.
				GracefulShutdownTimeout: ptr.To[time.Duration](-1),
				Metrics:                 server.Options{BindAddress: "0"},
				// The second term has controllers of the same names.
				Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
			})
			if err != nil {
				return err
			}
			if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
				fmt.Println("reconciling")
				<-ctx.Done()
				return nil
			})); err != nil {
				return err
			}
			return mgr.Start(ctx)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ended:", c.Run(ctx))
	// Output:
	// reconciling
	// ended: <nil>
}

// All replicas serve, and one of them does more.
func ExampleCandidate_IsLeader() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	leads := make(chan struct{})
	c, err := candidate.New(candidate.Config{
		RestConfig: restConfig(ctx), Namespace: "default", LeaseName: "l", BinaryVersion: "1.0",
		Lead: func(ctx context.Context) error {
			close(leads)
			<-ctx.Done()
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/compact", func(w http.ResponseWriter, _ *http.Request) {
		if !c.IsLeader() {
			http.Error(w, "ask "+c.Leader(), http.StatusMisdirectedRequest)
			return
		}
		fmt.Fprint(w, "compacting")
	})
	ask := func() string {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/compact", nil))
		return http.StatusText(answer.Code)
	}
	fmt.Println(ask())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	<-leads
	fmt.Println(ask())
	cancel()
	fmt.Println("ended:", <-done)
	// Output:
	// Misdirected Request
	// OK
	// ended: <nil>
}

// A liveness probe restarts a process whose candidacy is stuck, and leaves a standby alone. Never make readiness depend on
// leadership: a rolling update would wait for the new replica to lead, and the old one for it to be ready.
func ExampleCandidate_Check() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := candidate.New(candidate.Config{
		RestConfig: restConfig(ctx), Namespace: "default", LeaseName: "l", BinaryVersion: "1.0",
		Lead: func(ctx context.Context) error { <-ctx.Done(); return nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	http.HandleFunc("/livez", func(w http.ResponseWriter, r *http.Request) {
		if err := c.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	fmt.Println(c.Check(nil))
	// Output: <nil>
}

// The next leader warms up before the present one has stopped.
func ExampleConfig_onNominated() {
	_ = candidate.Config{
		OnNominated: func() { /* start the informers, fill the caches */ },
		OnNewLeader: func(identity string) { fmt.Println("led by", identity) },
	}
}

// Everything that is wrong is said at once, with the values.
func ExampleNew_validation() {
	_, err := candidate.New(candidate.Config{
		RestConfig: &rest.Config{}, Namespace: "default", LeaseName: "l", BinaryVersion: "abc1234",
		LeaseDuration: 10 * time.Second, RetryPeriod: 9 * time.Second,
		Lead: func(context.Context) error { return nil },
	})
	fmt.Println(err)
	// Output:
	// validating the candidate's configuration: BinaryVersion "abc1234": not a version: at least major and minor are needed, as in "1.29"
	// LeaseDuration 10s must be longer than RenewDeadline 10s
	// RenewDeadline 10s must be longer than 1.2 times RetryPeriod 9s
}
