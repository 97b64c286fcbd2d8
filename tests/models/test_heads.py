import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.evaluation import CRFLoss
from keras_seq.models import BertConfig, BiLSTMConfig, masked_lm, text_classifier, token_classifier
from tests.conftest import often
from tests.models.conftest import losses_of_training, numpy

VOCABULARY, D, CLASSES = 11, 8, 3
SMALL = BertConfig(embedding_dim=D, num_layers=1, num_heads=2, feed_forward_dim=12, context_length=9, dropout=0.0)
IDS = np.array([[3, 4, 5, 0, 0], [1, 2, 3, 4, 5]])
INPUTS = {"token_ids": IDS, "segment_ids": np.zeros_like(IDS)}
HEADS = {
    "masked_lm": masked_lm,
    "text_classifier": lambda encoder: text_classifier(encoder, CLASSES),
    "token_classifier": lambda encoder: token_classifier(encoder, CLASSES),
}
each = pytest.mark.parametrize("name", HEADS)


@pytest.fixture(scope="module")
def make(randomize):
    @functools.cache  # no test changes the weights
    def make(name, dtype=None):
        encoder = SMALL.build_model(VOCABULARY, dtype=dtype)
        return encoder, randomize(HEADS[name](encoder))

    return make


def matrix_and_bias(model, name="head"):
    return [numpy(w) for w in model.get_layer(name).weights]


def test_a_word_is_the_formula_over_the_embedding_matrix(make):
    encoder, model = make("masked_lm")
    x = numpy(encoder(INPUTS)["sequence_output"])
    w, b = matrix_and_bias(model)
    x = numpy(keras.activations.gelu((x @ w + b).astype("float32"), approximate=False))
    gamma, beta = matrix_and_bias(model, "head_normalization")
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12) * gamma + beta
    (table,), (bias,) = matrix_and_bias(encoder, "embedding"), matrix_and_bias(model, "logits")
    np.testing.assert_allclose(numpy(model(INPUTS)), x @ table.T + bias, atol=2e-5)
    new = D * D + D + 2 * D + VOCABULARY
    assert model.count_params() == encoder.count_params() - (D * D + D) + new  # without the pooler


@pytest.mark.parametrize(
    ("name", "output"), [("text_classifier", "pooled_output"), ("token_classifier", "sequence_output")]
)
def test_a_class_is_one_matrix_over_what_the_encoder_gives(make, name, output):
    encoder, model = make(name)
    w, b = matrix_and_bias(model)
    np.testing.assert_allclose(numpy(model(INPUTS)), numpy(encoder(INPUTS)[output]) @ w + b, atol=1e-5)


@pytest.mark.parametrize("way", ["file", "config", "clone"])
def test_the_shared_matrix_stays_shared(make, way, tmp_path):
    _, model = make("masked_lm")
    if way == "file":
        model.save(tmp_path / "model.keras")
        revived = keras.models.load_model(tmp_path / "model.keras")
    else:
        revived = keras.Model.from_config(model.get_config()) if way == "config" else keras.models.clone_model(model)
        assert len(revived.weights) == len(model.weights)
        revived.set_weights(model.get_weights())
    np.testing.assert_array_equal(numpy(revived(INPUTS)), numpy(model(INPUTS)))
    assert revived.count_params() == model.count_params()
    table = revived.get_layer("embedding").embeddings
    table.assign(ops.where(np.arange(VOCABULARY)[:, None] == 9, 0.0, table))  # no id of the inputs
    moved = numpy(revived(INPUTS)) != numpy(model(INPUTS))
    assert moved[..., 9].all()
    assert not moved[..., :9].any()


@pytest.mark.parametrize("name", ["text_classifier", "token_classifier"])  # the other is tested above
def test_from_disk_it_gives_the_same_logits(make, name, tmp_path):
    _, model = make(name)
    model.save(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        numpy(keras.models.load_model(tmp_path / "model.keras")(INPUTS)), numpy(model(INPUTS))
    )


