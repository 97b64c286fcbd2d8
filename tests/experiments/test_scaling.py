import dataclasses
import json
import types

import keras
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.frame.runs import dataclass_from_dict
from experiments.scaling import __main__ as scaling
from experiments.scaling import report as scaling_report
from experiments.scaling import sizes as scaling_sizes
from keras_seq.models.flops import flops_per_token
from keras_seq.training import load_result

SIZES = (12_480, 38_184, 96_880, 328_704, 786_096)


def a_row(model, budget, size, loss):
    tokens = 600_000 if budget == "tokens" else round(4e11 / 6 / size)
    return {
        **{"model": model, "budget": budget, "non_embedding_parameters": size, "parameters": size + 5000},
        **{"learning_rate": 0.03, "train_tokens": tokens, "train_flops": 6 * size * tokens, "steps": 9},
        **{"train_seconds": 12.0, "val_sequence_length": 64, "val_loss_per_character": float(loss), "seed": 0},
    }


def rows(asymptote=1.4, best=60e3):
    """Four groups on known curves."""
    x = np.array(SIZES) / 1e5
    losses = {
        ("lstm", "tokens"): asymptote + 0.3 * x**-0.5,
        ("transformer", "tokens"): 1.8 * x**-0.07,
        ("lstm", "compute"): 1.6 + 0.02 * np.log(1e5 * x / best) ** 2,
        ("transformer", "compute"): 1.9 - 0.02 * np.log(x),
    }
    return [a_row(*key, *point) for key, group in losses.items() for point in zip(SIZES, group, strict=True)]


def cells(table):
    header, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


@pytest.mark.slow
def test_the_sizes_of_both_families_agree_and_lie_about_three_times_apart():
    counts = {}
    for family in ("lstm", "transformer"):
        models = [model_config.build_model(65) for model_config in scaling_sizes.model_configs(family, 64)]
        counts[family] = np.array([scaling_sizes.non_embedding_parameters(model) for model in models])
        parts = [[*model.blocks, model.embedding, model.head] for model in models]
        weights = [sum(part.count_params() for part in between) for *between, _, _ in parts]
        assert counts[family].tolist() == weights
    np.testing.assert_allclose(counts["lstm"], counts["transformer"], rtol=0.02)
    ratios = counts["lstm"][1:] / counts["lstm"][:-1]
    assert ((ratios > 2.2) & (ratios < 3.6)).all()


def test_a_weight_between_the_ends_counts_and_no_other():
    model_config = scaling_sizes.model_configs("lstm", 64)[0]
    for vocabulary_size in (65, 500):
        model = model_config.build_model(vocabulary_size)
        assert scaling_sizes.non_embedding_parameters(model) == 4 * 48 * (16 + 48 + 1)


