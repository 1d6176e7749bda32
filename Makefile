# Two commands to begin with: `make demo` and `make test`.  Both make .venv and install what they need into it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO := build/demo
# One more than the cores: the workers that hold the tests of the browser and of the cluster mostly wait for these.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

.PHONY: demo docs test nightly lowest conformance lint ruff mypy pytest clean goldens screenshots

# --system-site-packages keeps a torch that the machine already has (a ROCm image brings its own).
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("logparse needs Python 3.10 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv --system-site-packages $(VENV)

# Bytecode is compiled as modules are imported: most of what the packages hold never is.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
NATIVE := setup.py logparse/ingest/_lines.c logparse/libraries/miopen/_find_db.c
$(VENV)/.installed: pyproject.toml $(NATIVE) | $(VENV)/bin/python
	$(PIP_INSTALL) --editable .
	@touch $@

# One resolution for all: each further one costs seconds.
$(VENV)/.tested: pyproject.toml $(NATIVE) constraints.txt | $(VENV)/bin/python
	$(PIP_INSTALL) --constraint constraints.txt --editable '.[test]' $$($(BIN)/python -c 'import torch' 2>/dev/null || echo torch)
	@touch $(VENV)/.installed $@

demo: $(VENV)/.installed
	@rm -rf $(DEMO) overrides
	@PATH="$(abspath $(BIN)):$$PATH" LOGPARSE_STORE=$(DEMO)/store sh sample_logs/demo.sh

ruff: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# No test runs the benchmarks: of these it is checked that they still fit what they call.
mypy: $(VENV)/.tested
	$(BIN)/mypy
	@out=$$(MYPYPATH=benchmarks:benchmarks/job_programs $(BIN)/mypy benchmarks/*.py benchmarks/job_programs/*.py); \
	    test $$? -le 1 && ! echo "$$out" | grep -E '\[(call-arg|call-overload|attr-defined|name-defined)\]'

# aiter's tuners and look-ups, which tests/libraries/test_aiter_itself.py runs: fetched (40 MB) and not installed.  Where
# it cannot be had, its tests are skipped.
AITER := build/wheels/amd_aiter-0.1.7.post2.dev18-py3-none-any.whl
$(AITER): | $(VENV)/.tested
	-$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $(@D) amd-aiter==0.1.7.post2.dev18

# One worker holds the tests of a group: a Ray cluster, a browser and a store of samples are made once.  The order of
# the groups is that of tests/conftest.py, the longest first.
GROUPED := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
pytest: $(VENV)/.tested $(AITER)
	$(BIN)/python -m pytest $(GROUPED)

lint: ruff mypy

# mypy uses one core, so the tests run beside it.
test: ruff
	@$(MAKE) --no-print-directory -j2 mypy pytest

# Everything at full size: 1,000 examples per property, fuzzing of every format, every round of kills.
# The lowest Python lacks what mypy's own version of it has; pandas' stubs need a newer one, hence the code left out.
nightly: lint $(AITER)
	$(BIN)/mypy --python-version 3.10 --disable-error-code no-any-return
	LOGPARSE_NIGHTLY=1 $(BIN)/python -m pytest $(GROUPED) --timeout 3600

# The readers of override files against the real host libraries of ROCm 7.2.4 over a virtual GPU (docs/conformance.md):
# needs root, g++ and Debian's packages (710 MB, unpacked into build/rocm or ROCM_LIBRARIES; nothing is installed).
conformance: $(VENV)/.tested
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/conformance

# The tests with the lowest versions that pyproject.toml allows, on the oldest Python that is at hand; without torch, so
# what needs it is skipped.  Left out: how much a start imports, which is a promise about the newest versions.
# Old packages use what newer ones of others deprecate, so warnings are no errors.
LOWEST ?= build/lowest
LOWEST_PYTHON ?= $(shell for x in 10 11 12 13; do python3.$$x -c '' 2>/dev/null && echo python3.$$x && break; done)
lowest:
	$(LOWEST_PYTHON) --version
	rm -rf $(LOWEST) && $(LOWEST_PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python tests/lowest.py > $(LOWEST)/constraints.txt
	@cat $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --prefer-binary \
	    --constraint $(LOWEST)/constraints.txt --editable '.[test]'
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) -W default --disable-warnings --ignore tests/test_architecture.py

clean:
	rm -rf build overrides .pytest_cache .mypy_cache .ruff_cache

# The tables in docs/ that members state themselves.
docs: $(VENV)/.installed
	$(BIN)/python docs/tables.py

# The reviewed files that tests compare with, and the session in README.md: written anew.  Then review the diff.
goldens: $(VENV)/.tested
	$(BIN)/python -m pytest $(GROUPED) --renew-goldens

# The pictures in README.md, of real files: make screenshots REAL=FOLDER (needs the extra `explore`, Playwright, Chromium).
screenshots: $(VENV)/.tested
	$(BIN)/python docs/screenshots.py $(REAL)
