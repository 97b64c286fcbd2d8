"""Metrics of restored spaces and capitals: precision, recall and F1 of each, and the fraction of exact words.

    precision = hits / predicted    recall = hits / actual    F1 = 2 hits / (predicted + actual)      0 where undefined

A word is a maximal run of characters other than white space in the original text. It is correct if its start, its end
and all its capitals are predicted correctly, and no space is predicted inside it.
"""

import re
import textwrap

import numpy as np
import tensorflow as tf

from keras_seq.data.synthetic.spacing_task import CAPITAL, SPACE, collapse_whitespace, restore, strip_spacing
from keras_seq.evaluation.losses import token_losses
from keras_seq.evaluation.progress_bar import track_progress
from keras_seq.tracking import Summaries

LINE_WIDTH = 96  # of a sample, in characters


class Tagger:
    """Tag a text of any length with a model that is trained on windows.

        window k reads [k S - S/2, k S + 3 S/2) and tags [k S, (k + 1) S),      S = sequence_length // 2

    Every character is tagged with at least sequence_length // 4 characters of context on each side, where the text has
    them; beyond the ends of the text there is padding.

    Args:
        model: Model from ids `[B, T]`, with 0 for padding, to logits `[B, T, 4]`.
        tokenizer: `CharacterTokenizer` with an `oov_token`; its ids are shifted by one.
        sequence_length: T, as in training.
        batch_size: Windows in a batch.
    """

    def __init__(self, model, tokenizer, sequence_length: int, batch_size: int = 64):
        self.model, self.tokenizer = model, tokenizer
        self.sequence_length, self.batch_size = sequence_length, batch_size
        self._logits = tf.function(lambda ids: model(ids, training=False), reduce_retracing=True)

    def ids(self, characters: str) -> np.ndarray:
        """Encode characters as int32 ids `[N]` of at least 1; 0 is padding."""
        return self.tokenizer.encode(characters).numpy() + 1

    def logits(self, characters: str) -> np.ndarray:
        """Compute logits `[N, 4]`."""
        ids, stride = self.ids(characters), self.sequence_length // 2
        margin = stride // 2
        num_windows = -(-len(ids) // stride)
        padded = np.pad(ids, (margin, num_windows * stride + self.sequence_length - margin - len(ids)))
        starts = np.arange(num_windows) * stride
        x = padded[starts[:, None] + np.arange(self.sequence_length)]
        first_rows = track_progress(range(0, num_windows, self.batch_size), len(ids))
        parts = [self._logits(x[row : row + self.batch_size]).numpy() for row in first_rows]
        return np.concatenate(parts)[:, margin : margin + stride].reshape(num_windows * stride, -1)[: len(ids)]

    def __call__(self, text: str) -> str:
        """Strip the spaces and capitals of a text, and insert those that the model predicts.

        Raises:
            ValueError: The text has no character other than white space.
        """
        characters, _ = strip_spacing(text)
        if not characters:
            raise ValueError("The text is empty or white space only; expected letters to restore.")
        return restore(characters, self.logits(characters).argmax(-1)).lstrip()


def tag_metrics(tags, predicted) -> dict[str, float]:
    """Compute precision, recall and F1 of spaces and of capitals, and the word accuracy.

    Args:
        tags: True tags `[N]`.
        predicted: Predicted tags `[N]`.
    """
    metrics = {}
    for name, bit in (("space", SPACE), ("capital", CAPITAL)):
        actual, positive = (tags & bit).astype(bool), (predicted & bit).astype(bool)
        hits = np.sum(actual & positive)
        counts = {"precision": positive.sum(), "recall": actual.sum(), "f1": (positive.sum() + actual.sum()) / 2}
        metrics |= {f"{name}_{metric}": float(hits / count) if count else 0.0 for metric, count in counts.items()}
    return {**metrics, "word_accuracy": float(correct_words(tags, predicted).mean())}


def correct_words(tags, predicted) -> np.ndarray:
    """Return whether each word is exactly correct, bool `[words]`.

    Args:
        tags: True tags `[N]`.
        predicted: Predicted tags `[N]`.
    """
    starts = np.union1d([0], np.flatnonzero(tags & SPACE))
    wrong = np.add.reduceat((tags != predicted).astype(int), starts)
    ends = np.append(
        (predicted[starts[1:]] & SPACE).astype(bool), True
    )  # the next word has to start where this one ends
    return (wrong == 0) & ends


class Validator:
    """Score a tagger on a text that is not trained on, and restore a passage of it.

    `metrics` holds all metrics of the last call; the `Summaries` have the loss and three of them.

    Args:
        tagger: The tagger.
        text: The text.
    """

    def __init__(self, tagger: Tagger, text: str):
        self.tagger = tagger
        self.characters, self.tags = strip_spacing(text)
        self.passage = passage(text)
        self.metrics = None

    def __call__(self) -> Summaries:
        logits = self.tagger.logits(self.characters)
        self.metrics = tag_metrics(self.tags, logits.argmax(-1))
        scalars = {"val_loss": float(np.mean(token_losses(logits, self.tags)))}
        scalars |= {name: self.metrics[name] for name in ("space_f1", "capital_f1", "word_accuracy")}
        return Summaries(scalars, {"sample": sample(self.passage, self.tagger(self.passage))})


def passage(text: str, length: int = 400) -> str:
    """Return the passage with the most letters, starting at a sentence, to prefer prose.

    Args:
        text: Any text.
        length: Length of the passage, in characters.
    """
    text = collapse_whitespace(text).lstrip()
    starts = [0, *(match.end() for match in re.finditer(r"[.?!] ", text[:-length]))]
    return max((text[start : start + length] for start in starts), key=lambda part: sum(map(str.isalpha, part)))


def sample(original: str, restored: str) -> str:
    """Format a passage as it was, without spaces and capitals, and as restored.

    Args:
        original: The passage.
        restored: The passage as the model restores it.
    """
    parts = {"original": original, "stripped": strip_spacing(original)[0], "restored": restored}
    return "\n\n".join(
        f"{name}:\n{textwrap.fill(text, LINE_WIDTH, break_on_hyphens=False)}" for name, text in parts.items()
    )
