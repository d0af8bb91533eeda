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
// Lease; with -candidate it is a candidate of pkg/candidate besides. What the library costs a process is the difference.
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
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lease-coordinator/coordinator/pkg/candidate"
)

// Report is what the process has at a moment.
type Report struct {
	// Synced says that the informer has.
	Synced     bool  `json:"synced"`
	Goroutines int   `json:"goroutines"`
	RSS        int64 `json:"rss"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	namespace := flag.String("namespace", "default", "namespace of the Lease")
	lease := flag.String("lease", "", "name of the Lease")
	name := flag.String("name", "", "holder identity")
	candidacy := flag.Bool("candidate", false, "be a candidate of pkg/candidate for the Lease")
	flag.Parse()
	if err := run(*kubeconfig, *namespace, *lease, *name, *candidacy); err != nil {
		fmt.Fprintf(os.Stderr, "footprint: %v\n", err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace, lease, name string, candidacy bool) error {
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

	// The work is the same with the library as without: without, it is main's, and with it, Lead's.
	if !candidacy {
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

// serve answers until there are no more questions.
func serve(synced func() bool) error {
	answers := json.NewEncoder(os.Stdout)
	for asked := bufio.NewScanner(os.Stdin); asked.Scan(); {
		rss, err := residentMemory()
		if err != nil {
			return err
		}
		if err := answers.Encode(Report{synced(), runtime.NumGoroutine(), rss}); err != nil {
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