@pytest.mark.slow
def test_each_run_gets_its_budget():
    config = scaling.ScalingConfig()
    runs = scaling.plan(config, 65)
    assert len(runs) == 20
    assert len({run.name for run in runs}) == 20
    for run in runs:
        assert run.train.warmup_steps == min(50, run.num_steps // 10)
        tokens_per_step = config.batch_size * config.sequence_length
        tokens = run.num_steps * tokens_per_step
        if run.budget == "tokens":
            assert tokens == config.tokens
        else:
            assert abs(run.flops_per_token * tokens - config.compute) <= run.flops_per_token * tokens_per_step / 2 + 1
    model = runs[0].model_config.build_model(65)
    assert runs[0].flops_per_token == flops_per_token(model, 64, training=True)


def test_narrow_lstms_learn_at_higher_rates_and_transformers_at_one():
    rates = {}
    for run in scaling.plan(scaling.ScalingConfig(), 65):
        rates.setdefault(run.family, []).append(run.train.learning_rate)
    assert rates["lstm"][::2] == rates["lstm"][1::2]  # by size alone
    assert rates["lstm"][::2] == sorted(rates["lstm"][::2], reverse=True)
    assert rates["lstm"][0] == pytest.approx(0.03 * (408 / 48) ** 0.5, rel=0.01)
    assert rates["lstm"][-1] == pytest.approx(0.03, rel=0.01)
    assert {*rates["transformer"]} == {0.02}


@pytest.mark.slow
def test_a_learning_rate_that_is_given_is_used_for_all():
    train = dataclasses.replace(scaling.ScalingConfig().train, learning_rate=0.007)
    assert {run.train.learning_rate for run in scaling.plan(scaling.ScalingConfig(train=train), 65)} == {0.007}


def test_the_table_of_fits_gives_the_curves_back():
    lstm, pure_lstm, transformer, pure_transformer, compute, downhill = cells(scaling_report.fits_table(rows()))
    assert (lstm["model"], lstm["curve"], pure_lstm["curve"]) == ("lstm", "power law", "pure power law")
    assert lstm["L_inf"] == "1.400 ± 0.000"
    assert lstm["b"] == "0.500 ± 0.000"
    assert lstm["largest residual"] == "0.000"
    assert float(pure_lstm["largest residual"]) > 0.02
    assert (transformer["L_inf"], transformer["b"]) == ("not identified", "not identified")
    assert pure_transformer["b"] == "0.070 ± 0.000"
    assert compute["best N"] == "60,000, within a factor of 1.00"
    assert downhill["best N"] == "not identified"


def test_residuals_are_losses_less_the_curve():
    bent = rows()
    bent[2]["val_loss_per_character"] += 0.05
    for curves in scaling_report.fit_curves(bent):
        np.testing.assert_allclose(curves.residuals + curves.curve(curves.sizes), curves.losses)
    for line, row in zip(cells(scaling_report.table(bent))[:5], bent[:5], strict=True):
        assert line["val_loss@64"] == f"{row['val_loss_per_character']:.3f}"
        assert float(line["fit"]) + float(line["residual"]) == pytest.approx(float(line["val_loss@64"]), abs=0.0016)


def test_the_statement_says_what_the_points_do_not_say():
    lstm, transformer, compute, downhill = scaling_report.conclusion(rows()).splitlines()
    assert "L_inf 1.400" in lstm
    assert "not identified" in transformer
    assert f"twice the size lowers the loss by {100 * (1 - 2**-0.07):.1f} %" in transformer
    assert "N = 38,184 with 1,745,932 tokens, 46 per parameter" in compute
    assert "60,000" in compute
    assert downhill.endswith("not identified.")


def test_a_group_that_opens_downwards_still_has_a_report(tmp_path):
    odd = rows()
    for row in odd:
        if row["budget"] == "compute":
            row["val_loss_per_character"] = 2 - 0.01 * np.log(row["non_embedding_parameters"] / 6e4) ** 2
    scaling_report.write_report(tmp_path, "my text", odd)
    assert [line["best N"] for line in cells(scaling_report.fits_table(odd))[4:]] == ["not identified"] * 2
    assert "not identified" in (tmp_path / "scaling.md").read_text(encoding="utf-8")


def test_the_plot_has_every_point_its_curve_and_its_residual(tmp_path, monkeypatch):
    monkeypatch.setattr(plt, "close", lambda figure: None)
    scaling_report.plot(tmp_path, rows())
    tokens, compute, *residuals = plt.gcf().axes
    monkeypatch.undo()
    plt.close("all")
    for axes, budget in ((tokens, "tokens"), (compute, "compute")):
        points = [line for line in axes.get_lines() if len(line.get_xdata()) == 5]
        plotted = {tuple(line.get_ydata()) for line in points}
        expected = {
            tuple(r["val_loss_per_character"] for r in rows() if (r["budget"], r["model"]) == (budget, model))
            for model in ("lstm", "transformer")
        }
        assert plotted == expected
        assert len([line for line in axes.get_lines() if len(line.get_xdata()) == 100]) == 2
    for axes in residuals:
        assert sum(len(line.get_xdata()) == 5 for line in axes.get_lines()) == 2
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--corpus /nonexistent", "/nonexistent"),
        ("--corpus pydoc --sequence-length 100000", "too short"),
        ("--sequence-length 0", "--sequence-length 0"),
        ("--tokens 0", "--tokens 0"),
        ("--tokens 10", "less than a batch"),
        ("--compute 0", "--compute 0"),
        ("--compute inf", "--compute inf"),
        ("--compute 1e6", "less than a batch"),
        ("--batch-size 0", "--batch-size 0"),
        ("--seed -1", "--seed -1"),
        ("--families gpt2", "gpt2"),
        ("--families lstm lstm", "--families lstm lstm"),
        ("--train.log-every 0", "log_every=0"),
        ("--resume nowhere", "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, tmp_path, arguments, names):
    sentence = fails(scaling.main, *arguments.split(), "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.scaling: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()


def test_a_config_is_restored_from_its_json():
    config = scaling.smoke_config(dataclasses.replace(scaling.ScalingConfig(), smoke=True, seed=3))
    assert dataclass_from_dict(scaling.ScalingConfig, json.loads(json.dumps(dataclasses.asdict(config)))) == config


@pytest.fixture(scope="module")
def run(python, tmp_path_factory):
    """The smallest of all runs, in a process of its own."""
    logs = tmp_path_factory.mktemp("logs")
    process = python("-m", "experiments.scaling", "--smoke", "--log-dir", logs)
    assert process.returncode == 0, process.stderr
    (folder,) = (logs / "scaling").iterdir()
    results = json.loads((folder / "scaling.json").read_text(encoding="utf-8"))
    return types.SimpleNamespace(folder=folder, rows=results, process=process)


@pytest.mark.slow
def test_every_size_is_trained_by_both_budgets(run):
    assert [row["budget"] for row in run.rows] == ["tokens", "compute"] * 4
    sizes = [row["non_embedding_parameters"] for row in run.rows]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 4
    for row in run.rows:
        folder = run.folder / f"{row['model']}-{row['non_embedding_parameters']}-{row['budget']}-seed0"
        assert load_result(folder) == row
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        assert config["train"]["learning_rate"] == row["learning_rate"]
        assert config["steps"] == row["steps"] == row["train_tokens"] / 32
        *_, last = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
        assert last["step"] == row["steps"]
    assert len({row["train_tokens"] for row in run.rows if row["budget"] == "tokens"}) == 1


@pytest.mark.slow
def test_the_loss_is_that_of_the_saved_model(run):
    row = run.rows[0]
    folder = run.folder / f"lstm-{row['non_embedding_parameters']}-tokens-seed0"
    ids = scaling.SplitCorpus("pydoc", 9).validation
    model = keras.models.load_model(folder / "model.keras")
    windows = (len(ids) - 1) // 8
    x, y = (ids[start : start + windows * 8].reshape(windows, 8) for start in (0, 1))
    losses = np.asarray(keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True))
    assert row["val_loss_per_character"] == pytest.approx(losses.mean(), rel=1e-5)


@pytest.mark.slow
def test_it_leaves_a_report_and_a_plot_and_says_where(run):
    report = (run.folder / "scaling.md").read_text(encoding="utf-8")
    for part in (scaling_report.table, scaling_report.fits_table, scaling_report.conclusion):
        assert part(run.rows) in report
        assert part(run.rows) in run.process.stdout
    height, width, _ = matplotlib.image.imread(run.folder / "scaling.png").shape
    assert width > height > 400
    assert "tensorboard --logdir" in run.process.stdout.splitlines()[-1]
    assert run.process.stderr == ""


@pytest.mark.slow
def test_to_resume_what_is_finished_trains_nothing(run, capsys):
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*-seed0/*")}
    scaling.main(["--resume", str(run.folder)])
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*-seed0/*")} == before
    assert scaling_report.fits_table(run.rows) in capsys.readouterr().out
