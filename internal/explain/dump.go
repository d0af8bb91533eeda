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

package explain

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/internal/leaseapi"
)

// list is a v1 List, as kubectl prints it, or that of one kind, as the API server does.
type list struct {
	metav1.TypeMeta `json:",inline"`
	Items           []json.RawMessage `json:"items"`
}

// Read reads a dump: what "kubectl get leases,leasecandidates -o yaml" or "-o json" printed, one or several of them, or
// single objects. Objects of other kinds are passed over.
func Read(r io.Reader) (*Cluster, error) {
	content, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading the dump: %w", err)
	}
	c := NewCluster()
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for number := 1; ; number++ {
		var document json.RawMessage
		switch err := documents.Decode(&document); {
		case errors.Is(err, io.EOF):
			return c, nil
		case err != nil:
			return nil, fmt.Errorf("reading the dump: document %d is neither YAML nor JSON: %w", number, err)
		}
		if trimmed := bytes.TrimSpace(document); len(trimmed) == 0 || string(trimmed) == "null" {
			continue
		}
		if err := c.add(document, metav1.TypeMeta{}, false); err != nil {
			return nil, fmt.Errorf("reading the dump: document %d: %w", number, err)
		}
	}
}

// add adds an object, or the items of a list. Items of a list of one kind need not say their kind: then it is implied.
func (c *Cluster) add(raw []byte, implied metav1.TypeMeta, isItem bool) error {
	var kind metav1.TypeMeta
	if err := json.Unmarshal(raw, &kind); err != nil {
		return fmt.Errorf("is no Kubernetes object: %w", err)
	}
	if kind.Kind == "" && kind.APIVersion == "" {
		kind = implied
	}
	switch {
	case kind.Kind == "":
		return errors.New("is no Kubernetes object: it has no kind")
	case !isItem && strings.HasSuffix(kind.Kind, "List"):
		return c.addList(raw, kind)
	case kind.GroupVersionKind() == coordinationv1.SchemeGroupVersion.WithKind("Lease"):
		lease := &coordinationv1.Lease{}
		if err := decode(raw, kind, lease); err != nil {
			return err
		}
		c.addLease(lease)
		return nil
	}
	candidates := leaseapi.KindOf(kind.GroupVersionKind())
	if candidates == nil {
		return nil
	}
	object := candidates.New()
	if err := decode(raw, kind, object); err != nil {
		return err
	}
	c.addCandidate(candidates.Candidate(object))
	return nil
}

func (c *Cluster) addList(raw []byte, kind metav1.TypeMeta) error {
	var l list
	if err := json.Unmarshal(raw, &l); err != nil {
		return fmt.Errorf("%s: %w", kind.Kind, err)
	}
	implied := metav1.TypeMeta{APIVersion: kind.APIVersion, Kind: strings.TrimSuffix(kind.Kind, "List")}
	for i, item := range l.Items {
		if err := c.add(item, implied, true); err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
	}
	return nil
}

// decode reads an object. Fields that are not known are those of a newer API; whatever the API server would not have
// stored is an error that names the object.
func decode(raw []byte, kind metav1.TypeMeta, into client.Object) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s %s: %w", kind.Kind, nameOf(raw), err)
	}
	if into.GetName() == "" {
		return fmt.Errorf("%s has no metadata.name", kind.Kind)
	}
	if into.GetNamespace() == "" {
		// As kubectl takes it.
		into.SetNamespace(metav1.NamespaceDefault)
	}
	return nil
}

// nameOf returns the name of an object that does not decode, as far as it has one.
func nameOf(raw []byte) string {
	var h struct {
		Metadata struct {
			Namespace any `json:"namespace"`
			Name      any `json:"name"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &h); err != nil || h.Metadata.Name == nil {
		return "without a name"
	}
	if h.Metadata.Namespace == nil {
		return fmt.Sprint(h.Metadata.Name)
	}
	return fmt.Sprintf("%v/%v", h.Metadata.Namespace, h.Metadata.Name)
}
