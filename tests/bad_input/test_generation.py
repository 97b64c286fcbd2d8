"""Generating, scoring and training refuse what they cannot use before they compute anything."""

import keras
import numpy as np
import pytest

from keras_seq import callbacks, generation, training
from keras_seq.models import LSTM, Average
from keras_seq.text import Vocabulary
from keras_seq.training.losses import token_nats

NAN, INFINITE, HUGE = float("nan"), float("inf"), 2**63
VOCABULARY = Vocabulary("abc")
LOGITS = np.zeros((1, 2, 3), "float32")


@pytest.fixture(scope="module")
def model():
    return LSTM(4, 4).build(3)


@pytest.fixture(scope="module")
def generator(model):
    return generation.Generator(model, VOCABULARY)


SAMPLING = {
    "temperature": (-1, NAN, INFINITE, "x", None, True),
    "top_k": (0, -1, 1.5, "x", True, NAN, HUGE),
    **{name: (0, -1, 1.1, NAN, INFINITE, "x", True) for name in ("top_p", "min_p", "typical_p")},
    "repetition_penalty": (0, -1, NAN, INFINITE, "x", True),
}


@pytest.mark.parametrize("name", SAMPLING)
def test_sampling(refused, generator, name):
    for value in SAMPLING[name]:
        refused(lambda value=value: generation.Sampling(**{name: value}), name)
        refused(lambda value=value: generator("a", 1, **{name: value}), name)


WRITING = {  # how the generator is called with each of the values, the values, a word of the sentence
    "prompt": (lambda g, v: g(v, 1), ("", None, 7, [], [""], ["a", 7], "d", "\ud800", b"a"), "prompt|text|character"),
    "length": (lambda g, v: g("a", v), (-1, 1.5, "x", None, True, HUGE), "length"),
    "seed": (lambda g, v: g("a", 1, seed=v), (-1, 1.5, "x", None, True, HUGE), "seed"),
    "stop": (lambda g, v: g("a", 1, stop=v), ("", [""], 7, [7], None), "stop"),
    "unknown": (lambda g, v: g("a", 1, **{v: 1}), ("colour", "topk"), "option"),
    "stream": (lambda g, v: list(g.stream("a", v)), (-1, "x", None), "length"),
    "beam width": (lambda g, v: g.beam("a", 1, width=v), (0, -1, 1.5, "x", None, HUGE), "width"),
    "beam penalty": (lambda g, v: g.beam("a", 1, length_penalty=v), (-1, NAN, INFINITE, "x", None), "length_penalty"),
    "beam length": (lambda g, v: g.beam("a", v), (-1, 1.5, "x", None), "length"),
    "beam prompt": (lambda g, v: g.beam(v, 1), ("", None, 7, "d"), "prompt|text|character"),
    "contrastive top": (lambda g, v: g.contrastive("a", 1, top_k=v), (0, -1, 1.5, "x", None, HUGE), "top_k"),
    "contrastive alpha": (lambda g, v: g.contrastive("a", 1, alpha=v), (-1, 1.1, NAN, "x", None), "alpha"),
    "contrastive length": (lambda g, v: g.contrastive("a", v), (-1, 1.5, "x", None), "length"),
}


@pytest.mark.parametrize(("call", "values", "word"), WRITING.values(), ids=WRITING)
def test_writing(refused, generator, call, values, word):
    for value in values:
        refused(lambda value=value: call(generator, value), word)


def test_searching(refused, model):
    state = model.initial_state(1)
    for first in (None, 7, [], [[1]], [0.5], ["x"]):
        refused(lambda first=first: generation.greedy(model.step, state, first, 2), "first|None")
    for length in (0, -1, 1.5, "x", None):
        refused(lambda length=length: generation.greedy(model.step, state, [0], length), "length")
    for end in (-1, 1.5, "x", True, HUGE):
        refused(lambda end=end: generation.greedy(model.step, state, [0], 1, end=end), "end")
    for ids in (None, [], "x", [9], [-1], [0.5], 7):
        refused(lambda ids=ids: generation.contrastive_search(model, ids, 1), "ids|empty")


