# Everything a person types here sets up what it needs by itself, in .venv and in a cache outside
# the checkout. `make help` lists the targets.

.DEFAULT_GOAL := help
.PHONY: help setup check demo test chaos lint bench golden engines-check
.DELETE_ON_ERROR:

BIN := .venv/bin
CODE := $(wildcard supervisor tests bench examples)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 15

setup: .venv/.stamp ## make .venv, with all that is locked; the others do it by themselves

check: lint test ## what CI runs

demo: .venv/.stamp ## serve a real small model under supervision, ask it a question, stop it
	$(BIN)/python examples/demo.py

test: .venv/.stamp ## run the tests
	$(BIN)/python -m pytest

chaos: .venv/.stamp ## kill the daemon 500 times under traffic, and look for damage (some minutes)
	$(BIN)/python -m tests.chaos $(CHAOS)

lint: .venv/.stamp ## check style, format, types, import arrows and dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports
	$(BIN)/deptry supervisor

bench: .venv/.stamp ## measure, against controls and peers in the same run
	$(BIN)/python -m bench

golden: .venv/.stamp ## rewrite the golden files from what the engines plan now
	UPDATE_GOLDEN=1 $(BIN)/python -m pytest tests/engines

engines-check: .venv/.stamp ## let each engine's own parser read all golden plans (installs 3 GB once)
	$(BIN)/python -m tests.parsers $(ENGINES)

# The newest Python that runs, for a name on PATH may be a shim with nothing behind it. A Python
# that cannot make a venv (Debian keeps that in python3-venv) leaves half a folder: it is removed,
# and the next way is tried.
.venv/.stamp: requirements-dev.lock pyproject.toml
	@set -u; \
	for python in python3.13 python3.12 python3.11 python3; do \
	    $(BIN)/python -c 'import pip' 2>/dev/null && break; \
	    rm -rf .venv; \
	    $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    found=$$python; \
	    $$python -m venv .venv >/dev/null 2>&1 && break; \
	    rm -rf .venv; \
	    command -v uv >/dev/null && uv venv --quiet --seed --python $$python .venv && break; \
	    rm -rf .venv; \
	done; \
	test -x $(BIN)/python || { \
	    test -z "$${found:-}" && echo "Python 3.11 or newer is needed: apt-get install python3 python3-venv" >&2; \
	    test -n "$${found:-}" && echo "$$found cannot make a venv: apt-get install python3-venv" >&2; \
	    exit 1; }
	$(PIP) --require-hashes --requirement requirements-dev.lock
	$(PIP) --no-deps --no-build-isolation --no-index --editable .
	@touch $@
