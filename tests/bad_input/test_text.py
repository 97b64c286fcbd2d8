"""Texts, tokenizers, batches and generated tasks refuse what they cannot use, in one sentence."""

import pytest

from keras_seq import data, tokenizers
from keras_seq.baselines import KneserNeyNGrams, compressed_bits
from keras_seq.data.synthetic import Grammar, MarkovChain, Reversal, bracket_grammar, dates, spacing_task

NAN, HUGE = float("nan"), 2**63
WHOLE = (0, -1, 1.5, "x", True, NAN, HUGE)
IDS = list(range(60))
CORPUS = data.Corpus("digits", "0123456789", "")
VOCABULARY, CHAIN = tokenizers.CharacterTokenizer("abc"), MarkovChain(3, 1)
NGRAMS, PAIRS = KneserNeyNGrams([0, 1, 2], 2, 3), tokenizers.BytePairTokenizer([])
SENTENCES = Grammar({"S": {"(": (0.5, ("A",)), "x": (0.5, ("A",))}, "A": {"z": (1.0, ())}}, "S")
SMALL = {"alphabet_size": 3, "min_length": 1, "max_length": 2, "batch_size": 2}
TABLE = {  # what is called with each of the values, the values, a word of the sentence
    "load_corpus": (data.load_corpus, ("", "no file", "no*", None, 7, b"x", "a\0b", ["x"], [], [7]), "corpus|path"),
    "load_corpus strip_whitespace": (
        lambda v: data.load_corpus("pydoc", strip_whitespace=v),
        ("x", 7, ""),
        "strip_whitespace",
    ),
    "split": (CORPUS.split, (0, 1, -1, NAN, "x", None, True, 0.05), "train_fraction|short"),
    "split min_length": (lambda v: CORPUS.split(0.5, v), (0, -1, "x", None, 1.5, 100), "min_length|window"),
    "CharacterTokenizer": (
        tokenizers.CharacterTokenizer,
        ("", None, 7, b"ab", "ba", "aa", "\ud800", ["a"]),
        "characters|surrogate",
    ),
    "CharacterTokenizer oov_token": (lambda v: tokenizers.CharacterTokenizer("ab", v), ("x", "error", 7), "oov_token"),
    "from_text": (tokenizers.CharacterTokenizer.from_text, ("", None, 7, b"x", "\ud800a"), "text|surrogate"),
    "encode": (VOCABULARY.encode, (None, 7, "abd", "\ud800", [1], ["a", "d"], b"\xff", [["a"]]), "text|character"),
    "decode": (VOCABULARY.decode, (None, "a", [3], [-1], [0.5], [[0]], [2**40], 2**70, [True], {}), "id"),
    "decode_tensor": (VOCABULARY.decode_tensor, ([0.5], "a"), "ids"),
    "from_config": (tokenizers.CharacterTokenizer.from_config, (None, {}, {"characters": "ab"}, [1]), "characters"),
    "load": (tokenizers.CharacterTokenizer.load, ("no file", "/", None, 7, "a\0b"), "tokenizer"),
    "load_tokenizer": (tokenizers.load_tokenizer, ("no file", "/", None, 7), "tokenizer"),
    "WordTokenizer": (
        tokenizers.WordTokenizer,
        (None, [], ["a"], ["[UNK]", "a b"], ["[UNK]", ""], ["[UNK]", "a", "a"], ["[UNK]", 7], "x"),
        "vocabulary",
    ),
    "BytePairTokenizer": (
        tokenizers.BytePairTokenizer,
        (None, "x", [["a"]], [["a", 7]], [["zz", "a"]], [("a", "b")], [["[PAD]", "a"]]),
        "merge",
    ),
    "WordPieceTokenizer lowercase": (
        lambda v: tokenizers.WordPieceTokenizer.from_text("ab", lowercase=v),
        ("x", 7, None),
        "lowercase",
    ),
    **{
        f"{kind.__name__} text": (kind.from_text, ("", None, 7, b"x", "\ud800"), "text")
        for kind in (tokenizers.WordTokenizer, tokenizers.WordPieceTokenizer, tokenizers.BytePairTokenizer)
    },
    **{
        f"{kind.__name__} {name}": (lambda v, k=kind, n=name: k.from_text("low lower", **{n: v}), values, name)
        for kind in (tokenizers.WordTokenizer, tokenizers.WordPieceTokenizer, tokenizers.BytePairTokenizer)
        for name, values in (
            ("vocabulary_size", (0, -1, 1, 1.5, "x", True)),
            ("min_count", (0, -1, 1.5, "x", None, True)),
        )
    },
    "encode_batch": (PAIRS.encode_batch, (None, [], "x", [7], [None]), "text"),
    "encode_batch text_pairs": (lambda v: PAIRS.encode_batch(["a"], v), ([], ["a", "b"], "x"), "text_pairs"),
    "encode_batch sequence_length": (
        lambda v: PAIRS.encode_batch(["a"], sequence_length=v),
        (0, 1, -1, 1.5, "x", True, HUGE),
        "length",
    ),
    "split_words": (tokenizers.split_words, (None, 7, b"x"), "text"),
    "ArrayBatches": (lambda v: data.ArrayBatches(v, 2), ((), {}, 7, ([1, 2], [1])), "arrays"),
    "ArrayBatches batch": (lambda v: data.ArrayBatches(([1, 2, 3],), v), (*WHOLE, 9), "batch_size"),
    **{
        f"Reversal {name}": (lambda v, n=name: Reversal(**{**SMALL, n: v}), WHOLE, name)
        for name in ("alphabet_size", "min_length", "max_length", "batch_size")
    },
    "Reversal seed": (lambda v: Reversal(**SMALL, seed=v), (-1, 1.5, HUGE), "seed"),
    "Grammar token_losses": (SENTENCES.token_losses, ([0, 1], [2]), "no rule of '[AS]' begins"),
    "MarkovChain size": (lambda v: MarkovChain(v, 1), (*WHOLE, 2**30), "vocabulary_size|ids"),
    "MarkovChain order": (lambda v: MarkovChain(3, v), (*WHOLE, 2**30), "order"),
    "MarkovChain sharp": (
        lambda v: MarkovChain(3, 1, concentration=v),
        (0, -1, NAN, float("inf"), "x"),
        "concentration",
    ),
    "MarkovChain sample": (lambda v: CHAIN.sample(v, 0), (-1, 1.5, "x", None), "length"),
    "MarkovChain token_losses": (CHAIN.token_losses, (None, "x", [5], [-1], [0.5]), "id"),
    "KneserNeyNGrams": (lambda v: KneserNeyNGrams(v, 2, 3), (None, [], "x", [5], [0.5]), "id"),
    "KneserNeyNGrams order": (lambda v: KneserNeyNGrams([0, 1], v, 3), WHOLE, "order"),
    "KneserNeyNGrams size": (lambda v: KneserNeyNGrams([0, 0], 2, v), WHOLE, "vocabulary_size"),
    "KneserNeyNGrams token_losses": (NGRAMS.token_losses, (None, "x", [5]), "id"),
    "KneserNeyNGrams distribution": (NGRAMS.distribution, (None, "x", [5]), "id"),
    "Grammar": (
        lambda v: Grammar(v, "S"),
        (
            *(None, {}, 7, {"S": {}}, {"S": {"a": 1.0}}, {"S": {"a": (NAN, ())}}, {"S": {"a": ("1", ())}}),
            *({"S": {"a": (1.0, ("T",))}}, {"S": {"ab": (1.0, ())}}, {"S": {"a": (1.0, ("S",))}}),
        ),
        "rules",
    ),
    "bracket_grammar": (bracket_grammar, (0, 27, "x", 1.5, None, NAN, True), "letters"),
    "bracket_grammar close_prob": (lambda v: bracket_grammar(close_prob=v), (0, 1, NAN, "x", None), "close_prob"),
    "bracket_grammar seed": (lambda v: bracket_grammar(seed=v), (-1, 1.5, "x"), "seed"),
    "compressed_bits": (lambda v: compressed_bits(v, "a", "b"), ("zip", None, 7, []), "compressor"),
    "compressed_bits of": (lambda v: compressed_bits("xz", "a", v), ("", None, 7, b"x", "\ud800"), "text"),
    "compressed_bits after": (lambda v: compressed_bits("xz", v, "a"), (None, 7, "\ud800"), "text"),
    "split_dates": (dates.split_dates, (10**6, -1, 1.5, "x", None), "dates|count"),
    "source_ids": (dates.source_ids, (None, 7, [7], [""], ["x" * 99], ["\u00fc"]), "text|character"),
    "target_ids": (dates.target_ids, (None, [7], ["x"], ["1994"], ["1994-09-0\u0663"]), "text|ISO"),
    "strip_spacing": (spacing_task.strip_spacing, (None, 7, b"x"), "text"),
    "restore": (lambda v: spacing_task.restore("ab", v), ([1], "x", [9, 9], [0.5, 0.5], None), "tag|id"),
}


