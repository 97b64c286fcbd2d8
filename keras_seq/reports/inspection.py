"""Find what is inside a model, layer by layer, for the page and the plots.

lens       likeliest next token after each token
memory     accuracy of linear probes for the token d positions ago, in random texts
effects    of patching the layer at a position from a source text, on the prediction after the last token
"""

import dataclasses

import numpy as np

from keras_seq.generation.search import log_softmax
from keras_seq.interpretability import (
    induction_score,
    logit_lens,
    patching_effects,
    prefix_matching_scores,
    probe_past_tokens,
    repeated_sequences,
)

DISTANCES = (0, 1, 2, 4, 8, 16)
MAX_DISTANCES_OF_CONTEXT = 0.5  # beyond, few positions have a token that long ago


@dataclasses.dataclass(frozen=True)
class Findings:
    """Hold what is known of a model and a text of T tokens; all dicts are by the name of the layer."""

    lens: dict[str, list[tuple[str, float]]]  # T pairs of a token and its probability
    induction: float
    repeat_length: int
    heads: dict[str, np.ndarray]  # prefix matching [H], of layers with attention
    memory: dict[str, dict[int, float]]  # by layer and distance
    memory_chance: float
    effects: dict[str, np.ndarray] | None = None  # [T]

    @property
    def best_head(self) -> tuple[str, int, float] | None:
        """The layer and number, from 1, of the head with the most prefix matching, and how much."""
        if not self.heads:
            return None
        name = max(self.heads, key=lambda name: self.heads[name].max())
        return name, int(self.heads[name].argmax()) + 1, float(self.heads[name].max())

    def sentences(self) -> list[str]:
        """Return what induction and memory say."""
        change = f"{100 * abs(self.induction):.0f} % {'lower' if self.induction > 0 else 'higher'}"
        lines = [
            f"Induction score {self.induction:.2f}: where {self.repeat_length} random tokens are repeated, the loss is "
            f"{change} than the first time."
        ]
        if self.best_head:
            name, head, score = self.best_head
            equal = np.log(2) / self.repeat_length
            lines.append(
                f"Head {head} of {name} looks most at what followed the same token before: {score:.2f} of its "
                f"attention, where equal attention to all would be {equal:.2f}."
                if score > equal
                else f"No head looks at what followed the same token before: at most {score:.2f} of its attention, "
                f"where equal attention to all would be {equal:.2f}."
            )
        last = [*self.memory.values()][-1]
        far = max((d for d, accuracy in last.items() if accuracy >= 0.5), default=None)
        what = "no token" if far is None else "the present token" if far == 0 else f"the token {far} back"
        lines.append(
            f"After the last layer a linear probe can still tell {what} in at least half of all cases "
            f"(chance: {100 * self.memory_chance:.0f} %)."
        )
        return lines


def find(model, tokenizer, ids: np.ndarray, source_ids: np.ndarray | None = None) -> Findings:
    """Look inside a model.

    Args:
        model: A `LanguageModel`.
        tokenizer: Its tokenizer.
        ids: The text, `[T]`.
        source_ids: Another text of the same length, to patch from; or None.
    """
    effects = None if source_ids is None else patching_effects(model, ids, source_ids)
    repeated = repeated_sequences(model)
    limit = MAX_DISTANCES_OF_CONTEXT * (model.context_length or np.inf)
    memory = probe_past_tokens(model, [d for d in DISTANCES if d <= limit])
    return Findings(
        {name: _likeliest(logits[0], tokenizer) for name, logits in logit_lens(model, ids[None]).items()},
        induction_score(model, repeated),
        repeated.shape[1] // 2,
        prefix_matching_scores(model, repeated),
        {name: {d: score.accuracy for d, score in scores.items()} for name, scores in memory.items()},
        float(np.mean([score.chance for scores in memory.values() for score in scores.values()])),
        effects,
    )


def _likeliest(logits, tokenizer):
    log_p = log_softmax(logits)
    return [(tokenizer.decode([int(row.argmax())]), float(np.exp(row.max()))) for row in log_p]
