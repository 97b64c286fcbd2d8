"""How fast is text written?

    python -m experiments.generation_speed
    python -m experiments.generation_speed --smoke

For each row, in one run: characters per second of `keras_seq.generation`, of the same model when the whole prefix goes
through it for every character, and of nanoGPT's `generate` on PyTorch at the same sizes (`pip install torch`; left out
without it), medians of several. Besides: the seconds of the first call, tracing and compiling included; how long the
last quarter of a text takes against the first; and how the memory of the process grows over 100 calls.
About five minutes on 2 cores. To expect for one text: the Transformer 50 times as fast as by prefix and 30 times as
fast as nanoGPT, the LSTM 400 times as fast as by prefix; for 32 texts 6, 5 and 100 times (JOURNAL.md).
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

from experiments.options import check_options
from experiments.report import aligned
from experiments.startup import command_line, one_sentence
from keras_seq.generation import SamplingLoop
from keras_seq.models import GPT2Config, LSTMConfig

VOCABULARY = 65


@dataclasses.dataclass(frozen=True)
class Speed:
    """What to measure."""

    length: int = 1000
    """Characters of a text by itself; a batch of 32 has a third of it, for nanoGPT's sake."""
    context: int = 1024
    """C of the Transformer: the texts fit in."""
    repeats: int = 5
    """Measurements, of which the median is told."""
    calls: int = 100
    """Calls over which memory is watched."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds: shows that everything works, and nothing else."""

    def __post_init__(self):
        check_options(self, length=1, context=1, repeats=1, calls=1)


def summaries(model, batch_size, length, repeats) -> dict:
    """First call, characters per second, and the last quarter against the first."""
    decoder, prompts = SamplingLoop(model), [[1]] * batch_size
    begun = time.perf_counter()
    for _ in decoder(prompts, length):
        pass
    first, speeds, growths = time.perf_counter() - begun, [], []
    for seed in range(repeats):
        begun = time.perf_counter()
        told, at = 0, [(0, begun)]
        for piece in decoder(prompts, length, seed=seed):
            told += piece.shape[1]
            at.append((told, time.perf_counter()))
        speeds.append(batch_size * length / (at[-1][1] - begun))
        places, moments = zip(*at, strict=True)
        quarters = np.diff(np.interp(np.linspace(0, length, 5), places, moments))
        growths.append(quarters[-1] / quarters[0])
    return {
        "first_call_seconds": first,
        "characters_per_second": statistics.median(speeds),
        "last_to_first_quarter": statistics.median(growths),
    }


def by_prefix(model, batch_size, length, repeats) -> float:
    """Characters per second when the prefix goes through the model again for each: from its time at 8 lengths."""
    whole = tf.function(
        lambda ids: model(ids, training=False)[:, -1], input_signature=[tf.TensorSpec((None, None), tf.int32)]
    )
    lengths = np.unique(np.linspace(1, length, 8).astype(int))
    whole(tf.zeros((batch_size, 2), tf.int32))
    seconds = []
    for n in lengths:
        ids, times = tf.zeros((batch_size, n), tf.int32), []
        for _ in range(repeats + 1):
            begun = time.perf_counter()
            whole(ids).numpy()
            times.append(time.perf_counter() - begun)
        seconds.append(statistics.median(times[1:]))
    return batch_size * length / np.interp(np.arange(1, length + 1), lengths, seconds).sum()


def by_torch(batch_size, length, context, repeats) -> float | None:
    """Characters per second of nanoGPT's generate, or None without torch."""
    if importlib.util.find_spec("torch") is None:
        return None
    options = {"batch-size": batch_size, "length": length, "context": context, "repeats": min(3, repeats)}
    done = subprocess.run(
        [sys.executable, "-m", "experiments.torch_generation", *(f"--{k}={v}" for k, v in options.items())],
        cwd=pathlib.Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)["characters_per_second"]


def megabytes_grown(model, calls) -> float:
    """How much the largest memory of the process grew over further calls."""
    decoder = SamplingLoop(model)

    def write(seed):
        for _ in decoder([[1, 2]], 40, seed=seed):
            pass

    for seed in range(20):
        write(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for seed in range(calls):
        write(seed)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


@one_sentence("experiments.generation_speed")
def main(arguments=None):
    """The command line: prints the table."""
    speed = command_line(Speed, "experiments.generation_speed", __doc__, arguments)
    if speed.smoke:
        speed = dataclasses.replace(speed, length=40, context=64, repeats=1, calls=3)
    rows = [
        ["model", "B", "characters", "characters/s", "by prefix", "times", "nanoGPT", "times", "first call", "late"]
    ]
    models = {
        "Transformer, 4 layers of 128": GPT2Config(context_length=speed.context),
        "LSTM of 512": LSTMConfig(units=512),
    }
    for name, definition in models.items():
        model = definition.build_model(VOCABULARY)
        for batch_size in (1, 32):
            length = speed.length if batch_size == 1 else max(1, speed.length // 3)
            ours = summaries(model, batch_size, length, speed.repeats)
            prefix = by_prefix(model, batch_size, length, speed.repeats)
            torch = None
            if isinstance(definition, GPT2Config):
                torch = by_torch(batch_size, length, speed.context, speed.repeats)
            rate = ours["characters_per_second"]
            rows.append(
                [
                    *(name, str(batch_size), str(length), f"{rate:,.0f}", f"{prefix:,.0f}", f"{rate / prefix:.1f}"),
                    *(("-", "-") if torch is None else (f"{torch:,.0f}", f"{rate / torch:.1f}")),
                    *(f"{ours['first_call_seconds']:.1f} s", f"{ours['last_to_first_quarter']:.2f}"),
                ]
            )
            print(f"{name}, batch {batch_size}: {rate:,.0f} characters/s", flush=True)
        print(f"{name}: {megabytes_grown(model, speed.calls):.1f} MB more memory after {speed.calls} more calls")
    print(f"\n{aligned(rows)}\n\nlate: the time of the last quarter of a text by that of its first.")


if __name__ == "__main__":
    main()
