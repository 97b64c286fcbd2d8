"""What `experiments.epoch_loss` can be told, and the recipes between the old char-RNN and the new one.

ladder   old -> full size -> one cause after the other -> new     each recipe is the one before it, changed once
alone    the old recipe at the small size with one change         what a cause is worth by itself
full     the old recipe at its own size with one change           whether the small size tells the same
"""

import dataclasses
from typing import Annotated, Literal

import tyro

from experiments.options import check_options
from keras_seq import training
from keras_seq.training.config import LEARNING_RATES

CAUSES = (
    *("pipeline", "lanes", "restart", "initializer", "clipping", "schedule"),
    *("learning rate", "optimizer", "updates", "spaces"),
)
Cause = Literal[CAUSES]
NO_CLIPPING = 1e9  # no gradient is as long, so none is shortened


@dataclasses.dataclass(frozen=True)
class Train(training.TrainConfig):
    """The new recipe's training. Durations are in steps of the old batch; smaller batches take as many more of them."""

    warmup_steps: int = 10
    """Steps over which the learning rate rises from zero."""
    log_every: int = 1
    """Steps between two points of the training curve: the old script printed every one."""
    validate_every: int = 50
    """Steps between two passes over the validation split."""
    checkpoint_every: int = 100
    """Steps between two checkpoints; the last two are kept."""
    sample_length: int = 200
    """Characters in a sample of text."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One way to train the char-RNN. At the defaults of `EpochLoss`, that of the old script."""

    spaces: bool
    units: int
    pipeline: str
    windows: str
    restart: float
    recurrent_initializer: str
    global_clipnorm: float
    warmup_steps: int
    final_lr_fraction: float
    optimizer: str
    learning_rate: float | None
    batch_size: int
    updates: int


