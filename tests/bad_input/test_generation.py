"""Generating, scoring and training refuse what they cannot use before they compute anything."""

import keras
import numpy as np
import pytest

from keras_seq import callbacks, generation, training
from keras_seq.baselines import compute_baselines
from keras_seq.data import MaskedLMMaskGenerator
from keras_seq.evaluation import BitsPerCharacter, Evaluator, TokenCrossEntropy, score_text
from keras_seq.evaluation.losses import token_losses
from keras_seq.models import Ensemble, LSTMConfig, T5Config
from keras_seq.ops.compiled import compiled
from keras_seq.tokenizers import CharacterTokenizer

NAN, INFINITE, HUGE = float("nan"), float("inf"), 2**63
VOCABULARY = CharacterTokenizer("abc")
LOGITS = np.zeros((1, 2, 3), "float32")


@pytest.fixture(scope="module")
def model():
    return LSTMConfig(4, 4).build_model(3)


@pytest.fixture(scope="module")
def generator(model):
    return generation.TextGenerator(model, VOCABULARY)


def test_a_model_of_two_texts_is_told_what_generates_with_it(refused):
    model = T5Config(4, 1, 1, 1, 4, 4).build_model(3)
    refused(lambda: generation.generate(model, VOCABULARY, "abc"), "^t5 writes a target for a source", "greedy")


SAMPLING = {
    "temperature": (-1, 1e-39, 1e39, NAN, INFINITE, "x", None, True),
    "top_k": (0, -1, 1.5, "x", True, NAN, HUGE),
    **{name: (0, -1, 1e-39, 1.1, NAN, INFINITE, "x", True) for name in ("top_p", "min_p", "typical_p")},
    "repetition_penalty": (0, -1, 1e-39, 1e39, NAN, INFINITE, "x", True),
}


@pytest.mark.parametrize("name", SAMPLING)
def test_sampling(refused, generator, name):
    for value in SAMPLING[name]:
        refused(lambda value=value: generation.SamplingConfig(**{name: value}), name)
        refused(lambda value=value: generator("a", 1, **{name: value}), name)


WRITING = {  # how the generator is called with each of the values, the values, a word of the sentence
    "prompt": (lambda g, v: g(v, 1), ("", None, 7, [], [""], ["a", 7], "d", "\ud800", b"a"), "prompt|text|character"),
    "stream prompt": (lambda g, v: list(g.stream(v, 1)), (["a"], ("a",), None, 7), "prompt="),
    "beam prompt, a list": (lambda g, v: g.beam(v, 1), (["a"], ("a",)), "prompt="),
    "max_new_tokens": (lambda g, v: g("a", v), (-1, 1.5, "x", None, True, HUGE), "max_new_tokens"),
    "seed": (lambda g, v: g("a", 1, seed=v), (-1, 1.5, "x", None, True, HUGE), "seed"),
    "stop_strings": (lambda g, v: g("a", 1, stop_strings=v), ("", [""], 7, [7], None), "stop_strings"),
    "stop_token_ids": (
        lambda g, v: g("a", 1, stop_token_ids=v),
        (0, None, [-1], [10**6], "a", ["a"], [1.5]),
        "stop_token_ids",
    ),
    "unknown": (lambda g, v: g("a", 1, **{v: 1}), ("colour", "topk"), "option"),
    "stream": (lambda g, v: list(g.stream("a", v)), (-1, "x", None), "max_new_tokens"),
    "beam num_beams": (lambda g, v: g.beam("a", 1, num_beams=v), (0, -1, 1.5, "x", None, True, HUGE), "num_beams"),
    "beam penalty": (lambda g, v: g.beam("a", 1, length_penalty=v), (-1, NAN, INFINITE, "x", None), "length_penalty"),
    "beam max_new_tokens": (lambda g, v: g.beam("a", v), (-1, 1.5, "x", None), "max_new_tokens"),
    "beam prompt": (lambda g, v: g.beam(v, 1), ("", None, 7, "d"), "prompt|text|character"),
    "contrastive top": (lambda g, v: g.contrastive("a", 1, top_k=v), (0, -1, 1.5, "x", None, HUGE), "top_k"),
    "contrastive alpha": (lambda g, v: g.contrastive("a", 1, alpha=v), (-1, 1.1, NAN, "x", None), "alpha"),
    "contrastive max_new_tokens": (lambda g, v: g.contrastive("a", v), (-1, 1.5, "x", None), "max_new_tokens"),
}


@pytest.mark.parametrize(("call", "values", "word"), WRITING.values(), ids=WRITING)
def test_writing(refused, generator, call, values, word):
    for value in values:
        refused(lambda value=value: call(generator, value), word)


def test_searching(refused, model):
    state = model.get_initial_state(1)
    of_two = model.get_initial_state(2)
    for search in (generation.greedy, generation.beam_search):
        for start_ids in (None, 7, [], [[1]], [0.5], ["x"], [-1], [HUGE]):
            refused(lambda search=search, ids=start_ids: search(model.step, state, ids, 2), "start_ids|None")
        for start_ids in ([0], [0, 0, 0]):
            refused(lambda search=search, ids=start_ids: search(model.step, of_two, ids, 2), "the state 2 rows")
        refused(lambda search=search: search(model.step, None, [0], 2), "state=None")
        refused(lambda search=search: search(model.step, state, [0], 2, end_token_id=300), "end_token_id=300")
        refused(lambda search=search: search(compiled(model.step, model), state, [9], 2), "ids of no token")
    refused(lambda: generation.beam_search(model.step, state, [0], 2, length_penalty=1e4), "length_penalty")
    for count in (0, -1, 1.5, "x", None):
        refused(lambda count=count: generation.greedy(model.step, state, [0], count), "max_new_tokens")
    for end in (-1, 1.5, "x", True, HUGE):
        refused(lambda end=end: generation.greedy(model.step, state, [0], 1, end_token_id=end), "end_token_id")
    for ids in (None, [], "x", [9], [-1], [0.5], 7):
        refused(lambda ids=ids: generation.contrastive_search(model, ids, 1), "ids|empty")


