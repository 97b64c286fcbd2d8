"""Compare optimizers: the same small model under every optimizer, at learning rates below and above its default.

    python -m experiments.optimizers                               # a Transformer, on Python's help topics
    python -m experiments.optimizers --model lstm --corpus shakespeare
    python -m experiments.optimizers --optimizers adam lion --factors 0.1 0.3 1 3 10
    python -m experiments.optimizers --smoke                       # seconds, tiny sizes: test that everything works

Learning rates are chosen by the loss of text held out from the training split; the validation split is only scored at
the end of every run. Schedule, clipping, batches and initial weights are the same for all. Time: 21 runs, 6 to 8
minutes on 2 cores.

Expected for the Transformer, val_loss in nats per character at the best rate: muon 1.46, adam 1.55, sgd 1.61, lion and
rmsprop 1.62, adagrad 1.81.
"""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Annotated, Literal

import keras
import tyro

from experiments.frame.corpora import print_overlap_note
from experiments.frame.option_checks import check_options
from experiments.frame.random_window_training import SplitCorpus
from experiments.frame.report import validation_note
from experiments.frame.runs import check_same_corpus, run_config, start_or_resume
from experiments.frame.startup import exit_with_message
from experiments.optimizers import report as optimizers_report
from keras_seq import training
from keras_seq.data import RandomWindows
from keras_seq.evaluation import Evaluator
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.saving import save_model
from keras_seq.tracking import Summaries


@dataclasses.dataclass(frozen=True)
class OptimizersTrainConfig(training.TrainConfig):
    """`TrainConfig` with the intervals of a short run."""

    validate_every: int = 100
    """Steps between two evaluations of the held-out text."""
    checkpoint_every: int = 300
    """Steps between two checkpoints; the last two are kept."""


