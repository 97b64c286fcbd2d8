import dataclasses
import json
import types

import keras
import matplotlib.image
import numpy as np
import pytest

from experiments.frame.random_window_training import SplitCorpus
from experiments.frame.runs import dataclass_from_dict
from experiments.optimizers import __main__ as optimizers
from experiments.optimizers import report as optimizers_report
from keras_seq.training import OPTIMIZERS
from keras_seq.training.config import LEARNING_RATES


def a_row(optimizer, factor, loss, validation=9.0):
    diverged = "The loss is nan by step 3" if loss is None else None
    rate = factor * LEARNING_RATES[optimizer]["residual"]
    return {
        **{"run": f"{optimizer}-{rate:g}-seed0", "factor": factor, "optimizer": optimizer, "learning_rate": rate},
        **{"diverged": diverged, "held_out_loss_per_character": loss, "val_loss_per_character": validation},
    }


ROWS = [
    *(a_row("sgd", factor, loss) for factor, loss in ((0.3, 2.5), (1, 2.25), (3, None))),
    *(a_row("adam", factor, loss, 1.875) for factor, loss in ((0.3, 2.0), (1, 1.75), (3, 2.5))),
    *(a_row("lion", factor, None) for factor in (0.3, 1, 3)),
]


@pytest.fixture(scope="module")
def run(python, tmp_path_factory):
    """Two optimizers at two rates each, one of the rates beyond all bounds."""
    logs = tmp_path_factory.mktemp("logs")
    options = ("--optimizers", "sgd", "adam", "--factors", "1", "1e30", "--log-dir", logs)
    process = python("-m", "experiments.optimizers", "--smoke", *options)
    assert process.returncode == 0, process.stderr
    (folder,) = (logs / "optimizers").iterdir()
    rows = json.loads((folder / "optimizers.json").read_text(encoding="utf-8"))
    return types.SimpleNamespace(folder=folder, rows=rows, process=process)


def cells(table):
    return {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]] for line in table.splitlines()}


def test_the_best_rate_is_that_of_the_lowest_held_out_loss():
    assert optimizers_report.best_run(ROWS[:3]) is ROWS[1]
    assert optimizers_report.best_run(ROWS) is ROWS[4]
    assert optimizers_report.best_run(ROWS[6:]) is None


def test_the_table_has_the_best_optimizer_first_and_says_what_diverged():
    table = cells(optimizers_report.table(ROWS))
    assert list(table)[2:] == ["adam", "sgd", "lion"]
    assert table["adam"] == ["0.004", "2.000", "1.750", "2.500", "0.004", "", "1.875"]
    assert table["sgd"][1:4] == ["2.500", "2.250", "diverged"]
    assert table["lion"][1:] == ["diverged", "diverged", "diverged", "-", "", "-"]


@pytest.mark.parametrize(("losses", "edge"), [((3, 2, 1), "highest"), ((1, 2, 3), "lowest"), ((2, 1, 2), "")])
def test_a_best_rate_at_the_edge_of_the_grid_is_marked(losses, edge):
    group = [a_row("adam", factor, loss) for factor, loss in zip((0.3, 1, 3), losses, strict=True)]
    assert optimizers_report.grid_edge(group) == edge
    assert cells(optimizers_report.table(group))["adam"][-2] == edge


def test_every_run_has_its_optimizer_and_rate(run):
    assert [(row["optimizer"], row["factor"]) for row in run.rows] == [
        (o, f) for o in ("sgd", "adam") for f in (1, 1e30)
    ]
    for row in run.rows:
        config = json.loads((run.folder / row["run"] / "config.json").read_text(encoding="utf-8"))
        assert config["train"]["optimizer"] == row["optimizer"]
        assert config["train"]["learning_rate"] == row["learning_rate"]
        assert row["learning_rate"] == pytest.approx(row["factor"] * LEARNING_RATES[row["optimizer"]]["residual"])
    assert len({row["run"] for row in run.rows}) == 4


