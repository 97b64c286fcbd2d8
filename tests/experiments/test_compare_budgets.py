import dataclasses
import itertools
import json
import math
import pathlib

import pytest

from experiments.common.jobs import run_all
from experiments.compare import __main__ as compare
from experiments.compare import budgets as compare_budgets
from experiments.compare.budgets import Budget
from experiments.compare.settings import SMOKE, CompareConfig
from experiments.compare.sweep import sweep, sweep_warnings, with_best_rates
from keras_seq import training
from keras_seq.commands.options import replaced
from keras_seq.models import MODELS, LlamaConfig, LSTMConfig, TransformerConfig
from keras_seq.models import config as match_parameters
from keras_seq.models.config import tiny_config
from keras_seq.models.counts import flops_per_token
from keras_seq.reports.learning_rates import SweepRun, fit_rates
from keras_seq.runs.texts import SplitCorpus

V = 65


def make_config(match, models=("lstm", "transformer"), **changes):
    config = replaced(CompareConfig(models=models, match=match), {**SMOKE, "transformer": MODELS["gpt2"].tiny})
    return dataclasses.replace(config, **changes)


def plan(config, seconds=None, monkeypatch=None, folder=pathlib.Path("nowhere")):
    if seconds is not None:
        seconds_by_class = {type(config.model(name)): seconds[name] for name in seconds}
        monkeypatch.setattr(
            compare_budgets,
            "_seconds_per_step",
            lambda config, model_config, v, windows: seconds_by_class[type(model_config)],
        )
    return compare_budgets.plan(config, folder, V, make_windows=None)


def test_by_tokens_nothing_is_changed():
    config = make_config("tokens")
    for name, budget in plan(config).items():
        model = config.model(name).build_model(V)
        assert (budget.model_config, budget.steps) == (config.model(name), 20)
        assert budget.parameters == model.count_params()
        assert budget.flops_per_token == flops_per_token(model, 32, training=True)
        assert budget.learning_rate == config.train.peak_learning_rate(model)
        assert compare_budgets.train_tokens(config, budget) == 20 * 4 * 32


def test_by_flops_all_cost_what_the_first_one_costs():
    config = make_config("flops", models=("transformer", "lstm", "gru"), tokens=2000 * 4 * 32)
    budgets = plan(config)
    assert budgets["transformer"].steps == 2000
    costs = [b.flops_per_token * compare_budgets.train_tokens(config, b) for b in budgets.values()]
    assert costs == pytest.approx([costs[0]] * 3, rel=1e-3)
    assert len({b.steps for b in budgets.values()}) == 3


def test_by_seconds_all_take_as_long_as_the_first_one(monkeypatch, tmp_path):
    config = make_config("seconds", models=("gru", "rnn"), tokens=1000 * 4 * 32)
    budgets = plan(config, {"gru": 0.03, "rnn": 0.02}, monkeypatch, tmp_path)
    assert {name: b.steps for name, b in budgets.items()} == {"gru": 1000, "rnn": 1500}
    assert [row[-1] for row in compare_budgets.budget_table(config, budgets).rows] == ["30.0", "30.0"]


SLOW = {name: pytest.param(name, marks=pytest.mark.slow) for name in ("minlstm", "mamba", "llama")}


@pytest.mark.parametrize("name", ["lstm", *SLOW.values()])  # a way to grow each
def test_by_parameters_no_neighboring_width_comes_closer(name):
    target = 9_000
    model_config = tiny_config(name, context_length=32)
    matched = match_parameters.match_parameter_count(model_config, V, target)
    off = abs(matched.build_model(V).count_params() - target)
    assert off < 0.05 * target
    if hasattr(model_config, "num_heads"):
        assert matched.embedding_dim // matched.num_heads == model_config.embedding_dim // model_config.num_heads
        others = [dataclasses.replace(matched, feed_forward_dim=matched.feed_forward_dim + n) for n in (-1, 1)]
    else:
        width = "units" if name == "lstm" else "embedding_dim"
        others = [match_parameters.scale_width(model_config, width, getattr(matched, width) + n) for n in (-1, 1)]
    assert all(abs(other.build_model(V).count_params() - target) >= off for other in others)


