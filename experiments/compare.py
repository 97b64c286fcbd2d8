"""Train sequence models on the same text, and compare their losses: by default a stateful LSTM and a Transformer.

    python -m experiments.compare                                  # the text that comes with Python, offline
    python -m experiments.compare --corpus shakespeare --seeds 3
    python -m experiments.compare --corpus shakespeare --models rnn gru lstm mingru minlstm mamba transformer
    python -m experiments.compare --smoke                          # seconds, tiny: does everything work?
    python -m experiments.compare --resume logs/compare/20260101-120000

Every model gets the same text, split, tokens and scoring, and at the defaults within 5 % the same number of parameters
(up to about 200 distinct characters; it is said when they are further apart). The vocabulary is that of the whole
text. Recurrent models read the text in lanes with their state carried on; the Transformer reads random crops. Two to
five minutes a model on 2 cores. To expect on tiny Shakespeare, in nats per character of the whole validation split
(README.md has the table): LSTM 1.48 warm, 1.54 cold; Transformer 1.58 cold.
"""

import dataclasses
import datetime
import importlib.metadata
import json
import pathlib
import platform
import subprocess

import keras

from experiments import report
from experiments.compare_settings import Compare, revive, tiny
from experiments.startup import command_line, one_sentence
from keras_seq import text, training


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
        "train": {**dataclasses.asdict(settings.train), **settings.train.filled_in(model)},
        "windows": kind,
        "seed": seed,
        "corpus": {"name": corpus.name, "sha256": corpus.sha256, "clean": settings.clean},
        "versions": versions(),
    }
    begun = folder / "config.json"
    if begun.exists() and json.loads(begun.read_text(encoding="utf-8"))["train"] != config["train"]:
        raise ValueError(
            f"{folder} was begun with other training settings than this version has by default: begin anew."
        )
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
