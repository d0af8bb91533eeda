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
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options describe a cluster. The zero value is one node, that is one
// kube-apiserver, with coordinated leader election off and LeaseCandidates
// served: what an operator gets who only enables the API.
type Options struct {
	// Nodes is the number of nodes, 1 to 3. Default 1.
	Nodes int
	// CoordinatedLeaderElection is the feature gate on the kube-apiservers.
	// With it the in-tree coordinator runs.
	CoordinatedLeaderElection bool
	// NoLeaseCandidateAPI turns off coordination.k8s.io/v1beta1.
	NoLeaseCandidateAPI bool
	// NeverReady names the checks of /readyz that are bound to fail on these
	// kube-apiservers, whose other answers are as usual. They are not waited for.
	NeverReady []string
	// EmulationVersion of the kube-apiservers, such as "1.36". Default: none,
	// they are what their binary is.
	EmulationVersion string
	// APIServerArgs are further flags for every kube-apiserver.
	APIServerArgs []string
	// NoAudit turns off the kube-apiservers' audit log, from which recorders
	// know who wrote what, for measurements with thousands of writes a second.
	NoAudit bool
	// Progress, if set, receives a line for each step of starting and stopping.
	Progress io.Writer
}

// Cluster is one etcd and the nodes that share it.
type Cluster struct {
	Etcd  *Etcd
	Nodes []*Node

	opts       Options
	sandbox    *sandbox
	dir        string
	bin        *Binaries
	pki        *pki
	creds      *credentials
	admin      credential
	httpClient *http.Client
	bus        *bus
	audit      *auditFeed
	// version is "major.minor" of the control plane's binaries.
	version string

	mu        sync.Mutex
	processes []*Process
	names     map[string]int
	roles     map[string]bool
	recorders []*Recorder
	stopped   bool
}

