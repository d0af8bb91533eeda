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

package coordinator

import (
	"context"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var testLock = types.NamespacedName{Namespace: "lock-ns", Name: "lock"}

// reviewer answers whether something is allowed.
func reviewer(answer func(authorizationv1.ResourceAttributes) (bool, error)) client.Client {
	return interceptor.NewClient(fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).Build(), interceptor.Funcs{
		Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
			review := obj.(*authorizationv1.SelfSubjectAccessReview)
			allowed, err := answer(*review.Spec.ResourceAttributes)
			review.Status.Allowed = allowed
			return err
		},
	})
}

// Each right, when it alone is missing, is named by verb, resource and namespace, and no other is.
func TestEachMissingRightIsNamed(t *testing.T) {
	wanted := rights(testLock, false)
	for _, lost := range wanted {
		err := checkRights(t.Context(), reviewer(func(a authorizationv1.ResourceAttributes) (bool, error) {
			if a.Group != "coordination.k8s.io" {
				t.Errorf("asked about group %q", a.Group)
			}
			return right{a.Verb, a.Resource, a.Namespace, a.Name} != lost, nil
		}), wanted)
		where := "in all namespaces"
		if lost.namespace != "" {
			where = `in namespace "lock-ns"`
		}
		want := "the API server does not allow this coordinator to: " + lost.verb + " " + lost.resource + ".coordination.k8s.io " + where
		if err == nil || err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
	}
	if err := checkRights(t.Context(), reviewer(func(authorizationv1.ResourceAttributes) (bool, error) { return true, nil }), wanted); err != nil {
		t.Errorf("with all rights: %v", err)
	}
	err := checkRights(t.Context(), reviewer(func(authorizationv1.ResourceAttributes) (bool, error) { return false, nil }), wanted)
	if err == nil || strings.Count(err.Error(), ";") != len(wanted)-1 {
		t.Errorf("without any right: %v", err)
	}
}

func TestRightsCannotBeAsked(t *testing.T) {
	err := checkRights(t.Context(), reviewer(func(authorizationv1.ResourceAttributes) (bool, error) {
		return false, errors.New("connection refused")
	}), rights(testLock, false))
	var missing missingRightsError
	if err == nil || errors.As(err, &missing) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("not knowing is not missing: %v", err)
	}
}

// A dry run needs no right to write anything but its own lock.
func TestDryRunNeedsNoWrites(t *testing.T) {
	for _, r := range rights(testLock, true) {
		if r.namespace != testLock.Namespace && (r.verb == "create" || r.verb == "update" || r.verb == "patch") {
			t.Errorf("a dry run asks for %s", r)
		}
	}
}
