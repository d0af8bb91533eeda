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

// Command release completes a release of the coordinator, given its binaries: for each a bill of materials, a container
// image of them all, and checksums of everything. Same binaries, same files. It is what hack/release.sh calls, needs no
// container daemon, and publishes nothing.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files of a release besides its binaries.
const (
	sbomSuffix    = ".cdx.json"
	imageFile     = "lease-coordinator-image.tar"
	checksumsFile = "sha256sums"
)

func main() {
	dockerfile := flag.String("dockerfile", "Dockerfile", "take the image's configuration from the last stage of this `file`")
	version := flag.String("version", "", "`version` that the binaries have in them; also the image's tag")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "Usage: release -version=v1.2.3 FOLDER/BINARY...  (one for each architecture)")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *version == "" || flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := complete(*dockerfile, *version, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// complete writes the files of a release beside its binaries.
func complete(dockerfile, version string, binaries []string) error {
	text, err := os.ReadFile(dockerfile)
	if err != nil {
		return fmt.Errorf("reading what the image is like: %w", err)
	}
	recipe, err := readRecipe(string(text), version)
	if err != nil {
		return fmt.Errorf("reading %s: %w", dockerfile, err)
	}
	folder := filepath.Dir(binaries[0])
	files := []string{filepath.Join(folder, imageFile)}
	for _, binary := range binaries {
		if filepath.Dir(binary) != folder {
			return fmt.Errorf("binaries in two folders, %s and %s", folder, filepath.Dir(binary))
		}
		if err := writeSBOM(binary, version); err != nil {
			return err
		}
		files = append(files, binary, binary+sbomSuffix)
	}
	index, err := recipe.index(binaries)
	if err != nil {
		return err
	}
	if err := writeArchive(files[0], index, version); err != nil {
		return err
	}
	return writeChecksums(filepath.Join(folder, checksumsFile), files)
}

// writeChecksums writes what `sha256sum --check` reads.
func writeChecksums(file string, of []string) error {
	slices.Sort(of)
	var lines strings.Builder
	for _, name := range of {
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("taking checksums: %w", err)
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(data), filepath.Base(name))
	}
	if err := os.WriteFile(file, []byte(lines.String()), 0o644); err != nil {
		return fmt.Errorf("writing checksums: %w", err)
	}
	return nil
}
