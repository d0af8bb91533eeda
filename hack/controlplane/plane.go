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
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// assetsVariable is controller-runtime's: a folder with an etcd and a kube-apiserver to test against.
const assetsVariable = "KUBEBUILDER_ASSETS"

// plane is one control plane on disk: which binary comes from where.
type plane struct {
	recipe recipe
	home   string // what is built here goes here, nothing else
	assets string // KUBEBUILDER_ASSETS, or empty
}

func newPlane(r recipe, root string) *plane {
	return &plane{recipe: r, home: filepath.Join(root, r.name())}
}

// useAssets takes etcd and kube-apiserver from a folder that the user chose. A folder that lacks one is
// an error rather than a reason to build: whoever set the variable meant it.
func (p *plane) useAssets(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%s=%q must be an absolute path", assetsVariable, dir)
	}
	for _, c := range components {
		if !c.fromKit {
			continue
		}
		if !executable(filepath.Join(dir, c.name)) {
			return fmt.Errorf("%s=%s has no executable %s; correct it, or unset it to have one built",
				assetsVariable, dir, c.name)
		}
	}
	p.assets = filepath.Clean(dir)
	return nil
}

// path of a component's binary.
func (p *plane) path(c component) string {
	if p.assets != "" && c.fromKit {
		return filepath.Join(p.assets, c.name)
	}
	return filepath.Join(p.home, c.name)
}

// missing lists the components that have to be built.
func (p *plane) missing() []component {
	var list []component
	for _, c := range components {
		if !executable(p.path(c)) {
			list = append(list, c)
		}
	}
	return list
}

// dir is a folder in which all four are found under their names. With assets in play that is a folder
// of links, for those who want one folder and not four paths.
func (p *plane) dir() string {
	if p.assets == "" {
		return p.home
	}
	sum := sha256.Sum256([]byte(p.assets))
	return p.home + "_assets-" + hex.EncodeToString(sum[:])[:8]
}

// link brings the folder of links up to date. Each link is put in place by a rename, so that two runs
// at once do no harm.
func (p *plane) link() error {
	if p.assets == "" {
		return nil
	}
	dir := p.dir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, c := range components {
		link, target := filepath.Join(dir, c.name), p.path(c)
		if present, err := os.Readlink(link); err == nil && present == target {
			continue
		}
		fresh := fmt.Sprintf("%s.%d", link, os.Getpid())
		if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(target, fresh); err != nil {
			return err
		}
		if err := os.Rename(fresh, link); err != nil {
			return errors.Join(err, os.Remove(fresh))
		}
	}
	return nil
}

// result is what `-o json` prints. The versions are those of go.mod; they say nothing about binaries
// that came from elsewhere, which is why assets is there too.
type result struct {
	Etcd                  string `json:"etcd"`
	KubeAPIServer         string `json:"kube-apiserver"`
	KubeControllerManager string `json:"kube-controller-manager"`
	KubeScheduler         string `json:"kube-scheduler"`
	KubernetesVersion     string `json:"kubernetesVersion"`
	EtcdVersion           string `json:"etcdVersion"`
	Assets                string `json:"assets,omitempty"`
}

func (p *plane) result() result {
	paths := map[string]string{}
	for _, c := range components {
		paths[c.name] = p.path(c)
	}
	return result{
		Etcd:                  paths["etcd"],
		KubeAPIServer:         paths["kube-apiserver"],
		KubeControllerManager: paths["kube-controller-manager"],
		KubeScheduler:         paths["kube-scheduler"],
		KubernetesVersion:     p.recipe.kubernetes,
		EtcdVersion:           strings.TrimPrefix(p.recipe.etcd, "v"),
		Assets:                p.assets,
	}
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

func names(list []component) string {
	all := make([]string, len(list))
	for i, c := range list {
		all[i] = c.name
	}
	return strings.Join(all, ", ")
}
