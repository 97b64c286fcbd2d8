"""How low is the loss on tiny Shakespeare after ten minutes on 2 CPU cores, with two million parameters?

    python -m experiments.shakespeare                        # the best recipe found: an ensemble of two LSTMs
    python -m experiments.shakespeare --models lstm transformer --num-seeds 3
    python -m experiments.shakespeare --score-on-dev-split   # score the end of the training split instead
    python -m experiments.shakespeare --smoke                # tiny sizes, takes seconds

Time: 9 minutes on 2 cores, 7 of them for training.

A model is a `keras_seq.models.Ensemble`: members of one family, trained one after the other with different seeds; it
predicts the mean of their probabilities. Parameters and seconds are sums over the members.

Losses are those of the whole validation split with the last weights of a schedule of fixed length, by two protocols:
val_loss@256, and nanoGPT's estimate (200 batches of 64 random windows of 256 characters, without carried state).
Options are chosen with --score-on-dev-split: on the last tenth of the training split, which is then not trained on.
nanoGPT's README reports 1.4697 for 10.65 million parameters on an A100.

Expected over three seeds: val_loss@256 1.4335 ± 0.0012, and 1.4375 ± 0.0012 on random windows, for 1.92 million
parameters.
"""

import dataclasses
import pathlib
import time

import keras
import numpy as np

from experiments.frame.corpora import print_overlap_note
from experiments.frame.random_window_training import SplitCorpus
from experiments.frame.report import validation_note
from experiments.frame.runs import check_same_corpus, run_config, start_or_resume
from experiments.frame.startup import exit_with_message
from experiments.shakespeare import report as shakespeare_report
from experiments.shakespeare.settings import ShakespeareConfig, smoke_config
from keras_seq import training
from keras_seq.data import RandomWindows, StatefulWindows
from keras_seq.evaluation import Evaluator
from keras_seq.evaluation.progress_bar import scoring_bar
from keras_seq.models import Ensemble
from keras_seq.saving import save_model
from keras_seq.saving.safe_loading import load_untrusted_model
from keras_seq.tracking import Summaries
from keras_seq.training import checksummed_json
from keras_seq.training.language_model import LanguageModelValidator, stateful_training_model

EVAL_BATCH_SIZE, EVAL_BATCHES = 64, 200  # nanoGPT's batch_size and eval_iters


def load_data(config: ShakespeareConfig) -> SplitCorpus:
    """Load the corpus; with `score_on_dev_split` its training split is cut once more."""
    return SplitCorpus(config.corpus, config.context_length + 1, held_out=config.score_on_dev_split)


def scored_text(data: SplitCorpus) -> str:
    """Return the text to score: the dev split where there is one, or the validation split."""
    return data.texts[1]


def scored_ids(data: SplitCorpus) -> np.ndarray:
    """Return the ids of the text to score, `[N]`."""
    return data.validation if data.held_out is None else data.held_out


def random_windows_loss(model, ids, sequence_length: int, num_batches: int = EVAL_BATCHES) -> tuple[float, float]:
    """Compute nanoGPT's estimate of the loss: the mean over random windows, each without a preceding context.

    Args:
        model: A language model.
        ids: Ids of the text, `[N]`.
        sequence_length: Length of the windows, in characters.
        num_batches: Number of batches of `EVAL_BATCH_SIZE` windows.

    Returns:
        The loss in nats per character, and its standard error over the windows.
    """
    windows = RandomWindows(ids, EVAL_BATCH_SIZE, sequence_length, seed=1337)
    evaluator = Evaluator(model, batch_size=EVAL_BATCH_SIZE)
    losses = np.concatenate(
        [evaluator.independent_token_losses(*windows.batch(step)).mean(axis=1) for step in range(num_batches)]
    )
    return float(losses.mean()), float(losses.std(ddof=1) / len(losses) ** 0.5)


def saved_config(config: ShakespeareConfig, name: str, seed: int, data: SplitCorpus, resolved=None, **extra) -> dict:
    """Return the config.json of a member or of an ensemble.

    Args:
        config: Options of the experiment.
        name: Name of the model.
        seed: Random seed of the run.
        data: The corpus.
        resolved: Values of the training config that depend on the model.
        **extra: Further entries.
    """
    corpus = {"name": data.corpus.name, "sha256": data.corpus.sha256}
    train = dataclasses.asdict(config.train_config(name)) | (resolved or {})
    return run_config(config, name, config.model_config(name), train, seed=seed, corpus=corpus, **extra)


