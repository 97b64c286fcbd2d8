"""Define the options of `experiments.recipe_ablation`, and the recipes between the legacy char-RNN and the new one.

cumulative   legacy -> small size -> one change after the other -> new    each recipe is the previous one with a change
individual   the legacy recipe at the small size with one change          the effect of a change without the others
full size    the legacy recipe at its own size with one change            whether the small size ranks changes equally
"""

import dataclasses
from typing import Annotated, Literal

import tyro

from experiments.frame.option_checks import check_options
from keras_seq import training
from keras_seq.training.config import LEARNING_RATES

CHANGES = (
    *("pipeline", "stateful-windows", "state-resets", "initializer", "clipping", "schedule"),
    *("learning-rate", "optimizer", "more-steps", "whitespace"),
)
Change = Literal[CHANGES]
NO_CLIPPING = 1e9  # above every gradient norm, so no gradient is clipped


@dataclasses.dataclass(frozen=True)
class RecipeTrainConfig(training.TrainConfig):
    """Training of the new recipe. Durations are in legacy batches; smaller batches get proportionally more steps."""

    warmup_steps: int = 10
    """Steps over which the learning rate rises from zero."""
    log_every: int = 1
    """Steps between two points of the training curve; the legacy script printed every step."""
    validate_every: int = 50
    """Steps between two validations."""
    checkpoint_every: int = 100
    """Steps between two checkpoints; the last two are kept."""
    sample_length: int = 200
    """Characters in a sample of text."""


@dataclasses.dataclass(frozen=True)
class RecipeConfig:
    """One way to train the char-RNN. `RecipeAblationConfig.legacy` is the recipe of the legacy script."""

    keep_whitespace: bool
    units: int
    pipeline: str
    windows: str
    reset_prob: float
    recurrent_initializer: str
    global_clipnorm: float
    warmup_steps: int
    final_lr_fraction: float
    optimizer: str
    learning_rate: float | None
    batch_size: int
    num_steps: int


