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
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// clockTolerance is by how much clocks may differ without a word: stamps are of whole seconds, and requests take time.
const clockTolerance = 2 * time.Second

var (
	serverMixed = &Outcome{
		ID: "server-mixed", Severity: Note,
		When:    "Connections end at kube-apiservers of different versions.",
		Follows: "An upgrade is under way, or has stopped half-way. What the API serves depends on who answers.",
		Mend:    "Nothing, while the upgrade is under way.",
	}
	serverClocks = &Outcome{
		ID: "server-clocks", Severity: Warning,
		When:    "The clocks of kube-apiservers differ by more than two seconds.",
		Follows: "The coordinator goes by its own clock and is not misled. The in-tree coordinator and creation times are: ties between candidates may be broken wrongly.",
		Mend:    "Check time synchronization (NTP) on the control-plane hosts.",
	}

	gateOffOutcome = &Outcome{
		ID: "gate-off", Severity: Note,
		When:    "A Lease that is created by a dry run comes back without spec.strategy and spec.preferredHolder: the feature gate CoordinatedLeaderElection of kube-apiserver is off.",
		Follows: "Strategy and preferred holder are kept in annotations on the Lease. A holder that does not read these ends its term when the coordinator revokes the lease, which takes the rest of its lease duration. No in-tree coordinator stands by.",
		Mend:    "Nothing has to be mended. For a standby inside kube-apiserver: `--feature-gates=CoordinatedLeaderElection=true` there.",
	}
	gateMixedOutcome = &Outcome{
		ID: "gate-mixed", Severity: Warning,
		When:    "Some answers keep the fields of a Lease, and some do not: the gate is on for some kube-apiservers behind this address only.",
		Follows: "A preferred holder that one kube-apiserver stores is dropped by the next write through another. Hand-offs take a lease duration longer, or are begun again.",
		Mend:    "Give all kube-apiservers the same `--feature-gates=CoordinatedLeaderElection=...`.",
	}

	apiNone = &Outcome{
		ID: "candidate-api-none", Severity: Error,
		When:    "No LeaseCandidate is served: neither a native version that this coordinator knows, nor ours.",
		Follows: "Nobody can be a candidate, and the coordinator has nothing to do.",
		Mend:    "Install ours: `kubectl apply -k config/crd`. Or, for candidates built on client-go, start kube-apiserver with `--runtime-config=coordination.k8s.io/v1beta1=true`.",
	}
	apiMissing = &Outcome{
		ID: "candidate-api-missing", Severity: Error,
		When:    "The gate is on, but coordination.k8s.io serves no LeaseCandidate.",
		Follows: "kube-apiserver is misconfigured: it waits for that API and does not become ready, its own coordinator cannot work, and candidates built on client-go, kube-controller-manager and kube-scheduler among them, cannot register. They wait for ever to be elected.",
		Mend:    "Start kube-apiserver with `--runtime-config=coordination.k8s.io/v1beta1=true` as well, or turn the gate off.",
	}
	apiUnknown = &Outcome{
		ID: "candidate-api-unknown", Severity: Error,
		When:    "LeaseCandidate is served natively only in versions that this coordinator does not know.",
		Follows: "Candidates that register there are not seen.",
		Mend:    "Upgrade lease-coordinator.",
	}
	apiMixed = &Outcome{
		ID: "candidate-api-mixed", Severity: Warning,
		When:    "Not all answers serve the same kinds of LeaseCandidate.",
		Follows: "Candidates and coordinators see each other or not, depending on which kube-apiserver they talk to.",
		Mend:    "Give all kube-apiservers the same `--runtime-config`. During an upgrade it passes by itself.",
	}

	lifetimeLimited = &Outcome{
		ID: "candidate-api-limited", Severity: Note,
		When:    "The native LeaseCandidate that is served has an end, announced by Kubernetes.",
		Follows: "kube-apiserver VERSION and later will not serve it. Leaders stay in office through that upgrade, but candidates that know nothing else cannot register any more.",
		Mend:    "Before the upgrade to VERSION install ours, `kubectl apply -k config/crd`, and bring candidates that use it, or have the components elect without coordination.",
	}
	lifetimeEnding = &Outcome{
		ID: "candidate-api-ending", Severity: Warning,
		When:    "The next minor release no longer serves the native LeaseCandidate, and ours is not there.",
		Follows: "After the upgrade to VERSION nobody can be a candidate: a leader that ends is replaced by nobody.",
		Mend:    "Install ours, `kubectl apply -k config/crd`, before that upgrade, and bring candidates that use it, or have the components elect without coordination.",
	}

	crdNotEstablished = &Outcome{
		ID: "crd-not-established", Severity: Error,
		When:    "The CustomResourceDefinition of our LeaseCandidate is there, but kube-apiserver does not serve it.",
		Follows: "Candidates of that kind cannot register.",
		Mend:    "Read the conditions: `kubectl get crd NAME -o yaml`. Names that collide must be freed; then it is accepted by itself.",
	}
	crdVersion = &Outcome{
		ID: "crd-version", Severity: Error,
		When:    "The installed CustomResourceDefinition does not serve the version that this coordinator knows.",
		Follows: "Candidates of that kind are not seen.",
		Mend:    "Apply the one of this release: `kubectl apply -k config/crd`.",
	}
	crdDrift = &Outcome{
		ID: "crd-drift", Severity: Warning,
		When:    "The installed CustomResourceDefinition is not the one that this release ships.",
		Follows: "What is admitted is not what this release expects: fields may be dropped, or not validated.",
		Mend:    "Apply the one of this release: `kubectl apply -k config/crd`. If the installed one is newer, use the doctor of that release.",
	}
)

