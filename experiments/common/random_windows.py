"""A run that trains a model on random windows of a text and scores it on disjoint ones."""

import pathlib
from collections.abc import Callable
from typing import Any

from experiments.common.jobs import run_once
from keras_seq import training
from keras_seq.evaluation import Evaluator
from keras_seq.runs.folders import run_config
from keras_seq.runs.texts import SplitCorpus, random_windows
from keras_seq.tracking import Summaries


def random_windows_run(
    run: pathlib.Path,
    settings: Any,
    name: str,
    model_config: Any,
    data: SplitCorpus,
    batch_size: int,
    sequence_length: int,
    steps: int,
    train: training.TrainConfig,
    finish: Callable[[Evaluator], dict] = lambda evaluator: {},
    seed: int | None = None,
) -> tuple[pathlib.Path, int, Callable[[], dict]]:
    """Return a run as `run_all` takes it: it trains a model on random windows and scores it on disjoint ones.

    Where the text has a held-out part, the curve is of its loss, and the validation part is scored once. `finish` is a
    function from the model's `Evaluator` to further entries of the result; `seed` is that of the settings unless given.
    """
    seed = settings.seed if seed is None else seed

    def train_one():
        model = model_config.build_model(data.tokenizer.vocabulary_size, dtype=train.dtype_policy)
        windows = random_windows(data.train, batch_size, sequence_length, seed)
        evaluator = Evaluator(model)
        extra = {"batch_size": batch_size, "steps": steps, "seed": seed}
        config = run_config(settings, name, model_config, train, model, data.corpus, **extra)

        scored = data.validation if data.held_out is None else data.held_out

        def validate(sample):
            return Summaries({"val_loss": evaluator.chunked_loss(scored, sequence_length, sample).mean})

        def finish_result(summaries):
            result = {"model": name, "batch_size": batch_size, "learning_rate": config["train"]["learning_rate"]}
            result["val_sequence_length"] = sequence_length
            if data.held_out is not None:
                result["held_out_loss"] = summaries.scalars["val_loss"]
                result["val_loss"] = evaluator.chunked_loss(data.validation, sequence_length).mean
            return {**result, **finish(evaluator)}

        return training.train_model(
            run,
            model,
            windows.dataset,
            windows.tokens_per_step,
            steps,
            train,
            config=config,
            tokenizer=data.tokenizer,
            characters_per_token=data.characters_per_token,
            finish=finish_result,
            **training.sampled_validation(validate, scored, sequence_length, train),
        )

    return run, seed, train_one


def train_on_random_windows(run: pathlib.Path, *args, **kwargs) -> dict:
    """Train the model of a `random_windows_run`, unless it is finished; return the name of the run and its result."""
    return {"run": run.name, **run_once(*random_windows_run(run, *args, **kwargs))}
