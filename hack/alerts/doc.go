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

// Package alerts tests the alerts of config/prometheus with Prometheus' own rule engine: that they parse, name metrics and
// labels that exist, fire when they should, and do not when they should not. It holds no code of its own.
//
// It is a Go module of its own, so that the coordinator inherits none of Prometheus' requirements. It also pins the version
// of the Prometheus operator whose CustomResourceDefinitions the end-to-end tests of the manifests apply.
package alerts

import (
	// Nothing of it is used but the files that come with the module.
	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
)
