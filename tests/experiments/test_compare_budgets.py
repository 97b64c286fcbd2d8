import dataclasses
import json

import pytest

from experiments import compare_budgets, compare_widths
from experiments.compare_settings import TINY, Compare, tiny
from keras_seq.models import MODELS, LlamaConfig, LSTMConfig, TransformerConfig
from keras_seq.models.flops import flops_per_token

V = 65


def settings(match, models=("lstm", "transformer"), **changes):
    return dataclasses.replace(tiny(Compare(models=models, match=match)), **changes)


def plan(given, seconds=None, monkeypatch=None):
    if seconds is not None:
        summaries = {type(given.model(name)): seconds[name] for name in seconds}
        monkeypatch.setattr(
            compare_budgets, "_seconds_per_step", lambda s, definition, v, windows: summaries[type(definition)]
        )
    return compare_budgets.plan(given, V, windows=None)


def test_by_tokens_nothing_is_changed():
    given = settings("tokens")
    for name, budget in plan(given).items():
        model = given.model(name).build_model(V)
        assert (budget.definition, budget.steps) == (given.model(name), 20)
        assert budget.parameters == model.count_params()
        assert budget.flops_per_token == flops_per_token(model, 32, training=True)
        assert budget.learning_rate == given.train.peak_learning_rate(model)
        assert compare_budgets.tokens(given, budget) == 20 * 4 * 32


def test_by_flops_all_cost_what_the_first_one_costs():
    given = settings("flops", models=("transformer", "lstm", "gru"), tokens=2000 * 4 * 32)
    budgets = plan(given)
    assert budgets["transformer"].steps == 2000
    costs = [b.flops_per_token * compare_budgets.tokens(given, b) for b in budgets.values()]
    assert costs == pytest.approx([costs[0]] * 3, rel=1e-3)
    assert len({b.steps for b in budgets.values()}) == 3


def test_by_seconds_all_take_as_long_as_the_first_one(monkeypatch):
    given = settings("seconds", tokens=1000 * 4 * 32)
    budgets = plan(given, {"lstm": 0.03, "transformer": 0.02}, monkeypatch)
    assert {name: b.steps for name, b in budgets.items()} == {"lstm": 1000, "transformer": 1500}
    assert "| 30.0 |" in compare_budgets.table(given, budgets).replace("  ", "")


SLOW = {name: pytest.param(name, marks=pytest.mark.slow) for name in ("minlstm", "mamba", "llama")}


@pytest.mark.parametrize("name", ["lstm", *SLOW.values()])  # a way to grow each
def test_by_parameters_no_neighbouring_width_comes_closer(name):
    target = 9_000
    changes = {**TINY[name], "num_layers": 1, **({"context": 32} if name == "llama" else {})}
    definition = MODELS[name](**changes)
    found = compare_widths.matched(definition, V, target)
    off = abs(found.build_model(V).count_params() - target)
    assert off < 0.05 * target
    if hasattr(definition, "num_heads"):
        assert found.embedding_dim // found.num_heads == definition.embedding_dim // definition.num_heads
        others = [dataclasses.replace(found, feed_forward_dim=found.feed_forward_dim + n) for n in (-1, 1)]
    else:
        width = "units" if name == "lstm" else "embedding_dim"
        others = [compare_widths.scaled(definition, width, getattr(found, width) + n) for n in (-1, 1)]
    assert all(abs(other.build_model(V).count_params() - target) >= off for other in others)


def test_by_parameters_the_first_model_is_as_it_was_and_the_others_follow():
    given = settings("parameters", models=("gru", "rnn"))
    budgets = plan(given)
    assert budgets["gru"].definition == given.gru
    counts = [b.parameters for b in budgets.values()]
    assert counts == pytest.approx([counts[0]] * 2, rel=0.02)
    assert budgets["rnn"].definition == dataclasses.replace(given.rnn, units=budgets["rnn"].definition.units)
    assert [b.steps for b in budgets.values()] == [20, 20]


