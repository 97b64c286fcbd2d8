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

import functools
import pathlib
import statistics
from collections.abc import Sequence

import numpy as np

from experiments.frame.experiment import experiment_main, run_config, run_once
from experiments.frame.report import Report
from experiments.frame.settings import num_steps
from experiments.frame.texts import SplitCorpus
from experiments.shakespeare.findings import EVAL_BATCHES, random_windows_loss
from experiments.shakespeare.report import shakespeare_report
from experiments.shakespeare.settings import SMOKE, ShakespeareConfig
from keras_seq import training
from keras_seq.evaluation import Evaluator
from keras_seq.evaluation.progress_bar import scoring_bar
from keras_seq.models import Ensemble
from keras_seq.saving import save_model
from keras_seq.tracking import Summaries
from keras_seq.training import checksummed_json
from keras_seq.training.language_model import LanguageModelValidator


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
        run,
        model,
        dataset_fn,
        windows.tokens_per_step,
        num_steps(config.tokens, windows.tokens_per_step),
        train,
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
    checksummed_json.write(run / "config.json", saved)
    data.tokenizer.save(run / "tokenizer.json")
    save_model(run / "model.keras", ensemble)
    training.write_result(run, result)
    return result


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
    return shakespeare_report(folder, config, data.corpus.name, rows)


main = experiment_main("shakespeare", ShakespeareConfig, SMOKE, train_ensembles, __doc__)

if __name__ == "__main__":
    main()
