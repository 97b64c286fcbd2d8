"""Every field of every config is refused by its name where it is out of its range."""

import dataclasses

import pytest

from keras_seq.models import MODELS, RecurrentGemmaConfig
from keras_seq.models.config import tiny_config

SIZES = {
    *("embedding_dim", "units", "num_layers", "num_encoder_layers", "num_decoder_layers", "num_heads"),
    *("num_key_value_heads", "feed_forward_dim", "context_length", "kernel_size", "state_dim", "expand", "head_dim"),
    *("num_groups", "gate_rank", "rank", "num_tags", "num_segments", "sliding_window", "lru_width"),
}
WRONG = {
    **dict.fromkeys(SIZES, (0, -1, 1.5)),
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
            dataclasses.replace(config, **{field: value}).build_model(11)
