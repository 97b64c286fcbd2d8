"""Is every id one that the model knows?

Types and shapes are looked at always, values where they are known, in calls outside of compiled code. Inside, where
nothing can be raised, the vector of an id that is none is NaN, and so is what the model makes of it.
"""

import keras
import numpy as np
from keras import ops

from keras_seq import checks

REMEDY = " [B, T], the ids that tokenizer.encode gives; a keras.Input of them needs dtype='int32'"


def as_ids(name, ids):
    """Ids as a Keras model takes them, a list as an array; refused where they are no integers `[B, T]`."""
    if isinstance(ids, list | tuple):
        try:
            ids = np.asarray(ids)
        except ValueError:
            raise ValueError(f"{name} has rows of different lengths; expected integers [B, T]: pad them.") from None
    if not hasattr(ids, "shape") or not hasattr(ids, "dtype"):
        raise ValueError(f"{name}={ids!r}; expected integers{REMEDY}.")
    if hasattr(ids, "row_splits"):
        raise ValueError(f"{name} is ragged; expected integers [B, T]: pad them, as to_tensor() does.")
    _check_type(name, ids)
    if len(ids.shape) != 2:
        raise ValueError(f"{name} has shape {tuple(ids.shape)}; expected [B, T].")
    return ids


def _check_type(name, ids):
    dtype = checks.dtype_of(ids)
    if "int" not in dtype:
        dtype = "string" if dtype.startswith(("str", "object", "bytes")) else dtype
        raise ValueError(f"{name} has the dtype {dtype}; expected integers{REMEDY}.")


def embed(embedding, ids, vocabulary_size):
    """The vectors `[B, T, D]` of ids, NaN for one that is none, where the vocabulary's size is known."""
    if vocabulary_size is None:
        return embedding(ids)
    known = _known(ids, vocabulary_size)
    # another id than 0, which may be padding: the position is to be seen
    x = embedding(ops.where(known, ids, vocabulary_size - 1))
    if getattr(embedding, "mask_zero", False):  # a layer hands the mask on
        return KnownIds(vocabulary_size, name="known_ids")(x, ids)
    return ops.where(ops.expand_dims(known, -1), x, float("nan"))


def _known(ids, vocabulary_size):
    return ops.logical_and(ids >= 0, ids < vocabulary_size)


def validate_token_ids(name, ids, vocabulary_size, context_length=None):
    """The ids as int32. Refuses those outside of the vocabulary, and more in a row than `context`, padding not counted.

    Args:
        name: of the ids, for the message.
        ids: `[B, T]`, of which 0 is padding where there is a context.
        vocabulary_size: V; None where it is not known.
        context: the most positions; None where there is no such thing.
    """
    _check_type(name, ids)
    if vocabulary_size is not None:
        checks.ids_below(name, ids, vocabulary_size)
    if context_length is not None and (ids.shape[1] is None or ids.shape[1] > context_length):
        values = checks.static_value(ids)
        longest = 0 if values is None else (values != 0).sum(axis=1).max(initial=0)
        if longest > context_length:
            raise ValueError(f"{name} holds {longest} real ids in a row; expected at most context={context_length}.")
    return checks.integers(name, ids)


@keras.saving.register_keras_serializable(package="keras_seq")
class TokenIdCheck(keras.layers.Layer):
    """Ids as they came, checked by `check_ids`: what stands in front of a functional model.

    Args:
        vocabulary_size: V.
        context: the most positions, padding not counted; None for any number.

    Raises:
        ValueError: for an id out of range, or more ids in a row than the context, where they are known.
    """

    def __init__(self, vocabulary_size, context_length=None, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = checks.positive_integer("vocabulary_size", vocabulary_size)
        self.context_length = (
            None if context_length is None else checks.positive_integer("context_length", context_length)
        )

    def call(self, ids):
        """See the class."""
        return validate_token_ids("ids", ids, self.vocabulary_size, self.context_length)

    def compute_output_spec(self, ids):
        """As they came, int32."""
        return keras.KerasTensor(ids.shape, dtype="int32")

    def get_config(self):
        """The arguments."""
        return {**super().get_config(), "vocabulary_size": self.vocabulary_size, "context_length": self.context_length}


@keras.saving.register_keras_serializable(package="keras_seq")
class KnownIds(keras.layers.Layer):
    """The vectors `[B, T, D]` of ids `[B, T]`, NaN for an id that is none: what stands behind an embedding.

    Args:
        vocabulary_size: V.
    """

    def __init__(self, vocabulary_size, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.autocast = False  # the vectors keep their precision
        self.vocabulary_size = checks.positive_integer("vocabulary_size", vocabulary_size)

    def call(self, x, ids):
        """See the class."""
        return ops.where(ops.expand_dims(_known(ids, self.vocabulary_size), -1), x, float("nan"))

    def compute_output_spec(self, x, ids):
        """As the vectors came."""
        return keras.KerasTensor(x.shape, dtype=x.dtype)

    def get_config(self):
        """The arguments."""
        return {**super().get_config(), "vocabulary_size": self.vocabulary_size}
