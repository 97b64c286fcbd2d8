import dataclasses
import json

import keras
import numpy as np
import pytest

from experiments import optimizers as study
from experiments.optimizers import OptimizersConfig, table
from keras_seq.runs.folders import dataclass_from_dict
from keras_seq.runs.texts import SplitCorpus
from keras_seq.training import OPTIMIZERS, read_metrics
from keras_seq.training.config import LEARNING_RATES


def a_row(optimizer, factor, loss, val_loss=9.0):
    rate = factor * LEARNING_RATES[optimizer]["residual"]
    return {
        **{"run": f"{optimizer}-{rate:g}-seed0", "factor": factor, "optimizer": optimizer, "learning_rate": rate},
        **{"diverged": "nan" if loss is None else None, "held_out_loss": loss, "val_loss": val_loss},
    }


RESULTS = study.by_optimizer(
    [
        *(a_row("sgd", factor, loss) for factor, loss in ((0.3, 2.5), (1, 2.25), (3, None))),
        *(a_row("adam", factor, loss, 1.875) for factor, loss in ((0.3, 2.0), (1, 1.75), (3, 2.5))),
        *(a_row("lion", factor, None) for factor in (0.3, 1, 3)),
    ]
)


def test_the_best_optimizer_is_first_and_what_diverged_is_said():
    assert [result.name for result in RESULTS] == ["adam", "sgd", "lion"]
    rows = {row[0]: row[1:] for row in table(RESULTS).rows}
    assert rows["adam"] == ["0.004", "2.000", "1.750", "2.500", "0.004", "", "1.875"]
    assert rows["sgd"][1:4] == ["2.500", "2.250", "diverged"]
    assert rows["lion"][1:] == ["diverged", "diverged", "diverged", "-", "", "-"]
    assert "adam has the lowest held-out loss, 1.750" in study.verdict(RESULTS)
    assert "0.500 below sgd" in study.verdict(RESULTS)


@pytest.mark.parametrize(("losses", "edge"), [((3, 2, 1), "highest"), ((1, 2, 3), "lowest"), ((2, 1, 2), "")])
def test_a_best_rate_at_the_edge_of_the_grid_is_marked(losses, edge):
    rows = [a_row("adam", factor, loss) for factor, loss in zip((0.3, 1, 3), losses, strict=True)]
    (result,) = study.by_optimizer(rows)
    assert result.grid_edge == edge
    assert ("edge of their grid" in study.verdict([result])) == bool(edge)


def test_a_run_that_diverges_is_a_result(smoke_run, smoke):
    beyond_all_bounds = smoke_run("optimizers", "--optimizers", "sgd", "--factors", "1e30")
    for run, diverges in ((smoke, False), (beyond_all_bounds, True)):
        for row in run.rows:
            result = json.loads((run.folder / row["run"] / "result.json").read_text(encoding="utf-8"))
            assert {key: value for key, value in result.items() if key in row}.items() <= row.items()
            assert row["learning_rate"] == pytest.approx(row["factor"] * LEARNING_RATES[row["optimizer"]]["residual"])
            assert (row["diverged"] is not None) == (row["held_out_loss"] is None) == diverges
            assert (run.folder / row["run"] / "model.keras").exists() != diverges
            recorded = [0, *(line["tokens"] for line in read_metrics(run.folder / row["run"]))][-1]
            assert recorded <= row["train_tokens"] < 8 * 4 * 16 if diverges else recorded == row["train_tokens"]


def test_all_start_from_the_same_weights_and_read_the_same(smoke):
    """Their first losses agree, before any rate has had a say."""
    first, second = (read_metrics(smoke.folder / row["run"])[0] for row in smoke.rows)
    assert first["loss"] == pytest.approx(second["loss"], rel=0.02)
    assert first["tokens"] == second["tokens"]


def test_figures_are_those_of_the_model_that_was_saved(smoke):
    row = smoke.rows[0]
    saved = json.loads((smoke.folder / row["run"] / "config.json").read_text(encoding="utf-8"))["experiment"]
    config = dataclass_from_dict(OptimizersConfig, saved)
    data = SplitCorpus(config.corpus, smoke.folder, config.sequence_length + 1, held_out=True)
    assert data.train_text + data.held_out_text + data.validation_text == data.corpus.text
    model = keras.models.load_model(smoke.folder / row["run"] / "model.keras")
    for key, ids in (("held_out_loss", data.held_out), ("val_loss", data.validation)):
        windows = (len(ids) - 1) // config.sequence_length
        x, y = (ids[start : start + windows * config.sequence_length].reshape(windows, -1) for start in (0, 1))
        losses = keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
        assert row[key] == pytest.approx(np.mean(losses), rel=1e-5)


def test_both_models_are_of_about_one_size():
    configs = [dataclasses.replace(OptimizersConfig(), model=name).model_config for name in ("transformer", "lstm")]
    sizes = [config.build_model(100).count_params() for config in configs]
    assert max(sizes) < 1.2 * min(sizes)


def test_all_optimizers_are_compared_by_default():
    assert OptimizersConfig().optimizers == tuple(OPTIMIZERS)
