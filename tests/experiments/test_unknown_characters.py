import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.frame.finished_run import handle_unknown
from keras_seq.tokenizers import BytePairTokenizer, CharacterTokenizer

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
