"""Why did the legacy char-RNN end at a high loss? An ablation from its recipe to the new one, one change at a time.

    python -m experiments.recipe_ablation                                     # Python's docstrings, offline
    python -m experiments.recipe_ablation --corpus shakespeare                # the text of the legacy loss curve
    python -m experiments.recipe_ablation --corpus shakespeare --full-size optimizer stateful-windows
    python -m experiments.recipe_ablation --changes more-steps optimizer whitespace       # other order, fewer changes
    python -m experiments.recipe_ablation --pipeline per_character            # the legacy pipeline at its own speed
    python -m experiments.recipe_ablation --smoke                             # tiny sizes, takes seconds

Time: 22 minutes on 2 cores.

The legacy script: 200 "epochs" of one batch each, 50 random windows of 200 characters without whitespace, with the
state carried from each window into the next, which is at another place of the text; LSTM of 1,024 units, Adam at 1e-3.
It is trained once unchanged; then one change after the other is applied, at 128 units, with the same number of
characters. All runs are scored by the same protocol on the same validation text. The cumulative improvements add up to
the total difference exactly.

Expected on tiny Shakespeare, seed 0: from 2.597 to 1.609 nats per original character. Improvements: higher learning
rate 0.504, smaller model 0.313, more steps 0.303, whitespace 0.038, state resets 0.014, stateful windows 0.010; the
schedule raises the loss by 0.209. At full size (twice the time) the individual improvement of Muon is 0.958 and of
stateful windows 0.425. See docs/recipe_ablation.md.
"""

import dataclasses
import pathlib
import time

import keras

from experiments.frame import report
from experiments.frame.runs import check_same_corpus, run_config, start_or_resume
from experiments.frame.startup import exit_with_message
from experiments.recipe_ablation import report as recipe_ablation_report
from experiments.recipe_ablation.conclusion import conclusion
from experiments.recipe_ablation.data import TextVariants, batches, windows
from experiments.recipe_ablation.settings import RecipeAblationConfig, RecipeConfig, smoke_config
from keras_seq import training
from keras_seq.evaluation import Evaluator
from keras_seq.generation import TextGenerator
from keras_seq.models import LSTMConfig
from keras_seq.saving import save_model
from keras_seq.tracking import Summaries
from keras_seq.training.language_model import stateful_training_model
from keras_seq.training.run_folder import load_run


class Validator:
    """Compute `val_loss`, and at the last step `val_loss_streaming` too, per character and per original character.

    Args:
        model: A `LanguageModel`.
        variant: `TextVariant` of the ids.
        ids: Ids to score, `[N]`.
        config: Options of the experiment.
        is_last_step: Function that returns whether the training has ended.
    """

    def __init__(self, model, variant, ids, config: RecipeAblationConfig, is_last_step):
        self.variant, self.ids, self.config, self.is_last_step = variant, ids, config, is_last_step
        self.evaluator = Evaluator(model)

    def __call__(self) -> Summaries:
        ratio = self.variant.char_ratio
        loss = self.evaluator.chunked_loss(self.ids, self.config.sequence_length).mean
        scalars = {"val_loss": loss, "val_loss_per_original_character": loss * ratio}
        if self.is_last_step():
            loss = self.evaluator.streaming_loss(self.ids).mean
            scalars |= {"val_loss_streaming": loss, "val_loss_per_original_character_streaming": loss * ratio}
        return Summaries(scalars)


