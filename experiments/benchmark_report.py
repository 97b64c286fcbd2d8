"""What `experiments.benchmark` says: a line a row as it goes, and benchmark.json and benchmark.md at the end."""

from experiments.benchmark_rows import Row, size
from experiments.report import aligned
from keras_seq.atomic_files import write_json, write_text

WAYS = {"ours": "ours", "keras": "keras.layers", "torch": "PyTorch"}


def write(folder, found):
    """Writes the two files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "benchmark.json", found)
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if version)
    parts = ["# Speed of a training step", table(found["rows"]), notes(found), memory(found["rows"])]
    parts += [growth(ladder, steps) for ladder, steps in found["growth"].items()]
    write_text(folder / "benchmark.md", "\n\n".join([*parts, f"Versions: {versions}."]) + "\n")


def line(entry) -> str:
    """A row in one line."""
    speeds = ", ".join(f"{WAYS[way]} {m['tokens_per_second']:,.0f}" for way, m in entry["measured"].items())
    return f"{entry['name']}: {speeds} tokens/s"


def table(entries) -> str:
    """Speeds and ratios, with what is asked for behind each ratio."""
    lines = [["what", *WAYS.values(), "by PyTorch", "asked", "by keras.layers", "asked", "of matmul", "pipeline"]]
    for entry in entries:
        speeds = [
            f"{entry['measured'][way]['tokens_per_second']:,.0f}" if way in entry["measured"] else "-" for way in WAYS
        ]
        ratios = [
            cell
            for way in ("torch", "keras")
            for cell in (_number(entry[f"against_{way}"]), _number(entry["row"][f"{way}_asked"]))
        ]
        pipeline = "-" if entry["pipeline"] is None else f"{entry['pipeline']:.2%}"
        lines.append([entry["name"], *speeds, *ratios, f"{entry['matmul_utilization']:.0%}", pipeline])
    return aligned(lines)


def notes(found) -> str:
    """What the columns mean."""
    peaks = ", ".join(f"{flops / 1e9:,.0f} GFLOP/s in {dtype}" for dtype, flops in found["matmul_flops"].items())
    return (
        "Tokens per second, medians. by PyTorch, by keras.layers: how many times as fast ours is, the median of the "
        f"ratios turn by turn. of matmul: the FLOPs of ours by those of a plain product of matrices here ({peaks}). "
        "pipeline: the time that random crops take, by that of a step."
    )


def memory(entries) -> str:
    """The largest memory of each process."""
    lines = [["what", *(f"{name}, MB" for name in WAYS.values())]]
    for entry in entries:
        peaks = [
            f"{entry['measured'][way]['peak_megabytes']:,.0f}" if way in entry["measured"] else "-" for way in WAYS
        ]
        lines.append([entry["name"], *peaks])
    return aligned(lines)


def growth(ladder, steps) -> str:
    """Milliseconds and memory as one size grows."""
    lines = [[ladder.rsplit(", ", 1)[1], "ms a step", "times the one before", "MB"]]
    before = None
    for step in steps:
        row = Row(**step["row"])
        seconds = seconds_of(row, step)
        times = "-" if before is None else f"{seconds / before:.2f}"
        lines.append([str(size(row, ladder)), f"{seconds * 1000:.1f}", times, f"{step['peak_megabytes']:,.0f}"])
        before = seconds
    return f"{ladder}:\n\n{aligned(lines)}"


def seconds_of(row: Row, ours) -> float:
    """The seconds of a step."""
    return row.batch_size * row.length / ours["tokens_per_second"]


def closing(folder, found) -> str:
    """What the terminal shows at the end."""
    return f"\n{table(found['rows'])}\n\n{notes(found)}\n\nReport: {folder / 'benchmark.md'}"


def _number(value) -> str:
    return "-" if value is None else f"{value:.2f}"
