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

// Command footprint is the least that every controller built on client-go has, a clientset and an informer, here of one
// Lease; with -candidate it is a candidate of pkg/candidate besides, and with -elector one of plain client-go leader
// election. What either costs a process is the difference.
//
// It answers each line of its standard input with one of JSON, a Report, and ends with it. A candidate does so while it
// leads.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/lease-coordinator/coordinator/pkg/candidate"
)

// Report is what the process has at a moment.
type Report struct {
	// Synced says that the informer has.
	Synced     bool  `json:"synced"`
	Goroutines int   `json:"goroutines"`
	RSS        int64 `json:"rss"`
	// Collected is RSS once garbage has been collected and given back.
	Collected int64 `json:"collected"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	namespace := flag.String("namespace", "default", "namespace of the Lease")
	lease := flag.String("lease", "", "name of the Lease")
	name := flag.String("name", "", "holder identity")
	candidacy := flag.Bool("candidate", false, "be a candidate of pkg/candidate for the Lease")
	elector := flag.Bool("elector", false, "compete for the Lease as plain client-go does")
	flag.Parse()
	// What client-go says about its elections is of no interest here.
	klog.SetLogger(logr.Discard())
	if err := run(*kubeconfig, *namespace, *lease, *name, *candidacy, *elector); err != nil {
		fmt.Fprintf(os.Stderr, "footprint: %v\n", err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace, lease, name string, candidacy, elector bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, lease).String()
		}))
	informer := factory.Coordination().V1().Leases().Informer()
	factory.Start(ctx.Done())

	// The work is the same in each: main's, or that of the leader.
	switch {
	case elector:
		return elect(ctx, clientset, namespace, lease, name, func() error { return serve(informer.HasSynced) })
	case !candidacy:
		return serve(informer.HasSynced)
	}
	c, err := candidate.New(candidate.Config{
		RestConfig: config, Namespace: namespace, LeaseName: lease, Identity: name, BinaryVersion: "1.37.0",
		Lead: func(context.Context) error { return serve(informer.HasSynced) },
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// elect works once it leads.
func elect(ctx context.Context, clientset kubernetes.Interface, namespace, lease, name string, work func() error) error {
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, lease, clientset.CoreV1(), clientset.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: name})
	if err != nil {
		return fmt.Errorf("making the lock: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	worked := make(chan error, 1)
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: candidate.DefaultLeaseDuration, RenewDeadline: candidate.DefaultRenewDeadline, RetryPeriod: candidate.DefaultRetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				worked <- work()
				cancel()
			},
			OnStoppedLeading: func() {},
		},
	})
	return <-worked
}

// serve answers until there are no more questions.
func serve(synced func() bool) error {
	answers := json.NewEncoder(os.Stdout)
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		rss, err := residentMemory()
		if err != nil {
			return err
		}
		goroutines := runtime.NumGoroutine()
		debug.FreeOSMemory()
		collected, err := residentMemory()
		if err != nil {
			return err
		}
		if err := answers.Encode(Report{synced(), goroutines, rss, collected}); err != nil {
			return fmt.Errorf("answering: %w", err)
		}
	}
	return nil
}

func residentMemory() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("reading the memory use: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("reading the memory use: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, errors.New("reading the memory use: no VmRSS")
}
