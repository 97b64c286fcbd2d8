"""Load the text of `experiments.recipe_ablation` with and without whitespace, and make the batches of a recipe.

    original  = training | validation                               split once, so both variants share a validation text
    stripped  = strip_whitespace(training) | strip_whitespace(validation)

The per-character pipeline is the legacy one: it looks up every character of every window separately and eagerly.
"""

import dataclasses

import tensorflow as tf

from experiments.frame.corpora import print_overlap_note
from experiments.recipe_ablation.settings import RecipeAblationConfig, RecipeConfig
from keras_seq.data import PythonGeneratorWindows, RandomWindows, StatefulWindows, Windows, load_corpus
from keras_seq.tokenizers import CharacterTokenizer

SMOKE_CHARACTERS = 60_000  # length of the text in a smoke run
RESET_SEED = 0x5EED  # makes the draws of the reset mask independent of those of the windows


def strip_whitespace(text: str) -> str:
    """Remove spaces and newlines, like `load_corpus(..., strip_whitespace=True)`."""
    return text.replace(" ", "").replace("\n", "")


class TextVariant:
    """Training and validation ids of one variant of the text.

    Args:
        train: Training split, a text.
        validation: Validation split, a text.
        original_characters: Number of characters of the validation split with its whitespace.
    """

    def __init__(self, train: str, validation: str, original_characters: int):
        self.tokenizer = CharacterTokenizer.from_text(train + validation)
        self.train = self.tokenizer.encode(train).numpy()
        self.validation = self.tokenizer.encode(validation).numpy()
        # the loss per character of this variant times this is the loss per character of the original text
        self.char_ratio = len(validation) / original_characters


class TextVariants:
    """Corpus that is split once, as its `original` and its `stripped` variant.

    Args:
        config: Options of the experiment.

    Raises:
        ValueError: A split without whitespace is shorter than one window.
    """

    def __init__(self, config: RecipeAblationConfig):
        self.corpus = load_corpus(config.corpus)
        if config.smoke:
            self.corpus = dataclasses.replace(self.corpus, text=self.corpus.text[:SMOKE_CHARACTERS])
        train, validation = self.corpus.split(min_length=config.sequence_length + 1)
        print_overlap_note(train, validation)
        self.original = TextVariant(train, validation, len(validation))
        for split in (strip_whitespace(train), strip_whitespace(validation)):
            if len(split) <= config.sequence_length:
                raise ValueError(
                    f"A split of the corpus {config.corpus!r} has {len(split)} characters without its whitespace, "
                    f"fewer than the {config.sequence_length + 1} of one window: give a longer text or a smaller "
                    "--sequence-length."
                )
        self.stripped = TextVariant(strip_whitespace(train), strip_whitespace(validation), len(validation))

    def variant(self, recipe: RecipeConfig) -> TextVariant:
        """Return the variant that a recipe is trained on."""
        return self.original if recipe.keep_whitespace else self.stripped


@dataclasses.dataclass(frozen=True, eq=False)
class PerCharacterWindows(PythonGeneratorWindows):
    """`PythonGeneratorWindows` that hold a text and look up each character separately whenever it is read.

    Args:
        ids: Ids of the text, `[N]`. The draws, and so the batches, are those of `PythonGeneratorWindows`.
        batch_size: Number of windows B in a batch.
        sequence_length: Sequence length T, in characters.
        seed: Random seed of the windows.
        tokenizer: `CharacterTokenizer` of the ids.
    """

    tokenizer: CharacterTokenizer = None

    def dataset(self, start_step=0, stop_step=None) -> tf.data.Dataset:
        """Return the batches of the steps from `start_step` up to, but not including, `stop_step`.

        Args:
            start_step: First step.
            stop_step: Step after the last one.
        """
        code_points = tf.constant([ord(c) for c in self.tokenizer.decode(self.ids)], tf.int32)
        table = self.tokenizer.tables[0]

        def examples():
            for step in range(start_step, stop_step):
                for start in self.starts(step):
                    window = code_points[start : start + self.sequence_length + 1]
                    ids = tf.map_fn(table.lookup, window)
                    yield ids[:-1], ids[1:]

        row = tf.TensorSpec([self.sequence_length], tf.int32)
        return tf.data.Dataset.from_generator(examples, output_signature=(row, row)).batch(self.batch_size)


def windows(config: RecipeAblationConfig, recipe: RecipeConfig, variant: TextVariant) -> Windows:
    """Return the training windows of a recipe; stateful windows use the tensor pipeline always.

    Args:
        config: Options of the experiment.
        recipe: The recipe.
        variant: Variant of the text that the recipe is trained on.
    """
    sizes = {"batch_size": recipe.batch_size, "sequence_length": config.sequence_length, "seed": config.seed}
    if recipe.windows == "stateful":
        return StatefulWindows(variant.train, reset_prob=recipe.reset_prob, **sizes)
    if recipe.pipeline == "per_character":
        return PerCharacterWindows(variant.train, tokenizer=variant.tokenizer, **sizes)
    windows_class = RandomWindows if recipe.pipeline == "tensors" else PythonGeneratorWindows
    return windows_class(variant.train, **sizes)


def batches(config: RecipeAblationConfig, recipe: RecipeConfig, variant: TextVariant):
    """Return a function `(start_step, stop_step) -> dataset` of `((ids [B, T], reset_mask [B]), targets [B, T])`.

    Stateful windows continue where the carried state ended. Random windows do not, but the state is carried into all
    rows outside `reset_mask` nevertheless, as in the legacy script.

    Args:
        config: Options of the experiment.
        recipe: The recipe.
        variant: Variant of the text that the recipe is trained on.
    """
    recipe_windows = windows(config, recipe, variant)
    if recipe.windows == "stateful":
        return recipe_windows.stateful_dataset

    def reset_mask(step):
        seed = tf.stack([tf.constant(config.seed ^ RESET_SEED, tf.int64), step])
        return tf.random.stateless_uniform([recipe.batch_size], seed) < recipe.reset_prob

    def dataset(start_step, stop_step):
        masks = tf.data.Dataset.range(start_step, stop_step).map(reset_mask)
        pairs = tf.data.Dataset.zip(recipe_windows.dataset(start_step, stop_step), masks)
        examples = pairs.map(lambda xy, mask: ((xy[0], mask), xy[1]))
        # a dataset made from a generator has unknown cardinality
        return examples.apply(tf.data.experimental.assert_cardinality(stop_step - start_step))

    return dataset
