"""What all kinds of tokenizers promise, and their files."""

import copy
import json
import os
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_seq import tokenizers

TEXT = "The fox sees the dog; the dog sees a naïve fox, 漢字 and it's the fox's dog. " * 3
OTHER = "Nothing like it was seen before, said the dog. " * 3
TRAINED = {kind: tokenizer.from_text(TEXT) for kind, tokenizer in tokenizers.TOKENIZERS.items()}
kinds = pytest.mark.parametrize("kind", tokenizers.TOKENIZERS)


@kinds
def test_all_kinds_answer_to_the_same_names(kind):
    tokenizer = TRAINED[kind]
    assert isinstance(tokenizer, tokenizers.TOKENIZERS[kind])
    assert isinstance(tokenizer, tokenizers.Tokenizer)
    assert tokenizer.vocabulary_size == len(tokenizer) == len(tokenizer.vocabulary) == len(set(tokenizer.vocabulary))
    assert all(isinstance(token, str) for token in tokenizer.vocabulary)
    assert tokenizer.oov_token == (None if kind == "characters" else "[UNK]")
    assert type(tokenizer).__name__ in repr(tokenizer)
    ids = tokenizer.encode(TEXT)
    assert isinstance(ids, np.ndarray)
    assert ids.dtype == np.int32
    assert ids.ndim == 1
    assert 0 <= ids.min() <= ids.max() < tokenizer.vocabulary_size


@kinds
def test_ids_in_any_integers_give_the_text(kind):
    tokenizer, text = TRAINED[kind], "the fox sees the dog"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == tokenizer.decode(ids.astype(np.uint16)) == text
    assert tokenizer.decode(ids.tolist()) == text
    assert tokenizer.decode(ids[0]) == tokenizer.decode(int(ids[0])) == tokenizer.decode(ids[:1])


@kinds
def test_the_empty_text(kind):
    ids = TRAINED[kind].encode("")
    assert ids.shape == (0,)
    assert ids.dtype == np.int32
    assert TRAINED[kind].decode(ids) == TRAINED[kind].decode([]) == ""


@kinds
def test_save_and_load_give_an_equal_tokenizer(tmp_path, kind):
    path, saved = tmp_path / "tokenizer.json", TRAINED[kind]
    saved.save(path)
    assert os.listdir(tmp_path) == ["tokenizer.json"]
    for loaded in (
        tokenizers.TOKENIZERS[kind].load(path),
        tokenizers.load_tokenizer(path),
        tokenizers.load_tokenizer(str(path)),
    ):
        assert type(loaded) is type(saved)
        assert loaded == saved == type(saved).from_config(saved.get_config())
        assert hash(loaded) == hash(saved)
        assert loaded.vocabulary == saved.vocabulary
        for text in (TEXT, "fox's dog"):
            assert loaded.encode(text).tolist() == saved.encode(text).tolist()


@kinds
def test_the_file_has_the_schema_and_the_registry_name_in_ascii(tmp_path, kind):
    TRAINED[kind].save(tmp_path / "tokenizer.json")
    config = json.loads((tmp_path / "tokenizer.json").read_text("ascii"))
    assert config == {"schema": 2, **TRAINED[kind].get_config()}
    assert config["registry_name"] == kind == TRAINED[kind].registry_name


@kinds
def test_the_same_text_trains_an_equal_tokenizer_and_another_does_not(kind):
    again, other = tokenizers.TOKENIZERS[kind].from_text(TEXT), tokenizers.TOKENIZERS[kind].from_text(OTHER)
    assert again == TRAINED[kind]
    assert again.vocabulary == TRAINED[kind].vocabulary
    assert other != again
    assert len({again, TRAINED[kind], other}) == 2


def test_kinds_are_never_equal():
    assert len(set(TRAINED.values())) == len(TRAINED)
    assert tokenizers.WordTokenizer(["[UNK]"]) != "[UNK]"


@kinds
def test_it_cannot_be_changed(kind):
    for name in ("vocabulary", "vocabulary_size", "oov_token"):
        with pytest.raises(AttributeError):
            setattr(TRAINED[kind], name, 1)
    TRAINED[kind].vocabulary.clear()
    assert TRAINED[kind].vocabulary


