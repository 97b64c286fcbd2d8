"""`keras_seq.export`: what a file computes is what the model computes; what it cannot hold is refused before a file."""

import concurrent.futures
import functools
import itertools
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops, tree

import keras_seq
from keras_seq import models
from keras_seq.baselines import KneserNeyNGrams
from keras_seq.layers import ExplicitState
from keras_seq.models import (
    LANGUAGE_MODELS,
    BertConfig,
    Ensemble,
    LanguageModel,
    LiteRTModel,
    LSTMConfig,
    OnnxModel,
    TransformerConfig,
)
from keras_seq.models.exported_model import named_tensors
from keras_seq.models.lora import enable_lora
from keras_seq.models.ngrams import ngram_model
from keras_seq.saving.keras_file import in_float32
from keras_seq.tokenizers import CharacterTokenizer
from tests.conftest import often, randomized
from tests.models.test_language_model import SMALL, VOCABULARY

BACKEND = keras.backend.backend()
pytestmark = pytest.mark.any_backend
TEXT = "the quick brown fox jumps over the lazy dog.\n"
TOKENIZER = CharacterTokenizer.from_text(TEXT)
RUNTIMES = {"onnx": (OnnxModel, "onnxruntime", "torch"), "litert": (LiteRTModel, "ai_edge_litert", "tensorflow")}
SUFFIXES = {"onnx": ".onnx", "litert": ".tflite", "torch": ".pt2", "saved_model": ""}
QUICK = [("onnx", "lstm"), ("onnx", "hybrid"), ("litert", "lstm")]
STEPS = 20


def runtime(format):
    """The class that runs a format; the writer of another backend takes a process, which is tried for one model."""
    kind, package, backend = RUNTIMES[format]
    pytest.importorskip(package)
    pytest.importorskip(backend)
    if format == "onnx":
        pytest.importorskip("onnxscript")
    return kind


def is_written_here(format):
    return RUNTIMES[format][2] == BACKEND


def writes(format):
    """The class that runs a format which this backend writes."""
    if not is_written_here(format):
        pytest.skip("another backend writes it; tried for one model below")
    return runtime(format)


@functools.cache
def small(name, **changes):
    keras.utils.set_random_seed(1)
    return randomized(models.MODELS[name](**{**vars(SMALL[name]), **changes}).build_model(VOCABULARY))


def check_steps(model, exported, batch_size, steps=STEPS):
    """Compare logits and states over some steps, and the pass with the steps."""
    limit = min(steps, model.context_length or steps)
    ids = np.random.default_rng(batch_size).integers(VOCABULARY, size=(batch_size, limit)).astype("int32")
    state, other = model.get_initial_state(batch_size), exported.get_initial_state(batch_size)
    logits = []
    for t in range(limit):
        expected, state = model.step(ids[:, t : t + 1], state)
        found, other = exported.step(ids[:, t : t + 1], other)
        logits.append(found)
        states = named_tensors(state)
        assert states.keys() == other.keys()
        for ours, theirs in [(found, expected), *((other[name], states[name]) for name in states)]:
            theirs = ops.convert_to_numpy(theirs)
            assert ours.shape == theirs.shape
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, atol=1e-5 * max(1, np.abs(theirs).max()), rtol=0)
    whole, last = exported(ids, return_state=True)
    np.testing.assert_allclose(whole, np.stack(logits, axis=1), atol=1e-5)
    for name, part in last.items():
        np.testing.assert_allclose(part, other[name], atol=1e-5)


@often(("format", "name"), [(format, name) for format in RUNTIMES for name in LANGUAGE_MODELS], QUICK)
def test_steps_and_passes_are_those_of_the_model(format, name, tmp_path):
    kind = writes(format)
    model = small(name, **({"context_length": STEPS} if hasattr(SMALL[name], "context_length") else {}))
    keras_seq.export(model, tmp_path / f"model{SUFFIXES[format]}", format, lengths=(5, STEPS))
    exported = kind(tmp_path / f"model{SUFFIXES[format]}")
    assert (exported.name, exported.vocabulary_size) == (model.name, VOCABULARY)
    assert exported.context_length == model.context_length
    for batch_size in (1, 8):
        check_steps(model, exported, batch_size)


