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

// Package upgrade is the script of a skewed upgrade: three nodes with a kube-apiserver, a kube-controller-manager,
// a kube-scheduler and a coordinator each are upgraded one by one, and rolled back one by one, in the order that
// Kubernetes' version skew policy asks for. It says what happened and judges it; the end-to-end test asserts that
// judgement, and the demo shows it. It is the operator, and knows nothing of how leaders are chosen.
package upgrade

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lease-coordinator/coordinator/test/e2e/framework"
)

// Nodes is how many nodes the script is for.
const Nodes = 3

// settleTimeout bounds the wait for leaders after a step. A failover with the components' default durations takes
// 17 s; the rest is for busy machines.
const settleTimeout = 90 * time.Second

// Election is how the instances of a component elect their leader.
type Election string

// The ways.
const (
	// Coordinated is by the coordinator.
	Coordinated Election = "coordinated"
	// Plain is first come, first served, as components do today.
	Plain Election = "plain"
)

// Options say what goes through the upgrade.
type Options struct {
	// Elections that go through it side by side, each with components of its own. The first one sets the pace: its
	// leaders are waited for between steps. Default: Coordinated.
	Elections []Election
	// RenewDeadline of the components: how long a leader does without its kube-apiserver, whose restart takes longer
	// the busier the machine is. Leases last 5 s longer. Default: 10 s, as the components have it.
	RenewDeadline time.Duration
	// CoordinatorBinary to run. Default: what framework.BuildCoordinator builds.
	CoordinatorBinary string
	// OnStep, if set, is called when a step begins and again, with Done set, when everything has settled.
	OnStep func(Step)
}

// ClusterOptions describe the cluster that New needs, at the older of the two versions.
func ClusterOptions(progress io.Writer) framework.Options {
	return framework.Options{
		Nodes:                     Nodes,
		CoordinatedLeaderElection: true,
		EmulationVersion:          older,
		Progress:                  progress,
	}
}

// The binaries are v1.37, so these are the versions that they can be: what they are, and one before.
const (
	older = "1.36"
	newer = "1.37"
)

// Component is one program on all nodes: its instances compete for one lease.
type Component struct {
	Kind     framework.ProcessKind
	Election Election
	// Lease is "namespace/name".
	Lease string
	// Instances are in the order of the nodes.
	Instances []*framework.Component
}

// String names the component for people.
func (c *Component) String() string {
	if c.Election == Plain {
		return string(c.Kind) + " (plain leader election)"
	}
	return string(c.Kind)
}

// Step is one thing that the operator does.
type Step struct {
	// Number counts from 1 to Steps.
	Number int
	// Node it is done to.
	Node string
	// Programs are restarted, at version To instead of From.
	Programs []framework.ProcessKind
	From, To string
	// Done is set when it is done and everything has settled, After that long.
	Done  bool
	After time.Duration
}

// Steps is how many steps upgrade and rollback have together: two for each node, there and back.
const Steps = 2 * 2 * Nodes

// Rollback reports whether the step goes back.
func (s Step) Rollback() bool { return s.To == older }

// Script is an upgrade under way.
type Script struct {
	Cluster *framework.Cluster
	// Coordinators are in the order of the nodes; there are none unless an election is coordinated.
	Coordinators []*framework.Coordinator
	Components   []*Component
	Recorder     *framework.Recorder

	opts Options
	done int
	// upgraded has the nodes in the order in which they were upgraded, by index.
	upgraded []int

	mu sync.Mutex
	// replaced has the runs of processes that the operator ended.
	replaced map[processRun]bool
}

type processRun struct {
	name string
	run  int
}

// New starts the coordinators and components on a cluster made with ClusterOptions and returns when each component
// has a leader: kube-controller-manager on the first node, kube-scheduler on the second.
func New(ctx context.Context, cluster *framework.Cluster, opts Options) (*Script, error) {
	if cluster.Version() != newer {
		return nil, fmt.Errorf("the script is for Kubernetes v%s, not v%s", newer, cluster.Version())
	}
	if len(opts.Elections) == 0 {
		opts.Elections = []Election{Coordinated}
	}
	if opts.RenewDeadline == 0 {
		opts.RenewDeadline = 10 * time.Second
	}
	s := &Script{Cluster: cluster, opts: opts, replaced: map[processRun]bool{}}
	var err error
	if s.Recorder, err = cluster.Record(ctx, framework.RecorderOptions{Namespaces: []string{metav1.NamespaceSystem}}); err != nil {
		return nil, err
	}
	for _, election := range opts.Elections {
		for _, kind := range programs {
			s.Components = append(s.Components, &Component{
				Kind: kind, Election: election, Lease: metav1.NamespaceSystem + "/" + leaseName(kind, election),
				Instances: make([]*framework.Component, Nodes),
			})
		}
	}
	if slices.Contains(opts.Elections, Coordinated) {
		if err := s.startCoordinators(ctx); err != nil {
			return nil, err
		}
	}
	for _, election := range opts.Elections {
		// One node after another, since the older candidate leads where versions are equal. Crosswise, so that no
		// node has all the leaders.
		for i := range Nodes {
			if err := s.startComponents(ctx, election, i); err != nil {
				return nil, err
			}
			// Creation times have no fractions of a second, and those of one second count as equally old.
			if err := untilNextSecond(ctx); err != nil {
				return nil, err
			}
		}
	}
	return s, s.settle(ctx)
}

