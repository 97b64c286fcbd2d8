"""Sample with the help of a small draft model: the same distribution in fewer passes of the large one.

    draft    proposes x_1 .. x_k, with the probabilities q_1 .. q_k
    model    reads all of them in one pass: p_1 .. p_{k + 1}
    accept   x_i with probability min(1, p_i(x_i) / q_i(x_i)), up to the first that is not; then draw one more id,
             from max(0, p_i - q_i), normalized, in place of x_i, or from p_{k + 1} if all were accepted

Leviathan et al. (2023), arXiv:2211.17192; Chen et al. (2023), arXiv:2302.01318. All rounds of a text are one compiled
loop over arrays of constant shapes. Both models read the id before x_1 and x_1 .. x_k, and forget what was refused:

    key/value caches    are rewound: slots from position n on become empty, the position counter becomes n
    other states        are values: that from before the round reads the accepted ids, followed by padding

Ids of the prompt that were not read before the loop are proposals of probability 1.
"""

import dataclasses
from collections.abc import Mapping

import keras
import numpy as np
from keras import ops, tree

from keras_seq import checks
from keras_seq.generation.samplers import SamplingConfig, draw, probabilities
from keras_seq.generation.sampling_loop import (
    PREFILL_CHUNK,
    cache_capacity,
    check_fits,
    check_ids,
    initial_state,
    not_finite,
)
from keras_seq.layers.introspection import iter_layers, vocabulary_size
from keras_seq.ops.compiled import compiled, traced
from keras_seq.random_draws import uniform_draws


def accept(proposals, q, p, uniform):
    """Return how many of proposals `[B, k]` are accepted, and the ids that follow them, both `[B]`.

    The probabilities are q `[B, k, V]` and p `[B, k + 1, V]`; `uniform [B, k + 1]` are the draws.
    """

    def of_proposals(rows):
        return ops.take_along_axis(rows, proposals[:, :, None], axis=2)[:, :, 0]

    is_accepted = uniform[:, :-1] * of_proposals(q) < of_proposals(p[:, :-1])
    count = ops.sum(ops.cumprod(ops.cast(is_accepted, "int32"), axis=1), axis=1)
    # p and q at the first place that was not accepted, [B, V]; after the last proposal q is 0
    at_count = ops.arange(p.shape[1], dtype="int32") == count[:, None]
    p, q = (ops.sum(ops.where(at_count[:, :, None], x, 0), axis=1) for x in (p, ops.pad(q, ((0, 0), (0, 1), (0, 0)))))
    rest = ops.maximum(p - q, 0)
    following = draw(ops.where(ops.any(rest > 0, axis=1, keepdims=True), rest, p), uniform[:, -1])
    return ops.cast(count, "int32"), ops.where(ops.isfinite(ops.sum(p + q, axis=1)), following, -1)


def _certain(p, known):
    """Return p `[T, V]` with probability 1 for ids that are known, `[T]`, -1 where they are not."""
    return ops.where(known[:, None] >= 0, ops.cast(known[:, None] == ops.arange(p.shape[1], dtype="int32"), p.dtype), p)


@dataclasses.dataclass(frozen=True)
class Speculation:
    """New ids, and how many passes of the model they took."""

    ids: list[int]
    model_calls: int


