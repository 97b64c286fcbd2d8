"""What every layer of `keras_seq.layers.__all__` keeps, whatever it computes. A new layer is one entry in `CASES`."""

import dataclasses
import functools
import inspect
import subprocess
import sys
from collections.abc import Callable

import keras
import numpy as np
import pytest
from keras import ops

import keras_seq.ops
from keras_seq import layers
from tests.conftest import often, randomized
from tests.layers.conftest import compiled

BACKEND = keras.backend.backend()
B, T, S, D = 2, 5, 4, 6
numpy = ops.convert_to_numpy


@dataclasses.dataclass(frozen=True)
class Case:
    """How to build a layer and what to expect of it."""

    make: Callable  # (**kwargs for Keras) -> a new layer, no argument at its default where that can be helped
    context: bool = False  # called as layer(x, context=...)
    dropout: float | None = None  # the name of the attribute is "dropout"; None where the layer has none
    seed: bool = False  # takes a seed; else keras.utils.set_random_seed is the way
    still: tuple[str, ...] = ()  # ends of the paths of weights that no gradient moves, in theory
    still_because: str = ""


@keras.saving.register_keras_serializable("tests")
class SegmentsBySign(layers.SegmentEmbedding):
    """Takes its ids from x, as nothing else is given here beside x."""

    def build(self, inputs_shape):
        super().build(inputs_shape)

    def call(self, inputs, mask=None):
        return super().call(inputs, ops.cast(inputs[..., 0] > 0, "int32"), mask=mask)


@keras.saving.register_keras_serializable("tests")
class FlatPotentials(layers.CRF):
    """A CRF whose potentials `[B, T, K, K]` have the rank, and the dtype, of other layers' outputs: `[B, T, K K]`."""

    def call(self, inputs, mask=None):
        potentials = super().call(inputs, mask=mask)
        flat = ops.reshape(potentials, (*ops.shape(potentials)[:2], inputs.shape[-1] ** 2))
        return ops.cast(flat, self.compute_dtype)

    def compute_output_shape(self, inputs_shape):
        return (*inputs_shape[:2], inputs_shape[-1] ** 2)

    def compute_output_spec(self, inputs, mask=None):
        return keras.KerasTensor(self.compute_output_shape(inputs.shape), self.compute_dtype)


