# make compare   sets up .venv, trains both models on the text that comes with Python, compares them
# make test      sets up .venv, passes the tests
# make check     what .ci/run checks besides the tests

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin

.PHONY: compare test check smoke clean

compare: .venv/installed
	$(BIN)/python -m experiments.compare $(ARGS)

test: .venv/installed-test
	$(BIN)/python -m pytest $(ARGS)

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

smoke: .venv/installed
	$(BIN)/python -m experiments.compare --smoke
	$(BIN)/python -m experiments.pipeline_speed --smoke

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "keras_seq needs Python 3.11 or later; name one with make PYTHON=...")'
	$(PYTHON) -m venv .venv

.venv/installed: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-test: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@ .venv/installed

.venv/installed-dev: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@ .venv/installed .venv/installed-test

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
