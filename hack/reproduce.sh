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

# Makes a release of $VERSION twice, from copies of the tree in folders of different names, once with an empty build cache,
# and compares every file. To compare with a release that somebody else made: hack/reproduce.sh its-sha256sums.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ $# -gt 1 || -z ${VERSION:-} ]]; then
  echo "usage: VERSION=v1.2.3 $0 [FILE]" >&2
  exit 2
fi
published=${1:+$(realpath "$1")}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

copy() {
  mkdir -p "$1"
  git ls-files --cached --others --exclude-standard -z -- go.mod go.sum Dockerfile api cmd internal hack |
    xargs -0 sh -c 'for f; do [ ! -e "$f" ] || printf "%s\0" "$f"; done' sh | tar -c --null -T - | tar -x -C "$1"
}
make_release() {
  "$1/hack/release.sh" "$2" && cat "$2/sha256sums"
}

copy "$tmp/a"
copy "$tmp/another folder/of a longer name"
echo "reproduce: once, with an empty build cache; minutes"
GOCACHE=$tmp/cache make_release "$tmp/a" "$tmp/first"
echo "reproduce: once more"
make_release "$tmp/another folder/of a longer name" "$tmp/second"
diff -r "$tmp/first" "$tmp/second" || { echo "reproduce: the two differ"; exit 1; }
if [[ -n $published ]]; then
  diff "$published" "$tmp/first/sha256sums" || { echo "reproduce: $published differs"; exit 1; }
fi
echo "reproduce: the same, bit for bit"
