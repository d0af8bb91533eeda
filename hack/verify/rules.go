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

// This file is all there is to change when a rule changes. The checks in the other files only apply it.

// importRule says which packages of this module a package may import. The rules of packages below it may
// differ; the one that names the longest path counts. A package without any rule is an error, so that a new one
// gets its place in the house on purpose. Test files may import what they like.
type importRule struct {
	of  string   // folder, and what is below it
	may []string // folders whose packages it may import, and what is below them
	why string
}

// Imports point one way: cmd -> coordinator -> controller -> {election, leaseapi, observe} -> strategy -> api.
var importRules = []importRule{
	{"api", nil,
		"candidates in other people's programs import it"},
	{"api/config", nil,
		"it is the form of a file; what the file means is for the coordinator to say"},

	{"internal/strategy", []string{"api"},
		"ranking is pure: a strategy sees candidates and nothing else"},
	{"internal/election", []string{"api", "internal/strategy"},
		"every rule of the protocol is here, and runs without a cluster"},
	{"internal/candidacy", []string{"api"},
		"a candidate's state machine knows nothing of the coordinator"},

	{"internal/leaseapi", []string{"api", "internal/strategy"},
		"it hides the cluster's flavour and decides nothing"},
	{"internal/access", []string{"api"},
		"it says what a coordinator must be allowed to do, for the coordinator and for whoever checks one"},
	{"internal/observe", []string{"api", "internal/election", "internal/strategy"},
		"it describes decisions and takes none"},
	{"internal/controller", []string{"api", "internal/election", "internal/leaseapi", "internal/observe", "internal/strategy"},
		"it gathers, asks election, and carries out"},
	{"internal/coordinator", []string{"api", "internal/access", "internal/controller", "internal/election", "internal/explain", "internal/leaseapi", "internal/observe", "internal/strategy"},
		"it wires, and is what cmd calls"},
	{"internal/explain", []string{"api", "internal/election", "internal/leaseapi", "internal/strategy"},
		"it tells what election decides, of objects that anybody may have read, and decides nothing itself"},
	{"internal/doctor", []string{"api", "internal/doctor", "internal/election", "internal/explain", "internal/leaseapi", "internal/strategy"},
		"it asks a cluster and says what was found; it decides nothing and stores nothing"},
	{"internal/doctor/checks", []string{"api", "internal/election", "internal/leaseapi", "internal/strategy"},
		"facts in, findings out"},
	{"cmd/coordinator", []string{"api", "internal/access", "internal/coordinator", "internal/doctor", "internal/explain"},
		"flags, configuration, run; nothing else"},

	{"pkg/candidate", []string{"api", "internal/candidacy", "pkg/fencing"},
		"the library and the coordinator share API types only"},
	{"pkg/fencing", []string{"api"},
		"receivers of a leader's actions import it"},

	{"examples", []string{"api", "pkg"},
		"they show what other people's programs can do"},

	{"internal/simulation", []string{"api", "internal", "pkg"},
		"it drives the real code; no product code may import it"},
	{"test", []string{"api", "internal", "pkg", "test"},
		"it drives the real code; no product code may import it"},
	{"hack/verify", []string{"api", "hack/internal", "internal/coordinator"},
		"it asks the coordinator whether the flags in config/ exist, and knows nothing else of the product but its names"},
	{"hack/compatibility", []string{"test/e2e/compatibility"},
		"it writes down what the tests tell"},
	{"hack/doctor", []string{"internal/doctor/checks"},
		"it writes down what is checked there"},
	{"hack/monitoring", []string{"internal/observe"},
		"it writes down what is defined there"},
	{"hack", []string{"hack/internal"},
		"tools of the repository, apart from the product"},
}

// otherModules are all the modules, besides this one and the standard library, that the packages of a folder may import.
// Who imports an API takes all of them along.
var otherModules = map[string][]string{
	"api/v1alpha1": {"k8s.io/api", "k8s.io/apimachinery"},
}

// ownModules are folders with a go.mod of their own. The compiler keeps their packages and this module's apart.
var ownModules = []string{"hack/controlplane", "hack/release"}

// purePackages compute: snapshot in, decision out. They own no client, clock, random source or goroutine, which
// is what lets the controller, the simulation and an explanation run the very same code. Their test files are free.
var purePackages = []string{
	"internal/candidacy",
	"internal/doctor/checks",
	"internal/election",
	"internal/strategy",
}

// impureImports are not for pure packages, nor are the packages below them.
var impureImports = map[string]string{
	"crypto/rand":                    "same input, same output",
	"github.com/go-logr/logr":        "no logger: the decision's sentence says it",
	"k8s.io/client-go":               "no client",
	"k8s.io/component-base":          "no logger, no metrics: decorators measure",
	"k8s.io/klog":                    "no logger: the decision's sentence says it",
	"k8s.io/utils/clock":             "now is an argument",
	"log":                            "no logger: the decision's sentence says it",
	"math/rand":                      "same input, same output",
	"net":                            "no network",
	"os":                             "no environment",
	"sigs.k8s.io/controller-runtime": "no client",
	"sync":                           "no goroutine, so nothing to guard",
	"syscall":                        "no environment",
}

// clockCalls are the functions of package time that read a clock or wait for it.
var clockCalls = map[string]bool{
	"After": true, "AfterFunc": true, "NewTicker": true, "NewTimer": true, "Now": true,
	"Since": true, "Sleep": true, "Tick": true, "Until": true,
}

// orderedMark, with a reason after it, on the line of a loop over a map or on the one above, says that the
// order of the map's keys cannot be seen in the result.
const orderedMark = "//ordered:"

// allowedSleeps are the test files that may call time.Sleep, and why. A sleep makes a test slow, or flaky, or
// both; wait for what is waited for, or use testing/synctest.
var allowedSleeps = map[string]string{}

// bannedPackageNames say nothing about what is in the package.
var bannedPackageNames = map[string]bool{
	"base": true, "common": true, "helper": true, "helpers": true, "lib": true, "misc": true,
	"shared": true, "util": true, "utils": true,
}
