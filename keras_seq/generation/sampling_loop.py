"""Sample tokens with `model.step` inside a compiled loop, for every causal language model.

    t                position, the same in all rows
    prefill chunk    PREFILL_CHUNK (or C / 2) ids that all prompts have, in one forward pass
    call             up to STEPS_PER_CALL steps: id t - 1 goes in; id t is sampled, or taken from a longer prompt

A model with a context of C positions starts a new cache at multiples of h = C // 2, whenever the old one is full:

    id t is sampled from the ids from cache_start(t) on,   cache_start(t) = h ceil(max(0, t - C) / h)

So a token sees at least C / 2 ids, its cost does not depend on t, and a row does not depend on the other prompts. A
cache has no more than C slots, and fewer where the ids are fewer: a power of two. Only another number of rows or slots
is traced again: prompts, lengths, seeds and values of logit filters are not. An id of -1 marks logits that are not
finite, and one of ENDED what follows the end of a text under a constraint.
"""

import math
from collections.abc import Mapping

import keras
import numpy as np
from keras import ops, tree

from keras_seq.generation.constraints import ENDED, TokenAutomaton, constraint_rows, sample_row
from keras_seq.generation.samplers import SamplingConfig
from keras_seq.layers.introspection import iter_layers, vocabulary_size
from keras_seq.ops.compiled import compiled, traced
from keras_seq.random_draws import RowDraws

STEPS_PER_CALL = 32  # steps of one compiled call
PREFILL_CHUNK = 64  # ids of a prompt in one forward pass
MIN_CAPACITY = 256  # slots of a cache
ROOM = 4096  # columns for new ids that a batch begins with


