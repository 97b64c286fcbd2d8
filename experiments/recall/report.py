"""Report of `experiments.recall`, with recall.png."""

import pathlib
from collections.abc import Sequence

from experiments.common.reports import Report, Table, without_texts
from experiments.recall.findings import find, verdict
from experiments.recall.plots import plot

COLUMNS = {
    "task": lambda f: f.task,
    "model": lambda f: f.model,
    "parameters": lambda f: f"{f.parameters:,}",
    "train seconds": lambda f: f"{f.seconds:.0f}",
    "length x items": lambda f: f"{f.hardest.length} x {f.hardest.items}",
    "accuracy": lambda f: str(f.hardest),
    "twice as long": lambda f: str(f.twice_as_long),
    "guessing": lambda f: f"{f.hardest.chance:.1%}",
}
NOTES = (
    "Each model is trained on each task by itself. accuracy: of the ids to recall, at the largest length and number of "
    "items of training (mean ± standard deviation over the seeds, if there are several); in parity, of the last bit. "
    "twice as long: at twice that length, which was not trained. guessing: expected accuracy of a guess that knows all "
    "but what has to be recalled, such as which values there are, but not whose."
)
IMAGE = "![Accuracy in percent by length and number of items; sizes of training are framed](recall.png)"


def recall_report(folder: pathlib.Path, rows: Sequence[dict]) -> Report:
    """Plot the runs and return the report."""
    findings = find(rows)
    plot(folder, findings)
    return Report(
        "Recall",
        verdict(findings),
        Table.of(findings, COLUMNS),
        ("task", "model", "accuracy", "twice as long", "guessing"),
        without_texts(rows),
        NOTES,
        [IMAGE, "## By length and number of items", by_size(findings)],
        {f"Samples of {row['run']}": row["sample"] for row in rows},
    )


def by_size(findings) -> Table:
    """Return the accuracy of each task and model at each size, with a star at sizes of training."""
    models = list(dict.fromkeys(finding.model for finding in findings))
    lines = []
    for task in dict.fromkeys(finding.task for finding in findings):
        columns = [finding.cells for finding in findings if finding.task == task]
        for cells in zip(*columns, strict=True):
            size = f"{cells[0].length} x {cells[0].items}{' *' if cells[0].is_trained else '  '}"
            lines.append([task, size, *map(str, cells), f"{cells[0].chance:.1%}"])
    return Table(["task", "length x items", *models, "guessing"], lines)
