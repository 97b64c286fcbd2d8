import functools
import inspect
import itertools

import keras
import numpy as np
import pytest
from keras import ops, tree

from keras_seq import layers
from tests.conftest import often
from tests.layers.conftest import rare_on_jax
from tests.layers.test_contract import STATEFUL

BACKEND = keras.backend.backend()
LAYERS = {
    "SimpleRNN": lambda: layers.SimpleRNN(2, return_sequences=True),
    "GRU": lambda: layers.GRU(2, return_sequences=True),
    "LSTM": lambda: layers.LSTM(2, return_sequences=True),
    "MinGRU": lambda: layers.MinGRU(2, return_sequences=True),
    "SelectiveStateSpace": lambda: layers.SelectiveStateSpace(state_dim=2, expand=1, kernel_size=3),
}
# where `fit` compiles, a state of two parts and one of one part speak for the others
QUICK = ("LSTM", "MinGRU")
each = rare_on_jax("make_layer", LAYERS, QUICK)
unlike = often("make_layer", LAYERS, QUICK)


def make(batch_size=3):
    layer = layers.LSTM(4, return_sequences=True)
    stateful = layers.Stateful(layer, batch_size)
    stateful.build((batch_size, 5, 2))
    return layer, stateful


def numpy_state(stateful):
    return [ops.convert_to_numpy(variable) for variable in stateful.state]


def batches(count, seed=0):
    return np.random.default_rng(seed).normal(size=(count, 3, 5, 2)).astype("float32")


class Losses(keras.callbacks.Callback):
    """The mean loss so far, after every batch of `fit`."""

    def on_train_begin(self, logs=None):
        self.means = []

    def on_train_batch_end(self, batch, logs=None):
        self.means.append(float(logs["loss"]))


def training_model(layer, randomize, learning_rate, with_reset_mask=False):
    """A compiled model of the layer under a stateful, batches of 3; all weights random."""
    inputs = [keras.Input((5, 2), batch_size=3)]
    if with_reset_mask:
        inputs.append(keras.Input((), batch_size=3, dtype="bool"))
    stateful = layers.Stateful(layer, 3)
    model = keras.Model(inputs if with_reset_mask else inputs[0], stateful(*inputs))
    randomize(layer, scale=0.7)
    model.compile(keras.optimizers.SGD(learning_rate), "mse", jit_compile=BACKEND == "jax")
    return model, stateful


def fit(model, x, target):
    """The mean losses of one `fit` over batches `[count, 3, ...]`, in their order."""
    x, target = tree.map_structure(lambda v: v.reshape(-1, *v.shape[2:]), [x, target])
    losses = Losses()
    model.fit(x, target, batch_size=3, shuffle=False, verbose=0, callbacks=[losses])
    return losses.means


def means_so_far(y, target):
    """What `Losses` records: y and target `[count, 3, ...]`."""
    losses = ((y - target) ** 2).mean(axis=(1, 2, 3))
    return np.cumsum(losses) / np.arange(1, len(losses) + 1)


def cut(whole, count):
    """`[3, 5 count, ...]` -> `[count, 3, 5, ...]`."""
    return np.stack(np.split(ops.convert_to_numpy(whole), count, axis=1))


def in_one(x):
    """`[count, 3, 5, ...]` -> `[3, 5 count, ...]`."""
    return np.concatenate(list(x), axis=1)


@unlike
def test_fit_over_pieces_has_the_losses_of_one_long_pass(randomize, make_layer):
    layer = make_layer()
    model, stateful = training_model(layer, randomize, learning_rate=0.0)
    x, target = batches(3), batches(3, seed=1)
    y, state = layer(in_one(x), return_state=True)
    np.testing.assert_allclose(fit(model, x, target), means_so_far(cut(y, 3), target), rtol=2e-5)
    for carried, last in zip(numpy_state(stateful), tree.flatten(state), strict=True):
        np.testing.assert_allclose(carried, ops.convert_to_numpy(last), atol=1e-5)


