import dataclasses
import itertools
import json
import random
import types

import keras
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from experiments.frame.runs import dataclass_from_dict
from experiments.recipe_ablation import __main__ as recipe_ablation
from experiments.recipe_ablation import report as recipe_ablation_report
from experiments.recipe_ablation.conclusion import conclusion
from experiments.recipe_ablation.data import PerCharacterWindows, TextVariants, batches, strip_whitespace, windows
from experiments.recipe_ablation.settings import CHANGES, RecipeAblationConfig, smoke_config
from keras_seq import training
from keras_seq.data import PythonGeneratorWindows, load_corpus
from keras_seq.models import LSTMConfig
from keras_seq.training import stateful_training_model

CONFIG = RecipeAblationConfig()
SMALL = dataclasses.replace(
    smoke_config(RecipeAblationConfig(smoke=True)),
    changes=CHANGES,
    individual=CHANGES,
    full_size=("stateful-windows", "more-steps"),
)


@pytest.fixture(scope="module")
def texts():
    return TextVariants(SMALL)


@pytest.fixture(scope="module")
def run(python, tmp_path_factory):
    """The smoke run."""
    logs = tmp_path_factory.mktemp("logs")
    command = ("-m", "experiments.recipe_ablation", "--smoke", "--full-size", "more-steps", "--log-dir", logs)
    process = python(*command)
    assert process.returncode == 0, process.stderr
    (folder,) = (logs / "recipe_ablation").iterdir()
    report = json.loads((folder / "recipe_ablation.json").read_text(encoding="utf-8"))
    saved = json.loads((folder / "00-legacy" / "config.json").read_text(encoding="utf-8"))
    config = dataclass_from_dict(RecipeAblationConfig, saved["experiment"])
    return types.SimpleNamespace(folder=folder, process=process, config=config, rows=report["runs"], report=report)


def some_rows(config, seed=0):
    """Rows with random losses."""
    draw = random.Random(seed)
    return [
        {
            "run": name,
            "recipe": dataclasses.asdict(recipe),
            "steps": recipe.num_steps,
            "train_tokens": 2_000_000,
            "char_ratio": 0.8,
            "train_loss_per_original_character": draw.uniform(1, 4),
            "val_loss": draw.uniform(1, 4),
            "val_loss_streaming": draw.uniform(1, 4),
            "val_loss_per_original_character": draw.uniform(1, 4),
            "val_loss_per_original_character_streaming": draw.uniform(1, 4),
        }
        for name, recipe in config.recipes.items()
    ]


def differing(one, other):
    return {k for k, v in dataclasses.asdict(one).items() if v != dataclasses.asdict(other)[k]}


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def take(batch):
    (ids, reset_mask), targets = batch
    return ids.numpy(), reset_mask.numpy(), targets.numpy()


# The recipes


def test_a_change_sets_its_own_fields_and_no_other():
    names = [f"{n:02d}-{change}" for n, change in enumerate(("legacy", "size", *CHANGES))]
    recipes = CONFIG.recipes
    assert list(recipes)[: len(names)] == names
    for (before, after), change in zip(itertools.pairwise(names), CONFIG.cumulative, strict=True):
        assert differing(recipes[before], recipes[after]) == CONFIG.new_values[change].keys(), change
    for change in CONFIG.individual:
        assert differing(recipes["01-size"], recipes[f"individual-{change}"]) == CONFIG.new_values[change].keys()
    full_size = dataclasses.replace(CONFIG, full_size=CHANGES).recipes
    for change in CHANGES:
        assert differing(recipes["00-legacy"], full_size[f"full-size-{change}"]) == CONFIG.new_values[change].keys()


def test_every_recipe_is_trained_on_as_many_characters():
    for recipe in CONFIG.recipes.values():
        assert recipe.batch_size * recipe.num_steps == 50 * 200


def test_smaller_steps_are_logged_and_validated_after_as_many_characters():
    last = CONFIG.recipes["10-more-steps"]
    legacy, new = CONFIG.train_for(CONFIG.legacy), CONFIG.train_for(last)
    for name in ("log_every", "validate_every", "checkpoint_every"):
        assert getattr(legacy, name) * CONFIG.legacy.batch_size == getattr(new, name) * last.batch_size
    assert (legacy.warmup_steps, legacy.final_lr_fraction, legacy.learning_rate, legacy.optimizer) == (
        0,
        1.0,
        1e-3,
        "adam",
    )
    assert new.warmup_steps / last.num_steps == CONFIG.train.warmup_steps / CONFIG.legacy_steps
    assert (new.optimizer, new.global_clipnorm) == (
        training.TrainConfig().optimizer,
        training.TrainConfig().global_clipnorm,
    )


