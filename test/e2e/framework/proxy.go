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

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Proxy is a way to a node's kube-apiserver that can be made a bad one: by the connection, or, if it was started with a
// Sabotage, by the request.
type Proxy struct {
	node     *Node
	listener net.Listener
	to       string
	// server is there with a Sabotage; the connections then end in it.
	server *http.Server
	tasks  sync.WaitGroup

	mu     sync.Mutex
	links  map[*link]bool
	opened int
	// passing is closed while bytes may pass, and done once the proxy is.
	passing, done chan struct{}
	cut           bool
}

// link is one connection through a proxy.
type link struct {
	in, out net.Conn
	lost    bool
}

// StartProxy returns a proxy in front of the node's kube-apiserver. Whoever calls it must call Close. Sabotage may be nil.
func StartProxy(n *Node, sabotage Sabotage) (*Proxy, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return nil, fmt.Errorf("starting a proxy: %w", err)
	}
	p := &Proxy{
		node: n, listener: listener, to: strings.TrimPrefix(n.APIServer.URL(), "https://"), links: map[*link]bool{},
		passing: make(chan struct{}), done: make(chan struct{}),
	}
	close(p.passing)
	if sabotage != nil {
		if err := p.serve(sabotage); err != nil {
			_ = listener.Close()
			return nil, fmt.Errorf("starting a proxy: %w", err)
		}
	}
	p.tasks.Go(p.accept)
	return p, nil
}

// Node is the node as it is seen through the proxy: what is started on it goes this way.
func (p *Proxy) Node() *Node {
	return &Node{Name: p.node.Name, cluster: p.node.cluster, APIServer: &APIServer{
		Process: p.node.APIServer.Process, node: p.node, port: p.listener.Addr().(*net.TCPAddr).Port,
	}}
}

// Hold has no byte pass any more, on present connections and new ones, and closes none. What was sent meanwhile arrives
// after Restore.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passing = make(chan struct{})
}

// Cut resets all connections, and new ones as soon as they are made.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for l := range p.links {
		reset(l.in)
		_ = l.out.Close()
	}
}

// Lose swallows from now on what the present connections carry, their ends included: the node at the other end is gone,
// and nobody says so. New connections are as they should be.
func (p *Proxy) Lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.lost = true
	}
}

// Restore undoes Hold and Cut.
func (p *Proxy) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	select {
	case <-p.passing:
	default:
		close(p.passing)
	}
}

// Opened is how many connections there have been.
func (p *Proxy) Opened() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.opened
}

// Open is how many connections there are. One that is lost no longer counts.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := 0
	for l := range p.links {
		if !l.lost {
			open++
		}
	}
	return open
}

// Close ends the proxy and all of its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	close(p.done)
	_ = p.listener.Close()
	for l := range p.links {
		_, _ = l.in.Close(), l.out.Close()
	}
	p.mu.Unlock()
	if p.server != nil {
		_ = p.server.Close()
	}
	p.tasks.Wait()
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.opened++
		cut := p.cut
		p.mu.Unlock()
		if cut {
			reset(in)
			continue
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			reset(in)
			continue
		}
		l := &link{in: in, out: out}
		p.mu.Lock()
		select {
		case <-p.done:
			_, _ = in.Close(), out.Close()
		default:
			p.links[l] = true
		}
		p.mu.Unlock()
		p.tasks.Go(func() {
			defer p.forget(l)
			var ways sync.WaitGroup
			ways.Go(func() { p.pump(l, in, out) })
			ways.Go(func() { p.pump(l, out, in) })
			ways.Wait()
		})
	}
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	_, _ = l.in.Close(), l.out.Close()
}

// pump passes on what from says, and that it has ended.
func (p *Proxy) pump(l *link, from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !p.mayPass(l) {
			if err != nil {
				return
			}
			continue
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			// HTTP has no use for half a connection.
			_, _ = from.Close(), to.Close()
			return
		}
	}
}

// mayPass waits until bytes may pass, and says no if these never may.
func (p *Proxy) mayPass(l *link) bool {
	for {
		p.mu.Lock()
		passing, lost := p.passing, l.lost
		p.mu.Unlock()
		if lost {
			return false
		}
		select {
		case <-passing:
			return true
		default:
		}
		select {
		case <-passing:
		case <-p.done:
			return false
		}
	}
}

