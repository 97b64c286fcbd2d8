import json
import math
import re
import shutil
import types

import matplotlib.image
import matplotlib.pyplot as plt
import numpy as np
import pytest

from experiments import generate, words, words_report
from experiments.runs import revive
from keras_seq.data import load_corpus
from keras_seq.tokenizers import WordTokenizer

CLOCKS = {"train_seconds", "tokens_per_second", "seconds"}


@pytest.fixture(scope="module")
def smoke(python, tmp_path_factory):
    logs = tmp_path_factory.mktemp("logs")
    done = python("-m", "experiments.words", "--smoke", "--log-dir", logs)
    assert done.returncode == 0, done.stderr
    (folder,) = (logs / "words").iterdir()
    found = json.loads((folder / "words.json").read_text(encoding="utf-8"))
    rows = found.pop("runs")
    return types.SimpleNamespace(folder=folder, about=found, rows=rows, stdout=done.stdout, stderr=done.stderr)


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def without_clocks(values):
    return {key: value for key, value in values.items() if key not in CLOCKS}


def test_it_leaves_a_whole_folder_for_both_kinds_of_blocks(smoke):
    names = {f"{kind}-seed0" for kind in words.KINDS}
    assert {path.name for path in smoke.folder.iterdir()} == {*names, "words.json", "words.md", "words.png"}
    for name in names:
        run = smoke.folder / name
        for part in ("config.json", "tokenizer.json", "metrics.jsonl", "model.keras", "result.json"):
            assert (run / part).stat().st_size > 0
        assert list((run / "checkpoints").iterdir())
        config = json.loads((run / "config.json").read_text(encoding="utf-8"))
        settings = revive(words.WordModels, config["experiment"])
        assert (settings.train.final_lr_fraction, settings.lstm.tie_embeddings) == (1.0, True)
        assert config["blocks"] == name.removesuffix("-seed0")
    assert smoke.stderr == ""


def test_both_get_the_same_tokens_and_the_overlapping_one_fewer_passes(smoke):
    apart, overlapping = smoke.rows
    assert apart["train_tokens"] == overlapping["train_tokens"]
    settings = words.tiny(words.WordModels())
    assert apart["passes"] == settings.passes
    assert overlapping["passes"] == pytest.approx(apart["passes"] / settings.overlap, rel=0.02)
    for row in smoke.rows:
        first, *_, last = (line for line in lines_of(smoke.folder / row["run"]) if line["split"] == "train")
        assert last["val_loss"] < first["val_loss"]
        assert row["train_perplexity"] == pytest.approx(math.exp(last["val_loss"]))


def test_the_figures_of_the_text_are_those_of_its_pieces(smoke):
    training, validation = load_corpus("pydoc").split()
    tokenizer = WordTokenizer.from_text(training, min_count=words.tiny(words.WordModels()).min_count)
    assert WordTokenizer.load(smoke.folder / "apart-seed0/tokenizer.json") == tokenizer
    pieces = re.findall(r"\w+|\W+", validation)
    known = set(tokenizer.vocabulary)
    assert smoke.about["vocabulary"] == len(known)
    assert smoke.about["unknown_in_validation"] == pytest.approx(np.mean([piece not in known for piece in pieces]))
    assert smoke.about["pieces_per_word"] == pytest.approx(len(pieces) / len(re.findall(r"\w+", validation)))
    for row in smoke.rows:
        bits = math.log2(row["best"]["perplexity"]) * len(pieces) / len(validation)
        assert row["best"]["bits_per_character"] == pytest.approx(bits)
        nats = math.log(row["best"]["perplexity"]) * smoke.about["pieces_per_word"]
        assert math.log(row["best"]["val_word_perplexity"]) == pytest.approx(nats)


def test_the_report_has_both_tables_the_picture_and_samples(smoke):
    page = (smoke.folder / "words.md").read_text(encoding="utf-8")
    tables = [line for line in smoke.stdout.splitlines() if line.startswith("|")]
    assert all(line in page for line in tables)
    assert [sum(f" {kind} |" in line for line in tables) for kind in words.KINDS] == [1, 1]
    assert "](words.png)" in page
    assert "[UNK] is" in page
    assert page.count("## A sample of") == 2
    height, width, _ = matplotlib.image.imread(smoke.folder / "words.png").shape
    assert width > height > 400
    assert smoke.stdout.rstrip().endswith(f"tensorboard --logdir {smoke.folder}")


def test_generate_writes_with_a_run(smoke, capsys):
    generate.main([str(smoke.folder / "overlapping-seed0"), "--prompt", "The ", "--length", "5"])
    output = capsys.readouterr()
    assert output.out.startswith("The ")
    assert len(output.out) > len("The ") + 5
    assert output.err == ""


