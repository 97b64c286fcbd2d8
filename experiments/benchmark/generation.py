"""How fast is text generated, compared with recomputing the whole prefix and with nanoGPT on PyTorch?

    python -m experiments.benchmark.generation
    python -m experiments.benchmark.generation --smoke

For each model and batch size, in one run: characters per second of `keras_seq.generation`, of the same model without a
cache (the whole prefix is recomputed for every character), and of nanoGPT's `generate` on PyTorch at the same sizes
(`pip install torch`; left out without it), medians of several repeats. Also: the seconds of the first call, tracing
and compilation included; the time of the last quarter of a text relative to the first; and the growth of the process's
memory over 100 calls.
Takes about five minutes on 2 cores. Expected for one text: the Transformer 50 times as fast as without a cache and 30
times as fast as nanoGPT, the LSTM 400 times as fast as without a cache; for 32 texts 6, 5 and 100 times.
"""

import dataclasses
import importlib.util
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from typing import Annotated

import numpy as np
import tensorflow as tf
import tyro

from experiments.frame.option_checks import check_options
from experiments.frame.report import markdown_table
from experiments.frame.startup import command_line, exit_with_message
from keras_seq.generation import SamplingLoop
from keras_seq.models import GPT2Config, LSTMConfig

VOCABULARY_SIZE = 65
COLUMN_NOTES = (
    "no cache: characters/s where the whole prefix is recomputed for every character. nanoGPT: characters/s of its "
    "generate on PyTorch. speedup: characters/s relative to the column on its left. last/first quarter: time of the "
    "last quarter of a text relative to that of its first."
)


@dataclasses.dataclass(frozen=True)
class GenerationSpeedConfig:
    """Measure the speed of text generation."""

    max_new_tokens: int = 1000
    """Characters to generate for one text; a batch of 32 gets a third of it, since nanoGPT is slow."""
    context_length: int = 1024
    """Context length of the Transformer, in characters: the texts fit in."""
    repeats: int = 5
    """Number of measurements, of which the median is reported."""
    calls: int = 100
    """Number of calls over which the growth of memory is measured."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use tiny sizes that take seconds, to check that everything works."""

    def __post_init__(self):
        check_options(self, max_new_tokens=1, context_length=1, repeats=1, calls=1)


def measure(model, batch_size: int, max_new_tokens: int, repeats: int) -> dict:
    """Measure `keras_seq.generation`.

    Args:
        model: A language model.
        batch_size: Number of texts.
        max_new_tokens: Characters of each text.
        repeats: Number of measurements, of which the medians are returned.

    Returns:
        `first_call_seconds`, `characters_per_second`, and the time of the last quarter of a text relative to the first.
    """
    sampling_loop, prompts = SamplingLoop(model), [[1]] * batch_size
    start_time = time.perf_counter()
    for _ in sampling_loop(prompts, max_new_tokens):
        pass
    first_call_seconds, speeds, ratios = time.perf_counter() - start_time, [], []
    for seed in range(repeats):
        start_time = time.perf_counter()
        num_generated, progress = 0, [(0, start_time)]
        for tokens in sampling_loop(prompts, max_new_tokens, seed=seed):
            num_generated += tokens.shape[1]
            progress.append((num_generated, time.perf_counter()))
        speeds.append(batch_size * max_new_tokens / (progress[-1][1] - start_time))
        counts, times = zip(*progress, strict=True)
        quarters = np.diff(np.interp(np.linspace(0, max_new_tokens, 5), counts, times))
        ratios.append(quarters[-1] / quarters[0])
    return {
        "first_call_seconds": first_call_seconds,
        "characters_per_second": statistics.median(speeds),
        "last_to_first_quarter": statistics.median(ratios),
    }


