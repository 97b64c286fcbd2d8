"""Every field of a config reaches its layers, and is refused by its name where it is out of its range."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq.models import (
    MODELS,
    GRUConfig,
    LSTMConfig,
    MambaConfig,
    MinGRUConfig,
    MinLSTMConfig,
    RecurrentGemmaConfig,
    RNNConfig,
    TransformerConfig,
)
from keras_seq.models.config import tiny_config

VOCABULARY = 11

NUMBERS = {
    *("embedding_dim", "units", "num_layers", "num_encoder_layers", "num_decoder_layers", "num_heads"),
    *("num_key_value_heads", "feed_forward_dim", "context_length", "kernel_size", "state_dim", "expand", "head_dim"),
    *("num_groups", "gate_rank", "rank", "num_tags", "num_segments", "sliding_window", "lru_width"),
}
WRONG = {
    **dict.fromkeys(NUMBERS, (0, -1, 1.5)),
    **dict.fromkeys(("dropout", "recurrent_dropout"), (-0.1, 1.0)),
    "pattern": ("", "x", 7),
    "recurrent_initializer": ("nonesuch",),
    "merge_mode": ("mean",),
}
OF_ONE = {  # further values, by model
    **{
        name: {"kernel_size": 1} for name in ("mingru", "minlstm", "mamba", "mamba2", "hawk", "gated_deltanet", "xlstm")
    },
    **{name: {"num_heads": 3} for name in ("bert", "seq2seq")},
    **{name: {"num_heads": 3, "context_length": None} for name in ("transformer", "gpt2", "llama")},
}
OF_ONE["mamba2"] |= {"num_groups": 3, "use_bias": "x", "epsilon": 0.0}
OF_ONE["llama"] |= {"num_key_value_heads": 3}
OF_ONE["recurrent_gemma"] = {
    **{"lru_width": 7, "kernel_size": 1, "sliding_window": None, "positions": None},
    **{"attention_bias": "x", "logit_soft_cap": None, "epsilon": 0.0},
}
ELSEWHERE = {  # tests/bad_input, or what may be anything
    *("tie_embeddings", "use_bias", "epsilon", "activation", "positions", "key_dim", "dt_rank", "use_qk_norm"),
    *("attention_bias", "attention_output_bias", "feed_forward_bias", "full_attention_layers", "logit_soft_cap"),
}
CONFIGS = {name: tiny_config(name, num_heads=2, embedding_dim=8, context_length=9) for name in MODELS}
CONFIGS["recurrent_gemma"] = RecurrentGemmaConfig(8, num_heads=2, feed_forward_dim=5, lru_width=6, sliding_window=4)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_field_out_of_its_range_is_refused_by_name(name):
    config = CONFIGS[name]
    fields = {field.name for field in dataclasses.fields(config)}
    assert fields <= WRONG.keys() | ELSEWHERE
    wrong = [(field, value) for field in fields & WRONG.keys() for value in WRONG[field]]
    for field, value in [*wrong, *OF_ONE.get(name, {}).items()]:
        with pytest.raises(ValueError, match=f"{field}={value!r}"):
            dataclasses.replace(config, **{field: value}).build_model(VOCABULARY)


def values(layers, *names):
    """The values of some attributes that layers have."""
    return {name: {getattr(layer, name) for layer in layers} for name in names}


def of_recurrent(model, kind):
    recurrent = [block for block in model.blocks if isinstance(block, kind.layer_class)]
    dropouts = [block for block in model.blocks if isinstance(block, keras.layers.Dropout)]
    assert len(dropouts) in (0, len(recurrent))
    classes = {keras.initializers.Orthogonal: "orthogonal", keras.initializers.GlorotNormal: "glorot_normal"}
    return values(recurrent, "units", "recurrent_dropout") | {
        "num_layers": {len(recurrent)},
        "dropout": {layer.rate for layer in dropouts} or {0.0},
        "recurrent_initializer": {classes[type(layer.recurrent_initializer)] for layer in recurrent},
    }


def of_minimal(model, kind):
    *residuals, _ = model.blocks
    mixers, feed_forwards = residuals[::2], residuals[1::2]
    convolutions, minimal, outputs = zip(*(block.layers for block in mixers), strict=True)
    assert {type(layer) for layer in minimal} == {kind.layer_class}
    assert {layer.units for layer in outputs} == {model.embedding.output_dim}
    return {
        "num_layers": {len(mixers), len(feed_forwards)},
        "feed_forward_dim": {layer.feed_forward_dim for block in feed_forwards for layer in block.layers},
        **values(minimal, "units"),
        **values(convolutions, "kernel_size"),
        **values(residuals, "dropout"),
    }


def of_mamba(model, kind):
    *residuals, last = model.blocks
    mambas = [layer for block in residuals for layer in block.layers]
    return {
        "num_layers": {len(mambas)},
        "epsilon": {block.normalization_layer.epsilon for block in residuals} | {last.epsilon},
        **values(mambas, "state_dim", "expand", "kernel_size", "dt_rank", "use_bias"),
        **values(residuals, "dropout"),
    }


def of_transformer(model, kind):
    *blocks, _ = model.blocks
    assert all(block.causal for block in blocks)
    fields = values(blocks, "num_heads", "feed_forward_dim", "dropout")
    return fields | {"num_layers": {len(blocks)}, "context_length": {model.context_length}}


SIZES = {"embedding_dim": 5, "units": 7, "num_layers": 2}
MINIMAL = {**SIZES, "embedding_dim": 6, "feed_forward_dim": 12, "kernel_size": 3, "dropout": 0.3}
REACHED = [
    *(
        (kind(**SIZES, dropout=0.3, recurrent_dropout=0.2, recurrent_initializer="glorot_normal"), of_recurrent)
        for kind in (RNNConfig, GRUConfig, LSTMConfig)
    ),
    *((kind(**MINIMAL), of_minimal) for kind in (MinGRUConfig, MinLSTMConfig)),
    (MambaConfig(6, 2, 3, expand=3, kernel_size=5, dropout=0.3, dt_rank=2, use_bias=True, epsilon=1e-3), of_mamba),
    (TransformerConfig(8, 2, 2, 12, context_length=9, dropout=0.3), of_transformer),
]
reached = pytest.mark.parametrize(("config", "found_in"), REACHED, ids=lambda value: getattr(value, "model_name", ""))


@reached
def test_every_field_reaches_its_layers(config, found_in):
    for one in (config, dataclasses.replace(config, tie_embeddings=True, dropout=0.0)):
        model = one.build_model(VOCABULARY)
        found = found_in(model, type(one)) | {
            "embedding_dim": {model.embedding.output_dim},
            "tie_embeddings": {model.head is None},
        }
        assert found == {name: {value} for name, value in dataclasses.asdict(one).items()}
        expected = (one.model_name, VOCABULARY, getattr(one, "context_length", None))
        assert (model.name, model.embedding.input_dim, model.context_length) == expected


@pytest.mark.parametrize("kind", [RNNConfig, GRUConfig, LSTMConfig])
def test_a_projection_joins_the_widths_only_where_they_differ(kind):
    for units, blocks in ((5, 1), (7, 2)):
        model = kind(embedding_dim=5, units=units, tie_embeddings=True).build_model(VOCABULARY)
        assert len(model.blocks) == blocks


@pytest.mark.parametrize("config", [config for config, found_in in REACHED if found_in in (of_minimal, of_mamba)])
def test_each_part_starts_as_the_identity(config):
    x = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    *residuals, normalization = config.build_model(VOCABULARY).blocks
    assert isinstance(normalization, keras.layers.RMSNormalization)
    for block in residuals:
        np.testing.assert_array_equal(ops.convert_to_numpy(block(x)), x)
