import dataclasses
import json
import shutil
import types

import matplotlib.image
import numpy as np
import pytest

from experiments.date_translation import __main__ as experiment
from experiments.date_translation import report as date_translation_report
from experiments.date_translation.scores import (
    EXAMPLE_TEXT,
    Translator,
    Validator,
    by_format,
    cross_attention,
    model_inputs,
)
from experiments.frame.runs import dataclass_from_dict
from keras_seq import training
from keras_seq.data.synthetic import dates
from keras_seq.models import Seq2SeqConfig
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training import read_metrics

SMOKE = experiment.smoke_config(experiment.DateTranslationConfig())


@pytest.fixture(scope="module")
def smoke(python, tmp_path_factory):
    """`date_translation --smoke` in a process of its own: what it said, its folder, its run."""
    logs = tmp_path_factory.mktemp("logs")
    done = python("-m", "experiments.date_translation", "--smoke", "--log-dir", logs)
    assert done.returncode == 0, done.stderr
    (folder,) = (logs / "date_translation").iterdir()
    result = json.loads((folder / "date_translation.json").read_text(encoding="utf-8"))
    return types.SimpleNamespace(folder=folder, run=folder / "seq2seq-seed0", result=result, **vars(done))


def test_it_leaves_a_whole_run_and_a_report(smoke):
    for part in ("config.json", "tokenizer.json", "metrics.jsonl", "model.keras", "result.json"):
        assert (smoke.run / part).stat().st_size > 0
    assert list(smoke.run.glob("events.out.tfevents.*"))
    assert len([*(smoke.run / "checkpoints").glob("step-*")]) == 2
    report = (smoke.folder / "date_translation.md").read_text(encoding="utf-8")
    for table in (date_translation_report.formats(smoke.result), date_translation_report.summary(smoke.result)):
        assert table in report
        assert table in smoke.stdout
    assert smoke.stderr == ""
    assert smoke.stdout.rstrip().splitlines()[-1].endswith(f"tensorboard --logdir {smoke.folder}")


@pytest.mark.parametrize("name", ["date_translation.png", "cross_attention.png"])
def test_the_plots_have_content(smoke, name):
    picture = matplotlib.image.imread(smoke.folder / name)
    assert min(picture.shape[:2]) > 300
    assert len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0)) > 50


def test_the_figures_agree_with_each_other(smoke):
    assert training.load_result(smoke.run) == smoke.result
    *_, last = (line for line in read_metrics(smoke.run) if line["split"] == "validation")
    assert last["val_loss"] == smoke.result["val_loss"]
    assert last["exact_match"] == smoke.result["val_exact_match"]
    assert [row["format"] for row in smoke.result["formats"]] == [*dates.FORMATS, *dates.HELD_OUT_FORMATS]
    assert smoke.result["train_tokens"] == 20 * 8 * dates.TARGET_LENGTH
    wrong = sum(row["texts"] * (1 - row["greedy"]) for row in smoke.result["formats"])
    assert len(smoke.result["mistakes"]) == pytest.approx(wrong)


def test_the_smallest_training_learns(smoke):
    losses = [line["loss"] for line in read_metrics(smoke.run) if line["split"] == "train"]
    assert losses[-1] < losses[0]
    assert smoke.result["val_loss"] < np.log(dates.VOCABULARY_SIZE)


def test_the_config_makes_the_same_training_again(smoke):
    config = json.loads((smoke.run / "config.json").read_text(encoding="utf-8"))
    options = dataclass_from_dict(experiment.DateTranslationConfig, config["experiment"])
    assert options == dataclasses.replace(SMOKE, log_dir=options.log_dir, smoke=True)
    assert config["train"]["learning_rate"] == pytest.approx(1 / np.sqrt(16 * 4))


@pytest.mark.slow
def test_to_resume_what_is_half_done_ends_at_the_same_weights(smoke, tmp_path, capsys):
    folder = shutil.copytree(smoke.folder, tmp_path / "half")
    run = folder / smoke.run.name
    for part in ("result.json", "model.keras", "checkpoints/latest", "checkpoints/step-00000020.safetensors"):
        (run / part).unlink()
    experiment.main(["--resume", str(folder)])
    assert date_translation_report.formats(smoke.result) in capsys.readouterr().out
    last = "checkpoints/step-00000020.safetensors"
    assert (run / last).read_bytes() == (smoke.run / last).read_bytes()


def test_to_resume_what_is_finished_trains_nothing(smoke, capsys):
    before = {path: path.stat().st_mtime_ns for path in smoke.run.rglob("*")}
    experiment.main(["--resume", str(smoke.folder)])
    assert {path: path.stat().st_mtime_ns for path in smoke.run.rglob("*")} == before
    assert date_translation_report.formats(smoke.result) in capsys.readouterr().out


