import dataclasses
import json

import numpy as np
import pytest

from experiments import masked_lm as study
from keras_seq import models, training
from keras_seq.tokenizers import SPECIAL_TOKENS

CLS, SEP, MASK = (SPECIAL_TOKENS[name] for name in ("[CLS]", "[SEP]", "[MASK]"))
TINY = models.BertConfig(embedding_dim=8, num_layers=2, num_heads=2, feed_forward_dim=12, context_length=12)


@pytest.fixture
def config(tmp_path):
    (tmp_path / "text.txt").write_text("to be or not to be that is the question " * 50)
    return study.MaskedLMConfig(str(tmp_path / "text.txt"), vocabulary_size=80, batch_size=2, encoder=TINY)


@pytest.fixture
def data(config, tmp_path):
    return study.MaskedCorpus(config, tmp_path)


@pytest.fixture
def model(data, randomize):
    return randomize(models.masked_lm(TINY.build_model(data.tokenizer.vocabulary_size)))


def test_rows_are_two_texts_of_which_the_second_goes_on():
    ids = np.arange(100, 140)
    rows = study.segment_pairs(ids, length=11, stride=4, seed=0)
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
    rows = study.segment_pairs(ids, length=11, stride=8, seed=0)["token_ids"]
    np.testing.assert_array_equal(np.sort(rows[rows >= 100]), ids)


def test_the_baseline_is_the_entropy_of_what_it_was_counted_on():
    ids = np.repeat([5, 6, 7], [99, 49, 24])
    scores = study.unigram_baseline(ids, ids, vocabulary_size=8)
    p = np.array([100, 50, 25]) / 175
    assert scores["val_loss"] == pytest.approx(-(np.array([99, 49, 24]) / 172) @ np.log(p))
    assert scores["accuracy"] == pytest.approx(99 / 172)
    assert scores["top5_accuracy"] == 1


def test_a_text_is_encoded_with_its_masks(data):
    before, after = data.encode("to be or"), data.encode("to be")
    row = study.encode_masked("to be or [MASK] to be[MASK]", data.tokenizer, context_length=20)
    assert row["token_ids"].tolist() == [[CLS, *before, MASK, *after, MASK, SEP]]
    assert not row["segment_ids"].any()
    assert MASK not in data.encode("[MASK]")  # not special to the tokenizer


def test_a_text_is_filled_in_by_the_probabilities_of_the_model(data, model):
    text = "to [MASK] or not [MASK]"
    row = study.encode_masked(text, data.tokenizer, TINY.context_length)
    logits = np.asarray(model(row))[0].astype("float64")
    first, *lines = study.filled(model, data.tokenizer, text, top=3).splitlines()
    assert first == text
    for position, line in zip(np.flatnonzero(row["token_ids"][0] == MASK), lines, strict=True):
        p = np.exp(logits[position]) / np.exp(logits[position]).sum()
        best = np.argsort(-p)[:3]
        assert line.split() == [word for n in best for word in (data.tokenizer.vocabulary[n], f"{p[n]:.0%}")]


def test_scores_are_of_the_masked_tokens_only_and_the_same_every_time(data, model, monkeypatch):
    monkeypatch.setattr("experiments.masked_lm.BATCH_SIZE", 3)
    rows = data.masked
    assert len(rows.targets) % 3  # the last batch is smaller
    validate = study.validator(model, data.tokenizer, ["to [MASK]"])
    scalars = validate(rows).scalars
    logits = np.asarray(model(rows.inputs)).astype("float64")
    logp = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    target_logp = np.take_along_axis(logp, rows.targets[..., None], axis=-1)
    ranks = (logp > target_logp).sum(axis=-1)[rows.is_masked]
    assert scalars["val_loss"] == pytest.approx(-target_logp[..., 0][rows.is_masked].mean(), rel=1e-5)
    assert scalars["accuracy"] == pytest.approx((ranks == 0).mean())
    assert scalars["top5_accuracy"] == pytest.approx((ranks < 5).mean())
    assert not np.isin(rows.targets[rows.is_masked], list(SPECIAL_TOKENS.values())).any()
    assert validate(rows).scalars == scalars


def test_what_is_scored_during_training_is_a_sample_and_at_the_end_all_of_the_text(config, tmp_path):
    train = training.TrainConfig(validation_characters=60)
    part = study.MaskedCorpus(dataclasses.replace(config, mask_rate=0.5, train=train), tmp_path)
    rows, sample = part.masked.targets, part.sample
    assert len(sample.targets) == 60 * len(rows) // len(part.validation_text) >= 1
    places = [np.flatnonzero((rows == row).all(axis=1))[0] for row in sample.targets]
    assert places == sorted(places)
    assert (part.masked.is_masked[places] == sample.is_masked).all()
    whole = dataclasses.replace(config, train=training.TrainConfig(validation_characters=None))
    assert study.MaskedCorpus(whole, tmp_path).sample is None


@pytest.mark.usefixtures("eagerly")
def test_a_model_is_trained_with_a_sample_and_scored_with_all(config, tmp_path):
    train = training.TrainConfig(validation_characters=60, warmup_steps=1)
    config = dataclasses.replace(config, tokens=2 * 2 * 12, mask_rate=0.5, train=train)
    data = study.MaskedCorpus(config, tmp_path)
    result = study.train_one(tmp_path / "encoder-seed0", config, data)
    assert result["masked_tokens"] == data.masked.is_masked.sum() > data.sample.is_masked.sum()


def test_texts_to_fill_are_cut_from_the_validation_split(data):
    assert len(data.texts) > 1
    assert all(text.count("[MASK]") == 1 for text in data.texts)


@pytest.mark.parametrize(("loss", "words"), [(3.5, "1.500 nats per token lower"), (5.5, "0.500 nats per token higher")])
def test_the_verdict_compares_with_the_frequencies(loss, words):
    result = {"accuracy": 0.25, "masked_tokens": 300, "val_loss": loss}
    sentence = study.verdict({**result, "unigram_baseline": {"val_loss": 5.0, "accuracy": 0.125}})
    assert words in sentence
    assert "25.0% (20.4 to 30.2%)" in sentence


def test_it_learns_and_the_model_that_is_left_fills_in_what_the_report_says(smoke, refuses, capsys):
    run = smoke.folder / "encoder-seed0"
    first, last = training.read_metrics(run, "validation")
    assert smoke.rows["val_loss"] == last["val_loss"] < first["val_loss"]
    assert smoke.rows["masked_tokens"] > 1000
    text, line, *_ = smoke.rows["predictions"].splitlines()
    study.main(["--run", str(run), "--text", text, "--top-k", "2"])
    said, best = capsys.readouterr().out.splitlines()
    assert said == text
    assert line.startswith(best)
    assert json.loads((run / "config.json").read_text(encoding="utf-8"))["model"]["context_length"] == 32
    refuses("masked_lm", f"--run {run}", "--text")
    refuses("masked_lm", f"--run {run} --text nothing", "expected [MASK]")
    refuses("masked_lm", f"--run {run} --text [MASK]{'.' * 40}", "expected at most 32")