def uncached_speed(model, batch_size: int, max_new_tokens: int, repeats: int) -> float:
    """Estimate the characters per second without a cache from the model's time at 8 prefix lengths.

    Args:
        model: A language model.
        batch_size: Number of texts.
        max_new_tokens: Characters of each text.
        repeats: Number of measurements at each length, of which the median is used.
    """
    last_logits = tf.function(
        lambda ids: model(ids, training=False)[:, -1], input_signature=[tf.TensorSpec((None, None), tf.int32)]
    )
    lengths = np.unique(np.linspace(1, max_new_tokens, 8).astype(int))
    last_logits(tf.zeros((batch_size, 2), tf.int32))
    seconds = []
    for length in lengths:
        ids, times = tf.zeros((batch_size, length), tf.int32), []
        for _ in range(repeats + 1):
            start_time = time.perf_counter()
            last_logits(ids).numpy()
            times.append(time.perf_counter() - start_time)
        seconds.append(statistics.median(times[1:]))
    return batch_size * max_new_tokens / np.interp(np.arange(1, max_new_tokens + 1), lengths, seconds).sum()


def torch_speed(batch_size: int, max_new_tokens: int, context_length: int, repeats: int) -> float | None:
    """Measure the characters per second of nanoGPT's generate.

    Args:
        batch_size: Number of texts.
        max_new_tokens: Characters of each text.
        context_length: Context length of the model, in characters.
        repeats: Number of measurements, of which at most 3 are made.

    Returns:
        The median, or None where torch is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    options = {
        "batch-size": batch_size,
        "max-new-tokens": max_new_tokens,
        "context-length": context_length,
        "repeats": min(3, repeats),
    }
    process = subprocess.run(
        [sys.executable, "-m", "experiments.benchmark.torch_generation", *(f"--{k}={v}" for k, v in options.items())],
        cwd=pathlib.Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(process.stdout)["characters_per_second"]


def memory_growth(model, calls: int) -> float:
    """Return by how many MB the peak memory of the process grows over further calls.

    Args:
        model: A language model.
        calls: Number of calls, after 20 to warm up.
    """
    sampling_loop = SamplingLoop(model)

    def generate(seed):
        for _ in sampling_loop([[1, 2]], 40, seed=seed):
            pass

    for seed in range(20):
        generate(seed)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(calls):
        generate(seed)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024


@exit_with_message("experiments.benchmark.generation")
def main(arguments=None):
    """Run the command line: print the table."""
    config = command_line(GenerationSpeedConfig, "experiments.benchmark.generation", __doc__, arguments)
    if config.smoke:
        config = dataclasses.replace(config, max_new_tokens=40, context_length=64, repeats=1, calls=3)
    header = ["model", "B", "characters", "characters/s", "no cache", "speedup", "nanoGPT", "speedup"]
    lines = [[*header, "first call", "last/first quarter"]]
    model_configs = {
        "Transformer, 4 layers of 128": GPT2Config(context_length=config.context_length),
        "LSTM of 512": LSTMConfig(units=512),
    }
    for name, model_config in model_configs.items():
        model = model_config.build_model(VOCABULARY_SIZE)
        for batch_size in (1, 32):
            length = config.max_new_tokens if batch_size == 1 else max(1, config.max_new_tokens // 3)
            result = measure(model, batch_size, length, config.repeats)
            uncached = uncached_speed(model, batch_size, length, config.repeats)
            torch = None
            if isinstance(model_config, GPT2Config):
                torch = torch_speed(batch_size, length, config.context_length, config.repeats)
            speed = result["characters_per_second"]
            lines.append(
                [
                    *(name, str(batch_size), str(length), f"{speed:,.0f}", f"{uncached:,.0f}"),
                    f"{speed / uncached:.1f}",
                    *(("-", "-") if torch is None else (f"{torch:,.0f}", f"{speed / torch:.1f}")),
                    *(f"{result['first_call_seconds']:.1f} s", f"{result['last_to_first_quarter']:.2f}"),
                ]
            )
            print(f"{name}, batch {batch_size}: {speed:,.0f} characters/s", flush=True)
        print(f"{name}: {memory_growth(model, config.calls):.1f} MB more memory after {config.calls} more calls")
    print(f"\n{markdown_table(lines)}\n\n{COLUMN_NOTES}")


if __name__ == "__main__":
    main()
