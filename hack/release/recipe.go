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
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// recipe is what the last stage of a Dockerfile makes of one file.
type recipe struct {
	// binary is where the file goes.
	binary string
	config v1.Config
}

var (
	label  = regexp.MustCompile(`^([a-z0-9.-]+)="([^"\\]*)"$`)
	copied = regexp.MustCompile(`^--from=[a-z]+ (/\S+) (/\S+)$`)
)

// readRecipe reads the last stage of a Dockerfile. It knows the few instructions that are needed for an image of one
// static binary, and refuses any other rather than make another image than a container daemon would.
func readRecipe(dockerfile, version string) (*recipe, error) {
	r := &recipe{}
	stage := ""
	for i, line := range strings.Split(dockerfile, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		instruction, argument, _ := strings.Cut(line, " ")
		argument = strings.TrimSpace(argument)
		if instruction == "FROM" {
			stage, r = argument, &recipe{config: v1.Config{Labels: map[string]string{}}}
			continue
		}
		// Of the stages before, only the last one's file counts, and that was handed to us.
		if stage != "scratch" {
			continue
		}
		refuse := func(why string) error { return fmt.Errorf("line %d, %q: %s", i+1, line, why) }
		switch instruction {
		case "ARG":
			if name, _, _ := strings.Cut(argument, "="); name != "VERSION" {
				return nil, refuse("the only argument is VERSION")
			}
		case "LABEL":
			m := label.FindStringSubmatch(argument)
			if m == nil {
				return nil, refuse(`a label is name="value", one to a line`)
			}
			value := strings.ReplaceAll(m[2], "$VERSION", version)
			if strings.Contains(value, "$") {
				return nil, refuse("the only variable is $VERSION")
			}
			r.config.Labels[m[1]] = value
		case "COPY":
			m := copied.FindStringSubmatch(argument)
			if m == nil || r.binary != "" || path.Dir(m[2]) != "/" || m[2] == "/" {
				return nil, refuse("one file is copied, from a stage to the root")
			}
			r.binary = m[2]
		case "USER":
			r.config.User = argument
		case "ENTRYPOINT":
			if err := json.Unmarshal([]byte(argument), &r.config.Entrypoint); err != nil {
				return nil, refuse("an entrypoint is a JSON list")
			}
		default:
			return nil, refuse("this instruction is not known here")
		}
	}
	if stage != "scratch" {
		return nil, fmt.Errorf("the last stage is from %q, not from scratch", stage)
	}
	if r.binary == "" {
		return nil, fmt.Errorf("the last stage copies no file")
	}
	// As container daemons do for an image that sets none.
	r.config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	r.config.WorkingDir = "/"
	return r, nil
}