var programs = []framework.ProcessKind{framework.ControllerManagerKind, framework.SchedulerKind}

// leaseName is what the component competes for. A coordinated one knows only its own name.
func leaseName(kind framework.ProcessKind, election Election) string {
	if election == Plain {
		return "plain-" + string(kind)
	}
	return string(kind)
}

// startCoordinators starts one beside each kube-apiserver, as static Pods would, and waits until one of them is
// active: until then the in-tree coordinator is, and leaders would be of its choosing.
func (s *Script) startCoordinators(ctx context.Context) error {
	if err := s.Cluster.ApplyKustomization(ctx, "config/rbac"); err != nil {
		return err
	}
	for _, node := range s.Cluster.Nodes {
		c, err := node.StartCoordinator(ctx, framework.CoordinatorOptions{
			Name: node.Name + "/coordinator", Binary: s.opts.CoordinatorBinary,
			Args: []string{"--in-tree=replace"}, Restart: true,
		})
		if err != nil {
			return err
		}
		s.Coordinators = append(s.Coordinators, c)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, errors.New("not within "+settleTimeout.String()))
	defer cancel()
	_, err := framework.WaitActive(ctx, s.Coordinators...)
	return err
}

// ActiveCoordinator returns the coordinator that is active, or nil.
func (s *Script) ActiveCoordinator(ctx context.Context) *framework.Coordinator {
	return framework.Active(ctx, s.Coordinators...)
}

// startComponents starts the i-th instance of the components and waits until those that are candidates have
// registered.
func (s *Script) startComponents(ctx context.Context, election Election, i int) error {
	return each(s.electing(election), func(c *Component) error {
		place := i
		if c.Kind == framework.SchedulerKind && i < 2 {
			place = 1 - i
		}
		node := s.Cluster.Nodes[place]
		start := node.StartControllerManager
		if c.Kind == framework.SchedulerKind {
			start = node.StartScheduler
		}
		opts := framework.ComponentOptions{
			EmulationVersion: older, Plain: c.Election == Plain,
			LeaseDuration: s.opts.RenewDeadline + 5*time.Second, RenewDeadline: s.opts.RenewDeadline,
		}
		if opts.Plain {
			opts.LeaseName = leaseName(c.Kind, c.Election)
		}
		instance, err := start(ctx, opts)
		if err != nil {
			return err
		}
		c.Instances[place] = instance
		return s.Recorder.WaitFor(ctx, instance.Name()+" has registered", func(t framework.Timeline) bool {
			return c.registered(t, instance.Process)
		})
	})
}

// registered reports whether the present run of an instance has become a candidate. One that elects plainly is
// one from the start.
func (c *Component) registered(t framework.Timeline, instance *framework.Process) bool {
	if c.Election == Plain {
		return true
	}
	run := instance.Info()
	started := false
	for _, e := range t.Events {
		switch {
		case e.Kind == framework.ProcessStarted && e.Process.Name == run.Name && e.Process.Run == run.Run:
			started = true
		case started && e.Kind == framework.CandidateCreated && e.Writer == run.Name:
			return true
		}
	}
	return false
}