@often(("format", "name"), [(format, name) for format in RUNTIMES for name in LANGUAGE_MODELS], [("onnx", "mamba")])
def test_documents_begin_anew_in_the_file(format, name, tmp_path):
    kind = writes(format)
    model = small(name, **({"context_length": STEPS} if hasattr(SMALL[name], "context_length") else {}))
    model.document_token = 1
    keras_seq.export(model, tmp_path / f"model{SUFFIXES[format]}", format, lengths=(5,))
    check_steps(model, kind(tmp_path / f"model{SUFFIXES[format]}"), 8)


def test_a_cache_may_be_smaller_than_the_passes_of_a_litert_file(tmp_path):
    kind, model = writes("litert"), small("gpt2", context_length=11)
    keras_seq.export(model, tmp_path / "model.tflite", "litert", capacity=4)
    exported, ids = kind(tmp_path / "model.tflite"), np.array([[1, 2, 3, 4]], "int32")
    assert exported.context_length == 4
    expected = keras.ops.convert_to_numpy(model(ids))
    np.testing.assert_allclose(exported(ids), expected, atol=1e-4)


def test_a_state_without_numbers_is_refused_by_litert(tmp_path):
    writes("litert")
    model = ngram_model(KneserNeyNGrams(np.arange(50) % VOCABULARY, 1, VOCABULARY))
    with pytest.raises(ValueError, match="its state has no numbers"):
        keras_seq.export(model, tmp_path / "model.tflite", "litert")


@pytest.mark.parametrize("format", [*RUNTIMES])
def test_gates_and_sinks_of_attention_are_in_the_file(format, tmp_path, randomize):
    kind = writes(format)
    gates = {"use_output_gate": True, "use_sinks": True, "use_forget_gate": True}
    model = randomize(TransformerConfig(8, 1, 2, 12, context_length=9, **gates).build_model(VOCABULARY))
    keras_seq.export(model, tmp_path / f"model{SUFFIXES[format]}", format, lengths=(5,))
    check_steps(model, kind(tmp_path / f"model{SUFFIXES[format]}"), 2)


@pytest.mark.parametrize("format", [*RUNTIMES])
@often("policy", ["mixed_bfloat16", "bfloat16", "mixed_float16"], ["mixed_bfloat16"])
def test_a_model_in_half_precision_computes_in_float32_in_the_file(format, policy, tmp_path, randomize):
    kind = writes(format)
    config = LSTMConfig(3, 4)
    model, exact = randomize(config.build_model(VOCABULARY, dtype=policy)), config.build_model(VOCABULARY)
    enable_lora(model, 2)
    randomize(model, seed=1)
    for weight, value in zip(exact.weights, in_float32(model).get_weights(), strict=True):
        weight.assign(value)
    keras_seq.export(model, tmp_path / f"model{SUFFIXES[format]}", format, lengths=(5,))
    assert model.compute_dtype == model.blocks[0].compute_dtype == policy.removeprefix("mixed_")
    check_steps(exact, kind(tmp_path / f"model{SUFFIXES[format]}"), 2)
    y, expected = (ops.convert_to_numpy(ops.cast(m(np.array([[1, 2, 3]])), "float32")) for m in (model, exact))
    np.testing.assert_allclose(y, expected, atol=0.05 * np.abs(expected).max())


@often("format", [*RUNTIMES], ["onnx"])
def test_n_grams_and_what_adds_to_them_are_in_the_file(format, tmp_path, randomize):
    kind = writes(format)
    text = np.random.default_rng(0).integers(VOCABULARY, size=200)
    counted = models.ngram_model(KneserNeyNGrams(text, 3, VOCABULARY, (1, 1, 2)))
    model = models.NGramResidual([counted, randomize(LSTMConfig(3, 4).build_model(VOCABULARY + 1))])
    keras_seq.export(model, tmp_path / f"model{SUFFIXES[format]}", format, lengths=(5,))
    check_steps(model, kind(tmp_path / f"model{SUFFIXES[format]}"), 2)


