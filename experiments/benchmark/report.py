"""Write the report of `experiments.benchmark`: progress lines, benchmark.json and benchmark.md."""

from experiments.benchmark.cases import IMPLEMENTATIONS, Case, size
from experiments.frame.report import markdown_table
from keras_seq.atomic_files import write_json, write_text


def write_report(folder, results):
    """Write benchmark.json and benchmark.md.

    Args:
        folder: Folder of the two files; it is made where it does not exist.
        results: Contents of benchmark.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "benchmark.json", results)
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items() if version)
    parts = [
        "# Speed of a training step",
        table(results["cases"]),
        column_notes(results),
        memory_table(results["cases"]),
    ]
    parts += [sweep_table(sweep, measurements) for sweep, measurements in results["size_sweep"].items()]
    write_text(folder / "benchmark.md", "\n\n".join([*parts, f"Versions: {versions}."]) + "\n")


def line(result) -> str:
    """Format the speeds of a case as one line."""
    speeds = ", ".join(
        f"{IMPLEMENTATIONS[name]} {measurement['tokens_per_second']:,.0f}"
        for name, measurement in result["measurements"].items()
    )
    return f"{result['name']}: {speeds} tokens/s"


def table(results) -> str:
    """Format speeds and speedups, each speedup followed by its target."""
    header = ["case", *IMPLEMENTATIONS.values(), "speedup vs PyTorch", "target", "speedup vs keras.layers", "target"]
    lines = [[*header, "% of matmul peak", "input pipeline %"]]
    for result in results:
        speeds = _cells(result, "tokens_per_second")
        speedups = [
            cell
            for name in ("torch", "keras")
            for cell in (_number(result[f"speedup_vs_{name}"]), _number(result["case"][f"{name}_target"]))
        ]
        fraction = result["input_pipeline_fraction"]
        pipeline = "-" if fraction is None else f"{100 * fraction:.2f}"
        lines.append([result["name"], *speeds, *speedups, f"{100 * result['matmul_utilization']:.0f}", pipeline])
    return markdown_table(lines)


def column_notes(results) -> str:
    """Explain the columns of the table."""
    peaks = ", ".join(f"{flops / 1e9:,.0f} GFLOP/s in {dtype}" for dtype, flops in results["matmul_flops"].items())
    return (
        "Speeds are medians, in tokens per second. speedup: tokens per second of keras_seq divided by those of the "
        "other library, the median over the rounds; target: the speedup that keras_seq should reach. % of matmul peak: "
        f"FLOP/s of keras_seq relative to a plain matrix product on this machine ({peaks}). input pipeline %: time "
        "that drawing the random windows takes, relative to the time of a step."
    )


def memory_table(results) -> str:
    """Format the peak memory of each process."""
    lines = [["case", *(f"{name}, MB" for name in IMPLEMENTATIONS.values())]]
    lines += [[result["name"], *_cells(result, "peak_megabytes")] for result in results]
    return markdown_table(lines)


def sweep_table(sweep, measurements) -> str:
    """Format time and memory as one size grows.

    Args:
        sweep: Name of the sweep, a key of `benchmark_cases.size_sweep`.
        measurements: One dict per size, as in benchmark.json.
    """
    lines = [[sweep.rsplit(", ", 1)[1], "ms per step", "relative to previous", "MB"]]
    previous = None
    for measurement in measurements:
        case = Case(**measurement["case"])
        seconds = seconds_per_step(case, measurement)
        ratio = "-" if previous is None else f"{seconds / previous:.2f}"
        lines.append([str(size(case, sweep)), f"{seconds * 1000:.1f}", ratio, f"{measurement['peak_megabytes']:,.0f}"])
        previous = seconds
    return f"{sweep}:\n\n{markdown_table(lines)}"


def seconds_per_step(case: Case, measurement) -> float:
    """Return the duration of a step in seconds.

    Args:
        case: The measured case.
        measurement: Its measurement, with `tokens_per_second`.
    """
    return case.batch_size * case.sequence_length / measurement["tokens_per_second"]


def final_message(folder, results) -> str:
    """Return the text that the terminal shows at the end.

    Args:
        folder: Folder of the report.
        results: Contents of benchmark.json.
    """
    return f"\n{table(results['cases'])}\n\n{column_notes(results)}\n\nReport: {folder / 'benchmark.md'}"


def _cells(result, key):
    measurements = result["measurements"]
    return [f"{measurements[name][key]:,.0f}" if name in measurements else "-" for name in IMPLEMENTATIONS]


def _number(value) -> str:
    return "-" if value is None else f"{value:.2f}"
