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

# Runs the tests of one package with the race detector, in random order, until they fail or Ctrl-C is pressed.
#
#   hack/deflake.sh PACKAGE [REGEXP]
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
package=$1
run=${2:-.}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Built once: the loop then spends its time in the tests.
"$go" test -race -c -o "$work/tests" "$package"
folder=$("$go" list -f '{{.Dir}}' "$package")
round=0
while :; do
  round=$((round + 1))
  if ! (cd "$folder" && "$work/tests" -test.run "$run" -test.shuffle on -test.failfast -test.timeout 30m) >"$work/output" 2>&1; then
    cat "$work/output"
    echo "deflake: failed in round $round"
    exit 1
  fi
  echo "deflake: round $round passed"
done