@dataclasses.dataclass(frozen=True)
class OptimizersConfig:
    """Train one model with every optimizer, at several learning rates."""

    model: Literal["transformer", "lstm"] = "transformer"
    """A Transformer of 2 blocks, or an LSTM of one layer."""
    width: int = 64
    """Width D of the Transformer, a multiple of 4; the LSTM has 2 D units."""
    optimizers: tuple[Literal[tuple(training.OPTIMIZERS)], ...] = tuple(training.OPTIMIZERS)
    """Optimizers to compare."""
    factors: tuple[float, ...] = (0.3, 1.0, 3.0)
    """Learning rates, as factors of each optimizer's default."""
    corpus: str = "pydoc"
    """Training text: pydoc or docstrings (included in Python), shakespeare (downloaded once, or read from the folder
    KERAS_SEQ_DATA), or the path of a UTF-8 file."""
    tokens: int = 460_800
    """Training tokens (characters) of every run, over one or more epochs."""
    batch_size: int = 12
    """Batch size B, in windows."""
    sequence_length: int = 64
    """Sequence length T of the training windows, in tokens."""
    seed: int = 0
    """Random seed of the weights and batches."""
    log_dir: str = "logs"
    """Folder of the runs: LOG_DIR/optimizers/UTC-TIME/."""
    resume: str | None = None
    """Folder LOG_DIR/optimizers/UTC-TIME to resume. Options not given on the command line are read from its
    config.json."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Test that everything works: seconds, tiny sizes."""
    train: OptimizersTrainConfig = dataclasses.field(default_factory=OptimizersTrainConfig)

    def __post_init__(self):
        check_options(self, tokens=1, batch_size=1, sequence_length=1)
        if self.width < 4 or self.width % 4:
            raise ValueError(f"--width {self.width}: expected a multiple of 4.")
        for name in ("optimizers", "factors"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"--{name} {' '.join(map(str, values))}: expected one or more, each once.")
        if not all(factor > 0 for factor in self.factors):
            raise ValueError(f"--factors {' '.join(map(str, self.factors))}: expected positive numbers.")
        for field, option in (("optimizer", "--optimizers"), ("learning_rate", "--factors")):
            if getattr(self.train, field) != getattr(OptimizersTrainConfig(), field):
                raise ValueError(f"{field}={getattr(self.train, field)}: expected the default; choose by {option}.")

    @property
    def steps(self) -> int:
        """Number of batches that contain `tokens`."""
        return -(-self.tokens // (self.batch_size * self.sequence_length))

    @property
    def model_config(self) -> TransformerConfig | LSTMConfig:
        """The config that the model is built from."""
        if self.model == "lstm":
            return LSTMConfig(embedding_dim=self.width // 2, units=2 * self.width)
        return TransformerConfig(
            self.width, num_layers=2, num_heads=2, feed_forward_dim=4 * self.width, context_length=self.sequence_length
        )


def smoke_config(config: OptimizersConfig) -> OptimizersConfig:
    """Return the same comparison at sizes that take seconds."""
    return dataclasses.replace(
        config,
        width=8,
        optimizers=config.optimizers[-2:],
        factors=config.factors[-2:],
        tokens=8 * 4 * 16,
        batch_size=4,
        sequence_length=16,
        train=dataclasses.replace(config.train, warmup_steps=2, log_every=2, validate_every=4, checkpoint_every=8),
    )


def train_one(folder: pathlib.Path, config: OptimizersConfig, train: training.TrainConfig, data: SplitCorpus) -> dict:
    """Train the model with one optimizer at one learning rate; a run that diverges is a result too.

    Args:
        folder: Run folder.
        config: Config of the comparison.
        train: Options of training, with the optimizer and its learning rate.
        data: Training, held-out and validation text.

    Returns:
        The content of result.json.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(config.seed)
    model = config.model_config.build_model(data.vocabulary.vocabulary_size, dtype=train.dtype_policy)
    windows = RandomWindows(data.train, config.batch_size, config.sequence_length, seed=config.seed)
    evaluator = Evaluator(model)

    def score(ids):
        return evaluator.chunked_loss(ids, config.sequence_length).mean

    config_json = run_config(
        config,
        config.model,
        config.model_config,
        {**dataclasses.asdict(train), **train.resolved(model)},
        seed=config.seed,
        corpus={"name": data.corpus.name, "sha256": data.corpus.sha256},
    )
    result = {
        "optimizer": train.optimizer,
        "learning_rate": train.learning_rate,
        "parameters": model.count_params(),
    }
    tokens_per_step = config.batch_size * config.sequence_length
    print(f"\n{folder.name}")
    training.compile_model(model, train, config.steps, tokens_per_step=tokens_per_step)
    try:
        logger, summaries = training.fit_resumable(
            folder,
            model,
            windows.dataset,
            tokens_per_step,
            config.steps,
            train,
            config=config_json,
            name=folder.name,
            characters_per_token=1.0,
            **training.capped_validation(
                lambda ids: Summaries({"val_loss": score(ids)}), data.held_out, train, config.sequence_length + 1
            ),
        )
    except training.TrainingDiverged as error:
        print(error)
        result |= {
            "diverged": str(error),
            "train_tokens": error.step * tokens_per_step,
            "held_out_loss_per_character": None,
            "val_loss_per_character": None,
        }
    else:
        save_model(folder / "model.keras", model)
        result |= {
            "diverged": None,
            "train_tokens": logger.step * tokens_per_step,
            "train_seconds": logger.seconds,
            "train_loss_per_character": logger.loss,
            "held_out_loss_per_character": summaries.scalars["val_loss"],
            "val_loss_per_character": score(data.validation),
        }
    data.vocabulary.save(folder / "tokenizer.json")
    training.write_result(folder, result)
    return result


def sweep(config: OptimizersConfig, folder: pathlib.Path) -> list[dict]:
    """Train all runs that are not finished in `folder`, then write the comparison.

    Args:
        config: Config of the comparison.
        folder: Folder of the runs.

    Returns:
        The results of all runs.

    Raises:
        ValueError: The text is too short, or differs from that of the runs in the folder.
    """
    data = SplitCorpus(config.corpus, min_length=config.sequence_length + 1, held_out=True)
    check_same_corpus(folder, data.corpus)
    RandomWindows(data.train, config.batch_size, config.sequence_length)  # raises if the text is too short
    model = config.model_config.build_model(data.vocabulary.vocabulary_size)
    print(
        f"{data.corpus.name}: {len(data.train):,} training characters, {len(data.held_out):,} held-out characters, "
        f"{len(data.validation):,} validation characters; {config.model} of {model.count_params():,} parameters, "
        f"{config.steps:,} steps of {config.batch_size} x {config.sequence_length}"
        f"{validation_note(config.train, data.held_out, config.sequence_length + 1)}"
    )
    train_text, _, validation_text = data.texts
    print_overlap_note(train_text, validation_text)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for optimizer in config.optimizers:
        default = dataclasses.replace(config.train, optimizer=optimizer).peak_learning_rate(model)
        for factor in sorted(config.factors):
            train = dataclasses.replace(
                config.train, optimizer=optimizer, learning_rate=float(f"{factor * default:.3g}")
            )
            run = folder / f"{optimizer}-{train.learning_rate:g}-seed{config.seed}"
            result = training.load_result(run) or train_one(run, config, train, data)
            rows.append({"run": run.name, "factor": factor, **result})
    optimizers_report.write_report(folder, f"{config.model} on {data.corpus.name}", rows)
    return rows


@exit_with_message("experiments.optimizers")
def main(arguments: Sequence[str] | None = None):
    """Run the command line."""
    with start_or_resume(OptimizersConfig, "optimizers", __doc__, arguments, smoke_config) as (config, folder):
        rows = sweep(config, folder)
        print(optimizers_report.final_message(folder, rows))


if __name__ == "__main__":
    main()
