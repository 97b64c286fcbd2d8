"""Measure what a longer past is worth: loss by position of LSTMs and Transformers trained on windows of 64 to 512.

    python -m experiments.loss_by_position                             # Python's docstrings, offline
    python -m experiments.loss_by_position --corpus shakespeare
    python -m experiments.loss_by_position --sequence-lengths 64 1024
    python -m experiments.loss_by_position --smoke                     # tiny sizes, takes seconds

Kaplan et al. (2020, https://arxiv.org/abs/2001.08361, figure 7) found that the loss of LSTMs stops falling after some
hundred tokens of context, while that of Transformers keeps falling.

Expected result on tiny Shakespeare, seed 0, 0.35 million parameters each: both are flat. From 32-64 characters of past
to 256-512 the loss of the LSTM falls by 0.003 nats and that of the Transformer by 0.006 ± 0.001, none of it after
64-128; in the last doubling it changes by 0.0000 (LSTM), and rises by 0.003 (Transformer). So the LSTM agrees with
Kaplan et al.; a Transformer of this size, after 1.2 million characters, does not. val_loss@64, 128, 256, 512: LSTM
1.634, 1.613, 1.596, 1.604, Transformer 1.660, 1.645, 1.648, 1.682. This takes 23 minutes of processor time (62 minutes
on 2 cores shared with other programs), more than half of it for windows of 512.
"""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from experiments.frame import report
from experiments.frame.corpora import for_smoke, print_overlap_note
from experiments.frame.option_checks import check_options
from experiments.frame.random_window_training import SplitCorpus, train_one
from experiments.frame.runs import check_same_corpus, start_or_resume
from experiments.frame.startup import exit_with_message
from experiments.loss_by_position import report as loss_by_position_report
from experiments.loss_by_position import scores as loss_by_position_metrics
from keras_seq import training
from keras_seq.models import LSTMConfig, TransformerConfig

FAMILIES = ("lstm", "transformer")


@dataclasses.dataclass(frozen=True)
class TrainConfig(training.TrainConfig):
    """Training options for short runs."""

    checkpoint_every: int = 250
    """Steps between two checkpoints; the last two are kept."""


