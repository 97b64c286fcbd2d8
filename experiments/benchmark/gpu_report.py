"""Write the report of `experiments.benchmark.gpu`: result.json, and benchmark_gpu.md with tables."""

import json
import os
import pathlib

from experiments.benchmark.cases import IMPLEMENTATIONS
from experiments.frame.report import markdown_table

SCHEMA = 2  # of config.json and result.json
NANO_GPT_LOSS = 1.4697  # nats per character: best validation loss in nanoGPT's README, estimated on random windows
COLUMN_NOTES = (
    "Speeds are medians, in tokens per second. speedup: tokens per second of keras_seq divided by those of the other "
    "library, the median over the rounds. % of matmul peak: FLOP/s of keras_seq relative to a plain matrix product on "
    "this device. keras_seq runs steps in a compiled loop, keras.layers in model.fit with Keras's defaults, PyTorch "
    "eagerly. On a GPU, float32 products may be TF32 in all three. MB: peak memory of the GPU, on a CPU of the process."
)
TRAINING_NOTES = (
    "Losses are in nats per character. val_loss: on disjoint windows of the whole validation split, each from an empty "
    "cache. val_loss, random windows: nanoGPT's estimate, the mean over random windows."
)


def write_text(path: pathlib.Path, text):
    """Write a UTF-8 text atomically, without `keras_seq.atomic_files`, whose package imports Keras and its backend.

    Args:
        path: File to write.
        text: Its contents.
    """
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def write_json(path: pathlib.Path, value):
    """Write a value as indented JSON.

    Args:
        path: File to write.
        value: Its contents.
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_metrics(path: pathlib.Path) -> list[dict]:
    """Read the lines of a metrics.jsonl."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_report(folder: pathlib.Path, results):
    """Write result.json and benchmark_gpu.md.

    Args:
        folder: Run folder.
        results: Contents of result.json.
    """
    write_json(folder / "result.json", results)
    write_text(folder / "benchmark_gpu.md", f"# Benchmark on a GPU with JAX\n\n{report_text(results)}\n")


def report_text(results) -> str:
    """Return the report: device, table of the cases, table of the training."""
    device = results["device"]
    peaks = ", ".join(f"{flops / 1e12:,.3g} TFLOP/s in {dtype}" for dtype, flops in device["matmul_flops"].items())
    versions = ", ".join(f"{name} {version}" for name, version in device["versions"].items())
    parts = [f"Device: {device['kind']} ({device['platform']}); matmul peak: {peaks}. {versions}."]
    if results["cases"]:
        parts += [cases_table(results["cases"]), COLUMN_NOTES]
        errors = [
            f"{result['name']}, {name}: {error}"
            for result in results["cases"]
            for name, error in result["errors"].items()
        ]
        parts += [f"Failed: {error}" for error in errors]
    if results["training"] is not None:
        parts += [training_table(results["training"]), TRAINING_NOTES, best_message(results["training"])]
    return "\n\n".join(parts)


def cases_table(results) -> str:
    """Format speeds, speedups and peak memory of the cases."""
    names = IMPLEMENTATIONS.values()
    header = ["case", *names, "speedup vs PyTorch", "speedup vs keras.layers", "% of matmul peak"]
    lines = [[*header, *(f"{name}, MB" for name in names)]]
    for result in results:
        measurements = result["measurements"]
        speeds, memory = (
            [f"{measurements[name][key]:,.0f}" if name in measurements else "-" for name in IMPLEMENTATIONS]
            for key in ("tokens_per_second", "peak_megabytes")
        )
        speedups = [number(result["speedup_vs_torch"]), number(result["speedup_vs_keras"])]
        utilization = result["matmul_utilization"]
        utilization = "-" if utilization is None else f"{100 * utilization:.1f}"
        lines.append([result["name"], *speeds, *speedups, utilization, *memory])
    return markdown_table(lines)


def line(result) -> str:
    """Format the speeds of a case as one line."""
    speeds = ", ".join(
        f"{IMPLEMENTATIONS[name]} {measurement['tokens_per_second']:,.0f}"
        for name, measurement in result["measurements"].items()
    )
    failed = "".join(f"; {IMPLEMENTATIONS[name]} failed" for name in result["errors"])
    return f"{result['name']}: {speeds} tokens/s{failed}"


def number(value) -> str:
    """Format a speedup; None as -."""
    return "-" if value is None else f"{value:.2f}"


def training_table(training) -> str:
    """Format the validations of the training."""
    lines = [["step", "train loss", "val_loss", "val_loss, random windows", "train seconds"]]
    for validation in training["validations"]:
        train_loss = "-" if validation["train_loss"] is None else f"{validation['train_loss']:.4f}"
        losses = [f"{validation[name]:.4f}" for name in ("val_loss", "val_loss_random_windows")]
        lines.append([str(validation["step"]), train_loss, *losses, f"{validation['train_seconds']:.0f}"])
    return markdown_table(lines)


def best_message(training) -> str:
    """Describe the run and its lowest losses, with nanoGPT's for comparison."""
    best, sizes, config = training["best"], training["sizes"], training["config"]
    disjoint, random = best["val_loss"], best["val_loss_random_windows"]
    speed = training["train_tokens"] / training["train_seconds"]
    return (
        f"{training['parameters']:,} parameters ({training['parameters_without_positions']:,} without the positions), "
        f"{config['corpus']}, {config['steps']} steps of {sizes['batch_size']} x {sizes['context_length']}, "
        f"{config['precision']}, seed {config['seed']}. Lowest validation losses: "
        f"val_loss@{sizes['context_length']} {disjoint['val_loss']:.4f} at step {disjoint['step']}; "
        f"on {sizes['random_window_batches']} batches of random windows {random['val_loss_random_windows']:.4f} at "
        f"step {random['step']}. "
        f"nanoGPT's README reports {NANO_GPT_LOSS} for tiny Shakespeare, its lowest on random windows; both are "
        "the minimum of many validations, and so optimistic. "
        f"The training took {training['train_seconds']:.0f} s ({speed:,.0f} tokens/s), with compilation, without "
        "validations."
    )
