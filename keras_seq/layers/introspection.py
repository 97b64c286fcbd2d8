"""Walk through the layers of a model, test their properties, and compute the gates of recurrent layers."""

import itertools

import keras
from keras import ops

from keras_seq.layers.base.layer import layers_in
from keras_seq.layers.recurrent.base import RecurrentBase
from keras_seq.layers.recurrent.gru import GRU
from keras_seq.layers.recurrent.lstm import LSTM
from keras_seq.layers.recurrent.min_rnn import MinGRU, MinLSTM
from keras_seq.layers.recurrent.slstm import SLSTM
from keras_seq.layers.recurrent.wrappers import Bidirectional, Stateful
from keras_seq.ops.tensor_checks import at_least_float32

POSITION_MIXING_LAYERS = (  # Keras layers without an explicit state whose outputs depend on several positions
    keras.layers.Conv1D,
    keras.layers.SeparableConv1D,
    keras.layers.DepthwiseConv1D,
    keras.layers.MaxPooling1D,
    keras.layers.AveragePooling1D,
    keras.layers.Attention,
    keras.layers.MultiHeadAttention,
    keras.layers.GroupQueryAttention,
    keras.layers.GroupNormalization,
)
NORMALIZATION_LAYERS = (
    keras.layers.LayerNormalization,
    keras.layers.RMSNormalization,
    keras.layers.UnitNormalization,
    keras.layers.Softmax,
)  # over the axes in `axis`
INNER_LAYERS = (
    *("self_attention_layer", "cross_attention_layer"),
    *("layers", "layer", "forward_layer", "backward_layer"),
)


def named_layers(layer, attributes: bool = False):
    """Yield a layer and the layers inside it, each once, depth first, with paths such as `block_0/mingru`.

    A `Stateful` and the model in it add nothing to a path, and the self-attention of a `TransformerBlock` has the path
    of its block. With `attributes` every layer inside another is entered, such as the `Dense` layers of an attention
    layer; otherwise only stacks, wrapped layers and the attention layers of a block.
    """
    yield from _walk(layer, "", attributes, set(), _is_unnamed)


def named_weights(model) -> dict[str, keras.Variable]:
    """Return the weights of a model by the layers that own them, such as `block_0/self_attention/query/kernel`.

    A variable's own `path` is that of the scope that it was made in, which differs in a model from a file.
    """
    weights = {}
    for path, layer in _walk(model, "", True, set(), lambda parent, child: False):
        for value in vars(layer).values():
            if isinstance(value, keras.Variable):
                weights.setdefault(f"{path}/{value.name}".lstrip("/"), value)
    return weights


def iter_layers(layer, attributes: bool = False):
    """Yield the layers of `named_layers`, without their paths."""
    return (inner for _, inner in named_layers(layer, attributes=attributes))


def _walk(layer, path, attributes, visited, is_unnamed):
    if id(layer) in visited:
        return
    visited |= {id(layer), path}
    yield path, layer
    values = vars(layer).values() if attributes else (getattr(layer, name, None) for name in INNER_LAYERS)
    for child in layers_in(values):
        child_path = path if is_unnamed(layer, child) else _join(path, child, visited)
        yield from _walk(child, child_path, attributes, visited, is_unnamed)


def _is_unnamed(parent, child):
    if isinstance(child, Stateful) or child is getattr(parent, "self_attention_layer", None):
        return True
    return isinstance(parent, Stateful) and isinstance(child, keras.Model)


def _join(path, child, visited):
    """Return the path of a child; one of the same name as another has a number, as a second member of an ensemble."""
    name = f"{path}/{child.name}".lstrip("/")
    if name not in visited or id(child) in visited:
        return name
    return next(other for n in itertools.count(2) if (other := f"{name}_{n}") not in visited)


def has_time_loop(model) -> bool:
    """Return whether the model contains a layer with a loop over time steps: SimpleRNN, GRU, LSTM or SLSTM."""
    return any(isinstance(layer, (RecurrentBase, SLSTM)) for layer in iter_layers(model))


def is_non_causal(layer) -> bool:
    """Return whether outputs of this layer depend on later positions."""
    is_bidirectional = isinstance(layer, (Bidirectional, keras.layers.Bidirectional))
    return is_bidirectional or getattr(layer, "causal", True) is False or getattr(layer, "go_backwards", False)