def test_by_parameters_the_first_model_is_as_it_was_and_the_others_follow():
    config = make_config("parameters", models=("gru", "rnn"))
    budgets = plan(config)
    assert budgets["gru"].model_config == config.gru
    counts = [b.parameters for b in budgets.values()]
    assert counts == pytest.approx([counts[0]] * 2, rel=0.02)
    assert budgets["rnn"].model_config == dataclasses.replace(config.rnn, units=budgets["rnn"].model_config.units)
    assert [b.steps for b in budgets.values()] == [20, 20]


def test_heads_of_keys_and_values_stay_a_divisor():
    for heads in range(1, 9):
        changed = match_parameters.with_heads(LlamaConfig(128, 4, 4, 2, 392, context_length=8), heads)
        assert (changed.num_heads, changed.embedding_dim, changed.feed_forward_dim) == (heads, 32 * heads, 98 * heads)
        assert heads % changed.num_key_value_heads == 0
        assert changed.num_key_value_heads <= max(1, heads / 2)


@pytest.mark.parametrize("target", [1, 7, 10, 11, 1000])
def test_the_closest_is_found_from_any_start(target):
    for start in (1, 3, 50):
        assert match_parameters._closest(lambda n: n, lambda n: n**2, target, start) == min(
            range(1, 60), key=lambda n: abs(n**2 - target)
        )


def test_measured_times_are_kept_and_not_measured_again(tmp_path, monkeypatch):
    config = make_config("seconds", models=("gru", "rnn"))
    budgets = plan(config, {"gru": 0.03, "rnn": 0.017}, monkeypatch, tmp_path)
    monkeypatch.undo()
    assert plan(config, folder=tmp_path) == budgets
    longer = plan(dataclasses.replace(config, tokens=2 * config.tokens), folder=tmp_path)
    assert {name: b.steps for name, b in longer.items()} == {"gru": 40, "rnn": round(40 * 0.03 / 0.017)}


def test_times_that_are_corrupt_or_gone_are_an_error_once_runs_were_planned_with_them(tmp_path, monkeypatch):
    path, config = tmp_path / "seconds.json", make_config("seconds", models=("rnn",))
    budgets = plan(config, {"rnn": 0.03}, monkeypatch, tmp_path)
    monkeypatch.undo()
    for text in ("{", "[]", '{"rnn": 0.03}', None):
        path.unlink()
        if text is None:
            (tmp_path / "rnn-seed0").mkdir()
            (tmp_path / "rnn-seed0/config.json").touch()
        else:
            path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=r"seconds\.json .* cannot be measured again: start a new run\."):
            compare_budgets.step_seconds(config, path, budgets, V, make_windows=None)


def test_the_table_marks_what_is_matched():
    budgets = plan(make_config("tokens"))
    for match in ("tokens", "parameters", "flops"):
        table = compare_budgets.budget_table(make_config(match), budgets)
        (marked,) = (cell for cell in table.header if "(matched)" in cell)
        assert match.removesuffix("s").upper() in marked.upper()
        assert [row[0] for row in table.rows] == ["lstm", "transformer"]


def test_a_width_in_words():
    assert compare_budgets.format_widths(LSTMConfig(64, 408)) == "embedding 64, units 408"
    assert (
        compare_budgets.format_widths(TransformerConfig(128, 4, 4, 512)) == "embedding 128, feed-forward 512, heads 4"
    )


def budgets(steps=100):
    return {name: Budget(name, None, steps, 1, 1, rate) for name, rate in (("lstm", 0.03), ("transformer", 0.02))}


def trained(losses, config, tmp_path):
    """Run a sweep whose runs have the losses that a function of model and rate gives, None where they diverge."""
    seen = []

    def plan_run(run, budget, train):
        (tmp_path / run).mkdir(exist_ok=True)
        return tmp_path / run, 0, lambda: train_one(run, budget, train)

    def train_one(run, budget, train):
        assert train.validate_every > budget.steps
        assert train.validate_every % config.train.validate_every == 0
        seen.append((run, budget.steps, train.learning_rate))
        loss = losses(budget.name, train.learning_rate)
        if loss is None:
            raise training.TrainingDiverged("too fast")
        return {"val_loss_per_character": loss}

    return sweep(config, budgets(), plan_run, run_all), seen


