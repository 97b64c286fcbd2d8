import json
import math
import re

import numpy as np
import pytest

from experiments import word_lm as study
from experiments.word_lm import SMOKE
from keras_seq.commands import generate
from keras_seq.data import load_corpus
from keras_seq.tokenizers import WordTokenizer
from keras_seq.training import read_metrics

CLOCKS = {"train_seconds", "other_seconds", "tokens_per_second", "seconds"}


def without_clocks(values):
    return {key: value for key, value in values.items() if key not in CLOCKS}


def test_both_get_the_same_tokens_and_the_overlapping_one_fewer_epochs(smoke):
    disjoint, overlapping = smoke.rows["runs"]
    assert disjoint["train_tokens"] == overlapping["train_tokens"]
    assert disjoint["epochs"] == SMOKE["epochs"]
    assert overlapping["epochs"] == pytest.approx(disjoint["epochs"] / SMOKE["overlap"], rel=0.02)
    for row in smoke.rows["runs"]:
        config = json.loads((smoke.folder / row["run"] / "config.json").read_text(encoding="utf-8"))
        assert (config["train"]["final_lr_fraction"], config["model"]["tie_embeddings"]) == (1.0, True)
        assert config["windows"] == row["windows"]
        first, *_, last = read_metrics(smoke.folder / row["run"], "train")
        assert last["loss"] < first["loss"]
        assert row["train_perplexity"] == pytest.approx(math.exp(last["loss"]))


def test_the_sizes_of_the_corpus_count_tokens(smoke):
    training, validation = load_corpus("pydoc").split()
    tokenizer = WordTokenizer.from_text(training, min_count=SMOKE["min_count"])
    assert WordTokenizer.load(smoke.folder / "disjoint-seed0/tokenizer.json") == tokenizer
    tokens = re.findall(r"\w+|\W+", validation)
    vocabulary = set(tokenizer.vocabulary)
    assert smoke.rows["vocabulary_size"] == len(vocabulary)
    assert smoke.rows["validation_oov_rate"] == pytest.approx(np.mean([token not in vocabulary for token in tokens]))
    assert smoke.rows["tokens_per_word"] == pytest.approx(len(tokens) / len(re.findall(r"\w+", validation)))
    assert f"[UNK] is {smoke.rows['train_oov_rate']:.1%}" in smoke.report
    for row in smoke.rows["runs"]:
        # the first token is not predicted
        bits = math.log2(row["best"]["perplexity"]) * (len(tokens) - 1) / (len(validation) - len(tokens[0]))
        assert row["best"]["val_bits_per_character"] == pytest.approx(bits)
        loss_per_word = math.log(row["best"]["perplexity"]) * smoke.rows["tokens_per_word"]
        assert math.log(row["best"]["val_word_perplexity"]) == pytest.approx(loss_per_word)


def test_generate_writes_with_a_run(smoke, capsys):
    generate.main([str(smoke.folder / "overlapping-seed0"), "--prompt", "The ", "--max-new-tokens", "5"])
    output = capsys.readouterr()
    assert output.out.startswith("The ")
    assert len(output.out) > len("The ") + 5
    assert output.err == ""


def test_what_is_half_done_is_resumed_and_ends_the_same(smoke, copied):
    folder = copied(smoke.folder, "half")
    half, whole = folder / "disjoint-seed0", folder / "overlapping-seed0"
    newest = sorted((half / "checkpoints").iterdir())[-1]
    for path in (half / "result.json", half / "model.keras", half / "checkpoints/latest", newest):
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    with pytest.warns(UserWarning, match=r"no checkpoint except best\.safetensors"):
        study.main(["--resume", str(folder)])
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before
    rows = json.loads((folder / "word_lm.json").read_text(encoding="utf-8"))["runs"]
    assert list(map(without_clocks, rows)) == list(map(without_clocks, smoke.rows["runs"]))
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
                **{"windows": kind, "run": run, "tokens_per_epoch": 100 * steps_per_epoch},
                **{"train_tokens": 4000, "train_seconds": 1.0, "train_loss": val_losses[-1] / 2, "sample": "To be"},
            }
        )
    return tmp_path, [study.with_curve_findings(tmp_path, row, 2.0) for row in rows]


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
    losses = {  # of disjoint windows, training and validation, then of overlapping ones
        "epoch 1": (1.5, 3.0, 1.0, 2.0),
        "1,000 tokens": (1.5, 3.0, 2.0, 4.0),
        "2,000 tokens": (1.0, 2.0, 1.75, 3.5),
        "4,000 tokens": (1.25, 2.5, 1.0, 2.0),
    }
    positions = study.at_equal_positions(*curves)
    assert [*positions] == [*losses]
    for name, perplexities in positions.items():
        assert perplexities == pytest.approx(np.exp(losses[name]))


def test_the_verdict_names_both_minima_and_both_ends(curves):
    verdict = study.verdict(curves[1])
    assert "2.7 on disjoint windows, after 3.0 epochs, and 7.4 on overlapping windows, after 1.0 epochs" in verdict
    assert "after 4,000 tokens it is 12.2 and 7.4" in verdict


def test_the_plot_has_the_same_curves_by_tokens_and_by_epochs(curves, drawn):
    by_tokens, by_epochs = drawn(study.plot, *curves)
    lines = zip(by_tokens.get_lines(), by_epochs.get_lines(), [1000] * 2 + [4000] * 2, strict=True)
    for left, right, per_epoch in lines:
        np.testing.assert_allclose(left.get_xdata(), np.multiply(right.get_xdata(), per_epoch))
        np.testing.assert_array_equal(left.get_ydata(), right.get_ydata())
    marked = [line.get_xydata()[line.get_markevery()[0]].tolist() for line in by_tokens.get_lines()[1::2]]
    assert marked == [[3000, math.exp(1.0)], [4000, math.exp(2.0)]]
