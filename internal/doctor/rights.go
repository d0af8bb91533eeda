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
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/doctor/checks"
)

// accessReviewKinds are those of the reviews below.
var accessReviewKinds = []schema.GroupVersionKind{
	authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
	authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"),
}

// readRights asks for the coordinator's rights by a SubjectAccessReview, or else by impersonating it, and for one's own.
func (g *gatherer) readRights(ctx context.Context) {
	f := g.facts
	f.OwnRights.Subject = "you"
	for _, own := range g.ownRights() {
		own.Allowed, own.Unknown = review(selfReview(ctx, g.api, own.Right))
		f.OwnRights.Reviews = append(f.OwnRights.Reviews, own)
	}

	r := &f.Rights
	r.Subject, r.How = g.CoordinatorUser, "asked by SubjectAccessReview"
	ask := g.subjectReview
	if len(g.Rights) > 0 {
		if _, err := ask(ctx, g.Rights[0]); apierrors.IsForbidden(err) {
			r.How = "asked by impersonating it"
			impersonating := rest.CopyConfig(g.config)
			impersonating.Impersonate = rest.ImpersonationConfig{UserName: g.CoordinatorUser}
			api, failed := client.New(impersonating, client.Options{Scheme: clientgoscheme.Scheme, Mapper: g.mapper})
			if failed == nil {
				ask = func(ctx context.Context, right checks.Right) (bool, error) { return selfReview(ctx, api, right) }
				_, failed = ask(ctx, g.Rights[0])
			}
			if failed != nil {
				r.Unknown = fmt.Sprintf("you may neither create SubjectAccessReviews (%s) nor impersonate %s (%s)", why(err), g.CoordinatorUser, why(failed))
				return
			}
		}
	}
	for _, right := range g.Rights {
		allowed, unknown := review(ask(ctx, right))
		r.Reviews = append(r.Reviews, checks.Review{Right: right, Allowed: allowed, Unknown: unknown})
	}
}

func review(allowed bool, err error) (bool, string) {
	if err != nil {
		return false, why(err)
	}
	return allowed, ""
}

func attributes(r checks.Right) *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{Verb: r.Verb, Group: r.Group, Resource: r.Resource, Namespace: r.Namespace, Name: r.Name}
}

func selfReview(ctx context.Context, api client.Client, right checks.Right) (bool, error) {
	r := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes(right)}}
	if err := api.Create(ctx, r); err != nil {
		return false, err
	}
	return r.Status.Allowed, nil
}

func (g *gatherer) subjectReview(ctx context.Context, right checks.Right) (bool, error) {
	r := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: attributes(right), User: g.CoordinatorUser, Groups: groupsOf(g.CoordinatorUser),
	}}
	if err := g.api.Create(ctx, r); err != nil {
		return false, err
	}
	return r.Status.Allowed, nil
}

// groupsOf returns the groups that a user is in because of its name.
func groupsOf(user string) []string {
	groups := []string{"system:authenticated"}
	if account, found := strings.CutPrefix(user, "system:serviceaccount:"); found {
		namespace, _, _ := strings.Cut(account, ":")
		groups = append(groups, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	return groups
}

// ownRights are what this examination takes, and what stepping in does.
func (g *gatherer) ownRights() []checks.Review {
	const leases, policies = "leases", "validatingadmissionpolicies"
	return []checks.Review{
		{Right: checks.Right{Verb: "list", Group: coordinationv1.GroupName, Resource: leases}, For: "to see who leads"},
		{Right: checks.Right{Verb: "list", Group: coordinationv1.GroupName, Resource: candidateResource}, For: "to see who could lead"},
		{Right: checks.Right{Verb: "list", Group: v1alpha1.Group, Resource: candidateResource}, For: "to see who could lead"},
		{Right: checks.Right{Verb: "create", Group: coordinationv1.GroupName, Resource: leases, Namespace: g.Namespace}, For: "to ask by a dry run what is kept"},
		{Right: checks.Right{Verb: "get", Group: crdKind.Group, Resource: "customresourcedefinitions", Name: crdName}, For: "to see what is installed"},
		{Right: checks.Right{Verb: "list", Group: "", Resource: "pods"}, For: "to see which coordinators run"},
		{Right: checks.Right{Verb: "list", Group: "admissionregistration.k8s.io", Resource: policies}, For: "to see what guards candidates"},
		{Right: checks.Right{Verb: "create", Group: authorizationv1.GroupName, Resource: "subjectaccessreviews"}, For: "to ask for the coordinator's rights"},
		{Right: checks.Right{Verb: "patch", Group: coordinationv1.GroupName, Resource: leases}, For: "to step in by annotations"},
		{Right: checks.Right{Verb: "patch", Group: coordinationv1.GroupName, Resource: candidateResource}, For: "to step in by annotations"},
	}
}