var serverChecks = []Check{
	{ID: "server", Question: "Which kube-apiservers answer, and do their clocks agree?", Outcomes: []*Outcome{serverMixed, serverClocks}, run: checkServer},
	{ID: "gate", Question: "Does the API server keep `spec.strategy` and `spec.preferredHolder` on a Lease? Asked by a dry run on several connections, since kube-apiservers behind one address may differ.", Outcomes: []*Outcome{gateOffOutcome, gateMixedOutcome}, run: checkGate},
	{ID: "candidate-api", Question: "Which kinds of LeaseCandidate are served?", Outcomes: []*Outcome{apiNone, apiMissing, apiUnknown, apiMixed}, run: checkCandidateAPI},
	{ID: "candidate-api-lifetime", Question: "Until which release is the native LeaseCandidate served?", Outcomes: []*Outcome{lifetimeLimited, lifetimeEnding}, run: checkLifetime},
	{ID: "crd", Question: "Is our own LeaseCandidate installed, and is it the one of this release?", Outcomes: []*Outcome{crdNotEstablished, crdVersion, crdDrift}, run: checkCRD},
}

func checkServer(x *examination, f *findings) {
	counts := map[string]int{}
	var earliest, latest time.Duration
	for i, a := range x.Answers {
		if a.Version != "" {
			counts[a.Version]++
		}
		if i == 0 || a.Ahead < earliest {
			earliest = a.Ahead
		}
		if i == 0 || a.Ahead > latest {
			latest = a.Ahead
		}
	}
	known := ""
	if x.APIServers > 0 {
		known = "; " + plural(x.APIServers, "kube-apiserver") + " known"
	}
	if spread := latest - earliest; spread > clockTolerance {
		f.add(serverClocks, cluster, "the clocks of those that answered differ by "+seconds(spread))
	}
	versions := slices.Sorted(maps.Keys(counts))
	switch len(versions) {
	case 0:
		f.unchecked(cluster, "no answer told its version")
	case 1:
		f.fine(fmt.Sprintf("kube-apiserver %s (%s%s)", versions[0], plural(counts[versions[0]], "answer"), known))
	default:
		var parts []string
		for _, v := range versions {
			parts = append(parts, fmt.Sprintf("%s (%s)", v, plural(counts[v], "answer")))
		}
		f.add(serverMixed, cluster, "kube-apiserver "+strings.Join(parts, ", ")+known)
	}
}

func checkGate(x *examination, f *findings) {
	kept, dropped := 0, 0
	unknown := ""
	for _, a := range x.Answers {
		switch {
		case a.FieldsUnknown != "":
			unknown = cmp.Or(unknown, a.FieldsUnknown)
		case a.FieldsKept:
			kept++
		default:
			dropped++
		}
	}
	switch x.gate {
	case gateOn:
		f.fine(fmt.Sprintf("on: %d of %s kept spec.strategy and spec.preferredHolder", kept, plural(kept+dropped, "answer")))
	case gateOff:
		f.add(gateOffOutcome, cluster, fmt.Sprintf("off: %d of %s dropped spec.strategy and spec.preferredHolder", dropped, plural(kept+dropped, "answer")))
	case gateMixed:
		f.add(gateMixedOutcome, cluster, fmt.Sprintf("mixed: %s kept spec.strategy and spec.preferredHolder, %d dropped them", plural(kept, "answer"), dropped))
	default:
		if x.fieldsShown() == gateOn {
			unknown += " (Leases show that it was on when they were written)"
		}
		f.unchecked(cluster, unknown)
	}
}

