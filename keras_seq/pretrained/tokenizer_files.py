"""Read and write the tokenizer of a Hugging Face folder.

tokenizer.json                       everything; what `save` writes
vocab.txt                            BERT's older form: one subword a line
vocab.json, merges.txt               GPT-2's older form
tokenizer_config.json                special tokens, lower case, chat template
"""

import json
import pathlib

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from keras_seq.checks import short_repr
from keras_seq.pretrained.tensor_files import PretrainedError, read_json, read_text
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tokenizers.base import OOV_TOKEN, Tokenizer
from keras_seq.tokenizers.pretrained import PretrainedTokenizer
from keras_seq.tokenizers.subwords import SubwordTokenizer
from keras_seq.tokenizers.text import TokenizerError

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
BOOLEANS = ("do_lower_case", "tokenize_chinese_chars", "strip_accents", "add_prefix_space")  # null: the default


def read_tokenizer_files(folder: pathlib.Path, model_type: str, vocabulary_size: int) -> PretrainedTokenizer | None:
    """Return the tokenizer of a folder, or None if there is none."""
    options_file = folder / "tokenizer_config.json"
    options = read_json(options_file) if options_file.exists() else {}
    special = {name: _content(name, options[name]) for name in SPECIAL if options.get(name) is not None}
    for name in BOOLEANS:
        if options.get(name) is not None and not isinstance(options[name], bool):
            raise PretrainedError(f"{options_file}: {name}={options[name]!r:.80}; expected true or false.")
    try:
        if (folder / "tokenizer.json").exists():
            pipeline = read_text(folder / "tokenizer.json")
        elif (folder / "vocab.txt").exists():
            pipeline = _word_piece(folder / "vocab.txt", options)
        elif model_type == "gpt2" and (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
            pipeline = _byte_pairs(folder, options, special)
        elif (folder / "tokenizer.model").exists() or (folder / "vocab.json").exists():
            raise PretrainedError(
                f"{folder} has a tokenizer in an older form; expected tokenizer.json: load it once by transformers' "
                "AutoTokenizer and save it."
            )
        else:
            return None
        return PretrainedTokenizer(
            pipeline, vocabulary_size, chat_template=_chat_template(folder, options), special_tokens=special
        )
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


def _word_piece(path, options):
    tokens = read_text(path).split("\n")
    token_to_id = {token: id for id, token in enumerate(tokens) if token}
    pipeline = tokenizers.Tokenizer(models.WordPiece(token_to_id, unk_token="[UNK]", max_input_chars_per_word=100))
    pipeline.normalizer = normalizers.BertNormalizer(
        lowercase=options.get("do_lower_case") is not False,
        handle_chinese_chars=options.get("tokenize_chinese_chars") is not False,
        strip_accents=options.get("strip_accents"),
    )
    pipeline.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pipeline.decoder = decoders.WordPiece(prefix="##")
    special = [token for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if token in token_to_id]
    pipeline.add_special_tokens([AddedToken(token, special=True) for token in special])
    if {"[CLS]", "[SEP]"} <= {*special}:
        pipeline.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[(token, token_to_id[token]) for token in ("[CLS]", "[SEP]")],
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