@pytest.mark.parametrize("change", [{}, {"reset_prob": 1.0}])
def test_the_legacy_recipe_is_a_stateful_lstm_of_keras_under_a_plain_adam(texts, change):
    """Another implementation, on the same batches from the same weights, takes the same steps; a changed one others."""
    recipe, variant = dataclasses.replace(SMALL.legacy, **change), texts.stripped
    model = LSTMConfig(
        SMALL.embedding_dim, recipe.units, recurrent_initializer=recipe.recurrent_initializer
    ).build_model(variant.tokenizer.vocabulary_size)
    layers = keras.layers
    oracle = keras.Sequential(
        [
            layers.Input(batch_shape=(recipe.batch_size, SMALL.sequence_length), dtype="int32"),
            layers.Embedding(variant.tokenizer.vocabulary_size, SMALL.embedding_dim),
            layers.LSTM(recipe.units, return_sequences=True, stateful=True, unroll=True),
            layers.Dense(variant.tokenizer.vocabulary_size),
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
    training_model = stateful_training_model(model, recipe.batch_size, SMALL.sequence_length)
    training.compile_model(training_model, SMALL.train_for(recipe), recipe.num_steps)
    losses = []
    for (ids, reset_mask), targets in batches(SMALL, recipe, variant)(0, 6):
        losses.append((training_model.train_on_batch((ids, reset_mask), targets), float(oracle_step(ids, targets))))
        training_model.reset_metrics()
    trained, expected = np.transpose(losses)
    assert np.allclose(trained, expected, rtol=1e-5) == (not change)
    same = [
        np.allclose(weight, other, atol=1e-5)
        for weight, other in zip(model.get_weights(), oracle.get_weights(), strict=True)
    ]
    assert all(same) == (not change)


# The text and its batches


@pytest.mark.parametrize("string", ["a b\nc  d\n", "", "\n \n", "né\tù"])
def test_whitespace_is_stripped_as_by_load_corpus(tmp_path, string):
    assert strip_whitespace(string) == "".join(c for c in string if c not in " \n")
    path = tmp_path / "text"
    path.write_text("x" + string, encoding="utf-8")
    assert "x" + strip_whitespace(string) == load_corpus(path, strip_whitespace=True).text


def test_both_variants_have_the_same_validation_text(texts):
    original = texts.original.tokenizer.decode(texts.original.validation)
    assert texts.stripped.tokenizer.decode(texts.stripped.validation) == strip_whitespace(original)
    whole = texts.original.tokenizer.decode(texts.original.train) + original
    assert whole == texts.corpus.text
    assert texts.original.char_ratio == 1
    assert texts.stripped.char_ratio == (len(original) - original.count(" ") - original.count("\n")) / len(original)


def test_looking_up_each_character_separately_gives_the_same_batches(texts):
    variant = texts.stripped
    per_character = dataclasses.replace(SMALL.legacy, pipeline="per_character")
    one, other = windows(SMALL, per_character, variant), windows(SMALL, SMALL.legacy, variant)
    assert isinstance(one, PerCharacterWindows)
    assert type(other) is PythonGeneratorWindows
    pairs = list(zip(one.dataset(2, 5), other.dataset(2, 5), strict=True))
    assert len(pairs) == 3
    for (x, y), (expected_x, expected_y) in pairs:
        np.testing.assert_array_equal(x, expected_x)
        np.testing.assert_array_equal(y, expected_y)


@pytest.mark.parametrize("pipeline", ["generator", "tensors"])
def test_batches_of_random_windows_are_a_function_of_the_step(texts, pipeline):
    recipe = dataclasses.replace(SMALL.legacy, pipeline=pipeline, reset_prob=0.5)
    dataset = batches(SMALL, recipe, texts.stripped)
    whole, rest = (list(map(take, dataset(start, 9))) for start in (0, 4))
    for one, other in zip(whole[4:], rest, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    for ids, _, targets in whole:
        np.testing.assert_array_equal(ids[:, 1:], targets[:, :-1])
        text = texts.stripped.tokenizer.decode(texts.stripped.train)
        assert all(texts.stripped.tokenizer.decode(row) in text for row in ids)
    assert len({ids.tobytes() for ids, _, _ in whole}) == 9


def test_rows_start_from_the_zero_state_with_reset_prob(texts):
    sizes = {"batch_size": 50, "sequence_length": 5}
    config = dataclasses.replace(SMALL, **sizes)
    for reset_prob, low, high in ((0.0, 0, 0), (0.25, 0.2, 0.3), (1.0, 1, 1)):
        recipe = dataclasses.replace(config.legacy, pipeline="tensors", reset_prob=reset_prob)
        reset_mask = np.stack([take(batch)[1] for batch in batches(config, recipe, texts.stripped)(0, 20)])
        assert low <= reset_mask.mean() <= high
    # the reset mask and the starts of the rows are independent, though both are drawn from one seed and step
    recipe = dataclasses.replace(recipe, reset_prob=0.5)
    recipe_windows = windows(config, recipe, texts.stripped)
    reset_mask = np.stack([take(batch)[1] for batch in batches(config, recipe, texts.stripped)(0, 200)]).ravel()
    starts = np.concatenate([recipe_windows.starts(step).numpy() for step in range(200)])
    assert abs(np.corrcoef(reset_mask, starts)[0, 1]) < 0.04  # 4 standard deviations of 10,000 draws


def test_stateful_windows_continue_where_they_ended(texts):
    recipe = dataclasses.replace(SMALL.legacy, windows="stateful")
    first, second = map(take, batches(SMALL, recipe, texts.stripped)(0, 2))
    np.testing.assert_array_equal(first[2][:, -1], second[0][:, 0])
    assert first[1].all()
    assert not second[1].any()


# The report


@pytest.mark.parametrize("seed", range(20))
def test_the_cumulative_improvements_add_up_to_the_total_exactly_with_their_digits(seed):
    config = dataclasses.replace(CONFIG, full_size=("stateful-windows",))
    rows = some_rows(config, seed)
    improvement = recipe_ablation_report.improvements(config, rows)
    legacy, new = rows[0], rows[len(config.cumulative)]
    assert new["run"] == "11-whitespace"
    whole = recipe_ablation_report.loss_milli(legacy) - recipe_ablation_report.loss_milli(new)
    assert sum(kinds["cumulative"] for kinds in improvement.values()) == whole
    header, _, *lines = cells(recipe_ablation_report.cumulative_table(config, rows))
    *steps, total = [line[header.index("improvement")] for line in lines]
    thousandths = [int(cell.replace(".", "")) for cell in steps[1:]]
    assert steps[0] == ""
    assert sum(thousandths) == int(total.replace(".", "")) == whole
    losses = [int(line[header.index("val_loss per original char")].replace(".", "")) for line in lines[:-1]]
    assert [before - after for before, after in itertools.pairwise(losses)] == thousandths
    assert abs(whole / 1000 - (legacy[(k := "val_loss_per_original_character")] - new[k])) <= 0.001


def test_individual_improvements_are_relative_to_the_legacy_recipe_of_the_same_size():
    config = dataclasses.replace(CONFIG, full_size=("stateful-windows",))
    rows = some_rows(config)
    loss = {row["run"]: recipe_ablation_report.loss_milli(row) for row in rows}
    improvement = recipe_ablation_report.improvements(config, rows)
    for change in config.individual:
        assert improvement[change]["individual"] == loss["01-size"] - loss[f"individual-{change}"]
    full_size = loss["00-legacy"] - loss["full-size-stateful-windows"]
    assert improvement["stateful-windows"]["full_size"] == full_size
    pipeline = improvement["pipeline"]
    assert pipeline["individual"] == pipeline["cumulative"] == loss["01-size"] - loss["02-pipeline"]
    assert "individual" not in improvement["size"]
    table = {line[0]: line[1:] for line in cells(recipe_ablation_report.individual_table(config, rows))[2:]}
    assert table.keys() == improvement.keys()
    assert table["initializer"][1:] == ["-", "-"]
    assert float(table["stateful-windows"][2]) == full_size / 1000
    individual = [float(line[1]) for line in table.values() if line[1] != "-"]
    assert individual == sorted(individual, reverse=True)


@pytest.mark.parametrize(
    ("swapped", "message"),
    [(False, "same ranking at both sizes: more-steps, stateful-windows"), (True, "different rankings")],
)
def test_it_says_whether_the_ranking_of_changes_is_the_same_at_both_sizes(swapped, message):
    config = dataclasses.replace(CONFIG, full_size=("stateful-windows", "more-steps"))
    rows = some_rows(config)
    for row in rows:
        for kind in ("individual", "full-size"):
            change = row["run"].removeprefix(f"{kind}-")
            if change != row["run"] and change in config.full_size:
                better = (change == "more-steps") != (swapped and kind == "full-size")
                row["val_loss_per_original_character"] = 0.5 if better else 0.75
    assert message in recipe_ablation_report.ranking_message(config, rows)
    assert recipe_ablation_report.ranking_message(CONFIG, some_rows(CONFIG)) == ""


def test_the_waterfall_goes_from_loss_to_loss():
    rows = some_rows(CONFIG)
    figure = recipe_ablation_report.plot(CONFIG, "my text", rows)
    waterfall, bars = figure.axes
    plt.close(figure)
    losses = [recipe_ablation_report.loss_milli(row) / 1000 for row in rows[: len(CONFIG.cumulative) + 1]]
    tops = {round(bar.get_x() + bar.get_width() / 2): bar for bar in waterfall.patches}
    assert tops[0].get_y() + tops[0].get_height() == pytest.approx(losses[0])
    assert tops[len(losses)].get_y() + tops[len(losses)].get_height() == pytest.approx(losses[-1])
    for x, (before, after) in enumerate(itertools.pairwise(losses), 1):
        assert tops[x].get_y() == pytest.approx(before)
        assert tops[x].get_height() == pytest.approx(after - before)
        lower = matplotlib.colors.to_rgba(recipe_ablation_report.LOWER_COLOR)
        assert (tops[x].get_facecolor() == lower) == (after <= before)
    assert [label.get_text() for label in waterfall.get_xticklabels()] == ["legacy", *CONFIG.cumulative, "new"]
    improvement = recipe_ablation_report.improvements(CONFIG, rows)
    individual = [kinds["individual"] / 1000 for kinds in improvement.values() if "individual" in kinds]
    widths = sorted(bar.get_width() for bar in bars.containers[1])
    assert widths == pytest.approx(sorted(individual))


def test_the_conclusion_separates_improvements_from_noise():
    config = dataclasses.replace(
        CONFIG,
        changes=("pipeline", "stateful-windows", "more-steps", "optimizer", "whitespace"),
        individual=("more-steps",),
    )
    rows = some_rows(config)
    for row, thousandths in zip(rows, (2000, 2300, 2310, 2305, 1800, 1200, 1250, 1500), strict=True):
        row["val_loss_per_original_character"] = thousandths / 1000
    legacy, new, lower, higher, noise, individual, *rest = conclusion(config, "my text", rows).splitlines()
    assert f"train loss {rows[0]['train_loss_per_original_character']:.3f};" in legacy
    assert "+0.750 per original character" in new
    assert "optimizer +0.600, more-steps +0.505." in lower
    assert "size -0.300, whitespace -0.050." in higher
    assert "0.010" in noise
    assert "pipeline -0.010, stateful-windows +0.005." in noise
    assert "more-steps +0.800, pipeline -0.010." in individual
    assert len(rest) == 2
    assert all(line.startswith("- ") for line in (legacy, new, *rest))


def test_every_change_has_a_description():
    assert recipe_ablation_report.descriptions(CONFIG).keys() == CONFIG.new_values.keys() == {"size", *CHANGES}


# The smoke run


@pytest.mark.slow
def test_every_run_is_that_of_its_recipe(run):
    recipes = run.config.recipes
    assert [row["run"] for row in run.rows] == list(recipes)
    for row in run.rows:
        config = json.loads((run.folder / row["run"] / "config.json").read_text(encoding="utf-8"))
        assert config["recipe"] == row["recipe"] == dataclasses.asdict(recipes[row["run"]])
        assert config["train"]["optimizer"] == row["recipe"]["optimizer"]
        assert config["model"]["units"] == row["recipe"]["units"]
        assert config["train"]["global_clipnorm"] == row["recipe"]["global_clipnorm"]


@pytest.mark.slow
def test_the_losses_are_those_of_the_saved_models(run):
    texts = TextVariants(run.config)
    for row in run.rows[::2]:  # without spaces, and with them
        variant = texts.variant(run.config.recipes[row["run"]])
        model = keras.models.load_model(run.folder / row["run"] / "model.keras")
        length = run.config.sequence_length
        count = (len(variant.validation) - 1) // length
        x, y = (variant.validation[s : s + count * length].reshape(count, -1) for s in (0, 1))
        loss = np.mean(keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True))
        assert row["val_loss"] == pytest.approx(loss, rel=1e-5)
        logits = tf.function(model, reduce_retracing=True)
        x, y = variant.validation[None, :-1], variant.validation[None, 1:]
        streaming = np.mean(keras.losses.sparse_categorical_crossentropy(y, logits(x), from_logits=True))
        assert row["val_loss_streaming"] == pytest.approx(streaming, rel=1e-5)
        for suffix, value in (("", loss), ("_streaming", streaming)):
            per_original = value * len(variant.validation) / len(texts.original.validation)
            assert row[f"val_loss_per_original_character{suffix}"] == pytest.approx(per_original, rel=1e-5)
        lines = (run.folder / row["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        train_losses = [line["loss"] for line in map(json.loads, lines) if line["split"] == "train"]
        assert len(train_losses) == run.config.legacy_steps
        assert row["train_loss_per_original_character"] == train_losses[-1]


@pytest.mark.slow
def test_it_leaves_a_report_a_plot_and_summaries_in_tensorboard(run):
    report = (run.folder / "recipe_ablation.md").read_text(encoding="utf-8")
    tables = [
        recipe_ablation_report.cumulative_table(run.config, run.rows),
        recipe_ablation_report.individual_table(run.config, run.rows),
    ]
    for part in (*tables, conclusion(run.config, "docstrings", run.rows)):
        assert part in report
        assert part in run.process.stdout
    assert run.report["improvement_millinats"] == recipe_ablation_report.improvements(run.config, run.rows)
    height, width, _ = matplotlib.image.imread(run.folder / "recipe_ablation.png").shape
    assert width > height > 400
    assert "tensorboard --logdir" in run.process.stdout.splitlines()[-1]
    assert run.process.stderr == ""
    board = EventAccumulator(str(run.folder / "00-legacy")).Reload()
    assert "Validation/loss_per_original_character" in board.Tags()["tensors"]


@pytest.mark.slow
def test_to_resume_what_is_finished_trains_nothing(run, capsys):
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*-*/*")}
    recipe_ablation.main(["--resume", str(run.folder)])
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*-*/*")} == before
    assert recipe_ablation_report.cumulative_table(run.config, run.rows) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--corpus /nonexistent", "/nonexistent"),
        ("--corpus pydoc --sequence-length 100000", "too short"),
        ("--corpus pydoc --sequence-length 38000", "without its whitespace"),
        ("--sequence-length 0", "--sequence-length 0"),
        ("--legacy-steps 0", "--legacy-steps 0"),
        ("--legacy-units 0", "--legacy-units 0"),
        ("--units -1", "--units -1"),
        ("--batch-size 0", "--batch-size 0"),
        ("--corpus pydoc --batch-size 4000", "too short"),
        ("--split-batches 3", "--split-batches 3"),
        ("--train.patience 2", "--train.patience 2"),
        ("--reset-prob 1.5", "--reset-prob 1.5"),
        ("--learning-rate 0", "--learning-rate 0"),
        ("--learning-rate nan", "--learning-rate nan"),
        ("--seed -1", "--seed -1"),
        ("--pipeline slow", "slow"),
        ("--individual size", "size"),
        ("--individual schedule schedule", "--individual schedule schedule"),
        ("--full-size nope", "nope"),
        ("--changes", "--changes"),
        ("--train.log-every 0", "log_every=0"),
        ("--resume nowhere", "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, tmp_path, arguments, names):
    sentence = fails(recipe_ablation.main, *arguments.split(), "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.recipe_ablation: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()