// reset closes a connection such that the other end gets an RST.
func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// Call is a request to a kube-apiserver in the words of its authorization, such as "watch" and "leases". The discovery of what
// a version has is "discover" and, say, "coordination.k8s.io/v1beta1". Both are "" for what else is about no resource in a
// namespace.
type Call struct{ Verb, Resource string }

// Fault is what becomes of a request.
type Fault struct {
	// Code is the status it is answered with, in place of the kube-apiserver's; 0 is no fault of this kind.
	Code int
	// Stall is how long the request is held before anything else becomes of it, unless the client gives up before.
	Stall time.Duration
	// Done says that the kube-apiserver gets the request all the same, at once, and that only its answer is lost.
	Done bool
}

// Sabotage chooses what becomes of a request. It may be called at any time and from any goroutine.
type Sabotage func(Call) Fault

// serve puts a server between the proxy's connections and the kube-apiserver. It has the control plane's certificate.
func (p *Proxy) serve(sabotage Sabotage) error {
	cl := p.node.cluster
	certificate, err := tls.LoadX509KeyPair(cl.pki.certFile, cl.pki.keyFile)
	if err != nil {
		return err
	}
	target, err := url.Parse(p.node.APIServer.URL())
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cl.pki.caPEM)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	// That a client has gone away is nothing to tell anybody.
	silent := log.New(io.Discard, "", 0)
	pass := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport,
		// Watches pass on what comes as it comes.
		FlushInterval: -1,
		ErrorLog:      silent,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return err
	}
	p.to = listener.Addr().String()
	p.server = &http.Server{ErrorLog: silent, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault := sabotage(callOf(r))
		// The end of a connection is noticed only when the body has been read.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if fault.Done && !carryOut(transport, target, r, body) {
			panic(http.ErrAbortHandler)
		}
		if fault.Stall > 0 {
			timer := time.NewTimer(fault.Stall)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-p.done:
				return
			case <-r.Context().Done():
				return
			}
		}
		switch {
		case fault.Code != 0:
			refuse(w, fault.Code)
		case fault.Done:
			// Twice would be another fault.
			panic(http.ErrAbortHandler)
		default:
			pass.ServeHTTP(w, r)
		}
	})}
	p.tasks.Go(func() {
		_ = p.server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}))
		transport.CloseIdleConnections()
	})
	return nil
}

// carryOut sends a request on and throws the answer away.
func carryOut(transport http.RoundTripper, target *url.URL, r *http.Request, body []byte) bool {
	out := r.Clone(r.Context())
	out.Body = io.NopCloser(bytes.NewReader(body))
	out.URL.Scheme, out.URL.Host, out.RequestURI = target.Scheme, target.Host, ""
	response, err := transport.RoundTrip(out)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil
}

func callOf(r *http.Request) Call {
	// /apis/<group>/<version>/namespaces/<namespace>/<resource>[/<name>]
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) == 3 && parts[0] == "apis" {
		return Call{Verb: "discover", Resource: parts[1] + "/" + parts[2]}
	}
	if len(parts) < 6 || parts[0] != "apis" || parts[3] != "namespaces" {
		return Call{}
	}
	call := Call{Resource: parts[5]}
	switch named := len(parts) > 6; {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		call.Verb = "watch"
	case r.Method == http.MethodGet && !named:
		call.Verb = "list"
	case r.Method == http.MethodPost:
		call.Verb = "create"
	case r.Method == http.MethodPut:
		call.Verb = "update"
	default:
		call.Verb = strings.ToLower(r.Method)
	}
	return call
}

// refuse answers as a kube-apiserver does.
func refuse(w http.ResponseWriter, code int) {
	reason := map[int]metav1.StatusReason{
		http.StatusNotFound:            metav1.StatusReasonNotFound,
		http.StatusConflict:            metav1.StatusReasonConflict,
		http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
		http.StatusInternalServerError: metav1.StatusReasonInternalError,
		http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
	}[code]
	w.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests {
		// Whoever believes this loses the lease.
		w.Header().Set("Retry-After", "30")
	}
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: "sabotaged",
	})
}
