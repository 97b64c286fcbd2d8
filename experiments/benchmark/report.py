"""Write the report of `experiments.benchmark`: progress lines, result.json and benchmark.md."""

import pathlib

from experiments.benchmark.cases import IMPLEMENTATIONS, RUNTIMES, Case
from experiments.benchmark.text import LOSS
from keras_seq.files import write_json, write_text
from keras_seq.reports.tables import Table

TITLES = {
    "step": "Training steps",
    "as_run": "Training on a text, as experiments.compare does it",
    "nanogpt": f"nanoGPT's character run (mark: {LOSS} nats)",
    "generation": "Generation",
    "exports": "Generation of one text by exported files",
    "pipeline": "Input pipelines",
    "sizes": "Steps of keras_seq by size",
}
NOTES = (
    "Speeds are medians, in tokens per second. vs: tokens per second of keras_seq divided by those of the other "
    "implementation, the median over the rounds; target: what it should reach. % of "
    "matmul peak: FLOP/s of keras_seq relative to a plain matrix product on this device. val_loss: nats per character "
    "by nanoGPT's estimate, the lowest of all validations. MB: peak memory of the process, or on a GPU of its arrays. "
    "float32 products on a GPU may be TF32 in all implementations."
)


def number(value: float | None, factor: float = 1, digits: int = 2) -> str:
    """Return a number as text, "-" for None."""
    return "-" if value is None else f"{factor * value:,.{digits}f}"


def write_report(folder: pathlib.Path, results: dict):
    """Write result.json and benchmark.md."""
    write_json(folder / "result.json", results)
    write_text(folder / "benchmark.md", f"# Benchmark\n\n{report_text(results)}\n")


def report_text(results: dict) -> str:
    """Return device, versions, tables by kind of case, and errors."""
    device = results["device"]
    peaks = ", ".join(f"{flops / 1e9:,.0f} GFLOP/s in {dtype}" for dtype, flops in device["matmul_flops"].items())
    versions = ", ".join(f"{name} {version}" for name, version in device["versions"].items())
    parts = [f"{device['device']} ({device['platform']}); matmul peak {peaks}. {versions}."]
    for kind, title in TITLES.items():
        if group := [result for result in results["cases"] if result["case"]["kind"] == kind]:
            parts += [f"## {title}", str(table(group))]
    errors = [line for result in results["cases"] for line in error_lines(result)]
    return "\n\n".join([*parts, NOTES, *errors])


def table(group: list[dict]) -> Table:
    """Return speeds, speedups with their targets, and peak memory of the cases of one kind."""
    names = [name for name in IMPLEMENTATIONS if any(name in result["measurements"] for result in group)]
    columns = {"case": lambda result: result["name"]}
    columns |= {IMPLEMENTATIONS[name]: _measured(name, "tokens_per_second") for name in names}
    for name in names:
        if name != "keras_seq":
            columns[f"vs {IMPLEMENTATIONS[name]}"] = lambda result, key=f"speedup_vs_{name}": number(result.get(key))
        if any(name in dict(result["case"]["targets"]) for result in group):
            columns[f"target vs {IMPLEMENTATIONS[name]}"] = lambda result, key=name: number(
                dict(result["case"]["targets"]).get(key)
            )
    if any(result["matmul_utilization"] for result in group):
        columns["% of matmul peak"] = lambda result: number(result["matmul_utilization"], 100, 0)
    if group[0]["case"]["kind"] == "nanogpt":
        tokens = {"step": lambda result: f"{_steps(result):,} of {result['case']['steps']:,}"}
        losses = {f"lowest val_loss, {IMPLEMENTATIONS[name]}": _measured(name, "val_loss", 4) for name in names}
        columns |= tokens | losses
    if group[0]["case"]["kind"] == "sizes":
        columns["ms per step"] = lambda result: number(result["seconds_per_step"], 1000, 1)
    if group[0]["case"]["kind"] == "exports":
        columns |= {f"bytes of {IMPLEMENTATIONS[name]}": _measured(name, "file_bytes") for name in RUNTIMES}
    columns |= {f"{IMPLEMENTATIONS[name]}, MB": _measured(name, "peak_megabytes") for name in names}
    return Table.of(group, columns)


def _measured(name, key, digits=0):
    return lambda result: number(result["measurements"].get(name, {}).get(key), 1, digits)


def _steps(result):
    """Return the last step that every implementation was validated at."""
    validations = [len(measurement["val_losses"]) for measurement in result["measurements"].values()]
    return min(validations, default=0) * Case(**result["case"]).steps_per_validation


def progress_line(result: dict) -> str:
    """Return the speeds of a case as one line, and a line for each error."""
    speeds = ", ".join(
        f"{IMPLEMENTATIONS[name]} {measurement['tokens_per_second']:,.0f}"
        for name, measurement in result["measurements"].items()
    )
    return "\n".join([f"{result['name']}: {speeds or 'no'} tokens/s", *error_lines(result)])


def error_lines(result: dict) -> list[str]:
    """Return a line for each implementation that failed."""
    return [f"Failed: {result['name']}, {IMPLEMENTATIONS[name]}: {error}" for name, error in result["errors"].items()]
