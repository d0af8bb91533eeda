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

package election

import (
	"math"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

func appointment(candidate string) Decision {
	return Decision{Action: Appoint, Candidate: candidate, Strategy: v1alpha1.OldestEmulationVersion, TakeUp: 5 * time.Second}
}

func TestWriteAppointment(t *testing.T) {
	old := preferring(leaseOf("a", at(-60), at(-20), 15), "b")
	old.Labels = map[string]string{"kept": "yes"}
	old.Annotations = map[string]string{"kept": "yes", v1alpha1.FencingTokenAnnotation: "7"}
	old.Spec.LeaseTransitions = ptr.To[int32](3)
	s := &Snapshot{Now: at(0), Key: key, Lease: old, Observed: &Observations{Last: old}}
	l := appointment("b").Write(s, old.ResourceVersion)

	if holderOf(l) != "b" || preferredOf(l) != "" || strategyOf(l) != v1alpha1.OldestEmulationVersion {
		t.Errorf("holder %q, preferred %q, strategy %q", holderOf(l), preferredOf(l), strategyOf(l))
	}
	if !l.Spec.AcquireTime.Time.Equal(at(0)) || !l.Spec.RenewTime.Time.Equal(at(0)) || *l.Spec.LeaseDurationSeconds != 5 {
		t.Errorf("acquired %s, renewed %s, for %d s", l.Spec.AcquireTime, l.Spec.RenewTime, *l.Spec.LeaseDurationSeconds)
	}
	if got := l.Annotations[v1alpha1.FencingTokenAnnotation]; got != old.ResourceVersion {
		t.Errorf("fencing token %q, want %q", got, old.ResourceVersion)
	}
	if l.Labels["kept"] == "" || l.Annotations["kept"] == "" || l.ResourceVersion != old.ResourceVersion {
		t.Errorf("metadata was lost: %+v", l.ObjectMeta)
	}
	if holderOf(old) != "a" || old.Annotations[v1alpha1.FencingTokenAnnotation] != "7" {
		t.Error("the lease of the snapshot was changed")
	}
}

func TestTransitions(t *testing.T) {
	lease := func(holder string, transitions *int32) *coordinationv1.Lease {
		l := leaseOf(holder, at(-60), at(-20), 15)
		l.Spec.LeaseTransitions = transitions
		return l
	}
	tests := []struct {
		name        string
		lease, last *coordinationv1.Lease
		want        int32
	}{
		{"first of all", nil, nil, 1},
		{"change of holder", lease("b", ptr.To[int32](3)), nil, 4},
		{"same holder", lease("a", ptr.To[int32](3)), nil, 3},
		{"nil, change of holder", lease("b", nil), nil, 1},
		{"nil, same holder", lease("a", nil), nil, 0},
		{"released", lease("", ptr.To[int32](3)), nil, 4},
		{"revoked", lease(v1alpha1.RevokedHolder, ptr.To[int32](3)), nil, 4},
		{"as large as it gets", lease("b", ptr.To[int32](math.MaxInt32)), nil, math.MaxInt32},
		{"one less", lease("b", ptr.To[int32](math.MaxInt32-1)), nil, math.MaxInt32},
		{"deleted", nil, lease("b", ptr.To[int32](3)), 4},
		{"deleted, same holder", nil, lease("a", ptr.To[int32](3)), 4},
		{"deleted and created anew by somebody", lease("b", ptr.To[int32](0)), lease("b", ptr.To[int32](3)), 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &Snapshot{Now: at(0), Key: key, Lease: tt.lease, Observed: &Observations{Last: tt.last}}
			if got := *appointment("a").Write(s, "1").Spec.LeaseTransitions; got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestFencingToken(t *testing.T) {
	held := leaseOf("a", at(-5), at(-5), 5)
	held.Annotations = map[string]string{v1alpha1.FencingTokenAnnotation: "7"}
	bare := leaseOf("a", at(-5), at(-5), 5)
	outstanding := &Appointment{Holder: "a", RenewTime: at(-5), Count: 1}
	tests := []struct {
		name        string
		lease       *coordinationv1.Lease
		appointment *Appointment
		want        string
	}{
		{"a new lease", nil, nil, "42"},
		{"the same, appointed again without taking up", held, outstanding, "7"},
		{"the same, whose token was lost", bare, outstanding, "42"},
		{"the same, after a term of its own", held, nil, "42"},
		{"another", held, &Appointment{Holder: "b"}, "42"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			candidate := "a"
			if tt.name == "another" {
				candidate = "c"
			}
			s := &Snapshot{Now: at(0), Key: key, Lease: tt.lease, Observed: &Observations{Appointment: tt.appointment}}
			if got := appointment(candidate).Write(s, "42").Annotations[v1alpha1.FencingTokenAnnotation]; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTakeUpIsRoundedUp(t *testing.T) {
	for limit, want := range map[time.Duration]int32{5 * time.Second: 5, 5*time.Second + 1: 6, 45666 * time.Millisecond: 46} {
		d := appointment("a")
		d.TakeUp = limit
		s := &Snapshot{Now: at(0), Key: key, Observed: &Observations{}}
		if got := *d.Write(s, "1").Spec.LeaseDurationSeconds; got != want {
			t.Errorf("%s: got %d s, want %d s", limit, got, want)
		}
	}
}

func TestWriteRestore(t *testing.T) {
	last := preferring(leaseOf("a", at(-60), at(-3), 15), "b")
	last.UID, last.Labels = "uid", map[string]string{"kept": "yes"}
	last.Annotations = map[string]string{v1alpha1.FencingTokenAnnotation: "7"}
	s := &Snapshot{Now: at(0), Key: key, Observed: &Observations{Last: last}}
	l := Decision{Action: Restore}.Write(s, "42")
	if holderOf(l) != "a" || preferredOf(l) != "b" || !l.Spec.RenewTime.Time.Equal(at(-3)) {
		t.Errorf("put back: %+v", l.Spec)
	}
	if l.Annotations[v1alpha1.FencingTokenAnnotation] != "7" || l.Labels["kept"] == "" {
		t.Errorf("put back: %+v", l.ObjectMeta)
	}
	if l.ResourceVersion != "" || l.UID != "" {
		t.Error("an object with a resourceVersion or UID cannot be created")
	}
	l.Annotations["more"] = ""
	if _, shared := last.Annotations["more"]; shared {
		t.Error("it shares annotations with what was observed")
	}
}

func TestWriteNothing(t *testing.T) {
	l := leaseOf("a", at(-60), at(-3), 15)
	s := &Snapshot{Now: at(0), Key: key, Lease: l, Observed: &Observations{Last: l}}
	for _, action := range []Action{None, Ping, ""} {
		if got := (Decision{Action: action}).Write(s, "1"); got != nil {
			t.Errorf("%q writes %+v", action, got)
		}
	}
}

func TestWritePreferred(t *testing.T) {
	l := leaseOf("a", at(-60), at(-3), 15)
	s := &Snapshot{Now: at(0), Key: key, Lease: l, Observed: &Observations{Last: l}}
	told := Decision{Action: Prefer, Candidate: "b", Strategy: v1alpha1.OldestEmulationVersion}.Write(s, "1")
	if holderOf(told) != "a" || preferredOf(told) != "b" || !told.Spec.RenewTime.Equal(l.Spec.RenewTime) {
		t.Errorf("preferred: %+v", told.Spec)
	}
	s.Lease = told
	back := Decision{Action: ClearPreferred, Candidate: "b"}.Write(s, "1")
	if holderOf(back) != "a" || back.Spec.PreferredHolder != nil || strategyOf(back) != v1alpha1.OldestEmulationVersion {
		t.Errorf("taken back: %+v", back.Spec)
	}
}

func strategyOf(l *coordinationv1.Lease) coordinationv1.CoordinatedLeaseStrategy {
	if l == nil || l.Spec.Strategy == nil {
		return ""
	}
	return *l.Spec.Strategy
}
