PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
# Tests wait for processes and disks more than half of the time: with three for each core a quarter of it stays idle.
TEST_WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, 4 * (os.cpu_count() or 1)))')
# Where the real programs are installed: shared by several checkouts, they need not be installed for each.
LIZA_AGENTS_CACHE ?= $(CURDIR)/.agents
export LIZA_AGENTS_CACHE
# Where the real projects are kept, each fetched once and checked against its digest.
LIZA_REAL_CACHE ?= $(CURDIR)/.real
export LIZA_REAL_CACHE

# What runs with LIZA_PORTABLE=1: not what needs the sandbox, nor whole runs, which would only be slower.
PORTABLE := tests/contract tests/unit/system/test_platform.py tests/unit/agents/test_protocol.py $(addprefix tests/integration/, \
  system/test_process.py board/test_editors.py system/test_files.py system/test_locks.py daemon/test_supervisor.py \
  board/test_switches.py board/test_wait.py daemon/test_worker_process.py)

# What runs on a PostgreSQL server beside the board in files.
HOSTS := tests/contract tests/integration/board/test_postgres.py tests/integration/board/test_postgres_faults.py \
  tests/acceptance/cli/test_board_on_server.py tests/acceptance/cli/test_hosts.py \
  tests/acceptance/cli/test_deploy.py tests/acceptance/cli/test_demo_hosts.py tests/acceptance/daemon/test_many_hosts.py \
  tests/integration/daemon/test_travel.py tests/integration/daemon/test_push_hook.py
FIND_POSTGRES := $(BIN)/python -c 'import sys; from tests.support.postgres_server import find_programs; sys.exit(not find_programs())'

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help test test-unit test-portable test-agents test-real test-web test-hosts all-tests check lint types demo bench profile torture night gauntlet specs clean sandbox postgres venv-module

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Types beside tests: alone they leave a core idle. Both are gone through with, and it fails when one of them does.
test: lint sandbox ## lint, type-check and run the tests
	@$(MAKE) --no-print-directory -k -j2 types all-tests

# In a fresh clone one process compiles the tests, before as many as run them would each do so.
all-tests: $(INSTALLED)
	@[ -d tests/support/__pycache__ ] || $(BIN)/python -m pytest -qq --collect-only >/dev/null 2>&1 || true
	@env -u MAKEFLAGS $(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist worksteal

test-unit: $(INSTALLED) ## run tests/unit only, in under a minute
	@$(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist worksteal tests/unit

test-agents: $(INSTALLED) sandbox ## let real coding programs work, on a scripted and a small real model
	@$(BIN)/python scripts/agents.py
	@$(LIZA_AGENTS_CACHE)/liza/bin/python -m pytest -q -rs -m agents -n logical --maxprocesses 4 tests/agents

test-real: $(INSTALLED) sandbox ## try five real projects with their own tests, in the sandbox and without
	@$(BIN)/python scripts/real.py
	@$(BIN)/python -m pytest -q -rs -m real -n 2 --dist loadgroup tests/real

# The browser of the distribution with its driver; axe-core has the rules that no serious finding may break.
test-web: $(INSTALLED) ## try the page and the report in a real browser
	@if ! command -v chromedriver >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing chromium"; \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y chromium chromium-driver >/dev/null; \
	fi
	@command -v chromedriver >/dev/null || { \
	  echo "There is no browser to drive: install it (on Debian: apt install chromium chromium-driver)." >&2; exit 1; }
	@$(BIN)/python -m pip install -qq 'selenium>=4.51,<5'
	@npm install --silent --no-save --prefix .web axe-core@4.14.0
	@$(BIN)/python -m pytest -q -m web -n 2 tests/web

test-hosts: $(INSTALLED) postgres ## keep the board on a real PostgreSQL server that is killed, cut off and set back
	@$(BIN)/python -m pytest -q -rs -m 'hosts or not hosts' -n 2 --dist worksteal $(HOSTS)

test-portable: $(INSTALLED) ## run the tests of board, processes and workers without what only Linux has
	@LIZA_PORTABLE=1 $(BIN)/python -m pytest -q -rs -n $(TEST_WORKERS) --dist worksteal $(PORTABLE)

check: lint types ## lint and type-check only

lint: $(INSTALLED)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

types: $(INSTALLED)
	@$(BIN)/mypy

demo: $(INSTALLED) ## show Liza at work: no key, no network
	@$(BIN)/python -m liza demo

bench: $(INSTALLED) ## measure the board and the daemon
	@$(BIN)/python scripts/bench.py

profile: $(INSTALLED) ## show where the CPU of a run goes, and which processes it starts
	@$(BIN)/python scripts/profiling.py

torture: $(INSTALLED) ## run the long tests that kill, race and corrupt
	@$(MAKE) --no-print-directory postgres || echo "Without it the faults between hosts and a server are left out." >&2
	@$(BIN)/python -m pytest -q -m 'hypothesis and not torture' --hypothesis-profile=long
	@$(BIN)/python -m pytest -q -s -rs -m torture

night: $(INSTALLED) ## run 300 tasks with a large team, and kill somebody every few seconds
	@$(BIN)/python -m pytest -q -s -m torture tests/torture/test_night.py

gauntlet: $(INSTALLED) ## let misbehaving agents loose on throw-away repositories
	@$(BIN)/python -m liza gauntlet

specs: $(INSTALLED) ## render the tables in specs/ and docs/ from the code
	@$(BIN)/python scripts/specs.py specs docs

clean: ## remove everything that can be made again
	@rm -rf .venv .agents .real .web build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find liza tests scripts -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# The stamp comes last, so that an interrupted installation is done again. A working environment is kept,
# since clearing it would pull it from under whoever is using it.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Liza needs Python 3.11 or newer: install it, or name one with make PYTHON=<its name>." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || $(MAKE) --no-print-directory venv-module
	@echo "Installing Liza and its tools into .venv"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	@$(BIN)/python -m pip install -qq --no-compile -e '.[dev]'
	@$(BIN)/python -m compileall -qq -j 0 .venv/lib liza >/dev/null 2>&1 || true  # by all cores; pip uses one
	@touch $@

# The sandbox is tested where it can be built. Without it its tests are skipped, and say so.
sandbox:
	@if ! command -v bwrap >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing bubblewrap"; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y bubblewrap >/dev/null; } || true; \
	fi
	@command -v bwrap >/dev/null || \
	  echo "There is no bubblewrap, so the sandbox is not tested: install it (on Debian and Ubuntu: apt install bubblewrap)." >&2

# faketime lets a test have a wrong clock; without it that test is skipped, and says so.
postgres: $(INSTALLED)
	@if ! $(FIND_POSTGRES) && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing PostgreSQL"; \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y postgresql >/dev/null; \
	fi
	@if ! command -v faketime >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing faketime"; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y faketime >/dev/null; } || true; \
	fi
	@$(FIND_POSTGRES) || { \
	  echo "There is no PostgreSQL server here: install one (on Debian and Ubuntu: apt install postgresql faketime), or name its programs by PG_BIN." >&2; exit 1; }

# Debian and Ubuntu ship Python without venv.
venv-module:
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "Installing python3-venv"; \
	  apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y python3-venv >/dev/null; \
	fi
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv module: install it (on Debian and Ubuntu: apt install python3-venv) and run make again." >&2; exit 1; }
