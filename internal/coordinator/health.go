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
	"fmt"
	"net/http"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// healthServer serves /healthz and /readyz as controller-runtime does, with one thing more: /readyz?verbose, and /readyz
// when it fails, say what was found out about the API server, and what keeps the coordinator from its work. Both name
// rights and API versions, and nothing that is anybody's secret.
func (c *coordinator) healthServer(address string) manager.Runnable {
	mux := http.NewServeMux()
	handle := func(path string, handler http.Handler) {
		mux.Handle(path, http.StripPrefix(path, handler))
		mux.Handle(path+"/", http.StripPrefix(path, handler))
	}
	handle("/healthz", &healthz.Handler{Checks: map[string]healthz.Checker{"ping": healthz.Ping}})
	ready := &healthz.Handler{Checks: map[string]healthz.Checker{"coordinating": c.ready}}
	handle("/readyz", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ready.ServeHTTP(w, r)
		problem := c.ready(r)
		if strings.Trim(r.URL.Path, "/") == "" && (problem != nil || r.URL.Query().Has("verbose")) {
			_, _ = fmt.Fprint(w, "\n"+strings.Join(c.conditions(problem), "\n")+"\n")
		}
	}))
	timeout := time.Second
	return &manager.Server{
		Name: "health",
		Server: &http.Server{
			Addr: address, Handler: mux,
			MaxHeaderBytes: 1 << 16, IdleTimeout: 90 * time.Second, ReadHeaderTimeout: 10 * time.Second,
		},
		ShutdownTimeout: &timeout,
	}
}

func (c *coordinator) conditions(problem error) []string {
	var lines []string
	if found := c.flavour.Load(); found != nil {
		lines = found.conditions()
	}
	if problem != nil {
		lines = append(lines, "coordinating: "+problem.Error())
	}
	return lines
}
