"""`keras.Model.export` to ONNX and LiteRT of layers of ours: right at each size, or refused before a file."""

import contextlib
import pathlib
import re

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers
from keras_seq.models import MODELS, BertConfig, Ensemble, masked_lm
from tests.conftest import often
from tests.layers.test_contract import CASES, D, T
from tests.models.test_language_model import SMALL, VOCABULARY, some_ids

BACKEND = keras.backend.backend()
pytestmark = [
    pytest.mark.any_backend,
    pytest.mark.filterwarnings("ignore"),  # of torch's exporter, by the dozen
]
exports = pytest.mark.skipif(BACKEND == "jax", reason="Keras exports to ONNX by jax2onnx, and not to LiteRT")
REFUSAL = r'cannot be exported by Model\.export\(format="{}"\): .*; use keras_seq\.export for .*\.$'
FORMATS = {"onnx": ".onnx", "litert": ".tflite"}
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "exports.md"

ANY, KNOWN, REFUSED = "right", "right for a known T", "refused"
WITHOUT_A_LOOP = {
    *("MultiHeadSelfAttention", "CrossAttention", "TransformerBlock", "PositionalEncoding", "LearnedPositions"),
    *("SegmentEmbedding", "Dense", "FeedForward", "GatedFeedForward", "LayerNormalization", "RMSNormalization"),
    *("ZeroCenteredRMSNormalization", "CausalDepthwiseConv1D", "RWKV7ChannelMix", "CRF"),
}
RIGHT = {
    name: {
        ("tensorflow", "onnx"): ANY,
        ("tensorflow", "litert"): ANY,
        ("torch", "onnx"): ANY if name in WITHOUT_A_LOOP else KNOWN,
        ("torch", "litert"): REFUSED,
    }
    for name in CASES
}
QUICK = [("LSTM", "onnx"), ("MinGRU", "litert"), ("GatedFeedForward", "onnx")]
EACH = [(name, format) for name in CASES for format in FORMATS]


class Passing(keras.Model):
    """Somebody's own model, which passes `training` on, as a call without Keras's checks needs it."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def call(self, x, training=None):
        return self.layer(x, training=training)


def functional(name, layer, length=None):
    """A model of the layer: of a sequence, and of a context, or of the ids of segments."""
    x = keras.Input((length, D), name="a")
    if name == "SegmentEmbedding":
        ids = keras.Input((length,), dtype="int32", name="b")
        return keras.Model([x, ids], layers.SegmentEmbedding(2)(x, ids))
    if not CASES[name].context:
        return keras.Model(x, layer(x))
    context = keras.Input((length, D), name="b")
    return keras.Model([x, context], layer(x, context=context))


def values(model, batch_size, length):
    random = np.random.default_rng(batch_size)
    dtypes = [x.dtype for x in getattr(model, "inputs", None) or [keras.KerasTensor((None, None, D))]]
    made = [random.normal(size=(batch_size, length, D)).astype("float32") for _ in dtypes]
    return [x if dtype == "float32" else (x[..., 0] > 0).astype(dtype) for x, dtype in zip(made, dtypes, strict=True)]


def format_of(path):
    return "onnx" if path.suffix == ".onnx" else "litert"


def apply(model, inputs):
    return ops.convert_to_numpy(model(inputs if len(inputs) > 1 else inputs[0]))


def randomize(model):
    random = np.random.default_rng(0)
    for weight in model.weights:
        if "int" not in weight.dtype:
            weight.assign(ops.convert_to_numpy(weight) + random.normal(scale=0.3, size=weight.shape))


def outputs(path, inputs):
    """Return what a file computes."""
    if format_of(path) == "onnx":
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(path)
        return session.run(None, dict(zip([x.name for x in session.get_inputs()], inputs, strict=True)))[0]
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter(str(path))  # of built-in operations
    signature = interpreter.get_signature_list()["serving_default"]
    (output,) = interpreter.get_signature_runner()(
        **dict(zip(sorted(signature["inputs"]), inputs, strict=True))
    ).values()
    return output


def exported(model, path, length, **options):
    """Export the model, and return its file's path once it has been tried at several sizes."""
    apply(model, values(model, 2, length or T))  # an export of Keras needs a call
    randomize(model)
    path.unlink(missing_ok=True)
    with contextlib.redirect_stdout(None):
        model.export(str(path), format=format_of(path), verbose=False, **options)
    for batch_size, size in zip((2, 1, 3), (length,) * 3 if length else (5, 1, 7), strict=True):
        inputs = values(model, batch_size, size)
        expected = apply(model, inputs)
        found = outputs(path, inputs)
        np.testing.assert_allclose(found, expected, atol=1e-4 * max(1, np.abs(expected).max()))
    return path


