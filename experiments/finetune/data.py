"""The text that the base of `experiments.finetune` is trained on."""

from keras_seq.data import load_corpus
from keras_seq.tokenizers.base import Tokenizer


class BaseText:
    """A corpus, its validation text and the ids of its training text `[N]`.

    Args:
        name: Name or path of the corpus.
        tokenizer: The tokenizer of both corpora.
        min_length: Fewest characters of each part.

    Raises:
        ValueError: The corpus cannot be read or is too short.
    """

    def __init__(self, name, tokenizer: Tokenizer, min_length: int):
        self.corpus = load_corpus(name)
        train_text, self.validation_text = self.corpus.split(min_length=min_length)
        self.train = tokenizer.encode(train_text)