@often("format", [*RUNTIMES], ["onnx"])
def test_a_model_of_another_backend_is_written_by_a_process_of_its_own(format, tmp_path):
    if is_written_here(format):
        pytest.skip("this backend writes it")
    kind = runtime(format)
    model = LSTMConfig(3, 4).build_model(VOCABULARY)
    keras_seq.export(model, tmp_path / f"model{SUFFIXES[format]}", format)
    check_steps(model, kind(tmp_path / f"model{SUFFIXES[format]}"), 2, 5)


@keras.saving.register_keras_serializable(package="tests")
class RunningMean(ExplicitState):
    """Somebody's own block."""

    def build(self, inputs_shape):
        self.width = inputs_shape[-1]
        self.gain = self.add_weight(shape=(self.width,), initializer="ones", name="gain")

    def get_initial_state(self, batch_size):
        return {"total": ops.zeros((batch_size, self.width)), "count": ops.ones((batch_size, 1), "int32")}

    def call(self, inputs, state=None, mask=None, inputs_mask=None, return_state=False):
        x, state, _ = self.prepare_inputs(inputs, state, mask)
        totals = state["total"][:, None] + ops.cumsum(x, axis=1)
        counts = ops.arange(1, ops.shape(x)[1] + 1, dtype="int32")[:, None] + state["count"][:, None]
        y = totals / ops.cast(counts, "float32") * self.gain
        return (y, {"total": totals[:, -1], "count": counts[:, -1]}) if return_state else y


@pytest.mark.parametrize("format", [pytest.param(format, marks=pytest.mark.rare) for format in RUNTIMES])
def test_somebodys_own_block_is_exported_from_a_module_on_each_backend(format, tmp_path):
    kind = runtime(format)
    model = LanguageModel(keras.layers.Embedding(VOCABULARY, 6), [RunningMean()], keras.layers.Dense(VOCABULARY))
    model.build((None, None))
    keras_seq.export(model, tmp_path / f"model{SUFFIXES[format]}", format)
    check_steps(model, kind(tmp_path / f"model{SUFFIXES[format]}"), 3, 6)


@pytest.fixture(scope="module")
def exported(tmp_path_factory, randomize):
    """Return a model with its file, and how that is loaded; each is written once."""
    configs = {"lstm": LSTMConfig(6, 16), "transformer": TransformerConfig(8, 1, 2, 12, context_length=16)}

    @functools.cache
    def make(format, name="lstm", batch_size=1, lengths=(8,)):
        kind = writes(format)
        model = randomize(configs[name].build_model(TOKENIZER.vocabulary_size))
        path = tmp_path_factory.mktemp(format) / f"{name}{SUFFIXES[format]}"
        keras_seq.export(model, path, format, tokenizer=TOKENIZER, batch_size=batch_size, lengths=lengths)
        return model, kind(path)

    return make


@pytest.mark.parametrize("format", RUNTIMES)
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_a_file_writes_and_scores_as_its_model(exported, format, name):
    model, other = exported(format, name)
    for options in ({}, {"seed": 5, "top_k": 5, "repetition_penalty": 1.2}, {"temperature": 0.0}):
        expected = keras_seq.generate(model, TOKENIZER, ["the ", "quick brown"], 20, **options)
        assert keras_seq.generate(other, other.tokenizer, ["the ", "quick brown"], 20, **options) == expected
    parts = keras_seq.stream(other, other.tokenizer, "fox", 20, seed=3)
    assert "fox" + "".join(parts) == keras_seq.generate(model, TOKENIZER, "fox", 20, seed=3)
    expected = keras_seq.score(model, TOKENIZER, 2 * TEXT).token_losses
    found = keras_seq.score(other, other.tokenizer, 2 * TEXT).token_losses
    np.testing.assert_allclose(found, expected, atol=1e-5)
    generator, own = (keras_seq.generation.TextGenerator(m, TOKENIZER) for m in (other, model))
    assert generator.beam("the ", 8) == own.beam("the ", 8)


