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

package checks

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
	"github.com/lease-coordinator/coordinator/internal/election"
	"github.com/lease-coordinator/coordinator/internal/strategy"
)

var now = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

const native, custom = "leasecandidates.coordination.k8s.io", "leasecandidates.lease-coordinator.dev"

// managedBy is what the API server notes of somebody who wrote fields.
func managedBy(manager string, at time.Time, fields string) metav1.ManagedFieldsEntry {
	t := metav1.NewTime(at.Truncate(time.Second))
	return metav1.ManagedFieldsEntry{Manager: manager, Time: &t, FieldsV1: metav1.NewFieldsV1(fields)}
}

// newLease returns a lease that was acquired an hour before now and renewed that long before.
func newLease(namespace, name, holder string, age time.Duration, change ...func(*coordinationv1.Lease)) *coordinationv1.Lease {
	acquired, renewed := metav1.NewMicroTime(now.Add(-time.Hour)), metav1.NewMicroTime(now.Add(-age))
	seconds := int32(15)
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}, Labels: map[string]string{}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, AcquireTime: &acquired, RenewTime: &renewed, LeaseDurationSeconds: &seconds},
	}
	for _, c := range change {
		c(l)
	}
	return l
}

// newCandidate returns a candidate that was created an hour and renewed two minutes before now.
func newCandidate(namespace, name, lease string, change ...func(*metav1.ObjectMeta, *strategy.Spec)) Candidate {
	renewed := metav1.NewMicroTime(now.Add(-2 * time.Minute))
	object := metav1.ObjectMeta{
		Namespace: namespace, Name: name, Annotations: map[string]string{}, Labels: map[string]string{},
		CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
	}
	spec := strategy.Spec{
		LeaseName: lease, RenewTime: &renewed, BinaryVersion: "1.37.0", EmulationVersion: "1.37.0",
		Strategy: coordinationv1.OldestEmulationVersion,
	}
	for _, c := range change {
		c(&object, &spec)
	}
	return Candidate{Candidate: strategy.NewCandidate(&object, spec), Resource: native, Managed: object.ManagedFields}
}

func annotated(name, value string) func(*metav1.ObjectMeta, *strategy.Spec) {
	return func(m *metav1.ObjectMeta, _ *strategy.Spec) { m.Annotations[name] = value }
}

func ofStrategy(name coordinationv1.CoordinatedLeaseStrategy) func(*metav1.ObjectMeta, *strategy.Spec) {
	return func(_ *metav1.ObjectMeta, s *strategy.Spec) { s.Strategy = name }
}

func managed(entries ...metav1.ManagedFieldsEntry) func(*metav1.ObjectMeta, *strategy.Spec) {
	return func(m *metav1.ObjectMeta, _ *strategy.Spec) { m.ManagedFields = entries }
}

const (
	ours      = v1alpha1.CoordinatorIdentityPrefix + "n1_0b7f"
	apiServer = "apiserver-x_4b1c"
)

var (
	inTreeKey = types.NamespacedName{Namespace: v1alpha1.InTreeLockNamespace, Name: v1alpha1.InTreeLockName}
	ownKey    = types.NamespacedName{Namespace: "lease-coordinator-system", Name: "lease-coordinator"}
)

func watched(key types.NamespacedName, holder string, renewed bool) Lock {
	l := Lock{Key: key, Lease: newLease(key.Namespace, key.Name, holder, 2*time.Second), Watched: 2 * time.Second, Renewed: renewed}
	if !renewed {
		l.Lease, l.Watched = newLease(key.Namespace, key.Name, holder, time.Minute), 15*time.Second
	}
	return l
}

func decoded(text string) map[string]any {
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		panic(err)
	}
	return m
}

const crdText = `{
	"metadata": {"name": "leasecandidates.lease-coordinator.dev"},
	"spec": {"versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
		"description": "A candidate.", "type": "object", "properties": {"description": {"type": "string", "maxLength": 9}}}}}]},
	"status": {"conditions": [{"type": "Established", "status": "True"}]}
}`

