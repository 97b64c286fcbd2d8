"""Tokenizer files: ids here are those of transformers, for files that it wrote and files that are written here."""

import json

import numpy as np
import pytest

pytest.importorskip("transformers")
import tokenizers
import transformers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from keras_seq import tokenizers as ours
from keras_seq.models import GPT2Config, ModernBertConfig
from keras_seq.pretrained import PretrainedError, load, save
from keras_seq.pretrained.folder_files import read_tokenizer_files, write_tokenizer_files
from keras_seq.tokenizers import load_tokenizer

TEXT = "The lowest of the low lakes, said she, isn't slow. Low and slower: naïve? 3 or 30 <|endoftext|>\n"
TEXTS = [TEXT, "low", " the\n\nlakes  ", "naïve café \U0001f600", "[CLS] the [MASK] <|endoftext|>lake", "a" * 200]
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="module")
def byte_pairs(tmp_path_factory):
    """A folder with the tokenizer of a chat model, as transformers writes it."""
    pipeline = tokenizers.Tokenizer(models.BPE())
    pipeline.pre_tokenizer, pipeline.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<|endoftext|>", "<s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    pipeline.train_from_iterator([TEXT], trainer)
    pipeline.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=pipeline, eos_token="<|endoftext|>", bos_token="<s>", chat_template=TEMPLATE
    )
    folder = tmp_path_factory.mktemp("byte_pairs")
    theirs.save_pretrained(folder)
    return folder, theirs


def same_ids(tokenizer, theirs):
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids.tolist() == theirs(text)["input_ids"]
        assert tokenizer.decode(ids) == theirs.decode(ids, clean_up_tokenization_spaces=False)


def test_a_tokenizer_json_gives_the_ids_of_transformers(byte_pairs, tmp_path):
    folder, theirs = byte_pairs
    tokenizer = read_tokenizer_files(folder, "gpt2", 310)
    assert tokenizer.vocabulary_size == 310
    same_ids(tokenizer, theirs)
    tokenizer.save(tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path / "tokenizer.json") == tokenizer
    write_tokenizer_files(tmp_path, tokenizer)
    same_ids(tokenizer, transformers.AutoTokenizer.from_pretrained(tmp_path))


def test_chat_prompts_equal_those_of_transformers(byte_pairs):
    folder, theirs = byte_pairs
    tokenizer = read_tokenizer_files(folder, "gpt2", 310)
    messages = [{"role": "user", "content": "Is the lake <low>?"}, {"role": "assistant", "content": "No."}]
    for generation in (True, False):
        options = {"add_generation_prompt": generation}
        expected = theirs.apply_chat_template(messages, tokenize=False, **options)
        prompt = tokenizer.chat_prompt(messages, **options)
        assert prompt == expected
        ids = theirs.apply_chat_template(messages, tokenize=True, return_dict=False, **options)
        assert tokenizer.without_special_tokens().encode(prompt).tolist() == ids


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[0]['content'] | tojson }} {{ messages | tojson(indent=2) }}",
        "{% if tools is not none %}T{% endif %}{% if documents is defined %}D{% endif %}{{ strftime_now('%Y') }}",
        "{% for message in messages %}{% generation %}{{ message['content'] }}{% set x = 1 %}{% endgeneration %}\n"
        "{{ x is defined }}{% if loop.index == 1 %}{% continue %}{% endif %}!{% endfor %}",
    ],
)
def test_what_templates_use_is_what_transformers_gives_them(byte_pairs, template):
    folder, theirs = byte_pairs
    messages = [{"role": "user", "content": " it's <b> & é"}, {"role": "assistant", "content": "No."}]
    tokenizer = ours.PretrainedTokenizer((folder / "tokenizer.json").read_text(), chat_template=template)
    expected = theirs.apply_chat_template(messages, chat_template=template, tokenize=False)
    assert tokenizer.chat_prompt(messages, add_generation_prompt=False) == expected