class SamplingLoop:
    """Sample ids from one model; compiled once for each number of rows.

    Args:
        model: A `LanguageModel`.

    Raises:
        ValueError: In a call, the model's logits are not finite.
    """

    def __init__(self, model):
        self.model = model
        self._traced_step = traced(self._sample_step, model)
        self._prefill_fn = compiled(self._next_state, model)
        self._sample_fn = compiled(self._sample_steps, model, jit_compile=True)

    @property
    def context_length(self) -> float:
        """The model's context length, infinite if its state has no length."""
        return math.inf if self.model.context_length is None else self.model.context_length

    def __call__(
        self,
        prompts: list[list[int]],
        max_new_tokens: int,
        sampling: SamplingConfig | None = None,
        seed: int = 0,
        first_row: int = 0,
        automaton: TokenAutomaton | None = None,
    ):
        """Yield the ids after the prompts, several columns at a time.

        Args:
            prompts: B lists of ids, each of at least one.
            max_new_tokens: Ids to sample after each prompt.
            sampling: A `SamplingConfig`; None samples at temperature 1.
            seed: Seed of the draws. Those of a row depend on the seed and the row's number only.
            first_row: Number of the first row, for batches that are parts of a larger one.
            automaton: What constrains the new ids, or None.

        Yields:
            int32 `[B, n]` for varying n, `max_new_tokens` columns in all; with an automaton, ENDED after a text's end.

        Raises:
            ValueError: The model's logits are not finite, or the constraint has no text of `max_new_tokens`.
        """
        sampling = sampling or SamplingConfig()
        ids, prompt_lengths, draws = prepare_batch(prompts, max_new_tokens, seed, first_row)
        in_text = self._in_text(prompts) if sampling.repetition_penalty is not None else ()
        rows, tables = constraint_rows(automaton, len(ids), max_new_tokens)
        num_done, num_emitted = prompt_lengths.min(), 0  # columns filled in all rows; columns yielded
        start, end = cache_start(num_done, self.context_length), draws.end
        capacity = max(MIN_CAPACITY, 1 << (end - 1).bit_length())
        state, t = self._prefill(ids, start, num_done, capacity)
        while t < end:
            if cache_start(t, self.context_length) > start:
                start = cache_start(t, self.context_length)
                state, t = self._prefill(ids, start, num_done, capacity)
            n = int(min(STEPS_PER_CALL, end - t, self.context_length - (t - 1 - start)))
            ids = with_room(ids, t + n)
            is_prompt = np.arange(t, t + n) < np.maximum(prompt_lengths, num_done)[:, None]
            prompt_ids = _steps_first(np.where(is_prompt, ids[:, t : t + n], -1))
            uniform, count = _steps_first(draws(t, n)), np.array(n, "int32")
            state, new, in_text, rows = self._sample_fn(
                state, ids[:, t - 1], prompt_ids, uniform, count, sampling.options, in_text, rows, tables
            )
            ids[:, t : t + n] = ops.convert_to_numpy(new)[:n].T
            if (ids[:, t : t + n] == -1).any():
                raise not_finite()
            t += n
            num_done = max(num_done, t)
            if has_ended := rows and (ids[:, t - 1] == ENDED).all():
                ids, num_done = all_ended(ids, prompt_lengths, num_done, end)
            if new := new_tokens(ids, prompt_lengths, num_emitted, num_done):
                yield np.stack(new)
                num_emitted += len(new[0])
            if has_ended:
                yield from ended_columns(len(ids), max_new_tokens - num_emitted)
                return

    def _prefill(self, ids, start, end, capacity):
        """Read full chunks of ids from `start`, at most up to `end` - 1; return the state and the next position."""
        limit = () if self.model.context_length is None else (capacity,)
        state, t = self.model.get_initial_state(len(ids), *limit), start
        sizes = {PREFILL_CHUNK}
        if self.model.context_length is not None:
            sizes.add(self.context_length - cache_stride(self.context_length))
        for size in sorted((size for size in sizes if 0 < size < self.context_length), reverse=True):
            while t + size < end:
                state = self._prefill_fn(np.maximum(ids[:, t : t + size], 0), state)  # not ENDED
                t += size
        return state, t + 1

    def _in_text(self, prompts):
        """Return which ids each prompt has, one bool `[B, V]` in a tuple, as the loop carries it."""
        in_text = np.zeros((len(prompts), vocabulary_size(self.model)), bool)
        for row, prompt in zip(in_text, prompts, strict=True):
            row[prompt] = True
        return (in_text,)

    def _next_state(self, ids, state):
        return self.model(ids, state=state, training=False, return_state=True)[1]

    def _sample_steps(self, state, last, prompt_ids, uniform, n, options, in_text, rows, tables):
        """Take n steps; return the state, ids `[STEPS_PER_CALL, B]`, `in_text` and `rows`.

        A prompt id of -1 is sampled.
        """
        sample_step = self._traced_step()

        def step(i, loop_vars):
            *args, out = loop_vars
            args = sample_step(*args, prompt_ids[i], uniform[i], options, tables)
            return *args, ops.slice_update(out, (i, 0), args[1][None])

        out = ops.zeros((STEPS_PER_CALL, last.shape[0]), "int32")
        state, _, in_text, rows, out = ops.fori_loop(0, n, step, (state, last, in_text, rows, out))
        return state, out, in_text, rows

    def _sample_step(self, state, last, in_text, rows, prompt_ids, uniform, options, tables):
        """Take one step; return the state, ids `[B]`, `in_text` and `rows`, the states of the constraint."""
        ids = ops.maximum(last, 0)[:, None]  # not -1, which a model refuses where it knows the value
        logits, next_state = self.model.step(ids, state)
        state = tree.map_structure(lambda new, old: ops.reshape(new, old.shape), next_state, state)  # static shapes
        sampled, next_rows = sample_row(logits, uniform, options, in_text, rows, tables)
        is_new = prompt_ids < 0
        rows = tuple(ops.where(is_new, new, old) for new, old in zip(next_rows, rows, strict=True))
        last = ops.where(is_new, sampled, prompt_ids)
        new = last[:, None] == ops.arange(logits.shape[1], dtype="int32")
        return state, last, tuple(ops.logical_or(mask, new) for mask in in_text), rows


