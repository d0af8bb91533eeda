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

// Package manifests renders the kustomizations under config/, without kubectl or kustomize being installed, and
// reads the result as strictly as an API server does.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	yamldecoder "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Image is the placeholder that config/ names: no image is published yet.
const Image = "lease-coordinator"

// Options change what is rendered, as an overlay would, without a tracked file being edited.
type Options struct {
	// Image replaces the placeholder: registry.example.com/lease-coordinator:v1.2.3, or with a digest.
	Image string
	// Components are folders under config/, such as "prometheus".
	Components []string
}

// overlay is the part of a kustomization that Render writes.
type overlay struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Resources  []string `json:"resources"`
	Components []string `json:"components,omitempty"`
	Images     []image  `json:"images,omitempty"`
}

type image struct {
	Name    string `json:"name"`
	NewName string `json:"newName"`
	NewTag  string `json:"newTag,omitempty"`
	Digest  string `json:"digest,omitempty"`
}

// Render builds the kustomization in the given folder under config/ and returns it as YAML.
func Render(config, folder string, options Options) ([]byte, error) {
	files, err := load(config)
	if err != nil {
		return nil, err
	}
	top := overlay{APIVersion: "kustomize.config.k8s.io/v1beta1", Kind: "Kustomization", Resources: []string{"../config/" + folder}}
	for _, component := range options.Components {
		top.Components = append(top.Components, "../config/"+component)
	}
	if options.Image != "" {
		replacement, err := parseImage(options.Image)
		if err != nil {
			return nil, err
		}
		top.Images = []image{replacement}
	}
	content, err := yaml.Marshal(top)
	if err != nil {
		return nil, err
	}
	if err := files.WriteFile("/overlay/kustomization.yaml", content); err != nil {
		return nil, err
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/overlay")
	if err != nil {
		return nil, fmt.Errorf("rendering %s: %w", filepath.Join(config, folder), err)
	}
	return resources.AsYaml()
}

// load copies config/ into memory, so that an overlay can be laid beside it.
func load(config string) (filesys.FileSystem, error) {
	files := filesys.MakeFsInMemory()
	err := filepath.WalkDir(config, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			// Not a kustomization; and kubeadm's file names are not allowed in this file system.
			if entry.Name() == "samples" {
				return filepath.SkipDir
			}
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(config, path)
		if err != nil {
			return err
		}
		return files.WriteFile("/config/"+filepath.ToSlash(relative), content)
	})
	return files, err
}

// parseImage splits a reference into what kustomize wants to know apart.
func parseImage(reference string) (image, error) {
	if name, digest, found := strings.Cut(reference, "@"); found {
		if name == "" || !strings.Contains(digest, ":") {
			return image{}, fmt.Errorf("image %q: want name@algorithm:digest", reference)
		}
		return image{Name: Image, NewName: name, Digest: digest}, nil
	}
	// A colon before the last slash belongs to the registry's port.
	colon := strings.LastIndex(reference, ":")
	if colon <= strings.LastIndex(reference, "/") || colon == len(reference)-1 {
		return image{}, fmt.Errorf("image %q: want a tag or a digest, so that every node runs the same", reference)
	}
	return image{Name: Image, NewName: reference[:colon], NewTag: reference[colon+1:]}, nil
}

// Decode reads a stream of objects. Kinds that Kubernetes knows are decoded strictly: a field that does not
// exist or comes twice is an error. Others, such as a ServiceMonitor, only have to be objects.
func Decode(stream []byte) ([]runtime.Object, error) {
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	reader := yamldecoder.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		object, _, err := strict.Decode(document, nil, nil)
		if runtime.IsNotRegisteredError(err) {
			var content map[string]any
			if err := yaml.UnmarshalStrict(document, &content); err != nil {
				return nil, err
			}
			object, err = &unstructured.Unstructured{Object: content}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, document)
		}
		objects = append(objects, object)
	}
}