@kinds
def test_a_failed_save_leaves_what_was_there(tmp_path, monkeypatch, kind):
    path = tmp_path / "tokenizer.json"
    TRAINED[kind].save(path)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        tokenizers.TOKENIZERS[kind].from_text(OTHER).save(path)
    assert os.listdir(tmp_path) == ["tokenizer.json"]
    assert tokenizers.load_tokenizer(path) == TRAINED[kind]


@kinds
@pytest.mark.parametrize("text", [None, 3, b"ab\xff", [1, 2], "the dog\ud83d"])
def test_bad_text_for_encode(kind, text):
    with pytest.raises(tokenizers.TokenizerError):
        TRAINED[kind].encode(text)


@pytest.mark.parametrize("kind", ["words", "wordpiece", "bpe"])
def test_half_a_surrogate_pair_is_named_with_its_position(kind):
    with pytest.raises(tokenizers.TokenizerError, match=r"U\+D83D\), half a surrogate pair, at position 2:"):
        TRAINED[kind].encode("ab\ud83d")


@kinds
@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([0, -1], "id -1 at position 1"),
        ([10_000], "id 10000 at position 0"),
        (np.array([2**63], np.uint64), "id 9223372036854775808"),
        ([0.0], "integers"),
        ([True], "integers"),
        ("the", "integers"),
        (None, "integers"),
        ([[0, 1]], "one axis"),
        ([[0], [0, 1]], "one axis"),
    ],
)
def test_bad_ids(kind, ids, expected):
    with pytest.raises(tokenizers.TokenizerError, match=expected):
        TRAINED[kind].decode(ids)
    with pytest.raises(tokenizers.TokenizerError, match=rf"ids from 0 to {TRAINED[kind].vocabulary_size - 1}\."):
        TRAINED[kind].decode([TRAINED[kind].vocabulary_size])


SHORTHAND = {"NAME": '"schema": 2, "registry_name"', "SPECIAL": json.dumps([*tokenizers.SPECIAL_TOKENS])}
FOREIGN = {  # NAME and SPECIAL stand for the text in SHORTHAND
    '{"characters": "ab", "unknown": "error"}': "schema=None; expected 2: an older version",
    '{"schema": 3, "registry_name": "words", "vocabulary": ["[UNK]"]}': "schema=3; expected 2",
    "": "not JSON",
    '{NAME: "words", "tok': "not JSON",
    "[" * 100_000: "not JSON",
    "null": "JSON object",
    "[]": "JSON object",
    "{}": "schema=None; expected 2: an older version",
    '{NAME: "sentencepiece"}': "registry_name=str 'sentencepiece'; expected one of characters, words, wordpiece, bpe",
    '{NAME: ["words"]}': "one of characters, words",
    "{NAME: null}": "one of characters, words",
    '{NAME: "characters", "characters": "ab", "oov_token": null, "more": 1}': "expected exactly the keys",
    '{NAME: "characters", "characters": "ba", "oov_token": null}': "ascending characters",
    '{NAME: "characters", "characters": "", "oov_token": null}': "at least one character",
    '{NAME: "characters", "characters": ["a"], "oov_token": null}': "at least one character",
    '{NAME: "characters", "characters": "a\\ud800", "oov_token": null}': "surrogate",
    '{NAME: "characters", "characters": "ab", "oov_token": ["[UNK]"]}': "oov_token=",
    '{NAME: "words"}': "expected exactly the keys registry_name, vocabulary, with registry_name='words'",
    '{NAME: "words", "vocabulary": ["[UNK]"], "lowercase": true}': "expected exactly the keys",
    '{NAME: "words", "vocabulary": "[UNK]"}': "a list of non-empty strings",
    '{NAME: "words", "vocabulary": ["[UNK]", 3]}': "a list of non-empty strings",
    '{NAME: "words", "vocabulary": ["[UNK]", ""]}': "a list of non-empty strings",
    '{NAME: "words", "vocabulary": []}': "must begin with",
    '{NAME: "words", "vocabulary": ["a", "[UNK]"]}': "must begin with",
    '{NAME: "words", "vocabulary": ["[UNK]", "a", " ", "a"]}': "'a' occurs 2 times",
    '{NAME: "words", "vocabulary": ["[UNK]", "\\ud800"]}': "surrogate",
    '{NAME: "words", "vocabulary": ["[UNK]", "a b"]}': "'a b' of vocabulary has a word boundary inside",
    '{NAME: "wordpiece", "vocabulary": ["[UNK]"], "lowercase": false}': "must begin with",
    '{NAME: "wordpiece", "vocabulary": SPECIAL, "lowercase": 0}': "lowercase=int 0; expected True or False",
    '{NAME: "wordpiece", "vocabulary": SPECIAL}': "expected exactly the keys",
    '{NAME: "bpe", "merges": {}}': "merges=dict {}; expected a list",
    '{NAME: "bpe", "merges": ["ab"]}': "A merge must be two bytes",
    '{NAME: "bpe", "merges": [["a"]]}': "A merge must be two bytes",
    '{NAME: "bpe", "merges": [["a", ["b"]]]}': "A merge must be two bytes",
    '{NAME: "bpe", "merges": [["ab", "c"], ["a", "b"]]}': "earlier merges",
    '{NAME: "bpe", "merges": [["[CLS]", "a"]]}': "earlier merges",
    '{NAME: "bpe", "merges": [["U", "N"], ["UN", "K"], ["[", "UNK"], ["[UNK", "]"]]}': r"\['\[UNK', '\]'\]",
}


