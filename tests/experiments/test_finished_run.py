import pytest

from experiments.frame.finished_run import describe_run, run_label, validation_passage
from keras_seq.data import load_corpus
from keras_seq.training import checksummed_json


@pytest.fixture
def run(tmp_path):
    """A run folder with this config.json."""

    def run(**config):
        checksummed_json.write(tmp_path / "config.json", config)
        return tmp_path

    return run


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
    assert validation_passage(tmp_path) is None


def test_the_passage_is_of_the_validation_text_where_that_is_built_in_and_the_same(run, tmp_path):
    corpus = load_corpus("pydoc")
    passage = validation_passage(run(corpus={"name": "pydoc", "sha256": corpus.sha256}))
    assert len(passage) > 50
    assert passage in corpus.split()[1]
    assert validation_passage(run(corpus={"name": "pydoc", "sha256": "0"})) is None
    (tmp_path / "secret").write_text("a secret\n\na secret", encoding="utf-8")
    secret = load_corpus(tmp_path / "secret")
    assert validation_passage(run(corpus={"name": secret.name, "sha256": secret.sha256})) is None
