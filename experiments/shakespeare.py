"""How low is the loss on tiny Shakespeare after ten minutes on 2 CPU cores, with two million parameters?

    python -m experiments.shakespeare                        # the best recipe found: an ensemble of two LSTMs
    python -m experiments.shakespeare --models lstm transformer --num-seeds 3
    python -m experiments.shakespeare --score-on-dev-split   # score the end of the training split, to choose options
    python -m experiments.shakespeare --smoke                # tiny sizes, takes seconds

Time: 9 minutes on 2 cores, 7 of them for training.

A model is a `keras_seq.models.Ensemble`: members of one family, trained with different seeds, whose probabilities are
averaged. It is scored on the whole validation split with the last weights, by val_loss@256 and by nanoGPT's estimate.
On a processor without bfloat16 it takes some 16 minutes, with `--train.precision float32`.

Expected over three seeds: val_loss@256 1.4179 ± 0.0008; nanoGPT's README reports 1.4697. docs/results.md has more.
"""

import dataclasses
import functools
import pathlib
import statistics
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import tyro

from experiments.common.command import experiment_main
from experiments.common.jobs import run_once
from keras_seq import checks, training
from keras_seq.commands.options import (
    SMOKE_TRAIN,
    CorpusName,
    LogDir,
    Resume,
    Smoke,
    check_options,
    check_unique,
    num_steps,
)
from keras_seq.data import RandomWindows, StatefulWindows
from keras_seq.evaluation import Evaluator
from keras_seq.models import Ensemble, LlamaConfig, LSTMConfig
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, plus_minus, without_texts
from keras_seq.runs.folders import run_config
from keras_seq.runs.texts import SplitCorpus
from keras_seq.saving import save_model
from keras_seq.tracking import Summaries
from keras_seq.tracking.tracker import scoring_bar
from keras_seq.training import run_folder
from keras_seq.training.language_model import LanguageModelValidator

NORMUON_LEARNING_RATES = {"lstm": 0.03, "transformer": 0.02}  # the best of those tried, and the default
MODELS = tuple(NORMUON_LEARNING_RATES)


