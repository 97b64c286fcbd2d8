"""GPT-2 (Radford et al., 2019): `GPT2LMHeadModel`. Its matrices lie as Keras's do, [in, out]."""

from keras_seq.models.families.transformer import ACTIVATIONS, GPT2Config
from keras_seq.pretrained.family import AS_IT_IS, Family, Setting, Tensor, choice, dropouts, linear, norm, same
from keras_seq.pretrained.tensor_table import blocks_of, fields_of, name_of

ACTIVATION_NAMES = {
    **{"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu"},
    **{"silu": "silu", "swish": "silu"},
}
IGNORED = "n_ctx summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout"
H, B, A = "transformer.h.{n}.", "block_{n}/", "block_{n}/self_attention/"


def describe(model) -> GPT2Config:
    """Return the config that builds a model."""
    blocks, others = blocks_of(model)
    positions, normalization = others[0], others[-1]
    return GPT2Config(
        embedding_dim=model.embedding.output_dim,
        num_layers=len(blocks),
        context_length=positions.length,
        **fields_of(blocks[0], "num_heads", "feed_forward_dim", "dropout", "use_bias"),
        activation=name_of(blocks[0].activation, ACTIVATIONS),
        epsilon=normalization.epsilon,
        tie_embeddings=model.head is None,
    )


GPT2 = Family(
    model_type="gpt2",
    architectures=("GPT2LMHeadModel", "GPT2Model"),
    config=GPT2Config,
    settings=(
        same("n_embd", "embedding_dim", 768),
        same("n_layer", "num_layers", 12),
        same("n_head", "num_heads", 12),
        Setting(
            {"n_inner": None},
            lambda values: {"feed_forward_dim": values["n_inner"] or 4 * values["n_embd"]},
            lambda config: {"n_inner": config.feed_forward_dim},
            {"feed_forward_dim": "n_inner"},
        ),
        same("n_positions", "context_length", 1024),
        choice("activation_function", "activation", "gelu_new", ACTIVATION_NAMES),
        same("layer_norm_epsilon", "epsilon", 1e-5),
        same("tie_word_embeddings", "tie_embeddings", True),
        dropouts(resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1),
    ),
    constants={
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
    },
    ignored=frozenset(IGNORED.split()),
    tensors=(
        Tensor("transformer.wte.weight", ("embedding/embeddings",)),
        Tensor("transformer.wpe.weight", ("positions/embeddings",)),
        *norm(f"{H}ln_1", f"{B}self_attention_normalization"),
        *linear(f"{H}attn.c_attn", f"{A}query", f"{A}key", f"{A}value", layout=AS_IT_IS),
        *linear(f"{H}attn.c_proj", f"{A}output", layout=AS_IT_IS),
        *norm(f"{H}ln_2", f"{B}feed_forward_normalization"),
        *linear(f"{H}mlp.c_fc", f"{B}feed_forward/hidden", layout=AS_IT_IS),
        *linear(f"{H}mlp.c_proj", f"{B}feed_forward/output", layout=AS_IT_IS),
        *norm("transformer.ln_f", "normalization"),
        *linear("lm_head", "head"),
    ),
    tied={"lm_head.weight": "transformer.wte.weight"},
    buffers=r"transformer\.h\.\d+\.attn\.(masked_)?bias",
    renames=((r"^(?!transformer\.|lm_head\.)", "transformer."),),
    describe=describe,
    eos_token_id=50_256,
)
