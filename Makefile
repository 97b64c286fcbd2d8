# make compare   set up .venv, train an LSTM and a Transformer on Python's docstrings, compare them
# make test      set up .venv, run the tests; make test-all also those that are long and seldom fail
# make test-slow run the tests that kill processes many times over, and those that build every model or file
# make backends  run the tests of what runs on torch, and some on JAX; make backends-all all tests of what runs there too
# make gpu       on a GPU, with the JAX or PyTorch of PYTHON: compare, benchmark, nanoGPT's run; BACKEND=jax or torch
# make peers     run the tests that compare weights and files with those of transformers, peft, xlstm and pyarrow
# make check     check the style
# make smoke     run every experiment at tiny sizes; make smoke-tests also tests the models it leaves
# make release   build dist/: the source distribution and the wheel, and check their metadata
# make docs      build the pages of docs/ and the API reference as a site in build/site

PYTHON ?= python3
ARGS ?=
BACKEND ?= torch
TORCH ?= torch==2.13.0
BIN := .venv/bin
ANY_BACKEND := tests/layers tests/generation tests/evaluation tests/training tests/ops tests/saving/test_export.py
ON_TORCH_TOO := tests/models/test_step_check.py tests/models/test_ngrams.py tests/models/test_documents.py \
	tests/saving/test_keras_export.py tests/saving/test_page.py tests/interpretability tests/pretrained/test_export.py \
	tests/docs/test_onnx_generate.py tests/bad_input/test_layers.py
QUICK_ON_JAX := tests/layers/test_contract.py tests/generation/test_sampling_loop.py tests/training/test_guard.py
SEVERAL_BACKENDS := tests/data/test_pipeline.py tests/ops/test_dispatch.py tests/callbacks/test_diagnostics.py \
	tests/evaluation/test_every_backend.py \
	tests/training/test_backends.py tests/experiments/test_without_tensorflow.py tests/experiments/test_benchmark.py
SEVERAL_DEVICES := tests/training/test_distributed.py tests/docs/test_communication.py \
	tests/experiments/test_jobs.py
GPU := KERAS_BACKEND=$(BACKEND) $(PYTHON) -m experiments
# 5 is pytest's status where ARGS choose no test
OR_NONE = $(if $(ARGS),|| [ $$? = 5 ])
PEERS := tests/pretrained tests/models/test_lora.py tests/models/test_quantization.py tests/data/test_prepare.py \
	tests/layers/test_linear_layers.py tests/layers/test_delta_rules.py tests/layers/test_attention.py \
	tests/layers/test_positions.py tests/evaluation/test_harness.py
.NOTPARALLEL:
test test-rare test-slow smoke smoke-tests peers docs: export KERAS_BACKEND := tensorflow
.PHONY: compare test test-rare test-slow test-all backends backends-all peers gpu check smoke smoke-tests docs release clean

compare: .venv/installed
	$(BIN)/python -m experiments.compare $(ARGS)

test: .venv/installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

test-rare: .venv/installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "rare and not slow and not smoke" $(ARGS) $(OR_NONE)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "rare and smoke and not slow" $(ARGS) $(OR_NONE)

test-slow: .venv/installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow $(ARGS)

test-all: test test-rare

backends: .venv/installed-backends
	KERAS_BACKEND=jax $(BIN)/python -m pytest -n 2 --dist load $(QUICK_ON_JAX) $(ARGS) $(OR_NONE)
	KERAS_BACKEND=torch $(BIN)/python -m pytest -n 2 --dist loadfile $(ANY_BACKEND) $(ARGS) $(OR_NONE)
	$(BIN)/python -m experiments.benchmark --backend jax --smoke --cases 1 4

# JAX in parts, because a process keeps all that it has compiled, gigabytes.
backends-all: .venv/installed-backends
	$(BIN)/python -m experiments.benchmark --backend jax --smoke
	KERAS_BACKEND=torch $(BIN)/python -m pytest -n 2 --dist loadfile $(ANY_BACKEND) $(ARGS)
	KERAS_BACKEND=jax $(BIN)/python -m pytest -n 2 --dist loadfile tests/layers/test_[a-m]*.py $(ARGS)
	KERAS_BACKEND=jax $(BIN)/python -m pytest -n 2 --dist loadfile tests/layers/test_[n-z]*.py $(ARGS)
	KERAS_BACKEND=jax $(BIN)/python -m pytest -n 2 --dist loadfile -m "rare and not slow and not smoke" tests/layers $(ARGS)
	KERAS_BACKEND=torch $(BIN)/python -m pytest -n 2 --dist loadfile $(ON_TORCH_TOO) $(ARGS)
	KERAS_BACKEND=torch $(BIN)/python -m pytest -n 2 --dist loadfile -m "rare and not slow and not smoke" $(ANY_BACKEND) $(ARGS)
	KERAS_BACKEND=jax $(BIN)/python -m pytest -n 2 --dist loadfile $(filter-out tests/layers,$(ANY_BACKEND)) $(ARGS)
	KERAS_BACKEND=tensorflow $(BIN)/python -m pytest -n 2 --dist load -m "not slow and not smoke" $(SEVERAL_BACKENDS) $(ARGS)
	KERAS_BACKEND=tensorflow $(BIN)/python -m pytest -n 2 --dist loadfile -m "rare and not slow" $(SEVERAL_DEVICES) $(ARGS)

peers: .venv/installed-peers
	$(BIN)/python -m pytest -n 2 --dist load -m "not slow and not smoke" $(PEERS) $(ARGS)

# Twenty minutes. Nothing is installed: it takes an environment that finds its GPU, and needs no TensorFlow.
gpu:
	$(GPU).compare --corpus shakespeare $(ARGS)
	$(GPU).benchmark --backend $(BACKEND) --kinds nanogpt --minutes 4 $(ARGS)
	$(GPU).benchmark --backend $(BACKEND) --kinds step --repeats 3 --seconds 0.3 $(ARGS)

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

smoke: .venv/installed-test
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "smoke and not slow" tests/experiments/test_benchmark.py \
		tests/experiments/test_every_experiment.py -k "leaves" $(ARGS)

smoke-tests: .venv/installed-test
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "smoke and not slow and not rare" $(ARGS)

# No network is used; a warning is an error.
docs: .venv/installed-docs
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs build/site
	@echo "Open build/site/index.html."

release: .venv/installed-dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "keras_seq needs Python 3.11 or later; name one with make PYTHON=...")'
	$(PYTHON) -m venv --clear .venv || { rm -rf .venv; exit 1; }

.venv/installed: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[command,tensorflow]"
	touch $@

.venv/installed-test: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@ .venv/installed

# The torch version that the layers are tested with. From PyPI it may install gigabytes for GPUs; a CPU build is enough.
.venv/installed-backends: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --editable ".[test,jax,torch]"
	touch $@ .venv/installed .venv/installed-test

.venv/installed-peers: .venv/installed-backends
	$(BIN)/python -m pip install --quiet --editable ".[test,peers]"
	touch $@

.venv/installed-dev: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@ .venv/installed .venv/installed-test

.venv/installed-docs: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@ .venv/installed

clean:
	rm -rf .venv build docs/generated dist *.egg-info .pytest_cache .ruff_cache .hypothesis