@pytest.mark.parametrize(("call", "values", "word"), TABLE.values(), ids=TABLE)
def test_what_cannot_be_used_is_refused(refused, call, values, word):
    for value in values:
        refused(lambda value=value: call(value), word)


WINDOWS = (
    data.Windows,
    data.StatefulWindows,
    data.RandomWindows,
    data.SequentialWindows,
    data.ShuffledWindows,
)


@pytest.mark.parametrize("kind", WINDOWS)
def test_batches_that_cannot_be(refused, kind):
    for ids in (None, [], "x", [0.5] * 9, [[1, 2, 3]], [2**40] * 9, 7, [1]):
        refused(lambda ids=ids: kind(ids, 2, 3), "ids")
    for size in (*WHOLE, None, 2**30):
        refused(lambda size=size: kind(IDS, size, 3), "batch_size")
        refused(lambda size=size: kind(IDS, 2, size), "length")
    if "seed" in kind.__dataclass_fields__:
        for seed in (-1, 1.5, "x", None, True, NAN, HUGE):
            refused(lambda seed=seed: kind(IDS, 2, 3, seed=seed), "seed")


@pytest.mark.parametrize("kind", WINDOWS[1:])
def test_steps_that_cannot_be(refused, kind):
    batches = kind(IDS, 2, 3)
    for step in (-1, 1.5, "x", None, True, HUGE):
        refused(lambda step=step: batches.dataset(step, 9), "start_step|stop_step")
        refused(lambda step=step: batches.batch(step), "step")
    for last in (-1, 1.5, "x", True, HUGE):
        refused(lambda last=last: batches.dataset(0, last), "stop_step")


def test_other_numbers_of_batches(refused):
    for reset_prob in (-0.1, 1.1, NAN, "x", None):
        refused(lambda p=reset_prob: data.StatefulWindows(IDS, 2, 3, reset_prob=p), "reset_prob")
    for stride in (0, -1, 1.5, "x", HUGE):
        refused(lambda stride=stride: data.ShuffledWindows(IDS, 2, 3, stride=stride), "stride")
    refused(lambda: data.ShuffledWindows(IDS, 5, 20), "2 windows with sequence_length=20, stride=20, batch_size=5")
    refused(lambda: data.StatefulWindows(IDS, 30, 3), "60 ids; expected 91 for batch_size=30")


def test_what_is_larger_than_anything_learned_is_no_room_to_be_made():
    """The library would make a table for so many, and stop the process where there is no room."""
    for kind in (tokenizers.WordPieceTokenizer, tokenizers.BytePairTokenizer):
        assert kind.from_text("low lower", vocabulary_size=2**62) == kind.from_text("low lower", vocabulary_size=1000)
        assert (
            kind.from_text("low lower", min_count=2**62).vocabulary_size
            < kind.from_text("low lower", min_count=1).vocabulary_size
        )