@dataclasses.dataclass(frozen=True)
class RecipeAblationConfig:
    """Explain the loss of the legacy char-RNN by an ablation: apply one change after the other."""

    corpus: str = "docstrings"
    """Training corpus: docstrings or pydoc (come with Python), shakespeare (downloaded once, or from the folder
    KERAS_SEQ_DATA), or a UTF-8 file."""
    legacy_units: int = 1024
    """Units of the legacy LSTM."""
    units: int = 128
    """Units of the LSTM with which all changes but the size are measured."""
    embedding_dim: int = 128
    """Embedding width D."""
    batch_size: int = 50
    """Batch size of the legacy recipe."""
    sequence_length: int = 200
    """Sequence length T of the training windows, in characters."""
    legacy_steps: int = 200
    """Training steps of the legacy recipe, one batch each, which the legacy script called epochs."""
    split_batches: int = 10
    """Number of smaller batches that replace a legacy batch in the change `more-steps`. A divisor of the batch size."""
    reset_prob: float = 0.25
    """Probability with which a row starts from the zero state in the change `state-resets`."""
    learning_rate: float = LEARNING_RATES["adam"]["recurrent"]
    """Learning rate of Adam in the change `learning-rate`; the legacy one is 1e-3."""
    pipeline: Literal["generator", "per_character"] = "generator"
    """Input pipeline of the legacy recipe. generator: windows from a Python generator. per_character: also look up
    every character separately, as the legacy script did, at 2,660 characters per second. The batches are the same."""
    changes: tuple[Change, ...] = CHANGES
    """Changes to apply cumulatively after the size, in this order."""
    individual: tuple[Change, ...] = (
        *("stateful-windows", "state-resets", "schedule", "learning-rate", "optimizer", "more-steps", "whitespace"),
    )
    """Changes to apply individually to the legacy recipe at the small size."""
    full_size: tuple[Change, ...] = ()
    """Changes to apply individually to the legacy recipe at its full size."""
    seed: int = 0
    """Random seed of the weights and batches."""
    log_dir: str = "logs"
    """Folder of the runs: LOG_DIR/recipe_ablation/UTC-TIME/."""
    resume: str | None = None
    """Folder LOG_DIR/recipe_ablation/UTC-TIME to resume. Options not given on the command line are read from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Use tiny sizes that take seconds, to check that everything works."""
    train: RecipeTrainConfig = dataclasses.field(default_factory=RecipeTrainConfig)

    def __post_init__(self):
        sizes = {"batch_size": 1, "sequence_length": 1, "legacy_steps": 1, "split_batches": 1}
        check_options(self, **sizes, legacy_units=1, units=1, embedding_dim=1)
        if self.batch_size % self.split_batches:
            raise ValueError(
                f"--split-batches {self.split_batches}: expected a divisor of --batch-size {self.batch_size}."
            )
        if not 0 <= self.reset_prob <= 1:
            raise ValueError(f"--reset-prob {self.reset_prob}: expected a probability from 0 to 1.")
        if self.train.patience is not None:
            raise ValueError(
                f"--train.patience {self.train.patience}: expected none, since all recipes are trained to their end."
            )
        if self.learning_rate <= 0:
            raise ValueError(f"--learning-rate {self.learning_rate}: expected a number above zero.")
        for name in ("changes", "individual", "full_size"):
            changes = getattr(self, name)
            if len(set(changes)) < len(changes) or not self.changes:
                option = name.replace("_", "-")
                raise ValueError(f"--{option} {' '.join(changes)}: expected at least one change, each only once.")

    @property
    def legacy(self) -> RecipeConfig:
        """Return the recipe of the legacy script."""
        return RecipeConfig(
            keep_whitespace=False,
            units=self.legacy_units,
            pipeline=self.pipeline,
            windows="random",
            reset_prob=0.0,
            recurrent_initializer="glorot_normal",
            global_clipnorm=NO_CLIPPING,
            warmup_steps=0,
            final_lr_fraction=1.0,
            optimizer="adam",
            learning_rate=1e-3,
            batch_size=self.batch_size,
            num_steps=self.legacy_steps,
        )

    @property
    def new_values(self) -> dict[str, dict]:
        """Return the fields of a recipe that each change sets."""
        train = self.train
        return {
            "size": {"units": self.units},
            "pipeline": {"pipeline": "tensors"},
            "stateful-windows": {"windows": "stateful"},
            "state-resets": {"reset_prob": self.reset_prob},
            "initializer": {"recurrent_initializer": "orthogonal"},
            "clipping": {"global_clipnorm": train.global_clipnorm},
            "schedule": {"warmup_steps": train.warmup_steps, "final_lr_fraction": train.final_lr_fraction},
            "learning-rate": {"learning_rate": self.learning_rate},
            "optimizer": {"optimizer": train.optimizer, "learning_rate": train.learning_rate},
            "more-steps": {
                "batch_size": self.batch_size // self.split_batches,
                "num_steps": self.legacy_steps * self.split_batches,
            },
            "whitespace": {"keep_whitespace": True},
        }

    @property
    def cumulative(self) -> tuple[str, ...]:
        """Return the cumulative changes in order; the size is first, so the others are measured at the small size."""
        return ("size", *self.changes)

    @property
    def recipes(self) -> dict[str, RecipeConfig]:
        """Return the recipe of every run by the run's name: first the cumulative ones, from legacy to new."""
        recipe = self.legacy
        recipes = {"00-legacy": recipe}
        for number, change in enumerate(self.cumulative, 1):
            recipe = dataclasses.replace(recipe, **self.new_values[change])
            recipes[f"{number:02d}-{change}"] = recipe
        small = dataclasses.replace(self.legacy, **self.new_values["size"])
        groups = (("individual", small, self.individual), ("full-size", self.legacy, self.full_size))
        for kind, base, changes in groups:
            recipes |= {f"{kind}-{name}": dataclasses.replace(base, **self.new_values[name]) for name in changes}
        return recipes

    def train_for(self, recipe: RecipeConfig) -> training.TrainConfig:
        """Return the training config of a recipe, with durations in its own steps."""
        factor = recipe.num_steps // self.legacy_steps
        intervals = ("log_every", "validate_every", "checkpoint_every")
        return dataclasses.replace(
            self.train,
            optimizer=recipe.optimizer,
            learning_rate=recipe.learning_rate,
            warmup_steps=recipe.warmup_steps * factor,
            final_lr_fraction=recipe.final_lr_fraction,
            global_clipnorm=recipe.global_clipnorm,
            **{name: getattr(self.train, name) * factor for name in intervals},
        )


def smoke_config(config: RecipeAblationConfig) -> RecipeAblationConfig:
    """Return the config at sizes that take seconds."""
    return dataclasses.replace(
        config,
        legacy_units=12,
        units=8,
        embedding_dim=8,
        batch_size=4,
        sequence_length=12,
        legacy_steps=4,
        split_batches=2,
        changes=config.changes[-1:],
        individual=("more-steps",),
        train=dataclasses.replace(config.train, validate_every=2, checkpoint_every=2, warmup_steps=1, sample_length=20),
    )