def vocabulary_size(model) -> int | None:
    """Return V of a language model, or None if it is unknown."""
    members = getattr(model, "members", None)
    if members:
        return vocabulary_size(members[0])
    if getattr(model, "is_exported", False):
        return model.vocabulary_size
    return getattr(getattr(model, "embedding", None), "input_dim", None)


def check_tokenizer(tokenizer, model, size: int | None = None):
    """Raise unless a tokenizer and a language model have the same vocabulary size V, where both are known."""
    size = vocabulary_size(model) if size is None else size
    if None not in (size, getattr(tokenizer, "vocabulary_size", None)) and tokenizer.vocabulary_size != size:
        raise ValueError(
            f"The tokenizer has {tokenizer.vocabulary_size} ids, {model.name} has {size}; expected the tokenizer that "
            "the model was trained with."
        )


def has_implicit_state(layer) -> bool:
    """Return whether outputs depend on other positions without an explicit state, so that `step` is impossible."""
    if isinstance(layer, NORMALIZATION_LAYERS):  # axis 1 of [B, T, D]
        return any(axis % 3 == 1 for axis in (layer.axis if isinstance(layer.axis, list | tuple) else [layer.axis]))
    if isinstance(layer, POSITION_MIXING_LAYERS):
        return getattr(layer, "kernel_size", None) != (1,)  # a kernel of size 1 is a Dense layer
    return isinstance(layer, (Stateful, keras.layers.RNN))


def gives_probabilities(layer) -> bool:
    """Return whether the layer ends in a softmax."""
    return isinstance(layer, keras.layers.Softmax) or getattr(layer, "activation", None) is keras.activations.softmax


def gives_no_sequence(layer) -> bool:
    """Return whether a recurrent layer returns only its last output, or additional tensors of its state."""
    return getattr(layer, "return_sequences", True) is False or getattr(layer, "return_state", False) is True


# Gates at all time steps at once. h_{t-1} is the layer's own output at the previous time step, so no loop is needed.
#
#     LSTM, GRU            gate_t = sigmoid(x_t W + b + h_{t-1} U)
#     minGRU, minLSTM      gate_t = sigmoid(x_t W + b)

GATES = {  # in the order of the kernel's blocks; None is the candidate. Subclasses may have other formulas
    LSTM: ("input", "forget", None, "output"),
    GRU: ("update", "reset", None),
    MinGRU: ("update", None),
    MinLSTM: ("forget", "input", None),
}


def gates(layer, x, y, h=None, reset_mask=None):
    """Compute the gates of one call by name, `[B, T, units]` each, from its inputs, its outputs and the one before."""
    names = GATES[type(layer)]
    blocks = ops.split(pre_activations(layer, x, y, h, reset_mask), len(names), axis=-1)
    activation = getattr(layer, "recurrent_activation", ops.sigmoid)
    return {name: activation(z) for name, z in zip(names, blocks, strict=True) if name is not None}


def pre_activations(layer, x, y, h=None, reset_mask=None):
    """Compute the pre-activations of the gates and of the candidate, `[B, T, gates units]`, float32 or wider."""
    dtype = layer.compute_dtype
    x, y = ops.cast(x, dtype), ops.cast(y, dtype)
    if isinstance(layer, (MinGRU, MinLSTM)):
        return ops.cast(layer.project_inputs(x), at_least_float32(dtype))
    first = ops.zeros_like(y[:, :1]) if h is None else ops.expand_dims(ops.cast(h, dtype), 1)
    previous = ops.concatenate([first, y[:, :-1]], axis=1)  # [B, T, units]
    if reset_mask is not None:
        previous = ops.where(ops.expand_dims(reset_mask, -1), ops.zeros_like(previous), previous)
    recurrent_inputs = ops.matmul(previous, ops.cast(layer.recurrent_kernel, dtype))
    if isinstance(layer, GRU) and layer.reset_after and layer.use_bias:
        recurrent_inputs = recurrent_inputs + ops.cast(layer.bias[1], dtype)
    return ops.cast(layer.project_inputs(x) + recurrent_inputs, at_least_float32(dtype))
