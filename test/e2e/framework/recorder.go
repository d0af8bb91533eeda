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
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// RecorderOptions say what to record.
type RecorderOptions struct {
	// Namespaces whose Leases and LeaseCandidates are watched. Required, as
	// shared clusters have other tests' leases. metav1.NamespaceAll means all.
	Namespaces []string
	// Name of the timeline's file among the artifacts. Default "timeline" and
	// the namespaces.
	Name string
}

// Recorder makes one timeline out of four sources: a watch of Leases and
// LeaseCandidates shows every write; the kube-apiservers' audit log adds who
// made it and which were refused; what the processes print shows who really
// leads; and the framework itself knows when they start, freeze and end.
type Recorder struct {
	cluster *Cluster
	opts    RecorderOptions
	start   time.Time
	stop    func()

	mu sync.Mutex
	// events are in the order in which they were learned of.
	events []Event
	// objects are the last known states, by Event.Object.
	objects map[string]metav1.Object
	// unattributed maps object@resourceVersion to events whose audit record
	// has not come yet, and unseen the other way round.
	unattributed map[string]int
	unseen       map[string]auditedWrite
	// attributed has those for which both have come: a further audit record
	// with the same resourceVersion is of a write that changed nothing.
	attributed map[string]bool
	changed    chan struct{} // closed and replaced at every change
	cached     *Timeline
}