def test_a_date_of_ones_own_is_translated_as_before_and_nothing_is_trained(smoke, capsys):
    before = {path: path.stat().st_mtime_ns for path in smoke.folder.rglob("*")}
    mistake = smoke.result["mistakes"][0]
    experiment.main(["--run", str(smoke.run), "--text", mistake["text"]])
    assert capsys.readouterr().out == mistake["greedy"] + "\n"
    assert {path: path.stat().st_mtime_ns for path in smoke.folder.rglob("*")} == before


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--steps 0", "--steps 0"),
        ("--pairs 10", "--pairs 10: expected at least the --batch-size 64"),
        ("--training-dates 36000", "--training-dates 36000: expected at most 33525"),
        ("--validation-pairs 0", "--validation-pairs 0"),
        ("--num-beams 1", "--num-beams 1"),
        ("--label_smoothing 1", "--label_smoothing 1"),
        ("--schedule nope", "--schedule"),
        ("--train.warmup-steps 0", "--train.warmup-steps 0"),
        ("--train.learning-rate 0", "learning_rate=0"),
        ("--model.num-heads 0", "num_heads=0"),
        ("--model.num-heads 3", "num_heads=3"),
        ("--text 3.9.1994", "--run and --text go together"),
        ("--run {run}", "--run and --text go together"),
        ("--run nowhere --text 3.9.1994", "nowhere"),
        ("--run {run} --text 3.März", "has the character 'ä'"),
        ("--run {run} --text=", "has 0 characters"),
        ("--run {run} --text 123456789012345678901234567890", "has 30 characters; expected a date of 1 to 29"),
        ("--resume nowhere", "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, smoke, tmp_path, arguments, names):
    sentence = fails(experiment.main, *arguments.format(run=smoke.run).split(), "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.date_translation: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()


def test_a_run_of_other_characters_is_refused(fails, smoke, tmp_path):
    other = shutil.copytree(smoke.run, tmp_path / "other")
    (other / "result.json").unlink()  # with the digest of the tokenizer
    CharacterTokenizer("ab").save(other / "tokenizer.json")
    assert "does not have the characters of dates" in fails(experiment.main, "--run", other, "--text", "3.9.1994")


def test_no_date_is_on_two_sides_and_no_held_out_format_in_training():
    trained, validated, tested = experiment.draw_splits(
        dataclasses.replace(SMOKE, training_dates=33_525, pairs=60_000, validation_pairs=2_000, test_pairs=500)
    )
    tested = [pair for pairs in tested.values() for pair in pairs]
    sides = [{pair.iso for pair in pairs} for pairs in (trained, validated, tested)]
    assert len(set.union(*sides)) == sum(map(len, sides))
    assert {pair.format for pair in (*trained, *validated)} == {*dates.FORMATS}
    assert {pair.format for pair in tested} == {*dates.FORMATS, *dates.HELD_OUT_FORMATS}


@pytest.fixture(scope="module")
def model():
    return Seq2SeqConfig(16, 1, 2, 2, 16).build_model(dates.VOCABULARY_SIZE)


def test_the_validation_loss_is_the_mean_over_all_target_characters(model):
    pairs = dates.draw_pairs([dates.MIN_DATE, dates.MAX_DATE], dates.FORMATS, 3, seed=0)
    inputs, targets = model_inputs(pairs)
    logits = model(inputs).numpy().astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_p, targets[..., None], axis=-1).mean()
    summaries = Validator(model, pairs)()
    assert summaries.scalars["val_loss"] == pytest.approx(expected, rel=1e-5)
    assert summaries.scalars["exact_match"] == 0
    assert summaries.images["cross_attention"].shape[-1] == 3


def test_the_share_that_is_right_is_counted_for_each_search():
    test_pairs = {
        date_format: dates.draw_pairs([dates.MIN_DATE], (date_format,), 4, seed=0)
        for date_format in (dates.FORMATS[0], *dates.HELD_OUT_FORMATS)
    }

    def translate(texts, num_beams=1):
        return ["1950-01-01"] * (len(texts) - 1) + ["1950-01-0" + "19"[num_beams == 1]]

    rows, mistakes = by_format(translate, test_pairs, num_beams=4)
    assert [(row["greedy"], row["beam"], row["held_out"]) for row in rows] == [(0.75, 1, False), *[(0.75, 1, True)] * 2]
    assert [(m["greedy"], m["beam"]) for m in mistakes] == [("1950-01-09", "1950-01-01")] * 3
    totals = date_translation_report.totals([*rows, {**rows[0], "greedy": 0.0, "texts": 12}])
    assert totals["formats trained on"] == {"texts": 16, "greedy": 3 / 16, "beam": 1}
    assert totals["formats held out"] == {"texts": 8, "greedy": 0.75, "beam": 1}


def test_attention_has_a_row_for_every_character_written_and_a_column_for_every_one_read(model):
    written, weights = cross_attention(model, Translator(model), EXAMPLE_TEXT)
    assert weights.shape == (2, 2, min(len(written) + 1, dates.TARGET_LENGTH), len(EXAMPLE_TEXT))
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)


def test_the_entropy_of_smoothed_targets():
    assert date_translation_report.smoothed_entropy(0.0, 10) == 0
    assert date_translation_report.smoothed_entropy(0.1, 2) == pytest.approx(
        -(0.95 * np.log(0.95) + 0.05 * np.log(0.05))
    )
