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
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/doctor/checks"
	"github.com/lease-coordinator/coordinator/internal/election"
)

// Options say what is to be examined.
type Options struct {
	// Settings are those of the coordinator, Lock is its own lock, and Replace is set if that is the in-tree
	// coordinator's.
	Settings *election.Settings
	Lock     types.NamespacedName
	Replace  bool
	// Namespace is what is looked at where not all namespaces may be, and where Leases are created by dry run.
	Namespace string
	// CoordinatorUser is whom the coordinator is to the API server, and Rights are what it has to be allowed.
	CoordinatorUser string
	Rights          []checks.Right
	// Watch is how long locks are watched at most.
	Watch time.Duration
}

const (
	candidateKind     = "LeaseCandidate"
	candidateResource = "leasecandidates"
	crdName           = candidateResource + "." + v1alpha1.Group
	// pageSize is that of lists.
	pageSize = 500
)

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// gatherer asks an API server.
type gatherer struct {
	Options
	config *rest.Config
	api    client.Client
	mapper *meta.DefaultRESTMapper
	clock  *serverClock
	facts  *checks.Facts
}

// Gather finds out all it can. What it may not read is told in the facts; an error means that there is no answer at all.
func Gather(ctx context.Context, config *rest.Config, o Options) (*checks.Facts, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	warnings := &warningCollector{}
	config.WarningHandlerWithContext = warnings
	g := &gatherer{Options: o, config: config, mapper: meta.NewDefaultRESTMapper(nil), clock: &serverClock{}}
	g.facts = &checks.Facts{Settings: o.Settings, Replace: o.Replace, Removals: map[string]checks.Release{}}
	listening := rest.CopyConfig(config)
	listening.Wrap(g.clock.listen)
	httpClient, err := rest.HTTPClientFor(listening)
	if err != nil {
		return nil, fmt.Errorf("creating the client: %w", err)
	}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(listening, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating the discovery client: %w", err)
	}
	// Whoever may do nothing at all may still ask for the version. If there is no answer to that, there is none.
	if _, err := d.ServerVersionWithContext(ctx); err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("asking for its version: %w", err)
	}
	for _, kind := range []schema.GroupVersionKind{coordinationv1.SchemeGroupVersion.WithKind("Lease"), corev1.SchemeGroupVersion.WithKind("Pod")} {
		g.mapper.Add(kind, meta.RESTScopeNamespace)
	}
	for _, kind := range []schema.GroupVersionKind{
		crdKind,
		admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
		admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"),
	} {
		g.mapper.Add(kind, meta.RESTScopeRoot)
	}
	for _, kind := range accessReviewKinds {
		g.mapper.Add(kind, meta.RESTScopeRoot)
	}
	if g.api, err = client.New(listening, client.Options{HTTPClient: httpClient, Scheme: clientgoscheme.Scheme, Mapper: g.mapper}); err != nil {
		return nil, fmt.Errorf("creating the client: %w", err)
	}
	// While locks are watched, the rest is asked.
	var watching sync.WaitGroup
	f := g.facts
	watching.Go(func() { f.OwnLock = g.watchLock(ctx, o.Lock) })
	inTree := types.NamespacedName{Namespace: v1alpha1.InTreeLockNamespace, Name: v1alpha1.InTreeLockName}
	if o.Lock != inTree {
		watching.Go(func() { f.InTreeLock = g.watchLock(ctx, inTree) })
	}
	g.readServers(ctx)
	g.readCRD(ctx)
	g.readPods(ctx)
	g.readPolicies(ctx)
	g.readRights(ctx)
	watching.Wait()
	if o.Lock == inTree {
		f.InTreeLock = f.OwnLock
	}
	// Last, so that they are as they are now. The candidates first: a leader that is appointed in between then shows as one.
	g.readCandidates(ctx)
	g.readLeases(ctx)
	f.APIServers = apiServers(f.Leases.List)
	f.ServerWarnings = warnings.texts()
	f.Now, f.Ahead = g.clock.now(), g.clock.difference()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("it does not answer in time: %w", err)
	}
	return f, nil
}

