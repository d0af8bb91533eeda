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
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

func micro(s float64) *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(at(s))) }

func TestClassifyLease(t *testing.T) {
	lease := func(holder, preferred string, renewed float64) *coordinationv1.Lease {
		l := &coordinationv1.Lease{}
		if holder != "" {
			l.Spec.HolderIdentity = &holder
		}
		if preferred != "" {
			l.Spec.PreferredHolder = &preferred
		}
		l.Spec.RenewTime = micro(renewed)
		return l
	}
	annotated := func(preferred string, l *coordinationv1.Lease) *coordinationv1.Lease {
		l.Annotations = map[string]string{v1alpha1.PreferredHolderAnnotation: preferred}
		return l
	}
	named := func(ns, name string, l *coordinationv1.Lease) *coordinationv1.Lease {
		l.Namespace, l.Name = ns, name
		return l
	}
	tests := []struct {
		name          string
		before, after *coordinationv1.Lease
		writer        ProcessKind
		registered    bool
		want          EventKind
	}{
		{"created for a candidate", nil, lease("a", "", 1), CoordinatorKind, true, LeaseAppointed},
		{"created for a candidate in-tree", nil, lease("a", "", 1), APIServerKind, true, LeaseAppointed},
		{"created for a candidate by who knows", nil, lease("a", "", 1), "", true, LeaseAppointed},
		{"created by a plain elector", nil, lease("a", "", 1), CandidateKind, false, LeaseAcquired},
		{"created by a plain elector, unseen", nil, lease("a", "", 1), "", false, LeaseAcquired},
		{"created by a candidate for itself", nil, lease("a", "", 1), CandidateKind, true, LeaseAcquired},
		{"created without a holder", nil, lease("", "", 1), APIServerKind, true, LeaseCreated},
		{"renewed", lease("a", "", 1), lease("a", "", 2), CandidateKind, true, LeaseRenewed},
		{"renewed and wiped its end of term", lease("a", "b", 1), lease("a", "", 2), CandidateKind, false, LeaseRenewed},
		{"appointed again", lease("a", "", 1), lease("a", "", 2), CoordinatorKind, true, LeaseAppointed},
		{"preferred", lease("a", "", 1), lease("a", "b", 1), CoordinatorKind, true, LeasePreferred},
		{"another one preferred", lease("a", "b", 1), lease("a", "c", 1), CoordinatorKind, true, LeasePreferred},
		{"preferred by annotation", lease("a", "", 1), annotated("b", lease("a", "", 1)), CoordinatorKind, true, LeasePreferred},
		{"cleared", lease("a", "b", 1), lease("a", "", 1), CoordinatorKind, true, LeasePreferenceCleared},
		{"cleared annotation", annotated("b", lease("a", "", 1)), lease("a", "", 1), CoordinatorKind, true, LeasePreferenceCleared},
		{"revoked", lease("a", "", 1), lease(v1alpha1.RevokedHolder, "", 2), CoordinatorKind, true, LeaseRevoked},
		{"appointed after a revocation", lease(v1alpha1.RevokedHolder, "", 1), lease("b", "", 9), CoordinatorKind, true, LeaseAppointed},
		{"successor appointed", lease("a", "b", 1), lease("b", "", 9), CoordinatorKind, true, LeaseAppointed},
		{"released", lease("a", "b", 1), lease("", "", 2), SchedulerKind, true, LeaseReleased},
		{"deleted", lease("a", "", 1), nil, "", true, LeaseDeleted},
		{"something else", lease("a", "", 1), annotated("", lease("a", "", 1)), "", true, LeaseUpdated},
		{
			"a coordinator's own lock",
			nil, lease(v1alpha1.CoordinatorIdentityPrefix+"x", "", 1), CoordinatorKind, false, LeaseAcquired,
		},
		{
			"a coordinator's own lock, renewed",
			lease(v1alpha1.CoordinatorIdentityPrefix+"x", "", 1), lease(v1alpha1.CoordinatorIdentityPrefix+"x", "", 2), CoordinatorKind, false, LeaseRenewed,
		},
		{
			"the in-tree lock, released by ours",
			named(v1alpha1.InTreeLockNamespace, v1alpha1.InTreeLockName, lease("x", "", 1)),
			named(v1alpha1.InTreeLockNamespace, v1alpha1.InTreeLockName, lease("", "", 2)), CoordinatorKind, false, LeaseReleased,
		},
		{"a kube-apiserver's identity", lease("apiserver-x", "", 1), lease("apiserver-x", "", 2), APIServerKind, false, LeaseRenewed},
	}
	for _, tt := range tests {
		if got := classifyLease(tt.before, tt.after, tt.writer, tt.registered); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestClassifyCandidate(t *testing.T) {
	candidate := func(pinged, renewed *metav1.MicroTime) *coordinationv1beta1.LeaseCandidate {
		return &coordinationv1beta1.LeaseCandidate{Spec: coordinationv1beta1.LeaseCandidateSpec{PingTime: pinged, RenewTime: renewed}}
	}
	tests := []struct {
		name          string
		before, after *coordinationv1beta1.LeaseCandidate
		want          EventKind
	}{
		{"created", nil, candidate(nil, micro(1)), CandidateCreated},
		{"pinged", candidate(nil, micro(1)), candidate(micro(2), micro(1)), CandidatePinged},
		{"acked", candidate(micro(2), micro(1)), candidate(micro(2), micro(3)), CandidateAcked},
		{"acked by a clock that is behind", candidate(micro(9), micro(1)), candidate(micro(9), micro(2)), CandidateAcked},
		{"renewed", candidate(micro(2), micro(3)), candidate(micro(2), micro(4)), CandidateRenewed},
		{"renewed without a ping ever", candidate(nil, micro(1)), candidate(nil, micro(2)), CandidateRenewed},
		{"first renewal answers", candidate(micro(1), nil), candidate(micro(1), micro(2)), CandidateAcked},
		{"changed otherwise", candidate(nil, micro(1)), candidate(nil, micro(1)), CandidateUpdated},
		{"deleted", candidate(nil, micro(1)), nil, CandidateDeleted},
	}
	for _, tt := range tests {
		if got := classifyCandidate(tt.before, tt.after); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// The first renewal after an appointment is the take-up, and only that one.
func TestClassifyTakeUp(t *testing.T) {
	var events []Event
	var last *coordinationv1.Lease
	write := func(writer ProcessKind, holder string, renewed float64) {
		l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: micro(renewed)}}
		events = append(events, Event{Lease: "ns/l", LeaseBefore: last, LeaseAfter: l, WriterKind: writer})
		last = l
	}
	write(CoordinatorKind, "a", 1)
	write(CandidateKind, "a", 2)
	write(CandidateKind, "a", 3)
	write(CoordinatorKind, "b", 4)
	write(CoordinatorKind, "b", 5)
	write(CandidateKind, "b", 6)
	classify(events)
	for i, want := range []EventKind{LeaseAppointed, LeaseTakenUp, LeaseRenewed, LeaseAppointed, LeaseAppointed, LeaseTakenUp} {
		if events[i].Kind != want {
			t.Errorf("write %d: %s, want %s", i, events[i].Kind, want)
		}
	}
}

// The watches of Leases and LeaseCandidates are apart: an appointment may be seen before the registration that it follows.
func TestClassifyAppointmentSeenFirst(t *testing.T) {
	lease := func(holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: micro(1)}}
	}
	events := []Event{
		{Lease: "ns/l", LeaseAfter: lease("a"), WriterKind: APIServerKind},
		{Lease: "ns/own", LeaseAfter: lease("apiserver"), WriterKind: APIServerKind},
		{Lease: "ns/l", Subject: "a", CandidateAfter: &coordinationv1beta1.LeaseCandidate{}},
	}
	classify(events)
	for i, want := range []EventKind{LeaseAppointed, LeaseAcquired, CandidateCreated} {
		if events[i].Kind != want {
			t.Errorf("write %d: %s, want %s", i, events[i].Kind, want)
		}
	}
}