@dataclasses.dataclass(frozen=True)
class LossByPositionConfig:
    """Train two families at growing sequence lengths, and compare their losses by position."""

    corpus: str = "docstrings"
    """docstrings or pydoc (come with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a
    UTF-8 file.
    """
    sequence_lengths: tuple[int, ...] = (64, 128, 256, 512)
    """Sequence lengths T of the training windows, in characters: the smallest one times powers of 2."""
    tokens: int = 1_228_800
    """Characters that each model is trained on, over all epochs."""
    batch_tokens: int = 2048
    """Characters in a batch, at every sequence length."""
    seed: int = 0
    """Random seed of the weights and batches."""
    log_dir: str = "logs"
    """Folder for logs; the runs are written to LOG_DIR/loss_by_position/UTC-TIME/."""
    resume: str | None = None
    """Folder LOG_DIR/loss_by_position/UTC-TIME to resume. Options not given are read from its config.json."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use tiny sizes that take seconds, and pydoc for docstrings, to check that everything works."""
    train: TrainConfig = dataclasses.field(default_factory=TrainConfig)
    lstm: LSTMConfig = dataclasses.field(default_factory=lambda: LSTMConfig(embedding_dim=64, units=256))
    transformer: TransformerConfig = dataclasses.field(
        default_factory=lambda: TransformerConfig(embedding_dim=96, num_layers=3, num_heads=3, feed_forward_dim=384)
    )

    def __post_init__(self):
        check_options(self, tokens=1, batch_tokens=1)
        smallest = min(self.sequence_lengths, default=0)
        option = f"--sequence-lengths {' '.join(map(str, self.sequence_lengths))}"
        if len(set(self.sequence_lengths)) < 2 or len(set(self.sequence_lengths)) < len(self.sequence_lengths):
            raise ValueError(f"{option}: expected two or more lengths, each once.")
        if (
            smallest < 2
            or smallest % 2
            or any(length not in self._doubled(smallest) for length in self.sequence_lengths)
        ):
            raise ValueError(f"{option}: expected an even number and that number times powers of 2, e.g. 64 128 256.")
        if self.batch_tokens % self.max_length:
            raise ValueError(
                f"--batch-tokens {self.batch_tokens}: expected a multiple of the longest sequence length, "
                f"{self.max_length}."
            )
        if self.transformer.context_length is not None:
            raise ValueError(
                f"--transformer.context-length {self.transformer.context_length}: expected none; it is set to each of "
                "the --sequence-lengths."
            )

    @staticmethod
    def _doubled(smallest):
        return {smallest * 2**k for k in range(32)}

    @property
    def max_length(self) -> int:
        """Return the longest sequence length; no score uses a longer past."""
        return max(self.sequence_lengths)

    @property
    def stride(self) -> int:
        """Return S, the distance between the starts of two scored windows, in characters."""
        return min(self.sequence_lengths)

    @property
    def block(self) -> int:
        """Return the characters in a block of text, the independent unit of the standard errors."""
        return 2 * self.max_length

    @property
    def steps(self) -> int:
        """Return the number of training steps that `tokens` take."""
        return -(-self.tokens // self.batch_tokens)

    def model_config(self, family: str, sequence_length: int) -> LSTMConfig | TransformerConfig:
        """Return the config of a model.

        Args:
            family: "lstm" or "transformer".
            sequence_length: T of its training windows.
        """
        return self.lstm if family == "lstm" else dataclasses.replace(self.transformer, context_length=sequence_length)


def smoke_config(config: LossByPositionConfig) -> LossByPositionConfig:
    """Return the config with tiny sizes that take seconds."""
    return dataclasses.replace(
        config,
        corpus=for_smoke(config.corpus),
        sequence_lengths=(8, 16),
        tokens=8 * 64,
        batch_tokens=64,
        train=dataclasses.replace(config.train, warmup_steps=2, log_every=2, validate_every=4, checkpoint_every=8),
        lstm=dataclasses.replace(config.lstm, embedding_dim=8, units=16),
        transformer=dataclasses.replace(
            config.transformer, embedding_dim=16, num_layers=1, num_heads=2, feed_forward_dim=32
        ),
    )


def run_one(
    folder: pathlib.Path, config: LossByPositionConfig, family: str, sequence_length: int, split_corpus: SplitCorpus
) -> dict:
    """Train and score one family at one sequence length.

    Args:
        folder: Folder of the run.
        config: Options of the experiment.
        family: "lstm" or "transformer".
        sequence_length: T of the training windows.
        split_corpus: The corpus.

    Returns:
        The content of result.json.
    """
    evaluator, result = train_one(
        *(folder, config, family, config.model_config(family, sequence_length), split_corpus),
        *(config.batch_tokens // sequence_length, sequence_length, config.steps, config.train),
    )
    model, ids = evaluator.model, split_corpus.validation
    starts = loss_by_position_metrics.window_starts(len(ids), config.stride, config.max_length)
    # A recurrent state has no maximum length, so the LSTM is also scored beyond its training length.
    length = model.context_length or config.max_length
    losses = loss_by_position_metrics.window_losses(model, ids, starts, length)
    indices, octave_losses = loss_by_position_metrics.octaves(losses, starts, config.stride, config.max_length)
    sums, counts = loss_by_position_metrics.block_sums(octave_losses, indices, config.block)
    result |= {
        "seed": config.seed,
        "by_position": loss_by_position_metrics.by_position(model, ids, config.stride, losses, starts, config.block),
        "octaves": {"first": config.stride // 2, "sums": sums.tolist(), "counts": counts.tolist()},
    }
    training.write_result(folder, result)
    return result


def compare(config: LossByPositionConfig, folder: pathlib.Path) -> list[dict]:
    """Train the models that are not finished yet, and write the report.

    Args:
        config: Options of the experiment.
        folder: Folder of the experiment.

    Returns:
        The rows of the report.
    """
    split_corpus = SplitCorpus(config.corpus, min_length=2 * config.block + 1)
    check_same_corpus(folder, split_corpus.corpus)
    counts = {
        family: config.model_config(family, config.max_length)
        .build_model(split_corpus.vocabulary.vocabulary_size)
        .count_params()
        for family in FAMILIES
    }
    print(
        f"{split_corpus.corpus.name}: {len(split_corpus.train):,} training characters, "
        f"{len(split_corpus.validation):,} validation characters, {split_corpus.vocabulary.vocabulary_size} distinct; "
        f"{config.steps:,} steps of {config.batch_tokens:,} "
        f"characters{report.validation_note(config.train, split_corpus.validation, config.max_length + 1)}"
    )
    print_overlap_note(*split_corpus.texts)
    print("Parameters: " + ", ".join(f"{name} {count:,}" for name, count in counts.items()))
    print(report.sizes(counts.values()))
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for sequence_length in sorted(config.sequence_lengths):
        for family in FAMILIES:
            run = folder / f"{family}-{sequence_length}-seed{config.seed}"
            rows.append(training.load_result(run) or run_one(run, config, family, sequence_length, split_corpus))
    loss_by_position_report.write_report(folder, split_corpus.corpus.name, rows)
    return rows


@exit_with_message("experiments.loss_by_position")
def main(arguments: list[str] | None = None):
    """Run the experiment from the command line."""
    with start_or_resume(LossByPositionConfig, "loss_by_position", __doc__, arguments, smoke_config) as (
        config,
        folder,
    ):
        rows = compare(config, folder)
        print(loss_by_position_report.final_message(folder, rows))


if __name__ == "__main__":
    main()
