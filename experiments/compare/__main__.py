"""Which sequence model has the lowest loss on the same text with the same budget, and is the difference significant?

    python -m experiments.compare                                  # Python's docstrings, offline
    python -m experiments.compare --corpus shakespeare --num-seeds 3
    python -m experiments.compare --corpus shakespeare --models rnn gru lstm mingru minlstm mamba transformer
    python -m experiments.compare --match parameters --models lstm transformer mamba2 hawk rwkv7 hybrid
    python -m experiments.compare --match flops                    # or parameters, or seconds
    python -m experiments.compare --sweep learning-rate            # five rates a model, and their parabolas
    python -m experiments.compare --num-seeds 3 --jobs 3           # three runs at a time: docs/scaling-out.md
    python -m experiments.compare --corpus FOLDER --documents      # token ids of keras-seq prepare; documents apart
    python -m experiments.compare --recall-steps 0                 # losses only, without recall at the end
    python -m experiments.compare --smoke                          # seconds, tiny sizes: test that everything works
    python -m experiments.compare --resume logs/compare/20260101-120000-docstrings

Time: 2 to 5 minutes a model on 2 cores.

Models: rnn, gru, lstm, with gates that see the state; mingru, minlstm, hawk (Griffin's RG-LRU), mamba, mamba2, gla
(gated linear attention), gated_deltanet, deltaproduct, kda (Kimi Delta Attention), rwkv7, linear in the state; xlstm,
of both kinds (docs/recurrent.md); transformer, gpt2, llama; hybrid and qwen3_5, of recurrent and attention blocks.

All models use the same text, split and scoring, and the same budget (--match). At the defaults, parameter counts are
equal within 5 %. Recurrent models read stateful windows where all of the text is read, else random ones, models with
attention random ones; the tokenizer is built from the whole text. Expected on tiny Shakespeare over three seeds:
val_loss@64 1.53 (LSTM) and 1.54 (Transformer); docs/results.md has more.
At the end small models of the same kinds learn to recall 8 pairs of a key and a value, an LSTM and a Transformer in
half a minute: expected 20 % and 100 %. The report has loss beside recall, because the two differ.
"""

import dataclasses
import pathlib

from experiments.common.command import experiment_main
from experiments.common.jobs import run_all
from experiments.compare import budgets as compare_budgets
from experiments.compare import sweep as compare_sweep
from experiments.compare.recall import recall_results, recall_runs
from experiments.compare.settings import SMOKE, CompareConfig
from keras_seq import callbacks, training
from keras_seq.baselines import compute_baselines
from keras_seq.data.pipeline import StepBatches
from keras_seq.reports.comparison import ComparisonResults
from keras_seq.reports.comparison_report import compare_report
from keras_seq.reports.learning_rates import fit_rates, rates_table, runs_table
from keras_seq.reports.tables import Report, compare_sizes
from keras_seq.runs.finished_run import write_living_page
from keras_seq.runs.folders import run_config
from keras_seq.runs.texts import SplitCorpus, overlap_note, split_corpus, spread_note
from keras_seq.runs.train import recurrent_windows, train_run, training_windows


def make_windows(config: CompareConfig, kind: str, ids, seed: int) -> StepBatches:
    """Return the training windows of one run over its training ids `[N]`."""
    return training_windows(kind, ids, config.batch_size, config.sequence_length, seed, config.reset_prob)


def train_one(
    run: pathlib.Path,
    config: CompareConfig,
    budget: compare_budgets.Budget,
    train: training.TrainConfig,
    seed: int,
    data: SplitCorpus,
    train_ids,
    scored,
) -> dict:
    """Train one model with one seed on `train_ids`, score it on a text, and return its result."""
    tokenizer = data.tokenizer
    model = budget.model_config.build_model(tokenizer.vocabulary_size, dtype=train.dtype_policy)
    model.document_token = data.document_token if config.documents else None
    kind = config.windows_for(model)
    budget_info = {"match": config.match, "steps": budget.steps, "train_flops_per_token": budget.flops_per_token}
    extra = {"windows": kind, "seed": seed, "budget": budget_info}
    return train_run(
        run,
        model,
        tokenizer,
        make_windows(config, kind, train_ids, seed),
        scored,
        budget.steps,
        train,
        run_config(config, budget.name, budget.model_config, train, model, data.corpus, **extra),
        callbacks=[callbacks.Profiler(run)] if config.profile else [],
    )


def recurrent_kind(config: CompareConfig, ids, budgets: dict[str, compare_budgets.Budget]) -> str:
    """Return the kind of windows that all recurrent models read, which suits the one that reads the fewest tokens."""
    recurrent = [budget for budget in budgets.values() if not hasattr(budget.model_config, "context_length")]
    steps = min((budget.steps for budget in recurrent), default=config.steps)
    return recurrent_windows(ids, steps * config.batch_size * config.sequence_length)


