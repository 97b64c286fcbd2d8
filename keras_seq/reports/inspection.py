"""Find what is inside a model, layer by layer, and show how it reads a text: an interactive page, and plots.

lens       likeliest next token after each token
memory     accuracy of linear probes for the token d positions ago, in random texts
effects    of patching the layer at a position from a source text, on the prediction after the last token

page.js shows what belongs to one position, from a `ModelTrace` as JSON; hover over a token to see predictions,
attention weights or activations. Plots have layers in rows, tokens of the text, or distances, in columns.
"""

import dataclasses
import pathlib
from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from keras_seq.generation.search import log_softmax
from keras_seq.interpretability import (
    induction_score,
    logit_lens,
    patching_effects,
    prefix_matching_scores,
    probe_past_tokens,
    repeated_sequences,
)
from keras_seq.interpretability.traces import (
    DIVERGING_COLORMAP,
    SEQUENTIAL_COLORMAP,
    SIGNAL_NAMES,
    ModelTrace,
    most_variable_units,
)
from keras_seq.reports.pages import describe_run, percent, render, run_label
from keras_seq.tokenizers.base import show_whitespace
from keras_seq.tracking.summaries import LABEL_STYLE, label

DISTANCES = (0, 1, 2, 4, 8, 16)
MAX_DISTANCES_OF_CONTEXT = 0.5  # beyond, few positions have a token that long ago
EFFECTS_TITLE = "Effect on the last prediction of a layer's output from the source text"
MAX_COLUMNS = 60  # of the text, from its end, that a plot can show


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
            subject, share = f"Head {head} of {name} looks most", f"{score:.2f}"
            if score <= equal:
                subject, share = "No head looks", f"at most {score:.2f}"
            lines.append(
                f"{subject} at what followed the same token before: {share} of its attention, where equal attention to "
                f"all would be {equal:.2f}."
            )
        if not self.memory:
            return lines
        last = [*self.memory.values()][-1]
        far = max((d for d, accuracy in last.items() if accuracy >= 0.5), default=None)
        what = "no token" if far is None else "the present token" if far == 0 else f"the token {far} back"
        lines.append(
            f"After the last layer a linear probe can still tell {what} in at least half of all cases "
            f"(chance: {100 * self.memory_chance:.0f} %)."
        )
        return lines


def find(model, tokenizer, ids: np.ndarray, source_ids: np.ndarray | None = None) -> Findings:
    """Look inside a `LanguageModel` that reads a text `[T]`; patch it from another one of the same length, if given."""
    effects = None if source_ids is None else patching_effects(model, ids, source_ids)
    repeated = repeated_sequences(model)
    limit = MAX_DISTANCES_OF_CONTEXT * (model.context_length or np.inf)
    memory = {}
    if tokenizer.vocabulary_size > 1:  # else there is nothing to tell apart
        memory = probe_past_tokens(model, [d for d in DISTANCES if d <= limit])
    return Findings(
        {name: _likeliest(logits[0], tokenizer) for name, logits in logit_lens(model, ids[None]).items()},
        induction_score(model, repeated),
        repeated.shape[1] // 2,
        prefix_matching_scores(model, repeated),
        {name: {d: score.accuracy for d, score in scores.items()} for name, scores in memory.items()},
        float(np.mean([score.chance for scores in memory.values() for score in scores.values()] or [1.0])),
        effects,
    )


def _likeliest(logits, tokenizer):
    log_p = log_softmax(logits)
    return [(tokenizer.decode([int(row.argmax())]), float(np.exp(row.max()))) for row in log_p]


def inspect_page(trace: ModelTrace, run: pathlib.Path, findings: Findings | None = None) -> str:
    """Return the page of what the model of a run computes, and what is inside of it."""
    title = f"What {describe_run(run)} computes for a text"
    tables = _tables(trace, findings) if findings else {}
    sentences = findings.sentences() if findings else ()
    data = _data(trace) | {"lens": findings.lens if findings else {}}
    return render("inspect", data, title=title, run=run_label(run), tables=tables, sentences=sentences)


