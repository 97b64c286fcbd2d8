"""Ids after ids: the one loop for every causal model, `model.step` inside a compiled loop.

    t        the position, the same in every row
    piece    64 ids that all prompts have, or C / 2, read in one pass
    chunk    up to 32 steps: id t - 1 goes in, and id t is drawn, or is the prompt's where that is longer

A model with a context of C positions starts a new cache at every multiple of h = C // 2, once the old one is full:

    id t is drawn from the ids from start(t) on,   start(t) = h ceil(max(0, t - C) / h)

so at least C / 2 of them. It does not depend on the prompts, so a text is the same by itself and among others; and what
an id costs does not depend on how many came before. Nothing is traced again for another prompt, length, seed or value
of a sampling step; another number of rows is. Where the logits are not finite, the id is -1.
"""

import math

import numpy as np
import tensorflow as tf

from keras_seq.generation.samplers import SamplingConfig, sample_token
from keras_seq.layers.introspection import vocabulary_size

STEPS_PER_CALL = 32  # steps between two looks from Python
PREFILL_CHUNK = 64  # ids of a prompt


class SamplingLoop:
    """Ids from one model.

    Args:
        model: a `LanguageModel`.

    Raises:
        ValueError: in a call, the model's logits are not finite.
    """

    def __init__(self, model):
        self.model = model
        self.context_length = math.inf if model.context_length is None else model.context_length
        sizes = (
            {PREFILL_CHUNK}
            if model.context_length is None
            else {PREFILL_CHUNK, model.context_length - half(model.context_length)}
        )
        self.pieces = sorted((size for size in sizes if 0 < size < self.context_length), reverse=True)
        self._read = tf.function(self._state_after)
        self._chunk = tf.function(self._write, jit_compile=True)

    def __call__(self, prompts, length, sampling=None, seed=0, first_row=0):
        """Yields what comes after the prompts, int32 `[B, n]` for some n at a time, `length` ids in all.

        Args:
            prompts: B lists of ids, each of at least one.
            length: ids after each prompt.
            sampling: a `Sampling`.
            seed: of the draws. Those of a row depend on (seed, its number) only, not on the other rows.
            first_row: the number of the first row, for batches that are parts of a larger one.
        """
        sampling = sampling or SamplingConfig()
        ids, lengths, uniform = prepared(prompts, length, seed, first_row)
        values = {name: tf.constant(value) for name, value in sampling.values.items()}
        seen = self._seen(prompts) if sampling.repetition_penalty is not None else ()
        written, told = lengths.min(), 0  # columns of ids that are there in every row; ids that were given away
        start, end = start_of(written, self.context_length), ids.shape[1]
        state, t = self._after(ids, start, written)
        while t < end:
            if start_of(t, self.context_length) > start:
                start = start_of(t, self.context_length)
                state, t = self._after(ids, start, written)
            n = int(min(STEPS_PER_CALL, end - t, self.context_length - (t - 1 - start)))
            given, chance = (_padded(rows[:, t : t + n]) for rows in (ids, uniform))
            known = _padded(np.arange(t, t + n) < np.maximum(lengths, written)[:, None])
            state, new, seen = self._chunk(state, ids[:, t - 1], given, known, chance, tf.constant(n), values, seen)
            ids[:, t : t + n] = new[:, :n]
            if (ids[:, t : t + n] < 0).any():
                raise not_finite()
            t += n
            written = max(written, t)
            if new := ready(ids, lengths, told, written):
                yield np.stack(new)
                told += len(new[0])

    def _after(self, ids, start, end):
        """The state after the whole pieces of ids from `start` on, the last before `end` left out; where it stands."""
        state, t = self.model.get_initial_state(len(ids)), start
        for size in self.pieces:
            while t + size < end:
                state = self._read(ids[:, t : t + size], state)
                t += size
        return state, t + 1

    def _seen(self, prompts):
        """Which ids are in each prompt: one bool `[B, V]`, for the loop to go on with."""
        seen = np.zeros((len(prompts), vocabulary_size(self.model)), bool)
        for row, prompt in zip(seen, prompts, strict=True):
            row[prompt] = True
        return (seen,)

    def _state_after(self, ids, state):
        return self.model(ids, state=state, training=False, return_state=True)[1]

    def _write(self, state, last, given, known, uniform, n, values, seen):
        def body(i, last, state, seen, out):
            logits, after = self.model.step(last[:, None], state)
            state = tf.nest.map_structure(lambda new, old: tf.ensure_shape(new, old.shape), after, state)
            drawn = sample_token(logits, uniform[:, i], values, *seen)
            last = tf.where(known[:, i], given[:, i], drawn)
            new = tf.one_hot(last, logits.shape[1], on_value=True, off_value=False)
            seen = tuple(before | new for before in seen)
            out = tf.tensor_scatter_nd_update(out, [[i]], last[None])
            return i + 1, last, state, seen, out

        out = tf.zeros((STEPS_PER_CALL, last.shape[0]), tf.int32)
        _, _, state, seen, out = tf.while_loop(lambda i, *_: i < n, body, (0, last, state, seen, out))
        return state, tf.transpose(out), seen


def prepared(prompts, length, seed, first_row):
    """The ids `[B, N]` with room behind the prompts, the prompts' lengths `[B]`, a number below 1 for each place."""
    lengths = np.array([len(prompt) for prompt in prompts])
    ids = np.zeros((len(prompts), lengths.max() + length), "int32")
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = prompt
    uniform = np.zeros(ids.shape, "float32")
    for row, start in enumerate(lengths):
        drawn = tf.random.stateless_uniform([length], [seed, first_row + row], alg="philox")
        uniform[row, start : start + length] = drawn
    return ids, lengths, uniform


def ready(ids, lengths, told, written):
    """What is there of every row past its prompt once `written` columns are, without the first `told` of it."""
    count = int(np.clip(written - lengths.max(), 0, ids.shape[1] - lengths.max()))
    return [row[m + told : m + count] for row, m in zip(ids, lengths, strict=True)] if count > told else []


def start_of(t, context) -> int:
    """Where the ids begin that id t is drawn from."""
    return 0 if t <= context else -(-(t - context) // half(context)) * half(context)


def not_finite() -> ValueError:
    """What is raised where a model gives no numbers to draw from."""
    return ValueError("The model's logits are not finite: its weights have diverged; take an earlier checkpoint.")


def half(context) -> int:
    """How far a cache starts behind the one before it."""
    return max(1, context // 2)


def _padded(rows):
    """Rows `[B, n]` with zeros up to `[B, CHUNK]`."""
    return np.pad(rows, ((0, 0), (0, STEPS_PER_CALL - rows.shape[1])))
