"""A tokenizer.json is taken as it is meant, or refused: its ids decide neither silently nor about memory."""

import json

import pytest

from keras_seq.tokenizers import BytePairTokenizer, TokenizerError
from keras_seq.tokenizers.pretrained import MAX_IDS, PretrainedTokenizer

BASE = BytePairTokenizer.from_text("the cat sat on the mat " * 9, 270)
V = len(BASE)


def with_tokens(added=(), vocabulary=(), **options):
    pipeline = json.loads(BASE.to_tokenizer_json())
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False) | {"special": True}
    pipeline["added_tokens"] = [{"id": id, "content": content, **flags} for content, id in added]
    pipeline["model"]["vocab"] |= dict(vocabulary)
    return PretrainedTokenizer(json.dumps(pipeline), **options)


def test_ids_that_follow_the_vocabulary_are_those_of_the_file():
    tokenizer = with_tokens([("<a>", V), ("<b>", V + 1)])
    assert len(tokenizer) == V + 2
    assert tokenizer.encode("<b><a>").tolist() == [V + 1, V]
    assert len(with_tokens(vocabulary=[("gap", V + 5)])) == V + 6


@pytest.mark.parametrize("added", [[("<a>", 2**31 + 5)], [("<a>", V + 1)], [("<a>", V), ("<b>", V + 7)], [("<a>", 3)]])
def test_an_added_token_that_gets_another_id_is_refused(added):
    with pytest.raises(TokenizerError, match=f"{added[-1][0]}' has id {added[-1][1]}; expected"):
        with_tokens(added)


@pytest.mark.parametrize("id", [2**31 + 7, 2**32 - 1, MAX_IDS])
def test_an_id_that_would_take_memory_is_refused(id):
    with pytest.raises(TokenizerError, match=f"has the id {id}; expected ids below {MAX_IDS}"):
        with_tokens(vocabulary=[("far", id)])


@pytest.mark.parametrize("size", [2**40, MAX_IDS + 1, V - 1, 0])
def test_a_vocabulary_size_out_of_range_is_refused(size):
    with pytest.raises(ValueError, match=f"vocabulary_size={size}"):
        with_tokens(vocabulary_size=size)
