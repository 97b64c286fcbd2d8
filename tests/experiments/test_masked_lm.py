import json
import math
import types

import matplotlib.image
import numpy as np
import pytest

from experiments.frame.runs import dataclass_from_dict
from experiments.masked_lm import __main__ as masked_lm
from experiments.masked_lm import report as masked_lm_report
from experiments.masked_lm.scores import (
    MaskFiller,
    Validator,
    attention_scores,
    ids_with_mask,
    mask_generator,
    segment_pairs,
    unigram_baseline,
)
from keras_seq import models
from keras_seq.tokenizers import SPECIAL_TOKENS, WordPieceTokenizer
from keras_seq.training import load_run

CLS, SEP, MASK = (SPECIAL_TOKENS[name] for name in ("[CLS]", "[SEP]", "[MASK]"))
TEXTS = ("Return the [MASK] of x.", "The [MASK] of the [MASK].")


@pytest.fixture(scope="module")
def tokenizer():
    return WordPieceTokenizer.from_text("to be or not to be that is the question " * 5, vocabulary_size=80)


@pytest.fixture
def model(tokenizer, randomize):
    encoder = models.BertConfig(embedding_dim=8, num_layers=2, num_heads=2, feed_forward_dim=12, context_length=12)
    return randomize(models.masked_lm(encoder.build_model(tokenizer.vocabulary_size)))


@pytest.fixture(scope="module")
def run(python, tmp_path_factory):
    logs = tmp_path_factory.mktemp("logs")
    texts = [part for text in TEXTS for part in ("--text", text)]
    done = python("-m", "experiments.masked_lm", "--smoke", "--log-dir", logs, *texts)
    assert done.returncode == 0, done.stderr
    (folder,) = (logs / "masked_lm").iterdir()
    result = json.loads((folder / "masked_lm.json").read_text(encoding="utf-8"))
    return types.SimpleNamespace(folder=folder, path=folder / "encoder-seed0", result=result, process=done)


def test_rows_are_two_texts_of_which_the_second_goes_on():
    ids = np.arange(100, 140)
    rows = segment_pairs(ids, length=11, stride=4, seed=0)
    assert rows["token_ids"].shape == rows["segment_ids"].shape == (9, 11)
    middles = set()
    for n, (row, segments) in enumerate(zip(rows["token_ids"], rows["segment_ids"], strict=True)):
        first, second = np.flatnonzero(row == SEP)
        assert (row[0], second) == (CLS, 10)
        np.testing.assert_array_equal(np.r_[row[1:first], row[first + 1 : second]], ids[4 * n : 4 * n + 8])
        np.testing.assert_array_equal(segments, np.arange(11) > first)
        middles.add(first)
    assert len(middles) > 2


def test_disjoint_rows_hold_every_token_once():
    ids = np.arange(100, 140)
    rows = segment_pairs(ids, length=11, stride=8, seed=0)["token_ids"]
    np.testing.assert_array_equal(np.sort(rows[rows >= 100]), ids)


def test_the_baseline_is_the_entropy_of_what_it_was_counted_on():
    ids = np.repeat([5, 6, 7], [99, 49, 24])
    scores = unigram_baseline(ids, ids, vocabulary_size=8)
    p = np.array([100, 50, 25]) / 175
    assert scores["val_loss"] == pytest.approx(-(np.array([99, 49, 24]) / 172) @ np.log(p))
    assert scores["accuracy"] == pytest.approx(99 / 172)
    assert scores["top5_accuracy"] == 1


def test_a_text_is_encoded_with_its_masks(tokenizer):
    before, after = tokenizer.encode("to be or").numpy(), tokenizer.encode("to be").numpy()
    assert ids_with_mask("to be or [MASK] to be", tokenizer) == [*before, MASK, *after]
    assert ids_with_mask("[MASK][MASK]", tokenizer) == [MASK, MASK]
    assert MASK not in tokenizer.encode("[MASK]").numpy()  # not special to the tokenizer


def test_a_text_is_filled_in_by_the_probabilities_of_the_model(model, tokenizer):
    filler = MaskFiller(model, tokenizer)
    text = "to [MASK] or not to [MASK]"
    row = filler.row(text)
    assert row["token_ids"][0].tolist() == [CLS, *ids_with_mask(text, tokenizer), SEP]
    assert not row["segment_ids"].any()
    logits = np.asarray(model(row))[0].astype("float64")
    predictions = filler(text, top=3)
    assert len(predictions) == 2
    for position, most_likely in zip(np.flatnonzero(row["token_ids"][0] == MASK), predictions, strict=True):
        p = np.exp(logits[position]) / np.exp(logits[position]).sum()
        assert [token for token, _ in most_likely] == [tokenizer.vocabulary[n] for n in np.argsort(-p)[:3]]
        np.testing.assert_allclose([share for _, share in most_likely], np.sort(p)[::-1][:3], rtol=1e-5)


