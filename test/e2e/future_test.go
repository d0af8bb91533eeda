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
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/doctor"
	"github.com/lease-coordinator/coordinator/internal/doctor/checks"
	"github.com/lease-coordinator/coordinator/test/e2e/compatibility"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// inFields asserts that strategy and preferred holder are where the API server has fields for them, and nowhere else, and
// that a coordinator named that holder so.
func (a *arena) inFields(preferred string) {
	a.Helper()
	lease := a.get()
	if lease.Spec.Strategy == nil || *lease.Spec.Strategy != v1alpha1.OldestEmulationVersion {
		a.Errorf("spec.strategy is %v", lease.Spec.Strategy)
	}
	if !slices.ContainsFunc(a.rec.Timeline().Of(a.lease, framework.LeasePreferred), func(e framework.Event) bool {
		p := e.LeaseAfter.Spec.PreferredHolder
		return p != nil && *p == preferred && e.WriterKind == framework.CoordinatorKind
	}) {
		a.Errorf("no coordinator named %s in spec.preferredHolder", preferred)
	}
	for _, e := range a.rec.Timeline().WritesTo(a.lease) {
		for _, name := range []string{v1alpha1.StrategyAnnotation, v1alpha1.PreferredHolderAnnotation} {
			if value, ok := e.LeaseAfter.Annotations[name]; ok {
				a.Errorf("%s wrote annotation %s=%q", e.Writer, name, value)
			}
		}
	}
}

// changedHands asserts that the last change of leaders was to that candidate of pkg/candidate, from another, directly.
func (a *arena) changedHands(to string) {
	a.Helper()
	a.waitLeader(to, patience)
	if gap := a.handedOff(to).Leaderless; gap > handOff {
		a.Errorf("hand-off to %s with a gap of %s", to, gap)
	}
}

// The gate is on, but kube-apiserver serves no LeaseCandidate. It waits for that API and is never ready, though it does
// what it is asked; its own coordinator holds its lock, and does nothing. Candidates of our kind are coordinated by the
// fields all the same, beside that coordinator and in its place, and doctor says what is wrong.
func TestGateWithoutNativeKind(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{
		CoordinatedLeaderElection: true, NoLeaseCandidateAPI: true, NeverReady: []string{"informer-sync"},
	})
	if err := cluster.ApplyKustomization(t.Context(), "config/crd"); err != nil {
		t.Fatal(err)
	}
	a := newArenaOn(t, cluster)
	a.allowWorkers()
	yielding := startCoordinators(t, a.ctx, a.node, 1, "--in-tree=yield")[0]
	a.waitCondition(yielding, moments, "spec.strategy and spec.preferredHolder of Leases: kept by the API server")
	a.waitCondition(yielding, moments, "candidates: lease-coordinator.dev/v1alpha1 LeaseCandidate")

	n37 := a.worker("n37", "1.37")
	a.waitLeader("n37", patience)
	n36 := a.worker("n36", "1.36")
	a.changedHands("n36")
	a.inFields("n36")
	a.tells(compatibility.Yield, compatibility.Library)

	d := newExaminee(a, framework.AdminUser).examine()
	d.has("gate", "", checks.OK, "6 of 6 answers")
	d.has("candidate-api", "candidate-api-missing", checks.Error, "--runtime-config=coordination.k8s.io/v1beta1=true")
	d.has("candidate-api", "", checks.OK, v1alpha1.SchemeGroupVersion.String())
	if d.code != doctor.ExitError {
		t.Errorf("doctor ends with %d: %v", d.code, d.Summary)
	}
	d.has("in-tree", "in-tree-yield", checks.Note, "seen to renew")

	a.must(yielding.Stop(a.ctx))
	replacing := startCoordinators(t, a.ctx, a.node, 1, "--in-tree=replace")[0]
	n35 := a.worker("n35", "1.35")
	a.changedHands("n35")
	a.inFields("n35")
	a.tells(compatibility.Replace, compatibility.Library)
	// So that its term is one that stamps of work show.
	a.renewed("n35", time.Now())
	a.must(n35.Terminate(a.ctx))
	a.changedHands("n36")

	if a.readyz() {
		t.Error("kube-apiserver is ready; say so in docs/doctor.md")
	}
	for _, e := range a.coordinating(a.lease) {
		if e.WriterKind == framework.APIServerKind {
			t.Errorf("the in-tree coordinator, which sees no candidates, wrote: %s %s", e.Kind, e.Detail)
		}
	}
	for _, c := range []*framework.Coordinator{yielding, replacing} {
		if faults := c.LogLines("ERROR"); len(faults) > 0 {
			t.Errorf("%s complains: %s", c.Name(), faults[0])
		}
	}
	a.safe()
	a.alternated(n37, n36, n35)
}

