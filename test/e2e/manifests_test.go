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

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	yamldecoder "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// installs are what people apply: kustomizations with the components that go with them.
var installs = []struct {
	folder     string
	components []string
}{
	{"config/default", nil},
	{"config/default", []string{"config/prometheus", "config/network-policy", "config/flow-control"}},
	{"config/default", []string{"config/prometheus/pod-monitor"}},
	{"config/namespaced", nil},
	{"config/namespaced", []string{"config/namespaced/metrics", "config/prometheus", "config/network-policy"}},
	{"config/samples/namespaces", nil},
	{"config/static-pod/rbac", nil},
	{"config/static-pod/rbac", []string{"config/flow-control"}},
	{"config/crd", nil},
	{"config/policy", nil},
	{"examples/operator/config", nil},
}

// objectFiles are applied as they are.
var objectFiles = []string{
	"config/static-pod/lease-coordinator.yaml",
	"config/samples/flow-control/candidates.yaml",
}

// foreignKinds are the definitions of the Prometheus operator's kinds that config/ has objects of.
var foreignKinds = []string{"servicemonitors", "podmonitors", "prometheusrules"}

// The API server takes every object of every manifest, strictly, and admits the Pods to the namespaces they are for.
func TestManifestsAreServed(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{NoAudit: true})
	ctx := t.Context()
	var definitions []*unstructured.Unstructured
	for _, kind := range foreignKinds {
		definitions = append(definitions, readObjects(t, filepath.Join(prometheusOperator(t), "monitoring.coreos.com_"+kind+".yaml"))...)
	}
	if err := cluster.Apply(ctx, definitions...); err != nil {
		t.Fatal(err)
	}
	server := newDryRunner(t, cluster)
	for _, install := range installs {
		t.Run(strings.Join(append([]string{install.folder}, install.components...), " with "), func(t *testing.T) {
			objects, err := framework.BuildKustomization(install.folder, install.components...)
			if err != nil {
				t.Fatal(err)
			}
			server.takes(ctx, t, objects...)
		})
	}
	root, err := framework.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range objectFiles {
		t.Run(file, func(t *testing.T) { server.takes(ctx, t, readObjects(t, filepath.Join(root, file))...) })
	}
	t.Run("what is not served is noticed", func(t *testing.T) {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion("v1")
		object.SetKind("ServiceAccount")
		object.SetName("x")
		object.SetNamespace(metav1.NamespaceDefault)
		if err := server.apply(ctx, object); err != nil {
			t.Fatal(err)
		}
		object.Object["automountServiceAccountTokens"] = false
		if err := server.apply(ctx, object); err == nil || !strings.Contains(err.Error(), "automountServiceAccountTokens") {
			t.Errorf("a misspelt field: %v", err)
		}
	})
}

// prometheusOperator returns the folder of the operator's definitions, of the version that hack/alerts pins.
func prometheusOperator(t *testing.T) string {
	t.Helper()
	root, err := framework.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, "hack", "alerts"), "mod", "download", "-json",
		"github.com/prometheus-operator/prometheus-operator")
	output, err := command.Output()
	if err != nil {
		t.Fatalf("downloading the Prometheus operator: %v: %s", err, output)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil || module.Dir == "" {
		t.Fatalf("downloading the Prometheus operator: %v: %s", err, output)
	}
	return filepath.Join(module.Dir, "example", "prometheus-operator-crd")
}

func readObjects(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var objects []*unstructured.Unstructured
	decoder := yamldecoder.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// dryRunner applies objects without leaving anything but namespaces behind.
type dryRunner struct {
	cluster *framework.Cluster
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
}

func newDryRunner(t *testing.T, cluster *framework.Cluster) *dryRunner {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Nodes[0].Config())
	if err != nil {
		t.Fatal(err)
	}
	return &dryRunner{cluster, client, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(cluster.Clientset().Discovery()))}
}

