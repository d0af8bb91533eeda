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

# Releases are built with this version of Go, outside of the image too: the Makefile reads it here. A tag, not a digest:
# the compiler's output is what counts, and `make reproduce` checks that.
FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=v0.0.0-unknown
WORKDIR /src
# Before the sources, so that a change of these alone downloads again.
COPY go.mod go.sum ./
RUN go mod download
COPY hack/build.sh hack/
COPY api/ api/
COPY cmd/ cmd/
COPY internal/ internal/
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH VERSION=$VERSION hack/build.sh /coordinator

# Nothing else: the binary is static, and takes the cluster's CA from its service account or kubeconfig. hack/release
# reads what follows, to make the same image without a daemon.
FROM scratch
ARG VERSION=v0.0.0-unknown
LABEL org.opencontainers.image.title="lease-coordinator"
LABEL org.opencontainers.image.description="Coordinated leader election for Kubernetes: names the best leader, not the first"
LABEL org.opencontainers.image.source="https://github.com/lease-coordinator/coordinator"
LABEL org.opencontainers.image.licenses="Apache-2.0"
LABEL org.opencontainers.image.version="$VERSION"
COPY --from=build /coordinator /coordinator
# By number: the kubelet cannot see from a name that it is not root.
USER 65532:65532
ENTRYPOINT ["/coordinator"]
