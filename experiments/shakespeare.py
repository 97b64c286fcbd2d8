"""The lowest loss on tiny Shakespeare that ten minutes of 2 CPU cores and two million parameters buy.

    python -m experiments.shakespeare                        # the best recipe found: the mean of two LSTMs
    python -m experiments.shakespeare --models lstm transformer --seeds 3
    python -m experiments.shakespeare --tune                 # scored on the end of the training split instead
    python -m experiments.shakespeare --smoke                # seconds, tiny

A model is `keras_seq.models.Average`: members of one family, trained one after the other, each from another seed; what
it predicts is the mean of their probabilities. Parameters and seconds are those of all members together.

The figures are of the whole validation split, by the last weights of a schedule whose length was fixed beforehand. They
are taken twice: cold@256, and as nanoGPT takes its own (200 batches of 64 random crops of 256 characters, nothing
carried). Choices are made as with --tune: on the last tenth of the training split, which the model is then not trained
on. nanoGPT's README says 1.4697 for 10.65 million parameters on an A100.

To expect, over three seeds: 1.4335 ± 0.0012 cold@256 and 1.4375 ± 0.0012 by crops, for 1.92 million parameters, after
some seven minutes of training on 2 cores; nine in all. JOURNAL.md has what was tried.
"""

import dataclasses
import pathlib
import time

import keras
import numpy as np

from experiments import shakespeare_report
from experiments.corpora import note_copied
from experiments.report import validated
from experiments.runs import begin, config, same_corpus
from experiments.shakespeare_settings import Shakespeare, tiny
from experiments.startup import one_sentence
from keras_seq import training
from keras_seq.data import Corpus, RandomWindows, StatefulWindows, load_corpus
from keras_seq.evaluation import Evaluator
from keras_seq.evaluation.progress_bar import scoring_bar
from keras_seq.models import Ensemble
from keras_seq.saving import save_model
from keras_seq.saving.safe_loading import load_untrusted_model
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking import Summaries
from keras_seq.training import checksummed_json
from keras_seq.training.language_model import LanguageModelValidator, stateful_training_model

CROPS, CROP_BATCHES = 64, 200  # nanoGPT's batch_size and eval_iters


@dataclasses.dataclass(frozen=True)
class Data:
    """The text in two, and its characters."""

    corpus: Corpus
    vocabulary: CharacterTokenizer
    train_ids: np.ndarray
    scored_text: str

    @classmethod
    def of(cls, settings: Shakespeare):
        """The text that the settings name. With `tune`, both parts come from its training split."""
        corpus = load_corpus(settings.corpus)
        train_text, scored_text = corpus.split(min_length=settings.context + 1)
        if settings.tune:
            train_text, scored_text = dataclasses.replace(corpus, text=train_text).split(
                min_length=settings.context + 1
            )
        note_copied(train_text, scored_text)
        vocabulary = CharacterTokenizer.from_text(corpus.text)
        return cls(corpus, vocabulary, vocabulary.encode(train_text).numpy(), scored_text)

    @property
    def scored_ids(self) -> np.ndarray:
        """The ids of the text to score."""
        return self.vocabulary.encode(self.scored_text).numpy()


def crops_score(model, ids, length, batches=CROP_BATCHES) -> tuple[float, float]:
    """nanoGPT's estimate: the mean loss of random crops, each from nothing. Also its standard error over the crops."""
    crops = RandomWindows(ids, CROPS, length, seed=1337)
    evaluator = Evaluator(model, batch_size=CROPS)
    means = np.concatenate(
        [evaluator.independent_token_losses(*crops.at(step)).mean(axis=1) for step in range(batches)]
    )
    return float(means.mean()), float(means.std(ddof=1) / len(means) ** 0.5)


def run_config(settings: Shakespeare, name, seed, data: Data, **further):
    """What config.json says of a member, or of the mean."""
    corpus = {"name": data.corpus.name, "sha256": data.corpus.sha256}
    train = dataclasses.asdict(settings.training(name)) | further.pop("used", {})
    return config(settings, name, settings.model(name), train, seed=seed, corpus=corpus, **further)


