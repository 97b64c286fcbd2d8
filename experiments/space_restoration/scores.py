"""Scores of restored spaces and capitals: precision, recall and F1 of each, and the fraction of exact words.

    precision = hits / predicted    recall = hits / actual    F1 = 2 hits / (predicted + actual)      0 where undefined

A word is a maximal run of characters other than white space in the original text. It is correct if its start, its end
and all its capitals are predicted correctly, and no space is predicted inside it.
"""

import functools
import re
import textwrap
from collections.abc import Sequence

import keras
import numpy as np

from experiments.space_restoration.data import SpacingText, encode
from experiments.space_restoration.settings import SpaceRestorationConfig
from keras_seq.data.synthetic.spacing_task import CAPITAL, NUM_TAGS, SPACE, collapse_whitespace, restore, strip_spacing
from keras_seq.evaluation.losses import token_losses
from keras_seq.evaluation.streaming import overlapping_window_logits
from keras_seq.ops.compiled import compiled
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tracking import Summaries
from keras_seq.training import validation_sample

LINE_WIDTH = 76  # of a sample, in characters
WINDOWS = 4  # lengths of a window in the shortest stretch of a sample


class Tagger:
    """Restore the spaces and capitals of a text of any length with a model that is trained on windows of T ids."""

    def __init__(self, model: keras.Model, tokenizer: CharacterTokenizer, sequence_length: int):
        self.tokenizer, self.sequence_length = tokenizer, sequence_length
        self.window_logits = compiled(lambda ids: model(ids, training=False), model, reduce_retracing=True)

    def logits(self, ids: np.ndarray) -> np.ndarray:
        """Compute logits `[N, 4]` of ids `[N]`."""
        return overlapping_window_logits(self.window_logits, ids, self.sequence_length)

    def __call__(self, text: str) -> str:
        """Strip the spaces and capitals of a text, and insert those that the model predicts."""
        characters, _ = strip_spacing(text)
        if not characters:
            raise ValueError("The text is empty or white space only; expected letters to restore.")
        return restore(characters, self.logits(encode(self.tokenizer, characters)).argmax(-1)).lstrip()


def tag_scores(tags: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Compute precision, recall and F1 of spaces and of capitals, and the word accuracy, of tags `[N]`."""
    scores = {}
    for name, bit in (("space", SPACE), ("capital", CAPITAL)):
        actual, positive = (tags & bit).astype(bool), (predicted & bit).astype(bool)
        hits = np.sum(actual & positive)
        counts = {"precision": positive.sum(), "recall": actual.sum(), "f1": (positive.sum() + actual.sum()) / 2}
        scores |= {f"{name}_{score}": float(hits / count) if count else 0.0 for score, count in counts.items()}
    words = correct_words(tags, predicted)
    return {**scores, "word_accuracy": float(words.mean()), "words": len(words)}


def correct_words(tags: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return whether each word is exactly correct, bool `[words]`, of true and predicted tags `[N]`."""
    starts = np.union1d([0], np.flatnonzero(tags & SPACE))
    wrong = np.add.reduceat((tags != predicted).astype(int), starts)
    ends_right = np.append((predicted[starts[1:]] & SPACE).astype(bool), True)  # the next word starts where it ends
    return (wrong == 0) & ends_right


def no_tags(data: SpacingText) -> dict:
    """Score the prediction of no spaces and no capitals, with the loss of the tags' unigram frequencies in training."""
    train_tags, tags = (strip_spacing(text)[1] for text in (data.train_text, data.validation_text))
    counts = np.bincount(train_tags, minlength=NUM_TAGS) + 1
    loss = -np.log(counts / counts.sum())[tags].mean()
    return {"model": "no tags", "val_loss": float(loss), **tag_scores(tags, np.zeros_like(tags))}


class SpacingTask:
    """Spaces and capitals of a text for one model (`experiments.frame.tasks.Task`)."""

    loss, diagnostics = None, ()

    def __init__(self, model: keras.Model, settings: SpaceRestorationConfig, data: SpacingText):
        self.model, self.data, self.dataset = model, data, data.batches.dataset
        self.tokens_per_step = settings.batch_size * settings.sequence_length
        self.tagger = Tagger(model, data.tokenizer, settings.sequence_length)
        self.sample_texts = stretches(data.validation_text, settings)
        if self.sample_texts is not None:
            self.final_validate = functools.partial(self.validate, (data.validation_text,))

    def scores(self, *texts: str) -> dict[str, float]:
        """Compute the loss and all scores of texts."""
        tags = np.concatenate([strip_spacing(text)[1] for text in texts])
        logits = np.concatenate([self.tagger.logits(self.data.encode(text)) for text in texts])
        return {"val_loss": float(np.mean(token_losses(logits, tags))), **tag_scores(tags, logits.argmax(-1))}

    def validate(self, texts: Sequence[str] | None = None) -> Summaries:
        """Score texts, by default the sample of the validation text, and restore a passage of the validation text."""
        text = self.data.validation_text
        scores = self.scores(*(texts or self.sample_texts or [text]))
        scalars = {name: scores[name] for name in ("val_loss", "space_f1", "capital_f1", "word_accuracy")}
        return Summaries(scalars, {"sample": self.sample(text)})

    def test(self) -> dict:
        """Score all of the validation text."""
        return self.scores(text := self.data.validation_text) | {"sample": self.sample(text)}

    def sample(self, text: str) -> str:
        """Return a passage as it was, without spaces and capitals, and as restored."""
        original = passage(text)
        parts = {"original": original, "stripped": strip_spacing(original)[0], "restored": self.tagger(original)}
        wrap = textwrap.TextWrapper(LINE_WIDTH, break_on_hyphens=False)
        return "\n\n".join(f"{name}:\n{wrap.fill(part)}" for name, part in parts.items())


def stretches(text: str, settings: SpaceRestorationConfig) -> list[str] | None:
    """Return the parts of a text that are scored during training, without the words cut at their ends; None for all."""
    ids = np.frombuffer(text.encode("utf-32-le"), "<u4").astype("int64")
    settings.train.validated_characters(len(text), settings.sequence_length)
    sample = validation_sample(ids, min(WINDOWS * settings.sequence_length, len(text) - 1), settings.train)
    if sample is None:
        return None
    parts = [text[start : start + sample.length] for start in sample.starts]
    return [" ".join(words[1:-1]) for part in parts if len(words := part.split()) > 2] or parts


def passage(text: str, length: int = 400) -> str:
    """Return the passage of this many characters with the most letters, starting at a sentence, to prefer prose."""
    text = collapse_whitespace(text).lstrip()
    starts = [0, *(match.end() for match in re.finditer(r"[.?!] ", text[:-length]))]
    return max((text[start : start + length] for start in starts), key=lambda part: sum(map(str.isalpha, part)))