// Record starts recording and returns once it knows the present state. It goes
// on until ctx ends or Stop is called; kube-apiservers may come and go.
func (c *Cluster) Record(ctx context.Context, opts RecorderOptions) (*Recorder, error) {
	if len(opts.Namespaces) == 0 {
		return nil, errors.New("starting a recorder: no namespaces given")
	}
	if opts.Name == "" {
		opts.Name = strings.TrimSuffix("timeline-"+strings.Join(opts.Namespaces, "-"), "-")
	}
	r := &Recorder{
		cluster: c, opts: opts, start: now(),
		objects:      map[string]metav1.Object{},
		unattributed: map[string]int{},
		unseen:       map[string]auditedWrite{},
		attributed:   map[string]bool{},
		changed:      make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	stopEvents := c.bus.subscribe(func(e Event) { r.add(e) })
	stopAudit := c.audit.subscribe(r.audited)
	r.stop = sync.OnceFunc(func() {
		cancel()
		stopEvents()
		stopAudit()
		background.Wait()
	})
	for _, ns := range opts.Namespaces {
		for _, f := range r.followers(ns) {
			if err := f.begin(ctx); err != nil && !apierrors.IsNotFound(err) {
				r.stop()
				return nil, fmt.Errorf("starting a recorder: %w", err)
			}
			background.Go(func() { f.follow(ctx) })
		}
	}
	c.mu.Lock()
	c.recorders = append(c.recorders, r)
	c.mu.Unlock()
	return r, nil
}

// Stop ends the recording. The timeline remains.
func (r *Recorder) Stop() { r.stop() }

// Mark adds a remark to the timeline, such as the step of a test.
func (r *Recorder) Mark(format string, args ...any) {
	r.add(Event{Time: now(), Kind: Mark, Detail: fmt.Sprintf(format, args...)})
}

// Timeline returns what has been recorded so far.
func (r *Recorder) Timeline() Timeline {
	facts := r.cluster.audit.facts()
	end := now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cached == nil {
		r.cached = &Timeline{Start: r.start, Events: finish(r.events)}
	}
	t := *r.cached
	t.End, t.identities = end, facts
	return t
}

// finish classifies events, which are in the order in which they were learned
// of, and puts them into that of their times.
func finish(learned []Event) []Event {
	events := slices.Clone(learned)
	classify(events)
	// The writes to one object are known to have happened in this order,
	// however little their stamps differ.
	latest := map[string]time.Time{}
	for i := range events {
		e := &events[i]
		if e.ResourceVersion == "" {
			continue
		}
		if e.Time.Before(latest[e.Object]) {
			e.Time = latest[e.Object]
		}
		latest[e.Object] = e.Time
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return events
}

// WaitFor waits until the timeline is as it should be. If that does not happen
// the error tells how it ended.
func (r *Recorder) WaitFor(ctx context.Context, what string, cond func(Timeline) bool) error {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		t := r.Timeline()
		if cond(t) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			events := t.Events
			if n := len(events); n > 25 {
				events = events[n-25:]
			}
			var tail strings.Builder
			_ = t.Print(&tail, events)
			return fmt.Errorf("waiting for %s: %w; lately:\n%s", what, context.Cause(ctx), &tail)
		}
		// Many changes come at once; looking at each of them would be waste.
		pause := time.NewTimer(pollInterval)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

// WaitForLeader waits until a process that satisfies the condition leads, by
// its own account. A nil condition is satisfied by any.
func (r *Recorder) WaitForLeader(ctx context.Context, lease string, cond func(Term) bool) (Term, error) {
	var leader Term
	err := r.WaitFor(ctx, "a leader of "+lease, func(t Timeline) bool {
		for _, term := range t.Leaders(lease) {
			if term.Ongoing && (cond == nil || cond(term)) {
				leader = term
				return true
			}
		}
		return false
	})
	return leader, err
}

// Follow calls fn for each event in order of time until ctx ends. Events are
// passed on a little late, when everything about them is known.
func (r *Recorder) Follow(ctx context.Context, fn func(Timeline, Event)) {
	const delay = 100 * time.Millisecond
	ticker := time.NewTicker(delay / 2)
	defer ticker.Stop()
	var last time.Time
	for {
		t := r.Timeline()
		limit := t.End.Add(-delay)
		for _, e := range t.Events {
			if e.Time.After(last) && !e.Time.After(limit) {
				fn(t, e)
			}
		}
		last = limit
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (r *Recorder) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(e)
}

func (r *Recorder) addLocked(e Event) {
	r.events = append(r.events, e)
	r.touchLocked()
}

func (r *Recorder) touchLocked() {
	r.cached = nil
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Recorder) recordsNamespace(ns string) bool {
	return slices.Contains(r.opts.Namespaces, metav1.NamespaceAll) || slices.Contains(r.opts.Namespaces, ns)
}

// audited takes an audit record, which comes before or after the watch event
// of the same write.
func (r *Recorder) audited(w auditedWrite) {
	if !r.recordsNamespace(strings.Split(w.object, "/")[1]) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !w.ok() {
		e := w.event(r.objects[w.object])
		e.Kind, e.Detail = WriteRefused, w.refusal()
		r.addLocked(e)
		return
	}
	key := w.object + "@" + w.version
	i, ok := r.unattributed[key]
	switch {
	case ok:
		delete(r.unattributed, key)
		r.attributed[key] = w.version != ""
		attribute(&r.events[i], w)
		r.touchLocked()
	case r.attributed[key]:
		e := w.event(r.objects[w.object])
		e.Kind, e.Detail = WriteWithoutEffect, w.verb
		r.addLocked(e)
	default:
		r.unseen[key] = w
	}
}

// event is what an audit record says of a write that no watch shows.
func (w auditedWrite) event(object metav1.Object) Event {
	parts := strings.SplitN(w.object, "/", 3)
	e := Event{Time: w.at, Subject: parts[2], Object: w.object, Writer: w.writer, WriterKind: w.writerKind}
	if parts[0] == leaseKind {
		e.Lease = parts[1] + "/" + parts[2]
	} else if lc, ok := object.(*coordinationv1beta1.LeaseCandidate); ok {
		e.Lease = lc.Namespace + "/" + lc.Spec.LeaseName
	}
	return e
}

func attribute(e *Event, w auditedWrite) {
	e.Writer, e.WriterKind, e.Blind = w.writer, w.writerKind, w.blind
	// The write was done before its answer was logged and before it was seen.
	if w.at.Before(e.Time) {
		e.Time = w.at
	}
}

// observe takes the state of an object after a write, or with gone the last
// state of one that was deleted.
func (r *Recorder) observe(kind string, object metav1.Object, gone, initial bool) {
	at := now()
	key := objectKey(kind, object.GetNamespace(), object.GetName())
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.objects[key]
	if before != nil && before.GetResourceVersion() == object.GetResourceVersion() && !gone {
		return // seen before the watch was broken
	}
	e := Event{Time: at, Object: key, ResourceVersion: object.GetResourceVersion()}
	switch object := object.(type) {
	case *coordinationv1.Lease:
		e.Lease = object.Namespace + "/" + object.Name
		e.LeaseBefore, _ = before.(*coordinationv1.Lease)
		if gone {
			if e.LeaseBefore == nil {
				e.LeaseBefore = object
			}
		} else {
			e.LeaseAfter = object
			e.Subject = holder(object)
		}
		if initial {
			e.Kind = LeaseSeen
		}
	case *coordinationv1beta1.LeaseCandidate:
		e.Lease = object.Namespace + "/" + object.Spec.LeaseName
		e.Subject = object.Name
		e.CandidateBefore, _ = before.(*coordinationv1beta1.LeaseCandidate)
		if gone {
			if e.CandidateBefore == nil {
				e.CandidateBefore = object
			}
		} else {
			e.CandidateAfter = object
		}
		if initial {
			e.Kind = CandidateSeen
		}
	}
	version := object.GetResourceVersion()
	if gone {
		delete(r.objects, key)
		version = "" // a deletion's audit record has none
	} else {
		r.objects[key] = object
	}
	if !initial {
		if w, ok := r.unseen[key+"@"+version]; ok {
			delete(r.unseen, key+"@"+version)
			r.attributed[key+"@"+version] = version != ""
			attribute(&e, w)
		} else {
			r.unattributed[key+"@"+version] = len(r.events)
		}
	}
	r.addLocked(e)
}

// follower keeps up with one resource in one namespace through whichever
// kube-apiserver is there.
type follower struct {
	r       *Recorder
	kind    string // as in Event.Object
	ns      string
	sources []source // by node
	version string
}

// unservedInterval is how often it is looked whether a resource has come to be
// served.
const unservedInterval = time.Second

// source is where a node's kube-apiserver has the objects that are followed.
type source struct {
	list  func(context.Context) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func (r *Recorder) followers(ns string) []*follower {
	leases := &follower{r: r, kind: leaseKind, ns: ns}
	native := &follower{r: r, kind: candidateKind, ns: ns}
	ours := &follower{r: r, kind: ourCandidateKind, ns: ns}
	for _, n := range r.cluster.Nodes {
		cfg := rest.CopyConfig(n.Config())
		cfg.UserAgent = "e2e-recorder"
		cs := kubernetes.NewForConfigOrDie(cfg)
		leases.sources = append(leases.sources, source{
			list: func(ctx context.Context) (runtime.Object, error) {
				return cs.CoordinationV1().Leases(ns).List(ctx, metav1.ListOptions{})
			},
			watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return cs.CoordinationV1().Leases(ns).Watch(ctx, o)
			},
		})
		native.sources = append(native.sources, source{
			list: func(ctx context.Context) (runtime.Object, error) {
				return cs.CoordinationV1beta1().LeaseCandidates(ns).List(ctx, metav1.ListOptions{})
			},
			watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return cs.CoordinationV1beta1().LeaseCandidates(ns).Watch(ctx, o)
			},
		})
		ours.sources = append(ours.sources, ourCandidates(cfg, ns))
	}
	return []*follower{leases, native, ours}
}

// ourCandidates is where a kube-apiserver has the LeaseCandidates of our group.
// They are shown as native ones, whose spec is the same.
func ourCandidates(cfg *rest.Config, ns string) source {
	client := dynamic.NewForConfigOrDie(cfg).Resource(v1alpha1.SchemeGroupVersion.WithResource("leasecandidates")).Namespace(ns)
	asNative := func(o *unstructured.Unstructured) (*coordinationv1beta1.LeaseCandidate, error) {
		var ours v1alpha1.LeaseCandidate
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &ours); err != nil {
			return nil, fmt.Errorf("decoding candidate %s: %w", o.GetName(), err)
		}
		return &coordinationv1beta1.LeaseCandidate{ObjectMeta: ours.ObjectMeta, Spec: coordinationv1beta1.LeaseCandidateSpec(ours.Spec)}, nil
	}
	return source{
		list: func(ctx context.Context) (runtime.Object, error) {
			list, err := client.List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			native := &coordinationv1beta1.LeaseCandidateList{ListMeta: metav1.ListMeta{ResourceVersion: list.GetResourceVersion()}}
			for i := range list.Items {
				o, err := asNative(&list.Items[i])
				if err != nil {
					return nil, err
				}
				native.Items = append(native.Items, *o)
			}
			return native, nil
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				// What cannot be decoded stays as it is, which is reported.
				if object, ok := e.Object.(*unstructured.Unstructured); ok && e.Type != watch.Error {
					if o, err := asNative(object); err == nil {
						e.Object = o
					}
				}
				return e, true
			}), nil
		},
	}
}