// healthy returns facts about a cluster on which all is well: the gate is off, ours is active, n1 leads a lease that n2
// competes for as well.
func healthy() *Facts {
	registry, err := strategy.NewRegistry(strategy.BuiltIn()...)
	if err != nil {
		panic(err)
	}
	answer := Answer{Version: "v1.37.2", Native: []string{"v1beta1"}, FieldsKept: true}
	return &Facts{
		Now: now,
		Settings: &election.Settings{
			Strategies: registry, ElectionDuration: election.DefaultElectionDuration, CandidateTTL: election.DefaultCandidateTTL,
			Excluded: []types.NamespacedName{ownKey},
		},
		Replace: false,
		Answers: []Answer{answer, answer, answer}, APIServers: 3,
		Understood: []string{"v1beta1"}, Removals: map[string]Release{"v1beta1": {1, 39}},
		CRD:        CRD{Shipped: decoded(crdText)},
		InTreeLock: watched(inTreeKey, apiServer, true), OwnLock: watched(ownKey, ours, true),
		Pods:     Pods{List: []Pod{{"lease-coordinator-system", "c-1", "lease-coordinator:v1", true}, {"lease-coordinator-system", "c-2", "lease-coordinator:v1", true}}},
		Policies: Policies{Installed: []string{"lease-coordinator-candidates"}, Bound: []string{"lease-coordinator-candidates"}},
		Rights: Rights{Subject: "the coordinator", How: "asked by SubjectAccessReview", Reviews: []Review{
			{Right: Right{Verb: "patch", Group: "coordination.k8s.io", Resource: "leases"}, Allowed: true},
			{Right: Right{Verb: "patch", Group: "coordination.k8s.io", Resource: "leasecandidates"}, Allowed: true},
		}},
		OwnRights:  Rights{Subject: "you", Reviews: []Review{{Right: Right{Verb: "list", Group: "coordination.k8s.io", Resource: "leases"}, Allowed: true, For: "to see who leads"}}},
		Leases:     Leases{List: []*coordinationv1.Lease{newLease("apps", "job", "n1", 2*time.Second)}},
		Candidates: Candidates{List: []Candidate{newCandidate("apps", "n1", "job"), newCandidate("apps", "n2", "job")}},
	}
}

// replaceCandidates has other candidates for apps/job.
func replaceCandidates(list ...Candidate) func(*Facts) {
	return func(f *Facts) { f.Candidates.List = list }
}

// replaceLease has another lease apps/job.
func replaceLease(holder string, age time.Duration, change ...func(*coordinationv1.Lease)) func(*Facts) {
	return func(f *Facts) {
		f.Leases.List = []*coordinationv1.Lease{newLease("apps", "job", holder, age, change...)}
	}
}

func all(changes ...func(*Facts)) func(*Facts) {
	return func(f *Facts) {
		for _, change := range changes {
			change(f)
		}
	}
}

func answers(change func(i int, a *Answer)) func(*Facts) {
	return func(f *Facts) {
		for i := range f.Answers {
			change(i, &f.Answers[i])
		}
	}
}

func gateIs(on bool) func(*Facts) { return answers(func(_ int, a *Answer) { a.FieldsKept = on }) }

// gateOffFacts: no gate, and so no in-tree coordinator.
var gateOffFacts = all(gateIs(false), func(f *Facts) { f.InTreeLock = Lock{Key: inTreeKey} })

func lastsFor(seconds int32) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = &seconds }
}

func withAnnotation(name, value string) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) { l.Annotations[name] = value }
}

func installed(change func(crd, version map[string]any)) func(*Facts) {
	return func(f *Facts) {
		f.CRD.Installed = decoded(crdText)
		change(f.CRD.Installed, crdVersionOf(f.CRD.Installed, "v1alpha1"))
	}
}

// inTreeNote is what a healthy cluster says of its in-tree coordinator.
const inTreeNote, lifetimeNote = "in-tree-yield", "candidate-api-limited"

