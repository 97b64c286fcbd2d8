"""Sample tokens with `model.step` inside a compiled loop, for every causal language model.

    t                position, the same in all rows
    prefill chunk    PREFILL_CHUNK (or C / 2) ids that all prompts have, in one forward pass
    call             up to STEPS_PER_CALL steps: id t - 1 goes in; id t is sampled, or taken from a longer prompt

A model with a context of C positions starts a new cache at multiples of h = C // 2, whenever the old one is full:

    id t is sampled from the ids from cache_start(t) on,   cache_start(t) = h ceil(max(0, t - C) / h)

So a token sees at least C / 2 ids, its cost does not depend on t, and a row does not depend on the other prompts. A
cache has C slots, or a power of two where the text is shorter. Only another number of rows or slots is traced again.
"""

import math
import numbers

import numpy as np
from keras import ops, tree

from keras_seq.generation.constraints import ENDED, TokenAutomaton, constraint_rows, sample_row
from keras_seq.generation.samplers import SamplingConfig
from keras_seq.layers.introspection import vocabulary_size
from keras_seq.ops import tensor_checks
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
        self._prefill_fn = compiled(
            lambda ids, state: model(ids, state=state, training=False, return_state=True)[1], model
        )
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
        texts = Texts(prompts, max_new_tokens, seed, first_row)
        penalizes = sampling.repetition_penalty is not None
        in_text = (texts.which_ids(vocabulary_size(self.model)),) if penalizes else ()
        rows, tables = constraint_rows(automaton, len(prompts), max_new_tokens)
        start = cache_start(texts.num_done, self.context_length)
        state, t = self._prefill(texts, start)
        while not texts.are_complete:
            if cache_start(t, self.context_length) > start:  # the cache is full
                start = cache_start(t, self.context_length)
                state, t = self._prefill(texts, start)
            n = int(min(STEPS_PER_CALL, texts.end - t, self.context_length - (t - 1 - start)))
            known, uniform = _steps_first(texts.known(t, n)), _steps_first(texts.draws(t, n))
            last, count = texts.ids[:, t - 1], np.array(n, "int32")
            state, new, in_text, rows = self._sample_fn(
                state, last, known, uniform, count, sampling.options, in_text, rows, tables
            )
            texts.fill(t, ops.convert_to_numpy(new)[:n].T)
            t += n
            yield from texts.new_columns()

    def _prefill(self, texts, start):
        """Read whole chunks of the known ids from `start` on, but the last id; return the state and the next position.

        The next steps read what is left.
        """
        state, t = initial_state(self.model, len(texts.ids), cache_capacity(texts.end)), start
        sizes = {PREFILL_CHUNK}
        if self.model.context_length is not None:
            sizes.add(self.context_length - cache_stride(self.context_length))
        for size in sorted((size for size in sizes if 0 < size < self.context_length), reverse=True):
            while t + size < texts.num_done:
                state = self._prefill_fn(np.maximum(texts.ids[:, t : t + size], 0), state)  # not ENDED
                t += size
        return state, t + 1

    def _sample_steps(self, state, last, known, uniform, n, options, in_text, rows, tables):
        """Take n steps; return the state, ids `[STEPS_PER_CALL, B]`, `in_text` and `rows`."""
        sample_step = self._traced_step()

        def step(i, loop_vars):
            *args, out = loop_vars
            args = sample_step(*args, known[i], uniform[i], options, tables)
            return *args, ops.slice_update(out, (i, 0), args[1][None])

        out = ops.zeros((STEPS_PER_CALL, last.shape[0]), "int32")
        state, _, in_text, rows, out = ops.fori_loop(0, n, step, (state, last, in_text, rows, out))
        return state, out, in_text, rows

    def _sample_step(self, state, last, in_text, rows, known, uniform, options, tables):
        """Take one step; return the state, ids `[B]`, `in_text` and `rows`, the states of the constraint."""
        ids = ops.maximum(last, 0)[:, None]  # not -1, which a model refuses where it knows the value
        logits, next_state = self.model.step(ids, state)
        state = tree.map_structure(lambda new, old: ops.reshape(new, old.shape), next_state, state)  # static shapes
        sampled, next_rows = sample_row(logits, uniform, options, in_text, rows, tables)
        is_new = known < 0
        rows = tuple(ops.where(is_new, new, old) for new, old in zip(next_rows, rows, strict=True))
        last = ops.where(is_new, sampled, known)
        new = last[:, None] == ops.arange(logits.shape[1], dtype="int32")
        return state, last, tuple(ops.logical_or(mask, new) for mask in in_text), rows