def test_every_model_is_trained_at_its_own_rates_and_divergence_does_not_end_the_sweep(tmp_path):
    config = CompareConfig(sweep="learning-rate", sweep_factors=(3.0, 1.0, 0.3), sweep_tokens=384_000)
    runs, seen = trained(lambda model, rate: None if rate > 0.05 else abs(math.log(rate / 0.02)), config, tmp_path)
    assert [(run.model, run.learning_rate) for run in runs] == [
        *(("lstm", 0.009), ("lstm", 0.03), ("lstm", 0.09)),
        *(("transformer", 0.006), ("transformer", 0.02), ("transformer", 0.06)),
    ]
    assert seen[0] == ("sweep-lstm-0.009", 25, 0.009)  # a quarter of the steps
    assert [run.loss is None for run in runs] == [False, False, True] * 2
    assert sweep_warnings(fit_rates(runs).values()) == []
    assert with_best_rates(budgets(), fit_rates(runs))["transformer"].learning_rate == 0.02


def test_a_model_that_is_best_at_an_end_is_trained_beyond_it_until_it_gains_no_more(tmp_path):
    config = CompareConfig(sweep="learning-rate", sweep_factors=(0.5, 1.0, 2.0))
    best = {"lstm": 0.0038, "transformer": 1.0}
    runs, _ = trained(lambda model, rate: 0.02 * math.log2(rate / best[model]) ** 2, config, tmp_path)
    rates = {model: [run.learning_rate for run in runs if run.model == model] for model in best}
    assert rates["lstm"] == [0.001875, 0.00375, 0.0075, 0.015, 0.03, 0.06]
    assert rates["transformer"] == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64]  # at most four more
    curves = fit_rates(runs)
    assert curves["lstm"].optimum == 0.0038
    (warning,) = sweep_warnings(curves.values())
    assert all(word in warning for word in ("transformer", "largest", "0.64"))


def test_the_sweep_sees_the_last_tenth_of_the_training_text_and_nothing_of_the_validation_text(tmp_path):
    (tmp_path / "digits.txt").write_text("0123456789" * 20, encoding="utf-8")
    data = SplitCorpus(str(tmp_path / "digits.txt"), tmp_path / "runs")
    left, right = data.hold_out(4)
    assert left + right == data.train_text
    assert len(right) == len(data.train_text) // 10
    assert left + right + data.validation_text == data.corpus.text


@pytest.mark.slow
def test_seconds_matched_and_swept_and_stopped_in_between_ends_as_if_it_had_not_been(tmp_path, monkeypatch):
    """The whole way over a text that is markup: a timed plan, a sweep, a stop, the rest by --resume."""
    corpus = tmp_path / "<script>alert(1).txt"
    corpus.write_text("".join(f"<script>alert({n % 7})</script>\n" for n in range(400)), encoding="utf-8")
    options = "--smoke --models gru mingru --match seconds --num-seeds 2 --sweep learning-rate --sweep-factors 0.5 1"
    options = [*options.split(), "--corpus", str(corpus), "--log-dir", str(tmp_path / "logs")]
    real, calls = compare.train_one, itertools.count()

    def stops(*arguments):
        if next(calls) == 5:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(compare, "train_one", stops)
    with pytest.raises(SystemExit) as stop:
        compare.main(options)
    assert stop.value.code == 130
    monkeypatch.undo()
    (folder,) = (tmp_path / "logs/compare").iterdir()
    times = (folder / "seconds.json").read_bytes()
    compare.main(["--resume", str(folder)])
    assert (folder / "seconds.json").read_bytes() == times
    seconds = json.loads(times)
    steps = {"gru": 20, "mingru": max(1, round(20 * seconds["gru"] / seconds["mingru"]))}
    written = json.loads((folder / "compare.json").read_text(encoding="utf-8"))
    sweep_runs = [SweepRun(**run) for run in written["sweep_runs"]]
    assert all(
        len(curve.tried) >= 2 and (curve.edge is None or len(curve.tried) == 6)
        for curve in fit_rates(sweep_runs).values()
    )
    for row in written["rows"]:
        config = json.loads((folder / f"{row['model']}-seed{row['seed']}/config.json").read_text(encoding="utf-8"))
        assert config["budget"]["steps"] * 4 * 32 == row["train_tokens"]
        assert config["budget"]["steps"] == steps[row["model"]]
        assert config["train"]["learning_rate"] == fit_rates(sweep_runs)[row["model"]].optimum
    page = (folder / "compare.html").read_text(encoding="utf-8")
    assert page.count("<script") == 2  # the data and the code, nothing of the text