class SpeculativeLoop:
    """Sample ids after a prompt, as `SamplingLoop` does, with proposals of a draft model; both are compiled once.

    ```python
    speculation = SpeculativeLoop(model, draft)(ids, max_new_tokens=100)
    ```

    Args:
        model: A `LanguageModel`.
        draft: A smaller `LanguageModel` of the same vocabulary.
        num_draft_tokens: k, at least 1.

    Raises:
        ValueError: One is no `LanguageModel`, the vocabularies differ, or k is out of its range.
    """

    def __init__(self, model, draft, num_draft_tokens: int = 4):
        checks.positive_integer("num_draft_tokens", num_draft_tokens)
        for each in (model, draft):
            if not hasattr(each, "hidden_states") and not hasattr(each, "members"):
                raise ValueError(f"{each!r}; expected a LanguageModel of Keras, or an Ensemble, to draft and to check.")
        if vocabulary_size(model) != vocabulary_size(draft):
            raise ValueError(
                f"The draft has {vocabulary_size(draft)} ids, the model {vocabulary_size(model)}; expected the same."
            )
        self.models, self.num_draft_tokens = (model, draft), num_draft_tokens
        self._readers = [_Reader(each) for each in self.models]
        self._sample_fn = compiled(self._sample, self, jit_compile=True)

    @property
    def variables(self):
        """Variables of both models."""
        return [variable for model in self.models for variable in model.variables]

    def __call__(
        self, ids: list[int], max_new_tokens: int, sampling: SamplingConfig | None = None, seed: int = 0
    ) -> Speculation:
        """Return new ids.

        Args:
            ids: The prompt, at least one id; with `max_new_tokens` more, at most the context length of both models.
            max_new_tokens: Ids to sample, at least 0.
            sampling: A `SamplingConfig` without `repetition_penalty`; None samples at temperature 1. At temperature 0
                the ids are those of greedy search.
            seed: Seed of the draws, which are others than those of `SamplingLoop`.

        Raises:
            ValueError: There are too many ids, an argument is out of its range, or logits are not finite.
        """
        sampling = SamplingConfig() if sampling is None else sampling
        checks.non_negative_integer("seed", seed)
        self._check(ids, max_new_tokens, sampling)
        k, start, end = self.num_draft_tokens, len(ids), len(ids) + max_new_tokens
        capacity = cache_capacity(end)
        text = np.full(capacity + k, -1, "int32")  # -1: not known yet
        text[:start] = ids
        num_read = (start - 1) // PREFILL_CHUNK * PREFILL_CHUNK
        states = [reader.initial_state(text[:num_read], capacity, k) for reader in self._readers]
        draws = uniform_draws(seed, 0, (2 * k + 1) * capacity).reshape(capacity, 2 * k + 1)
        limits = np.array([num_read + 1, start, end], "int32")
        text, model_calls = map(ops.convert_to_numpy, self._sample_fn(states, text, limits, draws, sampling.options))
        if (text[start:end] == -1).any():
            raise not_finite()
        return Speculation(text[start:end].tolist(), int(model_calls))

    def _sample(self, states, text, limits, draws, options):
        """Run rounds until `text` is full; return it and the number of rounds that had new ids in it."""
        t, start, end = limits[0], limits[1], limits[2]

        def one_round(t, n, model_calls, states, text):
            states, new, count = self._round(states, text, t, draws[n], options)
            text, t = ops.slice_update(text, (t,), new), t + count
            return t, n + 1, model_calls + ops.cast(t > start, "int32"), states, text

        zero = ops.zeros((), "int32")
        loop_vars = ops.while_loop(lambda t, *_: t < end, one_round, (t, zero, zero, states, text))
        return loop_vars[-1], loop_vars[2]

    def _round(self, states, text, t, uniform, options):
        """Return the states that have read ids up to the last but one, ids from t on `[k + 1]`, and their number."""
        (reader, proposer), k = self._readers, self.num_draft_tokens
        known = ops.slice(text, (t,), (k + 1,))

        def propose(n, loop_vars):
            state, ids, q = loop_vars
            logits, state = proposer.read(ops.slice(ids, (0, n), (1, 1)), state, t - 1 + n)
            row = _certain(probabilities(logits[0], options), known[n][None])
            ids = ops.slice_update(ids, (0, n + 1), draw(row, uniform[n][None])[:, None])
            return state, ids, ops.slice_update(q, (n, 0), row)

        # the id before t, and room for k + 1 proposals: one more than counts, so that the draft reads the k-th
        ids = ops.pad(ops.maximum(ops.slice(text, (t - 1,), (1,)), 0)[None], ((0, 0), (0, k + 1)))  # [1, k + 2]
        q = ops.zeros((k + 1, vocabulary_size(self.models[0])))
        proposed, ids, q = ops.fori_loop(0, k + 1, propose, (states[1], ids, q))
        ids = ids[:, :-1]  # [1, k + 1]
        logits, verified = reader.read(ids, states[0], t - 1)
        p = _certain(probabilities(logits[0], options), known)
        count, following = accept(ids[:, 1:], q[None, :-1], p[None], uniform[None, k:])
        number = ops.arange(k + 1, dtype="int32")
        new = ops.where(number < count, ops.pad(ids[0, 1:], (0, 1)), ops.where(number == count, following, -1))
        count = count[0] + 1
        states = [
            each.state_after(ids, before, after, count)
            for each, before, after in zip(self._readers, states, (verified, proposed), strict=True)
        ]
        return states, new, count

    def _check(self, ids, max_new_tokens, sampling):
        checks.non_negative_integer("max_new_tokens", max_new_tokens)
        if not isinstance(sampling, SamplingConfig):
            raise ValueError(f"sampling={sampling!r:.80}; expected a SamplingConfig or None.")
        if sampling.repetition_penalty is not None:
            raise ValueError(f"repetition_penalty={sampling.repetition_penalty}; expected None with a draft model.")
        check_ids(ids, vocabulary_size(self.models[0]))
        for model in self.models:
            check_fits(len(ids), max_new_tokens, model.context_length, model.name)


class _Reader:
    """Read ids `[1, T]` with a model; T is constant in compiled code, where the number of ids that count is not."""

    def __init__(self, model):
        self.model = model
        self._prefill_fn = compiled(lambda ids, state: self._read(ids, state, None)[1], model)
        self._traced_read = traced(self._read, model)

    def initial_state(self, ids, capacity, free_slots):
        """Return the state after ids `[T]`, a multiple of PREFILL_CHUNK."""
        state = with_free_slots(initial_state(self.model, 1, capacity), free_slots)
        for chunk in ids.reshape(-1, 1, PREFILL_CHUNK):
            state = self._prefill_fn(chunk, state)
        return state

    def read(self, ids, state, position):
        """Return logits `[1, T, V]` and the next state; positions past the context length count as padding."""
        limit = self.model.context_length
        return self._traced_read()(ids, state, *(() if limit is None else (limit - position,)))

    def state_after(self, ids, before, after, count):
        """Return the state after the first `count` of the ids that were read between two states."""
        if not can_rewind(self.model, after):
            after = ops.cond(count == ids.shape[1], lambda: after, lambda: self._traced_read()(ids, before, count)[1])
        return rewound(before, after, count)

    def _read(self, ids, state, count=None):
        mask = None if count is None else (ops.arange(ids.shape[1], dtype="int32") < count)[None]
        logits, after = self.model(ids, state=state, training=False, return_state=True, mask=mask)
        return logits, tree.map_structure(lambda new, old: ops.reshape(new, old.shape), after, state)  # static shapes


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
        longer = dict(part)
        for name in part.keys() - {"length"}:
            pads = ((0, 0), (0, count), *[(0, 0)] * (len(part[name].shape) - 2))
            longer[name] = ops.pad(part[name], pads, constant_values=-1 if name == "position" else 0)
        return longer

    return tree.traverse(extend, state)


def _is_cache(part):
    return isinstance(part, Mapping) and "position" in part


def _is_integer(x):
    return "int" in keras.backend.standardize_dtype(x.dtype)