def test_scores_are_of_the_masked_tokens_only(model, tokenizer):
    ids = tokenizer.encode("to be or not to be that is the question " * 20).numpy()
    rows = segment_pairs(ids, 12, 9, seed=0)
    validator = Validator(
        MaskFiller(model, tokenizer), rows, mask_generator(tokenizer, 0.3, seed=1), ["to [MASK]"], batch_size=3
    )
    scalars = validator().scalars
    logits = np.asarray(model(validator.inputs)).astype("float64")
    logp = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    target_logp = np.take_along_axis(logp, validator.targets[..., None], axis=-1)
    ranks = (logp > target_logp).sum(axis=-1)[validator.is_masked]
    assert scalars["val_loss"] == pytest.approx(-target_logp[..., 0][validator.is_masked].mean(), rel=1e-5)
    assert scalars["accuracy"] == pytest.approx((ranks == 0).mean())
    assert scalars["top5_accuracy"] == pytest.approx((ranks < 5).mean())
    assert not np.isin(rows["token_ids"][validator.is_masked], list(SPECIAL_TOKENS.values())).any()
    assert validator().scalars == scalars


def test_attention_scores_are_of_every_block_and_head_and_leave_padding_out(model):
    ids = np.array([[CLS, 9, 8, MASK, 7, SEP, 0, 0], [CLS, 7, 8, 9, 10, 11, 12, SEP]])
    inputs = {"token_ids": ids, "segment_ids": np.zeros_like(ids)}
    scores = attention_scores(model, inputs)
    assert scores.shape == (2, 2, 2, 8, 8)
    np.testing.assert_allclose(scores.sum(axis=-1), 1, atol=1e-5)
    assert not scores[:, 0, :, :, 6:].any()  # padding gets no attention
    without_padding = attention_scores(model, {name: values[:1, :6] for name, values in inputs.items()})
    np.testing.assert_allclose(scores[:, :1, :, :6, :6], without_padding, atol=1e-5)
    assert np.abs(scores[0] - scores[1]).max() > 0.01


def test_it_learns_more_than_nothing(run):
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    first, last = (line["val_loss"] for line in lines if line["split"] == "validation")
    assert last < first < math.log(400) + 0.5
    assert run.result["val_loss"] == last
    assert run.result["unigram_baseline"]["val_loss"] < math.log(400)


def test_it_leaves_a_whole_folder(run):
    for part in ("config.json", "tokenizer.json", "metrics.jsonl", "model.keras", "result.json"):
        assert (run.path / part).stat().st_size > 0
    assert list(run.path.glob("events.out.tfevents.*"))
    config = json.loads((run.path / "config.json").read_text(encoding="utf-8"))
    assert dataclass_from_dict(masked_lm.MaskedLMConfig, config["experiment"]).text == TEXTS
    for name in ("masked_lm.png", "attention.png"):
        height, width, _ = matplotlib.image.imread(run.folder / name).shape
        assert width > height > 400
    assert not list(run.folder.rglob("*partial*"))


def test_it_prints_table_predictions_and_how_to_open_tensorboard(run):
    report = (run.folder / "masked_lm.md").read_text(encoding="utf-8")
    for text in (report, run.process.stdout):
        assert masked_lm_report.table(run.result) in text
        assert all(sentence in text for sentence in TEXTS)
    assert "tensorboard --logdir" in run.process.stdout.splitlines()[-1]
    assert run.process.stderr == ""


def test_the_model_that_is_left_fills_in_what_the_report_says(run, capsys):
    model, tokenizer = load_run(run.path)
    assert (
        "\n".join(MaskFiller(model, tokenizer).format_predictions(text) for text in TEXTS) == run.result["predictions"]
    )
    masked_lm.main(["--run", str(run.path), "--text", TEXTS[0], "--top-k", "2"])
    text, line = capsys.readouterr().out.splitlines()
    assert text == TEXTS[0]
    assert run.result["predictions"].splitlines()[1].startswith(line)


def test_to_resume_what_is_finished_says_it_again_and_trains_nothing(run, capsys):
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    masked_lm.main(["--resume", str(run.folder)])
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before
    assert masked_lm_report.table(run.result) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--text", "nothing in it"], "expected [MASK]"),
        (["--text", "x " * 80 + "[MASK]"], "shorten the text"),
        (["--run", "{run}", "--text", "nothing in it"], "expected [MASK]"),
        (["--run", "{run}", "--text", "x " * 40 + "[MASK]"], "expected at most 32"),
        (["--run", "{run}"], "--text"),
        (["--run", "nowhere", "--text", "[MASK]"], "nowhere"),
        (["--corpus", "/nonexistent"], "/nonexistent"),
        (["--tokenizer", "10"], "size must be"),
        (["--encoder.context-length_length", "7"], "--encoder.context-length_length 7"),
        (["--encoder.context-length_length", "100000"], "tokens; expected at least"),
        (["--encoder.num-segments", "1"], "--encoder.num-segments 1"),
        (["--encoder.num-heads", "3"], "num_heads=3"),
        (["--mask-rate", "0"], "--mask-rate 0.0"),
        (["--tokens", "0"], "--tokens 0"),
        (["--batch-size", "0"], "--batch-size 0"),
        (["--top-k", "0"], "--top-k 0"),
        (["--seed", "-1"], "--seed -1"),
        (["--resume", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, run, tmp_path, arguments, names):
    arguments = [argument.format(run=run.path) for argument in arguments]
    sentence = fails(masked_lm.main, *arguments, "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.masked_lm: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()


def test_texts_to_fill_are_cut_from_the_validation_split(tokenizer):
    config = masked_lm.MaskedLMConfig(corpus="own.txt", encoder=masked_lm.EncoderConfig(context_length=16))
    validation_ids = tokenizer.encode("to be or not to be that is the question " * 4).numpy()
    texts = masked_lm.masked_sentences(config, tokenizer, validation_ids)
    assert len(texts) > 1
    assert all(text.count("[MASK]") == 1 for text in texts)
