import dataclasses
import itertools
import json
import random

import keras
import matplotlib.pyplot as plt
import numpy as np
import pytest
import tensorflow as tf

from experiments import recipe_ablation as study
from experiments.recipe_ablation import CHANGES, SMOKE, RecipeAblationConfig, batches, windows, without_whitespace
from keras_seq import training
from keras_seq.commands.options import replaced
from keras_seq.data import load_corpus
from keras_seq.models import LSTMConfig
from keras_seq.runs.folders import dataclass_from_dict
from keras_seq.runs.texts import SplitCorpus
from keras_seq.training.run_config import diff, leaf_name

CONFIG = RecipeAblationConfig()
LEGACY = replaced(CONFIG, {"legacy": SMOKE["legacy"]}).legacy
NAMES = ["00-legacy", "01-size", *(f"{n:02d}-{change}" for n, change in enumerate(CHANGES, 2))]
OWN_FIELDS = {
    **{"size": {"units"}, "pipeline": {"pipeline"}, "stateful-windows": {"windows"}, "state-resets": {"reset_prob"}},
    **{"initializer": {"recurrent_initializer"}, "clipping": {"global_clipnorm"}, "learning-rate": {"learning_rate"}},
    **{"schedule": {"warmup_steps", "final_lr_fraction"}, "optimizer": {"optimizer", "learning_rate"}},
    **{"more-steps": {"batch_size", "num_steps"}, "whitespace": {"keep_whitespace"}},
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """The text as it is, and without its whitespace."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "text").write_text(load_corpus("pydoc").text[:60_000], encoding="utf-8")
    original = SplitCorpus(folder / "text", folder, LEGACY.sequence_length + 1)
    return original, without_whitespace(original, LEGACY.sequence_length + 1)


def some_rows(config, seed=0):
    """Rows with random losses."""
    draw = random.Random(seed)
    keys = ("train_loss", "val_loss", "val_loss_streaming", "val_loss_per_original_character")
    return [
        {"run": name, "recipe": dataclasses.asdict(recipe), "char_ratio": 0.8, **{k: draw.uniform(1, 4) for k in keys}}
        for name, recipe in config.recipes.items()
    ]


def differing(one, other):
    return {leaf_name(name) for name in diff(dataclasses.asdict(one), dataclasses.asdict(other))}


def take(batch):
    (ids, reset_mask), targets = batch
    return ids.numpy(), reset_mask.numpy(), targets.numpy()


# The recipes


def test_a_change_sets_its_own_fields_and_no_other():
    recipes = dataclasses.replace(CONFIG, individual=tuple(CHANGES), full_size=tuple(CHANGES)).recipes
    assert [*recipes][: len(NAMES)] == NAMES
    for before, after in itertools.pairwise(NAMES):
        assert differing(recipes[before], recipes[after]) == OWN_FIELDS[after[3:]]
    for change in CHANGES:
        assert differing(recipes["01-size"], recipes[f"individual-{change}"]) == OWN_FIELDS[change]
        assert differing(recipes["00-legacy"], recipes[f"full-size-{change}"]) == OWN_FIELDS[change]


def test_every_recipe_is_trained_on_as_many_characters():
    assert {recipe.batch_size * recipe.num_steps for recipe in CONFIG.recipes.values()} == {50 * 200}


def test_smaller_steps_are_logged_and_validated_after_as_many_characters():
    last = CONFIG.recipes["10-more-steps"]
    legacy, new = CONFIG.train_config(CONFIG.legacy), CONFIG.train_config(last)
    for name in ("log_every", "validate_every", "checkpoint_every"):
        assert getattr(legacy, name) * CONFIG.legacy.batch_size == getattr(new, name) * last.batch_size
    assert (legacy.warmup_steps, new.warmup_steps) == (0, 0.05 * last.num_steps)


def test_the_new_recipe_trains_by_the_defaults_of_the_library():
    new, default = CONFIG.recipes[NAMES[-1]].train, training.TrainConfig()
    for name in ("optimizer", "learning_rate", "final_lr_fraction", "global_clipnorm", "adam_lr_ratio", "precision"):
        assert getattr(new, name) == getattr(default, name)


@pytest.mark.parametrize("change", [{}, pytest.param({"reset_prob": 1.0}, marks=pytest.mark.rare)])
def test_the_legacy_recipe_is_a_stateful_lstm_of_keras_under_a_plain_adam(texts, change):
    """Another implementation, on the same batches from the same weights, takes the same steps; a changed one others."""
    recipe, data = dataclasses.replace(LEGACY, **change), texts[1]
    size, length = data.tokenizer.vocabulary_size, recipe.sequence_length
    model = LSTMConfig(
        recipe.embedding_dim, recipe.units, recurrent_initializer=recipe.recurrent_initializer
    ).build_model(size)
    layers = keras.layers
    oracle = keras.Sequential(
        [
            layers.Input(batch_shape=(recipe.batch_size, length), dtype="int32"),
            layers.Embedding(size, recipe.embedding_dim),
            layers.LSTM(recipe.units, return_sequences=True, stateful=True, unroll=True),
            layers.Dense(size),
        ]
    )
    oracle.set_weights(model.get_weights())
    loss, adam = keras.losses.SparseCategoricalCrossentropy(from_logits=True), keras.optimizers.Adam(1e-3)

    @tf.function
    def oracle_step(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, oracle(x, training=True))
        gradients = tape.gradient(value, [v.value for v in oracle.trainable_variables])
        # dense: of a sparse gradient Keras's Adam squares the parts of a row before they are added up
        adam.apply([tf.convert_to_tensor(g) for g in gradients], oracle.trainable_variables)
        return value

    adam.build(oracle.trainable_variables)
    training_model = training.stateful_training_model(model, recipe.batch_size, length)
    training.compile_model(training_model, CONFIG.train_config(CONFIG.legacy), recipe.num_steps)
    losses = []
    for (ids, reset_mask), targets in batches(recipe, data.train, seed=0)(0, 6):
        losses.append((training_model.train_on_batch((ids, reset_mask), targets), float(oracle_step(ids, targets))))
        training_model.reset_metrics()
    trained, expected = np.transpose(losses)
    assert np.allclose(trained, expected, rtol=1e-5) == (not change)
    pairs = zip(model.get_weights(), oracle.get_weights(), strict=True)
    assert all(np.allclose(weight, other, atol=1e-5) for weight, other in pairs) == (not change)


# The text and its batches


@pytest.mark.parametrize("string", ["a b\nc  d\n", "né\tù \n  \n"])
def test_whitespace_is_stripped_as_by_load_corpus(tmp_path, string):
    (tmp_path / "text").write_text(20 * string, encoding="utf-8")
    stripped = without_whitespace(SplitCorpus(tmp_path / "text", tmp_path), 2)
    assert stripped.train_text + stripped.validation_text == load_corpus(tmp_path / "text", strip_whitespace=True).text


def test_both_variants_have_the_same_validation_text(texts):
    original, stripped = (variant.tokenizer.decode(variant.validation) for variant in texts)
    assert stripped == original.replace(" ", "").replace("\n", "")
    assert texts[0].tokenizer.decode(texts[0].train) + original == texts[0].corpus.text
    assert texts[1].tokenizer.decode(texts[1].train) == texts[1].train_text


@pytest.mark.parametrize("pipeline", ["generator", "tensors"])
def test_batches_of_random_windows_are_a_function_of_the_step(texts, pipeline):
    recipe, data = dataclasses.replace(LEGACY, pipeline=pipeline, reset_prob=0.5), texts[1]
    dataset = batches(recipe, data.train, seed=0)
    whole, rest = (list(map(take, dataset(start, 9))) for start in (0, 4))
    for one, other in zip(whole[4:], rest, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    for ids, _, targets in whole:
        np.testing.assert_array_equal(ids[:, 1:], targets[:, :-1])
        assert all(data.tokenizer.decode(row) in data.train_text for row in ids)
    assert len({ids.tobytes() for ids, _, _ in whole}) == 9


def test_rows_start_from_the_zero_state_with_reset_prob(texts):
    legacy, ids = dataclasses.replace(LEGACY, batch_size=50, sequence_length=5, pipeline="tensors"), texts[1].train
    for reset_prob, low, high in ((0.0, 0, 0), (0.25, 0.2, 0.3), (1.0, 1, 1)):
        recipe = dataclasses.replace(legacy, reset_prob=reset_prob)
        reset_mask = np.stack([take(batch)[1] for batch in batches(recipe, ids, seed=0)(0, 20)])
        assert low <= reset_mask.mean() <= high
    # the reset mask and the starts of the rows are independent, though both are drawn from one seed and step
    recipe = dataclasses.replace(legacy, reset_prob=0.5)
    reset_mask = np.stack([take(batch)[1] for batch in batches(recipe, ids, seed=0)(0, 200)]).ravel()
    starts = np.concatenate([windows(recipe, ids, seed=0).starts(step) for step in range(200)])
    assert abs(np.corrcoef(reset_mask, starts)[0, 1]) < 0.04  # 4 standard deviations of 10,000 draws


def test_stateful_windows_continue_where_they_ended(texts):
    recipe = dataclasses.replace(LEGACY, windows="stateful")
    first, second = map(take, batches(recipe, texts[1].train, seed=0)(0, 2))
    np.testing.assert_array_equal(first[2][:, -1], second[0][:, 0])
    assert first[1].all()
    assert not second[1].any()


# The findings


@pytest.mark.parametrize("seed", range(20))
def test_the_cumulative_improvements_add_up_to_the_total_exactly_with_their_digits(seed):
    rows = some_rows(dataclasses.replace(CONFIG, full_size=("stateful-windows",)), seed)
    table = study.cumulative_table(rows, 200)
    *lines, total = (
        dict(zip(table.header, [cell.replace(".", "") for cell in row], strict=True)) for row in table.rows
    )
    assert [line["change"] for line in lines] == [name[3:] for name in NAMES]
    improvements = [int(line["improvement"]) for line in lines[1:]]
    losses = [int(line["val_loss per original char"]) for line in lines]
    assert [before - after for before, after in itertools.pairwise(losses)] == improvements
    assert lines[0]["improvement"] == ""
    assert sum(improvements) == int(total["improvement"]) == losses[0] - losses[-1]


def test_individual_improvements_are_relative_to_the_legacy_recipe_of_the_same_size():
    config = dataclasses.replace(CONFIG, changes=("pipeline", "whitespace"), full_size=("stateful-windows",))
    rows = some_rows(config)
    loss = {row["run"]: row["val_loss_per_original_character"] for row in rows}
    improvements = study.improvements(rows)
    for change in config.individual:
        assert improvements[change]["individual"] == pytest.approx(
            loss["01-size"] - loss[f"individual-{change}"], abs=2e-3
        )
    full_size = loss["00-legacy"] - loss["full-size-stateful-windows"]
    assert improvements["stateful-windows"]["full-size"] == pytest.approx(full_size, abs=2e-3)
    assert "cumulative" not in improvements["stateful-windows"]
    assert improvements["pipeline"]["individual"] == improvements["pipeline"]["cumulative"]
    assert improvements["size"].keys() == {"cumulative"}
    individual = [kinds["individual"] for kinds in improvements.values() if "individual" in kinds]
    assert individual == sorted(individual, reverse=True)


def test_the_verdict_separates_improvements_from_noise():
    changes = ("pipeline", "stateful-windows", "more-steps", "optimizer", "whitespace")
    rows = some_rows(dataclasses.replace(CONFIG, changes=changes, individual=()))
    for row, loss in zip(rows, (2.0, 2.3, 2.31, 2.305, 1.8, 1.2, 1.25), strict=True):
        row["val_loss_per_original_character"] = loss
    verdict = study.verdict(rows)
    assert "from 2.000 to 1.250" in verdict
    assert (
        ": optimizer +0.600, more-steps +0.505, size -0.300, whitespace -0.050; the others are within 0.010" in verdict
    )
    without = [row for row in rows if row["run"] != "02-pipeline"]
    assert "noise is not known" in study.verdict(without)


def test_the_waterfall_goes_from_loss_to_loss():
    rows = some_rows(CONFIG)
    figure, (left, right) = plt.subplots(1, 2)
    study.plot_waterfall(left, rows)
    study.plot_improvements(right, study.improvements(rows))
    plt.close(figure)
    losses = [study.loss(row) for row in rows[: len(NAMES)]]
    legacy, *steps, new = left.patches
    assert legacy.get_y() + legacy.get_height() == pytest.approx(losses[0])
    assert new.get_y() + new.get_height() == pytest.approx(losses[-1])
    for bar, (before, after) in zip(steps, itertools.pairwise(losses), strict=True):
        assert (bar.get_y(), bar.get_height()) == pytest.approx((before, after - before))
        assert (bar.get_facecolor() == steps[int(np.argmin(np.diff(losses)))].get_facecolor()) == (after <= before)
    assert [label.get_text() for label in left.get_xticklabels()] == ["legacy", "size", *CHANGES, "new"]
    individual = [kinds["individual"] for kinds in study.improvements(rows).values() if "individual" in kinds]
    assert sorted(bar.get_width() for bar in right.containers[1]) == pytest.approx(sorted(individual))


# The smoke run


def test_every_run_is_that_of_its_recipe_and_its_losses_are_those_of_its_model(smoke):
    saved = json.loads((smoke.folder / "00-legacy/config.json").read_text(encoding="utf-8"))["experiment"]
    recipes = dataclass_from_dict(RecipeAblationConfig, saved).recipes
    assert [row["run"] for row in smoke.rows["runs"]] == [*recipes]
    original = SplitCorpus("pydoc", smoke.folder, 13)
    for row in smoke.rows["runs"][::2]:  # without spaces, and with them
        run, recipe = smoke.folder / row["run"], recipes[row["run"]]
        config = json.loads((run / "config.json").read_text(encoding="utf-8"))
        assert config["recipe"] == row["recipe"] == dataclasses.asdict(recipe)
        assert config["model"]["units"] == recipe.units
        data = original if recipe.keep_whitespace else without_whitespace(original, 13)
        model, tokenizer = training.load_run(run)
        assert tokenizer == data.tokenizer
        count = (len(data.validation) - 1) // recipe.sequence_length * recipe.sequence_length
        x, y = (data.validation[s : s + count].reshape(-1, recipe.sequence_length) for s in (0, 1))
        loss = np.mean(keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True))
        assert row["val_loss"] == pytest.approx(loss, rel=1e-5)
        x, y = data.validation[None, :-1], data.validation[None, 1:]
        streaming = np.mean(keras.losses.sparse_categorical_crossentropy(y, tf.function(model)(x), from_logits=True))
        assert row["val_loss_streaming"] == pytest.approx(streaming, rel=1e-5)
        per_original = loss * len(data.validation) / len(original.validation)
        assert row["val_loss_per_original_character"] == pytest.approx(per_original, rel=1e-5)
        assert row["train_loss"] == training.read_metrics(run, "train")[-1]["loss"]
