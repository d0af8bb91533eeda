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
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/internal/candidacy"
)

const (
	native = "coordination.k8s.io/v1beta1"
	ours   = "lease-coordinator.dev/v1alpha1"
)

func withLead(c Config) Config {
	c.Lead = func(context.Context) error { return nil }
	return c
}

// The version is chosen by what the server says, and by nothing else.
func TestChoiceOfKind(t *testing.T) {
	const group = "coordination.k8s.io/"
	for _, test := range []struct {
		name   string
		served []string
		want   string
	}{
		{"beta", []string{group + "v1beta1"}, group + "v1beta1"},
		{"alpha", []string{group + "v1alpha2"}, group + "v1alpha2"},
		{"beta before alpha", []string{group + "v1alpha2", group + "v1alpha3", group + "v1beta1"}, group + "v1beta1"},
		{"stable before beta", []string{group + "v1beta1", group + "v1"}, group + "v1"},
		{"the newest", []string{group + "v1beta1", group + "v1beta2", group + "v1beta10", group + "v1alpha12"}, group + "v1beta10"},
		{"the newest stable", []string{group + "v1", group + "v2", group + "v3beta1"}, group + "v2"},
		{"native before ours", []string{ours, group + "v1alpha2"}, group + "v1alpha2"},
		{"ours", []string{ours}, ours},
		{"not what has another form", []string{group + "v1alpha1", ours}, ours},
		{"only what has another form", []string{group + "v1alpha1"}, ""},
		{"none", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				api.serveOnly(test.served...)
				c, err := New(withLead(config(api, "a")))
				if err != nil {
					t.Fatal(err)
				}
				got, err := c.api.candidateKind(t.Context())
				if test.want == "" {
					if !errors.Is(err, errUnserved) {
						t.Errorf("%s, %v", got, err)
					}
					return
				}
				if err != nil || got.GroupVersion().String() != test.want || got.Resource != candidateResource {
					t.Errorf("%s, %v, want %s", got, err, test.want)
				}
			})
		})
	}
}

// A server that is away is not one that serves nothing.
func TestChoiceOfKindFails(t *testing.T) {
	for status, want := range map[int]func(error) bool{403: apierrors.IsForbidden, 429: apierrors.IsTooManyRequests} {
		for nth := range 4 {
			inBubble(t, func(t *testing.T, api *fakeAPI) {
				api.serveOnly(ours)
				n := 0
				api.setFault(func(request) fault {
					if n++; n == nth+1 {
						return fault{status: status}
					}
					return fault{}
				})
				c, err := New(withLead(config(api, "a")))
				if err != nil {
					t.Fatal(err)
				}
				if kind, err := c.api.candidateKind(t.Context()); nth < 3 && !want(err) || nth == 3 && err != nil {
					t.Errorf("%d to request %d: %s, %v", status, nth, kind, err)
				}
			})
		}
	}
}