// why says, for people, why something could not be found out.
func why(err error) string {
	if apierrors.IsForbidden(err) {
		// "leases.coordination.k8s.io is forbidden: User "x" cannot list ...": the first part says no more.
		text := err.Error()
		if _, rest, found := strings.Cut(text, "is forbidden: "); found {
			text = rest
		}
		return "forbidden: " + text
	}
	return err.Error()
}

// listAll lists all namespaces page by page, or else the one that may be. It returns which, and why there is nothing.
func (g *gatherer) listAll(ctx context.Context, list client.ObjectList, add func(runtime.Object), options ...client.ListOption) (only, unknown string) {
	err := g.pages(ctx, list, add, options...)
	if apierrors.IsForbidden(err) && g.Namespace != "" {
		if narrow := g.pages(ctx, list, add, client.InNamespace(g.Namespace)); narrow == nil {
			return g.Namespace, ""
		}
	}
	if err != nil {
		return "", why(err)
	}
	return "", ""
}

// pages lists page by page. list is of the kind, and stays empty.
func (g *gatherer) pages(ctx context.Context, list client.ObjectList, add func(runtime.Object), options ...client.ListOption) error {
	var items []runtime.Object
	limit, from := int64(pageSize), ""
	empty := list
	for {
		// What is decoded into a list that was used before may keep something of that.
		list := empty.DeepCopyObject().(client.ObjectList)
		err := g.api.List(ctx, list, append(slices.Clone(options), client.Limit(limit), client.Continue(from))...)
		if apierrors.IsResourceExpired(err) && from != "" {
			// It took so long that the list is no more. At once, then.
			items, limit, from = nil, 0, ""
			continue
		}
		if err != nil {
			return err
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			items = append(items, item)
			return nil
		}); err != nil {
			return err
		}
		if from = list.GetContinue(); from == "" {
			break
		}
	}
	for _, item := range items {
		add(item)
	}
	return nil
}

func (g *gatherer) readLeases(ctx context.Context) {
	l := &g.facts.Leases
	// Every kubelet has a Lease in that namespace, which nobody is a candidate for.
	but := client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("metadata.namespace", corev1.NamespaceNodeLease)}
	l.Only, l.Unknown = g.listAll(ctx, &coordinationv1.LeaseList{}, func(item runtime.Object) {
		l.List = append(l.List, item.(*coordinationv1.Lease))
	}, but)
}

// apiServers counts the kube-apiservers that have a Lease of their own.
func apiServers(leases []*coordinationv1.Lease) int {
	n := 0
	for _, l := range leases {
		if l.Labels["apiserver.kubernetes.io/identity"] == "kube-apiserver" {
			n++
		}
	}
	return n
}

// readCandidates reads LeaseCandidates of the kinds that are served: of each group, in one version.
func (g *gatherer) readCandidates(ctx context.Context) {
	c := &g.facts.Candidates
	for _, group := range []string{coordinationv1.GroupName, v1alpha1.Group} {
		kind, found := g.kindOf(group)
		if !found {
			continue
		}
		gvk := kind.gvk
		g.mapper.Add(gvk, meta.RESTScopeNamespace)
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		only, unknown := g.listAll(ctx, list, func(item runtime.Object) {
			if candidate := kind.parse(item.(*unstructured.Unstructured)); candidate != nil {
				c.List = append(c.List, checks.Candidate{
					Candidate: candidate, Resource: candidateResource + "." + group,
					Managed: item.(*unstructured.Unstructured).GetManagedFields(),
				})
			}
		})
		if only != "" {
			c.Only = only
		}
		if unknown != "" {
			c.Unknown = unknown
		}
	}
}