def test_to_resume_what_is_finished_trains_nothing_and_what_is_half_done_ends_the_same(smoke, tmp_path):
    folder = shutil.copytree(smoke.folder, tmp_path / "half")
    half, whole = folder / "apart-seed0", folder / "overlapping-seed0"
    latest = sorted((half / "checkpoints").iterdir())[-1]
    for path in (half / "result.json", half / "model.keras", half / "checkpoints/latest", latest):
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    words.main(["--resume", str(folder)])
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before
    found = json.loads((folder / "words.json").read_text(encoding="utf-8"))
    assert list(map(without_clocks, found["runs"])) == list(map(without_clocks, smoke.rows))
    again = list(map(without_clocks, lines_of(half)))
    assert again == list(map(without_clocks, lines_of(smoke.folder / half.name)))


@pytest.fixture
def curves(tmp_path):
    """Two runs of which only the curves are there: 100 tokens a step, 10 and 40 steps a pass."""
    rows = []
    for kind, steps_per_pass, losses in (
        ("apart", 10, [3.0, 2.0, 1.0, 2.5]),
        ("overlapping", 40, [4.0, 3.5, 3.0, 2.0]),
    ):
        run = f"{kind}-seed0"
        (tmp_path / run).mkdir()
        lines = []
        for n, loss in enumerate(losses, start=1):
            at = {"step": 10 * n, "tokens": 1000 * n}
            lines.append({**at, "split": "train", "val_loss": loss / 2})
            nats = {"val_loss": loss, "val_loss_streaming": loss - 0.5, "val_bits_per_character": loss / 4}
            lines.append({**at, "split": "validation", **nats})
        (tmp_path / run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        rows.append(
            {
                **{"blocks": kind, "run": run, "steps_per_pass": steps_per_pass},
                **{"train_tokens": 4000, "train_seconds": 1.0, "sample": "To be"},
            }
        )
    return tmp_path, [words_report.followed(tmp_path, row, {"pieces_per_word": 2.0}) for row in rows]


def test_the_best_of_a_curve_and_its_end(curves):
    _, (apart, overlapping) = curves
    assert apart["best"] == {
        "tokens": 3000,
        "passes": 3.0,
        "perplexity": math.exp(1.0),
        "perplexity_streaming": math.exp(0.5),
        "val_word_perplexity": math.exp(2.0),
        "bits_per_character": 0.25,
    }
    assert (apart["perplexity"], apart["train_perplexity"]) == (math.exp(2.5), math.exp(1.25))
    assert (apart["passes"], overlapping["passes"], overlapping["best"]["passes"]) == (4, 1, 1)


def test_side_by_side_are_equal_passes_and_equal_tokens(curves):
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in words_report.side_by_side(*curves).splitlines()
    ]
    assert rows[0] == ["after", *(f"{kind}, {split}" for kind in words.KINDS for split in ("training", "validation"))]

    def shown(*losses):
        return [f"{math.exp(loss):.1f}" for loss in losses]

    assert rows[2:] == [
        ["pass 1", *shown(1.5, 3.0, 1.0, 2.0)],
        ["1,000 tokens", *shown(1.5, 3.0, 2.0, 4.0)],
        ["2,000 tokens", *shown(1.0, 2.0, 1.75, 3.5)],
        ["4,000 tokens", *shown(1.25, 2.5, 1.0, 2.0)],
    ]


def test_the_picture_has_the_same_curves_over_tokens_and_over_passes(curves, monkeypatch):
    folder, rows = curves
    monkeypatch.setattr(plt, "close", lambda figure: None)
    words_report.draw(folder, rows)
    over_tokens, over_passes = plt.gcf().axes
    monkeypatch.undo()
    plt.close("all")
    for left, right, per_pass in zip(
        over_tokens.get_lines(), over_passes.get_lines(), [1000] * 3 + [4000] * 3, strict=True
    ):
        np.testing.assert_allclose(left.get_xdata(), np.multiply(right.get_xdata(), per_pass))
        np.testing.assert_array_equal(left.get_ydata(), right.get_ydata())
    best = [line.get_xydata().tolist() for line in over_tokens.get_lines() if line.get_marker() == "o"]
    assert best == [[[3000, math.exp(1.0)]], [[4000, math.exp(2.0)]]]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--min-count 0", "--min-count 0"),
        ("--passes 0", "--passes 0"),
        ("--batch-size 0", "--batch-size 0"),
        ("--length 0", "--length 0"),
        ("--seed -1", "--seed -1"),
        ("--overlap 1", "--overlap 1"),
        ("--overlap 5", "--overlap 5"),
        ("--min-count 1000000", "No piece occurs"),
        ("--corpus {short}", "fewer than batch_size=16"),
        ("--corpus {short} --length 4 --batch-size 1", "0 of them words"),
        ("--corpus /nonexistent", "/nonexistent"),
        ("--lstm.dropout 1", "dropout=1.0"),
        ("--train.final-fraction 2", "final_fraction=2.0"),
        ("--resume nowhere", "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, tmp_path, arguments, names):
    short = tmp_path / "short"
    short.write_text("to be or not to be, " * 20 + "." * 50, encoding="utf-8")
    sentence = fails(words.main, *arguments.format(short=short).split(), "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.words: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()