class Texts:
    """The ids of B texts, prompts first, filled from left to right; ids after a longer prompt come out together.

    An id of -1 is not known yet, or marks logits that are not finite; ENDED follows the end under a constraint.
    """

    def __init__(self, prompts, max_new_tokens, seed, first_row):
        self.prompt_lengths = np.array([len(prompt) for prompt in prompts])
        self.longest, self.max_new_tokens = int(self.prompt_lengths.max()), max_new_tokens
        self.end = self.longest + max_new_tokens
        self.ids = np.zeros((len(prompts), self.longest + min(max_new_tokens, ROOM)), "int32")  # [B, columns]
        for row, prompt in zip(self.ids, prompts, strict=True):
            row[: len(prompt)] = prompt
        self.draws = RowDraws(seed, first_row, self.prompt_lengths, self.end)
        self.num_done, self.num_emitted = int(self.prompt_lengths.min()), 0  # columns filled; columns yielded

    @property
    def are_complete(self) -> bool:
        """Return whether all new columns were yielded."""
        return self.num_emitted == self.max_new_tokens

    def which_ids(self, size) -> np.ndarray:
        """Return which of `size` ids each prompt has, bool `[B, V]`."""
        in_text = np.zeros((len(self.ids), size), bool)
        for row, ids, length in zip(in_text, self.ids, self.prompt_lengths, strict=True):
            row[ids[:length]] = True
        return in_text

    def known(self, t, n) -> np.ndarray:
        """Return the ids of n columns from t on, `[B, n]`; -1 where one is to be sampled."""
        self._make_room(t + n)
        is_known = np.arange(t, t + n) < np.maximum(self.prompt_lengths, self.num_done)[:, None]
        return np.where(is_known, self.ids[:, t : t + n], -1)

    def fill(self, t, ids) -> None:
        """Write columns `[B, n]` from t on."""
        if (ids == -1).any():
            raise not_finite()
        end = t + ids.shape[1]
        self._make_room(end)
        self.ids[:, t:end] = ids
        self.num_done = max(self.num_done, end)

    def new_columns(self):
        """Yield the new ids `[B, n]` that all rows have and that were not yielded yet."""
        have_ended = (self.ids[:, self.num_done - 1] == ENDED).all()
        if have_ended:  # as many columns as the row of the shortest prompt is ahead
            ahead = min(self.longest - int(self.prompt_lengths.min()), self.end - self.num_done)
            self.fill(self.num_done, np.full((len(self.ids), ahead), ENDED, "int32"))
        count = self.num_done - self.longest
        if count > self.num_emitted:
            rows = zip(self.ids, self.prompt_lengths, strict=True)
            yield np.stack([row[length + self.num_emitted : length + count] for row, length in rows])
            self.num_emitted = count
        while have_ended and not self.are_complete:
            n = min(ROOM, self.max_new_tokens - self.num_emitted)
            yield np.full((len(self.ids), n), ENDED, "int32")
            self.num_emitted += n

    def _make_room(self, count):
        """Have at least `count` columns; twice as many as before, where there were fewer."""
        columns = self.ids.shape[1]
        if count > columns:
            self.ids = np.pad(self.ids, ((0, 0), (0, max(count, columns))))


def cache_start(t: int, context_length: float) -> int:
    """Return the position of the first id that id t is sampled from."""
    stride = cache_stride(context_length)
    return 0 if t <= context_length else -(-(t - context_length) // stride) * stride


def cache_stride(context_length):
    """Return how many positions a cache starts after the one before it."""
    return max(1, context_length // 2)


def cache_capacity(num_ids: int) -> int:
    """Return the slots of a cache for so many ids: a power of two, so that few sizes are compiled."""
    return max(MIN_CAPACITY, 1 << (int(num_ids) - 1).bit_length())


def initial_state(model, batch_size: int, capacity: int):
    """Return the state of B rows; the capacity counts where it is limited."""
    return model.get_initial_state(batch_size, *(() if model.context_length is None else (capacity,)))


def check_ids(ids: list[int], number_of_ids: int) -> None:
    """Raise a ValueError unless a prompt is a list of at least one id of the vocabulary."""
    if not isinstance(ids, list) or not all(isinstance(id, numbers.Integral) for id in ids):
        raise ValueError(f"ids={ids!r:.80}; expected a list of ids.")
    if not ids:
        raise ValueError("The prompt is empty; expected at least one id.")
    tensor_checks.ids_below("ids", ids, number_of_ids)


def check_fits(prompt_length: int, max_new_tokens: int, context_length: float | None, name: str) -> None:
    """Raise a ValueError unless a prompt and the new ids fit into a model's context."""
    if context_length is not None and prompt_length + max_new_tokens > context_length:
        raise ValueError(
            f"The prompt and the new text have {prompt_length} + {max_new_tokens} ids; expected at most "
            f"context_length={context_length} of {name}."
        )


def not_finite() -> ValueError:
    """Return the error for logits that are NaN or infinite."""
    return ValueError("The model's logits are not finite: its weights have diverged; use an earlier checkpoint.")


def _steps_first(rows):
    """Transpose rows `[B, n]` and pad them with zeros to `[STEPS_PER_CALL, B]`."""
    return np.pad(rows.T, ((0, STEPS_PER_CALL - rows.shape[1]), (0, 0)))
