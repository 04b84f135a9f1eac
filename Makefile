# The targets that say what they do after "##" make up `make help`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TOOLS    := $(CURDIR)/.tools
VERSION  ?= 1.31.1-lite.1-$(shell git describe --always --dirty=-modified --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X main.version=$(VERSION)
# gRPC's traces would link HTML templates, and those every exported method there is: a third of the binary, and of it 8 MiB in memory.
TAGS     := grpcnotrace
LINT     := 2.15.0
# Packages compiled at once: each of the largest needs about a gigabyte.
JOBS     ?= 2
# Envoy for the demo and the tests: the one fetched into .tools, or ENVOY=/path/to/envoy.
ENVOY    ?= $(TOOLS)/envoy
# The oldest Envoy that takes virtual hosts by themselves: the end-to-end tests try those on both.
ENVOY_OLDEST ?= $(TOOLS)/envoy-1.37
# What the end-to-end tests run beside it, built into .tools at the versions that deploy/tools/gotool.sh names; each may be one of your own in the same way.
ETCD           ?= $(TOOLS)/etcd
KUBE_APISERVER ?= $(TOOLS)/kube-apiserver
HELM3          ?= $(TOOLS)/helm3
HELM4          ?= $(TOOLS)/helm4
KUBECONFORM    ?= $(TOOLS)/kubeconform
CLUSTER        := $(ETCD) $(KUBE_APISERVER)
CHARTS         := $(HELM3) $(HELM4) $(KUBECONFORM)
# The race detector needs a C compiler.
CC       ?= cc
RACE     := $(if $(shell command -v $(CC)),-race)

export ENVOY ENVOY_OLDEST ETCD KUBE_APISERVER HELM3 HELM4 KUBECONFORM
# One setting for the binaries, vet and the end-to-end tests, so that they share what is compiled.
export CGO_ENABLED := 0

.PHONY: help all build run demo test unit e2e bench lint fmt gen image tools clean micro

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

all: build test ## Build and test.

build: ## Build bin/pilot-discovery, one static binary. The first build takes a minute or two.
	go build -p $(JOBS) -tags '$(TAGS)' -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/pilot-discovery

run: build $(ENVOY) ## Run the control plane with a small mesh of real Envoys, and stay up. No root, no fixed port.
	go build -p $(JOBS) -o bin/demo ./deploy/demo
	@exec bin/demo -stay

demo: build $(ENVOY) ## The same, as a tour: shift traffic while it runs, print who answered, clean up.
	go build -p $(JOBS) -o bin/demo ./deploy/demo
	@exec bin/demo

test: unit e2e ## Test everything: vet, unit tests under the race detector, end to end with real Envoys.

unit: $(ENVOY) $(HELM3) $(HELM4)
	go vet -p $(JOBS) ./...
	$(if $(RACE),,@echo 'no C compiler: the unit tests run without the race detector')
	$(if $(RACE),CGO_ENABLED=1) go test -p $(JOBS) $(RACE) -timeout 15m $$(go list ./... | grep -v /deploy/e2e)

e2e: build $(ENVOY) $(ENVOY_OLDEST) $(CLUSTER) $(CHARTS) ## Test end to end only.
	go test -p $(JOBS) -count=1 -v -timeout 20m ./deploy/e2e/...

bench: build $(CLUSTER) ## Measure beside the real istiod, into deploy/bench/RESULTS.md: W=W1,W3 SERVICES=250,1000 PROXIES=300 ROUNDS=5; GROWTH=1 draws how cost grows. LENGTH=5s and the like are trials, into bin/RESULTS.md.
	PILOT_DISCOVERY=$(CURDIR)/bin/pilot-discovery go run ./deploy/bench $(if $(W),-w $(W)) $(if $(SERVICES),-services $(SERVICES)) \
		$(if $(PROXIES),-proxies $(PROXIES)) $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(LENGTH),-length $(LENGTH)) $(if $(GROWTH),-growth) $(BENCHFLAGS)

micro: ## Run the micro-benchmarks of the way from a change to a response, into deploy/bench/micro.txt, which benchstat reads: COUNT=6.
	@mkdir -p bin
	go test -p 1 -timeout 1h -run '^$$' -bench '^Benchmark(Commit|Translate|Diff|Splice|Push)$$' -benchmem -benchtime 300ms -count $(or $(COUNT),6) \
		./pilot/snapshot ./pilot/translate ./pilot/xds ./pilot/bootstrap | tee bin/micro.txt
	mv bin/micro.txt deploy/bench/micro.txt

lint: $(TOOLS)/golangci-lint-$(LINT) ## Lint with golangci-lint.
	$< run ./...

fmt: $(TOOLS)/golangci-lint-$(LINT) ## Format all Go files.
	$< fmt ./...

gen: $(HELM3) $(HELM4) ## Write the custom resources and the golden files anew, from what is pinned and what the code does now: read the diff before committing it.
	go run ./deploy/crds charts/base/files/crds
	go test -p $(JOBS) $$(grep -rlE --include='*_test.go' 'flag\.Bool\("update"|world\.Update' . | xargs -r -n1 dirname | sort -u) -args -update

image: build ## Write bin/image.tar, an OCI image with the binary alone. No Docker needed.
	go run ./deploy/image -o bin/image.tar -version '$(VERSION)' bin/pilot-discovery

tools: $(ENVOY) $(ENVOY_OLDEST) $(CLUSTER) $(CHARTS) $(TOOLS)/golangci-lint-$(LINT) ## Fetch or build the tools that the other targets need into .tools.

clean: ## Remove what was built; .tools stays.
	rm -rf bin

$(TOOLS)/envoy $(TOOLS)/envoy-1.37: deploy/tools/envoy.sh
	deploy/tools/envoy.sh $(TOOLS) $(@F)
	@touch $@

# A failed build leaves nothing; a change of one version builds that tool alone.
$(addprefix $(TOOLS)/,etcd kube-apiserver helm3 helm4 kubeconform): deploy/tools/gotool.sh
	JOBS=$(JOBS) deploy/tools/gotool.sh $(TOOLS) $(@F)
	@touch $@

$(TOOLS)/golangci-lint-$(LINT):
	GOBIN=$(TOOLS) go install -p $(JOBS) github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(LINT)
	mv $(TOOLS)/golangci-lint $@