ALL = {"return_sequences": True}  # of the recurrent layers
CASES = {
    "MultiHeadSelfAttention": Case(
        lambda **k: layers.MultiHeadSelfAttention(
            num_heads=4, key_dim=2, value_dim=3, num_key_value_heads=2, causal=True, sliding_window=4,
            positions=layers.RotaryPositions(base=50.0), use_qk_norm=True, use_output_gate=True, use_sinks=True,
            qk_normalization="zero_centered_rms",
            dropout=0.3, kernel_initializer="he_normal", output_initializer="orthogonal", seed=3, scale=0.7, **k,
        ),
        dropout=0.3, seed=True,
    ),
    "CrossAttention": Case(
        lambda **k: layers.CrossAttention(
            num_heads=2, key_dim=4, value_dim=3, num_key_value_heads=1, dropout=0.3,
            kernel_initializer="he_normal", output_initializer="orthogonal", seed=3, scale=0.7, **k,
        ),
        context=True, dropout=0.3, seed=True,
        still=("key/bias",), still_because="it adds the same to all scores of a query, and the softmax does not see it",
    ),
    "PositionalEncoding": Case(lambda **k: layers.PositionalEncoding(base=100.0, **k)),
    "LearnedPositions": Case(lambda **k: layers.LearnedPositions(T + 3, embeddings_initializer="he_normal", **k)),
    "SegmentEmbedding": Case(lambda **k: SegmentsBySign(2, embeddings_initializer="he_normal", **k)),
    "CRF": Case(lambda **k: FlatPotentials(initializer="he_normal", **k)),
    "Dense": Case(lambda **k: layers.Dense(7, activation="tanh", bias_initializer="ones", **k)),
    "FeedForward": Case(
        lambda **k: layers.FeedForward(
            7, activation="tanh", dropout=0.3, kernel_initializer="he_normal", output_initializer="orthogonal",
            seed=3, **k,
        ),
        dropout=0.3, seed=True,
    ),
    "GatedFeedForward": Case(
        lambda **k: layers.GatedFeedForward(7, activation="gelu", dropout=0.3, use_bias=False, seed=3, **k),
        dropout=0.3, seed=True,
    ),
    "LayerNormalization": Case(lambda **k: layers.LayerNormalization(epsilon=1e-3, center=False, **k)),
    "RMSNormalization": Case(lambda **k: layers.RMSNormalization(epsilon=1e-3, **k)),
    "ZeroCenteredRMSNormalization": Case(lambda **k: layers.ZeroCenteredRMSNormalization(epsilon=1e-3, **k)),
    "TransformerBlock": Case(
        lambda **k: layers.TransformerBlock(
            num_heads=2, feed_forward_dim=7, causal=True, norm_first=False, cross_attention=True, normalization="rms",
            activation="swiglu", dropout=0.3, positions=layers.ForgettingPositions(), num_key_value_heads=1,
            use_output_gate=True, use_sinks=True, sliding_window=4, residual_initializer="he_normal", **k,
        ),
        context=True, dropout=0.3,
        still=("key/bias",), still_because="as for CrossAttention",
    ),
    "SimpleRNN": Case(
        lambda **k: layers.SimpleRNN(
            7, activation="relu", dropout=0.3, recurrent_dropout=0.2, bias_initializer="ones", seed=3, **ALL, **k
        ),
        dropout=0.3, seed=True,
    ),
    "GRU": Case(
        lambda **k: layers.GRU(
            7, reset_after=False, dropout=0.3, recurrent_dropout=0.2, kernel_initializer="he_normal", seed=3, **ALL, **k
        ),
        dropout=0.3, seed=True,
    ),
    "LSTM": Case(
        lambda **k: layers.LSTM(
            7, dropout=0.3, recurrent_dropout=0.2, recurrent_initializer="glorot_normal", bias_initializer="ones",
            seed=3, **ALL, **k,
        ),
        dropout=0.3, seed=True,
    ),
    "LayerNormLSTM": Case(
        lambda **k: layers.LayerNormLSTM(7, epsilon=1e-3, dropout=0.3, recurrent_dropout=0.2, seed=3, **ALL, **k),
        dropout=0.3, seed=True,
    ),
    "MinGRU": Case(lambda **k: layers.MinGRU(7, kernel_initializer="he_normal", bias_initializer="ones", **ALL, **k)),
    "MinLSTM": Case(lambda **k: layers.MinLSTM(7, kernel_initializer="he_normal", bias_initializer="ones", **ALL, **k)),
    "CausalDepthwiseConv1D": Case(
        lambda **k: layers.CausalDepthwiseConv1D(3, kernel_initializer="he_normal", bias_initializer="ones", **k)
    ),
    "SelectiveStateSpace": Case(
        lambda **k: layers.SelectiveStateSpace(
            state_dim=3, expand=3, kernel_size=2, dt_rank=4, use_bias=True, kernel_initializer="he_normal",
            output_initializer="orthogonal", **k,
        )
    ),
    "Mamba2": Case(
        lambda **k: layers.Mamba2(
            num_heads=4, head_dim=3, state_dim=5, num_groups=2, kernel_size=2, epsilon=1e-3, use_bias=True,
            kernel_initializer="he_normal", output_initializer="orthogonal", **k,
        )
    ),
    "RGLRU": Case(lambda **k: layers.RGLRU(num_heads=2, kernel_initializer="he_normal", **k)),
    "GriffinRecurrentBlock": Case(
        lambda **k: layers.GriffinRecurrentBlock(
            num_heads=2, head_dim=4, kernel_size=2, use_bias=False, kernel_initializer="he_normal",
            output_initializer="orthogonal", **k,
        )
    ),
    "GatedLinearAttention": Case(
        lambda **k: layers.GatedLinearAttention(
            num_heads=2, key_dim=3, value_dim=5, gate_rank=4, epsilon=1e-3, use_bias=True,
            kernel_initializer="he_normal", output_initializer="orthogonal", **k,
        ),
    ),
    "GatedDeltaNet": Case(
        lambda **k: layers.GatedDeltaNet(
            num_heads=4, key_dim=3, value_dim=5, kernel_size=2, num_householder=2, allow_neg_eigval=True, epsilon=1e-3,
            num_key_heads=2, use_conv_bias=False, use_bias=True, kernel_initializer="he_normal",
            output_initializer="orthogonal", **k,
        )
    ),
    "KimiDeltaAttention": Case(
        lambda **k: layers.KimiDeltaAttention(
            num_heads=2, key_dim=3, value_dim=5, kernel_size=2, gate_rank=4, epsilon=1e-3, use_bias=True,
            kernel_initializer="he_normal", output_initializer="orthogonal", **k,
        )
    ),
    "MLSTM": Case(
        lambda **k: layers.MLSTM(
            num_heads=2, head_dim=6, qkv_block_size=3, kernel_size=2, epsilon=1e-3, use_bias=True,
            kernel_initializer="he_normal", output_initializer="orthogonal", **k,
        )
    ),
    "SLSTM": Case(
        lambda **k: layers.SLSTM(
            num_heads=2, kernel_size=2, epsilon=1e-3, kernel_initializer="he_normal",
            recurrent_initializer="orthogonal", **k,
        ),
        still=("input_gate/bias",), still_because="it scales c and n alike",
    ),
    "RWKV7TimeMix": Case(
        lambda **k: layers.RWKV7TimeMix(
            num_heads=2, head_dim=4, rank=3, use_bias=True, kernel_initializer="he_normal",
            output_initializer="orthogonal", **k,
        )
    ),
    "RWKV7ChannelMix": Case(
        lambda **k: layers.RWKV7ChannelMix(7, kernel_initializer="he_normal", output_initializer="orthogonal", **k)
    ),
    "RWKV7Blocks": Case(
        lambda **k: layers.RWKV7Blocks(
            num_layers=2, num_heads=2, feed_forward_dim=5, head_dim=4, rank=3, dropout=0.3,
            residual_initializer="he_normal", **k,
        ),
        dropout=0.3,
    ),
    "Bidirectional": Case(lambda **k: layers.Bidirectional(layers.LSTM(7, **ALL, **k), merge_mode="sum", **k)),
    "PreNormResidual": Case(
        lambda **k: layers.PreNormResidual(
            [layers.CausalDepthwiseConv1D(2, **k), layers.MinGRU(7, **ALL, **k), keras.layers.Dense(D, **k)],
            normalization="layer", dropout=0.3, **k,
        ),
        dropout=0.3,
    ),
}  # fmt: skip
ELSEWHERE = {
    "attention": "a function: test_attention.py",
    **dict.fromkeys(("crf_log_likelihood", "crf_marginals", "viterbi"), "functions: test_crf.py"),
    "ViterbiDecoder": "no numbers, but tags of potentials: test_crf.py",
    "RotaryPositions": "an argument, not a layer: test_positions.py, and inside MultiHeadSelfAttention here",
    "AlibiPositions": "an argument, not a layer: test_positions.py, and inside MultiHeadSelfAttention there",
    "BucketedPositions": "an argument, not a layer: test_positions.py and test_self_attention.py",
    "ForgettingPositions": "an argument, not a layer: test_self_attention.py, and inside TransformerBlock here",
    "Stateful": "a wrapper that changes what training means: test_stateful.py",
    "ExplicitState": "a base class: test_explicit_state.py",
    "RelativePositions": "a base class: test_positions.py",
}
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
# Where a law takes long, those of unlike parts speak for the others.
UNLIKE = ("LSTM", "Bidirectional", "GatedDeltaNet", "SelectiveStateSpace", "PreNormResidual", "TransformerBlock")
WRAPPERS = ("Bidirectional", "PreNormResidual")  # of layers