@unlike
def test_gradients_stop_exactly_at_the_border(randomize, gradients, make_layer):
    layer = make_layer()
    model, stateful = training_model(layer, randomize, learning_rate=1.0)
    (first, second), target = batches(2), batches(1, seed=1)[0]
    stateful(first, training=True)
    before = [ops.convert_to_numpy(v) for v in layer.trainable_variables]

    def loss(weights, border):
        _, state = layer.stateless_call(weights, [], first, return_state=True)[0]
        if border:
            state = tree.map_structure(ops.stop_gradient, state)
        y, _ = layer.stateless_call(weights, [], second, state=state)
        return ops.mean(ops.square(y - ops.convert_to_tensor(target)))

    truncated, full = (gradients(functools.partial(loss, border=border), before) for border in (True, False))
    fit(model, second[None], target[None])
    updates = [was - ops.convert_to_numpy(now) for was, now in zip(before, layer.trainable_variables, strict=True)]
    for update, expected in zip(updates, truncated, strict=True):
        np.testing.assert_allclose(update, expected, atol=1e-5)
    assert max(np.abs(update - other).max() for update, other in zip(updates, full, strict=True)) > 1e-3


@unlike
def test_a_stream_of_documents_is_each_document_alone(randomize, make_layer):
    """Under `fit`, with a reset mask among the inputs: true for the rows in which another document starts."""
    layer = make_layer()
    model, stateful = training_model(layer, randomize, learning_rate=0.0, with_reset_mask=True)
    x, target = batches(4), batches(4, seed=1)
    reset_mask = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 0], [0, 1, 1]], bool)
    expected, last = np.zeros_like(target), [np.zeros(variable.shape, "float32") for variable in stateful.state]
    for row in range(3):
        starts = [*np.flatnonzero(reset_mask[:, row]), 4]
        for start, end in itertools.pairwise(starts):
            document = in_one(x[start:end, row : row + 1])
            y, state = layer(document, return_state=True)
            expected[start:end, row] = cut(y, end - start)[:, 0]
        for part, of_row in zip(last, tree.flatten(state), strict=True):
            part[row] = ops.convert_to_numpy(of_row)[0]
    np.testing.assert_allclose(fit(model, [x, reset_mask], target), means_so_far(expected, target), rtol=2e-5)
    for carried, part in zip(numpy_state(stateful), last, strict=True):
        np.testing.assert_allclose(carried, part, atol=1e-5)


def test_what_was_trained_in_large_batches_steps_with_one_row_and_keeps_no_state(randomize, tmp_path):
    layer = layers.LSTM(2, return_sequences=True)
    x = keras.Input((5, 2), batch_size=50)
    training = keras.Model(x, layers.Stateful(layer, 50)(x))
    training.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=BACKEND == "jax")
    data = np.random.default_rng(0).normal(size=(100, 5, 2)).astype("float32")
    training.fit(data, data, batch_size=50, shuffle=False, verbose=0)
    assert [v.name for v in training.non_trainable_variables] == ["state", "state"]

    one = keras.Input((None, 2))
    model = keras.Model(one, layer(one))
    expected = ops.convert_to_numpy(model(data[:1]))
    state = layer.get_initial_state(1)
    for t in range(5):
        y, state = layer.step(ops.convert_to_tensor(data[:1, t]), state)
        np.testing.assert_allclose(ops.convert_to_numpy(y), expected[:, t], atol=2e-6)
    model.save(tmp_path / "model.keras")
    revived = keras.saving.load_model(tmp_path / "model.keras")
    assert [v.name for v in revived.variables] == ["kernel", "recurrent_kernel", "bias"]
    np.testing.assert_array_equal(ops.convert_to_numpy(revived(data[:1])), expected)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_the_state_keeps_its_dtypes(policy):
    layer = layers.LSTM(2, dtype=policy, return_sequences=True)
    stateful = layers.Stateful(layer, 3, dtype=policy)
    first, second = (ops.cast(x, layer.compute_dtype) for x in batches(2))
    got = [stateful(x, training=True) for x in (first, second)]
    assert [v.dtype for v in stateful.state] == [layer.compute_dtype, "float32"]
    got, whole = ops.concatenate(got, axis=1), layer(ops.concatenate([first, second], axis=1))
    got, whole = (ops.convert_to_numpy(ops.cast(y, "float32")) for y in (got, whole))
    np.testing.assert_allclose(got, whole, rtol=2**-7)  # a processor may round products of other sizes otherwise