@pytest.mark.parametrize(("data", "expected"), FOREIGN.items(), ids=range(len(FOREIGN)))
def test_a_file_that_holds_no_tokenizer(tmp_path, data, expected):
    path = tmp_path / "tokenizer.json"
    for word, text in SHORTHAND.items():
        data = data.replace(word, text)
    path.write_text(data)
    with pytest.raises(tokenizers.TokenizerError, match=rf"tokenizer\.json'.*{expected}"):
        tokenizers.load_tokenizer(path)


def test_a_file_of_another_kind(tmp_path):
    for saved, tokenizer in TRAINED.items():
        saved_to = tmp_path / f"{saved}.json"
        tokenizer.save(saved_to)
        for kind in tokenizers.TOKENIZERS.keys() - {saved}:
            with pytest.raises(tokenizers.TokenizerError, match=rf"{saved}\.json' is invalid"):
                tokenizers.TOKENIZERS[kind].load(saved_to)


def test_a_file_that_is_not_there(tmp_path):
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(tokenizers.TokenizerError, match="cannot be read"):
            tokenizers.load_tokenizer(path)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["[UNK]", "a", "b", "ab"]) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)
configs = st.fixed_dictionaries(
    {"schema": st.just(2), "registry_name": st.sampled_from([*tokenizers.TOKENIZERS]) | values},
    optional={"vocabulary": values, "lowercase": values, "merges": values, "characters": values, "oov_token": values},
)


@given(data=st.binary(max_size=60) | configs.map(lambda config: json.dumps(config).encode()))
@settings(max_examples=50)
def test_a_file_is_a_tokenizer_or_one_clear_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "tokenizer.json"
    path.write_bytes(data)
    try:
        tokenizer = tokenizers.load_tokenizer(path)
    except tokenizers.TokenizerError:
        return
    assert {"schema": 2, **tokenizer.get_config()} == json.loads(data)


@kinds
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, lambda tokenizer: pickle.loads(pickle.dumps(tokenizer))])
def test_a_tokenizer_can_be_copied_and_pickled_after_use(kind, how):
    tokenizer = tokenizers.TOKENIZERS[kind].from_text(TEXT)
    tokenizer.encode(TEXT)
    if kind == "characters":
        pytest.importorskip("tensorflow")
        assert tokenizer.tables
    same = how(tokenizer)
    assert (same, hash(same)) == (tokenizer, hash(tokenizer))
    assert same.encode(TEXT).tolist() == tokenizer.encode(TEXT).tolist()
