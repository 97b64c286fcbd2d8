"""How well an encoder says what hidden tokens were, what it says, and where it looks.

nats = mean over the hidden positions of -log softmax(logits)[what stood there]
"""

import keras
import numpy as np
import tensorflow as tf

from experiments import masked_lm_report
from keras_seq.data import MaskedLMMaskGenerator
from keras_seq.evaluation.progress_bar import track_progress
from keras_seq.layers import TransformerBlock
from keras_seq.tokenizers import SPECIAL_TOKENS, WordPieceTokenizer
from keras_seq.tokenizers.segment_packing import pack_segments
from keras_seq.tracking import Summaries

HIDDEN = "[MASK]"
TOP = 5


def masking(pieces: WordPieceTokenizer, fraction, seed) -> MaskedLMMaskGenerator:
    """Hides that fraction of the tokens that are not special."""
    return MaskedLMMaskGenerator(
        SPECIAL_TOKENS[HIDDEN], pieces.vocabulary_size, tuple(SPECIAL_TOKENS.values()), fraction, seed
    )


def pairs(ids, length, move, seed) -> dict[str, np.ndarray]:
    """Rows `[CLS] a [SEP] b [SEP]` of `length`, b going on where a ends, in places drawn from the seed.

    Args:
        ids: a text, `[N]`.
        length: T.
        move: how many ids one row begins after the other; less than T - 3 and the rows overlap.
        seed: of the lengths of a, from 1 to all but one.
    """
    room = length - 3
    starts = range(0, len(ids) - room + 1, move)
    middles = np.random.default_rng(seed).integers(1, room, size=len(starts))
    firsts = [ids[start : start + middle] for start, middle in zip(starts, middles, strict=True)]
    seconds = [ids[start + middle : start + room] for start, middle in zip(starts, middles, strict=True)]
    rows = pack_segments(firsts, seconds, length)
    return {name: rows[name] for name in ("token_ids", "segment_ids")}


def by_frequency(train_ids, targets, size) -> dict[str, float]:
    """What it scores to know of the tokens only how frequent each is, counted with one more of each.

    Args:
        train_ids: the text that is counted, `[N]`.
        targets: what stood at the hidden positions, `[M]`.
        size: V.
    """
    counts = np.bincount(train_ids, minlength=size) + 1
    counts[list(SPECIAL_TOKENS.values())] = 0  # they are never hidden
    order = np.argsort(-counts, kind="stable")
    return {
        "val_loss": float(-np.log(counts[targets] / counts.sum()).mean()),
        "accuracy": float(np.mean(targets == order[0])),
        "top5_accuracy": float(np.isin(targets, order[:TOP]).mean()),
    }


def attention_scores(model, inputs) -> np.ndarray:
    """Who attends to whom, in every block: `[blocks, B, H, T, T]`.

    Args:
        model: a functional model with `TransformerBlock`s, such as an `Encoder` or what stands behind one.
        inputs: what it takes.
    """
    blocks = [layer for layer in model.layers if isinstance(layer, TransformerBlock)]
    entering = keras.Model(model.input, [block.input for block in blocks])(inputs)  # each with its mask
    scores = [block(x, return_attention_scores=True)[1] for block, x in zip(blocks, entering, strict=True)]
    return np.stack([keras.ops.convert_to_numpy(keras.ops.cast(s["self_attention"], "float32")) for s in scores])


