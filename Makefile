# Earmark's tooling. `make` alone lists the targets; everything lives in .venv, nothing is installed outside this folder.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --no-input --disable-pip-version-check
PACKAGES := domain storage workers schema server
CONFORMANCE := tests/conformance
DASHBOARD := frontend-examples/dashboard
DASHBOARD_BUILT := server/static/dashboard/index.html
# The published OpenAPI documents of the Cycles protocol, where a folder beside this one has them: they judge our answers.
export EARMARK_TEST_CYCLES_SPEC ?= $(abspath $(firstword $(wildcard ../*/reference/cycles)))

# Two workers: the suite is bound by one PostgreSQL and a few event loops, more workers only wait for each other.
TEST_WORKERS ?= 2
TEST_ARGS ?=
SOAK_ARGS ?=

# Stamps carry a checksum of what they were made from, so a checkout that changes a lock changes the stamp's name too,
# whatever the files' times say.
checksum = $(shell cat $(1) 2>/dev/null | cksum | cut -d ' ' -f 1)
RUNTIME := $(VENV)/.runtime-$(call checksum,requirements.lock)
DEV := $(VENV)/.dev-$(call checksum,requirements-dev.lock)
PROJECT := $(VENV)/.project-$(call checksum,pyproject.toml)

.NOTPARALLEL:
.PHONY: help setup dev demo test simulation conformance dashboard check bench chaos fuzz soak plans audit lock format lint types contracts clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Earmark needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)."; \
		echo "Name another one: make setup PYTHON=python3.12"; exit 1; }
	@echo "Making $(VENV)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { echo "Is the venv module there? On Debian: apt-get install python3-venv"; exit 1; }
	@touch $@

$(RUNTIME): $(VENV)/.created
	@echo "Installing the run-time packages"
	@rm -f $(VENV)/.runtime-*
	@$(PIP) install --require-hashes --no-deps --no-compile -r requirements.lock
	@touch $@

$(DEV): $(RUNTIME)
	@echo "Installing the development packages"
	@rm -f $(VENV)/.dev-*
	@$(PIP) install --require-hashes --no-deps -r requirements-dev.lock
	@touch $@

$(PROJECT): $(RUNTIME)
	@rm -f $(VENV)/.project-*
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(RUNTIME) $(PROJECT) ## Make .venv with the run-time packages and the earmark command

dev: setup $(DEV) ## The same, with everything the tests and checks need

DEMO_ARGS ?=
demo: setup ## Start a server on its own PostgreSQL with sample data, and ask it something (DEMO_ARGS="--port 7979")
	@[ -f $(DASHBOARD_BUILT) ] || $(MAKE) --no-print-directory dashboard || echo "Going on without the dashboard."
	@$(BIN)/earmark demo $(DEMO_ARGS)

# Built where Node is, and again when what it is made from is newer. Nothing else needs it, or Node.
dashboard: ## Build the dashboard that the server shows at /dashboard
	@if ! command -v npm >/dev/null; then echo "npm is not installed: there will be no page at /dashboard, all else works"; \
	elif ! node -e 'const [major, minor] = process.versions.node.split("."); process.exit(+major > 20 || (+major === 20 && +minor >= 19) ? 0 : 1)'; \
	then echo "Node $$(node --version) is older than 20.19: there will be no page at /dashboard, all else works"; \
	elif [ -z "$$(find $(DASHBOARD) schema/schema.graphql -name node_modules -prune -o -type f ! -name generated.ts ! -name '*.md' ! -name '*.png' \
		$$([ -f $(DASHBOARD_BUILT) ] && echo -newer $(DASHBOARD_BUILT)) -print -quit)" ]; then :; \
	else echo "Building the dashboard"; \
		{ [ $(DASHBOARD)/node_modules/.package-lock.json -nt $(DASHBOARD)/package-lock.json ] || \
			npm ci --prefix $(DASHBOARD) --no-audit --no-fund --loglevel=error; } && \
		npm run --silent --prefix $(DASHBOARD) build -- --logLevel warn; fi

test: dev conformance dashboard ## Run every test
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal $(TEST_ARGS)

# The public GraphQL audits and a real graphql-ws client run on Node; their tests skip, with a word, where there is none.
conformance:
	@if [ ! -f $(CONFORMANCE)/package-lock.json ]; then :; \
	elif ! command -v npm >/dev/null; then echo "npm is not installed: the Node conformance tests will be skipped"; \
	elif [ ! $(CONFORMANCE)/node_modules/.package-lock.json -nt $(CONFORMANCE)/package-lock.json ]; then \
		npm ci --prefix $(CONFORMANCE) --no-audit --no-fund --loglevel=error; fi

simulation: dev ## Play as many times as many histories against the naive model (TIMES=10)
	@EARMARK_TEST_SIMULATION=$(or $(TIMES),10) $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist worksteal \
		tests/simulation tests/faults/test_free_for_all.py $(TEST_ARGS)

check: lint types contracts test ## Formatting, lint, types, import contracts, then every test

lint: dev ## Check formatting and lint
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

format: dev ## Rewrite the code in the house format, fixing what can be fixed
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

types: dev ## Check types, strictly
	@$(BIN)/mypy --strict $(PACKAGES)

contracts: dev ## Check which layer imports which
	@$(BIN)/lint-imports

bench: dev ## Measure throughput and latency (BENCH_ARGS="nodes peer --json FILE --chart FILE")
	@$(BIN)/python tests/bench/run.py $(BENCH_ARGS)

chaos: dev ## Kill, cut, fill and flood a loaded installation, and audit it after each (CHAOS_ARGS="--seed 7 flood")
	@$(BIN)/python tests/chaos/run.py $(CHAOS_ARGS)

FUZZ ?= 1000
fuzz: dev ## Ask the GraphQL schema that many random queries and mutations, with arguments that partly exist (FUZZ=5000)
	@EARMARK_TEST_OPERATIONS=$(FUZZ) $(BIN)/python -m pytest -q tests/schema/test_fuzz.py

soak: dev ## One server with everything in memory, for an hour (SOAK_ARGS="--minutes 6" for less)
	@$(BIN)/python tests/bench/soak.py $(SOAK_ARGS)

plans: dev ## Ask every list and look-up over a million rows, and check the plans that PostgreSQL ran (ROWS=100000)
	@EARMARK_TEST_ROWS=$(ROWS) $(BIN)/python -m pytest -q tests/bench/test_plans.py

ROWS ?= 1000000

audit: dev ## Ask PyPI for known weaknesses of the packages in the locks
	@$(BIN)/uv tool run --from pip-audit==2.10.1 pip-audit --requirement requirements-dev.lock --no-deps --disable-pip

lock: dev ## Rewrite the two locks (UPGRADE=--upgrade takes the newest versions)
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		$(UPGRADE) pyproject.toml --group build --output-file requirements.lock
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
		$(UPGRADE) pyproject.toml --all-extras --group dev --constraint requirements.lock --output-file requirements-dev.lock

clean: ## Remove .venv, caches and build results (never a data directory)
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage htmlcov
	rm -rf $(CONFORMANCE)/node_modules $(DASHBOARD)/node_modules server/static/dashboard
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
