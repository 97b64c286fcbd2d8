"""How fast are the pipelines that feed the models?

    python -m experiments.pipeline_speed
    python -m experiments.pipeline_speed --smoke

Takes half a minute. On 2 cores the table lookup of a whole text does tens of millions of characters a second, and so do
windows of 50 x 200 (at least 2 and 10 million are asked for); the Python generator of 2017 falls far behind.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import tensorflow as tf

from experiments.options import check_options
from experiments.startup import command_line, one_sentence
from keras_seq.data import PythonGeneratorWindows, RandomWindows, SequentialWindows, StatefulWindows, load_corpus
from keras_seq.tokenizers import CharacterTokenizer


@dataclass(frozen=True)
class Benchmark:
    """What to measure."""

    batch_size: int = 50
    """B, rows in a batch."""
    length: int = 200
    """T, positions in a row."""
    seconds: float = 0.5
    """How long one measurement takes at least."""
    repeats: int = 5
    """Measurements of each pipeline, of which the median is told."""
    smoke: bool = False
    """One short measurement of each: shows that everything works, and nothing else."""

    def __post_init__(self):
        check_options(self, batch_size=1, length=1, seconds=0, repeats=1)


def measure(benchmark: Benchmark) -> dict[str, float]:
    """Tokens or characters per second of each pipeline, by its name."""
    text = load_corpus("pydoc").text
    vocabulary = CharacterTokenizer.from_text(text)
    ids = vocabulary.encode(text)
    sizes = {"batch_size": benchmark.batch_size, "length": benchmark.length}
    lanes = StatefulWindows(ids, **sizes, reset_prob=0.25)
    pipelines = {
        "Lanes": lanes.dataset(),
        "Lanes, with the rows to reset": lanes.stateful_dataset(),
        "RandomCrops": RandomWindows(ids, **sizes).dataset(),
        "Blocks": SequentialWindows(ids, **sizes).dataset(),
        "GeneratorWindows": PythonGeneratorWindows(ids, **sizes).dataset(),
    }
    speeds = {
        "Vocabulary.encode of the whole text": _median_speed(lambda: len(vocabulary.encode(text)), benchmark),
        "Vocabulary.decode of the whole text": _median_speed(lambda: len(vocabulary.decode(ids)), benchmark),
    }
    for name, dataset in pipelines.items():
        batches = iter(dataset)
        speeds[name] = _median_speed(lambda batches=batches: int(tf.size(next(batches)[-1])), benchmark)
    return speeds


def _median_speed(work: Callable[[], int], benchmark: Benchmark) -> float:
    work()  # the first call traces and fills the buffers
    speeds = []
    for _ in range(benchmark.repeats):
        tokens, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < benchmark.seconds or not tokens:
            tokens += work()
        speeds.append(tokens / elapsed)
    return statistics.median(speeds)


@one_sentence("experiments.pipeline_speed")
def main(arguments: list[str] | None = None) -> None:
    """The command line: prints the table."""
    benchmark = command_line(Benchmark, "experiments.pipeline_speed", __doc__, arguments)
    if benchmark.smoke:
        benchmark = replace(benchmark, seconds=0.01, repeats=1)
    print(f"| pipeline, B {benchmark.batch_size}, T {benchmark.length} | tokens/s |\n|---|---|")
    for name, speed in measure(benchmark).items():
        print(f"| {name} | {speed:,.0f} |")


if __name__ == "__main__":
    main()
