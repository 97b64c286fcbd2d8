"""Build the models of `experiments.benchmark.gpu`: those of a case, and nanoGPT's small Transformer.

The code works on every backend; `benchmark_keras` has the models of a case for TensorFlow.
"""

import dataclasses

import keras

from experiments.benchmark.cases import Case
from keras_seq import layers, models
from keras_seq.models.gpt2 import gelu_tanh
from keras_seq.models.language_model import build_language_model

DTYPE_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


@dataclasses.dataclass(frozen=True)
class NanoGPTConfig:
    """Hyperparameters of nanoGPT's config/train_shakespeare_char.py: 10.65 million parameters without the positions."""

    num_layers: int = 6
    num_heads: int = 6
    embedding_dim: int = 384
    context_length: int = 256
    batch_size: int = 64
    dropout: float = 0.2
    learning_rate: float = 1e-3
    min_learning_rate: float = 1e-4
    warmup_steps: int = 100
    weight_decay: float = 0.1
    beta_2: float = 0.99
    global_clipnorm: float = 1.0
    validate_every: int = 250
    random_window_batches: int = 200
    """Number of batches of random windows in a validation, as in nanoGPT's estimate_loss."""


def build_nano_gpt(vocabulary_size: int, config: NanoGPTConfig, precision: str):
    """Build nanoGPT's Transformer: the GPT of `keras_seq.models` without biases, also in its layer normalizations.

    Args:
        vocabulary_size: Number of ids V.
        config: Hyperparameters.
        precision: `"float32"` or `"bfloat16"`, of activations and matmuls.
    """
    dtype, width = DTYPE_POLICIES[precision], config.embedding_dim
    normal = keras.initializers.RandomNormal(stddev=0.02)
    residual = keras.initializers.RandomNormal(stddev=0.02 / (2 * config.num_layers) ** 0.5)
    blocks = [
        layers.LearnedPositions(config.context_length, normal, dtype=dtype, name="positions"),
        keras.layers.Dropout(config.dropout, dtype=dtype, name="embedding_dropout"),
    ]
    for n in range(config.num_layers):
        block = layers.TransformerBlock(
            num_heads=config.num_heads,
            feed_forward_dim=4 * width,
            causal=True,
            activation=gelu_tanh,
            dropout=config.dropout,
            use_bias=False,
            residual_initializer=residual.clone(),
            dtype=dtype,
            name=f"block_{n}",
        )
        blocks.append(block)
    blocks.append(keras.layers.LayerNormalization(epsilon=1e-5, center=False, dtype=dtype, name="normalization"))
    return build_language_model(
        "gpt2", vocabulary_size, width, blocks, True, context_length=config.context_length, dtype=dtype
    )


def nano_gpt_optimizer(model, config: NanoGPTConfig, num_steps: int):
    """Build nanoGPT's AdamW: weight decay of matrices only, warm-up, then cosine decay to the minimum learning rate.

    Args:
        model: A built model.
        config: Hyperparameters.
        num_steps: Number of training steps.
    """
    warmup = min(config.warmup_steps, num_steps // 2)
    schedule = keras.optimizers.schedules.CosineDecay(
        config.learning_rate / (warmup + 1),
        decay_steps=num_steps - warmup,
        alpha=config.min_learning_rate / config.learning_rate,
        warmup_target=config.learning_rate if warmup else None,
        warmup_steps=warmup,
    )
    optimizer = keras.optimizers.AdamW(
        schedule,
        weight_decay=config.weight_decay,
        beta_2=config.beta_2,
        epsilon=1e-8,
        global_clipnorm=config.global_clipnorm,
    )
    optimizer.exclude_from_weight_decay([v for v in model.trainable_variables if len(v.shape) < 2])
    optimizer.build(model.trainable_variables)
    return optimizer


def keras_seq_model(case: Case):
    """Build the model of a case with keras_seq."""
    if case.kind == "lstm":
        model_config = models.LSTMConfig(embedding_dim=case.embedding_dim, units=case.units, num_layers=case.num_layers)
    else:
        model_config = models.GPT2Config(
            embedding_dim=case.embedding_dim,
            num_layers=case.num_layers,
            num_heads=case.num_heads,
            feed_forward_dim=4 * case.embedding_dim,
            context_length=case.sequence_length,
        )
    return model_config.build_model(case.vocabulary_size, dtype=DTYPE_POLICIES[case.precision])


def case_optimizer():
    """Build the optimizer of a case: AdamW that clips the global norm of the gradients to 1."""
    return keras.optimizers.AdamW(1e-3, weight_decay=0.0, global_clipnorm=1.0)


def keras_reference_model(case: Case):
    """Build the model of a case with keras.layers, and compile it with Keras's defaults."""
    dtype = DTYPE_POLICIES[case.precision]
    ids = keras.Input((case.sequence_length,), batch_size=case.batch_size, dtype="int32")
    lstm = case.kind == "lstm"
    embedding = (keras.layers.Embedding if lstm else keras.layers.ReversibleEmbedding)(
        case.vocabulary_size, case.embedding_dim, dtype=dtype
    )
    x = embedding(ids)
    if lstm:
        for _ in range(case.num_layers):
            x = keras.layers.LSTM(case.units, return_sequences=True, dtype=dtype)(x)
    else:
        positions = keras.layers.Embedding(case.sequence_length, case.embedding_dim, dtype=dtype)
        x = x + positions(0 * keras.ops.take(ids, [0], axis=0) + keras.ops.arange(case.sequence_length))  # [1, T, D]
        for _ in range(case.num_layers):
            x = _block(x, case, dtype)
        x = keras.layers.LayerNormalization(dtype=dtype)(x)
    logits = keras.layers.Dense(case.vocabulary_size, dtype=dtype)(x) if lstm else embedding(x, reverse=True)
    model = keras.Model(ids, keras.ops.cast(logits, "float32"))
    model.compile(case_optimizer(), keras.losses.SparseCategoricalCrossentropy(from_logits=True), auto_scale_loss=False)
    return model


def _block(x, case, dtype):
    """Apply the Transformer block of nanoGPT."""
    width, heads = case.embedding_dim, case.num_heads
    normal = keras.layers.LayerNormalization(dtype=dtype)(x)
    attends = keras.layers.MultiHeadAttention(heads, width // heads, dtype=dtype)
    x = x + attends(normal, normal, use_causal_mask=True)
    hidden = keras.layers.Dense(4 * width, dtype=dtype)(keras.layers.LayerNormalization(dtype=dtype)(x))
    return x + keras.layers.Dense(width, dtype=dtype)(keras.activations.gelu(hidden, approximate=True))