// served is what the answers that tell it serve.
type served struct {
	answers int
	// native and custom have, for each version, how many serve it.
	native, custom map[string]int
	unknown        string
}

func (x *examination) served() served {
	s := served{native: map[string]int{}, custom: map[string]int{}}
	for _, a := range x.Answers {
		if a.KindsUnknown != "" {
			s.unknown = cmp.Or(s.unknown, a.KindsUnknown)
			continue
		}
		s.answers++
		for _, v := range a.Native {
			s.native[v]++
		}
		for _, v := range a.Custom {
			s.custom[v]++
		}
	}
	return s
}

// known are the native versions that this program understands and somebody serves, in order.
func (x *examination) known(s served) []string {
	var known []string
	for _, v := range slices.Sorted(maps.Keys(s.native)) {
		if slices.Contains(x.Understood, v) {
			known = append(known, v)
		}
	}
	return known
}

func checkCandidateAPI(x *examination, f *findings) {
	s := x.served()
	if s.answers == 0 {
		f.unchecked(cluster, s.unknown)
		return
	}
	known, ours := x.known(s), s.custom[customVersion] > 0
	var names []string
	mixed := false
	count := func(group string, versions map[string]int) {
		for _, v := range slices.Sorted(maps.Keys(versions)) {
			name := group + "/" + v
			if n := versions[v]; n < s.answers {
				name += fmt.Sprintf(" (%d of %s)", n, plural(s.answers, "answer"))
				mixed = true
			}
			names = append(names, name)
		}
	}
	count(coordinationv1.GroupName, s.native)
	count(v1alpha1.Group, s.custom)
	all := "served: " + strings.Join(names, ", ")
	before := len(f.list)
	switch {
	case len(s.native) == 0 && (x.gate == gateOn || x.gate == gateMixed):
		f.add(apiMissing, cluster, "the gate is on, but "+coordinationv1.GroupName+" serves no LeaseCandidate")
	case len(s.native) > 0 && len(known) == 0:
		f.add(apiUnknown, cluster, all)
	}
	if len(s.native) == 0 && !ours {
		f.add(apiNone, cluster, "no LeaseCandidate is served")
	}
	if mixed {
		f.add(apiMixed, cluster, all)
	}
	if len(f.list) == before || len(f.list) == before+1 && f.list[before].Outcome == apiMissing.ID && ours {
		f.fine(all)
	}
}

// customVersion is the version of our own LeaseCandidate that this program knows.
var customVersion = v1alpha1.SchemeGroupVersion.Version

// unavailable finds the release in kube-apiserver's warning "coordination.k8s.io/v1beta1 LeaseCandidate is deprecated in
// v1.36+, unavailable in v1.39+".
var unavailable = regexp.MustCompile(`^` + regexp.QuoteMeta(coordinationv1.GroupName) + `/(\S+) LeaseCandidate\b.*\bunavailable in v(\d+)\.(\d+)\+`)

// removal returns the release that serves a native version no more, and who says so. kube-apiserver's own word goes
// first.
func (x *examination) removal(v string) (Release, string) {
	for _, text := range x.ServerWarnings {
		if m := unavailable.FindStringSubmatch(text); m != nil && m[1] == v {
			major, _ := strconv.Atoi(m[2])
			minor, _ := strconv.Atoi(m[3])
			return Release{major, minor}, "as kube-apiserver warns"
		}
	}
	return x.Removals[v], "as Kubernetes has announced"
}

func (r Release) String() string { return fmt.Sprintf("v%d.%d", r.Major, r.Minor) }

