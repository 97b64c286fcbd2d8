"""The text of `experiments.epoch_loss`, with its spaces and without, and the batches of a recipe.

    original  = training | validation              cut once, so that both forms have the same text to validate on
    squeezed  = squeezed(training) | squeezed(validation)

The per-character pipeline is the old one: for every row, every character of a window is looked up by itself, eagerly.
"""

import dataclasses

import tensorflow as tf

from experiments.corpora import note_copied
from experiments.epoch_loss_settings import EpochLoss, Recipe
from keras_seq.data import PythonGeneratorWindows, RandomWindows, StatefulWindows, Windows, load_corpus
from keras_seq.tokenizers import CharacterTokenizer

SMOKE = 60_000  # characters of the text are enough to see that everything works
FRESH = 0x5EED  # rows start anew by other draws than those of where they start


def squeezed(string: str) -> str:
    """The text without spaces and newlines, as `load_corpus(..., strip_whitespace=True)` has it."""
    return string.replace(" ", "").replace("\n", "")


class Form:
    """The text in one of its two forms.

    Args:
        train: the training split, a text.
        validation: the validation split.
        original_characters: how many characters the validation split has with its spaces.
    """

    def __init__(self, train: str, validation: str, original_characters: int):
        self.vocabulary = CharacterTokenizer.from_text(train + validation)
        self.train = self.vocabulary.encode(train).numpy()
        self.validation = self.vocabulary.encode(validation).numpy()
        # nats per character of this form times this are nats per character of the original text
        self.share = len(validation) / original_characters


class Data:
    """A corpus, cut once, in both forms."""

    def __init__(self, settings: EpochLoss):
        self.corpus = load_corpus(settings.corpus)
        if settings.smoke:
            self.corpus = dataclasses.replace(self.corpus, text=self.corpus.text[:SMOKE])
        train, validation = self.corpus.split(min_length=settings.length + 1)
        note_copied(train, validation)
        self.original = Form(train, validation, len(validation))
        for part in (squeezed(train), squeezed(validation)):
            if len(part) <= settings.length:
                raise ValueError(
                    f"The corpus {settings.corpus!r} has {len(part)} characters on one side of its split without its "
                    f"spaces, fewer than the {settings.length + 1} of one window: give a longer text or a smaller "
                    "--length."
                )
        self.squeezed = Form(squeezed(train), squeezed(validation), len(validation))

    def form(self, recipe: Recipe) -> Form:
        """That which the recipe reads."""
        return self.original if recipe.spaces else self.squeezed


@dataclasses.dataclass(frozen=True, eq=False)
class PerCharacterWindows(PythonGeneratorWindows):
    """`GeneratorWindows` that hold a text and look up its characters one by one, every time they are read.

    Args:
        ids, batch_size, length, seed: as `GeneratorWindows` has them; the draws are the same, and so the batches.
        vocabulary: the `Vocabulary` of the ids.
    """

    vocabulary: CharacterTokenizer = None

    def dataset(self, first=0, last=None) -> tf.data.Dataset:
        """The batches `at(first)`, ..., `at(last - 1)`, in this order."""
        points = tf.constant([ord(c) for c in self.vocabulary.decode(self.ids)], tf.int32)
        table = self.vocabulary.tables[0]

        def examples():
            for step in range(first, last):
                for start in self.starts(step):
                    window = points[start : start + self.length + 1]
                    ids = tf.map_fn(table.lookup, window)
                    yield ids[:-1], ids[1:]

        row = tf.TensorSpec([self.length], tf.int32)
        return tf.data.Dataset.from_generator(examples, output_signature=(row, row)).batch(self.batch_size)


def windows(settings: EpochLoss, recipe: Recipe, form: Form) -> Windows:
    """What the recipe reads; lanes are tensors whatever the pipeline."""
    sizes = {"batch_size": recipe.batch_size, "length": settings.length, "seed": settings.seed}
    if recipe.windows == "lanes":
        return StatefulWindows(form.train, reset_prob=recipe.restart, **sizes)
    if recipe.pipeline == "per_character":
        return PerCharacterWindows(form.train, vocabulary=form.vocabulary, **sizes)
    kind = RandomWindows if recipe.pipeline == "tensors" else PythonGeneratorWindows
    return kind(form.train, **sizes)


def batches(settings: EpochLoss, recipe: Recipe, form: Form):
    """A function of two steps that gives the batches between, `((ids [B, T], fresh [B]), targets [B, T])`.

    Lanes go on where the carried state ended; random windows do not, and still the state is carried into all rows but
    the `fresh` ones: that is what the old script did.
    """
    chosen = windows(settings, recipe, form)
    if recipe.windows == "lanes":
        return chosen.stateful_dataset

    def reset_mask(step):
        seed = tf.stack([tf.constant(settings.seed ^ FRESH, tf.int64), step])
        return tf.random.stateless_uniform([recipe.batch_size], seed) < recipe.restart

    def between(first, last):
        rows = tf.data.Dataset.range(first, last).map(reset_mask)
        both = tf.data.Dataset.zip(chosen.dataset(first, last), rows).map(lambda xy, rows: ((xy[0], rows), xy[1]))
        return both.apply(tf.data.experimental.assert_cardinality(last - first))  # a generator does not tell its own

    return between