func TestLeadershipWord(t *testing.T) {
	arrived := time.Date(2026, 11, 30, 23, 13, 15, 0, time.Local)
	component := ProcessInfo{Name: "n1/kcm", Kind: ControllerManagerKind, Lease: "kube-system/kube-controller-manager"}
	tests := []struct {
		name, line string
		info       ProcessInfo
		want       EventKind // "" for no word
		lease      string
		at         time.Time
		detail     string
	}{{
		name: "acquired, klog",
		line: `I1130 23:13:14.937508    6636 leaderelection.go:272] "Successfully acquired lease" lock="kube-system/kube-controller-manager"`,
		info: component, want: StartedLeading, lease: "kube-system/kube-controller-manager",
		at: time.Date(2026, 11, 30, 23, 13, 14, 937508000, time.Local),
	}, {
		name: "lost, klog",
		line: `I1130 23:13:14.000001    6636 leaderelection.go:310] "Failed to renew lease" lock="kube-system/kube-controller-manager" err="context \"deadline\" exceeded"`,
		info: component, want: StoppedLeading, lease: "kube-system/kube-controller-manager", detail: `context "deadline" exceeded`,
		at: time.Date(2026, 11, 30, 23, 13, 14, 1000, time.Local),
	}, {
		name: "the lease is that of the line: a kube-apiserver has several",
		line: `I1130 23:13:12.384374    6612 leaderelection.go:272] "Successfully acquired lease" lock="kube-system/leader-election-controller"`,
		info: ProcessInfo{Kind: APIServerKind}, want: StartedLeading, lease: "kube-system/leader-election-controller",
		at: time.Date(2026, 11, 30, 23, 13, 12, 384374000, time.Local),
	}, {
		name: "JSON",
		line: `{"level":"info","ts":"` + arrived.Add(-time.Second).Format(time.RFC3339Nano) + `","msg":"Successfully acquired lease","lock":"ns/l"}`,
		info: ProcessInfo{Kind: CoordinatorKind}, want: StartedLeading, lease: "ns/l", at: arrived.Add(-time.Second),
	}, {
		name: "a stamp from another day is not believed",
		line: `I0101 00:00:00.000000    6612 leaderelection.go:272] "Successfully acquired lease" lock="ns/l"`,
		info: component, want: StartedLeading, lease: "ns/l", at: arrived,
	}, {
		name: "a candidate",
		line: `{"time":"2026-11-30T22:00:00.5Z","event":"started-leading","identity":"a","monotonic":1}`,
		info: ProcessInfo{Kind: CandidateKind, Lease: "ns/l"}, want: StartedLeading, lease: "ns/l",
		at: time.Date(2026, 11, 30, 22, 0, 0, 5e8, time.UTC),
	}, {
		name: "a candidate's elector is not its worker",
		line: `I1130 23:13:14.000001    6636 leaderelection.go:272] "Successfully acquired lease" lock="ns/l"`,
		info: ProcessInfo{Kind: CandidateKind, Lease: "ns/l"},
	}, {
		name: "a candidate's other events",
		line: `{"time":"2026-11-30T22:00:00.5Z","event":"exiting","identity":"a","monotonic":1}`,
		info: ProcessInfo{Kind: CandidateKind},
	}, {
		name: "a failed attempt is no loss",
		line: `I1130 23:13:14.000001    6636 leaderelection.go:268] "Failed to acquire lease" lock="ns/l"`,
		info: component,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := leadershipWord(tt.info, arrived, tt.line)
			if ok != (tt.want != "") {
				t.Fatalf("recognized: %t", ok)
			}
			if ok && (got.Kind != tt.want || got.Lease != tt.lease || !got.Time.Equal(tt.at) || got.Detail != tt.detail) {
				t.Errorf("got %s of %s at %s, %q; want %s of %s at %s, %q",
					got.Kind, got.Lease, got.Time, got.Detail, tt.want, tt.lease, tt.at, tt.detail)
			}
		})
	}
}

