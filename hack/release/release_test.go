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
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

const (
	root    = "../.."
	version = "v1.2.3-test"
)

// copyFiles copies those files of the repository for which want is true.
func copyFiles(t *testing.T, to string, want func(name string) bool) {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	cmd.Dir = root
	list, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil || !info.Mode().IsRegular() || !want(name) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(to, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), data, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

func run(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "VERSION="+version, "RELEASE_TOOLCHAIN=local", "ARCHES="+runtime.GOARCH, "GOOS=linux")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// inImageBuild tells which files the Dockerfile's first stage has: what it copies, of what .dockerignore lets through.
func inImageBuild(t *testing.T) func(name string) bool {
	t.Helper()
	dockerfile, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	ignore, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	stage, _, _ := strings.Cut(string(dockerfile), "FROM scratch")
	var sources, let []string
	for _, m := range regexp.MustCompile(`(?m)^COPY (.+) \S+$`).FindAllStringSubmatch(stage, -1) {
		sources = append(sources, strings.Fields(m[1])...)
	}
	for line := range strings.Lines(string(ignore)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			let = append(let, name)
		}
	}
	under := func(folders []string, name string) bool {
		return slices.ContainsFunc(folders, func(f string) bool {
			f = strings.TrimSuffix(f, "/")
			return name == f || strings.HasPrefix(name, f+"/")
		})
	}
	return func(name string) bool {
		return under(sources, name) && under(let, name) &&
			!strings.HasSuffix(name, "_test.go") && !slices.Contains(strings.Split(name, "/"), "testdata")
	}
}

// The binaries are built three times, in folders of different names: as a release does, twice, and as the Dockerfile does,
// of no more than it copies. The build cache is shared, for the sake of time; hack/reproduce.sh does without.
func TestRelease(t *testing.T) {
	dir := t.TempDir()
	first, second, image := filepath.Join(dir, "a"), filepath.Join(dir, "another folder", "deeper"), filepath.Join(dir, "src")
	everything := func(name string) bool {
		return !strings.HasPrefix(name, "test/") && !strings.HasPrefix(name, "docs/")
	}
	copyFiles(t, first, everything)
	copyFiles(t, second, everything)
	copyFiles(t, image, inImageBuild(t))
	releases := []string{filepath.Join(dir, "first"), filepath.Join(dir, "second")}
	run(t, dir, filepath.Join(first, "hack", "release.sh"), releases[0])
	run(t, dir, filepath.Join(second, "hack", "release.sh"), releases[1])
	run(t, image, "hack/build.sh", filepath.Join(dir, "coordinator"))

	name := "coordinator-linux-" + runtime.GOARCH
	binary := filepath.Join(releases[0], name)
	files := contents(t, releases[0])
	t.Run("has every file", func(t *testing.T) {
		want := []string{name, name + sbomSuffix, imageFile, checksumsFile}
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		run(t, releases[0], "sha256sum", "--check", "--strict", checksumsFile)
	})
	t.Run("is the same from another folder", func(t *testing.T) {
		again := contents(t, releases[1])
		for name, data := range files {
			if !bytes.Equal(data, again[name]) {
				t.Errorf("%s differs", name)
			}
		}
	})
	t.Run("is what the Dockerfile builds", func(t *testing.T) {
		if !bytes.Equal(files[name], contents(t, dir)["coordinator"]) {
			t.Error("the two binaries differ")
		}
	})
	t.Run("tells nothing of the machine", func(t *testing.T) {
		folders, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE", "GOCACHE").Output()
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range files {
			for _, where := range append(strings.Fields(string(folders)), dir) {
				if bytes.Contains(data, []byte(where+"/")) {
					t.Errorf("%s names %s", name, where)
				}
			}
		}
	})
	t.Run("is static", func(t *testing.T) { assertStatic(t, binary) })
	t.Run("says its version", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("it runs on Linux only")
		}
		out, err := exec.Command(binary, "--version").CombinedOutput()
		if err != nil || !strings.Contains(string(out), version) {
			t.Errorf("%s, %v", out, err)
		}
	})
	t.Run("lists what it is made of", func(t *testing.T) { assertSBOM(t, binary) })
	t.Run("has an image of it", func(t *testing.T) { assertImage(t, filepath.Join(releases[0], imageFile), files[name]) })
}

