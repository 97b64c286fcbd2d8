"""A text without its spaces and capitals, as ids, and the tags that restore them."""

import pathlib

import numpy as np

from experiments.frame.texts import SplitCorpus
from experiments.space_restoration.settings import OVERLAP, SpaceRestorationConfig
from keras_seq.data import ArrayBatches
from keras_seq.data.synthetic.spacing_task import strip_spacing
from keras_seq.tokenizers import CharacterTokenizer


def encode(tokenizer: CharacterTokenizer, characters: str) -> np.ndarray:
    """Encode characters without spaces and capitals as int32 ids `[N]` of at least 1; 0 is padding."""
    return tokenizer.encode(characters) + 1


class SpacingText(SplitCorpus):
    """A corpus whose `train` and `validation` are the ids of its characters without spaces and capitals.

    Its `batches` are of windows of characters with their tags; a corpus too short for one is refused.
    """

    def __init__(self, settings: SpaceRestorationConfig, folder: pathlib.Path):
        def tokenizer(text, train_text):
            return CharacterTokenizer.from_text(strip_spacing(train_text)[0], oov_token="[UNK]")

        super().__init__(settings.corpus, folder, tokenizer=tokenizer)
        length, stride = settings.sequence_length, settings.sequence_length // OVERLAP
        batch = length + (settings.batch_size - 1) * stride
        for split, ids, expected in (("training", self.train, batch), ("validation", self.validation, length)):
            if len(ids) < expected:
                counts = f"has {len(ids)} characters other than white space; expected at least {expected}"
                remedy = "give a longer text, or a smaller --sequence-length or --batch-size"
                raise ValueError(f"--corpus {settings.corpus}: the {split} split {counts}: {remedy}.")
        windows = [
            np.lib.stride_tricks.sliding_window_view(values, length)[::stride]
            for values in (self.train, strip_spacing(self.train_text)[1])
        ]
        self.batches = ArrayBatches(tuple(windows), settings.batch_size, settings.seed)

    @property
    def num_ids(self) -> int:
        """Size of the vocabulary, padding included."""
        return self.tokenizer.vocabulary_size + 1

    def encode(self, text: str) -> np.ndarray:
        """Return the ids of a text without its spaces and capitals, `[N]`."""
        return encode(self.tokenizer, strip_spacing(text)[0])
