# Tasks of this repository. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# One profile for everything that runs, so that each dependency is compiled once.
PROFILE := e2e
CARGO := cargo
SERVICES := webhook proxy-scheduler candidate-scheduler chaperon-controller feedback-controller virtual-kubelet source-controller
BINARIES := $(foreach service,$(SERVICES),-p $(service))
GROUND := $(CARGO) run --quiet --profile $(PROFILE) -p e2e --bin

WORK ?= burst
PODS ?= 1000
TARGETS ?= 2

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
	$(CARGO) build --profile $(PROFILE) $(BINARIES)
	$(CARGO) build --profile $(PROFILE) -p e2e --bins
	$(GROUND) controlplane

.PHONY: demo
demo: build ## Watch workloads spread over two clusters, then move when one is drained.
	$(GROUND) demo

.PHONY: playground
playground: build ## The same clusters, left running, with commands to look around.
	$(GROUND) demo -- --stay

.PHONY: test
test: build unit e2e ## All tests.

.PHONY: unit
unit: toolchain ## Tests that need no cluster.
	$(CARGO) test --profile $(PROFILE) --workspace --exclude e2e
	$(CARGO) test --profile $(PROFILE) -p e2e --lib

.PHONY: e2e
e2e: build ## Tests on real control planes.
	$(CARGO) test --profile $(PROFILE) -p e2e --test e2e

.PHONY: bench
bench: build ## Measure: make bench WORK=burst PODS=1000 TARGETS=2.
	$(GROUND) bench -- --work $(WORK) --pods $(PODS) --targets $(TARGETS)

.PHONY: ci
ci: lint check-gen arch docs charts test ## What every change must pass.

.PHONY: fmt
fmt: ## Format the Rust code.
	$(CARGO) fmt --all

.PHONY: lint
lint: toolchain ## Formatting and clippy.
	$(CARGO) fmt --all --check
	$(CARGO) clippy --profile $(PROFILE) --workspace --all-targets -- -D warnings

.PHONY: gen
gen: ## Write generated files.
	$(CARGO) run --quiet --profile $(PROFILE) -p xtask -- gen

.PHONY: check-gen
check-gen: ## Fail if a generated file is stale.
	$(CARGO) run --quiet --profile $(PROFILE) -p xtask -- gen --check

.PHONY: arch
arch: ## Compare the dependencies between crates with the allowed ones.
	$(CARGO) run --quiet --profile $(PROFILE) -p xtask -- arch

.PHONY: docs
docs: ## API documentation, with warnings denied.
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --profile $(PROFILE) --workspace --exclude e2e --no-deps --document-private-items

.PHONY: charts
charts: toolchain ## Lint and render the charts, and compare with the reviewed output.
	$(GROUND) controlplane
	HELM="$$($(GROUND) controlplane -- helm)" charts/check.sh

.PHONY: clean
clean: ## Remove what was built.
	$(CARGO) clean
