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

//go:build !linux

package framework

import (
	"context"
	"errors"
	"os/exec"
)

// ImageUser is the user, and the group, of the shipped image.
const ImageUser = 65532

type container struct{ root string }

func (n *Node) newContainer(context.Context, string) (*container, error) { return nil, NoContainers() }

func (c *container) remove() error   { return nil }
func (c *container) enter(*exec.Cmd) {}

// EnterRoot lets the command run with another root directory, on Linux.
func EnterRoot(*exec.Cmd, string) {}

// NoContainers says why no process can be given another root directory here.
func NoContainers() error { return errors.New("the image is for Linux") }
