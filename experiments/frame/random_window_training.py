"""Train a language model on random windows of a text and score it on disjoint windows, for sweeps of many runs."""

import dataclasses
import pathlib
from typing import Any

import keras

from experiments.frame.runs import run_config
from keras_seq import training
from keras_seq.data import RandomWindows, load_corpus
from keras_seq.evaluation import Evaluator
from keras_seq.saving import save_model
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking import Summaries


class SplitCorpus:
    """A corpus split into training and validation text, and their ids.

    Attributes:
        corpus: The `Corpus`.
        vocabulary: `CharacterTokenizer` of the whole text.
        texts: The parts as strings: training, held-out text if `held_out`, validation.
        train: Ids of the training text, `[N]`.
        held_out: Ids of the last tenth of the training split, `[N]`, for choosing hyperparameters; None without it.
        validation: Ids of the validation text, `[N]`.

    Args:
        name: Name or path of the corpus.
        min_length: Fewest characters of each part.
        held_out: Whether to cut the held-out text from the training split.

    Raises:
        CorpusError: The corpus cannot be read, or a part is shorter than `min_length`.
    """

    def __init__(self, name: str, min_length: int, held_out: bool = False):
        self.corpus = load_corpus(name)
        self.vocabulary = CharacterTokenizer.from_text(self.corpus.text)
        train_text, validation_text = self.corpus.split(min_length=min_length)
        train_texts = (train_text,)
        if held_out:
            train_texts = dataclasses.replace(self.corpus, text=train_text).split(min_length=min_length)
        self.texts = (*train_texts, validation_text)
        self.train, *held_out_ids, self.validation = (self.vocabulary.encode(text).numpy() for text in self.texts)
        self.held_out = held_out_ids[0] if held_out else None


def train_one(
    folder: pathlib.Path,
    config: Any,
    name: str,
    model_config: Any,
    data: SplitCorpus,
    batch_size: int,
    sequence_length: int,
    steps: int,
    train: training.TrainConfig,
) -> tuple[Evaluator, dict]:
    """Train one model, from its latest checkpoint if there is one.

    Args:
        folder: Run folder.
        config: Config of the experiment, with a `seed`.
        name: Name of the model.
        model_config: Dataclass that the model is built from.
        data: Training and validation text.
        batch_size: B, windows in a batch.
        sequence_length: T of the windows.
        steps: Step at which training ends.
        train: All other options of training.

    Returns:
        The model's `Evaluator`, and the entries of result.json.
    """
    keras.backend.clear_session()
    keras.utils.set_random_seed(config.seed)
    model = model_config.build_model(data.vocabulary.vocabulary_size, dtype=train.dtype_policy)
    windows = RandomWindows(data.train, batch_size, sequence_length, seed=config.seed)
    evaluator = Evaluator(model)

    def validate(ids):
        return Summaries({"val_loss": evaluator.chunked_loss(ids, sequence_length).mean})

    resolved = {**dataclasses.asdict(train), **train.resolved(model)}
    print(f"\n{folder.name}")
    training.compile_model(model, train, steps, tokens_per_step=batch_size * sequence_length)
    logger, summaries = training.fit_resumable(
        folder,
        model,
        windows.dataset,
        batch_size * sequence_length,
        steps,
        train,
        config=run_config(
            config,
            name,
            model_config,
            resolved,
            batch_size=batch_size,
            steps=steps,
            seed=config.seed,
            corpus={"name": data.corpus.name, "sha256": data.corpus.sha256},
        ),
        name=folder.name,
        characters_per_token=1.0,
        **training.capped_validation(validate, data.validation, train, sequence_length + 1),
    )
    data.vocabulary.save(folder / "tokenizer.json")
    save_model(folder / "model.keras", model)
    return evaluator, {
        "model": name,
        "parameters": model.count_params(),
        "batch_size": batch_size,
        "learning_rate": resolved["learning_rate"],
        "train_tokens": logger.step * batch_size * sequence_length,
        "train_seconds": logger.seconds,
        "train_loss_per_character": logger.loss,
        "val_sequence_length": sequence_length,
        "val_loss_per_character": summaries.scalars["val_loss"],
    }
