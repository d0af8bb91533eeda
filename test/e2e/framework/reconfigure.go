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

package framework

import "context"

// Reconfigure ends the kube-apiserver, changes the cluster's options and starts
// it with them, on the same port and etcd, and waits until it is ready. The
// cluster's other kube-apiservers follow when they are restarted. No recorder
// may be started meanwhile.
func (a *APIServer) Reconfigure(ctx context.Context, change func(*Options)) error {
	if err := a.Stop(ctx); err != nil {
		return err
	}
	a.mu.Lock()
	emulation := a.emulation
	a.mu.Unlock()
	change(&a.node.cluster.opts)
	a.configure(emulation)
	return a.StartAgain(ctx)
}
