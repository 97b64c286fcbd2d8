"""What is exported runs without keras_seq, and says the same."""

import json
import math
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_seq.generation import generate
from keras_seq.models import BiLSTMConfig, GRUConfig, LSTMConfig, TransformerConfig, XLSTMConfig
from keras_seq.saving.saved_model import export_saved_model
from keras_seq.saving.text_graph import ExportedTextGenerator
from keras_seq.tokenizers import CharacterTokenizer, WordTokenizer
from keras_seq.tokenizers.characters import TextToIds, with_text_input

VOCABULARY = CharacterTokenizer("\n abcdefg")
CONTEXT = 6
MODELS = {
    "lstm": LSTMConfig(embedding_dim=3, units=5),
    "transformer": TransformerConfig(
        embedding_dim=4, num_layers=1, num_heads=2, feed_forward_dim=8, context_length=CONTEXT
    ),
}
CALLS = [("abc", 40, 1.0, 5), ("gfedcba gfedcba", 20, 0.0, 1), ("a", 0, 1.0, 1), ("a", 9, 0.5, 2**40)]
ELSEWHERE = """
import json, sys
sys.modules["keras_seq"] = sys.modules["keras"] = None  # importing them is an error
import tensorflow as tf
whole = lambda number: tf.constant(number, tf.int64)
model = tf.saved_model.load(sys.argv[2])
texts = [
    model.generate(tf.constant(prompt), whole(length), tf.constant(temperature), whole(seed)).numpy().decode()
    for prompt, length, temperature, seed in json.loads(sys.argv[1])
]
print(json.dumps({"texts": texts, "logits": model.logits(tf.constant("bad")).numpy().tolist()}))
"""


@pytest.fixture(scope="module")
def models():
    """Models with distinct random weights."""
    models = {name: config.build_model(VOCABULARY.vocabulary_size) for name, config in MODELS.items()}
    for model in models.values():
        random = np.random.default_rng(4)
        for weight in model.trainable_variables:
            weight.assign(random.normal(size=weight.shape))
    return models


@pytest.fixture(params=MODELS)
def model(request, models):
    return models[request.param]


@pytest.mark.rare
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_it_writes_the_same_text_where_there_is_no_keras(models, name, tmp_path):
    model = models[name]
    export_saved_model(model, VOCABULARY, tmp_path / name)
    command = [sys.executable, "-c", ELSEWHERE, json.dumps(CALLS), tmp_path / name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert said["texts"] == [
        generate(model, VOCABULARY, prompt, length, temperature=temperature, seed=seed)
        for prompt, length, temperature, seed in CALLS
    ]
    np.testing.assert_allclose(said["logits"], model(VOCABULARY.encode("bad")[None])[0], rtol=1e-5, atol=1e-6)
    assert {path.name for path in tmp_path.iterdir()} == {name}


def test_what_is_there_is_not_written_over(model, tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "notes.txt").touch()
    with pytest.raises(ValueError, match="exists already"):
        export_saved_model(model, VOCABULARY, tmp_path / "exported")
    with pytest.raises(ValueError, match="TensorFlow could not load it"):
        export_saved_model(model, VOCABULARY, tmp_path / "run[1]" / "exported")


def test_bad_input_is_an_error_in_the_graph_too(model):
    module, whole = ExportedTextGenerator(model, VOCABULARY), lambda number: tf.constant(number, tf.int64)
    for prompt, length, temperature, says in (
        ("Z", 1, 1.0, "lacks the character"),
        ("", 1, 1.0, "text is empty"),
        ("a", -1, 1.0, "max_new_tokens"),
        *(("a", 1, temperature, "temperature") for temperature in (-1.0, math.inf, math.nan)),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=says):
            module.generate(prompt, whole(length), temperature, whole(1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="seed"):
        module.generate("a", whole(1), 1.0, whole(-1))


def test_another_tokenizer_is_refused(model):
    with pytest.raises(ValueError, match="WordTokenizer; expected a CharacterTokenizer"):
        ExportedTextGenerator(model, WordTokenizer.from_text("a b"))


def test_one_keras_file_holds_model_and_vocabulary(model, tmp_path):
    with_text_input(model, VOCABULARY).save(tmp_path / "text.keras")
    loaded = keras.models.load_model(tmp_path / "text.keras")
    logits = loaded(tf.constant(["abcd", "gg"]))
    assert logits.shape == (2, 4, VOCABULARY.vocabulary_size)
    for row, text in enumerate(("abcd", "gg")):
        expected = model(VOCABULARY.encode(text)[None])[0]
        np.testing.assert_allclose(logits[row, : len(text)], expected, rtol=1e-5, atol=1e-6)


def test_a_layer_without_a_tokenizer_says_so():
    with pytest.raises(ValueError, match="no tokenizer"):
        TextToIds()(tf.constant(["a"]))


def test_one_step_as_onnx_equals_the_step(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("tf2onnx", reason="tf2onnx is not installed")
    from keras_seq.saving.onnx_step import export_onnx

    model = GRUConfig(embedding_dim=3, units=5).build_model(VOCABULARY.vocabulary_size)
    export_onnx(model, tmp_path / "step.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "step.onnx")
    names = [output.name for output in session.get_outputs()]
    state, fed = model.get_initial_state(2), {"state_0": np.zeros((2, 5), "float32")}
    for ids in ([[3], [4]], [[1], [0]]):
        logits, state = model.step(np.array(ids, "int32"), state)
        found = dict(zip(names, session.run(None, {"ids": np.array(ids, "int32"), **fed}), strict=True))
        np.testing.assert_allclose(found["logits"], logits, rtol=1e-5, atol=1e-6)
        fed = {"state_0": found["new_state_0"]}


def test_without_tf2onnx_no_package_is_named_that_others_may_own(tmp_path, monkeypatch):
    from keras_seq.saving import onnx_step

    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(ValueError, match="tf2onnx") as error:
        onnx_step.export_onnx(LSTMConfig(3, 4).build_model(5), tmp_path / "step.onnx")
    assert "pip install tf2onnx onnxruntime" in str(error.value)
    assert "keras_seq[" not in str(error.value)


def test_what_onnx_cannot_hold_is_refused(tmp_path):
    from keras_seq.saving.onnx_step import export_onnx

    def refused(model, match):
        with pytest.raises(ValueError, match=match):
            export_onnx(model, tmp_path / "step.onnx")
        assert not [*tmp_path.iterdir()]

    refused(MODELS["transformer"].build_model(5), "transformer cannot be exported to ONNX")
    refused(BiLSTMConfig(3, 4).build_model(5), "bilstm cannot be exported to ONNX")
    for precision in ("float16", "bfloat16"):  # tf2onnx would write NaN, or a file that cannot be loaded
        refused(LSTMConfig(3, 4).build_model(5, dtype=f"mixed_{precision}"), f"lstm computes in {precision}")


def test_a_model_with_operations_that_onnx_lacks_is_refused(tmp_path):
    pytest.importorskip("tf2onnx", reason="tf2onnx is not installed")
    from keras_seq.saving.onnx_step import export_onnx

    model = XLSTMConfig(embedding_dim=4, num_layers=1, num_heads=1, pattern="s", feed_forward_dim=4).build_model(5)
    with pytest.raises(ValueError, match=r"xlstm cannot be exported to ONNX \(.+\); expected a model of"):
        export_onnx(model, tmp_path / "step.onnx")
    assert not [*tmp_path.iterdir()]