// takes asserts that the server would take all of the objects, and the Pods of Deployments.
func (d *dryRunner) takes(ctx context.Context, t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	if len(objects) == 0 {
		t.Fatal("there are no objects")
	}
	for _, object := range objects {
		if object.GetKind() == "Namespace" {
			// What is in it needs it, and its labels.
			if err := d.cluster.Apply(ctx, object.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, object := range objects {
		if err := d.apply(ctx, object); err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
		if object.GetKind() == "Deployment" {
			d.admits(ctx, t, object)
		}
	}
}

// apply applies one object strictly, without effect.
func (d *dryRunner) apply(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := d.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	content, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	if namespace := object.GetNamespace(); namespace != "" {
		if err := d.ensureNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	force := true
	_, err = d.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.ApplyPatchType, content, metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict, FieldManager: "e2e", Force: &force,
	})
	return err
}

func (d *dryRunner) ensureNamespace(ctx context.Context, name string) error {
	_, err := d.cluster.Clientset().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// admits asserts that the Deployment's Pods are admitted to its namespace: where config/ makes the namespace, under the Pod
// security standard "restricted". ServiceAccounts are not asked for: there is no controller that could make tokens.
func (d *dryRunner) admits(ctx context.Context, t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	var deployment appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &deployment); err != nil {
		t.Fatal(err)
	}
	pods := d.cluster.Clientset().CoreV1().Pods(deployment.Namespace)
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	pod := &corev1.Pod{ObjectMeta: deployment.Spec.Template.ObjectMeta, Spec: deployment.Spec.Template.Spec}
	pod.Name = deployment.Name + "-x"
	if _, err := pods.Create(ctx, pod, options); err != nil {
		t.Errorf("Pod of Deployment %s: %v", deployment.Name, err)
	}
	namespace, err := d.cluster.Clientset().CoreV1().Namespaces().Get(ctx, deployment.Namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if namespace.Name != framework.CoordinatorNamespace {
		return
	}
	if level := namespace.Labels["pod-security.kubernetes.io/enforce"]; level != "restricted" {
		t.Errorf("namespace %s enforces %q", namespace.Name, level)
	}
	pod.Spec.SecurityContext.RunAsNonRoot = nil
	if _, err := pods.Create(ctx, pod, options); !apierrors.IsForbidden(err) {
		t.Errorf("a Pod that may run as root is admitted to %s: %v", namespace.Name, err)
	}
}

// manifestRun is how a manifest starts the coordinator.
type manifestRun struct {
	pod  corev1.PodSpec
	user string
	// namespace is the Pod's.
	namespace string
	// files are of the ConfigMap, by their paths in the Pod.
	files map[string]string
}

// runOf returns how a Deployment or Pod among the objects starts the coordinator.
func runOf(t *testing.T, user string, objects []*unstructured.Unstructured) manifestRun {
	t.Helper()
	run := manifestRun{user: user, files: map[string]string{}}
	maps := map[string]corev1.ConfigMap{}
	for _, object := range objects {
		var err error
		switch object.GetKind() {
		case "ConfigMap":
			var c corev1.ConfigMap
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &c)
			maps[c.Name] = c
		case "Deployment":
			var d appsv1.Deployment
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &d)
			run.pod, run.namespace = d.Spec.Template.Spec, d.Namespace
		case "Pod":
			var p corev1.Pod
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &p)
			run.pod, run.namespace = p.Spec, p.Namespace
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(run.pod.Containers) != 1 {
		t.Fatalf("%d containers", len(run.pod.Containers))
	}
	for _, mount := range run.pod.Containers[0].VolumeMounts {
		for _, volume := range run.pod.Volumes {
			if volume.Name == mount.Name && volume.ConfigMap != nil {
				for name, content := range maps[volume.ConfigMap.Name].Data {
					run.files[path.Join(mount.MountPath, name)] = content
				}
			}
		}
	}
	return run
}

// args returns the arguments as the kubelet passes them, with the files at other paths: the container's are not here.
func (r manifestRun) args(t *testing.T) []string {
	t.Helper()
	folder := t.TempDir()
	replace := []string{"$(POD_NAMESPACE)", r.namespace}
	for name, content := range r.files {
		file := filepath.Join(folder, path.Base(name))
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		replace = append(replace, name, file)
	}
	var args []string
	for _, arg := range r.pod.Containers[0].Args {
		args = append(args, strings.NewReplacer(replace...).Replace(arg))
	}
	return args
}

// The coordinator starts with the arguments and the configuration file of each manifest, and works with the rights that
// come with it.
func TestManifestsStartTheCoordinator(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{})
	binary, err := framework.BuildCoordinator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	root, err := framework.RepositoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	deployment, err := framework.BuildKustomization("config/default")
	if err != nil {
		t.Fatal(err)
	}
	namespaced, err := framework.BuildKustomization("config/namespaced")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name         string
		objects      []*unstructured.Unstructured
		rights, user string
	}{
		// First, while its user has no other rights.
		{"config/namespaced", namespaced, "config/namespaced", framework.CoordinatorUser},
		{"config/default", deployment, "config/rbac", framework.CoordinatorUser},
		{"config/static-pod", readObjects(t, filepath.Join(root, "config/static-pod/lease-coordinator.yaml")), "config/static-pod/rbac", framework.StaticPodUser},
	} {
		t.Run(test.name, func(t *testing.T) {
			run := runOf(t, test.user, test.objects)
			args := run.args(t)
			// Flags are parsed in turn, so that help is given only if all before it are right.
			if output, err := exec.CommandContext(t.Context(), binary, append(slices.Clone(args), "--help")...).CombinedOutput(); err != nil {
				t.Errorf("%q: %v\n%s", args, err, output)
			}
			if err := cluster.ApplyKustomization(t.Context(), test.rights); err != nil {
				t.Fatal(err)
			}
			// Where it is and where it serves is another on this machine: the framework's flags say so, but come first.
			var others []string
			for _, arg := range args {
				if flag, _, _ := strings.Cut(arg, "="); !slices.Contains([]string{"--kubeconfig", "--health-probe-bind-address", "--metrics-bind-address"}, flag) {
					others = append(others, arg)
				}
			}
			c, err := cluster.Nodes[0].StartCoordinator(t.Context(), framework.CoordinatorOptions{User: test.user, Args: others})
			if err != nil {
				t.Fatal(err)
			}
			waitActive(t, t.Context(), c)
			for _, line := range c.LogLines(`"level":"error"`) {
				t.Errorf("it logs: %s", line)
			}
			if err := c.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// What an election takes is in the coordinator's own priority level, and nothing else is.
func TestFlowControl(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{NoAudit: true})
	ctx, node := t.Context(), cluster.Nodes[0]
	objects, err := framework.BuildKustomization("config/rbac", "config/flow-control")
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Apply(ctx, objects...); err != nil {
		t.Fatal(err)
	}
	flowcontrol := cluster.Clientset().FlowcontrolV1()
	schema, err := flowcontrol.FlowSchemas().Get(ctx, "lease-coordinator", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	level, err := flowcontrol.PriorityLevelConfigurations().Get(ctx, "lease-coordinator", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// ours tells whether a request is in the level.
	ours := func(ctx context.Context, user, method, where string) (bool, error) {
		config := node.ConfigFor(user)
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return false, err
		}
		defer client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(ctx, method, config.Host+where, strings.NewReader("{}"))
		if err != nil {
			return false, err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			return false, err
		}
		defer func() { _ = response.Body.Close() }()
		if response.Header.Get("X-Kubernetes-PF-FlowSchema-UID") == "" {
			return false, fmt.Errorf("%s %s: no flow schema, status %s", method, where, response.Status)
		}
		return response.Header.Get("X-Kubernetes-PF-FlowSchema-UID") == string(schema.UID) &&
			response.Header.Get("X-Kubernetes-PF-PriorityLevel-UID") == string(level.UID), nil
	}
	const leases = "/apis/coordination.k8s.io/v1/leases"
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := framework.WaitFor(wait, "the flow schema to be in force", func(ctx context.Context) (bool, error) {
		return ours(ctx, framework.CoordinatorUser, http.MethodGet, leases)
	}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		user, method, where string
		want                bool
	}{
		{framework.CoordinatorUser, http.MethodPatch, "/apis/coordination.k8s.io/v1/namespaces/default/leases/x", true},
		{framework.CoordinatorUser, http.MethodGet, "/apis/coordination.k8s.io/v1beta1/leasecandidates", true},
		{framework.CoordinatorUser, http.MethodGet, "/apis/lease-coordinator.dev/v1alpha1/leasecandidates", true},
		{framework.CoordinatorUser, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", true},
		{framework.CoordinatorUser, http.MethodGet, "/apis/coordination.k8s.io/v1beta1", true},
		{framework.CoordinatorUser, http.MethodPost, "/apis/events.k8s.io/v1/namespaces/default/events", false},
		{framework.CoordinatorUser, http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", false},
		{framework.CoordinatorUser, http.MethodGet, "/api/v1/namespaces/default/configmaps", false},
		{framework.StaticPodUser, http.MethodGet, leases, true},
		{framework.CandidateUser, http.MethodGet, leases, false},
	} {
		if got, err := ours(ctx, test.user, test.method, test.where); err != nil || got != test.want {
			t.Errorf("%s, %s %s: in the coordinator's level: %t, %v; want %t", test.user, test.method, test.where, got, err, test.want)
		}
	}
}
