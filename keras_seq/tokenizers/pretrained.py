"""Convert text to ids as a pretrained model expects: by any tokenizer.json, run by the `tokenizers` library.

`keras_seq.pretrained.load` creates it. Ids equal those of `tokenizer(text)["input_ids"]` in transformers: special
tokens in a text, such as `<|endoftext|>`, are one id, and those that the model was trained with are added.
"""

import contextlib
import json
import re
from functools import cached_property

import numpy as np
import tokenizers

from keras_seq import bounded_process, checks
from keras_seq.checks import short_repr
from keras_seq.tokenizers.base import Tokenizer, TokenizerError, check_text
from keras_seq.tokenizers.characters import CharacterTokenizer
from keras_seq.tokenizers.subwords import ALPHABET, SPECIAL_TOKENS, BytePairTokenizer
from keras_seq.tokenizers.words import WordTokenizer

MAX_IDS = 1 << 22  # four times as many as the largest vocabularies have: an id may not decide about memory


class PretrainedTokenizer(Tokenizer):
    """Convert text to ids by a tokenizer.json.

    Args:
        pipeline: The text of the tokenizer.json, with ids below 2^22.
        vocabulary_size: V of the model, at least the number of tokens; ids without a token decode to nothing. None for
            the number of tokens.
        add_special_tokens: Whether `encode` adds the special tokens of the file, such as `[CLS]`, as transformers does.
        chat_template: Template of chat prompts in Jinja, or None.
        special_tokens: Names of special tokens that the template uses, such as `{"bos_token": "<s>"}`.

    Raises:
        TokenizerError: The text is not a tokenizer.json, or an argument is out of its range.
    """

    registry_name = "pretrained"
    config_fields = ("pipeline", "vocabulary_size", "add_special_tokens", "chat_template", "special_tokens")

    def __init__(
        self,
        pipeline: str,
        vocabulary_size: int | None = None,
        add_special_tokens: bool = True,
        chat_template: str | None = None,
        special_tokens: dict[str, str] | None = None,
    ):
        with _panics(f"pipeline={short_repr(pipeline)}; expected a tokenizer.json"):
            self._pipeline = _whole_texts(pipeline)
        token_of = {id: token for token, id in self._pipeline.get_vocab(with_added_tokens=True).items()}
        for entry in json.loads(pipeline).get("added_tokens") or ():
            if token_of.get(entry["id"]) != entry["content"]:  # the library gives it the next free id
                added = f"The added token {entry['content']!r:.80} has id {entry['id']}"
                raise TokenizerError(f"{added}; expected its own, or the next free one.")
        num_ids = max(token_of, default=-1) + 1
        if num_ids > MAX_IDS:
            raise TokenizerError(f"The tokenizer has the id {num_ids - 1}; expected ids below {MAX_IDS}.")
        if vocabulary_size is None:
            vocabulary_size = num_ids
        if checks.integer("vocabulary_size", vocabulary_size, 1, MAX_IDS) < num_ids:
            raise TokenizerError(f"{vocabulary_size=}; expected at least {num_ids}, the ids of the tokenizer.")
        # not checked as other vocabularies are: foreign ones may have gaps
        self.token_names = tuple(map(token_of.get, range(vocabulary_size)))  # None in a gap
        self._vocabulary = tuple(name or f"<unused {id}>" for id, name in enumerate(self.token_names))
        self.pipeline = pipeline
        self.add_special_tokens = checks.boolean("add_special_tokens", add_special_tokens)
        if chat_template is not None and not isinstance(chat_template, str):
            raise TokenizerError(f"chat_template={short_repr(chat_template)}; expected a text or None.")
        names = {} if special_tokens is None else special_tokens
        if not isinstance(names, dict) or not all(isinstance(x, str) for x in (*names, *names.values())):
            raise TokenizerError(f"special_tokens={short_repr(names)}; expected texts by name.")
        self.chat_template, self.special_tokens = chat_template, dict(names)

    @property
    def oov_token(self) -> None:
        """None: what a foreign tokenizer does with unknown text is in its tokenizer.json."""
        return None

    @property
    def pad_token_id(self) -> int:
        """The id of the special token `"pad_token"`, with which rows are padded; 0 where there is none."""
        token = self.special_tokens.get("pad_token")
        id = None if token is None else self._pipeline.token_to_id(token)
        return 0 if id is None else id

    def encode_batch(
        self, texts: list[str], text_pairs: list[str] | None = None, sequence_length: int | None = None
    ) -> dict[str, np.ndarray]:
        """Encode texts, or pairs of texts, as rows that are padded at the end with `pad_token_id`.

        Args:
            texts: B texts, at least one.
            text_pairs: The B second texts, or None.
            sequence_length: T, the positions of a row: longer rows are cut, the longer text of a pair first, and
                shorter rows are padded. None for the length of the longest row.

        Returns:
            NumPy arrays `[B, T]`: `token_ids` and `segment_ids`, int32, and `padding_mask`, bool, True at non-padding
            positions.

        Raises:
            TokenizerError: There are no texts, not as many pairs as texts, or an element is not a text.
            ValueError: `sequence_length` is less than the special tokens that are added.
        """
        for name, batch in (("texts", texts), ("text_pairs", text_pairs)):
            if batch is not None and (not isinstance(batch, list | tuple) or not batch or len(batch) != len(texts)):
                raise TokenizerError(f"{name}={short_repr(batch)}; expected a list of texts, as many in both.")
            for text in batch or ():
                check_text(text)
        pipeline = _whole_texts(self.pipeline)
        if sequence_length is not None:
            added = pipeline.num_special_tokens_to_add(text_pairs is not None) if self.add_special_tokens else 0
            pipeline.enable_truncation(
                checks.integer("sequence_length", sequence_length, max(1, added), reason="for the special tokens")
            )
        id = self.pad_token_id
        pipeline.enable_padding(length=sequence_length, pad_id=id, pad_token=self._vocabulary[id])
        inputs = list(texts) if text_pairs is None else list(zip(texts, text_pairs, strict=True))
        with _panics("The texts cannot be encoded"):
            rows = pipeline.encode_batch(inputs, add_special_tokens=self.add_special_tokens)
        return {
            "token_ids": np.array([row.ids for row in rows], np.int32),
            "segment_ids": np.array([row.type_ids for row in rows], np.int32),
            "padding_mask": np.array([row.attention_mask for row in rows], bool),
        }

    def chat_prompt(self, messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Return the text that a chat model continues; encode it by `without_special_tokens()`.

        Args:
            messages: Dicts with `"role"` (`"system"`, `"user"` or `"assistant"`) and `"content"`; what
                JSON can hold.
            add_generation_prompt: Whether to end with the beginning of the assistant's turn.

        Raises:
            TokenizerError: There is no template, it refuses the messages, or it takes too much time or memory.
        """
        if self.chat_template is None:
            raise TokenizerError("chat_template=None; expected the tokenizer of a chat model.")
        try:
            return bounded_process.render_chat_template(
                self.chat_template, messages, add_generation_prompt, self.special_tokens
            )
        except (ValueError, TypeError) as error:  # TypeError: JSON cannot hold the messages
            raise TokenizerError(f"The chat template cannot be applied to these messages: {error}.") from None

    def without_special_tokens(self) -> "PretrainedTokenizer":
        """Return this tokenizer with `add_special_tokens=False`: for chat prompts, which have theirs."""
        return self.from_config({**self.get_config(), "add_special_tokens": False})

    @cached_property
    def _untrimmed(self):
        """The pipeline whose offsets include the white space of a token; some files leave it out."""
        if not re.search(r'"trim_offsets"\s*:\s*true', self.pipeline):
            return self._pipeline

        def untrimmed(part):
            return part | {"trim_offsets": False} if part.get("trim_offsets") is True else part

        return _whole_texts(json.dumps(json.loads(self.pipeline, object_hook=untrimmed)))

    def _encode(self, text: str) -> list[int]:
        with _panics(f"The text {short_repr(text)} cannot be encoded"):
            return self._pipeline.encode(text, add_special_tokens=self.add_special_tokens).ids

    def _encode_with_offsets(self, text: str):
        with _panics(f"The text {short_repr(text)} cannot be encoded"):
            encoding = self._untrimmed.encode(text, add_special_tokens=self.add_special_tokens)
        offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        texts = np.flatnonzero(offsets[:, 1] > offsets[:, 0])[:2]  # the first two tokens that stand for text
        share = len(texts) == 2 and offsets[texts[1], 0] < offsets[texts[0], 1]
        if share and not self._decode([encoding.ids[texts[0]]]).strip():  # a space that is put before a text
            offsets[texts[0], 1] = offsets[texts[1], 0]
        return encoding.ids, offsets

    def _decode(self, ids: list[int]) -> str:
        with _panics("The ids cannot be decoded"):
            return self._pipeline.decode(ids, skip_special_tokens=False)


def _whole_texts(pipeline):
    """Return the pipeline of a tokenizer.json, which neither pads nor cuts texts."""
    pipeline = tokenizers.Tokenizer.from_str(pipeline)
    pipeline.no_padding()
    pipeline.no_truncation()
    return pipeline


@contextlib.contextmanager
def _panics(what):
    """Turn what the library raises into a TokenizerError, its PanicException (no subclass of Exception) too."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise TokenizerError(f"{what}: {str(error).rstrip('.')}.") from None


# Of a decoder, after the one that makes spaces; after Fuse, Strip concerns the ends of the text only.
OTHER_STEPS = re.compile("(ByteFallback )?(Fuse (Strip )?)?")


def token_bytes(tokenizer: Tokenizer) -> list[bytes | None]:
    r"""Return the UTF-8 bytes that each token adds to a text; None for special tokens.

    >>> from keras_seq.tokenizers import CharacterTokenizer
    >>> token_bytes(CharacterTokenizer("aé"))
    [b'a', b'\xc3\xa9']
    """
    if isinstance(tokenizer, BytePairTokenizer):
        return [None if token in SPECIAL_TOKENS else _byte_level(token) for token in tokenizer.vocabulary]
    if isinstance(tokenizer, CharacterTokenizer | WordTokenizer):
        special = tokenizer.oov_token
        return [None if token == special else token.encode() for token in tokenizer.vocabulary]
    if isinstance(tokenizer, PretrainedTokenizer):
        return _pretrained(tokenizer)
    raise TokenizerError(f"{type(tokenizer).__name__} does not keep white space; expected characters, words or bytes.")


def _pretrained(tokenizer):
    """Return the bytes by the decoder of a tokenizer.json: what it does to a token that is not the first of a text."""
    pipeline = json.loads(tokenizer.pipeline)
    decoder = pipeline.get("decoder") or {"type": None}
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        of_token = _byte_level
    elif _makes_spaces(steps):
        of_token = _metaspace_bytes if "ByteFallback" in kinds else _metaspace
    else:
        raise TokenizerError(
            f"The decoder of the tokenizer.json, {', '.join(map(str, kinds))}, does not give each token bytes of its "
            "own; expected ByteLevel, or one that makes ▁ a space."
        )
    special = {entry["content"] for entry in pipeline.get("added_tokens") or () if entry.get("special")}
    special.add(pipeline["model"].get("unk_token"))
    if isinstance(unknown := pipeline["model"].get("unk_id"), int):  # of a Unigram model
        special.add(tokenizer.vocabulary[unknown])
    names = tokenizer.token_names
    return [None if name is None or name in special else of_token(name) for name in names]


def _makes_spaces(steps):
    """Return whether ▁ becomes a space in every token, and what else there is concerns bytes and the ends of a text."""
    first, *others = steps
    replaces = first["type"] == "Replace" and (first.get("pattern"), first.get("content")) == ({"String": "▁"}, " ")
    metaspace = first["type"] == "Metaspace" and first.get("replacement", "▁") == "▁"
    names = "".join(f"{step['type']} " for step in others)
    return (replaces or metaspace) and OTHER_STEPS.fullmatch(names) is not None


def _metaspace(token):
    return token.replace("▁", " ").encode()


def _metaspace_bytes(token):
    byte = re.fullmatch("<0x([0-9A-F]{2})>", token)
    return bytes([int(byte[1], 16)]) if byte else _metaspace(token)


def _byte_level(token):
    try:
        return bytes(BYTES[character] for character in token)
    except KeyError:  # an added token, which is decoded as it is
        return token.encode()


# The bytes of the characters of ALPHABET, in its order: printable ones are themselves, others follow from U+0100 on.
BYTES = dict(zip(ALPHABET, sorted(range(256), key=lambda byte: chr(byte) not in ALPHABET), strict=True))
