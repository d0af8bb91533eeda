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

# make help lists every target; hack/verify fails where it does not.

SHELL := /usr/bin/env bash -o pipefail
.SHELLFLAGS := -ec
.DEFAULT_GOAL := help

MODULE := github.com/lease-coordinator/coordinator
GO ?= go
KUBECTL ?= kubectl
CONTAINER_TOOL ?= docker

# What `coordinator --version` says.
VERSION ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null || echo v0.0.0-$$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown))

# Tools are pinned in go.mod, except those that come with Go. Their paths are found only when they are used.
STATICCHECK = $(shell $(GO) tool -n honnef.co/go/tools/cmd/staticcheck)
CONTROLLER_GEN = $(GO) tool sigs.k8s.io/controller-tools/cmd/controller-gen

# Modules of their own, which ./... does not reach.
CONTROLPLANE := hack/controlplane
# So is hack/alerts, for Prometheus' rule engine.
ALERTS := hack/alerts
RELEASE := hack/release

# How long make test-e2e and make fuzz may take, and what they run. End-to-end tests mostly wait for leases to run
# out, so many more of them than there are cores run at once.
E2E_TIMEOUT ?= 30m
E2E_PARALLEL ?= 6
FUZZTIME ?= 1m
E2E = $(GO) test -race -count=1 -p=1 -parallel=$(E2E_PARALLEL) -timeout=$(E2E_TIMEOUT)
RUN ?=
PKG ?= ./internal/controller

# Writes the ClusterRole to the folder $(1).
generate-role = $(CONTROLLER_GEN) rbac:roleName=lease-coordinator,headerFile=hack/boilerplate.yaml.txt paths=./internal/... output:rbac:dir=$(1)

# Writes the DeepCopy methods of the package in the folder $(1), to the folder $(2).
generate-deepcopy = $(CONTROLLER_GEN) object:headerFile=hack/boilerplate.go.txt paths=./$(1) output:object:dir=$(2)
DEEPCOPY := api/v1alpha1 api/config/v1alpha1

# Writes the CustomResourceDefinition to the folder $(1).
generate-crd = $(CONTROLLER_GEN) crd:headerFile=hack/boilerplate.yaml.txt paths=./api/v1alpha1 output:crd:dir=$(1)
CRD := lease-coordinator.dev_leasecandidates.yaml

# No image is published yet, so there is no default that would work.
need-img = @[[ -n '$(IMG)' ]] || { echo "which image? make $@ IMG=registry/name:tag"; exit 1; }

##@ General

.PHONY: help
help: ## Show this.
	@awk 'BEGIN {FS = ":.*## "; print "Usage: make <target> [NAME=value ...]"} \
	  /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[A-Za-z0-9_-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Try it

.PHONY: demo
demo: controlplane ## Show leadership following the strategy through an upgrade and a rollback of a real control plane.
	$(GO) run ./test/demo

.PHONY: run
run: controlplane ## Leave a control plane with the coordinator and three candidates running, to try kubectl on; Ctrl-C ends it.
	$(GO) run ./test/demo run

.PHONY: timings
timings: controlplane ## Measure hand-off, graceful exit and failover with client-go candidates, and print a table.
	$(GO) run ./test/timings

.PHONY: flavours
flavours: controlplane ## Measure the library's hand-offs on API servers of every flavour, side by side; minutes.
	$(GO) run ./test/flavours

.PHONY: footprint
footprint: controlplane ## Measure install to first coordinated lease, and a coordinator when idle and with 10,000 leases; minutes.
	$(GO) run ./test/footprint

.PHONY: bench
bench: controlplane ## Measure candidates of the library beside plain client-go ones, into bench-results.json; minutes, best on an idle machine.
	$(GO) run ./test/bench

##@ Build

.PHONY: build
build: ## Build bin/coordinator, static and with its version in it, for this machine or GOOS= and GOARCH=.
	@GO=$(GO) VERSION=$(VERSION) hack/build.sh bin/coordinator

.PHONY: release
release: ## Build what a release has into bin/release: binaries for ARCHES="amd64 arm64", SBOMs, image, checksums.
	@rm -rf bin/release
	@GO=$(GO) VERSION=$(VERSION) hack/release.sh bin/release && cat bin/release/sha256sums

.PHONY: reproduce
reproduce: ## Make a release twice, once with an empty build cache, and compare them bit for bit; minutes.
	@GO=$(GO) VERSION=$(VERSION) hack/reproduce.sh

