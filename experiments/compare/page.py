"""Write compare.html: the whole comparison on one self-contained page, for large and small screens, light and dark.

page.js draws the curves from the JSON in the page; tables, samples and options need no JavaScript.
"""

import dataclasses
import json
import re

from experiments.common.pages import render
from experiments.compare import budgets as compare_budgets
from experiments.compare import sweep as compare_sweep
from experiments.compare import tables
from experiments.compare.findings import CURVES, ComparisonResults
from keras_seq.training.run_config import read_config

MAX_MODELS_IN_TITLE = 3
DIGITS = {"tokens": 0, "seconds": 2}  # of the points of a curve; losses have 4


def comparison_html(results: ComparisonResults) -> str:
    """Return the page, whose first sentence is the verdict."""
    models = results.models
    names = f"{len(models)} models" if len(models) > MAX_MODELS_IN_TITLE else ", ".join(models)
    return render(
        "compare",
        _data(results),
        title=f"{names} on {results.corpus.name}",
        verdict=results.verdict,
        results=results,
        finals=_finals(results),
        date=re.sub(r"^(\d{4})(\d\d)(\d\d)-.*", r"\1-\2-\3", results.folder.name),
        main=tables.results_table(results),
        differences=tables.differences_table(results) if len(models) > 1 else None,
        baselines=tables.baselines_table(results),
        sweep=compare_sweep.table(results.sweep_runs) if results.sweep_runs else None,
        warnings=compare_sweep.warnings(results.sweep_runs),
        all_results=tables.all_results_table(results),
        notes=tables.column_notes(results.rows),
        budgets=compare_budgets.table(results.config, results.budgets),
        versions=read_config(results.run(results.rows[0]))["versions"],
        options=json.dumps(dataclasses.asdict(results.config), indent=1, ensure_ascii=False),
    )


def _data(results):
    """Return what page.js draws."""
    models = [
        {
            "name": model,
            "flopsPerToken": results.budgets[model].flops_per_token,
            "curves": {name: _rounded(results.curve(model, name)) for name in CURVES},
            "positions": [round(loss, 4) for loss in results.by_position(model)],
        }
        for model in results.models
    ]
    baselines = [{"name": name, "loss": round(loss, 4)} for name, loss in results.curve_baselines]
    return {"models": models, "baselines": baselines, "num_seeds": results.num_seeds}


def _finals(results):
    """Return rows of the final losses: a name, the number of its color, and each loss with its place from 0 to 100."""
    keys = ("val_loss_per_character", "val_loss_per_character_streaming")
    rows = [(model, n % 10, [results.mean(model, key) for key in keys]) for n, model in enumerate(results.models)]
    rows = sorted(rows, key=lambda row: row[2][0])
    rows += [(b.name, None, [None, b.loss_per_character]) for b in results.best_baselines]
    losses = [loss for *_, pair in rows for loss in pair if loss is not None]
    low, width = min(losses), max(max(losses) - min(losses), 1e-9)
    place = lambda loss: None if loss is None else (loss, 100 * (loss - low) / width)  # noqa: E731
    return [(name, color, *map(place, pair)) for name, color, pair in rows]


def _rounded(curve):
    return {key: [round(value, DIGITS.get(key, 4)) for value in values] for key, values in curve.items()}
