"""The optimized versions of the backend at hand have the values and gradients of the references.

Those of TensorFlow have tests of their own in tests/ops; JAX has few on a CPU.
"""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops, tree

import keras_seq.ops
from keras_seq import layers
from keras_seq.ops.attention import causal_attention, masked_attention
from keras_seq.ops.fused_rnn import fused_rnn
from keras_seq.ops.linear_recurrence import linear_recurrence, log_linear_recurrence
from keras_seq.ops.lstm import lstm
from keras_seq.ops.tensor_checks import at_least_float32
from keras_seq.training import optimizers
from tests.ops.compare import twins_called

BACKEND = keras.backend.backend()
B, T, D = 3, 5, 6
# Keras computes some of the reference in float32 on JAX and torch, whatever it is given
# In bfloat16 only noise is left of the gradient of the key bias, which is 0
NEAR = {"float32": 2e-5, "float64": 1e-12 if BACKEND == "tensorflow" else 1e-6, "mixed_bfloat16": 6e-2}
FUSED = BACKEND == "torch"
pytestmark = pytest.mark.skipif(BACKEND == "tensorflow", reason="its kernels have tests of their own")
torch_only = pytest.mark.skipif(not FUSED, reason="there is no kernel, and the reference equals itself")


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def with_random_weights(layer, *shapes):
    layer.build(*(shapes or [(B, T, D)]))
    layer.set_weights([0.5 * numbers(*w.shape, seed=n) for n, w in enumerate(layer.weights)])
    return layer


def weighted_sum(outputs):
    """Return a sum with a random weight for each number."""
    parts = [ops.cast(part, at_least_float32(part.dtype)) for part in tree.flatten(outputs)]
    weights = [ops.convert_to_tensor(numbers(*part.shape, seed=n), part.dtype) for n, part in enumerate(parts)]
    return sum(ops.sum(part * weight) for part, weight in zip(parts, weights, strict=True))


def check(gradients, layer, x, dtype="float32", state=(), **kwargs):
    """Compare outputs and gradients, by x, state and weights, with those of the reference implementations."""
    wide, count = "float64" if dtype == "float64" else "float32", len(layer.trainable_variables)
    arrays = [np.asarray(array, wide) for array in (x, *state)]
    values = [ops.convert_to_numpy(v) for v in layer.trainable_variables] + arrays

    def outputs(values):
        weights, (x, *state) = values[:count], values[count:]
        state = {"initial_state": state} if state else {}
        return layer.stateless_call(weights, layer.non_trainable_variables, x, **state, **kwargs)[0]

    def everything():
        found = tree.flatten(outputs([ops.convert_to_tensor(value) for value in values]))
        found = [ops.convert_to_numpy(ops.cast(part, wide)) for part in found]
        return [*found, *gradients(lambda values: weighted_sum(outputs(values)), values)]

    with keras_seq.ops.reference():
        expected = everything()
    for ours, theirs in zip(everything(), expected, strict=True):
        scale = max(1.0, np.abs(theirs).max())
        np.testing.assert_allclose(ours / scale, theirs / scale, rtol=0, atol=NEAR[dtype])


OPERATIONS = fused_rnn, lstm, causal_attention, masked_attention


@pytest.fixture
def ran():
    """The calls of twins."""
    with twins_called(*OPERATIONS) as calls:
        yield calls


def names(ran):
    return [name for name, _ in ran]


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("kind", [layers.LSTM, pytest.param(layers.GRU, marks=torch_only)])
@pytest.mark.usefixtures("float64")
def test_recurrent_layers(gradients, ran, kind, dtype):
    layer = with_random_weights(kind(4, return_sequences=True, return_state=True, dtype=dtype))
    check(gradients, layer, numbers(B, T, D), dtype, [numbers(B, 4, seed=n) for n in range(len(layer.state_parts))])
    assert ("fused_rnn" in names(ran)) == FUSED
    assert ("lstm" in names(ran)) != FUSED