def test_heads_of_keys_and_values_stay_a_divisor():
    for heads in range(1, 9):
        changed = compare_widths.with_heads(LlamaConfig(128, 4, 4, 2, 392, context_length=8), heads)
        assert (changed.num_heads, changed.embedding_dim, changed.feed_forward_dim) == (heads, 32 * heads, 98 * heads)
        assert heads % changed.num_key_value_heads == 0
        assert changed.num_key_value_heads <= max(1, heads / 2)


@pytest.mark.parametrize("target", [1, 7, 10, 11, 1000])
def test_the_closest_is_found_from_any_start(target):
    for start in (1, 3, 50):
        assert compare_widths._closest(lambda n: n, lambda n: n**2, target, start) == min(
            range(1, 60), key=lambda n: abs(n**2 - target)
        )


def test_a_plan_that_is_kept_comes_back(tmp_path, monkeypatch):
    given = settings("seconds", models=("lstm", "transformer"))
    budgets = plan(given, {"lstm": 0.03, "transformer": 0.017}, monkeypatch)
    compare_budgets.write(tmp_path / "plan.json", given, budgets)
    assert compare_budgets.read(tmp_path / "plan.json", given) == budgets
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["match"] == "seconds"


@pytest.mark.parametrize(("before", "after"), [('"steps": ', '"steps": 1'), ("{", ""), ("", "\0")])
def test_a_plan_that_is_damaged_is_made_again_if_that_gives_the_same(tmp_path, monkeypatch, before, after):
    path, size = tmp_path / "plan.json", 20
    budgets = compare_budgets.kept_or_planned(path, settings("flops"), size, None)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(before, after, 1), encoding="utf-8")
    with pytest.warns(UserWarning, match=r"plan\.json .*; it is written again, .* kept as plan\.json\.corrupt\."):
        assert compare_budgets.kept_or_planned(path, settings("flops"), size, None) == budgets
    assert path.read_text(encoding="utf-8") == text
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"plan\.json has schema=None; expected 2"):
        compare_budgets.kept_or_planned(path, settings("flops"), size, None)
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match=r"plan\.json .* cannot be measured again: begin anew\."):
        compare_budgets.kept_or_planned(path, settings("seconds"), size, None)


def test_a_plan_that_is_gone_is_told_once_runs_were_begun(tmp_path):
    path, size = tmp_path / "plan.json", 20
    budgets = compare_budgets.kept_or_planned(path, settings("flops"), size, None)
    path.unlink()
    (tmp_path / "lstm-seed0").mkdir()
    (tmp_path / "lstm-seed0/config.json").touch()
    with pytest.raises(ValueError, match=r"plan\.json is gone, .* cannot be measured again: begin anew\."):
        compare_budgets.kept_or_planned(path, settings("seconds"), size, None)
    with pytest.warns(UserWarning, match=r"plan\.json is gone; it is written again\."):
        assert compare_budgets.kept_or_planned(path, settings("flops"), size, None) == budgets


def test_more_tokens_make_another_plan_without_a_word(tmp_path):
    path, size, begun = tmp_path / "plan.json", 20, settings("flops")
    compare_budgets.kept_or_planned(path, begun, size, None)
    longer = compare_budgets.kept_or_planned(path, dataclasses.replace(begun, tokens=2 * begun.tokens), size, None)
    assert longer["lstm"].steps == 2 * begun.steps


def test_the_table_marks_what_is_matched():
    budgets = plan(settings("tokens"))
    for match in ("tokens", "parameters", "flops"):
        header, _, *lines = compare_budgets.table(settings(match), budgets).splitlines()
        (marked,) = (cell for cell in header.split("|") if "(matched)" in cell)
        assert match.removesuffix("s").upper() in marked.upper()
        assert [line.split("|")[1].strip() for line in lines] == ["lstm", "transformer"]


def test_a_width_in_words():
    assert compare_budgets.width(LSTMConfig(64, 408)) == "embedding 64, units 408"
    assert compare_budgets.width(TransformerConfig(128, 4, 4, 512)) == "embedding 128, feed-forward 512, heads 4"
