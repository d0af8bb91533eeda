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

import "time"

// lastWordAfter is the time between the two pings that a candidate must leave unanswered after its TTL before it is
// collected. One is not enough: whatever kept the candidate from renewing, such as an API server that was away, may have
// kept it from answering. The second could only be written when that was over.
const lastWordAfter = time.Minute

// collect implements rule 16: unless there is anything else to do than d, which writes nothing, the registrations of
// processes that are gone are deleted. A candidate's age is by our clock, from when it was last seen to renew, so that no
// clock that is off can make a live one look dead, and a coordinator that has just started waits a whole TTL.
func (e *evaluation) collect(d Decision) Decision {
	switch d.Reason {
	case ReasonExcluded, ReasonPaused, ReasonForeignStrategy:
		// Somebody else's, or not to be touched.
		return d
	}
	claim := e.claim()
	var pings []string
	var dead []*Verdict
	for i := range e.ranking.verdicts {
		v := &e.ranking.verdicts[i]
		if !e.collectable(v) || v.Name == e.holder && !v.Superseded && e.Now.Before(claim.End()) {
			// Who renews a Lease lives, whatever became of its registration.
			continue
		}
		o := v.Observed
		expired := o.lastSign().Add(e.Settings.CandidateTTL)
		var due time.Time
		switch {
		case !e.Now.After(expired):
			due = expired.Add(1)
		case v.Superseded:
			// Its process was heard of by the other one.
			dead = append(dead, v)
		case o.Pinged.Before(expired):
			pings = append(pings, v.Name)
		case o.pingedBefore.Before(expired) || o.Pinged.Sub(o.pingedBefore) < lastWordAfter:
			if due = o.Pinged.Add(lastWordAfter); !e.Now.Before(due) {
				pings = append(pings, v.Name)
			}
		default:
			if due = o.Pinged.Add(e.Settings.ElectionDuration); !e.Now.Before(due) {
				dead = append(dead, v)
			}
		}
		if due.After(e.Now) {
			e.lookAgain(&d, due)
		}
	}
	switch {
	case len(pings) > 0:
		return Decision{Action: Ping, Reason: ReasonCandidateDead, Pings: pings}
	case len(dead) > 0:
		collect := Decision{Action: Collect, Reason: ReasonCandidateDead}
		for _, v := range dead {
			collect.Dead = append(collect.Dead, v.Candidate.Candidate)
		}
		return collect
	}
	return d
}

// collectable reports whether it is for us to delete the candidate when it is dead: kube-apiserver collects those of its
// own kind itself, with the same gate that has it keep the fields.
func (e *evaluation) collectable(v *Verdict) bool {
	return v.CustomResource || !e.FieldsKept
}