.PHONY: controlplane
controlplane: ## Build etcd and the Kubernetes components that tests and demo run on (once; minutes when cold).
	@$(GO) run -C $(CONTROLPLANE) . build >/dev/null

.PHONY: docker-build
docker-build: ## Build the container image IMG=registry/name:tag.
	$(need-img)
	$(CONTAINER_TOOL) build --build-arg VERSION=$(VERSION) -t $(IMG) .

.PHONY: docker-buildx
docker-buildx: ## Build and push the container image IMG=registry/name:tag for linux/amd64 and linux/arm64.
	$(need-img)
	$(CONTAINER_TOOL) buildx build --platform=linux/amd64,linux/arm64 --build-arg VERSION=$(VERSION) -t $(IMG) --push .

.PHONY: docker-push
docker-push: ## Push the container image IMG=registry/name:tag.
	$(need-img)
	$(CONTAINER_TOOL) push $(IMG)

.PHONY: clean
clean: ## Remove bin/ and artifacts/. (hack/controlplane/README.md says how to remove the control plane's binaries.)
	rm -rf bin artifacts

##@ Test

.PHONY: test
test: ## Run all tests: make controlplane, then test-unit, then test-e2e.
	@echo "make test: 1 of 3, the control plane (built once, then kept)"
	@$(MAKE) --no-print-directory controlplane
	@echo "make test: 2 of 3, unit tests with the race detector"
	@$(MAKE) --no-print-directory test-unit
	@echo "make test: 3 of 3, end-to-end tests on the real control plane"
	@$(MAKE) --no-print-directory test-e2e

.PHONY: test-unit
test-unit: ## Run the unit tests with the race detector; they need nothing but Go and a C compiler.
	packages=$$($(GO) list ./... | grep -v '/test/e2e') && $(GO) test -race $$packages
	$(GO) test -C $(CONTROLPLANE) -race ./...
	$(GO) test -C $(ALERTS) ./...
	$(GO) test -C $(RELEASE) -race ./...

.PHONY: test-e2e
test-e2e: controlplane ## Run the end-to-end tests: all, or those that match RUN=regexp, within E2E_TIMEOUT=30m.
	$(E2E) $(if $(RUN),-v -run '$(RUN)' ./test/e2e/...,-json ./test/e2e/... | $(GO) run ./hack/compatibility -check docs/compatibility.md)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME=1m.
	@GO=$(GO) hack/fuzz.sh $(FUZZTIME)

.PHONY: deflake
deflake: ## Run the tests of PKG=./folder, all or RUN=regexp, with the race detector until one fails.
	@GO=$(GO) hack/deflake.sh $(PKG) $(if $(RUN),'$(RUN)')

##@ Change the tree

.PHONY: fmt
fmt: ## Format the Go code.
	gofmt -w $$(git ls-files --cached --others --exclude-standard '*.go')

.PHONY: generate
generate: manifests deepcopy monitoring doctor ## Generate everything that is generated.

.PHONY: manifests
manifests: ## Generate config/rbac/role.yaml and config/crd/bases from the markers in internal/ and api/v1alpha1.
	$(call generate-role,config/rbac)
	$(call generate-crd,config/crd/bases)
	cp config/crd/bases/$(CRD) internal/doctor/crd.yaml

.PHONY: deepcopy
deepcopy: ## Generate the DeepCopy methods of API types.
	$(foreach folder,$(DEEPCOPY),$(call generate-deepcopy,$(folder),$(folder)) &&) true

.PHONY: monitoring
monitoring: ## Generate docs/monitoring.md from the definitions of metrics, events and reasons.
	$(GO) run ./hack/monitoring > docs/monitoring.md.new && mv docs/monitoring.md.new docs/monitoring.md

.PHONY: doctor
doctor: ## Generate docs/doctor.md from the checks of coordinator doctor.
	$(GO) run ./hack/doctor > docs/doctor.md.new && mv docs/doctor.md.new docs/doctor.md

# Every test that tells anything. One that is not here is told of by make test-e2e.
COMPATIBILITY := ^(TestCompatibility|TestComponents|TestInTreeYield|TestLibraryOnOurKindCoordinated|TestGateWithoutNativeKind|TestVersionToCome)$$

.PHONY: compatibility
compatibility: controlplane ## Generate docs/compatibility.md from what the end-to-end tests see; minutes.
	$(E2E) -json -run '$(COMPATIBILITY)' ./test/e2e | $(GO) run ./hack/compatibility docs/compatibility.md