func checkLifetime(x *examination, f *findings) {
	s := x.served()
	known := x.known(s)
	switch {
	case s.answers == 0:
		f.unchecked(cluster, s.unknown)
		return
	case len(known) == 0:
		f.fine("no native LeaseCandidate that this coordinator knows is served")
		return
	}
	// The version that lasts longest counts.
	var last, said = "", ""
	var end Release
	for _, v := range known {
		release, by := x.removal(v)
		if release == (Release{}) {
			f.fine(fmt.Sprintf("%s/%s has no announced end", coordinationv1.GroupName, v))
			return
		}
		if last == "" || end.Major < release.Major || end.Major == release.Major && end.Minor < release.Minor {
			last, end, said = v, release, by
		}
	}
	found := fmt.Sprintf("%s/%s is served up to v%d.%d, %s", coordinationv1.GroupName, last, end.Major, end.Minor-1, said)
	outcome := lifetimeLimited
	if newest := x.newest(); newest != nil {
		found += fmt.Sprintf("; this is v%d.%d", newest.Major(), newest.Minor())
		if s.custom[customVersion] == 0 && uint(end.Major) == newest.Major() && uint(end.Minor) <= newest.Minor()+1 {
			outcome = lifetimeEnding
		}
	}
	if s.custom[customVersion] > 0 {
		found += "; ours is served as well"
	}
	f.add(outcome, cluster, found, values{"VERSION": end.String()})
}

// newest returns the highest version that answered.
func (x *examination) newest() *version.Version {
	var newest *version.Version
	for _, a := range x.Answers {
		if v, err := version.ParseGeneric(a.Version); err == nil && (newest == nil || newest.LessThan(v)) {
			newest = v
		}
	}
	return newest
}

func checkCRD(x *examination, f *findings) {
	crd := x.CRD
	switch {
	case crd.Unknown != "":
		f.unchecked(cluster, crd.Unknown)
		return
	case crd.Installed == nil:
		f.fine("not installed")
		return
	}
	name := at[string](crd.Installed, "metadata", "name")
	about := object{kind: "CustomResourceDefinition", name: name}
	before := len(f.list)
	if conditions, established := conditionsOf(crd.Installed); !established {
		f.add(crdNotEstablished, about, "not established: "+cmp.Or(conditions, "it has no conditions yet"))
	}
	installed := crdVersionOf(crd.Installed, customVersion)
	if installed == nil || !at[bool](installed, "served") {
		f.add(crdVersion, about, "does not serve version "+customVersion)
	} else if shipped := crdVersionOf(crd.Shipped, customVersion); shipped != nil {
		if differences := differences(shipped, installed); len(differences) > 0 {
			f.add(crdDrift, about, "differs from this release's in "+few(differences))
		}
	}
	if len(f.list) == before {
		found := "installed, established"
		if crd.Shipped != nil {
			found += ", the one of this release"
		}
		f.fine(found)
	}
}

// at returns what is at a path of decoded JSON, or the zero value.
func at[T any](in map[string]any, path ...string) T {
	var value any = in
	for _, name := range path {
		m, _ := value.(map[string]any)
		value = m[name]
	}
	t, _ := value.(T)
	return t
}

func conditionsOf(crd map[string]any) (text string, established bool) {
	var parts []string
	for _, item := range at[[]any](crd, "status", "conditions") {
		c, _ := item.(map[string]any)
		kind, status := at[string](c, "type"), at[string](c, "status")
		if kind == "Established" && status == "True" {
			established = true
		}
		if status != "True" {
			parts = append(parts, fmt.Sprintf("%s is %s (%s)", kind, status, at[string](c, "message")))
		}
	}
	return strings.Join(parts, "; "), established
}

func crdVersionOf(crd map[string]any, name string) map[string]any {
	for _, item := range at[[]any](crd, "spec", "versions") {
		if v, _ := item.(map[string]any); at[string](v, "name") == name {
			return v
		}
	}
	return nil
}

// differences returns the paths at which what is installed is not what was shipped. Descriptions do not count, nor does
// what only the API server fills in.
func differences(shipped, installed any) []string {
	var paths []string
	var walk func(path string, a, b any)
	walk = func(path string, a, b any) {
		x, isMap := a.(map[string]any)
		y, bothMaps := b.(map[string]any)
		if isMap && bothMaps {
			names := map[string]bool{}
			//ordered: keys of a map to be
			for name := range x {
				names[name] = true
			}
			//ordered: keys of a map to be
			for name := range y {
				names[name] = true
			}
			for _, name := range slices.Sorted(maps.Keys(names)) {
				if _, isText := x[name].(string); name == "description" && (isText || x[name] == nil) {
					continue
				}
				walk(strings.TrimPrefix(path+"."+name, "."), x[name], y[name])
			}
			return
		}
		if !reflect.DeepEqual(a, b) && !(isZero(a) && isZero(b)) {
			paths = append(paths, path)
		}
	}
	walk("", shipped, installed)
	return paths
}

// isZero reports whether a value says no more than its absence.
func isZero(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

// few joins the first few of a list.
func few(list []string) string {
	const most = 5
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