def others_are_rare(where, cases=CASES, unlike=UNLIKE):
    """A mark that leaves all but the unlike ones to `make test-all`, on the backends named."""
    return often("case", cases, unlike if BACKEND in where else cases)


def arrays(case, seed=0, batch=B, length=T):
    """What the model takes: x, and a context where the layer has one."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(batch, length, D)).astype("float32")
    return [x, random.normal(size=(batch, S, D + 1)).astype("float32")] if case.context else [x]


def one_or_all(values):
    return values if len(values) > 1 else values[0]


def run(layer, values, **kwargs):
    return layer(values[0], **({"context": values[1]} if len(values) == 2 else {}), **kwargs)


@functools.cache
def model_of(case):
    """A functional model of `keras.layers` and the one layer, weights all random, batch and length unknown.

    Tests share it: what changes its weights puts them back.
    """
    inputs = [keras.Input((None, D), name="x"), *([keras.Input((None, D + 1), name="context")] if case.context else [])]
    hidden = [keras.layers.Dense(x.shape[-1], name=f"{x.name}_dense")(x) for x in inputs]
    model = keras.Model(one_or_all(inputs), keras.layers.Dense(3, name="head")(run(case.make(), hidden)))
    return randomized(model, scale=0.5)


@functools.cache
def program(model):
    """The model, compiled on JAX, where the weights that it has by then are a part of the program."""
    return compiled(lambda values: model(values))


def predict(model, values):
    return numpy(ops.cast(program(model)(one_or_all(values)), "float32"))


@functools.cache
def layer_and_output(case):
    """A layer and what it makes of `arrays(case)`; for tests that leave its weights alone."""
    layer = case.make()
    return layer, numpy(run(layer, arrays(case)))


def same_values(a, b):
    """Equal configs, but for the names that Keras counts up."""
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_values, a, b))
    a, b = ({key: value for key, value in c.items() if key != "name"} for c in (a.get_config(), b.get_config()))
    return a == b


def test_every_name_is_covered():
    assert set(CASES) | set(ELSEWHERE) == set(layers.__all__)
    assert all(hasattr(layers, name) for name in layers.__all__)


@each
def test_at_most_twenty_one_arguments_besides_those_of_keras_and_an_attribute_for_each(case):
    layer = case.make()
    names = [
        parameter.name
        for base in type(layer).__mro__
        if base.__module__.startswith("keras_seq") and "__init__" in vars(base)
        for parameter in inspect.signature(base.__init__).parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD and parameter.name != "self"
    ]
    of_keras = inspect.signature(keras.layers.LSTM).parameters if hasattr(layer, "return_sequences") else ()
    assert (
        len(set(names) - set(of_keras)) <= 21
    )  # those of a TransformerBlock: 19 that pretrained models need, an output gate and sinks
    for name in set(names) - {"stateful"}:  # which is there to be refused
        assert hasattr(layer, name)
        assert name in layer.get_config()


@each
def test_a_config_revives_the_same_values(case):
    layer = case.make(name="given", dtype="mixed_bfloat16")
    revived = type(layer).from_config(layer.get_config())
    assert revived.get_config() == layer.get_config()
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert again.get_config() == layer.get_config()
    assert again.dtype_policy == layer.dtype_policy
    default = {p.name: p.default for p in inspect.signature(type(layer).__init__).parameters.values()}
    for name, value in default.items():  # no argument is lost on the way
        if hasattr(layer, name):
            before, after = getattr(layer, name), getattr(revived, name)
            assert before == after or same_values(before, after), (name, before, after, value)


@each
def test_a_summary_of_a_model_of_ones_own_has_the_shape_of_the_output(case):
    layer, y = layer_and_output(case)
    model = keras.Model()
    model.layer, model.built, lines = layer, True, []
    model.summary(print_fn=lambda text, **_: lines.append(text))
    assert f"({', '.join(map(str, y.shape))})" in "".join(lines)


@others_are_rare(where=("tensorflow", "jax"))
def test_a_saved_model_and_a_clone_give_the_same(case, tmp_path):
    model = model_of(case)
    model.save(tmp_path / "model.keras")
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    for other in (keras.saving.load_model(tmp_path / "model.keras"), clone):
        np.testing.assert_array_equal(predict(other, arrays(case)), predict(model, arrays(case)))
        assert not {id(v) for v in model.weights} & {id(v) for v in other.weights}


@others_are_rare(where=("tensorflow",))
def test_a_frozen_layer_stays_frozen_when_it_is_cloned_or_loaded(case):
    """Keras's own layers of layers are trained again: it freezes those inside only when `trainable` is set."""
    layer = case.make(trainable=False)
    run(layer, arrays(case))
    revived = type(layer).from_config(layer.get_config())
    revived.build_from_config(layer.get_build_config())
    for frozen in (layer, revived):
        assert not any(w.trainable for w in frozen.weights)
        frozen.trainable = True
        assert frozen.trainable_weights or not layer_and_output(case)[0].trainable_weights


