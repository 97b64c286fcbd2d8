"""What is a longer past worth? Loss by position of an LSTM and a Transformer, trained with contexts of 64 to 512.

    python -m experiments.positions                                # Python's docstrings, offline
    python -m experiments.positions --corpus shakespeare
    python -m experiments.positions --contexts 64 1024
    python -m experiments.positions --smoke                        # seconds, tiny: does everything work?

Kaplan et al. (2020, figure 7) saw LSTMs flatten after some hundred tokens where Transformers go on. To expect on tiny
Shakespeare, seed 0, 0.35 million parameters each: both are flat. From 32-64 characters of past to 256-512 the LSTM
gains 0.003 nats and the Transformer 0.006 ± 0.001, none of it after 64-128; in the last doubling the LSTM gains
0.0000 and the Transformer loses 0.003. So the LSTM does as Kaplan says; a Transformer this small, after 1.2 million
characters, does not go on. cold@64, 128, 256, 512: LSTM 1.634, 1.613, 1.596, 1.604, Transformer 1.660, 1.645, 1.648,
1.682. 23 minutes of processor time (62 minutes on 2 cores that a dozen other programs used), more than half of it for
contexts of 512.
"""

import dataclasses
import pathlib
from typing import Annotated

import tyro

from experiments import positions_report, positions_scores, report
from experiments.corpora import for_smoke, note_copied
from experiments.crops import Parts, train_one
from experiments.options import check_options
from experiments.runs import begin, same_corpus
from experiments.startup import one_sentence
from keras_seq import training
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.tracking import write_hparams_config

FAMILIES = ("lstm", "transformer")


@dataclasses.dataclass(frozen=True)
class Train(training.TrainConfig):
    """As everywhere, with the pace of a short run."""

    checkpoint_every: int = 250
    """Steps between two checkpoints; the last two are kept."""


