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

from experiments import epoch_loss, epoch_loss_report
from experiments.epoch_loss_conclusion import conclusion
from experiments.epoch_loss_data import Data, PerCharacterWindows, batches, squeezed, windows
from experiments.epoch_loss_settings import CAUSES, EpochLoss, slug, tiny
from experiments.runs import revive
from keras_seq import training
from keras_seq.data import PythonGeneratorWindows, load_corpus
from keras_seq.models import LSTMConfig
from keras_seq.training.language_model import stateful_training_model

SETTINGS = EpochLoss()
SMALL = dataclasses.replace(tiny(EpochLoss(smoke=True)), causes=CAUSES, alone=CAUSES, full=("lanes", "updates"))


@pytest.fixture(scope="module")
def data():
    return Data(SMALL)


@pytest.fixture(scope="module")
def run(python, tmp_path_factory):
    """The smoke run."""
    logs = tmp_path_factory.mktemp("logs")
    done = python("-m", "experiments.epoch_loss", "--smoke", "--full", "updates", "--log-dir", logs)
    assert done.returncode == 0, done.stderr
    (folder,) = (logs / "epoch_loss").iterdir()
    told = json.loads((folder / "epoch_loss.json").read_text(encoding="utf-8"))
    first = json.loads((folder / "00-old" / "config.json").read_text(encoding="utf-8"))
    settings = revive(EpochLoss, first["experiment"])
    return types.SimpleNamespace(folder=folder, said=done, settings=settings, rows=told["runs"], told=told)


def some_rows(settings, seed=0):
    """Rows with figures drawn by chance."""
    draw = random.Random(seed)
    return [
        {
            "run": name,
            "recipe": dataclasses.asdict(recipe),
            "updates": recipe.updates,
            "training_characters": 2_000_000,
            "original_share": 0.8,
            "train_loss_per_original_character": draw.uniform(1, 4),
            "val_loss": draw.uniform(1, 4),
            "val_loss_streaming": draw.uniform(1, 4),
            "val_loss_per_original_character": draw.uniform(1, 4),
            "val_loss_per_original_character_streaming": draw.uniform(1, 4),
        }
        for name, recipe in settings.recipes.items()
    ]


def differing(one, other):
    return {k for k, v in dataclasses.asdict(one).items() if v != dataclasses.asdict(other)[k]}


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def take(batch):
    (ids, reset_mask), targets = batch
    return ids.numpy(), reset_mask.numpy(), targets.numpy()


# The recipes


def test_a_step_of_the_ladder_changes_what_its_cause_names_and_nothing_else():
    names = [f"{n:02d}-{slug(cause)}" for n, cause in enumerate(("old", "size", *CAUSES))]
    recipes = SETTINGS.recipes
    assert list(recipes)[: len(names)] == names
    for (before, after), cause in zip(itertools.pairwise(names), SETTINGS.ladder, strict=True):
        assert differing(recipes[before], recipes[after]) == SETTINGS.changes[cause].keys(), cause
    for cause in SETTINGS.alone:
        assert differing(recipes["01-size"], recipes[f"alone-{slug(cause)}"]) == SETTINGS.changes[cause].keys()
    full = dataclasses.replace(SETTINGS, full=CAUSES).recipes
    for cause in CAUSES:
        assert differing(recipes["00-old"], full[f"full-{slug(cause)}"]) == SETTINGS.changes[cause].keys()


def test_every_recipe_is_trained_on_as_many_characters():
    for recipe in SETTINGS.recipes.values():
        assert recipe.batch_size * recipe.updates == 50 * 200


def test_smaller_steps_are_logged_and_validated_after_as_many_characters():
    last = SETTINGS.recipes["10-updates"]
    old, new = SETTINGS.train_for(SETTINGS.old), SETTINGS.train_for(last)
    for name in ("log_every", "validate_every", "checkpoint_every"):
        assert getattr(old, name) * SETTINGS.old.batch_size == getattr(new, name) * last.batch_size
    assert (old.warmup_steps, old.final_lr_fraction, old.learning_rate, old.optimizer) == (0, 1.0, 1e-3, "adam")
    assert new.warmup_steps / last.updates == SETTINGS.train.warmup_steps / SETTINGS.updates
    assert (new.optimizer, new.global_clipnorm) == (
        training.TrainConfig().optimizer,
        training.TrainConfig().global_clipnorm,
    )