@others_are_rare(where=("tensorflow", "jax"))
@pytest.mark.parametrize(("dtype", "sizes"), [("mixed_bfloat16", (None, None, None)), ("float32", (B, T, S))])
def test_symbolic_shape_and_dtype_are_the_eager_ones(case, dtype, sizes):
    values = arrays(case)
    layer = case.make(dtype=dtype)
    eager = run(layer, values)
    symbolic = [keras.KerasTensor((sizes[0], n, v.shape[-1])) for n, v in zip(sizes[1:], values, strict=False)]
    y = run(layer, symbolic)
    assert tuple(y.shape) == (*sizes[:2], eager.shape[-1])
    assert {keras.backend.standardize_dtype(v.dtype) for v in (eager, y)} == {layer.compute_dtype}
    assert eager.shape[:2] == (B, T)
    if dtype != "float32":
        assert layer.compute_output_shape((None, None, D)) == y.shape  # what a symbolic TimeDistributed asks for


@others_are_rare(where=("tensorflow", "jax"), unlike=[name for name in UNLIKE if name not in WRAPPERS])
def test_batch_and_length_are_free(case):
    model = model_of(case)
    whole = predict(model, arrays(case))
    for batch, length in ((0, 2),) if BACKEND == "jax" else ((1, T), (0, T), (B, 2), (3, 1)):
        assert predict(model, arrays(case, batch=batch, length=length)).shape == (batch, length, 3)
    np.testing.assert_allclose(predict(model, [v[:1] for v in arrays(case)]), whole[:1], rtol=1e-5, atol=1e-5)


