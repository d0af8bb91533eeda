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
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/candidacy"
)

const candidateResource = "leasecandidates"

// ourKind is the kind of LeaseCandidate that this project brings along, for API servers without any of their own.
var ourKind = v1alpha1.SchemeGroupVersion.WithResource(candidateResource)

// otherForm is the one version of coordination.k8s.io whose LeaseCandidate has another form than the rest.
const otherForm = "v1alpha1"

var (
	// errUnserved says that the API server serves no kind of LeaseCandidate.
	errUnserved = errors.New("the API server serves no LeaseCandidate in any version of " + coordinationv1.GroupName +
		" that this library knows, nor in " + v1alpha1.SchemeGroupVersion.String())
	// errUnfit says that the API server serves none that can have the candidate's name.
	errUnfit = errors.New("the candidate cannot be registered")
	// errElsewhere says that another kind is to be followed from now on.
	errElsewhere = errors.New("the API server serves another kind of LeaseCandidate")
)

// unserved reports whether an API server has no such resource at all, as opposed to not having an object. What answers
// then is no registry, and the answer no Status.
func unserved(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err)
}

// candidateKind asks the API server which kind of LeaseCandidate to use: its own, stable before beta before alpha and of
// those the newest, or else ours; errUnserved if there is none.
func (a *api) candidateKind(ctx context.Context) (schema.GroupVersionResource, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	versions, err := a.versions(ctx, coordinationv1.GroupName)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	for _, v := range versions {
		if v == otherForm {
			continue
		}
		kind := schema.GroupVersionResource{Group: coordinationv1.GroupName, Version: v, Resource: candidateResource}
		if ok, err := a.serves(ctx, kind); ok || err != nil {
			return kind, err
		}
	}
	if ok, err := a.serves(ctx, ourKind); ok || err != nil {
		return ourKind, err
	}
	return schema.GroupVersionResource{}, errUnserved
}

// versions returns the served versions of a group, the most stable and newest first.
func (a *api) versions(ctx context.Context, group string) ([]string, error) {
	var served metav1.APIGroup
	err := a.discovery.RESTClient().Get().AbsPath("/apis/" + group).Do(ctx).Into(&served)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case a.noted(err) != nil:
		return nil, fmt.Errorf("asking for the versions of %s: %w", group, err)
	}
	var versions []string
	for _, v := range served.Versions {
		versions = append(versions, v.Version)
	}
	slices.SortFunc(versions, func(x, y string) int { return version.CompareKubeAwareVersionStrings(y, x) })
	return versions, nil
}

// serves reports whether the API server has that resource.
func (a *api) serves(ctx context.Context, kind schema.GroupVersionResource) (bool, error) {
	served, err := a.discovery.ServerResourcesForGroupVersionWithContext(ctx, kind.GroupVersion().String())
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case a.noted(err) != nil:
		return false, fmt.Errorf("asking for the resources of %s: %w", kind.GroupVersion(), err)
	}
	return slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Name == kind.Resource }), nil
}

// followRegistration keeps up with the candidate's own object, in whatever kind the API server has for it.
func (l *loop) followRegistration() {
	complain := func(err error) { l.trouble.report(l.base, "following the candidate", err) }
	// contradicted is how long to wait before what discovery says is tried again, since requests said otherwise.
	contradicted := l.c.config.RetryPeriod / 4
	for l.base.Err() == nil {
		kind, err := l.c.api.candidateKind(l.base)
		if err == nil {
			err = l.c.registration.fits(kind)
		}
		if err == nil {
			err = l.followKind(kind, complain)
		}
		pause := l.c.config.RetryPeriod
		switch {
		case errors.Is(err, errElsewhere):
			contradicted = l.c.config.RetryPeriod / 4
			continue
		case unserved(err):
			// It no longer is, and another kind may be. What was known of the object stays so until that is known.
			l.log.V(1).Info("The kind of LeaseCandidate is no longer served", "kind", kind.GroupVersion().String())
			pause, contradicted = contradicted, min(2*contradicted, lookAgain)
		case errors.Is(err, errUnserved), errors.Is(err, errUnfit):
			complain(err)
			l.unserved()
			pause = lookAgain
		case apierrors.IsForbidden(err):
			// As good as not served, until somebody grants it.
			complain(err)
			l.unserved()
			pause = min(lookAgain, 5*pause)
		default:
			complain(err)
		}
		if sleep(l.base, jitter(pause)) != nil {
			return
		}
	}
}

