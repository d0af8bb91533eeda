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

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=v0.0.0-unknown
WORKDIR /src
# Before the sources, so that a change of these alone downloads again.
COPY go.mod go.sum ./
RUN go mod download
COPY api/ api/
COPY cmd/ cmd/
COPY internal/ internal/
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
    -ldflags "-s -w -X github.com/lease-coordinator/coordinator/internal/coordinator.version=$VERSION" \
    -o /coordinator ./cmd/coordinator

FROM gcr.io/distroless/static:nonroot
COPY --from=build /coordinator /coordinator
# By number: the kubelet cannot see from a name that it is not root.
USER 65532:65532
ENTRYPOINT ["/coordinator"]
