"""Steps equal the whole pass for somebody's own layers too, or a language model of them is refused by name."""

import itertools
import random

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.layers import ExplicitState, PreNormResidual
from keras_seq.models import LanguageModel, LanguageModelConfig, RecurrentGemmaConfig, laws
from tests.conftest import often
from tests.models.test_language_model import SMALL, some_ids

pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.filterwarnings("ignore:Gradients do not exist"),  # of weights of `Own` that its formula does not use
]
V, D = 11, 6


def shift(x, lag=1):
    return ops.pad(x, [[0, 0], [lag, 0], [0, 0]])[:, : ops.shape(x)[1]]


@keras.saving.register_keras_serializable("test_step_check")
class Own(keras.layers.Layer):
    """A layer whose `call` is one of FORMULAS, with a dense layer and a vector of weights."""

    def __init__(self, formula, **kwargs):
        super().__init__(**kwargs)
        self.formula, self.dense = formula, keras.layers.Dense(D, kernel_initializer="zeros", dtype=self.dtype_policy)

    def build(self, shape):
        self.dense.build(shape)
        self.gate = self.add_weight(shape=(), initializer="zeros")
        self.far = self.add_weight(shape=(), initializer=keras.initializers.Constant(-12))
        self.table = self.add_weight(shape=(64, D), initializer="zeros")

    def call(self, x):
        return FORMULAS[self.formula](self, x)

    def compute_output_shape(self, shape):
        return shape

    def get_config(self):
        return {**super().get_config(), "formula": self.formula}


POINTWISE = {
    "dense": lambda layer, x: x + layer.dense(x),
    "gate": lambda layer, x: x + layer.gate * ops.tanh(x),
    "softmax": lambda layer, x: ops.softmax(x, axis=-1),
    "normalization": lambda layer, x: x / (1 + ops.std(x, axis=-1, keepdims=True)),
    "experts": lambda layer, x: ops.where(ops.sum(x, -1, keepdims=True) > 0, x, -2 * x),
}
MIXING = {
    "shift": lambda layer, x: x + shift(x),
    "far shift": lambda layer, x: x + shift(x, 40),
    "cumsum": lambda layer, x: ops.cumsum(x, axis=1),
    "mean": lambda layer, x: x + ops.mean(x, axis=1, keepdims=True),
    "normalization over time": lambda layer, x: x / (1e-3 + ops.std(x, axis=1, keepdims=True)),
    "behind a gate of zero": lambda layer, x: x + layer.gate * shift(x),
    "behind a closed gate": lambda layer, x: x + ops.sigmoid(layer.far) * shift(x),
    "behind a matrix of zeros": lambda layer, x: x + layer.dense(shift(x)),
    "learned positions": lambda layer, x: x + layer.table[: x.shape[1]],
    "flip": lambda layer, x: ops.flip(x, axis=1),
}
FORMULAS = POINTWISE | MIXING


@keras.saving.register_keras_serializable("test_step_check")
class Shift(ExplicitState):
    """A token shift with a state, which `forgets`, or whose pass has `another` formula."""

    def __init__(self, forgets=False, another=False, **kwargs):
        super().__init__(**kwargs)
        self.forgets, self.another = forgets, another

    def get_initial_state(self, batch_size):
        return ops.zeros((batch_size, 1, D), self.compute_dtype)

    def call(self, inputs, state=None, mask=None, inputs_mask=None, return_state=False):
        first = (self.another and state is None) + 1.0
        x, state, _ = self.prepare_inputs(inputs, state, mask)
        y = x + first * ops.concatenate([state, x[:, :-1]], axis=1)
        return (y, state if self.forgets else x[:, -1:]) if return_state else y

    def compute_output_shape(self, shape):
        return shape


class RoundsSteps(layers.SimpleRNN):
    """A recurrence that rounds one position otherwise than many, as matrix products do."""

    def call(self, inputs, state=None, training=None, return_state=False):
        inputs = inputs * (1 + 1e-6) if inputs.shape[1] == 1 else inputs
        return super().call(inputs, state=state, training=training, return_state=return_state)


def of(*blocks, embedding=None, head=None, **kwargs):
    embedding = embedding or keras.layers.Embedding(V, D)
    return LanguageModel(embedding, blocks, head or keras.layers.Dense(V), **kwargs)