class Given(keras.layers.Layer):
    """Shows the mask that Keras hands it."""

    def __init__(self):
        super().__init__()
        self.supports_masking = True

    def call(self, x, mask=None):
        return ops.cast(mask, "int32")


@others_are_rare(where=("tensorflow", "jax"))
def test_masks_come_in_from_an_embedding_and_go_on(case):
    """In a call and in a functional model."""
    ids = np.array([[3, 1, 4, 0, 0], [2, 7, 1, 8, 2]])
    embedding, layer = keras.layers.Embedding(9, D, mask_zero=True), case.make()
    real, context = ids != 0, [ops.convert_to_tensor(v) for v in arrays(case)[1:]]
    takes_mask = "mask" in inspect.signature(layer.call).parameters
    mask = {"mask": ops.convert_to_tensor(real)} if takes_mask else {}
    expected = numpy(run(layer, [numpy(embedding(ids)), *context], **mask))
    inputs = [keras.Input((None,), dtype="int32"), *([keras.Input((None, D + 1))] if case.context else [])]
    symbolic = run(layer, [embedding(inputs[0]), *inputs[1:]])
    model = keras.Model(one_or_all(inputs), [symbolic, Given()(symbolic)])
    y = run(layer, [embedding(ids), *context])
    for got, given in ((y, Given()(y)), model(one_or_all([ids, *arrays(case)[1:]]))):
        np.testing.assert_allclose(numpy(got)[real], expected[real], atol=1e-6)
        np.testing.assert_array_equal(numpy(given), real)
    if BACKEND != "jax":  # where the tests of each layer say it
        short = numpy(run(layer, [numpy(embedding(ids))[:1, :3], *(v[:1] for v in context)]))
        np.testing.assert_allclose(numpy(y)[0, :3], short[0], atol=1e-5)  # a mask is a shorter sequence


