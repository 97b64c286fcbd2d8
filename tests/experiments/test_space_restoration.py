import dataclasses
import itertools
import json
import math
import shutil
import types

import matplotlib.image
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.frame.runs import dataclass_from_dict
from experiments.space_restoration import __main__ as space_restoration
from experiments.space_restoration.models import BiLSTMConfig
from experiments.space_restoration.scores import Tagger, correct_words, passage, sample, tag_metrics
from keras_seq.data import load_corpus
from keras_seq.data.synthetic.spacing_task import CAPITAL, NUM_TAGS, SPACE, collapse_whitespace, restore, strip_spacing
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.training import read_metrics

NAMES = space_restoration.SpaceRestorationConfig().models
CLOCKS = {"train_seconds", "tokens_per_second", "seconds"}


@pytest.fixture(scope="module")
def smoke(python, tmp_path_factory):
    logs = tmp_path_factory.mktemp("logs")
    done = python("-m", "experiments.space_restoration", "--smoke", "--log-dir", logs)
    assert done.returncode == 0, done.stderr
    (folder,) = (logs / "space_restoration").iterdir()
    rows = json.loads((folder / "space_restoration.json").read_text(encoding="utf-8"))
    return types.SimpleNamespace(folder=folder, rows=rows, stdout=done.stdout, stderr=done.stderr)


def without_clocks(values):
    return {key: value for key, value in values.items() if key not in CLOCKS}


def test_it_leaves_a_whole_folder_for_every_model(smoke):
    names = [f"{name}-seed0" for name in NAMES]
    assert {path.name for path in smoke.folder.iterdir()} == {
        *names,
        "space_restoration.json",
        "space_restoration.md",
        "space_restoration.png",
    }
    for name in names:
        run = smoke.folder / name
        for part in ("config.json", "tokenizer.json", "metrics.jsonl", "model.keras", "result.json"):
            assert (run / part).stat().st_size > 0
        assert sorted(path.name for path in (run / "checkpoints").iterdir())[-1] == "step-00000020.safetensors"
        config = json.loads((run / "config.json").read_text(encoding="utf-8"))
        options = dataclass_from_dict(space_restoration.SpaceRestorationConfig, config["experiment"])
        model = {
            "name": run.name.removesuffix("-seed0"),
            **dataclasses.asdict(getattr(options, config["model"]["name"])),
        }
        assert config["model"] == model
    assert smoke.stderr == ""


def test_the_rows_are_those_of_the_runs_beside_what_no_tags_score(smoke):
    none, *rows = smoke.rows
    assert [row["model"] for row in rows] == list(NAMES)
    assert (none["model"], none["space_f1"], none["capital_f1"]) == ("no tags", 0, 0)
    assert 0 < none["val_loss"] < math.log(NUM_TAGS)
    assert len({row["train_characters"] for row in rows}) == 1
    for row in rows:
        run = smoke.folder / row["run"]
        *_, last = (line for line in read_metrics(run) if line["split"] == "validation")
        assert last["val_loss"] == row["val_loss"]
        assert {name: row[name] for name in ("space_f1", "capital_f1", "word_accuracy")}.items() <= last.items()
        first, *_, last = (line for line in read_metrics(run) if line["split"] == "train")
        assert last["loss"] == row["train_loss_per_character"] < first["loss"]


def test_the_report_has_table_picture_and_what_each_model_restores(smoke):
    page = (smoke.folder / "space_restoration.md").read_text(encoding="utf-8")
    for row in smoke.rows:
        (line,) = (line for line in smoke.stdout.splitlines() if line.startswith(f"| {row['model']} "))
        assert line in page
    for part in ("original", "stripped", *(f"by {name}, restored" for name in NAMES)):
        assert page.count(f"\n    {part}:\n") == smoke.stdout.count(f"\n{part}:\n") == 1
    assert "](space_restoration.png)" in page
    height, width, _ = matplotlib.image.imread(smoke.folder / "space_restoration.png").shape
    assert width > height > 400
    assert smoke.stdout.rstrip().endswith(f"tensorboard --logdir {smoke.folder}")


