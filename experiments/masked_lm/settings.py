"""Settings of `experiments.masked_lm`."""

import dataclasses

import tyro

from experiments.frame.option_checks import check_options
from experiments.frame.settings import (
    SMOKE_TRAIN,
    CorpusName,
    LogDir,
    Resume,
    Smoke,
    check_together,
    num_steps,
    options_of_a_training,
)
from keras_seq import models, training


@dataclasses.dataclass(frozen=True)
class MaskedLMConfig:
    """Train an encoder on masked language modeling, or fill the masks of a text."""

    corpus: CorpusName = "pydoc"
    vocabulary_size: int = 2000
    """Maximum vocabulary size of the WordPiece tokenizer, which is trained on the training split."""
    tokens: int = 1_024_000
    """Tokens that the encoder is trained on, masked or not, over all epochs."""
    batch_size: int = 8
    """Rows in a batch."""
    mask_rate: float = 0.15
    """Probability that a token is masked."""
    text: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Text with [MASK] for the encoder to fill; may be given several times."""
    top_k: int = 5
    """Number of predictions shown for each [MASK] of --text with --run."""
    run: str | None = None
    """Folder of a finished run whose model fills --text; nothing is trained."""
    seed: int = 0
    """Random seed of the weights, rows, masks and dropout."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(default_factory=lambda: training.TrainConfig(learning_rate=0.005))
    encoder: models.BertConfig = dataclasses.field(default_factory=lambda: models.BertConfig(context_length=64))

    def __post_init__(self):
        check_options(self, vocabulary_size=1, tokens=1, batch_size=1, top_k=1)
        if not 0 < self.mask_rate <= 1:
            raise ValueError(f"--mask-rate {self.mask_rate}: expected a probability above 0 and at most 1.")
        for name, minimum in (("context_length", 8), ("num_segments", 2)):
            if (value := getattr(self.encoder, name)) < minimum:
                raise ValueError(f"--encoder.{name.replace('_', '-')} {value}: expected at least {minimum}.")
        if self.run is not None:
            check_together("--run", self.run, "--text", self.text or None)

    def options_without_effect(self) -> dict[str, str]:
        """Return the options that have no effect beside the others, with what they would need."""
        return {"top_k": "--run"} if self.run is None else options_of_a_training(self)

    @property
    def steps(self) -> int:
        """Number of batches that contain `tokens`."""
        return num_steps(self.tokens, self.batch_size * self.encoder.context_length)


SMOKE = {
    "vocabulary_size": 400,
    "tokens": 20 * 8 * 32,
    "batch_size": 8,
    "train": SMOKE_TRAIN,
    "encoder": {"embedding_dim": 16, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 32, "context_length": 32},
}