NESTED = {
    "sequential": lambda layer: keras.Sequential([keras.layers.Dense(D), layer]),
    "functional": lambda layer: keras.Model(x := keras.Input((None, D)), x + layer(keras.layers.Dense(D)(x))),
    "residual": lambda layer: PreNormResidual([layer]),
    "residual with a state": lambda layer: PreNormResidual([layers.MinGRU(D, return_sequences=True), layer]),
    "residual of sequential": lambda layer: PreNormResidual([keras.Sequential([layer, keras.layers.Dense(D)])]),
}
ACCEPTED = {
    **{name: lambda name=name: of(Own(name)) for name in POINTWISE},
    **{f"gate in {nest}": lambda make=make: of(make(Own("gate"))) for nest, make in NESTED.items()},
    "rounding in a wide recurrence": lambda: of(RoundsSteps(128, return_sequences=True)),
    "a state": lambda: of(Shift()),
    "a state in a residual": lambda: of(PreNormResidual([Shift(), keras.layers.Dense(D)])),
    "layers of Keras": lambda: of(
        keras.layers.LayerNormalization(), keras.layers.Dense(D, "gelu"), keras.layers.Activation("relu"),
        keras.layers.Dropout(0.5), keras.layers.GaussianNoise(0.5), keras.layers.GaussianDropout(0.5),
        keras.layers.BatchNormalization(), keras.layers.Lambda(lambda x: 2 * x, output_shape=lambda shape: shape),
        keras.layers.PReLU(shared_axes=[1]), keras.layers.TimeDistributed(keras.layers.Dense(D)),
    ),
    "attention": lambda: of(PreNormResidual([layers.MultiHeadSelfAttention(2, causal=True), Own("gate")]),
                            context_length=8),
    "quantized policy": lambda: of(keras.layers.Dense(D, dtype="int8_from_float32"), Own("dense")),
}  # fmt: skip
REFUSED = {
    **{name: lambda name=name: of(Own(name)) for name in MIXING},
    **{f"shift in {nest}": lambda make=make: of(make(Own("shift"))) for nest, make in NESTED.items()},
    "a state that forgets": lambda: of(Shift(forgets=True)),
    "a state in a residual that forgets": lambda: of(PreNormResidual([Shift(forgets=True)])),
    "another pass": lambda: of(Shift(another=True)),
    "a recurrent layer without its state": lambda: of(keras.Sequential([layers.GRU(D, return_sequences=True)])),
    "an activation": lambda: of(layers.Dense(D, activation=lambda x: ops.cumsum(x, axis=1))),
    "an activation in a block of ours": lambda: of(
        PreNormResidual([layers.FeedForward(8, activation=lambda x: x - ops.mean(x, axis=1, keepdims=True))])
    ),
    "the embedding": lambda: of(layers.MinGRU(D, return_sequences=True),
                                embedding=keras.Sequential([keras.layers.Embedding(V, D), Own("learned positions")])),
    "the head": lambda: of(layers.MinGRU(D, return_sequences=True),
                           head=keras.Sequential([Own("shift"), keras.layers.Dense(V)])),
}  # fmt: skip
REFUSAL = r"cannot be a part of a language model: its outputs position by position differ by \d+ % from .* state"
FIXED = {  # layers of Keras that take as many positions as they were built for
    "a product over positions": lambda: of(keras.layers.EinsumDense("btd,ts->bsd", (16, D))),
    "a scale for each position": lambda: of(keras.layers.Rescaling(np.linspace(1, 2, 16)[:, None])),
    "a reshape": lambda: of(keras.layers.Reshape((16, D))),
}


IN_BFLOAT16 = ("a state", "layers of Keras")
OFTEN = {*((name, "float32") for name in ACCEPTED), *((name, "mixed_bfloat16") for name in IN_BFLOAT16)}