def refuses(model, path, length):
    """Assert that an export is refused, and leaves no file."""
    path.unlink(missing_ok=True)
    with pytest.raises((ValueError, RuntimeError, ImportError)) as caught:
        exported(model, path, length)
    assert not path.exists()
    if caught.type is not ImportError:  # of litert_torch, which Keras needs on torch
        assert "cannot be exported by Model.export" in str(caught.value)
        assert "use keras_seq.export" in str(caught.value)
        assert f'format="{format_of(path)}"' in str(caught.value)


@exports
@often(["name", "format"], EACH, QUICK)
def test_a_model_of_a_layer_is_right_or_refused(name, format, tmp_path):
    case, path = CASES[name], tmp_path / f"model{FORMATS[format]}"
    right = RIGHT[name][BACKEND, format]
    for length in (None, T):
        model = functional(name, case.make(), length)
        if right == REFUSED or (right == KNOWN and length is None):
            refuses(model, path, length)
        else:
            exported(model, path, length)
    if right != REFUSED and not case.context and name != "SegmentEmbedding":
        is_quick = BACKEND == "torch" or name == "LearnedPositions"
        length = T if is_quick else 70  # more than what TensorFlow unrolls; torch unrolls all of it
        exported(keras.Sequential([keras.Input((length, D)), case.make()]), path, length)
        model = Passing(case.make())
        exported(model, path, T)  # Keras exports that for the length of its first call


def test_the_page_says_which_layers_need_a_known_length():
    (said,) = re.findall(r"and linear ones but\s+`(\w+)` and `(\w+)`\.", PAGE.read_text(encoding="utf-8"))
    folders = "keras_seq.layers.recurrent", "keras_seq.layers.linear"
    looping = {name for name in CASES if getattr(layers, name).__module__.startswith(folders)} | {"PreNormResidual"}
    assert {name for name, right in RIGHT.items() if right["torch", "onnx"] == KNOWN} == looping - {*said}


OTHER_FORMS = {  # of layers, and of what they compute
    "causal": lambda: layers.MultiHeadSelfAttention(num_heads=1, causal=True, positions=layers.RotaryPositions()),
    "without bias": lambda: layers.MultiHeadSelfAttention(num_heads=2, use_bias=False),
    "block": lambda: layers.TransformerBlock(num_heads=2, feed_forward_dim=8),
    "convolution": lambda: layers.CausalDepthwiseConv1D(4),
    "channel mix": lambda: layers.RWKV7ChannelMix(8),
    "last": lambda: layers.MinLSTM(7),
    "backwards": lambda: layers.LSTM(7, go_backwards=True, activation="gelu"),
    "reset after": lambda: layers.GRU(7, return_sequences=True),
    "low rank": lambda: layers.GatedLinearAttention(num_heads=2),
    "rwkv": lambda: layers.RWKV7TimeMix(num_heads=2),
    "mlstm": lambda: layers.MLSTM(num_heads=2),
}
SHIFTING = {"convolution", "channel mix", "rwkv", "mlstm"}  # positions, which a mask reorders


@exports
@often(["form", "format"], [(form, format) for form in OTHER_FORMS for format in FORMATS], [("backwards", "onnx")])
def test_other_arguments_and_masks_are_right_too(form, format, tmp_path):
    layer = OTHER_FORMS[form]()
    right = RIGHT[type(layer).__name__][BACKEND, format]
    if right == REFUSED:
        pytest.skip("refused")
    length = None if right == ANY else T
    ids = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(2, D, mask_zero=True)(ids)
    path, model = tmp_path / f"model{FORMATS[format]}", keras.Model(ids, layer(x))
    if BACKEND == "torch" and form in SHIFTING:
        refuses(model, path, length)
    else:
        exported(model, path, length)


