"""Blocks that are computed again give the gradients that they gave, with dropout too."""

import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.layers import PreNormResidual
from keras_seq.models import LSTMConfig, MinGRUConfig, Seq2SeqConfig, T5Config, TransformerConfig
from keras_seq.training import TrainConfig, compile_model

pytestmark = pytest.mark.any_backend
V, T = 7, 5
SIZES = {"embedding_dim": 8, "num_heads": 2, "feed_forward_dim": 8, "dropout": 0.3}
MODELS = {
    "transformer": TransformerConfig(num_layers=2, context_length=T, **SIZES),
    "mingru": MinGRUConfig(embedding_dim=8, units=6, num_layers=2, dropout=0.3),
    "seq2seq": Seq2SeqConfig(num_encoder_layers=1, num_decoder_layers=1, **SIZES),
    "t5": T5Config(num_encoder_layers=2, num_decoder_layers=1, key_dim=4, **SIZES),
}


@pytest.mark.usefixtures("eagerly")
def test_eager_gradients_are_those_of_the_plain_model(monkeypatch, randomize):
    gradients_and_seeds_are_those_of_the_plain_model("mingru", "float32", monkeypatch, randomize)


@pytest.mark.rare
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_gradients_and_seeds_are_those_of_the_plain_model(name, precision, monkeypatch, randomize):
    gradients_and_seeds_are_those_of_the_plain_model(name, precision, monkeypatch, randomize)


def gradients_and_seeds_are_those_of_the_plain_model(name, precision, monkeypatch, randomize):
    calls, remat = [], keras.remat
    monkeypatch.setattr(keras, "remat", lambda function: calls.append(function) or remat(function))
    ids = np.random.default_rng(0).integers(1, V, size=(3, T))
    translates = name in ("seq2seq", "t5")
    x = {"encoder_token_ids": ids, "decoder_token_ids": ids[::-1].copy()} if translates else ids
    ends = []
    for rematerialization in (False, True):
        keras.utils.set_random_seed(0)
        model = randomize(MODELS[name].build_model(V, dtype=f"mixed_{precision}".replace("mixed_float32", "float32")))
        train = TrainConfig("sgd", 1.0, warmup_steps=0, precision=precision, rematerialization=rematerialization)
        compile_model(model, train, 10)
        losses = [model.train_on_batch(x, ids) for _ in range(2)]
        ends.append((losses, [np.array(ops.convert_to_numpy(v)) for v in model.variables]))
        assert bool(calls) == rematerialization
    (expected_losses, expected), (losses, got) = ends
    tolerance = {"float32": 1e-5, "bfloat16": 2e-2}[precision]
    np.testing.assert_allclose(losses, expected_losses, rtol=tolerance)
    assert losses[0] != losses[1]
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance)
    assert any("seed" in v.path for v in model.variables)


def test_a_model_without_residual_blocks_is_refused_by_name():
    model = LSTMConfig(embedding_dim=3, units=4).build_model(V)
    with pytest.raises(ValueError, match="rematerialization=True, but lstm has no"):
        compile_model(model, TrainConfig(rematerialization=True), 10)


@pytest.mark.usefixtures("eagerly")
def test_losses_of_activities_count_as_in_the_plain_model():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 2, 6, 3)).astype("float32")
    losses = []
    for rematerialization in (False, True):
        keras.utils.set_random_seed(0)
        block = PreNormResidual([keras.layers.Dense(3, activity_regularizer=keras.regularizers.L2(0.5))])
        model = keras.Sequential([keras.Input((6, 3)), block, keras.layers.Dense(3)])
        train = TrainConfig("sgd", 0.1, warmup_steps=0, rematerialization=rematerialization)
        compile_model(model, train, 10, keras.losses.MeanSquaredError())
        losses.append([model.train_on_batch(x, y) for _ in range(3)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
import os, sys
import numpy as np
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.training import TrainConfig
from keras_seq.training.optimizers import compile_model

size = {"context_length": 16, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 16}
config = {"lstm": LSTMConfig(64, units=408), "transformer": TransformerConfig(8, **size)}  # large enough for XLA
model = config[sys.argv[2]].build_model(20)
compile_model(model, TrainConfig(optimizer="muon"), 100)
for batch in np.random.default_rng(0).integers(0, 20, (6, 12, 17)):
    model.train_on_batch(batch[:, :-1], batch[:, 1:])
    print(len(os.listdir(sys.argv[1])))
"""


@pytest.mark.any_backend
@pytest.mark.skipif(keras.backend.backend() == "torch", reason="no XLA")
@pytest.mark.parametrize("name", ["transformer", pytest.param("lstm", marks=pytest.mark.rare)])
def test_after_two_steps_xla_compiles_nothing(tmp_path, name):
    (dump := tmp_path / "dump").mkdir()
    flags = f"--xla_backend_optimization_level=0 --xla_dump_to={dump} --xla_dump_hlo_as_proto=true"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, str(dump), name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, second, *later = map(int, done.stdout.split())
    assert 0 < first <= second
    assert later == [second] * 4
