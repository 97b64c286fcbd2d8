import contextlib

import keras
import pytest
import tensorflow as tf
from keras import ops

import keras_seq.ops
from keras_seq.layers import gated_delta_net, gated_linear_attention, mamba2, mlstm, rwkv7_time_mix
from keras_seq.models import (
    LANGUAGE_MODELS,
    MODELS,
    GatedDeltaNetConfig,
    GatedLinearAttentionConfig,
    GPT2Config,
    GRUConfig,
    HawkConfig,
    HybridConfig,
    LlamaConfig,
    LSTMConfig,
    Mamba2Config,
    MambaConfig,
    MinGRUConfig,
    MinLSTMConfig,
    RNNConfig,
    RWKV7Config,
    TransformerConfig,
    XLSTMConfig,
)
from keras_seq.models.flops import flops_per_token

V, T = 7, 8
SMALL = {
    "rnn": RNNConfig(3, 4, num_layers=2),
    "gru": GRUConfig(3, 4, tie_embeddings=True),
    "lstm": LSTMConfig(3, 4, num_layers=2),
    "mingru": MinGRUConfig(4, 6, 2, 10),
    "minlstm": MinLSTMConfig(4, 6, 2, 10, tie_embeddings=True),
    "mamba": MambaConfig(8, 2, 3),
    "mamba2": Mamba2Config(6, 2, 2, state_dim=3),
    "hawk": HawkConfig(6, 2, 2, feed_forward_dim=5),
    "gla": GatedLinearAttentionConfig(8, 2, 2, feed_forward_dim=5, gate_rank=3),
    "gated_deltanet": GatedDeltaNetConfig(8, 2, 2, feed_forward_dim=5),
    "xlstm": XLSTMConfig(8, 2, 2, feed_forward_dim=5, pattern="ms"),
    "rwkv7": RWKV7Config(8, 2, 2, feed_forward_dim=5, rank=3),
    "hybrid": HybridConfig(8, 2, 2, feed_forward_dim=5, pattern="ra", context_length=T),
    "transformer": TransformerConfig(8, 2, 2, 12, context_length=T),
    "gpt2": GPT2Config(8, 2, 2, 12, context_length=T),
    "llama": LlamaConfig(16, 2, 4, 2, 12, context_length=T),
}
ELEMENTWISE = {  # of the definitions: what is no matrix product
    "mingru": 2 * (2 * 4 * 4 + 2 * 6),  # blocks x (convolution 2 K D + recurrence 2 units)
    "minlstm": 2 * (2 * 4 * 4 + 2 * 6),
    "mamba": 2 * (2 * 4 * 16 + 6 * 16 * 3),  # blocks x (convolution 2 K E + scan 6 E N)
    "mamba2": 2 * (2 * 4 * (12 + 2 * 3) + 5 * 2 * 3 * 6),  # blocks x (convolution + matrix state 5 H N P)
    "hawk": 2 * (2 * 4 * 6 + 2 * 6),
    "gla": 2 * 5 * 2 * 2 * 4,  # blocks x 5 H K V
    "gated_deltanet": 2 * (2 * 4 * (6 + 6 + 12) + 9 * 2 * 3 * 6),
    "xlstm": 2 * 4 * 16 + 5 * 2 * 8 * 8 + 2 * 4 * 8,
    "rwkv7": 2 * 9 * 2 * 4 * 4,
    "hybrid": 2 * 4 * 8 + 2 * 8,
}


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
    return v + ops.sum(q) + ops.sum(k), state


@pytest.fixture(autouse=True)
def _by_element(monkeypatch):
    for module in (gated_delta_net, gated_linear_attention, mamba2, mlstm, rwkv7_time_mix):
        monkeypatch.setattr(module, "matrix_recurrence", no_matrix_products)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_the_matrix_products_are_those_of_the_graph(name):
    model = SMALL[name].build_model(V)
    # Keras's associative scan loses its shape in a graph; its twins are free of matrix products too
    with contextlib.nullcontext() if name in ELEMENTWISE else keras_seq.ops.reference():
        call = tf.function(lambda ids: model(ids, training=False))
        graph = call.get_concrete_function(tf.TensorSpec((1, T), "int32")).graph
    assert sum(products(graph)) == T * (flops_per_token(model, T) - ELEMENTWISE.get(name, 0))


def test_an_lstm_by_hand():
    gates = 2 * 3 * 16 + 2 * 4 * 16  # kernel [3, 16], recurrent kernel [4, 16]
    assert flops_per_token(LSTMConfig(3, 4).build_model(V), T) == gates + 2 * 4 * V


def test_a_transformer_by_hand():
    block = 2 * 4 * 8 * 8  # queries, keys, values, output
    block += 2 * 2 * 8 * 12  # feed-forward, there and back
    block += 2 * T * 8 + 2 * T * 8  # scores and values over T positions
    assert flops_per_token(SMALL["transformer"].build_model(V), T) == 2 * block + 2 * 8 * V


def test_training_is_three_forward_passes_and_attention_grows_with_the_window():
    model = SMALL["transformer"].build_model(V)
    assert flops_per_token(model, T, training=True) == 3 * flops_per_token(model, T)
    assert flops_per_token(model, 2 * T) - flops_per_token(model, T) == 2 * 4 * T * 8  # blocks x 2 T (H K + H K')
    recurrent = SMALL["lstm"].build_model(V)
    assert flops_per_token(recurrent, 2 * T) == flops_per_token(recurrent, T)


@pytest.mark.rare
def test_every_language_model_at_its_defaults_costs_about_two_operations_a_weight():
    for name in LANGUAGE_MODELS:
        context = {"context_length": 64} if name in {"transformer", "gpt2", "llama", "hybrid"} else {}
        model = MODELS[name](**context).build_model(65)
        most = 2.7 if name in {"mamba2", "gated_deltanet", "xlstm"} else 2.2  # with matrices for a state
        assert 1.9 < flops_per_token(model, 64) / model.count_params() < most, name


def test_a_matrix_that_it_does_not_know_is_an_error():
    model = keras.Sequential([keras.layers.EinsumDense("bi,io->bo", 3)])
    model.build((None, 2))
    with pytest.raises(ValueError, match=r"the cost of .*kernel.* is unknown"):
        flops_per_token(model, T)