@dataclasses.dataclass(frozen=True)
class EpochLoss:
    """Explain the loss of the old char-RNN: change one thing after the other."""

    corpus: str = "docstrings"
    """docstrings or pydoc (come with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a
    UTF-8 file."""
    old_units: int = 1024
    """Width of the old LSTM."""
    units: int = 128
    """Width of the LSTM by which everything else is measured."""
    embedding_dim: int = 128
    """Width of a character's vector."""
    batch_size: int = 50
    """Rows of the old batch."""
    length: int = 200
    """Characters in a row."""
    updates: int = 200
    """Old batches in a training, which the old script called epochs."""
    parts: int = 10
    """For the cause `updates`: into how many smaller batches an old one is cut. A divisor of the batch size."""
    restart: float = 0.25
    """For the cause `restart`: the fraction of rows that start from the zero state."""
    learning_rate: float = LEARNING_RATES["adam"]["recurrent"]
    """For the cause `learning rate`: Adam's, in place of 1e-3."""
    pipeline: Literal["generator", "per_character"] = "generator"
    """Of the old recipe: windows from a Python generator. per_character looks up every character by itself too, as the
    old script did, at 2,660 characters a second; the batches are the same, bit by bit."""
    causes: tuple[Cause, ...] = CAUSES
    """What is changed after the size, in this order, one on top of the other."""
    alone: tuple[Cause, ...] = ("lanes", "restart", "schedule", "learning rate", "optimizer", "updates", "spaces")
    """Which causes to add to the old recipe by themselves, at the small size."""
    full: tuple[Cause, ...] = ()
    """The same at the old size."""
    seed: int = 0
    """Of weights and batches."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/epoch_loss/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/epoch_loss/UTC-TIME to go on with; options not given are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes: shows that everything works, and nothing else."""
    train: Train = dataclasses.field(default_factory=Train)

    def __post_init__(self):
        sizes = {"batch_size": 1, "length": 1, "updates": 1, "parts": 1}
        check_options(self, **sizes, old_units=1, units=1, embedding_dim=1)
        if self.batch_size % self.parts:
            raise ValueError(f"--parts {self.parts}: expected a divisor of --batch-size {self.batch_size}.")
        if not 0 <= self.restart <= 1:
            raise ValueError(f"--restart {self.restart}: expected a fraction from 0 to 1.")
        if self.train.patience is not None:
            raise ValueError(
                f"--train.patience {self.train.patience}: every recipe is to be trained to its end; leave it out."
            )
        if self.learning_rate <= 0:
            raise ValueError(f"--learning-rate {self.learning_rate}: expected a number above zero.")
        for name in ("causes", "alone", "full"):
            given = getattr(self, name)
            if len(set(given)) < len(given) or not self.causes:
                raise ValueError(f"--{name} {' '.join(given)}: expected causes, each once.")

    @property
    def old(self) -> Recipe:
        """The script that this project grew from."""
        return Recipe(
            spaces=False,
            units=self.old_units,
            pipeline=self.pipeline,
            windows="crops",
            reset_prob=0.0,
            recurrent_initializer="glorot_normal",
            global_clipnorm=NO_CLIPPING,
            warmup_steps=0,
            final_lr_fraction=1.0,
            optimizer="adam",
            learning_rate=1e-3,
            batch_size=self.batch_size,
            updates=self.updates,
        )

    @property
    def changes(self) -> dict[str, dict]:
        """What each cause changes in a recipe."""
        train = self.train
        return {
            "size": {"units": self.units},
            "pipeline": {"pipeline": "tensors"},
            "lanes": {"windows": "lanes"},
            "restart": {"restart": self.restart},
            "initializer": {"recurrent_initializer": "orthogonal"},
            "clipping": {"global_clipnorm": train.global_clipnorm},
            "schedule": {"warmup_steps": train.warmup_steps, "final_lr_fraction": train.final_lr_fraction},
            "learning rate": {"learning_rate": self.learning_rate},
            "optimizer": {"optimizer": train.optimizer, "learning_rate": train.learning_rate},
            "updates": {"batch_size": self.batch_size // self.parts, "updates": self.updates * self.parts},
            "spaces": {"spaces": True},
        }

    @property
    def ladder(self) -> tuple[str, ...]:
        """The causes in their order, the size first: all that follows is measured at the small one."""
        return ("size", *self.causes)

    @property
    def recipes(self) -> dict[str, Recipe]:
        """Every training by the name of its run: the ladder first, from old to new."""
        recipe = self.old
        found = {"00-old": recipe}
        for number, cause in enumerate(self.ladder, 1):
            recipe = dataclasses.replace(recipe, **self.changes[cause])
            found[f"{number:02d}-{slug(cause)}"] = recipe
        small = dataclasses.replace(self.old, **self.changes["size"])
        for kind, base, chosen in (("alone", small, self.alone), ("full", self.old, self.full)):
            found |= {f"{kind}-{slug(c)}": dataclasses.replace(base, **self.changes[c]) for c in chosen}
        return found

    def train_for(self, recipe: Recipe) -> training.TrainConfig:
        """How a recipe is trained; durations in its own, perhaps smaller, steps."""
        more = recipe.updates // self.updates
        return dataclasses.replace(
            self.train,
            optimizer=recipe.optimizer,
            learning_rate=recipe.learning_rate,
            warmup_steps=recipe.warmup_steps * more,
            final_lr_fraction=recipe.final_lr_fraction,
            global_clipnorm=recipe.global_clipnorm,
            **{name: getattr(self.train, name) * more for name in ("log_every", "validate_every", "checkpoint_every")},
        )


def slug(cause: str) -> str:
    """A cause as a part of a file name."""
    return cause.replace(" ", "-")


def tiny(settings: EpochLoss) -> EpochLoss:
    """The same at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        old_units=12,
        units=8,
        embedding_dim=8,
        batch_size=4,
        length=12,
        updates=4,
        parts=2,
        causes=settings.causes[-1:],
        alone=("updates",),
        train=dataclasses.replace(
            settings.train, validate_every=2, checkpoint_every=2, warmup_steps=1, sample_length=20
        ),
    )
