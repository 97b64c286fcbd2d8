"""Characters that a model does not know: `--unknown error` names them, `--unknown drop` leaves them out of a text."""

from typing import Literal

from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tokenizers.base_tokenizer import Tokenizer

Unknown = Literal["error", "drop"]
MAX_CHARACTERS_TO_NAME = 5


def handle_unknown(text: str, tokenizer: Tokenizer, how: Unknown) -> str:
    """Return the text without its unknown characters; raise a ValueError that names them if `how` is "error"."""
    if not isinstance(tokenizer, CharacterTokenizer) or tokenizer.oov_token is not None:
        return text  # every text has ids
    known = set(tokenizer.characters)
    unknown = [*dict.fromkeys(character for character in text if character not in known)]
    if unknown and how == "error":
        names = ", ".join(f"{character!r} (U+{ord(character):04X})" for character in unknown[:MAX_CHARACTERS_TO_NAME])
        more = f" and {len(unknown) - MAX_CHARACTERS_TO_NAME} more" if len(unknown) > MAX_CHARACTERS_TO_NAME else ""
        raise ValueError(f"The model does not know {names}{more}: change the text, or add --unknown drop.")
    return "".join(character for character in text if character in known)
