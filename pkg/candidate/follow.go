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
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// watchFor is how long a watch is kept at least; a random part of as much again is added, so that candidates which started
// together do not go on together.
const watchFor = 5 * time.Minute

// follower keeps up with one object.
type follower struct {
	api  *api
	of   dynamic.ResourceInterface
	name string
	// see is told each state of the object, nil if there is none, and its version.
	see func(obj *unstructured.Unstructured, version uint64)
	// complain is told what went wrong, and nil when it no longer does.
	complain func(error)
	// again, if set, is asked after each reading but the first whether to go on; run returns its error.
	again func() error
	// renew, when sent to, has it begin anew.
	renew <-chan struct{}
	// retry is the longest time between attempts.
	retry time.Duration
}

// run follows the object until ctx ends, or the API server refuses to show such objects at all.
func (f *follower) run(ctx context.Context) error {
	pause := f.retry / 4
	for first := true; ; {
		version, err := f.list(ctx)
		if err == nil {
			f.complain(nil)
			pause = f.retry / 4
			if !first && f.again != nil {
				if err := f.again(); err != nil {
					return err
				}
			}
			first = false
			err = f.watch(ctx, version)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			return err
		case err != nil:
			f.complain(err)
			if err := sleep(ctx, jitter(pause)); err != nil {
				return err
			}
			pause = min(2*pause, f.retry)
		}
	}
}

func (f *follower) list(ctx context.Context) (uint64, error) {
	obj, version, err := f.api.read(ctx, f.of, f.name)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", f.name, err)
	}
	f.see(obj, version)
	return version, nil
}

// errShort says that a watch ended before it was of use, so that the next is not begun at once.
var errShort = errors.New("the watch ended at once")

// watch watches the object from that version on. It returns nil when it is time to begin anew.
func (f *follower) watch(ctx context.Context, version uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	life := watchFor + rand.N(watchFor)
	options := onlyThe(f.name)
	options.ResourceVersion = fmt.Sprint(version)
	options.AllowWatchBookmarks = true
	seconds := int64(life / time.Second)
	options.TimeoutSeconds = &seconds

	// The answer's head comes at once or not at all.
	established := time.AfterFunc(f.api.timeout, cancel)
	w, err := f.of.Watch(ctx, options)
	if !established.Stop() && err == nil {
		w.Stop()
		err = context.DeadlineExceeded
	}
	if f.api.noted(err) != nil {
		return fmt.Errorf("watching %s: %w", f.name, err)
	}
	defer w.Stop()
	// Should the server not end it, which it does after that many seconds.
	expired := time.NewTimer(life + f.api.timeout)
	defer expired.Stop()
	for began, events := time.Now(), 0; ; events++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-expired.C:
			return nil
		case <-f.renew:
			return nil
		case e, ok := <-w.ResultChan():
			if !ok {
				if events == 0 && time.Since(began) < time.Second {
					return fmt.Errorf("watching %s: %w", f.name, errShort)
				}
				return nil
			}
			if again, err := f.take(e); again || err != nil {
				return err
			}
		}
	}
}

// take takes in an event; again says that the watch is to begin anew, at once.
func (f *follower) take(e watch.Event) (again bool, err error) {
	if e.Type == watch.Error {
		if err := apierrors.FromObject(e.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return false, fmt.Errorf("watching %s: %w", f.name, err)
		}
		return true, nil
	}
	obj, ok := e.Object.(*unstructured.Unstructured)
	if !ok {
		return false, fmt.Errorf("watching %s: unexpected %T", f.name, e.Object)
	}
	if e.Type == watch.Bookmark || obj.GetName() != f.name {
		return false, nil
	}
	version, err := parseObjectVersion(obj.GetResourceVersion())
	if err != nil {
		return false, fmt.Errorf("watching %s: %w", f.name, err)
	}
	if e.Type == watch.Deleted {
		obj = nil
	}
	f.see(obj, version)
	return false, nil
}

func jitter(d time.Duration) time.Duration { return d + rand.N(d/2+1) }

// sleep waits, and returns an error if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// freshness tells whether a watch shows what is known from elsewhere: answers to reads and writes.
type freshness struct {
	shown, known uint64
	// since is when the watch last showed something, or began to owe it.
	since time.Duration
}

func (f *freshness) learn(version uint64, now time.Duration) {
	if f.known <= f.shown {
		f.since = now
	}
	f.known = max(f.known, version)
}

func (f *freshness) show(version uint64, now time.Duration) {
	if version > f.shown {
		f.shown, f.since = version, now
	}
}

func (f *freshness) stale(now, grace time.Duration) bool {
	return f.known > f.shown && now-f.since > grace
}
