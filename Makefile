# Two commands for newcomers: `make demo` and `make test`. Each sets up all it needs in .venv.
.DEFAULT_GOAL := help
.PHONY: help demo check test pytest test-slow oldest docs lint types format clean

VENV := .venv
OLDEST := .venv-oldest
BIN := $(VENV)/bin
NODE := node_modules/.bin
# The first interpreter that runs and is new enough; name another with `make PYTHON=...`.
PYTHON ?= $(shell for p in python3.11 python3.12 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# A hundred processes run in tests, and each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Two workers with one torch thread each: a thread pool per worker would fight over two cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

help:
	@echo "make demo       train the default preset, measure it on unseen classes, write the report"
	@echo "make check      lint, types and the tests of distances and losses, in a minute"
	@echo "make test       lint, types and the default tests"
	@echo "make test-slow  the slow tests"
	@echo "make oldest     import, losses and a short demo with the oldest torch (5 GB; several minutes)"
	@echo "make docs       build the documentation into build/site; a broken link or name is an error"
	@echo "make format     let ruff, eslint and prettier format and fix what they can"

demo: $(VENV)/.installed
	$(BIN)/vicinal train

check: lint types
	$(PYTEST) $(PYTEST_FLAGS) tests/test_architecture.py tests/test_distances.py tests/test_tuples.py tests/geometry tests/losses

test: lint
	$(MAKE) -j 2 types pytest

pytest: $(VENV)/.developing
	$(PYTEST) $(PYTEST_FLAGS)

test-slow: $(VENV)/.developing
	$(PYTEST) $(PYTEST_FLAGS) -m "slow and not gpu"

# Not in .ci/run: PyPI has the oldest torch with CUDA alone, 2.5 GB to load and 5 GB on the disk.
oldest: $(OLDEST)/.installed
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -q -p no:cacheprovider tests/test_distances.py tests/losses tests/test_api.py
	$(OLDEST)/bin/vicinal train --run $(OLDEST)/demo-$$(date +%s) training.steps=10 training.device=cpu

docs: $(VENV)/.developing
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(VENV)/.developing node_modules/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(NODE)/prettier --check --log-level warn .
	$(NODE)/eslint .
	$(BIN)/hadolint deploy/Containerfile

types: $(VENV)/.developing
	$(BIN)/mypy

format: $(VENV)/.developing node_modules/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(NODE)/eslint --fix .
	$(NODE)/prettier --write --log-level warn .

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "vicinal needs Python 3.11 or newer; install it or name it: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@# pip would compile 8,000 modules, of which the demo imports 2,400
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable .
	@touch $@

$(OLDEST)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(OLDEST)
	grep -ivE '^torch==' constraints.txt > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --constraint $(OLDEST)/constraints.txt --editable . $$(sed -nE 's/^ *"(torch)>=(.*)",/\1==\2.*/p' pyproject.toml) pytest hypothesis beartype
	@touch $@

$(VENV)/.developing: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	@# pip would compile it on one core; files that are not Python's own fail and do not matter
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests/' $(VENV)/lib || true
	@touch $@ $(VENV)/.installed

node_modules/.installed: package.json package-lock.json
	@command -v npm >/dev/null || { echo "the pages' scripts are checked with npm: apt-get install npm, or make pytest without"; exit 1; }
	npm ci --silent --no-audit --no-fund
	@touch $@

clean:
	rm -rf $(VENV) $(OLDEST) node_modules .pytest_cache .mypy_cache .ruff_cache
