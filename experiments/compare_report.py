"""What a comparison leaves beside its runs, and what it says at the end.

compare.json   compare.md   compare.html   loss_curves.png
"""

import dataclasses
import math

from experiments import compare_budgets, compare_pictures, compare_sweep
from experiments.compare_findings import Findings
from experiments.compare_page import comparison_page
from experiments.report import aligned, indented, notes, spread, table, to_look
from keras_seq.atomic_files import write_json, write_text

OF_DIFFERENCES = (
    "Cold nats per character, less those of the first model; negative is better. Intervals: a bootstrap over runs of "
    "neighbouring windows, the same for both models, and over the seeds of each"
)


def write(found: Findings):
    """Writes the four files."""
    differences = found.differences()
    write_json(
        found.folder / "compare.json",
        {
            "rows": [{key: value for key, value in row.items() if key != "sample"} for row in found.rows],
            "differences": {model: dataclasses.asdict(d) for model, d in differences.items()},
            "references": {r.name: r.loss_per_character for r in found.references},
            "sweep": [dataclasses.asdict(t) for t in found.tried],
        },
    )
    parts = [f"# {found.corpus.name}: {', '.join(found.models)}", *tables(found)]
    parts += ["![Training and validation loss over tokens seen](loss_curves.png)"]
    parts += [f"## A sample of {row['model']}, seed {row['seed']}\n\n{indented(row['sample'])}" for row in found.rows]
    write_text(found.folder / "compare.md", "\n\n".join(parts) + "\n")
    compare_pictures.draw(found)
    write_text(found.folder / "compare.html", comparison_page(found))


def tables(found: Findings) -> list[str]:
    """All that the terminal and compare.md show, block by block."""
    parts = [table(found.rows)]
    if found.seeds > 1:
        parts.append(spread(found.rows))
    if len(found.models) > 1:
        alone = "; with one seed, over the text alone." if found.seeds == 1 else "."
        parts += [differences(found), OF_DIFFERENCES + alone]
    parts += [references(found.references), *([found.note] if found.note else []), notes(found.rows)]
    parts.append(f"Matched by {found.settings.match}:\n\n{compare_budgets.table(found.settings, found.budgets)}")
    if found.tried:
        swept = [f"Learning rates, on text cut from the training split:\n\n{compare_sweep.table(found.tried)}"]
        parts += swept + [f"Warning: {sentence}" for sentence in compare_sweep.warnings(found.tried)]
    return parts


def differences(found: Findings) -> str:
    """Each later model against the first one."""
    lines = [["model", f"less {found.models[0]}", "95 % interval", "clear"]]
    for model, d in found.differences().items():
        lines.append([model, f"{d.mean:+.4f}", f"{d.low:+.4f} to {d.high:+.4f}", "yes" if d.clear else "no"])
    return aligned(lines)


def references(found) -> str:
    """What counting and compressing make of the validation text, the training text known."""
    lines = [["without training", "nats", "bits"]]
    for r in found:
        lines.append([r.name, f"{r.loss_per_character:.3f}", f"{r.loss_per_character / math.log(2):.3f}"])
    return aligned(lines)


def closing(found: Findings) -> str:
    """What the terminal shows at the end."""
    first = [row for row in found.rows if not row["seed"]]
    samples = [f"{row['model']} (seed {row['seed']}) writes:\n{indented(row['sample'])}" for row in first]
    files = [("Curves:  ", "loss_curves.png"), ("Report:  ", "compare.md"), ("Page:    ", "compare.html")]
    parts = [*tables(found), *samples, "\n".join(f"{label}{found.folder / name}" for label, name in files)]
    return "\n" + "\n\n".join(parts) + f"\n{to_look(found.folder)}"