STATEFUL = {
    name: case for name, case in CASES.items() if not case.context and hasattr(case.make(), "get_initial_state")
}


@others_are_rare(where=("tensorflow", "jax"), cases=STATEFUL)
def test_a_mask_from_an_embedding_counts_with_a_state_too(case):
    ids = np.array([[3, 1, 4, 0, 0], [2, 7, 1, 8, 2]])
    embedding, layer = keras.layers.Embedding(9, D, mask_zero=True), case.make()
    layer.build((None, None, D))
    capacity = {"capacity": T} if "capacity" in inspect.signature(layer.get_initial_state).parameters else {}
    masked, x = embedding(ids), numpy(embedding(ids))
    got = layer(masked, state=layer.get_initial_state(B, **capacity))
    expected = layer(x, mask=ops.convert_to_tensor(ids != 0), state=layer.get_initial_state(B, **capacity))
    np.testing.assert_allclose(numpy(got)[ids != 0], numpy(expected)[ids != 0], atol=1e-6)
    _, state = layer(masked, state=layer.get_initial_state(B, **capacity), return_state=True)
    _, short = layer(x[:1, :3], state=layer.get_initial_state(1, **capacity), return_state=True)
    if not capacity:  # a cache keeps the padding, marked as such
        for part, alone in zip(keras.tree.flatten(state), keras.tree.flatten(short), strict=True):
            np.testing.assert_allclose(numpy(part)[0], numpy(alone)[0], atol=1e-5)


@others_are_rare(where=("tensorflow", "jax"))
@often("policy", ["mixed_bfloat16", "mixed_float16", "float64"], ("mixed_bfloat16", "float64"))
def test_precisions(case, policy):
    if policy == "float64" and BACKEND != "tensorflow":
        pytest.skip("JAX knows float64 only on request; on torch Keras multiplies float64 matrices in float32")
    values = arrays(case)
    reference, expected = layer_and_output(case)
    layer = case.make(dtype=policy)
    run(layer, values)
    layer.set_weights(reference.get_weights())
    y = run(layer, values)
    assert {keras.backend.standardize_dtype(v.dtype) for v in layer.trainable_weights} <= {layer.variable_dtype}
    assert keras.backend.standardize_dtype(y.dtype) == layer.compute_dtype
    error = np.abs(numpy(ops.cast(y, "float32")) - expected)
    assert error.mean() < (0.03 if policy.startswith("mixed") else 1e-6)


@others_are_rare(where=("tensorflow", "jax"))
@often("policy", ["bfloat16", "float16"], ("bfloat16",))
def test_weights_may_be_of_half_precision_too(case, policy):
    values = arrays(case)
    layer, reference = case.make(dtype=policy), case.make()
    y = run(layer, values)
    run(reference, values)
    reference.set_weights([numpy(ops.cast(weight, "float32")) for weight in layer.weights])
    expected = numpy(run(reference, values))
    assert keras.backend.standardize_dtype(y.dtype) == policy
    assert np.abs(numpy(ops.cast(y, "float32")) - expected).mean() < 0.03 * np.abs(expected).mean()


