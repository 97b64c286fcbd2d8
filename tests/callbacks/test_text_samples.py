import keras
import pytest

from keras_seq import generate
from keras_seq.callbacks import TextSamples
from tests.callbacks.conftest import MODELS, VOCABULARY


def test_samples_are_what_generate_writes(randomize):
    model = randomize(MODELS["transformer"].build_model(VOCABULARY.vocabulary_size))
    options = {"temperature": 0.5, "seed": 3}
    texts = TextSamples(VOCABULARY, ["To be", "\n"], max_new_tokens=12, **options).compute_summaries(model).texts
    assert texts.keys() == {"sample/To·be", "sample/⏎"}
    expected = generate(model, VOCABULARY, ["To be", "\n"], 12, **options)
    assert [*texts.values()] == expected
    assert [len(text) for text in expected] == [17, 13]


def test_a_prompt_that_the_tokenizer_does_not_know_is_an_error():
    model = MODELS["lstm"].build_model(VOCABULARY.vocabulary_size)
    with pytest.raises(ValueError, match="猫"):
        TextSamples(VOCABULARY, ["猫"]).compute_summaries(model)


@pytest.mark.filterwarnings("ignore:.*the slow way")
def test_any_causal_model_writes_and_what_gives_no_logits_is_said(plain):
    assert len(TextSamples(VOCABULARY, ["To"], max_new_tokens=3).compute_summaries(plain).texts["sample/To"]) == 5
    pooled = keras.Sequential(
        [keras.layers.Embedding(VOCABULARY.vocabulary_size, 3), keras.layers.GlobalAveragePooling1D()]
    )
    pooled.build((None, 4))
    assert TextSamples(VOCABULARY, ["To"]).missing_requirement(pooled).startswith("step(ids, state) and no logits")


@pytest.mark.filterwarnings("ignore:.*the slow way")
def test_a_subclassed_model_writes_and_one_without_logits_says_why_not(subclassed):
    model, pooled = subclassed
    assert len(TextSamples(VOCABULARY, ["To"], max_new_tokens=3).compute_summaries(model).texts["sample/To"]) == 5
    with pytest.raises(ValueError, match=r"maps ids \(1, 16\) to \(1, 3\)"):
        TextSamples(VOCABULARY, ["To"]).missing_requirement(pooled)


@pytest.fixture
def subclassed():
    class Logits(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = keras.layers.Embedding(VOCABULARY.vocabulary_size, VOCABULARY.vocabulary_size)

        def call(self, ids):
            return self.embedding(ids)

    class Pooled(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = keras.layers.Embedding(VOCABULARY.vocabulary_size, 3)

        def call(self, ids):
            return keras.ops.mean(self.embedding(ids), axis=1)

    return Logits(), Pooled()
