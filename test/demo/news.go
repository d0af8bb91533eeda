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

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// news is something to tell, once.
type news struct {
	at    time.Time
	key   string
	style string
	text  string
}

// teller tells news in the order in which they happened.
type teller struct {
	screen *screen

	mu   sync.Mutex
	told map[string]bool
}

func newTeller(s *screen) *teller { return &teller{screen: s, told: map[string]bool{}} }

const (
	// tellEvery is how often to look for news.
	tellEvery = 200 * time.Millisecond
	// lateness is how late they are told: by then all are known that happened before.
	lateness = 400 * time.Millisecond
)

// tell tells those of the news that were not told yet and happened up to that moment.
func (l *teller) tell(until time.Time, all []news) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortStableFunc(all, func(a, b news) int { return a.at.Compare(b.at) })
	for _, n := range all {
		if l.told[n.key] || n.at.After(until) {
			continue
		}
		l.told[n.key] = true
		l.screen.sayAt(n.at, n.style, margin, "%s", n.text)
	}
}

// every calls do at once and then periodically, until ctx ends.
func every(ctx context.Context, period time.Duration, do func()) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		do()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// terms tells who began to lead a lease and who stopped, by their own word.
func terms(t framework.Timeline, lease string, name func(framework.Term) string) []news {
	var all []news
	leaders := t.Leaders(lease)
	for i, term := range leaders {
		text := fmt.Sprintf("%s: %s leads", bare(lease), name(term))
		if i > 0 {
			text += since(leaders[i-1], term, name)
		}
		key := fmt.Sprint(lease, " ", i)
		all = append(all, news{term.Start, key + " begins", green, text})
		if !term.Ongoing {
			all = append(all, news{term.End, key + " ends", plain, fmt.Sprintf("%s: %s stops", bare(lease), name(term))})
		}
	}
	return all
}

// since tells what was between two terms.
func since(before, term framework.Term, name func(framework.Term) string) string {
	if before.Ongoing || before.End.After(term.Start) {
		// It hangs, or it is not aware of its loss yet.
		return fmt.Sprintf(", and %s has not said that it stopped", name(before))
	}
	return fmt.Sprintf(", after %.1f s without a leader", term.Start.Sub(before.End).Seconds())
}

// news tells a decision in the coordinator's own words.
func (d decision) news() news {
	return news{d.Time, fmt.Sprint("decision ", d.Lease, " ", d.Time), yellow, bare(d.Lease) + ": " + d.Sentence}
}

// bare is a lease's name without its namespace.
func bare(lease string) string {
	_, name, _ := strings.Cut(lease, "/")
	return name
}