def train_member(folder, settings: Shakespeare, name, seed, data: Data):
    """Trains one member, scored cold as it learns. Returns what its result.json says."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    model = settings.model(name).build_model(data.vocabulary.vocabulary_size, dtype=settings.train.dtype_policy)
    windows, train = settings.windows(name, data.train_ids, seed), settings.training(name)
    carry = isinstance(windows, StatefulWindows)
    training_model = stateful_training_model(model, windows.batch_size, windows.sequence_length) if carry else model
    characters = windows.batch_size * windows.sequence_length
    steps = -(-settings.tokens // characters)
    training.compile_model(training_model, train, steps, tokens_per_step=characters)
    evaluator = Evaluator(model)

    def score(ids):
        return Summaries({"val_loss": evaluator.chunked_loss(ids, settings.context).mean})

    print(f"\n{folder.name}: {model.count_params():,} parameters, {windows.batch_size} x {windows.sequence_length} a step")
    record, summaries = training.fit_resumable(
        folder,
        training_model,
        windows.stateful_dataset if carry else windows.dataset,
        characters,
        steps,
        train,
        config=run_config(settings, name, seed, data, used=train.resolved(training_model)),
        name=folder.name,
        characters_per_token=1.0,
        **training.capped_validation(score, data.scored_ids, train, min_characters=settings.context + 1),
    )
    data.vocabulary.save(folder / "tokenizer.json")
    save_model(folder / "model.keras", model)
    result = {
        "parameters": model.count_params(),
        "train_tokens": record.step * characters,
        "train_seconds": record.seconds,
        "train_loss_per_character": record.loss,
        "val_loss_per_character": summaries.scalars["val_loss"],
    }
    training.write_result(folder, result)
    return result


def train_members(folder, settings: Shakespeare, name, seed, data: Data) -> dict:
    """Trains what is not yet trained and scores the mean. Returns what the result.json of the mean says."""
    begun = time.perf_counter()
    runs = [folder.with_name(f"{folder.name}-member{n}") for n in range(settings.members)]
    results = [
        training.load_result(run) or train_member(run, settings, name, seed * settings.members + n, data)
        for n, run in enumerate(runs)
    ]
    keras.backend.clear_session()
    mean = Ensemble([load_untrusted_model(run / "model.keras") for run in runs])
    diagnostic = LanguageModelValidator(
        mean, data.vocabulary, data.scored_text, settings.context, settings.train.sample_length
    )
    with scoring_bar(f"{folder.name}, the mean"):
        summaries = diagnostic()
    nats, error = crops_score(mean, data.scored_ids, settings.context, batches=2 if settings.smoke else CROP_BATCHES)
    result = {
        "parameters": mean.count_params(),
        "train_tokens": sum(result["train_tokens"] for result in results),
        "train_seconds": sum(result["train_seconds"] for result in results),
        "seconds": time.perf_counter() - begun,
        "train_loss_per_character": float(np.mean([result["train_loss_per_character"] for result in results])),
        "member_val_loss_per_character": [result["val_loss_per_character"] for result in results],
        "val_loss_per_character": summaries.scalars["val_loss"],
        "val_loss_per_character_streaming": summaries.scalars["val_loss_streaming"],
        "val_random_windows_loss_per_character": nats,
        "crops_standard_error": error,
        "sample": summaries.texts["sample"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    checksummed_json.write(folder / "config.json", run_config(settings, name, seed, data, members=settings.members))
    data.vocabulary.save(folder / "tokenizer.json")
    save_model(folder / "model.keras", mean)
    training.write_result(folder, result)
    return result


def shakespeare(settings: Shakespeare, folder: pathlib.Path):
    """Trains all that is not yet trained in `folder`, then writes the report. Returns its rows."""
    data = Data.of(settings)
    same_corpus(folder, data.corpus)
    for name in settings.models:  # what cannot be built is an error now, before anything is written
        settings.windows(name, data.train_ids, seed=0)
        settings.model(name).build_model(data.vocabulary.vocabulary_size)
    scored, bounds = len(data.scored_text), validated(settings.train, data.scored_text, settings.context + 1)
    print(f"{data.corpus.name}: {len(data.train_ids):,} characters to train on, {scored:,} to score{bounds}")
    rows = []
    for seed in range(settings.seeds):
        for name in settings.models:
            run = folder / f"{name}-seed{seed}"
            result = training.load_result(run) or train_members(run, settings, name, seed, data)
            rows.append({"model": name, "seed": seed, **result})
    shakespeare_report.write(folder, settings, data.corpus.name, rows)
    return rows


@one_sentence("experiments.shakespeare")
def main(arguments=None):
    """The command line."""
    with begin(Shakespeare, "shakespeare", __doc__, arguments, tiny) as (settings, folder):
        rows = shakespeare(settings, folder)
        print(shakespeare_report.closing(folder, settings, rows))


if __name__ == "__main__":
    main()
