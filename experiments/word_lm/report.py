"""Report of `experiments.word_lm`, with word_lm.png."""

import pathlib
from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import LogLocator

from experiments.frame import plots
from experiments.frame.report import Report, without_texts
from experiments.frame.tables import Table
from experiments.word_lm.findings import at_equal_positions, verdict
from keras_seq.training.metrics_logger import LOSS_KEYS

COLUMNS = {
    "windows": lambda row: row["windows"],
    "train seconds": lambda row: f"{row['train_seconds']:.0f}",
    "train tokens": lambda row: f"{row['train_tokens']:,}",
    "epochs": lambda row: f"{row['epochs']:.1f}",
    "best at tokens": lambda row: f"{row['best']['tokens']:,}",
    "best at epoch": lambda row: f"{row['best']['epochs']:.1f}",
    "perplexity": lambda row: f"{row['best']['perplexity']:.1f}",
    "perplexity, streaming": lambda row: f"{row['best']['perplexity_streaming']:.1f}",
    "perplexity/word": lambda row: f"{row['best']['val_word_perplexity']:.0f}",
    "val bits/char": lambda row: f"{row['best']['val_bits_per_character']:.3f}",
    "final train perplexity": lambda row: f"{row['train_perplexity']:.1f}",
    "final perplexity": lambda row: f"{row['perplexity']:.1f}",
}
UNKNOWN = "[UNK] is {train_oov_rate:.1%} of the training and {validation_oov_rate:.1%} of the validation split"
NOTES = (
    "perplexity: exp(val_loss per token), over disjoint windows of the validation split, each from the zero state; "
    "streaming: with the state carried from start to end. perplexity/word: exp(summed loss / number of words), where "
    "the sum includes spaces and punctuation. val bits/char: the summed loss over the number of characters. These "
    "metrics are of the validation with the lowest perplexity, the last two columns of the end of training. An unknown "
    "word is scored as the one token [UNK], without its letters, so val bits/char does not compare with that of a "
    "character model, nor with that of another --min-count."
)
IMAGE = "![Perplexity by tokens, and by epochs](word_lm.png)"


def word_lm_report(folder: pathlib.Path, info: dict, rows: Sequence[dict]) -> Report:
    """Plot the curves and return the report."""
    plot(folder, rows)
    header = ["after", *(f"{row['windows']}, {split}" for row in rows for split in LOSS_KEYS)]
    positions = at_equal_positions(folder, rows).items()
    return Report(
        f"A word-level model on {info['corpus']}, on disjoint and overlapping windows",
        verdict(rows),
        Table.of(rows, COLUMNS),
        ("windows", "best at tokens", "best at epoch", "perplexity", "final perplexity"),
        {**info, "runs": without_texts(rows)},
        f"{UNKNOWN.format(**info)}. {NOTES}",
        [Table(header, [[name, *(f"{value:.1f}" for value in values)] for name, values in positions]), IMAGE],
        {f"Sample of {row['run']}": row["sample"] for row in rows},
        runs=[folder / row["run"] for row in rows],
    )


def plot(folder: pathlib.Path, rows: Sequence[dict]):
    """Write word_lm.png: training and validation perplexity, by tokens on the left and by epochs on the right."""
    figure, panels = plots.subplots(1, 2, figsize=(11, 4.8), sharey=True)
    colors = plots.colors([f"{row['windows']} windows" for row in rows])
    point = {"linewidth": 2, "marker": "o", "markersize": 7}
    styles = {"training": {"alpha": 0.4, "linewidth": 1.3}, "validation, its minimum marked": point}
    highest, note = 0.0, plots.sample_note(folder / rows[0]["run"])
    for row, color in zip(rows, colors.values(), strict=True):
        for (split, key), style in zip(LOSS_KEYS.items(), styles.values(), strict=True):
            tokens, losses = plots.curve(folder / row["run"], key, split)
            style = {"color": color, "markevery": [int(np.argmin(losses))], **style}
            for axes, unit in zip(panels, (1, row["tokens_per_epoch"]), strict=True):
                axes.plot(np.divide(tokens, unit), np.exp(losses), **style)
        highest = max(highest, np.exp(losses[0]))
    panels[0].set(yscale="log", ylim=(None, 1.5 * highest), ylabel=f"perplexity{note} per token")
    panels[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panels[0].yaxis.set_major_formatter("{x:g}")
    panels[0].yaxis.set_minor_formatter("")
    plots.token_axis(panels[0])
    panels[1].set_xlabel("epochs")
    plots.legend(figure, colors, styles, loc="outside upper center", ncols=4)
    plots.save(figure, folder / "word_lm.png")