// A leader whose server turns from one kind to another, and another, is registered as what is served, leads on in the same
// term, and leaves no object behind within reach.
func TestServerThatChanges(t *testing.T) {
	there := func(t *testing.T, api *fakeAPI, what string, nativeThere, oursThere bool) {
		t.Helper()
		if got := api.get(candidateResource, "a") != nil; got != nativeThere {
			t.Errorf("%s: a native candidate is there: %t", what, got)
		}
		if got := api.get(ourResource, "a") != nil; got != oursThere {
			t.Errorf("%s: a candidate of ours is there: %t", what, got)
		}
	}
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		api.coordinate(ctx)
		api.serveOnly(ours)
		a := join(t, api, "a")
		pass(time.Minute)
		there(t, api, "served ours alone", false, true)

		api.serveOnly(ours, native)
		pass(10 * time.Second)
		there(t, api, "enabled the native kind", true, false)

		// As of v1.39: the native objects are out of reach, and stay in the store.
		api.serveOnly(ours)
		pass(10 * time.Second)
		there(t, api, "dropped the native kind", true, true)
		left := fmt.Sprint(spec(api.get(candidateResource, "a"))["renewTime"])

		// A rollback finds them again, long out of date.
		pass(time.Hour)
		api.serveOnly(ours, native)
		pass(10 * time.Second)
		there(t, api, "rolled back", true, false)
		if got := fmt.Sprint(spec(api.get(candidateResource, "a"))["renewTime"]); got <= left {
			t.Errorf("the candidate that was found again was last renewed at %s", got)
		}

		// Another version of the same objects.
		uid := meta(api.get(candidateResource, "a"))["uid"]
		api.serveOnly(ours, "coordination.k8s.io/v1")
		pass(10 * time.Second)
		there(t, api, "promoted", true, false)
		if got := meta(api.get(candidateResource, "a"))["uid"]; got != uid {
			t.Error("the candidate was made anew for another version")
		}
		api.ping("a")
		pass(10 * time.Millisecond)
		if c := spec(api.get(candidateResource, "a")); fmt.Sprint(c["renewTime"]) < fmt.Sprint(c["pingTime"]) {
			t.Error("a ping was not acked")
		}

		// Nothing at all, for a while.
		api.serveOnly()
		pass(10 * time.Minute)
		api.serveOnly(ours)
		pass(2 * time.Minute)
		there(t, api, "served ours alone again", true, true)

		if starts := a.times("starts"); len(starts) != 1 || !a.IsLeader() {
			t.Errorf("started %d times, leads: %t", len(starts), a.IsLeader())
		}
		api.serveOnly(ours, native)
		if err := a.end(); err != nil {
			t.Error(err)
		}
		there(t, api, "ended", false, false)
		alternate(t, a)
	})
}

// Ends within moments of a change, before and while the candidate turns to the other kind, leave nothing behind either.
func TestEndWhileServerChanges(t *testing.T) {
	for after := time.Duration(0); after < 30*time.Millisecond; after += time.Millisecond {
		inBubble(t, func(t *testing.T, api *fakeAPI) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			api.coordinate(ctx)
			api.serveOnly(ours)
			a := join(t, api, "a")
			pass(time.Minute)
			api.serveOnly(ours, native)
			pass(after)
			if err := a.end(); err != nil {
				t.Error(err)
			}
			if api.get(candidateResource, "a") != nil || api.get(ourResource, "a") != nil {
				t.Errorf("%s after the change: left a candidate behind", after)
			}
		})
	}
}

// Hand-offs go on as ever with candidates of both kinds.
func TestHandOffBetweenKinds(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		api.coordinate(ctx)
		api.serveOnly(ours)
		b := join(t, api, "b")
		pass(time.Minute)
		// It does not see the change, since nothing ends its watch.
		api.mu.Lock()
		api.served[native] = true
		api.mu.Unlock()
		a := join(t, api, "a")
		pass(time.Second)
		if api.get(ourResource, "b") == nil || api.get(candidateResource, "a") == nil || !a.IsLeader() {
			t.Errorf("b %v, a %v, a leads: %t", api.get(ourResource, "b"), api.get(candidateResource, "a"), a.IsLeader())
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
		pass(time.Second)
		if !b.IsLeader() {
			t.Error("b does not lead")
		}
		// It does within the life of a watch.
		pass(2*watchFor + time.Second)
		if api.get(ourResource, "b") != nil || api.get(candidateResource, "b") == nil {
			t.Errorf("b of ours %v, native %v", api.get(ourResource, "b"), api.get(candidateResource, "b"))
		}
		if err := b.end(); err != nil {
			t.Error(err)
		}
		alternate(t, a, b)
	})
}

