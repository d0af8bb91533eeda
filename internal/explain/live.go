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

package explain

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/leaseapi"
)

// Fetch reads the Leases and LeaseCandidates of a cluster: of all namespaces if that is allowed, or else of the one
// given. It stores nothing. The right to list both is enough; with the right to create Leases as well it asks, by a
// dry run, what the API server does with their fields where no Lease shows it.
//
// It returns the time by the API server's clock, which is more likely to agree with those of the leaders than the
// caller's.
func Fetch(ctx context.Context, config *rest.Config, namespace string) (*Cluster, time.Time, error) {
	config = rest.CopyConfig(config)
	clock := &serverClock{}
	config.Wrap(clock.listen)
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("creating the discovery client: %w", err)
	}
	kinds, err := leaseapi.NewDiscovery(d).Candidates(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	reader, err := client.New(config, client.Options{Scheme: leaseapi.NewScheme(), Mapper: leaseapi.NewMapper()})
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("creating the client: %w", err)
	}
	c, err := fetch(ctx, reader, leaseapi.Preferred(kinds), namespace)
	if err != nil {
		return nil, time.Time{}, err
	}
	return c, clock.now(), nil
}

func fetch(ctx context.Context, api client.Client, kinds []leaseapi.CandidateKind, namespace string) (*Cluster, error) {
	c := NewCluster()
	// The candidates first: a leader that was appointed in between then shows as one, and not as a stranger's.
	for _, kind := range kinds {
		if err := listAll(ctx, api, kind.NewList(), kind.String(), namespace, func(object client.Object) {
			c.addCandidate(kind.Candidate(object))
		}); err != nil {
			return nil, err
		}
	}
	if err := listAll(ctx, api, &coordinationv1.LeaseList{}, "Lease", namespace, func(object client.Object) {
		c.addLease(object.(*coordinationv1.Lease))
	}); err != nil {
		return nil, err
	}
	lock := types.NamespacedName{Namespace: v1alpha1.InTreeLockNamespace, Name: v1alpha1.InTreeLockName}
	if c.leases[lock] == nil {
		// Not listed, or not to be listed: it may still be one that is read.
		l := &coordinationv1.Lease{}
		if err := api.Get(ctx, lock, l); err == nil {
			c.addLease(l)
		} else if ctx.Err() != nil {
			return nil, fmt.Errorf("reading lease %s: %w", lock, err)
		}
	}
	if _, known := c.guessFieldsKept(); !known {
		switch kept, err := leaseapi.FieldsKept(ctx, api, namespace); {
		case err == nil:
			c.fieldsKept = &kept
		case ctx.Err() != nil:
			return nil, err
		}
		// Whoever may only read is told what the objects show.
	}
	return c, nil
}

// listAll lists all namespaces, or else the one.
func listAll(ctx context.Context, api client.Reader, list client.ObjectList, kind, namespace string, add func(client.Object)) error {
	// Every kubelet has a Lease in that namespace, which nobody is a candidate for.
	everywhere := client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("metadata.namespace", corev1.NamespaceNodeLease)}
	where := "of all namespaces"
	err := api.List(ctx, list, everywhere)
	if apierrors.IsForbidden(err) {
		where = fmt.Sprintf("of namespace %q", namespace)
		err = api.List(ctx, list, client.InNamespace(namespace))
	}
	if err != nil {
		return fmt.Errorf("listing objects of kind %s %s: %w", kind, where, err)
	}
	return meta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok {
			add(object)
		}
		return nil
	})
}

// serverClock learns the API server's time from its responses.
type serverClock struct {
	mu sync.Mutex
	// ahead is by how much the server's clock is ahead of ours, at least.
	ahead time.Duration
	heard bool
}

func (c *serverClock) listen(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			c.hear(date)
		}
		return response, nil
	})
}

// hear takes a stamp of whole seconds: the server's clock showed that, or up to a second more.
func (c *serverClock) hear(date time.Time) {
	ahead := time.Until(date)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.heard || ahead > c.ahead {
		c.heard, c.ahead = true, ahead
	}
}

func (c *serverClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.heard, c.ahead > -time.Second-maxRoundTrip && c.ahead <= 0:
		// As far as the stamp shows, the clocks agree.
		return time.Now()
	}
	return time.Now().Add(c.ahead)
}

// maxRoundTrip is how long the way of a response may take that does not make its sender's clock differ from ours.
const maxRoundTrip = time.Second

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
