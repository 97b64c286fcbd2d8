"""The text of `experiments.recipe_ablation` with and without whitespace, and the batches of a recipe.

original  = training | validation                               split once, so both variants share a validation text
stripped  = training | validation, each without spaces and newlines
"""

import copy
import re
from collections.abc import Callable

import tensorflow as tf

from experiments.frame.texts import SplitCorpus
from experiments.recipe_ablation.settings import RecipeConfig
from keras_seq.data import PythonGeneratorWindows, RandomWindows, StatefulWindows
from keras_seq.data.windows import Windows
from keras_seq.tokenizers import CharacterTokenizer

RESET_SEED = 0x5EED  # makes the draws of the reset mask independent of those of the windows


def without_whitespace(data: SplitCorpus, min_length: int) -> SplitCorpus:
    """Return the corpus without spaces and newlines, split at the same place."""
    texts = [re.sub("[ \n]", "", text) for text in (data.train_text, data.validation_text)]
    if (shortest := min(map(len, texts))) < min_length:
        raise ValueError(
            f"A split of the corpus {data.corpus.name!r} has {shortest} characters without its whitespace, fewer than "
            f"the {min_length} of one window: give a longer text or a smaller --legacy.sequence-length."
        )
    stripped = copy.copy(data)
    stripped.train_text, stripped.validation_text = texts
    stripped.tokenizer = CharacterTokenizer.from_text("".join(texts))
    stripped.train, stripped.validation = map(stripped.encode, texts)
    return stripped


def windows(recipe: RecipeConfig, ids, seed: int) -> Windows:
    """Return the training windows of ids `[N]`; stateful ones come from tensors always."""
    sizes = (recipe.batch_size, recipe.sequence_length)
    if recipe.windows == "stateful":
        return StatefulWindows(ids, *sizes, reset_prob=recipe.reset_prob, seed=seed)
    return (RandomWindows if recipe.pipeline == "tensors" else PythonGeneratorWindows)(ids, *sizes, seed=seed)


def batches(recipe: RecipeConfig, ids, seed: int) -> Callable:
    """Return a function `(start_step, stop_step) -> dataset` of `((ids [B, T], reset_mask [B]), targets [B, T])`.

    Stateful windows continue where the carried state ended. Random windows do not, but the state is carried into all
    rows outside `reset_mask` nevertheless, as in the legacy script.
    """
    recipe_windows = windows(recipe, ids, seed)
    if recipe.windows == "stateful":
        return recipe_windows.stateful_dataset

    def with_reset_mask(step, batch):
        draws = tf.random.stateless_uniform([recipe.batch_size], [seed ^ RESET_SEED, step])
        return (batch[0], draws < recipe.reset_prob), batch[1]

    def dataset(start_step, stop_step):
        steps = tf.data.Dataset.range(start_step, stop_step)
        examples = tf.data.Dataset.zip(steps, recipe_windows.dataset(start_step, stop_step)).map(with_reset_mask)
        # a dataset made from a generator has unknown cardinality
        return examples.apply(tf.data.experimental.assert_cardinality(stop_step - start_step))

    return dataset
