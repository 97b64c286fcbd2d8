r"""The token that begins every document in a folder of token ids, and keeps documents apart in a model.

characters, words    U+001E, ASCII's record separator, which begins each record in a JSON text sequence (RFC 7464)
wordpiece, bpe       [SEP]
"""

from keras_seq.tokenizers.base_tokenizer import Tokenizer
from keras_seq.tokenizers.segment_packing import SPECIAL_TOKENS
from keras_seq.tokenizers.subword_tokenizers import SubwordTokenizer
from keras_seq.tokenizers.text_errors import TokenizerError

DOCUMENT_CHARACTER = "\x1e"


def document_token(tokenizer: Tokenizer) -> int:
    """Return the id of the token that begins a document.

    Args:
        tokenizer: A tokenizer of a class in `TOKENIZERS`.

    Raises:
        TokenizerError: It has no such token.
    """
    if isinstance(tokenizer, SubwordTokenizer):
        return SPECIAL_TOKENS["[SEP]"]
    if DOCUMENT_CHARACTER not in tokenizer.vocabulary:
        raise TokenizerError(
            f"The tokenizer has no token U+001E, which begins a document: train one on the texts with --tokenizer "
            f"{tokenizer.registry_name}, or take one that was."
        )
    return tokenizer.vocabulary.index(DOCUMENT_CHARACTER)