@dataclasses.dataclass(frozen=True)
class ShakespeareConfig:
    """Train a small model on tiny Shakespeare as well as ten minutes allow."""

    corpus: CorpusName = "shakespeare"
    models: tuple[Literal[MODELS], ...] = ("lstm",)
    """Model families to train, in this order."""
    num_seeds: int = 1
    """Number of seeds, and so of ensembles, per family; every member has a seed of its own."""
    num_members: int = 2
    """Number of models in an ensemble, whose probabilities are averaged."""
    tokens: int = 3_400_000
    """Number of characters that each member is trained on, repetitions included."""
    batch_size: int = 16
    """Batch size of the LSTM; the Transformer's has about the same number of characters."""
    sequence_length: int = 128
    """Sequence length T of the LSTM's training windows, in characters."""
    reset_prob: float = 0.25
    """Probability with which a row of the LSTM's batch starts from the zero state."""
    context_length: int = 256
    """Context length of the Transformer and length of its training windows and of all scored windows, in characters."""
    score_on_dev_split: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Train without the last tenth of the training split and score that tenth, to choose options."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = training.TrainConfig(
        "normuon",
        use_ema=True,
        precision="bfloat16",
        validate_every=500,
        checkpoint_every=500,
        sample_length=600,
    )
    lstm: LSTMConfig = LSTMConfig(units=450, dropout=0.3)
    transformer: LlamaConfig = LlamaConfig(dropout=0.1)

    def __post_init__(self):
        check_options(self, num_seeds=1, num_members=1, tokens=1, batch_size=1, sequence_length=1, context_length=1)
        check_unique("--models", self.models)
        checks.number("--reset-prob", self.reset_prob, 0, 1)

    def options_without_effect(self) -> dict[str, str]:
        return {} if "lstm" in self.models else {"reset_prob": "lstm among --models"}

    def model_config(self, name: str) -> LSTMConfig | LlamaConfig:
        """Return the config of a model, with its context length filled in."""
        transformer = dataclasses.replace(self.transformer, context_length=self.context_length)
        return self.lstm if name == "lstm" else transformer

    def train_config(self, name: str) -> training.TrainConfig:
        """Return the training config of a model, with its learning rate filled in."""
        if self.train.learning_rate is not None or self.train.optimizer != "normuon":
            return self.train
        return dataclasses.replace(self.train, learning_rate=NORMUON_LEARNING_RATES[name])

    def windows(self, name: str, ids, seed: int) -> StatefulWindows | RandomWindows:
        """Return the training windows of ids `[N]`; a batch of both families has about as many characters."""
        if name == "lstm":
            return StatefulWindows(ids, self.batch_size, self.sequence_length, reset_prob=self.reset_prob, seed=seed)
        batch_size = max(1, self.batch_size * self.sequence_length // self.context_length)
        return RandomWindows(ids, batch_size, self.context_length, seed=seed)


SMOKE = {
    **{"tokens": 20 * 4 * 32, "batch_size": 4, "sequence_length": 32, "context_length": 32},
    "train": {**SMOKE_TRAIN, "sample_length": 40},
    "lstm": {"embedding_dim": 16, "units": 32, "num_layers": 1},
    "transformer": {"embedding_dim": 16, "num_layers": 2, "num_heads": 2, "feed_forward_dim": 32},
}


def scored_part(data: SplitCorpus) -> tuple[str, np.ndarray]:
    """Return the text to score and its ids `[N]`: the dev split if there is one, else the validation split."""
    held_out = data.held_out is not None
    return (data.held_out_text, data.held_out) if held_out else (data.validation_text, data.validation)


def train_member(run: pathlib.Path, config: ShakespeareConfig, name: str, seed: int, data: SplitCorpus) -> dict:
    """Train one member, with val_loss as its validation."""
    model_config, train, length = config.model_config(name), config.train_config(name), config.context_length
    model = model_config.build_model(data.tokenizer.vocabulary_size, dtype=train.dtype_policy)
    windows = config.windows(name, data.train, seed)
    training_model, dataset_fn = training.fit_inputs(model, windows)
    evaluator, ids = Evaluator(model), scored_part(data)[1]

    def validate(sample):
        return Summaries({"val_loss": evaluator.chunked_loss(ids, length, sample).mean})

    return training.train_model(
        *(run, model, dataset_fn, windows.tokens_per_step, num_steps(config.tokens, windows.tokens_per_step), train),
        config=run_config(config, name, model_config, train, model, data.corpus, seed=seed),
        training_model=training_model,
        tokenizer=data.tokenizer,
        characters_per_token=1.0,
        **training.sampled_validation(validate, ids, length, train),
    )


def score_ensemble(
    run: pathlib.Path, config: ShakespeareConfig, name: str, seed: int, data: SplitCorpus, members: Sequence[dict]
) -> dict:
    """Save and score the ensemble of finished members, whose results are given and whose folders are beside `run`."""
    ensemble = Ensemble([training.load_run(f"{run}-member{n}")[0] for n in range(len(members))])
    (text, ids), length = scored_part(data), config.context_length
    validator = LanguageModelValidator(ensemble, data.tokenizer, text, length, config.train.sample_length)
    with scoring_bar(f"{run.name}, the ensemble"):
        summaries = validator()
        loss, error = random_windows_loss(ensemble, ids, length, 2 if config.smoke else EVAL_BATCHES)
    result = {
        "parameters": ensemble.count_params(),
        **{key: sum(member[key] for member in members) for key in ("train_tokens", "train_seconds")},
        "train_loss": statistics.mean(member["train_loss"] for member in members),
        "members_val_loss": statistics.mean(member["val_loss"] for member in members),
        **summaries.scalars,
        "val_random_windows_loss": loss,
        "val_random_windows_standard_error": error,
        **summaries.texts,
    }
    model_config, train = config.model_config(name), config.train_config(name)
    saved = run_config(config, name, model_config, train, None, data.corpus, seed=seed)
    run.mkdir(parents=True, exist_ok=True)
    run_folder.write_checksummed(run / "config.json", saved)
    data.tokenizer.save(run / "tokenizer.json")
    save_model(run / "model.keras", ensemble)
    training.write_result(run, result)
    return result


NANO_GPT_LOSS = 1.4697  # nats per character, from nanoGPT's README: 10.65 million parameters, A100, best validation
EVAL_BATCH_SIZE, EVAL_BATCHES = 64, 200  # nanoGPT's batch_size and eval_iters


def random_windows_loss(model, ids, sequence_length: int, num_batches: int = EVAL_BATCHES) -> tuple[float, float]:
    """Return nanoGPT's estimate of the loss of ids `[N]`, in nats per character, and its standard error."""
    windows = RandomWindows(ids, EVAL_BATCH_SIZE, sequence_length, seed=1337)
    evaluator = Evaluator(model, batch_size=EVAL_BATCH_SIZE)
    losses = np.concatenate(
        [evaluator.independent_token_losses(*windows.batch(step)).mean(axis=1) for step in range(num_batches)]
    )
    return float(losses.mean()), float(losses.std(ddof=1) / len(losses) ** 0.5)


def by_model(rows: Sequence[dict]) -> list[list[dict]]:
    """Return the rows of each model, one for each seed; the model of the lowest mean val_loss is first."""
    groups = [[row for row in rows if row["model"] == name] for name in {row["model"]: None for row in rows}]
    return sorted(groups, key=lambda group: sum(row["val_loss"] for row in group))


def is_nano_gpts_text(config: ShakespeareConfig) -> bool:
    """Return whether the scored text is the one of nanoGPT's loss."""
    return config.corpus == "shakespeare" and not config.score_on_dev_split


def verdict(config: ShakespeareConfig, rows: Sequence[dict]) -> str:
    """Say what the best model reaches, and how certain that is."""
    best = by_model(rows)[0]
    loss, random_loss = (plus_minus([row[key] for row in best], 4) for key in ("val_loss", "val_random_windows_loss"))
    error = f"one seed; standard error over the windows {best[0]['val_random_windows_standard_error']:.4f}"
    nano_gpt = f"; nanoGPT's README reports {NANO_GPT_LOSS} for 10.65 M parameters" if is_nano_gpts_text(config) else ""
    return (
        f"{best[0]['model']}, an ensemble of {config.num_members} with {best[0]['parameters'] / 1e6:.2f} M parameters, "
        f"has a val_loss@{config.context_length} of {loss}, and on random windows {random_loss} "
        f"({error if len(best) == 1 else 'standard deviations over seeds'}){nano_gpt}."
    )


NOTES = (
    "Losses are in nats per character of {split}, with the last weights. A model is an ensemble of {members} members; "
    "parameters, train tokens and seconds are sums over them. train loss: that of the last batches, with dropout. "
    "members' val_loss: mean of the val_loss@{length} of the single members. val_loss@{length}: every disjoint window "
    "of {length} characters, each without preceding context. val_loss, random windows: random windows of {length} "
    "characters, as nanoGPT estimates its loss. val_loss_streaming: the text from start to end."
)


def table(length: int, rows: Sequence[dict]) -> Table:
    """Return a line for each ensemble, then the mean of each model that has several seeds."""
    means = {
        **{"train seconds": ("train_seconds", 0), "train loss": ("train_loss", 4)},
        **{"members' val_loss": ("members_val_loss", 4), f"val_loss@{length}": ("val_loss", 4)},
        "val_loss, random windows": ("val_random_windows_loss", 4),
        "val_loss_streaming": ("val_loss_streaming", 4),
    }
    columns = {
        "model": lambda seeds: seeds[0]["model"],
        "seed": lambda seeds: str(seeds[0]["seed"]) if len(seeds) == 1 else "mean",
        "parameters": lambda seeds: f"{seeds[0]['parameters']:,}",
        "train tokens": lambda seeds: f"{seeds[0]['train_tokens']:,}",
        **{name: lambda seeds, m=m: plus_minus([row[m[0]] for row in seeds], m[1]) for name, m in means.items()},
    }
    return Table.of([*([row] for row in rows), *(seeds for seeds in by_model(rows) if len(seeds) > 1)], columns)


def plot(folder: pathlib.Path, config: ShakespeareConfig, rows: Sequence[dict]):
    """Write shakespeare.png: curves of the members, the ensembles' val_loss, and nanoGPT's loss as a line."""
    figure, axes = plots.subplots(figsize=(8, 4.8))
    colors, highest = plots.colors([row["model"] for row in rows]), 0.0
    first = folder / f"{rows[0]['run']}-member0"
    styles = {
        "train loss of a member": {"alpha": 0.3, "linewidth": 1},
        f"val_loss@{config.context_length}{plots.sample_note(first)} of a member": {"marker": "o", "linewidth": 1},
        f"val_loss@{config.context_length} of the ensemble": {"marker": "*", "linestyle": "", "markersize": 12},
    }
    train, validation, star = styles.values()
    for row in rows:
        color = colors[row["model"]]
        for run in sorted(folder.glob(f"{row['run']}-member*")):
            axes.plot(*plots.curve(run, "loss", "train"), color=color, **train)
            tokens, losses = plots.curve(run)
            axes.plot(tokens, losses, color=color, **validation)
            highest = max(highest, losses[0])
        axes.plot(tokens[-1], row["val_loss"], color=color, **star)
    if is_nano_gpts_text(config):
        styles[f"nanoGPT, 10.65 M parameters: {NANO_GPT_LOSS}"] = line = {"linestyle": "--", "linewidth": 1}
        axes.axhline(NANO_GPT_LOSS, color="0.3", **line)
    lowest = axes.get_ylim()[0]
    axes.set(ylim=(lowest, max(highest + 0.05, lowest + 0.3)), ylabel="nats per character")
    plots.token_axis(axes, "training characters of each member")
    plots.legend(axes, colors, styles)
    plots.save(figure, folder / "shakespeare.png")


def train_ensembles(config: ShakespeareConfig, folder: pathlib.Path) -> Report:
    """Train all members and score all ensembles that are not finished in `folder`, and report them."""
    data = SplitCorpus(config.corpus, folder, config.context_length + 1, held_out=config.score_on_dev_split)
    for name in config.models:
        config.windows(name, data.train, seed=0)
        config.model_config(name).build_model(data.tokenizer.vocabulary_size)
    plan = f"{config.num_members} members of {config.tokens:,} characters each"
    data.introduce(config.train, config.context_length + 1, plan, scored_part(data)[0])
    rows = []
    for seed in range(config.num_seeds):
        for name in config.models:
            run, members = folder / f"{name}-seed{seed}", []
            for n in range(config.num_members):
                member, member_seed = folder / f"{run.name}-member{n}", seed * config.num_members + n
                train_one = functools.partial(train_member, member, config, name, member_seed, data)
                members.append(run_once(member, member_seed, train_one))
            result = run_once(run, seed, functools.partial(score_ensemble, run, config, name, seed, data, members))
            rows.append({"model": name, "seed": seed, "run": run.name, **result})
    plot(folder, config, rows)
    length = config.context_length
    split = "the last tenth of the training split" if config.score_on_dev_split else "the whole validation split"
    return Report(
        f"The best small model on {data.corpus.name}",
        verdict(config, rows),
        table(length, rows),
        ("model", "seed", "parameters", f"val_loss@{length}", "val_loss, random windows"),
        without_texts(rows),
        NOTES.format(split=split, members=config.num_members, length=length),
        ["![Validation loss over training characters](shakespeare.png)"],
        {f"Sample of {row['run']}": row["sample"] for row in rows},
        runs=[folder / row["run"] for row in rows],
    )


main = experiment_main("shakespeare", ShakespeareConfig, SMOKE, train_ensembles, __doc__)

if __name__ == "__main__":
    main()
