"""A document between borders is a text by itself, for every language model: logits, gradients, states, streams."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.models import LANGUAGE_MODELS, LanguageModel, LSTMConfig
from tests.conftest import often
from tests.models.test_language_model import CONTEXT, SMALL, VOCABULARY, every_model, numpy, two_models, unlike_models

BORDER = 3
pytestmark = pytest.mark.any_backend


def rows_of_documents():
    """Two rows with borders at 0, 4 and 5, and at 3 and the last position."""
    ids = np.random.default_rng(0).integers(4, VOCABULARY, size=(2, CONTEXT)).astype("int32")
    ids[0, [0, 4, 5]] = BORDER
    ids[1, [3, -1]] = BORDER
    return ids


def documents(row):
    """The parts of a row that begin at a border, and their starts."""
    starts = [0, *(np.flatnonzero(row[1:] == BORDER) + 1).tolist()]
    return [(start, part) for start, part in zip(starts, np.split(row, starts[1:]), strict=True)]


@pytest.fixture(scope="module")
def make(randomize):
    """A model by its name, with random weights, that keeps documents apart; no test changes the weights."""

    @functools.cache
    def build(name, dtype):
        return randomize(SMALL[name].build_model(VOCABULARY, dtype=dtype))

    def make(name, dtype=None):
        model = build(name, dtype)
        model.document_token = BORDER
        return model

    return make


@two_models
def test_a_document_has_the_logits_of_the_document_by_itself(make, name):
    model, ids = make(name), rows_of_documents()
    logits = numpy(model(ids))
    model.document_token = None
    assert not np.allclose(numpy(model(ids))[:, 5:], logits[:, 5:], atol=1e-4)
    for row, row_logits in zip(ids, logits, strict=True):
        for start, document in documents(row):
            expected = numpy(model(document[None]))[0]
            np.testing.assert_allclose(row_logits[start : start + len(document)], expected, atol=1e-5)


@two_models
def test_padding_begins_no_document(make, name):
    """It has the border's id here; rejected proposals of a draft are read as such padding."""
    model, ids = make(name), rows_of_documents()[:, 1:3]  # without a border
    padded = np.pad(ids, [(0, 0), (1, 2)], constant_values=BORDER)
    mask = np.pad(np.ones(ids.shape, bool), [(0, 0), (1, 2)])
    state = model.get_initial_state(2)
    logits, state = model(padded, state=state, mask=mask, return_state=True)
    np.testing.assert_allclose(numpy(logits)[:, 1:-2], numpy(model(ids)), atol=1e-5)
    expected = numpy(model(np.concatenate([ids, ids], axis=1)))[:, 2:]
    np.testing.assert_allclose(numpy(model(ids, state=state, return_state=True)[0]), expected, atol=1e-5)


@often("name", LANGUAGE_MODELS, ("lstm", "transformer"))
def test_a_stream_in_parts_has_the_same_logits(make, name):
    model, ids = make(name), rows_of_documents()
    expected = numpy(model(ids))
    for borders in (range(1, CONTEXT), [3, 5, 6]):
        state, parts = model.get_initial_state(2), []
        for part in np.split(ids, [*borders], axis=1):
            logits, state = model(part, state=state, return_state=True)
            parts.append(numpy(logits))
        np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, atol=1e-5)


@unlike_models
def test_a_changed_id_changes_nothing_behind_the_next_border(make, name):
    """Not even by rounding: no number of a document enters a sum of another one's."""
    model, ids = make(name), rows_of_documents()
    changed = ids.copy()
    changed[0, 1:4] = 4 + (changed[0, 1:4] - 3) % (VOCABULARY - 4)
    logits, changed_logits = numpy(model(ids)), numpy(model(changed))
    assert np.array_equal(logits[0, 4:], changed_logits[0, 4:])
    assert np.array_equal(logits[1], changed_logits[1])
    assert not np.array_equal(logits[0, 1:4], changed_logits[0, 1:4])


@unlike_models
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="takes gradients by a tape")
def test_gradients_across_a_border_are_exactly_zero(make, name):
    import tensorflow as tf

    model, ids = make(name), rows_of_documents()[:1]
    x = tf.Variable(ops.convert_to_tensor(model.embedding(ids)))
    reset_mask = tf.constant(ids == BORDER)

    def logits_of(x):
        y, _ = layers.residual.apply_sequentially(model.blocks, x, reset_mask=reset_mask)
        return model.logits(y)

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(logits_of(x)[:, 5:] ** 2)
    gradient = tape.gradient(loss, x).numpy()[0]
    assert np.isfinite(gradient).all()
    assert not gradient[:5].any()
    assert gradient[5:].any(axis=-1).all()


@pytest.mark.rare
@every_model
def test_half_precision_and_compiled_code(make, name):
    model, ids = make(name, "mixed_bfloat16"), rows_of_documents()
    logits = model.predict(ids, verbose=0).astype("float64")
    assert np.isfinite(logits).all()
    model.document_token = None
    model.make_predict_function(force=True)
    expected = model.predict(ids[:1, 5:], verbose=0).astype("float64")
    np.testing.assert_allclose(logits[0, 5:], expected[0], atol=6e-2)


def test_the_token_is_saved_with_the_model(make, tmp_path):
    model = make("lstm")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.document_token == BORDER
    ids = rows_of_documents()
    assert np.array_equal(numpy(loaded(ids)), numpy(model(ids)))
    assert LSTMConfig(units=4).build_model(5).document_token is None


@keras.saving.register_keras_serializable("tests")
class Sums(layers.ExplicitState):
    """A layer with a state that takes no reset mask."""

    def get_initial_state(self, batch_size):
        return ops.zeros((batch_size, 4))

    def call(self, inputs, state=None, mask=None, return_state=False):
        x, state, _ = self.prepare_inputs(inputs, state, mask)
        y = ops.cumsum(x, axis=1) + ops.expand_dims(state, 1)
        return (y, y[:, -1]) if return_state else y

    def compute_output_shape(self, inputs_shape):
        return tuple(inputs_shape)


def test_a_layer_that_would_mix_documents_is_refused():
    embedding, head = keras.layers.Embedding(9, 4), keras.layers.Dense(9)
    with pytest.raises(ValueError, match=r"\(Sums\) takes no reset_mask, so documents in one row"):
        LanguageModel(embedding, [Sums()], head, document_token=1)
    model = LanguageModel(embedding, [layers.PreNormResidual([Sums()])], head)
    with pytest.raises(ValueError, match="takes no reset_mask"):
        model.document_token = 1
    with pytest.raises(ValueError, match="document_token"):
        model.document_token = -1
