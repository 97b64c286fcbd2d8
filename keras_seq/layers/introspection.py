"""What stands inside a layer or a model, and what that tells about it."""

import keras

from keras_seq.layers.bidirectional import Bidirectional
from keras_seq.layers.recurrent_base import RecurrentBase
from keras_seq.layers.stateful import Stateful

LOOK_AROUND = (  # of Keras; an output is made of several positions
    keras.layers.Conv1D,
    keras.layers.SeparableConv1D,
    keras.layers.DepthwiseConv1D,
    keras.layers.MaxPooling1D,
    keras.layers.AveragePooling1D,
    keras.layers.Attention,
    keras.layers.MultiHeadAttention,
    keras.layers.GroupQueryAttention,
)


def iter_layers(layer):
    """The layer, and the layers inside it, however deep."""
    yield layer
    for child in (*getattr(layer, "layers", ()), *([layer.layer] if hasattr(layer, "layer") else [])):
        yield from iter_layers(child)


def has_time_loop(model) -> bool:
    """Whether a layer goes through the positions one after the other, as SimpleRNN, GRU and LSTM do."""
    return any(isinstance(layer, RecurrentBase) for layer in iter_layers(model))


def is_non_causal(layer) -> bool:
    """Whether a layer is of a kind that reads later positions."""
    both_ways = isinstance(layer, (Bidirectional, keras.layers.Bidirectional))
    return both_ways or getattr(layer, "causal", True) is False or getattr(layer, "go_backwards", False)


def vocabulary_size(model) -> int | None:
    """V of a language model, None where it cannot be told."""
    members = getattr(model, "members", None)
    if members:
        return vocabulary_size(members[0])
    return getattr(getattr(model, "embedding", None), "input_dim", None)


def check_tokenizer(tokenizer, model, size=None):
    """Refuses a tokenizer of another number of ids than a language model, where both can be told.

    Args:
        tokenizer: whose `size` counts its ids.
        model: for its name and, unless `size` is given, its vocabulary.
        size: V.
    """
    size = vocabulary_size(model) if size is None else size
    if None not in (size, getattr(tokenizer, "vocabulary_size", None)) and tokenizer.vocabulary_size != size:
        raise ValueError(
            f"The tokenizer has {tokenizer.vocabulary_size} ids, {model.name} has {size}; expected the one it was trained with."
        )


def has_implicit_state(layer) -> bool:
    """Whether a layer looks at other positions by a state that it neither takes nor gives, so it cannot be stepped."""
    if isinstance(layer, LOOK_AROUND):
        return getattr(layer, "kernel_size", None) != (1,)  # which is a Dense layer
    return isinstance(layer, (Stateful, keras.layers.RNN))


def gives_probabilities(layer) -> bool:
    """Whether a layer ends in a softmax."""
    return isinstance(layer, keras.layers.Softmax) or getattr(layer, "activation", None) is keras.activations.softmax


def gives_no_sequence(layer) -> bool:
    """Whether a recurrent layer was told to give its last output alone, or the parts of its state beside it."""
    return getattr(layer, "return_sequences", True) is False or getattr(layer, "return_state", False) is True
