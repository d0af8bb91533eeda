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

package main

import (
	"context"
	"flag"
	"io"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/lease-coordinator/coordinator/pkg/candidate"
)

// config/ renders, decodes strictly, and passes flags that exist.
func TestConfig(t *testing.T) {
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "config")
	if err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	deployments := 0
	for _, resource := range rendered.Resources() {
		content, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := strict.Decode(content, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", resource.CurId(), err)
			continue
		}
		deployment, ok := object.(*appsv1.Deployment)
		if !ok {
			continue
		}
		deployments++
		var o operator
		flags := flag.NewFlagSet("operator", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		o.addFlags(flags)
		if err := flags.Parse(deployment.Spec.Template.Spec.Containers[0].Args); err != nil || flags.NArg() > 0 {
			t.Errorf("the operator would not start: %v, arguments %v", err, flags.Args())
		}
	}
	if deployments != 1 {
		t.Errorf("%d Deployments", deployments)
	}
}

func TestStamp(t *testing.T) {
	term := func(token string) func(context.Context) (candidate.Term, bool) {
		return func(context.Context) (candidate.Term, bool) { return candidate.Term{Token: token}, true }
	}
	conflict := apierrors.NewConflict(corev1.Resource("configmaps"), "c", nil)
	for _, test := range []struct {
		name    string
		stamped string
		term    func(context.Context) (candidate.Term, bool)
		patched error
		token   string
		again   time.Duration
	}{
		{"a ConfigMap without a stamp is stamped", "", term("7"), nil, "7", time.Minute},
		{"the stamp of an earlier term is replaced", "9", term("10"), nil, "10", time.Minute},
		{"a stamp of this term is renewed", "10", term("10"), nil, "10", time.Minute},
		{"the stamp of a later term stays", "11", term("10"), nil, "11", time.Minute},
		{"a write that met another's is tried again soon", "9", term("10"), conflict, "9", time.Second},
		{"nothing is stamped when the term has ended", "9", func(context.Context) (candidate.Term, bool) { return candidate.Term{}, false }, nil, "9", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
			if test.stamped != "" {
				object.Annotations = map[string]string{tokenAnnotation: test.stamped}
			}
			c := fake.NewClientBuilder().WithObjects(object).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
					if test.patched != nil {
						return test.patched
					}
					return c.Patch(ctx, o, p, opts...)
				},
			}).Build()
			s := &stamper{client: c, version: "1.2.3", identity: "me", interval: time.Minute, term: test.term}
			key := types.NamespacedName{Namespace: "ns", Name: "c"}
			result, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			if err != nil || result.RequeueAfter != test.again {
				t.Errorf("Reconcile returned %+v, %v", result, err)
			}
			if err := c.Get(t.Context(), key, object); err != nil || object.Annotations[tokenAnnotation] != test.token {
				t.Errorf("annotations %v, %v", object.Annotations, err)
			}
		})
	}
}
