"""Why did the old char-RNN end at a loss that disappointed its author? Each cause, and what it was worth.

    python -m experiments.epoch_loss                                          # Python's docstrings, offline
    python -m experiments.epoch_loss --corpus shakespeare                     # the text of the old curve
    python -m experiments.epoch_loss --corpus shakespeare --full optimizer lanes      # two causes at full size too
    python -m experiments.epoch_loss --causes updates optimizer spaces        # another order, fewer causes
    python -m experiments.epoch_loss --pipeline per_character                 # the old pipeline as slow as it was
    python -m experiments.epoch_loss --smoke                                  # seconds, tiny: does everything work?

The old script: 200 "epochs" of one batch each, 50 random windows of 200 characters without spaces and newlines, the
state carried from each window into the next, which is another place of the text; LSTM of 1,024 units, Adam at 1e-3.
It is trained once as it was; then one thing is changed after the other, at 128 units, on as many characters. Every
run is scored on the same validation text in one way. The steps add up to the whole difference exactly.

To expect on tiny Shakespeare, seed 0, after 22 minutes on 2 cores: from 2.597 to 1.609 nats per original character; a
higher learning rate 0.504, a smaller model 0.313, more updates 0.303, spaces 0.038, resets 0.014, lanes 0.010, and a
schedule costs 0.209. At full size (twice the time) Muon alone is worth 0.958 and lanes 0.425. docs/old_curve.md.
"""

import dataclasses
import pathlib
import time

import keras

from experiments import epoch_loss_report, report
from experiments.epoch_loss_conclusion import conclusion
from experiments.epoch_loss_data import Data, batches, windows
from experiments.epoch_loss_settings import EpochLoss, Recipe, tiny
from experiments.generate import load_run
from experiments.runs import begin, config, same_corpus
from experiments.startup import one_sentence
from keras_seq import training
from keras_seq.evaluation import Evaluator
from keras_seq.generation import TextGenerator
from keras_seq.models import LSTMConfig
from keras_seq.saving import save_model
from keras_seq.tracking import Summaries, write_hparams_config
from keras_seq.training.language_model import stateful_training_model


class Look:
    """Called, it scores a text cold, and at the last step warm too.

    Args:
        model: a `LanguageModel`.
        form: where the text is from.
        ids: the text.
        settings: those of the experiment.
        at_the_end: a function that tells whether the training is over.
    """

    def __init__(self, model, form, ids, settings: EpochLoss, at_the_end):
        self.form, self.ids, self.settings, self.at_the_end = form, ids, settings, at_the_end
        self.evaluator = Evaluator(model)

    def __call__(self) -> Summaries:
        cold = self.evaluator.chunked_loss(self.ids, self.settings.length).mean
        figures = {"val_loss": cold, "val_loss_per_original_character": cold * self.form.share}
        if self.at_the_end():
            warm = self.evaluator.streaming_loss(self.ids).mean
            figures |= {"val_loss_streaming": warm, "val_loss_per_original_character_streaming": warm * self.form.share}
        return Summaries(figures)


def train_one(folder: pathlib.Path, settings: EpochLoss, recipe: Recipe, data: Data) -> dict:
    """One run. Returns what its result.json says."""
    begun = time.perf_counter()
    keras.backend.clear_session()
    keras.utils.set_random_seed(settings.seed)
    form, train = data.form(recipe), settings.train_for(recipe)
    definition = LSTMConfig(
        embedding_dim=settings.embedding_dim,
        units=recipe.units,
        recurrent_initializer=recipe.recurrent_initializer,
    )
    model = definition.build_model(form.vocabulary.vocabulary_size, dtype=train.dtype_policy)
    training_model = stateful_training_model(model, recipe.batch_size, settings.length)
    training.compile_model(training_model, train, recipe.updates, tokens_per_step=recipe.batch_size * settings.length)
    whole = diagnostic = Look(
        *(model, form, form.validation, settings),
        lambda: int(training_model.optimizer.iterations) >= recipe.updates,
    )
    part = train.validated_part(form.validation, settings.length + 1)
    if len(part) < len(form.validation):
        diagnostic = Look(model, form, part, settings, lambda: False)
    used = {**dataclasses.asdict(train), **train.resolved(training_model)}
    run_config = config(
        *(settings, "lstm", definition, used),
        recipe=dataclasses.asdict(recipe),
        run=folder.name,
        seed=settings.seed,
        corpus={"name": data.corpus.name, "sha256": data.corpus.sha256},
    )
    print(f"\n{folder.name}")
    record, summaries = training.fit_resumable(
        folder,
        training_model,
        batches(settings, recipe, form),
        recipe.batch_size * settings.length,
        recipe.updates,
        train,
        diagnostic,
        run_config,
        folder.name,
        final_validate_fn=None if diagnostic is whole else whole,
        final_duration_ratio=len(form.validation) / len(part),
    )
    save_model(folder / "model.keras", model)
    form.vocabulary.save(folder / "tokenizer.json")
    result = {
        "parameters": model.count_params(),
        "updates": recipe.updates,
        "training_characters": recipe.updates * recipe.batch_size * settings.length,
        "train_seconds": record.seconds,
        "seconds": time.perf_counter() - begun,
        "train_loss_per_original_character": record.loss,
        "original_share": form.share,
        **summaries.scalars,
    }
    training.write_result(folder, result)
    return result


def sample(run: pathlib.Path, length: int) -> str:
    """What the model of a finished run writes."""
    model, vocabulary = load_run(run)
    prompt = vocabulary.characters[0]
    return TextGenerator(model, vocabulary)(prompt, length, temperature=0.8)[len(prompt) :]


def explain(settings: EpochLoss, folder: pathlib.Path) -> list[dict]:
    """Trains all that is not yet trained in `folder`, then writes what it comes to. Returns the rows."""
    data = Data(settings)
    same_corpus(folder, data.corpus)
    recipes = settings.recipes
    for recipe in recipes.values():  # what cannot be built is an error now, before anything is written
        windows(settings, recipe, data.form(recipe))
    print(
        f"{data.corpus.name}: {len(data.original.validation):,} characters to validate on, "
        f"{len(data.squeezed.validation):,} without spaces and newlines; {len(recipes)} trainings of "
        f"{settings.updates * settings.batch_size * settings.length:,} characters"
        f"{report.validated(settings.train, data.squeezed.validation, settings.length + 1)}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_hparams_config(folder, ("run", *(f"recipe.{field.name}" for field in dataclasses.fields(Recipe))))
    rows = []
    for name, recipe in recipes.items():
        run = folder / name
        result = training.load_result(run) or train_one(run, settings, recipe, data)
        rows.append({"run": name, "recipe": dataclasses.asdict(recipe), **result})
    for row in (rows[0], rows[len(settings.ladder)]):
        row["sample"] = sample(folder / row["run"], settings.train.sample_length)
    epoch_loss_report.write(folder, settings, data.corpus.name, rows, conclusion(settings, data.corpus.name, rows))
    return rows


@one_sentence("experiments.epoch_loss")
def main(arguments=None):
    """The command line."""
    with begin(EpochLoss, "epoch_loss", __doc__, arguments, tiny) as (settings, folder):
        rows = explain(settings, folder)
        said = conclusion(settings, settings.corpus, rows)
        print(epoch_loss_report.closing(folder, settings, rows, said) + report.to_look(folder))


if __name__ == "__main__":
    main()