def test_rows_and_lengths_of_a_litert_file_are_what_it_has_and_any_other(exported):
    model, other = exported("litert", batch_size=3, lengths=(4, 6))
    assert other.metadata["batch_size"] == 3
    assert sorted(other.runners) == [1, 4, 6]
    for batch_size, length in ((1, 1), (2, 17), (3, 6), (7, 11)):
        ids = np.random.default_rng(0).integers(TOKENIZER.vocabulary_size, size=(batch_size, length))
        logits, state = other(ids, return_state=True)
        expected, last = model(ids, return_state=True)
        np.testing.assert_allclose(logits, ops.convert_to_numpy(expected), atol=1e-5)
        for name, theirs in named_tensors(last).items():
            np.testing.assert_allclose(state[name], ops.convert_to_numpy(theirs), atol=1e-5)


@pytest.mark.parametrize("format", RUNTIMES)
def test_int8_files_are_small_and_near(exported, format, tmp_path):
    kind = writes(format)
    model, path = LSTMConfig(32, 128).build_model(VOCABULARY), tmp_path / f"model{SUFFIXES[format]}"
    keras_seq.export(model, path, format, quantization="int8")
    ids = np.random.default_rng(0).integers(VOCABULARY, size=(2, 20))
    expected, logits = ops.convert_to_numpy(model(ids)), kind(path)(ids)
    assert 0 < np.abs(logits - expected).max() < 0.03 * np.abs(expected).max()
    assert path.stat().st_size < 0.4 * 4 * model.count_params()


@pytest.mark.parametrize("format", RUNTIMES)
def test_what_is_asked_of_a_file_is_checked(exported, format):
    _, other = exported(format, "transformer")
    state = other.get_initial_state(2)
    ids = np.zeros((2, 1), "int32")
    for message, ask in {
        "holds 99": lambda: other(ids + 99),
        "17 positions; expected at most context_length=16": lambda: other(np.zeros((1, 17), "int32")),
        r"shape \(2, 3\); expected \[B, 1\]": lambda: other.step(np.zeros((2, 3), "int32"), state),
        "the state of get_initial_state": lambda: other.step(ids, None),
        "expected training=False": lambda: other(ids, training=True),
        r"is float32 \((2, [\d, ]+)\); expected float32 \(3, ": lambda: other.step(np.zeros((3, 1), int), state),
        "state=": lambda: other.step(ids, {"h": np.zeros((2, 4))}),
        "integers": lambda: other(np.zeros((2, 1))),
        "at least one row": lambda: other(np.zeros((0, 3), int)),
        "batch_size=0": lambda: other.get_initial_state(0),
    }.items():
        with pytest.raises(ValueError, match=message):
            ask()


@pytest.mark.parametrize("format", RUNTIMES)
def test_texts_in_turn_and_in_threads_are_what_each_is_alone(exported, format):
    """One generator is kept for a file, and each text has its own state."""
    _, other = exported(format)
    expected = {prompt: keras_seq.generate(other, TOKENIZER, prompt, 20) for prompt in ("the ", "fox")}
    read, call = [], type(other).__call__

    def counted(self, ids, *args, **kwargs):
        read.append(ids.shape[1])
        return call(self, ids, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(other), "__call__", counted)
        streams = [keras_seq.stream(other, TOKENIZER, prompt, 20) for prompt in expected]
        parts = [*itertools.zip_longest(*streams, fillvalue="")]
    assert [p + "".join(t) for p, t in zip(expected, zip(*parts, strict=True), strict=True)] == [*expected.values()]
    assert sum(read) == sum(len(prompt) + 19 for prompt in expected)  # each id once
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        prompts = 4 * [*expected]
        texts = pool.map(lambda prompt: keras_seq.generate(other, TOKENIZER, prompt, 20), prompts)
        assert [*texts] == [expected[prompt] for prompt in prompts]


@pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow writes it")
def test_every_pass_of_a_litert_file_is_tried(tmp_path, monkeypatch):
    pytest.importorskip("ai_edge_litert")
    run = LiteRTModel._run_rows

    def wrong_after(length):
        def run_rows(self, ids, state):
            logits, state = run(self, ids, state)
            return logits * (ids.shape[1] != length), state

        monkeypatch.setattr(LiteRTModel, "_run_rows", run_rows)

    for length in (8, 12):
        wrong_after(length)
        with pytest.raises(ValueError, match="logits"):
            keras_seq.export(LSTMConfig(3, 4).build_model(5), tmp_path / "model.tflite", "litert", lengths=(8, 12))
        assert not [*tmp_path.iterdir()]


def test_what_is_no_exported_file_is_said_to_be_none(tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("ai_edge_litert")
    for kind in (OnnxModel, LiteRTModel):
        with pytest.raises(ValueError, match="is not a file"):
            kind(tmp_path / "nothing")
        (tmp_path / "other").write_bytes(b"not a model")
        with pytest.raises(ValueError, match="other is not"):
            kind(tmp_path / "other")


def test_what_no_format_holds_is_refused_and_leaves_nothing(tmp_path):
    def refused(message, model, path="model.onnx", **options):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(ValueError, match=message):
            keras_seq.export(model, tmp_path / path, **options)
        assert sorted(tmp_path.rglob("*")) == before

    lstm = LSTMConfig(3, 4).build_model(5)
    bert = BertConfig(8, num_layers=1, num_heads=2, feed_forward_dim=12, context_length=8).build_model(5)
    refused("bert has no step", bert)
    refused("has no step and state; expected a LanguageModel", keras.Sequential([keras.layers.Dense(3)]))
    refused("computes in float64; expected float32", LSTMConfig(3, 4).build_model(5, dtype="float64"))
    refused("model.tflite: expected a name that ends in .onnx", lstm, "model.tflite")
    refused("format='tflite'", lstm, format="tflite")
    refused("lengths=64; expected a list", lstm, lengths=64)
    refused("tokenizer='characters'; expected a tokenizer", lstm, tokenizer="characters")
    quantized = LSTMConfig(3, 4).build_model(5)
    quantized.quantize("int8")
    refused("has weights in 8 or 4 bits; expected float32", quantized)
    refused("quantization='int4'", lstm, quantization="int4")
    refused("quantization='int8'; expected None with", lstm, "model.pt2", format="torch", quantization="int8")
    refused("the folder .* does not exist", lstm, "none/model.onnx")
    refused("batch_size=0", lstm, batch_size=0)
    refused("The tokenizer has", lstm, tokenizer=TOKENIZER)
    (tmp_path / "model.onnx").touch()
    refused("exists already", lstm)


def test_a_missing_package_is_named_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "onnxscript" else object())
    with pytest.raises(ImportError, match='format="onnx" needs onnxscript: pip install torch onnx onnxscript'):
        keras_seq.export(LSTMConfig(3, 4).build_model(5), tmp_path / "model.onnx")
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(BACKEND != "torch", reason="torch writes it")
def test_a_torch_program_is_the_step(tmp_path):
    import torch

    model = small("mamba2")
    keras_seq.export(model, tmp_path / "step.pt2", "torch", tokenizer=None)
    extra = {"keras_seq.json": ""}
    step = torch.export.load(tmp_path / "step.pt2", extra_files=extra).module()
    parts = json.loads(extra["keras_seq.json"])["state"]
    for batch_size in (1, 5):
        state = model.get_initial_state(batch_size)
        named = dict(zip((part["name"] for part in parts), tree.flatten(state), strict=True))
        for t in range(4):
            ids = torch.full((batch_size, 1), t, dtype=torch.int32)
            with torch.no_grad():
                (expected, state), (logits, named) = model.step(ids, state), step(ids, named)
            torch.testing.assert_close(logits, expected)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="TensorFlow writes it")
