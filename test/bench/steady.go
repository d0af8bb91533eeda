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
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// auditPolicy logs which requests the candidates make, and nothing of what they say.
var auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [` + framework.WorkerUser + `, ` + framework.CandidateUser + `]
- level: None
`

const (
	retryPeriod = 2 * time.Second
	// steadyTime is for how long nothing happens, which is a whole number of retry periods.
	steadyTime = 20 * time.Second
	// steadyGroups is how many leases of each system there are meanwhile, with two candidates each.
	steadyGroups = 5
	// footprints is how many processes are looked at with the library, and without; for that they must be as old as this, by
	// when the connections that a start needs besides have been closed, and memory has been collected.
	footprints   = 7
	footprintAge = 130 * time.Second
)

// report is that of test/bench/footprint.
type report struct {
	Synced     bool  `json:"synced"`
	Goroutines int   `json:"goroutines"`
	RSS        int64 `json:"rss"`
	Collected  int64 `json:"collected"`
}

// usage is the requests of one candidate or of several alike.
type usage struct {
	system string
	leader bool
	n      int
	// writes to the lease, and others, in the time that was looked at; watches since the start.
	writes, others, watches float64
}

func (b *bench) steady(ctx context.Context) ([]usage, error) {
	var candidates []*framework.Candidate
	defer func() {
		for _, c := range candidates {
			_ = c.Stop(context.WithoutCancel(ctx))
		}
	}()
	for i := range steadyGroups {
		for _, s := range systems {
			g, err := b.newGroup(ctx, s.name, fmt.Sprintf("steady-%s-%d", s.name, i))
			if err != nil {
				return nil, err
			}
			leader, err := g.first(ctx)
			if err != nil {
				return nil, err
			}
			candidates = append(candidates, leader)
			standby, err := g.start(ctx)
			if err != nil {
				return nil, err
			}
			candidates = append(candidates, standby)
		}
	}
	if err := framework.Pause(ctx, leastQuiet); err != nil {
		return nil, err
	}
	from := time.Now()
	if err := framework.Pause(ctx, steadyTime); err != nil {
		return nil, err
	}
	return b.requests(ctx, from, from.Add(steadyTime))
}

// leastQuiet is how long after the last start nothing is left to be done by whoever has started.
const leastQuiet = 6 * time.Second

// auditRecord is the part of an audit.k8s.io/v1 Event that is read.
type auditRecord struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
		UID      string `json:"uid"`
	} `json:"user"`
	ObjectRef struct {
		Resource string `json:"resource"`
	} `json:"objectRef"`
	RequestReceivedTimestamp metav1.MicroTime `json:"requestReceivedTimestamp"`
}

// requests counts what candidates asked of the API server. They are told apart by their tokens' uids.
func (b *bench) requests(ctx context.Context, from, to time.Time) ([]usage, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var log []byte
	// Leaders go on renewing, so that something later comes to be logged, too.
	if err := framework.WaitFor(ctx, "the audit log", func(context.Context) (bool, error) {
		var err error
		if log, err = os.ReadFile(b.audit); err != nil {
			return false, fmt.Errorf("reading the audit log: %w", err)
		}
		log = log[:bytes.LastIndexByte(log, '\n')+1]
		records, err := parseAudit(log)
		return len(records) > 0 && records[len(records)-1].RequestReceivedTimestamp.After(to.Add(time.Second)), err
	}); err != nil {
		return nil, err
	}
	records, err := parseAudit(log)
	if err != nil {
		return nil, err
	}
	return count(records, from, to), nil
}

func parseAudit(log []byte) ([]auditRecord, error) {
	var records []auditRecord
	for line := range bytes.Lines(log) {
		var r auditRecord
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		records = append(records, r)
	}
	return records, nil
}

// count sums requests up by system and by whether the candidate leads, which is whether it writes to the lease.
func count(records []auditRecord, from, to time.Time) []usage {
	candidates := map[string]*usage{}
	for _, r := range records {
		u := candidates[r.User.UID]
		if u == nil {
			u = &usage{system: library}
			if r.User.Username == framework.CandidateUser {
				u.system = clientGo
			}
			candidates[r.User.UID] = u
		}
		at := r.RequestReceivedTimestamp.Time
		switch {
		case r.Verb == "watch":
			// The other stage is its end.
			if r.Stage == "ResponseStarted" && at.Before(to) {
				u.watches++
			}
		case r.Stage != "ResponseComplete" || at.Before(from) || !at.Before(to):
		case r.ObjectRef.Resource == "leases" && (r.Verb == "patch" || r.Verb == "update"):
			u.writes++
			u.leader = true
		default:
			u.others++
		}
	}
	var sums []usage
	for _, system := range []string{library, clientGo} {
		for _, leader := range []bool{true, false} {
			sum := usage{system: system, leader: leader}
			for _, u := range candidates {
				if u.system == system && u.leader == leader {
					sum.n++
					sum.writes, sum.others, sum.watches = sum.writes+u.writes, sum.others+u.others, sum.watches+u.watches
				}
			}
			if sum.n > 0 {
				n := float64(sum.n)
				sum.writes, sum.others, sum.watches = sum.writes/n, sum.others/n, sum.watches/n
				sums = append(sums, sum)
			}
		}
	}
	return sums
}

// probe is a process of test/bench/footprint.
type probe struct {
	role    string
	command *exec.Cmd
	ask     io.WriteCloser
	answers *bufio.Scanner
}

func (b *bench) startFootprints(ctx context.Context) ([]*probe, error) {
	binary, err := framework.BuildFootprint(ctx)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := b.cluster.Nodes[0].Kubeconfig(framework.AdminUser)
	if err != nil {
		return nil, err
	}
	namespace, err := b.cluster.CreateNamespace(ctx, "bench")
	if err != nil {
		return nil, err
	}
	var probes []*probe
	for i := range len(roles) * footprints {
		p := &probe{role: roles[i%len(roles)].name}
		name := fmt.Sprintf("footprint-%d", i)
		// It ends when its standard input does, that is when this process does at the latest.
		p.command = exec.Command(binary, "--kubeconfig="+kubeconfig, "--namespace="+namespace, "--lease="+name, "--name="+name,
			roles[i%len(roles)].flag)
		p.command.Stderr = os.Stderr
		if p.ask, err = p.command.StdinPipe(); err != nil {
			return probes, fmt.Errorf("starting %s: %w", name, err)
		}
		answers, err := p.command.StdoutPipe()
		if err != nil {
			return probes, fmt.Errorf("starting %s: %w", name, err)
		}
		p.answers = bufio.NewScanner(answers)
		if err := p.command.Start(); err != nil {
			return probes, fmt.Errorf("starting %s: %w", name, err)
		}
		probes = append(probes, p)
	}
	return probes, nil
}

func (p *probe) report() (report, error) {
	if _, err := fmt.Fprintln(p.ask); err != nil {
		return report{}, fmt.Errorf("asking a footprint: %w", err)
	}
	if !p.answers.Scan() {
		return report{}, errors.Join(errors.New("a footprint does not answer"), p.answers.Err())
	}
	var r report
	if err := json.Unmarshal(p.answers.Bytes(), &r); err != nil {
		return report{}, fmt.Errorf("reading a footprint's answer %q: %w", p.answers.Text(), err)
	}
	if !r.Synced {
		return report{}, fmt.Errorf("the informer of a process with %s has not synced", p.role)
	}
	return r, nil
}

func (p *probe) stop() {
	_ = p.ask.Close()
	_ = p.command.Wait()
}

// roles are what processes are besides clients of the API server, nothing first.
var roles = []struct{ name, flag string }{
	{"clientset and informer", "--candidate=false"},
	{"the same and client-go's elector, leading", "--elector"},
	{withLibrary, "--candidate"},
}

const withLibrary = "the same and the library, leading"

// sumUp returns the medians of the processes of each role.
func sumUp(probes []*probe) (map[string]report, error) {
	reports := make([]report, len(probes))
	var group errgroup.Group
	for i, p := range probes {
		group.Go(func() (err error) { reports[i], err = p.report(); return err })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	medians := map[string]report{}
	for _, role := range roles {
		var goroutines []int
		var rss, collected []int64
		for i, p := range probes {
			if p.role == role.name {
				goroutines, rss, collected = append(goroutines, reports[i].Goroutines), append(rss, reports[i].RSS), append(collected, reports[i].Collected)
			}
		}
		slices.Sort(goroutines)
		slices.Sort(rss)
		slices.Sort(collected)
		medians[role.name] = report{true, goroutines[len(goroutines)/2], rss[len(rss)/2], collected[len(collected)/2]}
	}
	return medians, nil
}

// What the library may add to a process.
const (
	mostGoroutines = 12
	mostRSS        = 3 << 20
)

func printRequests(w io.Writer, requests []usage) {
	periods := float64(steadyTime / retryPeriod)
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "while nothing happens\tn\twrites of the lease per retry period\tother requests\twatches since the start\ttarget")
	for _, u := range requests {
		role, aim := "follower", judge("0, 0, 2", u.others == 0 && u.watches <= 2)
		if u.leader {
			role, aim = "leader", judge("1, 0, 2", u.writes <= periods && u.others == 0 && u.watches <= 2)
		}
		if u.system != library {
			aim = ""
		}
		fmt.Fprintf(tw, "%s, %s\t%d\t%.2f\t%.2f\t%.1f\t%s\n", u.system, role, u.n, u.writes/periods, u.others/periods, u.watches, aim)
	}
	_ = tw.Flush()
}

func printFootprints(w io.Writer, medians map[string]report) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "process\tn\tgoroutines\tmore\tRSS\tmore\tgarbage collected\tmore\ttarget")
	least := medians[roles[0].name]
	for _, role := range roles {
		r := medians[role.name]
		goroutines, rss := r.Goroutines-least.Goroutines, r.RSS-least.RSS
		aim := ""
		if role.name == withLibrary {
			aim = judge(fmt.Sprintf("%d, %s more", mostGoroutines, mebibytes(mostRSS)), goroutines <= mostGoroutines && rss <= mostRSS)
		}
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", role.name, footprints, r.Goroutines, goroutines,
			mebibytes(r.RSS), mebibytes(rss), mebibytes(r.Collected), mebibytes(r.Collected-least.Collected), aim)
	}
	_ = tw.Flush()
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
