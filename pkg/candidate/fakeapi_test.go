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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// fakeAPI is an API server in memory: LIST, WATCH, PATCH, POST and DELETE of Leases and LeaseCandidates, with
// resourceVersions, conflicts and preconditions as kube-apiserver has them, reached as a client's transport. It answers
// after latency, in virtual time.
type fakeAPI struct {
	mu      sync.Mutex
	version uint64
	// objects by resource and name; history has every change.
	objects map[string]map[string]object
	history []change
	watches []*fakeWatch
	// served are the group versions that serve LeaseCandidates. Those of one group show the same objects.
	served map[string]bool
	// drops says that Leases have no strategy and preferredHolder.
	drops    bool
	latency  time.Duration
	requests []request
	// fault, if set, says what goes wrong with a request.
	fault func(request) fault
	// changed, if set, is told each change, by the server's goroutine.
	changed func(change)
}

type object = map[string]any

// ourResource is what LeaseCandidates of our group are called here. Those of the server's own are candidateResource.
const ourResource = candidateResource + "." + v1alpha1.Group

// resourceOf is what the resource of a request's path is called here.
func resourceOf(path []string) string {
	switch {
	case len(path) < 6:
		return ""
	case path[1] == v1alpha1.Group:
		return path[5] + "." + path[1]
	}
	return path[5]
}

type change struct {
	kind, resource, name string
	obj                  object
	version              uint64
}

// request is what was asked for: GET without name and watch is a LIST.
type request struct {
	at                   time.Time
	verb, resource, name string
	agent, body          string
}

func (r request) String() string { return r.verb + " " + r.resource }

// fault is what happens to a request. The zero value is that nothing does.
type fault struct {
	// refused is what a closed port gives. hangs is a connection on which nothing ever arrives, before or after the
	// request was carried out. stalls delays it. status is the answer, instead of carrying it out or, with
	// done, after that.
	refused, hangs, lost, done bool
	stalls                     time.Duration
	status                     int
	retryAfter                 string
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{
		version: 1000, latency: time.Millisecond,
		objects: map[string]map[string]object{"leases": {}, candidateResource: {}, ourResource: {}},
		served:  map[string]bool{"coordination.k8s.io/v1beta1": true},
	}
}

func (a *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		_ = r.Body.Close()
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	asked := request{at: time.Now(), verb: r.Method, agent: r.UserAgent(), body: string(body)}
	asked.resource = resourceOf(path)
	if len(path) >= 7 {
		asked.name = path[6]
	}
	if r.Method == http.MethodGet && asked.resource != "" && asked.name == "" {
		asked.verb = "LIST"
		if r.URL.Query().Get("watch") != "" {
			asked.verb = "WATCH"
		}
	}
	a.mu.Lock()
	a.requests = append(a.requests, asked)
	var f fault
	if a.fault != nil {
		f = a.fault(asked)
	}
	a.mu.Unlock()
	switch {
	case f.refused:
		return nil, errors.New("connection refused")
	case f.hangs:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case f.status != 0:
		if f.done {
			_ = a.serve(r, path, body)
		}
		response := answer(r, f.status, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": f.status,
			"reason": map[int]string{403: "Forbidden", 429: "TooManyRequests", 404: "NotFound"}[f.status], "message": "as the test wants it"})
		if f.retryAfter != "" {
			response.Header.Set("Retry-After", f.retryAfter)
		}
		return response, nil
	}
	timer := time.NewTimer(a.latency + f.stalls)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	response := a.serve(r, path, body)
	if f.lost {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return response, nil
}

func answer(r *http.Request, status int, body any) *http.Response {
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: status, Status: strconv.Itoa(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(encoded)), ContentLength: int64(len(encoded)),
	}
}

func refusal(r *http.Request, code int, reason string) *http.Response {
	return answer(r, code, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason})
}