func TestOutcomes(t *testing.T) {
	long := strings.Repeat("x", 254)
	tests := []struct {
		name   string
		change func(*Facts)
		// want are the outcomes other than the two of a healthy cluster, which are there unless but says otherwise.
		want []string
		but  []string
		// says is part of what the first of want found, follows or mends.
		says string
	}{
		{name: "all is well", change: func(*Facts) {}},
		{name: "versions of kube-apiserver differ", change: answers(func(i int, a *Answer) {
			if i == 1 {
				a.Version = "v1.36.4"
			}
		}), want: []string{"server-mixed"}, says: "v1.36.4 (1 answer), v1.37.2 (2 answers)"},
		{name: "clocks of kube-apiservers differ by two seconds", change: answers(func(i int, a *Answer) { a.Ahead = time.Duration(i) * time.Second })},
		{name: "clocks of kube-apiservers differ by more", change: answers(func(i int, a *Answer) { a.Ahead = time.Duration(i) * 2 * time.Second }), want: []string{"server-clocks"}, says: "4s"},

		{name: "the gate is off", change: gateOffFacts, want: []string{"gate-off"}, but: []string{inTreeNote}, says: "3 of 3 answers dropped"},
		{name: "the gate is on for some", change: answers(func(i int, a *Answer) { a.FieldsKept = i == 0 }), want: []string{"gate-mixed"}, says: "mixed: 1 answer kept"},

		{name: "nothing is served", change: all(gateOffFacts, answers(func(_ int, a *Answer) { a.Native = nil })), want: []string{"gate-off", "candidate-api-none"}, but: []string{inTreeNote, lifetimeNote}},
		{name: "only ours is served", change: all(gateOffFacts, answers(func(_ int, a *Answer) { a.Native, a.Custom = nil, []string{"v1alpha1"} })), want: []string{"gate-off"}, but: []string{inTreeNote, lifetimeNote}},
		{name: "the gate without the API", change: answers(func(_ int, a *Answer) { a.Native = nil }), want: []string{"candidate-api-missing", "candidate-api-none"}, but: []string{lifetimeNote}},
		{name: "the gate without the API, but ours", change: answers(func(_ int, a *Answer) { a.Native, a.Custom = nil, []string{"v1alpha1"} }), want: []string{"candidate-api-missing"}, but: []string{lifetimeNote}},
		{name: "a version that is not understood", change: answers(func(_ int, a *Answer) { a.Native = []string{"v1alpha1"} }), want: []string{"candidate-api-unknown"}, but: []string{lifetimeNote}},
		{name: "a version that is not understood, and ours", change: answers(func(_ int, a *Answer) { a.Native, a.Custom = []string{"v1alpha1"}, []string{"v1alpha1"} }), want: []string{"candidate-api-unknown"}, but: []string{lifetimeNote}},
		{name: "some serve it", change: answers(func(i int, a *Answer) {
			if i > 0 {
				a.Native = nil
			}
		}), want: []string{"candidate-api-mixed"}, says: "coordination.k8s.io/v1beta1 (1 of 3 answers)"},

		{name: "the next release ends it", change: answers(func(_ int, a *Answer) { a.Version = "v1.38.1" }), want: []string{"candidate-api-ending"}, but: []string{lifetimeNote}, says: "upgrade to v1.39"},
		{name: "the next release ends it, but ours is there", change: answers(func(_ int, a *Answer) { a.Version, a.Custom = "v1.38.1", []string{"v1alpha1"} })},
		{name: "kube-apiserver knows better when it ends", change: func(f *Facts) {
			f.ServerWarnings = []string{"coordination.k8s.io/v1beta1 LeaseCandidate is deprecated in v1.36+, unavailable in v1.38+"}
		}, want: []string{"candidate-api-ending"}, but: []string{lifetimeNote}, says: "served up to v1.37, as kube-apiserver warns"},
		{name: "a version without an end", change: func(f *Facts) { f.Removals = nil }, but: []string{lifetimeNote}},

		{name: "ours is installed as shipped", change: installed(func(_, v map[string]any) {
			v["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["description"] = "Told otherwise."
			v["deprecated"] = false
		})},
		{name: "ours is not established", change: installed(func(crd, _ map[string]any) {
			crd["status"] = decoded(`{"conditions": [{"type": "NamesAccepted", "status": "False", "message": "taken"}]}`)
		}), want: []string{"crd-not-established"}, says: "NamesAccepted is False (taken)"},
		{name: "ours in another version", change: installed(func(_, v map[string]any) { v["name"] = "v2" }), want: []string{"crd-version"}},
		{name: "ours is not served", change: installed(func(_, v map[string]any) { v["served"] = false }), want: []string{"crd-version"}},
		{name: "ours is not as shipped", change: installed(func(_, v map[string]any) {
			v["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)["description"].(map[string]any)["maxLength"] = 10.0
		}), want: []string{"crd-drift"}, says: "schema.openAPIV3Schema.properties.description.maxLength"},

		{name: "kube-apiserver is not replaced", change: func(f *Facts) { f.Replace, f.OwnLock = true, f.InTreeLock }, want: []string{"in-tree-not-replaced", "coordinator-in-tree"}, but: []string{inTreeNote}},
		{name: "kube-apiserver is replaced", change: func(f *Facts) {
			f.Replace, f.InTreeLock, f.OwnLock = true, watched(inTreeKey, ours, true), watched(inTreeKey, ours, true)
		}, but: []string{inTreeNote}},
		{name: "the in-tree coordinator does not renew", change: func(f *Facts) { f.InTreeLock = watched(inTreeKey, apiServer, false) }, want: []string{"in-tree-silent"}, but: []string{inTreeNote}, says: "did not renew while it was watched for 15s"},
		{name: "the in-tree coordinator was never there", change: func(f *Facts) { f.InTreeLock = Lock{Key: inTreeKey} }, want: []string{"in-tree-silent"}, but: []string{inTreeNote}},
		{name: "the in-tree coordinator is elsewhere", change: gateIs(false), want: []string{"gate-off", "in-tree-elsewhere"}, but: []string{inTreeNote}},

		{name: "no coordinator", change: all(gateOffFacts, func(f *Facts) { f.OwnLock = Lock{Key: ownKey} }), want: []string{"gate-off", "coordinator-none"}, but: []string{inTreeNote}},
		{name: "the coordinator released", change: all(gateOffFacts, func(f *Facts) { f.OwnLock = watched(ownKey, "", true) }), want: []string{"gate-off", "coordinator-none"}, but: []string{inTreeNote}},
		{name: "the coordinator is dead", change: all(gateOffFacts, func(f *Facts) { f.OwnLock = watched(ownKey, ours, false) }), want: []string{"gate-off", "coordinator-silent"}, but: []string{inTreeNote}},
		{name: "the coordinator is dead by its stamp", change: all(gateOffFacts, func(f *Facts) {
			f.OwnLock = Lock{Key: ownKey, Lease: newLease(ownKey.Namespace, ownKey.Name, ours, 16*time.Second)}
		}), want: []string{"gate-off", "coordinator-silent"}, but: []string{inTreeNote}},
		{name: "the coordinator is alive by its stamp", change: func(f *Facts) {
			f.OwnLock = Lock{Key: ownKey, Lease: newLease(ownKey.Namespace, ownKey.Name, ours, 14*time.Second)}
		}},
		{name: "the in-tree coordinator alone", change: func(f *Facts) { f.OwnLock = Lock{Key: ownKey} }, want: []string{"coordinator-in-tree"}, but: []string{inTreeNote}},
		{name: "ours replaces the in-tree coordinator, unasked", change: func(f *Facts) { f.OwnLock, f.InTreeLock = Lock{Key: ownKey}, watched(inTreeKey, ours, true) }, but: []string{inTreeNote}},
		{name: "somebody else holds the lock", change: func(f *Facts) { f.OwnLock = watched(ownKey, "somebody", true) }, want: []string{"coordinator-foreign"}, but: []string{inTreeNote}},
		{name: "two coordinators", change: func(f *Facts) {
			f.Leases.List = append(f.Leases.List, newLease("other", "lock", ours+"2", 3*time.Second))
		}, want: []string{"coordinators-several"}, says: "other/lock"},
		{name: "one coordinator that is gone", change: func(f *Facts) {
			f.Leases.List = append(f.Leases.List, newLease("other", "lock", ours+"2", time.Minute))
		}},
		{name: "two images", change: func(f *Facts) { f.Pods.List[1].Image = "lease-coordinator:v2" }, want: []string{"coordinator-version-skew"}, says: "1 Pod of lease-coordinator:v2 (lease-coordinator-system/c-2)"},
		{name: "no policy", change: func(f *Facts) { f.Policies = Policies{} }, want: []string{"policy-none"}},
		{name: "a policy without a binding", change: func(f *Facts) { f.Policies.Bound = nil }, want: []string{"policy-unbound"}, says: "lease-coordinator-candidates"},

		{name: "a right is missing", change: func(f *Facts) { f.Rights.Reviews[0].Allowed = false }, want: []string{"rights-missing"}, says: "may not patch leases.coordination.k8s.io in all namespaces"},
		{name: "a right to what is not served is missing", change: func(f *Facts) {
			f.Rights.Reviews[0] = Review{Right: Right{Verb: "delete", Group: v1alpha1.Group, Resource: "leasecandidates"}}
		}, want: []string{"rights-spare"}},
		{name: "a right to what is served is missing", change: all(answers(func(_ int, a *Answer) { a.Custom = []string{"v1alpha1"} }), func(f *Facts) {
			f.Rights.Reviews[0] = Review{Right: Right{Verb: "delete", Group: v1alpha1.Group, Resource: "leasecandidates"}}
		}), want: []string{"rights-missing"}},
		{name: "you lack a right", change: func(f *Facts) { f.OwnRights.Reviews[0].Allowed = false }, want: []string{"your-rights-missing"}, says: "to see who leads"},

		{name: "a candidate of a node's lease", change: func(f *Facts) {
			f.Candidates.List = append(f.Candidates.List, newCandidate("kube-node-lease", "x", "n1"))
		}, want: []string{"lease-excluded"}, says: "a Lease of a node"},
		{name: "a candidate of the coordinator's lock", change: func(f *Facts) {
			f.Candidates.List = append(f.Candidates.List, newCandidate(ownKey.Namespace, "x", ownKey.Name))
		}, want: []string{"lease-excluded"}, says: "lock"},
		{name: "an upper-case lease", change: func(f *Facts) { f.Candidates.List = append(f.Candidates.List, newCandidate("apps", "x", "Job")) }, want: []string{"lease-name-invalid"}, says: "kubectl -n apps delete " + native + " x"},
		{name: "a lease that ends with a dot", change: func(f *Facts) { f.Candidates.List = append(f.Candidates.List, newCandidate("apps", "x", "abc.")) }, want: []string{"lease-name-invalid"}},
		{name: "a lease name of 254 characters", change: func(f *Facts) { f.Candidates.List = append(f.Candidates.List, newCandidate("apps", "x", long)) }, want: []string{"lease-name-invalid"}, says: "253"},
		{name: "a lease name of 253 characters", change: all(replaceCandidates(newCandidate("apps", "n1", long[1:])), func(f *Facts) {
			f.Leases.List = []*coordinationv1.Lease{newLease("apps", long[1:], "n1", time.Second)}
		})},

		{name: "nobody could succeed", change: replaceCandidates(newCandidate("apps", "n1", "job", annotated(v1alpha1.IneligibleAnnotation, "backup"))), want: []string{"lease-no-live-candidate", "candidate-ineligible"}, says: "n1 is marked never to lead: backup"},
		{name: "all are dead", change: replaceCandidates(newCandidate("apps", "n1", "job", func(_ *metav1.ObjectMeta, s *strategy.Spec) {
			old := metav1.NewMicroTime(now.Add(-31 * time.Minute))
			s.RenewTime = &old
		})), want: []string{"lease-no-live-candidate"}, says: "has not renewed for 30m"},
		{name: "its clock is wrong, but it is alive", change: replaceCandidates(newCandidate("apps", "n1", "job", func(m *metav1.ObjectMeta, s *strategy.Spec) {
			wrong := metav1.NewMicroTime(now.Add(-time.Hour))
			s.RenewTime = &wrong
			m.ManagedFields = []metav1.ManagedFieldsEntry{managedBy("app", now.Add(-time.Minute), `{"f:spec":{"f:renewTime":{}}}`)}
		})), want: []string{"clock-candidate"}, says: "the clock of n1 is 59m0s behind the API server's"},
		{name: "its clock is ahead", change: replaceCandidates(newCandidate("apps", "n1", "job", func(m *metav1.ObjectMeta, s *strategy.Spec) {
			wrong := metav1.NewMicroTime(now.Add(-time.Minute).Add(3100 * time.Millisecond))
			s.RenewTime = &wrong
			m.ManagedFields = []metav1.ManagedFieldsEntry{managedBy("app", now.Add(-time.Minute), `{"f:spec":{"f:renewTime":{}}}`)}
		})), want: []string{"clock-candidate"}, says: "2.1s ahead of"},
		{name: "its clock is hardly ahead", change: replaceCandidates(newCandidate("apps", "n1", "job", func(m *metav1.ObjectMeta, s *strategy.Spec) {
			wrong := metav1.NewMicroTime(now.Add(-time.Minute).Add(3 * time.Second))
			s.RenewTime = &wrong
			m.ManagedFields = []metav1.ManagedFieldsEntry{managedBy("app", now.Add(-time.Minute), `{"f:spec":{"f:renewTime":{}}}`)}
		}))},
		{name: "the holder's clock is behind", change: replaceLease("n1", time.Minute, func(l *coordinationv1.Lease) {
			l.ManagedFields = []metav1.ManagedFieldsEntry{managedBy("app", now.Add(-time.Second), `{"f:spec":{"f:renewTime":{}}}`)}
		}), want: []string{"clock-candidate"}, says: "the clock of n1 is 59s behind"},
		{name: "this machine's clock", change: func(f *Facts) { f.Ahead = 3 * time.Second }, want: []string{"clock-local"}, says: "3s behind the API server's"},
		{name: "this machine's clock, hardly", change: func(f *Facts) { f.Ahead = -2 * time.Second }},

		{name: "nobody leads", change: replaceLease("n1", time.Hour), want: []string{"lease-vacant"}, says: "the claim of n1 ran out"},
		{name: "nobody leads for a moment", change: replaceLease("n1", 2*time.Minute)},
		{name: "nobody ever led", change: func(f *Facts) { f.Leases.List = nil }, want: []string{"lease-vacant"}, says: "nobody has held it for 1h0m0s, and 2 candidates wait"},
		{name: "it was released a minute ago", change: replaceLease("", time.Minute)},
		{name: "it was released an hour ago", change: replaceLease("", time.Hour), want: []string{"lease-vacant"}},

		{name: "candidates differ", change: replaceCandidates(newCandidate("apps", "n1", "job"), newCandidate("apps", "n2", "job", ofStrategy(v1alpha1.Sticky))), want: []string{"strategy-conflict"}, says: "n1: OldestEmulationVersion; n2: lease-coordinator.dev/Sticky"},
		{name: "candidates of different versions differ", change: replaceCandidates(newCandidate("apps", "n1", "job"), newCandidate("apps", "n2", "job", ofStrategy(v1alpha1.Sticky), func(_ *metav1.ObjectMeta, s *strategy.Spec) { s.BinaryVersion = "1.36.0" }))},
		{name: "candidates differ, but are overridden", change: all(replaceCandidates(newCandidate("apps", "n1", "job"), newCandidate("apps", "n2", "job", ofStrategy(v1alpha1.Sticky))),
			replaceLease("n1", time.Second, withAnnotation(v1alpha1.StrategyOverrideAnnotation, string(v1alpha1.Sticky)))), want: []string{"lease-strategy-override"}},
		{name: "a foreign strategy", change: replaceCandidates(newCandidate("apps", "n1", "job", ofStrategy("example.com/Other"))), want: []string{"strategy-foreign"}, says: `"example.com/Other"`},

		{name: "two kinds", change: func(f *Facts) { f.Candidates.List[1].Resource = custom }, want: []string{"kinds-mixed"}, says: "1 " + native + ", 1 " + custom},
		{name: "two workloads by label", change: replaceCandidates(newCandidate("apps", "n1", "job", labelled("a", "x")), newCandidate("apps", "n2", "job", labelled("a", "y"))), want: []string{"lease-shared"}, says: "by label a (instance x): n1; a (instance y): n2"},
		{name: "one workload by label, of two programs", change: replaceCandidates(
			newCandidate("apps", "n1", "job", labelled("a", "x"), managed(managedBy("old", now, `{"f:spec":{"f:leaseName":{}}}`))),
			newCandidate("apps", "n2", "job", labelled("a", "x"), managed(managedBy("new", now, `{"f:spec":{"f:leaseName":{}}}`))))},
		{name: "two labels, and none", change: replaceCandidates(newCandidate("apps", "n1", "job", labelled("a", "")), newCandidate("apps", "n2", "job", labelled("b", "")), newCandidate("apps", "n3", "job")), want: []string{"lease-shared"}},
		{name: "a label, and none", change: replaceCandidates(newCandidate("apps", "n1", "job", labelled("a", "")), newCandidate("apps", "n2", "job"))},
		{name: "two programs", change: replaceCandidates(
			newCandidate("apps", "n1", "job", managed(managedBy("one", now, `{"f:spec":{"f:leaseName":{}}}`), managedBy("coordinator", now, `{"f:spec":{"f:pingTime":{}}}`))),
			newCandidate("apps", "n2", "job", managed(managedBy("two", now, `{"f:spec":{"f:leaseName":{}}}`)))), want: []string{"lease-shared"}, says: "by program one: n1; two: n2"},
		{name: "one program, pinged", change: replaceCandidates(
			newCandidate("apps", "n1", "job", managed(managedBy("one", now, `{"f:spec":{"f:leaseName":{}}}`), managedBy("coordinator", now, `{"f:spec":{"f:pingTime":{}}}`))),
			newCandidate("apps", "n2", "job", managed(managedBy("one", now, `{"f:spec":{"f:leaseName":{}}}`))))},
		{name: "a program before and after it came to use the library", change: replaceCandidates(
			newCandidate("apps", "n1", "job", managed(managedBy("one", now, `{"f:spec":{"f:leaseName":{}}}`))),
			newCandidate("apps", "n2", "job", managed(managedBy("lease-coordinator-candidate", now, `{"f:spec":{"f:leaseName":{}}}`))))},
		{name: "two programs, but one is gone", change: replaceCandidates(
			newCandidate("apps", "n1", "job", managed(managedBy("one", now, `{"f:spec":{"f:leaseName":{}}}`))),
			newCandidate("apps", "n2", "job", managed(managedBy("two", now, `{"f:spec":{"f:leaseName":{}}}`)), func(_ *metav1.ObjectMeta, s *strategy.Spec) {
				old := metav1.NewMicroTime(now.Add(-time.Hour))
				s.RenewTime = &old
			}))},
		{name: "two Deployments", change: all(replaceLease("billing-6c9f8d7b5-x7k2p_1", time.Second), replaceCandidates(newCandidate("apps", "billing-6c9f8d7b5-x7k2p_1", "job"), newCandidate("apps", "mailer-7d4b9c6f8b-q5z8w_2", "job"))), want: []string{"lease-shared"}, says: "billing: billing-6c9f8d7b5-x7k2p_1; mailer: mailer-7d4b9c6f8b-q5z8w_2"},
		{name: "two revisions of a Deployment, and its canary", change: all(replaceLease("billing-6c9f8d7b5-x7k2p", time.Second), replaceCandidates(newCandidate("apps", "billing-6c9f8d7b5-x7k2p", "job"), newCandidate("apps", "billing-7d4b9c6f8b-q5z8w", "job"), newCandidate("apps", "billing-canary-7d4b9c6f8b-q5z8x", "job")))},
		{name: "hosts", change: all(replaceLease("master-a_1", time.Second), replaceCandidates(newCandidate("apps", "master-a_1", "job"), newCandidate("apps", "worker-b_2", "job")))},

		{name: "another coordinator's namespace", change: all(replaceLease("legacy", time.Second), func(f *Facts) { f.Namespaces = []string{"other"} })},
		{name: "the coordinator's namespace", change: all(replaceLease("legacy", time.Second), func(f *Facts) { f.Namespaces = []string{"other", "apps"} }), want: []string{"holder-uncoordinated"}},

		{name: "held by somebody who is none", change: replaceLease("legacy", time.Second), want: []string{"holder-uncoordinated"}, says: "held by legacy, who is none of n1, n2"},
		{name: "revoked", change: replaceLease(v1alpha1.RevokedHolder, time.Second)},

		{name: "no duration", change: replaceLease("n1", time.Second, func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }), want: []string{"timing-no-duration"}},
		{name: "as short as an election", change: replaceLease("n1", time.Second, lastsFor(5)), want: []string{"timing-short"}, says: "5s"},
		{name: "a second longer than an election", change: replaceLease("n1", time.Second, lastsFor(6))},
		{name: "an appointment is short", change: replaceLease("n1", time.Second, lastsFor(5), func(l *coordinationv1.Lease) { l.Spec.AcquireTime = l.Spec.RenewTime })},
		{name: "five minutes", change: replaceLease("n1", time.Second, lastsFor(300))},
		{name: "longer than five minutes", change: replaceLease("n1", time.Second, lastsFor(301)), want: []string{"timing-long"}},
		{name: "a short take-up", change: all(replaceLease("n1", time.Second, lastsFor(137)), func(f *Facts) { f.Settings.TakeUpTimeout = 45 * time.Second }), want: []string{"timing-take-up"}},
		{name: "a take-up of a third", change: all(replaceLease("n1", time.Second, lastsFor(135)), func(f *Facts) { f.Settings.TakeUpTimeout = 45 * time.Second })},

		{name: "paused", change: replaceLease("n1", time.Second, withAnnotation(v1alpha1.PausedAnnotation, "true")), want: []string{"lease-paused"}, says: "kubectl -n apps annotate lease job lease-coordinator.dev/paused-"},
		{name: "not quite paused", change: replaceLease("n1", time.Second, withAnnotation(v1alpha1.PausedAnnotation, "yes")), want: []string{"lease-annotation-invalid"}, says: `"yes" is not "true"`},
		{name: "never preempted", change: replaceLease("n1", time.Second, withAnnotation(v1alpha1.PreemptionAnnotation, "never")), want: []string{"lease-preemption-never"}},

		{name: "a candidate does not answer", change: replaceCandidates(newCandidate("apps", "n1", "job"), newCandidate("apps", "n2", "job", func(_ *metav1.ObjectMeta, s *strategy.Spec) {
			ping := metav1.NewMicroTime(now.Add(-6 * time.Second))
			s.PingTime = &ping
		})), want: []string{"candidate-silent"}, says: "kubectl -n apps delete " + native + " n2"},
		{name: "a candidate may still answer", change: replaceCandidates(newCandidate("apps", "n1", "job"), newCandidate("apps", "n2", "job", func(_ *metav1.ObjectMeta, s *strategy.Spec) {
			ping := metav1.NewMicroTime(now.Add(-4 * time.Second))
			s.PingTime = &ping
		}))},
		{name: "a priority has ended", change: replaceCandidates(newCandidate("apps", "n1", "job", annotated(v1alpha1.PriorityAnnotation, "10"), annotated(v1alpha1.PriorityUntilAnnotation, "2026-03-02T10:00:00Z"))), want: []string{"priority-over"}, says: "kubectl -n apps annotate " + native + " n1 lease-coordinator.dev/priority-"},
		{name: "a priority ends in a second", change: replaceCandidates(newCandidate("apps", "n1", "job", annotated(v1alpha1.PriorityAnnotation, "10"), annotated(v1alpha1.PriorityUntilAnnotation, "2026-03-02T10:00:01Z")))},
		{name: "a priority for ever", change: replaceCandidates(newCandidate("apps", "n1", "job", annotated(v1alpha1.PriorityAnnotation, "10"),
			managed(managedBy("kubectl", now.Add(-25*time.Hour), `{"f:metadata":{"f:annotations":{"f:lease-coordinator.dev/priority":{}}}}`)))), want: []string{"priority-lasting"}, says: "priority 10 since 2026-03-01T09:00:00Z"},
		{name: "a priority since yesterday", change: replaceCandidates(newCandidate("apps", "n1", "job", annotated(v1alpha1.PriorityAnnotation, "10"),
			managed(managedBy("kubectl", now.Add(-24*time.Hour), `{"f:metadata":{"f:annotations":{"f:lease-coordinator.dev/priority":{}}}}`))))},
		{name: "a priority that is none", change: replaceCandidates(newCandidate("apps", "n1", "job", annotated(v1alpha1.PriorityAnnotation, "-1"))), want: []string{"candidate-annotation-invalid"}},
		{name: "marked never to lead", change: replaceCandidates(newCandidate("apps", "n1", "job"), newCandidate("apps", "n2", "job", annotated(v1alpha1.IneligibleAnnotation, "backup"))), want: []string{"candidate-ineligible"}},
	}
	fired := map[string]bool{}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			facts := healthy()
			test.change(facts)
			want := slices.Clone(test.want)
			for _, always := range []string{inTreeNote, lifetimeNote} {
				if !slices.Contains(test.but, always) {
					want = append(want, always)
				}
			}
			var got []string
			for _, f := range Examine(facts) {
				if f.Severity == Unchecked {
					t.Errorf("%s was not checked: %s", f.Check, f.Found)
				}
				if f.Outcome == "" {
					continue
				}
				got = append(got, f.Outcome)
				fired[f.Outcome] = true
				if len(test.want) > 0 && f.Outcome == test.want[0] && !strings.Contains(f.Found+" "+f.Follows+" "+f.Mend, test.says) {
					t.Errorf("%s does not say %q: %+v", f.Outcome, test.says, f)
				}
				for _, p := range placeholders {
					if f.Outcome != "lease-strategy-override" && (strings.Contains(f.Mend, p) || strings.Contains(f.Follows, p)) {
						t.Errorf("%s leaves %s: %s %s", f.Outcome, p, f.Follows, f.Mend)
					}
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(slices.Compact(got), want) {
				t.Errorf("found %q, want %q", got, want)
			}
		})
	}
	for _, c := range All() {
		for _, o := range c.Outcomes {
			if !fired[o.ID] {
				t.Errorf("no test has %s", o.ID)
			}
		}
	}
}

