# make compare   sets up .venv, trains both models on a text that comes with Python, compares them
# make test      sets up .venv, passes the tests
# make backends  passes the tests of the layers under JAX and torch too
# make check     style
# make smoke     every experiment at tiny sizes
# make docs      the pages of docs/ and the reference, as a site in build/site

PYTHON ?= python3
ARGS ?=
TORCH ?= torch==2.13.0
BIN := .venv/bin
SMOKE := compare reverse words masked_lm dates respace optimizers gradient_descent floors epoch_loss positions scaling \
	shakespeare pipeline_speed generation_speed benchmark
SMOKE_ARGS_shakespeare := --corpus pydoc

.PHONY: compare test backends check smoke docs clean

compare: .venv/installed
	$(BIN)/python -m experiments.compare $(ARGS)

test: .venv/installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

backends: .venv/installed-backends
	KERAS_BACKEND=jax $(BIN)/python -m pytest -n 2 --dist loadfile tests/layers $(ARGS)
	KERAS_BACKEND=torch $(BIN)/python -m pytest -n 2 --dist loadfile tests/layers $(ARGS)
	KERAS_BACKEND=jax $(BIN)/python -m experiments.gpu --smoke

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

smoke: .venv/installed
	$(MAKE) --no-print-directory -j 2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) $(addprefix smoke-,$(SMOKE))

smoke-compare: .venv/installed
	$(BIN)/python -m experiments.compare --smoke --models rnn gru lstm mingru minlstm mamba transformer gpt modern

smoke-%: .venv/installed
	$(BIN)/python -m experiments.$* --smoke $(SMOKE_ARGS_$*)

# No network is used. Not --quiet: strict counts only the warnings that are shown. The variable keeps an advertisement away.
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html; with search: $(BIN)/python -m http.server --directory build/site"

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "keras_seq needs Python 3.11 or later; name one with make PYTHON=...")'
	$(PYTHON) -m venv .venv

.venv/installed: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-test: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@ .venv/installed

# The torch that the layers are tested with. From PyPI it may come with gigabytes for GPUs; a CPU build is enough.
.venv/installed-backends: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable ".[test,jax,torch]"
	touch $@ .venv/installed .venv/installed-test

.venv/installed-dev: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@ .venv/installed .venv/installed-test

.venv/installed-docs: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@ .venv/installed

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
