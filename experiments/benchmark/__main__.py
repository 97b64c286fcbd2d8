"""How fast is keras_seq, compared with keras.layers and with PyTorch?

    python -m experiments.benchmark                                # training steps on TensorFlow
    python -m experiments.benchmark --cases 1 3 --repeats 9        # some of them, by their numbers
    python -m experiments.benchmark --backend jax                  # or torch: the same on another Keras backend
    python -m experiments.benchmark --kinds as_run                 # experiments.compare, against PyTorch doing the same
    python -m experiments.benchmark --against DIR                  # in turns with another checkout of keras_seq
    python -m experiments.benchmark --kinds nanogpt --backend jax       # nanoGPT's character run on a GPU, beside it
    python -m experiments.benchmark --kinds generation exports pipeline
    python -m experiments.benchmark --kinds sizes                  # how time and memory grow with T, B, D, V and layers
    python -m experiments.benchmark --smoke                        # one tiny case of each kind

Time: half an hour on 2 cores with PyTorch, for training steps.

Runs on a GPU if the backend finds one, unless --cpu is given. Each implementation of a case has a process of its own;
they take turns: one warm-up, five timed runs. Speedups are computed per round; medians are reported, with the fraction
of the device's matmul peak (measured in the same run) and the peak memory. result.json is written after every case.
PyTorch is measured where it is installed. Where TensorFlow is not installed, set KERAS_BACKEND to the backend too.

Expected: most training steps reach their targets, which the report lists beside the speedups. Generation of one text:
the Transformer 50 times as fast as without a cache and 30 times as fast as nanoGPT, the LSTM 400 times as fast as
without a cache. Input pipelines: tens of millions of characters per second.
"""

import dataclasses
import importlib.util
import pathlib
import sys
from collections.abc import Sequence

from experiments.benchmark import report
from experiments.benchmark.cases import RUNTIMES, Case
from experiments.benchmark.turns import BenchmarkConfig, describe_device, speedup, take_turns
from keras_seq.commands.exit_status import exit_with_message
from keras_seq.commands.options import command_line
from keras_seq.runs.folders import timestamped_folder

PACKAGES = {"onnx": ("torch", "onnxscript", "onnxruntime"), "litert": ("tensorflow", "ai_edge_litert")}


def measure_case(config: BenchmarkConfig, case: Case, device: dict) -> dict:
    """Measure one case and return its entry in result.json."""
    available = {"torch": importlib.util.find_spec("torch") is not None, "before": config.against is not None}
    available |= {name: all(map(importlib.util.find_spec, PACKAGES[name.split("_")[0]])) for name in RUNTIMES}
    implementations = [name for name in case.implementations if available.get(name, True)]
    measurements, errors = take_turns(config, case, implementations, device["platform"])
    measurement = measurements.get("keras_seq", {})
    speed, flops_per_token = measurement.get("tokens_per_second"), measurement.get("flops_per_token")
    peak = device["matmul_flops"][case.precision]
    return {
        "name": case.name,
        "case": dataclasses.asdict(case),
        "measurements": measurements,
        "errors": errors,
        **{f"speedup_vs_{name}": speedup(measurements, name) for name in case.implementations if name != "keras_seq"},
        "seconds_per_step": case.tokens_per_step / speed if speed else None,
        "matmul_utilization": flops_per_token * speed / peak if flops_per_token else None,
    }


@exit_with_message("experiments.benchmark", use_devices=False)
def main(arguments: Sequence[str] | None = None):
    """Run the command line; exit with status 1 if an implementation failed."""
    config = command_line(BenchmarkConfig, "experiments.benchmark", __doc__, arguments)
    if config.smoke:
        config = dataclasses.replace(config, repeats=2, seconds=0.01)
    device = describe_device(config)
    print(f"{device['device']} ({device['platform']})", flush=True)
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed and is not measured; to measure it, `pip install torch`.")
    results = {"backend": config.backend, "device": device, "cases": []}
    with timestamped_folder(pathlib.Path(config.log_dir) / "benchmark") as folder:
        for case in config.selected_cases:
            results["cases"].append(measure_case(config, case, device))
            report.write_report(folder, results)
            print(report.progress_line(results["cases"][-1]), flush=True)
    print(f"\n{report.report_text(results)}\n\nReport: {folder / 'benchmark.md'}")
    if any(result["errors"] for result in results["cases"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