func labelled(name, instance string) func(*metav1.ObjectMeta, *strategy.Spec) {
	return func(m *metav1.ObjectMeta, _ *strategy.Spec) {
		m.Labels["app.kubernetes.io/name"] = name
		if instance != "" {
			m.Labels["app.kubernetes.io/instance"] = instance
		}
	}
}

// TestUnknown: what could not be found out leaves every other check as it is, and shows as not checked.
func TestUnknown(t *testing.T) {
	const no = "forbidden: you"
	leases := []string{"clocks", "candidates", "coordinators", "elections", "holders", "lease-annotations", "lease-names", "leaders", "shared-leases", "strategies", "timing"}
	for name, test := range map[string]struct {
		change func(*Facts)
		want   []string
	}{
		"fields":           {answers(func(_ int, a *Answer) { a.FieldsUnknown = no }), []string{"gate"}},
		"kinds":            {answers(func(_ int, a *Answer) { a.KindsUnknown = no }), []string{"candidate-api", "candidate-api-lifetime"}},
		"one answer":       {answers(func(i int, a *Answer) { a.FieldsUnknown, a.KindsUnknown = strings.Repeat(no, i), strings.Repeat(no, i) }), nil},
		"versions":         {answers(func(_ int, a *Answer) { a.Version = "" }), []string{"server"}},
		"crd":              {func(f *Facts) { f.CRD.Unknown = no }, []string{"crd"}},
		"in-tree lock":     {func(f *Facts) { f.InTreeLock = Lock{Key: inTreeKey, Unknown: no} }, []string{"in-tree"}},
		"own lock":         {func(f *Facts) { f.OwnLock = Lock{Key: ownKey, Unknown: no} }, []string{"coordinator"}},
		"pods":             {func(f *Facts) { f.Pods = Pods{Unknown: no} }, []string{"coordinator-version"}},
		"policies":         {func(f *Facts) { f.Policies = Policies{Unknown: no} }, []string{"policy"}},
		"rights":           {func(f *Facts) { f.Rights = Rights{Unknown: no} }, []string{"rights"}},
		"one right":        {func(f *Facts) { f.Rights.Reviews[1].Unknown = no }, []string{"rights"}},
		"your rights":      {func(f *Facts) { f.OwnRights = Rights{Unknown: no} }, []string{"your-rights"}},
		"leases":           {func(f *Facts) { f.Leases = Leases{Unknown: no} }, leases},
		"candidates":       {func(f *Facts) { f.Candidates = Candidates{Unknown: no} }, append([]string{"priorities", "candidate-annotations"}, slices.DeleteFunc(slices.Clone(leases), func(c string) bool { return c == "coordinators" })...)},
		"other namespaces": {func(f *Facts) { f.Leases.Only, f.Candidates.Only = "apps", "apps" }, []string{"elections"}},
		"nothing is known": {func(f *Facts) { *f = Facts{Now: now, Settings: f.Settings} }, []string{"server", "gate", "candidate-api", "candidate-api-lifetime"}},
	} {
		t.Run(name, func(t *testing.T) {
			facts := healthy()
			test.change(facts)
			found := Examine(facts)
			var got []string
			checked := map[string]bool{}
			for _, f := range found {
				checked[f.Check] = true
				if f.Severity == Unchecked {
					got = append(got, f.Check)
				}
			}
			slices.Sort(got)
			slices.Sort(test.want)
			if !slices.Equal(got, test.want) {
				t.Errorf("not checked: %q, want %q", got, test.want)
			}
			for _, c := range All() {
				if !checked[c.ID] {
					t.Errorf("check %s has no row", c.ID)
				}
			}
		})
	}
}

