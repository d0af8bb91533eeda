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

package framework

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// fieldOwner is the field manager of what the framework applies.
const fieldOwner = client.FieldOwner("e2e")

// ApplyKustomization builds the kustomization in path, relative to the
// repository's root, and applies all of it server-side with the admin's rights,
// namespaces and CRDs first. Objects of the given kinds are left out, which
// is for kinds that a bare control plane does not serve.
func (c *Cluster) ApplyKustomization(ctx context.Context, path string, except ...string) error {
	objects, err := BuildKustomization(path)
	if err != nil {
		return err
	}
	return c.Apply(ctx, slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return slices.Contains(except, o.GetKind())
	})...)
}

// BuildKustomization returns the objects of a kustomization with components, as
// an overlay that names them would have it. Paths are relative to the repository's root.
func BuildKustomization(path string, components ...string) ([]*unstructured.Unstructured, error) {
	if len(components) > 0 {
		overlay, err := writeOverlay(path, components)
		if err != nil {
			return nil, fmt.Errorf("writing an overlay of %s: %w", path, err)
		}
		defer func() { _ = os.RemoveAll(overlay) }()
		path = overlay
	}
	if !filepath.IsAbs(path) {
		root, err := RepositoryRoot()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(root, path)
	}
	options := krusty.MakeDefaultOptions()
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		return nil, fmt.Errorf("building the kustomization in %s: %w", path, err)
	}
	var objects []*unstructured.Unstructured
	for _, r := range resources.Resources() {
		content, err := r.Map()
		if err != nil {
			return nil, fmt.Errorf("building the kustomization in %s: %w", path, err)
		}
		objects = append(objects, &unstructured.Unstructured{Object: content})
	}
	return objects, nil
}

// writeOverlay writes a kustomization to a folder of its own.
func writeOverlay(path string, components []string) (string, error) {
	root, err := RepositoryRoot()
	if err != nil {
		return "", err
	}
	sb, err := theSandbox()
	if err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp(sb.dir, "overlay-")
	if err != nil {
		return "", err
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return "", err
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return "", err
	}
	// A kustomization takes no absolute paths.
	up, err := filepath.Rel(folder, root)
	if err != nil {
		return "", err
	}
	content := map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
		"resources": []string{filepath.Join(up, path)},
	}
	var list []string
	for _, c := range components {
		list = append(list, filepath.Join(up, c))
	}
	content["components"] = list
	data, err := yaml.Marshal(content)
	if err != nil {
		return "", err
	}
	return folder, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), data, 0o644)
}

// applyOrder of kinds that others depend on; the rest comes after.
var applyOrder = []string{"Namespace", "CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role"}

// Apply applies objects server-side with the admin's rights. A namespace that
// they need and that is not among them is created.
func (c *Cluster) Apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	rank := func(o *unstructured.Unstructured) int {
		if i := slices.Index(applyOrder, o.GetKind()); i >= 0 {
			return i
		}
		return len(applyOrder)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })

	cl := c.Client()
	for _, o := range objects {
		err := cl.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), fieldOwner, client.ForceOwnership)
		if apierrors.IsNotFound(err) && o.GetNamespace() != "" {
			ns := &unstructured.Unstructured{}
			ns.SetAPIVersion("v1")
			ns.SetKind("Namespace")
			ns.SetName(o.GetNamespace())
			if err := cl.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("creating namespace %s: %w", o.GetNamespace(), err)
			}
			err = cl.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), fieldOwner, client.ForceOwnership)
		}
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", o.GetKind(), client.ObjectKeyFromObject(o), err)
		}
		if o.GetKind() == "CustomResourceDefinition" {
			if err := c.waitEstablished(ctx, cl, o.GetName()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) waitEstablished(ctx context.Context, cl client.Client, name string) error {
	return WaitFor(ctx, "CRD "+name+" to be served", func(ctx context.Context) (bool, error) {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		if err := cl.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return false, err
		}
		conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
		for _, item := range conditions {
			condition, _ := item.(map[string]any)
			if condition["type"] == "Established" && condition["status"] == string(metav1.ConditionTrue) {
				return true, nil
			}
		}
		return false, nil
	})
}

// copyTree copies the regular files below from into to.
func copyTree(from, to string) error {
	return os.CopyFS(to, os.DirFS(from))
}