def train_one(folder: pathlib.Path, config: RecipeAblationConfig, recipe: RecipeConfig, texts: TextVariants) -> dict:
    """Train one recipe, or resume its run.

    Args:
        folder: Run folder.
        config: Options of the experiment.
        recipe: The recipe.
        texts: Both variants of the text.

    Returns:
        The contents of the run's result.json.
    """
    start_time = time.perf_counter()
    keras.backend.clear_session()
    keras.utils.set_random_seed(config.seed)
    variant, train, length = texts.variant(recipe), config.train_for(recipe), config.sequence_length
    model_config = LSTMConfig(
        embedding_dim=config.embedding_dim,
        units=recipe.units,
        recurrent_initializer=recipe.recurrent_initializer,
    )
    model = model_config.build_model(variant.tokenizer.vocabulary_size, dtype=train.dtype_policy)
    training_model = stateful_training_model(model, recipe.batch_size, length)
    training.compile_model(training_model, train, recipe.num_steps, tokens_per_step=recipe.batch_size * length)
    full_validator = validator = Validator(
        *(model, variant, variant.validation, config),
        lambda: int(training_model.optimizer.iterations) >= recipe.num_steps,
    )
    validated_part = train.validated_part(variant.validation, length + 1)
    if len(validated_part) < len(variant.validation):
        validator = Validator(model, variant, validated_part, config, lambda: False)
    resolved_train_config = {**dataclasses.asdict(train), **train.resolved(training_model)}
    saved_config = run_config(
        *(config, "lstm", model_config, resolved_train_config),
        recipe=dataclasses.asdict(recipe),
        run=folder.name,
        seed=config.seed,
        corpus={"name": texts.corpus.name, "sha256": texts.corpus.sha256},
    )
    print(f"\n{folder.name}")
    logger, summaries = training.fit_resumable(
        folder,
        training_model,
        batches(config, recipe, variant),
        recipe.batch_size * length,
        recipe.num_steps,
        train,
        validator,
        saved_config,
        folder.name,
        final_validate_fn=None if validator is full_validator else full_validator,
        final_duration_ratio=len(variant.validation) / len(validated_part),
    )
    save_model(folder / "model.keras", model)
    variant.tokenizer.save(folder / "tokenizer.json")
    result = {
        "parameters": model.count_params(),
        "steps": recipe.num_steps,
        "train_tokens": recipe.num_steps * recipe.batch_size * length,
        "train_seconds": logger.seconds,
        "seconds": time.perf_counter() - start_time,
        "train_loss_per_original_character": logger.loss,
        "char_ratio": variant.char_ratio,
        **summaries.scalars,
    }
    training.write_result(folder, result)
    return result


def sample(run: pathlib.Path, length: int) -> str:
    """Generate text with the model of a finished run.

    Args:
        run: Run folder.
        length: Number of characters to generate.
    """
    model, tokenizer = load_run(run)
    prompt = tokenizer.characters[0]
    return TextGenerator(model, tokenizer)(prompt, length, temperature=0.8)[len(prompt) :]


def train_recipes(config: RecipeAblationConfig, folder: pathlib.Path) -> list[dict]:
    """Train all recipes that are not finished in a folder, and write the report.

    Args:
        config: Options of the experiment.
        folder: Folder of the runs.

    Returns:
        One dict per run, as in recipe_ablation.json.

    Raises:
        ValueError: A recipe cannot be built on this text, or the runs in the folder were trained on another one.
    """
    texts = TextVariants(config)
    check_same_corpus(folder, texts.corpus)
    recipes = config.recipes
    for recipe in recipes.values():  # raises errors before anything is written
        windows(config, recipe, texts.variant(recipe))
    validation = texts.stripped.validation
    print(
        f"{texts.corpus.name}: {len(texts.original.validation):,} validation characters, "
        f"{len(validation):,} without whitespace; {len(recipes)} runs of "
        f"{config.legacy_steps * config.batch_size * config.sequence_length:,} characters"
        f"{report.validation_note(config.train, validation, config.sequence_length + 1)}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, recipe in recipes.items():
        run = folder / name
        result = training.load_result(run) or train_one(run, config, recipe, texts)
        rows.append({"run": name, "recipe": dataclasses.asdict(recipe), **result})
    for row in (rows[0], rows[len(config.cumulative)]):
        row["sample"] = sample(folder / row["run"], config.train.sample_length)
    summary = conclusion(config, texts.corpus.name, rows)
    recipe_ablation_report.write_report(folder, config, texts.corpus.name, rows, summary)
    return rows


@exit_with_message("experiments.recipe_ablation")
def main(arguments=None):
    """Run the command line."""
    with start_or_resume(RecipeAblationConfig, "recipe_ablation", __doc__, arguments, smoke_config) as (config, folder):
        rows = train_recipes(config, folder)
        summary = conclusion(config, config.corpus, rows)
        print(recipe_ablation_report.final_message(folder, config, rows, summary) + report.tensorboard_hint(folder))


if __name__ == "__main__":
    main()