@others_are_rare(where=("tensorflow", "jax", "torch"))
def test_integers_booleans_and_half_precision_are_the_same_numbers(case, randomize):
    layer = case.make()
    run(layer, arrays(case))
    randomize(layer)
    for dtype in ("int32", "uint8", "bool", "float16"):
        values = [np.round(np.abs(3 * v)).astype(dtype) for v in arrays(case)]
        expected = numpy(run(layer, [v.astype("float32") for v in values]))
        y = numpy(run(layer, values))
        assert y.dtype == expected.dtype
        np.testing.assert_array_equal(y, expected)
    inputs = [keras.Input((None, v.shape[-1]), dtype=dtype) for v in values]
    np.testing.assert_allclose(numpy(keras.Model(inputs, run(layer, inputs))(values)), expected, atol=1e-6)


@others_are_rare(where=("tensorflow", "jax"))
def test_the_global_policy_counts_where_none_is_given(case):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        layer = case.make()
        assert keras.backend.standardize_dtype(run(layer, arrays(case)).dtype) == "bfloat16"
        assert {child.compute_dtype for child in layer._flatten_layers()} == {"bfloat16"}
    finally:
        keras.config.set_dtype_policy("float32")


@others_are_rare(where=("tensorflow", "jax"))
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_training_step_moves_every_weight(case, jit_compile):
    if jit_compile and BACKEND != "tensorflow":
        pytest.skip("JAX compiles in both cases; torch.compile needs a C++ compiler and a minute")
    model = model_of(case)
    length = T + 3  # the length of LearnedPositions, whose other rows would rest
    # of eight rows one at least keeps each feature that dropout may drop
    values, before = arrays(case, batch=8, length=length), {v.path: numpy(v) for v in model.trainable_weights}
    # a loop and a block in a graph, the others eagerly, which is quicker for a single step
    eagerly = BACKEND == "tensorflow" and not jit_compile and case not in (CASES["LSTM"], CASES["TransformerBlock"])
    model.compile(keras.optimizers.SGD(1.0), "mse", jit_compile=jit_compile, run_eagerly=eagerly)
    target = np.random.default_rng(2).normal(size=(8, length, 3)).astype("float32")
    loss = model.train_on_batch(one_or_all(values), target)
    assert np.isfinite(loss)
    after = {v.path: numpy(v) for v in model.trainable_weights}
    for weight in model.trainable_weights:
        weight.assign(before[weight.path])
    for path, value in after.items():
        assert np.isfinite(value).all()
        if not path.endswith(case.still) or not case.still:
            assert (value != before[path]).mean() > 0.9, path


@others_are_rare(where=("tensorflow", "jax"), unlike=("LSTM", "GatedDeltaNet"))
def test_compiled_equals_eager(case):
    if BACKEND == "torch":
        pytest.skip("torch.compile needs a C++ compiler and a minute")
    model = model_of(case)
    model.compile(jit_compile=True)
    values = arrays(case)
    got, expected = model.predict_on_batch(one_or_all(values)), numpy(model(one_or_all(values)))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * max(1, np.abs(expected).max()))


@others_are_rare(where=("tensorflow",), unlike=("SimpleRNN",))
def test_references_train_compiled_by_xla_too(case):
    if BACKEND != "tensorflow":
        pytest.skip("of JAX all is compiled; torch.compile needs a C++ compiler and a minute")
    import tensorflow as tf

    lengths = (T,) if case is CASES["LearnedPositions"] else (T, 70)  # unrolled, and in a loop
    with keras_seq.ops.reference():
        model = model_of.__wrapped__(case)

        @tf.function(jit_compile=True)
        def output_and_gradients(values):
            with tf.GradientTape() as tape:
                y = model(one_or_all(values))
                loss = tf.reduce_mean(y * y)
            return y, tape.gradient(loss, model.trainable_weights)

        for length in lengths:
            values = [tf.constant(v) for v in arrays(case, length=length)]
            expected = numpy(model(one_or_all(values)))
            y, gradients = output_and_gradients(values)
            np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
            assert all(np.isfinite(gradient).all() for gradient in gradients)


