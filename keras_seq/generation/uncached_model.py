"""Sample tokens outside of compiled code: from any causal `keras.Model`, and from a model in an exported file.

An `ExportedReader` keeps the state of a file. A `keras.Model` without a state computes all ids again for each token:

    logits of the id at t  =  model(ids[:, :t] followed by zeros)[:, t - 1]

A causal model ignores what follows a position. The zeros pad the ids to few lengths, each compiled once: the model's
fixed length, its context length, or a power of two. The texts equal those of `SamplingLoop`.
"""

import inspect
import warnings

import keras
import numpy as np
from keras import ops

from keras_seq.generation.constraints import TokenAutomaton, constraint_rows, sample_row
from keras_seq.generation.samplers import SamplingConfig
from keras_seq.generation.sampling_loop import Texts, cache_start
from keras_seq.layers.introspection import iter_layers
from keras_seq.ops.compiled import compiled

EXPECTED = "a LanguageModel, or any causal keras.Model from ids [B, T] to logits [B, T, V]"
CAUSALITY_CHECK_LENGTH = 16  # positions
MIN_PADDED_LENGTH = 64  # positions


class UncachedModel:
    """Wrap a model from ids to logits, after a check that it gives `[B, T, V]` and is causal."""

    def __init__(self, model):
        inputs = getattr(model, "inputs", None) or [None]
        if not isinstance(model, keras.Model) or len(inputs) != 1:
            raise ValueError(f"model={model!r}; expected {EXPECTED}.")
        if len(required_arguments(model)) > 1:
            raise ValueError(f"{model.name} takes {', '.join(required_arguments(model))}; expected {EXPECTED}.")
        for layer in iter_layers(model):
            if getattr(layer, "stateful", False) is True:
                raise ValueError(
                    f"{layer.name} has stateful=True, so a call depends on the one before; expected stateful=False."
                )
        shape = (None, None) if inputs[0] is None else inputs[0].shape
        if len(shape) != 2:
            raise ValueError(f"{model.name} takes {tuple(shape)}; expected {EXPECTED}.")
        self.model, self.fixed_length = model, shape[1]
        self.context_length = self.fixed_length or getattr(model, "context_length", None)
        self._forward = compiled(lambda ids: model(ids, training=False), model)
        self.vocabulary_size = self._check_outputs()

    def _check_outputs(self):
        """Return V, after a check that changed ids leave the logits before them unchanged."""
        length = self.fixed_length or min(CAUSALITY_CHECK_LENGTH, self.context_length or CAUSALITY_CHECK_LENGTH)
        ids = np.zeros((1, length), "int32")
        logits = self.model(ids, training=False)
        shape = tuple(getattr(logits, "shape", ()))
        if len(shape) != 3 or shape[:2] != ids.shape:
            received = shape if hasattr(logits, "shape") else type(logits).__name__
            raise ValueError(f"{self.model.name} maps ids {ids.shape} to {received}; expected {EXPECTED}.")
        if _are_probabilities(_numpy(logits)):
            raise ValueError(f"{self.model.name} gives probabilities; expected logits: leave out its softmax.")
        ids = np.random.default_rng(0).integers(min(2, shape[2]), size=ids.shape).astype("int32")
        changed, cut = ids.copy(), length // 2
        changed[:, cut:] = (changed[:, cut:] + 1) % min(2, shape[2])
        before, after = (_numpy(self.model(v, training=False))[:, :cut] for v in (ids, changed))
        if np.abs(before - after).max(initial=0) > 1e-4 * max(1, np.abs(before).max(initial=0)):
            raise ValueError(f"{self.model.name} is not causal: its logits depend on later ids; expected {EXPECTED}.")
        return shape[2]

    def logits(self, ids) -> np.ndarray:
        """Compute the logits, float32 `[B, n, V]`, of ids `[B, n]`, at most as many as the context length."""
        count = ids.shape[1]
        padded_length = self.context_length or max(MIN_PADDED_LENGTH, 1 << (count - 1).bit_length())
        padded = np.pad(ids, ((0, 0), (0, padded_length - count))).astype("int32")
        return _numpy(self._forward(padded))[:, :count]

    def step(self, ids, state):
        """Append one id to each row and compute the logits of the next, as `LanguageModel.step` does."""
        state = np.concatenate([ops.convert_to_numpy(state), ids], axis=1)
        return self.logits(state)[:, -1], state


class ExportedReader:
    """Compute the logits of a text that grows, by an `ExportedModel`, whose state stays after what it has read."""

    def __init__(self, model):
        self.model = model
        self._read, self._state = np.zeros((0, 0), "int32"), None

    def logits(self, ids) -> np.ndarray:
        """Compute logits `[B, n, V]` of the last n positions of ids `[B, T]`, those not read before."""
        length = self._read.shape[1]
        if self._state is None or length >= ids.shape[1] or not np.array_equal(self._read, ids[:, :length]):
            self._state, length = self.model.get_initial_state(len(ids)), 0
        logits, self._state = self.model(ids[:, length:], self._state, return_state=True)
        self._read = ids.copy()
        return logits


class HostSamplingLoop:
    """Sample ids as `SamplingLoop` does, one call of the model after the other."""

    def __init__(self, model):
        self.model = model  # an `UncachedModel` or an `ExportedModel`
        self.context_length = model.context_length or np.inf
        self._sample_fn = compiled(sample_row, None)
        if isinstance(model, UncachedModel):
            warnings.warn(
                f"{model.model.name} reads the whole text again for every token, the slow way. A "
                "keras_seq.models.LanguageModel keeps a state and reads each token once.",
                stacklevel=2,
            )

    def __call__(
        self,
        prompts: list[list[int]],
        max_new_tokens: int,
        sampling: SamplingConfig | None = None,
        seed: int = 0,
        first_row: int = 0,
        automaton: TokenAutomaton | None = None,
    ):
        """Yield the ids after the prompts, one column at a time; arguments and errors as for `SamplingLoop`."""
        sampling = sampling or SamplingConfig()
        texts = Texts(prompts, max_new_tokens, seed, first_row)
        in_text = texts.which_ids(self.model.vocabulary_size)
        reader = self.model if isinstance(self.model, UncachedModel) else ExportedReader(self.model)
        rows, tables = constraint_rows(automaton, len(prompts), max_new_tokens)
        while not texts.are_complete:
            t = texts.num_done
            past = np.maximum(texts.ids[:, cache_start(t, self.context_length) : t], 0)  # not ENDED
            logits, uniform = reader.logits(past)[:, -1], texts.draws(t, 1)[:, 0]
            sampled, next_rows = self._sample_fn(logits, uniform, sampling.options, (in_text,), rows, tables)
            known = texts.known(t, 1)[:, 0]
            is_new = known < 0
            rows = tuple(
                np.where(is_new, ops.convert_to_numpy(new), old) for new, old in zip(next_rows, rows, strict=True)
            )
            ids = np.where(is_new, ops.convert_to_numpy(sampled), known)
            texts.fill(t, ids[:, None])
            in_text[np.arange(len(ids)), np.maximum(ids, 0)] |= ids >= 0
            yield from texts.new_columns()


def required_arguments(model):
    """Return the names of the arguments of `call` without a default."""
    parameters = inspect.signature(model.call).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return [p.name for p in named if p.default is p.empty]


def _are_probabilities(logits):
    return logits.shape[-1] > 1 and (logits >= 0).all() and np.allclose(logits.sum(axis=-1), 1, atol=1e-3)


def _numpy(logits):
    return ops.convert_to_numpy(ops.cast(logits, "float32"))
