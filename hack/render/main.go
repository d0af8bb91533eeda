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

// Command render prints a kustomization of config/ with an image and components put in, as an overlay would:
//
//	go run ./hack/render -image registry.example.com/lease-coordinator:v0.1.0 default | kubectl apply -f -
//
// It needs neither kubectl nor kustomize, and edits no file.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/lease-coordinator/coordinator/hack/internal/manifests"
)

func main() {
	image := flag.String("image", "", "image `reference`, with a tag or a digest; empty keeps the placeholder")
	components := flag.String("components", "", "comma-separated `folders` of config/ to add, such as prometheus")
	config := flag.String("config", "config", "`folder` that holds the kustomizations")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: go run ./hack/render [flags] FOLDER\n\nPrints the kustomization config/FOLDER.")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	options := manifests.Options{Image: *image}
	if *components != "" {
		options.Components = strings.Split(*components, ",")
	}
	out, err := manifests.Render(*config, flag.Arg(0), options)
	if err == nil {
		_, err = os.Stdout.Write(out)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "render: %v\n", err)
		os.Exit(1)
	}
}