// begin learns the state at the start, from the first node that answers. It
// fails with NotFound if there is no such resource, which follow waits for.
func (f *follower) begin(ctx context.Context) error {
	var errs []error
	for _, from := range f.sources {
		err := f.relist(ctx, from, true)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// relist brings the known state up to date. Of several writes missed in
// between only the sum is seen.
func (f *follower) relist(ctx context.Context, from source, initial bool) error {
	list, err := from.list(ctx)
	if err != nil {
		return fmt.Errorf("listing %ss: %w", f.kind, err)
	}
	present := map[string]bool{}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		object := o.(metav1.Object)
		present[objectKey(f.kind, object.GetNamespace(), object.GetName())] = true
		f.r.observe(f.kind, object, false, initial)
		return nil
	})
	if err != nil {
		return fmt.Errorf("listing %ss: %w", f.kind, err)
	}
	for _, object := range f.r.known(f.kind, f.ns) {
		if !present[objectKey(f.kind, object.GetNamespace(), object.GetName())] {
			f.r.observe(f.kind, object, true, false)
		}
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("listing %ss: %w", f.kind, err)
	}
	f.version = accessor.GetResourceVersion()
	return nil
}

func (r *Recorder) known(kind, ns string) []metav1.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	var objects []metav1.Object
	for key, object := range r.objects {
		if strings.HasPrefix(key, kind+"/") && (ns == metav1.NamespaceAll || object.GetNamespace() == ns) {
			objects = append(objects, object)
		}
	}
	return objects
}

