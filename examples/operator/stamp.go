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

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lease-coordinator/coordinator/pkg/candidate"
)

// What a ConfigMap says, and what is written on it.
const (
	stampLabel        = "operator.example.com/stamp"
	versionAnnotation = "operator.example.com/version"
	byAnnotation      = "operator.example.com/by"
	timeAnnotation    = "operator.example.com/time"
	tokenAnnotation   = "operator.example.com/fencing-token"
)

// stamper is the controller.
type stamper struct {
	client            client.Client
	version, identity string
	interval          time.Duration
	// term returns the term in which a reconciliation takes place; false if it has ended.
	term func(context.Context) (candidate.Term, bool)
}

func (o *operator) setUp(mgr manager.Manager, term func(context.Context) (candidate.Term, bool)) error {
	s := &stamper{client: mgr.GetClient(), version: o.version, identity: o.identity, interval: o.interval, term: term}
	err := builder.ControllerManagedBy(mgr).
		Named("stamper").
		// Not for its own stamps.
		For(&corev1.ConfigMap{}, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Complete(s)
	if err != nil {
		return fmt.Errorf("setting up the controller: %w", err)
	}
	return nil
}

// Reconcile stamps a ConfigMap, again and again.
func (s *stamper) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	term, ok := s.term(ctx)
	if !ok {
		// The term is ending. Nothing that follows from this may be done any more.
		return reconcile.Result{}, nil
	}
	var object corev1.ConfigMap
	if err := s.client.Get(ctx, request.NamespacedName, &object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	// What a former leader writes late must not undo what its successor did. Here the receiver cannot compare the tokens
	// itself, so the sender does, and the API server sees to it that nobody has written in between.
	if later(object.Annotations[tokenAnnotation], term.Token) {
		log.FromContext(ctx).Info("Not stamping, since a later leader has", "token", term.Token, "stamped", object.Annotations[tokenAnnotation])
		return reconcile.Result{RequeueAfter: s.interval}, nil
	}
	before := object.DeepCopy()
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	object.Annotations[versionAnnotation] = s.version
	object.Annotations[byAnnotation] = s.identity
	object.Annotations[tokenAnnotation] = term.Token
	object.Annotations[timeAnnotation] = time.Now().UTC().Format(time.RFC3339Nano)
	err := s.client.Patch(ctx, &object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsConflict(err):
		// The cache is behind.
		return reconcile.Result{RequeueAfter: min(s.interval, time.Second)}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("stamping %s: %w", request.NamespacedName, err)
	}
	return reconcile.Result{RequeueAfter: s.interval}, nil
}

// later reports whether a fencing token is higher than another. What is no token is lower than all.
func later(a, b string) bool {
	x, _ := strconv.ParseUint(a, 10, 64)
	y, _ := strconv.ParseUint(b, 10, 64)
	return x > y
}
