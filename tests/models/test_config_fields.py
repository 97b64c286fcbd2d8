"""Every field of a config reaches its layers, or is refused by its name; formulas of sizes against what is built."""

import dataclasses

import keras
import numpy as np
import pytest
from keras import ops

from keras_seq import layers, models
from keras_seq.layers.introspection import has_time_loop, iter_layers
from keras_seq.models.config import shapes_only, tiny_config
from tests.conftest import often

VOCABULARY = 11
NUMBERS = {
    *("embedding_dim", "units", "num_layers", "num_encoder_layers", "num_decoder_layers", "num_heads"),
    *("num_key_value_heads", "feed_forward_dim", "context_length", "kernel_size", "state_dim", "expand", "head_dim"),
    *("num_groups", "gate_rank", "rank", "num_householder", "num_tags", "num_segments", "sliding_window", "lru_width"),
    *("linear_num_key_heads", "linear_num_value_heads", "linear_key_dim", "linear_value_dim"),
    *("num_buckets", "max_distance", "global_attention_interval"),
}
WRONG = {
    **dict.fromkeys(NUMBERS, (0, -1, 1.5)),
    **dict.fromkeys(("dropout", "recurrent_dropout"), (-0.1, 1.0)),
    "pattern": ("", "x", 7),
    "recurrent_initializer": ("nonesuch",),
    "merge_mode": ("mean",),
    "crf": ("x",),
}
OF_ONE = {  # further values, by model
    **{
        name: {"kernel_size": 1}
        for name in ("mingru", "minlstm", "mamba", "mamba2", "hawk", "gated_deltanet", "deltaproduct", "kda", "xlstm")
    },
    **{name: {"num_heads": 3} for name in ("bert", "seq2seq")},
    **{name: {"num_heads": 3, "context_length": None} for name in ("transformer", "gpt2", "llama")},
}
OF_ONE["transformer"] |= {"kernel_size": 1}
OF_ONE["mamba2"] |= {"num_groups": 3, "use_bias": "x", "epsilon": 0.0}
OF_ONE["llama"] |= {"num_key_value_heads": 3}
OF_ONE["t5"] = {"num_buckets": 3, "max_distance": 16, "decoder_start_token_id": VOCABULARY, "key_dim": 0}
OF_ONE["qwen3_5"] = {
    **{"num_key_value_heads": 3, "key_dim": 6, "linear_num_key_heads": 3, "kernel_size": 1, "context_length": None},
    **{"positions": None, "attention_bias": "x", "epsilon": 0.0},
}
OF_ONE["modernbert"] = {
    **{"num_heads": 3, "positions": None, "local_positions": {}, "pad_token_id": VOCABULARY, "epsilon": 0.0},
    **{"normalization_bias": 1},
}
OF_ONE["recurrent_gemma"] = {
    **{"lru_width": 7, "kernel_size": 1, "sliding_window": None, "positions": None},
    **{"attention_bias": "x", "logit_soft_cap": None, "epsilon": 0.0},
}
ELSEWHERE = {  # tests/bad_input, or what may be anything
    *("tie_embeddings", "use_bias", "epsilon", "activation", "positions", "key_dim", "dt_rank", "use_qk_norm"),
    *("attention_bias", "attention_output_bias", "feed_forward_bias", "full_attention_layers", "logit_soft_cap"),
    *("use_output_gate", "use_sinks", "use_forget_gate", "local_positions", "normalization_bias", "pad_token_id"),
    *("scale_logits", "decoder_start_token_id"),
}
CONFIGS = {name: tiny_config(name, num_heads=2, embedding_dim=8, context_length=9) for name in models.MODELS}
CONFIGS["recurrent_gemma"] = models.RecurrentGemmaConfig(
    8, num_heads=2, feed_forward_dim=5, lru_width=6, sliding_window=4
)


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
    *residuals, _ = model.blocks
    blocks = [block for block in residuals if isinstance(block, layers.TransformerBlock)]
    convolutions = [block for block in residuals if isinstance(block, layers.PreNormResidual)]
    assert all(block.causal for block in blocks)
    assert len(convolutions) in (0, len(blocks))
    fields = values(blocks, "num_heads", "feed_forward_dim", "dropout", "use_output_gate", "use_sinks")
    fields["use_forget_gate"] = {isinstance(block.positions, layers.ForgettingPositions) for block in blocks}
    fields["kernel_size"] = {layer.kernel_size for block in convolutions for layer in block.layers} or {None}
    assert {block.dropout for block in convolutions} <= fields["dropout"]
    return fields | {"num_layers": {len(blocks)}, "context_length": {model.context_length}}