func TestAuditLine(t *testing.T) {
	feed := &auditFeed{writerOf: func(uid, user string) (string, ProcessKind) {
		if uid == "kcm#1" {
			return "n1/kube-controller-manager", ControllerManagerKind
		}
		return user, ""
	}}
	var got []auditedWrite
	defer feed.subscribe(func(w auditedWrite) { got = append(got, w) })()
	for _, line := range []string{
		`{"stage":"ResponseComplete","verb":"create","user":{"username":"k","uid":"kcm#1"},"objectRef":{"resource":"leasecandidates","namespace":"kube-system","name":"host_1"},"responseStatus":{"code":201},"requestObject":{"metadata":{"name":"host_1"}},"responseObject":{"metadata":{"resourceVersion":"7"}},"stageTimestamp":"2026-01-01T00:00:01.000000Z"}`,
		`{"stage":"ResponseComplete","verb":"update","user":{"username":"system:apiserver"},"objectRef":{"resource":"leases","namespace":"ns","name":"l"},"responseStatus":{"code":200},"requestObject":{"metadata":{}},"responseObject":{"metadata":{"resourceVersion":"8"}},"stageTimestamp":"2026-01-01T00:00:02.000000Z"}`,
		`{"stage":"ResponseComplete","verb":"create","user":{"username":"x"},"objectRef":{"resource":"leases","namespace":"ns"},"responseStatus":{"code":409,"reason":"AlreadyExists"},"requestObject":{"metadata":{"name":"l"}},"stageTimestamp":"2026-01-01T00:00:03.000000Z"}`,
		`{"stage":"RequestReceived","verb":"create"}`,
		`I1130 not JSON`,
	} {
		feed.line("n1/kube-apiserver", line)
	}
	want := []auditedWrite{
		{at: at(1), object: "leasecandidate/kube-system/host_1", verb: "create", code: 201, version: "7", writer: "n1/kube-controller-manager", writerKind: ControllerManagerKind},
		{at: at(2), object: "lease/ns/l", verb: "update", code: 200, version: "8", blind: true, writer: "n1/kube-apiserver", writerKind: APIServerKind},
		{at: at(3), object: "lease/ns/l", verb: "create", code: 409, reason: "AlreadyExists", writer: "x"},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if !got[i].at.Equal(want[i].at) {
			t.Errorf("record %d: at %s, want %s", i, got[i].at, want[i].at)
		}
		got[i].at = want[i].at
		if got[i] != want[i] {
			t.Errorf("record %d:\ngot  %+v\nwant %+v", i, got[i], want[i])
		}
	}
	if facts := feed.facts(); len(facts) != 1 || facts[0].identity != "host_1" {
		t.Errorf("identities: %+v", facts)
	}
}
