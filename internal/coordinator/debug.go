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

package coordinator

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/lease-coordinator/coordinator/internal/controller"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/explain"
)

// observations explains leases by what the coordinator has observed itself.
type observations struct {
	observer *controller.Observer
	settings func() *election.Settings
}

// Leases implements explain.Source.
func (o observations) Leases() []types.NamespacedName { return o.observer.Leases() }

// Explain implements explain.Source.
func (o observations) Explain(key types.NamespacedName) (explain.Facts, bool) {
	x, known := o.observer.Explain(key, o.settings())
	return explain.Facts{
		Key: x.Key, Lease: x.Lease, Claim: x.Claim, AwaitingTakeUp: x.AwaitingTakeUp, Now: x.Now, Explanation: x.Explanation,
	}, known
}

// serveExplanations adds explanations to the server of metrics, which asks the API server who may read them.
func serveExplanations(mgr manager.Manager, source explain.Source) error {
	handler := explain.Handler(source)
	if err := errors.Join(
		mgr.AddMetricsServerExtraHandler(explain.HandlerPath, handler),
		mgr.AddMetricsServerExtraHandler(explain.HandlerPath+"/", handler),
	); err != nil {
		return fmt.Errorf("serving explanations: %w", err)
	}
	return nil
}
