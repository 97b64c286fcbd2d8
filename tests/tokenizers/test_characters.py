import time

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_seq.data import load_corpus
from keras_seq.tokenizers import CharacterTokenizer, TokenizerError, UnknownCharacterError

# Whatever UTF-8 can hold: every code point but the surrogates.
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)
oov_tokens = st.sampled_from([None, "[UNK]"])
ODD = "\x00\r\n\t e\u0301é漢\u200d👩‍👩‍👧🏳️‍🌈\ufeff\ufffd\ufffe\uffff\U0010ffffא\u202e"


@given(text=texts, oov_token=oov_tokens)
@settings(max_examples=60)
def test_ids_are_places_in_code_point_order(text, oov_token):
    vocabulary = CharacterTokenizer.from_text(text, oov_token)
    assert list(vocabulary.characters) == sorted(set(text), key=ord)
    assert len(vocabulary) == vocabulary.vocabulary_size == len(set(text)) + (oov_token == "[UNK]")
    expected = [vocabulary.characters.index(character) + (oov_token == "[UNK]") for character in text]
    ids = vocabulary.encode(text)
    assert isinstance(ids, np.ndarray)
    assert ids.dtype == np.int32
    assert ids.tolist() == expected


@given(text=texts, oov_token=oov_tokens)
@settings(max_examples=30)
def test_round_trip_of_any_text(text, oov_token):
    vocabulary = CharacterTokenizer.from_text(text, oov_token)
    ids = vocabulary.encode(text)
    assert vocabulary.decode(ids) == text
    assert vocabulary.decode(ids.astype(np.uint16)) == vocabulary.decode(ids.tolist()) == text
    assert vocabulary.decode_tensor(ids).numpy().decode() == text
    assert vocabulary.encode(tf.constant(text)).numpy().tolist() == ids.tolist()


@given(known=texts, text=texts)
@settings(max_examples=60)
def test_an_unknown_character_is_id_0_and_decodes_to_one_character(known, text):
    vocabulary = CharacterTokenizer.from_text(known, oov_token="[UNK]")
    ids = vocabulary.encode(text)
    assert [identity == 0 for identity in ids] == [character not in known for character in text]
    assert vocabulary.decode(ids) == "".join(c if c in known else "\ufffd" for c in text)


@given(known=texts, text=texts)
@settings(max_examples=30)
def test_an_unknown_character_is_an_error_that_names_it_and_its_position(known, text):
    vocabulary = CharacterTokenizer.from_text(known)
    strangers = [position for position, character in enumerate(text) if character not in known]
    for given_text in (text, tf.constant(text)):
        if strangers:
            with pytest.raises(UnknownCharacterError) as error:
                vocabulary.encode(given_text)
            character = text[strangers[0]]
            assert f"{character!r} (U+{ord(character):04X}) at position {strangers[0]}:" in str(error.value)
        else:
            vocabulary.encode(given_text)


@given(rows=st.lists(st.text(st.sampled_from(ODD), max_size=8), min_size=1, max_size=5), oov_token=oov_tokens)
@settings(max_examples=30)
def test_a_batch_of_strings_is_ragged(rows, oov_token):
    vocabulary = CharacterTokenizer.from_text(ODD, oov_token)
    ids = vocabulary.encode(tf.constant(rows))
    assert isinstance(ids, tf.RaggedTensor)
    assert ids.dtype == tf.int32
    assert ids.to_list() == [vocabulary.encode(row).tolist() for row in rows]
    assert [row.decode() for row in vocabulary.decode_tensor(ids).numpy()] == rows


def test_the_row_of_an_unknown_character_in_a_batch():
    with pytest.raises(UnknownCharacterError, match=r"'c' \(U\+0063\) at position 1 of string 2:"):
        CharacterTokenizer("ab").encode(["ab", "", "acb", "c"])


@pytest.mark.parametrize("oov_token", [None, "[UNK]"])
def test_the_empty_text(oov_token):
    vocabulary = CharacterTokenizer("ab", oov_token)
    for text in ("", tf.constant("")):
        ids = vocabulary.encode(text)
        assert ids.shape == (0,)
        assert ids.dtype == np.int32
        assert vocabulary.decode(ids) == vocabulary.decode([]) == vocabulary.decode_tensor(ids).numpy().decode() == ""
    assert vocabulary.encode(["", ""]).to_list() == [[], []]