def test_what_is_no_model_or_tokenizer(refused, model):
    for value in (None, 7, keras.layers.Dense(3)):
        refused(lambda value=value: generation.Generator(value, VOCABULARY), "model")
    for value in (None, 7, "abc"):
        refused(lambda value=value: generation.Generator(model, value), "tokenizer")
    for value in (None, 7, "x"):
        refused(lambda value=value: training.Evaluator(value), "model")
    refused(lambda: Average([]), "members")
    refused(lambda: Average([model, model]), "members")


def test_scoring(refused, model):
    evaluator = training.Evaluator(model)
    for ids in (None, [], "x", [0], [9, 9, 9], [0.5, 1.5, 2.5], [[0, 1]]):
        refused(lambda ids=ids: evaluator.cold_nats(ids, 1), "ids")
        refused(lambda ids=ids: evaluator.warm_nats(ids), "ids")
    for length in (0, -1, 1.5, "x", None, True, 99):
        refused(lambda length=length: evaluator.cold_nats([0, 1, 2, 0], length), "length|ids")
    for text in ("", "a", None, 7, "ad", "\ud800"):
        refused(lambda text=text: training.score(model, VOCABULARY, text), "text|character")


TRAINING = {
    "references order": (lambda v: training.references("ab", "ab", v), (0, -1, 1.5, "x", None), "order"),
    "references of": (lambda v: training.references("a", v), ("", None, 7, "\ud800"), "text"),
    "references after": (lambda v: training.references(v, "a"), ("", None, 7, b"x", "\ud800"), "text"),
    "WarmupDecay peak": (lambda v: training.WarmupDecay(v, 9), (-1, 0, NAN, INFINITE, "x", None), "peak"),
    "WarmupDecay total": (lambda v: training.WarmupDecay(1.0, v), (-1, 1.5, "x", None, NAN), "total_steps"),
    "WarmupDecay rise": (lambda v: training.WarmupDecay(1.0, 9, v), (-1, 1.5, "x", None, NAN), "warmup_steps"),
    "WarmupDecay end": (lambda v: training.WarmupDecay(1.0, 9, 1, v), (-1, 2, NAN, "x", None), "final_fraction"),
    "InverseSquareRoot": (training.InverseSquareRoot, (0, -1, 1.5, "x", None), "embedding_dim"),
    "InverseSquareRoot rise": (
        lambda v: training.InverseSquareRoot(4, v),
        (0, -1, 1.5, "x", None),
        "warmup_steps",
    ),
    "smoothing": (lambda v: training.TokenCrossEntropy(smoothing=v), (-1, 1, NAN, "x", None, True), "smoothing"),
    "reduction": (lambda v: training.TokenCrossEntropy(reduction=v), ("mean", 7), "reduction"),
    "token_nats": (lambda v: token_nats(LOGITS, v), ([0, 1], 0, [[[0, 1]]]), "shape"),
    "MaskedTokens": (lambda v: training.MaskedTokens(1, 9, fraction=v), (0, -1, 1.1, NAN, "x", None), "fraction"),
    "MaskedTokens id": (lambda v: training.MaskedTokens(v, 9), (-1, 9, 1.5, "x", None), "mask_id"),
    "MaskedTokens size": (lambda v: training.MaskedTokens(0, v), (0, -1, 1.5, "x", None, 1), "vocabulary_size|ids"),
    "MaskedTokens specials": (lambda v: training.MaskedTokens(1, 9, v), (7, None, (9,), ("x",)), "special_ids"),
    "BitsPerCharacter": (training.BitsPerCharacter, ([], "x", [-1], [[1]], [NAN], None), "characters"),
    "Train optimizer": (lambda v: training.Train(optimizer=v), ("x", None, 7), "optimizer"),
    "Train precision": (lambda v: training.Train(precision=v), ("x", None, 7), "precision"),
    "Train numbers": (lambda v: training.Train(clip_norm=v), (0, -1, NAN, INFINITE), "clip_norm"),
    "Look every": (lambda v: callbacks.AttentionMaps(None, every=v), (0, 0.5, -1, NAN, "x"), "every"),
    "Look tokens": (lambda v: callbacks.AttentionMaps(None, tokens_per_step=v), (0, NAN, "x"), "tokens_per_step"),
    "LossByPosition": (lambda v: callbacks.LossByPosition([0, 1], v), (0, -1, 9), "length"),
}


@pytest.mark.parametrize(("call", "values", "word"), TRAINING.values(), ids=TRAINING)
def test_training(refused, call, values, word):
    for value in values:
        refused(lambda value=value: call(value), word)