def test_to_resume_what_is_finished_trains_nothing_and_what_is_half_done_ends_the_same(smoke, tmp_path, capsys):
    folder = shutil.copytree(smoke.folder, tmp_path / "half")
    run = folder / "bilstm-seed0"
    for part in ("result.json", "model.keras", "checkpoints/latest", "checkpoints/step-00000020.safetensors"):
        (run / part).unlink()
    others = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.parent.name != run.name}
    others = {path: time for path, time in others.items() if path.is_file() and "-seed0" in str(path.parent)}
    others = {path: time for path, time in others.items() if run not in path.parents}
    space_restoration.main(["--resume", str(folder)])
    assert others == {path: path.stat().st_mtime_ns for path in others}
    rows = json.loads((folder / "space_restoration.json").read_text(encoding="utf-8"))
    assert list(map(without_clocks, rows)) == list(map(without_clocks, smoke.rows))
    again = map(without_clocks, read_metrics(run))
    assert list(again) == list(map(without_clocks, read_metrics(smoke.folder / run.name)))


@pytest.mark.parametrize("name", NAMES)
def test_a_finished_model_restores_any_text_and_changes_nothing_else(smoke, capsys, name):
    text = "Tobe, ornot\ntobe:猫istheß" + "question" * 9
    space_restoration.main(["--run", str(smoke.folder / f"{name}-seed0"), "--text", text])
    output = capsys.readouterr()
    assert strip_spacing(output.out)[0] == strip_spacing(text)[0]
    assert not output.out[0].isspace()
    assert (output.out.count("\n"), output.err) == (1, "")


def test_the_models_are_of_one_size_and_one_of_them_sees_one_side_only(randomize):
    config, ids = space_restoration.SpaceRestorationConfig(), np.random.default_rng(0).integers(1, 40, size=(1, 12))
    other = np.where(np.arange(12) == 8, ids % 39 + 1, ids)
    sizes = {}
    for name in space_restoration.MODELS:
        model = randomize(getattr(config, name).build_model(70))
        sizes[name] = model.count_params()
        moved = np.abs(np.asarray(model(ids)) - np.asarray(model(other))).max(-1)[0] > 1e-7
        assert moved[8:].all(), name
        assert moved[:8].any() is np.bool_(name != "lstm"), name
    assert max(sizes.values()) < 1.1 * min(sizes.values())


class Far:
    """A model whose logits at t say what stands `far` before and behind it."""

    def __init__(self, far):
        self.far = far

    def __call__(self, ids, training):
        assert training is False
        padded = tf.pad(ids, [[0, 0], [self.far, self.far]])
        return tf.cast(tf.stack([padded[:, : -2 * self.far], padded[:, 2 * self.far :], ids, ids], -1), tf.float32)


