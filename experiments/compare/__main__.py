"""Which sequence model has the lowest loss on the same text with the same budget, and is the difference significant?

    python -m experiments.compare                                  # Python's docstrings, offline
    python -m experiments.compare --corpus shakespeare --num-seeds 3
    python -m experiments.compare --corpus shakespeare --models rnn gru lstm mingru minlstm mamba transformer
    python -m experiments.compare --match parameters --models lstm transformer mamba2 hawk rwkv7 hybrid
    python -m experiments.compare --match flops                    # or parameters, or seconds
    python -m experiments.compare --sweep learning-rate --sweep-factors 0.3 1 3
    python -m experiments.compare --num-seeds 3 --jobs 3           # three runs at a time: docs/scaling-out.md
    python -m experiments.compare --corpus FOLDER --documents      # token ids of experiments.prepare; documents apart
    python -m experiments.compare --smoke                          # seconds, tiny sizes: test that everything works
    python -m experiments.compare --resume logs/compare/20260101-120000

Time: 2 to 5 minutes a model on 2 cores.

Models: rnn, gru, lstm, with gates that see the state; mingru, minlstm, hawk (Griffin's RG-LRU), mamba, mamba2, gla
(gated linear attention), gated_deltanet, rwkv7, linear in the state; xlstm, of both kinds (docs/recurrent.md);
transformer, gpt2, llama; hybrid, of recurrent and attention blocks.

All models use the same text, split and scoring, and the same budget (--match). At the defaults, parameter counts are
equal within 5 %. Recurrent models read stateful windows, Transformers random windows; the tokenizer is built from the
whole text. Expected on tiny Shakespeare: val_loss@64 1.532 (LSTM) and 1.575 (Transformer); docs/results.md has more.
"""

import dataclasses
import pathlib

import numpy as np

from experiments.common.command import experiment_main
from experiments.common.reports import Report
from experiments.common.runs import run_all, run_config
from experiments.common.texts import (
    SplitCorpus,
    TokenMixture,
    compare_sizes,
    overlap_note,
    packed_documents,
    random_windows,
    split_corpus,
    spread_note,
)
from experiments.compare import budgets as compare_budgets
from experiments.compare.findings import ComparisonResults
from experiments.compare.report import compare_report
from experiments.compare.settings import SMOKE, CompareConfig
from keras_seq import callbacks, training
from keras_seq.baselines import compute_baselines
from keras_seq.data import StatefulWindows
from keras_seq.data.pipeline import StepBatches
from keras_seq.evaluation.streaming import sample_windows
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tokenizers.registry import encode_documents

NUM_WINDOWS = 16  # windows for attention maps and gate saturation