// contents returns the files in a folder, not those in folders of it.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}
		if files[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func assertStatic(t *testing.T, binary string) {
	t.Helper()
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, p := range file.Progs {
		if p.Type == elf.PT_DYNAMIC || p.Type == elf.PT_INTERP {
			t.Errorf("it has a segment %s: something must be there to load it", p.Type)
		}
	}
	if file.Section(".dynamic") != nil {
		t.Error("it has a dynamic section")
	}
	if file.Section(".symtab") != nil {
		t.Error("it is not stripped")
	}
}

func assertSBOM(t *testing.T, binary string) {
	t.Helper()
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(binary + sbomSuffix)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(file, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.SerialNumber != "" || bom.Metadata.Timestamp != "" {
		t.Errorf("it has the serial number %q and the time %q, and can never be made again", bom.SerialNumber, bom.Metadata.Timestamp)
	}
	if c := bom.Metadata.Component; c.Name != info.Main.Path || c.Version != version {
		t.Errorf("it is of %s %s", c.Name, c.Version)
	}
	want := []string{"std " + info.GoVersion}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		want = append(want, m.Path+" "+m.Version)
	}
	var got []string
	for _, c := range *bom.Components {
		got = append(got, c.Name+" "+c.Version)
		if c.Name != "std" && c.PackageURL == "" {
			t.Errorf("%s has no package URL", c.Name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("it lists\n%s\nbut the linker\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func assertImage(t *testing.T, archive string, binary []byte) {
	t.Helper()
	dir := t.TempDir()
	unpack(t, archive, dir)
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != version {
		t.Fatalf("the archive has no image of that name: %+v, %v", manifest, err)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err = index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("images %+v, %v", manifest, err)
	}
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	if got := manifest.Manifests[0].Platform; got == nil || !got.Equals(platform) {
		t.Errorf("it is for %v", got)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if !file.Platform().Equals(platform) {
		t.Errorf("its configuration says %s", file.Platform())
	}
	c := file.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/coordinator"}) || len(c.Cmd) > 0 || len(c.Volumes) > 0 {
		t.Errorf("user %q, entrypoint %q, arguments %q, volumes %v", c.User, c.Entrypoint, c.Cmd, c.Volumes)
	}
	if c.Labels["org.opencontainers.image.version"] != version || c.Labels["org.opencontainers.image.licenses"] != "Apache-2.0" {
		t.Errorf("labels %v", c.Labels)
	}
	rootfs := mutate.Extract(image)
	defer func() { _ = rootfs.Close() }()
	var names []string
	for r := tar.NewReader(rootfs); ; {
		header, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, binary) || header.FileInfo().Mode() != 0o555 || header.Uid != 0 {
			t.Errorf("%s is another file, or has mode %s or owner %d", header.Name, header.FileInfo().Mode(), header.Uid)
		}
	}
	if !slices.Equal(names, []string{"coordinator"}) {
		t.Errorf("files %q", names)
	}
}

func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	file, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if !fs.ValidPath(header.Name) {
			t.Fatalf("the archive has a file %q", header.Name)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, header.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRecipeRefuses(t *testing.T) {
	const good = "FROM golang:1 AS build\nRUN anything\nFROM scratch\nCOPY --from=build /x /x\n"
	if _, err := readRecipe(good, version); err != nil {
		t.Fatal(err)
	}
	for name, dockerfile := range map[string]string{
		"a base image":             "FROM golang:1 AS build\nFROM alpine\nCOPY --from=build /x /x\n",
		"no file":                  "FROM scratch\n",
		"two files":                good + "COPY --from=build /y /y\n",
		"a file of the context":    "FROM scratch\nCOPY x /x\n",
		"a file below a folder":    "FROM scratch\nCOPY --from=build /x /bin/x\n",
		"a command":                good + "RUN true\n",
		"another argument":         good + "ARG USER\n",
		"another variable":         good + "LABEL a=\"$USER\"\n",
		"two labels on one line":   good + "LABEL a=\"b\" c=\"d\"\n",
		"an entrypoint in a shell": good + "ENTRYPOINT /x\n",
		"an unknown instruction":   good + "VOLUME /data\n",
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := readRecipe(dockerfile, version); err == nil {
				t.Errorf("it is taken for %+v", r)
			}
		})
	}
}

func TestImageRefusesWhatIsNotStatic(t *testing.T) {
	test, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(test)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Settings {
		if s.Key == "CGO_ENABLED" && s.Value == "0" {
			t.Skip("this test is static itself")
		}
	}
	if p, err := platformOf(test); err == nil {
		t.Errorf("it is taken for a static one for %s", p)
	}
}