// Start starts a cluster and returns when all of its kube-apiservers are
// ready. Whoever calls it must call Stop; tests use New or Shared instead.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if opts.Nodes == 0 {
		opts.Nodes = 1
	}
	if opts.Nodes < 1 || opts.Nodes > 3 {
		return nil, fmt.Errorf("a cluster has 1 to 3 nodes, not %d", opts.Nodes)
	}
	bin, err := FindBinaries(ctx)
	if err != nil {
		return nil, err
	}
	sb, err := theSandbox()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(sb.dir, "cluster-")
	if err != nil {
		return nil, fmt.Errorf("making the cluster's directory: %w", err)
	}
	c := &Cluster{
		opts: opts, sandbox: sb, dir: dir, bin: bin,
		bus: &bus{}, names: map[string]int{}, roles: map[string]bool{},
	}
	if err := c.start(ctx); err != nil {
		err = fmt.Errorf("starting a cluster: %w", err)
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	for _, sub := range []string{"certs", "logs", "kubeconfigs"} {
		if err := os.Mkdir(filepath.Join(c.dir, sub), 0o755); err != nil {
			return fmt.Errorf("making the cluster's directory: %w", err)
		}
	}
	var err error
	if c.pki, err = newPKI(filepath.Join(c.dir, "certs")); err != nil {
		return err
	}
	if c.creds, err = newCredentials(c.tokenFile()); err != nil {
		return err
	}
	c.audit = &auditFeed{writerOf: c.creds.ownerOf}
	c.admin = c.creds.take(AdminUser, ProcessInfo{Name: "test"})
	if err := os.WriteFile(c.auditPolicyFile(), []byte(auditPolicy), 0o644); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.pki.caPEM)
	c.httpClient = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		// Probes are rare, and an idle connection to a process that has since
		// been frozen or restarted would only get in the way.
		DisableKeepAlives: true,
	}}
	if c.version, err = binaryVersion(ctx, c.bin.APIServer); err != nil {
		return err
	}

	c.progress("starting etcd")
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	for i := range c.opts.Nodes {
		c.Nodes = append(c.Nodes, &Node{Name: fmt.Sprintf("n%d", i+1), cluster: c})
	}
	var wg sync.WaitGroup
	errs := make([]error, len(c.Nodes))
	for i, n := range c.Nodes {
		c.progress("starting kube-apiserver of " + n.Name)
		wg.Go(func() { errs[i] = n.startAPIServer(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c.progress("control plane ready")
	return c.createRoles(ctx)
}

// Stop ends every process, etcd last, and removes the cluster's files. It
// finishes even if ctx has ended; processes are then killed.
func (c *Cluster) Stop(ctx context.Context) error {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return nil
	}
	c.stopped = true
	processes := slices.Clone(c.processes)
	recorders := slices.Clone(c.recorders)
	c.mu.Unlock()

	c.progress("stopping the control plane")
	var errs []error
	// Components cannot release their leases without a kube-apiserver, which
	// cannot end without its etcd.
	for _, tier := range [][]ProcessKind{
		{CoordinatorKind, CandidateKind, ControllerManagerKind, SchedulerKind},
		{APIServerKind},
		{EtcdKind},
	} {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for _, p := range processes {
			if !slices.Contains(tier, p.Info().Kind) {
				continue
			}
			wg.Go(func() {
				if err := p.Stop(ctx); err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				}
			})
		}
		wg.Wait()
	}
	for _, r := range recorders {
		r.Stop()
	}
	for _, p := range processes {
		if p.container != nil {
			errs = append(errs, p.container.remove())
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		errs = append(errs, fmt.Errorf("removing the cluster's files: %w", err))
	}
	return errors.Join(errs...)
}

func (c *Cluster) progress(line string) {
	if c.opts.Progress != nil {
		_, _ = fmt.Fprintln(c.opts.Progress, line)
	}
}

func (c *Cluster) tokenFile() string       { return filepath.Join(c.dir, "certs", "tokens.csv") }
func (c *Cluster) auditPolicyFile() string { return filepath.Join(c.dir, "certs", "audit-policy.yaml") }

// Version is the version of the control plane's binaries as "major.minor".
func (c *Cluster) Version() string { return c.version }

func (c *Cluster) emulationOrDefault(v string) string {
	if v == "" {
		return c.version
	}
	return v
}

// Processes returns every process started so far, running or not.
func (c *Cluster) Processes() []*Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.processes)
}

// newProcess makes a process whose name is info.Name or, if that is taken,
// info.Name with a number.
func (c *Cluster) newProcess(info ProcessInfo, path string) *Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	base := info.Name
	c.names[base]++
	if n := c.names[base]; n > 1 {
		info.Name = fmt.Sprintf("%s-%d", info.Name, n)
	}
	p := &Process{
		rt: c.sandbox, bus: c.bus, path: path, info: info, baseName: base,
		logPath: filepath.Join(c.dir, "logs", strings.ReplaceAll(info.Name, "/", "-")+".log"),
	}
	p.line = func(info ProcessInfo, at time.Time, line string) {
		if e, ok := leadershipWord(info, at, line); ok {
			c.bus.publish(e)
		}
	}
	c.processes = append(c.processes, p)
	return p
}

// forget undoes newProcess for a process that never came to be.
func (c *Cluster) forget(p *Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes = slices.DeleteFunc(c.processes, func(q *Process) bool { return q == p })
	c.names[p.baseName]--
}

// Client returns the admin's client for the first node.
func (c *Cluster) Client() client.Client { return c.Nodes[0].Client() }

// Clientset returns the admin's clientset for the first node.
func (c *Cluster) Clientset() kubernetes.Interface { return c.Nodes[0].Clientset() }

// CreateNamespace creates a namespace with the given prefix and a unique rest.
func (c *Cluster) CreateNamespace(ctx context.Context, prefix string) (string, error) {
	ns, err := c.Clientset().CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("creating a namespace: %w", err)
	}
	return ns.Name, nil
}

