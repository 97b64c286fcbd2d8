"""Experiments read folders of token ids: the same parts, texts and ids as on disk, and mistakes in one sentence."""

import importlib
import json
import re

import numpy as np
import pytest

from experiments.compare import __main__ as compare
from keras_seq.commands import prepare as prepare_main
from keras_seq.data import MixedWindows, RandomWindows, TokenFiles, load_corpus
from keras_seq.data.prepare import prepare
from keras_seq.models import LSTMConfig
from keras_seq.reports.tables import compare_sizes
from keras_seq.runs import texts
from keras_seq.runs.texts import (
    SplitCorpus,
    SplitTokens,
    overlap_note,
    random_windows,
    smoke_corpus,
    split_corpus,
    spread_over,
    validation_note,
)
from keras_seq.tokenizers import BytePairTokenizer, CharacterTokenizer, WordTokenizer, document_token
from keras_seq.tokenizers.registry import decode_documents, encode_documents
from keras_seq.training import TrainConfig, run_folder, validation_sample
from keras_seq.training.language_model import LanguageModelValidator
from tests.experiments.discovery import ROOT

PAGE = "".join(map(chr, range(0x4E00, 0x4E64)))  # no stretch of it twice
TEXT = "To be, or not to be: that is the question.\n" * 8


@pytest.fixture
def path(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    return str(tmp_path / "text.txt")


@pytest.mark.parametrize("held_out", [False, True])
def test_the_parts_join_to_the_text_and_their_ids_to_its_ids(path, tmp_path, held_out):
    data = SplitCorpus(path, tmp_path, held_out=held_out)
    assert data.train_text + (data.held_out_text or "") + data.validation_text == data.corpus.text == TEXT
    ids = [part for part in (data.train, data.held_out, data.validation) if part is not None]
    np.testing.assert_array_equal(np.concatenate(ids), data.tokenizer.encode(TEXT))
    assert len(ids) == 2 + held_out
    assert len(data.validation) == len(TEXT) - int(0.9 * len(TEXT))


def test_a_tokenizer_can_be_that_of_the_training_text_alone(path, tmp_path):
    seen = []

    def tokenizer(text, train_text):
        seen.append((text, train_text))
        return WordTokenizer.from_text(train_text)

    data = SplitCorpus(path, tmp_path, tokenizer=tokenizer)
    assert seen == [(TEXT, data.train_text)]
    assert isinstance(data.tokenizer, WordTokenizer)
    assert data.tokenizer.decode(data.encode("to be")).split() == ["to", "be"]


def test_a_part_that_is_too_short_and_another_text_than_that_of_the_runs_are_refused(path, tmp_path):
    with pytest.raises(ValueError, match="too short"):
        SplitCorpus(path, tmp_path, min_length=len(TEXT) // 10 + 2)
    (tmp_path / "lstm-seed0").mkdir()
    run_folder.write_checksummed(tmp_path / "lstm-seed0/config.json", {"corpus": {"sha256": "ab"}})
    with pytest.raises(ValueError, match="resume with the same text, or start a new run"):
        SplitCorpus(path, tmp_path)


def test_it_introduces_itself_with_the_sizes_of_its_parts_and_what_is_validated(path, tmp_path, capsys):
    data = SplitCorpus(path, tmp_path, held_out=True)
    data.introduce(TrainConfig(validation_characters=20), 5, "3 steps")
    said = capsys.readouterr().out
    assert f"{len(data.train)} training tokens, {len(data.held_out)} held-out tokens, {len(data.validation)}" in said
    assert "; 3 steps; validating on 20 characters spread over 35 during training, on all of them at the end" in said
    with pytest.raises(ValueError, match=r"--train\.validation-characters 20"):
        data.introduce(TrainConfig(validation_characters=20), 21, "3 steps")
    assert validation_note(TrainConfig(), data.validation, 5) == ""


def test_stretches_are_of_characters_also_where_a_text_has_as_many_tokens(tmp_path):
    validation = "é" * 300 + "aa" * 300  # 600 tokens, and 300
    (tmp_path / "text.txt").write_text("b" * 9 * len(validation) + validation, encoding="utf-8")
    tokenizer, train = BytePairTokenizer([["a", "a"]]), TrainConfig(validation_characters=200)
    data = SplitCorpus(str(tmp_path / "text.txt"), tmp_path, tokenizer=lambda *_: tokenizer)
    assert len(data.validation) == len(data.validation_text) == 900
    sample = validation_sample(data.validation, 4, train, 900)
    tokens = sample.starts[:, None] + 1 + [0, sample.length]
    characters = np.where(tokens <= 600, tokens / 2, 300 + 2 * (tokens - 600))
    assert np.abs(data.scored_stretches(4, train) - characters).max() < 50  # some cut an "é"; tokens are 300 off


def test_smoke_runs_read_the_small_text_instead_of_the_default():
    assert smoke_corpus(load_corpus().name) == "pydoc"
    assert smoke_corpus("mine.txt") == "mine.txt"


@pytest.mark.parametrize(("length", "percentage"), [(500, "20%"), (1500, "7%"), (2400, None)])
def test_the_note_names_the_copied_fraction(length, percentage):
    validation = "".join(chr(0x5000 + i % 97 + (i // 97) % 89 * 97) for i in range(length - 100)) + PAGE
    note = overlap_note(PAGE + "x" * 1000, validation)
    assert str(note).startswith(str(percentage and f"Note: {percentage} of the validation text occurs word for word"))


def test_the_default_text_needs_no_such_note_and_pydoc_does():
    assert overlap_note(*load_corpus().split()) is None
    assert overlap_note(*load_corpus("pydoc").split()) is not None


@pytest.mark.parametrize(("parameters", "remarked"), [(104_900, False), (105_100, True)])
def test_models_of_different_sizes_are_pointed_out(parameters, remarked):
    assert ("more than the 5 %" in compare_sizes([100_000, parameters])) is remarked


TEXTS = [f"Document {n}: {'some words and lines, ' * (n % 5)}\nthe end.\n" for n in range(40)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A function from the kind of a tokenizer to a prepared folder of the texts."""
    root, made = tmp_path_factory.mktemp("folders"), {}
    (root / "texts").mkdir()
    (root / "texts" / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))

    def folder(kind, name=None):
        name = name or kind
        if name not in made:
            made[name] = root / name
            prepare([str(root / "texts")], made[name], kind)
        return str(made[name])

    folder.texts = str(root / "texts")
    return folder


@pytest.mark.parametrize("kind", ["characters", "bpe"])
def test_the_parts_are_those_on_disk(folders, tmp_path, kind):
    data = split_corpus(folders(kind), tmp_path, min_length=10, held_out=True)
    ids = np.asarray(TokenFiles.open(folders(kind)))
    assert isinstance(data, SplitTokens)
    parts = np.concatenate([data.train, data.held_out, data.validation])
    assert np.array_equal(parts, ids)
    assert data.held_out[0] == data.validation[0] == data.document_token == document_token(data.tokenizer)
    assert data.validation_text == "".join(f"\x1e{text}" for text in TEXTS[-data.validation_text.count("\x1e") :])
    assert np.array_equal(data.encode(data.validation_text), data.validation)
    assert (data.characters_per_token == 1) == (kind == "characters")
    sweep_ids, sweep_scored = data.hold_out_ids(10)
    assert np.array_equal(np.concatenate([sweep_ids, sweep_scored]), data.train)


def test_a_document_is_one_character_where_stretches_begin(folders, tmp_path):
    """Many short documents before long ones: each border is U+001E, not "[SEP]"."""
    data, train = split_corpus(folders("bpe"), tmp_path, min_length=10), TrainConfig(validation_characters=200)
    data.validation = ids = data.encode("".join(f"\x1e{text}" for text in [*["A."] * 100, *TEXTS[-10:]]))
    data.validation_text = decode_documents(data.tokenizer, ids)
    sample = validation_sample(ids, 4, train, len(data.validation_text))
    ends = (sample.starts[:, None] + 1 + [0, sample.length]).tolist()
    expected = [[len(decode_documents(data.tokenizer, ids[:end])) for end in pair] for pair in ends]
    assert np.array_equal(data.scored_stretches(4, train), expected)


def test_what_became_unknown_is_scored_as_it_is_on_disk(folders, tmp_path, capsys):
    prepare([folders.texts], tmp_path / "few", "words", vocabulary_size=9)
    data = split_corpus(str(tmp_path / "few"), tmp_path, min_length=10)
    ids = np.asarray(TokenFiles.open(tmp_path / "few"))[len(data.train) :]
    model = LSTMConfig(embedding_dim=2, units=2).build_model(9)
    assert np.array_equal(LanguageModelValidator(model, data.tokenizer, data.scored, 9, 1).ids, ids)
    assert not np.array_equal(data.encode(data.validation_text), ids)
    data.introduce(TrainConfig(), 10, "")
    assert re.search(r"Note: \d+\.\d% of the tokens are \[UNK\]", capsys.readouterr().out)


def test_of_a_large_part_stretches_from_all_over_it_are_read(folders):
    files = TokenFiles.open(folders("bpe"))
    ids, count = np.asarray(files), 128 * (len(files) // 300)
    assert np.array_equal(spread_over(files, len(ids)), ids)
    found = spread_over(files, count, files.document_token).reshape(128, -1)
    assert (found[:, 0] == files.document_token).all()
    for n, row in enumerate(found):
        start = n * len(ids) // 128
        assert np.array_equal(row[1:], ids[start + 1 : start + found.shape[1]])


def test_two_folders_of_one_tokenizer_are_one_corpus(folders, tmp_path):
    names = folders("bpe"), folders("bpe", "other")
    both = split_corpus(names, tmp_path)
    assert len(both.train) + len(both.validation) == sum(len(TokenFiles.open(name)) for name in names)
    with pytest.raises(ValueError, match="expected each folder once"):  # its end would be trained on and validate
        split_corpus((names[0], f"{names[0]}/."), tmp_path)
    with pytest.raises(ValueError, match="same tokenizer"):
        split_corpus((folders("bpe"), folders("words")), tmp_path)
    with pytest.raises(ValueError, match="folders of one kind"):
        split_corpus((folders("bpe"), "pydoc"), tmp_path)
    with pytest.raises(ValueError, match="too short"):
        split_corpus(folders("bpe"), tmp_path, min_length=5000)


def test_weighted_folders_are_a_mixture(folders, tmp_path):
    names = folders("bpe"), folders("bpe", "other")
    data = split_corpus((f"3:{names[0]}", f".5:{names[1]}"), tmp_path, held_out=True)
    whole = split_corpus(names[0], tmp_path, held_out=True)
    assert data.train.weights == (3.0, 0.5)
    assert [len(part) for part in data.train.parts] == 2 * [len(whole.train)]
    assert len(data.train) == 2 * len(whole.train)
    shares = [*map(int, len(whole.validation) * np.array([1, 1 / 6]))]  # all of the first, of the second by weight
    assert np.array_equal(data.validation, np.concatenate([whole.validation[:n] for n in shares]))
    assert data.validation_text.startswith(whole.validation_text)
    windows = random_windows(data.train, 8, 10, seed=4)
    assert isinstance(windows, MixedWindows)
    assert windows.weights == (3.0, 0.5)
    assert np.array_equal(windows.sources[1].batch(7), RandomWindows(whole.train, 8, 10, seed=4).batch(7))
    checksums = {
        split_corpus((f"{a}:{names[0]}", f"{b}:{names[1]}"), tmp_path).corpus.sha256 for a, b in ((1, 1), (1, 2))
    }
    assert len({*checksums, data.corpus.sha256, split_corpus(names, tmp_path).corpus.sha256}) == 4
    for wrong, expected in (
        ((f"1:{names[0]}", names[1]), "has no weight above 0"),
        ((f"0:{names[0]}",), "has no weight above 0"),
        ((f"1:{names[0]}", f"1:{folders('words')}"), "same tokenizer"),
        (("1:pydoc",), "pydoc is no folder of token ids"),
    ):
        with pytest.raises(ValueError, match=expected):
            split_corpus(wrong, tmp_path)


def test_a_folder_whose_name_looks_like_a_weight_is_that_folder(folders, tmp_path, monkeypatch):
    (tmp_path / "2:bpe").symlink_to(folders("bpe"))
    monkeypatch.chdir(tmp_path)
    assert isinstance(split_corpus("2:bpe", tmp_path).train, TokenFiles)


def test_experiments_that_need_a_text_decode_it(folders):
    expected = "\n\n".join(TEXTS)
    assert load_corpus(folders("characters")).text == expected
    assert load_corpus(folders("bpe")).text == expected


@pytest.mark.parametrize("kind", [BytePairTokenizer, CharacterTokenizer, WordTokenizer])
def test_documents_in_a_text(kind):
    tokenizer = kind.from_text("\x1e" + "ab cd.begin end [SEP]" * 9)
    assert "\x1e" in tokenizer.vocabulary or kind is BytePairTokenizer
    text = "begin\x1eab cd.\x1e\x1eend [SEP]"  # a border may follow what is no word
    ids = encode_documents(tokenizer, text)
    assert (ids == document_token(tokenizer)).sum() == 3
    assert decode_documents(tokenizer, ids) == text
    assert np.array_equal(encode_documents(tokenizer, "ab"), tokenizer.encode("ab"))


def test_mistakes_are_one_sentence(folders, fails, tmp_path):
    main, path = prepare_main.main, folders.texts
    assert "expected at least one file or folder" in fails(main)
    assert "characters, words, wordpiece, bpe, or a folder" in fails(main, path, "--to", tmp_path, "--tokenizer", "x")
    assert "expected words, wordpiece or bpe" in fails(main, path, "--to", tmp_path, "--vocabulary-size", 9)
    assert "cannot be read" in fails(main, tmp_path / "none", "--to", tmp_path / "out")
    assert "has other files" in fails(main, path, "--to", path)
    assert "expected a folder that keras-seq prepare wrote" in fails(main, "--verify", path)
    log_dir = "--log-dir", tmp_path / "logs", "--smoke"
    assert "prepare wrote" in fails(compare.main, "--documents", "--corpus", path + "/a.jsonl", *log_dir)
    for option in ("--recurrent-windows", "--transformer-windows"):
        said = fails(compare.main, option, "packed", "--corpus", path + "/a.jsonl", *log_dir)
        assert f"{option} " in said
        assert "packed: expected a --corpus of folders" in said
    mixed = fails(compare.main, "--corpus", f"1:{folders('bpe')}", *log_dir, "--train.validation-characters", "None")
    assert "have no stateful windows: expected random windows, --recurrent-windows random" in mixed
    (tmp_path / "inputs.json").write_text("{}")
    assert "index.json cannot be read" in fails(compare.main, "--corpus", tmp_path, *log_dir)


def test_prepare_says_what_a_tokenizer_does_not_know(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("one or two " * 99 + "neW 文")
    for kind in ("words", "wordpiece", "characters", "bpe"):
        prepare_main.main([str(tmp_path / "a.txt"), "--to", str(tmp_path / kind), "--tokenizer", kind])
        said = capsys.readouterr().out
        assert ("are [UNK], for text that the tokenizer does not know, such as 'neW', '文'" in said) == ("word" in kind)


def test_prepare_and_verify(folders, tmp_path, capsys):
    prepare_main.main([folders.texts, "--to", str(tmp_path / "out"), "--tokenizer", folders("bpe")])
    assert "of 40 documents in 1 files" in capsys.readouterr().out
    prepare_main.main(["--verify", str(tmp_path / "out")])
    assert "have their checksums" in capsys.readouterr().out
    assert np.array_equal(TokenFiles.open(tmp_path / "out")[:], TokenFiles.open(folders("bpe"))[:])


WITH_CORPUS = [
    path.parent.name
    for path in sorted((ROOT / "experiments").glob("*/settings.py"))
    if "corpus: CorpusName" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", WITH_CORPUS)
def test_every_corpus_is_a_folder_of_ids_a_folder_of_texts_or_several_files(
    folders, fails, tmp_path, monkeypatch, name
):
    def stop(_, corpus):
        raise ValueError(f"{corpus.name} was read: {corpus.sha256[:8]}")

    monkeypatch.setattr(texts, "check_same_corpus", stop)
    main = importlib.import_module(f"experiments.{name}.__main__").main
    (tmp_path / "a.txt").write_text("One. " * 99)
    (tmp_path / "b.txt").write_text("Two. " * 99)
    lines = [
        fails(main, "--smoke", "--log-dir", tmp_path / "logs", "--corpus", *corpus)
        for corpus in (
            [folders("characters")],
            [tmp_path],
            [tmp_path / "a.txt", tmp_path / "b.txt"],
            [folders("characters"), folders("characters", "again")],
        )
    ]
    assert all(" was read: " in line for line in lines), lines
    digests = [line.split()[-1] for line in lines]
    assert digests[1] == digests[2]
    assert len({*digests}) == 3


@pytest.mark.rare
def test_models_train_on_documents_and_resume(folders, tmp_path):
    windows = "--transformer-windows", "packed", "--train.validation-characters", "None"
    options = "--smoke", "--models", "lstm", "transformer", "--documents", *windows, "--sequence-length", "16"
    compare.main(["--corpus", folders("bpe"), "--log-dir", str(tmp_path), *options])
    [folder] = (tmp_path / "compare").iterdir()
    results = {run.name: json.loads((run / "result.json").read_text()) for run in folder.glob("*-seed0")}
    assert len(results) == 2
    assert re.search(r"\d training and \d+ validation tokens", (folder / "compare.html").read_text())
    compare.main(["--resume", str(folder), "--tokens", "4000"])
    again = json.loads((folder / "lstm-seed0" / "result.json").read_text())
    assert again["train_tokens"] > results["lstm-seed0"]["train_tokens"]
