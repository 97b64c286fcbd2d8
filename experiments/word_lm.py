"""A language model of words, and what it does for over-fitting to cut the text into blocks that overlap.

    python -m experiments.words                                     # Python's help topics, offline
    python -m experiments.words --corpus shakespeare --passes 4 --overlap 2 --train.validate-every 250
    python -m experiments.words --smoke                             # seconds, tiny: does everything work?
    python -m experiments.generate logs/words/20260101-120000/apart-seed0 --prompt "The " --length 60

The same LSTM, optimizer and number of updates, once on blocks that lie side by side and once on blocks of which every
word stands in four; the learning rate stays, so that every point of a curve is the end of a shorter training. 4 to 6
minutes on 2 cores. To expect on pydoc, in perplexity per piece (a word, or what stands between two): the blocks apart
are best after 3 passes, 25.9, and at 79.7 after 8; the overlapping ones after 1 pass, 26.8, and at 48.2 after 2. By
passes, overlapping blocks over-fit much sooner: a pass is four times as many updates. By tokens, both go down together
and end up near each other at their best, and beyond it the overlapping ones over-fit less. With --corpus shakespeare as
above (10 minutes): 20.4 after 2.7 passes and 21.2 after 1.5, and by tokens never more than 8 % apart. One seed each.
"""

import dataclasses
import pathlib
import re
from typing import Annotated

import keras
import tyro

from experiments import words_report
from experiments.corpora import note_copied
from experiments.options import check_options
from experiments.report import validated
from experiments.runs import begin, config, same_corpus
from experiments.startup import one_sentence
from keras_seq import models, training
from keras_seq.data import ShuffledWindows, load_corpus
from keras_seq.tokenizers import WordTokenizer, split_words

KINDS = ("apart", "overlapping")


@dataclasses.dataclass(frozen=True)
class LSTM(models.LSTMConfig):
    """An LSTM language model of words."""

    embedding_dim: int = 128
    """Width of a word's vector."""
    units: int = 256
    """Width of each recurrent layer's output."""
    tie_embeddings: bool = True
    """Whether the embedding matrix, transposed, is the output matrix too; a projection joins the widths if need be."""


@dataclasses.dataclass(frozen=True)
class Train(training.TrainConfig):
    """As everywhere, but for a learning rate that stays: a curve, cut off anywhere, is that of a shorter training."""

    learning_rate: float | None = 0.01
    """The highest one."""
    final_lr_fraction: float = 1.0
    """What is left of the learning rate after its linear decay, at the last step."""
    validate_every: int = 100
    """Steps between two passes over the validation split, each with a sample of text."""
    sample_length: int = 80
    """Words and what stands between them, in a sample of text."""


