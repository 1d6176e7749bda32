# Begin with `make demo` or `make test`.  Both make .venv and install what they need into it.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO := build/demo
# One more than the cores, because the workers with the tests of the browser and of the cluster mostly wait for them.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1)))

.PHONY: demo docs test nightly lowest conformance lint ruff mypy words pytest saying clean goldens screenshots

# --system-site-packages keeps a torch that the machine already has (a ROCm image brings its own).
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("logparse needs Python 3.10 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 10) else 0)'
	$(PYTHON) -m venv --system-site-packages $(VENV)

# Bytecode is compiled when a module is imported, because most modules of the packages never are.
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
NATIVE := setup.py logparse/ingest/_lines.c logparse/libraries/miopen/_find_db.c
$(VENV)/.installed: pyproject.toml $(NATIVE) | $(VENV)/bin/python
	$(PIP_INSTALL) --editable .
	@touch $@

# One resolution for all packages, because each further resolution costs seconds.
$(VENV)/.tested: pyproject.toml $(NATIVE) constraints.txt | $(VENV)/bin/python
	$(PIP_INSTALL) --constraint constraints.txt --editable '.[test]' $$($(BIN)/python -c 'import torch' 2>/dev/null || echo torch)
	@touch $(VENV)/.installed $@

demo: $(VENV)/.installed
	@rm -rf $(DEMO) overrides
	@PATH="$(abspath $(BIN)):$$PATH" LOGPARSE_STORE=$(DEMO)/store sh sample_logs/demo.sh

ruff: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# No test runs the benchmarks.  mypy checks that their calls still fit the functions that they call.
mypy: $(VENV)/.tested
	$(BIN)/mypy
	@out=$$(MYPYPATH=benchmarks:benchmarks/job_programs $(BIN)/mypy benchmarks/*.py benchmarks/job_programs/*.py); \
	    test $$? -le 1 && ! echo "$$out" | grep -E '\[(call-arg|call-overload|attr-defined|name-defined)\]'

# aiter's tuners and look-ups, which tests/libraries/test_aiter_itself.py runs.  The wheel (40 MB) is fetched, but not
# installed.  If it cannot be fetched, its tests are skipped.
AITER := build/wheels/amd_aiter-0.1.7.post2.dev18-py3-none-any.whl
$(AITER): | $(VENV)/.tested
	-$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --dest $(@D) amd-aiter==0.1.7.post2.dev18

# One worker runs all tests of a group, so that a Ray cluster, a browser and a store of samples are made only once.
# tests/conftest.py sets the order of the groups, the longest first.
GROUPED := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
pytest: $(VENV)/.tested $(AITER)
	$(BIN)/python -m pytest $(GROUPED)

# The tests that quote a printed text: make saying WORDS="may save more"
saying: $(VENV)/.tested
	@files=$$($(BIN)/python -m tests.saying '$(WORDS)') && echo "$$files" && $(BIN)/python -m pytest $$files

# Docstrings and comments with words that make a sentence hard to read (CONTRIBUTING.md, "Words").
words: $(VENV)/.tested
	$(BIN)/python -m pytest -q tests/test_words.py

lint: ruff mypy words

# mypy uses one core, so the tests run beside it.
test: ruff
	@$(MAKE) --no-print-directory -j2 mypy pytest

# All tests at full size: 1,000 examples per property, fuzzing of every format, every round of kills.  mypy also checks
# against the lowest Python, which lacks names of newer ones.  It leaves no-any-return out there, because pandas' stubs
# need a newer Python.
nightly: lint $(AITER)
	$(BIN)/mypy --python-version 3.10 --disable-error-code no-any-return
	LOGPARSE_NIGHTLY=1 $(BIN)/python -m pytest $(GROUPED) --timeout 3600

# The readers of override files against the real host libraries of ROCm 7.2.4 over a virtual GPU (docs/conformance.md).
# This needs root, g++ and Debian's packages (710 MB).  They are unpacked into build/rocm or ROCM_LIBRARIES; nothing is
# installed.
conformance: $(VENV)/.tested
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/conformance

# The tests with the lowest versions that pyproject.toml allows, on the oldest Python of this machine.  Torch is not
# installed, so tests that need it are skipped.  tests/test_architecture.py is left out, because it promises how much a
# start imports with the newest versions.  Warnings are no errors, because old packages use functions that newer
# versions of other packages deprecate.
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

# The tables in docs/ whose text comes from the members.
docs: $(VENV)/.installed
	$(BIN)/python docs/tables.py

# Write the reviewed files that tests compare with, and the session in README.md, anew.  Then review the diff.
goldens: $(VENV)/.tested
	$(BIN)/python -m pytest $(GROUPED) --renew-goldens

# The pictures in README.md and docs/, from real files: make screenshots REAL=FOLDER.  This needs the extra `explore`,
# Playwright and Chromium.
screenshots: $(VENV)/.tested
	$(BIN)/python docs/screenshots.py $(REAL)