def test_a_mask_is_handed_to_the_layer():
    layer, stateful = make()
    first, second = batches(2)
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [0] * 5], bool)
    got = [ops.convert_to_numpy(stateful(x, mask=mask, training=True)) for x in (first, second)]
    whole = layer(in_one([first, second]), mask=np.concatenate([mask, mask], axis=1))
    np.testing.assert_allclose(in_one(got), ops.convert_to_numpy(whole), atol=1e-6)


def test_outside_of_training_the_state_is_neither_read_nor_written():
    layer, stateful = make()
    first, second = batches(2)
    stateful(first, training=True)
    before = numpy_state(stateful)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(stateful(second, training=False)), ops.convert_to_numpy(layer(second))
    )
    assert stateful(np.zeros((7, 5, 2), "float32"), training=False).shape == (7, 5, 4)
    for was, now in zip(before, numpy_state(stateful), strict=True):
        np.testing.assert_array_equal(was, now)


def test_evaluate_and_predict_in_between_change_nothing_in_fit():
    def train(disturbed):
        keras.utils.set_random_seed(1)
        x = keras.Input((5, 2), batch_size=3)
        model = keras.Model(x, keras.layers.Dense(2)(layers.Stateful(layers.LSTM(4, return_sequences=True), 3)(x)))
        model.compile("sgd", "mse", jit_compile=BACKEND == "jax", run_eagerly=BACKEND == "tensorflow")
        losses = []
        for data in batches(2):
            losses.append(model.fit(data, data, batch_size=3, shuffle=False, verbose=0).history["loss"])
            if disturbed:
                other = batches(1, seed=9)[0]
                model.evaluate(other, other, batch_size=2, verbose=0)
                model.predict(other, batch_size=1, verbose=0)
        return losses

    assert train(disturbed=True) == train(disturbed=False)


@each
def test_reset_puts_back_the_rows_that_are_named_or_all(make_layer):
    stateful = layers.Stateful(make_layer(), 3)
    stateful(batches(1)[0], training=True)
    before = numpy_state(stateful)
    stateful.reset_state(np.array([False, True, False]))
    for was, now in zip(before, numpy_state(stateful), strict=True):
        np.testing.assert_array_equal(now[1], 0.0)
        np.testing.assert_array_equal(now[[0, 2]], was[[0, 2]])
        assert (was != 0).any(axis=tuple(range(1, was.ndim))).all()
    for rows in ([True, False], [[True] * 3], True):
        with pytest.raises(ValueError, match=r"rows has shape .*; expected \[B\] with B=3"):
            stateful.reset_state(np.array(rows))
    stateful.reset_state()
    assert not any(part.any() for part in numpy_state(stateful))


def test_the_state_is_saved_with_the_training_model_and_not_with_the_layer(tmp_path):
    x = keras.Input((5, 2), batch_size=3)
    layer = layers.LSTM(4, return_sequences=True)
    model = keras.Model(x, layers.Stateful(layer, 3)(x))
    stateful = model.layers[-1]
    stateful(batches(1)[0], training=True)
    assert all((part != 0).any() for part in numpy_state(stateful))
    model.save(tmp_path / "model.keras")
    revived = keras.models.load_model(tmp_path / "model.keras")
    for was, now in zip(numpy_state(stateful), numpy_state(revived.layers[-1]), strict=True):
        np.testing.assert_array_equal(was, now)
    assert len(layer.weights) == 3


def test_a_config_can_be_used_twice():
    _, stateful = make()
    config = stateful.get_config()
    for _ in range(2):
        again = layers.Stateful.from_config(config)
        assert (again.batch_size, again.layer.units) == (3, 4)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="batch_size=0"):
        layers.Stateful(layers.LSTM(4, return_sequences=True), 0)
    attention = layers.MultiHeadSelfAttention(num_heads=1, causal=True)
    attention.build((3, 5, 2))
    attention.get_initial_state = functools.partial(attention.get_initial_state, capacity=5)
    with pytest.raises(ValueError, match="expected B rows in every tensor"):
        layers.Stateful(attention, 3).build((3, 5, 2))


