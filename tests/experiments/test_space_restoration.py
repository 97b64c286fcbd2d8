import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments import space_restoration as study
from keras_seq.data import load_corpus
from keras_seq.data.synthetic.spacing_task import CAPITAL, NUM_TAGS, SPACE, collapse_whitespace, strip_spacing
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training import read_metrics, run_folder
from tests.experiments.discovery import main_of

NAMES = study.SpaceRestorationConfig().models


def test_rows_are_those_of_the_runs_and_of_no_tags(smoke):
    none, *rows = smoke.rows
    assert [row["model"] for row in rows] == list(NAMES)
    assert (none["model"], none["space_f1"], none["capital_f1"]) == ("no tags", 0, 0)
    assert 0 < none["val_loss"] < math.log(NUM_TAGS)
    assert len({row["train_tokens"] for row in rows}) == len({row["words"] for row in smoke.rows}) == 1
    for row in rows:
        *_, last = read_metrics(smoke.folder / row["run"], "validation")
        keys = ("val_loss", "space_f1", "capital_f1", "word_accuracy")
        assert {key: row[key] for key in keys} == {key: last[key] for key in keys}
        first, *_, last = read_metrics(smoke.folder / row["run"], "train")
        assert last["loss"] == row["train_loss"] < first["loss"]


def test_the_report_has_what_each_model_restores(smoke):
    for part in ("original", "stripped", *(f"by {name}, restored" for name in NAMES)):
        assert smoke.report.count(f"\n    {part}:\n") == smoke.stdout.count(f"\n    {part}:\n") == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_finished_model_restores_any_text_and_changes_nothing_else(smoke, capsys, name):
    text = "Tobe, ornot\ntobe:猫istheß" + "question" * 9
    main_of("space_restoration")(["--run", str(smoke.folder / f"{name}-seed0"), "--text", text])
    output = capsys.readouterr()
    assert strip_spacing(output.out)[0] == strip_spacing(text)[0]
    assert not output.out[0].isspace()
    assert (output.out.count("\n"), output.err) == (1, "")


def test_the_models_are_of_one_size_and_one_of_them_sees_one_side_only(randomize):
    config, ids = study.SpaceRestorationConfig(), np.random.default_rng(0).integers(1, 40, size=(1, 12))
    other = np.where(np.arange(12) == 8, ids % 39 + 1, ids)
    sizes = {}
    for name in study.MODELS:
        model = randomize(study.build_tagger(getattr(config, name), 70))
        sizes[name] = model.count_params()
        moved = np.abs(np.asarray(model(ids)) - np.asarray(model(other))).reshape(1, 12, -1).max(-1)[0] > 1e-7
        assert moved[8:].all(), name
        assert moved[:8].any() is np.bool_(name != "lstm"), name
    assert max(sizes.values()) < 1.1 * min(sizes.values())


@pytest.mark.parametrize("length", [4, 7, 16])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 30, 33])
def test_a_long_text_is_read_as_a_whole_as_far_as_a_quarter_of_the_length(length, count):
    """The logits at t are the ids a quarter of the length before and after it."""
    far = length // 4

    def neighbors(ids):
        padded = tf.pad(ids, [[0, 0], [far, far]])
        return tf.stack([padded[:, : -2 * far], padded[:, 2 * far :], ids], -1)

    ids = np.random.default_rng(count).integers(1, 9, count)
    logits = study.overlapping_window_logits(neighbors, ids, length, batch_size=3)
    np.testing.assert_array_equal(logits, neighbors(ids[None])[0])


def test_the_ids_of_characters_are_not_that_of_padding():
    assert study.encode(CharacterTokenizer("ab", oov_token="[UNK]"), "ab猫").tolist() == [2, 3, 1]


