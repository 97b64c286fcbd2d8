"""The text of `experiments.recipe_ablation` with and without whitespace, and the batches of a recipe.

original  = training | validation                               split once, so both variants share a validation text
stripped  = training | validation, each without spaces and newlines
"""

import copy
import functools
import re
from collections.abc import Callable

from experiments.frame.texts import SplitCorpus
from experiments.recipe_ablation.settings import RecipeConfig
from keras_seq.data import RandomWindows, StatefulWindows
from keras_seq.data.pipeline import step_dataset
from keras_seq.data.windows import Windows, python_generator_dataset
from keras_seq.random_draws import uniform
from keras_seq.tokenizers import CharacterTokenizer

GENERATOR_SEED = 0x5EED  # makes the generator draw other windows: what that changes is the noise of the ablation


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
    """Return the training windows of ids `[N]`; the random ones of the Python generator are others."""
    sizes = (recipe.batch_size, recipe.sequence_length)
    if recipe.windows == "stateful":
        return StatefulWindows(ids, *sizes, reset_prob=recipe.reset_prob, seed=seed)
    return RandomWindows(ids, *sizes, seed=seed if recipe.pipeline == "tensors" else seed ^ GENERATOR_SEED)


def batches(recipe: RecipeConfig, ids, seed: int) -> Callable:
    """Return a function `(start_step, stop_step) -> dataset` of `((ids [B, T], reset_mask [B]), targets [B, T])`.

    Stateful windows continue where the carried state ended, and come from tensors always. Random windows do not, but
    the state is carried into all rows outside `reset_mask` nevertheless, as in the legacy script.
    """
    recipe_windows = windows(recipe, ids, seed)
    if recipe.windows == "stateful":
        return recipe_windows.stateful_dataset

    def stateful_batch(step):
        ids, targets = recipe_windows.batch(step)
        return (ids, uniform((recipe.batch_size,), seed, step, "reset mask") < recipe.reset_prob), targets

    dataset_fn = step_dataset if recipe.pipeline == "tensors" else python_generator_dataset
    return functools.partial(dataset_fn, stateful_batch)