func (a *fakeAPI) serve(r *http.Request, path []string, body []byte) *http.Response {
	a.mu.Lock()
	defer a.mu.Unlock()
	const leases = "coordination.k8s.io/v1"
	if len(path) == 2 {
		return a.group(r, path[1], leases)
	}
	gv := path[1] + "/" + path[2]
	if len(path) == 3 {
		resources := []any{}
		if a.served[gv] {
			resources = append(resources, object{"name": candidateResource, "namespaced": true, "kind": "LeaseCandidate", "verbs": []string{"list"}})
		}
		if gv == leases {
			resources = append(resources, object{"name": "leases", "namespaced": true, "kind": "Lease", "verbs": []string{"list"}})
		}
		if len(resources) == 0 {
			return unknown(r)
		}
		return answer(r, 200, object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv, "resources": resources})
	}
	resource, name := resourceOf(path), ""
	if len(path) > 6 {
		name = path[6]
	}
	if resource != "leases" && !a.served[gv] || resource == "leases" && gv != leases {
		return unknown(r)
	}
	kind := map[string]string{"leases": "Lease", candidateResource: "LeaseCandidate", ourResource: "LeaseCandidate"}[resource]
	there := a.objects[resource][name]
	switch r.Method {
	case http.MethodGet:
		name = strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
		if r.URL.Query().Get("watch") != "" {
			return a.watch(r, resource, name)
		}
		items := []any{}
		if there := a.objects[resource][name]; there != nil {
			items = append(items, there)
		}
		return answer(r, 200, object{"kind": kind + "List", "apiVersion": gv,
			"metadata": object{"resourceVersion": strconv.FormatUint(a.version, 10)}, "items": items})
	case http.MethodPost:
		var obj object
		if err := json.Unmarshal(body, &obj); err != nil {
			return refusal(r, 400, "BadRequest")
		}
		name, _ = meta(obj)["name"].(string)
		if resource == ourResource && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return refusal(r, 422, "Invalid")
		}
		if a.objects[resource][name] != nil {
			return refusal(r, 409, "AlreadyExists")
		}
		meta(obj)["uid"] = fmt.Sprintf("uid-%d", a.version+1)
		obj["kind"], obj["apiVersion"] = kind, gv
		return answer(r, 201, a.put("ADDED", resource, name, obj))
	case http.MethodPatch:
		if there == nil {
			return refusal(r, 404, "NotFound")
		}
		var patch object
		if err := json.Unmarshal(body, &patch); err != nil || r.Header.Get("Content-Type") != "application/merge-patch+json" {
			return refusal(r, 415, "UnsupportedMediaType")
		}
		if v, ok := meta(patch)["resourceVersion"]; ok && v != meta(there)["resourceVersion"] {
			return refusal(r, 409, "Conflict")
		}
		next, _ := mergePatch(there, patch).(object)
		if l, ok := spec(next)["leaseName"]; ok && l != spec(there)["leaseName"] {
			return refusal(r, 422, "Invalid")
		}
		return answer(r, 200, a.put("MODIFIED", resource, name, next))
	case http.MethodDelete:
		if there == nil {
			return refusal(r, 404, "NotFound")
		}
		var options struct {
			Preconditions struct{ UID string }
		}
		if err := json.Unmarshal(body, &options); err != nil {
			return refusal(r, 400, "BadRequest")
		}
		if uid := options.Preconditions.UID; uid != "" && uid != meta(there)["uid"] {
			return refusal(r, 409, "Conflict")
		}
		a.remove(resource, name)
		return answer(r, 200, object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
	}
	return refusal(r, 405, "MethodNotAllowed")
}

// group answers which versions of a group there are, in no order that means anything.
func (a *fakeAPI) group(r *http.Request, group, always string) *http.Response {
	versions := []any{}
	for gv := range a.served {
		if g, v, _ := strings.Cut(gv, "/"); g == group && a.served[gv] && gv != always {
			versions = append(versions, object{"groupVersion": gv, "version": v})
		}
	}
	if g, v, _ := strings.Cut(always, "/"); g == group {
		versions = append(versions, object{"groupVersion": always, "version": v})
	}
	if len(versions) == 0 {
		return unknown(r)
	}
	return answer(r, 200, object{"kind": "APIGroup", "apiVersion": "v1", "name": group, "versions": versions})
}

// unknown is what kube-apiserver says to a path that it does not have. It is no Status.
func unknown(r *http.Request) *http.Response {
	response := answer(r, 404, nil)
	const text = "404 page not found\n"
	response.Header.Set("Content-Type", "text/plain; charset=utf-8")
	response.Body, response.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	return response
}

// serveOnly has the server serve those group versions of LeaseCandidates, and no others. Watches end, as they do when a
// kube-apiserver is restarted with other flags.
func (a *fakeAPI) serveOnly(versions ...string) {
	a.mu.Lock()
	a.served = map[string]bool{}
	for _, gv := range versions {
		a.served[gv] = true
	}
	a.mu.Unlock()
	a.endWatches()
}

func meta(o object) object { return child(o, "metadata") }
func spec(o object) object { return child(o, "spec") }

func child(o object, name string) object {
	c, ok := o[name].(object)
	if !ok {
		c = object{}
		o[name] = c
	}
	return c
}

func mergePatch(target, patch any) any {
	p, ok := patch.(object)
	if !ok {
		return patch
	}
	merged := object{}
	if t, ok := target.(object); ok {
		merged = maps.Clone(t)
	}
	for key, v := range p {
		if v == nil {
			delete(merged, key)
		} else {
			merged[key] = mergePatch(merged[key], v)
		}
	}
	return merged
}

func clone(o object) object {
	encoded, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	var c object
	if err := json.Unmarshal(encoded, &c); err != nil {
		panic(err)
	}
	return c
}

// put stores an object, which is not to be changed any more, unless it is what is stored already.
func (a *fakeAPI) put(kind, resource, name string, obj object) object {
	obj = clone(obj)
	if a.drops && resource == "leases" {
		delete(spec(obj), "strategy")
		delete(spec(obj), "preferredHolder")
	}
	if there := a.objects[resource][name]; there != nil {
		meta(obj)["resourceVersion"] = meta(there)["resourceVersion"]
		if string(encode(obj)) == string(encode(there)) {
			return there
		}
	}
	a.version++
	meta(obj)["resourceVersion"] = strconv.FormatUint(a.version, 10)
	a.objects[resource][name] = obj
	a.notify(change{kind, resource, name, obj, a.version})
	return obj
}

