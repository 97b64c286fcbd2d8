import json
import math
import re
import shutil
import types

import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments.frame.runs import dataclass_from_dict
from experiments.generate import __main__ as generate
from experiments.word_lm import __main__ as word_lm
from experiments.word_lm import report as word_lm_report
from keras_seq.data import load_corpus
from keras_seq.tokenizers import WordTokenizer
from keras_seq.training import read_metrics

CLOCKS = {"train_seconds", "tokens_per_second", "seconds"}


@pytest.fixture(scope="module")
def smoke(python, tmp_path_factory):
    logs = tmp_path_factory.mktemp("logs")
    done = python("-m", "experiments.word_lm", "--smoke", "--log-dir", logs)
    assert done.returncode == 0, done.stderr
    (folder,) = (logs / "word_lm").iterdir()
    report = json.loads((folder / "word_lm.json").read_text(encoding="utf-8"))
    rows = report.pop("runs")
    return types.SimpleNamespace(folder=folder, corpus_info=report, rows=rows, stdout=done.stdout, stderr=done.stderr)


def without_clocks(values):
    return {key: value for key, value in values.items() if key not in CLOCKS}


def test_it_leaves_a_whole_folder_for_both_kinds_of_windows(smoke):
    names = {f"{kind}-seed0" for kind in word_lm.WINDOWS}
    assert {path.name for path in smoke.folder.iterdir()} == {*names, "word_lm.json", "word_lm.md", "word_lm.png"}
    for name in names:
        run = smoke.folder / name
        for part in ("config.json", "tokenizer.json", "metrics.jsonl", "model.keras", "result.json"):
            assert (run / part).stat().st_size > 0
        assert list((run / "checkpoints").iterdir())
        config = json.loads((run / "config.json").read_text(encoding="utf-8"))
        options = dataclass_from_dict(word_lm.WordLMConfig, config["experiment"])
        assert (options.train.final_lr_fraction, options.lstm.tie_embeddings) == (1.0, True)
        assert config["windows"] == name.removesuffix("-seed0")
    assert smoke.stderr == ""


def test_both_get_the_same_tokens_and_the_overlapping_one_fewer_epochs(smoke):
    disjoint, overlapping = smoke.rows
    assert disjoint["train_tokens"] == overlapping["train_tokens"]
    config = word_lm.smoke_config(word_lm.WordLMConfig())
    assert disjoint["epochs"] == config.epochs
    assert overlapping["epochs"] == pytest.approx(disjoint["epochs"] / config.overlap, rel=0.02)
    for row in smoke.rows:
        first, *_, last = (line for line in read_metrics(smoke.folder / row["run"]) if line["split"] == "train")
        assert last["loss"] < first["loss"]
        assert row["train_perplexity"] == pytest.approx(math.exp(last["loss"]))


def test_the_corpus_info_counts_tokens(smoke):
    training, validation = load_corpus("pydoc").split()
    tokenizer = WordTokenizer.from_text(training, min_count=word_lm.smoke_config(word_lm.WordLMConfig()).min_count)
    assert WordTokenizer.load(smoke.folder / "disjoint-seed0/tokenizer.json") == tokenizer
    tokens = re.findall(r"\w+|\W+", validation)
    vocabulary = set(tokenizer.vocabulary)
    assert smoke.corpus_info["vocabulary_size"] == len(vocabulary)
    assert smoke.corpus_info["validation_oov_rate"] == pytest.approx(
        np.mean([token not in vocabulary for token in tokens])
    )
    assert smoke.corpus_info["tokens_per_word"] == pytest.approx(len(tokens) / len(re.findall(r"\w+", validation)))
    for row in smoke.rows:
        bits = math.log2(row["best"]["perplexity"]) * len(tokens) / len(validation)
        assert row["best"]["val_bits_per_character"] == pytest.approx(bits)
        loss_per_word = math.log(row["best"]["perplexity"]) * smoke.corpus_info["tokens_per_word"]
        assert math.log(row["best"]["val_word_perplexity"]) == pytest.approx(loss_per_word)


def test_the_report_has_both_tables_the_picture_and_samples(smoke):
    page = (smoke.folder / "word_lm.md").read_text(encoding="utf-8")
    tables = [line for line in smoke.stdout.splitlines() if line.startswith("|")]
    assert all(line in page for line in tables)
    assert [sum(f" {kind} |" in line for line in tables) for kind in word_lm.WINDOWS] == [1, 1]
    assert "](word_lm.png)" in page
    assert "[UNK] is" in page
    assert page.count("## A sample of") == 2
    height, width, _ = matplotlib.image.imread(smoke.folder / "word_lm.png").shape
    assert width > height > 400
    assert smoke.stdout.rstrip().endswith(f"tensorboard --logdir {smoke.folder}")


def test_generate_writes_with_a_run(smoke, capsys):
    generate.main([str(smoke.folder / "overlapping-seed0"), "--prompt", "The ", "--max-new-tokens", "5"])
    output = capsys.readouterr()
    assert output.out.startswith("The ")
    assert len(output.out) > len("The ") + 5
    assert output.err == ""