// followKind follows the object of that kind for as long as it is the one to use.
func (l *loop) followKind(kind schema.GroupVersionResource, complain func(error)) error {
	f := follower{
		api: l.c.api, of: l.c.api.candidates(kind), name: l.c.config.Identity, renew: l.renewObject, retry: l.c.config.RetryPeriod,
		complain: complain,
		see:      func(obj *unstructured.Unstructured, version uint64) { l.seeRegistration(kind, obj, version) },
	}
	if kind == ourKind {
		// The server's own kind goes before ours. It appears when a kube-apiserver is restarted, which ends watches; and where
		// there are several, watches end from time to time by themselves.
		asked := time.Now()
		f.again = func() error {
			if time.Since(asked) < l.c.config.RetryPeriod {
				return nil
			}
			asked = time.Now()
			if better, err := l.c.api.candidateKind(l.base); err == nil && better != kind {
				return errElsewhere
			}
			return nil
		}
	}
	return f.run(l.base)
}

// turnTo has the candidate's object be of that kind from now on. It runs in the loop's goroutine.
func (l *loop) turnTo(kind schema.GroupVersionResource) {
	former := l.kind
	if l.kind = kind; former == kind || former.Empty() {
		return
	}
	l.log.Info("The candidate turns to another kind of LeaseCandidate", "kind", kind.GroupVersion().String(), "former", former.GroupVersion().String())
	if former.Group == kind.Group {
		// All versions of a group show the same object.
		return
	}
	l.former = append(slices.DeleteFunc(l.former, func(f schema.GroupVersionResource) bool { return f.Group == kind.Group }), former)
	l.object, l.objectVersion, l.objectNews, l.written = nil, 0, freshness{}, ""
}

// leaveFormer removes the objects of kinds that were turned away from, once there is one of the present kind: while both are
// there they are one candidate. It runs in the loop's goroutine.
func (l *loop) leaveFormer() {
	if l.removing || len(l.former) == 0 || l.leaving {
		return
	}
	l.removing = true
	kind := l.former[0]
	l.tasks.Go(func() {
		err := l.removeOf(kind)
		if err != nil {
			l.hold(jitter(5 * l.c.config.RetryPeriod))
		}
		l.post(func(candidacy.Instant) []candidacy.Effect {
			l.removing = false
			if err == nil {
				l.former = slices.DeleteFunc(l.former, func(f schema.GroupVersionResource) bool { return f == kind })
			}
			l.leaveFormer()
			return nil
		})
	})
}

// removeFormer removes, at the end of the candidacy, what leaveFormer has not.
func (l *loop) removeFormer() {
	for _, kind := range l.former {
		_ = l.removeOf(kind) // which has logged it
	}
}

func (l *loop) removeOf(kind schema.GroupVersionResource) error {
	err := l.c.api.removeFormer(l.base, &l.c.registration, kind)
	l.trouble.report(l.base, "removing the candidate of the former kind", err)
	return err
}

// removeFormer removes this process' object of a kind that it has turned away from, if that is still within reach. If not,
// the coordinators take what was left behind for dead after a while.
func (a *api) removeFormer(ctx context.Context, r *registration, kind schema.GroupVersionResource) error {
	obj, _, err := a.read(ctx, a.candidates(kind), r.name)
	switch {
	case unserved(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading %s of %s: %w", r.name, kind.GroupVersion(), err)
	case obj == nil:
		return nil
	}
	if lease, _, _ := unstructured.NestedString(obj.Object, "spec", "leaseName"); lease != r.lease {
		return nil
	}
	return a.remove(ctx, kind, r.name, obj.GetUID())
}

// remove removes a LeaseCandidate. The UID keeps it from hitting the object of a successor that uses the same identity. One
// that is gone, or another's, or of a kind that is not served, is as good as removed.
func (a *api) remove(ctx context.Context, kind schema.GroupVersionResource, name string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	err := a.candidates(kind).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