@often(
    "name",
    [name for name in STATEFUL if name != "MultiHeadSelfAttention"],
    ("LSTM", "CausalDepthwiseConv1D", "PositionalEncoding"),
)
def test_a_remainder_of_a_batch_is_refused(name):
    layer = STATEFUL[name].make()
    if "capacity" in inspect.signature(layer.get_initial_state).parameters:
        layer = layers.PositionalEncoding()
    stateful = layers.Stateful(layer, 4)
    random = np.random.default_rng(0)
    x = random.normal(size=(4, 5, 6)).astype("float32")
    stateful(x, training=True)
    before = numpy_state(stateful)
    for rows in (1, 3, 5):
        with pytest.raises(ValueError, match=rf"inputs have {rows} rows; expected batch_size=4 .*drop the remainder"):
            stateful(np.resize(x, (rows, 5, 6)), training=True)
    for was, now in zip(before, numpy_state(stateful), strict=True):
        np.testing.assert_array_equal(was, now)


@pytest.mark.parametrize(
    "make_layer",
    [pytest.param(lambda: layers.SLSTM(2), marks=pytest.mark.rare), lambda: layers.CausalDepthwiseConv1D(3)],
    ids=["SLSTM", "Conv"],
)
@pytest.mark.parametrize("rows", [1, pytest.param(2, marks=pytest.mark.rare)])
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.rare)])
def test_a_remainder_in_fit_is_refused_or_shows(make_layer, rows, jit_compile):
    if BACKEND != "tensorflow" and jit_compile:
        pytest.skip("the same as without on JAX; torch.compile needs a C++ compiler and a minute")
    x = keras.Input((4, 8))
    stateful = layers.Stateful(make_layer(), 4)
    model = keras.Model(x, stateful(x))
    model.compile("sgd", "mse", jit_compile=jit_compile or BACKEND == "jax")
    data = np.random.default_rng(0).normal(size=(4 + rows, 4, 8)).astype("float32")
    assert model.predict(data, batch_size=4, verbose=0).shape == data.shape
    if jit_compile:  # XLA cannot raise
        assert np.isnan(model.fit(data, data, batch_size=4, shuffle=False, verbose=0).history["loss"]).all()
        assert [len(state) for state in numpy_state(stateful)] == [4] * len(stateful.state)
        return
    with pytest.raises(Exception, match=r"inputs have.*rows.*expected batch_size=4 .*drop the remainder"):
        model.fit(data, data, batch_size=4, shuffle=False, verbose=0)


class TwoSums(layers.ExplicitState):
    """Sums of the inputs and of their squares, in a dict within a dict, in another order than at first."""

    def get_initial_state(self, batch_size):
        return {"sums": {"plain": ops.zeros((batch_size, 2)), "squares": ops.zeros((batch_size, 2))}}

    def call(self, inputs, state=None, mask=None, return_state=False, training=None):
        x, state, _ = self.prepare_inputs(inputs, state, mask)
        new = {name: state["sums"][name] + ops.sum(y, axis=1) for name, y in (("squares", x * x), ("plain", x))}
        return (x, {"sums": new}) if return_state else x

    def compute_output_shape(self, inputs_shape):
        return tuple(inputs_shape)


def test_the_parts_of_a_state_are_told_apart_by_name():
    """On torch a dict within a dict is flattened in its own order."""
    stateful, x = layers.Stateful(TwoSums(), 3), batches(2)
    for part in x:
        stateful(part, training=True)
    expected = {"plain": in_one(x).sum(axis=1), "squares": (in_one(x) ** 2).sum(axis=1)}
    names = [path[-1] for path, _ in tree.flatten_with_path(stateful.layer.get_initial_state(3))]
    for name, carried in zip(names, numpy_state(stateful), strict=True):
        np.testing.assert_allclose(carried, expected[name], rtol=1e-5)
