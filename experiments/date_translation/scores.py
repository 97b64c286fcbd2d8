"""Metrics of date translation: loss per target character, and exact match of whole dates.

The encoder-decoder generates ISO dates id by id, with greedy or beam search.
"""

import numpy as np
import tensorflow as tf

from experiments.date_translation import report as date_translation_report
from experiments.frame import plots, report
from keras_seq.data.synthetic import dates
from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.generation import beam_search, greedy
from keras_seq.tracking import Summaries

EXAMPLE_TEXT = "Sat 3rd of Sept. 1994"  # the date whose cross-attention is plotted


class Translator:
    """Translate written dates into ISO dates; the model is compiled once for each batch size.

    Args:
        model: An `EncoderDecoder` over the ids of `keras_seq.data.synthetic.dates`.
    """

    def __init__(self, model):
        self.model = model
        self._start = tf.function(self._encode, autograph=False)
        self._step = tf.function(model.step, autograph=False)

    def _encode(self, source):
        return self.model.get_initial_state(source, capacity=dates.TARGET_LENGTH)

    def __call__(self, texts: list[str], num_beams: int = 1) -> list[str]:
        """Translate each text.

        Args:
            texts: Dates as written.
            num_beams: Hypotheses of the beam search; 1 is greedy search.

        Returns:
            What the model generates for each text: an ISO date, or another string of characters if it is wrong.
        """
        state, start_ids = self._start(tf.constant(dates.source_ids(texts))), [dates.START] * len(texts)
        arguments = (self._step, state, start_ids, dates.TARGET_LENGTH, dates.END)
        ids = greedy(*arguments)[0] if num_beams == 1 else beam_search(*arguments, num_beams=num_beams)[0][:, 0]
        return [dates.decode_ids(row) for row in ids.numpy()]


def model_inputs(pairs: list) -> tuple[dict, np.ndarray]:
    """Encode pairs for the model.

    Returns:
        The model's inputs, ids `[B, S]` and `[B, T]`, and the target ids `[B, T]`.
    """
    decoder_ids, targets = dates.target_ids([pair.iso for pair in pairs])
    return {
        "encoder_token_ids": dates.source_ids([pair.text for pair in pairs]),
        "decoder_token_ids": decoder_ids,
    }, targets


class Validator:
    """Compute the loss without label smoothing, and the exact match of greedy search, on fixed pairs.

    Args:
        model: The model.
        pairs: Pairs that are not trained on.
    """

    def __init__(self, model, pairs: list):
        self.model, self.pairs = model, pairs
        self.inputs, self.targets = model_inputs(pairs)
        self.translate = Translator(model)
        self._loss = tf.function(self._mean_loss, autograph=False)

    def _mean_loss(self):
        logits = self.model(self.inputs, training=False)
        return TokenCrossEntropy(ignore_class=dates.PADDING)(self.targets, logits)

    def __call__(self) -> Summaries:
        translations = self.translate([pair.text for pair in self.pairs])
        correct = [iso == pair.iso for iso, pair in zip(translations, self.pairs, strict=True)]
        lines = [["text", "translation", "correct"]]
        rows = zip(self.pairs, translations, correct, strict=True)
        lines += [[pair.text, iso, "yes" if is_correct else pair.iso] for pair, iso, is_correct in rows]
        figure = date_translation_report.attention_figure(
            EXAMPLE_TEXT, *cross_attention(self.model, self.translate, EXAMPLE_TEXT)
        )
        return Summaries(
            {"val_loss": float(self._loss()), "exact_match": float(np.mean(correct))},
            {"sample": report.markdown_table(lines[:21])},
            {"cross_attention": plots.pixels(figure)},
        )


def by_format(translate: Translator, test_pairs: dict, num_beams: int) -> tuple[list[dict], list[dict]]:
    """Compute the exact match for each format, with greedy and beam search.

    Args:
        translate: Translator of the model.
        test_pairs: A dict from each format to its pairs.
        num_beams: Hypotheses of the beam search.

    Returns:
        A row for each format, and the pairs that greedy search translates wrongly.
    """
    rows, mistakes = [], []
    for date_format, pairs in test_pairs.items():
        texts = [pair.text for pair in pairs]
        translations = {"greedy": translate(texts), "beam": translate(texts, num_beams)}
        accuracies = {
            name: np.mean([iso == pair.iso for iso, pair in zip(isos, pairs, strict=True)])
            for name, isos in translations.items()
        }
        row = {
            "format": date_format,
            "held_out": date_format in dates.HELD_OUT_FORMATS,
            "example": texts[0],
            "texts": len(texts),
        }
        rows.append(row | {name: float(accuracy) for name, accuracy in accuracies.items()})
        mistakes += [
            {"text": pair.text, "iso": pair.iso, "greedy": by_greedy, "beam": by_beam}
            for pair, by_greedy, by_beam in zip(pairs, *translations.values(), strict=True)
            if by_greedy != pair.iso
        ]
    return rows, mistakes


def cross_attention(model, translate: Translator, text: str) -> tuple[str, np.ndarray]:
    """Compute the cross-attention weights for one text.

    Args:
        model: The model.
        translate: Its translator.
        text: A date as written, S characters.

    Returns:
        The translation, and the weights `[blocks, H, T, S]`. Each of the T rows belongs to a generated character, the
        last one to the end token if it was generated.
    """
    (translation,) = translate([text])
    decoder_ids = [dates.START, *(dates.END + 1 + dates.ALPHABET.index(c) for c in translation if c in dates.ALPHABET)]
    inputs = {
        "encoder_token_ids": dates.source_ids([text]),
        "decoder_token_ids": np.array([decoder_ids[: dates.TARGET_LENGTH]]),
    }
    weights = np.concatenate([block.numpy() for block in model.cross_attention(inputs)])
    return translation, weights[..., : len(text)]
