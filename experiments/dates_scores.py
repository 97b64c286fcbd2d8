"""How well dates are translated: nats per target character, and the share that is right in every character.

An encoder-decoder writes the ISO date id by id, greedily or by beam search; `cross_attention` shows where it looks.
"""

import numpy as np
import tensorflow as tf

from experiments import dates_report, pictures, report
from keras_seq.data.synthetic import dates
from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.generation import beam_search, greedy
from keras_seq.tracking import Summaries

SHOWN = "Sat 3rd of Sept. 1994"  # the date of the picture


class Translator:
    """Dates as written -> ISO dates. The model is compiled once for each number of rows.

    Args:
        model: an `EncoderDecoder` over the ids of `keras_seq.data.synthetic.dates`.
    """

    def __init__(self, model):
        self.model = model
        self._begin = tf.function(self._read, autograph=False)
        self._step = tf.function(model.step, autograph=False)

    def _read(self, source):
        return self.model.get_initial_state(source, capacity=dates.TARGET_LENGTH)

    def __call__(self, texts: list[str], width=1) -> list[str]:
        """One ISO date, or whatever the model writes, for each text: greedily, or by a beam of `width`."""
        state, first = self._begin(tf.constant(dates.source_ids(texts))), [dates.START] * len(texts)
        how = (self._step, state, first, dates.TARGET_LENGTH, dates.END)
        ids = greedy(*how)[0] if width == 1 else beam_search(*how, width=width)[0][:, 0]
        return [dates.decode_ids(row) for row in ids.numpy()]


def inputs_of(pairs) -> tuple[dict, np.ndarray]:
    """What the model takes, and what it is to say: `({"source": [B, S], "target": [B, T]}, wanted [B, T])`."""
    read, wanted = dates.target_ids([pair.iso for pair in pairs])
    return {"source": dates.source_ids([pair.text for pair in pairs]), "target": read}, wanted


class Look:
    """Called, it measures a model on pairs that it never saw: nats without smoothing, and what greedy search writes."""

    def __init__(self, model, pairs):
        self.model, self.pairs = model, pairs
        self.inputs, self.wanted = inputs_of(pairs)
        self.translate = Translator(model)
        self._nats = tf.function(self._nats_per_token, autograph=False)

    def _nats_per_token(self):
        logits = self.model(self.inputs, training=False)
        return TokenCrossEntropy(ignore_class=dates.PADDING)(self.wanted, logits)

    def __call__(self) -> Summaries:
        written = self.translate([pair.text for pair in self.pairs])
        right = [iso == pair.iso for iso, pair in zip(written, self.pairs, strict=True)]
        lines = [["text", "written", "right"]]
        lines += [[p.text, iso, "yes" if ok else p.iso] for p, iso, ok in zip(self.pairs, written, right, strict=True)]
        picture = dates_report.attention_figure(SHOWN, *cross_attention(self.model, self.translate, SHOWN))
        return Summaries(
            {"val_loss": float(self._nats()), "exact_match": float(np.mean(right))},
            {"sample": report.aligned(lines[:21])},
            {"cross_attention": pictures.pixels(picture)},
        )


def by_format(translate: Translator, pairs_of: dict, width: int) -> tuple[list[dict], list[dict]]:
    """The share that is right for each format, greedily and by a beam of `width`, and what greedy search has wrong.

    Args:
        translate: with the model.
        pairs_of: from a format to its pairs.
        width: of the beam.
    """
    rows, mistakes = [], []
    for form, pairs in pairs_of.items():
        texts = [pair.text for pair in pairs]
        written = {"greedy": translate(texts), "beam": translate(texts, width)}
        right = {name: np.mean([iso == p.iso for iso, p in zip(w, pairs, strict=True)]) for name, w in written.items()}
        row = {"format": form, "held_out": form in dates.HELD_OUT_FORMATS, "example": texts[0], "texts": len(texts)}
        rows.append(row | {name: float(share) for name, share in right.items()})
        mistakes += [
            {"text": pair.text, "iso": pair.iso, "greedy": one, "beam": other}
            for pair, one, other in zip(pairs, *written.values(), strict=True)
            if one != pair.iso
        ]
    return rows, mistakes


def cross_attention(model, translate: Translator, text) -> tuple[str, np.ndarray]:
    """What is written for one text, and where the decoder looks meanwhile: `[blocks, H, T, S]`.

    Each of the T rows belongs to a character that is written, the last one to the end (where it comes in time).
    """
    (written,) = translate([text])
    read = [dates.START, *(dates.END + 1 + dates.ALPHABET.index(c) for c in written if c in dates.ALPHABET)]
    inputs = {"source": dates.source_ids([text]), "target": np.array([read[: dates.TARGET_LENGTH]])}
    weights = np.concatenate([block.numpy() for block in model.cross_attention(inputs)])
    return written, weights[..., : len(text)]
