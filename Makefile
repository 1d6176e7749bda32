# Two commands for a stranger: `make demo` and `make test`.  Both make .venv and install what they need into it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO := build/demo

.PHONY: demo test lint clean transcript screenshots

# --system-site-packages keeps a torch that the machine already has (a ROCm image brings its own).
$(VENV)/.installed: pyproject.toml setup.py logparse/ingest/_lines.c logparse/formats/miopen/_find_db.c
	@$(PYTHON) -c 'import sys; sys.exit("logparse needs Python 3.10 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv --system-site-packages $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.tested: $(VENV)/.installed constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	@touch $@

demo: $(VENV)/.installed
	@rm -rf $(DEMO) overrides
	@PATH="$(abspath $(BIN)):$$PATH" LOGPARSE_STORE=$(DEMO)/store sh sample_logs/demo.sh

lint: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n auto

clean:
	rm -rf build overrides .pytest_cache .mypy_cache .ruff_cache

# The transcript in README.md, from a real run.
transcript: $(VENV)/.installed
	$(BIN)/python docs/transcript.py

# The pictures in README.md, of real files: make screenshots REAL=FOLDER (needs the extra `explore`, Playwright, Chromium).
screenshots: $(VENV)/.tested
	$(BIN)/python docs/screenshots.py $(REAL)
