import numpy as np
import pytest

from experiments.frame.texts import SplitCorpus, compare_sizes, overlap_note, smoke_corpus, validation_note
from keras_seq.data import load_corpus
from keras_seq.tokenizers import WordTokenizer
from keras_seq.training import TrainConfig, checksummed_json

PAGE = "".join(map(chr, range(0x4E00, 0x4E64)))  # no stretch of it twice
TEXT = "To be, or not to be: that is the question.\n" * 8


@pytest.fixture
def path(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return str(tmp_path / "text.txt")


@pytest.mark.parametrize("held_out", [False, True])
def test_the_parts_join_to_the_text_and_their_ids_to_its_ids(path, tmp_path, held_out):
    data = SplitCorpus(path, tmp_path, held_out=held_out)
    assert data.train_text + (data.held_out_text or "") + data.validation_text == data.corpus.text == TEXT
    ids = [part for part in (data.train, data.held_out, data.validation) if part is not None]
    np.testing.assert_array_equal(np.concatenate(ids), data.tokenizer.encode(TEXT))
    assert len(ids) == 2 + held_out
    assert len(data.validation) == len(TEXT) - int(0.9 * len(TEXT))


def test_a_tokenizer_can_be_that_of_the_training_text_alone(path, tmp_path):
    seen = []

    def tokenizer(text, train_text):
        seen.append((text, train_text))
        return WordTokenizer.from_text(train_text)

    data = SplitCorpus(path, tmp_path, tokenizer=tokenizer)
    assert seen == [(TEXT, data.train_text)]
    assert isinstance(data.tokenizer, WordTokenizer)
    assert data.tokenizer.decode(data.encode("to be")).split() == ["to", "be"]


def test_a_part_that_is_too_short_and_another_text_than_that_of_the_runs_are_refused(path, tmp_path):
    with pytest.raises(ValueError, match="too short"):
        SplitCorpus(path, tmp_path, min_length=len(TEXT) // 10 + 2)
    (tmp_path / "lstm-seed0").mkdir()
    checksummed_json.write(tmp_path / "lstm-seed0/config.json", {"corpus": {"sha256": "ab"}})
    with pytest.raises(ValueError, match="resume with the same text, or start a new run"):
        SplitCorpus(path, tmp_path)


def test_it_introduces_itself_with_the_sizes_of_its_parts_and_what_is_validated(path, tmp_path, capsys):
    data = SplitCorpus(path, tmp_path, held_out=True)
    data.introduce(TrainConfig(validation_characters=20), 5, "3 steps")
    said = capsys.readouterr().out
    assert f"{len(data.train)} training tokens, {len(data.held_out)} held-out tokens, {len(data.validation)}" in said
    assert "; 3 steps; validating on 20 characters spread over 35 during training, on all of them at the end" in said
    with pytest.raises(ValueError, match=r"--train\.validation-characters 20"):
        data.introduce(TrainConfig(validation_characters=20), 21, "3 steps")
    assert validation_note(TrainConfig(), data.validation, 5) == ""


def test_smoke_runs_read_the_small_text_instead_of_the_default():
    assert smoke_corpus(load_corpus().name) == "pydoc"
    assert smoke_corpus("mine.txt") == "mine.txt"


@pytest.mark.parametrize(("length", "percentage"), [(500, "20%"), (1500, "7%"), (2400, None)])
def test_the_note_names_the_copied_fraction(length, percentage):
    validation = "".join(chr(0x5000 + i % 97 + (i // 97) % 89 * 97) for i in range(length - 100)) + PAGE
    note = overlap_note(PAGE + "x" * 1000, validation)
    assert str(note).startswith(str(percentage and f"Note: {percentage} of the validation text occurs word for word"))


def test_the_default_text_needs_no_such_note_and_pydoc_does():
    assert overlap_note(*load_corpus().split()) is None
    assert overlap_note(*load_corpus("pydoc").split()) is not None


@pytest.mark.parametrize(("parameters", "remarked"), [(104_900, False), (105_100, True)])
def test_models_of_different_sizes_are_pointed_out(parameters, remarked):
    assert ("more than the 5 %" in compare_sizes([100_000, parameters])) is remarked
