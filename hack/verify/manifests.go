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
	"fmt"
	"path"
	"strings"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/hack/internal/manifests"
	"github.com/lease-coordinator/coordinator/internal/coordinator"
)

// What config/ is called in a cluster.
const (
	systemNamespace = "lease-coordinator-system"
	namePrefix      = "lease-coordinator"
	containerName   = "coordinator"
)

// renders are the kustomizations that people apply.
var renders = []struct {
	folder    string
	options   manifests.Options
	namespace string // of every namespaced object but the Roles for the in-tree coordinator's lock
}{
	{folder: "default", namespace: systemNamespace},
	{folder: "default", options: manifests.Options{Components: []string{"prometheus", "network-policy", "flow-control"}, Image: "example.com/lease-coordinator:v1"}, namespace: systemNamespace},
	{folder: "default", options: manifests.Options{Components: []string{"prometheus/pod-monitor"}}, namespace: systemNamespace},
	{folder: "namespaced", namespace: systemNamespace},
	{folder: "namespaced", options: manifests.Options{Components: []string{"namespaced/metrics", "prometheus", "network-policy"}}, namespace: systemNamespace},
	{folder: "static-pod/rbac", namespace: metav1.NamespaceSystem},
	{folder: "crd"},
	{folder: "policy"},
}

// staticPod is used as it is.
const staticPod = "config/static-pod/lease-coordinator.yaml"

func checkManifests(t *tree) ([]finding, error) {
	var findings []finding
	for _, r := range renders {
		where := "config/" + r.folder
		stream, err := manifests.Render(t.path("config"), r.folder, r.options)
		if err != nil {
			findings = append(findings, finding{where, err.Error()})
			continue
		}
		objects, err := manifests.Decode(stream)
		if err != nil {
			findings = append(findings, finding{where, err.Error()})
			continue
		}
		findings = append(findings, inconsistencies(where, r.namespace, objects)...)
	}
	for _, name := range t.files {
		if path.Ext(name) != ".yaml" || name != staticPod && !under(name, "config/samples") {
			continue
		}
		content, err := t.read(name)
		if err != nil {
			return nil, err
		}
		if name != staticPod {
			var ignored any
			if err := yaml.UnmarshalStrict(content, &ignored); err != nil {
				findings = append(findings, finding{name, err.Error()})
			}
			continue
		}
		objects, err := manifests.Decode(content)
		if err != nil {
			findings = append(findings, finding{name, err.Error()})
			continue
		}
		findings = append(findings, inconsistencies(name, metav1.NamespaceSystem, objects)...)
	}
	return findings, nil
}

// inconsistencies returns what renders, and decodes, and still would not work: names that refer to nothing,
// selectors that select nothing, flags that do not exist.
func inconsistencies(where, namespace string, objects []runtime.Object) []finding {
	var findings []finding
	names := map[string]bool{} // Kind/name
	var pods []labels.Set
	for _, object := range objects {
		names[nameOf(object)] = true
		if role, ok := object.(*rbacv1.Role); ok {
			names["Role/"+role.Namespace+"/"+role.Name] = true
		}
		if deployment, ok := object.(*appsv1.Deployment); ok {
			pods = append(pods, deployment.Spec.Template.Labels)
		}
	}
	selectsNothing := func(selector labels.Selector) bool {
		for _, set := range pods {
			if selector.Matches(set) {
				return false
			}
		}
		return true
	}
	for _, object := range objects {
		report := func(format string, args ...any) {
			findings = append(findings, finding{where, nameOf(object) + " " + fmt.Sprintf(format, args...)})
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			report("is no object: %v", err)
			continue
		}
		if object.GetObjectKind().GroupVersionKind().Kind == "CustomResourceDefinition" {
			// The API says what it is called.
			if !strings.HasSuffix(accessor.GetName(), "."+v1alpha1.Group) {
				report("is not of group %s", v1alpha1.Group)
			}
		} else if !strings.HasPrefix(accessor.GetName(), namePrefix) {
			report("does not begin with %s", namePrefix)
		}
		if got := accessor.GetNamespace(); got != "" && got != namespace && !(got == metav1.NamespaceSystem && isRole(object)) {
			report("is in namespace %q, not %q", got, namespace)
		}
		switch o := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			for _, fault := range bindingFaults(o.RoleRef, "", o.Subjects, namespace, names) {
				report("%s", fault)
			}
		case *rbacv1.RoleBinding:
			for _, fault := range bindingFaults(o.RoleRef, o.Namespace, o.Subjects, namespace, names) {
				report("%s", fault)
			}
		case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
			if name := o.Spec.PolicyName; !names["ValidatingAdmissionPolicy/"+name] {
				report("binds ValidatingAdmissionPolicy %q, which is not there", name)
			}
		case *corev1.Pod:
			for _, fault := range flagFaults(o.Spec, objects) {
				report("%s", fault)
			}
		case *appsv1.Deployment:
			for _, fault := range flagFaults(o.Spec.Template.Spec, objects) {
				report("%s", fault)
			}
			if name := o.Spec.Template.Spec.ServiceAccountName; !names["ServiceAccount/"+name] {
				report("runs as ServiceAccount %q, which is not there", name)
			}
		case *corev1.Service:
			if selectsNothing(labels.SelectorFromSet(o.Spec.Selector)) {
				report("selects no Pod")
			}
		case *networkingv1.NetworkPolicy:
			if selector, err := metav1.LabelSelectorAsSelector(&o.Spec.PodSelector); err != nil || selectsNothing(selector) {
				report("selects no Pod")
			}
		case *policyv1.PodDisruptionBudget:
			if selector, err := metav1.LabelSelectorAsSelector(o.Spec.Selector); err != nil || selectsNothing(selector) {
				report("selects no Pod")
			}
		}
	}
	return findings
}

