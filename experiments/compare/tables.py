"""Tables of a comparison, for the terminal, compare.md and compare.html."""

import math

from experiments.compare.findings import ComparisonResults
from experiments.frame.report import COLUMNS
from experiments.frame.tables import Table, plus_minus

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
    """Return the differences in val_loss of each later model to the first one."""
    return Table.of(
        [*results.differences().items()],
        {
            "model": lambda item: item[0],
            f"difference to {results.models[0]}": lambda item: f"{item[1].mean:+.4f}",
            "95 % interval": lambda item: f"{item[1].low:+.4f} to {item[1].high:+.4f}",
            "significant": lambda item: "yes" if item[1].significant else "no",
        },
    )


def baselines_table(results: ComparisonResults) -> Table:
    """Return the losses of the baselines in nats and bits per character of the validation text."""
    losses = [(baseline.name, baseline.loss_per_character) for baseline in results.baselines]
    return Table(["baseline", "loss", "bits"], [[name, f"{x:.3f}", f"{x / math.log(2):.3f}"] for name, x in losses])
