"""Scores of date translation: loss per target character, and exact match of whole dates.

The encoder-decoder generates ISO dates id by id, with greedy or beam search.
"""

import keras
import numpy as np

from experiments.date_translation.settings import TEST_DATES, VALIDATION_DATES, DateTranslationConfig
from experiments.frame.tables import Table
from keras_seq.data import ArrayBatches
from keras_seq.data.synthetic import dates
from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.generation import beam_search, greedy
from keras_seq.models.families.seq2seq import EncoderDecoder
from keras_seq.ops.compiled import compiled
from keras_seq.tracking import Summaries

EXAMPLE_TEXT = "Sat 3rd of Sept. 1994"  # the date whose cross-attention is plotted
SAMPLE_SIZE = 20


def draw_splits(settings: DateTranslationConfig) -> tuple[list, list, dict[str, list]]:
    """Draw training pairs, validation pairs and the test pairs of each format; no date is in two of the three sets."""
    test_dates, validation_dates, train_dates = dates.split_dates(TEST_DATES, VALIDATION_DATES, settings.training_dates)
    return (
        dates.draw_pairs(train_dates, dates.FORMATS, settings.pairs, seed=1),
        dates.draw_pairs(validation_dates, dates.FORMATS, settings.validation_pairs, seed=2),
        {
            name: dates.draw_pairs(test_dates, (name,), settings.test_pairs, seed=3 + n)
            for n, name in enumerate((*dates.FORMATS, *dates.HELD_OUT_FORMATS))
        },
    )


def model_inputs(pairs: list) -> tuple[dict, np.ndarray]:
    """Encode pairs as the model's inputs, ids `[B, S]` and `[B, T]`, and the target ids `[B, T]`."""
    decoder_ids, targets = dates.target_ids([pair.iso for pair in pairs])
    source_ids = dates.source_ids([pair.text for pair in pairs])
    return {"encoder_token_ids": source_ids, "decoder_token_ids": decoder_ids}, targets


class Translator:
    """Translate written dates into ISO dates; the model is compiled once for each batch size."""

    def __init__(self, model: EncoderDecoder):
        self.model = model
        self._start = compiled(lambda source: model.get_initial_state(source, dates.TARGET_LENGTH), model)
        self._step = compiled(model.step, model)

    def __call__(self, texts: list[str], num_beams: int = 1) -> list[str]:
        """Return what the model generates for each text, an ISO date if it is right; one beam is greedy search."""
        state, start_ids = self._start(dates.source_ids(texts)), [dates.START] * len(texts)
        arguments = (self._step, state, start_ids, dates.TARGET_LENGTH, dates.END)
        ids = greedy(*arguments)[0] if num_beams == 1 else beam_search(*arguments, num_beams=num_beams)[0][:, 0]
        return [dates.decode_ids(row) for row in ids]

    def cross_attention(self, text: str = EXAMPLE_TEXT) -> tuple[str, np.ndarray]:
        """Translate a text of S characters; return the T characters and their attention to it, `[blocks, H, T, S]`.

        The last of the T rows belongs to the end token, if it was generated.
        """
        (translation,) = self([text])
        ids = [dates.END + 1 + dates.ALPHABET.index(c) for c in translation if c in dates.ALPHABET]
        decoder_ids = np.array([[dates.START, *ids][: dates.TARGET_LENGTH]])
        inputs = {"encoder_token_ids": dates.source_ids([text]), "decoder_token_ids": decoder_ids}
        weights = np.concatenate([*map(keras.ops.convert_to_numpy, self.model.cross_attention(inputs))])
        return translation, weights[..., : len(text)]


class DatesTask:
    """Date translation for one model (`experiments.frame.tasks.Task`)."""

    def __init__(self, model: EncoderDecoder, settings: DateTranslationConfig):
        self.model, self.translate, self.num_beams = model, Translator(model), settings.num_beams
        train_pairs, self.validation_pairs, self.test_pairs = draw_splits(settings)
        self.dataset = ArrayBatches(model_inputs(train_pairs), settings.batch_size, settings.seed).dataset
        self.tokens_per_step = settings.batch_size * dates.TARGET_LENGTH
        self.loss = TokenCrossEntropy(label_smoothing=settings.label_smoothing, ignore_class=dates.PADDING)
        inputs, targets = model_inputs(self.validation_pairs)
        unsmoothed = TokenCrossEntropy(ignore_class=dates.PADDING)
        self.val_loss = compiled(lambda: unsmoothed(targets, model(inputs, training=False)), model)

    def validate(self) -> Summaries:
        """Compute the loss without label smoothing, and the exact match of greedy search, of the validation pairs."""
        translations = self.translate([pair.text for pair in self.validation_pairs])
        pairs = [*zip(self.validation_pairs, translations, strict=True)]
        lines = [[pair.text, iso, "yes" if iso == pair.iso else pair.iso] for pair, iso in pairs[:SAMPLE_SIZE]]
        exact_match = float(np.mean([iso == pair.iso for pair, iso in pairs]))
        sample = str(Table(["text", "translation", "correct"], lines))
        return Summaries({"val_loss": float(self.val_loss()), "exact_match": exact_match}, {"sample": sample})

    def test(self) -> dict:
        """Compute the exact match of greedy and beam search for each format, and list the mistakes of greedy search."""
        groups, mistakes = [], []
        for name, pairs in self.test_pairs.items():
            texts, isos = [pair.text for pair in pairs], np.array([pair.iso for pair in pairs])
            by_search = {"greedy": self.translate(texts), "beam": self.translate(texts, self.num_beams)}
            scores = {search: float(np.mean(isos == written)) for search, written in by_search.items()}
            is_trained = name in dates.FORMATS
            groups.append({"group": name, "trained": is_trained, "examples": len(texts), "example": texts[0], **scores})
            rows = zip(texts, isos.tolist(), *by_search.values(), strict=True)
            rows = [dict(zip(("text", "iso", "greedy", "beam"), row, strict=True)) for row in rows]
            mistakes += [row for row in rows if row["greedy"] != row["iso"]]
        return {"num_beams": self.num_beams, "groups": groups, "mistakes": mistakes}
