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
	"fmt"
	"strings"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

var (
	rightsMissing = &Outcome{
		ID: "rights-missing", Severity: Error,
		When:    "The coordinator may not do something that it has to. One row for each right.",
		Follows: "The coordinator says so in /readyz/coordinating, and goes on without, as far as that goes.",
		Mend:    "Apply the roles of this release, `kubectl apply -k config/rbac`, or add the rule to your own. No restart is needed. If the coordinator runs as another user, as a static Pod does: `--coordinator-user`.",
	}
	rightsSpare = &Outcome{
		ID: "rights-spare", Severity: Note,
		When:    "The coordinator lacks a right to a kind of LeaseCandidate that is not served.",
		Follows: "Nothing, until that kind is served.",
		Mend:    "Apply the roles of this release: `kubectl apply -k config/rbac`.",
	}
	ownRights = &Outcome{
		ID: "your-rights-missing", Severity: Note,
		When:    "You may not do something that this examination, or stepping in by an annotation, takes.",
		Follows: "What it is for was not checked, or is not yours to do.",
		Mend:    "Ask somebody who has these rights, or have them given to you.",
	}
)

var rightsChecks = []Check{
	{ID: "rights", Question: "Has the coordinator the rights that it needs, verb by verb? Asked by a SubjectAccessReview, or else by impersonating it.", Outcomes: []*Outcome{rightsMissing, rightsSpare}, run: checkRights},
	{ID: "your-rights", Question: "Have you the rights that this examination takes?", Outcomes: []*Outcome{ownRights}, run: checkOwnRights},
}

// String names the right, for people: "patch leases.coordination.k8s.io in all namespaces".
func (r Right) String() string {
	resource := r.Resource
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Name != "" {
		resource += fmt.Sprintf(" %q", r.Name)
	}
	where := "in all namespaces"
	if r.Namespace != "" {
		where = fmt.Sprintf("in namespace %q", r.Namespace)
	}
	return fmt.Sprintf("%s %s %s", r.Verb, resource, where)
}

func checkRights(x *examination, f *findings) {
	if x.Rights.Unknown != "" {
		f.unchecked(cluster, x.Rights.Unknown)
		return
	}
	granted, lacking := 0, 0
	for _, r := range x.Rights.Reviews {
		what := r.Right.String()
		if r.For != "" {
			what += ", " + r.For
		}
		switch {
		case r.Unknown != "":
			f.unchecked(cluster, fmt.Sprintf("whether %s may %s: %s", x.Rights.Subject, what, r.Unknown))
			lacking++
		case r.Allowed:
			granted++
		case x.spare(r.Right):
			f.add(rightsSpare, cluster, fmt.Sprintf("%s may not %s", x.Rights.Subject, what))
		default:
			lacking++
			f.add(rightsMissing, cluster, fmt.Sprintf("%s may not %s", x.Rights.Subject, what))
		}
	}
	if lacking == 0 {
		f.fine(fmt.Sprintf("%s has all %s that it needs (%s)", x.Rights.Subject, plural(granted, "right"), x.Rights.How))
	}
}

// spare reports whether a right is for a kind of LeaseCandidate that is not served.
func (x *examination) spare(r Right) bool {
	s := x.served()
	switch {
	case s.answers == 0 || r.Resource != "leasecandidates":
		return false
	case r.Group == v1alpha1.Group:
		return len(s.custom) == 0
	}
	return len(s.native) == 0
}

func checkOwnRights(x *examination, f *findings) {
	if x.OwnRights.Unknown != "" {
		f.unchecked(cluster, x.OwnRights.Unknown)
		return
	}
	var missing []string
	for _, r := range x.OwnRights.Reviews {
		if !r.Allowed && r.Unknown == "" {
			missing = append(missing, fmt.Sprintf("%s (%s)", r.Right, r.For))
		}
	}
	if len(missing) == 0 {
		f.fine("you have all rights that this takes")
		return
	}
	f.add(ownRights, cluster, "you may not: "+strings.Join(missing, "; "))
}
