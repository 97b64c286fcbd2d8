import itertools
import json

import pytest

from experiments.common.runs import run_all
from experiments.common.texts import SplitCorpus
from experiments.compare import __main__ as compare
from experiments.compare import sweep as compare_sweep
from experiments.compare.budgets import Budget
from experiments.compare.settings import CompareConfig
from experiments.compare.sweep import SweepRun
from keras_seq import training


def budgets(steps=100):
    return {name: Budget(name, None, steps, 1, 1, rate) for name, rate in (("lstm", 0.03), ("transformer", 0.02))}


def test_every_model_is_trained_at_its_own_rates_and_divergence_does_not_end_the_sweep(tmp_path):
    seen = []

    def plan_run(run, budget, train):
        (tmp_path / run).mkdir()
        return tmp_path / run, 0, lambda: train_one(run, budget, train)

    def train_one(run, budget, train):
        assert train.validate_every > budget.steps
        assert train.validate_every % config.train.validate_every == 0
        seen.append((run, budget.steps, train.learning_rate))
        if train.learning_rate > 0.05:
            raise training.TrainingDiverged("too fast")
        return {"val_loss_per_character": abs(train.learning_rate - 0.01)}

    config = CompareConfig(sweep="learning-rate", sweep_factors=(3.0, 1.0, 0.3), sweep_tokens=384_000)
    sweep_runs = compare_sweep.sweep(config, budgets(), plan_run, run_all)
    assert [(t.model, t.learning_rate) for t in sweep_runs] == [
        *(("lstm", 0.009), ("lstm", 0.03), ("lstm", 0.09)),
        *(("transformer", 0.006), ("transformer", 0.02), ("transformer", 0.06)),
    ]
    assert seen[0] == ("sweep-lstm-0.009", 25, 0.009)  # a quarter of the steps
    assert [t.loss is None for t in sweep_runs] == [False, False, True] * 2
    assert compare_sweep.with_best_lr(budgets()["lstm"], sweep_runs).learning_rate == 0.009
    assert ["lstm", "0.009", "0.0010", "yes"] in compare_sweep.table(sweep_runs).rows


@pytest.mark.parametrize(
    ("losses", "end"), [((1.0, 2.0, 3.0), "smallest"), ((3.0, 2.0, 1.0), "largest"), ((2.0, 1.0, 2.0), None)]
)
def test_a_best_rate_at_the_edge_is_said(losses, end):
    warnings = compare_sweep.warnings(
        [SweepRun("gru", rate, loss) for rate, loss in zip((1, 2, 3), losses, strict=True)]
    )
    assert [end in sentence for sentence in warnings] == ([True] if end else [])


def test_where_all_diverge_nothing_can_be_chosen():
    with pytest.raises(ValueError, match="gru diverged at every learning rate"):
        compare_sweep.best_learning_rate([SweepRun("gru", 1.0, None)], "gru")


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
    options = [
        "--smoke",
        "--corpus",
        str(corpus),
        "--models",
        "gru",
        "mingru",
        "--match",
        "seconds",
        "--num-seeds",
        "2",
    ]
    options += ["--sweep", "learning-rate", "--sweep-factors", "0.5", "1", "--log-dir", str(tmp_path / "logs")]
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
    assert len(written["sweep_runs"]) == 4
    for row in written["rows"]:
        config = json.loads((folder / f"{row['model']}-seed{row['seed']}/config.json").read_text(encoding="utf-8"))
        assert config["budget"]["steps"] * 4 * 32 == row["train_tokens"]
        assert config["budget"]["steps"] == steps[row["model"]]
        sweep_runs = [SweepRun(**run) for run in written["sweep_runs"]]
        assert config["train"]["learning_rate"] == compare_sweep.best_learning_rate(sweep_runs, row["model"])
    page = (folder / "compare.html").read_text(encoding="utf-8")
    assert page.count("<script") == 2  # the data and the code, nothing of the text
