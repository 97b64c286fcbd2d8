"""Tables of final figures as Markdown that reads as plain text too, and what they say in words."""

import math
import pathlib
import statistics
import sys

from experiments.shell import command

COLUMNS = {
    "model": lambda row: row["model"],
    "seed": lambda row: str(row["seed"]),
    "parameters": lambda row: f"{row['parameters']:,}",
    "training tokens": lambda row: f"{row['train_tokens']:,}",
    "TFLOP": lambda row: tera(row["train_flops"]),
    "seconds": lambda row: f"{row['train_seconds']:.0f}",
    "tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
    "training nats": lambda row: f"{row['train_loss_per_character']:.3f}",
    "cold nats": lambda row: f"{row['val_loss_per_character']:.3f}",
    "cold bits": lambda row: f"{row['bits_per_character']:.3f}",
    "warm nats": lambda row: f"{row['val_loss_per_character_streaming']:.3f}",
    "warm bits": lambda row: f"{row['val_bits_per_character_streaming']:.3f}",
    "perplexity": lambda row: f"{row['val_perplexity']:.2f}",
    "per word": lambda row: perplexity(row["val_word_perplexity"]),
}
LEFT = {"model", "width", "dates in", "format", "for example", "text", "without training", "step", "what", "cause"}
CLOSEST = 1.05  # parameter counts further apart than this are pointed out


def table(rows) -> str:
    """A Markdown table, aligned so that it reads as plain text too."""
    return aligned([list(COLUMNS), *[[show(row) for show in COLUMNS.values()] for row in rows]])


def aligned(lines) -> str:
    """A Markdown table from its cells, the header first."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = [name in LEFT for name in lines[0]]
    rule = ["-" * width if is_left else "-" * (width - 1) + ":" for width, is_left in zip(widths, left, strict=True)]

    def line(cells):
        padded = [c.ljust(w) if is_left else c.rjust(w) for c, w, is_left in zip(cells, widths, left, strict=True)]
        return f"| {' | '.join(padded)} |"

    return "\n".join(map(line, [lines[0], rule, *lines[1:]]))


def spread(rows) -> str:
    """Mean and standard deviation over the seeds of each model."""
    digits = {f"{kind}_per_character": 3 for kind in ("val_loss", "val_loss_streaming", "bits")} | {"train_seconds": 0}
    lines = [["model", "seeds", "cold nats", "warm nats", "cold bits", "seconds"]]
    for model in dict.fromkeys(row["model"] for row in rows):
        mine = [row for row in rows if row["model"] == model]
        cells = [model, str(len(mine))]
        lines.append(cells + [plus_minus([row[name] for row in mine], places) for name, places in digits.items()])
    return aligned(lines)


def plus_minus(values, digits) -> str:
    """Mean ± standard deviation, the latter where there is more than one value."""
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"


def validated(train, validation, least) -> str:
    """What is scored when, as the end of a sentence; nothing where it is all of it every time.

    Raises:
        ValueError: `train.validation_characters` are fewer than `least`.
    """
    part, whole = len(train.validated_part(validation, least)), len(validation)
    if part == whole:
        return ""
    return f"; validating on the first {part:,} of {whole:,} characters during training, all of them at the end"


def tera(flops) -> str:
    """In units of 10^12: two decimals, or two digits of what is below one."""
    return f"{flops / 1e12:,.2f}" if flops >= 1e12 else f"{flops / 1e12:.2g}"


def perplexity(value) -> str:
    """In four digits at most; - where there is none."""
    return "-" if value is None else f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"


def sizes(counts) -> str:
    """Whether models with these numbers of parameters are of one size."""
    ratio = max(counts) / min(counts)
    size = f"The largest model has {ratio:.2f} times the parameters of the smallest"
    return f"{size}{'.' if ratio <= CLOSEST else ': more than the 5 % that count as equal here.'}"


def notes(rows) -> str:
    """What the columns mean, and whether the models are of one size."""
    contexts = ", ".join(str(c) for c in sorted({row["val_sequence_length"] for row in rows}))
    return (
        "Nats and bits are per character of the whole validation split. "
        f"cold: every window of {contexts} characters on its own, from the zero state. "
        "warm: the text from start to end, recurrent state carried; a Transformer's window moves by half its context. "
        "Perplexity: per character, and per word (between white space), both of the cold nats. TFLOP: training, by "
        "formula. " + sizes([row["parameters"] for row in rows])
    )


def thousands(value, position=None) -> str:
    """1,500,000 as 1.5 M."""
    if value == 0:
        return "0"
    power = min(2, int(math.log10(abs(value)) // 3))
    return f"{value / 1000**power:g}{('', ' k', ' M')[power]}"


def indented(text) -> str:
    """The text as a Markdown block that keeps its spaces."""
    return "\n".join("    " + line for line in text.splitlines())


def to_look(folder) -> str:
    """How to open the runs in TensorBoard."""
    beside = pathlib.Path(sys.executable).with_name("tensorboard")
    line = command(str(beside) if beside.exists() else "tensorboard", "--logdir", pathlib.Path(folder))
    return f"To look at the runs in TensorBoard:\n    {line}"
