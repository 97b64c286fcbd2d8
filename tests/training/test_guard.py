import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.training import OPTIMIZERS, AdamW, Muon, TrainConfig, compile_model, guard

pytestmark = pytest.mark.any_backend
BAD = [float("nan"), float("inf")]
SEVERAL = 1 if keras.backend.backend() == "torch" else 2  # steps at once


@pytest.fixture
def make():
    """An optimizer over two weights, after one good step."""

    def make(kind=AdamW, **options):
        weights = [keras.Variable(np.ones((2, 3)), name="first"), keras.Variable(np.ones(7), name="second")]
        optimizer = kind(0.1, **options)
        optimizer.build(weights)
        step(optimizer, 1.0)
        return optimizer

    return make


def step(optimizer, gradient, loss=1.0):
    """One step as Keras makes it: the loss scaled, the gradients with it, that of the first, smaller weight NaN if
    the loss is not finite. `gradient` is that of the second weight."""
    scaled_loss = float(ops.convert_to_numpy(optimizer.scale_loss(ops.convert_to_tensor(loss))))
    scale = optimizer.loss_scale_factor
    first, second = optimizer.trained
    gradient *= 1.0 if scale is None else float(scale)
    optimizer.apply([ops.full(first.shape, scaled_loss / loss), ops.full(second.shape, gradient)], [first, second])


WATCHING = {
    "iteration",
    "gradient_norm",
    "loss_scale",
    "steps_since_overflow",
    "first_nonfinite_step",
    "first_nonfinite_index",
}


def moved(optimizer):
    """All that a step may move."""
    moments = [v for v in optimizer.variables if v.name not in WATCHING]
    return [ops.convert_to_numpy(v).copy() for v in (*optimizer.trained, *moments)]


def assert_same(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("kind", "bad"), [(OPTIMIZERS["sgd"], BAD[0]), (OPTIMIZERS["adamw"], BAD[0]), (OPTIMIZERS["muon"], BAD[1])]
)
def test_from_a_gradient_that_is_no_number_on_no_step_is_made_but_every_one_is_counted(make, kind, bad):
    optimizer = make(kind)
    before = moved(optimizer)
    for gradient in (bad, 1.0, bad):
        step(optimizer, gradient)
    assert_same(moved(optimizer), before)
    assert (int(optimizer.iterations), int(optimizer.first_nonfinite_step)) == (4, 1)
    assert optimizer.describe_nonfinite() == "The gradient (of second)"


