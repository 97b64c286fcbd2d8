"""A model that learns from what it has scored: Adam by hand, no look ahead, and the weights as they were."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_seq
from keras_seq.evaluation import DynamicEvaluation, Evaluator, score_text
from keras_seq.models import LanguageModel, LSTMConfig, TransformerConfig
from keras_seq.models.config import tiny_config
from keras_seq.tokenizers import CharacterTokenizer
from tests.conftest import often, randomized

pytestmark = pytest.mark.any_backend
V, N = 7, 23
IDS = np.random.default_rng(3).integers(V, size=N).astype("int32")
FAST = DynamicEvaluation(learning_rate=0.05, segment_length=5)
MODELS = {
    "lstm": lambda: LSTMConfig(4, 6).build_model(V),
    "transformer": lambda: TransformerConfig(8, 1, 2, 12, context_length=6).build_model(V),
    "hybrid": lambda: tiny_config("hybrid", context_length=6).build_model(V),
    "mamba2": lambda: tiny_config("mamba2").build_model(V),
    "gpt2": lambda: tiny_config("gpt2", context_length=6).build_model(V),
    "any model": lambda: keras.Sequential(
        [keras.Input((4,), dtype="int32"), keras.layers.Embedding(V, 5), keras.layers.Dense(V)]
    ),
}
eagerly = pytest.mark.usefixtures("eagerly")  # each evaluation would trace its steps anew
every_model = often("name", list(MODELS), ("lstm", "transformer"))


def make(name):
    return randomized(MODELS[name]())


def weights(model):
    return [ops.convert_to_numpy(variable) for variable in model.variables]


@eagerly
@every_model
def test_without_learning_the_losses_are_the_streaming_ones(name):
    evaluator = Evaluator(make(name))
    losses = evaluator.dynamic_token_losses(IDS, DynamicEvaluation(learning_rate=0, segment_length=5))
    np.testing.assert_allclose(losses, evaluator.streaming_token_losses(IDS), atol=1e-5)


@eagerly
@every_model
def test_no_token_is_seen_before_it_is_scored_and_the_weights_are_put_back(name):
    model = make(name)
    evaluator, before = Evaluator(model), weights(model)
    losses = evaluator.dynamic_token_losses(IDS, FAST)
    for t in (1, 6, N - 1):
        changed = IDS.copy()
        changed[t:] = (changed[t:] + 1) % V
        others = evaluator.dynamic_token_losses(changed, FAST)
        np.testing.assert_array_equal(others[: t - 1], losses[: t - 1])
        assert others[t - 1] != losses[t - 1]
    assert np.abs(losses - evaluator.streaming_token_losses(IDS))[6:].min() > 0  # it learned
    for variable, value in zip(weights(model), before, strict=True):
        np.testing.assert_array_equal(variable, value)


@eagerly
@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("windows", [False, True])
def test_the_steps_are_those_of_adam_by_hand(randomize, decay, windows):
    """Of logits z_t = E[x_t] W + b, in float64."""
    embedding, head = keras.layers.Embedding(V, 4), keras.layers.Dense(V)
    if windows:
        model = keras.Sequential([keras.Input((6,), dtype="int32"), embedding, head])
    else:
        model = LanguageModel(embedding, [keras.layers.Activation("linear")], head)
        model.build((None, None))
    randomize(model)
    adapt = DynamicEvaluation(learning_rate=0.02, decay=decay, segment_length=6)
    losses = Evaluator(model).dynamic_token_losses(IDS, adapt)
    w = [ops.convert_to_numpy(x).astype("float64") for x in (embedding.embeddings, head.kernel, head.bias)]
    first, squares, expected, end = [x.copy() for x in w], [np.zeros_like(x) for x in w], [], 0
    starts = [*range(0, N - 7, 3), N - 7] if windows else range(0, N - 1, 6)
    for step, start in enumerate(starts, start=1):
        x, y = IDS[start : start + 6], IDS[start + 1 : start + 7]
        x = x[: len(y)]
        z = w[0][x] @ w[1] + w[2]
        p = np.exp(z - np.logaddexp.reduce(z, axis=1, keepdims=True))
        expected.extend(-np.log(p[np.arange(len(y)), y])[max(0, end - start) :])
        end = start + len(y)
        error = (p - np.eye(V)[y]) / len(y)
        gradients = [np.zeros_like(w[0]), w[0][x].T @ error, error.sum(axis=0)]
        np.add.at(gradients[0], x, error @ w[1].T)
        for n, gradient in enumerate(gradients):
            squares[n] = 0.999 * squares[n] + 0.001 * gradient**2
            w[n] -= 0.02 * gradient / (np.sqrt(squares[n] / (1 - 0.999**step)) + 1e-7 / np.sqrt(1 - 0.999**step))
            w[n] += decay * (first[n] - w[n])
    np.testing.assert_allclose(losses, expected, atol=2e-5)


def test_what_comes_again_costs_less():
    text = "the quick brown fox jumps over the lazy dog. " * 12
    tokenizer = CharacterTokenizer.from_text(text)
    keras.utils.set_random_seed(0)
    model = LSTMConfig(16, 32).build_model(tokenizer.vocabulary_size)
    plain, learned = (keras_seq.score(model, tokenizer, text, adapt=adapt).token_losses for adapt in (None, FAST))
    assert learned[-45:].mean() < 0.5 * plain[-45:].mean()


@eagerly
def test_after_an_interruption_the_weights_are_put_back(monkeypatch):
    model = MODELS["lstm"]()
    before, calls = weights(model), []

    def interrupted(self, *arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, *arguments)

    original = keras.Model.train_on_batch
    monkeypatch.setattr(keras.Model, "train_on_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Evaluator(model).dynamic_token_losses(IDS, FAST)
    for variable, value in zip(weights(model), before, strict=True):
        np.testing.assert_array_equal(variable, value)


@eagerly
def test_frozen_weights_stay_and_a_compiled_model_keeps_its_optimizer():
    model = MODELS["lstm"]()
    model.compile("sgd", "sparse_categorical_crossentropy")
    optimizer = model.optimizer
    for layer in model.layers:
        layer.trainable = False
    model.head.trainable = True
    losses = Evaluator(model).dynamic_token_losses(IDS, FAST)
    assert np.isfinite(losses).all()
    assert model.optimizer is optimizer
    assert int(optimizer.iterations) == 0


def test_mistakes_are_named():
    for values, message in {
        (-1.0, 0.0, 64): "learning_rate",
        (float("nan"), 0.0, 64): "learning_rate",
        (0.1, 1.5, 64): "decay=1.5; expected a number from 0 to 1",
        (0.1, 0.0, 0): "segment_length=0",
    }.items():
        with pytest.raises(ValueError, match=message):
            DynamicEvaluation(*values)
    evaluator = Evaluator(MODELS["lstm"]())
    with pytest.raises(ValueError, match="at least 2"):
        evaluator.dynamic_token_losses(IDS[:1], FAST)
    evaluator.model.trainable = False
    with pytest.raises(ValueError, match="no trainable weights"):
        evaluator.dynamic_token_losses(IDS, FAST)
    with pytest.raises(ValueError, match="expected a DynamicEvaluation"):
        score_text(MODELS["lstm"](), CharacterTokenizer("abcdefg"), "abc", adapt=0.1)


@eagerly
def test_a_text_shorter_than_a_fixed_length_is_padded():
    """Padding is not learned: the losses are those of a model of any length."""
    model, ids = MODELS["any model"](), IDS[:4]
    free = keras.Sequential([keras.Input((None,), dtype="int32"), *model.layers])
    losses = Evaluator(model).dynamic_token_losses(ids, FAST)
    np.testing.assert_allclose(losses, Evaluator(free).dynamic_token_losses(ids, FAST), rtol=1e-5)
