"""How fast are the input pipelines, in tokens per second?

    python -m experiments.benchmark.pipeline
    python -m experiments.benchmark.pipeline --smoke

Takes half a minute. Expected on 2 cores: tens of millions of characters per second for the table lookup of a whole
text and for windows of 50 x 200 (targets: at least 2 and 10 million); far fewer for the Python generator of 2017.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import tensorflow as tf

from experiments.frame.option_checks import check_options
from experiments.frame.startup import command_line, exit_with_message
from keras_seq.data import PythonGeneratorWindows, RandomWindows, SequentialWindows, StatefulWindows, load_corpus
from keras_seq.tokenizers import CharacterTokenizer


@dataclass(frozen=True)
class PipelineSpeedConfig:
    """Measure the speed of the input pipelines."""

    batch_size: int = 50
    """Number of windows B in a batch."""
    sequence_length: int = 200
    """Sequence length T of the windows, in tokens."""
    seconds: float = 0.5
    """Minimum duration of a measurement, in seconds."""
    repeats: int = 5
    """Number of measurements of each pipeline, of which the median is reported."""
    smoke: bool = False
    """Make one short measurement of each pipeline, to check that everything works."""

    def __post_init__(self):
        check_options(self, batch_size=1, sequence_length=1, seconds=0, repeats=1)


def measure(config: PipelineSpeedConfig) -> dict[str, float]:
    """Return the tokens (or characters) per second of each pipeline, by its name."""
    text = load_corpus("pydoc").text
    tokenizer = CharacterTokenizer.from_text(text)
    ids = tokenizer.encode(text)
    sizes = {"batch_size": config.batch_size, "sequence_length": config.sequence_length}
    stateful_windows = StatefulWindows(ids, **sizes, reset_prob=0.25)
    pipelines = {
        "StatefulWindows": stateful_windows.dataset(),
        "StatefulWindows, with the reset mask": stateful_windows.stateful_dataset(),
        "RandomWindows": RandomWindows(ids, **sizes).dataset(),
        "SequentialWindows": SequentialWindows(ids, **sizes).dataset(),
        "PythonGeneratorWindows": PythonGeneratorWindows(ids, **sizes).dataset(),
    }
    speeds = {
        "CharacterTokenizer.encode of the whole text": _median_speed(lambda: len(tokenizer.encode(text)), config),
        "CharacterTokenizer.decode of the whole text": _median_speed(lambda: len(tokenizer.decode(ids)), config),
    }
    for name, dataset in pipelines.items():
        batches = iter(dataset)
        speeds[name] = _median_speed(lambda batches=batches: int(tf.size(next(batches)[-1])), config)
    return speeds


def _median_speed(work: Callable[[], int], config: PipelineSpeedConfig) -> float:
    work()  # the first call traces and fills the buffers
    speeds = []
    for _ in range(config.repeats):
        tokens, start_time = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start_time) < config.seconds or not tokens:
            tokens += work()
        speeds.append(tokens / elapsed)
    return statistics.median(speeds)


@exit_with_message("experiments.benchmark.pipeline")
def main(arguments: list[str] | None = None) -> None:
    """Run the command line: print the table."""
    config = command_line(PipelineSpeedConfig, "experiments.benchmark.pipeline", __doc__, arguments)
    if config.smoke:
        config = replace(config, seconds=0.01, repeats=1)
    print(f"| pipeline, B {config.batch_size}, T {config.sequence_length} | tokens/s |\n|---|---|")
    for name, speed in measure(config).items():
        print(f"| {name} | {speed:,.0f} |")


if __name__ == "__main__":
    main()
