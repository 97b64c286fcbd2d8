"""Train a language model on a text, and let it write.

    keras-seq train docstrings --minutes 2                      # the docstrings of Python's standard library, an LSTM
    keras-seq train my.txt --model mamba2 --minutes 5
    keras-seq train texts/ --model transformer --tokens 3M --transformer.num-layers 6 --train.learning-rate 0.01
    keras-seq train --resume logs/train/20260101-120000-my-lstm

Time: as --minutes says, and about a minute around it.

The last tenth of TEXT is validation text. The run is that of `keras_seq.train` in Python, and of a model in
`experiments.compare`: keras-seq report RUN RUN compares such runs.
"""

import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Annotated, Literal

import tyro

from keras_seq import training
from keras_seq.commands.exit_status import exit_with_message
from keras_seq.commands.options import BatchSize, Seed, check_effects, check_options, command_line, with_models
from keras_seq.models import LANGUAGE_MODELS, MODELS
from keras_seq.reports.tables import command, next_commands, tensorboard_command
from keras_seq.runs import folders, train
from keras_seq.runs.train import DEFAULT_TRAIN, TOKENS
from keras_seq.tracking.tensorboard import code_block
from keras_seq.training.checkpoints import has_checkpoints
from keras_seq.training.run_config import read_config


@dataclasses.dataclass(frozen=True)
@with_models
class TrainCommandConfig:
    """Train a language model on a text."""

    texts: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="TEXT")] = ()
    """Training text: docstrings, pydoc, source (included in Python) or shakespeare (downloaded once); UTF-8 files,
    folders of *.txt files, patterns, which are joined; or folders of keras-seq prepare."""
    model: Literal[LANGUAGE_MODELS] = "lstm"
    """Model to train."""
    minutes: float | None = None
    """About how long to train. By default on --tokens."""
    tokens: int = TOKENS
    """Training tokens (characters), over one or more epochs."""
    batch_size: BatchSize = 12
    sequence_length: int = 64
    """Sequence length T of the training windows, in tokens: the length of backpropagation through time, and the
    context length of Transformers."""
    seed: Seed = 0
    out: pathlib.Path | None = None
    """Folder of the run; by default logs/train/UTC-TIME-TEXT-MODEL."""
    resume: pathlib.Path | None = None
    """Folder of a run to go on with. Options not given are those it was started with."""
    train: training.TrainConfig = dataclasses.field(default_factory=lambda: DEFAULT_TRAIN)

    def __post_init__(self):
        if self.minutes is not None and not 0 < self.minutes < math.inf:
            raise ValueError(f"--minutes {self.minutes}: expected a number above 0, such as 2.")
        check_options(self, tokens=1, batch_size=1, sequence_length=1)
        if not self.texts and self.resume is None:
            raise ValueError("TEXT or --resume RUN: neither was given; expected one of them.")
        if self.resume is not None and self.out is not None:
            raise ValueError(f"--out {self.out}: expected no --out beside --resume, which names the folder.")

    def options_without_effect(self) -> dict[str, str]:
        """Return the options that have no effect beside the others, with what they would need."""
        return {} if self.minutes is None else {"tokens": "no --minutes"}


def resumed(config: TrainCommandConfig, words: Sequence[str]) -> TrainCommandConfig:
    """Return the config of the run that --resume names, with the options that are given beside it."""
    if config.texts:
        raise ValueError("TEXT or --resume RUN: both were given; expected one of them.")
    run = config.resume.parent if config.resume.name in ("model.keras", "config.json") else config.resume
    if not (run / "config.json").is_file() and not has_checkpoints(run / "checkpoints"):
        problem = "no run is there" if config.resume.exists() else "it does not exist"
        raise ValueError(f"--resume {config.resume}: {problem}; expected the folder of a run of keras-seq train.")
    saved = read_config(run)
    try:
        model, settings = {**saved["model"]}, {**saved["experiment"]}
        name, texts, train = model.pop("name"), settings.pop("texts"), settings.pop("train")
        defaults = TrainCommandConfig(
            **settings,
            texts=(texts,) if isinstance(texts, str) else tuple(texts),
            train=training.TrainConfig(**train),
            **{name: folders.dataclass_from_dict(MODELS[name], model)},
        )
    except (KeyError, TypeError, AttributeError) as error:
        problem = "it was not started by keras-seq train"
        raise ValueError(f"--resume {run}: {problem}; resume it with what started it.") from error
    config = command_line(TrainCommandConfig, "keras-seq train", __doc__, words, defaults)
    return dataclasses.replace(config, resume=None, out=run)


@exit_with_message("keras-seq train")
def main(arguments: Sequence[str]):
    """Run the command line."""
    config = command_line(TrainCommandConfig, "keras-seq train", __doc__, arguments)
    if config.resume is not None:
        config = resumed(config, arguments)
    check_effects(config, arguments)
    texts = config.texts[0] if len(config.texts) == 1 else config.texts
    names = ("minutes", "tokens", "batch_size", "sequence_length", "seed")
    options = {name: getattr(config, name) for name in names}
    if config.minutes is not None:
        del options["tokens"]
    options |= dataclasses.asdict(config.train)
    run = train(texts, getattr(config, config.model), folder=config.out, **options)
    print(f"\n{run!r}\n\nIt writes:\n{code_block(run.result['sample'].strip())}\n")
    print(*next_commands(run.folder), sep="\n")
    print(f"To compare it with other runs:\n    {command('keras-seq report', run.folder, 'RUN')}")
    print(f"To view its curves in TensorBoard:\n    {tensorboard_command(run.folder.parent)}")
