#!/bin/sh
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

# hack/build.sh FILE builds the coordinator as it is shipped: static, for GOOS and GOARCH, saying that it is $VERSION.
# make and the Dockerfile both call it, so that the same sources, version and Go give the same file, whoever builds it,
# in whatever folder. What of the caller's settings would change the file is therefore set here.
set -eu
if [ $# -ne 1 ] || [ -z "${VERSION:-}" ]; then
  echo "usage: VERSION=v1.2.3 [GOOS=linux] [GOARCH=arm64] $0 FILE" >&2
  exit 2
fi
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0
exec "${GO:-go}" build -trimpath -buildvcs=false \
  -ldflags "-s -w -X github.com/lease-coordinator/coordinator/internal/coordinator.version=$VERSION" \
  -o "$1" ./cmd/coordinator