// readyz reports whether kube-apiserver takes itself for ready.
func (a *arena) readyz() bool {
	a.Helper()
	client := a.cluster.Clientset().CoordinationV1().RESTClient()
	return client.Get().AbsPath("/readyz").Do(a.ctx).Error() == nil
}

// futureKind is the LeaseCandidate of a Kubernetes that is yet to come.
var futureKind = schema.GroupVersionResource{Group: coordinationv1.GroupName, Version: "v2", Resource: "leasecandidates"}

// serveFutureKind has the API server serve it, by aggregation. (A CustomResourceDefinition of a group that is built in is accepted and
// listed in discovery, but what is asked of it is answered with 404.) Behind it is a custom resource with the
// schema of ours in a group whose name is as long, so that names are all that has to be translated.
func serveFutureKind(t *testing.T, cluster *framework.Cluster) {
	t.Helper()
	const stored = "coordination.future"
	objects, err := framework.BuildKustomization("config/crd")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		o.SetName(futureKind.Resource + "." + stored)
		spec := o.Object["spec"].(map[string]any)
		spec["group"] = stored
		spec["versions"].([]any)[0].(map[string]any)["name"] = futureKind.Version
		if err := cluster.Apply(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}

	// Who may do what has been asked by then, about the kind to come.
	storage, err := rest.TransportFor(cluster.Nodes[0].Config())
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cluster.Nodes[0].APIServer.URL())
	if err != nil {
		t.Fatal(err)
	}
	translate := func(body io.ReadCloser, from, to string) io.ReadCloser {
		return &translated{ReadCloser: body, lines: bufio.NewReader(body), from: []byte(from), to: []byte(to)}
	}
	silent := log.New(io.Discard, "", 0)
	server := httptest.NewTLSServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.URL.Path = strings.Replace(r.Out.URL.Path, futureKind.Group, stored, 1)
			r.Out.Header = http.Header{"Content-Type": r.In.Header["Content-Type"], "Accept": r.In.Header["Accept"]}
			if r.Out.Body != nil {
				r.Out.Body = translate(r.Out.Body, futureKind.Group, stored)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			r.Body = translate(r.Body, stored, futureKind.Group)
			return nil
		},
		Transport:     storage,
		FlushInterval: -1,
		ErrorLog:      silent,
	})
	server.Config.ErrorLog = silent
	t.Cleanup(func() {
		// Watches and all.
		_ = server.Config.Close()
		server.Close()
	})
	address := server.Listener.Addr().(*net.TCPAddr)
	const service = "coordination-to-come"
	if err := cluster.Apply(t.Context(),
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Service",
			"metadata": map[string]any{"namespace": metav1.NamespaceSystem, "name": service},
			"spec":     map[string]any{"type": "ExternalName", "externalName": address.IP.String()},
		}},
		&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
			"metadata": map[string]any{"name": futureKind.Version + "." + futureKind.Group},
			"spec": map[string]any{
				"group": futureKind.Group, "version": futureKind.Version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(20),
				"service":               map[string]any{"namespace": metav1.NamespaceSystem, "name": service, "port": int64(address.Port)},
				"insecureSkipTLSVerify": true,
			},
		}},
	); err != nil {
		t.Fatal(err)
	}
}

