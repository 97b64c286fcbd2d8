"""Settings of `experiments.date_translation`."""

import dataclasses
import math
from typing import Literal

from experiments.frame.option_checks import check_options
from experiments.frame.settings import SMOKE_TRAIN, LogDir, Resume, Smoke, check_together, options_of_a_training
from keras_seq import training
from keras_seq.data.synthetic import dates
from keras_seq.models import Seq2SeqConfig

TEST_DATES, VALIDATION_DATES = 2_000, 1_000
NUM_DATES = (dates.MAX_DATE - dates.MIN_DATE).days + 1


@dataclasses.dataclass(frozen=True)
class DateTranslationConfig:
    """Train an encoder-decoder Transformer to translate dates into ISO 8601."""

    steps: int = 3_000
    """Training steps."""
    batch_size: int = 64
    """Pairs in a batch."""
    training_dates: int = 20_000
    """Dates to train on, of the 36,525 from 1950 to 2049."""
    pairs: int = 50_000
    """Training pairs: the training dates, written in the formats that are not held out."""
    validation_pairs: int = 500
    """Pairs of other dates to validate on during training."""
    test_pairs: int = 250
    """Test pairs of each format, of dates in neither of the other sets, scored after training."""
    num_beams: int = 4
    """Hypotheses of the beam search on the test pairs."""
    label_smoothing: float = 0.1
    """Label smoothing of the training loss, from 0 to below 1."""
    schedule: Literal["inverse_square_root", "linear_decay"] = "inverse_square_root"
    """Learning rate after the warm-up: proportional to 1/sqrt(step), or linear down to --train.final-lr-fraction."""
    seed: int = 0
    """Random seed of the weights, batches and dropout; the dates and pairs do not depend on it."""
    run: str | None = None
    """Folder of a finished run whose model translates --text; nothing is trained."""
    text: str | None = None
    """Date to translate with --run."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(
        default_factory=lambda: training.TrainConfig(optimizer="adam", warmup_steps=400)
    )
    model: Seq2SeqConfig = dataclasses.field(default_factory=Seq2SeqConfig)

    def __post_init__(self):
        counts = ("steps", "batch_size", "training_dates", "pairs", "validation_pairs", "test_pairs")
        check_options(self, **dict.fromkeys(counts, 1), num_beams=2)
        check_together("--run", self.run, "--text", self.text)
        if self.training_dates > (most := NUM_DATES - TEST_DATES - VALIDATION_DATES):
            others = "the other dates are for validation and tests"
            raise ValueError(f"--training-dates {self.training_dates}: expected at most {most}; {others}.")
        if self.pairs < self.batch_size:
            raise ValueError(f"--pairs {self.pairs}: expected at least the --batch-size {self.batch_size}.")
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"--label-smoothing {self.label_smoothing}: expected at least 0 and below 1, such as 0.1.")
        if self.schedule == "inverse_square_root" and self.train.warmup_steps < 1:
            raise ValueError("--train.warmup-steps 0: expected at least 1 with --schedule inverse_square_root.")

    def options_without_effect(self) -> dict[str, str]:
        """Return the options that have no effect beside the others, with what they would need."""
        if self.run is not None:
            return options_of_a_training(self)
        constant = self.schedule == "inverse_square_root"
        return {"train.final_lr_fraction": "--schedule linear_decay"} if constant else {}

    def learning_rate_schedule(self) -> tuple[training.InverseSqrtDecay | None, training.TrainConfig]:
        """Return the schedule, None for the linear decay of `train`, and `train` with the peak of the schedule."""
        if self.schedule == "linear_decay":
            return None, self.train
        width, warmup, peak = self.model.embedding_dim, self.train.warmup_steps, self.train.learning_rate
        schedule = training.InverseSqrtDecay(width, warmup, 1.0 if peak is None else peak * math.sqrt(width * warmup))
        return schedule, dataclasses.replace(self.train, learning_rate=float(schedule(warmup - 1)))


SMOKE = {
    **{"steps": 20, "batch_size": 8, "training_dates": 100, "pairs": 200, "validation_pairs": 16, "test_pairs": 4},
    "train": SMOKE_TRAIN,
    "model": Seq2SeqConfig(16, num_encoder_layers=1, num_decoder_layers=1, num_heads=2, feed_forward_dim=32),
}