def prepare_batch(prompts, max_new_tokens, seed, first_row):
    """Lay out prompts in rows with room for new tokens."""
    prompt_lengths = np.array([len(prompt) for prompt in prompts])
    longest = int(prompt_lengths.max())
    ids = np.zeros((len(prompts), longest + min(max_new_tokens, ROOM)), "int32")
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = prompt
    return ids, prompt_lengths, RowDraws(seed, first_row, prompt_lengths, longest + max_new_tokens)


def with_room(ids, count):
    """Return ids `[B, N]` with at least `count` columns: as they are, or with as many zeros after them."""
    return ids if count <= ids.shape[1] else np.pad(ids, ((0, 0), (0, max(count, ids.shape[1]))))


def all_ended(ids, prompt_lengths, num_done, last):
    """Return ids and filled columns of which `new_tokens` gives the last ids of all rows."""
    end = min(last, num_done + int(prompt_lengths.max() - prompt_lengths.min()))
    ids = with_room(ids, end)
    ids[:, num_done:end] = ENDED
    return ids, end


def ended_columns(batch_size, count):
    """Yield columns of ENDED `[B, n]`, `count` in all."""
    for start in range(0, count, ROOM):
        yield np.full((batch_size, min(ROOM, count - start)), ENDED, "int32")


def new_tokens(ids, prompt_lengths, num_emitted, num_done):
    """Return the sampled ids that were not yielded yet, the same number for every row."""
    longest = prompt_lengths.max()
    count = int(max(num_done - longest, 0))
    rows = zip(ids, prompt_lengths, strict=True)
    return [row[m + num_emitted : m + count] for row, m in rows] if count > num_emitted else []


def cache_start(t: int, context_length: float) -> int:
    """Return the position of the first id that id t is sampled from."""
    stride = cache_stride(context_length)
    return 0 if t <= context_length else -(-(t - context_length) // stride) * stride


def cache_stride(context_length):
    """Return how many positions a cache starts after the one before it."""
    return max(1, context_length // 2)


def not_finite() -> ValueError:
    """Return the error for logits that are NaN or infinite."""
    return ValueError("The model's logits are not finite: its weights have diverged; use an earlier checkpoint.")


def _steps_first(rows):
    """Transpose rows `[B, n]` and pad them with zeros to `[STEPS_PER_CALL, B]`."""
    return np.pad(rows.T, ((0, STEPS_PER_CALL - rows.shape[1]), (0, 0)))


# Take the last positions out of a state again, without reading the text once more.
#
#     key/value cache     slots from position n on are marked as empty, and are the next to be written
#     position counter    n
#
# A state that holds nothing else can be rewound. That of a recurrent layer cannot: it does not say what it was before.


def can_rewind(model, state) -> bool:
    """Return whether `rewound` suffices to take positions out of a state."""
    layers = [*iter_layers(model, attributes=True)]
    forgets = any(
        getattr(layer, name, None) is not None for layer in layers for name in ("sliding_window", "document_token")
    )
    rest = tree.flatten(tree.traverse(lambda part: () if _is_cache(part) else None, state))
    return not forgets and all(map(_is_integer, rest))


def rewound(before, after, count):
    """Return a state after the first `count` of the positions that were read between two states.

    Where it cannot be rewound, `after` has to be the state after `count` positions followed by padding, whose slots
    become free.
    """

    def rewind(before, after):
        if not _is_integer(after):
            return after
        if len(after.shape) == 2:  # positions of the slots
            return ops.where(after <= ops.max(before, axis=1, keepdims=True) + count, after, -1)
        return ops.minimum(after, before + count)

    return tree.map_structure(rewind, before, after)


def with_free_slots(state, count: int):
    """Return a state whose caches have `count` more slots, all empty."""

    def extend(part):
        if not _is_cache(part):
            return None
        empty = {"key": 0, "value": 0, "position": -1}
        pads = {name: ((0, 0), (0, count), *[(0, 0)] * (len(part[name].shape) - 2)) for name in empty}
        return {**part, **{name: ops.pad(part[name], pads[name], constant_values=empty[name]) for name in empty}}

    return tree.traverse(extend, state)


def _is_cache(part):
    return isinstance(part, Mapping) and "position" in part


def _is_integer(x):
    return "int" in keras.backend.standardize_dtype(x.dtype)