def compare(config: CompareConfig, folder: pathlib.Path) -> Report:
    """Train all runs that are not finished in `folder`, then report the comparison."""
    min_length = config.sequence_length + 1
    data = split_corpus(config.corpus, folder, min_length, strip_whitespace=config.strip_whitespace)
    if config.documents and data.document_token is None:
        raise ValueError("--documents: expected a --corpus of folders that keras-seq prepare wrote.")
    is_open = config.recurrent_windows is None
    if is_open:
        config = dataclasses.replace(config, recurrent_windows=recurrent_kind(config, data.train, {}))
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
    if is_open:
        config = dataclasses.replace(config, recurrent_windows=recurrent_kind(config, data.train, budgets))
    data.introduce(config.train, min_length, f"batches of {config.batch_size} x {config.sequence_length}")
    print(compare_budgets.budget_table(config, budgets).without("width"))
    print(*filter(None, [compare_sizes([budget.parameters for budget in budgets.values()])]))

    def run(name, budget, train, seed=0, ids=data.train, scored=data.scored):
        path = folder / name
        return path, seed, lambda: train_one(path, config, budget, train, seed, data, ids, scored)

    sweep_runs, rates, rate_tables = [], {}, {}
    if config.sweep is not None:
        sweep_runs = compare_sweep.sweep(
            config, budgets, lambda *of: run(*of, ids=sweep_ids, scored=sweep_scored), run_all
        )
        rates = fit_rates(sweep_runs)
        table = rates_table(rates, {name: budget.learning_rate for name, budget in budgets.items()})
        warnings = compare_sweep.sweep_warnings(rates.values())
        print("\n".join(["", str(table), *warnings]))
        rate_tables = {
            "Learning rates": (table, " ".join([compare_sweep.CURVES, *warnings])),
            "Losses of the sweep": (runs_table(sweep_runs), compare_sweep.HELD_OUT),
        }
        budgets = compare_sweep.with_best_rates(budgets, rates)
    planned = [(seed, budget) for seed in range(config.num_seeds) for budget in budgets.values()]
    runs = [
        run(f"{b.name}-seed{seed}", b, dataclasses.replace(config.train, learning_rate=b.learning_rate), seed)
        for seed, b in planned
    ]
    results = run_all([*runs, *recall_runs(config, folder)])
    recall = recall_results(config, results[len(runs) :])
    rows = [
        {
            **{"model": b.name, "seed": seed, "run": folder / f"{b.name}-seed{seed}", **result},
            **{"flops_per_token": b.flops_per_token, "train_flops": b.flops_per_token * result["train_tokens"]},
        }
        for (seed, b), result in zip(planned, results[: len(runs)], strict=True)
    ]
    baselines = compute_baselines(data.train_text, data.validation_text, stretches=stretches)
    scored = None if stretches is None else spread_note((stretches @ [-1, 1]).sum(), len(data.validation_text))
    tables = {f"Matched by {config.match}": (compare_budgets.budget_table(config, budgets), ""), **rate_tables}
    seeds = f"{config.num_seeds} seed{'s' if config.num_seeds > 1 else ''} per model"
    size = f"{len(data.corpus.text):,} characters, of which the last tenth for validation"
    if not data.corpus.text:  # token ids
        size = f"{len(data.train):,} training and {len(data.validation):,} validation tokens"
    introduction = (
        f"{data.corpus.name}: {size} (sha256 {data.corpus.sha256[:16]}). Matched by {config.match}, with {seeds}."
    )
    _write_page(folder, [folder / f"{name}-seed0" for name in config.models[:2]])
    note, options = overlap_note(data.train_text, data.validation_text), dataclasses.asdict(config)
    comparison = ComparisonResults(
        folder, data.corpus.name, introduction, rows, baselines, note, scored, tables, rates, options, recall
    )
    return compare_report(comparison, {"sweep_runs": [dataclasses.asdict(run) for run in sweep_runs]})


def _write_page(folder, runs):
    """Write a page in which the first two models live, unless there is one of them, or say why they cannot."""
    page = folder / "page.html"
    try:
        if not page.exists() or any((run / "model.keras").stat().st_mtime > page.stat().st_mtime for run in runs):
            write_living_page(runs, page)
    except (ValueError, ImportError) as error:
        print(f"There is no page in which the models live: {error}")


main = experiment_main("compare", CompareConfig, SMOKE, compare, __doc__)

if __name__ == "__main__":
    main()