// The object of the former kind is removed once that is allowed, and until then tried in no hurry.
func TestFormerCannotBeRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		api.serveOnly(ours)
		a := join(t, api, "a")
		pass(time.Minute)
		api.setFault(func(r request) fault {
			if r.verb == http.MethodDelete {
				return fault{status: 403}
			}
			return fault{}
		})
		api.serveOnly(ours, native)
		changed := time.Now()
		pass(5 * time.Minute)
		if n := count(api.asked(changed))["DELETE "+ourResource]; n < 2 || n > 30 {
			t.Errorf("%d times tried to remove in 5 minutes", n)
		}
		api.setFault(nil)
		pass(time.Minute)
		if api.get(ourResource, "a") != nil || api.get(candidateResource, "a") == nil {
			t.Error("the former candidate is still there, or the present one is not")
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// Two servers behind one address, one of which has the native kind: whatever each request meets, the candidate is one of
// the two, leads on, and does not turn back and forth with every request.
func TestServersThatDiffer(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		api.coordinate(ctx)
		api.serveOnly(ours)
		a := join(t, api, "a")
		pass(time.Minute)
		n := 0
		api.setFault(func(r request) fault {
			// Requests go to the two in turn.
			n++
			api.served[native] = n%2 == 0
			return fault{}
		})
		began := time.Now()
		pass(time.Hour)
		asked := api.asked(began)
		writes := count(asked)
		if made := writes["POST "+candidateResource] + writes["POST "+ourResource]; made > 60 {
			t.Errorf("registered %d times in an hour", made)
		}
		if len(asked) > 4*1800 {
			t.Errorf("%d requests in an hour: %v", len(asked), writes)
		}
		if len(a.times("starts")) != 1 || !a.IsLeader() {
			t.Errorf("started %d times", len(a.times("starts")))
		}
		api.setFault(nil)
		api.serveOnly(ours, native)
		pass(time.Minute)
		if api.get(candidateResource, "a") == nil || api.get(ourResource, "a") != nil {
			t.Errorf("native %v, ours %v", api.get(candidateResource, "a"), api.get(ourResource, "a"))
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// An identity that our kind cannot have is refused before anything is written, in words that say what to do, and counts
// again as soon as the server has a kind that can.
func TestIdentityThatDoesNotFit(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		api.serveOnly(ours)
		var mu sync.Mutex
		var lines []string
		a := join(t, api, "Node_1", func(_ *player, c *Config) {
			c.Logger = funcr.New(func(_, args string) {
				mu.Lock()
				defer mu.Unlock()
				lines = append(lines, args)
			}, funcr.Options{})
		})
		began := time.Now()
		pass(10 * time.Minute)
		if got := count(api.asked(began)); got["POST "+ourResource] > 0 || got["GET "] > 3*31 {
			t.Errorf("requests %v", got)
		}
		mu.Lock()
		complaints := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
			return !strings.Contains(line, `Identity \"Node_1\" cannot be the name`) || !strings.Contains(line, "a lowercase RFC 1123 subdomain must consist of")
		})
		mu.Unlock()
		if len(complaints) != 1 {
			t.Errorf("said so %d times: %v", len(complaints), lines)
		}
		if !a.IsLeader() {
			t.Error("without a candidate the fallback should make a leader")
		}
		api.serveOnly(ours, native)
		pass(2 * time.Minute)
		if api.get(candidateResource, "Node_1") == nil {
			t.Error("not registered with the native kind")
		}
		if err := a.end(); err != nil {
			t.Error(err)
		}
	})
}

// Of a 404, one says that there is no such object, and another that there is no such resource.
func TestUnserved(t *testing.T) {
	inBubble(t, func(t *testing.T, api *fakeAPI) {
		c, err := New(withLead(config(api, "a")))
		if err != nil {
			t.Fatal(err)
		}
		missing := c.api.remove(t.Context(), ourKind, "a", "uid")
		if missing != nil {
			t.Errorf("removing what is not there: %v", missing)
		}
		patch := func(version string) error {
			kind := ourKind
			kind.Group, kind.Version, _ = strings.Cut(version, "/")
			_, err := c.api.candidates(kind).Patch(t.Context(), "a", "application/merge-patch+json", []byte("{}"), metav1.PatchOptions{})
			return err
		}
		if err := patch(native); !apierrors.IsNotFound(err) || unserved(err) || outcomeOf(err, candidacy.Conflicted) != candidacy.Conflicted {
			t.Errorf("an object that is not there: %v", err)
		}
		api.serveOnly()
		for _, version := range []string{native, ours} {
			if err := patch(version); !apierrors.IsNotFound(err) || !unserved(err) || outcomeOf(err, candidacy.Conflicted) != candidacy.Failed {
				t.Errorf("a resource that is not there: %v", err)
			}
		}
		if _, _, err := c.api.read(t.Context(), c.api.candidates(ourKind), "a"); !unserved(err) {
			t.Errorf("a list of what is not there: %v", err)
		}
	})
}
