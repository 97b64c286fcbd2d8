"""A language model trained on random crops of a text and scored cold: what `positions` and `scaling` run many times."""

import dataclasses

import keras

from experiments.runs import config
from keras_seq import training
from keras_seq.data import RandomWindows, load_corpus
from keras_seq.evaluation import Evaluator
from keras_seq.saving import save_model
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking import Summaries


class Parts:
    """A text in two, as ids `[N]`: to train on, and to validate on.

    Args:
        name: of the corpus.
        window: the fewest characters that a part must have.
    """

    def __init__(self, name, window):
        self.corpus = load_corpus(name)
        self.vocabulary = CharacterTokenizer.from_text(self.corpus.text)
        self.texts = self.corpus.split(min_length=window)
        self.train, self.validation = (self.vocabulary.encode(part).numpy() for part in self.texts)


def train_one(folder, settings, name, definition, parts: Parts, batch_size, length, steps, train: training.TrainConfig):
    """One run, from its newest checkpoint if there is one.

    Args:
        folder: the run's.
        settings: those of the experiment, with a `seed`.
        name, definition: what the model is called, and the dataclass that it is built from.
        parts: the text.
        batch_size, length: B and T of the crops.
        steps: the step to end at.
        train: everything else about training.

    Returns:
        The model's `Evaluator`, and the figures for result.json.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(settings.seed)
    model = definition.build_model(parts.vocabulary.vocabulary_size, dtype=train.dtype_policy)
    windows = RandomWindows(parts.train, batch_size, length, seed=settings.seed)
    evaluator = Evaluator(model)

    def score(ids):
        return Summaries({"val_loss": evaluator.chunked_loss(ids, length).mean})

    used = {**dataclasses.asdict(train), **train.resolved(model)}
    of_corpus = {"name": parts.corpus.name, "sha256": parts.corpus.sha256}
    print(f"\n{folder.name}")
    training.compile_model(model, train, steps, tokens_per_step=batch_size * length)
    record, summaries = training.fit_resumable(
        folder,
        model,
        windows.dataset,
        batch_size * length,
        steps,
        train,
        config=config(
            settings, name, definition, used, batch_size=batch_size, steps=steps, seed=settings.seed, corpus=of_corpus
        ),
        name=folder.name,
        characters_per_token=1.0,
        **training.capped_validation(score, parts.validation, train, min_characters=length + 1),
    )
    parts.vocabulary.save(folder / "tokenizer.json")
    save_model(folder / "model.keras", model)
    return evaluator, {
        "model": name,
        "parameters": model.count_params(),
        "batch_size": batch_size,
        "learning_rate": used["learning_rate"],
        "train_tokens": record.step * batch_size * length,
        "train_seconds": record.seconds,
        "train_loss_per_character": record.loss,
        "val_sequence_length": length,
        "val_loss_per_character": summaries.scalars["val_loss"],
    }