@exports
@often("name", [*(name for name in dir(keras.activations) if name.islower() and name[0] != "_")], ("gelu",))
def test_every_activation_is_right(name, tmp_path):
    if name in ("deserialize", "serialize", "get", "glu", "threshold"):
        pytest.skip("no activation, or one with other arguments or another width")
    for format, suffix in FORMATS.items():
        if RIGHT["Dense"][BACKEND, format] != REFUSED:
            exported(functional("Dense", layers.Dense(4, activation=name)), tmp_path / f"model{suffix}", None)


@exports
def test_matrices_of_8_bits_and_other_precisions_are_refused(tmp_path):
    quantized = layers.Dense(4)
    quantized.build((None, None, D))
    quantized.quantize("int8")
    path = tmp_path / "model.onnx"
    for layer in (quantized, layers.Dense(4, dtype="mixed_bfloat16")):
        x = keras.Input((None, D))
        model = keras.Model(x, layer(x))
        model(np.zeros((1, T, D), "float32"))
        with pytest.raises(ValueError, match=r"its matrices are in int8|it computes in bfloat16"):
            model.export(str(path), format="onnx", verbose=False)
        assert not path.exists()


def models():
    bert = BertConfig(8, num_layers=1, num_heads=2, feed_forward_dim=12, context_length=8).build_model(VOCABULARY)
    small = {"num_heads": 2, "embedding_dim": 4, "feed_forward_dim": 4, "units": 4}
    made = {"bert": bert, "masked_lm": masked_lm(bert)}
    for name in ("bilstm", "seq2seq", "t5"):
        fields = {key: value for key, value in small.items() if key in MODELS[name].__dataclass_fields__}
        made[name] = MODELS[name](**fields).build_model(VOCABULARY)
    for name in ("lstm", "mamba", "llama"):
        made[name] = SMALL[name].build_model(VOCABULARY)
    return {**made, "ensemble": Ensemble([SMALL["lstm"].build_model(VOCABULARY)])}


def test_every_model_is_refused_and_other_formats_are_not(tmp_path):
    made = models()
    for name, model in made.items():
        for format in FORMATS:
            with pytest.raises(ValueError, match=f"^{model.name} {REFUSAL.format(format)}"):
                model.export(tmp_path / name, format=format)
            with pytest.raises(ValueError, match=REFUSAL.format(format)):
                model.export(tmp_path / name, format)
    assert not [*tmp_path.iterdir()]
    if BACKEND == "tensorflow":
        model = made["lstm"]
        model(some_ids())
        model.export(str(tmp_path / "saved_model"), verbose=False)
        assert (tmp_path / "saved_model").exists()


@exports
def test_a_model_inside_of_somebodys_is_refused(tmp_path):
    inner = SMALL["lstm"].build_model(VOCABULARY)
    ids = keras.Input((4,), dtype="int32")
    model = keras.Model(ids, keras.layers.Dense(2)(inner(ids)))
    model(some_ids()[:, :4])
    with pytest.raises(ValueError, match=r"cannot be exported by Model\.export"):
        model.export(str(tmp_path / "model.onnx"), format="onnx", verbose=False)
    assert not [*tmp_path.iterdir()]


@exports
def test_layers_deep_in_somebodys_model_are_found(tmp_path):
    inner = keras.Sequential([keras.layers.Dense(D), layers.PreNormResidual([layers.MinGRU(D, return_sequences=True)])])
    x = keras.Input((4, D))
    y = keras.layers.TimeDistributed(keras.layers.Dense(2))(inner(keras.layers.Dropout(0.1)(x)))
    exported(keras.Model(x, y), tmp_path / "model.onnx", 4)
    if BACKEND == "torch":  # which sees one length, whatever the model makes of it
        x = keras.Input((None, D))
        model = keras.Model(x, inner(keras.layers.ZeroPadding1D(2)(x)))
        refuses(model, tmp_path / "model.onnx", None)