##@ Check the tree
# These only read, so their order does not matter and make -j may run them at once. To add one: write
# verify-<what>, and name it in VERIFY. What writes the tree belongs in the section above.

VERIFY := verify-format verify-vet verify-lint verify-modules verify-generated verify-rules

# A check that writes, or a generator that leaves something behind, shows as a change of the tree. Work in
# progress is a change as well, so that can be seen only where the tree was clean to begin with. CI starts from a
# fresh checkout and must find it clean.
TREE_AT_START := $(if $(filter verify,$(MAKECMDGOALS)),$(if $(CI),,$(shell git status --porcelain 2>&1 | head -1)))

.PHONY: verify
verify: $(VERIFY) ## Run every check below.
	@if [[ -n '$(subst ','\'',$(TREE_AT_START))' ]]; then \
	  echo "verify: all checks passed; the tree had changes from the start, so whether it stays clean was not checked"; \
	elif left=$$(git status --porcelain) && [[ -z $$left ]]; then \
	  echo "verify: all checks passed, and the tree is clean"; \
	else \
	  echo "verify: the tree is not clean:"; echo "$$left"; exit 1; \
	fi

.PHONY: lint
lint: verify-vet verify-lint ## Run go vet and staticcheck.

.PHONY: verify-format
verify-format: ## Check that gofmt has nothing to change.
	@bad=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')) && \
	  if [[ -n $$bad ]]; then echo "not formatted (run make fmt):"; echo "$$bad"; exit 1; fi

.PHONY: verify-vet
verify-vet: ## Run go vet.
	$(GO) vet ./...
	$(GO) -C $(CONTROLPLANE) vet ./...
	$(GO) -C $(ALERTS) vet ./...
	$(GO) -C $(RELEASE) vet ./...

.PHONY: verify-lint
verify-lint: ## Run staticcheck.
	staticcheck=$(STATICCHECK) && "$$staticcheck" ./... && (cd $(CONTROLPLANE) && "$$staticcheck" ./...) && (cd $(ALERTS) && "$$staticcheck" ./...) && cd $(RELEASE) && "$$staticcheck" ./...

.PHONY: verify-modules
verify-modules: ## Check that go.mod and go.sum are tidy.
	$(GO) mod tidy -diff
	$(GO) -C $(CONTROLPLANE) mod tidy -diff
	$(GO) -C $(ALERTS) mod tidy -diff
	$(GO) -C $(RELEASE) mod tidy -diff

.PHONY: verify-generated
verify-generated: ## Check that generated files are up to date.
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && $(call generate-role,"$$tmp") && \
	  diff -u config/rbac/role.yaml "$$tmp/role.yaml" && \
	  $(call generate-crd,"$$tmp") && diff -u config/crd/bases/$(CRD) "$$tmp/$(CRD)" && \
	  $(GO) run ./hack/monitoring > "$$tmp/monitoring.md" && diff -u docs/monitoring.md "$$tmp/monitoring.md" && \
	  $(GO) run ./hack/doctor > "$$tmp/doctor.md" && diff -u docs/doctor.md "$$tmp/doctor.md" && diff -u config/crd/bases/$(CRD) internal/doctor/crd.yaml \
	  $(foreach folder,$(DEEPCOPY),&& $(call generate-deepcopy,$(folder),"$$tmp") && diff -u $(folder)/zz_generated.deepcopy.go "$$tmp/zz_generated.deepcopy.go") || \
	  { echo "not up to date (run make generate)"; exit 1; }

.PHONY: verify-rules
verify-rules: ## Check import rules, purity, licences, manifests, this help and more (hack/verify/rules.go).
	$(GO) run ./hack/verify

##@ Deploy

.PHONY: render
render: ## Print config/default, with IMG=registry/name:tag if given.
	@$(GO) run ./hack/render $(if $(IMG),-image '$(IMG)') default

.PHONY: deploy
deploy: ## Deploy IMG=registry/name:tag to the cluster that kubectl points at.
	$(need-img)
	$(GO) run ./hack/render -image '$(IMG)' default | $(KUBECTL) apply -f -

.PHONY: undeploy
undeploy: ## Remove what make deploy made. Leases and native LeaseCandidates stay; ours go with their definition.
	$(GO) run ./hack/render default | $(KUBECTL) delete --ignore-not-found -f -
