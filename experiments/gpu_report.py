"""What `experiments.gpu` writes and says: result.json, and gpu.md with a table of the rows and one of the training."""

import json
import os
import pathlib

from experiments.report import aligned

WAYS = {"ours": "ours", "keras": "keras.layers", "torch": "PyTorch"}
NANO_GPT = 1.4697  # best validation loss of its README, of its evaluations by random crops


def write_text(path: pathlib.Path, text):
    """Write a UTF-8 text atomically, without `keras_seq.atomic_files`, whose package imports Keras and its backend."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def write_json(path: pathlib.Path, value):
    """Writes `value` as readable JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def lines_of(path: pathlib.Path) -> list[dict]:
    """The lines of a metrics.jsonl."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(folder: pathlib.Path, found):
    """Writes result.json and gpu.md."""
    write_json(folder / "result.json", found)
    write_text(folder / "gpu.md", f"# On a GPU: JAX\n\n{told(found)}\n")


def told(found) -> str:
    """Everything in words and tables."""
    device = found["device"]
    peaks = ", ".join(f"{flops / 1e12:,.3g} TFLOP/s in {dtype}" for dtype, flops in device["matmul_flops"].items())
    versions = ", ".join(f"{name} {version}" for name, version in device["versions"].items())
    parts = [f"Device: {device['kind']} ({device['platform']}); a product of matrices: {peaks}. {versions}."]
    if found["rows"]:
        parts += [rows(found["rows"]), NOTES]
        failed = [f"{entry['name']}, {way}: {e}" for entry in found["rows"] for way, e in entry["errors"].items()]
        parts += [f"Failed: {error}" for error in failed]
    if found["training"] is not None:
        parts += [training(found["training"]), best(found["training"])]
    return "\n\n".join(parts)


NOTES = (
    "Tokens per second, medians. by PyTorch, by keras.layers: how many times as fast ours is, the median of the ratios "
    "turn by turn. of matmul: the FLOPs of ours by those of the product of matrices. Ours: steps in a compiled loop; "
    "keras.layers: model.fit as it comes; PyTorch: eager. On a GPU, float32 products may be TF32 in all three. "
    "Memory: of the GPU, on a CPU of the process."
)


def rows(entries) -> str:
    """Speeds, ratios and memory."""
    names = WAYS.values()
    header = ["what", *names, "by PyTorch", "by keras.layers", "of matmul", *(f"{name}, MB" for name in names)]
    lines = [header]
    for entry in entries:
        summaries = entry["measured"]
        speeds = [f"{summaries[way]['tokens_per_second']:,.0f}" if way in summaries else "-" for way in WAYS]
        ratios = [number(entry["speedup_vs_torch"]), number(entry["speedup_vs_keras"])]
        of_matmul = "-" if entry["matmul_utilization"] is None else f"{entry['matmul_utilization']:.1%}"
        memory = [f"{summaries[way]['peak_megabytes']:,.0f}" if way in summaries else "-" for way in WAYS]
        lines.append([entry["name"], *speeds, *ratios, of_matmul, *memory])
    return aligned(lines)


def line(entry) -> str:
    """A row in one line."""
    speeds = ", ".join(f"{WAYS[way]} {about['tokens_per_second']:,.0f}" for way, about in entry["measured"].items())
    failed = "".join(f"; {WAYS[way]} failed" for way in entry["errors"])
    return f"{entry['name']}: {speeds} tokens/s{failed}"


def number(value) -> str:
    """A ratio, or - where there is none."""
    return "-" if value is None else f"{value:.2f}"


def training(found) -> str:
    """The evaluations."""
    lines = [["step", "training nats", "cold nats", "crops nats", "seconds"]]
    for line in found["evaluations"]:
        nats = "-" if line["train_loss"] is None else f"{line['train_loss']:.4f}"
        scores = [f"{line[name]:.4f}" for name in ("val_loss", "val_loss_random_windows")]
        lines.append([str(line["step"]), nats, *scores, f"{line['train_seconds']:.0f}"])
    return aligned(lines)


def best(found) -> str:
    """The lowest of the evaluations, both ways, and what they are to be compared with."""
    cold, crops = found["best"]["val_loss"], found["best"]["val_loss_random_windows"]
    sizes, settings = found["sizes"], found["settings"]
    speed = found["train_tokens"] / found["train_seconds"]
    return (
        f"{found['parameters']:,} parameters ({found['parameters_without_positions']:,} without the positions), "
        f"{settings['corpus']}, {settings['steps']} steps of {sizes['batch_size']} x {sizes['context']}, "
        f"{settings['precision']}, seed {settings['seed']}. Best of the evaluations: "
        f"cold@{sizes['context']} {cold['val_loss']:.4f} at step {cold['step']}; "
        f"by {sizes['crop_batches']} batches of random crops {crops['val_loss_random_windows']:.4f} at step {crops['step']}. "
        f"nanoGPT's README has {NANO_GPT} for tiny Shakespeare, the best of its evaluations by such crops: the lowest "
        "of many looks at the validation split, here as there. "
        f"The training took {found['train_seconds']:.0f} s ({speed:,.0f} tokens/s), compilation in it, "
        "evaluations not."
    )
