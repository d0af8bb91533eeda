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
	"crypto/rand"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The users that kube-apiserver knows.
const (
	// AdminUser may do anything.
	AdminUser = "admin"
	// ControllerManagerUser and SchedulerUser have what Kubernetes' own
	// bootstrap policy gives them.
	ControllerManagerUser = "system:kube-controller-manager"
	SchedulerUser         = "system:kube-scheduler"
	// CoordinatorUser is the service account of the shipped manifests. It has
	// no rights until they are applied, see Cluster.ApplyKustomization.
	CoordinatorUser = "system:serviceaccount:" + CoordinatorNamespace + ":lease-coordinator"
	// StaticPodUser is the user of the shipped static Pod. It has no rights
	// until config/static-pod/rbac is applied.
	StaticPodUser = "lease-coordinator"
	// CandidateUser is shared by the test candidates. It may use Leases and
	// LeaseCandidates of any namespace.
	CandidateUser = "candidate"
	// WorkerUser is shared by the processes of test/worker. It has no rights
	// until they are given, see Cluster.AllowWorkers.
	WorkerUser = "worker"
	// PlainUsers are how many users "plain-0", "plain-1", ... there are, see PlainUser.
	PlainUsers = 16
	// ReaderUser has no rights until they are given: somebody who may only look.
	ReaderUser = "reader"
)

// CoordinatorNamespace is where the shipped manifests put the coordinator.
const CoordinatorNamespace = "lease-coordinator-system"

// credential is one token of a user. Every process gets its own, so that the
// audit log tells apart processes that are the same user: the uid differs.
type credential struct {
	token, user, uid string
}

// credentials is a pool of tokens per user; kube-apiserver reads them only
// when it starts, so they are made in advance.
type credentials struct {
	mu   sync.Mutex
	free map[string][]credential
	// owner maps a uid to the process it was given to.
	owner map[string]ProcessInfo
}

var poolSizes = map[string]int{
	AdminUser:             2,
	ControllerManagerUser: 32,
	SchedulerUser:         32,
	CoordinatorUser:       64,
	StaticPodUser:         8,
	CandidateUser:         256,
	WorkerUser:            128,
	ReaderUser:            8,
}

// PlainUser returns one of the users that have no rights until they are given, and
// one token each. For processes that are to have different rights.
func PlainUser(i int) string { return fmt.Sprintf("plain-%d", i) }

func init() {
	for i := range PlainUsers {
		poolSizes[PlainUser(i)] = 1
	}
}

var userGroups = map[string][]string{
	AdminUser:       {"system:masters"},
	CoordinatorUser: {"system:serviceaccounts", "system:serviceaccounts:" + CoordinatorNamespace, "system:authenticated"},
}

func newCredentials(path string) (*credentials, error) {
	c := &credentials{free: map[string][]credential{}, owner: map[string]ProcessInfo{}}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("writing the token file: %w", err)
	}
	defer func() { _ = file.Close() }()
	out := csv.NewWriter(file)
	for user, n := range poolSizes {
		for i := range n {
			secret := make([]byte, 16)
			if _, err := rand.Read(secret); err != nil {
				return nil, fmt.Errorf("making a token: %w", err)
			}
			cred := credential{token: hex.EncodeToString(secret), user: user, uid: fmt.Sprintf("%s#%d", user, i)}
			c.free[user] = append(c.free[user], cred)
			if err := out.Write([]string{cred.token, cred.user, cred.uid, strings.Join(userGroups[user], ",")}); err != nil {
				return nil, fmt.Errorf("writing the token file: %w", err)
			}
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return nil, fmt.Errorf("writing the token file: %w", err)
	}
	return c, nil
}

// take gives a token of user to a process. The last one of a pool is shared by
// whoever comes late: their writes are then attributed to the user only.
func (c *credentials) take(user string, process ProcessInfo) credential {
	c.mu.Lock()
	defer c.mu.Unlock()
	pool := c.free[user]
	cred := pool[0]
	if len(pool) > 1 {
		c.free[user] = pool[1:]
		c.owner[cred.uid] = process
	}
	return cred
}

// ownerOf names the process a uid was given to and its program, or else the user.
func (c *credentials) ownerOf(uid, user string) (string, ProcessKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, ok := c.owner[uid]; ok {
		return owner.Name, owner.Kind
	}
	return user, ""
}

// writeKubeconfig writes a file that makes cred a user of the server.
func writeKubeconfig(path, server string, ca []byte, cred credential) error {
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters["e2e"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	cfg.AuthInfos[cred.user] = &clientcmdapi.AuthInfo{Token: cred.token}
	cfg.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: cred.user}
	cfg.CurrentContext = "e2e"
	if err := clientcmd.WriteToFile(*cfg, path); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", cred.user, err)
	}
	return nil
}
