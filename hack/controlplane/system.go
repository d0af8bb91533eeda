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
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// fileLock is an advisory lock on a file that stays where it is: removing it would let two processes lock
// two files of one name.
type fileLock struct{ file *os.File }

// tryLock takes the lock, or returns no lock and a note about who has it.
func tryLock(path string) (lock *fileLock, holder string, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, "", err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		content, _ := io.ReadAll(file)
		if pid := strings.TrimSpace(string(content)); pid != "" {
			holder = " (process " + pid + ")"
		}
		return nil, holder, file.Close()
	case err != nil:
		return nil, "", errors.Join(fmt.Errorf("locking %s: %w", path, err), file.Close())
	}
	// For people only: who holds it is the kernel's to say.
	if err := file.Truncate(0); err == nil {
		_, _ = fmt.Fprintln(file, os.Getpid())
	}
	return &fileLock{file: file}, "", nil
}

// release lets the lock go; closing the file does it.
func (l *fileLock) release() { _ = l.file.Close() }

// freeBytes is the space a user may still take on the disk of a folder, if it can be known.
func freeBytes(dir string) (free uint64, known bool) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		return 0, false
	}
	return stat.Bavail * uint64(stat.Bsize), true
}
