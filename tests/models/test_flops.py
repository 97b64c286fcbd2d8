import contextlib
import math

import keras
import pytest
import tensorflow as tf
from keras import ops

import keras_seq.ops
from keras_seq.layers.introspection import iter_layers
from keras_seq.layers.linear import (
    linear_attention,
    mamba,
    mlstm,
    rwkv7_time_mix,
)
from keras_seq.models import LANGUAGE_MODELS, MODELS, LSTMConfig, TransformerConfig, masked_lm
from keras_seq.models.config import tiny_config
from keras_seq.models.counts import flops_per_token
from tests.conftest import often

V, T = 7, 8
SIZES = {"embedding_dim": 8, "units": 6, "num_layers": 2, "feed_forward_dim": 5, "state_dim": 3, "context_length": T}
TRANSFORMER = TransformerConfig(8, 2, 2, 12, context_length=T)
TIED = [("lstm", True), ("transformer", True)]
OF_OTHERS = {"rnn", "gru", "mingru", "gpt2", "llama", "hawk", "gla", "deltaproduct", "rwkv7", "qwen3_5"}  # a formula
EACH_FORMULA = [(name, False) for name in LANGUAGE_MODELS if name not in OF_OTHERS]
STATES = {"GatedLinearAttention": 5, "Mamba2": 5, "MLSTM": 5, "KimiDeltaAttention": 9, "RWKV7TimeMix": 9}  # per element


def elementwise(layer):
    """Return the operations of a layer's definition, for a position, that are no matrix product."""
    kind = type(layer).__name__
    if kind == "CausalDepthwiseConv1D":
        return 2 * layer.kernel_size * layer.kernel.shape[-1]  # 2 K D
    if kind in ("MinGRU", "MinLSTM"):
        return 2 * layer.units
    if kind == "RGLRU":
        return 2 * layer.decay.shape[0]
    if kind == "SelectiveStateSpace":
        return 6 * math.prod(layer.log_a.shape)  # 6 E N
    if kind in STATES or kind == "GatedDeltaNet":
        (matrix,) = (part for part in keras.tree.flatten(layer.get_initial_state(1)) if len(part.shape) == 4)
        count = STATES[kind] if kind in STATES else 3 + 6 * layer.num_householder  # decay and read once
        return count * math.prod(matrix.shape)  # H K V
    return 0


def products(graph, times=1):
    """2 x rows x columns x inner width of every matrix product of a graph, those in a loop over T once a position."""
    for operation in graph.get_operations():
        if operation.type in ("MatMul", "BatchMatMulV2"):
            flipped = any(
                operation.get_attr(name)
                for name in ("transpose_a", "adj_x")
                if name in operation.node_def.attr  # the inner axis of the left side is then not its last
            )
            inner = operation.inputs[0].shape[-2 if flipped else -1]
            yield times * 2 * operation.outputs[0].shape.num_elements() * inner
        if operation.type == "Einsum":  # Keras writes products as the two above; the twins of scans turn axes by it
            assert len(operation.inputs) == 1
        attributes = operation.node_def.attr
        if operation.type in ("While", "StatelessWhile"):
            body = graph._get_function(attributes["body"].func.name).graph
            yield from products(body, times * T)
        elif "f" in attributes:
            yield from products(graph._get_function(attributes["f"].func.name).graph, times)


def no_matrix_products(q, k, v, log_decay, state, **kwargs):
    """In place of `matrix_recurrence`, whose products over chunks are another way to do what is counted by element."""
    return v[:, :, : log_decay.shape[2]] + ops.sum(q) + ops.sum(k), state


@pytest.fixture(autouse=True)
def _by_element(monkeypatch):
    for module in (linear_attention, mamba, mlstm, rwkv7_time_mix):
        monkeypatch.setattr(module, "matrix_recurrence", no_matrix_products)


@often(("name", "tied"), [*((name, False) for name in LANGUAGE_MODELS), *TIED], [*EACH_FORMULA, ("lstm", True)])
def test_the_matrix_products_are_those_of_the_graph(name, tied):
    model = tiny_config(name, **SIZES, num_key_value_heads=1, tie_embeddings=tied).build_model(V)
    others = sum(elementwise(layer) for layer in iter_layers(model, attributes=True))
    # Keras's associative scan loses its shape in a graph; its twins are free of matrix products too
    with contextlib.nullcontext() if others else keras_seq.ops.reference():
        call = tf.function(lambda ids: model(ids, training=False))
        graph = call.get_concrete_function(tf.TensorSpec((1, T), "int32")).graph
    assert sum(products(graph)) == T * (flops_per_token(model, T) - others)


def test_training_is_three_forward_passes_and_attention_grows_with_the_window():
    model = TRANSFORMER.build_model(V)
    assert flops_per_token(model, T, training=True) == 3 * flops_per_token(model, T)
    assert flops_per_token(model, 2 * T) - flops_per_token(model, T) == 2 * 4 * T * 8  # blocks x 2 T (H K + H K')
    recurrent = LSTMConfig(3, 4, num_layers=2).build_model(V)
    assert flops_per_token(recurrent, 2 * T) == flops_per_token(recurrent, T)


@pytest.mark.rare
def test_every_language_model_at_its_defaults_costs_about_two_operations_a_weight():
    for name in LANGUAGE_MODELS:
        context = {"context_length": 64} if name in {"transformer", "gpt2", "llama", "hybrid", "qwen3_5"} else {}
        model = MODELS[name](**context).build_model(65)
        with_matrices = name in {"mamba2", "gated_deltanet", "deltaproduct", "kda", "xlstm"}  # for a state
        most = 2.7 if with_matrices else 2.2
        assert 1.9 < flops_per_token(model, 64) / model.count_params() < most, name


def test_encoders_and_the_tied_head_of_an_encoder_decoder_are_counted():
    bert, small, large = (
        tiny_config(name, **SIZES).build_model(v) for name, v in (("bert", V), *[("seq2seq", n) for n in (V, 2 * V)])
    )
    matrices = sum(math.prod(w.shape) for w in bert.weights if w.path.endswith("kernel"))
    assert flops_per_token(bert, T) == 2 * matrices + 2 * 4 * T * 8
    assert flops_per_token(large, T) - flops_per_token(small, T) == 2 * V * 8


def test_the_tied_head_of_a_masked_model_is_counted_and_a_model_of_ones_own_is_read_by_its_layers():
    encoder = tiny_config("bert", **SIZES).build_model(V)
    more = flops_per_token(masked_lm(encoder), T) - flops_per_token(encoder, T)
    assert more == 2 * V * 8  # its dense layer is as large as the pooler

    class Tied(keras.Model):
        def __init__(self):
            super().__init__()
            self.head, self.table = None, keras.layers.ReversibleEmbedding(V, 8)

        def call(self, ids):
            return self.table(self.table(ids), reverse=True)

    own = Tied()
    own(ops.zeros((1, 4), "int32"))
    assert flops_per_token(own, T) == 0


def test_a_matrix_that_it_does_not_know_is_an_error():
    model = keras.Sequential([keras.layers.EinsumDense("bi,io->bo", 3)])
    model.build((None, 2))
    with pytest.raises(ValueError, match=r"the cost of .*kernel.* is unknown"):
        flops_per_token(model, T)