@often(("name", "policy"), [*itertools.product(ACCEPTED, ("float32", "mixed_bfloat16", "float16"))], OFTEN)
def test_layers_that_step_as_they_pass_are_accepted(name, policy):
    keras.config.set_dtype_policy(policy)
    try:
        model = ACCEPTED[name]()
        model.build((None, None))
    finally:
        keras.config.set_dtype_policy("float32")
    ids, state = some_ids(length=8), model.get_initial_state(2)
    whole = ops.convert_to_numpy(model(ids))
    for t in range(3):
        logits, state = model.step(ids[:, t : t + 1], state)
        tolerance = (1e-5 if policy == "float32" else 5e-2) * np.abs(whole).max()
        np.testing.assert_allclose(ops.convert_to_numpy(logits), whole[:, t], rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused_by_name_when_the_model_is_built(name):
    model = REFUSED[name]()
    with pytest.raises(ValueError, match=REFUSAL) as refusal:
        model.build((None, None))
    assert str(refusal.value).startswith(tuple(layer.name for layer in (model.embedding, *model.blocks, model.head)))
    with pytest.raises(ValueError, match=REFUSAL):
        model(some_ids())


@pytest.mark.parametrize("name", FIXED)
def test_layers_of_a_fixed_number_of_positions_are_refused(name):
    with pytest.raises(ValueError, match="cannot be called on 64 positions and then on one"):
        FIXED[name]().build((None, 16))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("rows", [8, 2048])
def test_a_table_of_positions_is_seen_at_any_size(rows, dtype):
    class Table(keras.layers.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=(rows, D), initializer="zeros")

        def call(self, x):
            return x + self.table[: x.shape[1]]

        def compute_output_shape(self, shape):
            return shape

    with pytest.raises(ValueError, match=REFUSAL):
        of(Table(dtype=dtype), context_length=rows).build((None, None))


def fit(model):
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    model.fit(some_ids(), some_ids(), verbose=0)


def saved(folder, formula):
    """Save a model whose layer had another formula when it was built."""
    model = of(Own("gate"))
    model.build((None, None))
    model.blocks[0].formula = formula
    model.save(folder / f"{formula}.keras")
    return folder / f"{formula}.keras"


ENTRIES = {
    "call": lambda model, path: model(some_ids()),
    "fit": lambda model, path: fit(model),
    "predict": lambda model, path: model.predict(some_ids(), verbose=0),
    "state": lambda model, path: model.get_initial_state(1),
    "step": lambda model, path: model.step(some_ids()[:, :1], model.get_initial_state(2)),
    "clone": lambda model, path: keras.models.clone_model(model)(some_ids()),
    "load": lambda model, path: keras.saving.load_model(path),
    "stateful": lambda model, path: layers.Stateful(model, batch_size=2)(some_ids(), training=True),
    "functional": lambda model, path: keras.Model(ids := keras.Input((None,), dtype="int32"), model(ids)),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_way_to_build_a_model_refuses_and_accepts(entry, tmp_path):
    paths = {formula: saved(tmp_path, formula) if entry == "load" else None for formula in ("shift", "gate")}
    with pytest.raises(ValueError, match=REFUSAL):
        ENTRIES[entry](of(layers.MinGRU(D, return_sequences=True), Own("shift")), paths["shift"])
    ENTRIES[entry](of(layers.MinGRU(D, return_sequences=True), Own("gate")), paths["gate"])


def test_a_config_of_ones_own_blocks_is_checked():
    class Config(LanguageModelConfig):
        embedding_dim = D

        def blocks(self, dtype=None):
            return [Own("cumsum", name="sums", dtype=dtype)]

    with pytest.raises(ValueError, match=rf"^sums \(Own\) {REFUSAL}"):
        Config().build_model(V, dtype="mixed_bfloat16")


def test_the_check_changes_no_weight_and_draws_no_seed():
    def weights():
        keras.utils.set_random_seed(0)
        model = of(Own("dense"), keras.layers.Dropout(0.5), PreNormResidual([Own("gate"), keras.layers.Dense(D)]))
        model.build((None, None))
        fit(model)
        return [*map(ops.convert_to_numpy, model.weights), random.random(), keras.random.uniform((2,))]

    with laws.disabled():
        expected = weights()
    for weight, value in zip(weights(), expected, strict=True):
        np.testing.assert_array_equal(weight, value)


@pytest.mark.parametrize("name", [*SMALL, "recurrent_gemma"])
def test_nothing_is_computed_for_layers_of_keras_seq(name, monkeypatch):
    monkeypatch.setattr(laws, "_difference", lambda *args: pytest.fail("computed"))
    config = SMALL.get(name) or RecurrentGemmaConfig(embedding_dim=8, num_heads=2, num_layers=3, feed_forward_dim=8)
    config.build_model(V)


def test_a_model_without_a_context_length_names_it():
    model = of(layers.TransformerBlock(2, 8, causal=True))
    with pytest.raises(ValueError, match=r"capacity=None; expected the number of .* e\.g\. context_length=64"):
        model.get_initial_state(1)
    model.context_length = 8
    assert model.step(some_ids()[:, :1], model.get_initial_state(2))[0].shape == (2, V)