@torch_only
@pytest.mark.parametrize(
    "options",
    [
        *({"go_backwards": True}, {"use_bias": False}, {"activation": "relu"}, {"recurrent_dropout": 0.5}),
        *({"return_sequences": False}, {"dtype": "mixed_float16"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [layers.LSTM, layers.GRU])
def test_options_of_recurrent_layers(kind, options):
    layer = with_random_weights(kind(4, **{"return_sequences": True} | options))
    x = numbers(B, T, D).astype("float32")
    with keras_seq.ops.reference():
        expected = ops.convert_to_numpy(ops.cast(layer(x), "float32"))
    near = 2e-3 if "dtype" in options else 2e-5
    np.testing.assert_allclose(ops.convert_to_numpy(ops.cast(layer(x), "float32")), expected, atol=near)


@torch_only
@pytest.mark.parametrize("length", [1, 5])
@pytest.mark.parametrize("kind", [layers.LSTM, layers.GRU])
def test_states_and_masks_of_recurrent_layers(ran, kind, length):
    layer = with_random_weights(kind(4, return_sequences=True))
    x, state = numbers(B, length, D).astype("float32"), layer.get_initial_state(B)
    state = tree.map_structure(lambda part: ops.convert_to_tensor(numbers(*part.shape).astype("float32")), state)
    mask = np.array([[1, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], bool)[:, :length]
    for kwargs in ({}, {"mask": mask}):
        ran.clear()
        found = layer(x, state=state, return_state=True, **kwargs)
        assert ("fused_rnn" in names(ran)) == (FUSED and length > 1 and not kwargs)
        with keras_seq.ops.reference():
            expected = layer(x, state=state, return_state=True, **kwargs)
        for ours, theirs in zip(tree.flatten(found), tree.flatten(expected), strict=True):
            np.testing.assert_allclose(ops.convert_to_numpy(ours), ops.convert_to_numpy(theirs), atol=2e-5)


@torch_only
def test_a_subclass_with_a_formula_of_its_own_runs_it(ran):
    class Doubled(layers.LSTM):
        def scan(self, *args):
            y, state = super().scan(*args)
            return 2 * y, state

    layer = with_random_weights(Doubled(4, return_sequences=True))
    plain = with_random_weights(layers.LSTM(4, return_sequences=True))
    x = numbers(B, T, D).astype("float32")
    np.testing.assert_allclose(ops.convert_to_numpy(layer(x)), 2 * ops.convert_to_numpy(plain(x)), atol=2e-5)


MASKS = {"none": None, "odd": np.array([[1, 1, 0, 1, 1], [0, 0, 0, 0, 0], [0, 1, 1, 1, 0]], bool)}


@torch_only
@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "options",
    [
        *({"causal": True}, {"causal": True, "num_key_value_heads": 2, "value_dim": 5}, {"use_qk_norm": True}),
        *({"causal": True, "sliding_window": 2}, {"causal": True, "positions": layers.AlibiPositions()}),
        {"sliding_window": 2, "positions": layers.RotaryPositions()},
        {"causal": True, "positions": layers.RotaryPositions(), "use_bias": False, "use_sinks": True},
        {"causal": True, "positions": layers.ForgettingPositions(), "num_key_value_heads": 2, "use_sinks": True},
        {"causal": True, "positions": layers.BucketedPositions(6, 5), "scale": 1.0},
    ],
    ids=lambda options: "-".join(options),
)
@pytest.mark.usefixtures("float64")
def test_self_attention(gradients, ran, options, mask, dtype):
    layer = with_random_weights(layers.MultiHeadSelfAttention(4, key_dim=4, dtype=dtype, **options))
    check(gradients, layer, numbers(B, T, D), dtype, mask=MASKS[mask])
    biased = any(name in str(options) for name in ("sliding_window", "Alibi", "Bucketed"))
    plain = mask == "none" and not biased
    if FUSED:
        assert ("causal_attention" if plain and "causal" in options else "masked_attention") in names(ran)


@torch_only
@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 7, 4, 3), (0, 3, 2, 4)])
def test_causal_attention_of_any_size(shape):
    q, k, v = (ops.convert_to_tensor(numbers(*shape, seed=n).astype("float32")) for n in range(3))
    with keras_seq.ops.reference():
        expected = ops.convert_to_numpy(causal_attention(q, k, v))
    np.testing.assert_allclose(ops.convert_to_numpy(causal_attention(q, k, v)), expected, atol=2e-6)