@pytest.mark.parametrize("template", ["{{ messages.__class__.__mro__ }}", "{{ raise_exception('no') }}", "{% for %}"])
def test_a_hostile_template_is_refused(byte_pairs, template):
    folder, _ = byte_pairs
    tokenizer = ours.PretrainedTokenizer((folder / "tokenizer.json").read_text(), chat_template=template)
    with pytest.raises(ours.TokenizerError):
        tokenizer.chat_prompt([{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("lowercase", [True, False])
def test_vocab_txt_gives_the_ids_of_bert(tmp_path, lowercase):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "low", "##est", "lake", "##s", "na", "##ive"]
    words += [",", "a", "##a", "cafe", "[", "]", "mask", "cl", "30", ".", "of"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
    tokenizer = read_tokenizer_files(tmp_path, "bert", len(words))
    theirs = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"), do_lower_case=lowercase)
    for text in TEXTS:
        assert tokenizer.encode(text).tolist() == theirs(text)["input_ids"]
    batch = tokenizer.encode_batch(["the low", "lakes"], ["a", "of the lake"], sequence_length=9)
    expected = theirs(["the low", "lakes"], ["a", "of the lake"], padding="max_length", max_length=9)
    keys = {"token_ids": "input_ids", "segment_ids": "token_type_ids", "padding_mask": "attention_mask"}
    for name, key in keys.items():
        np.testing.assert_array_equal(batch[name], expected[key])


def test_a_row_has_room_for_its_special_tokens(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    tokenizer = read_tokenizer_files(tmp_path, "bert", 6)
    assert tokenizer.encode_batch(["a a a"], sequence_length=2)["token_ids"].tolist() == [[2, 3]]
    assert tokenizer.encode_batch(["a"], ["a a"], sequence_length=3)["token_ids"].tolist() == [[2, 3, 3]]
    for pairs, length in ((None, 1), (["a"], 2)):
        with pytest.raises(ValueError, match=f"sequence_length={length}; expected an integer of at least {length + 1}"):
            tokenizer.encode_batch(["a a"], pairs, sequence_length=length)
    assert tokenizer.without_special_tokens().encode_batch(["a a"], sequence_length=1)["token_ids"].tolist() == [[5]]


def test_special_tokens_of_older_files_are_those_of_transformers(tmp_path, byte_pairs):
    """special_tokens_map.json counts where tokenizer_config.json has no added_tokens_decoder; so do further tokens."""
    bert = tmp_path / "bert"
    bert.mkdir()
    (bert / "vocab.txt").write_text("[PAD]\n[UNK]\n<s>\n</s>\n[MASK]\nthe\nlow\nlake\n")
    (bert / "special_tokens_map.json").write_text(json.dumps({"cls_token": "<s>", "sep_token": {"content": "</s>"}}))
    (bert / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (bert / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    gpt2 = tmp_path / "gpt2"
    gpt2.mkdir()
    pipeline = json.loads((byte_pairs[0] / "tokenizer.json").read_text())["model"]
    (gpt2 / "vocab.json").write_text(json.dumps(pipeline["vocab"]))
    (gpt2 / "merges.txt").write_text("#version: 0.2\n" + "\n".join(map(" ".join, pipeline["merges"])) + "\n")
    (gpt2 / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]"}))
    size = len(pipeline["vocab"])
    (gpt2 / "added_tokens.json").write_text(json.dumps({"[PAD]": size}))
    (gpt2 / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    options = {"tokenizer_class": "GPT2Tokenizer", "extra_special_tokens": ["<|user|>"]}
    (gpt2 / "tokenizer_config.json").write_text(json.dumps(options))
    for folder, extra in ((bert, 0), (gpt2, 2)):
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        tokenizer = read_tokenizer_files(folder, folder.name, size + extra if extra else 8)
        for text in ("the low lake", "the<|user|>low [PAD]"):
            assert tokenizer.encode(text).tolist() == theirs(text)["input_ids"]
    assert tokenizer.pad_token_id == theirs.pad_token_id == size


def test_rows_are_padded_with_the_id_that_the_model_masks(byte_pairs, tmp_path):
    """That of the tokenizer's pad_token, as in transformers, and not 0, unless there is none."""
    folder, theirs = byte_pairs
    tokenizer = read_tokenizer_files(folder, "gpt2", 310)
    padded = ours.PretrainedTokenizer(tokenizer.pipeline, 310, special_tokens={"pad_token": "<s>"})
    theirs.pad_token = "<s>"
    expected = theirs(["the low", "lakes"], padding=True)["input_ids"]
    np.testing.assert_array_equal(padded.encode_batch(["the low", "lakes"])["token_ids"], expected)
    for given, id in ((padded, theirs.pad_token_id), (tokenizer, 0)):
        rows = given.encode_batch(["the low", "lakes"], sequence_length=9)
        assert set(rows["token_ids"][~rows["padding_mask"]]) == {id} == {given.pad_token_id}
    for masked, given in ((padded.pad_token_id, padded), (0, tokenizer), (None, tokenizer), (7, padded)):
        config = ModernBertConfig(8, 1, 2, 8, pad_token_id=masked)
        save(config.build_model(310), tmp_path / f"{masked}", given)
        if masked != 7:
            assert load(tmp_path / f"{masked}").tokenizer == given
    with pytest.raises(PretrainedError, match=r"pads rows with id \d+; expected a pad_token .* with pad_token_id=7 of"):
        load(tmp_path / "7")


def test_vocab_json_and_merges_give_the_ids_of_gpt2(byte_pairs, tmp_path):
    folder, _ = byte_pairs
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{' '.join(pair)}\n" for pair in model["merges"]))
    tokenizer = read_tokenizer_files(tmp_path, "gpt2", 400)
    theirs = transformers.GPT2TokenizerFast(vocab=model["vocab"], merges=[tuple(pair) for pair in model["merges"]])
    same_ids(tokenizer, theirs)


PAD = {"content": "<pad>", "lstrip": True, "rstrip": False, "normalized": False, "single_word": False, "special": True}


@pytest.mark.parametrize("form", ["vocab.txt", "merges", "tokenizer.json"])
def test_tokens_that_other_files_add_or_name_are_those_of_transformers(byte_pairs, tmp_path, form):
    folder, _ = byte_pairs
    texts = ["low <pad>lakes", "the low zzz", "<pad> of", ""]
    if form == "vocab.txt":
        words = ["<unk>", "<s>", "</s>", "the", "low", "##er", "lakes", "of"]
        (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
        options = {"tokenizer_class": "BertTokenizer", "unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
        size, kind = len(words), "bert"
    else:
        text = (folder / "tokenizer.json").read_text()
        model, options, kind = json.loads(text)["model"], {"tokenizer_class": "GPT2Tokenizer"}, "gpt2"
        size = len(model["vocab"])
        if form == "merges":
            (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
            (tmp_path / "merges.txt").write_text("".join(f"{' '.join(pair)}\n" for pair in model["merges"]))
        else:
            (tmp_path / "tokenizer.json").write_text(text)
            options = {"tokenizer_class": "PreTrainedTokenizerFast"}
    options |= {"pad_token": "<pad>", "added_tokens_decoder": {f"{size}": PAD}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    tokenizer = read_tokenizer_files(tmp_path, kind, size + 1)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.pad_token_id == theirs.pad_token_id == size
    for text in texts:
        assert tokenizer.encode(text).tolist() == theirs(text)["input_ids"]
    assert read_tokenizer_files(tmp_path, kind, size).pad_token_id == 0  # an id that the model has not
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**options, "added_tokens_decoder": {"3": PAD}}))
    with pytest.raises(PretrainedError, match=f"has '<pad>' as id 3 and as {size}"):
        read_tokenizer_files(tmp_path, kind, size + 1)
    for decoder in ([1], {"x": PAD}, {"9": 1}):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**options, "added_tokens_decoder": decoder}))
        with pytest.raises(PretrainedError, match=r"expected|cannot be loaded"):
            read_tokenizer_files(tmp_path, kind, size + 1)
    if form == "merges":
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**options, "add_bos_token": True}))
        with pytest.raises(PretrainedError, match=r"add_bos_token or add_eos_token is true; expected tokenizer\.json"):
            read_tokenizer_files(tmp_path, kind, size + 1)


@pytest.mark.parametrize("kind", ["characters", "characters-oov", "wordpiece", "bpe"])
def test_what_is_written_transformers_reads(tmp_path, kind):
    corpus = "".join(TEXTS)
    tokenizer = {
        "characters": lambda: ours.CharacterTokenizer.from_text(corpus),
        "characters-oov": lambda: ours.CharacterTokenizer.from_text(corpus, oov_token="[UNK]"),
        "wordpiece": lambda: ours.WordPieceTokenizer.from_text(corpus, 90, 1),
        "bpe": lambda: ours.BytePairTokenizer.from_text(corpus, 300, 1),
    }[kind]()
    write_tokenizer_files(tmp_path, tokenizer)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert len(theirs) == tokenizer.vocabulary_size
    for text in [*TEXTS, "\r\n\t", *(["☃ low"] if kind != "characters" else [])]:
        if kind == "characters" and not {*text} <= {*corpus}:
            continue
        ids = tokenizer.encode(text)
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids.tolist()
        decoded = theirs.decode(ids, clean_up_tokenization_spaces=False)
        assert decoded.replace("[UNK]", "\ufffd" if kind == "characters-oov" else "[UNK]") == tokenizer.decode(ids)
    again = read_tokenizer_files(tmp_path, "gpt2", tokenizer.vocabulary_size)
    assert again.encode("low").tolist() == tokenizer.encode("low").tolist()


def test_tokenizers_that_do_not_fit_are_refused(byte_pairs, tmp_path):
    folder, _ = byte_pairs
    with pytest.raises(PretrainedError, match="vocabulary_size=10"):
        read_tokenizer_files(folder, "gpt2", 10)
    assert read_tokenizer_files(tmp_path, "gpt2", 10) is None
    for text in ("", "{}", "[]", '{"model": {"type": "BPE"}}', "\0"):
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(PretrainedError, match="cannot be loaded"):
            read_tokenizer_files(tmp_path, "gpt2", 10)
    (tmp_path / "tokenizer.json").rename(tmp_path / "tokenizer.model")
    with pytest.raises(PretrainedError, match=r"older form; expected tokenizer\.json"):
        read_tokenizer_files(tmp_path, "llama", 10)
    with pytest.raises(PretrainedError, match=r"WordTokenizer has no tokenizer\.json"):
        write_tokenizer_files(tmp_path, ours.WordTokenizer.from_text("a b"))


def test_a_model_is_not_written_with_the_tokenizer_of_another(tmp_path):
    model = GPT2Config(8, num_layers=1, num_heads=1, context_length=8).build_model(9)
    with pytest.raises(ValueError, match="tokenizer has 3 ids"):
        save(model, tmp_path / "out", ours.CharacterTokenizer("abc"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"special_tokens": 1},
        {"special_tokens": "x"},
        {"special_tokens": {"eos_token": 3}},
        {"chat_template": 5},
        {"chat_template": []},
        {"vocabulary_size": "many"},
        {"vocabulary_size": 3},
        {"add_special_tokens": "yes"},
        {"pipeline": 3},
    ],
    ids=str,
)
def test_a_damaged_file_of_ours_is_named(byte_pairs, tmp_path, changes):
    path = tmp_path / "tokenizer.json"
    read_tokenizer_files(byte_pairs[0], "gpt2", 310).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ours.TokenizerError, match=next(iter(changes))) as error:
        load_tokenizer(path)
    assert str(path) in str(error.value)