def spans(characters, tags):
    """The words of a tagged text as (start, end, spelling)."""
    places = [0, *(n for n in range(1, len(characters)) if tags[n] & SPACE), len(characters)]
    capitals = [tag & CAPITAL for tag in tags]
    return [(a, b, characters[a:b], tuple(capitals[a:b])) for a, b in itertools.pairwise(places)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
@settings(max_examples=100)
def test_a_word_is_right_where_both_texts_have_the_same_one_at_the_same_place(pairs):
    tags, predicted = np.array(pairs).T
    tags[0], predicted[0] = tags[0] & CAPITAL, predicted[0] & CAPITAL  # no space before the first character
    characters = "x" * len(tags)
    predicted_spans = spans(characters, predicted)
    assert study.correct_words(tags, predicted).tolist() == [
        word in predicted_spans for word in spans(characters, tags)
    ]


def test_scores_by_hand():
    tags = np.array([2, 0, 1, 0, 3, 0])  # Xx xx Xx
    predicted = np.array([2, 0, 1, 1, 1, 0])  # Xx x x xx
    assert study.tag_scores(tags, predicted) == pytest.approx(
        {
            **{"space_precision": 2 / 3, "space_recall": 1.0, "space_f1": 0.8},
            **{"capital_precision": 1.0, "capital_recall": 0.5, "capital_f1": 2 / 3},
            **{"word_accuracy": 1 / 3, "words": 3},
        }
    )
    assert {*study.tag_scores(tags, np.zeros_like(tags)).values()} == {0.0, 3}
    assert {*study.tag_scores(tags, tags).values()} == {1.0, 3}


def test_a_passage_is_prose_and_a_perfect_tagger_restores_it(tmp_path):
    text = load_corpus("pydoc").text[:200_000]
    chosen = study.passage(text)
    assert chosen in collapse_whitespace(text)
    assert sum(map(str.isalpha, chosen)) / len(chosen) > 0.75
    assert study.passage("short") == "short"
    task = object.__new__(study.SpacingTask)
    task.tagger = collapse_whitespace
    parts = [part.split(":\n") for part in task.sample(text).split("\n\n")]
    assert [name for name, _ in parts] == ["original", "stripped", "restored"]
    assert parts[0][1] == parts[2][1]
    assert parts[1][1].replace("\n", "") == strip_spacing(chosen)[0]


def test_batches_are_windows_of_characters_with_their_own_tags(tmp_path):
    path = tmp_path / "text"
    path.write_text("To be, or not to be: that is the Question. " * 5, encoding="utf-8")
    data = study.SpacingText(study.SpaceRestorationConfig(corpus=str(path), batch_size=2, sequence_length=8), tmp_path)
    characters, tags = strip_spacing(data.train_text)
    assert data.tokenizer.decode(data.train - 1) == characters
    assert data.batches.num_examples == (len(characters) - 8) // 2 + 1
    for x, y in data.batches.dataset(0, 5):
        for ids, window_tags in zip(x.numpy(), y.numpy(), strict=True):
            window = data.tokenizer.decode(ids - 1)
            starts = [n for n in range(len(characters)) if characters.startswith(window, n)]
            assert any((tags[n : n + 8] == window_tags).all() for n in starts)


def test_the_verdict_orders_the_taggers():
    rows = [{"model": name, "word_accuracy": x, "space_f1": x, "words": 100} for name, x in (("a", 0.5), ("b", 0.75))]
    assert "b 75.0% (65.7 to 82.5%), a 50.0% (40.4 to 59.6%)" in study.verdict(rows)
    assert "0.750, 0.500" in study.verdict(rows)


@pytest.mark.parametrize("experiment", [None, [], {"units": 3}, {"sequence_length": 0}])
def test_a_run_of_another_experiment_is_refused(refuses, smoke, copied, experiment):
    run = copied(smoke.folder / "lstm-seed0", "run")
    run_folder.write_checksummed(run / "config.json", {"experiment": experiment})
    refuses("space_restoration", f"--run {run} --text ab", str(run), "not that of a run of this experiment")


@pytest.mark.parametrize("text", ["", "\u3000"])
def test_nothing_to_restore_is_refused(refuses, smoke, text):
    refuses("space_restoration", f"--run {smoke.folder}/lstm-seed0 --text={text}", "empty or white space only")