def test_chunks_make_no_difference(monkeypatch):
    text = load_corpus("pydoc").text[:500] + ODD
    vocabulary = CharacterTokenizer.from_text(text)
    whole = vocabulary.encode(text)
    monkeypatch.setattr("keras_seq.tokenizers.characters.CHUNK_IDS", 7)
    assert (vocabulary.encode(text) == whole).all()
    assert vocabulary.decode(whole) == text
    with pytest.raises(UnknownCharacterError, match=f"at position {len(text)}:"):
        vocabulary.encode(text + "\x01")
    with pytest.raises(TokenizerError, match=f"'\\\\ud800' .* at position {len(text)}:"):
        vocabulary.encode(text + "\ud800")


def test_inside_a_dataset():
    vocabulary = CharacterTokenizer.from_text(ODD, oov_token="[UNK]")
    lines = [ODD, "é\x01", ""]
    dataset = tf.data.Dataset.from_tensor_slices(lines).map(vocabulary.encode)
    assert dataset.element_spec == tf.TensorSpec([None], tf.int32)
    assert [ids.numpy().tolist() for ids in dataset] == [vocabulary.encode(line).tolist() for line in lines]
    back = dataset.map(vocabulary.decode_tensor)
    assert [line.decode() for line in back.as_numpy_iterator()] == [ODD, "é\ufffd", ""]
    batches = tf.data.Dataset.from_tensor_slices(lines).batch(3).map(vocabulary.encode)
    assert [ids.numpy().tolist() for ids in next(iter(batches))] == [ids.numpy().tolist() for ids in dataset]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("abéa", r"lacks the character\] \[é\] \[at position\] \[\[2\]\]"), (b"ab\xff", "Invalid formatting")],
)
def test_bad_text_inside_a_dataset(text, expected):
    with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
        list(tf.data.Dataset.from_tensors(text).map(CharacterTokenizer("ab").encode))


def test_bad_ids_inside_a_graph():
    decode = tf.function(CharacterTokenizer("ab").decode_tensor, input_signature=[tf.TensorSpec([None], tf.int32)])
    assert decode([0, 1]).numpy() == b"ab"
    for wrong in (-1, 2, 2**31 - 1):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"have no character.*{wrong}"):
            decode([0, wrong])


def test_a_str_inside_a_graph():
    vocabulary = CharacterTokenizer("ab", oov_token="[UNK]")
    assert tf.function(lambda: vocabulary.encode("bca"))().numpy().tolist() == [2, 0, 1]


def test_it_exports_with_a_module_that_has_its_tables(tmp_path):
    module = tf.Module()
    tokenizer = CharacterTokenizer.from_text(ODD)
    module.tables = tokenizer.tables
    module.echo = tf.function(
        lambda text: tokenizer.decode_tensor(tokenizer.encode(text)), input_signature=[tf.TensorSpec([], tf.string)]
    )
    tf.saved_model.save(module, str(tmp_path))
    assert tf.saved_model.load(str(tmp_path)).echo(ODD[::-1]).numpy().decode() == ODD[::-1]


def test_equality_is_of_characters_and_oov_token():
    assert CharacterTokenizer("ab") == CharacterTokenizer.from_text("bab")
    assert CharacterTokenizer("ab") != CharacterTokenizer("abc")
    assert CharacterTokenizer("ab") != CharacterTokenizer("ab", oov_token="[UNK]")
    assert CharacterTokenizer("ab") != "ab"
    assert len({CharacterTokenizer("ab"), CharacterTokenizer("ab"), CharacterTokenizer("abc")}) == 2


@pytest.mark.parametrize("oov_token", [None, "[UNK]"])
def test_half_a_surrogate_pair(oov_token):
    with pytest.raises(TokenizerError, match=r"U\+D83D\), half a surrogate pair, at position 2:"):
        CharacterTokenizer("ab", oov_token).encode("ab\ud83d")


def test_a_single_id():
    assert CharacterTokenizer("abc").decode(1) == CharacterTokenizer("abc").decode(tf.constant(1)) == "b"


def test_the_whole_text_is_looked_up_fast():
    text = load_corpus("pydoc").text
    vocabulary = CharacterTokenizer.from_text(text)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        vocabulary.encode(text)
        seconds.append(time.perf_counter() - start)
    assert len(text) / min(seconds) > 2_000_000
