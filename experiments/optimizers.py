"""The same small model under every optimizer, at learning rates below and above its default.

    python -m experiments.optimizers                               # a Transformer, on Python's help topics
    python -m experiments.optimizers --model lstm --corpus shakespeare
    python -m experiments.optimizers --optimizers adam lion --factors 0.1 0.3 1 3 10
    python -m experiments.optimizers --smoke                       # seconds, tiny: does everything work?

Rates are chosen on text held out from the training split; the validation split is scored at the end of every run, and
only shown. Schedule, clipping, batches and the start of the weights are the same for all. 21 runs, 6 to 8 minutes on 2
cores. To expect of the Transformer, in nats per character of the validation split at the best rate: muon 1.46, adam
1.55, sgd 1.61, lion and rmsprop 1.62, adagrad 1.81.
"""

import dataclasses
import pathlib
from typing import Annotated, Literal

import keras
import numpy as np
import tyro

from experiments import optimizers_report
from experiments.corpora import note_copied
from experiments.options import check_options
from experiments.report import validated
from experiments.runs import begin, config, same_corpus
from experiments.startup import one_sentence
from keras_seq import training
from keras_seq.data import RandomWindows, load_corpus
from keras_seq.evaluation import Evaluator
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.saving import save_model
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking import Summaries, write_hparams_config


@dataclasses.dataclass(frozen=True)
class Train(training.TrainConfig):
    """As everywhere, with the pace of a short run."""

    validate_every: int = 100
    """Steps between two passes over the held-out text."""
    checkpoint_every: int = 300
    """Steps between two checkpoints; the last two are kept."""


