"""Ids after ids from any causal `keras.Model`, which reads all that is there for every id: the slow way.

    logits of what comes after ids[:, :t]  =  model(ids[:, :t] and zeros behind them)[:, t - 1]

What stands behind a position is nothing to a causal model. The zeros are there so that few shapes are compiled: that
of the model's fixed length, of its context, or of a power of two. On every Keras backend; the texts are those of
`Decoder`.
"""

import inspect
import warnings

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from keras_seq.generation.samplers import SamplingConfig, sample_token
from keras_seq.generation.sampling_loop import not_finite, prepared, ready, start_of
from keras_seq.layers.introspection import iter_layers

EXPECTED = "a LanguageModel, or any causal keras.Model from ids [B, T] to logits [B, T, V]"
LOOKED_AT = 16  # positions of the look whether a model sees the future
SHORTEST = 64  # positions to compile for


class UncachedModel:
    """A model from ids to logits, looked at once: does it give `[B, T, V]`, and does it see the future?

    Args:
        model: a `keras.Model` of one input. If that has a fixed length T, T is its context.

    Raises:
        ValueError: it is no such model.
    """

    def __init__(self, model):
        inputs = getattr(model, "inputs", None) or [None]
        if not isinstance(model, keras.Model) or len(inputs) != 1:
            raise ValueError(f"model={model!r}; expected {EXPECTED}.")
        if len(_required(model)) > 1:
            raise ValueError(f"{model.name} takes {', '.join(_required(model))}; expected {EXPECTED}.")
        for layer in iter_layers(model):
            if getattr(layer, "stateful", False) is True:
                raise ValueError(
                    f"{layer.name} has stateful=True, so a call depends on the one before; expected stateful=False."
                )
        shape = (None, None) if inputs[0] is None else inputs[0].shape
        if len(shape) != 2:
            raise ValueError(f"{model.name} takes {tuple(shape)}; expected {EXPECTED}.")
        self.model, self.length = model, shape[1]
        self.context_length = self.length or getattr(model, "context_length", None)
        compiled = keras.backend.backend() == "tensorflow"
        self._read = tf.function(lambda ids: model(ids, training=False)) if compiled else model.predict_on_batch
        self.vocabulary_size = self._looked_at()

    def _looked_at(self):
        """V, once it is known that the logits before a changed id stay as they are."""
        length = self.length or min(LOOKED_AT, self.context_length or LOOKED_AT)
        ids = np.zeros((1, length), "int32")
        logits = self.model(ids, training=False)
        shape = tuple(getattr(logits, "shape", ()))
        if len(shape) != 3 or shape[:2] != ids.shape:
            told = shape if hasattr(logits, "shape") else type(logits).__name__
            raise ValueError(f"{self.model.name} maps ids {ids.shape} to {told}; expected {EXPECTED}.")
        if _probabilities(_numpy(logits)):
            raise ValueError(f"{self.model.name} gives probabilities; expected logits: leave out its softmax.")
        ids = np.random.default_rng(0).integers(min(2, shape[2]), size=ids.shape).astype("int32")
        changed, cut = ids.copy(), length // 2
        changed[:, cut:] = (changed[:, cut:] + 1) % min(2, shape[2])
        before, after = (_numpy(self.model(v, training=False))[:, :cut] for v in (ids, changed))
        if np.abs(before - after).max(initial=0) > 1e-4 * max(1, np.abs(before).max(initial=0)):
            raise ValueError(f"{self.model.name} sees the future: its logits depend on later ids; expected {EXPECTED}.")
        return shape[2]

    def logits(self, ids) -> np.ndarray:
        """Ids `[B, n]`, no more than the context -> float32 `[B, n, V]`."""
        count = ids.shape[1]
        size = self.context_length or max(SHORTEST, 1 << (count - 1).bit_length())
        return _numpy(self._read(np.pad(ids, ((0, 0), (0, size - count))).astype("int32")))[:, :count]

    def step(self, ids, state):
        """As `LanguageModel.step`; the state is the ids so far, `[B, n]`."""
        state = tf.concat([state, ids], axis=1)
        return tf.constant(self.logits(state.numpy())[:, -1]), state


class UncachedSamplingLoop:
    """As `Decoder`, from a `WholeModel`. Says once that there is a faster way."""

    def __init__(self, whole):
        self.whole, self.context_length = whole, whole.context_length or np.inf
        warnings.warn(
            f"{whole.model.name} reads the whole text anew for every token: the slow way. A keras_seq.models."
            "LanguageModel on the TensorFlow backend keeps a state and reads each token once.",
            stacklevel=2,
        )

    def __call__(self, prompts, length, sampling=None, seed=0, first_row=0):
        """Yields what comes after the prompts; arguments as for `Decoder`."""
        sampling = sampling or SamplingConfig()
        ids, lengths, uniform = prepared(prompts, length, seed, first_row)
        seen, told = np.zeros((len(ids), self.whole.vocabulary_size), bool), 0
        for row, prompt in zip(seen, prompts, strict=True):
            row[prompt] = True
        for t in range(lengths.min(), ids.shape[1]):
            logits = self.whole.logits(ids[:, start_of(t, self.context_length) : t])[:, -1]
            drawn = sample_token(logits, uniform[:, t], sampling.values, seen).numpy()
            drawn = np.where(t < lengths, ids[:, t], drawn)
            if (drawn < 0).any():
                raise not_finite()
            ids[:, t] = drawn
            seen[np.arange(len(ids)), drawn] = True
            if new := ready(ids, lengths, told, t + 1):
                yield np.stack(new)
                told += len(new[0])


def _required(model):
    """The names of what a call has to be given."""
    parameters = inspect.signature(model.call).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return [p.name for p in named if p.default is p.empty]


def _probabilities(logits):
    return logits.shape[-1] > 1 and (logits >= 0).all() and np.allclose(logits.sum(axis=-1), 1, atol=1e-3)


def _numpy(logits):
    return ops.convert_to_numpy(ops.cast(logits, "float32"))