@torch_only
def test_dropout_of_attention_weights_scales_what_it_keeps_and_is_reproducible():
    def run():
        layer = with_random_weights(layers.MultiHeadSelfAttention(1, causal=True, dropout=0.25, seed=3))
        return [ops.convert_to_numpy(layer(x, training=training)) for training in (True, True, False)]

    x = numbers(2, 64, D).astype("float32")
    first, second, whole = run()
    assert (first != second).any()
    for ours, theirs in zip(run(), (first, second, whole), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert np.abs((first + second) / 2 - whole).mean() < np.abs(first - whole).mean()


@torch_only
def test_cross_attention_and_a_cache():
    block = layers.TransformerBlock(2, 8, causal=True, cross_attention=True)
    x, context = numbers(B, T, D).astype("float32"), numbers(B, 4, D, seed=1).astype("float32")
    mask = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
    block.build(x.shape, context.shape)
    expected, scores = block(x, context=context, context_mask=mask, return_attention_scores=True)
    assert scores.keys() == {"self_attention", "cross_attention"}
    whole = block(x, context=context, context_mask=mask)
    np.testing.assert_allclose(ops.convert_to_numpy(whole), ops.convert_to_numpy(expected), atol=2e-5)
    state, parts = block.get_initial_state(B, T, context=context, context_mask=mask), []
    for n in range(T):
        y, state = block(x[:, n : n + 1], state=state, return_state=True)
        parts.append(ops.convert_to_numpy(y))
    np.testing.assert_allclose(np.concatenate(parts, axis=1), ops.convert_to_numpy(expected), atol=2e-5)


@torch_only
@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("kind", [layers.LayerNormalization, layers.RMSNormalization, layers.Dense])
@pytest.mark.usefixtures("float64")
def test_normalization_and_dense(gradients, kind, dtype):
    layer = with_random_weights(kind(7, dtype=dtype) if kind is layers.Dense else kind(dtype=dtype))
    check(gradients, layer, numbers(B, T, D), dtype)


@pytest.mark.parametrize("shape", [(2, 1, 3), (2, 5, 3, 2), (0, 4, 2)])
def test_linear_recurrences(gradients, shape):
    log_a, log_b = (-np.abs(numbers(*shape, seed=n)).astype("float32") for n in range(2))
    h = numbers(shape[0], *shape[2:], seed=2).astype("float32")
    for function, arrays in ((linear_recurrence, [log_a, log_b, h]), (log_linear_recurrence, [log_a, log_b, h])):

        def loss(values, function=function):
            return weighted_sum(function(*values))

        with twins_called(function) as calls:
            found = gradients(loss, arrays)
        assert bool(calls) == (shape[1] > 1)
        with keras_seq.ops.reference():
            expected = gradients(loss, arrays)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=2e-5)


@torch_only
def test_a_layer_in_float32_keeps_its_precision_inside_of_a_layer_in_bfloat16():
    class Outer(keras.layers.Layer):  # its autocast would round the weights of layers that are called directly
        def __init__(self):
            super().__init__(dtype="mixed_bfloat16")
            self.head = layers.Dense(3, dtype="float32")

        def call(self, x):
            return self.head(ops.cast(x, "float32"))

    outer = Outer()
    outer.head.build((2, 4))
    outer.head.kernel.assign(np.full((4, 3), 1 + 2.0**-12))
    y = ops.convert_to_numpy(outer(np.ones((2, 4), "float32")))
    np.testing.assert_allclose(y, np.full((2, 3), 4 * (1 + 2.0**-12)), rtol=1e-6)