def train_member(folder: pathlib.Path, config: ShakespeareConfig, name: str, seed: int, data: SplitCorpus) -> dict:
    """Train one member, with val_loss as its validation, or resume its run.

    Args:
        folder: Run folder.
        config: Options of the experiment.
        name: Name of the model.
        seed: Random seed of the member.
        data: The corpus.

    Returns:
        The contents of the member's result.json.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    model_config, length = config.model_config(name), config.context_length
    model = model_config.build_model(data.vocabulary.vocabulary_size, dtype=config.train.dtype_policy)
    windows, train = config.windows(name, data.train, seed), config.train_config(name)
    batch_size, sequence_length = windows.batch_size, windows.sequence_length
    stateful = isinstance(windows, StatefulWindows)
    training_model = stateful_training_model(model, batch_size, sequence_length) if stateful else model
    tokens_per_step = batch_size * sequence_length
    steps = -(-config.tokens // tokens_per_step)
    training.compile_model(training_model, train, steps, tokens_per_step=tokens_per_step)
    evaluator = Evaluator(model)

    def validate(ids):
        return Summaries({"val_loss": evaluator.chunked_loss(ids, length).mean})

    print(f"\n{folder.name}: {model.count_params():,} parameters, {batch_size} x {sequence_length} per step")
    logger, summaries = training.fit_resumable(
        folder,
        training_model,
        windows.stateful_dataset if stateful else windows.dataset,
        tokens_per_step,
        steps,
        train,
        config=saved_config(config, name, seed, data, train.resolved(training_model)),
        name=folder.name,
        characters_per_token=1.0,
        **training.capped_validation(validate, scored_ids(data), train, length + 1),
    )
    data.vocabulary.save(folder / "tokenizer.json")
    save_model(folder / "model.keras", model)
    result = {
        "parameters": model.count_params(),
        "train_tokens": logger.step * tokens_per_step,
        "train_seconds": logger.seconds,
        "train_loss_per_character": logger.loss,
        "val_loss_per_character": summaries.scalars["val_loss"],
    }
    training.write_result(folder, result)
    return result


def train_ensemble(folder: pathlib.Path, config: ShakespeareConfig, name: str, seed: int, data: SplitCorpus) -> dict:
    """Train the members that are not finished, and score their ensemble.

    Args:
        folder: Run folder of the ensemble; those of the members are beside it.
        config: Options of the experiment.
        name: Name of the model.
        seed: Random seed of the ensemble.
        data: The corpus.

    Returns:
        The contents of the ensemble's result.json.
    """
    start_time = time.perf_counter()
    runs = [folder.with_name(f"{folder.name}-member{n}") for n in range(config.num_members)]
    results = [
        training.load_result(run) or train_member(run, config, name, seed * config.num_members + n, data)
        for n, run in enumerate(runs)
    ]
    keras.backend.clear_session()
    ensemble = Ensemble([load_untrusted_model(run / "model.keras") for run in runs])
    length = config.context_length
    validator = LanguageModelValidator(ensemble, data.vocabulary, scored_text(data), length, config.train.sample_length)
    with scoring_bar(f"{folder.name}, the ensemble"):
        summaries = validator()
    num_batches = 2 if config.smoke else EVAL_BATCHES
    loss, standard_error = random_windows_loss(ensemble, scored_ids(data), length, num_batches)
    result = {
        "parameters": ensemble.count_params(),
        "train_tokens": sum(result["train_tokens"] for result in results),
        "train_seconds": sum(result["train_seconds"] for result in results),
        "seconds": time.perf_counter() - start_time,
        "train_loss_per_character": float(np.mean([result["train_loss_per_character"] for result in results])),
        "member_val_loss_per_character": [result["val_loss_per_character"] for result in results],
        "val_loss_per_character": summaries.scalars["val_loss"],
        "val_loss_per_character_streaming": summaries.scalars["val_loss_streaming"],
        "val_random_windows_loss_per_character": loss,
        "val_random_windows_standard_error": standard_error,
        "sample": summaries.texts["sample"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    checksummed_json.write(
        folder / "config.json", saved_config(config, name, seed, data, num_members=config.num_members)
    )
    data.vocabulary.save(folder / "tokenizer.json")
    save_model(folder / "model.keras", ensemble)
    training.write_result(folder, result)
    return result


def train_ensembles(config: ShakespeareConfig, folder: pathlib.Path) -> list[dict]:
    """Train all ensembles that are not finished in a folder, and write the report.

    Args:
        config: Options of the experiment.
        folder: Folder of the runs.

    Returns:
        One dict per ensemble, as in shakespeare.json.

    Raises:
        ValueError: A model cannot be built, or the runs in the folder were trained on another text.
    """
    data = load_data(config)
    print_overlap_note(data.texts[0], scored_text(data))
    check_same_corpus(folder, data.corpus)
    for name in config.models:  # raises errors before anything is written
        config.windows(name, data.train, seed=0)
        config.model_config(name).build_model(data.vocabulary.vocabulary_size)
    text = scored_text(data)
    bounds = validation_note(config.train, text, config.context_length + 1)
    print(f"{data.corpus.name}: {len(data.train):,} training characters, {len(text):,} scored characters{bounds}")
    rows = []
    for seed in range(config.num_seeds):
        for name in config.models:
            run = folder / f"{name}-seed{seed}"
            result = training.load_result(run) or train_ensemble(run, config, name, seed, data)
            rows.append({"model": name, "seed": seed, **result})
    shakespeare_report.write_report(folder, config, data.corpus.name, rows)
    return rows


@exit_with_message("experiments.shakespeare")
def main(arguments=None):
    """Run the command line."""
    with start_or_resume(ShakespeareConfig, "shakespeare", __doc__, arguments, smoke_config) as (config, folder):
        rows = train_ensembles(config, folder)
        print(shakespeare_report.final_message(folder, config, rows))


if __name__ == "__main__":
    main()
