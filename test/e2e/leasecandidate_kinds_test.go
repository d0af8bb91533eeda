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
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

const (
	nativeKind = "native"
	ourKind    = "ours"
)

// candidateKinds are the two kinds of LeaseCandidate.
var candidateKinds = map[string]schema.GroupVersionResource{
	nativeKind: coordinationv1beta1.SchemeGroupVersion.WithResource("leasecandidates"),
	ourKind:    v1alpha1.SchemeGroupVersion.WithResource("leasecandidates"),
}

const (
	accepted = true
	rejected = false
)

// anOldest and aSticky are valid specs.
const (
	anOldest = `{"leaseName": "l", "binaryVersion": "1.37.0", "emulationVersion": "1.36.0", "strategy": "OldestEmulationVersion"}`
	aSticky  = `{"leaseName": "l", "binaryVersion": "1.37.0", "strategy": "lease-coordinator.dev/Sticky"}`
)

// with returns anOldest with fields replaced by those of a JSON object; null removes.
func with(fields string) string { return changed(anOldest, fields) }

func changed(spec, fields string) string {
	var merged, changes map[string]any
	for _, part := range []struct {
		of   *map[string]any
		text string
	}{{&merged, spec}, {&changes, fields}} {
		if err := json.Unmarshal([]byte(part.text), part.of); err != nil {
			panic(fmt.Sprintf("%s: %v", part.text, err))
		}
	}
	for k, v := range changes {
		if v == nil {
			delete(merged, k)
			continue
		}
		merged[k] = v
	}
	text, err := json.Marshal(merged)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// candidateRow is a LeaseCandidate that is created and, if patch is given, patched after that. The verdict is that of the
// last request.
type candidateRow struct {
	name string
	// object is the object's name; by default it gets one that is not taken.
	object string
	spec   string
	patch  string
	want   bool
	// says is part of what is said of a rejected one, by both kinds.
	says string
	// ours is, if set, the verdict of our kind where it cannot be the native one, and why.
	ours *difference
}

type difference struct {
	want bool
	why  string
}

var candidateRows = []candidateRow{
	{name: "oldest emulation version", spec: anOldest, want: accepted},
	{name: "a strategy with a prefix", spec: aSticky, want: accepted},
	{name: "with times", spec: with(`{"pingTime": "2026-01-02T03:04:05.000006Z", "renewTime": "2026-01-02T03:04:05.000007+01:30"}`), want: accepted},

	{name: "no leaseName", spec: with(`{"leaseName": null}`), want: rejected, says: "spec.leaseName: Required value"},
	{name: "empty leaseName", spec: with(`{"leaseName": ""}`), want: rejected, says: "spec.leaseName: Required value"},
	{name: "leaseName that no Lease can have", spec: with(`{"leaseName": "No Lease"}`), want: accepted},
	{name: "leaseName longer than any Lease's", spec: with(`{"leaseName": "` + strings.Repeat("l", 300) + `"}`), want: accepted},
	{name: "leaseName that is a number", spec: with(`{"leaseName": 1}`), want: rejected, says: "leaseName"},

	{name: "no binaryVersion", spec: with(`{"binaryVersion": null}`), want: rejected, says: "spec.binaryVersion: Required value"},
	{name: "empty binaryVersion", spec: with(`{"binaryVersion": ""}`), want: rejected, says: "spec.binaryVersion: Required value"},
	{name: "no binaryVersion, other strategy", spec: changed(aSticky, `{"binaryVersion": null}`), want: rejected, says: "spec.binaryVersion: Required value"},
	{name: "leading v", spec: with(`{"binaryVersion": "v1.37.0"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "two numbers", spec: with(`{"binaryVersion": "1.37"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "four numbers", spec: with(`{"binaryVersion": "1.37.0.1"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "leading zero", spec: with(`{"binaryVersion": "1.037.0"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "space before", spec: with(`{"binaryVersion": " 1.37.0"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "no version at all", spec: with(`{"binaryVersion": "latest"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "empty pre-release", spec: with(`{"binaryVersion": "1.37.0-"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "empty part of a pre-release", spec: with(`{"binaryVersion": "1.37.0-a..b"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "leading zero in a pre-release", spec: with(`{"binaryVersion": "1.37.0-01"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "empty build", spec: with(`{"binaryVersion": "1.37.0+"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "underscore", spec: with(`{"binaryVersion": "1.37.0-a_b"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "a number of 64 bits", spec: with(`{"binaryVersion": "18446744073709551615.0.0"}`), want: accepted},
	{name: "a number of 65 bits", spec: with(`{"binaryVersion": "18446744073709551616.0.0"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "pre-release and build", spec: with(`{"binaryVersion": "1.37.0-beta.1+k3s1"}`), want: accepted},
	{name: "a vendor's build", spec: with(`{"binaryVersion": "1.37.0-eks-4f4795d"}`), want: accepted},
	{name: "a very long version", spec: with(`{"binaryVersion": "1.37.0-` + strings.Repeat("a", 3000) + `"}`), want: accepted},
	{name: "a version that is a number", spec: with(`{"binaryVersion": 1.37}`), want: rejected, says: "binaryVersion"},

	{name: "no emulationVersion", spec: with(`{"emulationVersion": null}`), want: rejected,
		says: "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'"},
	{name: "empty emulationVersion", spec: with(`{"emulationVersion": ""}`), want: rejected,
		says: "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'"},
	{name: "emulating nothing", spec: with(`{"emulationVersion": "0.0.0"}`), want: rejected,
		says: "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'"},
	{name: "emulating a build of nothing", spec: with(`{"emulationVersion": "0.0.0+1"}`), want: rejected,
		says: "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'"},
	{name: "emulating what was before nothing", spec: with(`{"emulationVersion": "0.0.0-1"}`), want: accepted},
	{name: "emulating nothing, other strategy", spec: changed(aSticky, `{"emulationVersion": "0.0.0"}`), want: accepted},
	{name: "empty emulationVersion, other strategy", spec: changed(aSticky, `{"emulationVersion": ""}`), want: accepted},
	{name: "emulationVersion that is none", spec: with(`{"emulationVersion": "1.36"}`), want: rejected, says: "must be a valid semantic version"},
	{name: "emulationVersion that is none, other strategy", spec: changed(aSticky, `{"emulationVersion": "v1.36.0"}`), want: rejected,
		says: "must be a valid semantic version"},
	{name: "emulating itself", spec: with(`{"emulationVersion": "1.37.0"}`), want: accepted},
	{name: "emulating what is newer", spec: with(`{"emulationVersion": "1.37.1"}`), want: rejected,
		says: "must be greater than or equal to `emulationVersion`"},
	{name: "emulating what is newer, other strategy", spec: changed(aSticky, `{"emulationVersion": "1.100.0"}`), want: rejected,
		says: "must be greater than or equal to `emulationVersion`"},
	{name: "numbers are compared as numbers", spec: with(`{"emulationVersion": "1.9.0"}`), want: accepted},
	{name: "a pre-release emulating the release", spec: with(`{"binaryVersion": "1.36.0-rc.1"}`), want: rejected,
		says: "must be greater than or equal to `emulationVersion`"},
	{name: "pre-releases are compared", spec: with(`{"binaryVersion": "1.36.0-rc.10", "emulationVersion": "1.36.0-rc.9"}`), want: accepted},
	{name: "builds are not compared", spec: with(`{"binaryVersion": "1.36.0+1", "emulationVersion": "1.36.0+2"}`), want: accepted},

	{name: "no strategy", spec: with(`{"strategy": null}`), want: rejected, says: "spec.strategy: Required value"},
	{name: "empty strategy", spec: with(`{"strategy": ""}`), want: rejected, says: "spec.strategy: Required value"},
	{name: "a strategy of Kubernetes that it does not have", spec: with(`{"strategy": "NewestBinaryVersion"}`), want: rejected,
		says: `"OldestEmulationVersion"`},
	{name: "a strategy by the wrong case", spec: with(`{"strategy": "oldestEmulationVersion"}`), want: rejected, says: `"OldestEmulationVersion"`},
	{name: "two slashes", spec: with(`{"strategy": "example.com/a/b"}`), want: rejected, says: "with an optional DNS subdomain prefix"},
	{name: "nothing before the slash", spec: with(`{"strategy": "/a"}`), want: rejected, says: "prefix part must be non-empty"},
	{name: "nothing after the slash", spec: with(`{"strategy": "example.com/"}`), want: rejected, says: "name part must be non-empty"},
	{name: "a prefix that is no domain", spec: with(`{"strategy": "Example/a"}`), want: rejected, says: "prefix part"},
	{name: "a prefix of one label", spec: with(`{"strategy": "example/a"}`), want: accepted},
	{name: "a name with odd characters", spec: with(`{"strategy": "example.com/a b"}`), want: rejected, says: "name part"},
	{name: "a name of 63", spec: with(`{"strategy": "example.com/` + strings.Repeat("a", 63) + `"}`), want: accepted},
	{name: "a name of 64", spec: with(`{"strategy": "example.com/` + strings.Repeat("a", 64) + `"}`), want: rejected, says: "name part must be no more than 63"},
	{name: "a prefix of 253", spec: with(`{"strategy": "` + strings.Repeat("a", 253) + `/a"}`), want: accepted},
	{name: "a prefix of 254", spec: with(`{"strategy": "` + strings.Repeat("a", 254) + `/a"}`), want: rejected, says: "prefix part must be no more than 253"},

	{name: "time without fraction", spec: with(`{"renewTime": "2026-01-02T03:04:05Z"}`), want: rejected},
	{name: "time in milliseconds", spec: with(`{"renewTime": "2026-01-02T03:04:05.000Z"}`), want: rejected},
	{name: "time in nanoseconds", spec: with(`{"renewTime": "2026-01-02T03:04:05.000000000Z"}`), want: rejected},
	{name: "time without zone", spec: with(`{"renewTime": "2026-01-02T03:04:05.000000"}`), want: rejected},
	{name: "time without T", spec: with(`{"renewTime": "2026-01-02 03:04:05.000000Z"}`), want: rejected},
	{name: "time with small letters", spec: with(`{"renewTime": "2026-01-02t03:04:05.000000z"}`), want: rejected},
	{name: "time with a comma", spec: with(`{"pingTime": "2026-01-02T03:04:05,000006Z"}`), want: accepted},
	{name: "zone of a day", spec: with(`{"pingTime": "2026-01-02T03:04:05.000006+24:60"}`), want: accepted},
	{name: "zone of more than a day", spec: with(`{"pingTime": "2026-01-02T03:04:05.000006+25:00"}`), want: rejected},
	{name: "31st of February", spec: with(`{"renewTime": "2026-02-31T03:04:05.000000Z"}`), want: rejected},
	{name: "leap day", spec: with(`{"renewTime": "2028-02-29T03:04:05.000000Z"}`), want: accepted},
	{name: "24 o'clock", spec: with(`{"renewTime": "2026-01-02T24:00:00.000000Z"}`), want: rejected},
	{name: "leap second", spec: with(`{"renewTime": "2026-01-02T23:59:60.000000Z"}`), want: rejected},
	{name: "empty time", spec: with(`{"renewTime": ""}`), want: rejected},
	{name: "time that is a number", spec: with(`{"renewTime": 1767323045}`), want: rejected},
	{name: "an hour of one digit", spec: with(`{"renewTime": "2026-01-02T3:04:05.000000Z"}`), want: accepted,
		ours: &difference{rejected, "RFC 3339 has two; only Go's parser takes one, and nobody writes one"}},
	{name: "null times", spec: `{"leaseName": "l", "binaryVersion": "1.37.0", "strategy": "example.com/a", "pingTime": null, "renewTime": null}`, want: accepted},
	{name: "null emulationVersion, other strategy", spec: `{"leaseName": "l", "binaryVersion": "1.37.0", "strategy": "example.com/a", "emulationVersion": null}`,
		want: accepted},

	{name: "no spec", spec: `null`, want: rejected, says: "Required value"},
	{name: "empty spec", spec: `{}`, want: rejected, says: "spec.leaseName: Required value"},
	{name: "spec that is a list", spec: `[]`, want: rejected},
	{name: "unknown field", spec: with(`{"wish": "to lead"}`), want: accepted},

	{name: "update of a version", spec: anOldest, patch: `{"binaryVersion": "1.38.0", "emulationVersion": "1.37.0"}`, want: accepted},
	{name: "update of the strategy", spec: anOldest, patch: `{"strategy": "example.com/a", "emulationVersion": null}`, want: accepted},
	{name: "update of times", spec: anOldest, patch: `{"renewTime": "2026-01-02T03:04:05.000006Z"}`, want: accepted},
	{name: "update of leaseName", spec: anOldest, patch: `{"leaseName": "other"}`, want: rejected, says: "field is immutable"},
	{name: "removal of leaseName", spec: anOldest, patch: `{"leaseName": null}`, want: rejected, says: "spec.leaseName: Required value"},
	{name: "update to an emulation of what is newer", spec: anOldest, patch: `{"emulationVersion": "1.38.0"}`, want: rejected,
		says: "must be greater than or equal to `emulationVersion`"},
	{name: "update to a binary older than the emulation", spec: anOldest, patch: `{"binaryVersion": "1.35.0"}`, want: rejected,
		says: "must be greater than or equal to `emulationVersion`"},
	{name: "removal of emulationVersion", spec: anOldest, patch: `{"emulationVersion": null}`, want: rejected, says: "spec.emulationVersion: Required value"},
	{name: "update to the strategy that needs emulationVersion", spec: aSticky, patch: `{"strategy": "OldestEmulationVersion"}`, want: rejected,
		says: "spec.emulationVersion: Required value"},
	{name: "update to a time without fraction", spec: anOldest, patch: `{"pingTime": "2026-01-02T03:04:05Z"}`, want: rejected},

	{name: "name as of a Pod", object: "web-6d4cf56db6-x2x7f", spec: anOldest, want: accepted},
	{name: "name with dots", object: "node-1.example.com", spec: anOldest, want: accepted},
	{name: "name of 253", object: strings.Repeat("a", 253), spec: anOldest, want: accepted},
	{name: "name of 254", object: strings.Repeat("a", 254), spec: anOldest, want: rejected, says: "must be no more than 253"},
	{name: "name with a slash", object: "a/b", spec: anOldest, want: rejected},
	{name: "name with a colon", object: "a:b", spec: anOldest, want: rejected, says: "metadata.name"},
	{name: "name as client-go's electors have it", object: "node-1_0d1f4b0e-6c1c-4a4e-9d5d-0e8f7a0a3c11", spec: anOldest, want: accepted,
		ours: &difference{rejected, "the name of a custom resource is a DNS-1123 subdomain"}},
	{name: "name with a capital letter", object: "Node-1", spec: anOldest, want: accepted,
		ours: &difference{rejected, "the name of a custom resource is a DNS-1123 subdomain"}},
	{name: "name with a hyphen at the end", object: "node-1-", spec: anOldest, want: accepted,
		ours: &difference{rejected, "the name of a custom resource is a DNS-1123 subdomain"}},
	{name: "name with two dots in a row", object: "node..1", spec: anOldest, want: accepted,
		ours: &difference{rejected, "the name of a custom resource is a DNS-1123 subdomain"}},
}

// A LeaseCandidate that one kind accepts the other does too, on the newest and on the oldest API server we are for.
func TestLeaseCandidateKinds(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "1.34"} {
		t.Run("emulated version "+version, func(t *testing.T) {
			t.Parallel()
			cluster := framework.New(t, framework.Options{EmulationVersion: version, NoAudit: true})
			if err := cluster.ApplyKustomization(t.Context(), "config/crd"); err != nil {
				t.Fatal(err)
			}
			client, err := dynamic.NewForConfig(cluster.Nodes[0].Config())
			if err != nil {
				t.Fatal(err)
			}
			ns := framework.NewNamespace(t, cluster)
			for kind, resource := range candidateKinds {
				for i, row := range candidateRows {
					t.Run(kind+"/"+row.name, func(t *testing.T) {
						row.judge(t, client.Resource(resource).Namespace(ns), resource.GroupVersion(), fmt.Sprintf("c%d", i), kind)
					})
				}
				t.Run(kind+"/requests", func(t *testing.T) {
					requests(t, client.Resource(resource).Namespace(ns), resource.GroupVersion(), kind)
				})
			}
			t.Run("columns", func(t *testing.T) { showsColumns(t, cluster, ns) })
		})
	}
}

// judge sends the row and compares the verdict.
func (row *candidateRow) judge(t *testing.T, api dynamic.ResourceInterface, version schema.GroupVersion, name, kind string) {
	want := row.want
	if kind == ourKind && row.ours != nil {
		want = row.ours.want
	}
	if row.object != "" {
		name = row.object
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(fmt.Sprintf(`{"apiVersion": %q, "kind": "LeaseCandidate", "metadata": {"name": %q}, "spec": %s}`,
		version.String(), name, row.spec)), &object.Object); err != nil {
		t.Fatal(err)
	}
	created, err := api.Create(t.Context(), object, metav1.CreateOptions{})
	if err == nil {
		spec, _, _ := unstructured.NestedMap(created.Object, "spec")
		for field, value := range spec {
			if value == nil {
				t.Errorf("%s is kept as null, which readers may not expect", field)
			}
		}
	}
	if row.patch != "" {
		if err != nil {
			t.Fatalf("what is to be patched is not accepted: %v", err)
		}
		_, err = api.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec": `+row.patch+`}`), metav1.PatchOptions{})
	}
	switch {
	case want == accepted && err != nil:
		t.Errorf("rejected: %v", err)
	case want == rejected && err == nil:
		t.Error("accepted")
	case want == rejected && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsNotFound(err):
		t.Errorf("rejected for another reason: %v", err)
	case want == rejected && row.ours == nil && !strings.Contains(err.Error(), row.says):
		t.Errorf("rejected without the words %q: %v", row.says, err)
	}
}

// requests sends what native kinds answer and custom resources do not, and the other way round.
func requests(t *testing.T, api dynamic.ResourceInterface, version schema.GroupVersion, kind string) {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(fmt.Sprintf(`{"apiVersion": %q, "kind": "LeaseCandidate", "metadata": {"name": "put"}, "spec": %s}`,
		version.String(), anOldest)), &object.Object); err != nil {
		t.Fatal(err)
	}
	for _, request := range []struct {
		name   string
		native bool
		send   func() error
	}{
		{"a PUT of what is not there creates it", true, func() error {
			_, err := api.Update(t.Context(), object, metav1.UpdateOptions{})
			return err
		}},
		{"a strategic merge patch", true, func() error {
			_, err := api.Patch(t.Context(), "node-1.example.com", types.StrategicMergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), metav1.PatchOptions{})
			return err
		}},
		{"a list by the Lease's name", false, func() error {
			list, err := api.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.leaseName=No Lease"})
			if err == nil && len(list.Items) != 1 {
				return fmt.Errorf("%d candidates, want the one that names the lease", len(list.Items))
			}
			return err
		}},
	} {
		if err := request.send(); (err == nil) != (request.native == (kind == nativeKind)) {
			t.Errorf("%s: %v", request.name, err)
		}
	}
}

// showsColumns reads a candidate as kubectl get does.
func showsColumns(t *testing.T, cluster *framework.Cluster, ns string) {
	client := cluster.Clientset().CoordinationV1().RESTClient()
	text, err := client.Get().AbsPath("/apis/"+v1alpha1.SchemeGroupVersion.String()).Namespace(ns).Resource("leasecandidates").
		Name("node-1.example.com").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, column := range table.ColumnDefinitions {
		columns = append(columns, column.Name)
	}
	const want = "Name Lease Binary-Version Emulation-Version Strategy Renewed Age"
	if got := strings.Join(columns, " "); got != want {
		t.Errorf("columns %s, want %s", got, want)
	}
	if len(table.Rows) != 1 {
		t.Fatalf("%d rows: %s", len(table.Rows), text)
	}
	cells := table.Rows[0].Cells
	const wantCells = "node-1.example.com l 1.37.0 1.36.0 OldestEmulationVersion"
	if got := strings.Trim(fmt.Sprint(cells[:5]), "[]"); got != wantCells {
		t.Errorf("cells %v, want %s", cells, wantCells)
	}
}
