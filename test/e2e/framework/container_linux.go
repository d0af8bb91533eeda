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
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ImageUser is the user, and the group, of the shipped image.
const ImageUser = 65532

// container is what a container of the shipped image finds itself in, as far as it takes neither a container runtime nor
// a mount: nobody may write any folder of its root.
type container struct {
	root string
	env  []string
}

// newContainer makes a root directory of the binary and what a Pod has mounted of its service account.
func (n *Node) newContainer(ctx context.Context, binary string) (*container, error) {
	if why := NoContainers(); why != nil {
		return nil, why
	}
	token, err := n.Clientset().CoreV1().ServiceAccounts(CoordinatorNamespace).CreateToken(ctx, "lease-coordinator",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking for the coordinator's token: %w", err)
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("making a container: %w", err)
	}
	root, err := os.MkdirTemp(n.cluster.dir, "root-")
	if err != nil {
		return nil, fmt.Errorf("making a container: %w", err)
	}
	const account = "var/run/secrets/kubernetes.io/serviceaccount"
	if err := os.MkdirAll(filepath.Join(root, account), 0o755); err != nil {
		return nil, fmt.Errorf("making a container: %w", err)
	}
	for name, file := range map[string]struct {
		data []byte
		mode os.FileMode
	}{
		filepath.Base(binary):  {program, 0o555},
		account + "/token":     {[]byte(token.Status.Token), 0o444},
		account + "/ca.crt":    {n.cluster.pki.caPEM, 0o444},
		account + "/namespace": {[]byte(CoordinatorNamespace), 0o444},
	} {
		if err := os.WriteFile(filepath.Join(root, name), file.data, file.mode); err != nil {
			return nil, fmt.Errorf("making a container: %w", err)
		}
	}
	for dir := account; dir != "."; dir = filepath.Dir(dir) {
		if err := os.Chmod(filepath.Join(root, dir), 0o555); err != nil {
			return nil, fmt.Errorf("making a container: %w", err)
		}
	}
	if err := os.Chmod(root, 0o555); err != nil {
		return nil, fmt.Errorf("making a container: %w", err)
	}
	return &container{root: root, env: []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"KUBERNETES_SERVICE_HOST=" + loopback,
		"KUBERNETES_SERVICE_PORT=" + strconv.Itoa(n.APIServer.port),
		"POD_NAMESPACE=" + CoordinatorNamespace,
	}}, nil
}

// remove lets the folders be removed by whoever is not root.
func (c *container) remove() error {
	err := filepath.WalkDir(c.root, func(name string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = os.Chmod(name, 0o755)
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(c.root))
}

// enter makes the command one that runs in the container.
func (c *container) enter(cmd *exec.Cmd) {
	cmd.Dir, cmd.Env = "/", c.env
	EnterRoot(cmd, c.root)
}

// EnterRoot lets the command run with another root directory and as ImageUser. Its path is looked up there.
func EnterRoot(cmd *exec.Cmd, root string) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.Dir = "/"
	attr := cmd.SysProcAttr
	attr.Chroot = root
	attr.Credential = &syscall.Credential{Uid: ImageUser, Gid: ImageUser}
	if os.Getuid() == 0 {
		return
	}
	// Only a user namespace gives us the right to change the root, and another user's number.
	attr.Cloneflags = syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: ImageUser, HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: ImageUser, HostID: os.Getgid(), Size: 1}}
	attr.Credential.NoSetGroups = true
}

// NoContainers says why no process can be given another root directory here; it is nil where that is possible.
func NoContainers() error {
	cmd := exec.Command("/proc/self/exe")
	EnterRoot(cmd, os.TempDir())
	// Nothing is found there, which only whoever got there can tell.
	if err := cmd.Run(); !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("neither root nor allowed to make user namespaces: %w", err)
	}
	return nil
}