// translated is a body with one word replaced by another of the same length. Events of a watch are lines.
type translated struct {
	io.ReadCloser
	lines    *bufio.Reader
	from, to []byte
	rest     []byte
}

func (b *translated) Read(p []byte) (int, error) {
	if len(b.rest) == 0 {
		line, err := b.lines.ReadBytes('\n')
		if len(line) == 0 {
			return 0, err
		}
		b.rest = bytes.ReplaceAll(line, b.from, b.to)
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// future returns a candidate of the kind to come, nil if there is none.
func (a *arena) future(ctx context.Context, name string) *unstructured.Unstructured {
	a.Helper()
	client, err := dynamic.NewForConfig(a.node.Config())
	a.must(err)
	o, err := client.Resource(futureKind).Namespace(a.ns).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return o
}

func (a *arena) waitFuture(name string, is func(*unstructured.Unstructured) bool) {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.ctx, patience)
	defer cancel()
	var last *unstructured.Unstructured
	if err := framework.WaitFor(ctx, name+" as "+futureKind.GroupVersion().String(), func(ctx context.Context) (bool, error) {
		last = a.future(ctx, name)
		return is(last), nil
	}); err != nil {
		a.Fatalf("%v; it is %v", err, last)
	}
}

// An upgrade to a Kubernetes whose only LeaseCandidate is of a version that did not exist when this was compiled. Unlike
// after an upgrade the objects are not there yet in that version. Coordinator, candidates and doctor go on with it, as they
// were installed.
func TestVersionToCome(t *testing.T) {
	t.Parallel()
	cluster := framework.New(t, framework.Options{})
	a := newArenaOn(t, cluster)
	a.allowWorkers()
	c := startCoordinators(t, a.ctx, a.node, 1)[0]
	n37 := a.worker("n37", "1.37")
	a.waitLeader("n37", patience)
	token := a.token()

	a.rec.Mark("the upgrade")
	serveFutureKind(t, cluster)
	a.must(a.node.APIServer.Reconfigure(a.ctx, func(o *framework.Options) { o.NoLeaseCandidateAPI = true }))
	a.waitCondition(c, patience, "candidates: "+futureKind.GroupVersion().String()+" LeaseCandidate")
	present := func(o *unstructured.Unstructured) bool { return o != nil }
	a.waitFuture("n37", present)
	a.undisturbed(n37, token)

	n36 := a.worker("n36", "1.36")
	a.changedHands("n36")
	a.waitFuture("n36", present)
	// n37 has been silent for long enough to be asked.
	a.observe(pingPatience)
	a.must(n36.Terminate(a.ctx))
	a.changedHands("n37")
	a.waitFuture("n36", func(o *unstructured.Unstructured) bool { return o == nil })
	a.waitFuture("n37", func(o *unstructured.Unstructured) bool {
		pinged, _, _ := unstructured.NestedString(o.Object, "spec", "pingTime")
		renewed, _, _ := unstructured.NestedString(o.Object, "spec", "renewTime")
		return pinged != "" && renewed >= pinged
	})

	a.tells(compatibility.Ours, compatibility.Library)

	d := newExaminee(a, framework.AdminUser).examine()
	d.has("candidate-api", "", checks.OK, futureKind.GroupVersion().String())
	d.has("candidate-api-lifetime", "", checks.OK, fmt.Sprintf("%s has no announced end", futureKind.GroupVersion()))
	d.has("rights", "", checks.OK, framework.CoordinatorUser)
	d.has("elections", "", checks.OK, "1 lease with 1 candidate")

	for _, p := range []*framework.Process{c.Process, n37.Process} {
		if run := p.Info().Run; run != 1 {
			t.Errorf("%s is in its run %d", p.Name(), run)
		}
	}
	a.safe()
	a.alternated(n37, n36)
}
