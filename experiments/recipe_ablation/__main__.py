"""Why did the legacy char-RNN end at a high loss? An ablation from its recipe to the new one, one change at a time.

    python -m experiments.recipe_ablation                                     # Python's docstrings, offline
    python -m experiments.recipe_ablation --corpus shakespeare                # the text of the legacy loss curve
    python -m experiments.recipe_ablation --corpus shakespeare --full-size optimizer stateful-windows
    python -m experiments.recipe_ablation --changes more-steps optimizer whitespace       # other order, fewer changes
    python -m experiments.recipe_ablation --smoke                             # tiny sizes, takes seconds

Time: 22 minutes on 2 cores.

The legacy recipe is trained once unchanged; then one change after the other is applied, at 128 units, with the same
number of characters. The improvements add up to the total exactly.

Expected on tiny Shakespeare: from 2.597 to 1.609 nats per original character. docs/recipe_ablation.md has each change.
"""

import dataclasses
import functools
import pathlib

from experiments.frame.experiment import experiment_main, run_all, run_config
from experiments.frame.report import Report
from experiments.frame.texts import SplitCorpus
from experiments.recipe_ablation.data import batches, windows, without_whitespace
from experiments.recipe_ablation.report import recipe_ablation_report
from experiments.recipe_ablation.settings import SMOKE, RecipeAblationConfig, RecipeConfig
from keras_seq import training
from keras_seq.evaluation import Evaluator
from keras_seq.models import LSTMConfig
from keras_seq.tracking import Summaries


def train_one(
    run: pathlib.Path, config: RecipeAblationConfig, recipe: RecipeConfig, data: SplitCorpus, char_ratio: float
) -> dict:
    """Train one recipe; `char_ratio` is the length of the validation text relative to the original one."""
    train, length = config.train_config(recipe), recipe.sequence_length
    lstm = LSTMConfig(recipe.embedding_dim, recipe.units, recurrent_initializer=recipe.recurrent_initializer)
    model = lstm.build_model(data.tokenizer.vocabulary_size, dtype=train.dtype_policy)
    evaluator = Evaluator(model)

    def validate(sample):
        loss = evaluator.chunked_loss(data.validation, length, sample).mean
        return Summaries({"val_loss": loss, "val_loss_per_original_character": loss * char_ratio})

    def finish(summaries):
        return {"val_loss_streaming": evaluator.streaming_loss(data.validation).mean, "char_ratio": char_ratio}

    recipe_config = {"recipe": dataclasses.asdict(recipe), "seed": config.seed}
    return training.train_model(
        run,
        model,
        batches(recipe, data.train, config.seed),
        recipe.batch_size * length,
        recipe.num_steps,
        train,
        config=run_config(config, "lstm", lstm, train, model, data.corpus, **recipe_config),
        training_model=training.stateful_training_model(model, recipe.batch_size, length),
        tokenizer=data.tokenizer,
        finish=finish,
        **training.sampled_validation(validate, data.validation, length, train),
    )


def train_recipes(config: RecipeAblationConfig, folder: pathlib.Path) -> Report:
    """Train all recipes that are not finished in `folder`, and report what each change is worth."""
    legacy, min_length = config.legacy, config.legacy.sequence_length + 1
    original = SplitCorpus(config.corpus, folder, min_length)
    variants = {True: original, False: without_whitespace(original, min_length)}
    for recipe in config.recipes.values():
        windows(recipe, variants[recipe.keep_whitespace].train, config.seed)
    characters = legacy.num_steps * legacy.batch_size * legacy.sequence_length
    original.introduce(legacy.train, min_length, f"{len(config.recipes)} runs of {characters:,} characters")
    runs = []
    for name, recipe in config.recipes.items():
        data = variants[recipe.keep_whitespace]
        char_ratio = len(data.validation) / len(original.validation)
        train = functools.partial(train_one, folder / name, config, recipe, data, char_ratio)
        runs.append((folder / name, config.seed, train))
    rows = [
        {"run": name, "recipe": dataclasses.asdict(recipe), **result}
        for (name, recipe), result in zip(config.recipes.items(), run_all(runs), strict=True)
    ]
    return recipe_ablation_report(folder, original.corpus.name, rows)


main = experiment_main("recipe_ablation", RecipeAblationConfig, SMOKE, train_recipes, __doc__)

if __name__ == "__main__":
    main()
