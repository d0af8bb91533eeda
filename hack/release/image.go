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
	"compress/gzip"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// index makes an image of each binary, and the list that says which one is for which platform.
func (r *recipe) index(binaries []string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	seen := map[string]bool{}
	for _, binary := range binaries {
		platform, err := platformOf(binary)
		if err != nil {
			return nil, err
		}
		if seen[platform.String()] {
			return nil, fmt.Errorf("making an image of %s: there is one for %s already", binary, platform)
		}
		seen[platform.String()] = true
		image, err := r.image(binary, platform)
		if err != nil {
			return nil, fmt.Errorf("making an image of %s: %w", binary, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return index, nil
}

// platformOf asks the binary itself, so that no image can say that it is for another platform.
func platformOf(binary string) (*v1.Platform, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("asking %s for its platform: %w", binary, err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["CGO_ENABLED"] != "0" {
		return nil, fmt.Errorf("%s may need libraries that the image does not have: CGO_ENABLED=%q", binary, settings["CGO_ENABLED"])
	}
	return &v1.Platform{OS: settings["GOOS"], Architecture: settings["GOARCH"]}, nil
}

// noTime is when everything in the image was made: a real time would make another image of the same binary.
var noTime = time.Unix(0, 0).UTC()

func (r *recipe) image(binary string, platform *v1.Platform) (v1.Image, error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	if err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: strings.TrimPrefix(r.binary, "/"), Size: int64(len(data)), Mode: 0o555, ModTime: noTime, Format: tar.FormatUSTAR,
	}); err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: noTime}, CreatedBy: "COPY " + r.binary}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Created = v1.Time{Time: noTime}
	config.OS, config.Architecture, config.Config = platform.OS, platform.Architecture, r.config
	return mutate.ConfigFile(image, config)
}

// writeArchive writes an OCI layout as one tar archive, of which no entry depends on when or by whom it was written.
func writeArchive(file string, index v1.ImageIndex, tag string) (err error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return fmt.Errorf("making a folder for the image: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// An index in the index: whoever loads the archive finds one image of that name, for several platforms.
	tagged := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": tag}},
	})
	if _, err := layout.Write(dir, tagged); err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("writing the image's archive: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	// WalkDir goes by name.
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: filepath.ToSlash(relative), Size: int64(len(data)), Mode: 0o644, ModTime: noTime, Format: tar.FormatUSTAR,
		}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("writing the image's archive: %w", err)
	}
	return w.Close()
}
