"""Quantization covers every matrix, rounds by at most half a step, and survives a file; files are as small as said."""

import dataclasses
import itertools
import os

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers, models
from keras_seq.generation.samplers import SamplingConfig
from keras_seq.generation.sampling_loop import SamplingLoop
from keras_seq.layers.base.layer import GROUP, dequantize, quantize
from keras_seq.layers.introspection import named_layers
from keras_seq.models.lora import enable_lora
from keras_seq.models.quantization import weight_only
from keras_seq.saving import load_untrusted_model, save_model
from tests.conftest import often
from tests.models.test_language_model import SMALL, VOCABULARY, some_ids

QUICK = {("lstm", "int8"), ("gru", "int4")}
KINDS = ("bilstm", "bert", "seq2seq", "t5", "lstm")  # of models; all language models are of one
MODES = pytest.mark.parametrize("mode", ["int8", "int4"])
NO_FACTORS = ("positions/embeddings", "segment_embedding/embeddings", "log_a", "convolution/kernel", "bias", "bonus")


def logits_of(model, *args):
    return ops.convert_to_numpy(model(*args or (some_ids(),)))


def covers_all(model, mode):
    report = models.quantization_report(model)
    assert len(report.rows) > 1
    assert all(path.endswith(NO_FACTORS) for path in report.skipped), str(report)
    assert {how for _, _, how in report.rows} <= {mode, "no factor of a matrix product"}
    floats = [w.path for w in model.weights if len(w.shape) > 1 and w.dtype != "int8"]
    assert all(path.endswith((*NO_FACTORS, "_scale")) for path in floats), floats


def rounded_floats(model, randomize, mode):
    """The model in float32, each matrix rounded to 8 or 4 bits and back."""
    randomize(model)
    for _, layer in named_layers(model, attributes=True):
        for matrix in getattr(layer, "matrices", {}).values():
            values = dequantize(*quantize(matrix.variable, mode), matrix.variable.shape[0], mode)
            matrix.variable.assign(values)
    for layer in (model.embedding, model.head):
        if type(layer) in (keras.layers.Embedding, keras.layers.ReversibleEmbedding, keras.layers.Dense):
            layer.quantize(mode, config=weight_only(mode))
    return model


