"""Settings of `experiments.finetune`."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from experiments.frame.option_checks import check_options
from experiments.frame.settings import (
    SMOKE_TRAIN,
    BatchSize,
    CorpusName,
    LogDir,
    Resume,
    SequenceLength,
    Smoke,
    check_unique,
    num_steps,
)
from keras_seq import training
from keras_seq.models import LlamaConfig, LSTMConfig, MambaConfig

METHODS = ("lora", "full", "scratch")


@dataclasses.dataclass(frozen=True)
class FinetuneConfig:
    """Continue the training of a model on another text, by few weights and by all."""

    base: Annotated[
        pathlib.Path | None,
        tyro.conf.arg(
            name="from",
            metavar="FOLDER_OR_RUN",
            help="A Hugging Face folder, or the folder of a finished run, whose language model is trained further. "
            "None: first train a model on --base-corpus.",
        ),
    ] = None
    base_corpus: CorpusName = "pydoc"
    base_tokens: int = 1_000_000
    """Without --from, training tokens of the base."""
    model: Literal["lstm", "llama", "mamba"] = "lstm"
    """Without --from, the model to train as a base."""
    corpus: CorpusName = "shakespeare"
    tokens: int = 500_000
    """Training tokens of every run, on --corpus."""
    methods: tuple[Literal[METHODS], ...] = METHODS
    """lora: low-rank additions to the matrices. full: the weights themselves. scratch: all weights, from new values."""
    trainable: tuple[str, ...] = ("*",)
    """Patterns of paths such as block_1/*: with lora the layers that get additions, with full the trained weights."""
    lora_rank: int = 8
    """Rank of the additions."""
    lora_alpha: float | None = None
    """The additions are multiplied by LORA_ALPHA / LORA_RANK; the rank by default."""
    modules_to_save: tuple[str, ...] = ()
    """Patterns of weights, such as *bias* and embedding*, that lora trains itself and saves with the additions."""
    num_seeds: int = 1
    """Number of runs of each method, with the random seeds 0, 1, ..."""
    batch_size: BatchSize = 12
    sequence_length: SequenceLength = 64
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = dataclasses.field(
        default_factory=lambda: training.TrainConfig(validation_characters=16_384)
    )
    lstm: LSTMConfig = dataclasses.field(default_factory=lambda: LSTMConfig(embedding_dim=64, units=384))
    llama: LlamaConfig = dataclasses.field(
        default_factory=lambda: LlamaConfig(192, num_layers=2, num_heads=4, context_length=64)
    )
    mamba: MambaConfig = dataclasses.field(default_factory=lambda: MambaConfig(192, num_layers=2))

    def __post_init__(self):
        check_options(
            self, base_tokens=1, tokens=1, lora_rank=1, num_seeds=1, batch_size=1, sequence_length=1, lora_alpha=0
        )
        check_unique("--methods", self.methods)
        check_unique("--trainable", self.trainable)
        if self.modules_to_save:
            check_unique("--modules-to-save", self.modules_to_save)
        if self.train.precision != "float32":
            raise ValueError(f"--train.precision {self.train.precision}: expected float32, that of the base.")

    def options_without_effect(self) -> dict[str, str]:
        """Return the options that have no effect beside the others, with what they would need."""
        unused = {}
        if self.base is not None:
            unused |= dict.fromkeys(("base_corpus", "base_tokens", "model", "lstm", "llama", "mamba"), "no --from")
        if "lora" not in self.methods:
            unused |= dict.fromkeys(("lora_rank", "lora_alpha", "modules_to_save"), "lora among --methods")
        if self.methods == ("scratch",):
            unused["trainable"] = "lora or full among --methods"
        return unused

    @property
    def model_config(self) -> LSTMConfig | LlamaConfig | MambaConfig:
        """The config of the base."""
        return getattr(self, self.model)

    def steps(self, tokens: int) -> int:
        """Return the number of batches that contain `tokens`."""
        return num_steps(tokens, self.batch_size * self.sequence_length)


SMOKE = {
    "corpus": lambda name: "pydoc" if name == "shakespeare" else name,  # another one unless it is the default
    "base_corpus": "docstrings",
    "base_tokens": 20 * 4 * 16,
    "tokens": 20 * 4 * 16,
    "lora_rank": 1,
    "batch_size": 4,
    "sequence_length": 16,
    "train": {**SMOKE_TRAIN, "sample_length": 20},
    "lstm": {"embedding_dim": 8, "units": 16},
    "llama": {"embedding_dim": 16, "num_layers": 1, "num_heads": 2, "context_length": 16},
    "mamba": {"embedding_dim": 16, "num_layers": 1, "state_dim": 4},
}
