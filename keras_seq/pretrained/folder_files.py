"""Read the files of a Hugging Face folder: texts, JSON, tensors one at a time into NumPy, and the tokenizer.

    model.safetensors                    all tensors, or
    model.safetensors.index.json         {"weight_map": {tensor: file}} and the files that it names
    tokenizer.json                       everything of the tokenizer; what `save` writes
    vocab.txt                            BERT's older form: one subword a line
    vocab.json, merges.txt               GPT-2's older form
    tokenizer_config.json                special tokens, lower case, chat template

The `safetensors` library refuses a header that does not fit the file's size. NumPy knows bfloat16 by `ml_dtypes`.
"""

import contextlib
import json
import pathlib

import ml_dtypes
import numpy as np
import tokenizers
from safetensors import SafetensorError, safe_open
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from keras_seq.checks import short_repr
from keras_seq.files import check_regular
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tokenizers.base import OOV_TOKEN, Tokenizer, TokenizerError
from keras_seq.tokenizers.pretrained import PretrainedTokenizer
from keras_seq.tokenizers.subwords import SubwordTokenizer

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FLOATS = "F64", "F32", "F16", "BF16"
MAX_TEXT_BYTES = 1 << 26


class PretrainedError(ValueError):
    """Report a folder that cannot be loaded, or a model that cannot be saved, as a Hugging Face folder."""


def read_text(path: pathlib.Path) -> str:
    """Return the text of a regular file of limited size: pipes and devices may never end."""
    try:
        size = check_regular(path).st_size
        if size > MAX_TEXT_BYTES:
            raise PretrainedError(f"{path} has {size} bytes; expected at most {MAX_TEXT_BYTES}.")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PretrainedError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise PretrainedError(f"{path} is not UTF-8: {error}.") from None


def read_json(path: pathlib.Path) -> dict:
    """Return the object in a JSON file."""
    text = read_text(path)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PretrainedError(f"{path} is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise PretrainedError(f"{path} holds a {type(value).__name__}; expected a JSON object.")
    return value


class TensorFiles:
    """The tensors of a folder's safetensors files: names, shapes, and values when they are read."""

    def __init__(self, folder: pathlib.Path):
        self._entries = {}  # by tensor: its file, dtype and shape
        for path in _paths(folder):
            with _opened(path) as file:
                for name in file.keys():  # noqa: SIM118 - not a dictionary
                    if name in self._entries:
                        raise PretrainedError(
                            f"{path} holds the tensor {name!r}, which another file of the folder holds too."
                        )
                    entry = file.get_slice(name)
                    self._entries[name] = path, entry.get_dtype(), tuple(entry.get_shape())

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self._entries)

    def __iter__(self):
        """Return an iterator over the names of the tensors."""
        return iter(self._entries)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        _, dtype, shape = self._entries[name]
        if dtype not in FLOATS:
            raise PretrainedError(
                f"The tensor {name!r} holds {dtype}; expected one of {', '.join(FLOATS)}: load the model before its "
                "quantization."
            )
        return shape

    def read(self, name: str) -> np.ndarray:
        """Return a tensor; its file is open only meanwhile, as memory that maps a file counts, too."""
        with _opened(self._entries[name][0]) as file:
            return file.get_tensor(name)


