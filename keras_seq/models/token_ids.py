"""Token ids of models: checks of type, shape and range, targets, and functional models that take them.

Types and shapes are always checked, values only where they are known, outside of compiled code. Inside, where nothing
can be raised, the embedding of an invalid id is NaN, which propagates to the outputs.
"""

import functools

import keras
import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.layers.base.configuration import own_arguments
from keras_seq.models.quantization import Quantizable
from keras_seq.ops import replicas, tensor_checks

REMEDY = " [B, T], the ids that tokenizer.encode gives; a keras.Input of them needs dtype='int32'"


def as_ids(name: str, ids):
    """Return ids `[B, T]` as a Keras model takes them, a list converted to an array."""
    if isinstance(ids, list | tuple):
        try:
            ids = np.asarray(ids)
        except ValueError:
            raise ValueError(f"{name} has rows of different lengths; expected integers [B, T]: pad them.") from None
    if not hasattr(ids, "shape") or not hasattr(ids, "dtype"):
        raise ValueError(f"{name}={ids!r}; expected integers{REMEDY}.")
    if hasattr(ids, "row_splits"):
        raise ValueError(f"{name} is ragged; expected integers [B, T]: pad them, as to_tensor() does.")
    ids = replicas.whole_numbers(ids)
    _check_type(name, ids)
    if len(ids.shape) != 2:
        raise ValueError(f"{name} has shape {tuple(ids.shape)}; expected [B, T].")
    if ids.shape[1] == 0:
        raise ValueError(f"{name} has shape {tuple(ids.shape)}; expected at least one position.")
    return ids


def _check_type(name, ids):
    dtype = tensor_checks.dtype_of(ids)
    if "int" not in dtype:
        dtype = "string" if dtype.startswith(("str", "object", "bytes")) else dtype
        raise ValueError(f"{name} has the dtype {dtype}; expected integers{REMEDY}.")


def embed(embedding, ids, vocabulary_size: int | None):
    """Look up the embeddings of ids, NaN for invalid ids."""
    if vocabulary_size is None:
        return embedding(ids)
    valid = _is_valid(ids, vocabulary_size)
    # Not replaced by 0, which may be padding: the position must not be masked.
    x = embedding(ops.where(valid, ids, vocabulary_size - 1))
    if getattr(embedding, "mask_zero", False):  # a layer propagates the mask
        return InvalidIdsToNaN(vocabulary_size, name="invalid_ids_to_nan")(x, ids)
    return ops.where(ops.expand_dims(valid, -1), x, float("nan"))


def _is_valid(ids, vocabulary_size):
    return ops.logical_and(ids >= 0, ids < vocabulary_size)


def validate_token_ids(
    name: str, ids, vocabulary_size: int | None, context_length: int | None = None, pad_token_id: int | None = 0
):
    """Check the range of ids and the number of positions, those of padding aside, and return the ids as int32."""
    _check_type(name, ids)
    if vocabulary_size is not None:
        tensor_checks.ids_below(name, ids, vocabulary_size)
    if context_length is not None and (ids.shape[1] is None or ids.shape[1] > context_length):
        values = tensor_checks.static_value(ids)
        longest = 0 if values is None else (values != pad_token_id).sum(axis=1).max(initial=0)
        if longest > context_length:
            raise ValueError(
                f"{name} holds {longest} ids in a row, without padding; expected at most "
                f"context_length={context_length}."
            )
    return tensor_checks.integers(name, ids)


@keras.saving.register_keras_serializable(package="keras_seq")
class TokenIdCheck(keras.layers.Layer):
    """Check token ids with `validate_token_ids`, as the first layer of a functional model."""

    def __init__(self, vocabulary_size: int, context_length: int | None = None, pad_token_id: int | None = 0, **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = checks.positive_integer("vocabulary_size", vocabulary_size)
        self.context_length = (
            None if context_length is None else checks.positive_integer("context_length", context_length)
        )
        self.pad_token_id = check_pad_token_id(pad_token_id, vocabulary_size)

    def call(self, ids):
        """Apply the layer; the class docstring describes the call arguments."""
        return validate_token_ids("token_ids", ids, self.vocabulary_size, self.context_length, self.pad_token_id)

    def compute_output_spec(self, ids):
        """Return the shape and dtype of the output without computing it."""
        return keras.KerasTensor(ids.shape, dtype="int32")

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), **own_arguments(self, TokenIdCheck)}