def _tables(trace, findings):
    """Return the tables by title: column heads, and rows of a head and cells of a text and a number from -1 to 1."""
    memory = [(name, [(percent(p), p) for p in row.values()]) for name, row in findings.memory.items()]
    title = "Random tokens that a linear probe can read from each layer"
    tables = {title: (_distances(findings), memory)} if memory else {}
    if findings.effects:
        effects = [
            (name, [(f"{v:.2f}" if abs(v) >= 0.005 else "", max(-1, v)) for v in row])
            for name, row in findings.effects.items()
        ]
        tables[EFFECTS_TITLE] = ([show_whitespace(token) for token in trace.tokens], effects)
    return tables


def _distances(findings):
    return [f"{d} back" if d else "itself" for d in next(iter(findings.memory.values()), ())]


def _data(trace):
    """Return the data of the page, attention rounded to 5 decimals, activations to 3."""
    return {
        "tokens": trace.tokens,
        "top": trace.top_predictions(),
        "next": trace.next_token_ranks(),
        "attention": {
            name: [[_decimals(row[: t + 1], 5) for t, row in enumerate(head)] for head in maps]
            for name, maps in trace.attention.items()
        },
        "activations": {
            name: {letter: _decimals(signal, 3) for letter, signal in signals.items()}
            for name, signals in trace.activations.items()
        },
        "mostVariable": {
            name: int(most_variable_units(next(iter(signals.values())), 1)[0])
            for name, signals in trace.activations.items()
        },
        "signals": SIGNAL_NAMES,
    }


def _decimals(values, decimals):
    return np.round(np.asarray(values, "float64"), decimals).tolist()


def plot_findings(trace: ModelTrace, findings: Findings) -> Iterator[tuple[str, Figure]]:
    """Yield names and figures: lens, memory and, if there is a source text, patching."""
    tokens = [label(token) for token in trace.tokens[-MAX_COLUMNS:]]
    lens = {name: row[-MAX_COLUMNS:] for name, row in findings.lens.items()}
    title = "Likeliest next token, as the model's head reads each layer"
    values = [[p for _, p in row] for row in lens.values()]
    texts = [[label(token) for token, _ in row] for row in lens.values()]
    yield "lens", _heat_map(title, values, [*lens], tokens, texts, label="probability")
    if findings.memory:
        values = [[*row.values()] for row in findings.memory.values()]
        texts = [[percent(value) for value in row] for row in values]
        title = f"Random tokens that a linear probe reads from each layer (chance: {percent(findings.memory_chance)})"
        columns = _distances(findings)
        yield "memory", _heat_map(title, values, [*findings.memory], columns, texts, width=0.9, label="accuracy")
    if findings.effects:
        values = [row[-MAX_COLUMNS:] for row in findings.effects.values()]
        yield "patching", _heat_map(EFFECTS_TITLE, values, [*findings.effects], tokens, low=-1, label="effect")


def _heat_map(title, values, rows, columns, texts=None, width=0.0, low=0, label=""):
    values = np.clip(np.array(values), low, 1)
    longest = max([1, *(len(text) for row in texts or () for text in row)])
    width = max(width, 0.2, 0.075 * longest + 0.08)
    figure = Figure(figsize=(max(6.5, width * len(columns) + 2.2), 0.32 * len(rows) + 1.3), layout="constrained")
    axes = figure.subplots()
    colormap = DIVERGING_COLORMAP if low else SEQUENTIAL_COLORMAP
    image = axes.imshow(values, cmap=colormap, vmin=low, vmax=1, aspect="auto", origin="lower")
    for y, row in enumerate(texts or ()):
        for x, text in enumerate(row):
            color = "white" if values[y, x] > 0.6 else "black"
            axes.text(x, y, text, ha="center", va="center", color=color, **LABEL_STYLE)
    rotation = 90 if max(map(len, columns)) > 1 and width < 0.5 else 0
    axes.set_xticks(range(len(columns)), columns, rotation=rotation, **LABEL_STYLE)
    axes.set_yticks(range(len(rows)), rows, **LABEL_STYLE)
    axes.tick_params(length=0, pad=1)
    axes.spines[:].set_color("0.8")
    figure.colorbar(image, ax=axes, aspect=12, pad=0.01, label=label)
    figure.suptitle(title, fontsize=10)
    return figure
