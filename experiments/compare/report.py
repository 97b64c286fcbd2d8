"""Report of a comparison, with compare.html and loss_curves.png."""

import dataclasses

from experiments.common.reports import Report, Table, without_texts
from experiments.compare import budgets as compare_budgets
from experiments.compare import sweep as compare_sweep
from experiments.compare.findings import ComparisonResults
from experiments.compare.page import comparison_html
from experiments.compare.plots import plot
from experiments.compare.tables import COLUMNS, baselines_table, column_notes, differences_table, results_table
from keras_seq.files import write_text

TERMINAL = ("model", "train loss", "val_loss", "val_loss_streaming")
DIFFERENCE_NOTE = (
    "Difference in val_loss, in nats per character; negative is better than the first model. 95 % intervals: a "
    "bootstrap over blocks of adjacent windows, paired between the models, and over the seeds of each model"
)
SWEEP_TITLE = "Learning rates, by the loss of text held out from the training split, in nats per character:"
IMAGE = "![Training and validation loss over training tokens](loss_curves.png)"


def compare_report(results: ComparisonResults) -> Report:
    """Write the page and the plot of a comparison, and return its report."""
    plot(results)
    write_text(results.folder / "compare.html", comparison_html(results))
    first_seed = [results.for_model(model)[0] for model in results.models]
    return Report(
        title=f"{results.corpus.name}: {', '.join(results.models)}",
        verdict=results.verdict,
        table=results_table(results),
        columns=TERMINAL,
        data={
            "rows": without_texts(results.rows),
            "differences": {model: dataclasses.asdict(d) for model, d in results.differences.items()},
            "baselines": {b.name: b.loss_per_character for b in results.baselines},
            "sweep_runs": [dataclasses.asdict(run) for run in results.sweep_runs],
        },
        notes=column_notes(results.rows),
        details=details(results),
        samples={f"Sample of {row['model']}": row["sample"] for row in first_seed},
        runs=[results.run(row) for row in first_seed],
    )


def details(results: ComparisonResults) -> list[str | Table]:
    """Return the tables and notes of compare.md below the table of all results."""
    parts = [IMAGE, "All runs:", Table.of(results.rows, COLUMNS)]
    if len(results.models) > 1:
        scope = "; with one seed, over the text only." if results.num_seeds == 1 else "."
        parts += [differences_table(results), DIFFERENCE_NOTE + scope]
    parts += [baselines_table(results), *([results.note] if results.note else [])]
    parts += [f"Matched by {results.config.match}:", compare_budgets.table(results.config, results.budgets)]
    if results.sweep_runs:
        warnings = [f"Warning: {message}" for message in compare_sweep.warnings(results.sweep_runs)]
        parts += [SWEEP_TITLE, compare_sweep.table(results.sweep_runs), *warnings]
    return parts
