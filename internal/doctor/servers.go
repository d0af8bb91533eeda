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

package doctor

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/doctor/checks"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

const (
	// connections is how many connections are asked. A load balancer sends them to one of three kube-apiservers: that one
	// which differs is then missed once in eleven times.
	connections = 6
	// atOnce is how many of them are asked at a time.
	atOnce = 3
)

// readServers asks several connections, each of which may end at another kube-apiserver, what it serves.
func (g *gatherer) readServers(ctx context.Context) {
	f := g.facts
	f.Answers = make([]checks.Answer, connections)
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range f.Answers {
		group.Go(func() error {
			f.Answers[i] = g.ask(ctx)
			return nil
		})
	}
	// They tell in their answers what went wrong.
	_ = group.Wait()
	for _, a := range f.Answers {
		for _, v := range a.Native {
			kind := leaseapi.KindOf(schema.GroupVersionKind{Group: coordinationv1.GroupName, Version: v, Kind: candidateKind})
			if kind == nil || slices.Contains(f.Understood, v) {
				continue
			}
			f.Understood = append(f.Understood, v)
			// Only types that have an end know of one.
			if ending, ok := kind.New().(interface{ APILifecycleRemoved() (major, minor int) }); ok {
				major, minor := ending.APILifecycleRemoved()
				f.Removals[v] = checks.Release{Major: major, Minor: minor}
			}
		}
	}
}

// ask asks on a connection of its own.
func (g *gatherer) ask(ctx context.Context) checks.Answer {
	clock := &serverClock{}
	config := rest.CopyConfig(g.config)
	if config.Dial == nil {
		// client-go shares connections among configurations that are alike; none is like one with a dialer.
		config.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	config.Wrap(clock.listen)
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return checks.Answer{FieldsUnknown: err.Error(), KindsUnknown: err.Error()}
	}
	defer httpClient.CloseIdleConnections()
	var a checks.Answer
	a.FieldsKept, a.FieldsUnknown = g.askFields(ctx, config, httpClient)
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, httpClient)
	if err != nil {
		a.KindsUnknown = err.Error()
		return a
	}
	if v, err := d.ServerVersionWithContext(ctx); err == nil {
		a.Version = v.GitVersion
	}
	if a.Native, err = servedVersions(ctx, d, coordinationv1.GroupName); err == nil {
		a.Custom, err = servedVersions(ctx, d, v1alpha1.Group)
	}
	if err != nil {
		a.KindsUnknown = why(err)
	}
	a.Ahead = clock.difference()
	return a
}

func (g *gatherer) askFields(ctx context.Context, config *rest.Config, httpClient *http.Client) (kept bool, unknown string) {
	api, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: clientgoscheme.Scheme, Mapper: g.mapper})
	if err == nil {
		kept, err = leaseapi.FieldsKept(ctx, api, g.Namespace)
		if apierrors.IsForbidden(err) && g.Lock.Namespace != g.Namespace {
			if kept, elsewhere := leaseapi.FieldsKept(ctx, api, g.Lock.Namespace); elsewhere == nil {
				return kept, ""
			}
		}
	}
	if err != nil {
		return false, why(err)
	}
	return kept, ""
}

// servedVersions returns the versions of a group that have LeaseCandidates, the best first.
func servedVersions(ctx context.Context, d *discovery.DiscoveryClient, group string) ([]string, error) {
	var g metav1.APIGroup
	err := d.RESTClient().Get().AbsPath("/apis/" + group).Do(ctx).Into(&g)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking for the versions of %s: %w", group, err)
	}
	var versions []string
	for _, v := range g.Versions {
		resources, err := d.ServerResourcesForGroupVersionWithContext(ctx, v.GroupVersion)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return nil, fmt.Errorf("asking for the resources of %s: %w", v.GroupVersion, err)
		}
		if slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == candidateResource }) {
			versions = append(versions, v.Version)
		}
	}
	slices.SortFunc(versions, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	return versions, nil
}

// servedKind is a kind of LeaseCandidate that is served.
type servedKind struct {
	gvk  schema.GroupVersionKind
	kind leaseapi.CandidateKind
}

// kindOf returns the best version of LeaseCandidate that a group serves and this program understands.
func (g *gatherer) kindOf(group string) (servedKind, bool) {
	for _, a := range g.facts.Answers {
		versions := a.Native
		if group == v1alpha1.Group {
			versions = a.Custom
		}
		for _, v := range versions {
			gvk := schema.GroupVersionKind{Group: group, Version: v, Kind: candidateKind}
			if kind := leaseapi.KindOf(gvk); kind != nil {
				return servedKind{gvk, kind}, true
			}
		}
	}
	return servedKind{}, false
}

// parse returns nil for what is no candidate.
func (k servedKind) parse(u *unstructured.Unstructured) *strategy.Candidate {
	object := k.kind.New()
	if _, untyped := object.(*unstructured.Unstructured); untyped {
		return k.kind.Candidate(u)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, object); err != nil {
		return nil
	}
	return k.kind.Candidate(object)
}
