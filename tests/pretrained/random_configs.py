"""Configs of transformers that differ in what a converter may get wrong, and models of them with random weights."""

import copy

import torch
import transformers

ROPE = {
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5},
    "llama3": {
        **{"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "original_max_position_embeddings": 16},
        **{"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    },
    "yarn": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 12},
}
GPT2 = {"vocab_size": 41, "n_positions": 96, "n_embd": 24, "n_layer": 2, "n_head": 3}
LLAMA = {
    **{"vocab_size": 41, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"intermediate_size": 37, "max_position_embeddings": 96, "attention_dropout": 0.0},
}
KEYS = {  # of LLAMA, with other values
    **{"tie_word_embeddings": True, "num_key_value_heads": 1, "rms_norm_eps": 0.05, "vocab_size": 7},
    "rope_parameters": {"rope_type": "default", "rope_theta": 77.0},
}
BERT = {
    **{"vocab_size": 41, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3},
    **{"intermediate_size": 37, "max_position_embeddings": 32},
}
MODERNBERT = {
    **{"vocab_size": 41, "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 20},
    **{"max_position_embeddings": 32, "local_attention": 8, "pad_token_id": 9},
}
MAMBA = {"vocab_size": 41, "hidden_size": 24, "num_hidden_layers": 2, "state_size": 5}
MAMBA2 = {
    **{"vocab_size": 41, "hidden_size": 24, "num_hidden_layers": 2, "state_size": 5, "num_heads": 6, "head_dim": 8},
    **{"n_groups": 1},
}
GEMMA = {
    **{"vocab_size": 41, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3},
    **{"intermediate_size": 38, "attention_window_size": 5},
}
T5 = {
    **{"vocab_size": 41, "d_model": 24, "d_kv": 5, "d_ff": 37, "num_layers": 2, "num_heads": 3},
    **{"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "decoder_start_token_id": 0},
}
T5_1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
QWEN3_5 = {
    **{"vocab_size": 41, "hidden_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16},
    **{"num_key_value_heads": 2, "intermediate_size": 37, "max_position_embeddings": 96, "linear_num_key_heads": 2},
    **{"linear_num_value_heads": 6, "linear_key_head_dim": 7, "linear_value_head_dim": 5},
    "rms_norm_eps": 1e-3,  # 1e-6 makes much of the rounding of outputs near 0, in transformers as here
}
QWEN3_NEXT = QWEN3_5 | {"num_experts": 0}
LINEAR, FULL = "linear_attention", "full_attention"
VARIANTS = {  # of both
    "": {},
    "-tied": {
        **{"tie_word_embeddings": True, "vocab_size": 7, "num_hidden_layers": 3},
        "layer_types": [LINEAR, LINEAR, FULL],
    },
    "-biases": {
        **{"attention_bias": True, "num_key_value_heads": 1, "num_hidden_layers": 2},
        "layer_types": [FULL, LINEAR],
    },
    "-heads": {
        **{"linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_conv_kernel_dim": 2, "rms_norm_eps": 0.03},
        **{"num_hidden_layers": 2, "layer_types": [LINEAR, FULL]},
    },
    "-rotation": {
        "rope_parameters": {"rope_type": "default", "rope_theta": 77.0, "partial_rotary_factor": 0.5},
        **{"num_hidden_layers": 2, "layer_types": [LINEAR, FULL], "rms_norm_eps": 1e-6},
    },
    "-yarn": {"rope_parameters": ROPE["yarn"], "num_hidden_layers": 2, "layer_types": [FULL, LINEAR], "head_dim": 8},
}
CONFIGS = {
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt2-inner": ("GPT2LMHeadModel", GPT2 | {"n_inner": 13, "activation_function": "gelu"}),
    "gpt2-epsilon": ("GPT2LMHeadModel", GPT2 | {"layer_norm_epsilon": 0.1, "n_layer": 3}),
    "gpt2-untied": ("GPT2LMHeadModel", GPT2 | {"tie_word_embeddings": False, "n_head": 1}),
    "gpt2-relu": ("GPT2LMHeadModel", GPT2 | {"activation_function": "relu", "vocab_size": 7}),
    "gpt2-wide": ("GPT2LMHeadModel", GPT2 | {"n_embd": 40, "n_head": 4, "n_layer": 1, "activation_function": "silu"}),
    "llama": ("LlamaForCausalLM", LLAMA),
    "llama-gqa": ("LlamaForCausalLM", LLAMA | {"num_key_value_heads": 2, "rms_norm_eps": 0.03}),
    "llama-mqa-tied": ("LlamaForCausalLM", LLAMA | {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "llama-biases": ("LlamaForCausalLM", LLAMA | {"attention_bias": True, "mlp_bias": True}),
    "llama-base": ("LlamaForCausalLM", LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 123.0}}),
    "llama-llama3": ("LlamaForCausalLM", LLAMA | {"rope_parameters": ROPE["llama3"], "head_dim": 10}),
    "llama-yarn": ("LlamaForCausalLM", LLAMA | {"rope_parameters": ROPE["yarn"], "vocab_size": 7}),
    "llama-linear": ("LlamaForCausalLM", LLAMA | {"rope_parameters": ROPE["linear"], "hidden_act": "gelu"}),
    "mistral": ("MistralForCausalLM", LLAMA | {"num_key_value_heads": 2, "sliding_window": 5, "head_dim": 8}),
    "mistral-full": ("MistralForCausalLM", LLAMA | {"num_key_value_heads": 4, "sliding_window": None}),
    "mistral-keys": ("MistralForCausalLM", LLAMA | KEYS | {"hidden_act": "gelu", "head_dim": 4, "sliding_window": 30}),
    "qwen2": ("Qwen2ForCausalLM", LLAMA | {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "qwen2-windows": (
        "Qwen2ForCausalLM",
        LLAMA | {"num_key_value_heads": 4, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    ),
    "qwen2-keys": ("Qwen2ForCausalLM", LLAMA | KEYS),
    "qwen2-yarn": ("Qwen2ForCausalLM", LLAMA | {"rope_parameters": ROPE["yarn"], "num_key_value_heads": 2}),
    "qwen3": ("Qwen3ForCausalLM", LLAMA | {"num_key_value_heads": 2, "head_dim": 10, "rms_norm_eps": 0.02}),
    "qwen3-biases": ("Qwen3ForCausalLM", LLAMA | {"num_key_value_heads": 1, "head_dim": 6, "attention_bias": True}),
    "qwen3-windows": (
        "Qwen3ForCausalLM",
        LLAMA
        | {"head_dim": 4, "num_key_value_heads": 2}
        | {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 0},
    ),
    "qwen3-keys": ("Qwen3ForCausalLM", LLAMA | KEYS | {"num_hidden_layers": 3, "head_dim": 6}),
    **{f"qwen3_5{name}": ("Qwen3_5ForCausalLM", QWEN3_5 | changes) for name, changes in VARIANTS.items()},
    **{f"qwen3_next{name}": ("Qwen3NextForCausalLM", QWEN3_NEXT | changes) for name, changes in VARIANTS.items()},
    "qwen3_next-heads": (
        "Qwen3NextForCausalLM",
        QWEN3_NEXT | VARIANTS["-heads"] | {"num_experts": 4, "mlp_only_layers": [0], "decoder_sparse_step": 3},
    ),
    "mamba": ("MambaForCausalLM", MAMBA),
    "mamba-untied": ("MambaForCausalLM", MAMBA | {"tie_word_embeddings": False, "vocab_size": 7}),
    "mamba-biases": ("MambaForCausalLM", MAMBA | {"use_bias": True}),
    "mamba-rank": ("MambaForCausalLM", MAMBA | {"time_step_rank": 3, "layer_norm_epsilon": 0.03}),
    "mamba-wide": ("MambaForCausalLM", MAMBA | {"expand": 3, "conv_kernel": 2, "num_hidden_layers": 1}),
    "mamba-kernel": ("MambaForCausalLM", MAMBA | {"conv_kernel": 5, "state_size": 1, "hidden_size": 17}),
    "mamba2": ("Mamba2ForCausalLM", MAMBA2 | {"n_groups": 2}),
    "mamba2-tied": ("Mamba2ForCausalLM", MAMBA2 | {"tie_word_embeddings": True, "vocab_size": 7}),
    "mamba2-biases": ("Mamba2ForCausalLM", MAMBA2 | {"use_bias": True}),
    "mamba2-epsilon": ("Mamba2ForCausalLM", MAMBA2 | {"layer_norm_epsilon": 0.03, "n_groups": 3}),
    "mamba2-wide": ("Mamba2ForCausalLM", MAMBA2 | {"expand": 3, "num_heads": 4, "head_dim": 18, "state_size": 1}),
    "mamba2-kernel": ("Mamba2ForCausalLM", MAMBA2 | {"conv_kernel": 2, "num_hidden_layers": 1}),
    "gemma": ("RecurrentGemmaForCausalLM", GEMMA),
    "gemma-mqa": ("RecurrentGemmaForCausalLM", GEMMA | {"num_key_value_heads": 1, "num_hidden_layers": 4}),
    "gemma-biases": ("RecurrentGemmaForCausalLM", GEMMA | {"attention_bias": True, "logits_soft_cap": 2.5}),
    "gemma-lru": (
        "RecurrentGemmaForCausalLM",
        GEMMA | {"lru_width": 18, "conv1d_width": 3, "vocab_size": 7, "rms_norm_eps": 0.02},
    ),
    "gemma-pattern": (
        "RecurrentGemmaForCausalLM",
        GEMMA | {"block_types": ["attention", "recurrent"], "attention_window_size": 100},
    ),
    "gemma-rotation": (
        "RecurrentGemmaForCausalLM",
        GEMMA
        | {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0, "partial_rotary_factor": 1.0}}
        | {"block_types": ["attention"], "num_hidden_layers": 2},
    ),
    "bert-masked-lm": ("BertForMaskedLM", BERT),
    "bert-epsilon": ("BertForMaskedLM", BERT | {"layer_norm_eps": 0.1, "hidden_act": "gelu_new"}),
    "bert-heads": ("BertForMaskedLM", BERT | {"num_attention_heads": 1, "num_hidden_layers": 1, "hidden_act": "relu"}),
    "bert-encoder": ("BertModel", BERT),
    "bert-segments": ("BertModel", BERT | {"type_vocab_size": 3, "vocab_size": 7, "num_hidden_layers": 3}),
    "bert-pretraining": ("BertForPreTraining", BERT | {"hidden_size": 30}),
    "modernbert": ("ModernBertForMaskedLM", MODERNBERT),
    "modernbert-biases": (
        "ModernBertForMaskedLM",
        MODERNBERT | {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "norm_eps": 0.03},
    ),
    "modernbert-encoder": ("ModernBertModel", MODERNBERT | {"pad_token_id": 0, "hidden_activation": "silu"}),
    "modernbert-bases": (
        "ModernBertForMaskedLM",
        MODERNBERT
        | {"global_attn_every_n_layers": 2, "local_attention": 5, "num_attention_heads": 2, "mlp_bias": True}
        | {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 77.0}}},
    ),
    "modernbert-global": (
        "ModernBertForMaskedLM",
        MODERNBERT | {"layer_types": ["full_attention"] * 2, "num_hidden_layers": 2, "vocab_size": 12},
    ),
    "modernbert-scaled": (
        "ModernBertModel",
        MODERNBERT
        | {"layer_types": ["full_attention", *["sliding_attention"] * 3], "norm_bias": True, "local_attention": 2}
        | {"rope_parameters": {"full_attention": ROPE["yarn"], "sliding_attention": ROPE["linear"]}},
    ),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5-1.1": ("T5ForConditionalGeneration", T5 | T5_1_1 | {"num_decoder_layers": 3}),
    "t5-unscaled": (  # a head that is tied and not scaled, which only transformers 5 has
        "T5ForConditionalGeneration",
        T5 | {"scale_decoder_outputs": False, "feed_forward_proj": "gated-silu", "vocab_size": 7},
    ),
    "t5-buckets": (
        "T5ForConditionalGeneration",
        T5 | T5_1_1 | {"relative_attention_num_buckets": 33, "relative_attention_max_distance": 128, "num_layers": 1},
    ),
    "t5-heads": ("T5ForConditionalGeneration", T5 | {"num_heads": 1, "d_kv": 16, "feed_forward_proj": "gelu_new"}),
    "t5-epsilon": (
        "T5ForConditionalGeneration",
        T5 | {"layer_norm_epsilon": 0.05, "num_decoder_layers": 1, "decoder_start_token_id": 3},
    ),
}
OFTEN = {"gpt2", "gpt2-untied", "llama-gqa", "llama-biases", "llama-llama3", "llama-yarn", "llama-linear", "mistral"}
OFTEN |= {"mistral-full", "qwen2-windows", "qwen3-biases", "mamba-rank", "mamba2", "gemma", "gemma-lru"}
OFTEN |= {"qwen3_5", "qwen3_5-biases", "qwen3_next", "t5", "t5-1.1"}
OFTEN |= {name for name in CONFIGS if name.startswith(("bert-", "modernbert"))}
"""The others are like one of these but for a number or a key; their tests are rare."""


def random_model(class_name: str, options: dict, seed: int = 0):
    """Return a model of transformers with all weights drawn, scales and biases too: their defaults hide mistakes."""
    model_class = getattr(transformers, class_name)
    options = {"bos_token_id": None, "eos_token_id": None} | copy.deepcopy(options)  # which a config may change
    model = model_class(model_class.config_class(**options))
    if class_name.startswith("T5") and options.get("tie_word_embeddings") is False:  # transformers 5 ties all the same
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_scale = parameter.dim() == 1 and name.endswith("weight")
            parameter.copy_(1 + 0.3 * noise if is_scale else 0.15 * noise)
    return model.eval()