@others_are_rare(where=("tensorflow", "jax"), unlike=(*UNLIKE, "RWKV7Blocks"))
def test_dropout_acts_in_training_only_and_comes_from_the_seed(case):
    values = arrays(case)

    def outputs(training):
        keras.utils.set_random_seed(5)
        layer = case.make()
        return numpy(run(layer, values, training=training)) if case.dropout else numpy(run(layer, values))

    without = outputs(False)
    np.testing.assert_array_equal(outputs(False), without)
    if not case.dropout:
        return
    dropped = outputs(True)
    np.testing.assert_array_equal(outputs(True), dropped)
    assert (dropped != without).any()
    layer = case.make()
    run(layer, values)
    first, second = (numpy(run(layer, values, training=True)) for _ in range(2))
    assert (first != second).any()
    if case.seed:  # a layer's own seed needs no global one
        keras.utils.set_random_seed(6)
        copy = case.make()
        run(copy, values)
        copy.set_weights(layer.get_weights()) if len(copy.weights) == len(layer.weights) else None
        np.testing.assert_array_equal(numpy(run(copy, values, training=True)), first)


@others_are_rare(where=("tensorflow", "jax"))
def test_inside_time_distributed_and_inside_models(case):
    if case.context:
        pytest.skip("takes two sequences; TimeDistributed hands over one")
    layer = case.make()
    x = np.stack([arrays(case, seed)[0] for seed in range(3)], axis=1)  # [B, 3, T, D]
    y = numpy(keras.layers.TimeDistributed(layer)(x))
    for n in range(3):
        np.testing.assert_allclose(y[:, n], numpy(layer(x[:, n])), atol=1e-5)
    inner = keras.Sequential([layer, keras.layers.Dense(2)])
    outer = keras.Sequential([keras.layers.Dense(D), inner])
    assert outer(x[:, 0]).shape == (B, T, 2)
    assert {v.path for v in layer.trainable_weights} <= {v.path for v in outer.trainable_weights}


NEW_PROCESS = """
import sys, numpy as np, keras, keras_seq
folder = sys.argv[1]
for name in sys.argv[2:]:
    values = [v for _, v in sorted(np.load(f"{folder}/{name}.npz").items())]
    expected = values.pop()
    values = values if len(values) > 1 else values[0]
    y = keras.ops.convert_to_numpy(keras.saving.load_model(f"{folder}/{name}.keras")(values))
    np.testing.assert_allclose(y, expected, atol=1e-6)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf
        values = tf.nest.map_structure(tf.constant, values)
        served = tf.saved_model.load(f"{folder}/{name}")
        np.testing.assert_allclose(served.serve(values), expected, atol=1e-5)
        one = served.serve(tf.nest.map_structure(lambda v: v[:1], values))  # another batch size
        np.testing.assert_allclose(one, expected[:1], atol=1e-5)
print("equal", len(sys.argv) - 2)
"""


@pytest.mark.slow
def test_a_trained_model_loads_in_a_new_process(tmp_path):
    """A model of `keras.layers` and one of ours trains, saves, loads after `import keras_seq`, exports and reloads."""
    # the other backends have nothing to export: there the layer that has the most parts speaks for all
    names = CASES.keys() - {"SegmentEmbedding", "CRF"} if BACKEND == "tensorflow" else ["TransformerBlock"]
    cases = {name: CASES[name] for name in names}  # without the layers that are a test's own
    for name, case in cases.items():
        model = model_of(case)
        values = arrays(case)
        model.compile(keras.optimizers.SGD(0.1), "mse", run_eagerly=True)
        assert np.isfinite(model.train_on_batch(one_or_all(values), np.zeros((B, T, 3))))
        model.save(tmp_path / f"{name}.keras")
        if BACKEND == "tensorflow":
            model.export(tmp_path / name, verbose=False)
        np.savez(tmp_path / name, **{f"a{n}": v for n, v in enumerate(values)}, b=predict(model, values))
    command = [sys.executable, "-c", NEW_PROCESS, str(tmp_path), *cases]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.endswith(f"equal {len(cases)}\n"), done.stdout + done.stderr
