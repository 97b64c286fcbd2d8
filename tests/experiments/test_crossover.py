import json

import numpy as np
import pytest

from experiments import crossover as study
from keras_seq.evaluation import Difference, paired_difference
from keras_seq.models import LANGUAGE_MODELS
from keras_seq.models.config import tiny_config
from keras_seq.training import TrainConfig
from keras_seq.training.run_config import read_config

BUDGETS = (1_000_000, 4_000_000, 16_000_000)
CURVES = {  # the loss after each budget, by size; differences of 0.03 are more than chance, those of 0.001 are not
    ("lstm", 1000): (1.50, 1.40, 1.36),
    ("transformer", 1000): (1.56, 1.43, 1.30),
    ("mamba2", 1000): (1.50, 1.401, 1.20),
    ("lstm", 8000): (1.40, 1.30, 1.26),
    ("transformer", 8000): (1.44, 1.40, 1.29),
    ("mamba2", 8000): (1.60, 1.50, 1.40),
}


def some_rows(folder, num_seeds=1, noise=0.05):
    """Rows of runs whose losses by window are those of CURVES, with noise that all share and some of their own."""
    rng, rows = np.random.default_rng(0), []
    shared = rng.normal(0, 0.5, (400, 1))
    for seed in range(num_seeds):
        for n, budget in enumerate(BUDGETS):
            for (model, size), curve in CURVES.items():
                losses = curve[n] + shared + rng.normal(0, noise, (400, 8))
                losses += curve[n] - losses.mean()
                run = f"{model}-{size}-{budget}-seed{seed}"
                (folder / run).mkdir()
                np.save(folder / run / "val_token_losses.npy", losses)
                rows.append(
                    {
                        **{"model": model, "size": size, "budget": budget, "parameters": size + 3, "run": run},
                        **{"seed": seed, "learning_rate": 0.02, "characters_per_token": 1.0, "train_seconds": 60.0},
                        **{"val_loss_per_character": curve[n], "val_loss_per_character_streaming": curve[n] - 0.02},
                        **{"val_sequence_length": 64, "train_tokens": budget},
                    }
                )
    return rows


def a_difference(mean):
    return Difference(mean, mean - 0.01, mean + 0.01)


def test_the_zero_of_a_line_in_the_logarithm_of_the_tokens():
    for tokens in (1.3e6, 2e6, 7e6):
        line = np.log(np.array(BUDGETS) / tokens)
        assert study.zero(BUDGETS, line) == pytest.approx(tokens)
        assert study.zero(BUDGETS, -line) == pytest.approx(tokens)
        bent = [line[0], *(3 * line[1:])]
        grid = np.geomspace(BUDGETS[0], BUDGETS[-1], 200_001)
        nearest = grid[np.abs(np.interp(np.log(grid), np.log(BUDGETS), bent)).argmin()]
        assert study.zero(BUDGETS, bent) == pytest.approx(nearest, rel=1e-3)
    with pytest.raises(ValueError, match="one below and one above"):
        study.zero(BUDGETS, [1, 2, 3])


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.1, 0.05, -0.1), [("b", "a", 4, 16)]),  # the difference is b - a
        ((0.1, 0.001, -0.1), [("b", "a", 1, 16)]),  # chance lies between
        ((-0.1, 0.1, 0.2), [("a", "b", 1, 4)]),
        ((-0.1, 0.1, -0.1), [("a", "b", 1, 4), ("b", "a", 4, 16)]),
        ((0.1, 0.05, 0.02), []),
        ((0.1, 0.05, -0.005), []),
        ((0.005, 0.001, -0.1), []),
        ((0, 0, 0), []),
    ],
)
def test_a_model_overtakes_where_the_sign_changes_by_more_than_chance(means, expected):
    differences = {budget: a_difference(mean) for budget, mean in zip((1, 4, 16), means, strict=True)}
    result = study.crossings("a", "b", differences)
    assert [crossing[:4] for crossing in result] == expected
    for crossing in result:
        assert crossing.before < crossing.low < crossing.tokens < crossing.high < crossing.after
    mirrored = study.crossings("b", "a", {budget: a_difference(-d.mean) for budget, d in differences.items()})
    assert mirrored == result


def test_the_verdict_names_the_best_and_each_overtaking(tmp_path):
    verdict = study.Study(tmp_path, some_rows(tmp_path)).verdict
    small, large = verdict.split("With 8 k parameters")
    assert "With 1 k parameters, the lowest loss is that of lstm at 1 M, 4 M and mamba2 at 16 M tokens" in small
    assert "transformer overtakes lstm between 4 M and 16 M tokens, at about 6.3 M (" in small
    assert "mamba2 overtakes" not in small  # its difference from the LSTM is chance, until it is lower
    assert "no model overtakes another by more than chance" in large
    assert "One seed each" in large


def test_the_differences_are_those_of_the_losses_by_window(tmp_path):
    rows = some_rows(tmp_path, num_seeds=2)
    result = study.Study(tmp_path, rows)
    assert "One seed" not in result.verdict
    table = {tuple(row[:2]): row[2:] for row in result.differences_table.rows}
    assert len(table) == 6
    losses = [
        np.stack([np.load(tmp_path / f"{name}-8000-{BUDGETS[1]}-seed{n}" / "val_token_losses.npy") for n in (0, 1)])
        for name in ("lstm", "transformer")
    ]
    expected = paired_difference(*(each.mean(axis=2) for each in losses))
    assert (
        table["8 k", "transformer - lstm"][1] == f"{expected.mean:+.4f} ({expected.low:+.4f} to {expected.high:+.4f})"
    )
    assert expected.mean == pytest.approx(0.1)
    assert table["1 k", "transformer - lstm"][3] == "transformer at 6.3 M"
    forth, back = (result.differences(1000, *pair) for pair in (("lstm", "mamba2"), ("mamba2", "lstm")))
    for budget in BUDGETS:
        assert (back[budget].mean, back[budget].low) == (-forth[budget].mean, -forth[budget].high)


def test_the_plot_has_every_loss_and_every_difference(tmp_path, drawn):
    result = study.Study(tmp_path, some_rows(tmp_path))
    *losses, first, second = drawn(study.plot, tmp_path, result)
    for axes, size in zip(losses, (1000, 8000), strict=True):
        assert {tuple(line.get_ydata()) for line in axes.get_lines()} == {
            curve for (_, each), curve in CURVES.items() if each == size
        }
    for axes, size in ((first, 1000), (second, 8000)):
        means = {
            tuple(np.round(np.asarray(line.get_ydata(), "float64"), 3))
            for line in axes.get_lines()
            if len(line.get_ydata()) == len(BUDGETS)
        }
        expected = {
            tuple(np.round(np.subtract(curve, CURVES["transformer", size]), 3))
            for (model, each), curve in CURVES.items()
            if each == size and model != "transformer"
        }
        assert expected <= means


def test_the_report_has_a_line_for_each_model_size_and_budget(tmp_path):
    report = study.crossover_report("my text", tmp_path, some_rows(tmp_path, num_seeds=2))
    assert len(report.table.rows) == 18
    assert report.table.rows[0][:5] == ["lstm", "1,003", "1 M", "0.02", "1.500 ± 0.000"]


RATES = {"lstm": 0.02, "transformer": 0.02, "mamba2": 0.01, "hybrid": 0.01}


@pytest.mark.parametrize("models", [("lstm", "transformer"), pytest.param(tuple(RATES), marks=pytest.mark.rare)])
def test_models_have_the_sizes_and_runs_their_budgets(models):
    assert study.CrossoverConfig().models == tuple(RATES)
    runs = study.plan(study.CrossoverConfig(models=models), 96)
    assert [run.budget for run in runs] == sorted(run.budget for run in runs)  # the shortest come first
    assert len({run[:3] for run in runs}) == len(runs) == len(models) * 2 * 3
    for run in runs:
        assert run.parameters == pytest.approx(run.size, rel=0.02)
        assert run.budget <= run.steps * 12 * 64 < run.budget + 12 * 64
        assert run.learning_rate == RATES[run.model]


def test_learning_rates_are_those_given_or_those_of_the_optimizer():
    models = {name: tiny_config(name).build_model(9) for name in ("mamba2", "lstm")}

    def rates(**options):
        config = study.CrossoverConfig(models=tuple(models), **options)
        return [config.learning_rate(*model) for model in models.items()]

    assert rates(learning_rates=(0.3, 0.2)) == [0.3, 0.2]
    assert rates(train=TrainConfig(optimizer="adamw")) == [4e-3, 0.04]
    assert rates(train=TrainConfig(learning_rate=0.7)) == [0.7, 0.7]


@pytest.mark.rare
def test_every_language_model_has_both_sizes():
    config = study.CrossoverConfig(models=LANGUAGE_MODELS, budgets=(1000,))
    assert len(study.plan(config, 96)) == 2 * len(LANGUAGE_MODELS)


def test_every_run_is_trained_as_planned(smoke):
    assert [(row["model"], row["budget"]) for row in smoke.rows] == [
        *(("lstm", 512), ("transformer", 512), ("lstm", 1024), ("transformer", 1024)),
    ]
    for row in smoke.rows:
        config = read_config(smoke.folder / row["run"])
        assert config["train"]["learning_rate"] == row["learning_rate"] == 0.02
        assert config["windows"] == "random"
        lines = (smoke.folder / row["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        assert json.loads(lines[-1])["step"] * 64 == row["train_tokens"] == row["budget"]
        losses = np.load(smoke.folder / row["run"] / "val_token_losses.npy")
        assert losses.mean() == pytest.approx(row["val_loss_per_character"], rel=1e-5)
