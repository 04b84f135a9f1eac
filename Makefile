# `make help` lists the targets with a text after "##".
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
space := $(subst ,, )
comma := ,

TOOLS    := $(CURDIR)/.tools
VERSION  ?= 1.31.1-lite.1-$(shell git describe --always --dirty=-modified --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X github.com/istiod-lite/istiod-lite/cmd/version.linked=$(VERSION)
# This tag leaves out gRPC's traces, which no page shows.
TAGS     := grpcnotrace
LINT     := 2.15.0
# The version of the database of known vulnerabilities, which is a module.
VULNDB   ?= v0.0.0-20261105234957-e22db6528018
# The version of Go's FIPS 140-3 module that has a certificate, and the packages that work with certificates and TLS.
FIPS     ?= v1.0.0
FIPS_PACKAGES := ./api/armor ./api/compliance ./api/credentials ./api/jwks ./citadel/... ./pilot/agent/ca ./pilot/agent/secrets ./pilot/agent/upstream \
	./pilot/config/mcp ./pilot/facts/bundles ./pilot/facts/keysets
# The number of packages to compile in parallel. Each of the largest needs about a gigabyte.
JOBS     ?= 2
# The number of packages of end-to-end tests to run in parallel. They mostly wait.
E2E_JOBS ?= 3
# Envoy for the demo and the tests: the one fetched into .tools, or ENVOY=/path/to/envoy.
ENVOY    ?= $(TOOLS)/envoy
# The oldest Envoy that supports VHDS. The end-to-end tests of VHDS run with both Envoys.
ENVOY_OLDEST ?= $(TOOLS)/envoy-1.37
# Other programs of the tests, built into .tools at the versions in deploy/tools/go.mod. Each can be replaced in the same way.
ETCD           ?= $(TOOLS)/etcd
KUBE_APISERVER ?= $(TOOLS)/kube-apiserver
HELM4          ?= $(TOOLS)/helm4
# Only for `make compat-helm`: tests also use Helm 3 if the environment names it.
HELM3          ?= $(TOOLS)/helm3
KUBECONFORM    ?= $(TOOLS)/kubeconform
PROMQL         ?= $(TOOLS)/promql
# The programs of other projects that each package of deploy/e2e/integrations runs with, at the versions in deploy/tools/module.sh.
PROGRAMS_rollouts := argo-rollouts
PROGRAMS_ratelimit := ratelimit miniredis
PROGRAMS_login := oauth2-proxy mockoidc
PROGRAMS_spire := spire-server spire-agent
PROGRAMS_release := goreleaser cosign cyclonedx-gomod go-licenses
PROGRAMS_vulncheck := govulncheck
PROGRAMS_certmanager := cert-manager
PROGRAMS_externaldns := external-dns
PROGRAMS_flagger := flagger prometheus
PROGRAMS       := $(sort $(foreach i,$(filter PROGRAMS_%,$(.VARIABLES)),$($(i))))
# The cheapest packages of deploy/e2e/integrations, or those that RUN names.
INTEGRATIONS   := $(if $(filter all,$(RUN)),$(patsubst deploy/e2e/integrations/%/doc.go,%,$(wildcard deploy/e2e/integrations/*/doc.go)),$(or $(subst $(comma), ,$(RUN)),ratelimit login))
CLUSTER        := $(ETCD) $(KUBE_APISERVER)
CHARTS         := $(HELM4) $(KUBECONFORM)
GOTESTSUM      := $(TOOLS)/gotestsum
# The race detector needs a C compiler.
CC       ?= cc
RACE     := $(if $(shell command -v $(CC)),-race)
# By default, a program under the race detector sleeps for a second when it ends.
RACING   := $(if $(RACE),CGO_ENABLED=1 GORACE=atexit_sleep_ms=0)
# Prints once a minute that a silent command is still running.
PROGRESS := deploy/tools/progress.sh
# $(call GOTEST,STAGE,FORMAT,PACKAGES AT ONCE) runs go test under gotestsum, which keeps every line of its output in bin/test/STAGE.json.
GOTESTSUM_ARGS = $(GOTESTSUM) --format $(2) --format-icons text --format-hide-empty-pkg --hide-summary output,skipped --jsonfile bin/test/$(1).json
GOTEST_ARGS    = $(TESTFLAGS) -vet=off -exec '$(CURDIR)/deploy/tools/cpu.sh $(CURDIR)/bin/test/cpu.txt'
GOTEST    = $(PROGRESS) $(1) $(GOTESTSUM_ARGS) -- -p $(or $(3),$(JOBS)) $(GOTEST_ARGS)
# $(call EACH,STAGE,FORMAT,TESTS) does so for single tests, which a command prints as "FOLDER NAME".
EACH      = all=$$($(3)) && $(PROGRESS) $(1) $(GOTESTSUM_ARGS) --raw-command -- deploy/tools/each.sh "$$all" $(GOTEST_ARGS)
# The stages of `make test`. Without a C compiler, the unit stage runs the tests of the race and norace stages.
STAGES   := vet e2e unit $(if $(RACE),race norace)
# Tests with one goroutine, which take long under the race detector.
NORACE   := deploy/tools/tests.sh 'histories\.(NoRace|FewerWithRace|Raced)' | grep -Ff <(deploy/tools/units.sh shared | sed 's/$$/ /') -
# The parts of `make test-long`, each with its minutes on two cores; the folders of deploy and deploy/e2e that only it tests; and the tests that call testing.Short.
LONG     := faults:1 fips:5 audit:2 conformance:4 integrations:4 boards:3 large:18 racing:9 mutants:12 seeds:10 compat:25 upgrades:12
LONG_PACKAGES := mutants agentfaults pilotagent conformance bench boards release vulncheck upgrade restore integrations/[a-z0-9]+
LARGE    := deploy/tools/tests.sh 'testing\.Short\(\)' | grep -vE '/($(subst $(space),|,$(LONG_PACKAGES))) '

# Tests run the program that was built.
HERE     := PILOT_DISCOVERY=$(CURDIR)/bin/pilot-discovery

export ENVOY ENVOY_OLDEST ETCD KUBE_APISERVER HELM4 KUBECONFORM PROMQL
# vet, the binaries, the tools and the tests without the race detector have the same settings, so that they share compiled packages.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath -tags=%,$(shell go env GOFLAGS)) -trimpath -tags=$(TAGS)

.PHONY: help all build run demo check test test-long budget vet unit race norace e2e faults conformance integrations upgrades boards large racing seeds mutants compat compat-tools agents compat-helm soak ui bench lint fmt gen image licences release verify-release releases fips vulncheck audit tools clean micro

help: ## Show this list.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {n = split($$2, w, " "); line = sprintf("  %-12s", $$1); \
		for (i = 1; i <= n; i++) {if (length(line) + 1 + length(w[i]) > 120) {print line; line = sprintf("%14s", "")} line = line " " w[i]} \
		print line}' $(MAKEFILE_LIST)

all: build test ## Build and test.

build: ## Build bin/pilot-discovery and bin/pilot-agent, each one static binary. The first build takes a minute or two.
	@$(PROGRESS) -v build go build -v -p $(JOBS) -ldflags '$(LDFLAGS)' -o bin/ ./cmd/pilot-discovery ./cmd/pilot-agent

run: build $(ENVOY) ## Run the control plane with a small mesh of real Envoys, and stay up. No root, no fixed port.
	@$(PROGRESS) -v build go build -v -p $(JOBS) -o bin/demo ./deploy/demo
	@exec bin/demo -stay

demo: build $(ENVOY) ## The same, as a tour: shift traffic while it runs, print who answered, clean up.
	@$(PROGRESS) -v build go build -v -p $(JOBS) -o bin/demo ./deploy/demo
	@exec bin/demo

check: $(GOTESTSUM) $(TOOLS)/golangci-lint-$(LINT) $(ENVOY) $(ENVOY_OLDEST) $(HELM4) | bin/test ## Check the packages that changed since origin/main: vet, lint, the rules of the tree, short unit tests. One package takes less than a minute.
	@changed=$$(deploy/tools/changed.sh); units=$$(grep -v ^./deploy/e2e <<<"$$changed" || true); \
	if [[ -n $$changed ]]; then $(PROGRESS) vet go vet $$changed; $(PROGRESS) lint $(TOOLS)/golangci-lint-$(LINT) run --allow-parallel-runners $$changed; fi; \
	$(GOTESTSUM) --format pkgname-and-test-fails --format-icons text --hide-summary output,skipped -- -vet=off -short $$(printf '%s\n' ./deploy/house $$units | sort -u)

# Every stage runs even if others fail, and the summary lists the failures. Two stages run at a time, because end-to-end tests mostly wait. Vet comes first, because it
# compiles the packages that they share.
test: $(GOTESTSUM) ## Run the tests for every push, in ten minutes on two cores: vet, unit tests, the race detector for packages with goroutines, and end-to-end tests with real Envoys.
	@rm -rf bin/test
	@$(MAKE) --no-print-directory vet || true
	@$(MAKE) --no-print-directory --keep-going -j2 $(filter-out vet,$(STAGES)) || true
	@deploy/tools/slowest.sh $(GOTESTSUM) bin/test deploy/tools/budget.txt
	@deploy/tools/summary.sh $(GOTESTSUM) bin/test $(STAGES)

test-long: $(GOTESTSUM) ## Run the other tests, in an hour and a half: the targets below that are marked "long". FIRST=seeds begins with that one, MINUTES=40 skips parts that would end later.
	@deploy/tools/long.sh $(GOTESTSUM) '$(MINUTES)' '$(FIRST)' $(LONG)

budget: $(GOTESTSUM) ## Measure the CPU time of each package in `make test`, and fail if one uses twice its budget. WRITE=1 writes the figures to deploy/tools/budget.txt.
	@$(MAKE) --no-print-directory test TESTFLAGS=-count=1
	@deploy/tools/budget.sh bin/test/cpu.txt deploy/tools/budget.txt $(if $(WRITE),deploy/tools/budget.txt)

vet: | bin/test ## Vet all packages.
	$(PROGRESS) -v vet go vet -v -p $(JOBS) ./... 2>&1 | tee bin/test/vet.log
	@touch bin/test/vet.ok

# Random histories begin with this seed, so that a failed run can be repeated. 0 means a random seed, as in soak.
export RAPID_SEED ?= 1

unit: build $(ENVOY) $(ENVOY_OLDEST) $(HELM4) $(GOTESTSUM) | bin/test ## Test the packages without goroutines and shared memory, without the race detector.
	$(if $(RACE),,@echo 'no C compiler: the unit tests run without the race detector')
	$(HERE) $(call GOTEST,unit,pkgname-and-test-fails) -short -timeout 15m $$(deploy/tools/units.sh single $(if $(RACE),,; deploy/tools/units.sh shared))
	@touch bin/test/unit.ok

# The slowest packages come first.
race: build $(ENVOY) $(ENVOY_OLDEST) $(HELM4) $(GOTESTSUM) | bin/test ## Test the other packages under the race detector, which needs a C compiler.
	$(HERE) $(RACING) $(call GOTEST,race,pkgname-and-test-fails) $(RACE) -short -timeout 15m ./pilot/translate ./pilot/bootstrap ./pilot/config/crd $$(deploy/tools/units.sh shared)
	@touch bin/test/race.ok

norace: $(GOTESTSUM) | bin/test ## Run, without the race detector, the whole tests that the race stage skips or shortens.
	$(call EACH,norace,testname,$(NORACE)) -short -timeout 15m
	@touch bin/test/norace.ok

e2e: build $(ENVOY) $(ENVOY_OLDEST) $(CLUSTER) $(CHARTS) $(PROMQL) $(GOTESTSUM) | bin/test ## Test end to end, with real Envoys and a real API server.
	$(HERE) $(call GOTEST,e2e,testname,$(E2E_JOBS)) -count=1 -short -timeout 20m $$(go list ./deploy/e2e/... | grep -vE '/($(subst $(space),|,$(LONG_PACKAGES)))$$')
	@touch bin/test/e2e.ok

conformance: build $(ENVOY) $(CLUSTER) $(HELM4) $(if $(PEER),$(addprefix $(TOOLS)/,istiod istio-chart)) ## long: the conformance suite of the Gateway API, with all features that istiod claims, into deploy/conformance/report.yaml; logs go to bin/conformance. RUN=core runs the core, RUN=HTTPRouteCORS,MeshSplit some tests; PEER=istiod tests the real istiod.
	@rm -rf bin/conformance
	PILOT_DISCOVERY=$(CURDIR)/bin/pilot-discovery CONFORMANCE=$(or $(RUN),all) CONFORMANCE_OUT=$(CURDIR)/bin/conformance \
		$(if $(PEER),ISTIOD=$(TOOLS)/istiod ISTIO_CHART=$(TOOLS)/istio-chart) \
		go test -p $(JOBS) -vet=off -v -count=1 -timeout 1h -parallel 4 ./deploy/e2e/conformance || status=$$?; \
	$(if $(RUN),,cp bin/conformance/report.yaml deploy/conformance/$(or $(PEER),report).yaml;) exit $${status:-0}

faults: build $(ENVOY) $(ENVOY_OLDEST) $(GOTESTSUM) | bin/test ## long: no request fails during faults of an agent, its disk, its clock or the control plane. Needs an idle machine.
	$(HERE) $(call GOTEST,faults,testname,1) -count=1 -timeout 20m ./deploy/e2e/agentfaults ./deploy/e2e/pilotagent

integrations: build $(ENVOY) $(CLUSTER) $(HELM4) $(foreach i,$(INTEGRATIONS),$(addprefix $(TOOLS)/,$(PROGRAMS_$(i)))) $(GOTESTSUM) | bin/test ## long: the packages of deploy/e2e/integrations with the real programs of other projects, which take minutes to build: the cheapest; RUN=all runs all, RUN=rollouts,flagger some.
	$(HERE) $(call GOTEST,integrations,testname,1) -count=1 -timeout 30m $(INTEGRATIONS:%=./deploy/e2e/integrations/%)

upgrades: build $(ENVOY) $(CLUSTER) $(HELM4) $(addprefix $(TOOLS)/,istiod istio-chart) $(GOTESTSUM) | bin/test ## long: no request fails while a control plane is upgraded from the release before, which is built, and back, while a revision or istiod is replaced, or while a mesh is restored on another cluster.
	@JOBS=$(JOBS) deploy/tools/previous.sh $(TOOLS)
	$(HERE) $(call GOTEST,upgrades,testname,1) -count=1 -timeout 40m ./deploy/e2e/upgrade ./deploy/e2e/restore

boards: build $(ENVOY) $(CLUSTER) $(PROMQL) $(GOTESTSUM) | bin/test ## long: alerts, dashboards and every workload of the benchmark.
	$(HERE) $(call GOTEST,boards,testname,1) -count=1 -timeout 20m ./deploy/e2e/boards ./deploy/e2e/bench

large: build $(ENVOY) $(ENVOY_OLDEST) $(CLUSTER) $(CHARTS) $(GOTESTSUM) | bin/test ## long: the whole tests that `make test` skips or shortens: the largest objects, all inputs that must fail closed, outages.
	$(HERE); export PILOT_DISCOVERY; $(call EACH,large,testname,$(LARGE)) -count=1 -timeout 40m

racing: build $(ENVOY) $(ENVOY_OLDEST) $(HELM4) $(GOTESTSUM) | bin/test ## long: the race detector for packages without goroutines.
	$(HERE) $(RACING) $(call GOTEST,racing,pkgname-and-test-fails) $(RACE) -short -timeout 20m $$(deploy/tools/units.sh single)

compat: build $(ENVOY) $(ENVOY_OLDEST) $(CLUSTER) $(HELM4) $(PROMQL) $(addprefix $(TOOLS)/,pilot-agent istiod istioctl istio-chart istio-dashboards) $(GOTESTSUM) | bin/test ## long: tests against openssl and Istio's own pilot-agent, istiod, istioctl, chart and dashboards, which take some minutes to build. COMPAT_UPDATE=1 writes deploy/compat/MATRIX.md. RAPID_SEED=17 repeats a search for configuration that istiod leaves less open.
	go vet -tags $(TAGS),compat ./citadel/rotation ./citadel/store ./deploy/e2e/mtls ./deploy/e2e/kube ./deploy/e2e/charts ./deploy/e2e/pairs ./deploy/e2e/boards ./deploy/e2e/istioctl ./deploy/e2e/pages ./deploy/e2e/gatewaystatus ./deploy/e2e/openness ./api/settings
	RAPID_SEED=$(if $(filter file,$(origin RAPID_SEED)),0,$(RAPID_SEED)) \
	PILOT_DISCOVERY=$(CURDIR)/bin/pilot-discovery PILOT_AGENT=$(TOOLS)/pilot-agent ISTIOD=$(TOOLS)/istiod ISTIO_CHART=$(TOOLS)/istio-chart \
		ISTIO_DASHBOARDS=$(TOOLS)/istio-dashboards ISTIOCTL=$(TOOLS)/istioctl \
		$(call GOTEST,compat,testname) -tags $(TAGS),compat -run 'PilotAgent|OpenSSL|AsIstio|OfIstio' -count=1 -timeout 20m ./citadel/rotation ./citadel/store ./deploy/e2e/mtls ./deploy/e2e/kube ./deploy/e2e/charts ./deploy/e2e/pairs ./deploy/e2e/boards ./deploy/e2e/istioctl ./deploy/e2e/pages ./deploy/e2e/gatewaystatus ./deploy/e2e/openness ./api/settings

agents: build $(ENVOY) $(ENVOY_OLDEST) $(CLUSTER) $(addprefix $(TOOLS)/,pilot-agent istiod) ## Compare both agents with this control plane: time until ready, memory, CPU of scrapes, DNS queries.
	PILOT_DISCOVERY=$(CURDIR)/bin/pilot-discovery PILOT_AGENT=$(TOOLS)/pilot-agent ISTIOD=$(TOOLS)/istiod \
		go test -p $(JOBS) -vet=off -tags $(TAGS),compat -run FiguresOfAgents -v -count=1 -timeout 20m ./deploy/e2e/pairs

compat-helm: $(HELM3) $(HELM4) $(KUBECONFORM) $(CLUSTER) $(GOTESTSUM) | bin/test ## Test the charts on Helm 3 as well as Helm 4.
	HELM3=$(HELM3) $(call GOTEST,compat-helm,testname) -count=1 -timeout 20m ./deploy/charts ./deploy/e2e/charts

bin/test:
	@mkdir -p $@

soak: $(ENVOY) $(ENVOY_OLDEST) ## Test random histories with new seeds until one fails. CHECKS=1000 sets the checks of each property, LENGTH=10m the time of the whole server and of renewals in a round.
	deploy/tools/soak.sh $(or $(CHECKS),1000) $(or $(LENGTH),10m)

seeds: $(ENVOY) $(ENVOY_OLDEST) | bin/test ## long: eight minutes of random tests, with new seeds and in a random order.
	$(PROGRESS) seeds deploy/tools/soak.sh 1000 90s 8 2>&1 | tee bin/test/seeds.log

mutants: $(GOTESTSUM) | bin/test ## long: a test fails with each fault of the table in deploy/mutants. MUTANTS='a Gateway' selects faults by name.
	$(call GOTEST,mutants,testname) -count=1 -timeout 2h -run '^TestMutants$$' ./deploy/mutants -args -mutants='$(MUTANTS)'

ui: build ## Test the live page in Chromium, and make its screenshots in docs/images. CHROMIUM=/path/to/chromium.
	mkdir -p docs/images
	go test -count=1 -tags=$(TAGS),browser -timeout 20m ./deploy/ui -screenshots $(CURDIR)/docs/images

bench: build $(CLUSTER) $(HELM4) ## Compare with the real istiod, into deploy/bench/RESULTS.md: W=W1,W3 SERVICES=250,1000 PROXIES=300 ROUNDS=5; GROWTH=1 draws how costs grow. Trials, such as LENGTH=5s, are written to bin/RESULTS.md.
	PILOT_DISCOVERY=$(CURDIR)/bin/pilot-discovery go run ./deploy/bench $(if $(W),-w $(W)) $(if $(SERVICES),-services $(SERVICES)) \
		$(if $(PROXIES),-proxies $(PROXIES)) $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(LENGTH),-length $(LENGTH)) $(if $(GROWTH),-growth) $(BENCHFLAGS)

micro: ## Run the micro-benchmarks from a change to a response, into deploy/bench/micro.txt, which benchstat reads: COUNT=6.
	@mkdir -p bin
	go test -p 1 -timeout 1h -run '^$$' -bench '^Benchmark(Commit|Translate|Diff|Splice|Push)$$' -benchmem -benchtime 300ms -count $(or $(COUNT),6) \
		./pilot/snapshot ./pilot/translate ./pilot/xds/... ./pilot/bootstrap | tee bin/micro.txt
	mv bin/micro.txt deploy/bench/micro.txt

lint: $(TOOLS)/golangci-lint-$(LINT) ## Lint with golangci-lint.
	$< run ./...

fmt: $(TOOLS)/golangci-lint-$(LINT) ## Format all Go files.
	$< fmt ./...

gen: $(HELM4) ## Write the custom resources and the golden files again, from the pinned modules and the current code: read the diff before committing it.
	go run ./deploy/crds charts/base/files/crds galley/validation/schema/schemas.zip
	go test -p $(JOBS) $$(grep -rlE --include='*_test.go' 'flag\.Bool\("update"|world\.Update|featuretest\.Run' . | xargs -r -n1 dirname | sort -u) -args -update

image: build ## Write bin/image.tar, an OCI image with only the two binaries. No Docker needed.
	go run ./deploy/image -o bin/image.tar -version '$(VERSION)' bin/pilot-discovery bin/pilot-agent

licences: ## Compare the licences of the modules that the programs link with the list in docs/dependencies.md.
	go test -count=1 -vet=off -run Licences ./deploy/release

release: $(HELM4) $(addprefix $(TOOLS)/,$(PROGRAMS_release)) ## Write a signed release of the commit into bin/release, offline and the same each time: VERSION=1.31.1-lite.2 COSIGN_KEY=cosign.key.
	deploy/release/release.sh '$(VERSION)' bin/release $(TOOLS)

verify-release: $(HELM4) $(TOOLS)/cosign ## Check the release in bin/release, or in DIR=, as a company can that adopts it: signatures, checksums, provenance, contents. KEY=cosign.pub names the trusted key.
	@PATH=$(TOOLS):$$PATH deploy/release/verify.sh $(or $(DIR),bin/release) $(KEY)

# In the mode fips140=only, each algorithm that FIPS 140-3 does not approve fails. The clients of the last test use such algorithms, and its server runs in that mode.
fips: $(ENVOY) $(ENVOY_OLDEST) $(GOTESTSUM) | bin/test ## long: the CA, certificates and TLS, built with Go's validated module and in its FIPS 140-3 mode.
	GOFIPS140=$(FIPS) $(call GOTEST,fips,pkgname-and-test-fails) -exec 'env GODEBUG=fips140=only' -short -count=1 -timeout 20m $(FIPS_PACKAGES)
	GOFIPS140=$(FIPS) $(call GOTEST,fips-server,testname) -count=1 -timeout 20m -run '^TestCompliance$$' ./deploy/e2e/gatewaytls

# The sed command keeps only the first of the calls that lead to a vulnerable function.
vulncheck: $(TOOLS)/govulncheck ## Look for known vulnerabilities of functions that the programs call, also in Go itself, offline. DB=folder is a copy of vuln.go.dev; by default it is the module golang.org/x/vulndb.
	@db='$(DB)'; if [[ -z $$db ]]; then db=$$(cd / && GOFLAGS= go mod download -json golang.org/x/vulndb@$(VULNDB) | sed -n 's/^\t"Dir": "\(.*\)",$$/\1/p')/data/osv; fi; \
	[[ -e $$db/index/modules.json ]] || compgen -G "$$db/GO-*.json" >/dev/null || { echo "$$db has no vulnerabilities: it is no copy of vuln.go.dev" >&2; exit 1; }; \
	$(TOOLS)/govulncheck -db "file://$$(realpath "$$db")" $(or $(PROGRAM),./cmd/pilot-discovery ./cmd/pilot-agent) | sed '/^ *#\([2-9]\|[1-9][0-9]\+\): /d'

releases: $(HELM4) $(addprefix $(TOOLS)/,$(PROGRAMS_release)) $(GOTESTSUM) | bin/test ## Test releases, before one is made: two clones make the same release, and a changed byte in any file of it is found.
	$(call GOTEST,releases,testname,1) -count=1 -timeout 2h ./deploy/e2e/release

audit: $(TOOLS)/govulncheck $(GOTESTSUM) | bin/test ## long: `make vulncheck` finds a vulnerability in a small database.
	$(call GOTEST,audit,testname,1) -count=1 -timeout 20m ./deploy/e2e/vulncheck

tools: $(ENVOY) $(ENVOY_OLDEST) $(CLUSTER) $(CHARTS) $(PROMQL) $(GOTESTSUM) $(TOOLS)/golangci-lint-$(LINT) ## Fetch or build the tools that the other targets need into .tools.

compat-tools: $(addprefix $(TOOLS)/,pilot-agent istiod istioctl istio-chart istio-dashboards $(PROGRAMS)) ## Build the programs of other projects that the long tests run with.

clean: ## Remove the build results. .tools stays.
	rm -rf bin

$(TOOLS)/envoy $(TOOLS)/envoy-1.37: deploy/tools/envoy.sh
	@$(PROGRESS) $(@F) deploy/tools/envoy.sh $(TOOLS) $(@F)
	@touch $@

# A failed build leaves nothing. A change of one version builds only that tool.
$(addprefix $(TOOLS)/,etcd kube-apiserver helm3 helm4 kubeconform gotestsum): deploy/tools/gotool.sh deploy/tools/go.mod
	@JOBS=$(JOBS) deploy/tools/gotool.sh $(TOOLS) $(@F)
	@touch $@

$(TOOLS)/promql: deploy/tools/promql.sh $(wildcard deploy/promql/*)
	@JOBS=$(JOBS) deploy/tools/promql.sh $(TOOLS)

$(addprefix $(TOOLS)/,pilot-agent istiod istioctl istio-chart istio-dashboards): deploy/tools/istio.sh
	@JOBS=$(JOBS) deploy/tools/istio.sh $(TOOLS) $(@F)
	@touch $@

$(addprefix $(TOOLS)/,$(PROGRAMS)): deploy/tools/module.sh
	@JOBS=$(JOBS) deploy/tools/module.sh $(TOOLS) $(@F)
	@touch $@

$(TOOLS)/golangci-lint-$(LINT):
	@GOBIN=$(TOOLS) $(PROGRESS) -v golangci-lint go install -v -p $(JOBS) github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(LINT)
	mv $(TOOLS)/golangci-lint $@