def test_to_resume_what_is_finished_trains_nothing_and_what_is_half_done_ends_the_same(smoke, tmp_path):
    folder = shutil.copytree(smoke.folder, tmp_path / "half")
    half, whole = folder / "disjoint-seed0", folder / "overlapping-seed0"
    newest = sorted((half / "checkpoints").iterdir())[-1]
    for path in (half / "result.json", half / "model.keras", half / "checkpoints/latest", newest):
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    word_lm.main(["--resume", str(folder)])
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before
    report = json.loads((folder / "word_lm.json").read_text(encoding="utf-8"))
    assert list(map(without_clocks, report["runs"])) == list(map(without_clocks, smoke.rows))
    again = list(map(without_clocks, read_metrics(half)))
    assert again == list(map(without_clocks, read_metrics(smoke.folder / half.name)))


@pytest.fixture
def curves(tmp_path):
    """Two runs of which only the curves are there: 100 tokens a step, 10 and 40 steps per epoch."""
    rows = []
    for kind, steps_per_epoch, val_losses in (
        ("disjoint", 10, [3.0, 2.0, 1.0, 2.5]),
        ("overlapping", 40, [4.0, 3.5, 3.0, 2.0]),
    ):
        run = f"{kind}-seed0"
        (tmp_path / run).mkdir()
        lines = []
        for n, loss in enumerate(val_losses, start=1):
            at = {"step": 10 * n, "tokens": 1000 * n}
            lines.append({**at, "split": "train", "loss": loss / 2})
            losses = {"val_loss": loss, "val_loss_streaming": loss - 0.5, "val_bits_per_character": loss / 4}
            lines.append({**at, "split": "validation", **losses})
        (tmp_path / run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        rows.append(
            {
                **{"windows": kind, "run": run, "steps_per_epoch": steps_per_epoch},
                **{"train_tokens": 4000, "train_seconds": 1.0, "sample": "To be"},
            }
        )
    return tmp_path, [word_lm_report.with_curve_stats(tmp_path, row, 2.0) for row in rows]


def test_the_best_of_a_curve_and_its_end(curves):
    _, (disjoint, overlapping) = curves
    assert disjoint["best"] == {
        "tokens": 3000,
        "epochs": 3.0,
        "perplexity": math.exp(1.0),
        "perplexity_streaming": math.exp(0.5),
        "val_word_perplexity": math.exp(2.0),
        "val_bits_per_character": 0.25,
    }
    assert (disjoint["perplexity"], disjoint["train_perplexity"]) == (math.exp(2.5), math.exp(1.25))
    assert (disjoint["epochs"], overlapping["epochs"], overlapping["best"]["epochs"]) == (4, 1, 1)


def test_curves_are_compared_at_equal_epochs_and_equal_tokens(curves):
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in word_lm_report.compare_curves(*curves).splitlines()
    ]
    assert rows[0] == ["after", *(f"{kind}, {split}" for kind in word_lm.WINDOWS for split in ("train", "validation"))]

    def shown(*losses):
        return [f"{math.exp(loss):.1f}" for loss in losses]

    assert rows[2:] == [
        ["epoch 1", *shown(1.5, 3.0, 1.0, 2.0)],
        ["1,000 tokens", *shown(1.5, 3.0, 2.0, 4.0)],
        ["2,000 tokens", *shown(1.0, 2.0, 1.75, 3.5)],
        ["4,000 tokens", *shown(1.25, 2.5, 1.0, 2.0)],
    ]


def test_the_plot_has_the_same_curves_by_tokens_and_by_epochs(curves, monkeypatch):
    folder, rows = curves
    monkeypatch.setattr(plt, "close", lambda figure: None)
    word_lm_report.plot(folder, rows)
    by_tokens, by_epochs = plt.gcf().axes
    monkeypatch.undo()
    plt.close("all")
    for left, right, per_epoch in zip(
        by_tokens.get_lines(), by_epochs.get_lines(), [1000] * 3 + [4000] * 3, strict=True
    ):
        np.testing.assert_allclose(left.get_xdata(), np.multiply(right.get_xdata(), per_epoch))
        np.testing.assert_array_equal(left.get_ydata(), right.get_ydata())
    best = [line.get_xydata().tolist() for line in by_tokens.get_lines() if line.get_marker() == "o"]
    assert best == [[[3000, math.exp(1.0)]], [[4000, math.exp(2.0)]]]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--min-count 0", "--min-count 0"),
        ("--epochs 0", "--epochs 0"),
        ("--batch-size 0", "--batch-size 0"),
        ("--sequence-length 0", "--sequence-length 0"),
        ("--seed -1", "--seed -1"),
        ("--overlap 1", "--overlap 1"),
        ("--overlap 5", "--overlap 5"),
        ("--min-count 1000000", "min_count=1000000"),
        ("--corpus {short}", "fewer than batch_size=16"),
        ("--corpus {short} --sequence-length 4 --batch-size 1", "0 of them words"),
        ("--corpus /nonexistent", "/nonexistent"),
        ("--lstm.dropout 1", "dropout=1.0"),
        ("--train.final-lr-fraction 2", "final_lr_fraction=2.0"),
        ("--resume nowhere", "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, tmp_path, arguments, names):
    short = tmp_path / "short"
    short.write_text("to be or not to be, " * 20 + "." * 50, encoding="utf-8")
    sentence = fails(word_lm.main, *arguments.format(short=short).split(), "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.word_lm: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()
