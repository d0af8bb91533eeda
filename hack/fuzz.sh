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

# Runs every fuzz target of this module for the given time. The targets are found, not listed, so that none is
# forgotten.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
fuzztime=${1:-1m}

# Asking a package for its targets links its tests, so only those that may have some are asked.
folders=$({ git grep --untracked -l '^func Fuzz' -- '*_test.go' || true; } | xargs -r -n1 dirname | sort -u)
count=0
for folder in $folders; do
  for target in $("$go" test -list '^Fuzz' "./$folder" | grep '^Fuzz' || true); do
    echo "fuzz: $target in ./$folder for $fuzztime"
    "$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" "./$folder"
    count=$((count + 1))
  done
done
echo "fuzz: $count targets"
