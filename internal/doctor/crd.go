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

package doctor

import (
	_ "embed"
	"fmt"

	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// crdFile is a copy of the one in config/crd/bases, made by make generate: what is embedded must be below this folder.
//
//go:embed crd.yaml
var crdFile []byte

// shippedCRD returns the CustomResourceDefinition that comes with this release.
func shippedCRD() map[string]any {
	var crd map[string]any
	encoded, err := yaml.YAMLToJSON(crdFile)
	if err == nil {
		// As the API server's answers are decoded: whole numbers are int64.
		err = json.Unmarshal(encoded, &crd)
	}
	if err != nil {
		panic(fmt.Sprintf("reading the embedded CustomResourceDefinition: %v", err))
	}
	return crd
}