@pytest.mark.parametrize("change", [{}, {"restart": 1.0}])
def test_the_old_recipe_is_a_stateful_lstm_of_keras_under_a_plain_adam(data, change):
    """Another implementation, on the same batches from the same weights, takes the same steps; a changed one others."""
    recipe, form = dataclasses.replace(SMALL.old, **change), data.squeezed
    model = LSTMConfig(
        SMALL.embedding_dim, recipe.units, recurrent_initializer=recipe.recurrent_initializer
    ).build_model(form.vocabulary.vocabulary_size)
    layers = keras.layers
    oracle = keras.Sequential(
        [
            layers.Input(batch_shape=(recipe.batch_size, SMALL.length), dtype="int32"),
            layers.Embedding(form.vocabulary.vocabulary_size, SMALL.embedding_dim),
            layers.LSTM(recipe.units, return_sequences=True, stateful=True, unroll=True),
            layers.Dense(form.vocabulary.vocabulary_size),
        ]
    )
    oracle.set_weights(model.get_weights())
    loss, adam = keras.losses.SparseCategoricalCrossentropy(from_logits=True), keras.optimizers.Adam(1e-3)

    @tf.function
    def old_step(x, y):
        with tf.GradientTape() as tape:
            nats = loss(y, oracle(x, training=True))
        gradients = tape.gradient(nats, [v.value for v in oracle.trainable_variables])
        # dense: of a sparse gradient Keras's Adam squares the parts of a row before they are added up
        adam.apply([tf.convert_to_tensor(g) for g in gradients], oracle.trainable_variables)
        return nats

    adam.build(oracle.trainable_variables)
    training_model = stateful_training_model(model, recipe.batch_size, SMALL.length)
    training.compile_model(training_model, SMALL.train_for(recipe), recipe.updates)
    losses = []
    for (ids, reset_mask), targets in batches(SMALL, recipe, form)(0, 6):
        losses.append((training_model.train_on_batch((ids, reset_mask), targets), float(old_step(ids, targets))))
        training_model.reset_metrics()
    ours, theirs = np.transpose(losses)
    assert np.allclose(ours, theirs, rtol=1e-5) == (not change)
    same = [
        np.allclose(mine, other, atol=1e-5)
        for mine, other in zip(model.get_weights(), oracle.get_weights(), strict=True)
    ]
    assert all(same) == (not change)


# The text and its batches


@pytest.mark.parametrize("string", ["a b\nc  d\n", "", "\n \n", "né\tù"])
def test_squeezing_is_that_of_the_corpus(tmp_path, string):
    assert squeezed(string) == "".join(c for c in string if c not in " \n")
    path = tmp_path / "text"
    path.write_text("x" + string, encoding="utf-8")
    assert "x" + squeezed(string) == load_corpus(path, strip_whitespace=True).text


def test_both_forms_have_the_same_text_to_validate_on(data):
    original = data.original.vocabulary.decode(data.original.validation)
    assert data.squeezed.vocabulary.decode(data.squeezed.validation) == squeezed(original)
    whole = data.original.vocabulary.decode(data.original.train) + original
    assert whole == data.corpus.text
    assert data.original.share == 1
    assert data.squeezed.share == (len(original) - original.count(" ") - original.count("\n")) / len(original)


def test_looking_up_each_character_by_itself_gives_the_same_batches(data):
    form = data.squeezed
    old = dataclasses.replace(SMALL.old, pipeline="per_character")
    one, other = windows(SMALL, old, form), windows(SMALL, SMALL.old, form)
    assert isinstance(one, PerCharacterWindows)
    assert type(other) is PythonGeneratorWindows
    pairs = list(zip(one.dataset(2, 5), other.dataset(2, 5), strict=True))
    assert len(pairs) == 3
    for (x, y), (expected_x, expected_y) in pairs:
        np.testing.assert_array_equal(x, expected_x)
        np.testing.assert_array_equal(y, expected_y)


