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
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// auditPolicy logs complete writes to Leases and LeaseCandidates and nothing
// else: who wrote what, on which resourceVersion, when exactly and whether it
// was refused. A watch shows only what became of an object.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  namespaces: [kube-node-lease]
- level: RequestResponse
  verbs: [create, update, patch, delete]
  resources:
  - group: coordination.k8s.io
    resources: [leases, leasecandidates]
  - group: lease-coordinator.dev
    resources: [leasecandidates]
- level: None
`

// auditedWrite is what is of interest in an audit event.
type auditedWrite struct {
	at         time.Time
	object     string // as Event.Object
	verb       string
	code       int32
	reason     string
	version    string // resourceVersion after the write, "" for deletions
	blind      bool
	writer     string
	writerKind ProcessKind
}

// identityFact says that a process used a holder identity at some time.
type identityFact struct {
	process  string
	identity string
	at       time.Time
}

// auditFeed passes on the audited writes of a cluster's kube-apiservers.
type auditFeed struct {
	writerOf func(uid, user string) (string, ProcessKind)

	mu         sync.Mutex
	identities []identityFact
	latest     map[string]string // identity last seen, by process
	subs       map[int]func(auditedWrite)
	next       int
}

// subscribe passes on what follows until the returned function is called.
// deliver must not block.
func (f *auditFeed) subscribe(deliver func(auditedWrite)) (cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.subs == nil {
		f.subs = map[int]func(auditedWrite){}
	}
	id := f.next
	f.next++
	f.subs[id] = deliver
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.subs, id)
	}
}

func (f *auditFeed) facts() []identityFact {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.identities)
}

// inTreeUser is who a kube-apiserver's own controllers are to itself.
const inTreeUser = "system:apiserver"

// auditRecord is the part of an audit.k8s.io/v1 Event that is read.
type auditRecord struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
		UID      string `json:"uid"`
	} `json:"user"`
	ObjectRef struct {
		Group     string `json:"apiGroup"`
		Resource  string `json:"resource"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code   int32  `json:"code"`
		Reason string `json:"reason"`
	} `json:"responseStatus"`
	RequestObject  auditedObject    `json:"requestObject"`
	ResponseObject auditedObject    `json:"responseObject"`
	StageTimestamp metav1.MicroTime `json:"stageTimestamp"`
}

type auditedObject struct {
	Metadata struct {
		Name            string `json:"name"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		HolderIdentity string `json:"holderIdentity"`
	} `json:"spec"`
}

// line takes a line of the audit log of the given kube-apiserver.
func (f *auditFeed) line(apiServer, line string) {
	var rec auditRecord
	if err := json.Unmarshal([]byte(line), &rec); err != nil || rec.Stage != "ResponseComplete" {
		return
	}
	w := auditedWrite{
		at:     rec.StageTimestamp.Round(0),
		verb:   rec.Verb,
		code:   rec.ResponseStatus.Code,
		reason: rec.ResponseStatus.Reason,
	}
	name := rec.ObjectRef.Name
	if name == "" { // a creation
		name = rec.RequestObject.Metadata.Name
	}
	kind := strings.TrimSuffix(rec.ObjectRef.Resource, "s")
	if rec.ObjectRef.Group == v1alpha1.Group {
		kind = ourCandidateKind
	}
	w.object = objectKey(kind, rec.ObjectRef.Namespace, name)
	switch rec.Verb {
	case "update", "patch":
		w.blind = rec.RequestObject.Metadata.ResourceVersion == ""
		fallthrough
	case "create":
		w.version = rec.ResponseObject.Metadata.ResourceVersion
	}
	if rec.User.Username == inTreeUser {
		w.writer, w.writerKind = apiServer, APIServerKind
	} else {
		w.writer, w.writerKind = f.writerOf(rec.User.UID, rec.User.Username)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if w.ok() && w.writerKind != "" && rec.Verb != "delete" {
		if id := identityIn(w, &rec); id != "" && f.latest[w.writer] != id {
			if f.latest == nil {
				f.latest = map[string]string{}
			}
			f.latest[w.writer] = id
			f.identities = append(f.identities, identityFact{process: w.writer, identity: id, at: w.at})
		}
	}
	for _, deliver := range f.subs {
		deliver(w)
	}
}

func (w auditedWrite) ok() bool { return w.code >= 200 && w.code < 300 }

// identityIn finds the writer's own holder identity in a write.
func identityIn(w auditedWrite, rec *auditRecord) string {
	switch w.writerKind {
	case ControllerManagerKind, SchedulerKind, CandidateKind:
		if rec.ObjectRef.Resource == "leasecandidates" {
			return rec.ObjectRef.Name
		}
		return rec.RequestObject.Spec.HolderIdentity
	case CoordinatorKind:
		// Coordinators also name others.
		if id := rec.RequestObject.Spec.HolderIdentity; strings.HasPrefix(id, v1alpha1.CoordinatorIdentityPrefix) {
			return id
		}
	case APIServerKind:
		if rec.ObjectRef.Name == v1alpha1.InTreeLockName {
			return rec.RequestObject.Spec.HolderIdentity
		}
	}
	return ""
}

func (w auditedWrite) refusal() string {
	return w.verb + " refused: " + strconv.Itoa(int(w.code)) + " " + w.reason
}

// Kinds, as in Event.Object.
const (
	leaseKind        = "lease"
	candidateKind    = "leasecandidate"
	ourCandidateKind = candidateKind + "." + v1alpha1.Group
)

func objectKey(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }
