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
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/lease-coordinator/coordinator/pkg/candidate"
)

// controllers stand for what mgr would run.
var controllers = manager.RunnableFunc(func(ctx context.Context) error {
	fmt.Println("reconciling")
	<-ctx.Done()
	fmt.Println("stopped")
	return nil
})

// An operator that has leader election already: its options name the lock, and it runs the lock's Runnable. The process ends
// with its term, as it does with plain leader election.
func ExampleNewResourceLock() {
	// In a program: ctrl.SetupSignalHandler.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	log.SetLogger(logr.Discard())
	config := restConfig(ctx)

	lock, err := candidate.NewResourceLock(candidate.Config{
		RestConfig: config, Namespace: "default", LeaseName: "my-operator", BinaryVersion: "v1.4.2",
		Logger: log.Log.WithName("candidate"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mgr, err := manager.New(config, manager.Options{
		LeaderElection:                      true,
		LeaderElectionReleaseOnCancel:       true,
		LeaderElectionResourceLockInterface: lock,
		Metrics:                             server.Options{BindAddress: "0"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := errors.Join(mgr.Add(lock.Runnable()), mgr.AddHealthzCheck("candidate", lock.Check), mgr.Add(controllers)); err != nil {
		fmt.Println(err)
		return
	}
	err = mgr.Start(ctx)
	// Another one leads, as planned: no failure.
	if errors.Is(err, candidate.ErrEndOfTerm) {
		err = nil
	}
	fmt.Println("ended:", err)
	// Output:
	// reconciling
	// stopped
	// ended: <nil>
}

// An operator whose process lives on when its term ends: each term has a manager of its own.
func ExampleRunManager() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	log.SetLogger(logr.Discard())
	config := restConfig(ctx)

	err := candidate.RunManager(ctx, candidate.Config{
		RestConfig: config, Namespace: "default", LeaseName: "my-operator", BinaryVersion: "v1.4.2",
		Logger: log.Log.WithName("candidate"),
	}, func(ctx context.Context) (candidate.Manager, error) {
		mgr, err := manager.New(config, manager.Options{
			// Controllers find their term in their contexts.
			BaseContext: func() context.Context { return context.WithoutCancel(ctx) },
			// Start returns when everything has ended. How long that may take is for DrainLimit to say.
			GracefulShutdownTimeout: ptr.To[time.Duration](-1),
			// The next term has controllers of the same names.
			Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
			// Every replica serves its metrics, from outside.
			Metrics: server.Options{BindAddress: "0"},
		})
		if err != nil {
			return nil, err
		}
		return mgr, mgr.Add(controllers)
	})
	fmt.Println("ended:", err)
	// Output:
	// reconciling
	// stopped
	// ended: <nil>
}
