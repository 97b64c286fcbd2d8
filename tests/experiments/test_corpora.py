import pytest

from experiments.compare.settings import CompareConfig, smoke_config
from experiments.frame.corpora import for_smoke, overlap_note, print_overlap_note
from experiments.loss_by_position.__main__ import LossByPositionConfig
from experiments.loss_by_position.__main__ import smoke_config as smoke_loss_by_position
from experiments.scaling.__main__ import ScalingConfig
from experiments.scaling.__main__ import smoke_config as smoke_scaling
from keras_seq.data import load_corpus

PAGE = "".join(map(chr, range(0x4E00, 0x4E64)))  # no stretch of it twice


def test_smoke_runs_read_the_small_text_instead_of_the_default():
    assert for_smoke(load_corpus().name) == "pydoc"
    assert for_smoke("mine.txt") == "mine.txt"
    for config, small in (
        (CompareConfig, smoke_config),
        (LossByPositionConfig, smoke_loss_by_position),
        (ScalingConfig, smoke_scaling),
    ):
        assert (config().corpus, small(config()).corpus) == ("docstrings", "pydoc")
        assert small(config(corpus="shakespeare")).corpus == "shakespeare"


@pytest.mark.parametrize(("length", "percentage"), [(500, "20%"), (1500, "7%"), (2400, None)])
def test_the_note_names_the_copied_fraction(length, percentage, capsys):
    validation = "".join(chr(0x5000 + i % 97 + (i // 97) % 89 * 97) for i in range(length - 100)) + PAGE
    note = overlap_note(PAGE + "x" * 1000, validation)
    print_overlap_note(PAGE + "x" * 1000, validation)
    assert capsys.readouterr().out == ("" if note is None else f"{note}\n")
    if percentage is None:
        assert note is None
    else:
        assert note.startswith(f"Note: {percentage} of the validation text occurs word for word in the training text")


def test_the_default_text_needs_no_such_note_and_pydoc_does():
    assert overlap_note(*load_corpus().split()) is None
    assert overlap_note(*load_corpus("pydoc").split()) is not None