func encode(o object) []byte {
	encoded, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return encoded
}

func (a *fakeAPI) remove(resource, name string) {
	obj := clone(a.objects[resource][name])
	a.version++
	meta(obj)["resourceVersion"] = strconv.FormatUint(a.version, 10)
	delete(a.objects[resource], name)
	a.notify(change{"DELETED", resource, name, obj, a.version})
}

func (a *fakeAPI) notify(c change) {
	a.history = append(a.history, c)
	for _, w := range a.watches {
		w.wake()
	}
	if a.changed != nil {
		a.changed(c)
	}
}

// fakeWatch writes the changes of one object to a response.
type fakeWatch struct {
	resource, name string
	next           int
	woken          chan struct{}
	// dead is a connection on which nothing arrives any more.
	dead bool
	end  chan struct{}
}

func (w *fakeWatch) wake() {
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

func (a *fakeAPI) watch(r *http.Request, resource, name string) *http.Response {
	from, err := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64)
	if err != nil {
		return refusal(r, 400, "BadRequest")
	}
	limit, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		return refusal(r, 400, "BadRequest")
	}
	w := &fakeWatch{resource: resource, name: name, woken: make(chan struct{}, 1), end: make(chan struct{})}
	w.next = slices.IndexFunc(a.history, func(c change) bool { return c.version > from })
	if w.next < 0 {
		w.next = len(a.history)
	}
	w.wake()
	a.watches = append(a.watches, w)
	reader, writer := io.Pipe()
	go a.feed(r.Context(), w, writer, time.Duration(limit)*time.Second)
	response := answer(r, 200, nil)
	response.Body, response.ContentLength = &watchBody{reader}, -1
	return response
}

// watchBody is closed by the client.
type watchBody struct{ *io.PipeReader }

func (a *fakeAPI) feed(ctx context.Context, w *fakeWatch, out *io.PipeWriter, limit time.Duration) {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watches = slices.DeleteFunc(a.watches, func(o *fakeWatch) bool { return o == w })
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case <-w.woken:
		case <-w.end:
			_ = out.Close()
			return
		case <-timer.C:
			if a.isDead(w) {
				<-ctx.Done()
			}
			_ = out.Close()
			return
		case <-ctx.Done():
			_ = out.CloseWithError(ctx.Err())
			return
		}
		for {
			a.mu.Lock()
			if w.dead || w.next == len(a.history) {
				a.mu.Unlock()
				break
			}
			c := a.history[w.next]
			w.next++
			a.mu.Unlock()
			if c.resource != w.resource || c.name != w.name {
				continue
			}
			if _, err := out.Write(append(encode(object{"type": c.kind, "object": c.obj}), '\n')); err != nil {
				return
			}
		}
	}
}

func (a *fakeAPI) isDead(w *fakeWatch) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return w.dead
}

// What tests do to it.

// breakWatches makes every present watch a dead connection; endWatches ends them, as a restart of the server does.
func (a *fakeAPI) breakWatches() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.watches {
		w.dead = true
	}
}

func (a *fakeAPI) endWatches() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.watches {
		close(w.end)
	}
	a.watches = nil
}

func (a *fakeAPI) setFault(f func(request) fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fault = f
}

// get returns a copy of an object, nil if there is none.
func (a *fakeAPI) get(resource, name string) object {
	a.mu.Lock()
	defer a.mu.Unlock()
	if obj := a.objects[resource][name]; obj != nil {
		return clone(obj)
	}
	return nil
}

// edit changes an object, or makes it, as somebody else's compare-and-swap that succeeds.
func (a *fakeAPI) edit(resource, name string, f func(object)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.editLocked(resource, name, f)
}

func (a *fakeAPI) editLocked(resource, name string, f func(object)) {
	kind, obj := "MODIFIED", a.objects[resource][name]
	if obj == nil {
		kind = "ADDED"
		obj = object{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{"name": name, "uid": fmt.Sprintf("uid-%d", a.version+1)}}
		switch resource {
		case candidateResource:
			obj["apiVersion"], obj["kind"] = "coordination.k8s.io/v1beta1", "LeaseCandidate"
		case ourResource:
			obj["apiVersion"], obj["kind"] = v1alpha1.SchemeGroupVersion.String(), "LeaseCandidate"
		}
	}
	obj = clone(obj)
	f(obj)
	a.put(kind, resource, name, obj)
}

func (a *fakeAPI) del(resource, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.objects[resource][name] != nil {
		a.remove(resource, name)
	}
}

// asked returns the requests since a moment.
func (a *fakeAPI) asked(since time.Time) []request {
	a.mu.Lock()
	defer a.mu.Unlock()
	var some []request
	for _, r := range a.requests {
		if !r.at.Before(since) {
			some = append(some, r)
		}
	}
	return some
}

// count counts requests by verb and resource.
func count(requests []request) map[string]int {
	n := map[string]int{}
	for _, r := range requests {
		n[r.String()]++
	}
	return n
}

func (a *fakeAPI) openWatches() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.watches)
}
