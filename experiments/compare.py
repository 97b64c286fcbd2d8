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
import json
import pathlib

import keras

from experiments import report
from experiments.compare_settings import Compare, tiny
from experiments.runs import begin, config, finished, same_corpus
from experiments.startup import one_sentence
from keras_seq import text, training


def windows(settings: Compare, kind, ids, seed):
    """The training batches of one run."""
    sizes = {"batch_size": settings.batch_size, "length": settings.context, "seed": seed}
    return text.Lanes(ids, restart=settings.restart, **sizes) if kind == "lanes" else text.RandomCrops(ids, **sizes)


def train_one(folder, settings: Compare, name, seed, corpus, vocabulary, train_ids, validation_text):
    """One run: one model, one seed. Returns its row."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    definition = settings.model(name)
    model = definition.build(vocabulary.size, dtype=settings.train.policy)
    kind = settings.recurrent_windows if model.context is None else settings.attention_windows
    train = {**dataclasses.asdict(settings.train), **settings.train.filled_in(model)}
    of_corpus = {"name": corpus.name, "sha256": corpus.sha256, "clean": settings.clean}
    run_config = config(settings, name, definition, train, windows=kind, seed=seed, corpus=of_corpus)
    begun = folder / "config.json"
    if begun.exists() and json.loads(begun.read_text(encoding="utf-8"))["train"] != train:
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
            validation_text,
            settings.steps,
            settings.train,
            run_config,
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
    same_corpus(folder, corpus)
    train_text, validation_text = corpus.split(window=settings.context + 1)
    vocabulary = text.Vocabulary.from_text(corpus.text)
    train_ids = vocabulary.encode(train_text).numpy()
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
            result = finished(run)
            if result is not None:
                row = {"model": name, "seed": seed, **result}
            else:
                row = train_one(run, settings, name, seed, corpus, vocabulary, train_ids, validation_text)
            rows.append(row)
    report.write(folder, corpus.name, rows)
    return rows


@one_sentence("experiments.compare")
def main(arguments=None):
    """The command line."""
    settings, folder = begin(Compare, "compare", __doc__, arguments, tiny)
    rows = compare(settings, folder)
    print(report.closing(folder, rows))


if __name__ == "__main__":
    main()
