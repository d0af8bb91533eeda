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
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// CandidateOptions describe a process of test/candidate: a controller built on
// unmodified client-go that works while it leads.
type CandidateOptions struct {
	// Namespace and Lease it competes for. Required.
	Namespace, Lease string
	// Name is its holder identity and, with a number if taken, the name of the
	// process. Required.
	Name string
	// BinaryVersion and EmulationVersion default to the control plane's
	// version, as "major.minor.0".
	BinaryVersion, EmulationVersion string
	// Strategy. Default: OldestEmulationVersion.
	Strategy string
	// Plain makes it a plain elector that registers no LeaseCandidate.
	Plain bool
	// LeaseDuration, RenewDeadline and RetryPeriod default to 15, 10 and 2 s.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// ReleaseOnCancel releases the lease when the process is told to end.
	ReleaseOnCancel bool
	// ClockOffset shifts every time stamp it writes to the API.
	ClockOffset time.Duration
	// Rejoin makes it compete again after a loss, in the same process and
	// under the same identity. The default is to exit with status 0.
	Rejoin bool
	// Restart starts it again when it exits, under the same identity.
	Restart bool
	// Args are further flags.
	Args []string
}

// Candidate is a process of test/candidate.
type Candidate struct {
	*Process
	// Identity is its holder identity and the name of its LeaseCandidate.
	Identity string
	// WorkLog is the file it stamps every 20 ms while it leads, see WorkStamps.
	WorkLog string
}

// StartCandidate runs a candidate against the node's kube-apiserver. It does
// not wait for it to register; see Recorder.WaitFor.
func (n *Node) StartCandidate(ctx context.Context, opts CandidateOptions) (*Candidate, error) {
	if opts.Namespace == "" || opts.Lease == "" || opts.Name == "" {
		return nil, fmt.Errorf("starting candidate %q: Namespace, Lease and Name are required", opts.Name)
	}
	bin, err := BuildCandidate(ctx)
	if err != nil {
		return nil, err
	}
	if opts.BinaryVersion == "" {
		opts.BinaryVersion = n.cluster.version + ".0"
	}
	if opts.EmulationVersion == "" {
		opts.EmulationVersion = n.cluster.version + ".0"
	}
	if opts.Strategy == "" {
		opts.Strategy = "OldestEmulationVersion"
	}
	defaultDurations(&opts.LeaseDuration, &opts.RenewDeadline, &opts.RetryPeriod)
	info := ProcessInfo{
		Name: opts.Name, Kind: CandidateKind, Node: n.Name,
		Lease: opts.Namespace + "/" + opts.Lease, Emulation: majorMinor(opts.EmulationVersion),
		Identity: opts.Name,
	}
	p := n.cluster.newProcess(info, bin)
	kubeconfig, err := n.kubeconfig(n.cluster.creds.take(CandidateUser, p.Info()), p.Name())
	if err != nil {
		return nil, err
	}
	c := &Candidate{Process: p, Identity: opts.Name, WorkLog: filepath.Join(n.cluster.dir, "logs", p.Name()+".work")}
	p.restart = opts.Restart
	p.args = append([]string{
		"--kubeconfig=" + kubeconfig,
		"--namespace=" + opts.Namespace,
		"--lease=" + opts.Lease,
		"--name=" + opts.Name,
		"--binary-version=" + opts.BinaryVersion,
		"--emulation-version=" + opts.EmulationVersion,
		"--strategy=" + opts.Strategy,
		fmt.Sprintf("--coordinated=%t", !opts.Plain),
		"--lease-duration=" + opts.LeaseDuration.String(),
		"--renew-deadline=" + opts.RenewDeadline.String(),
		"--retry-period=" + opts.RetryPeriod.String(),
		fmt.Sprintf("--release-on-cancel=%t", opts.ReleaseOnCancel),
		"--clock-offset=" + opts.ClockOffset.String(),
		fmt.Sprintf("--rejoin=%t", opts.Rejoin),
		"--work-log=" + c.WorkLog,
	}, opts.Args...)
	return c, p.Start()
}

// majorMinor cuts a version to "major.minor".
func majorMinor(v string) string {
	var major, minor int
	if _, err := fmt.Sscanf(v, "%d.%d", &major, &minor); err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", major, minor)
}
