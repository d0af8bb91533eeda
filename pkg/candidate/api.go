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

package candidate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lease-coordinator/coordinator/internal/candidacy"
)

var leaseResource = coordinationv1.SchemeGroupVersion.WithResource("leases")

// api is the connection to the API server: one client's own, with nothing of the caller's that could hold a renewal up.
type api struct {
	http      *http.Client
	dynamic   dynamic.Interface
	discovery *discovery.DiscoveryClient
	namespace string
	// borrowed says that the transport is the caller's.
	borrowed bool
	// timeout is how long a request may take.
	timeout time.Duration
}

// connect makes the clients. It sends nothing.
func connect(config *rest.Config, namespace string, timeout time.Duration) (*api, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.RateLimiter = -1, 0, nil
	config.UserAgent = "lease-coordinator-candidate"
	// A watch is meant to take long. Each request gets a deadline of its own.
	config.Timeout = 0
	config.ContentConfig = rest.ContentConfig{ContentType: "application/json"}
	config.WarningHandler, config.WarningHandlerWithContext = rest.NoWarnings{}, nil
	if config.Transport == nil {
		// With HTTP/2 all requests share one connection, and if that hangs they all do until somebody pings it. With
		// HTTP/1.1 a request that times out takes its connection with it, and the next makes a new one.
		config.NextProtos = []string{"http/1.1"}
		if config.Dial == nil {
			// A watch that is quiet is told from one that is dead by the kernel.
			config.Dial = (&net.Dialer{
				Timeout:         timeout,
				KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: max(2*timeout, time.Second), Interval: max(timeout, time.Second), Count: 3},
			}).DialContext
		}
		if config.Proxy == nil {
			// What would be used anyway; said here, since transports without it are shared and outlive us.
			config.Proxy = http.ProxyFromEnvironment
		}
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return impatient{next} })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making the client for %s: %w", config.Host, err)
	}
	dynamicClient, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("making the client for %s: %w", config.Host, err)
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("making the client for %s: %w", config.Host, err)
	}
	return &api{http: client, dynamic: dynamicClient, discovery: discoveryClient, namespace: namespace, borrowed: config.Transport != nil, timeout: timeout}, nil
}

// close closes connections that nobody uses, unless they are those of a transport that the caller provided.
func (a *api) close() {
	if a.borrowed {
		return
	}
	for next := a.http.Transport; next != nil; {
		switch transport := next.(type) {
		case interface{ CloseIdleConnections() }:
			transport.CloseIdleConnections()
			return
		case utilnet.RoundTripperWrapper:
			next = transport.WrappedRoundTripper()
		default:
			return
		}
	}
}

// noted takes note of how a request ended, and returns the error as it is. Where one connection is dead, those that wait
// for their next request are most likely dead, too, and each would cost a timeout to find out.
func (a *api) noted(err error) error {
	var answered apierrors.APIStatus
	if err != nil && !errors.As(err, &answered) {
		a.close()
	}
	return err
}

// impatient is a transport without the header that has client-go send a request again by itself. A write that was
// carried out although the server says otherwise would be met by its own result, as a conflict with somebody else's.
type impatient struct{ next http.RoundTripper }

func (t impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// WrappedRoundTripper has client-go find the transport below.
func (t impatient) WrappedRoundTripper() http.RoundTripper { return t.next }

func (a *api) leases() dynamic.ResourceInterface {
	return a.dynamic.Resource(leaseResource).Namespace(a.namespace)
}

func (a *api) candidates(kind schema.GroupVersionResource) dynamic.ResourceInterface {
	return a.dynamic.Resource(kind).Namespace(a.namespace)
}

func onlyThe(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
}

// read returns an object and its version or, if there is none, nil and the version as of which there is none, which
// a GET would not tell.
func (a *api) read(ctx context.Context, of dynamic.ResourceInterface, name string) (*unstructured.Unstructured, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	list, err := of.List(ctx, onlyThe(name))
	if a.noted(err) != nil {
		return nil, 0, err
	}
	for i := range list.Items {
		if item := &list.Items[i]; item.GetName() == name {
			v, err := parseObjectVersion(item.GetResourceVersion())
			return item, v, err
		}
	}
	v, err := parseObjectVersion(list.GetResourceVersion())
	return nil, v, err
}

// parseObjectVersion reads a resourceVersion. Kubernetes promises that they are numbers that grow.
func parseObjectVersion(s string) (uint64, error) {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading resourceVersion %q: %w", s, err)
	}
	return v, nil
}

// outcomeOf says what became of a write that returned err. missing says what it means that an object is not there.
func outcomeOf(err error, missing candidacy.Outcome) candidacy.Outcome {
	switch {
	case err == nil:
		return candidacy.Succeeded
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return candidacy.Conflicted
	case apierrors.IsNotFound(err) && !unserved(err):
		return missing
	}
	return candidacy.Failed
}
