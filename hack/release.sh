#!/usr/bin/env bash
# Copyright The lease-coordinator Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

# hack/release.sh FOLDER makes everything that a release of $VERSION consists of: binaries for linux on each of ARCHES,
# their bills of materials, a container image and checksums. Same sources and version, same files, wherever it runs;
# hack/reproduce.sh checks that. Go is the version that the Dockerfile names, which the go command fetches if it is not the
# one at hand; RELEASE_TOOLCHAIN=local takes the one at hand.
set -euo pipefail
if [[ $# -ne 1 || -z ${VERSION:-} ]]; then
  echo "usage: VERSION=v1.2.3 $0 FOLDER" >&2
  exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."

pinned=$(sed -n 's/^FROM .*golang:\([0-9.]*\) .*/\1/p' Dockerfile)
export GOTOOLCHAIN=${RELEASE_TOOLCHAIN:-go${pinned:?the Dockerfile names no version of Go}}
go=${GO:-go}

# The tool runs on this machine, whatever it is.
unset GOOS GOARCH
binaries=()
for arch in ${ARCHES:-amd64 arm64}; do
  binaries+=("$folder/coordinator-linux-$arch")
  GOOS=linux GOARCH=$arch hack/build.sh "${binaries[-1]}"
done
"$go" run -C hack/release . -dockerfile ../../Dockerfile -version "$VERSION" "${binaries[@]}"
