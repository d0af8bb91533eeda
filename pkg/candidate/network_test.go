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

package candidate

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
)

// tunnel passes connections on to a server, until it swallows what they carry: the node at the other end is gone, and
// nobody says so.
type tunnel struct {
	net.Listener
	to string

	mu     sync.Mutex
	open   []*swallower
	opened int
	wait   sync.WaitGroup
}

type swallower struct {
	net.Conn
	mu   sync.Mutex
	dead bool
}

func (s *swallower) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return len(b), nil
	}
	return s.Conn.Write(b)
}

func newTunnel(t *testing.T, to string) *tunnel {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tun := &tunnel{Listener: l, to: to}
	tun.wait.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			up, down := &swallower{Conn: out}, &swallower{Conn: in}
			tun.mu.Lock()
			tun.open = append(tun.open, up, down)
			tun.opened++
			tun.mu.Unlock()
			for _, way := range [][2]net.Conn{{up, down}, {down, up}} {
				tun.wait.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					// The end of a dead connection does not arrive either; both are closed with the tunnel.
					s := way[0].(*swallower)
					s.mu.Lock()
					defer s.mu.Unlock()
					if !s.dead {
						_ = s.Conn.Close()
					}
				})
			}
		}
	})
	return tun
}

// swallow makes every present connection a dead one.
func (t *tunnel) swallow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.open {
		s.mu.Lock()
		s.dead = true
		s.mu.Unlock()
	}
}

func (t *tunnel) close() {
	_ = t.Close()
	t.mu.Lock()
	for _, s := range t.open {
		_ = s.Conn.Close()
	}
	t.mu.Unlock()
	t.wait.Wait()
}

// serveHTTP lets a fake API server be reached by real connections.
func serveHTTP(api *fakeAPI) (http.Handler, *sync.Map) {
	var protocols sync.Map
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocols.Store(r.Proto, true)
		response, err := api.RoundTrip(r)
		if err != nil {
			return
		}
		defer func() { _ = response.Body.Close() }()
		for key, values := range response.Header {
			w.Header()[key] = values
		}
		w.WriteHeader(response.StatusCode)
		rc := http.NewResponseController(w)
		_ = rc.Flush()
		buffer := make([]byte, 64<<10)
		for {
			n, err := response.Body.Read(buffer)
			if n > 0 {
				if _, err := w.Write(buffer[:n]); err != nil {
					return
				}
				_ = rc.Flush()
			}
			if err != nil {
				return
			}
		}
	}), &protocols
}

// eventually waits until cond says yes, by the real clock.
func eventually(t *testing.T, what string, within time.Duration, cond func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !cond() {
		if time.Since(began) > within {
			t.Fatalf("%s: not within %s", what, within)
		}
		<-ticker.C
	}
	return time.Since(began)
}

// Real connections, TLS and a server that would speak HTTP/2: a dead connection takes one request with it and no more, and
// neither the leader nor the standby is harmed for longer than a request may take.
func TestDeadConnections(t *testing.T) {
	before := runtime.NumGoroutine()
	api := newFakeAPI()
	handler, protocols := serveHTTP(api)
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	tun := newTunnel(t, server.Listener.Addr().String())
	restConfig := &rest.Config{
		Host:            "https://" + tun.Addr().String(),
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}

	start := func(identity string) (*Candidate, context.CancelFunc, chan error) {
		c, err := New(Config{
			RestConfig: restConfig, Namespace: "ns", LeaseName: "l", Identity: identity, BinaryVersion: "1.0",
			LeaseDuration: 5 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: time.Second,
			Lead:       func(ctx context.Context) error { <-ctx.Done(); return nil },
			OnDeadline: func(why string) { t.Error(why) },
			Logger:     funcr.New(func(_, args string) { t.Log(args) }, funcr.Options{Verbosity: 1}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		result, ended := make(chan error, 1), make(chan struct{})
		go func() {
			defer close(ended)
			result <- c.Run(ctx)
		}()
		t.Cleanup(func() {
			cancel()
			<-ended
		})
		return c, cancel, result
	}
	a, stopA, endA := start("a")
	eventually(t, "a registers", 5*time.Second, func() bool { return api.get(candidateResource, "a") != nil })
	api.appoint("a")
	eventually(t, "a leads", 5*time.Second, a.IsLeader)
	b, stopB, endB := start("b")
	eventually(t, "b registers", 5*time.Second, func() bool { return api.get(candidateResource, "b") != nil })

	term, _ := a.Term()
	tun.swallow()
	writes := len(renewals(api))
	took := eventually(t, "a renews over a new connection", 10*time.Second, func() bool { return len(renewals(api)) > writes })
	if took > a.config.RetryPeriod+2*a.api.timeout {
		t.Errorf("renewed only after %s: more than one request was lost", took)
	}
	t.Logf("renewed after %s", took.Round(time.Millisecond))
	// Its watch was dead, too: what others write is seen within a retry period, by the conflict.
	api.prefer("b")
	took = eventually(t, "b leads", 10*time.Second, b.IsLeader)
	t.Logf("handed over after %s", took.Round(time.Millisecond))
	if term.Valid() || a.IsLeader() {
		t.Error("the former leader's term is valid")
	}
	// The watches are whole again.
	eventually(t, "b's watch is whole", 10*time.Second, func() bool {
		api.prefer("a")
		return a.IsLeader()
	})

	for _, end := range []struct {
		stop   context.CancelFunc
		result chan error
	}{{stopA, endA}, {stopB, endB}} {
		end.stop()
		if err := <-end.result; err != nil {
			t.Error(err)
		}
	}
	protocols.Range(func(protocol, _ any) bool {
		if protocol != "HTTP/1.1" {
			t.Errorf("requests by %v share one connection", protocol)
		}
		return true
	})
	server.CloseClientConnections()
	tun.close()
	server.Close()
	eventually(t, "all goroutines have ended", 5*time.Second, func() bool { return runtime.NumGoroutine() <= before })
	if n := runtime.NumGoroutine(); n > before {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		t.Errorf("%d goroutines, %d before:\n%s", n, before, strings.TrimSpace(string(stacks)))
	}
}
