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

package v1alpha1

import (
	"encoding/json"
	"testing"
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestRegistered(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"LeaseCandidate", "LeaseCandidateList", "ListOptions", "WatchEvent"} {
		if !scheme.Recognizes(SchemeGroupVersion.WithKind(kind)) {
			t.Errorf("%s is not registered", kind)
		}
	}
	if got := Resource("leasecandidates").String(); got != "leasecandidates.lease-coordinator.dev" {
		t.Errorf("the resource is %s", got)
	}
}

// What is written by one kind can be read by the other.
func TestSameFormAsNative(t *testing.T) {
	stamp := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	native := coordinationv1beta1.LeaseCandidateSpec{
		LeaseName: "l", PingTime: &stamp, RenewTime: &stamp, BinaryVersion: "1.2.0", EmulationVersion: "1.1.0", Strategy: Sticky,
	}
	for _, spec := range []coordinationv1beta1.LeaseCandidateSpec{native, {LeaseName: "l", BinaryVersion: "1.2.0", Strategy: Sticky}} {
		want, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		var ours LeaseCandidateSpec
		if err := json.Unmarshal(want, &ours); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(ours); err != nil || string(got) != string(want) {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
		// The fields are the same, down to their types.
		if converted := coordinationv1beta1.LeaseCandidateSpec(ours); converted.LeaseName != spec.LeaseName {
			t.Errorf("converted to %+v", converted)
		}
	}
}