func untilNextSecond(ctx context.Context) error {
	now := time.Now()
	timer := time.NewTimer(now.Truncate(time.Second).Add(time.Second).Sub(now))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// electing returns the components that elect in that way.
func (s *Script) electing(election Election) []*Component {
	return slices.DeleteFunc(slices.Clone(s.Components), func(c *Component) bool { return c.Election != election })
}

// each calls do for all components at once.
func each(components []*Component, do func(*Component) error) error {
	errs := make([]error, len(components))
	var group sync.WaitGroup
	for i, c := range components {
		group.Go(func() { errs[i] = do(c) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// Upgrade upgrades node after node: its kube-apiserver first, so that no component is ever newer than the
// kube-apiserver beside it. It starts where kube-controller-manager leads, so that there is something to see at
// once, and goes on with nodes without leaders, so that leadership moves no more often than it must.
func (s *Script) Upgrade(ctx context.Context) error {
	for len(s.upgraded) < Nodes {
		i := s.next(len(s.upgraded) == 0)
		if err := s.step(ctx, i, older, newer, s.restartAPIServer, framework.APIServerKind); err != nil {
			return err
		}
		if err := s.step(ctx, i, older, newer, s.restartComponents, programs...); err != nil {
			return err
		}
		s.upgraded = append(s.upgraded, i)
	}
	return nil
}

// next chooses the node to upgrade next.
func (s *Script) next(leading bool) int {
	t := s.Recorder.Timeline()
	choice := -1
	for i, node := range s.Cluster.Nodes {
		if node.APIServer.Info().Emulation == newer {
			continue
		}
		leads := 0
		for _, c := range s.electing(s.opts.Elections[0]) {
			leader, ok := t.Leader(c.Lease)
			if ok && leader.Process.Node == node.Name && (!leading || c.Kind == framework.ControllerManagerKind) {
				leads++
			}
		}
		if choice < 0 || (leads > 0) == leading {
			choice = i
			if (leads > 0) == leading {
				break
			}
		}
	}
	return choice
}

// Rollback goes back, the node that was upgraded last first: on each node the components, then its kube-apiserver.
// A kube-apiserver goes back only when everything has settled, that is when no leader is newer than it will be.
func (s *Script) Rollback(ctx context.Context) error {
	for len(s.upgraded) > 0 {
		i := s.upgraded[len(s.upgraded)-1]
		if err := s.step(ctx, i, newer, older, s.restartComponents, programs...); err != nil {
			return err
		}
		if err := s.step(ctx, i, newer, older, s.restartAPIServer, framework.APIServerKind); err != nil {
			return err
		}
		s.upgraded = s.upgraded[:len(s.upgraded)-1]
	}
	return nil
}

// step does one step and waits until everything has settled.
func (s *Script) step(ctx context.Context, i int, from, to string, do func(context.Context, int, string) error, programs ...framework.ProcessKind) error {
	s.done++
	begun := time.Now()
	step := Step{Number: s.done, Node: s.Cluster.Nodes[i].Name, Programs: programs, From: from, To: to}
	s.Recorder.Mark("step %d: %s of %s from %s to %s", step.Number, step.Programs, step.Node, step.From, step.To)
	s.tell(step)
	if err := do(ctx, i, flag(to)); err != nil {
		return fmt.Errorf("step %d, on %s: %w", step.Number, step.Node, err)
	}
	if err := s.settle(ctx); err != nil {
		return fmt.Errorf("step %d, on %s: %w", step.Number, step.Node, err)
	}
	step.Done, step.After = true, time.Since(begun)
	s.tell(step)
	return nil
}

// flag is the value of --emulated-version for a version: none for what the binaries are.
func flag(version string) string {
	if version == newer {
		return ""
	}
	return version
}

func (s *Script) tell(step Step) {
	if s.opts.OnStep != nil {
		s.opts.OnStep(step)
	}
}

func (s *Script) restartAPIServer(ctx context.Context, i int, emulation string) error {
	if err := s.Cluster.Nodes[i].APIServer.Restart(ctx, emulation); err != nil {
		return err
	}
	if len(s.Coordinators) == 0 {
		return nil
	}
	return s.Coordinators[i].WaitReady(ctx)
}

func (s *Script) restartComponents(ctx context.Context, i int, emulation string) error {
	return each(s.Components, func(c *Component) error {
		instance := c.Instances[i]
		before := instance.Info()
		err := instance.Restart(ctx, emulation)
		s.mu.Lock()
		defer s.mu.Unlock()
		for run := before.Run; run < instance.Info().Run; run++ {
			s.replaced[processRun{before.Name, run}] = true
		}
		return err
	})
}

// settle waits until every component that sets the pace has a leader by that leader's own word, which is after it has
// renewed for the first time, until leaders of coordinated components are the oldest that there are, and until
// they do their work.
func (s *Script) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, settleTimeout, errors.New("not within "+settleTimeout.String()))
	defer cancel()
	return each(s.electing(s.opts.Elections[0]), func(c *Component) error {
		if err := s.Recorder.WaitFor(ctx, c.String()+" has settled", c.settled); err != nil {
			return err
		}
		return framework.WaitFor(ctx, c.String()+" to work", func(context.Context) (bool, error) {
			return c.works(s.Recorder.Timeline()), nil
		})
	})
}

// works reports whether the leader has started what it leads for. kube-controller-manager exits if it loses its
// kube-apiserver while it starts its controllers, so an operator must give it the time to do so.
func (c *Component) works(t framework.Timeline) bool {
	if c.Kind != framework.ControllerManagerKind {
		return true
	}
	leader, ok := t.Leader(c.Lease)
	if !ok {
		return false
	}
	for _, instance := range c.Instances {
		if instance.Name() != leader.Process.Name {
			continue
		}
		log := instance.LogTail(1000)
		_, log, _ = strings.Cut(log[max(strings.LastIndex(log, "acquired lease"), 0):], "Starting namespace controller")
		return strings.Contains(log, "Caches are synced")
	}
	return false
}

func (c *Component) settled(t framework.Timeline) bool {
	leader, ok := t.Leader(c.Lease)
	if !ok {
		return false
	}
	for _, instance := range c.Instances {
		if !instance.Running() || !c.registered(t, instance.Process) {
			return false
		}
		// One digit each: these compare as text.
		if c.Election == Coordinated && instance.Info().Emulation < leader.Process.Emulation {
			return false
		}
	}
	return true
}
