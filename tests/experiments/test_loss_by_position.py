import json

import keras
import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.frame.runs import dataclass_from_dict
from experiments.frame.texts import SplitCorpus
from experiments.loss_by_position import report
from experiments.loss_by_position.findings import RunResult, contrasts, verdict
from experiments.loss_by_position.scores import bin_edges
from experiments.loss_by_position.settings import FAMILIES, LossByPositionConfig


def a_row(model, sequence_length, by_octave, noise=0.01):
    """A run whose loss behind 4-8, 8-16, ... characters is as given, 10 characters in each of 30 blocks."""
    rng = np.random.default_rng(len(by_octave))
    means = np.array(by_octave) + rng.normal(0, noise, (30, len(by_octave)))
    edges = [0, *bin_edges(1, 4 * 2 ** len(by_octave))]
    return {
        **{"model": model, "val_sequence_length": sequence_length, "parameters": 1000, "train_seconds": 12.0},
        "val_loss": float(np.mean(by_octave)),
        "octaves": {"first": 4, "sums": (10 * means).tolist(), "counts": [10] * 30},
        "by_position": {
            "edges": edges,
            "losses": np.linspace(3, by_octave[-1], len(edges) - 1).tolist(),
            "standard_errors": [0.01] * (len(edges) - 1),
        },
    }


ROWS = [
    a_row("lstm", 8, (1.6, 1.5, 1.55)),
    a_row("transformer", 8, (1.7,)),
    a_row("lstm", 32, (1.6, 1.5, 1.5)),
    a_row("transformer", 32, (1.7, 1.5, 1.3)),
]
RESULTS = [RunResult(row) for row in ROWS]


def test_the_table_marks_what_is_beyond_the_training():
    table = report.table(RESULTS)
    lstm, transformer, long_lstm, long_transformer = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert [lstm[name].endswith("*") for name in ("4-8", "8-16", "16-32")] == [False, True, True]
    assert float(transformer["4-8"]) == pytest.approx(1.7, abs=0.01)
    assert [transformer[name] for name in ("8-16", "16-32", "falls by", "per doubling")] == ["-"] * 4
    assert "*" not in "".join([*long_lstm.values(), *long_transformer.values()])
    fall, error = map(float, long_transformer["falls by"].split(" ± "))
    assert fall == pytest.approx(0.4, abs=0.01)
    assert error == pytest.approx(0.01 * np.sqrt(2 / 30), rel=0.4)
    assert float(long_transformer["per doubling"].split(" ± ")[0]) == pytest.approx(0.2, abs=0.005)
    assert all(table.is_numeric[1:])


def test_the_verdict_says_who_goes_on_and_who_is_flat():
    total, last = verdict(RESULTS).split(". In nats")[0].split(";")
    assert "windows of 32 characters, from 4-8 to 16-32" in total
    for part, differences, significant in ((total, (0.1, 0.4, 0.3), (1, 1, 1)), (last, (0, 0.2, 0.2), (0, 1, 1))):
        estimates = part.split(" by ")[1].split(", ")
        for text, value, is_significant in zip(estimates, differences, significant, strict=True):
            number = text.removeprefix("a difference of ").split(" ± ")[0]
            assert float(number) == pytest.approx(value, abs=0.01)
            assert ("not significant" not in text) == is_significant


@pytest.mark.parametrize("number", [2, 3, 4, 7])
def test_the_slope_is_that_of_a_line_of_least_squares(number):
    y = np.random.default_rng(number).normal(size=number)
    falls = {name: weights @ y for name, weights in contrasts(number).items()}
    assert falls["per doubling"] == pytest.approx(-np.polyfit(np.arange(number), y, 1)[0])
    assert (falls["falls by"], falls["last doubling"]) == pytest.approx((y[0] - y[-1], y[-2] - y[-1]))