// follow watches until ctx ends. resourceVersions are etcd's, so a watch that
// broke can be continued at any other kube-apiserver without a gap.
func (f *follower) follow(ctx context.Context) {
	for i := 0; ctx.Err() == nil; i++ {
		node, from := f.r.cluster.Nodes[i%len(f.sources)], f.sources[i%len(f.sources)]
		var err error
		if f.version != "" {
			err = f.watchOnce(ctx, node, from)
		}
		if f.version == "" || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			err = f.relist(ctx, from, false)
		}
		if err == nil {
			continue
		}
		wait := pollInterval
		if apierrors.IsNotFound(err) {
			f.version, wait = "", unservedInterval
		}
		pause := time.NewTimer(wait)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

func (f *follower) watchOnce(ctx context.Context, node *Node, from source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A frozen kube-apiserver keeps its connections open and says nothing.
	defer f.r.cluster.bus.onFreeze(node.APIServer.Name(), cancel)()
	w, err := from.watch(ctx, metav1.ListOptions{ResourceVersion: f.version, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		object, ok := event.Object.(metav1.Object)
		if !ok {
			return fmt.Errorf("watching %ss: unexpected %T", f.kind, event.Object)
		}
		f.version = object.GetResourceVersion()
		if event.Type != watch.Bookmark {
			f.r.observe(f.kind, object, event.Type == watch.Deleted, false)
		}
	}
	return nil
}

// onFreeze calls fn when the named process is frozen from now on, until the
// returned function is called.
func (b *bus) onFreeze(name string, fn func()) (cancel func()) {
	replayed := false
	cancel = b.subscribe(func(e Event) {
		if replayed && e.Kind == ProcessFrozen && e.Subject == name {
			fn()
		}
	})
	b.mu.Lock()
	replayed = true
	b.mu.Unlock()
	return cancel
}

// save writes the timeline to a file.
func (r *Recorder) save(path string) error {
	if err := os.WriteFile(path, []byte(r.Timeline().String()), 0o644); err != nil {
		return fmt.Errorf("saving the timeline: %w", err)
	}
	return nil
}