// isRole tells whether the object is a Role, or binds one.
func isRole(object runtime.Object) bool {
	switch object.(type) {
	case *rbacv1.Role, *rbacv1.RoleBinding:
		return true
	}
	return false
}

// bindingFaults returns what a binding refers to although it is not there. A Role has to be in the binding's namespace,
// service accounts in the namespace of the coordinator.
func bindingFaults(role rbacv1.RoleRef, in string, subjects []rbacv1.Subject, namespace string, names map[string]bool) []string {
	var faults []string
	name := role.Kind + "/" + role.Name
	if role.Kind == "Role" {
		name = role.Kind + "/" + in + "/" + role.Name
	}
	// Kubernetes' own are always there.
	if !names[name] && !strings.HasPrefix(role.Name, "system:") {
		faults = append(faults, fmt.Sprintf("binds %s, which is not there", name))
	}
	for _, subject := range subjects {
		if subject.Kind == rbacv1.ServiceAccountKind && (!names["ServiceAccount/"+subject.Name] || subject.Namespace != namespace) {
			faults = append(faults, fmt.Sprintf("is for ServiceAccount %s/%s, which is not there", subject.Namespace, subject.Name))
		}
	}
	return faults
}

// flagFaults returns what the coordinator would refuse in the arguments of its container. Objects are those that are
// applied together with the Pod.
func flagFaults(pod corev1.PodSpec, objects []runtime.Object) []string {
	var faults []string
	found := false
	for _, container := range pod.Containers {
		if container.Name != containerName {
			continue
		}
		found = true
		options := coordinator.NewOptions()
		flags := pflag.NewFlagSet(containerName, pflag.ContinueOnError)
		options.AddFlags(flags)
		var args []string
		for _, arg := range container.Args {
			// The kubelet puts it there; any will do.
			args = append(args, strings.ReplaceAll(arg, "$(POD_NAMESPACE)", systemNamespace))
		}
		err := flags.Parse(args)
		if err == nil {
			err = options.Validate()
		}
		if err == nil && flags.NArg() > 0 {
			err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
		}
		if err == nil && options.ConfigFile != "" && !mounted(options.ConfigFile, container, pod, objects) {
			err = fmt.Errorf("--config=%q: no ConfigMap puts a file there", options.ConfigFile)
		}
		if err != nil {
			faults = append(faults, "would not start: "+err.Error())
		}
	}
	if !found {
		faults = append(faults, fmt.Sprintf("has no container %q", containerName))
	}
	return faults
}

// mounted reports whether the container finds that file in a ConfigMap among the objects.
func mounted(file string, container corev1.Container, pod corev1.PodSpec, objects []runtime.Object) bool {
	for _, mount := range container.VolumeMounts {
		for _, volume := range pod.Volumes {
			if mount.MountPath != path.Dir(file) || volume.Name != mount.Name || volume.ConfigMap == nil {
				continue
			}
			for _, object := range objects {
				if c, isConfigMap := object.(*corev1.ConfigMap); isConfigMap && c.Name == volume.ConfigMap.Name && c.Data[path.Base(file)] != "" {
					return true
				}
			}
		}
	}
	return false
}

// nameOf is Kind/name.
func nameOf(object runtime.Object) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return object.GetObjectKind().GroupVersionKind().Kind
	}
	return object.GetObjectKind().GroupVersionKind().Kind + "/" + accessor.GetName()
}
