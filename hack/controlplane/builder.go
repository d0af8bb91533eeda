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
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// scratchName is the folder, inside the plane's own, in which binaries are while they are being built.
// Only whoever holds the lock touches it.
const scratchName = ".building"

// builder brings a plane's missing binaries into being.
type builder struct {
	plane   *plane
	report  *reporter
	compile func(ctx context.Context, c component, out string, log *compileLog) error
}

// build returns when nothing is missing, whoever built it. A binary appears under its name by a rename
// and only when it is whole, so being there and being good are the same thing, and an interrupted build
// keeps the components that were finished.
func (b *builder) build(ctx context.Context) error {
	if len(b.plane.missing()) == 0 {
		return nil
	}
	if err := os.MkdirAll(b.plane.home, 0o755); err != nil {
		return err
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()

	missing := b.plane.missing() // again: someone else may have built it while we waited.
	if len(missing) == 0 {
		b.report.line("the other build has made everything that is needed")
		return nil
	}
	if err := b.checkDisk(); err != nil {
		return err
	}
	scratch := filepath.Join(b.plane.home, scratchName)
	// Left there by a build that was killed. A name of our own below it keeps a compiler that
	// outlived that build from writing into what we make.
	if err := os.RemoveAll(scratch); err != nil {
		return err
	}
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	own, err := os.MkdirTemp(scratch, "")
	if err != nil {
		return err
	}

	r := b.plane.recipe
	b.report.line("building %s (Kubernetes %s, etcd %s, %s) into %s", names(missing), r.kubernetes, r.etcd, r.goVersion, b.plane.home)
	b.report.line("done once per version; with a cold Go build cache it takes about 13 minutes on 2 cores")
	started := b.report.now()
	for _, c := range missing {
		if err := b.buildOne(ctx, c, filepath.Join(own, c.name)); err != nil {
			return err
		}
	}
	b.report.line("ready after %s", round(b.report.now().Sub(started)))
	return nil
}

func (b *builder) buildOne(ctx context.Context, c component, out string) error {
	log := &compileLog{}
	finish := b.report.during(func(elapsed time.Duration) string {
		return fmt.Sprintf("%-24s %s, %s", c.name, log.state(), round(elapsed))
	})
	err := b.compile(ctx, c, out, log)
	elapsed := finish()
	if ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("%s could not be built (it failed after %s)\n%w", c.name, round(elapsed), err)
	}
	if err := os.Rename(out, b.plane.path(c)); err != nil {
		return err
	}
	b.report.line("%-24s built, %s", c.name, round(elapsed))
	return nil
}

// lock waits for the lock of this plane. It is let go by the kernel when a process dies, however it dies.
func (b *builder) lock(ctx context.Context) (unlock func(), err error) {
	path := b.plane.home + ".lock"
	l, holder, err := tryLock(path)
	if err != nil {
		return nil, err
	}
	if l != nil {
		return l.release, nil
	}
	b.report.line("waiting for another build%s to finish", holder)
	finish := b.report.during(func(elapsed time.Duration) string {
		return fmt.Sprintf("waiting for another build%s, %s", holder, round(elapsed))
	})
	defer finish()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-ticker.C:
		}
		l, holder, err = tryLock(path)
		if err != nil {
			return nil, err
		}
		if l != nil {
			return l.release, nil
		}
	}
}

// Disk space that a build needs, rounded up from what it was seen to take.
const (
	binariesBytes = 1 << 30 // four binaries, and the one being linked
	goCacheBytes  = 5 << 30 // a cold Go build cache
	linkerBytes   = 1 << 30 // the go command's work folder
)

// checkDisk refuses where the binaries cannot fit, and only warns where it cannot know: a warm build cache
// grows by little.
func (b *builder) checkDisk() error {
	free, known := freeBytes(b.plane.home)
	if known && free < binariesBytes {
		return fmt.Errorf("%s has %s free, the binaries need %s; make room, or set LEASE_COORDINATOR_CACHE to another folder",
			b.plane.home, gib(free), gib(binariesBytes))
	}
	for _, place := range []struct {
		what, dir string
		need      uint64
	}{
		{"the Go build cache", b.plane.recipe.goCache, goCacheBytes},
		{"the temporary folder", os.TempDir(), linkerBytes},
	} {
		if free, known := freeBytes(place.dir); known && free < place.need {
			b.report.line("warning: %s (%s) has %s free, a cold build needs up to %s", place.what, place.dir, gib(free), gib(place.need))
		}
	}
	return nil
}

func gib(bytes uint64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30)) }

func round(d time.Duration) time.Duration { return d.Round(time.Second) }
