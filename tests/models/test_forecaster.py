"""A forecaster of each kind of block: steps, files, precision, paths."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.evaluation import StudentTLoss
from keras_seq.generation import sample_paths
from keras_seq.models import Forecaster
from keras_seq.models.config import tiny_config
from tests.conftest import often, randomized

numpy = ops.convert_to_numpy
B, T, WIDTH = 3, 7, 16
BLOCKS = ("lstm", "mamba2", "transformer", "hybrid")


def forecaster(name, num_outputs=3, **options):
    config = tiny_config(name, context_length=12)
    model = Forecaster(WIDTH, config.blocks(), num_outputs, getattr(config, "context_length", None), **options)
    model.build((None, None, 1))
    return randomized(model)


def series(seed=0, batch=B):
    return np.random.default_rng(seed).normal(size=(batch, T, 1)).astype("float32")


@often("name", BLOCKS, ("lstm", "hybrid"))
def test_steps_are_the_whole_pass_and_a_saved_model_the_same(name, tmp_path):
    model, x = forecaster(name), series()
    whole = numpy(model(x))
    assert whole.shape == (B, T, 3)
    state, outputs = model.get_initial_state(B), []
    for t in range(T):
        y, state = model.step(x[:, t : t + 1], state)
        outputs.append(numpy(y))
    np.testing.assert_allclose(np.stack(outputs, axis=1), whole, atol=1e-5)
    changed = x.copy()
    changed[:, 4:] = 9
    np.testing.assert_allclose(numpy(model(changed))[:, :4], whole[:, :4], atol=1e-6)
    model.save(tmp_path / "model.keras")
    np.testing.assert_allclose(numpy(keras.saving.load_model(tmp_path / "model.keras")(x)), whole, atol=1e-6)


@pytest.mark.parametrize("name", ["lstm", "hybrid"])
def test_padding_is_a_shorter_series(name):
    model, x = forecaster(name), series()
    mask = np.ones((B, T), bool)
    mask[1, :3] = False
    spoiled = np.where(mask[..., None], x, np.nan)
    got = numpy(model(spoiled, mask=mask))
    np.testing.assert_allclose(got[1, 3:], numpy(model(x[1:2, 3:]))[0], atol=1e-5)
    np.testing.assert_allclose(got[0], numpy(model(x[:1]))[0], atol=1e-5)


def test_half_precision_gives_outputs_in_float32():
    with_policy = Forecaster(
        WIDTH, [layers.GRU(8, return_sequences=True, dtype="mixed_bfloat16")], 3, dtype="mixed_bfloat16"
    )
    y = with_policy(series())
    assert keras.backend.standardize_dtype(y.dtype) == "float32"
    assert np.isfinite(numpy(y)).all()


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_paths_are_draws_one_after_the_other(name):
    """With draws that are the location, a path is what steps by hand give; with a seed, it is the same again."""
    model, loss, x = forecaster(name), StudentTLoss(), series()

    def location(outputs, random):
        return numpy(loss.parameters(outputs)[0])

    paths = sample_paths(model, location, x, horizon=4, num_paths=2)
    assert paths.shape == (B, 2, 4)
    longer = x
    for t in range(4):
        expected = numpy(loss.parameters(model(longer)[:, -1])[0])
        np.testing.assert_allclose(paths[:, 0, t], expected[:, 0], atol=1e-5)
        np.testing.assert_allclose(paths[:, 1, t], expected[:, 0], atol=1e-5)
        longer = np.concatenate([longer, expected[:, None]], axis=1)


@pytest.mark.usefixtures("eagerly")
def test_the_first_values_of_paths_have_the_distribution_of_the_outputs_and_a_seed_repeats_them():
    model, loss, x = forecaster("lstm"), StudentTLoss(), series(batch=1)
    drawn = [sample_paths(model, loss.sample, x, 2, num_paths=5, seed=seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).all()
    paths = sample_paths(model, loss.sample, x, 1, num_paths=20_000)
    quantiles = loss.quantiles(model(x)[:, -1], (0.1, 0.5, 0.9))[0, 0]
    np.testing.assert_allclose((paths[..., None] <= quantiles).mean(axis=(0, 1, 2)), (0.1, 0.5, 0.9), atol=0.015)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Forecaster(8, [layers.Bidirectional(layers.GRU(4))], 3), "it reads later positions"),
        (
            lambda: Forecaster(8, [layers.Stateful(layers.GRU(8, return_sequences=True), B)], 3),
            "its call takes and returns no state",
        ),
        (lambda: Forecaster(8, [layers.GRU(8)], 3), "does not give one output for each position"),
        (lambda: Forecaster(8, ["gru"], 3), "blocks holds 'gru'; expected layers"),
        (lambda: Forecaster(8, [layers.Dense(8)], 3, context_length=0), "context_length=0"),
        (lambda: forecaster("lstm")(series(), mask=np.full((B, T), -1e9)), "mask has the dtype float.*; expected bool"),
        (lambda: forecaster("lstm")(series(), mask=np.ones(T, bool)), r"mask has shape \(7,\)"),
        (lambda: forecaster("lstm")(series(), mask=np.ones((B, 1), bool)), "mask has shape"),
        (lambda: forecaster("lstm", num_outputs=0), "num_outputs=0"),
        (
            lambda: forecaster("transformer")(np.zeros((1, 13, 1), "float32")),
            "13 positions; expected at most context_length=12",
        ),
        (
            lambda: sample_paths(forecaster("transformer"), None, series(), 7),
            "horizon=7 after 7 values needs 13 positions",
        ),
        (
            lambda: forecaster("lstm")(np.zeros((1, 3, 2), "float32")),
            r"values has shape \(1, 3, 2\); expected \[B, T, 1\]",
        ),
        (lambda: sample_paths(forecaster("lstm"), None, series(), 0), "horizon=0"),
    ],
)
def test_a_mistake_is_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()
