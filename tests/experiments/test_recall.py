import json

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from experiments import recall
from experiments.recall import COLUMNS, RecallConfig, RecallRun, by_size
from keras_seq.data.synthetic import RECALL_TASKS
from keras_seq.models import LANGUAGE_MODELS

SETTINGS = RecallConfig(max_length=6, max_items=3, alphabet_size=12, test_rows=40, batch_size=8)


class Solver:
    """Answers as the solution by construction does, or with the first letter."""

    def __init__(self, task, is_right=True):
        self.task, self.is_right, self.vocabulary_size = task, is_right, task.vocabulary_size

    def __call__(self, ids, training):
        y = self.task.solve(np.asarray(ids)) if self.is_right else np.zeros_like(ids)
        return np.eye(self.vocabulary_size, dtype="float32")[y.clip(0)] * 50


@pytest.mark.parametrize("name", RECALL_TASKS)
def test_the_solution_scores_100_percent_and_a_constant_about_chance(name, monkeypatch):
    monkeypatch.setattr("experiments.common.tasks.compiled", lambda fn, *args, **kwargs: fn)
    task = SETTINGS.task(name)
    run = RecallRun(Solver(task), SETTINGS, name, seed=1)
    groups = run.test()["groups"]
    assert [(group["length"], group["items"]) for group in groups] == SETTINGS.test_sizes(name)
    assert all(group["accuracy"] == 1.0 for group in groups)
    scalars = run.validate().scalars
    assert scalars["accuracy"] == 1.0
    assert scalars["val_loss"] < 1e-6
    constant = RecallRun(Solver(task, is_right=False), SETTINGS, name, seed=1)
    accuracies = [group["accuracy"] for group in constant.test()["groups"]]
    assert max(accuracies) < 0.8
    assert constant.validate().scalars["accuracy"] < 0.8
    assert constant.validate().scalars["val_loss"] > 5


def test_rows_of_training_validation_and_test_differ(monkeypatch):
    monkeypatch.setattr("experiments.common.tasks.compiled", lambda fn, *args, **kwargs: fn)
    task, seeds = SETTINGS.task("needle", seed=1), []
    batch = type(task).batch
    monkeypatch.setattr(type(task), "batch", lambda self, step: seeds.append(self.seed) or batch(self, step))
    run = RecallRun(Solver(task), SETTINGS, "needle", seed=1)
    run.validate()
    run.test()
    assert len({task.seed, *seeds}) == 3  # of training, of validation, of all sizes of the test


def test_sizes_go_from_small_to_twice_those_of_training():
    assert SETTINGS.test_sizes("parity") == [(1, 1), (3, 1), (6, 1), (12, 1)]
    sizes = SETTINGS.test_sizes("associative_recall")
    assert sizes == [(3, 1), (6, 1), (12, 1), (6, 3), (12, 3), (12, 6)]


QUICK = ("lstm", "transformer", "mamba2")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.rare] * (name not in QUICK)) for name in LANGUAGE_MODELS]
)
def test_all_models_have_about_as_many_parameters(name):
    config = RecallConfig().model_config(name)
    assert config.build_model(65).count_params() == pytest.approx(100_000, rel=0.05)


def a_row(task, model, seed, accuracies):
    sizes = [(8, 4, True), (16, 4, False), (8, 2, True), (16, 8, False)]
    groups = [
        {"length": length, "items": items, "trained": trained, "chance": 0.25, "accuracy": accuracy}
        for (length, items, trained), accuracy in zip(sizes, accuracies, strict=True)
    ]
    return {"task": task, "model": model, "parameters": 1234, "train_seconds": 5.0 + seed, "groups": groups}


ROWS = [
    a_row("associative_recall", "lstm", 0, (0.2, 0.1, 0.4, 0.1)),
    a_row("associative_recall", "llama", 0, (1.0, 0.5, 1.0, 0.5)),
    a_row("associative_recall", "lstm", 1, (0.4, 0.1, 0.4, 0.1)),
    a_row("associative_recall", "llama", 1, (1.0, 0.9, 1.0, 0.5)),
]


def test_findings_are_means_over_seeds_at_the_hardest_size_of_training():
    lstm, llama = recall.find(ROWS)
    assert (lstm.hardest.length, lstm.hardest.items, lstm.hardest.accuracies) == (8, 4, (0.2, 0.4))
    assert str(lstm.hardest) == "30.0% ± 14.1%"
    assert (llama.twice_as_long.length, llama.twice_as_long.items) == (16, 4)
    assert llama.twice_as_long.accuracy == pytest.approx(0.7)
    assert lstm.seconds == 5.5
    said = recall.verdict([lstm, llama])
    assert said.startswith("associative_recall at length 8 and 16 with 4 items: lstm 30.0% and 10.0%, llama 100.0% and")
    assert "guessing 25.0%. 2 seeds each" in said
    assert by_size([lstm, llama]).rows[0] == [
        "associative_recall",
        "8 x 4 *",
        "30.0% ± 14.1%",
        "100.0% ± 0.0%",
        "25.0%",
    ]


def test_the_report_has_a_line_for_each_task_and_model(smoke):
    assert {(row["task"], row["model"]) for row in smoke.rows} == {
        (task, model) for task in ("associative_recall", "parity") for model in ("lstm", "transformer")
    }
    assert all(f" {column} " in smoke.report for column in COLUMNS)
    assert "| associative_recall | 4 x 2 *" in smoke.report


def test_tensorboard_gets_a_heat_map_of_each_run(smoke):
    for row in smoke.rows:
        events = EventAccumulator(str(smoke.folder / row["run"]), {"tensors": 0}).Reload()
        assert len(events.Tensors("diagnostics/recall")) == 2


def test_every_seed_has_rows_of_its_own():
    first, second = (SETTINGS.task("parity", seed).batch(0)[0] for seed in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.slow
def test_attention_recalls_what_an_lstm_cannot_and_the_lstm_counts(tmp_path):
    """The experiment as it is run, ten minutes: the thresholds of docs/experiments.md, for each of three seeds."""
    options = ["--tasks", "associative_recall", "parity", "--models", "lstm", "transformer", "--num-seeds", "3"]
    recall.main([*options, "--log-dir", str(tmp_path)])
    (path,) = tmp_path.glob("recall/*/recall.json")
    pairs, parity = (
        {f.model: f for f in recall.find(json.loads(path.read_text(encoding="utf-8"))) if f.task == task}
        for task in ("associative_recall", "parity")
    )
    assert min(pairs["transformer"].hardest.accuracies) >= 0.99
    assert max(pairs["lstm"].hardest.accuracies) < 0.5
    assert min(parity["lstm"].twice_as_long.accuracies) >= 0.99
    assert max(abs(accuracy - 0.5) for accuracy in parity["transformer"].twice_as_long.accuracies) < 0.1