def test_what_is_no_model_or_tokenizer(refused, model):
    for value in (None, 7, keras.layers.Dense(3)):
        refused(lambda value=value: generation.TextGenerator(value, VOCABULARY), "model")
    for value in (None, 7, "abc"):
        refused(lambda value=value: generation.TextGenerator(model, value), "tokenizer")
    for value in (None, 7, "x"):
        refused(lambda value=value: Evaluator(value), "model")
    refused(lambda: Ensemble([]), "members")
    refused(lambda: Ensemble([model, model]), "members")


def test_scoring(refused, model):
    evaluator = Evaluator(model)
    for ids in (None, [], "x", [0], [9, 9, 9], [0.5, 1.5, 2.5], [[0, 1]]):
        refused(lambda ids=ids: evaluator.chunked_token_losses(ids, 1), "ids")
        refused(lambda ids=ids: evaluator.streaming_token_losses(ids), "ids")
    for length in (0, -1, 1.5, "x", None, True, 99):
        refused(lambda length=length: evaluator.chunked_token_losses([0, 1, 2, 0], length), "length|ids")
    for text in ("", "a", None, 7, b"ab", "ad", "\ud800"):
        refused(lambda text=text: score_text(model, VOCABULARY, text), "text|character")


TRAINING = {
    "references order": (lambda v: compute_baselines("ab", "ab", v), (0, -1, 1.5, "x", None), "order"),
    "references of": (lambda v: compute_baselines("a", v), ("", None, 7, "\ud800"), "text"),
    "references after": (lambda v: compute_baselines(v, "a"), ("", None, 7, b"x", "\ud800"), "text"),
    "WarmupLinearDecay peak": (
        lambda v: training.WarmupLinearDecay(v, 9),
        (-1, 0, NAN, INFINITE, "x", None),
        "peak_learning_rate",
    ),
    "WarmupLinearDecay total": (lambda v: training.WarmupLinearDecay(1.0, v), (-1, 1.5, "x", None, NAN), "total_steps"),
    "WarmupLinearDecay rise": (
        lambda v: training.WarmupLinearDecay(1.0, 9, v),
        (-1, 1.5, "x", None, NAN),
        "warmup_steps",
    ),
    "WarmupLinearDecay end": (
        lambda v: training.WarmupLinearDecay(1.0, 9, 1, v),
        (-1, 2, NAN, "x", None),
        "final_lr_fraction",
    ),
    "InverseSqrtDecay": (training.InverseSqrtDecay, (0, -1, 1.5, "x", None), "embedding_dim"),
    "InverseSqrtDecay rise": (lambda v: training.InverseSqrtDecay(4, v), (0, -1, 1.5, "x", None), "warmup_steps"),
    "label smoothing": (
        lambda v: TokenCrossEntropy(label_smoothing=v),
        (-1, 1, NAN, "x", None, True),
        "label_smoothing",
    ),
    "reduction": (lambda v: TokenCrossEntropy(reduction=v), ("mean", "sum_over_batch_size", 7), "reduction"),
    "token_losses": (lambda v: token_losses(LOGITS, v), ([0, 1], 0, [[[0, 1]]]), "shape"),
    "MaskedLMMaskGenerator": (
        lambda v: MaskedLMMaskGenerator(1, 9, mask_selection_rate=v),
        (0, -1, 1.1, NAN, "x", None),
        "mask_selection_rate",
    ),
    "MaskedLMMaskGenerator id": (lambda v: MaskedLMMaskGenerator(v, 9), (-1, 9, 1.5, "x", None), "mask_token_id"),
    "MaskedLMMaskGenerator size": (
        lambda v: MaskedLMMaskGenerator(0, v),
        (0, -1, 1.5, "x", None, 1),
        "vocabulary_size|ids",
    ),
    "MaskedLMMaskGenerator specials": (
        lambda v: MaskedLMMaskGenerator(1, 9, v),
        (7, None, (9,), ("x",)),
        "unselectable_token_ids",
    ),
    "BitsPerCharacter": (BitsPerCharacter, ([], "x", [-1], [[1]], [NAN], ["a"], 3, None), "characters"),
    "Train optimizer": (lambda v: training.TrainConfig(optimizer=v), ("x", None, 7), "optimizer"),
    "Train precision": (lambda v: training.TrainConfig(precision=v), ("x", None, 7), "precision"),
    "Train numbers": (lambda v: training.TrainConfig(global_clipnorm=v), (0, -1, NAN, INFINITE), "global_clipnorm"),
    "Diagnostic update_freq": (
        lambda v: callbacks.AttentionMaps(None, update_freq=v),
        (0, 0.5, -1, NAN, "x"),
        "update_freq",
    ),
    "Diagnostic tokens": (lambda v: callbacks.AttentionMaps(None, tokens_per_step=v), (0, NAN, "x"), "tokens_per_step"),
    "LossByPosition": (lambda v: callbacks.LossByPosition([0, 1], v), (0, -1, 9, 1.5, "x", None), "length"),
}


@pytest.mark.parametrize(("call", "values", "word"), TRAINING.values(), ids=TRAINING)
def test_training(refused, call, values, word):
    for value in values:
        refused(lambda value=value: call(value), word)