@pytest.mark.parametrize("pipeline", ["generator", "tensors"])
def test_batches_of_crops_are_a_function_of_the_step(data, pipeline):
    recipe = dataclasses.replace(SMALL.old, pipeline=pipeline, restart=0.5)
    between = batches(SMALL, recipe, data.squeezed)
    whole, rest = (list(map(take, between(first, 9))) for first in (0, 4))
    for one, other in zip(whole[4:], rest, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    for ids, _, targets in whole:
        np.testing.assert_array_equal(ids[:, 1:], targets[:, :-1])
        starts = data.squeezed.vocabulary.decode(data.squeezed.train)
        assert all(data.squeezed.vocabulary.decode(row) in starts for row in ids)
    assert len({ids.tobytes() for ids, _, _ in whole}) == 9


def test_rows_start_from_the_zero_state_as_often_as_is_said(data):
    sizes = {"batch_size": 50, "length": 5}
    settings = dataclasses.replace(SMALL, **sizes)
    for restart, least, most in ((0.0, 0, 0), (0.25, 0.2, 0.3), (1.0, 1, 1)):
        recipe = dataclasses.replace(settings.old, pipeline="tensors", restart=restart)
        reset_mask = np.stack([take(batch)[1] for batch in batches(settings, recipe, data.squeezed)(0, 20)])
        assert least <= reset_mask.mean() <= most
    # who starts anew has nothing to do with where a row starts, though both are drawn from one seed and step
    recipe = dataclasses.replace(recipe, restart=0.5)
    chosen = windows(settings, recipe, data.squeezed)
    reset_mask = np.stack([take(batch)[1] for batch in batches(settings, recipe, data.squeezed)(0, 200)]).ravel()
    starts = np.concatenate([chosen.starts(step).numpy() for step in range(200)])
    assert abs(np.corrcoef(reset_mask, starts)[0, 1]) < 0.04  # 4 standard deviations of 10,000 draws


def test_lanes_go_on_where_they_ended(data):
    recipe = dataclasses.replace(SMALL.old, windows="lanes")
    first, second = map(take, batches(SMALL, recipe, data.squeezed)(0, 2))
    np.testing.assert_array_equal(first[2][:, -1], second[0][:, 0])
    assert first[1].all()
    assert not second[1].any()


# What it comes to


@pytest.mark.parametrize("seed", range(20))
def test_the_steps_add_up_to_the_whole_difference_exactly_as_they_are_shown(seed):
    settings = dataclasses.replace(SETTINGS, full=("lanes",))
    rows = some_rows(settings, seed)
    found = epoch_loss_report.worths(settings, rows)
    old, new = rows[0], rows[len(settings.ladder)]
    assert new["run"] == "11-spaces"
    whole = epoch_loss_report.level(old) - epoch_loss_report.level(new)
    assert sum(here["ladder"] for here in found.values()) == whole
    header, _, *lines = cells(epoch_loss_report.ladder_table(settings, rows))
    *steps, total = [line[header.index("worth")] for line in lines]
    thousandths = [int(shown.replace(".", "")) for shown in steps[1:]]
    assert steps[0] == ""
    assert sum(thousandths) == int(total.replace(".", "")) == whole
    levels = [int(line[header.index("cold per original")].replace(".", "")) for line in lines[:-1]]
    assert [before - after for before, after in itertools.pairwise(levels)] == thousandths
    assert abs(whole / 1000 - (old[(k := "val_loss_per_original_character")] - new[k])) <= 0.001


def test_alone_is_against_the_old_recipe_of_the_same_size():
    settings = dataclasses.replace(SETTINGS, full=("lanes",))
    rows = some_rows(settings)
    level = {row["run"]: epoch_loss_report.level(row) for row in rows}
    found = epoch_loss_report.worths(settings, rows)
    for cause in settings.alone:
        assert found[cause]["alone"] == level["01-size"] - level[f"alone-{slug(cause)}"]
    assert found["lanes"]["full"] == level["00-old"] - level["full-lanes"]
    assert found["pipeline"]["alone"] == found["pipeline"]["ladder"] == level["01-size"] - level["02-pipeline"]
    assert "alone" not in found["size"]
    shown = {line[0]: line[1:] for line in cells(epoch_loss_report.alone_table(settings, rows))[2:]}
    assert shown.keys() == found.keys()
    assert shown["initializer"][1:] == ["-", "-"]
    assert float(shown["lanes"][2]) == found["lanes"]["full"] / 1000
    alone = [float(line[1]) for line in shown.values() if line[1] != "-"]
    assert alone == sorted(alone, reverse=True)


@pytest.mark.parametrize(
    ("swapped", "says"), [(False, "at both sizes, in this order: updates, lanes"), (True, "another")]
)
def test_it_says_whether_the_order_of_causes_is_the_same_at_both_sizes(swapped, says):
    settings = dataclasses.replace(SETTINGS, full=("lanes", "updates"))
    rows = some_rows(settings)
    for row in rows:
        kind, _, cause = row["run"].partition("-")
        if cause in ("lanes", "updates") and kind in ("alone", "full"):
            better = (cause == "updates") != (swapped and kind == "full")
            row["val_loss_per_original_character"] = 0.5 if better else 0.75
    assert says in epoch_loss_report.same_order(settings, rows)
    assert epoch_loss_report.same_order(SETTINGS, some_rows(SETTINGS)) == ""


def test_the_waterfall_goes_from_level_to_level():
    rows = some_rows(SETTINGS)
    figure = epoch_loss_report.draw(SETTINGS, "my text", rows)
    fall, bars = figure.axes
    plt.close(figure)
    levels = [epoch_loss_report.level(row) / 1000 for row in rows[: len(SETTINGS.ladder) + 1]]
    tops = {round(bar.get_x() + bar.get_width() / 2): bar for bar in fall.patches}
    assert tops[0].get_y() + tops[0].get_height() == pytest.approx(levels[0])
    assert tops[len(levels)].get_y() + tops[len(levels)].get_height() == pytest.approx(levels[-1])
    for x, (before, after) in enumerate(itertools.pairwise(levels), 1):
        assert tops[x].get_y() == pytest.approx(before)
        assert tops[x].get_height() == pytest.approx(after - before)
        good = matplotlib.colors.to_rgba(epoch_loss_report.GOOD)
        assert (tops[x].get_facecolor() == good) == (after <= before)
    assert [label.get_text() for label in fall.get_xticklabels()] == ["old", *SETTINGS.ladder, "new"]
    found = epoch_loss_report.worths(SETTINGS, rows)
    alone = {cause: here["alone"] / 1000 for cause, here in found.items() if "alone" in here}
    drawn = sorted(bar.get_width() for bar in bars.containers[1])
    assert drawn == pytest.approx(sorted(alone.values()))


def test_the_conclusion_tells_causes_by_their_worth_and_chance_apart():
    settings = dataclasses.replace(
        SETTINGS, causes=("pipeline", "lanes", "updates", "optimizer", "spaces"), alone=("updates",)
    )
    rows = some_rows(settings)
    for row, thousandths in zip(rows, (2000, 2300, 2310, 2305, 1800, 1200, 1250, 1500), strict=True):
        row["val_loss_per_original_character"] = thousandths / 1000
    old, new, down, up, chance, alone, *rest = conclusion(settings, "my text", rows).splitlines()
    assert f"prints {rows[0]['train_loss_per_original_character']:.3f} nats" in old
    assert "+0.750 nats" in new
    assert "optimizer +0.600, updates +0.505." in down
    assert "size -0.300, spaces -0.050." in up
    assert "0.010" in chance
    assert "pipeline -0.010, lanes +0.005." in chance
    assert "updates +0.800, pipeline -0.010." in alone
    assert len(rest) == 2
    assert all(line.startswith("- ") for line in (old, new, *rest))


def test_every_cause_is_told_in_words():
    assert epoch_loss_report.described(SETTINGS).keys() == SETTINGS.changes.keys() == {"size", *CAUSES}


# The smoke run


@pytest.mark.slow
def test_every_run_is_that_of_its_recipe(run):
    recipes = run.settings.recipes
    assert [row["run"] for row in run.rows] == list(recipes)
    for row in run.rows:
        config = json.loads((run.folder / row["run"] / "config.json").read_text(encoding="utf-8"))
        assert config["recipe"] == row["recipe"] == dataclasses.asdict(recipes[row["run"]])
        assert config["train"]["optimizer"] == row["recipe"]["optimizer"]
        assert config["model"]["units"] == row["recipe"]["units"]
        assert config["train"]["global_clipnorm"] == row["recipe"]["global_clipnorm"]


@pytest.mark.slow
def test_the_figures_are_those_of_the_models_that_are_left(run):
    data = Data(run.settings)
    for row in run.rows[::2]:  # without spaces, and with them
        form = data.form(run.settings.recipes[row["run"]])
        model = keras.models.load_model(run.folder / row["run"] / "model.keras")
        length = run.settings.length
        count = (len(form.validation) - 1) // length
        x, y = (form.validation[s : s + count * length].reshape(count, -1) for s in (0, 1))
        cold = np.mean(keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True))
        assert row["val_loss"] == pytest.approx(cold, rel=1e-5)
        logits = tf.function(model, reduce_retracing=True)
        x, y = form.validation[None, :-1], form.validation[None, 1:]
        warm = np.mean(keras.losses.sparse_categorical_crossentropy(y, logits(x), from_logits=True))
        assert row["val_loss_streaming"] == pytest.approx(warm, rel=1e-5)
        for kind, nats in (("cold", cold), ("warm", warm)):
            per_original = nats * len(form.validation) / len(data.original.validation)
            assert row[f"{kind}_nats_per_original_character"] == pytest.approx(per_original, rel=1e-5)
        lines = (run.folder / row["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        printed = [line["val_loss"] for line in map(json.loads, lines) if line["split"] == "train"]
        assert len(printed) == run.settings.updates
        assert row["train_loss_per_original_character"] == printed[-1]


@pytest.mark.slow
def test_it_leaves_a_report_a_picture_and_a_page_in_tensorboard(run):
    page = (run.folder / "epoch_loss.md").read_text(encoding="utf-8")
    tables = [
        epoch_loss_report.ladder_table(run.settings, run.rows),
        epoch_loss_report.alone_table(run.settings, run.rows),
    ]
    for part in (*tables, conclusion(run.settings, "docstrings", run.rows)):
        assert part in page
        assert part in run.said.stdout
    assert run.told["worth_in_thousandths"] == epoch_loss_report.worths(run.settings, run.rows)
    height, width, _ = matplotlib.image.imread(run.folder / "epoch_loss.png").shape
    assert width > height > 400
    assert "tensorboard --logdir" in run.said.stdout.splitlines()[-1]
    assert run.said.stderr == ""
    board = EventAccumulator(str(run.folder)).Reload()
    tags = board.Tags()["tensors"]
    assert "waterfall" in tags
    assert "causes" in tags
    (shown,) = board.Tensors("causes")
    assert run.rows[0]["run"] in shown.tensor_proto.string_val[0].decode()
    board = EventAccumulator(str(run.folder / "00-old" / "validation")).Reload()
    assert "epoch_loss_per_original_character" in {*board.Tags()["tensors"], *board.Tags()["scalars"]}


@pytest.mark.slow
def test_to_resume_what_is_finished_trains_nothing(run, capsys):
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*-*/*")}
    epoch_loss.main(["--resume", str(run.folder)])
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*-*/*")} == before
    assert epoch_loss_report.ladder_table(run.settings, run.rows) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--corpus /nonexistent", "/nonexistent"),
        ("--corpus pydoc --length 100000", "too short"),
        ("--corpus pydoc --length 38000", "without its spaces"),
        ("--length 0", "--length 0"),
        ("--updates 0", "--updates 0"),
        ("--old-units 0", "--old-units 0"),
        ("--units -1", "--units -1"),
        ("--batch-size 0", "--batch-size 0"),
        ("--corpus pydoc --batch-size 4000", "too short"),
        ("--parts 3", "--parts 3"),
        ("--train.patience 2", "--train.patience 2"),
        ("--restart 1.5", "--restart 1.5"),
        ("--learning-rate 0", "--learning-rate 0"),
        ("--learning-rate nan", "--learning-rate nan"),
        ("--seed -1", "--seed -1"),
        ("--pipeline slow", "slow"),
        ("--alone size", "size"),
        ("--alone lanes lanes", "--alone lanes lanes"),
        ("--full nope", "nope"),
        ("--causes", "--causes"),
        ("--train.log-every 0", "log_every=0"),
        ("--resume nowhere", "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, tmp_path, arguments, names):
    sentence = fails(epoch_loss.main, *arguments.split(), "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.epoch_loss: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()
