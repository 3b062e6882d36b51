# make setup | run | check | test | suites | docs | bench | chaos | dist | requirements
# The work is done by Python programs in tools/ and src/; this file only names it.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
# Thousands of processes start; without bytecode each compiles what it imports, and takes two or three times as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run check test suites docs bench chaos dist requirements

setup:
	@$(PYTHON) tools/setup.py

run:
	@$(PYTHON) tools/setup.py run
	@$(BIN)/holdfast demo

check: setup
	@$(BIN)/python tools/check.py

# What failed runs once more, alone, and must pass then; the last line names it.
test: check
	@$(BIN)/python tools/programs.py
	@$(BIN)/python tools/suites.py --get
	@$(BIN)/python tools/run_tests.py $(ARGS)

# Test suites that others wrote, downloaded from PyPI, on our stores; the table goes to docs/suites.md.
suites: setup
	@$(BIN)/python tools/suites.py $(ARGS)

# The documentation as a site in build/site; a dead link or a page that the navigation lacks fails.
docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# make bench: every bar; make bench ARGS="--short", ARGS="postgres", ARGS="single s3-requests"
bench: setup
	@$(BIN)/python -m benchmarks $(ARGS)

# make chaos RUN=R1
chaos: setup
	@$(BIN)/python -m chaos $(RUN) $(ARGS)

# Wheel and sdist in dist/, tried under every Python that is here.
dist: setup
	@$(BIN)/python tools/dist.py

requirements: setup
	@$(BIN)/python tools/requirements.py $(ARGS)
