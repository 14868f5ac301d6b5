# `make demo` and `make test` set themselves up; a second call finds everything in place.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
BENCHMARKS := actions embedded_hub ingest losses pair_cost publishing redaction replay step
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-all lint docs bench conformance clean help

help:
	@echo "make demo   the whole line on the embedded Hub, training included; no account needed"
	@echo "make test   the quick tests: what a commit has to pass"
	@echo "make test-all   every test, also those that kill, race, start ranks or a browser"
	@echo "make lint   ruff and mypy"
	@echo "make docs   the documentation as a site, in site/"
	@echo "make conformance  huggingface_hub's own tests against the embedded Hub (ten minutes)"
	@echo "make bench  every benchmark, printed as ratios"

demo: $(VENV)/.demo
	@rm -rf .demo
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/composer-hub demo --keep .demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal -m 'not slow and not live'

test-all: $(VENV)/.test
	$(BIN)/python -m pytest -n auto --dist worksteal --hypothesis-profile full --interleavings 60

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.test
	$(BIN)/python scripts/reference.py
	$(BIN)/python scripts/notebooks.py
	$(BIN)/zensical build --strict

bench: $(VENV)/.test
	@for name in $(BENCHMARKS); do echo "== $$name"; $(BIN)/python -m benchmarks.$$name || exit 1; done

conformance: $(VENV)/.test
	$(BIN)/python -m tests.conformance

clean:
	rm -rf $(VENV) .demo .conformance build dist site .cache *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The stamps hold what was installed for: a changed pyproject or constraint installs again, nothing else does.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing composer_hub and what training needs into $(VENV) (once, some minutes; torch is the large part) ..."
	$(PIP) --editable '.[train,report,space]'
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing composer_hub with everything its tests need into $(VENV) (once, a few minutes) ..."
	$(PIP) --editable '.[dev,train]'
	@touch $@ $(VENV)/.demo
