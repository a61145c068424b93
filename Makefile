# Tasks of this repository. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# One profile and one selection of packages for everything, so that each dependency is compiled once.
PROFILE := e2e
CARGO := cargo
ALL := --profile $(PROFILE) --workspace
BIN := target/$(PROFILE)

WORK ?= burst
PODS ?= 1000
NODES ?= 5000
OPERATIONS ?= 10000000
TARGETS ?= 2
SEED ?= 2
WORLDS ?= 100000
FROM ?= 1
MINUTES ?= 10

.PHONY: help
help: ## List the tasks.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: toolchain
toolchain:
	@for tool in cargo go git cc ip unshare; do \
	  command -v $$tool > /dev/null || { echo "error: $$tool is missing; install Rust, Go, git, a C compiler, iproute2 and util-linux" >&2; exit 1; }; \
	done

.PHONY: build
build: toolchain ## Build the services, the test ground and the control plane.
	$(CARGO) build $(ALL) --all-targets
	$(BIN)/controlplane

.PHONY: demo
demo: build ## Watch workloads spread over two clusters, then move when one is drained.
	$(BIN)/demo

.PHONY: playground
playground: build ## The same clusters, left running, with commands to look around.
	$(BIN)/demo --stay

.PHONY: test
test: build unit sample worlds e2e ## All tests.

.PHONY: unit
unit: toolchain ## Tests that need no cluster.
	$(CARGO) test $(ALL) --lib --bins --example price --test wire --test replay

.PHONY: sample
sample: build ## 20000 random pods through our scheduler and through upstream's.
	$(BIN)/parity --pods 20000

.PHONY: parity
parity: build ## Many more of them, from other seeds: make parity PODS=1000000 SEED=2.
	$(BIN)/parity --pods $(PODS) --seed $(SEED)

.PHONY: worlds
worlds: build ## The placement protocol in many short simulated worlds, and in some long ones.
	$(BIN)/sim --short --worlds 200
	$(BIN)/sim --worlds 48

.PHONY: sim
sim: build ## Protocol bugs on purpose are found, then as many worlds as you like: make sim WORLDS=100000 FROM=1.
	$(BIN)/sim --bug all --short --worlds 10000
	$(BIN)/sim --short --worlds $(WORLDS) --from $(FROM)
	$(BIN)/sim --worlds $(WORLDS) --from $(FROM)

.PHONY: mutants
mutants: build ## Seed errors into the plugins, one at a time: the sample must find each of them.
	$(BIN)/mutants

.PHONY: e2e
e2e: build ## Tests on real control planes.
	$(CARGO) test $(ALL) --test e2e

.PHONY: storm
storm: build ## Two minutes of chaos, and two more without fences, which must show what fences prevent.
	$(BIN)/chaos --minutes 2
	$(BIN)/chaos --minutes 2 --unfenced

.PHONY: chaos
chaos: build ## Kill and part everything under load, and count what must not happen: make chaos MINUTES=10 SEED=2.
	$(BIN)/chaos --minutes $(MINUTES) --seed $(SEED)

.PHONY: e2e-kind
e2e-kind: ## The same tests on kind, where Docker is present.
	deploy/kind/e2e.sh

.PHONY: bench
bench: build ## Measure: make bench WORK=burst PODS=1000 TARGETS=2, WORK=core NODES=5000, WORK=streams, or WORK=scheduler NODES=1000 PODS=5000 beside kube-scheduler.
ifeq ($(WORK),core)
	$(CARGO) run --release -p scheduling --example core -- \
	  --referee "$$($(BIN)/controlplane referee)" --nodes $(NODES) --pods $(PODS)
else ifeq ($(WORK),scheduler)
	$(CARGO) build --release -p candidate-scheduler
	$(BIN)/bench --work scheduler --nodes $(NODES) --pods $(PODS) --candidate-scheduler target/release/candidate-scheduler
else
	$(BIN)/bench --work $(WORK) --pods $(PODS) --targets $(TARGETS)
endif

.PHONY: churn
churn: toolchain ## A restless cluster on a virtual clock: what is kept must equal what is made anew.
	$(CARGO) run --release -p scheduling --example churn -- $(OPERATIONS)

.PHONY: ci
ci: scripts lint check-gen arch docs charts test ## What every change must pass.

.PHONY: fmt
fmt: ## Format the Rust code.
	$(CARGO) fmt --all

.PHONY: lint
lint: toolchain ## Formatting and clippy.
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(ALL) --all-targets -- -D warnings

# Workflows and scripts run only elsewhere: a linter reads them here.
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.7
SCRIPTS := .ci/run charts/check.sh deploy/kind/e2e.sh

.PHONY: scripts
scripts: toolchain ## Lint scripts and workflows.
	@command -v shellcheck > /dev/null || { apt-get -qq update && apt-get -qq install -y shellcheck > /dev/null; } \
	  || { echo "error: shellcheck is missing; install the Debian package shellcheck" >&2; exit 1; }
	shellcheck $(SCRIPTS)
	go run $(ACTIONLINT) .github/workflows/*.yml

.PHONY: gen
gen: build ## Write generated files.
	$(BIN)/xtask gen

.PHONY: check-gen
check-gen: build ## Fail if a generated file is stale.
	$(BIN)/xtask gen --check

.PHONY: arch
arch: build ## Compare the dependencies between crates with the allowed ones.
	$(BIN)/xtask arch

.PHONY: docs
docs: ## API documentation, with warnings denied.
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(ALL) --no-deps --document-private-items

.PHONY: charts
charts: build ## Lint and render the charts, and compare with the reviewed output.
	HELM="$$($(BIN)/controlplane helm)" charts/check.sh

.PHONY: clean
clean: ## Remove what was built.
	$(CARGO) clean
