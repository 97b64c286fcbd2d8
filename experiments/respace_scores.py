"""How well tags are found: precision, recall and F1 of spaces and of capitals, and the words that are exactly right.

    precision = hits / found    recall = hits / there    F1 = 2 hits / (found + there)      0 where nothing is counted

A word is what stands between white space in the text. It is right where it begins and ends as it should, has no space
inside, and all its capitals.
"""

import re
import textwrap

import numpy as np
import tensorflow as tf

from keras_seq.data.synthetic.spacing_task import CAPITAL, SPACE, collapse_whitespace, restore, strip_spacing
from keras_seq.evaluation.losses import token_losses
from keras_seq.evaluation.progress_bar import track_progress
from keras_seq.tracking import Summaries

LINE = 96  # characters in a line of a sample


class Reader:
    """A tagger over a text of any length.

        window k reads [k S - S/2, k S + 3 S/2) and tags [k S, (k + 1) S),      S = length // 2

    So every character is tagged with at least length // 4 characters before and after it, where the text has them; what
    lies beyond its ends is padding.

    Args:
        model: from ids `[B, T]`, of which 0 is padding, to logits `[B, T, 4]`.
        vocabulary: a `Vocabulary` that knows unknown characters; its ids are shifted by one.
        length: T, as in training.
        rows: windows at a time.
    """

    def __init__(self, model, vocabulary, length, rows=64):
        self.model, self.vocabulary, self.length, self.rows = model, vocabulary, length, rows
        self._logits = tf.function(lambda ids: model(ids, training=False), reduce_retracing=True)

    def ids(self, characters) -> np.ndarray:
        """int32 `[N]`, none of them the 0 of padding."""
        return self.vocabulary.encode(characters).numpy() + 1

    def logits(self, characters) -> np.ndarray:
        """`[N, 4]`."""
        ids, move = self.ids(characters), self.length // 2
        before = move // 2
        windows = -(-len(ids) // move)
        padded = np.pad(ids, (before, windows * move + self.length - before - len(ids)))
        starts = np.arange(windows) * move
        x = padded[starts[:, None] + np.arange(self.length)]
        rows = track_progress(range(0, windows, self.rows), len(ids))
        parts = [self._logits(x[row : row + self.rows]).numpy() for row in rows]
        return np.concatenate(parts)[:, before : before + move].reshape(windows * move, -1)[: len(ids)]

    def __call__(self, text) -> str:
        """The text with its own spaces and capitals thrown away, and those put in that the model finds."""
        characters, _ = strip_spacing(text)
        if not characters:
            raise ValueError("The text has nothing in it but white space.")
        return restore(characters, self.logits(characters).argmax(-1)).lstrip()


def scores(tags, found) -> dict[str, float]:
    """The figures of found tags `[N]` beside the true ones."""
    figures = {}
    for name, bit in (("space", SPACE), ("capital", CAPITAL)):
        there, claimed = (tags & bit).astype(bool), (found & bit).astype(bool)
        hits = np.sum(there & claimed)
        counts = {"precision": claimed.sum(), "recall": there.sum(), "f1": (claimed.sum() + there.sum()) / 2}
        figures |= {f"{name}_{kind}": float(hits / count) if count else 0.0 for kind, count in counts.items()}
    return {**figures, "word_accuracy": float(words_right(tags, found).mean())}


def words_right(tags, found) -> np.ndarray:
    """Whether each word is exactly right: bool, one for a word."""
    starts = np.union1d([0], np.flatnonzero(tags & SPACE))
    wrong = np.add.reduceat((tags != found).astype(int), starts)
    ends = np.append((found[starts[1:]] & SPACE).astype(bool), True)  # the next word begins where this one ends
    return (wrong == 0) & ends


class Look:
    """Called, it scores a tagger on a text that was never trained on, and shows what it makes of a passage.

    `scores` are all figures of the last call; a `Measured` has the three that tell most.
    """

    def __init__(self, reader: Reader, text):
        self.reader = reader
        self.characters, self.tags = strip_spacing(text)
        self.passage = passage(text)
        self.scores = None

    def __call__(self) -> Summaries:
        logits = self.reader.logits(self.characters)
        self.scores = scores(self.tags, logits.argmax(-1))
        figures = {"val_loss": float(np.mean(token_losses(logits, self.tags)))}
        figures |= {name: self.scores[name] for name in ("space_f1", "capital_f1", "word_accuracy")}
        return Summaries(figures, {"sample": sample(self.passage, self.reader(self.passage))})


def passage(text, length=400) -> str:
    """The sentences of a text with the most letters in them: prose, if there is any."""
    text = collapse_whitespace(text).lstrip()
    starts = [0, *(match.end() for match in re.finditer(r"[.?!] ", text[:-length]))]
    return max((text[start : start + length] for start in starts), key=lambda part: sum(map(str.isalpha, part)))


def sample(original, restored) -> str:
    """A passage as it was, without spaces and capitals, and as it was restored."""
    parts = {"original": original, "stripped": strip_spacing(original)[0], "restored": restored}
    return "\n\n".join(f"{name}:\n{textwrap.fill(text, LINE, break_on_hyphens=False)}" for name, text in parts.items())