@pytest.mark.parametrize("length", [4, 7, 16])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 30, 33])
def test_a_long_text_is_read_as_a_whole_as_far_as_a_quarter_of_the_length(length, count):
    characters = "".join(np.random.default_rng(count).choice(list("abcdefgh"), count))
    tagger = Tagger(Far(length // 4), CharacterTokenizer("abcdefgh", oov_token="[UNK]"), length, batch_size=3)
    expected = tagger.model(tagger.ids(characters)[None], training=False)[0]
    np.testing.assert_array_equal(tagger.logits(characters), expected)


def test_ids_keep_clear_of_padding():
    ids = Tagger(None, CharacterTokenizer("ab", oov_token="[UNK]"), 4).ids("ab猫")
    assert ids.tolist() == [2, 3, 1]


def spans(characters, tags):
    """The words of a tagged text as (start, end, spelling)."""
    places = [0, *(n for n in range(1, len(characters)) if tags[n] & SPACE), len(characters)]
    capitals = [tag & CAPITAL for tag in tags]
    return [(a, b, characters[a:b], tuple(capitals[a:b])) for a, b in itertools.pairwise(places)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
@settings(max_examples=300, deadline=None)
def test_a_word_is_right_where_both_texts_have_the_same_one_at_the_same_place(pairs):
    tags, predicted = np.array(pairs).T
    tags[0], predicted[0] = tags[0] & CAPITAL, predicted[0] & CAPITAL  # no space before the first character
    characters = "x" * len(tags)
    predicted_spans = spans(characters, predicted)
    assert correct_words(tags, predicted).tolist() == [word in predicted_spans for word in spans(characters, tags)]


def test_metrics_by_hand():
    tags = np.array([2, 0, 1, 0, 3, 0])  # Xx xx Xx
    predicted = np.array([2, 0, 1, 1, 1, 0])  # Xx x x xx
    metrics = tag_metrics(tags, predicted)
    assert metrics == pytest.approx(
        {
            **{"space_precision": 2 / 3, "space_recall": 1.0, "space_f1": 0.8},
            **{"capital_precision": 1.0, "capital_recall": 0.5, "capital_f1": 2 / 3},
            "word_accuracy": 1 / 3,
        }
    )
    assert set(tag_metrics(tags, np.zeros_like(tags)).values()) == {0.0}
    assert set(tag_metrics(tags, tags).values()) == {1.0}


def test_a_passage_is_prose_and_its_sample_says_what_became_of_it():
    text = load_corpus("pydoc").text[:200_000]
    chosen = passage(text)
    assert chosen in collapse_whitespace(text)
    assert sum(map(str.isalpha, chosen)) / len(chosen) > 0.75
    characters, tags = strip_spacing(chosen)
    parts = sample(chosen, restore(characters, tags)).split("\n\n")
    assert [part.split(":\n")[0] for part in parts] == ["original", "stripped", "restored"]
    assert parts[0].removeprefix("original") == parts[2].removeprefix("restored")
    assert "".join(parts[1].splitlines()[1:]) == characters
    assert passage("short") == "short"


def test_batches_are_windows_of_characters_with_their_own_tags():
    config = space_restoration.SpaceRestorationConfig(batch_size=2, sequence_length=8)
    characters, tags = strip_spacing("To be, or not to be: that is the Question. " * 3)
    tokenizer = CharacterTokenizer.from_text(characters, oov_token="[UNK]")
    examples = space_restoration.batches(config, Tagger(None, tokenizer, 8), characters, tags)
    assert examples.num_examples == (len(characters) - 8) // 2 + 1
    for x, y in examples.dataset(0, 5):
        for ids, window_tags in zip(x.numpy(), y.numpy(), strict=True):
            window = tokenizer.decode(ids - 1)
            starts = [n for n in range(len(characters)) if characters.startswith(window, n)]
            assert any((tags[n : n + 8] == window_tags).all() for n in starts)


def test_a_model_of_other_tags_is_refused():
    with pytest.raises(ValueError, match="num_tags=3"):
        BiLSTMConfig(num_tags=3)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("--characters 0", "--characters 0"),
        ("--batch-size 0", "--batch-size 0"),
        ("--sequence-length 3", "--sequence-length 3"),
        ("--seed -1", "--seed -1"),
        ("--models", "--models"),
        ("--models gpt", "--models"),
        ("--sequence-length 200", "--bert.context-length 128"),
        ("--text abc", "--run and --text"),
        ("--run nowhere", "--run and --text"),
        ("--run nowhere --text abc", "nowhere"),
        ("--run {smoke}/lstm-seed0 --text=", "empty or white space only"),
        ("--corpus {short}", "training split"),
        ("--corpus /nonexistent", "/nonexistent"),
        ("--lstm.units 0", "units=0"),
        ("--bilstm.num-tags 3", "num_tags=3"),
        ("--encoder.num-heads 5", "num_heads=5"),
        ("--resume nowhere", "nowhere"),
    ],
)
def test_a_mistake_is_named_in_one_sentence_and_leaves_nothing(fails, smoke, tmp_path, arguments, names):
    short = tmp_path / "short"
    short.write_text("a b " * 300, encoding="utf-8")
    words = arguments.format(smoke=smoke.folder, short=short).split()
    sentence = fails(space_restoration.main, *words, "--log-dir", tmp_path / "logs")
    assert sentence.startswith("experiments.space_restoration: ")
    assert names in sentence
    assert not (tmp_path / "logs").exists()