@often("name", ["lstm", "transformer"], ["lstm"])
def test_a_saved_model_has_the_step_and_the_call(tmp_path, name):
    import tensorflow as tf

    model = small(name)
    keras_seq.export(model, tmp_path / "model", "saved_model")
    module = tf.saved_model.load(tmp_path / "model")
    parts = json.loads((tmp_path / "model" / "assets.extra" / "keras_seq.json").read_text())["state"]
    ids = np.random.default_rng(0).integers(VOCABULARY, size=(3, 5)).astype("int32")
    state = model.get_initial_state(3)
    named = {part["name"]: x for part, x in zip(parts, tree.flatten(state), strict=True)}
    outputs = module.signatures["call"](ids=tf.constant(ids), **named)
    np.testing.assert_allclose(outputs["logits"], model(ids), atol=1e-5)
    outputs = module.signatures["step"](ids=tf.constant(ids[:, :1]), **named)
    logits, state = model.step(ids[:, :1], state)
    np.testing.assert_allclose(outputs["logits"], logits, atol=1e-5)
    for part, expected in zip(parts, tree.flatten(state), strict=True):
        np.testing.assert_allclose(outputs[f"new_{part['name']}"], expected, atol=1e-5)


@pytest.mark.skipif(BACKEND != "torch", reason="torch writes it")
def test_an_ensemble_and_low_rank_additions_are_exported_as_they_compute(tmp_path):
    runtime("onnx")
    ensemble = Ensemble([small("lstm"), small("transformer")])
    keras_seq.export(ensemble, tmp_path / "ensemble.onnx")
    check_steps(ensemble, OnnxModel(tmp_path / "ensemble.onnx"), 2)
    model = LSTMConfig(3, 4).build_model(VOCABULARY)
    model.blocks[0].enable_lora(2)
    for variable in model.variables:
        variable.assign(variable + 0.1)
    keras_seq.export(model, tmp_path / "lora.onnx")
    check_steps(model, OnnxModel(tmp_path / "lora.onnx"), 2)
    import onnx

    (scan,) = (node for node in onnx.load(tmp_path / "lora.onnx").graph.node if node.op_type == "Scan")
    weights = {tensor.name for tensor in onnx.load(tmp_path / "lora.onnx").graph.initializer}
    inside = [node for node in scan.attribute[0].g.node if weights.issuperset(node.input)]
    assert not inside  # what depends on weights alone is computed once


@pytest.mark.skipif(BACKEND == "jax", reason="the files of other backends are tried there")
def test_a_file_is_tried_before_it_gets_its_name(tmp_path, monkeypatch):
    format = "onnx" if BACKEND == "torch" else "litert"
    kind = runtime(format)
    monkeypatch.setattr(kind, "step", lambda self, ids, state: (np.zeros((len(ids), self.vocabulary_size)), state))
    with pytest.raises(ValueError, match=f"cannot be exported to {format}: logits .*of the file differ by"):
        keras_seq.export(LSTMConfig(3, 4).build_model(5), tmp_path / f"model{SUFFIXES[format]}", format, lengths=())
    assert not [*tmp_path.iterdir()]


@pytest.mark.skipif(BACKEND != "torch", reason="once")
def test_a_file_is_read_without_keras_seq(exported):
    """The example of docs/exports.md needs what onnxruntime and NumPy have."""
    _, other = exported("onnx", "lstm")
    program = (
        "import json, sys, numpy, onnxruntime\n"
        f"session = onnxruntime.InferenceSession({str(other.path)!r})\n"
        "metadata = json.loads(session.get_modelmeta().custom_metadata_map['keras_seq'])\n"
        "state = {p['name']: numpy.zeros([1 if n is None else n for n in p['shape']], p['dtype']) "
        "for p in metadata['state']}\n"
        "logits, *_ = session.run(None, {'ids': numpy.zeros((1, 3), 'int32'), **state})\n"
        "print(logits.shape, 'keras' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ})
    assert done.stdout.strip() == f"(1, 3, {TOKENIZER.vocabulary_size}) False", done.stderr
