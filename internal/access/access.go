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

// Package access is the one home of what a coordinator must be allowed to do, and of asking an API server whether it is.
//
// What the secured metrics endpoint needs besides (TokenReviews and SubjectAccessReviews) is not listed: an API server
// tells who reads metrics, and elections do not depend on it.
package access

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// The rights that internal/controller does not use itself. What the secured metrics endpoint needs is in config/rbac, apart.
//
// client-go's elector updates its lock. No other Lease is ever updated, so these name the two that the lock can be: the
// coordinator's own, and, with --in-tree=replace, the in-tree coordinator's. Events go to events.k8s.io alone.
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=lease-coordinator-system,roleName=lease-coordinator-lock,resources=leases,resourceNames=lease-coordinator,verbs=update
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=kube-system,roleName=lease-coordinator-in-tree-lock,resources=leases,resourceNames=leader-election-controller,verbs=update

// Right is one thing that somebody may be allowed to do.
type Right struct {
	Verb, Group, Resource string
	// Name is of the one object that it is about; "" for all.
	Name string
	// Namespace is where; "" for all.
	Namespace string
}

// String names the right by verb, resource and namespace, for people.
func (r Right) String() string {
	what := r.Resource + "." + r.Group
	if r.Name != "" {
		what += fmt.Sprintf(" %q", r.Name)
	}
	if r.Namespace == "" {
		return fmt.Sprintf("%s %s in all namespaces", r.Verb, what)
	}
	return fmt.Sprintf("%s %s in namespace %q", r.Verb, what, r.Namespace)
}

// Attributes returns the right as an API server is asked about it.
func (r Right) Attributes() *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{Verb: r.Verb, Group: r.Group, Resource: r.Resource, Name: r.Name, Namespace: r.Namespace}
}

// Scope is what a coordinator's rights depend on.
type Scope struct {
	// Lock is the coordinator's own lock.
	Lock types.NamespacedName
	// Namespaces are those that are coordinated; none means all.
	Namespaces []string
	// CandidateGroups are the API groups whose LeaseCandidates are followed: coordination.k8s.io, lease-coordinator.dev.
	CandidateGroups []string
	// DryRun has the coordinator write to nothing but its own lock, and events.
	DryRun bool
}

// Wanted lists what a coordinator must be allowed to do where it coordinates.
func (s Scope) Wanted() []Right {
	var list []Right
	add := func(group, resource, namespace, name string, verbs ...string) {
		for _, verb := range verbs {
			list = append(list, Right{Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name})
		}
	}
	namespaces := s.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, namespace := range namespaces {
		add(coordinationv1.GroupName, "leases", namespace, "", "get", "list", "watch")
		if !s.DryRun {
			add(coordinationv1.GroupName, "leases", namespace, "", "create", "patch")
		}
		for _, group := range s.CandidateGroups {
			add(group, "leasecandidates", namespace, "", "get", "list", "watch")
			if !s.DryRun {
				add(group, "leasecandidates", namespace, "", "patch", "delete")
			}
		}
		add(eventsv1.GroupName, "events", namespace, "", "create", "patch")
	}
	return list
}

// WantedForLocks lists what it must be allowed to do for its own lock, and to see whether the in-tree coordinator is at work.
func (s Scope) WantedForLocks() []Right {
	lock := func(verb, name string) Right {
		return Right{Verb: verb, Group: coordinationv1.GroupName, Resource: "leases", Namespace: s.Lock.Namespace, Name: name}
	}
	// That of creating cannot be restricted to a name.
	list := []Right{lock("get", s.Lock.Name), lock("create", ""), lock("update", s.Lock.Name)}
	if len(s.Namespaces) > 0 && !slices.Contains(s.Namespaces, v1alpha1.InTreeLockNamespace) {
		for _, verb := range []string{"get", "list", "watch"} {
			list = append(list, Right{Verb: verb, Group: coordinationv1.GroupName, Resource: "leases", Namespace: v1alpha1.InTreeLockNamespace, Name: v1alpha1.InTreeLockName})
		}
	}
	return list
}

// NoNamespaceOfOurs is one in which no coordinator has rights of its own.
const NoNamespaceOfOurs = corev1.NamespaceNodeLease

// MissingError says which rights the API server does not grant.
type MissingError struct{ Missing []Right }

// Error implements error.
func (e MissingError) Error() string {
	var parts []string
	for _, r := range e.Missing {
		parts = append(parts, r.String())
	}
	return "the API server does not allow this coordinator to: " + strings.Join(parts, "; ")
}

// Check asks the API server about rights of whoever c is, and returns a MissingError if any is not granted. One review tells
// all of a namespace, as far as the server's authorizers can list what they allow; about the rest it is asked one by one.
//
// What is granted in the namespace sample is taken to be granted in all. That saves a review where sample is looked at anyway,
// and is certain where nothing is granted there alone: see NoNamespaceOfOurs.
func Check(ctx context.Context, c client.Client, wanted []Right, sample string) error {
	granted := map[string][]authorizationv1.ResourceRule{}
	var missing []Right
	for _, r := range wanted {
		namespace := r.Namespace
		if namespace == "" {
			namespace = sample
		}
		rules, known := granted[namespace]
		if !known {
			review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
			if err := c.Create(ctx, review); err != nil {
				return fmt.Errorf("asking the API server what this coordinator may do in namespace %q: %w", namespace, err)
			}
			rules = review.Status.ResourceRules
			granted[namespace] = rules
		}
		if slices.ContainsFunc(rules, r.grantedBy) {
			continue
		}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: r.Attributes()}}
		if err := c.Create(ctx, review); err != nil {
			return fmt.Errorf("asking the API server whether this coordinator may %s: %w", r, err)
		}
		if !review.Status.Allowed {
			missing = append(missing, r)
		}
	}
	if len(missing) > 0 {
		return MissingError{missing}
	}
	return nil
}

func (r Right) grantedBy(rule authorizationv1.ResourceRule) bool {
	has := func(list []string, item string) bool {
		return slices.Contains(list, item) || slices.Contains(list, "*")
	}
	return has(rule.Verbs, r.Verb) && has(rule.APIGroups, r.Group) && has(rule.Resources, r.Resource) &&
		(len(rule.ResourceNames) == 0 || r.Name != "" && slices.Contains(rule.ResourceNames, r.Name))
}
