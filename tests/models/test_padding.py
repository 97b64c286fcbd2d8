"""Whatever stands at padding changes nothing at the other positions of a model: ids, segments, the padding's vector."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.evaluation import TokenCrossEntropy
from keras_seq.models import (
    LANGUAGE_MODELS,
    BertConfig,
    BiLSTMConfig,
    ModernBertConfig,
    Seq2SeqConfig,
    token_classifier,
)
from tests.conftest import often
from tests.models.test_language_model import CONTEXT, SMALL, some_ids

V = 11
IDS = np.array([[3, 4, 0, 5, 0, 0, 6], [1, 2, 3, 4, 5, 0, 7]])
REAL = IDS != 0
BERT = BertConfig(embedding_dim=8, num_layers=1, num_heads=2, feed_forward_dim=12, context_length=9, dropout=0.0)


def numpy(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


@pytest.fixture(scope="module")
def make(randomize):
    return lambda name: randomize(SMALL[name].build_model(V))


@often("name", LANGUAGE_MODELS, ("lstm", "transformer", "rwkv7"))
def test_ids_at_padding_are_not_read(make, name):
    model, ids = make(name), some_ids(length=CONTEXT - 1) % V
    mask = np.ones(ids.shape, bool)
    mask[0, [0, 3]] = mask[1, [2, 4]] = False
    expected = numpy(model(ids, mask=mask))[mask]
    ids[~mask] = [-1, 10**6, -(2**31), V]
    np.testing.assert_array_equal(numpy(model(ids, mask=mask))[mask], expected)


MODELS = {
    "bert": (lambda: BERT.build_model(V), lambda ids, segments: {"token_ids": ids, "segment_ids": segments}),
    "token_classifier": (
        lambda: token_classifier(BERT.build_model(V), 3),
        lambda ids, segments: {"token_ids": ids, "segment_ids": segments},
    ),
    "modernbert": (
        lambda: token_classifier(ModernBertConfig(8, 2, 2, 12, 9, 2, normalization_bias=True).build_model(V), 3),
        lambda ids, _: ids,
    ),
    "bilstm": (lambda: BiLSTMConfig(3, 6, 5).build_model(V), lambda ids, _: ids),
    "seq2seq": (
        lambda: Seq2SeqConfig(8, 1, 1, 2, 12, 0.0).build_model(V),
        lambda ids, _: {"encoder_token_ids": ids, "decoder_token_ids": ids},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_vector_of_padding_may_be_anything(name, randomize):
    build, inputs = MODELS[name]
    model, segments = randomize(build()), np.ones_like(IDS)
    embedding = next(w for w in model.weights if "embedding" in w.path and w.shape[0] == V)

    def outputs(segments):
        outputs = model(inputs(IDS, segments))
        outputs = outputs["sequence_output"] if isinstance(outputs, dict) else outputs
        return numpy(outputs)[REAL][..., 1:]  # a tied head scores padding by its vector

    expected, table = outputs(segments), numpy(embedding)
    segments[~REAL] = -9
    table[0] = np.nan
    embedding.assign(table)
    np.testing.assert_array_equal(outputs(segments), expected)
    if name in ("bert", "seq2seq"):  # of two outputs; with a tied head
        return
    model.compile(keras.optimizers.SGD(0.1), TokenCrossEntropy(), run_eagerly=True)
    model.train_on_batch(inputs(IDS, segments), IDS % 3)
    for weight in model.trainable_weights:
        values = numpy(weight)
        assert np.isfinite(values[1:] if weight is embedding else values).all(), weight.path
