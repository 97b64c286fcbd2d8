"""Tables of the times of `time_to_loss`, with the budgets of what surrounds the training."""

from experiments.benchmark.case import IMPLEMENTATIONS
from experiments.common.reports import Table

NOTE = (
    "Times are medians of runs that take turns, validated on all of the validation text, as by version 0.1.0; those to "
    "the loss are interpolated linearly between validations. Parts are of one run with the defaults. startup: from "
    "imports to compilation; its budget is 6 s. diagnostics: pictures and TensorBoard. rest: saving the model, scores, "
    "report. around the steps: validation, diagnostics and final validation, relative to the steps; its budget is 10 %."
)


def number(value: float | None, factor: float = 1, digits: int = 2) -> str:
    """Return a number as text, "-" for None."""
    return "-" if value is None else f"{factor * value:,.{digits}f}"


def tables(group: list[dict]) -> list[str]:
    """Return the times to the loss with their targets, the seconds of each part, and what they mean."""
    rows = [
        {"version": IMPLEMENTATIONS[name], "own": name == "keras_seq", **result, **measurement}
        for result in group
        for name, measurement in result["measurements"].items()
    ]
    key = {"case": lambda row: row["name"], "version": lambda row: row["version"]}
    times = {
        "seconds, steps": lambda row: number(row["steps_to_loss"], digits=1),
        "seconds, all": lambda row: number(row["whole_to_loss"], digits=1),
        "val_loss at the end": lambda row: number(row["val_loss"], digits=4),
        "tokens per second": lambda row: number(row["tokens_per_second"], digits=0),
        "times as fast": lambda row: number(row["speedup_vs_before"] if row["own"] else None),
        "target": lambda row: number(dict(row["case"]["targets"])["before"] if row["own"] else None),
    }
    own = [row for row in rows if "seconds_by_part" in row]
    parts = {part: _seconds_and_share(part) for row in own for part in row["seconds_by_part"]}
    parts["around the steps"] = _around_the_steps
    return [str(Table.of(rows, key | times)), str(Table.of(own, {"case": key["case"]} | parts)), NOTE]


def _seconds_and_share(part):
    def cell(row):
        seconds = row["seconds_by_part"]
        return f"{seconds[part]:.1f} s, {seconds[part] / sum(seconds.values()):.1%}"

    return cell


def _around_the_steps(row):
    seconds = row["seconds_by_part"]
    around = sum(seconds[part] for part in ("validation", "diagnostics", "final_validation"))
    return f"{around / seconds['steps']:.1%}"
