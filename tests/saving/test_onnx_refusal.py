"""`Model.export(format="onnx")` of any model with layers of ours is right at every length, or refused before a file."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.models import MODELS, BertConfig, Ensemble, masked_lm
from tests.conftest import often
from tests.layers.test_contract import CASES, D
from tests.models.test_language_model import SMALL, VOCABULARY, some_ids

BACKEND = keras.backend.backend()
pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.filterwarnings("ignore"),  # of torch's exporter, by the dozen
]
REFUSAL = r'cannot be exported by Model\.export\(format="onnx"\)'
RIGHT = {"Dense", "PositionalEncoding", "LearnedPositions"}  # by Keras's own export
if BACKEND == "tensorflow":
    RIGHT |= {"LayerNormalization", "RMSNormalization", "ZeroCenteredRMSNormalization"}
QUICK = {"LSTM", "MinGRU", "TransformerBlock", "Dense"}


class Passing(keras.Model):
    """Somebody's own model, which passes `training` on, as a call without Keras's checks needs it."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, x, training=None):
        return self.layer(x, training=training)


def functional(layer, case):
    x = keras.Input((None, D))
    if not case.context:
        return keras.Model(x, layer(x))
    context = keras.Input((None, D))
    return keras.Model([x, context], layer(x, context=context))


@pytest.mark.skipif(BACKEND == "jax", reason="Keras exports by jax2onnx")
@often("name", [*CASES], QUICK)
def test_a_model_of_a_layer_is_right_or_refused(name, tmp_path):
    pytest.importorskip("onnxruntime")
    case, path = CASES[name], tmp_path / "model.onnx"
    models = [functional(case.make(), case)]
    if not case.context:
        models += [keras.Sequential([keras.Input((None, D)), case.make()]), Passing(case.make())]
    x = np.random.default_rng(0).normal(size=(2, 5, D)).astype("float32")
    for model in models:
        model([x, x] if case.context else x)
        try:
            model.export(str(path), format="onnx", verbose=False)
        except Exception as error:
            assert not path.exists()
            if name in RIGHT or "cannot be exported by Model.export" not in str(error):
                raise
        else:
            assert name in RIGHT
            check_file(model, path)
            path.unlink()


def check_file(model, path):
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    lengths = (5,) if isinstance(model, Passing) else (1, 5, 7)  # Keras exports that for the length of its first call
    for size in zip((2, 1, 3), lengths, strict=False):
        x = np.random.default_rng(1).normal(size=(*size, D)).astype("float32")
        (y,) = session.run(None, {session.get_inputs()[0].name: x})
        np.testing.assert_allclose(y, ops.convert_to_numpy(model(x)), atol=1e-4)


def models():
    bert = BertConfig(8, num_layers=1, num_heads=2, feed_forward_dim=12, context_length=8).build_model(VOCABULARY)
    small = {"num_heads": 2, "embedding_dim": 4, "feed_forward_dim": 4, "units": 4}
    made = {"bert": bert, "masked_lm": masked_lm(bert)}
    for name in ("bilstm", "seq2seq"):
        fields = {key: value for key, value in small.items() if key in MODELS[name].__dataclass_fields__}
        made[name] = MODELS[name](**fields).build_model(VOCABULARY)
    for name in ("lstm", "mamba", "llama"):
        made[name] = SMALL[name].build_model(VOCABULARY)
    return {**made, "ensemble": Ensemble([SMALL["lstm"].build_model(VOCABULARY)])}


def test_every_model_is_refused_and_other_formats_are_not(tmp_path):
    for name, model in models().items():
        with pytest.raises(ValueError, match=rf"^{model.name} {REFUSAL}"):
            model.export(tmp_path / name, format="onnx")
        with pytest.raises(ValueError, match=REFUSAL):
            model.export(tmp_path / name, "onnx")
    assert not [*tmp_path.iterdir()]
    if BACKEND == "tensorflow":
        model = models()["lstm"]
        model(some_ids())
        model.export(str(tmp_path / "saved_model"), verbose=False)
        keras.Sequential([keras.Input((4, D)), layers.LSTM(3)]).export(str(tmp_path / "other"), verbose=False)
        assert (tmp_path / "other").exists()


@pytest.mark.skipif(BACKEND == "jax", reason="Keras exports by jax2onnx")
def test_layers_deep_in_somebodys_model_are_found(tmp_path):
    inner = keras.Sequential([keras.layers.Dense(D), layers.PreNormResidual([layers.GatedFeedForward(8)])])
    x = keras.Input((4, D))
    model = keras.Model(x, keras.layers.TimeDistributed(keras.layers.Dense(2))(inner(x)))
    model(np.zeros((1, 4, D), "float32"))
    with pytest.raises(ValueError, match=REFUSAL):
        model.export(str(tmp_path / "model.onnx"), format="onnx", verbose=False)
    if BACKEND == "tensorflow":
        x = keras.Input((4, D))
        model = keras.Model(x, layers.Dense(3, activation="gelu")(x))
        model(np.zeros((1, 4, D), "float32"))
        with pytest.raises(ValueError, match=REFUSAL):
            model.export(str(tmp_path / "model.onnx"), format="onnx", verbose=False)
