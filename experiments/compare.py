"""Train sequence models on the same text, and compare their losses: by default a stateful LSTM and a Transformer.

    python -m experiments.compare                                  # Python's docstrings, offline
    python -m experiments.compare --corpus shakespeare --seeds 3
    python -m experiments.compare --corpus shakespeare --models rnn gru lstm mingru minlstm mamba transformer
    python -m experiments.compare --match flops                    # or parameters, or seconds: the same for all
    python -m experiments.compare --sweep learning-rate --sweep-factors 0.3 1 3
    python -m experiments.compare --smoke                          # seconds, tiny: does everything work?
    python -m experiments.compare --resume logs/compare/20260101-120000

Every model gets the same text, split and scoring, and one quantity in the same amount, by default the tokens; at the
defaults the models have within 5 % the same number of parameters (up to about 200 distinct characters; it is said when
they are further apart). The vocabulary is that of the whole text. Recurrent models read the text in lanes with their
state carried on; the Transformer reads random crops. Beside the runs: a page (compare.html), a report, a picture, and
how sure each difference is. Two to five minutes a model on 2 cores. To expect on tiny Shakespeare, in nats per
character of the whole validation split (README.md has the table): LSTM 1.48 warm, 1.535 cold; Transformer 1.573 cold.
"""

import dataclasses
import pathlib

import keras

from experiments import compare_budgets, compare_report, compare_sweep, report
from experiments.compare_findings import Findings
from experiments.compare_looks import LAYOUT, diagnostics
from experiments.compare_settings import Compare, tiny
from experiments.corpora import copied
from experiments.runs import begin, config, same_corpus
from experiments.startup import one_sentence
from keras_seq import training
from keras_seq.baselines import compute_baselines
from keras_seq.callbacks import EmbeddingProjector, Profiler, write_custom_scalars_layout
from keras_seq.data import RandomWindows, StatefulWindows, load_corpus
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking import write_hparams_config


def windows(settings: Compare, kind, ids, seed):
    """The training batches of one run."""
    sizes = {"batch_size": settings.batch_size, "length": settings.context, "seed": seed}
    return (
        StatefulWindows(ids, reset_prob=settings.restart, **sizes) if kind == "lanes" else RandomWindows(ids, **sizes)
    )


def train_one(run, settings: Compare, budget, train, seed, corpus, vocabulary, train_text, validation_text):
    """One run: one model, one seed. Returns its final figures, those that are there where it is finished.

    Args:
        run: its folder.
        settings: of the comparison.
        budget: of the model.
        train: a `Train`.
        seed: of weights, dropout and batches.
        corpus: what config.json names.
        vocabulary: of the whole corpus.
        train_text, validation_text: parts of it.
    """
    result = training.load_result(run)
    if result is not None:
        return result
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    model = budget.definition.build_model(vocabulary.vocabulary_size, dtype=train.dtype_policy)
    kind = settings.windows_for(model)
    train_config = {**dataclasses.asdict(train), **train.resolved(model)}
    run_config = config(
        settings,
        budget.name,
        budget.definition,
        train_config,
        windows=kind,
        seed=seed,
        corpus={"name": corpus.name, "sha256": corpus.sha256, "strip_whitespace": settings.strip_whitespace},
        budget={"match": settings.match, "steps": budget.steps, "train_flops_per_token": budget.flops_per_token},
    )
    print(f"\n{run.name}, {'carried lanes' if settings.carries(model) else kind}")
    embeddings = EmbeddingProjector(vocabulary, run)
    try:
        result = training.train_language_model(
            run,
            model,
            vocabulary,
            windows(settings, kind, vocabulary.encode(train_text).numpy(), seed),
            validation_text,
            budget.steps,
            train,
            run_config,
            run.name,
            diagnostics=diagnostics(vocabulary, validation_text, settings.context),
            callbacks=[embeddings, *([Profiler(run)] if settings.profile else [])],
        )
        embeddings.write(model)  # a stop in the last validation came before the end of the epoch
        return result
    except training.CheckpointError:
        raise
    except ValueError as fault:  # by now the user has made no mistake: let the traceback show ours
        raise RuntimeError(f"{run.name} failed while training.") from fault


def compare(settings: Compare, folder: pathlib.Path) -> Findings:
    """Trains all that is not yet trained in `folder`, then writes the comparison."""
    corpus = load_corpus(settings.corpus, strip_whitespace=settings.strip_whitespace)
    same_corpus(folder, corpus)
    train_text, validation_text = corpus.split(min_length=settings.context + 1)
    vocabulary = CharacterTokenizer.from_text(corpus.text)
    train_ids = vocabulary.encode(train_text).numpy()
    # What cannot be built is an error now, before anything is written.
    for kind in (settings.recurrent_windows, settings.attention_windows):
        windows(settings, kind, train_ids, seed=0)
    held_back = None
    if settings.sweep is not None:
        held_back = compare_sweep.held_back(corpus, train_text, settings.context)
        windows(settings, settings.recurrent_windows, vocabulary.encode(held_back[0]).numpy(), seed=0)
    bounds = report.validated(settings.train, validation_text, settings.context + 1)
    budgets = compare_budgets.kept_or_planned(
        folder / "plan.json", settings, vocabulary.vocabulary_size, lambda kind: windows(settings, kind, train_ids, 0)
    )
    print(
        f"{corpus.name}: {len(train_text):,} characters to train on, {len(validation_text):,} to validate on, "
        f"{vocabulary.vocabulary_size} distinct; batches of {settings.batch_size} x {settings.context}{bounds}"
    )
    if (note := copied(train_text, validation_text)) is not None:
        print(note)
    print(f"{compare_budgets.table(settings, budgets)}\n{report.sizes([b.parameters for b in budgets.values()])}")

    def run(name, budget, train, train_text, validation_text, seed=0):
        return train_one(folder / name, settings, budget, train, seed, corpus, vocabulary, train_text, validation_text)

    tried = []
    if settings.sweep is not None:
        tried = compare_sweep.sweep(settings, budgets, held_back, run)
        budgets = {name: compare_sweep.chosen(budget, tried) for name, budget in budgets.items()}
        print("\n".join(["", compare_sweep.table(tried), *compare_sweep.warnings(tried)]))
    write_hparams_config(folder, ("model.name", "train.learning_rate", "windows"))
    write_custom_scalars_layout(folder, LAYOUT)
    rows = []
    for seed in range(settings.seeds):
        for name, budget in budgets.items():
            train = dataclasses.replace(settings.train, learning_rate=budget.learning_rate)
            result = run(f"{name}-seed{seed}", budget, train, train_text, validation_text, seed)
            flops = budget.flops_per_token * result["train_tokens"]
            rows.append({"model": name, "seed": seed, **result, "train_flops": flops})
    references = compute_baselines(train_text, validation_text)
    found = Findings(folder, settings, corpus, rows, budgets, references, tried, note)
    compare_report.write(found)
    return found


@one_sentence("experiments.compare")
def main(arguments=None):
    """The command line."""
    with begin(Compare, "compare", __doc__, arguments, tiny) as (settings, folder):
        print(compare_report.closing(compare(settings, folder)))


if __name__ == "__main__":
    main()
