# Two commands for newcomers: `make demo` and `make test`. Each sets up all it needs in .venv.
.DEFAULT_GOAL := help
.PHONY: help demo check test pytest test-slow docs lint types format clean

VENV := .venv
BIN := $(VENV)/bin
# The first interpreter that runs and is new enough; name another with `make PYTHON=...`.
PYTHON ?= $(shell for p in python3.11 python3.12 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# Two workers with one torch thread each: a thread pool per worker would fight over two cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

help:
	@echo "make demo       train the default preset, measure it on unseen classes, write the report"
	@echo "make check      lint, types and the tests of distances and losses, in a minute"
	@echo "make test       lint, types and the default tests"
	@echo "make test-slow  the slow tests"
	@echo "make docs       build the documentation into build/site; a broken link or name is an error"
	@echo "make format     let ruff format and fix what it can"

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

docs: $(VENV)/.developing
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(VENV)/.developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.developing
	$(BIN)/mypy

format: $(VENV)/.developing
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "vicinal needs Python 3.11 or newer; install it or name it: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.developing: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