@MODES
@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (GROUP, 5), (3 * GROUP + 1, 4)])
def test_rounding_is_by_at_most_half_a_step(mode, shape):
    matrix = np.random.default_rng(0).normal(size=shape).astype("float32")
    matrix[:, 0] = 0.0
    stored, scale = quantize(matrix, mode)
    assert stored.dtype == "int8"
    assert stored.nbytes == (matrix.size if mode == "int8" else -(-shape[0] // 2) * shape[1])
    back = ops.convert_to_numpy(dequantize(stored, scale, shape[0], mode))
    size, limit = (shape[0], 127) if mode == "int8" else (GROUP, 7)
    for start in range(0, shape[0], size):  # each column of each group by itself
        group = matrix[start : start + size]
        half = np.abs(group).max(axis=0) / limit / 2
        assert (np.abs(back[start : start + size] - group) <= half * (1 + 1e-4)).all()
    np.testing.assert_array_equal(back[:, 0], 0)


@often(("name", "mode"), [*itertools.product(models.LANGUAGE_MODELS, ("int8", "int4"))], QUICK)
def test_every_matrix_is_covered_and_a_file_brings_it_back(randomize, tmp_path, name, mode):
    model = randomize(dataclasses.replace(SMALL[name], dropout=0.0).build_model(VOCABULARY))
    before = logits_of(model)
    model.quantize(mode)
    covers_all(model, mode)
    after = logits_of(model)
    assert np.abs(after - before).max() > 0
    rounded = rounded_floats(dataclasses.replace(SMALL[name], dropout=0.0).build_model(VOCABULARY), randomize, mode)
    np.testing.assert_allclose(after, logits_of(rounded), rtol=1e-3, atol=1e-3 * np.abs(after).max())
    save_model(model, tmp_path / "model.keras")
    loaded = load_untrusted_model(tmp_path / "model.keras")
    covers_all(loaded, mode)
    np.testing.assert_array_equal(logits_of(loaded), after)
    state = loaded.get_initial_state(2)
    for t in range(3):
        logits, state = loaded.step(some_ids()[:, t : t + 1], state)
    np.testing.assert_allclose(ops.convert_to_numpy(logits), after[:, 2], rtol=1e-4, atol=1e-4)


@pytest.mark.rare
@MODES
def test_an_ensemble_is_covered_too(randomize, tmp_path, mode):
    members = [randomize(SMALL[name].build_model(VOCABULARY)) for name in ("lstm", "gru")]
    for member in members:
        member.quantize(mode)
    ensemble = models.Ensemble(members)
    save_model(ensemble, tmp_path / "model.keras")
    loaded = load_untrusted_model(tmp_path / "model.keras")
    for model in (ensemble, loaded):
        covers_all(model, mode)
    np.testing.assert_array_equal(logits_of(loaded), logits_of(ensemble))


@often("mode", ["int8", "int4"], ["int4"])
def test_a_model_of_layers_comes_back_from_a_file_too(tmp_path, mode):
    """The config of a layer names no layers inside of it, and `trainable` and the mode of those were lost."""
    inner = [
        layers.LSTM(4, return_sequences=True),
        layers.Bidirectional(layers.GRU(3, return_sequences=True)),
        layers.TransformerBlock(2, 8, activation="swiglu", trainable=False),
        layers.PreNormResidual([layers.Dense(6)]),
        keras.layers.TimeDistributed(layers.Dense(1)),
        layers.Dense(3),
    ]
    model = keras.Sequential([keras.Input((5, 6)), *inner])
    model.quantize(mode, filters=lambda layer: getattr(layer, "matrices", None))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert models.quantization_report(loaded) == models.quantization_report(model)
    assert {how for _, _, how in models.quantization_report(loaded).rows} >= {mode}
    assert [w.trainable for w in loaded.weights] == [w.trainable for w in model.weights]
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    np.testing.assert_array_equal(logits_of(loaded, x), logits_of(model, x))


@often("name", [*dict.fromkeys((*KINDS, *models.LANGUAGE_MODELS))], KINDS)
def test_every_model_can_be_quantized(name):
    from keras_seq.models.quantization import Quantizable

    small = {"num_heads": 2, "embedding_dim": 4, "feed_forward_dim": 4, "units": 4, "context_length": 4}
    fields = {field.name for field in dataclasses.fields(models.MODELS[name])}
    config = models.MODELS[name](**{key: value for key, value in small.items() if key in fields})
    assert isinstance(config.build_model(VOCABULARY), Quantizable), name


@pytest.mark.rare
def test_generation_from_4_bits_is_that_of_whole_passes(randomize):
    model = randomize(SMALL["llama"].build_model(VOCABULARY))
    model.quantize("int4")
    parts = [*SamplingLoop(model)([[1, 2]], 4, SamplingConfig(temperature=0.0))]
    ids = np.concatenate([[[1, 2]], *parts], axis=1)
    np.testing.assert_array_equal(logits_of(model, ids[:, :-1])[:, 1:].argmax(axis=-1), ids[:, 2:])


@pytest.mark.parametrize(
    "config",
    [
        models.LSTMConfig(embedding_dim=64, units=384),
        pytest.param(models.LlamaConfig(128, num_layers=4, num_heads=4, context_length=64), marks=pytest.mark.rare),
    ],
    ids=["lstm", "llama"],
)
def test_files_have_at_most_30_and_18_percent_of_the_bytes(tmp_path, config):
    sizes = {}
    for mode in (None, "int8", "int4"):
        model = config.build_model(65)
        if mode is not None:
            model.quantize(mode)
        save_model(model, tmp_path / f"{mode}.keras")
        sizes[mode] = os.path.getsize(tmp_path / f"{mode}.keras")
    assert sizes["int8"] <= 0.30 * sizes[None], sizes
    assert sizes["int4"] <= 0.18 * sizes[None], sizes


def test_mistakes_are_named():
    model = SMALL["lstm"].build_model(VOCABULARY)
    with pytest.raises(ValueError, match=r"Expected one of .*int8.*mode=int2"):
        model.quantize("int2")
    with pytest.raises(ValueError, match="every matrix is quantized"):
        model.quantize("int8", filters=["head"])
    head = type("Head", (keras.layers.Dense,), {})(VOCABULARY)
    other = models.LanguageModel(keras.layers.Embedding(VOCABULARY, 4), [layers.LSTM(4, return_sequences=True)], head)
    other(np.zeros((1, 2), "int32"))
    with pytest.raises(ValueError, match="is a Head: Keras quantizes Dense and embeddings"):
        other.quantize("int8")
    assert {str(weight.dtype) for weight in other.weights} == {"float32"}
    model.quantize("int8")
    with pytest.raises(ValueError, match="is quantized already, in int8"):
        model.quantize("int4")
    with pytest.raises(ValueError, match="is quantized; expected a model with its matrices"):
        enable_lora(model, 2)
    adapted = SMALL["lstm"].build_model(VOCABULARY)
    enable_lora(adapted, 2)
    with pytest.raises(ValueError, match="has LoRA; expected to merge it"):
        adapted.quantize("int8")


def text_models():
    """Return a builder for every kind of model that masks padding, which is id 0."""
    bert = models.BertConfig(8, num_layers=1, num_heads=2, feed_forward_dim=12, context_length=8, dropout=0.0)
    heads = {
        "masked_lm": models.masked_lm,
        "token_classifier": lambda encoder: models.token_classifier(encoder, 3),
        "text_classifier": lambda encoder: models.text_classifier(encoder, 3),
    }
    translator = models.Seq2SeqConfig(8, num_heads=2, feed_forward_dim=12, num_encoder_layers=1, num_decoder_layers=1)
    encoder = {
        "bert": bert,
        "modernbert": models.ModernBertConfig(8, num_layers=2, num_heads=2, feed_forward_dim=12, sliding_window=2),
        "bilstm": models.BiLSTMConfig(embedding_dim=4, units=4, num_layers=1),
        "seq2seq": translator,
        "t5": models.T5Config(8, 1, 1, 2, 4, 12),
    }
    made = {name: lambda config=config: config.build_model(VOCABULARY) for name, config in encoder.items()}
    made |= {name: lambda head=head: head(bert.build_model(VOCABULARY)) for name, head in heads.items()}
    made["modernbert masked_lm"] = lambda: models.masked_lm(encoder["modernbert"].build_model(VOCABULARY))
    for name, config in SMALL.items():
        made[name] = lambda config=config: dataclasses.replace(config, dropout=0.0).build_model(VOCABULARY)
    for embedding in (keras.layers.Embedding, keras.layers.ReversibleEmbedding):
        made[f"language model of {embedding.__name__}"] = lambda embedding=embedding: models.LanguageModel(
            embedding(VOCABULARY, 4, mask_zero=True), [layers.GatedLinearAttention(1)], keras.layers.Dense(VOCABULARY)
        )
    return made


def rows_of(model, ids, masks=False):
    """Return the outputs at the first three positions, or of the whole text."""
    if isinstance(model, models.EncoderDecoder):
        inputs = {"encoder_token_ids": ids, "decoder_token_ids": ids}
    elif isinstance(getattr(model, "input", None), dict):
        inputs = {"token_ids": ids, "segment_ids": 0 * ids}
    else:
        inputs = ids
    masked = {"mask": ids != 0} if masks else {}
    return [ops.convert_to_numpy(y)[:, :3] for y in keras.tree.flatten(model(inputs, **masked))]


@often(
    ("name", "mode"),
    [*itertools.product(text_models(), ("int8", "int4"))],
    [("language model of ReversibleEmbedding", "int8")],
)
def test_every_kind_of_model_is_covered_and_masks_padding_before_and_after_saving(randomize, tmp_path, name, mode):
    padded, masks = np.array([[9, 8, 7, 0, 0, 0]], "int32"), name in models.LANGUAGE_MODELS
    model = text_models()[name]()
    rows_of(model, padded)
    randomize(model, scale=1.0).quantize(mode)
    save_model(model, tmp_path / "model.keras")
    for copy in (model, keras.saving.load_model(tmp_path / "model.keras")):
        covers_all(copy, mode)
        for row, expected in zip(rows_of(copy, padded, masks), rows_of(copy, padded[:, :3]), strict=True):
            assert np.abs(row).max() > 0
            np.testing.assert_allclose(row, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
