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

package manifests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

const config = "../../../config"

func TestRenderReplacesTheImage(t *testing.T) {
	for reference, want := range map[string]string{
		"":                                   "lease-coordinator:latest",
		"registry.example.com:5000/lc:v1":    "registry.example.com:5000/lc:v1",
		"registry.example.com/lc@sha256:abc": "registry.example.com/lc@sha256:abc",
	} {
		stream, err := Render(config, "default", Options{Image: reference})
		if err != nil {
			t.Fatal(err)
		}
		objects, err := Decode(stream)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, object := range objects {
			if deployment, ok := object.(*appsv1.Deployment); ok {
				got = append(got, deployment.Spec.Template.Spec.Containers[0].Image)
			}
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("image %q renders as %q, want %q once", reference, got, want)
		}
	}
}

func TestRenderRefusesAnImageWithoutATag(t *testing.T) {
	for _, reference := range []string{"lc", "registry.example.com:5000/lc", "lc:", "lc@abc", "@sha256:abc"} {
		if _, err := Render(config, "default", Options{Image: reference}); err == nil {
			t.Errorf("%q is accepted", reference)
		}
	}
}

func TestRenderAddsComponents(t *testing.T) {
	stream, err := Render(config, "default", Options{Components: []string{"prometheus"}})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(stream), "\nkind: ServiceMonitor\n") {
		t.Error("the component's ServiceMonitor is missing")
	}
}

func TestRenderReportsABrokenKustomization(t *testing.T) {
	broken := t.TempDir()
	if err := os.MkdirAll(filepath.Join(broken, "default"), 0o755); err != nil {
		t.Fatal(err)
	}
	kustomization := []byte("resources:\n- absent.yaml\n")
	if err := os.WriteFile(filepath.Join(broken, "default", "kustomization.yaml"), kustomization, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Render(broken, "default", Options{}); err == nil || !strings.Contains(err.Error(), "absent.yaml") {
		t.Errorf("Render returned %v", err)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	for name, test := range map[string]struct {
		stream string
		fails  bool
	}{
		"good":            {"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n", false},
		"misspelt field":  {"apiVersion: v1\nkind: ServiceAccount\nmetadata: {nmae: a}\n", true},
		"field twice":     {"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a, name: b}\n", true},
		"no kind":         {"apiVersion: v1\n", true},
		"foreign kind":    {"apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\n", false},
		"foreign, broken": {"apiVersion: example.com/v1\nkind: Thing\nkind: Thing\n", true},
	} {
		if _, err := Decode([]byte(test.stream)); (err != nil) != test.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}