// createRoles gives the test candidates what a candidate needs.
func (c *Cluster) createRoles(ctx context.Context) error {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}},
		{APIGroups: []string{"coordination.k8s.io", "lease-coordinator.dev"}, Resources: []string{"leasecandidates"}, Verbs: []string{"get", "list", "watch", "create", "update"}},
	}
	rbac := c.Clientset().RbacV1()
	if _, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-candidate"}, Rules: rules,
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the candidates' role: %w", err)
	}
	if _, err := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-candidate"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "e2e-candidate"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: CandidateUser}},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("binding the candidates' role: %w", err)
	}
	return nil
}

// allowLeaderElection lets a component's user lead by a Lease outside
// kube-system. Kubernetes' bootstrap policy has Roles for Leases and
// LeaseCandidates of any name in kube-system, and beyond that only the update
// of Leases that bear the component's own name.
func (c *Cluster) allowLeaderElection(ctx context.Context, user, namespace string) error {
	if namespace == metav1.NamespaceSystem {
		return nil
	}
	c.mu.Lock()
	known := c.roles[user+"@"+namespace]
	c.roles[user+"@"+namespace] = true
	c.mu.Unlock()
	if known {
		return nil
	}
	_, err := c.Clientset().RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-" + strings.ReplaceAll(user, ":", "-")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "e2e-candidate"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("letting %s use leases in %s: %w", user, namespace, err)
	}
	return nil
}

// Node is a kube-apiserver and what runs against it.
type Node struct {
	Name      string
	APIServer *APIServer
	cluster   *Cluster
}

// Cluster is the cluster the node belongs to.
func (n *Node) Cluster() *Cluster { return n.cluster }

// Config returns the admin's client configuration. It is not rate limited.
func (n *Node) Config() *rest.Config { return n.configFor(n.cluster.admin) }

// ConfigFor returns the client configuration of a user; see the constants.
func (n *Node) ConfigFor(user string) *rest.Config {
	return n.configFor(n.cluster.creds.take(user, ProcessInfo{Name: "test as " + user}))
}

func (n *Node) configFor(cred credential) *rest.Config {
	return &rest.Config{
		Host:            n.APIServer.URL(),
		BearerToken:     cred.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: n.cluster.pki.caPEM},
		QPS:             -1,
		UserAgent:       "e2e",
		// That LeaseCandidate's version is going to be removed is known.
		WarningHandlerWithContext: rest.NoWarnings{},
	}
}

// Clientset returns the admin's clientset.
func (n *Node) Clientset() kubernetes.Interface { return kubernetes.NewForConfigOrDie(n.Config()) }

// Client returns the admin's controller-runtime client, which knows the
// built-in types, LeaseCandidate of coordination.k8s.io/v1beta1 among them.
func (n *Node) Client() client.Client {
	// New fails only for malformed configurations: mapping is lazy.
	cl, err := client.New(n.Config(), client.Options{})
	if err != nil {
		panic(fmt.Sprintf("making a client: %v", err))
	}
	return cl
}

// Kubeconfig writes a kubeconfig file for a user and returns its path. It is
// removed with the cluster.
func (n *Node) Kubeconfig(user string) (string, error) {
	return n.kubeconfig(n.cluster.creds.take(user, ProcessInfo{Name: "test as " + user}), "user-"+user)
}

func (n *Node) kubeconfig(cred credential, name string) (string, error) {
	name = strings.NewReplacer("/", "-", ":", "-").Replace(n.Name + "-" + name)
	path := filepath.Join(n.cluster.dir, "kubeconfigs", name+".kubeconfig")
	return path, writeKubeconfig(path, n.APIServer.URL(), n.cluster.pki.caPEM, cred)
}

// Candidates lists the LeaseCandidates of a namespace that name a lease.
func (n *Node) Candidates(ctx context.Context, namespace, lease string) ([]coordinationv1beta1.LeaseCandidate, error) {
	list, err := n.Clientset().CoordinationV1beta1().LeaseCandidates(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing the candidates of %s/%s: %w", namespace, lease, err)
	}
	return slices.DeleteFunc(list.Items, func(lc coordinationv1beta1.LeaseCandidate) bool {
		return lc.Spec.LeaseName != lease
	}), nil
}
