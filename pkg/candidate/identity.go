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
	"fmt"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lease-coordinator/coordinator/api/v1alpha1"
)

// uuidLength is the number of characters of a UUID in its usual form.
const uuidLength = 36

// defaultIdentity returns "<host>-<random UUID>", with the host's name made fit for the name of every kind of
// LeaseCandidate, a DNS-1123 subdomain. It is the UUID alone if nothing of the host's name is left.
func defaultIdentity(host string) string {
	id := uuid.NewString()
	if host = subdomainOf(host, validation.DNS1123SubdomainMaxLength-1-uuidLength); host == "" {
		return id
	}
	return host + "-" + id
}

// subdomainOf returns name as a DNS-1123 subdomain of at most that many characters: in lower case, cut, with a hyphen for each
// character that may not be in it, and without what may not be at the ends of its labels. A Node's name stays as it is.
func subdomainOf(name string, length int) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.':
			return r
		}
		return '-'
	}, strings.ToLower(name))
	var labels []string
	for _, label := range strings.Split(name[:min(len(name), length)], ".") {
		if label = strings.Trim(label, "-"); label != "" {
			labels = append(labels, label)
		}
	}
	return strings.Join(labels, ".")
}

// fits returns an error if no LeaseCandidate of that kind can have this name. What every kind asks of it is checked before.
func (r *registration) fits(kind schema.GroupVersionResource) error {
	if kind.Group != v1alpha1.Group {
		return nil
	}
	if faults := validation.IsDNS1123Subdomain(r.name); len(faults) > 0 {
		return fmt.Errorf("%w: Identity %q cannot be the name of a LeaseCandidate of %s, which is the kind that the API server serves: %s",
			errUnfit, r.name, kind.GroupVersion(), strings.Join(faults, "; "))
	}
	return nil
}