def check_pad_token_id(pad_token_id: int | None, vocabulary_size: int) -> int | None:
    """Return the id of padding, or raise a ValueError unless it is None or one of the vocabulary."""
    return None if pad_token_id is None else checks.integer("pad_token_id", pad_token_id, 0, vocabulary_size - 1)


@keras.saving.register_keras_serializable(package="keras_seq")
class InvalidIdsToNaN(keras.layers.Layer):
    """Replace the embeddings of invalid ids by NaN, and those of padding by zeros.

    Masking: the output has a Keras mask, false at the id of padding, unless that is None. It is made from the ids,
    because Keras's embeddings mask id 0 only, and its `ReversibleEmbedding` loses that mask in 8 and 4 bits.
    """

    def __init__(self, vocabulary_size: int, pad_token_id: int | None = 0, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.autocast = False  # the embeddings keep their precision
        self.vocabulary_size = checks.positive_integer("vocabulary_size", vocabulary_size)
        self.pad_token_id = check_pad_token_id(pad_token_id, vocabulary_size)

    def call(self, x, ids):
        """Apply the layer; the class docstring describes the call arguments."""
        valid = ops.expand_dims(_is_valid(ids, self.vocabulary_size), -1)
        x = ops.where(valid, x, float("nan"))
        return x if self.pad_token_id is None else _mask_setter(self.pad_token_id)(ids, x)

    def compute_output_spec(self, x, ids):
        """Return the shape and dtype of the output without computing it."""
        return keras.KerasTensor(x.shape, dtype=x.dtype)

    def get_config(self):
        """Return the constructor's arguments, from which `from_config` builds an equal object."""
        return {**super().get_config(), **own_arguments(self, InvalidIdsToNaN)}


@functools.cache
def _mask_setter(pad_token_id):
    return _MaskSetter(pad_token_id, name="mask_setter", autocast=False)


@keras.saving.register_keras_serializable(package="keras_seq")
class _MaskSetter(keras.layers.Layer):
    """Give a tensor the mask of ids, and zeros there: Keras computes masks from the first argument of a call."""

    def __init__(self, pad_token_id: int, **kwargs):
        super().__init__(**kwargs)
        self.pad_token_id = pad_token_id

    def call(self, ids, x):
        return tensor_checks.where_valid(self.compute_mask(ids), x)

    def compute_mask(self, ids, previous_mask=None):
        return ops.not_equal(ids, self.pad_token_id)


# Refuse `class_weight` for targets `[B, T]`: Keras takes their rows for one-hot vectors, without an error.
#
# weight of a row = class_weight[argmax over the T positions], the weight of a position


class TokenTargets:
    """Part of a Keras model whose targets are ids `[B, T]`; to be listed before `keras.Model`."""

    def fit(self, *args, class_weight=None, **kwargs):
        """Train the model, as `keras.Model.fit`."""
        self._refuse(class_weight)
        return super().fit(*args, class_weight=class_weight, **kwargs)

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False):
        """Train the model on one batch, as `keras.Model.train_on_batch`."""
        self._refuse(class_weight)
        return super().train_on_batch(x, y, sample_weight, class_weight, return_dict)

    def _refuse(self, class_weight):
        outputs = getattr(self, "outputs", None) or []  # of a functional model; a head may have targets [B]
        rank = max((len(y.shape) for y in outputs), default=3)
        if class_weight is not None and rank > 2:
            weights = "[B, T], such as weights[targets]" if rank == 3 else "[B], one for each text"  # of a CRF
            raise ValueError(
                f"class_weight={class_weight!r}; expected None: Keras takes targets [B, T] for one-hot rows. Pass "
                f"sample_weight {weights}."
            )


# Functional models of token ids. They refuse floats, which a `keras.Input` of int32 would truncate silently.


@keras.saving.register_keras_serializable(package="keras_seq")
class TokenIdModel(Quantizable, TokenTargets, keras.Model):
    """Check that the inputs of a functional model are integers `[B, T]`."""

    def __call__(self, inputs=None, *args, **kwargs):
        """Apply the model to ids `[B, T]`, or to a dict of them."""
        if isinstance(inputs, dict):
            inputs = {name: as_ids(name, ids) for name, ids in inputs.items()}
        else:
            inputs = as_ids("ids", inputs)
        return super().__call__(inputs, *args, **kwargs)