class Reader:
    """Fills in what a text hides.

    Args:
        model: from ids and segments to logits.
        pieces: the tokenizer.
    """

    def __init__(self, model, pieces: WordPieceTokenizer):
        self.model, self.pieces = model, pieces
        self.context = model.get_layer("checked_ids").context

    def row(self, text) -> dict[str, np.ndarray]:
        """The ids and segments of a text, `[1, T]`; the tokenizer does not take [MASK] for special, so it is put here.

        Raises:
            ValueError: nothing is hidden, or the text is too long.
        """
        check_text(text, self.pieces, self.context)
        rows = pack_segments([hidden_ids(text, self.pieces)], None, None)
        return {name: rows[name] for name in ("token_ids", "segment_ids")}

    def __call__(self, text, top=TOP) -> list[list[tuple[str, float]]]:
        """For each [MASK] the likeliest tokens and their probabilities."""
        row = self.row(text)
        (logits,) = keras.ops.convert_to_numpy(self.model(row, training=False)).astype("float64")
        tokens, told = self.pieces.vocabulary, []
        for at in np.flatnonzero(row["token_ids"][0] == SPECIAL_TOKENS[HIDDEN]):
            probabilities = np.exp(logits[at] - np.logaddexp.reduce(logits[at]))
            likeliest = np.argsort(-probabilities)[:top]
            told.append([(tokens[n], float(probabilities[n])) for n in likeliest])
        return told

    def said(self, text, top=TOP) -> str:
        """The same in words, a line for each [MASK]."""
        lines = ("   ".join(f"{token} {p:.0%}" for token, p in likeliest) for likeliest in self(text, top))
        return "\n".join([text, *(f"    {line}" for line in lines)])

    def attention(self, text) -> tuple[list[str], np.ndarray]:
        """The tokens of a text, and who attends to whom among them: `[blocks, H, T, T]`."""
        row = self.row(text)
        return [self.pieces.vocabulary[n] for n in row["token_ids"][0]], attention_scores(self.model, row)[:, 0]


def hidden_ids(text, pieces: WordPieceTokenizer) -> list[int]:
    """The ids of a text, with that of [MASK] where it says so."""
    first, *others = (pieces.encode(part).numpy().tolist() for part in text.split(HIDDEN))
    return first + [n for other in others for n in (SPECIAL_TOKENS[HIDDEN], *other)]


def check_text(text, pieces: WordPieceTokenizer, context):
    """Raises a ValueError unless something is hidden in the text and its tokens fit, with [CLS] and [SEP]."""
    if HIDDEN not in text:
        raise ValueError(f"--text {text!r}: nothing is hidden in it; put {HIDDEN} in the place of a word.")
    count = len(hidden_ids(text, pieces)) + 2
    if count > context:
        raise ValueError(
            f"--text {text[:40]!r}...: {count} tokens with [CLS] and [SEP], but the model reads {context}: shorten it."
        )


class Look:
    """Called, it scores the hidden tokens of the rows, the same ones each time, and fills in the texts."""

    def __init__(self, reader: Reader, rows, masking: MaskedLMMaskGenerator, texts, batch_size=64):
        self.reader, self.texts, self.batch_size = reader, texts, batch_size
        masked, targets, weights = (part.numpy() for part in masking.batch(0, rows["token_ids"]))
        self.inputs, self.targets, self.hidden = {**rows, "token_ids": masked}, targets, weights > 0
        if not self.hidden.any():
            raise ValueError("The validation split is too short: none of its tokens is hidden. Give a longer text.")
        self._ranks = tf.function(self._nats_and_ranks, reduce_retracing=True)

    def _nats_and_ranks(self, inputs, targets):
        """-log p of the targets, and how many ids are likelier: `[B, T]` each."""
        logits = self.reader.model(inputs, training=False)
        nats = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
        own = tf.gather(logits, targets, batch_dims=2)[..., None]
        return nats, tf.reduce_sum(tf.cast(logits > own, tf.int32), axis=-1)

    def __call__(self) -> Summaries:
        nats, ranks = [], []
        for start in track_progress(range(0, len(self.targets), self.batch_size), self.targets.size):
            part = slice(start, start + self.batch_size)
            inputs = {name: values[part] for name, values in self.inputs.items()}
            for whole, values in zip((nats, ranks), self._ranks(inputs, self.targets[part]), strict=True):
                whole.append(values.numpy()[self.hidden[part]])
        nats, ranks = np.concatenate(nats), np.concatenate(ranks)
        return Summaries(
            {
                "val_loss": float(nats.mean(dtype="float64")),
                "accuracy": float(np.mean(ranks == 0)),
                "top5_accuracy": float(np.mean(ranks < TOP)),
            },
            {"hidden": "\n".join(map(self.reader.said, self.texts))},
            {"attention": masked_lm_report.attention_pixels(*self.reader.attention(self.texts[0]))},
        )
