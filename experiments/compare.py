"""Train a stateful LSTM and a Transformer on the same text, and compare their losses.

    python -m experiments.compare                                  # the text that comes with Python, offline
    python -m experiments.compare --corpus shakespeare --seeds 3
    python -m experiments.compare --smoke                          # seconds, tiny: does everything work?
    python -m experiments.compare --resume logs/compare/20260101-120000

Every model gets the same text, split, tokens and scoring, and at the defaults within 5 % the same number of parameters
(up to about 200 distinct characters; it is said when they are further apart). The vocabulary is that of the whole
text. The LSTM reads the text in lanes with its state carried on; the Transformer reads random crops. Two to three
minutes a model on 2 cores. To expect on tiny Shakespeare, in nats per character of the whole validation split
(README.md has the table): LSTM 1.48 warm, 1.54 cold; Transformer 1.58 cold.
"""

import dataclasses
import datetime
import importlib.metadata
import json
import pathlib
import platform
import subprocess
from typing import Annotated, Literal

import keras
import tyro

from experiments import report
from experiments.startup import command_line, one_sentence
from keras_seq import text, training
from keras_seq.models import LSTM, MODELS, Transformer


@dataclasses.dataclass(frozen=True)
class Compare:
    """Train models on the same text and compare their losses."""

    corpus: str = "pydoc"
    """pydoc (comes with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a UTF-8 file."""
    models: tuple[Literal[tuple(MODELS)], ...] = ("lstm", "transformer")
    """Which models, in this order."""
    seeds: int = 1
    """How many times each model is trained, with seeds 0, 1, ..."""
    tokens: int = 1_536_000
    """Characters that each model is trained on, passes counted again."""
    batch_size: int = 12
    """Rows in a batch."""
    context: int = 64
    """Characters in a row: the length of backpropagation through time, and the Transformer's context."""
    recurrent_windows: Literal["lanes", "crops"] = "lanes"
    """What recurrent models read: contiguous lanes, the state carried from batch to batch, or random crops."""
    attention_windows: Literal["crops", "lanes"] = "crops"
    """What Transformers read: random crops or contiguous lanes; they carry nothing."""
    restart: float = 0.25
    """The fraction of rows that start from the zero state in a batch of lanes, so that the model learns that too."""
    clean: Literal["squeeze"] | None = None
    """squeeze: strip all spaces and newlines from the text, as the 2017-style scripts did."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/compare/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/compare/UTC-TIME to go on with; all other options are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes: shows that everything works, and nothing else."""
    train: training.Train = dataclasses.field(default_factory=training.Train)
    lstm: LSTM = dataclasses.field(default_factory=LSTM)
    transformer: Transformer = dataclasses.field(default_factory=Transformer)

    def __post_init__(self):
        for name in ("seeds", "tokens", "batch_size", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} {getattr(self, name)}: expected at least 1.")
        if not 0 <= self.restart <= 1:
            raise ValueError(f"--restart {self.restart}: expected a fraction from 0 to 1.")
        if not self.models:
            raise ValueError(f"--models: expected at least one of {', '.join(MODELS)}.")

    @property
    def steps(self) -> int:
        """Batches that hold the tokens."""
        return -(-self.tokens // (self.batch_size * self.context))

    def model(self, name):
        """The dataclass of a model, its context filled in."""
        model = getattr(self, name)
        if "context" not in {field.name for field in dataclasses.fields(model)}:
            return model
        if model.context is not None and model.context < self.context:
            raise ValueError(f"--{name}.context {model.context}: expected at least the --context {self.context}.")
        return dataclasses.replace(model, context=model.context or self.context)


def tiny(settings: Compare) -> Compare:
    """The same comparison at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        tokens=20 * 4 * 32,
        batch_size=4,
        context=32,
        train=dataclasses.replace(
            settings.train, warmup_steps=4, log_every=5, validate_every=10, checkpoint_every=10, sample_length=40
        ),
        lstm=dataclasses.replace(settings.lstm, embedding_dim=16, units=32),
        transformer=dataclasses.replace(
            settings.transformer, embedding_dim=16, num_layers=2, num_heads=2, feed_forward_dim=64
        ),
    )


def revive(kind, values):
    """A dataclass from what `dataclasses.asdict` and JSON made of it."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(values.keys() - fields.keys())
    if unknown:
        raise ValueError(f"The settings to go on with have {', '.join(unknown)}, which this version does not know.")
    revived = {}
    for name, value in values.items():
        part = fields[name].default_factory
        if dataclasses.is_dataclass(part):
            value = revive(part, value)
        revived[name] = tuple(value) if isinstance(value, list) else value
    return kind(**revived)


def versions():
    """What the figures depend on besides the settings."""
    names = ("keras_seq", "keras", "tensorflow", "numpy")
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=pathlib.Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = None
    found = {name: importlib.metadata.version(name) for name in names}
    return {**found, "python": platform.python_version(), "commit": commit}


def windows(settings: Compare, kind, ids, seed):
    """The training batches of one run."""
    sizes = {"batch_size": settings.batch_size, "length": settings.context, "seed": seed}
    return text.Lanes(ids, restart=settings.restart, **sizes) if kind == "lanes" else text.RandomCrops(ids, **sizes)


def train_one(folder, settings: Compare, name, seed, corpus, vocabulary, train_ids, validation_ids):
    """One run: one model, one seed. Returns its row."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    definition = settings.model(name)
    model = definition.build(vocabulary.size, dtype=settings.train.policy)
    kind = settings.recurrent_windows if model.context is None else settings.attention_windows
    config = {
        "experiment": dataclasses.asdict(settings),
        "model": {"name": name, **dataclasses.asdict(definition)},
        "train": dataclasses.asdict(settings.train),
        "windows": kind,
        "seed": seed,
        "corpus": {"name": corpus.name, "sha256": corpus.sha256, "clean": settings.clean},
        "versions": versions(),
    }
    print(f"\n{folder.name}, {'carried lanes' if kind == 'lanes' and model.context is None else kind}")
    try:
        result = training.run(
            folder,
            model,
            vocabulary,
            windows(settings, kind, train_ids, seed),
            validation_ids,
            settings.steps,
            settings.train,
            config,
            folder.name,
        )
    except training.CheckpointError:
        raise
    except ValueError as fault:  # by now the user has made no mistake: let the traceback show ours
        raise RuntimeError(f"{folder.name} failed while training.") from fault
    return {"model": name, "seed": seed, **result}


def compare(settings: Compare, folder: pathlib.Path):
    """Trains all that is not yet trained in `folder`, then writes the comparison. Returns its rows."""
    corpus = text.load_corpus(settings.corpus, clean=settings.clean)
    for config in folder.glob("*/config.json"):
        begun_with = json.loads(config.read_text(encoding="utf-8"))["corpus"]["sha256"]
        if begun_with != corpus.sha256:
            raise ValueError(
                f"{folder} was begun with a corpus of sha256 {begun_with}, but {corpus.name} now has {corpus.sha256}: "
                "go on with the same text, or begin anew."
            )
    train_text, validation_text = corpus.split(window=settings.context + 1)
    vocabulary = text.Vocabulary.from_text(corpus.text)
    train_ids, validation_ids = (vocabulary.encode(part).numpy() for part in (train_text, validation_text))
    # What cannot be built is an error now, before anything is written.
    for kind in (settings.recurrent_windows, settings.attention_windows):
        windows(settings, kind, train_ids, seed=0)
    sizes = {name: settings.model(name).build(vocabulary.size).count_params() for name in settings.models}
    print(
        f"{corpus.name}: {len(train_text):,} characters to train on, {len(validation_text):,} to validate on, "
        f"{vocabulary.size} distinct; {settings.steps:,} steps of {settings.batch_size} x {settings.context}"
    )
    print("Parameters: " + ", ".join(f"{name} {size:,}" for name, size in sizes.items()))
    print(report.sizes(sizes.values()))
    rows = []
    folder.mkdir(parents=True, exist_ok=True)
    training.write_table(folder, ("model.name", "train.optimizer", "windows", "seed"))
    for seed in range(settings.seeds):
        for name in settings.models:
            run = folder / f"{name}-seed{seed}"
            finished = run / "result.json"
            if finished.exists():
                row = {"model": name, "seed": seed, **json.loads(finished.read_text(encoding="utf-8"))}
            else:
                row = train_one(run, settings, name, seed, corpus, vocabulary, train_ids, validation_ids)
            rows.append(row)
    report.write(folder, corpus.name, rows)
    return rows


def settings_in(folder: pathlib.Path) -> Compare:
    """The settings of a comparison that was begun."""
    configs = sorted(folder.glob("*/config.json"))
    if not configs:
        raise ValueError(f"--resume {folder}: no run with a config.json is there; expected LOG_DIR/compare/UTC-TIME.")
    try:
        return revive(Compare, json.loads(configs[0].read_text(encoding="utf-8"))["experiment"])
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"--resume {folder}: {configs[0]} does not hold the settings of a comparison.") from error


@one_sentence("experiments.compare")
def main(arguments=None):
    """The command line."""
    settings = command_line(Compare, "experiments.compare", __doc__, arguments)
    if settings.resume is not None:
        folder = pathlib.Path(settings.resume)
        settings = settings_in(folder)
    else:
        settings = tiny(settings) if settings.smoke else settings
        time = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
        folder = pathlib.Path(settings.log_dir) / "compare" / time
        if folder.exists():
            raise ValueError(f"{folder} is there already: another comparison began in this second. Start again.")
    rows = compare(settings, folder)
    print(report.closing(folder, rows))


if __name__ == "__main__":
    main()