def diagnostics(
    tokenizer: CharacterTokenizer, validation_text: str, sequence_length: int, train: training.TrainConfig
) -> list:
    """Return loss by position, attention maps and gate saturation; what a model lacks, it shows nothing of.

    The loss by position is that of the windows that a validation scores, all of them spread over the text.
    """
    ids = encode_documents(tokenizer, validation_text)
    total = (len(ids) - 1) // sequence_length
    scored = training.validation_sample(ids, sequence_length, train, len(validation_text))
    sample = sample_windows(ids, sequence_length, NUM_WINDOWS)
    starts = np.arange(total) * sequence_length if sample is None else sample.window_starts
    windows = ids[starts[:, None] + np.arange(sequence_length)]
    names = {n: tokenizer.decode([n]) for n in set(windows[0].tolist())}
    tokens = [names[n] for n in windows[0].tolist()]
    return [
        callbacks.LossByPosition(ids, sequence_length, None if scored is None else scored.tokens // sequence_length),
        callbacks.AttentionMaps(windows, tokens),
        callbacks.GateSaturation(windows),
    ]


def make_windows(config: CompareConfig, kind: str, ids, seed: int) -> StepBatches:
    """Return the "stateful", "random" or "packed" training windows of one run over its training ids `[N]`."""
    sizes = {"batch_size": config.batch_size, "sequence_length": config.sequence_length, "seed": seed}
    if kind == "random":
        return random_windows(ids, **sizes)
    if isinstance(ids, TokenMixture):
        raise ValueError(
            f"A --corpus with weights has no {kind} windows: expected --recurrent-windows random and "
            "--transformer-windows random."
        )
    if kind == "packed":
        return packed_documents(ids, **sizes)
    return StatefulWindows(ids, reset_prob=config.reset_prob, **sizes)


def train_one(
    run: pathlib.Path,
    config: CompareConfig,
    budget: compare_budgets.Budget,
    train: training.TrainConfig,
    seed: int,
    data: SplitCorpus,
    train_ids,
    scored_text: str,
) -> dict:
    """Train one model with one seed on `train_ids`, score it on a text, and return its result."""
    tokenizer = data.tokenizer
    model = budget.model_config.build_model(tokenizer.vocabulary_size, dtype=train.dtype_policy)
    model.document_token = data.document_token if config.documents else None
    kind = config.windows_for(model)
    budget_info = {"match": config.match, "steps": budget.steps, "train_flops_per_token": budget.flops_per_token}
    extra = {"windows": kind, "seed": seed, "budget": budget_info}
    embeddings = callbacks.EmbeddingProjector(tokenizer, run)
    result = training.train_language_model(
        run,
        model,
        tokenizer,
        make_windows(config, kind, train_ids, seed),
        scored_text,
        budget.steps,
        train,
        run_config(config, budget.name, budget.model_config, train, model, data.corpus, **extra),
        diagnostics=diagnostics(tokenizer, scored_text, config.sequence_length, train),
        callbacks=[embeddings, *([callbacks.Profiler(run)] if config.profile else [])],
    )
    embeddings.write(model)  # a run stopped in its last validation has not reached the end of the epoch
    return result


def compare(config: CompareConfig, folder: pathlib.Path) -> Report:
    """Train all runs that are not finished in `folder`, then report the comparison."""
    min_length = config.sequence_length + 1
    data = split_corpus(config.corpus, folder, min_length, strip_whitespace=config.strip_whitespace)
    if config.documents and data.document_token is None:
        raise ValueError("--documents: expected a --corpus of folders that python -m experiments.prepare wrote.")
    # Build all windows once, so that errors are raised before anything is written.
    for kind in (config.recurrent_windows, config.transformer_windows):
        make_windows(config, kind, data.train, seed=0)
    if config.sweep is not None:
        sweep_ids, sweep_scored = data.hold_out_ids(min_length)
        make_windows(config, config.recurrent_windows, sweep_ids, seed=0)
    stretches = data.scored_stretches(config.sequence_length, config.train)

    def plan_windows(kind):
        return make_windows(config, kind, data.train, seed=0)

    budgets = compare_budgets.plan(config, folder, data.tokenizer.vocabulary_size, plan_windows)
    data.introduce(config.train, min_length, f"batches of {config.batch_size} x {config.sequence_length}")
    print(compare_budgets.budget_table(config, budgets).without("width"))
    print(*filter(None, [compare_sizes([budget.parameters for budget in budgets.values()])]))

    def run(name, budget, train, seed=0, ids=data.train, scored=data.validation_text):
        path = folder / name
        return path, seed, lambda: train_one(path, config, budget, train, seed, data, ids, scored)

    sweep_runs = []
    if config.sweep is not None:
        sweep_runs = compare_budgets.sweep(
            config, budgets, lambda *of: run(*of, ids=sweep_ids, scored=sweep_scored), run_all
        )
        budgets = {name: compare_budgets.with_best_lr(budget, sweep_runs) for name, budget in budgets.items()}
        print(
            "\n".join(["", str(compare_budgets.sweep_table(sweep_runs)), *compare_budgets.sweep_warnings(sweep_runs)])
        )
    planned = [(seed, budget) for seed in range(config.num_seeds) for budget in budgets.values()]
    results = run_all(
        [
            run(f"{b.name}-seed{seed}", b, dataclasses.replace(config.train, learning_rate=b.learning_rate), seed)
            for seed, b in planned
        ]
    )
    rows = [
        {"model": b.name, "seed": seed, **result, "train_flops": b.flops_per_token * result["train_tokens"]}
        for (seed, b), result in zip(planned, results, strict=True)
    ]
    baselines = compute_baselines(data.train_text, data.validation_text, stretches=stretches)
    scored = None if stretches is None else spread_note((stretches @ [-1, 1]).sum(), len(data.validation_text))
    note = overlap_note(data.train_text, data.validation_text)
    return compare_report(
        ComparisonResults(folder, config, data.corpus, rows, budgets, baselines, sweep_runs, note, scored)
    )


main = experiment_main("compare", CompareConfig, SMOKE, compare, __doc__)

if __name__ == "__main__":
    main()
