"""Sample with the help of a small draft model: the same distribution in fewer passes of the large one.

    draft    proposes x_1 .. x_k, with the probabilities q_1 .. q_k
    model    reads all of them in one pass: p_1 .. p_{k + 1}
    accept   x_i with probability min(1, p_i(x_i) / q_i(x_i)), up to the first that is not; then draw one more id,
             from max(0, p_i - q_i), normalized, in place of x_i, or from p_{k + 1} if all were accepted

Leviathan et al. (2023), arXiv:2211.17192; Chen et al. (2023), arXiv:2302.01318. States are values, so nothing has to be
rolled back: an LSTM or Mamba can be the draft, the model, or both. Ids that a state has not read yet are read with the
next proposals, or before them once they are many.
"""

import dataclasses

import numpy as np
from keras import ops

from keras_seq import checks
from keras_seq.generation.philox import uniform_draws
from keras_seq.generation.samplers import SamplingConfig, probabilities
from keras_seq.generation.sampling_loop import MIN_CAPACITY, not_finite
from keras_seq.kernels.compiled import compiled
from keras_seq.layers.introspection import vocabulary_size

MAX_UNREAD = 8  # accepted ids that are read again with the next proposals


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
        ValueError: The vocabularies differ, or k is out of its range.
    """

    def __init__(self, model, draft, num_draft_tokens: int = 4):
        checks.positive_integer("num_draft_tokens", num_draft_tokens)
        if vocabulary_size(model) != vocabulary_size(draft):
            raise ValueError(
                f"The draft has {vocabulary_size(draft)} ids, the model {vocabulary_size(model)}; expected the same."
            )
        self.models, self.num_draft_tokens = (model, draft), num_draft_tokens
        self._reads = [_compiled_read(each) for each in self.models]

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
        sampling = sampling or SamplingConfig()
        self._check(ids, max_new_tokens, sampling)
        reader, proposer = (
            _Reader(read, _initial_state(model, len(ids) + max_new_tokens), sampling.options, ids)
            for read, model in zip(self._reads, self.models, strict=True)
        )
        most = self.num_draft_tokens
        draws = uniform_draws(seed, 0, (2 * most + 1) * max_new_tokens).reshape(max_new_tokens, 2 * most + 1)
        new, model_calls = [], 0
        while len(new) < max_new_tokens:
            k = min(most, max_new_tokens - len(new) - 1)
            draft_draws, rest = np.split(draws[model_calls], [most])
            proposals, q = proposer.propose(draft_draws[:k])
            count, following = accept(proposals, q, reader.verify(proposals), [*rest[:k], rest[-1]])
            accepted = [*proposals[:count], following]
            reader.append(accepted, all_read=count == k)
            proposer.append(accepted)
            new += accepted
            model_calls += 1
        return Speculation(new, model_calls)

    def _check(self, ids, max_new_tokens, sampling):
        checks.non_negative_integer("max_new_tokens", max_new_tokens)
        if sampling.repetition_penalty is not None:
            raise ValueError(f"repetition_penalty={sampling.repetition_penalty}; expected None with a draft model.")
        if not len(ids):
            raise ValueError("The prompt is empty; expected at least one id.")
        checks.ids_below("ids", ids, vocabulary_size(self.models[0]))
        for model in self.models:
            if model.context_length is not None and len(ids) + max_new_tokens > model.context_length:
                raise ValueError(
                    f"The prompt and the new text have {len(ids)} + {max_new_tokens} tokens; with a draft model, "
                    f"expected at most context_length={model.context_length} of {model.name}."
                )


def accept(proposals, q, p, uniform) -> tuple[int, int]:
    """Return how many proposals are accepted, and the id that follows them.

    Args:
        proposals: k ids, drawn from the rows of q.
        q: Probabilities of the draft, `[k, V]`.
        p: Probabilities of the model, `[k + 1, V]`.
        uniform: `[k + 1]` draws in [0, 1); the last is that of the id that follows.
    """
    for n, (x, draw) in enumerate(zip(proposals, uniform, strict=False)):
        if draw * q[n, x] >= p[n, x]:
            rest = np.maximum(p[n] - q[n], 0)
            return n, _draw(rest if rest.any() else p[n], uniform[-1])
    return len(proposals), _draw(p[-1], uniform[-1])


def _compiled_read(model):
    def read(ids, state, options):
        logits, state = model(ids, state=state, training=False, return_state=True)
        return probabilities(logits[0], options), state

    return compiled(read, model, reduce_retracing=True)


def _initial_state(model, length):
    capacity = max(MIN_CAPACITY, 1 << (length - 1).bit_length())
    return model.get_initial_state(1, *(() if model.context_length is None else (capacity,)))


class _Reader:
    """The state of a model after the ids that it has read for good, and the ids that come after them."""

    def __init__(self, read, state, options, ids):
        self._read, self._options = read, options
        self.state, self.unread = state, list(ids)

    def read(self, ids, state):
        p, state = self._read(np.array([ids], "int32"), state, self._options)
        p = ops.convert_to_numpy(p)
        if not np.isfinite(p).all():
            raise not_finite()
        return p, state

    def propose(self, draws):
        """Read what is unread for good, and draw ids after it; return them and their probabilities `[k, V]`."""
        proposals, q = [], []
        if len(draws):
            p, self.state = self.read(self.unread, self.state)
            state, self.unread = self.state, []
        for n, draw in enumerate(draws):
            if n:
                p, state = self.read(proposals[-1:], state)
            q.append(p[-1])
            proposals.append(_draw(p[-1], draw))
        return proposals, np.array(q)

    def verify(self, proposals):
        """Return the probabilities of each proposal and of what follows the last, `[k + 1, V]`."""
        if len(self.unread) > MAX_UNREAD:
            _, self.state = self.read(self.unread[:-1], self.state)
            self.unread = self.unread[-1:]
        p, self._after = self.read(self.unread + proposals, self.state)
        return p[-len(proposals) - 1 :]

    def append(self, ids, all_read=False):
        """Append accepted ids; all but the last have been read for good if no proposal was refused."""
        if all_read:
            self.state, self.unread, ids = self._after, [], ids[-1:]
        self.unread = self.unread + ids


def _draw(p, uniform) -> int:
    """Return the first id at which the cumulative probability exceeds `uniform`; p need not sum to 1."""
    cumulative = np.cumsum(p, dtype="float64")
    return int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
