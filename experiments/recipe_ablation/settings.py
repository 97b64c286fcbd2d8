"""Settings of `experiments.recipe_ablation`, and the recipes between the legacy char-RNN and the new one.

cumulative   legacy -> small size -> one change after the other -> new    each recipe is the previous one with a change
individual   the legacy recipe at the small size with one change          the effect of a change without the others
full size    the legacy recipe at its own size with one change            whether the small size ranks changes equally
"""

import dataclasses
from typing import Literal

from experiments.frame.option_checks import check_options
from experiments.frame.settings import CorpusName, LogDir, Resume, Seed, Smoke, check_multiple, check_unique, replaced
from experiments.frame.texts import smoke_corpus
from keras_seq import checks, training
from keras_seq.training.config import LEARNING_RATES

SMALL_SIZE = {"units": lambda units: max(1, units // 8)}
SPLIT = 10  # smaller batches that replace a legacy batch
CHANGES = {  # as for `replaced`
    "pipeline": {"pipeline": "tensors"},
    "stateful-windows": {"windows": "stateful"},
    "state-resets": {"reset_prob": 0.25},
    "initializer": {"recurrent_initializer": "orthogonal"},
    "clipping": {"train": {"global_clipnorm": 1.0}},
    "schedule": {"train": {"warmup_steps": 10, "final_lr_fraction": 0.02}},
    "learning-rate": {"train": {"learning_rate": LEARNING_RATES["adam"]["recurrent"]}},
    "optimizer": {"train": {"optimizer": "muon", "learning_rate": None}},
    "more-steps": {"batch_size": lambda size: size // SPLIT, "num_steps": lambda steps: steps * SPLIT},
    "whitespace": {"keep_whitespace": True},
}
Change = Literal[tuple(CHANGES)]
DURATIONS = ("warmup_steps", "log_every", "validate_every", "checkpoint_every")


@dataclasses.dataclass(frozen=True)
class RecipeConfig:
    """One way to train the char-RNN; the defaults are those of the legacy script."""

    keep_whitespace: bool = False
    """Whether spaces and newlines are part of the text."""
    embedding_dim: int = 128
    """Embedding width D."""
    units: int = 1024
    """Units of the LSTM."""
    recurrent_initializer: Literal["glorot_normal", "orthogonal"] = "glorot_normal"
    """Keras initializer of the recurrent matrix."""
    pipeline: Literal["generator", "tensors"] = "generator"
    """Random windows from a Python generator, or from tensors; the draws differ."""
    windows: Literal["random", "stateful"] = "random"
    """Random windows with carried state, or stateful windows, whose text continues."""
    reset_prob: float = 0.0
    """Probability with which a row starts from the zero state."""
    batch_size: int = 50
    """Batch size B, in windows."""
    sequence_length: int = 200
    """Sequence length T of the training windows, in characters."""
    num_steps: int = 200
    """Training steps of one batch each, which the legacy script called epochs."""
    train: training.TrainConfig = dataclasses.field(
        default_factory=lambda: training.TrainConfig(
            optimizer="adam",
            learning_rate=1e-3,
            warmup_steps=0,
            final_lr_fraction=1.0,
            global_clipnorm=1e9,  # above every gradient norm, so no gradient is clipped
            log_every=1,
            validate_every=50,
            checkpoint_every=100,
            sample_length=200,
        )
    )


@dataclasses.dataclass(frozen=True)
class RecipeAblationConfig:
    """Explain the loss of the legacy char-RNN by an ablation: apply one change after the other."""

    corpus: CorpusName = "docstrings"
    changes: tuple[Change, ...] = tuple(CHANGES)
    """Changes to apply cumulatively after the size, in this order."""
    individual: tuple[Change, ...] = (
        *("stateful-windows", "state-resets", "schedule", "learning-rate", "optimizer", "more-steps", "whitespace"),
    )
    """Changes to apply individually to the legacy recipe at the small size."""
    full_size: tuple[Change, ...] = ()
    """Changes to apply individually to the legacy recipe at its full size."""
    seed: Seed = 0
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    legacy: RecipeConfig = dataclasses.field(default_factory=RecipeConfig)

    def __post_init__(self):
        check_options(self)
        check_options(self.legacy, embedding_dim=1, units=1, sequence_length=1, num_steps=1)
        check_multiple("--legacy.batch-size", self.legacy.batch_size, SPLIT)
        check_unique("--changes", self.changes)
        checks.number("--legacy.reset-prob", self.legacy.reset_prob, 0, 1)
        if (patience := self.legacy.train.patience) is not None:
            raise ValueError(f"--legacy.train.patience {patience}: expected none, to train all recipes to their end.")

    @property
    def recipes(self) -> dict[str, RecipeConfig]:
        """The recipe of every run by the run's name: first the cumulative ones, from legacy to new."""
        small = recipe = replaced(self.legacy, SMALL_SIZE)
        recipes = {"00-legacy": self.legacy, "01-size": small}
        for number, change in enumerate(self.changes, 2):
            recipe = recipes[f"{number:02d}-{change}"] = replaced(recipe, CHANGES[change])
        recipes |= {f"individual-{change}": replaced(small, CHANGES[change]) for change in self.individual}
        return recipes | {f"full-size-{change}": replaced(self.legacy, CHANGES[change]) for change in self.full_size}

    def train_config(self, recipe: RecipeConfig) -> training.TrainConfig:
        """Return the training config of a recipe, whose durations are in legacy batches, in its own steps."""
        factor = recipe.num_steps // self.legacy.num_steps
        return replaced(recipe.train, dict.fromkeys(DURATIONS, lambda steps: steps * factor))


SMOKE = {
    "corpus": smoke_corpus,
    "changes": lambda changes: changes[-1:],
    "individual": ("more-steps",),
    "legacy": {
        **{"embedding_dim": 8, "units": 64, "batch_size": 10, "sequence_length": 12, "num_steps": 4},
        "train": {"validate_every": 2, "checkpoint_every": 2, "sample_length": 20},
    },
}