@pytest.mark.parametrize("bad", [BAD[0], pytest.param(BAD[1], marks=pytest.mark.rare)])
def test_a_loss_that_is_no_number_is_noticed_though_its_gradients_are_some(bad):
    """In `fit`, compiled where the backend compiles: of six batches the third has such a loss."""
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, name="line")])
    model.compile(AdamW(0.1), lambda y_true, y_pred: y_true + y_pred, steps_per_execution=SEVERAL)
    y = np.zeros((6, 1), "float32")
    y[2] = bad
    steps, optimizer = Weights(), model.optimizer
    model.fit(np.ones((6, 2), "float32"), y, batch_size=1, shuffle=False, verbose=0, callbacks=[steps])
    assert (int(optimizer.iterations), int(optimizer.first_nonfinite_step)) == (6, 2)
    assert optimizer.describe_nonfinite() == "The loss"
    assert_same(steps.after[-1], steps.after[2 // SEVERAL - 1])
    assert np.isfinite(steps.after[-1][0]).all()


class Weights(keras.callbacks.Callback):
    """The weights after each execution of steps."""

    def on_train_begin(self, logs=None):
        self.after = []

    def on_train_batch_end(self, batch, logs=None):
        self.after.append(weights(self.model))


def weights(model):
    return [ops.convert_to_numpy(v).copy() for v in model.trainable_variables]


def test_a_gradient_too_long_for_float32_is_one(make):
    optimizer = make()
    step(optimizer, 1e30)
    assert (int(optimizer.first_nonfinite_step), optimizer.describe_nonfinite()) == (1, "The gradient (of second)")


@pytest.mark.parametrize("bad", BAD)
def test_overflow_halves_the_scale_and_training_goes_on_as_if_the_step_had_not_been(make, bad):
    scaled, plain = make(Muon, loss_scale_factor=8.0), make(Muon)
    for gradient in (bad, bad, 3.0):
        step(scaled, gradient)
    plain.step.assign_add(2)
    step(plain, 3.0)
    assert float(scaled.loss_scale_factor) == 2.0
    assert (int(scaled.iterations), int(scaled.first_nonfinite_step)) == (4, -1)
    for a, b in zip(moved(scaled), moved(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_what_no_smaller_scale_can_mend_is_bad(make):
    optimizer = make(loss_scale_factor=2.0)
    step(optimizer, float("inf"))
    assert int(optimizer.first_nonfinite_step) == -1
    step(optimizer, float("inf"))
    assert int(optimizer.first_nonfinite_step) == 2
    other = make(loss_scale_factor=2.0)
    for _ in range(2):
        step(other, 1.0, loss=float("nan"))
    assert (int(other.first_nonfinite_step), other.describe_nonfinite()) == (2, "The loss")


def test_the_scale_grows_after_steps_without_overflow(make, monkeypatch):
    monkeypatch.setattr(guard, "GROWTH_STEPS", 3)
    monkeypatch.setattr(guard, "MAX_LOSS_SCALE", 16.0)
    optimizer, scales = make(loss_scale_factor=4.0), []
    for gradient in (1.0, 1.0, float("inf"), 1.0, 1.0, 1.0, *[1.0] * 6):
        step(optimizer, gradient)
        scales.append(float(optimizer.loss_scale_factor))
    assert scales[:6] == [4, 8, 4, 4, 4, 8]
    assert scales[-1] == 16


def test_the_learning_rate_can_be_made_smaller_without_touching_its_schedule(make):
    optimizer = make(kind=OPTIMIZERS["sgd"], momentum=0.0, nesterov=False, global_clipnorm=None)
    optimizer.lr_factor.assign(0.25)
    before = moved(optimizer)[0]
    step(optimizer, 0.0)
    assert float(optimizer.learning_rate) == pytest.approx(0.025)
    np.testing.assert_allclose(before - moved(optimizer)[0], 0.025, rtol=1e-5)
    optimizer.learning_rate = 0.2
    assert float(optimizer.learning_rate) == pytest.approx(0.05)


def test_the_config_has_the_first_scale_after_it_has_moved(make):
    optimizer = make(loss_scale_factor=8.0)
    step(optimizer, float("inf"))
    again = AdamW.from_config(optimizer.get_config())
    assert again.loss_scale_factor == 8.0


def test_a_model_in_float16_survives_overflow_in_steps_that_run_at_once():
    layer = keras.layers.Dense(1, dtype="mixed_float16")
    model = keras.Sequential([keras.Input((2,)), layer])
    optimizer = AdamW(0.1, loss_scale_factor=2.0**30)
    model.compile(optimizer, "mse", steps_per_execution=SEVERAL**3, auto_scale_loss=False, jit_compile=False)
    before = weights(model)[0]
    model.fit(np.ones((24, 2)), np.ones((24, 1)), batch_size=1, shuffle=False, verbose=0)
    assert float(optimizer.loss_scale_factor) < 2.0**20
    assert (int(optimizer.iterations), int(optimizer.first_nonfinite_step)) == (24, -1)
    assert np.isfinite(weights(model)[0]).all()
    assert (weights(model)[0] != before).all()


@pytest.mark.parametrize(
    "kind", [OPTIMIZERS["sgd"], OPTIMIZERS["muon"], pytest.param(OPTIMIZERS["adamw"], marks=pytest.mark.rare)]
)
def test_accumulating_batches_is_a_batch_as_large_as_all_of_them(kind):
    """Twice three batches of two rows and one of them again, clipped after the mean; then twice six rows."""
    random = np.random.default_rng(0)
    x, y = (random.normal(size=(14, 2)).astype("float32") for _ in range(2))
    ends = []
    for options, rows, batch_size in (({"gradient_accumulation_steps": 3}, 14, 2), ({}, 12, 6)):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
        optimizer = kind(0.1, global_clipnorm=0.1, **options)
        model.compile(optimizer, "mse", jit_compile=False)
        model.fit(x[:rows], y[:rows], batch_size=batch_size, shuffle=False, verbose=0)
        ends.append((optimizer, weights(model)))
    (several, got), (one, expected) = ends
    assert (int(several.step), int(several.iterations)) == (7, 2)
    assert (int(one.step), int(one.iterations)) == (2, 2)
    assert float(several.gradient_norm) == pytest.approx(float(one.gradient_norm), rel=1e-5)
    assert float(one.gradient_norm) > 0.1
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_overflow_in_one_of_several_batches_skips_all_of_them_and_the_next_start_from_zero(make):
    optimizer = make(Muon, loss_scale_factor=8.0, gradient_accumulation_steps=2)  # which has made one of two steps
    step(optimizer, float("inf"))
    assert (float(optimizer.loss_scale_factor), int(optimizer.first_nonfinite_step)) == (4.0, -1)
    before = moved(optimizer)
    step(optimizer, 1.0)
    assert_same(moved(optimizer)[:2], before[:2])
    step(optimizer, 3.0)
    assert np.isfinite(moved(optimizer)[0]).all()
    assert (moved(optimizer)[0] != before[0]).all()
    assert float(optimizer.gradient_norm) == pytest.approx(np.sqrt(6 + 7 * 4.0), rel=1e-5)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="on JAX, Keras updates all weights or none")
@pytest.mark.parametrize("frozen", [0, 1])
@pytest.mark.parametrize("bad", BAD)
def test_where_a_weight_was_frozen_the_others_are_trained_and_named(make, frozen, bad):
    optimizer = make()
    weights = optimizer.trained
    weights[frozen].trainable = False
    (other,) = (v for v in weights if v.trainable)
    before = moved(optimizer)[1 - frozen]
    optimizer.apply([ops.ones(other.shape)], [other])
    assert (moved(optimizer)[1 - frozen] != before).all()
    loss = optimizer.scale_loss(ops.convert_to_tensor(1.0))
    assert float(ops.convert_to_numpy(loss)) == 1.0
    optimizer.apply([ops.full(other.shape, bad)], [other])
    named = "The loss" if np.isnan(bad) else f"The gradient (of {other.path})"  # one NaN gradient is all there are
    assert (int(optimizer.first_nonfinite_step), optimizer.describe_nonfinite()) == (2, named)


def test_a_model_without_a_trainable_weight_is_refused(make):
    optimizer = make()
    with pytest.raises(ValueError, match="no trainable weight"):
        optimizer.apply([], [])
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.trainable = False
    with pytest.raises(ValueError, match="no trainable weight"):
        compile_model(model, TrainConfig(), total_steps=3)
    model.trainable = True
    compile_model(model, TrainConfig(), total_steps=3, loss=keras.losses.MeanSquaredError())
    model.trainable = False
    if keras.backend.backend() != "jax":  # which goes by the weights that were trainable in `compile`
        with pytest.raises(ValueError, match="no trainable weight"):
            model.train_on_batch(np.ones((2, 2)), np.ones((2, 1)))


@pytest.mark.parametrize("options", [{}, {"loss_scale_factor": 8.0}])
def test_the_loss_may_be_a_number(make, options):
    for loss in (1, 1.0):
        scaled = make(**options).scale_loss(loss)
        assert float(scaled) == options.get("loss_scale_factor", 1.0)
