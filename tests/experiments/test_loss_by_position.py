import dataclasses
import json
import types

import keras
import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.frame.runs import dataclass_from_dict
from experiments.loss_by_position import __main__ as loss_by_position
from experiments.loss_by_position import report as loss_by_position_report
from experiments.loss_by_position import scores as loss_by_position_metrics
from keras_seq import training


def a_row(model, sequence_length, by_octave, noise=0.01):
    """A run whose loss behind 4-8, 8-16, ... characters is as given, 10 characters in each of 30 blocks."""
    rng = np.random.default_rng(len(by_octave))
    means = np.array(by_octave) + rng.normal(0, noise, (30, len(by_octave)))
    edges = [0, *loss_by_position_metrics.bin_edges(1, 4 * 2 ** len(by_octave))]
    return {
        **{
            "model": model,
            "val_sequence_length": sequence_length,
            "parameters": 1000,
            "train_seconds": 12.0,
            "seed": 0,
        },
        "val_loss_per_character": float(np.mean(by_octave)),
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


def cells(table):
    header, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    return [dict(zip(header, line, strict=True)) for line in lines]


def test_the_table_marks_what_is_beyond_the_training():
    lstm, transformer, long_lstm, long_transformer = cells(loss_by_position_report.table(ROWS))
    assert [lstm[name].endswith("*") for name in ("4-8", "8-16", "16-32")] == [False, True, True]
    assert float(transformer["4-8"]) == pytest.approx(1.7, abs=0.01)
    assert (transformer["8-16"], transformer["16-32"]) == ("-", "-")
    assert (transformer["falls by"], transformer["per doubling"]) == ("-", "-")
    assert "*" not in "".join(long_lstm.values()) + "".join(long_transformer.values())
    fall_weights, error = map(float, long_transformer["falls by"].split(" ± "))
    assert fall_weights == pytest.approx(0.4, abs=0.01)
    assert error == pytest.approx(0.01 * np.sqrt(2 / 30), rel=0.4)
    assert float(long_transformer["per doubling"].split(" ± ")[0]) == pytest.approx(0.2, abs=0.005)


def test_the_statement_says_who_goes_on_and_who_is_flat():
    conclusion = loss_by_position_report.conclusion(ROWS).splitlines()
    assert "32 characters" in conclusion[0]
    significance_note, goes_on, *differences = conclusion[1:]
    assert significance_note.startswith("- LSTM")
    assert significance_note.endswith("not significant (less than two standard errors).")
    assert goes_on.startswith("- Transformer")
    assert "not significant" not in goes_on
    falls, last = (float(line.split(": ")[1].split(" ± ")[0]) for line in differences)
    assert falls == pytest.approx(0.4 - 0.1, abs=0.01)
    assert last == pytest.approx(0.2 - 0.0, abs=0.01)


def test_a_difference_is_taken_character_by_character():
    """Two models that agree but for a constant differ by it, with no error, however uneven the text."""
    one, other = (a_row("lstm", 32, (1.6, 1.5, 1.4), noise=0.5) for _ in range(2))
    sums = np.array(other["octaves"]["sums"])
    other = {**other, "model": "transformer", "octaves": {**other["octaves"], "sums": (sums - [[0, 0, 1]]).tolist()}}
    assert "total fall minus the LSTM's, paired by character: 0.1000 ± 0.0000" in loss_by_position_report.conclusion(
        [one, other]
    )


def test_the_picture_has_a_curve_a_run_dashed_beyond_its_training(tmp_path, monkeypatch):
    monkeypatch.setattr(plt, "close", lambda figure: None)
    loss_by_position_report.plot(tmp_path, ROWS)
    curves, gains = plt.gcf().axes
    monkeypatch.undo()
    plt.close("all")
    lines = [line for line in curves.get_lines() if len(line.get_xdata())]
    assert [line.get_linestyle() for line in lines] == ["-", "--", "-", "-", "-"]
    assert len({line.get_color() for line in lines}) == 2
    assert lines[1].get_color() == lines[0].get_color()
    assert lines[1].get_xdata()[0] == lines[0].get_xdata()[-1]  # joined
    assert max(lines[0].get_xdata()) < 8 < max(lines[1].get_xdata()) < 32
    assert lines[0].get_alpha() < lines[3].get_alpha()  # the longer context is stronger
    drawn = [container.lines[0].get_linestyle() for container in gains.containers]
    assert drawn == ["--", "-", "-"]  # a Transformer with one octave_sums has nothing to compare
    assert (tmp_path / "loss_by_position.png").read_bytes().startswith(b"\x89PNG")


def test_both_families_are_of_one_size_and_see_as_much():
    config = loss_by_position.LossByPositionConfig()
    sizes = [config.model_config(family, 64).build_model(65).count_params() for family in loss_by_position.FAMILIES]
    assert max(sizes) < 1.05 * min(sizes)
    assert {config.batch_tokens // length * length for length in config.sequence_lengths} == {config.batch_tokens}
    assert config.steps * config.batch_tokens == config.tokens


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--corpus /nonexistent", "/nonexistent"),
        ("--sequence-lengths 64", "two or more"),
        ("--sequence-lengths 64 64", "each once"),
        ("--sequence-lengths 64 96", "--sequence-lengths 64 96"),
        ("--sequence-lengths 7 14", "--sequence-lengths 7 14"),
        ("--sequence-lengths 0 8", "--sequence-lengths 0 8"),
        ("--sequence-lengths 64 65536 --batch-tokens 65536", "is too short"),
        ("--batch-tokens 100", "--batch-tokens 100"),
        ("--batch-tokens 0", "--batch-tokens 0"),
        ("--tokens 0", "--tokens 0"),
        ("--seed -1", "--seed -1"),
        ("--transformer.context-length 64", "--sequence-lengths"),
        ("--train.log-every 0", "log_every=0"),
        ("--resume nowhere", "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, tmp_path, arguments, names):
    sentence = fails(loss_by_position.main, *arguments.split(), "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.loss_by_position: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()


@pytest.fixture(scope="module")
def run(python, tmp_path_factory):
    """The smallest of all runs, in a process of its own."""
    logs = tmp_path_factory.mktemp("logs")
    done = python("-m", "experiments.loss_by_position", "--smoke", "--log-dir", logs)
    assert done.returncode == 0, done.stderr
    (folder,) = (logs / "loss_by_position").iterdir()
    rows = json.loads((folder / "loss_by_position.json").read_text(encoding="utf-8"))
    return types.SimpleNamespace(folder=folder, rows=rows, process=done)


@pytest.mark.slow
def test_every_family_is_trained_at_every_context_on_as_much(run):
    assert [(row["model"], row["val_sequence_length"]) for row in run.rows] == [
        (family, length) for length in (8, 16) for family in ("lstm", "transformer")
    ]
    assert {(row["train_tokens"], row["batch_size"] * row["val_sequence_length"]) for row in run.rows} == {(512, 64)}
    for row in run.rows:
        folder = run.folder / f"{row['model']}-{row['val_sequence_length']}-seed0"
        for part in ("config.json", "tokenizer.json", "metrics.jsonl", "model.keras", "result.json"):
            assert (folder / part).stat().st_size > 0
        assert training.load_result(folder) == row


@pytest.mark.slow
def test_the_figures_are_those_of_the_model_that_is_left(run):
    row = run.rows[0]
    folder = run.folder / "lstm-8-seed0"
    config = dataclass_from_dict(
        loss_by_position.LossByPositionConfig, json.loads((folder / "config.json").read_text())["experiment"]
    )
    ids = loss_by_position.SplitCorpus(config.corpus, 65).validation
    model = keras.models.load_model(folder / "model.keras")
    windows = (len(ids) - 1) // 8
    x, y = (ids[start : start + windows * 8].reshape(windows, 8) for start in (0, 1))
    losses = np.asarray(keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True))
    assert row["val_loss_per_character"] == pytest.approx(losses.mean(), rel=1e-5)
    # There are windows from every character on here, so that the first ones of these are an eighth of them.
    np.testing.assert_allclose(row["by_position"]["losses"][:4], losses.mean(axis=0)[:4], rtol=0.02)
    assert row["by_position"]["edges"][-1] == 16  # a recurrent state has no length
    assert run.rows[1]["by_position"]["edges"][-1] == 8


@pytest.mark.slow
def test_it_leaves_a_report_and_a_picture_and_says_where(run):
    page = (run.folder / "loss_by_position.md").read_text(encoding="utf-8")
    for part in (loss_by_position_report.table(run.rows), loss_by_position_report.conclusion(run.rows)):
        assert part in page
        assert part in run.process.stdout
    height, width, _ = matplotlib.image.imread(run.folder / "loss_by_position.png").shape
    assert width > height > 400
    assert "tensorboard --logdir" in run.process.stdout.splitlines()[-1]
    assert run.process.stderr == ""


@pytest.mark.slow
def test_to_resume_what_is_finished_trains_nothing(run, capsys):
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*-seed0/*")}
    loss_by_position.main(["--resume", str(run.folder)])
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*-seed0/*")} == before
    assert loss_by_position_report.table(run.rows) in capsys.readouterr().out


def test_settings_survive_the_way_to_disk_and_back():
    config = loss_by_position.smoke_config(
        dataclasses.replace(loss_by_position.LossByPositionConfig(), smoke=True, seed=3)
    )
    stored = json.loads(json.dumps(dataclasses.asdict(config)))
    assert dataclass_from_dict(loss_by_position.LossByPositionConfig, stored) == config
