import io
import math
import re

import numpy as np
import pytest

from keras_seq.commands import score as experiment
from keras_seq.commands.score import score_page
from keras_seq.evaluation import TextScore, score_text
from keras_seq.models import MODELS
from keras_seq.saving import save_model
from keras_seq.training import load_run
from tests.reports.test_pages import Reader

TEXT = "def f(x):\n    return \"<script>alert(1)</script>\" & x\n\nIt is 'so'. Zq"


@pytest.fixture
def said(smoke, capsys):
    """What the script says of a text under a finished run."""

    def said(*options, name="lstm"):
        experiment.main([str(smoke.folder / f"{name}-seed0"), *map(str, options)])
        return capsys.readouterr().out

    return said


def numbers(output):
    return [float(number) for number in re.findall(r"(\d+\.\d{4}) (?:nats|bits) per character", output)]


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_it_prints_the_loss_of_the_text(said, smoke, name):
    expected = score_text(*load_run(smoke.folder / f"{name}-seed0"), TEXT)
    output = said("--text", TEXT, "--num-highest-losses", 3, name=name)
    assert numbers(output) == pytest.approx([expected.loss_per_character, expected.bits_per_character], abs=1e-4)
    rows = [float(nats) for nats in re.findall(r"^ *(\d+\.\d\d) nats  ", output, re.MULTILINE)]
    assert rows == pytest.approx(sorted(expected.token_losses[1:], reverse=True)[:3], abs=6e-3)


def test_a_model_may_learn_from_what_it_has_scored(said):
    text = "the same words again. " * 8
    plain, adapted = (said("--text", text, *options) for options in ((), ("--adapt", "0.01")))
    losses = [float(re.search(r"([\d.]+) nats per character", words)[1]) for words in (plain, adapted)]
    assert losses[1] < losses[0]


def test_a_file_and_standard_input_are_texts_too(said, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_bytes(TEXT.replace("\n", "\r\n").encode())
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    whole = said("--text", TEXT)
    assert said("--file", tmp_path / "a.txt") == whole
    assert said("--file", "-") == whole


def test_without_top_no_tokens_are_listed(said):
    assert "highest loss" not in said("--text", TEXT, "--num-highest-losses", 0)


def test_the_location_is_that_of_the_token(said):
    output = said("--text", TEXT, "--num-highest-losses", len(TEXT))
    lines = TEXT.split("\n")
    found = re.findall(r"line (\d+), column (\d+) +\S*?\[(.)\]", output)
    assert len(found) > len(TEXT) / 2  # all but those beside a bracket of the text
    signs = {"·": " ", "⏎": "\n"}
    for line, column, shown in found:
        assert (lines[int(line) - 1] + "\n")[int(column) - 1] == signs.get(shown, shown)


def test_unknown_characters_can_be_dropped(said):
    assert said("--text", "a 猫cat", "--unknown", "drop") == said("--text", "a cat")


@pytest.fixture
def page(said, tmp_path):
    def page(text, *options, name="lstm"):
        said("--text", text, "--html", tmp_path / "page.html", *options, name=name)
        return (tmp_path / "page.html").read_text(encoding="utf-8")

    return page


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_the_page_shows_every_token_with_its_loss(page, smoke, name):
    model, tokenizer = load_run(smoke.folder / f"{name}-seed0")
    expected = score_text(model, tokenizer, TEXT)
    read = Reader(page(TEXT, name=name))
    assert "".join(read.tokens) == TEXT
    assert "data-loss" not in read.attributes[0]
    losses = [float(attributes["data-loss"]) for attributes in read.attributes[1:]]
    np.testing.assert_allclose(losses, expected.token_losses[1:], atol=6e-5)
    shades = [float(attributes["style"].removeprefix("--n:")) for attributes in read.attributes[1:]]
    np.testing.assert_allclose(
        shades, np.minimum(expected.token_losses[1:] / math.log(tokenizer.vocabulary_size), 1), atol=6e-3
    )


def test_the_page_needs_nothing_from_elsewhere_and_is_no_more_than_its_text(page):
    written, plain = page(TEXT), Reader(page(re.sub(r"[<>&'\"]", "x", TEXT)))
    assert "<h1>How well the lstm trained on pydoc predicts a text</h1>" in written
    assert "http" not in written
    assert sorted(Reader(written).tags) == sorted(plain.tags)
    assert "<script>alert" not in written


def test_the_list_links_to_the_tokens(tmp_path):
    scored = TextScore(tuple("abcd"), np.array([np.nan, 1, 3, 2], "float32"), 3)
    written = score_page(scored, tmp_path, 10, 2)
    assert re.findall(r'href="#(t\d)"', written) == ["t2", "t3"]
    assert [attributes["id"] for attributes in Reader(written).attributes] == ["t0", "t1", "t2", "t3"]


@pytest.mark.parametrize(
    ("run", "options", "names"),
    [
        ("nowhere", "--text=ab", "nowhere does not exist"),
        ("lstm-seed0", "", "neither was given"),
        ("lstm-seed0", "--text=ab --file=-", "both were given"),
        ("lstm-seed0", "--text=a", "at least 2"),
        ("lstm-seed0", "--text=", "at least 2"),
        ("lstm-seed0", "--text=a猫", "'猫' (U+732B): change the text, or add --unknown drop"),
        ("lstm-seed0", "--text=a猫 --unknown=drop", "at least 2"),
        ("lstm-seed0", "--file=nowhere.txt", "nowhere.txt"),
        ("lstm-seed0", "--text=ab --html=nowhere/a.html", "nowhere"),
        ("lstm-seed0", "--text=ab --html=.", "--html .: it is a folder; expected a file"),
    ],
)
def test_a_mistake_is_named_in_one_sentence(smoke, fails, run, options, names):
    sentence = fails(experiment.main, smoke.folder / run, *options.split())
    assert names in sentence


def test_a_text_too_long_for_a_page_is_refused(smoke, fails, tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "MAX_HTML_TOKENS", 3)
    monkeypatch.setattr(experiment, "score_text", None)  # before anything is computed
    message = fails(experiment.main, smoke.folder / "lstm-seed0", "--text", "abcd", "--html", tmp_path / "a.html")
    assert "4 tokens" in message
    assert not (tmp_path / "a.html").exists()


def test_a_run_of_another_kind_is_refused(smoke, fails, tmp_path):
    _, tokenizer = load_run(smoke.folder / "lstm-seed0")
    tokenizer.save(tmp_path / "tokenizer.json")
    save_model(
        MODELS["bilstm"](embedding_dim=2, units=2).build_model(tokenizer.vocabulary_size), tmp_path / "model.keras"
    )
    assert "not a language model" in fails(experiment.main, tmp_path, "--text", "ab")


def test_what_is_read_is_not_written(smoke, fails, tmp_path):
    text = tmp_path / "a.txt"
    text.write_text("to be")
    sentence = fails(experiment.main, smoke.folder / "lstm-seed0", "--file", text, "--html", text)
    assert "expected another file, as this is the one of --file" in sentence
    assert text.read_text() == "to be"