def test_a_difference_is_taken_character_by_character():
    """Two models that agree but for a constant differ by it, with no error, however uneven the text."""
    lstm, other = (a_row("lstm", 32, (1.6, 1.5, 1.4), noise=0.5) for _ in range(2))
    sums = np.array(other["octaves"]["sums"]) - [[0, 0, 1]]
    transformer = {**other, "model": "transformer", "octaves": {**other["octaves"], "sums": sums.tolist()}}
    assert "a difference of 0.1000 ± 0.0000;" in verdict([RunResult(row) for row in (lstm, transformer)])


def test_the_plot_has_a_curve_a_run_dashed_beyond_its_training(tmp_path, monkeypatch):
    monkeypatch.setattr(plt, "close", lambda figure: None)
    report.plot(tmp_path, RESULTS)
    curves, changes = plt.gcf().axes
    monkeypatch.undo()
    plt.close("all")
    lines = [line for line in curves.get_lines() if len(line.get_xdata())]
    assert [line.get_linestyle() for line in lines] == ["-", "--", "-", "-", "-"]
    assert len({line.get_color() for line in lines}) == 2
    assert lines[1].get_color() == lines[0].get_color()
    assert lines[1].get_xdata()[0] == lines[0].get_xdata()[-1]  # joined
    assert max(lines[0].get_xdata()) < 8 < max(lines[1].get_xdata()) < 32
    assert lines[0].get_alpha() < lines[3].get_alpha()  # longer windows are stronger
    drawn = [container.lines[0].get_linestyle() for container in changes.containers]
    assert drawn == ["--", "-", "-"]  # a Transformer with one octave has nothing to compare


def test_both_families_are_of_one_size_and_read_as_much():
    config = LossByPositionConfig()
    sizes = [config.model_config(family, 64).build_model(65).count_params() for family in FAMILIES]
    assert max(sizes) < 1.05 * min(sizes)
    assert {config.batch_tokens // length * length for length in config.sequence_lengths} == {config.batch_tokens}
    assert config.steps * config.batch_tokens == config.tokens


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--corpus /nonexistent", "/nonexistent"),
        ("--sequence-lengths 64", "two or more"),
        ("--sequence-lengths 64 64", "each once"),
        ("--sequence-lengths 64 96", "--sequence-lengths 64 96"),
        ("--sequence-lengths 7 14", "--sequence-lengths 7 14"),
        ("--sequence-lengths 0 8", "--sequence-lengths 0 8"),
        ("--sequence-lengths 64 65536 --batch-tokens 65536", "is too short"),
        ("--batch-tokens 100", "--batch-tokens 100"),
        ("--tokens 0", "--tokens 0"),
        ("--transformer.context-length 64", "--sequence-lengths"),
        ("--transformer.num-heads 5", "5"),
    ],
)
def test_a_mistake_is_named(refuses, arguments, named):
    refuses("loss_by_position", arguments, named)


def test_every_family_is_trained_at_every_length_on_as_much(smoke):
    assert [(row["model"], row["val_sequence_length"]) for row in smoke.rows] == [
        (family, length) for length in (8, 16) for family in ("lstm", "transformer")
    ]
    assert {(row["train_tokens"], row["batch_size"] * row["val_sequence_length"]) for row in smoke.rows} == {(512, 64)}


def test_scores_are_those_of_the_saved_model(smoke):
    row = smoke.rows[0]
    saved = json.loads((smoke.folder / row["run"] / "config.json").read_text(encoding="utf-8"))["experiment"]
    config = dataclass_from_dict(LossByPositionConfig, saved)
    ids = SplitCorpus(config.corpus, smoke.folder).validation
    model = keras.models.load_model(smoke.folder / row["run"] / "model.keras")
    windows = (len(ids) - 1) // 8
    x, y = (ids[start : start + windows * 8].reshape(windows, 8) for start in (0, 1))
    losses = np.asarray(keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True))
    assert row["val_loss"] == pytest.approx(losses.mean(), rel=1e-5)
    # windows start at every character here, so that these are an eighth of them
    np.testing.assert_allclose(row["by_position"]["losses"][:4], losses.mean(axis=0)[:4], rtol=0.02)
    assert row["by_position"]["edges"][-1] == 16  # a recurrent state has no length
    assert smoke.rows[1]["by_position"]["edges"][-1] == 8