@torch_only
@pytest.mark.filterwarnings("ignore:.*Gradients do not exist")
@pytest.mark.parametrize("kind", [optimizers.AdamW, optimizers.Adam])
def test_optimizer_steps(kind):
    def weights_after_steps():
        layer = with_random_weights(layers.FeedForward(5))
        rates = keras.optimizers.schedules.CosineDecay(0.1, 5)
        optimizer = kind(rates, global_clipnorm=2.0, beta_2=0.9, weight_decay=0.01, epsilon=1e-3)
        optimizer.build(layer.trainable_variables)
        for step in range(4):
            arrays = [numbers(*v.shape, seed=step + n) for n, v in enumerate(layer.trainable_variables)]
            gradients = [ops.convert_to_tensor(array, "float32") for array in arrays]
            gradients[1] = None if step == 2 else gradients[1]
            optimizer.apply(gradients, layer.trainable_variables)
        return [ops.convert_to_numpy(v) for v in (*layer.trainable_variables, optimizer.gradient_norm)]

    with keras_seq.ops.reference():
        expected = weights_after_steps()
    for ours, theirs in zip(weights_after_steps(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@torch_only
def test_the_cross_entropy_of_a_training():
    logits, targets = ops.convert_to_tensor(numbers(2, 3, 4), "float32"), ops.convert_to_tensor([[0, 3, 1], [2, 2, 0]])
    loss = optimizers._CrossEntropy(from_logits=True, reduction="none")
    with keras_seq.ops.reference():
        expected = ops.convert_to_numpy(loss(targets, logits))
    assert expected.shape == (2, 3)
    np.testing.assert_allclose(ops.convert_to_numpy(loss(targets, logits)), expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["lstm", pytest.param("transformer", marks=torch_only)])
def test_fit_gives_the_losses_of_the_reference(kind):
    def losses():
        keras.utils.set_random_seed(0)
        if kind == "lstm":
            hidden = [layers.LSTM(8, return_sequences=True), layers.GRU(8, return_sequences=True)]
        else:
            hidden = [layers.TransformerBlock(2, 16, causal=True)]
        model = keras.Sequential([keras.Input((T, D), batch_size=4), *hidden, layers.Dense(3)])
        model.compile("adam", "mse")
        x, y = numbers(8, T, D).astype("float32"), numbers(8, T, 3, seed=1).astype("float32")
        return model.fit(x, y, batch_size=4, epochs=3, verbose=0, shuffle=False).history["loss"]

    with keras_seq.ops.reference():
        expected = losses()
    np.testing.assert_allclose(losses(), expected, rtol=1e-5)
    assert expected[-1] < expected[0]


@torch_only
def test_an_lstms_weights_and_gradients_lie_in_memory_as_torch_reads_them():
    layer = with_random_weights(layers.LSTM(4, return_sequences=True))
    model = keras.Sequential([layer])
    model.compile(optimizers.AdamW(0.1), "mse")
    model.train_on_batch(numbers(B, T, D), numbers(B, T, 4))
    weights = layer.kernel.value, layer.recurrent_kernel.value
    assert all(x.t().is_contiguous() for weight in weights for x in (weight, weight.grad))


@torch_only
def test_an_lstm_may_be_built_by_a_symbolic_call_of_the_layer_around_it():
    class Around(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = layers.LSTM(4)

        def call(self, x):
            return self.inner(x)

    inputs, around = keras.Input((T, D)), Around()
    model, x = keras.Model(inputs, around(inputs)), numbers(B, T, D)
    with keras_seq.ops.reference():
        expected = around(x)
    np.testing.assert_allclose(model(x).detach(), expected.detach(), atol=1e-6)


def test_layers_import_no_other_backend():
    blocked = {"tensorflow", "jax", "torch"} - {BACKEND}
    code = "import sys; sys.modules.update(dict.fromkeys(%r)); import keras_seq.layers, keras_seq.ops.dispatch as d"
    code = code % sorted(blocked - {"jax"} | ({"tensorflow"} - {BACKEND}))  # Keras itself may look for JAX
    environment = os.environ | {"KERAS_BACKEND": BACKEND}
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; d.on_cpu()"], env=environment, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr
