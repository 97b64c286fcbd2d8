"""How low is the loss on tiny Shakespeare after ten minutes on one CPU core, with two million parameters?

    python -m experiments.shakespeare                        # the best recipe found: an LSTM, and one on top of n-grams
    python -m experiments.shakespeare --members lstm lstm --num-seeds 3
    python -m experiments.shakespeare --score-on-dev-split   # score the end of the training split, to choose options
    python -m experiments.shakespeare --smoke                # tiny sizes, takes seconds

Time: 10 minutes on one core with bfloat16, 6 of them for training.

The model is a `keras_seq.models.Ensemble`: members trained with different seeds, whose probabilities are averaged. The
member `ngrams` is a small LSTM that adds what counted n-grams do not know (`NGramResidual`): it errs where the LSTM by
itself does not. The ensemble is scored on the whole validation split with averaged weights, by val_loss@256 and by
nanoGPT's estimate. On a processor without bfloat16 `--train.precision float32` is faster.

Expected over three seeds: val_loss@256 1.3985 ± 0.0015; nanoGPT's README reports 1.4697. docs/results.md has more.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Annotated, Literal

import keras
import numpy as np
import tyro

from experiments.common.command import experiment_main
from experiments.common.jobs import run_once
from keras_seq import checks, training
from keras_seq.baselines import KneserNeyNGrams
from keras_seq.commands.options import (
    SMOKE_TRAIN,
    CorpusName,
    LogDir,
    Resume,
    Smoke,
    check_filled_in,
    check_options,
    num_steps,
)
from keras_seq.data import RandomWindows, StatefulWindows, Windows
from keras_seq.data.pipeline import step_dataset
from keras_seq.evaluation import Evaluator
from keras_seq.models import Ensemble, LlamaConfig, LSTMConfig
from keras_seq.models.ngrams import NGramResidual, add_log_probabilities, held_out_log_probabilities, ngram_model
from keras_seq.reports import plots
from keras_seq.reports.tables import Report, Table, plus_minus, without_texts
from keras_seq.runs.folders import run_config
from keras_seq.runs.texts import SplitCorpus
from keras_seq.saving import save_model
from keras_seq.tracking import Summaries
from keras_seq.tracking.tracker import scoring_bar
from keras_seq.training import run_folder
from keras_seq.training.language_model import LanguageModelValidator

NORMUON_LEARNING_RATES = {"lstm": 0.03, "ngrams": 0.03, "transformer": 0.02}  # the best of those tried, and the default
MEMBERS = tuple(NORMUON_LEARNING_RATES)


@dataclasses.dataclass(frozen=True)
class ShakespeareConfig:
    """Train a small model on tiny Shakespeare as well as ten minutes allow."""

    corpus: CorpusName = "shakespeare"
    members: tuple[Literal[MEMBERS], ...] = ("lstm", "ngrams")
    """What the ensemble averages; a kind may be listed several times."""
    num_seeds: int = 1
    """Number of seeds, and so of ensembles; every member has a seed of its own."""
    tokens: int = 3_400_000
    """Number of characters that each member is trained on, repetitions included."""
    batch_size: int = 16
    """Batch size of LSTMs; the Transformer's has about the same number of characters."""
    sequence_length: int = 128
    """Sequence length T of the LSTMs' training windows, in characters."""
    reset_prob: float = 0.25
    """Probability with which a row of an LSTM's batch starts from the zero state."""
    min_counts: tuple[int, ...] = (1, 1, 1, 1, 2, 2)
    """How often n-grams of each length have to occur to be stored, as many numbers as the longest has characters."""
    context_length: int = 256
    """Context length of the Transformer and length of its training windows and of all scored windows, in characters."""
    score_on_dev_split: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Train without the last tenth of the training split and score that tenth, to choose options."""
    log_dir: LogDir = "logs"
    resume: Resume = None
    smoke: Smoke = False
    train: training.TrainConfig = training.TrainConfig(
        "normuon", use_ema=True, precision="bfloat16", validate_every=500, checkpoint_every=500, sample_length=600
    )
    lstm: LSTMConfig = LSTMConfig(units=450, dropout=0.3)
    ngrams: LSTMConfig = LSTMConfig(units=200, dropout=0.1)
    transformer: LlamaConfig = LlamaConfig(dropout=0.1)

    def __post_init__(self):
        check_options(self, num_seeds=1, tokens=1, batch_size=1, sequence_length=1, context_length=1)
        check_filled_in("--transformer.context-length", self.transformer.context_length, "the --context-length")
        checks.number("--reset-prob", self.reset_prob, 0, 1)
        if not self.members:
            raise ValueError("--members: expected one or more.")
        if not self.min_counts or [*self.min_counts] != sorted(self.min_counts) or self.min_counts[0] < 1:
            counts = " ".join(map(str, self.min_counts))
            raise ValueError(f"--min-counts {counts}: expected numbers from 1 on that do not fall.")

    def options_without_effect(self) -> dict[str, str]:
        unused = {} if {"lstm", "ngrams"} & {*self.members} else {"reset_prob": "lstm or ngrams among --members"}
        return unused | ({} if "ngrams" in self.members else {"min_counts": "ngrams among --members"})

    def model_config(self, name: str) -> LSTMConfig | LlamaConfig:
        """Return the config of a member's network, with its context length filled in."""
        transformer = dataclasses.replace(self.transformer, context_length=self.context_length)
        return {"lstm": self.lstm, "ngrams": self.ngrams, "transformer": transformer}[name]

    def train_config(self, name: str) -> training.TrainConfig:
        """Return the training config of a member, with its learning rate filled in."""
        if self.train.learning_rate is not None or self.train.optimizer != "normuon":
            return self.train
        return dataclasses.replace(self.train, learning_rate=NORMUON_LEARNING_RATES[name])

    def windows(self, name: str, ids, seed: int) -> StatefulWindows | RandomWindows:
        """Return the training windows of ids `[N]`; a batch of all kinds has about as many characters."""
        if name != "transformer":
            return StatefulWindows(ids, self.batch_size, self.sequence_length, reset_prob=self.reset_prob, seed=seed)
        batch_size = max(1, self.batch_size * self.sequence_length // self.context_length)
        return RandomWindows(ids, batch_size, self.context_length, seed=seed)

    def count(self, vocabulary_size: int, ids: np.ndarray) -> KneserNeyNGrams:
        """Count the n-grams of ids `[N]`."""
        return KneserNeyNGrams(ids, len(self.min_counts), vocabulary_size, self.min_counts)


SMOKE = {
    **{"tokens": 20 * 4 * 32, "batch_size": 4, "sequence_length": 32, "context_length": 32},
    "train": {**SMOKE_TRAIN, "sample_length": 40},
    "lstm": {"embedding_dim": 16, "units": 32, "num_layers": 1},
    "ngrams": {"embedding_dim": 8, "units": 16},
    "transformer": {"embedding_dim": 16, "num_layers": 2, "num_heads": 2, "feed_forward_dim": 32},
}


def scored_part(data: SplitCorpus) -> tuple[str, np.ndarray]:
    """Return the text to score and its ids `[N]`: the dev split if there is one, else the validation split."""
    held_out = data.held_out is not None
    return (data.held_out_text, data.held_out) if held_out else (data.validation_text, data.validation)


def build_member(config: ShakespeareConfig, name: str, windows: Windows, vocabulary_size: int):
    """Return a member, what `fit` trains, and its batches."""
    model_config, dtype = config.model_config(name), config.train_config(name).dtype_policy
    if name != "ngrams":
        model = model_config.build_model(vocabulary_size, dtype=dtype)
        return model, *training.fit_inputs(model, windows)
    lstm = model_config.build_model(vocabulary_size + 1, dtype=dtype)
    count = functools.partial(config.count, vocabulary_size)
    log_p = held_out_log_probabilities(windows.ids, count)
    stateful, _ = training.fit_inputs(lstm, windows)
    given = keras.Input((windows.sequence_length, vocabulary_size), batch_size=windows.batch_size, dtype="float16")
    training_model = keras.Model([*stateful.inputs, given], add_log_probabilities(given, stateful.output))

    def batch(step):
        x, y = windows.batch(step)
        positions = windows.starts(step)[:, None] + np.arange(windows.sequence_length)
        return (x, windows.reset_mask(step), log_p[positions]), y

    member = NGramResidual([ngram_model(count(windows.ids)), lstm], name="ngrams")
    return member, training_model, functools.partial(step_dataset, batch)


def train_member(run: pathlib.Path, config: ShakespeareConfig, name: str, seed: int, data: SplitCorpus) -> dict:
    """Train one member, with val_loss as its validation."""
    train, length = config.train_config(name), config.context_length
    windows = config.windows(name, data.train, seed)
    model, training_model, dataset_fn = build_member(config, name, windows, data.tokenizer.vocabulary_size)
    evaluator, ids = Evaluator(model), scored_part(data)[1]

    def validate(sample):
        return Summaries({"val_loss": evaluator.chunked_loss(ids, length, sample).mean})

    return training.train_model(
        *(run, model, dataset_fn, windows.tokens_per_step, num_steps(config.tokens, windows.tokens_per_step), train),
        config=run_config(config, name, config.model_config(name), train, model, data.corpus, seed=seed),
        training_model=training_model,
        tokenizer=data.tokenizer,
        characters_per_token=1.0,
        **training.sampled_validation(validate, ids, length, train),
    )


def score_ensemble(
    run: pathlib.Path, config: ShakespeareConfig, seed: int, data: SplitCorpus, members: dict[pathlib.Path, dict]
) -> dict:
    """Save and score the ensemble of finished members, whose results are given by their folders."""
    ensemble = Ensemble([training.load_run(member)[0] for member in members])
    (text, ids), length = scored_part(data), config.context_length
    validator = LanguageModelValidator(ensemble, data.tokenizer, text, length, config.train.sample_length)
    with scoring_bar(f"{run.name}, the ensemble"):
        summaries = validator()
        loss, error = random_windows_loss(ensemble, ids, length, 2 if config.smoke else EVAL_BATCHES)
    result = {
        "parameters": ensemble.count_params(),
        **{key: sum(member[key] for member in members.values()) for key in ("train_tokens", "train_seconds")},
        "members_train_loss": [member["train_loss"] for member in members.values()],
        "members_val_loss": [member["val_loss"] for member in members.values()],
        **summaries.scalars,
        "val_random_windows_loss": loss,
        "val_random_windows_standard_error": error,
        **summaries.texts,
    }
    saved = run_config(config, "ensemble", None, config.train, None, data.corpus, seed=seed)
    run.mkdir(parents=True, exist_ok=True)
    run_folder.write_checksummed(run / "config.json", saved)
    data.tokenizer.save(run / "tokenizer.json")
    save_model(ensemble, run / "model.keras")
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


def is_nano_gpts_text(config: ShakespeareConfig) -> bool:
    """Return whether the scored text is the one of nanoGPT's loss."""
    return config.corpus == "shakespeare" and not config.score_on_dev_split


def verdict(config: ShakespeareConfig, rows: Sequence[dict]) -> str:
    """Say what the ensemble reaches, and how certain that is."""
    loss, random_loss = (plus_minus([row[key] for row in rows], 4) for key in ("val_loss", "val_random_windows_loss"))
    error = f"one seed; standard error over the windows {rows[0]['val_random_windows_standard_error']:.4f}"
    nano_gpt = f"; nanoGPT's README reports {NANO_GPT_LOSS} for 10.65 M parameters" if is_nano_gpts_text(config) else ""
    return (
        f"An ensemble of {' and '.join(config.members)} with {rows[0]['parameters'] / 1e6:.2f} M parameters "
        f"has a val_loss@{config.context_length} of {loss}, and on random windows {random_loss} "
        f"({error if len(rows) == 1 else 'standard deviations over seeds'}){nano_gpt}."
    )


NOTES = (
    "Losses are in nats per character of {split}, with {weights}. A model is an ensemble of {members}; "
    "parameters, train tokens and seconds are sums over its members, parameters with every number of counted n-grams. "
    "members' train loss: that of the last batches, with dropout. val_loss@{length}: every disjoint window "
    "of {length} characters, each without preceding context. val_loss, random windows: random windows of {length} "
    "characters, as nanoGPT estimates its loss. val_loss_streaming: the text from start to end."
)


def table(length: int, rows: Sequence[dict]) -> Table:
    """Return a line for each ensemble, then their mean if there are several."""
    scores = {
        f"val_loss@{length}": "val_loss",
        "val_loss, random windows": "val_random_windows_loss",
        "val_loss_streaming": "val_loss_streaming",
    }

    def of_members(key):
        def losses(seeds):
            return ", ".join(plus_minus(of_seeds, 4) for of_seeds in zip(*(row[key] for row in seeds), strict=True))

        return losses

    columns = {
        "seed": lambda seeds: str(seeds[0]["seed"]) if len(seeds) == 1 else "mean",
        "parameters": lambda seeds: f"{seeds[0]['parameters']:,}",
        "train tokens": lambda seeds: f"{seeds[0]['train_tokens']:,}",
        "train seconds": lambda seeds: plus_minus([row["train_seconds"] for row in seeds], 0),
        "members' train loss": of_members("members_train_loss"),
        f"members' val_loss@{length}": of_members("members_val_loss"),
        **{name: lambda seeds, key=key: plus_minus([row[key] for row in seeds], 4) for name, key in scores.items()},
    }
    return Table.of([*([row] for row in rows), *([rows] if len(rows) > 1 else [])], columns)


def plot(folder: pathlib.Path, config: ShakespeareConfig, rows: Sequence[dict]):
    """Write shakespeare.png: curves of the members, the ensembles' val_loss, and nanoGPT's loss as a line."""
    figure, axes = plots.subplots(figsize=(8, 4.8))
    names = [*config.members, "ensemble"]
    colors, highest = plots.colors(names), 0.0
    length, first = f"val_loss@{config.context_length}", member_folder(folder, config, 0, 0)
    styles = {
        "train loss of a member": {"alpha": 0.3, "linewidth": 1},
        f"{length}{plots.sample_note(first)} of a member": {"marker": "o", "linewidth": 1},
        f"{length} of the ensemble": {"marker": "*", "linestyle": "", "markersize": 12},
    }
    train, validation, star = styles.values()
    for row in rows:
        for n, name in enumerate(config.members):
            run = member_folder(folder, config, row["seed"], n)
            axes.plot(*plots.curve(run, "loss", "train"), color=colors[name], **train)
            tokens, losses = plots.curve(run)
            axes.plot(tokens, losses, color=colors[name], **validation)
            highest = max(highest, losses[0])
        axes.plot(tokens[-1], row["val_loss"], color=colors["ensemble"], **star)
    if is_nano_gpts_text(config):
        styles[f"nanoGPT, 10.65 M parameters: {NANO_GPT_LOSS}"] = line = {"linestyle": "--", "linewidth": 1}
        axes.axhline(NANO_GPT_LOSS, color="0.3", **line)
    lowest = axes.get_ylim()[0]
    axes.set(ylim=(lowest, max(highest + 0.05, lowest + 0.3)), ylabel="nats per character")
    plots.token_axis(axes, "training characters of each member")
    plots.legend(axes, colors, styles)
    plots.save(figure, folder / "shakespeare.png")


def member_folder(folder: pathlib.Path, config: ShakespeareConfig, seed: int, n: int) -> pathlib.Path:
    """Return the folder of member n of the ensemble of a seed."""
    return folder / f"seed{seed}-member{n}-{config.members[n]}"


def train_ensembles(config: ShakespeareConfig, folder: pathlib.Path) -> Report:
    """Train all members and score all ensembles that are not finished in `folder`, and report them."""
    data = SplitCorpus(config.corpus, folder, config.context_length + 1, held_out=config.score_on_dev_split)
    for name in {*config.members}:
        config.windows(name, data.train, seed=0)
        config.model_config(name).build_model(data.tokenizer.vocabulary_size)
    if "ngrams" in config.members:  # raises where the text has no id as often as --min-counts says
        KneserNeyNGrams(data.train, 1, data.tokenizer.vocabulary_size, config.min_counts[:1])
    plan = f"members {', '.join(config.members)} of {config.tokens:,} characters each"
    data.introduce(config.train, config.context_length + 1, plan, scored_part(data)[0])
    rows = []
    for seed in range(config.num_seeds):
        run, members = folder / f"seed{seed}", {}
        for n, name in enumerate(config.members):
            member, member_seed = member_folder(folder, config, seed, n), seed * len(config.members) + n
            train_one = functools.partial(train_member, member, config, name, member_seed, data)
            members[member] = run_once(member, member_seed, train_one)
        result = run_once(run, seed, functools.partial(score_ensemble, run, config, seed, data, members))
        rows.append({"seed": seed, "run": run.name, **result})
    plot(folder, config, rows)
    length = config.context_length
    split = "the last tenth of the training split" if config.score_on_dev_split else "the whole validation split"
    return Report(
        f"The best small model on {data.corpus.name}",
        verdict(config, rows),
        table(length, rows),
        ("seed", "parameters", f"val_loss@{length}", "val_loss, random windows"),
        without_texts(rows),
        NOTES.format(
            split=split,
            weights="averaged weights" if config.train.use_ema else "the last weights",
            members=" and ".join(config.members),
            length=length,
        ),
        ["![Validation loss over training characters](shakespeare.png)"],
        {f"Sample of {row['run']}": row["sample"] for row in rows},
        runs=[folder / row["run"] for row in rows],
    )


main = experiment_main("shakespeare", ShakespeareConfig, SMOKE, train_ensembles, __doc__)

if __name__ == "__main__":
    main()
