"""Time one implementation of one case in a process of its own, started by `turns`.

    python -m experiments.benchmark.worker '{"implementation": "keras", "platform": "cpu", "seconds": 2, "case": {...}}'
    python -m experiments.benchmark.worker '{"matrix_sizes": {"cpu": 2048}}'      # describe the device, and end

Each line on stdin gets a line of JSON as the answer: the first when all is imported; the second after a warm-up that
finds how many steps take so many seconds; each further one after a timed run. A training to an end (`case.steps`) goes
on in each, and its answers have the validation loss after it. KERAS_BACKEND is that of keras_seq and keras.layers; for
"torch", PyTorch without Keras, it is "torch", so that TensorFlow is not loaded beside it.
"""

import json
import pathlib
import re
import sys
import time

from experiments.benchmark.cases import Case


def answer(**values):
    """Print values as a line of JSON, after the end of a line that a progress bar may have begun."""
    print(f"\n{json.dumps(values)}", flush=True)


def process_peak_bytes() -> int | None:
    """Return the peak memory of this process; None where the system has no /proc.

    `getrusage` would count the memory of the parent, from which a process starts, too.
    """
    status = pathlib.Path("/proc/self/status")
    kilobytes = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return 1024 * int(kilobytes[1]) if kilobytes else None


def seconds_of(run_steps, num_steps: int) -> float:
    """Return how long a run takes."""
    start_time = time.perf_counter()
    run_steps(num_steps)
    return time.perf_counter() - start_time


def calibrate(run_steps, steps_per_execution: int, seconds: float) -> tuple[float, int]:
    """Return the seconds of the first call, with its compilation, and the number of steps that take `seconds`."""
    first_call_seconds, num_executions = seconds_of(run_steps, steps_per_execution), 1
    while (duration := seconds_of(run_steps, num_executions * steps_per_execution)) < 0.5 * seconds:
        num_executions *= 2  # until the run is long enough that starting and ending it do not matter
    num_steps = max(1, round(num_executions * seconds / duration)) * steps_per_execution
    run_steps(num_steps)
    return first_call_seconds, num_steps


def main():
    """Answer the lines on stdin."""
    request = json.loads(sys.argv[1])
    if request.get("implementation") == "torch":
        from experiments.benchmark import torch_runs as runs
    else:
        from experiments.benchmark import keras_runs as runs
    if "matrix_sizes" in request:
        return answer(**runs.describe_device(request["matrix_sizes"]))
    if (platform := runs.device()[0]) != request["platform"]:
        raise RuntimeError(f"It runs on the {platform}, keras_seq on the {request['platform']}.")
    sys.stdin.readline()
    answer()
    sys.stdin.readline()
    case = Case(**request["case"])
    run_steps, info = runs.prepare(case, request["implementation"])
    validate = info.pop("validate", dict)
    if case.steps:  # the first of them are the warm-up
        num_steps = case.steps_per_validation
        first_call_seconds = seconds_of(run_steps, num_steps)
    else:
        first_call_seconds, num_steps = calibrate(run_steps, info.get("steps_per_execution", 1), request["seconds"])
    answer(first_call_seconds=first_call_seconds, **info, **validate())
    for _ in sys.stdin:
        speed = num_steps * info["tokens_per_step"] / seconds_of(run_steps, num_steps)
        peak_bytes = runs.peak_bytes() or process_peak_bytes()
        answer(tokens_per_second=speed, peak_megabytes=peak_bytes and peak_bytes / 2**20, **validate())


if __name__ == "__main__":
    main()