func (g *gatherer) readCRD(ctx context.Context) {
	crd := &g.facts.CRD
	crd.Shipped = shippedCRD()
	installed := &unstructured.Unstructured{}
	installed.SetGroupVersionKind(crdKind)
	switch err := g.api.Get(ctx, types.NamespacedName{Name: crdName}, installed); {
	case err == nil:
		crd.Installed = installed.Object
	case !apierrors.IsNotFound(err):
		crd.Unknown = why(err)
	}
}

// coordinatorLabels are those of the coordinator's Pods, and of all else that this project ships.
var coordinatorLabels = client.MatchingLabels{"app.kubernetes.io/name": "lease-coordinator"}

func (g *gatherer) readPods(ctx context.Context) {
	pods := &g.facts.Pods
	add := func(item runtime.Object) {
		p := item.(*corev1.Pod)
		pod := checks.Pod{Namespace: p.Namespace, Name: p.Name}
		for i, c := range p.Spec.Containers {
			if i == 0 || c.Name == "coordinator" {
				pod.Image = c.Image
			}
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				pod.Ready = c.Status == corev1.ConditionTrue
			}
		}
		pods.List = append(pods.List, pod)
	}
	err := g.pages(ctx, &corev1.PodList{}, add, coordinatorLabels)
	if apierrors.IsForbidden(err) && g.pages(ctx, &corev1.PodList{}, add, coordinatorLabels, client.InNamespace(g.Lock.Namespace)) == nil {
		return
	}
	if err != nil {
		pods.Unknown = why(err)
	}
}

// policyPrefix starts the names of this project's admission policies.
const policyPrefix = "lease-coordinator-"

func (g *gatherer) readPolicies(ctx context.Context) {
	p := &g.facts.Policies
	if err := g.pages(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyList{}, func(item runtime.Object) {
		policy := item.(*admissionregistrationv1.ValidatingAdmissionPolicy)
		if strings.HasPrefix(policy.Name, policyPrefix) || policy.Labels["app.kubernetes.io/name"] == "lease-coordinator" {
			p.Installed = append(p.Installed, policy.Name)
		}
	}); err != nil {
		p.Unknown = why(err)
		return
	}
	if err := g.pages(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}, func(item runtime.Object) {
		binding := item.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
		if slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny) {
			p.Bound = append(p.Bound, binding.Spec.PolicyName)
		}
	}); err != nil {
		p.Unknown = why(err)
	}
}

// lookEvery is the time between two looks at a lock.
const lookEvery = 500 * time.Millisecond

// watchLock looks at a lock until it is renewed, or there is nothing to wait for.
func (g *gatherer) watchLock(ctx context.Context, key types.NamespacedName) checks.Lock {
	lock := checks.Lock{Key: key}
	began := time.Now()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		l := &coordinationv1.Lease{}
		err := g.api.Get(ctx, key, l)
		switch {
		case apierrors.IsNotFound(err):
			lock.Lease = nil
			return lock
		case err != nil:
			if lock.Lease == nil {
				lock.Unknown = why(err)
				return lock
			}
			// It was read before, and may be again.
		case lock.Lease != nil && held(l) && !l.Spec.RenewTime.Equal(lock.Lease.Spec.RenewTime):
			lock.Lease, lock.Renewed = l, true
		default:
			lock.Lease = l
		}
		lock.Watched = time.Since(began)
		if lock.Renewed || !held(lock.Lease) || lock.Watched >= g.Watch {
			return lock
		}
		select {
		case <-ctx.Done():
			return lock
		case <-ticker.C:
		}
	}
}

func held(l *coordinationv1.Lease) bool {
	return l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != ""
}

// warningCollector keeps what the API server says in warning headers.
type warningCollector struct {
	mu   sync.Mutex
	seen []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (c *warningCollector) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.seen, text) {
		c.seen = append(c.seen, text)
	}
}

func (c *warningCollector) texts() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.seen)
	return slices.Clone(c.seen)
}
