import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest

from experiments import date_translation as study
from experiments.date_translation import EXAMPLE_TEXT, SMOKE, DatesTask, DateTranslationConfig, Translator, draw_splits
from keras_seq.commands.options import replaced
from keras_seq.data.synthetic import dates
from keras_seq.models import Seq2SeqConfig
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training import read_metrics
from tests.experiments.discovery import main_of

SETTINGS = replaced(DateTranslationConfig(), SMOKE)


@pytest.fixture
def run(smoke):
    return smoke.folder / "seq2seq-seed0"


@pytest.fixture(scope="module")
def model():
    return Seq2SeqConfig(16, 1, 2, 2, 16).build_model(dates.VOCABULARY_SIZE)


def test_scores_agree_with_each_other(smoke, run):
    (row,) = smoke.rows
    *_, last = read_metrics(run, "validation")
    assert (last["val_loss"], last["exact_match"]) == (row["val_loss"], row["exact_match"])
    assert [group["group"] for group in row["groups"]] == [*dates.FORMATS, *dates.HELD_OUT_FORMATS]
    assert [group["trained"] for group in row["groups"]] == [True] * 18 + [False] * 2
    assert row["train_tokens"] == 20 * 8 * dates.TARGET_LENGTH
    wrong = sum(group["examples"] * (1 - group["greedy"]) for group in row["groups"])
    assert len(row["mistakes"]) == pytest.approx(wrong)
    losses = [line["loss"] for line in read_metrics(run, "train")]
    assert losses[-1] < losses[0]


def test_the_config_names_the_peak_of_the_schedule(smoke, run):
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    assert config["train"]["learning_rate"] == pytest.approx(1 / np.sqrt(16 * 4))
    rates = [line["learning_rate"] for line in read_metrics(run, "train")]
    assert max(rates) < config["train"]["learning_rate"]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(("rate", "factor"), [(None, 1.0), (0.03, 0.03 * np.sqrt(16 * 4))])
def test_a_learning_rate_is_the_peak_of_either_schedule(rate, factor):
    settings = replaced(SETTINGS, {"train": {"learning_rate": rate}})
    schedule, train = settings.learning_rate_schedule()
    assert schedule.factor == pytest.approx(factor)
    assert train.learning_rate == pytest.approx(max(float(schedule(step)) for step in range(20)))
    linear = dataclasses.replace(settings, schedule="linear_decay")
    assert linear.learning_rate_schedule() == (None, settings.train)


def test_a_finished_model_translates_a_date_and_nothing_is_trained(smoke, run, capsys):
    before = {path: path.stat().st_mtime_ns for path in smoke.folder.rglob("*")}
    mistake = smoke.rows[0]["mistakes"][0]
    main_of("date_translation")(["--run", str(run), "--text", mistake["text"]])
    assert capsys.readouterr().out == mistake["greedy"] + "\n"
    assert {path: path.stat().st_mtime_ns for path in smoke.folder.rglob("*")} == before


def test_a_run_of_other_characters_is_refused(fails, run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    for name in ("config.json", "result.json"):  # with digests of the tokenizer
        (other / name).unlink()
    CharacterTokenizer("ab").save(other / "tokenizer.json")
    sentence = fails(main_of("date_translation"), "--run", other, "--text", "3.9.1994")
    assert "does not have the characters of dates" in sentence


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("3.März", "has the character 'ä'"),
        ("", "has 0 characters"),
        ("123456789012345678901234567890", "has 30 characters; expected a date of 1 to 29"),
    ],
)
def test_a_text_that_is_no_date_is_refused(refuses, run, text, named):
    refuses("date_translation", f"--run {run} --text={text}", named)


def test_no_date_is_in_two_sets_and_no_held_out_format_in_training():
    sizes = {"training_dates": 33_525, "pairs": 60_000, "validation_pairs": 2_000, "test_pairs": 500}
    trained, validated, tested = draw_splits(dataclasses.replace(SETTINGS, **sizes))
    tested = [*itertools.chain(*tested.values())]
    sets = [{pair.iso for pair in pairs} for pairs in (trained, validated, tested)]
    assert len(set.union(*sets)) == sum(map(len, sets))
    assert {pair.format for pair in (*trained, *validated)} == {*dates.FORMATS}
    assert {pair.format for pair in tested} == {*dates.FORMATS, *dates.HELD_OUT_FORMATS}


def test_the_validation_loss_is_the_mean_over_all_target_characters(model):
    task = DatesTask(model, dataclasses.replace(SETTINGS, label_smoothing=0.5))
    inputs, targets = dates.target_ids([pair.iso for pair in task.validation_pairs])
    source = dates.source_ids([pair.text for pair in task.validation_pairs])
    logits = model({"encoder_token_ids": source, "decoder_token_ids": inputs}).numpy().astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_p, targets[..., None], axis=-1).mean()
    summaries = task.validate()
    assert summaries.scalars["val_loss"] == pytest.approx(expected, rel=1e-5)
    assert summaries.scalars["exact_match"] == 0
    assert task.validation_pairs[0].text in summaries.texts["sample"]


def test_exact_matches_are_counted_for_each_search(model):
    task = DatesTask(model, SETTINGS)
    chosen = (dates.FORMATS[0], *dates.HELD_OUT_FORMATS)
    task.test_pairs = {name: dates.draw_pairs([dates.MIN_DATE], (name,), 4, seed=0) for name in chosen}
    task.translate = lambda texts, num_beams=1: ["1950-01-01"] * 3 + ["1950-01-0" + "19"[num_beams == 1]]
    result = task.test()
    assert [(g["greedy"], g["beam"], g["trained"]) for g in result["groups"]] == [
        (0.75, 1, name == chosen[0]) for name in chosen
    ]
    assert [(m["greedy"], m["beam"]) for m in result["mistakes"]] == [("1950-01-09", "1950-01-01")] * 3


def test_formats_count_by_their_texts():
    group = {"greedy": 0.75, "beam": 1.0, "examples": 4, "trained": True}
    groups = [group, {**group, "greedy": 0.0, "examples": 12}, {**group, "trained": False}]
    assert study.exact_match(groups, "greedy", trained=True) == (3 / 16, 16)
    assert study.exact_match(groups, "greedy", trained=False) == (0.75, 4)
    verdict = study.verdict({"groups": groups, "num_beams": 4})
    assert "of 16 in formats trained on" in verdict
    assert "4 beams change that by +81.2 and +25.0 percentage points" in verdict


def test_attention_has_a_row_for_every_generated_character_and_a_column_for_every_source_character(model):
    translation, weights = Translator(model).cross_attention(EXAMPLE_TEXT)
    assert weights.shape == (2, 2, min(len(translation) + 1, dates.TARGET_LENGTH), len(EXAMPLE_TEXT))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


def test_the_entropy_of_smoothed_targets():
    assert study.smoothed_entropy(0.0, 10) == 0
    assert study.smoothed_entropy(0.1, 2) == pytest.approx(-(0.95 * np.log(0.95) + 0.05 * np.log(0.05)))