def test_a_run_that_diverges_is_a_result(run):
    for row in run.rows:
        result = json.loads((run.folder / row["run"] / "result.json").read_text(encoding="utf-8"))
        assert result.items() <= row.items()
        assert (row["diverged"] is None) == (row["factor"] == 1)
        assert (row["held_out_loss_per_character"] is None) == (row["factor"] > 1)
        assert (run.folder / row["run"] / "model.keras").exists() == (row["factor"] == 1)
        lines = (run.folder / row["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        recorded = [0, *(json.loads(line)["tokens"] for line in lines)][-1]
        if row["diverged"]:
            assert recorded <= row["train_tokens"] < 8 * 4 * 16
        else:
            assert row["train_tokens"] == recorded
    for name in ("sgd", "adam"):
        assert cells(optimizers_report.table(run.rows))[name].count("diverged") == 1


def test_all_start_from_the_same_weights_and_read_the_same(run):
    """Their first losses agree, before any rate has had a say."""
    first = {}
    for row in run.rows:
        if row["diverged"] is None:
            lines = (run.folder / row["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            first[row["optimizer"]] = json.loads(lines[0])
    assert first["sgd"]["loss"] == pytest.approx(first["adam"]["loss"], rel=0.02)
    assert first["sgd"]["tokens"] == first["adam"]["tokens"]


def test_the_figures_are_those_of_the_model_that_is_left(run):
    (row,) = (row for row in run.rows if row["run"].startswith("adam") and row["diverged"] is None)
    config = dataclass_from_dict(
        optimizers.OptimizersConfig, json.loads((run.folder / row["run"] / "config.json").read_text())["experiment"]
    )
    data = SplitCorpus(config.corpus, min_length=config.sequence_length + 1, held_out=True)
    assert "".join(data.texts) == data.corpus.text
    model = keras.models.load_model(run.folder / row["run"] / "model.keras")
    for part in ("held_out", "validation"):
        ids = getattr(data, part)
        rows = (len(ids) - 1) // config.sequence_length
        x, y = (ids[start : start + rows * config.sequence_length].reshape(rows, -1) for start in (0, 1))
        losses = keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
        assert row[f"{part}_loss_per_character" if part == "held_out" else "val_loss_per_character"] == pytest.approx(
            np.mean(losses), rel=1e-5
        )


def test_it_leaves_a_report_and_a_plot_and_prints_their_paths(run):
    report = (run.folder / "optimizers.md").read_text(encoding="utf-8")
    assert optimizers_report.table(run.rows) in report
    assert optimizers_report.table(run.rows) in run.process.stdout
    height, width, _ = matplotlib.image.imread(run.folder / "optimizers.png").shape
    assert width > height > 400
    assert str(run.folder / "optimizers.png") in run.process.stdout
    assert "tensorboard --logdir" in run.process.stdout.splitlines()[-1]
    assert run.process.stderr == ""


def test_to_resume_what_is_finished_trains_nothing(run, capsys):
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*-seed0/*")}
    optimizers.main(["--resume", str(run.folder)])
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*-seed0/*")} == before
    assert optimizers_report.table(run.rows) in capsys.readouterr().out


def test_both_models_are_of_about_one_size():
    config = optimizers.OptimizersConfig()
    sizes = [
        dataclasses.replace(config, model=name).model_config.build_model(100).count_params()
        for name in ("transformer", "lstm")
    ]
    assert max(sizes) < 1.2 * min(sizes)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--corpus /nonexistent", "/nonexistent"),
        ("--sequence-length 100000", "too short"),
        ("--sequence-length 0", "--sequence-length 0"),
        ("--tokens 0", "--tokens 0"),
        ("--batch-size 0", "--batch-size 0"),
        ("--seed -1", "--seed -1"),
        ("--width 6", "--width 6"),
        ("--width 0", "--width 0"),
        ("--factors 1 0", "--factors 1.0 0.0"),
        ("--factors 1 1", "--factors 1.0 1.0"),
        ("--factors inf", "--factors inf"),
        ("--optimizers", "--optimizers"),
        ("--optimizers nope", "nope"),
        ("--optimizers adam adam", "--optimizers adam adam"),
        ("--model gpt2", "gpt2"),
        ("--train.learning-rate 1", "--factors"),
        ("--train.optimizer adam", "--optimizers"),
        ("--train.log-every 0", "log_every=0"),
        ("--resume nowhere", "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, tmp_path, arguments, names):
    sentence = fails(optimizers.main, *arguments.split(), "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.optimizers: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()


def test_all_optimizers_are_compared_by_default():
    assert optimizers.OptimizersConfig().optimizers == tuple(OPTIMIZERS)