@each
@pytest.mark.parametrize(("policy", "expected"), [("mixed_bfloat16", "float32"), ("float64", "float64")])
def test_logits_are_float32_at_least(make, name, policy, expected):
    _, model = make(name, policy)
    assert keras.backend.standardize_dtype(model(INPUTS).dtype) == expected
    assert keras.backend.standardize_dtype(model.output.dtype) == expected


def test_kerass_loss_leaves_the_padding_of_a_tagger_out(make):
    _, model = make("token_classifier")
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), run_eagerly=True)
    tags = np.random.default_rng(0).integers(CLASSES, size=IDS.shape)
    other = np.where(IDS == 0, (tags + 1) % CLASSES, tags)
    logits = numpy(model(INPUTS))
    losses = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(logits, tags[..., None], -1)[..., 0]
    for targets in (tags, other):
        assert model.evaluate(INPUTS, targets, verbose=0) == pytest.approx(losses[IDS != 0].mean(), rel=1e-5)


@often("name", [*HEADS], ("masked_lm",))
def test_a_few_steps_of_training_lower_the_loss(name):
    model = HEADS[name](SMALL.build_model(VOCABULARY))
    targets = {"masked_lm": IDS, "text_classifier": np.array([0, 2]), "token_classifier": IDS % CLASSES}[name]
    weights = (IDS != 0).astype("float32") if name == "masked_lm" else None
    losses = losses_of_training(model, INPUTS, targets, 7, 0.02, weights)
    assert losses[-1] < 0.7 * losses[0]


def test_wrong_arguments_are_refused_by_name():
    encoder = SMALL.build_model(VOCABULARY)
    for make, name in ((text_classifier, "num_classes"), (token_classifier, "num_tags")):
        with pytest.raises(ValueError, match=f"{name}=0; expected an integer of at least 1"):
            make(encoder, 0)
        assert make(encoder, 2, dropout=0.4).get_layer("head_dropout").rate == 0.4
        with pytest.raises(ValueError, match=r"dropout=1\.0; expected"):
            make(encoder, 2, dropout=1.0)


def test_class_weights_are_refused_for_targets_of_every_position_and_taken_for_texts():
    """Keras takes targets [B, T] for one-hot rows, and weighs a row by the class of its largest id's position."""
    encoder = SMALL.build_model(11)
    ids = np.random.default_rng(0).integers(1, 11, size=(4, 5))
    inputs, loss = {"token_ids": ids, "segment_ids": 0 * ids}, keras.losses.SparseCategoricalCrossentropy(True)
    tagger = BiLSTMConfig(embedding_dim=4, units=4, num_layers=1).build_model(11)
    for model, x in ((masked_lm(encoder), inputs), (token_classifier(encoder, 11), inputs), (tagger, ids)):
        model.compile("sgd", loss, run_eagerly=True)
        for train in (model.fit, model.train_on_batch):
            with pytest.raises(ValueError, match=r"class_weight=.*sample_weight \[B, T\]"):
                train(x, ids % 2, class_weight={0: 1.0, 1: 2.0})
    crf = BiLSTMConfig(num_tags=3, embedding_dim=4, units=4, num_layers=1, crf=True).build_model(11)
    crf.compile("sgd", CRFLoss())
    with pytest.raises(ValueError, match=r"class_weight=.*sample_weight \[B\]"):
        crf.fit(ids, ids % 3, class_weight={0: 1.0, 1: 2.0})
    model = text_classifier(encoder, 2, dropout=0.0)
    model.compile(keras.optimizers.SGD(0.0), loss, run_eagerly=True)
    labels, weights = np.array([0, 1, 1, 0]), {0: 1.0, 1: 3.0}
    weighted = model.fit(inputs, labels, class_weight=weights, verbose=0).history["loss"][0]
    expected = model.evaluate(inputs, labels, sample_weight=np.array([1.0, 3.0, 3.0, 1.0]), verbose=0)
    assert weighted == pytest.approx(expected, rel=1e-3)