@dataclasses.dataclass(frozen=True)
class Positions:
    """Train two families at growing context, and look at their losses by position."""

    corpus: str = "docstrings"
    """docstrings or pydoc (come with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a
    UTF-8 file."""
    contexts: tuple[int, ...] = (64, 128, 256, 512)
    """Characters in a row; each is the smallest one times a power of 2."""
    tokens: int = 1_228_800
    """Characters that each model is trained on, passes counted again."""
    batch_tokens: int = 2048
    """Characters in a batch, whatever the context: rows x context."""
    seed: int = 0
    """Of weights and batches."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/positions/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/positions/UTC-TIME to go on with; options not given are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes, pydoc for docstrings: shows that everything works, and nothing else."""
    train: Train = dataclasses.field(default_factory=Train)
    lstm: LSTMConfig = dataclasses.field(default_factory=lambda: LSTMConfig(embedding_dim=64, units=256))
    transformer: TransformerConfig = dataclasses.field(
        default_factory=lambda: TransformerConfig(embedding_dim=96, num_layers=3, num_heads=3, feed_forward_dim=384)
    )

    def __post_init__(self):
        check_options(self, tokens=1, batch_tokens=1)
        smallest = min(self.contexts, default=0)
        given = f"--contexts {' '.join(map(str, self.contexts))}"
        if len(set(self.contexts)) < 2 or len(set(self.contexts)) < len(self.contexts):
            raise ValueError(f"{given}: expected two or more, each once.")
        if smallest < 2 or smallest % 2 or any(context not in self._doubled(smallest) for context in self.contexts):
            raise ValueError(f"{given}: expected an even number, and that number times powers of 2, e.g. 64 128 256.")
        if self.batch_tokens % self.longest:
            raise ValueError(
                f"--batch-tokens {self.batch_tokens}: expected a multiple of the longest context, {self.longest}."
            )
        if self.transformer.context is not None:
            raise ValueError(f"--transformer.context {self.transformer.context}: choose them by --contexts.")

    @staticmethod
    def _doubled(smallest):
        return {smallest * 2**k for k in range(32)}

    @property
    def longest(self) -> int:
        """The longest context: what is never seen beyond."""
        return max(self.contexts)

    @property
    def stride(self) -> int:
        """S, how far apart the scored windows begin."""
        return min(self.contexts)

    @property
    def block(self) -> int:
        """Characters in a block of text, which stands for itself in standard errors."""
        return 2 * self.longest

    @property
    def steps(self) -> int:
        """Batches that hold the tokens."""
        return -(-self.tokens // self.batch_tokens)

    def definition(self, family, context) -> LSTMConfig | TransformerConfig:
        """What the model is built from."""
        return self.lstm if family == "lstm" else dataclasses.replace(self.transformer, context=context)


def tiny(settings: Positions) -> Positions:
    """The same at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        corpus=for_smoke(settings.corpus),
        contexts=(8, 16),
        tokens=8 * 64,
        batch_tokens=64,
        train=dataclasses.replace(settings.train, warmup_steps=2, log_every=2, validate_every=4, checkpoint_every=8),
        lstm=dataclasses.replace(settings.lstm, embedding_dim=8, units=16),
        transformer=dataclasses.replace(
            settings.transformer, embedding_dim=16, num_layers=1, num_heads=2, feed_forward_dim=32
        ),
    )


def run_one(folder, settings: Positions, family, context, parts: Parts) -> dict:
    """One run: one family at one context. Returns what result.json says."""
    evaluator, result = train_one(
        *(folder, settings, family, settings.definition(family, context), parts),
        *(settings.batch_tokens // context, context, settings.steps, settings.train),
    )
    model, ids = evaluator.model, parts.validation
    starts = positions_scores.window_starts(len(ids), settings.stride, settings.longest)
    # A recurrent state has no length: the LSTM is read on beyond what it was trained with.
    length = model.context or settings.longest
    losses = positions_scores.nats_by_window(model, ids, starts, length)
    places, of_octaves = positions_scores.octaves(losses, starts, settings.stride, settings.longest)
    sums, counts = positions_scores.blocks(of_octaves, places, settings.block)
    result |= {
        "seed": settings.seed,
        "by_position": positions_scores.by_position(model, ids, settings.stride, losses, starts, settings.block),
        "octaves": {"first": settings.stride // 2, "sums": sums.tolist(), "counts": counts.tolist()},
    }
    training.write_result(folder, result)
    return result


def compare(settings: Positions, folder: pathlib.Path) -> list[dict]:
    """Trains all that is not yet trained in `folder`, then writes the report. Returns its rows."""
    parts = Parts(settings.corpus, min_length=2 * settings.block + 1)
    same_corpus(folder, parts.corpus)
    sizes = {
        family: settings.definition(family, settings.longest)
        .build_model(parts.vocabulary.vocabulary_size)
        .count_params()
        for family in FAMILIES
    }
    print(
        f"{parts.corpus.name}: {len(parts.train):,} characters to train on, {len(parts.validation):,} to validate on, "
        f"{parts.vocabulary.vocabulary_size} distinct; {settings.steps:,} steps of {settings.batch_tokens:,} characters"
        f"{report.validated(settings.train, parts.validation, settings.longest + 1)}"
    )
    note_copied(*parts.texts)
    print("Parameters: " + ", ".join(f"{name} {size:,}" for name, size in sizes.items()))
    print(report.sizes(sizes.values()))
    folder.mkdir(parents=True, exist_ok=True)
    write_hparams_config(folder, ("model.name", "model.context", "batch_size", "seed"))
    rows = []
    for context in sorted(settings.contexts):
        for family in FAMILIES:
            run = folder / f"{family}-{context}-seed{settings.seed}"
            rows.append(training.load_result(run) or run_one(run, settings, family, context, parts))
    positions_report.write(folder, parts.corpus.name, rows)
    return rows


@one_sentence("experiments.positions")
def main(arguments=None):
    """The command line."""
    with begin(Positions, "positions", __doc__, arguments, tiny) as (settings, folder):
        rows = compare(settings, folder)
        print(positions_report.closing(folder, rows))


if __name__ == "__main__":
    main()
