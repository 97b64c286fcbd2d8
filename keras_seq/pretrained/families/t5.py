"""T5 (Raffel et al., 2020): `T5ForConditionalGeneration`, version 1.0, and 1.1 with Flan-T5's gates and untied head.

transformers 5 writes `tie_word_embeddings=true` for each T5: there the file says whether the head is tied, and
`scale_decoder_outputs` what tying it meant before.
"""

import dataclasses

from keras_seq import checks
from keras_seq.models.families.seq2seq import EncoderDecoder
from keras_seq.models.families.t5 import T5Config
from keras_seq.models.families.transformer import ACTIVATIONS
from keras_seq.pretrained.family import Family, Setting, Tensor, choice, dropouts, linear, linears, norm, same
from keras_seq.pretrained.tensor_table import fields_of, name_of

SCALED, TIED, HEAD = "scale_decoder_outputs", "tie_word_embeddings", "lm_head.weight"
ACTIVATION_NAMES = {  # "gated-gelu" is transformers' name of gelu_new, too
    **{"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "silu": "silu", "swish": "silu"},
    **{"gated-gelu": "geglu_tanh", "gated-gelu_new": "geglu_tanh", "gated-silu": "swiglu", "gated-swish": "swiglu"},
}
ATTENTIONS = {"self_attention": "SelfAttention", "cross_attention": "EncDecAttention"}
BUFFERS = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"  # of old files, not used


def _read_decoder_layers(values):
    number = values["num_decoder_layers"]
    return {"num_decoder_layers": values["num_layers"] if number is None else number}


def _check_activation(values):
    """Check what transformers derives from `feed_forward_proj`, and reads back where a file has it."""
    name = values["feed_forward_proj"]
    function = "gelu_new" if name == "gated-gelu" else name.removeprefix("gated-")
    for key, expected in (("dense_act_fn", function), ("is_gated_act", name.startswith("gated-"))):
        if values[key] is not None and (values[key] != expected or type(values[key]) is not type(expected)):
            raise ValueError(f"{key}={values[key]!r}; expected {expected!r}, as feed_forward_proj={name!r} says")
    return {}


def _read_scale(values):
    scaled = values[TIED] if values[SCALED] is None else values[SCALED]
    return {"scale_logits": checks.boolean(SCALED, scaled)}


def complete(config: T5Config, values: dict, tensors) -> T5Config:
    """Return the config with a head of its own where transformers 5 has written one."""
    is_untied = values.get(SCALED) is not None and HEAD in tensors
    return dataclasses.replace(config, tie_embeddings=config.tie_embeddings and not is_untied)


def describe(model) -> T5Config:
    """Return the config that builds a model."""
    if not isinstance(model, EncoderDecoder):
        raise ValueError(f"{model.name} is not an EncoderDecoder")
    block = model.decoder[0]
    return T5Config(
        embedding_dim=model.embedding.output_dim,
        num_encoder_layers=len(model.encoder),
        num_decoder_layers=len(model.decoder),
        **fields_of(block, "num_heads", "key_dim", "feed_forward_dim"),
        **fields_of(block.positions, "num_buckets", "max_distance"),
        activation=block.activation if isinstance(block.activation, str) else name_of(block.activation, ACTIVATIONS),
        epsilon=model.decoder_normalization.epsilon,
        tie_embeddings=model.head is None,
        scale_logits=model.logit_scale != 1,
        **fields_of(model, "dropout", "decoder_start_token_id"),
    )


def _stack(stack, *attentions):
    """Return the tensors of the encoder or the decoder, whose blocks have these attentions."""
    block, path = f"{stack}.block.{{n}}.layer.", f"{stack}_{{n}}/"
    bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    tensors = [
        Tensor(bias, (f"{stack}_0/self_attention/bucket_bias",)),
        *norm(f"{stack}.final_layer_norm", f"{stack}_normalization"),
    ]
    for n, attention in enumerate(attentions):
        tensors += norm(f"{block}{n}.layer_norm", f"{path}{attention}_normalization")
        name = f"{block}{n}.{ATTENTIONS[attention]}"
        tensors += linears(name, f"{path}{attention}", q="query", k="key", v="value", o="output")
    last, path = f"{block}{len(attentions)}", f"{path}feed_forward"
    gate = f"{path}/gate/kernel"
    return (
        *tensors,
        *norm(f"{last}.layer_norm", f"{path}_normalization"),
        *linear(f"{last}.DenseReluDense.wi", f"{path}/hidden", beside={gate: False}),
        *linear(f"{last}.DenseReluDense.wi_0", f"{path}/gate"),
        *linear(f"{last}.DenseReluDense.wi_1", f"{path}/hidden", beside={gate: True}),
        *linear(f"{last}.DenseReluDense.wo", f"{path}/output"),
    )


T5 = Family(
    model_type="t5",
    architectures=("T5ForConditionalGeneration", "T5WithLMHeadModel", "T5Model"),
    config=T5Config,
    settings=(
        same("d_model", "embedding_dim", 512),
        same("d_kv", "key_dim", 64),
        same("d_ff", "feed_forward_dim", 2048),
        same("num_heads", "num_heads", 8),
        same("num_layers", "num_encoder_layers", 6),
        Setting(
            {"num_decoder_layers": None},
            _read_decoder_layers,
            lambda config: {"num_decoder_layers": config.num_decoder_layers},
        ),
        same("relative_attention_num_buckets", "num_buckets", 32),
        same("relative_attention_max_distance", "max_distance", 128),
        choice("feed_forward_proj", "activation", "relu", ACTIVATION_NAMES),
        Setting({"dense_act_fn": None, "is_gated_act": None}, _check_activation, lambda config: {}),
        dropouts(dropout_rate=0.1),
        same("layer_norm_epsilon", "epsilon", 1e-6),
        same(TIED, "tie_embeddings", True),
        Setting({SCALED: None}, _read_scale, lambda config: {SCALED: config.scale_logits}, {"scale_logits": SCALED}),
        Setting(
            {"decoder_start_token_id": None},
            # by default the padding's, as in every published T5
            lambda values: {"decoder_start_token_id": values["decoder_start_token_id"] or 0},
            lambda config: {"decoder_start_token_id": config.decoder_start_token_id},
        ),
    ),
    constants={"is_encoder_decoder": True, "pad_token_id": 0},
    ignored=frozenset({"classifier_dropout", "initializer_factor", "n_positions", "output_past"}),
    tensors=(
        Tensor("shared.weight", ("embedding/embeddings",)),
        *_stack("encoder", "self_attention"),
        *_stack("decoder", "self_attention", "cross_attention"),
        *linear("lm_head", "head"),
    ),
    tied=dict.fromkeys(("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", HEAD), "shared.weight"),
    buffers=BUFFERS,
    renames=(),
    describe=describe,
    complete=complete,
)
