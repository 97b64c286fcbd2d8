import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_seq import pretrained
from keras_seq.data import load_corpus
from keras_seq.reports.pages import describe_run, run_label
from keras_seq.runs.finished_run import NEUTRAL_TEXT, example_text, handle_unknown, load_run_or_folder
from keras_seq.tokenizers import BytePairTokenizer, CharacterTokenizer
from keras_seq.training import run_folder


@pytest.fixture
def run(tmp_path):
    """A run folder with this config.json."""

    def run(**config):
        run_folder.write_checksummed(tmp_path / "config.json", config)
        return tmp_path

    return run


@pytest.mark.parametrize("name", ["gpt2", "openai-community/gpt2"])
def test_a_name_of_the_hub_is_no_folder_but_names_what_gets_one(name):
    remedy = rf'.*pretrained\.download\("{name}", revision=COMMIT, online=True\) .* ls-remote \S+/{name} HEAD'
    with pytest.raises(ValueError, match=rf"^{name} does not exist; .* a Hugging Face folder: {remedy}"):
        load_run_or_folder(pathlib.Path(name))
    with pytest.raises(pretrained.PretrainedError, match=rf"^{name} is not a folder; {remedy}"):
        pretrained.load(name)
    with pytest.raises(pretrained.PretrainedError, match=rf"revision=None; expected a commit of {name}, .* HEAD"):
        pretrained.download(name)


def test_a_file_of_a_run_names_the_folder(tmp_path):
    (tmp_path / "model.keras").touch()
    with pytest.raises(ValueError, match=rf"model\.keras is a file; expected its folder {tmp_path}\.$"):
        load_run_or_folder(tmp_path / "model.keras")


def test_a_run_is_called_by_its_folders(tmp_path):
    assert run_label(tmp_path / "20260101-120000" / "lstm-seed0") == "20260101-120000/lstm-seed0"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"model": {"name": "lstm"}, "corpus": {"name": "pydoc"}}, "the lstm trained on pydoc"),
        ({"model": {"name": "lstm"}, "corpus": {"name": "texts/my.txt"}}, "the lstm trained on my.txt"),
        ({"model": {"name": "gru"}}, "the gru"),
        ({"model": [1], "corpus": "x"}, "the model"),
        ({}, "the model"),
    ],
)
def test_a_run_is_described_as_far_as_it_says_what_it_is(run, config, words):
    assert describe_run(run(**config)) == words


def test_a_folder_without_config_is_described_too(tmp_path):
    assert describe_run(tmp_path) == "the model"
    assert example_text(tmp_path) == NEUTRAL_TEXT


def test_the_example_is_of_the_validation_text_of_a_built_in_corpus_and_of_no_file(run, tmp_path):
    passage = example_text(run(corpus={"name": "pydoc"}))
    assert len(passage) > 50
    assert passage in load_corpus("pydoc").split()[1]
    (tmp_path / "secret").write_text("a secret\n\na secret", encoding="utf-8")
    assert example_text(run(corpus={"name": str(tmp_path / "secret")})) == NEUTRAL_TEXT


TOKENIZER = CharacterTokenizer.from_text("abc \n")


@given(st.text("abc \nüé猫😀"))
def test_what_is_known_stays(text):
    known = handle_unknown(text, TOKENIZER, "drop")
    assert known == "".join(character for character in text if character in "abc \n")
    assert handle_unknown(known, TOKENIZER, "error") == known


def test_the_error_names_each_character_once_and_a_remedy():
    with pytest.raises(ValueError, match=r"'ü' \(U\+00FC\), '猫' \(U\+732B\): .*--unknown drop"):
        handle_unknown("aü猫ü", TOKENIZER, "error")
    with pytest.raises(ValueError, match="and 2 more:"):
        handle_unknown("defghij", TOKENIZER, "error")


@pytest.mark.parametrize("tokenizer", [CharacterTokenizer.from_text("a", "[UNK]"), BytePairTokenizer.from_text("ab")])
def test_a_tokenizer_that_has_ids_for_all_texts_gets_all(tokenizer):
    assert handle_unknown("ü猫", tokenizer, "drop") == "ü猫"