@dataclasses.dataclass(frozen=True)
class Optimizers:
    """Train one model under every optimizer, at several learning rates."""

    model: Literal["transformer", "lstm"] = "transformer"
    """A Transformer of 2 blocks, or an LSTM of one layer."""
    width: int = 64
    """D of the Transformer, a multiple of 4; the LSTM has 2 D units."""
    optimizers: tuple[Literal[tuple(training.OPTIMIZERS)], ...] = tuple(training.OPTIMIZERS)
    """Which of them."""
    factors: tuple[float, ...] = (0.3, 1.0, 3.0)
    """The learning rates, as factors of each optimizer's default."""
    corpus: str = "pydoc"
    """pydoc or docstrings (come with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a
    UTF-8 file."""
    tokens: int = 460_800
    """Characters that every run is trained on, passes counted again."""
    batch_size: int = 12
    """Rows in a batch."""
    context: int = 64
    """Characters in a row."""
    seed: int = 0
    """Of weights and batches."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/optimizers/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/optimizers/UTC-TIME to go on with; options not given are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes: shows that everything works, and nothing else."""
    train: Train = dataclasses.field(default_factory=Train)

    def __post_init__(self):
        check_options(self, tokens=1, batch_size=1, context=1)
        if self.width < 4 or self.width % 4:
            raise ValueError(f"--width {self.width}: expected a multiple of 4.")
        for name in ("optimizers", "factors"):
            if not getattr(self, name) or len(set(getattr(self, name))) < len(getattr(self, name)):
                raise ValueError(
                    f"--{name} {' '.join(map(str, getattr(self, name)))}: expected one or more, each once."
                )
        if not all(factor > 0 for factor in self.factors):
            raise ValueError(f"--factors {' '.join(map(str, self.factors))}: expected numbers above zero.")
        for option, how in (("optimizer", "--optimizers"), ("learning_rate", "--factors")):
            if getattr(self.train, option) != getattr(Train(), option):
                raise ValueError(f"{option}={getattr(self.train, option)}: all are tried here; choose some by {how}.")

    @property
    def steps(self) -> int:
        """Batches that hold the tokens."""
        return -(-self.tokens // (self.batch_size * self.context))

    @property
    def definition(self) -> TransformerConfig | LSTMConfig:
        """What the model is built from."""
        if self.model == "lstm":
            return LSTMConfig(embedding_dim=self.width // 2, units=2 * self.width)
        return TransformerConfig(
            self.width, num_layers=2, num_heads=2, feed_forward_dim=4 * self.width, context_length=self.context
        )


def tiny(settings: Optimizers) -> Optimizers:
    """The same at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        width=8,
        optimizers=settings.optimizers[-2:],
        factors=settings.factors[-2:],
        tokens=8 * 4 * 16,
        batch_size=4,
        context=16,
        train=dataclasses.replace(settings.train, warmup_steps=2, log_every=2, validate_every=4, checkpoint_every=8),
    )


class Data:
    """The text in three parts: to train on, to choose a learning rate by, and to validate on."""

    def __init__(self, settings: Optimizers):
        self.corpus = load_corpus(settings.corpus)
        train_text, self.validation = self.corpus.split(min_length=settings.context + 1)
        self.train, self.held_out = dataclasses.replace(self.corpus, text=train_text).split(
            min_length=settings.context + 1
        )
        self.vocabulary = CharacterTokenizer.from_text(self.corpus.text)

    def ids(self, part) -> np.ndarray:
        """One of the three parts as ids `[N]`."""
        return self.vocabulary.encode(getattr(self, part)).numpy()


def train_one(folder, settings: Optimizers, train: training.TrainConfig, data: Data) -> dict:
    """One run: one optimizer at one learning rate. Returns what result.json says."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(settings.seed)
    model = settings.definition.build_model(data.vocabulary.vocabulary_size, dtype=train.dtype_policy)
    windows = RandomWindows(data.ids("train"), settings.batch_size, settings.context, seed=settings.seed)
    evaluator, held_out, validation = Evaluator(model), data.ids("held_out"), data.ids("validation")

    def score(ids):
        return evaluator.chunked_loss(ids, settings.context).mean

    used = {**dataclasses.asdict(train), **train.resolved(model)}
    of_corpus = {"name": data.corpus.name, "sha256": data.corpus.sha256}
    run_config = config(settings, settings.model, settings.definition, used, seed=settings.seed, corpus=of_corpus)
    result = {
        "optimizer": train.optimizer,
        "learning_rate": train.learning_rate,
        "parameters": model.count_params(),
    }
    tokens_per_step = settings.batch_size * settings.context
    print(f"\n{folder.name}")
    training.compile_model(model, train, settings.steps, tokens_per_step=tokens_per_step)
    try:
        record, summaries = training.fit_resumable(
            folder,
            model,
            windows.dataset,
            tokens_per_step,
            settings.steps,
            train,
            config=run_config,
            name=folder.name,
            characters_per_token=1.0,
            **training.capped_validation(
                lambda ids: Summaries({"val_loss": score(ids)}), held_out, train, settings.context + 1
            ),
        )
    except training.TrainingDiverged as fault:
        print(fault)
        result |= {
            "diverged": str(fault),
            "train_tokens": fault.step * tokens_per_step,
            "held_out_loss_per_character": None,
            "val_loss_per_character": None,
        }
    else:
        save_model(folder / "model.keras", model)
        result |= {
            "diverged": None,
            "train_tokens": record.step * tokens_per_step,
            "train_seconds": record.seconds,
            "train_loss_per_character": record.loss,
            "held_out_loss_per_character": summaries.scalars["val_loss"],
            "val_loss_per_character": score(validation),
        }
    data.vocabulary.save(folder / "tokenizer.json")
    training.write_result(folder, result)
    return result


def sweep(settings: Optimizers, folder: pathlib.Path):
    """Trains all that is not yet trained in `folder`, then writes the comparison. Returns its rows."""
    data = Data(settings)
    same_corpus(folder, data.corpus)
    RandomWindows(data.ids("train"), settings.batch_size, settings.context)  # what is too short is an error now
    model = settings.definition.build_model(data.vocabulary.vocabulary_size)
    print(
        f"{data.corpus.name}: {len(data.train):,} characters to train on, {len(data.held_out):,} to choose by, "
        f"{len(data.validation):,} to validate on; {settings.model} of {model.count_params():,} parameters, "
        f"{settings.steps:,} steps of {settings.batch_size} x {settings.context}"
        f"{validated(settings.train, data.held_out, settings.context + 1)}"
    )
    note_copied(data.train, data.validation)
    folder.mkdir(parents=True, exist_ok=True)
    write_hparams_config(folder, ("train.optimizer", "train.learning_rate", "seed"))
    rows = []
    for optimizer in settings.optimizers:
        default = dataclasses.replace(settings.train, optimizer=optimizer).peak_learning_rate(model)
        for factor in sorted(settings.factors):
            train = dataclasses.replace(
                settings.train, optimizer=optimizer, learning_rate=float(f"{factor * default:.3g}")
            )
            run = folder / f"{optimizer}-{train.learning_rate:g}-seed{settings.seed}"
            result = training.load_result(run) or train_one(run, settings, train, data)
            rows.append({"run": run.name, "factor": factor, **result})
    optimizers_report.write(folder, f"{settings.model} on {data.corpus.name}", rows)
    return rows


@one_sentence("experiments.optimizers")
def main(arguments=None):
    """The command line."""
    with begin(Optimizers, "optimizers", __doc__, arguments, tiny) as (settings, folder):
        rows = sweep(settings, folder)
        print(optimizers_report.closing(folder, rows))


if __name__ == "__main__":
    main()
