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
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.saving import export
from keras_seq.saving.text_graph import ExportedTextGenerator
from keras_seq.tokenizers import CharacterTokenizer
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
def models(randomize):
    return {name: randomize(config.build_model(VOCABULARY.vocabulary_size)) for name, config in MODELS.items()}


@pytest.fixture(params=MODELS)
def model(request, models):
    return models[request.param]


@pytest.fixture
def lstm(models):
    return models["lstm"]


@pytest.mark.rare
@pytest.mark.parametrize("name", MODELS)
def test_it_writes_the_same_text_where_there_is_no_keras(models, name, tmp_path):
    model = models[name]
    export(model, tmp_path / name, "saved_model", tokenizer=VOCABULARY)
    command = [sys.executable, "-c", ELSEWHERE, json.dumps(CALLS), tmp_path / name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert said["texts"] == [
        generate(model, VOCABULARY, prompt, length, temperature=temperature, seed=seed)
        for prompt, length, temperature, seed in CALLS
    ]
    np.testing.assert_allclose(said["logits"], model(VOCABULARY.encode("bad")[None])[0], rtol=1e-5, atol=1e-6)
    assert {path.name for path in tmp_path.iterdir()} == {name}


def test_what_is_there_is_not_written_over(lstm, tmp_path):
    (tmp_path / "exported").mkdir()
    (tmp_path / "exported" / "notes.txt").touch()
    with pytest.raises(ValueError, match="exists already"):
        export(lstm, tmp_path / "exported", "saved_model", tokenizer=VOCABULARY)
    with pytest.raises(ValueError, match="TensorFlow could not load it"):
        export(lstm, tmp_path / "run[1]" / "exported", "saved_model", tokenizer=VOCABULARY)


def test_bad_input_is_an_error_in_the_graph_too(lstm):
    module, whole = ExportedTextGenerator(lstm, VOCABULARY), lambda number: tf.constant(number, tf.int64)
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