// TestOrder: whatever the order of what was read, the findings are the same.
func TestOrder(t *testing.T) {
	facts := healthy()
	for i := range 5 {
		name := fmt.Sprintf("x%d", i)
		facts.Candidates.List = append(facts.Candidates.List, newCandidate("apps", name, "Invalid-"+name))
		facts.Leases.List = append(facts.Leases.List, newLease("other", name, ours+name, time.Second))
	}
	want := Examine(facts)
	slices.Reverse(facts.Candidates.List)
	slices.Reverse(facts.Leases.List)
	if got := Examine(facts); !slices.Equal(got, want) {
		t.Errorf("found %+v, want %+v", got, want)
	}
}

// TestTable: what programs and the documentation rely on.
func TestTable(t *testing.T) {
	ids := map[string]string{}
	for _, c := range All() {
		if c.Question == "" || ids[c.ID] != "" {
			t.Errorf("check %s has no question, or is there twice", c.ID)
		}
		ids[c.ID] = c.ID
		for _, o := range c.Outcomes {
			if ids["outcome "+o.ID] != "" {
				t.Errorf("outcome %s is of %s and of %s", o.ID, ids["outcome "+o.ID], c.ID)
			}
			ids["outcome "+o.ID] = c.ID
			for name, text := range map[string]string{"When": o.When, "Follows": o.Follows, "Mend": o.Mend} {
				if text == "" || strings.ContainsAny(text, "|\n") || !strings.HasSuffix(text, ".") {
					t.Errorf("%s: %s is no sentence that fits into a table: %q", o.ID, name, text)
				}
			}
			if !slices.Contains(Severities(), o.Severity) || o.Severity == OK || o.Severity == Unchecked {
				t.Errorf("%s: severity %q", o.ID, o.Severity)
			}
		}
	}
	if len(ids) < 50 {
		t.Errorf("only %q", slices.Sorted(maps.Keys(ids)))
	}
}