@dataclasses.dataclass(frozen=True)
class WordModels:
    """Train a language model of words on blocks that lie side by side, and on blocks that overlap."""

    corpus: str = "pydoc"
    """pydoc or docstrings (come with Python), shakespeare (downloaded once, or from the folder KERAS_SEQ_DATA), or a
    UTF-8 file."""
    min_count: int = 3
    """How often a piece has to occur in the training split to be known. With 1, [UNK] is never seen in training."""
    passes: int = 8
    """Passes over the blocks apart. The overlapping ones get as many tokens, so OVERLAP times fewer passes."""
    overlap: int = 4
    """How many overlapping blocks each word stands in."""
    batch_size: int = 16
    """Rows in a batch."""
    length: int = 32
    """Words, and what stands between them, in a block."""
    seed: int = 0
    """Of weights, order and dropout."""
    log_dir: str = "logs"
    """The runs go to LOG_DIR/words/UTC-TIME/."""
    resume: str | None = None
    """A folder LOG_DIR/words/UTC-TIME to go on with; options not given are taken from there."""
    smoke: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Seconds, tiny sizes: shows that everything works, and nothing else."""
    train: Train = dataclasses.field(default_factory=Train)
    lstm: LSTM = dataclasses.field(default_factory=LSTM)

    def __post_init__(self):
        check_options(self, min_count=1, passes=1, batch_size=1, length=1)
        if self.overlap < 2 or self.length % self.overlap:
            raise ValueError(f"--overlap {self.overlap}: expected a divisor of --length {self.length}, 2 or more.")


def tiny(settings: WordModels) -> WordModels:
    """The same at sizes that take seconds."""
    return dataclasses.replace(
        settings,
        min_count=20,
        passes=1,
        overlap=2,
        batch_size=512,
        length=8,
        train=dataclasses.replace(
            settings.train, warmup_steps=4, log_every=7, validate_every=14, checkpoint_every=14, sample_length=20
        ),
        lstm=LSTM(embedding_dim=16, units=24),
    )


def blocks(settings: WordModels, kind, ids) -> ShuffledWindows:
    """The training batches of one run."""
    stride = settings.length // (settings.overlap if kind == "overlapping" else 1)
    return ShuffledWindows(ids, settings.batch_size, settings.length, stride, settings.seed)


def train_one(folder, settings: WordModels, kind, steps, corpus, words, ids, validation_text):
    """One run. Returns what result.json says."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(settings.seed)
    model = settings.lstm.build_model(words.vocabulary_size, dtype=settings.train.dtype_policy)
    train = {**dataclasses.asdict(settings.train), **settings.train.resolved(model)}
    of_corpus = {"name": corpus.name, "sha256": corpus.sha256}
    windows = blocks(settings, kind, ids)
    print(f"\n{folder.name}, {windows.steps_per_epoch:,} steps a pass")
    return training.train_language_model(
        folder,
        model,
        words,
        windows,
        validation_text,
        steps,
        settings.train,
        config(settings, "lstm", settings.lstm, train, blocks=kind, seed=settings.seed, corpus=of_corpus),
        folder.name,
    )


def compare(settings: WordModels, folder: pathlib.Path):
    """Trains all that is not yet trained in `folder`, then writes the comparison. Returns its rows and its notes."""
    corpus = load_corpus(settings.corpus)
    same_corpus(folder, corpus)
    train_text, validation_text = corpus.split()
    words = WordTokenizer.from_text(train_text, min_count=settings.min_count)
    ids, held_out = words.encode(train_text).numpy(), words.encode(validation_text).numpy()
    # What makes no batches, or no score, is an error now, before anything is written.
    per_pass = {kind: blocks(settings, kind, ids).steps_per_epoch for kind in KINDS}
    num_words = sum(re.match(r"\w", piece) is not None for piece in split_words(validation_text))
    if len(held_out) <= settings.length or not num_words:
        raise ValueError(
            f"The validation split has {len(held_out)} pieces, {num_words} of them words: give a longer text."
        )
    about = {
        "corpus": corpus.name,
        "training_pieces": len(ids),
        "validation_pieces": len(held_out),
        "vocabulary": words.vocabulary_size,
        "unknown_in_training": float((ids == 0).mean()),
        "unknown_in_validation": float((held_out == 0).mean()),
        "pieces_per_word": len(held_out) / num_words,
    }
    print(f"{words_report.about(about)}{validated(settings.train, validation_text, settings.length + 1)}")
    note_copied(train_text, validation_text)
    steps = settings.passes * per_pass["apart"]
    rows = []
    for kind in KINDS:
        run = folder / f"{kind}-seed{settings.seed}"
        result = training.load_result(run) or train_one(run, settings, kind, steps, corpus, words, ids, validation_text)
        rows.append({"blocks": kind, "run": run.name, "steps_per_pass": per_pass[kind], **result})
    rows = [words_report.followed(folder, row, about) for row in rows]
    words_report.write(folder, about, rows)
    return about, rows


@one_sentence("experiments.words")
def main(arguments=None):
    """The command line."""
    with begin(WordModels, "words", __doc__, arguments, tiny) as (settings, folder):
        print(words_report.closing(folder, *compare(settings, folder)))


if __name__ == "__main__":
    main()
