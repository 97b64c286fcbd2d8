"""Markdown tables of final results, readable as plain text too, and the notes below them."""

import math
import os
import pathlib
import statistics
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from experiments.frame.shell import command

if TYPE_CHECKING:  # benchmark_gpu runs where there is no TensorFlow
    from keras_seq.training import TrainConfig

COLUMNS = {
    "model": lambda row: row["model"],
    "seed": lambda row: str(row["seed"]),
    "parameters": lambda row: f"{row['parameters']:,}",
    "train tokens": lambda row: f"{row['train_tokens']:,}",
    "train TFLOP": lambda row: tera(row["train_flops"]),
    "train seconds": lambda row: f"{row['train_seconds']:.0f}",
    "tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
    "train loss": lambda row: f"{row['train_loss_per_character']:.3f}",
    "val_loss": lambda row: f"{row['val_loss_per_character']:.3f}",
    "val bits/char": lambda row: f"{row['val_bits_per_character']:.3f}",
    "val_loss_streaming": lambda row: f"{row['val_loss_per_character_streaming']:.3f}",
    "val bits/char streaming": lambda row: f"{row['val_bits_per_character_streaming']:.3f}",
    "perplexity": lambda row: f"{row['val_perplexity']:.2f}",
    "perplexity/word": lambda row: perplexity(row["val_word_perplexity"]),
}
LEFT_ALIGNED = {
    "model",
    "width",
    "baseline",
    "case",
    "change",
    "description",
    "method",
    "step",
    "text",
    "format",
    "example",
}
MAX_PARAMETER_RATIO = 1.05  # models whose parameter counts differ more are pointed out


def table(rows: Sequence[dict]) -> str:
    """Return the table of `COLUMNS`, a line for each result."""
    return markdown_table([list(COLUMNS), *[[cell(row) for cell in COLUMNS.values()] for row in rows]])


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, padded so that it is aligned as plain text too.

    Args:
        lines: Cells by line, the header first. Columns named in `LEFT_ALIGNED` are left-aligned.
    """
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = [name in LEFT_ALIGNED for name in lines[0]]
    rule = ["-" * width if is_left else "-" * (width - 1) + ":" for width, is_left in zip(widths, left, strict=True)]

    def line(cells):
        padded = [c.ljust(w) if is_left else c.rjust(w) for c, w, is_left in zip(cells, widths, left, strict=True)]
        return f"| {' | '.join(padded)} |"

    return "\n".join(map(line, [lines[0], rule, *lines[1:]]))


def seeds_table(rows: Sequence[dict]) -> str:
    """Return a table with mean and standard deviation over the seeds of each model."""
    columns = {
        "val_loss": ("val_loss_per_character", 3),
        "val_loss_streaming": ("val_loss_per_character_streaming", 3),
        "val bits/char": ("val_bits_per_character", 3),
        "train seconds": ("train_seconds", 0),
    }
    lines = [["model", "seeds", *columns]]
    for model in dict.fromkeys(row["model"] for row in rows):
        model_rows = [row for row in rows if row["model"] == model]
        cells = [plus_minus([row[key] for row in model_rows], digits) for key, digits in columns.values()]
        lines.append([model, str(len(model_rows)), *cells])
    return markdown_table(lines)


def plus_minus(values: Sequence[float], digits: int) -> str:
    """Return mean ± standard deviation, without the latter for a single value.

    Args:
        values: One or more numbers.
        digits: Decimals of both.
    """
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


def validation_note(train: "TrainConfig", validation: Sequence, least: int) -> str:
    """Return, as the end of a sentence, which part of the validation text is scored during training; "" for all of it.

    Args:
        train: Options of training.
        validation: Validation text, or its ids.
        least: Fewest characters that can be scored.

    Raises:
        ValueError: `train.validation_characters` is less than `least`.
    """
    part, total = len(train.validated_part(validation, least)), len(validation)
    if part == total:
        return ""
    return f"; validating on the first {part:,} of {total:,} characters during training, on all of them at the end"


def tera(flops: float) -> str:
    """Format a number of operations in units of 10^12: with two decimals, or two significant digits below one."""
    return f"{flops / 1e12:,.2f}" if flops >= 1e12 else f"{flops / 1e12:.2g}"


def perplexity(value: float | None) -> str:
    """Format a perplexity without decimals, in scientific notation from 10^6 on; None as "-"."""
    return "-" if value is None else f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"


def sizes(counts: Sequence[int]) -> str:
    """Return a sentence that compares the largest and the smallest of the numbers of parameters."""
    ratio = max(counts) / min(counts)
    size = f"The largest model has {ratio:.2f} times the parameters of the smallest"
    return f"{size}{'.' if ratio <= MAX_PARAMETER_RATIO else ': more than the 5 % that count as equal here.'}"


def column_notes(rows: Sequence[dict]) -> str:
    """Return the definitions and units of the columns of `table`, and a comparison of the models' sizes."""
    lengths = ", ".join(str(length) for length in sorted({row["val_sequence_length"] for row in rows}))
    return (
        "Losses are in nats per character of the whole validation split. "
        f"val_loss: disjoint windows of {lengths} characters, each from the zero state. "
        "val_loss_streaming: the text from start to end; recurrent models carry their state, Transformers use a "
        "sliding window that advances by half its length. "
        "perplexity, perplexity/word: exp of val_loss per character, and per word (separated by whitespace). "
        "train TFLOP: training operations, by formula. " + sizes([row["parameters"] for row in rows])
    )


def thousands(value: float, position: int | None = None) -> str:
    """Format 1,500,000 as 1.5 M, for tick labels.

    Args:
        value: The number.
        position: Index of the tick; matplotlib passes it, and it is not used.
    """
    if value == 0:
        return "0"
    power = min(2, int(math.log10(abs(value)) // 3))
    return f"{value / 1000**power:g}{('', ' k', ' M')[power]}"


def indented(text: str) -> str:
    """Return the text as an indented Markdown code block."""
    return "\n".join("    " + line for line in text.splitlines())


def tensorboard_hint(folder: str | os.PathLike[str]) -> str:
    """Return the command line that opens the runs of a folder in TensorBoard."""
    installed = pathlib.Path(sys.executable).with_name("tensorboard")
    line = command(str(installed) if installed.exists() else "tensorboard", "--logdir", pathlib.Path(folder))
    return f"To view the runs in TensorBoard:\n    {line}"
