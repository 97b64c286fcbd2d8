"""How loss falls with size: five sizes of an LSTM and of a Transformer, with the same tokens and with the same compute.

    python -m experiments.scaling                                  # Python's docstrings, offline
    python -m experiments.scaling --corpus shakespeare
    python -m experiments.scaling --tokens 2000000 --compute 1e12
    python -m experiments.scaling --smoke                          # seconds, tiny: does everything work?

Sizes from 12,000 to 790,000 weights, embedding and output matrix left out. By the tokens each family gets a power law
with its end L_inf, if five points say where it is, and without; by the compute a parabola in ln N (Hoffmann et al.,
2022), because a model that is too large for its compute has seen too few tokens. Narrow LSTMs learn at higher rates,
by the root of their width; Transformers all at one.

To expect on tiny Shakespeare, after eight minutes on 2 cores: with 460,800 tokens each, twice the size takes 2.3 % off
an LSTM's loss and 2.6 % off a Transformer's (exponents 0.033 ± 0.011 and 0.037 ± 0.002; where it ends cannot be told
from these sizes). With 3e11 operations each, the best sizes are near 50,000 and 40,000 weights.
"""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from experiments import scaling_report, scaling_sizes
from experiments.corpora import for_smoke, note_copied
from experiments.crops import Parts, train_one
from experiments.options import check_options
from experiments.report import validated
from experiments.runs import begin, same_corpus
from experiments.startup import one_sentence
from keras_seq import training
from keras_seq.models.flops import flops_per_token
from keras_seq.tracking import write_hparams_config

BUDGETS = ("tokens", "compute")


@dataclasses.dataclass(frozen=True)
class Train(training.TrainConfig):
    """As everywhere, with the pace of short runs."""

    log_every: int = 25
    """Steps between two points of the training curve."""
    validate_every: int = 1000
    """Steps between two passes over the validation split; the last step has one always."""
    checkpoint_every: int = 500
    """Steps between two checkpoints; the last two are kept."""


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Train five sizes of two families, and fit power laws to their losses."""

    corpus: str = "docstrings"
    """docstrings or pydoc (come with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a
    UTF-8 file."""
    families: tuple[Literal["lstm", "transformer"], ...] = ("lstm", "transformer")
    """Which of them."""
    tokens: int = 460_800
    """The budget of tokens: characters that each size is trained on, passes counted again."""
    compute: float = 3e11
    """The budget of compute: floating-point operations that the training of each size takes."""
    batch_size: int = 12
    """Rows in a batch."""
    context: int = 64
    """Characters in a row."""
    seed: int = 0
    """Of weights and batches."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/scaling/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/scaling/UTC-TIME to go on with; options not given are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes, pydoc for docstrings: shows that everything works, and nothing else."""
    train: Train = dataclasses.field(default_factory=Train)

    def __post_init__(self):
        check_options(self, tokens=1, batch_size=1, context=1)
        if self.compute <= 0:
            raise ValueError(f"--compute {self.compute}: expected a number of operations above zero, e.g. 4e11.")
        if not self.families or len(set(self.families)) < len(self.families):
            raise ValueError(f"--families {' '.join(self.families)}: expected one or two, each once.")

    def steps(self, budget, flops) -> int:
        """Batches that a model of so many training operations a token gets."""
        tokens = self.tokens if budget == "tokens" else self.compute / flops
        return round(tokens / (self.batch_size * self.context))

    def trained(self, model, definition, steps) -> training.TrainConfig:
        """How a size is trained: the learning rate that fits its width, a warm-up of a tenth of the run at most."""
        rate = self.train.peak_learning_rate(model)
        if self.train.learning_rate is None:
            rate *= scaling_sizes.factor(definition)
        return dataclasses.replace(
            self.train, learning_rate=float(f"{rate:.3g}"), warmup_steps=min(self.train.warmup_steps, steps // 10)
        )


def tiny(settings: Scaling) -> Scaling:
    """The same at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        corpus=for_smoke(settings.corpus),
        families=settings.families[:1],
        tokens=8 * 4 * 8,
        compute=6e6,
        batch_size=4,
        context=8,
        train=dataclasses.replace(settings.train, log_every=1, validate_every=8, checkpoint_every=8),
    )


@dataclasses.dataclass(frozen=True)
class Planned:
    """One run before it is begun."""

    family: str
    budget: str
    definition: object
    non_embedding: int
    flops_per_token: int
    steps: int
    train: training.TrainConfig

    @property
    def name(self) -> str:
        """What its folder is called, but for the seed."""
        return f"{self.family}-{self.non_embedding}-{self.budget}"


def plan(settings: Scaling, vocabulary_size) -> list[Planned]:
    """All runs, each size by both budgets."""
    planned = []
    for family in settings.families:
        for definition in scaling_sizes.definitions(family, settings.context, settings.smoke):
            model = definition.build_model(vocabulary_size)
            flops = flops_per_token(model, settings.context, training=True)
            for budget in BUDGETS:
                steps = settings.steps(budget, flops)
                if steps < 1:
                    needed = flops * settings.batch_size * settings.context
                    raise ValueError(
                        f"--{budget} {getattr(settings, budget):g}: less than a batch for the {family} of "
                        f"{model.count_params():,} parameters, which costs {needed:.1g} operations; give more."
                    )
                train = settings.trained(model, definition, steps)
                size = scaling_sizes.non_embedding(model)
                planned.append(Planned(family, budget, definition, size, flops, steps, train))
    return planned


def run_one(folder, settings: Scaling, run: Planned, parts: Parts) -> dict:
    """One run. Returns what result.json says."""
    _, result = train_one(
        *(folder, settings, run.family, run.definition, parts),
        *(settings.batch_size, settings.context, run.steps, run.train),
    )
    result |= {
        "budget": run.budget,
        "seed": settings.seed,
        "steps": run.steps,
        "non_embedding_parameters": run.non_embedding,
        "train_flops": run.flops_per_token * result["train_tokens"],
    }
    training.write_result(folder, result)
    return result


def scale(settings: Scaling, folder: pathlib.Path) -> list[dict]:
    """Trains all that is not yet trained in `folder`, then writes the report. Returns its rows."""
    parts = Parts(settings.corpus, min_length=settings.context + 1)
    same_corpus(folder, parts.corpus)
    planned = plan(settings, parts.vocabulary.vocabulary_size)
    print(
        f"{parts.corpus.name}: {len(parts.train):,} characters to train on, {len(parts.validation):,} to validate on, "
        f"{parts.vocabulary.vocabulary_size} distinct; {len(planned)} runs of {settings.tokens:,} characters or "
        f"{settings.compute:.2g} operations{validated(settings.train, parts.validation, settings.context + 1)}"
    )
    note_copied(*parts.texts)
    folder.mkdir(parents=True, exist_ok=True)
    write_hparams_config(folder, ("model.name", "train.learning_rate", "steps", "seed"))
    rows = []
    for run in planned:
        path = folder / f"{run.name}-seed{settings.seed}"
        rows.append(training.load_result(path) or run_one(path, settings, run, parts))
    scaling_report.write(folder, parts.corpus.name, rows)
    return rows


@one_sentence("experiments.scaling")
def main(arguments=None):
    """The command line."""
    with begin(Scaling, "scaling", __doc__, arguments, tiny) as (settings, folder):
        rows = scale(settings, folder)
        print(scaling_report.closing(folder, rows))


if __name__ == "__main__":
    main()
