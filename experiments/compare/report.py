"""Write the reports of a comparison and print its final message.

compare.json   compare.md   compare.html   loss_curves.png
"""

import dataclasses

from experiments.compare import budgets as compare_budgets
from experiments.compare import plots as compare_plots
from experiments.compare import sweep as compare_sweep
from experiments.compare.findings import ComparisonResults, verdict
from experiments.compare.page import comparison_html
from experiments.compare.tables import baselines_table, differences_table
from experiments.frame.report import column_notes, indented, seeds_table, table, tensorboard_hint
from keras_seq.atomic_files import write_json, write_text

DIFFERENCE_NOTE = (
    "Difference in val_loss, in nats per character; negative is better than the first model. 95 % intervals: a "
    "bootstrap over blocks of adjacent windows, paired between the models, and over the seeds of each model"
)
SWEEP_TITLE = "Learning rates, by the loss of text held out from the training split, in nats per character"


def write_report(results: ComparisonResults):
    """Write the four files into the folder of the comparison."""
    differences = results.differences()
    write_json(
        results.folder / "compare.json",
        {
            "rows": [{key: value for key, value in row.items() if key != "sample"} for row in results.rows],
            "differences": {model: dataclasses.asdict(d) for model, d in differences.items()},
            "baselines": {b.name: b.loss_per_character for b in results.baselines},
            "sweep_runs": [dataclasses.asdict(run) for run in results.sweep_runs],
        },
    )
    parts = [f"# {results.corpus.name}: {', '.join(results.models)}", *tables(results)]
    parts += ["![Training and validation loss over training tokens](loss_curves.png)"]
    parts += [f"## Sample of {row['model']}, seed {row['seed']}\n\n{indented(row['sample'])}" for row in results.rows]
    write_text(results.folder / "compare.md", "\n\n".join(parts) + "\n")
    compare_plots.plot(results)
    write_text(results.folder / "compare.html", comparison_html(results, verdict(results)))


def tables(results: ComparisonResults) -> list[str]:
    """Return the tables and notes of the terminal and of compare.md, one string for each block."""
    parts = [table(results.rows)]
    if results.num_seeds > 1:
        parts.append(seeds_table(results.rows))
    if len(results.models) > 1:
        scope = "; with one seed, over the text only." if results.num_seeds == 1 else "."
        parts += [str(differences_table(results)), DIFFERENCE_NOTE + scope]
    parts += [str(baselines_table(results)), *([results.note] if results.note else []), column_notes(results.rows)]
    parts.append(f"Matched by {results.config.match}:\n\n{compare_budgets.table(results.config, results.budgets)}")
    if results.sweep_runs:
        parts.append(f"{SWEEP_TITLE}:\n\n{compare_sweep.table(results.sweep_runs)}")
        parts += [f"Warning: {message}" for message in compare_sweep.warnings(results.sweep_runs)]
    return parts


def final_message(results: ComparisonResults) -> str:
    """Return what the terminal shows at the end: tables, samples of the first seed, and the files written."""
    first_seed = [row for row in results.rows if not row["seed"]]
    samples = [f"Sample of {row['model']} (seed {row['seed']}):\n{indented(row['sample'])}" for row in first_seed]
    files = [("Curves:  ", "loss_curves.png"), ("Report:  ", "compare.md"), ("Page:    ", "compare.html")]
    parts = [*tables(results), *samples, "\n".join(f"{label}{results.folder / name}" for label, name in files)]
    return "\n" + "\n\n".join(parts) + f"\n{tensorboard_hint(results.folder)}"
