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

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lease-coordinator/coordinator/internal/leaseapi"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

// kindsSyncTimeout is how long the candidates of several kinds are waited for, so that they are seen together. A kind that
// takes longer, as one that is forbidden does for ever, joins later and holds nobody up.
const kindsSyncTimeout = 5 * time.Second

// kinds are the kinds of LeaseCandidate that are followed, at most one of each group. Read-only.
type kinds []leaseapi.CandidateKind

// of returns the kind of that group; nil if none is followed.
func (k kinds) of(customResource bool) leaseapi.CandidateKind {
	i := slices.IndexFunc(k, func(kind leaseapi.CandidateKind) bool { return kind.CustomResource() == customResource })
	if i < 0 {
		return nil
	}
	return k[i]
}

// kindOf returns the kind that the candidate is of; nil if that is not followed any more.
func (r *Reconciler) kindOf(c *strategy.Candidate) leaseapi.CandidateKind {
	return r.Kinds().of(c.CustomResource)
}

// Kinds returns the kinds of LeaseCandidate that are followed.
func (r *Reconciler) Kinds() kinds {
	if k := r.kinds.Load(); k != nil {
		return *k
	}
	return nil
}

// Follow watches the candidates of the given kinds, at most one of each group, instead of those that were followed
// before. Candidates of a kind that is no longer followed are taken to be gone, unless another version of it is. It returns
// when all have been seen, or have taken too long. Call it from one goroutine, after SetupWithManager.
func (r *Reconciler) Follow(ctx context.Context, informers cache.Informers, follow []leaseapi.CandidateKind) error {
	var watches []*candidateWatch
	for _, kind := range follow {
		w := r.watchOf(kind)
		if w == nil {
			var err error
			if w, err = r.watchCandidates(ctx, informers, kind); err != nil {
				return err
			}
		}
		watches = append(watches, w)
	}
	former := r.watches
	r.watches = watches
	followed := kinds(follow)
	// Those that are dropped are known until the others are shown, and what is written to them meanwhile fails, as it should: a
	// ping that is left out would be decided on again and again.
	meanwhile := slices.Clone(followed)
	for _, w := range former {
		if followed.of(w.kind.CustomResource()) == nil {
			meanwhile = append(meanwhile, w.kind)
		}
	}
	r.kinds.Store(&meanwhile)

	waiting, cancel := context.WithTimeout(ctx, kindsSyncTimeout)
	defer cancel()
	var synced []*candidateWatch
	for _, w := range watches {
		// One that was late once is not waited for again.
		if w.registration.HasSynced() || w.stopAwaiting == nil && toolscache.WaitForCacheSync(waiting.Done(), w.registration.HasSynced) {
			synced = append(synced, w)
		} else if w.stopAwaiting == nil {
			var awaiting context.Context
			awaiting, w.stopAwaiting = context.WithCancel(ctx)
			go func() {
				if toolscache.WaitForCacheSync(awaiting.Done(), w.registration.HasSynced) {
					r.show(w)
				}
			}()
		}
	}
	r.show(synced...)
	r.kinds.Store(&followed)
	for _, w := range former {
		if slices.Contains(watches, w) {
			continue
		}
		w.end()
		if err := informers.RemoveInformer(ctx, w.kind.New()); err != nil {
			return fmt.Errorf("ending the watch of %s: %w", w.kind, err)
		}
		if followed.of(w.kind.CustomResource()) == nil {
			r.LookAt(r.Observer.DropCandidates(w.kind.CustomResource()))
		}
	}
	return nil
}

// Late returns the kinds that are followed and whose candidates nobody has seen yet, because the API server does not list them:
// elections go on without them. Call it where Follow is called.
func (r *Reconciler) Late() []leaseapi.CandidateKind {
	var late []leaseapi.CandidateKind
	for _, w := range r.watches {
		if !w.registration.HasSynced() {
			late = append(late, w.kind)
		}
	}
	return late
}

func (r *Reconciler) watchOf(kind leaseapi.CandidateKind) *candidateWatch {
	for _, w := range r.watches {
		if w.kind.GroupVersionKind() == kind.GroupVersionKind() {
			return w
		}
	}
	return nil
}

// candidateWatch follows the candidates of one kind. They are shown to the observer only once all that there are have been
// listed: to decide on half of them would appoint somebody for a moment.
type candidateWatch struct {
	reconciler   *Reconciler
	kind         leaseapi.CandidateKind
	registration toolscache.ResourceEventHandlerRegistration
	// stopAwaiting is set once the list has taken too long and is awaited apart. Only Follow uses it.
	stopAwaiting context.CancelFunc

	mu sync.Mutex
	// shown is set once the candidates were shown to the observer, and ended when they are no more.
	shown, ended bool
	// listed are those seen before that.
	listed map[client.ObjectKey]*strategy.Candidate
}

func (r *Reconciler) watchCandidates(ctx context.Context, informers cache.Informers, kind leaseapi.CandidateKind) (*candidateWatch, error) {
	informer, err := informers.GetInformer(ctx, kind.New(), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", kind, err)
	}
	w := &candidateWatch{reconciler: r, kind: kind, listed: map[client.ObjectKey]*strategy.Candidate{}}
	if w.registration, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    w.see,
		UpdateFunc: func(_, object any) { w.see(object) },
		DeleteFunc: w.seeDeleted,
	}); err != nil {
		return nil, fmt.Errorf("watching %s: %w", kind, err)
	}
	return w, nil
}

// show shows the observer all candidates of those kinds at once, and from now on each when it changes. Between one kind and
// the next a decision would be on half of them.
func (r *Reconciler) show(watches ...*candidateWatch) {
	all := map[bool][]*strategy.Candidate{}
	for _, w := range watches {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.shown || w.ended {
			continue
		}
		all[w.kind.CustomResource()] = slices.Collect(maps.Values(w.listed))
		w.shown, w.listed = true, nil
	}
	r.LookAt(r.Observer.SeeCandidates(all))
}

// end has the observer see nothing more of this watch.
func (w *candidateWatch) end() {
	if w.stopAwaiting != nil {
		w.stopAwaiting()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

func (w *candidateWatch) see(object any) {
	obj, ok := object.(client.Object)
	if !ok {
		return
	}
	c := w.kind.Candidate(obj)
	if c == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended:
	case !w.shown:
		w.listed[client.ObjectKeyFromObject(obj)] = c
	default:
		w.reconciler.LookAt(w.reconciler.Observer.SeeCandidate(c, false))
	}
}

func (w *candidateWatch) seeDeleted(object any) {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	obj, ok := object.(client.Object)
	if !ok {
		return
	}
	c := w.kind.Candidate(obj)
	if c == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended:
	case !w.shown:
		delete(w.listed, client.ObjectKeyFromObject(obj))
	default:
		w.reconciler.LookAt(w.reconciler.Observer.SeeCandidateDeleted(c))
	}
}