SIZES = {"embedding_dim": 5, "units": 7, "num_layers": 2}
MINIMAL = {**SIZES, "embedding_dim": 6, "feed_forward_dim": 12, "kernel_size": 3, "dropout": 0.3}
GATES = {"use_output_gate": True, "use_sinks": True}
REACHED = [
    *(
        (kind(**SIZES, dropout=0.3, recurrent_dropout=0.2, recurrent_initializer="glorot_normal"), of_recurrent)
        for kind in (models.RNNConfig, models.GRUConfig, models.LSTMConfig)
    ),
    *((kind(**MINIMAL), of_minimal) for kind in (models.MinGRUConfig, models.MinLSTMConfig)),
    (
        models.MambaConfig(6, 2, 3, expand=3, kernel_size=5, dropout=0.3, dt_rank=2, use_bias=True, epsilon=1e-3),
        of_mamba,
    ),
    *(
        (models.TransformerConfig(8, 2, 2, 12, context_length=9, dropout=0.3, **options), of_transformer)
        for options in ({"kernel_size": 3}, {"kernel_size": None, **GATES, "use_forget_gate": True})
    ),
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


@pytest.mark.parametrize("kind", [models.RNNConfig, models.GRUConfig, models.LSTMConfig])
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


class Counted(keras.initializers.Zeros):
    """Counts how often values are drawn."""

    calls = 0

    def __call__(self, shape, dtype=None):
        Counted.calls += 1
        return super().__call__(shape, dtype)


@pytest.mark.parametrize("fails", [False, True])
def test_weights_that_are_only_counted_are_drawn_neither_then_nor_later(fails):
    try:
        with shapes_only():
            layer = keras.layers.Dense(3, kernel_initializer=Counted())
            layer.build((None, 2))
            if fails:
                raise ValueError
    except ValueError:
        assert fails
    with keras.StatelessScope():
        pass
    assert layer.count_params() == 9
    assert Counted.calls == 0


LOOPS = (layers.SimpleRNN, layers.GRU, layers.LSTM, layers.SLSTM)


@often("name", [*models.MODELS], ("lstm", "xlstm", "mamba", "hybrid", "bilstm"))
def test_only_loops_over_the_positions_count_as_loops(name):
    model = tiny_config(name, context_length=8).build_model(7)
    assert has_time_loop(model) == any(isinstance(layer, LOOPS) for layer in iter_layers(model))


def test_they_are_found_however_deep():
    nested = layers.PreNormResidual([layers.PreNormResidual([layers.LSTM(4, return_sequences=True)])])
    model = keras.Sequential([keras.Input((None, 4)), keras.Sequential([nested])])
    assert has_time_loop(model)
    assert nested in iter_layers(model)
    assert not has_time_loop(keras.Sequential([keras.Input((None, 4)), layers.MinLSTM(4, return_sequences=True)]))


KINDS = {
    "gpt2": lambda draw, heads: models.GPT2Config(heads * draw(5), draw(3), heads, draw(20), draw(9)),
    "llama": lambda draw, heads: models.LlamaConfig(
        2 * 2 * heads * draw(4), draw(3), 2 * heads, heads, draw(20), draw(9)
    ),
    "llama with gates": lambda draw, heads: models.LlamaConfig(
        2 * 2 * heads * draw(4), draw(3), 2 * heads, heads, draw(20), draw(9), **GATES, attention_bias=draw(2) > 1
    ),
    "qwen3_5": lambda draw, heads: models.Qwen35Config(
        *(draw(9), 3, "da", 2 * heads, heads, 8 * draw(2), heads, 2 * heads, draw(5), draw(5), 1 + draw(3), draw(9), 9),
        **{name: draw(2) > 1 for name in ("attention_bias", "tie_embeddings")},
    ),
    "encoder": lambda draw, heads: models.BertConfig(heads * draw(5), draw(3), heads, draw(20), draw(9), draw(3)),
    "modernbert": lambda draw, heads: models.ModernBertConfig(
        *(2 * heads * draw(4), draw(5), heads, draw(20), draw(9), draw(3), draw(4)),
        **{name: draw(2) > 1 for name in ("attention_bias", "feed_forward_bias", "normalization_bias")},
    ),
    "seq2seq": lambda draw, heads: models.Seq2SeqConfig(heads * draw(5), draw(2), draw(2), heads, draw(20)),
    "t5": lambda draw, heads: models.T5Config(
        *(draw(9), draw(2), draw(2), heads, draw(5), draw(20), 3 + draw(9)),
        **{"activation": ("relu", "swiglu")[draw(2) - 1], "tie_embeddings": draw(2) > 1},
    ),
}


@often("seed", [0, 1], [0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_formula_counts_what_is_built(kind, seed):
    random = np.random.default_rng(seed)

    def draw(most):
        return int(random.integers(1, most + 1))

    config, vocabulary_size = KINDS[kind](draw, draw(3)), draw(50)
    assert config.count_params(vocabulary_size) == config.build_model(vocabulary_size).count_params(), config


@pytest.mark.parametrize("name", models.PUBLISHED_CONFIGS)
def test_a_published_has_as_many_parameters_as_it_says(name):
    published = models.PUBLISHED_CONFIGS[name]
    assert published.config.count_params(published.vocabulary_size) == published.num_params


def test_the_published_numbers():
    parameters = {name: published.num_params for name, published in models.PUBLISHED_CONFIGS.items()}
    assert (parameters["gpt2"], parameters["bert_base"]) == (124_439_808, 109_482_240)
    head = 768**2 + 768 + 50_368  # its matrix and norm, and the bias of the logits
    assert parameters["modernbert_base"] + head == 149_655_232  # of the file on the hub
    assert round(parameters["gpt3"] / 1e9) == 175
    assert parameters["transformer_base"] == pytest.approx(65e6, rel=0.03)  # the paper's table 3 rounds


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "bert_base"])
def test_a_published_builds_to_its_size(name):
    published = models.PUBLISHED_CONFIGS[name]
    assert published.config.build_model(published.vocabulary_size).count_params() == published.num_params


@pytest.mark.parametrize("name", models.MODELS)
def test_a_config_makes_no_variable(monkeypatch, name):
    """Neither seeds of dropout nor weights: on JAX they would start its devices before several processes have met."""

    def refuse(*args, **kwargs):
        raise AssertionError("a variable was made")

    monkeypatch.setattr(keras.Variable, "__init__", refuse)
    kind = models.MODELS[name]
    kind(**{field.name: 0.1 for field in dataclasses.fields(kind) if "dropout" in field.name})
