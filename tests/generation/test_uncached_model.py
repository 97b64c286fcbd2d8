"""Any causal model writes, and what cannot write says so."""

import keras
import numpy as np
import pytest

from keras_seq import layers
from keras_seq.evaluation import score_text
from keras_seq.generation import TextGenerator, greedy
from keras_seq.models import LSTMConfig, TransformerConfig
from keras_seq.tokenizers import CharacterTokenizer
from keras_seq.tokenizers.characters import with_text_input
from tests.conftest import randomized

VOCABULARY = CharacterTokenizer("abcdefg")
SLOW = pytest.mark.filterwarnings("ignore:.*the slow way")


def transformer():
    kwargs = {"embedding_dim": 8, "num_layers": 1, "num_heads": 2, "feed_forward_dim": 8}
    return randomized(TransformerConfig(**kwargs, context_length=6).build_model(VOCABULARY.vocabulary_size), 1, 0.5)


class TwoTexts(keras.Model):
    def call(self, ids, other):
        return ids + other


def own(length=None, causal=True, units=VOCABULARY.vocabulary_size):
    ids = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY.vocabulary_size, 8)(ids)
    x = layers.TransformerBlock(2, 16, causal=causal)(x)
    return randomized(keras.Model(ids, keras.layers.Dense(units)(x), name="own"), 1, 0.5)


@SLOW
@pytest.mark.rare
@pytest.mark.usefixtures("eagerly")
def test_the_texts_and_scores_are_those_of_the_fast_way():
    model = transformer()
    ids = keras.Input((6,), dtype="int32")
    whole = keras.Model(ids, model(ids), name="own")
    fast, slow = TextGenerator(model, VOCABULARY), TextGenerator(whole, VOCABULARY)
    for options in ({"seed": 3}, {"temperature": 0}, {"top_k": 3, "repetition_penalty": 1.3}):
        assert slow(["ab", "cdefgabc"], 12, **options) == fast(["ab", "cdefgabc"], 12, **options)
    assert "".join(slow.stream("ab", 9)) == "".join(fast.stream("ab", 9))
    assert slow.beam("ab", 4) == fast.beam("ab", 4)
    for text in ("abc", "abcdefgabcd"):
        assert score_text(whole, VOCABULARY, text).bits_per_character == pytest.approx(
            score_text(model, VOCABULARY, text).bits_per_character, rel=1e-5
        )
    with pytest.raises(ValueError, match="expected a LanguageModel: contrastive"):
        slow.contrastive("a", 2)


def test_it_says_that_there_is_a_faster_way():
    with pytest.warns(UserWarning, match="own reads the whole text again .* slow way. A .*LanguageModel"):
        TextGenerator(own(), VOCABULARY)


@SLOW
def test_what_sees_the_future_gives_no_logits_or_takes_something_else_is_refused():
    for build in (lambda model: TextGenerator(model, VOCABULARY), lambda model: score_text(model, VOCABULARY, "abc")):
        with pytest.raises(ValueError, match="own is not causal"):
            build(own(causal=False))
        with pytest.raises(ValueError, match="The tokenizer has 7 ids, own has 9"):
            build(own(units=9))
    pooled = keras.Sequential([keras.layers.Embedding(7, 3), keras.layers.GlobalAveragePooling1D()], name="pooled")
    softmax = keras.Sequential([keras.layers.Embedding(7, 7), keras.layers.Softmax()], name="own")
    stateful = keras.layers.LSTM(7, return_sequences=True, stateful=True, name="keeper")
    keeps = keras.Sequential([keras.Input((6,), batch_size=1), keras.layers.Embedding(7, 3), stateful])
    for model, message in (
        (pooled, r"pooled maps ids \(1, 16\) to \(1, 3\)"),
        (keras.layers.Dense(3), "expected a LanguageModel"),
        (softmax, "own gives probabilities; expected logits"),
        (keeps, "keeper has stateful=True, so a call depends on the one before"),
        (TwoTexts(name="own"), "own takes ids, other; expected"),
    ):
        with pytest.raises(ValueError, match=message):
            TextGenerator(model, VOCABULARY)


def broken(model):
    model.set_weights([np.full_like(w, np.nan) for w in model.get_weights()])
    return model


@SLOW
@pytest.mark.any_backend
@pytest.mark.parametrize(
    "make",
    [
        lambda: LSTMConfig(4, 5).build_model(7),
        pytest.param(transformer, marks=pytest.mark.rare),
        pytest.param(own, marks=pytest.mark.rare),
    ],
    ids=["lstm", "transformer", "own"],
)
def test_a_model_of_nan_writes_nothing(make):
    model = broken(make())
    generator = TextGenerator(model, VOCABULARY)
    writing = [
        lambda: generator("abc", 3),
        lambda: generator(["abc", "d"], 3, temperature=0),
        lambda: list(generator.stream("abc", 3)),
        lambda: generator.beam("abc", 3),
        lambda: score_text(model, VOCABULARY, "abcdef"),
    ]
    if hasattr(model, "step"):
        writing.append(lambda: generator.contrastive("abc", 3))
        writing.append(lambda: greedy(model.step, model.get_initial_state(1), [0], 2))
    for write in writing:
        with pytest.raises(ValueError, match="The model's logits are not finite"):
            write()


def test_a_tokenizer_of_another_size_is_refused_before_anything_is_computed():
    model = LSTMConfig(4, 5).build_model(7)
    for size in (6, 8):
        other = CharacterTokenizer("abcdefgh"[:size])
        for use in (TextGenerator, lambda model, other: score_text(model, other, "abc")):
            with pytest.raises(ValueError, match=f"The tokenizer has {size} ids, lstm has 7"):
                use(model, other)
        with pytest.raises(ValueError, match=f"The tokenizer has {size} ids"):
            with_text_input(model, other)
