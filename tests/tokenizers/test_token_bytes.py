import pytest

from keras_seq.tokenizers import BytePairTokenizer, CharacterTokenizer, WordPieceTokenizer, WordTokenizer
from keras_seq.tokenizers.pretrained import token_bytes

TEXT = "Naïve cats,\n\t cats; 猫 🙂 \x00\x7f\xa0\xad"


@pytest.mark.parametrize(
    "tokenizer",
    [
        CharacterTokenizer.from_text(TEXT),
        CharacterTokenizer.from_text(TEXT, oov_token="[UNK]"),
        WordTokenizer.from_text(TEXT),
        BytePairTokenizer.from_text(TEXT, vocabulary_size=265),
    ],
    ids=["characters", "characters-oov", "words", "bytes"],
)
def test_the_bytes_of_the_tokens_are_those_of_the_text(tokenizer):
    table = token_bytes(tokenizer)
    assert b"".join(table[n] for n in tokenizer.encode(TEXT)) == TEXT.encode()
    special = [token for token, value in zip(tokenizer.vocabulary, table, strict=True) if value is None]
    assert special == [token for token in tokenizer.vocabulary if token.startswith("[") and token.endswith("]")]


def test_a_tokenizer_that_loses_white_space_is_refused():
    with pytest.raises(ValueError, match="WordPieceTokenizer does not keep white space"):
        token_bytes(WordPieceTokenizer.from_text(TEXT))
