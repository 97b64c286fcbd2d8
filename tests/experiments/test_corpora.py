import pytest

from experiments.compare_settings import Compare, tiny
from experiments.corpora import copied, for_smoke, note_copied
from experiments.positions import Positions
from experiments.positions import tiny as tiny_positions
from experiments.scaling import Scaling
from experiments.scaling import tiny as tiny_scaling
from keras_seq.data import load_corpus

PAGE = "".join(map(chr, range(0x4E00, 0x4E64)))  # no stretch of it twice


def test_smoke_runs_read_the_small_text_instead_of_the_default():
    assert for_smoke(load_corpus().name) == "pydoc"
    assert for_smoke("mine.txt") == "mine.txt"
    for settings, small in ((Compare, tiny), (Positions, tiny_positions), (Scaling, tiny_scaling)):
        assert (settings().corpus, small(settings()).corpus) == ("docstrings", "pydoc")
        assert small(settings(corpus="shakespeare")).corpus == "shakespeare"


@pytest.mark.parametrize(("length", "told"), [(500, "20%"), (1500, "7%"), (2400, None)])
def test_a_copied_text_is_told_with_its_share(length, told, capsys):
    validation = "".join(chr(0x5000 + i % 97 + (i // 97) % 89 * 97) for i in range(length - 100)) + PAGE
    sentence = copied(PAGE + "x" * 1000, validation)
    note_copied(PAGE + "x" * 1000, validation)
    assert capsys.readouterr().out == ("" if sentence is None else f"{sentence}\n")
    if told is None:
        assert sentence is None
    else:
        assert sentence.startswith(f"Note: {told} of the validation text stands word for word in the training text")


def test_the_default_text_needs_no_such_note_and_pydoc_does():
    assert copied(*load_corpus().split()) is None
    assert copied(*load_corpus("pydoc").split()) is not None