@contextlib.contextmanager
def _opened(path):
    try:
        check_regular(path)
        with safe_open(path, framework="np") as file:
            yield file
    except (SafetensorError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise PretrainedError(f"{path} is not a whole safetensors file: {reason}.") from None


def _paths(folder):
    index = folder / INDEX
    if not index.exists():
        if not (folder / SINGLE).exists():
            raise PretrainedError(
                f"{folder} has no {SINGLE} or {INDEX}; expected a folder that transformers' save_pretrained wrote: "
                "pytorch_model.bin is a pickle, which can run code."
            )
        return [folder / SINGLE]
    if (folder / SINGLE).exists():
        raise PretrainedError(f"{folder} has both {SINGLE} and {INDEX}; expected one: remove what is of other weights.")
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise PretrainedError(f'{index} has no "weight_map" from tensors to files.')
    names = sorted({*map(str, weight_map.values())})
    for name in names:
        if pathlib.PurePath(name).name != name or not name.endswith(".safetensors"):
            raise PretrainedError(f"{index} names the file {name!r}; expected a safetensors file of the same folder.")
        if not (folder / name).is_file():
            raise PretrainedError(f"{index} names the file {name!r}, which is not in {folder}.")
    return [folder / name for name in names]


def overflows(values: np.ndarray, dtype) -> bool:
    """Return whether a finite number becomes infinity in another dtype."""
    limit = ml_dtypes.finfo(dtype).max
    if ml_dtypes.finfo(values.dtype).max <= limit:
        return False
    with np.errstate(over="ignore"):
        return bool((np.isinf(values.astype(dtype)) & np.isfinite(values)).any())


# The tokenizer.

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FLAGS = {"single_word", "lstrip", "rstrip", "normalized", "special"}  # of an added token
WORD_PIECE = ("pad", "unk", "cls", "sep", "mask")
BOOLEANS = ("do_lower_case", "tokenize_chinese_chars", "strip_accents", "add_prefix_space")  # null: the default


def read_tokenizer_files(folder: pathlib.Path, model_type: str, vocabulary_size: int) -> PretrainedTokenizer | None:
    """Return the tokenizer of a folder, or None if there is none."""
    options_file = folder / "tokenizer_config.json"
    options = read_json(options_file) if options_file.exists() else {}
    map_file = folder / "special_tokens_map.json"
    if "added_tokens_decoder" not in options and map_file.exists():  # as transformers did before it wrote that key
        options |= read_json(map_file)
    special = {name: _content(name, options[name]) for name in SPECIAL if options.get(name) is not None}
    for name in BOOLEANS:
        if options.get(name) is not None and not isinstance(options[name], bool):
            raise PretrainedError(f"{options_file}: {name}={options[name]!r:.80}; expected true or false.")
    try:
        if (folder / "tokenizer.json").exists():
            pipeline = read_text(folder / "tokenizer.json")
        elif (folder / "vocab.txt").exists():
            pipeline = _word_piece(folder / "vocab.txt", options, special)
        elif model_type == "gpt2" and (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
            if options.get("add_bos_token") or options.get("add_eos_token"):
                raise PretrainedError(
                    f"{options_file}: add_bos_token or add_eos_token is true; expected tokenizer.json beside it: load "
                    "the tokenizer once by transformers' AutoTokenizer and save it."
                )
            pipeline = _byte_pairs(folder, options, special)
        elif (folder / "tokenizer.model").exists() or (folder / "vocab.json").exists():
            raise PretrainedError(
                f"{folder} has a tokenizer in an older form; expected tokenizer.json: load it once by transformers' "
                "AutoTokenizer and save it."
            )
        else:
            return None
        more = {"chat_template": _chat_template(folder, options), "special_tokens": special}
        tokenizer = PretrainedTokenizer(pipeline, vocabulary_size, **more)
        whole = _with_added_tokens(pipeline, folder, options, special, vocabulary_size)
        return tokenizer if whole == pipeline else PretrainedTokenizer(whole, vocabulary_size, **more)
    except (TokenizerError, OSError, ValueError) as error:
        if isinstance(error, PretrainedError):
            raise
        raise PretrainedError(f"The tokenizer of {folder} cannot be loaded: {str(error).rstrip('.')}.") from None


def _content(name, token):
    content = token.get("content") if isinstance(token, dict) else token
    if not isinstance(content, str):
        raise PretrainedError(f"tokenizer_config.json: {name}={token!r:.80}; expected a text, or its content.")
    return content


def _chat_template(folder, options):
    path = folder / "chat_template.jinja"
    if path.exists():
        return read_text(path)
    template = options.get("chat_template")
    if isinstance(template, list) and all(isinstance(entry, dict) for entry in template):  # several, by name
        template = {entry.get("name"): entry.get("template") for entry in template}.get("default")
    if not isinstance(template, str | None):
        raise PretrainedError(
            f"tokenizer_config.json: chat_template={short_repr(template)}; expected a text, or objects with name and "
            "template."
        )
    return template


def _with_added_tokens(text, folder, options, special, vocabulary_size):
    """Return the pipeline with the tokens that the other files name and it has not added, as transformers adds them."""
    listed = read_json(folder / "added_tokens.json") if (folder / "added_tokens.json").exists() else {}
    flags, decoder = {}, options.get("added_tokens_decoder") or {}
    lists = [options.get(f"{kind}_special_tokens") or () for kind in ("additional", "extra")]
    if not all(isinstance(tokens, list | dict | tuple) for tokens in lists):
        raise PretrainedError(f"{folder}: additional_special_tokens or extra_special_tokens; expected lists of tokens.")
    further = [token for tokens in lists for token in (tokens.values() if isinstance(tokens, dict) else tokens)]
    further = [_content("additional_special_tokens", token) for token in further]
    if not isinstance(decoder, dict) or not all(isinstance(id, int) for id in listed.values()):
        raise PretrainedError(f"{folder}: expected tokens by id in added_tokens_decoder, ids in added_tokens.json.")
    for id, token in decoder.items():
        name = _content("added_tokens_decoder", token)
        listed[name] = int(id)
        flags[name] = {flag: token[flag] for flag in FLAGS & {*token}} if isinstance(token, dict) else {}
    pipeline = tokenizers.Tokenizer.from_str(text)
    known = {token.content for token in pipeline.get_added_tokens_decoder().values()}
    names = [
        *dict.fromkeys(n for n in (*sorted(listed, key=listed.get), *special.values(), *further) if n not in known)
    ]
    for name in names:
        if pipeline.token_to_id(name) is not None or pipeline.get_vocab_size() < vocabulary_size:
            pipeline.add_special_tokens([AddedToken(name, **{"special": True, **flags.get(name, {})})])
    for name, id in listed.items():
        if (other_id := pipeline.token_to_id(name)) not in (id, None):
            raise PretrainedError(f"{folder} has {name!r} as id {id} and as {other_id}; expected one of them.")
    return pipeline.to_str() if names else text


def _word_piece(path, options, special):
    tokens = read_text(path).split("\n")
    token_to_id = {token: id for id, token in enumerate(tokens) if token}
    pad, unknown, first, last, hidden = (special.get(f"{n}_token", f"[{n.upper()}]") for n in WORD_PIECE)
    pipeline = tokenizers.Tokenizer(models.WordPiece(token_to_id, unk_token=unknown, max_input_chars_per_word=100))
    pipeline.normalizer = normalizers.BertNormalizer(
        lowercase=options.get("do_lower_case") is not False,
        handle_chinese_chars=options.get("tokenize_chinese_chars") is not False,
        strip_accents=options.get("strip_accents"),
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix="##")
    present = [token for token in (pad, unknown, first, last, hidden) if token in token_to_id]
    pipeline.add_special_tokens([AddedToken(token, special=True) for token in present])
    if {first, last} <= {*present}:
        pipeline.post_processor = processors.TemplateProcessing(
            single=f"{first} $A {last}",
            pair=f"{first} $A {last} $B:1 {last}:1",
            special_tokens=[(token, token_to_id[token]) for token in (first, last)],
        )
    return pipeline.to_str()


def _byte_pairs(folder, options, special):
    for name in ("vocab.json", "merges.txt"):
        read_text(folder / name)  # a file that the library, which opens it by its name, can read
    pipeline = tokenizers.Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    prefix_space = bool(options.get("add_prefix_space", False))
    pipeline.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    pipeline.decoder = decoders.ByteLevel()
    pipeline.post_processor = processors.ByteLevel(trim_offsets=False)
    names = {"<|endoftext|>", *special.values()} & pipeline.get_vocab().keys()
    pipeline.add_special_tokens([AddedToken(token, special=True) for token in sorted(names)])
    return pipeline.to_str()


def write_tokenizer_files(folder: pathlib.Path, tokenizer: Tokenizer) -> None:
    """Write tokenizer.json and tokenizer_config.json, which `PreTrainedTokenizerFast` reads."""
    options = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    if isinstance(tokenizer, PretrainedTokenizer):
        text = tokenizer.pipeline
        options |= tokenizer.special_tokens
        if tokenizer.chat_template is not None:
            options["chat_template"] = tokenizer.chat_template
    elif isinstance(tokenizer, SubwordTokenizer):
        text = tokenizer.to_tokenizer_json()
    elif isinstance(tokenizer, CharacterTokenizer):
        text = _characters(tokenizer).to_str(pretty=True)
    else:
        raise PretrainedError(
            f"A {type(tokenizer).__name__} has no tokenizer.json; expected characters, WordPiece or byte pairs."
        )
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(options, indent=2), encoding="utf-8")


def _characters(tokenizer):
    """Return a pipeline that splits at every character, and refuses unknown ones where keras_seq does."""
    token_to_id = {token: id for id, token in enumerate(tokenizer.vocabulary)}
    pipeline = tokenizers.Tokenizer(models.WordLevel(token_to_id, unk_token=OOV_TOKEN))
    pipeline.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    pipeline.decoder = decoders.Fuse()
    return pipeline
