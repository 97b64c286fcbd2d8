"""The text of a training, its windows, and where they are scored; for Keras and for PyTorch alike.

nanoGPT's character run is config/train_shakespeare_char.py (Karpathy, 2022, MIT license, github.com/karpathy/nanoGPT):
10.65 million parameters, 5,000 steps of 64 x 256 characters, dropout 0.2, AdamW at 1e-3. Its estimate of the validation
loss is the mean over 200 batches of random windows; here these are drawn once, the same for both sides.
"""

import functools

from experiments.benchmark.cases import Case
from keras_seq.data import RandomWindows, StatefulWindows, load_corpus
from keras_seq.tokenizers import CharacterTokenizer

STEPS = 2000  # at which the learning rate of as_run would end
LEARNING_RATE, EVALUATION_BATCHES = 1e-3, 200  # nanoGPT's
LOSS = 1.46  # what the best validation should reach, in nats


def warmup_steps(total_steps: int) -> int:
    """Return the steps of the warm-up: nanoGPT's 100, or fewer in a run that is not its."""
    return min(100, total_steps // 2)


class Text:
    """Windows of a case's corpus, whose last tenth is for validation; an LSTM's rows continue from batch to batch."""

    def __init__(self, case: Case):
        corpus, self.case = load_corpus(case.corpus), case
        tokenizer = CharacterTokenizer.from_text(corpus.text)
        self.vocabulary_size = tokenizer.vocabulary_size
        train, self._validation = map(tokenizer.encode, corpus.split(min_length=case.sequence_length + 1))
        sizes = case.batch_size, case.sequence_length
        self.random_windows = RandomWindows(train, *sizes, seed=0)
        self.windows = StatefulWindows(train, *sizes, seed=0) if case.model == "lstm" else self.random_windows

    @functools.cached_property
    def validation_windows(self):
        """Return the windows `(x, y)` to score, int32 `[N, T]`."""
        rows = EVALUATION_BATCHES * self.case.batch_size
        return RandomWindows(self._validation, rows, self.case.sequence_length, seed=1).batch(0)
