"""Compare sequence models trained on the same text: which one has the lowest loss, and is the difference significant?

    python -m experiments.compare                                  # Python's docstrings, offline
    python -m experiments.compare --corpus shakespeare --num-seeds 3
    python -m experiments.compare --corpus shakespeare --models rnn gru lstm mingru minlstm mamba transformer
    python -m experiments.compare --match flops                    # or parameters, or seconds
    python -m experiments.compare --sweep learning-rate --sweep-factors 0.3 1 3
    python -m experiments.compare --smoke                          # seconds, tiny sizes: test that everything works
    python -m experiments.compare --resume logs/compare/20260101-120000

By default, a stateful LSTM and a Transformer. All models use the same text, split and scoring, and the same budget:
tokens by default, or parameters, FLOPs or seconds (--match). At the defaults, parameter counts are equal within 5 % (up
to about 200 distinct characters; larger differences are reported). The tokenizer is built from the whole text.
Recurrent models read stateful windows, Transformers random windows. Written beside the runs: compare.html, compare.md,
a plot, and 95 % intervals of the differences. Time: two to five minutes per model on 2 cores.

Expected on tiny Shakespeare, in nats per character of the whole validation split (README.md has the table): LSTM
val_loss@64 1.535, val_loss_streaming 1.48; Transformer val_loss@64 1.573.
"""

import dataclasses
import pathlib
from collections.abc import Sequence

import keras

from experiments.compare import budgets as compare_budgets
from experiments.compare import report as compare_report
from experiments.compare import sweep as compare_sweep
from experiments.compare.diagnostics import diagnostics
from experiments.compare.findings import ComparisonResults
from experiments.compare.settings import CompareConfig, smoke_config
from experiments.frame import report
from experiments.frame.corpora import overlap_note
from experiments.frame.runs import check_same_corpus, run_config, start_or_resume
from experiments.frame.startup import exit_with_message
from keras_seq import training
from keras_seq.baselines import compute_baselines
from keras_seq.callbacks import EmbeddingProjector, Profiler
from keras_seq.data import Corpus, RandomWindows, StatefulWindows, load_corpus
from keras_seq.tokenizers import CharacterTokenizer


def make_windows(config: CompareConfig, kind: str, ids, seed: int) -> StatefulWindows | RandomWindows:
    """Return the training windows of one run.

    Args:
        config: Config of the comparison.
        kind: "stateful" or "random".
        ids: Ids of the training text, `[N]`.
        seed: Random seed of the windows.

    Raises:
        ValueError: The text is too short.
    """
    sizes = {"batch_size": config.batch_size, "sequence_length": config.sequence_length, "seed": seed}
    if kind == "stateful":
        return StatefulWindows(ids, reset_prob=config.reset_prob, **sizes)
    return RandomWindows(ids, **sizes)


def train_one(
    run: pathlib.Path,
    config: CompareConfig,
    budget: compare_budgets.Budget,
    train: training.TrainConfig,
    seed: int,
    corpus: Corpus,
    tokenizer: CharacterTokenizer,
    train_text: str,
    validation_text: str,
) -> dict:
    """Train one model with one seed, unless its run is finished.

    Args:
        run: Run folder.
        config: Config of the comparison.
        budget: Budget of the model.
        train: Options of training.
        seed: Random seed of weights, dropout and batches.
        corpus: Corpus named in config.json.
        tokenizer: Tokenizer of the whole corpus.
        train_text: Text to train on.
        validation_text: Text to score.

    Returns:
        The content of result.json.

    Raises:
        CheckpointError: The run cannot be resumed.
        TrainingDiverged: A loss or a gradient was not finite.
        TrainingInterrupted: A stop was requested.
        RuntimeError: Training raised a ValueError.
    """
    result = training.load_result(run)
    if result is not None:
        return result
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    model = budget.model_config.build_model(tokenizer.vocabulary_size, dtype=train.dtype_policy)
    kind = config.windows_for(model)
    config_json = run_config(
        config,
        budget.name,
        budget.model_config,
        {**dataclasses.asdict(train), **train.resolved(model)},
        windows=kind,
        seed=seed,
        corpus={"name": corpus.name, "sha256": corpus.sha256, "strip_whitespace": config.strip_whitespace},
        budget={"match": config.match, "steps": budget.steps, "train_flops_per_token": budget.flops_per_token},
    )
    print(f"\n{run.name}, {kind} windows{', state carried' if config.is_stateful(model) else ''}")
    embeddings = EmbeddingProjector(tokenizer, run)
    try:
        result = training.train_language_model(
            run,
            model,
            tokenizer,
            make_windows(config, kind, tokenizer.encode(train_text).numpy(), seed),
            validation_text,
            budget.steps,
            train,
            config_json,
            run.name,
            diagnostics=diagnostics(tokenizer, validation_text, config.sequence_length),
            callbacks=[embeddings, *([Profiler(run)] if config.profile else [])],
        )
        embeddings.write(model)  # a run stopped in its last validation has not reached the end of the epoch
        return result
    except training.CheckpointError:
        raise
    except ValueError as error:  # all options were checked before: a bug, so show the traceback
        raise RuntimeError(f"{run.name} failed while training.") from error


