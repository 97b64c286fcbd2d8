"""Tables of a comparison, and the definitions of their columns."""

import math
from collections.abc import Sequence

from experiments.common.reports import Table, perplexity, plus_minus, tera
from experiments.common.texts import compare_sizes
from experiments.compare.findings import ComparisonResults

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
MEANS = {  # label: key of the rows and decimals
    "train loss": ("train_loss_per_character", 3),
    "val_loss": ("val_loss_per_character", 3),
    "val_loss_streaming": ("val_loss_per_character_streaming", 3),
    "train seconds": ("train_seconds", 0),
}


def results_table(results: ComparisonResults) -> Table:
    """Return the main results of each model: means and standard deviations over its seeds."""
    rows = []
    for model in results.models:
        seeds = results.for_model(model)
        means = [plus_minus([row[key] for row in seeds], digits) for key, digits in MEANS.values()]
        rows.append([model, f"{seeds[0]['parameters']:,}", *means])
    return Table(["model", "parameters", *MEANS], rows)


def all_results_table(results: ComparisonResults) -> Table:
    """Return every result of every run, a column for each run."""
    table = Table.of(results.rows, COLUMNS)
    header, *rows = zip(table.header, *table.rows, strict=True)
    return Table(header, rows)


def differences_table(results: ComparisonResults) -> Table:
    """Return a table of the differences of each later model to the first one."""
    columns = {
        "model": lambda item: item[0],
        f"difference to {results.models[0]}": lambda item: f"{item[1].mean:+.4f}",
        "95 % interval": lambda item: f"{item[1].low:+.4f} to {item[1].high:+.4f}",
        "more than chance": lambda item: "yes" if item[1].significant else "no",
    }
    return Table.of([*results.differences.items()], columns)


def baselines_table(results: ComparisonResults) -> Table:
    """Return a table of the losses of the baselines, in nats and bits per character of the validation text."""
    columns = {
        "baseline": lambda b: b.name,
        "loss": lambda b: f"{b.loss_per_character:.3f}",
        "bits": lambda b: f"{b.loss_per_character / math.log(2):.3f}",
    }
    return Table.of(results.baselines, columns)


def column_notes(rows: Sequence[dict]) -> str:
    """Return the definitions and units of the columns, and a comparison of the models' sizes."""
    lengths = ", ".join(str(length) for length in sorted({row["val_sequence_length"] for row in rows}))
    return (
        "Losses are in nats per character of the whole validation split. "
        f"val_loss: disjoint windows of {lengths} characters, each from the zero state. "
        "val_loss_streaming: the text from start to end; recurrent models carry their state, Transformers use a "
        "sliding window that advances by half its length. "
        "perplexity, perplexity/word: exp of val_loss per character, and per word (separated by whitespace). "
        "train TFLOP: training operations, by formula. " + compare_sizes([row["parameters"] for row in rows])
    )
