"""A tokenizer.json is taken as it is meant, or refused: its ids decide neither silently nor about memory."""

import json

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from keras_seq.tokenizers import (
    BytePairTokenizer,
    CharacterTokenizer,
    TokenizerError,
    WordPieceTokenizer,
    WordTokenizer,
)
from keras_seq.tokenizers.pretrained import MAX_IDS, PretrainedTokenizer, token_bytes

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


ODD_TEXT = "Naïve cats,\n\t cats; 猫 🙂 \x00\x7f\xa0\xad"


@pytest.mark.parametrize(
    "tokenizer",
    [
        CharacterTokenizer.from_text(ODD_TEXT),
        CharacterTokenizer.from_text(ODD_TEXT, oov_token="[UNK]"),
        WordTokenizer.from_text(ODD_TEXT),
        BytePairTokenizer.from_text(ODD_TEXT, vocabulary_size=265),
    ],
    ids=["characters", "characters-oov", "words", "bytes"],
)
def test_the_bytes_of_the_tokens_are_those_of_the_text(tokenizer):
    table = token_bytes(tokenizer)
    assert b"".join(table[n] for n in tokenizer.encode(ODD_TEXT)) == ODD_TEXT.encode()
    special = [token for token, value in zip(tokenizer.vocabulary, table, strict=True) if value is None]
    assert special == [token for token in tokenizer.vocabulary if token.startswith("[") and token.endswith("]")]


def test_a_tokenizer_that_loses_white_space_is_refused():
    with pytest.raises(ValueError, match="WordPieceTokenizer does not keep white space"):
        token_bytes(WordPieceTokenizer.from_text(ODD_TEXT))


def test_a_regular_expression_that_backtracks_for_ever_is_one_sentence():
    pipeline = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    pipeline.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex("(x+x+)+y"), "isolated")
    with pytest.raises(ValueError, match=r"cannot be encoded: .*retry-limit"):
        PretrainedTokenizer(pipeline.to_str()).encode("x" * 40)


TEMPLATES = {
    "{{ 1 / 0 }}": "division by zero",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "nested too deeply",
    "{{ range(10**9) }}": "Range too big",
    "{{ raise_exception('no') }}": "the template says: no",
    "{{ 'a' * 10**10 }}": "seconds or",
    "{{ '%10000000000d' % 1 }}": "seconds or",
    "{{ '{:10000000000}'.format(1) }}": "seconds or",
    "{{ 'a' | center(10**10) }}": "seconds or",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}": "seconds or",
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_templates_take_little_time_and_memory(template):
    tokenizer = PretrainedTokenizer(BASE.to_tokenizer_json(), chat_template=template)
    with pytest.raises(ValueError, match=f"cannot be applied to these messages: .*{TEMPLATES[template]}"):
        tokenizer.chat_prompt([{"role": "user", "content": "hi"}])


def test_after_a_template_that_takes_too_much_others_are_applied():
    tokenizer = PretrainedTokenizer(BASE.to_tokenizer_json(), chat_template="{{ messages[0]['content'] }}\u00e9")
    assert tokenizer.chat_prompt([{"role": "user", "content": "hi\n"}]) == "hi\n\u00e9"
    with pytest.raises(ValueError, match="not JSON serializable"):
        tokenizer.chat_prompt([{"role": "user", "content": b"hi"}])
