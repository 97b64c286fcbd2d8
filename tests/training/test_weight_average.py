"""The average is NumPy's recurrence; validations and the end have it, the training and its checkpoints the weights."""

import keras
import numpy as np
import pytest
from keras import ops
from safetensors.numpy import load_file

from keras_seq.tracking import Summaries
from keras_seq.training import TrainConfig, checkpoints, compile_model, fit_resumable
from keras_seq.training.callbacks import averaged_weights
from tests.training.backend_run import Killed

pytestmark = pytest.mark.any_backend
STEPS, MOMENTUM = 8, 0.7
X, Y = (np.random.default_rng(n).normal(size=(STEPS, 3, n)).astype("float32") for n in (2, 1))


class Weights(keras.callbacks.Callback):
    """The weights after every step, up to one in which the process ends."""

    def __init__(self, dies=None):
        super().__init__()
        self.after, self.dies = [], dies

    def on_train_batch_end(self, batch, logs=None):
        self.after.append([weight.copy() for weight in self.model.get_weights()])
        if len(self.after) == self.dies:
            raise Killed


def batches(first, last):
    """A batch as a function of the step."""
    return ((X[step], Y[step]) for step in range(first, last))


def train(folder, dies=None, **options):
    """Train a line; return the weights after every step, those in every validation, and those at the end."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    intervals = {"log_every": 2, "validate_every": 2, "checkpoint_every": 3}
    config = TrainConfig("adamw", 0.1, warmup_steps=0, use_ema=True, ema_momentum=MOMENTUM, **intervals, **options)
    compile_model(model, config, STEPS, loss=keras.losses.MeanSquaredError())
    weights, validated = Weights(dies), []

    def validate():
        validated.append([weight.copy() for weight in model.get_weights()])
        return Summaries({"val_loss": float(np.mean((model.predict_on_batch(X[0]) - Y[0]) ** 2))})

    model.steps_per_execution, model.run_eagerly = 1, True
    fit_resumable(folder, model, batches, 3, STEPS, config, validate, {}, callbacks=[weights])
    return weights.after, validated, model.get_weights()


def averages(after):
    """NumPy's recurrence in float64: the weights after the first step, then each step's share."""
    average = [w.astype("float64") for w in after[0]]
    yield average
    for weights in after[1:]:
        average = [MOMENTUM * a + (1 - MOMENTUM) * w for a, w in zip(average, weights, strict=True)]
        yield average


def assert_close(got, expected, **tolerance):
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


def test_validations_and_the_end_have_the_average_and_the_steps_the_weights(tmp_path):
    after, validated, end = train(tmp_path)
    expected = list(averages(after))
    assert np.abs(expected[-1][0] - after[-1][0]).max() > 0.01
    for got, step in zip(validated, (2, 4, 6, 8), strict=True):
        assert_close(got, expected[step - 1], rtol=1e-5)
    assert_close(end, expected[-1], rtol=1e-5)
    last = load_file(checkpoints.list_checkpoints(tmp_path / "checkpoints")[-1])
    assert_close([v for name, v in last.items() if name.startswith("model")], after[-1])
    assert_close([v for name, v in last.items() if name.endswith("average")], end)


def test_a_run_that_was_killed_goes_on_with_the_weights_and_their_average(tmp_path):
    after, validated, end = train(tmp_path / "whole")
    with pytest.raises(Killed):
        train(tmp_path / "parts", dies=5)
    rest, scored, resumed = train(tmp_path / "parts")  # from the best checkpoint, of step 4
    for got, expected in zip([*rest, *scored, resumed], [*after[4:], *validated[2:], end], strict=True):
        assert_close(got, expected, rtol=0)
    nothing, _, again = train(tmp_path / "parts")
    assert nothing == []
    assert_close(again, end, rtol=0)


def test_a_first_step_that_overflows_leaves_the_average_at_the_first_weights():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    compile_model(model, TrainConfig(use_ema=True, precision="float16"), STEPS)
    optimizer, before = model.optimizer, [ops.convert_to_numpy(v).copy() for v in model.trainable_variables]
    optimizer.apply([ops.full(v.shape, np.inf) for v in model.trainable_variables])
    for variable in model.trainable_variables:
        variable.assign(variable + 1)
    with averaged_weights(model):
        assert_close(model.get_weights(), before, rtol=0)
    assert_close(model.get_weights(), [w + 1 for w in before], rtol=0)


@pytest.mark.usefixtures("eagerly")  # the fault was JAX's
def test_a_fit_goes_on_from_the_average_that_the_one_before_ended_with():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    loss = keras.losses.MeanSquaredError()
    compile_model(model, TrainConfig(use_ema=True, log_every=2), STEPS, loss=loss)
    model.steps_per_execution = 1
    losses = [
        model.fit(X[0], Y[0], verbose=0).history["loss"][0] for _ in range(3)
    ]  # JAX gives the memory of each away
    assert np.isfinite(losses).all()