def compare(config: CompareConfig, folder: pathlib.Path) -> ComparisonResults:
    """Train all runs that are not finished in `folder`, then write the comparison.

    Args:
        config: Config of the comparison.
        folder: Folder of the runs.

    Returns:
        The results of all runs.

    Raises:
        ValueError: The text is too short, or differs from that of the runs in the folder.
    """
    corpus = load_corpus(config.corpus, strip_whitespace=config.strip_whitespace)
    check_same_corpus(folder, corpus)
    train_text, validation_text = corpus.split(min_length=config.sequence_length + 1)
    tokenizer = CharacterTokenizer.from_text(corpus.text)
    train_ids = tokenizer.encode(train_text).numpy()
    # Build all windows once, so that errors are raised before anything is written.
    for kind in (config.recurrent_windows, config.transformer_windows):
        make_windows(config, kind, train_ids, seed=0)
    sweep_texts = None
    if config.sweep is not None:
        sweep_texts = compare_sweep.split_for_sweep(corpus, train_text, config.sequence_length)
        make_windows(config, config.recurrent_windows, tokenizer.encode(sweep_texts[0]).numpy(), seed=0)
    validation_note = report.validation_note(config.train, validation_text, config.sequence_length + 1)
    budgets = compare_budgets.load_or_plan(
        folder / "plan.json",
        config,
        tokenizer.vocabulary_size,
        lambda kind: make_windows(config, kind, train_ids, seed=0),
    )
    print(
        f"{corpus.name}: {len(train_text):,} training characters, {len(validation_text):,} validation characters, "
        f"{tokenizer.vocabulary_size} distinct; batches of {config.batch_size} x {config.sequence_length}"
        f"{validation_note}"
    )
    if (note := overlap_note(train_text, validation_text)) is not None:
        print(note)
    print(f"{compare_budgets.table(config, budgets)}\n{report.sizes([b.parameters for b in budgets.values()])}")

    def run(name, budget, train, train_text, validation_text, seed=0):
        return train_one(folder / name, config, budget, train, seed, corpus, tokenizer, train_text, validation_text)

    sweep_runs = []
    if config.sweep is not None:
        sweep_runs = compare_sweep.sweep(config, budgets, sweep_texts, run)
        budgets = {name: compare_sweep.with_best_lr(budget, sweep_runs) for name, budget in budgets.items()}
        print("\n".join(["", compare_sweep.table(sweep_runs), *compare_sweep.warnings(sweep_runs)]))
    rows = []
    for seed in range(config.num_seeds):
        for name, budget in budgets.items():
            train = dataclasses.replace(config.train, learning_rate=budget.learning_rate)
            result = run(f"{name}-seed{seed}", budget, train, train_text, validation_text, seed)
            flops = budget.flops_per_token * result["train_tokens"]
            rows.append({"model": name, "seed": seed, **result, "train_flops": flops})
    baselines = compute_baselines(train_text, validation_text)
    results = ComparisonResults(folder, config, corpus, rows, budgets, baselines, sweep_runs, note)
    compare_report.write_report(results)
    return results


@exit_with_message("experiments.compare")
def main(arguments: Sequence[str] | None = None):
    """Run the command line."""
    with start_or_resume(CompareConfig, "compare", __doc__, arguments, smoke_config) as (config, folder):
        print(compare_report.final_message(compare(config, folder)))


if __name__ == "__main__":
    main()
