"""The models of `experiments.gpu`: those of a row, ours and of keras.layers, and nanoGPT's small Transformer.

Nothing here knows a backend. What Keras does on TensorFlow is in `benchmark_keras`, which needs it.
"""

import dataclasses

import keras

from experiments.benchmark_rows import Row
from keras_seq import layers, models
from keras_seq.models.assembly import build_language_model
from keras_seq.models.gpt2 import gelu_tanh

POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


@dataclasses.dataclass(frozen=True)
class Sizes:
    """nanoGPT's config/train_shakespeare_char.py: 10.65 million parameters, the positions not counted."""

    num_layers: int = 6
    num_heads: int = 6
    embedding_dim: int = 384
    context: int = 256
    batch_size: int = 64
    dropout: float = 0.2
    learning_rate: float = 1e-3
    least_learning_rate: float = 1e-4
    warmup_steps: int = 100
    weight_decay: float = 0.1
    beta_2: float = 0.99
    global_clipnorm: float = 1.0
    evaluate_every: int = 250
    crop_batches: int = 200
    """Batches of random crops of an evaluation, as nanoGPT's estimate_loss takes them."""


def nano_gpt(vocabulary_size, sizes: Sizes, precision):
    """GPT of `keras_seq.models` without a bias anywhere, in its layer normalisations neither: nanoGPT's."""
    dtype, width = POLICIES[precision], sizes.embedding_dim
    normal = keras.initializers.RandomNormal(stddev=0.02)
    residual = keras.initializers.RandomNormal(stddev=0.02 / (2 * sizes.num_layers) ** 0.5)
    blocks = [
        layers.LearnedPositions(sizes.context, normal, dtype=dtype, name="positions"),
        keras.layers.Dropout(sizes.dropout, dtype=dtype, name="embedding_dropout"),
    ]
    for n in range(sizes.num_layers):
        block = layers.TransformerBlock(
            num_heads=sizes.num_heads,
            feed_forward_dim=4 * width,
            causal=True,
            activation=gelu_tanh,
            dropout=sizes.dropout,
            use_bias=False,
            residual_initializer=residual.clone(),
            dtype=dtype,
            name=f"block_{n}",
        )
        blocks.append(block)
    blocks.append(keras.layers.LayerNormalization(epsilon=1e-5, center=False, dtype=dtype, name="normalization"))
    return build_language_model("gpt2", vocabulary_size, width, blocks, True, context_length=sizes.context, dtype=dtype)


def nano_gpt_optimizer(model, sizes: Sizes, steps):
    """AdamW as nanoGPT has it: decay of matrices only, warm-up, then a cosine down to the least rate at the end."""
    warmup = min(sizes.warmup_steps, steps // 2)
    schedule = keras.optimizers.schedules.CosineDecay(
        sizes.learning_rate / (warmup + 1),
        decay_steps=steps - warmup,
        alpha=sizes.least_learning_rate / sizes.learning_rate,
        warmup_target=sizes.learning_rate if warmup else None,
        warmup_steps=warmup,
    )
    optimizer = keras.optimizers.AdamW(
        schedule,
        weight_decay=sizes.weight_decay,
        beta_2=sizes.beta_2,
        epsilon=1e-8,
        global_clipnorm=sizes.global_clipnorm,
    )
    optimizer.exclude_from_weight_decay([v for v in model.trainable_variables if len(v.shape) < 2])
    optimizer.build(model.trainable_variables)
    return optimizer


def ours(row: Row):
    """The model of a row, of keras_seq."""
    if row.kind == "lstm":
        definition = models.LSTMConfig(embedding_dim=row.embedding_dim, units=row.units, num_layers=row.num_layers)
    else:
        definition = models.GPT2Config(
            embedding_dim=row.embedding_dim,
            num_layers=row.num_layers,
            num_heads=row.num_heads,
            feed_forward_dim=4 * row.embedding_dim,
            context_length=row.length,
        )
    return definition.build_model(row.vocabulary_size, dtype=POLICIES[row.precision])


def row_optimizer():
    """The optimizer of a row: AdamW, clipping to norm 1."""
    return keras.optimizers.AdamW(1e-3, weight_decay=0.0, global_clipnorm=1.0)


def keras_as_it_comes(row: Row):
    """The same of keras.layers, compiled as Keras does it when it is told nothing more."""
    dtype = POLICIES[row.precision]
    ids = keras.Input((row.length,), batch_size=row.batch_size, dtype="int32")
    lstm = row.kind == "lstm"
    embedding = (keras.layers.Embedding if lstm else keras.layers.ReversibleEmbedding)(
        row.vocabulary_size, row.embedding_dim, dtype=dtype
    )
    x = embedding(ids)
    if lstm:
        for _ in range(row.num_layers):
            x = keras.layers.LSTM(row.units, return_sequences=True, dtype=dtype)(x)
    else:
        positions = keras.layers.Embedding(row.length, row.embedding_dim, dtype=dtype)
        x = x + positions(0 * keras.ops.take(ids, [0], axis=0) + keras.ops.arange(row.length))  # [1, T, D]
        for _ in range(row.num_layers):
            x = _block(x, row, dtype)
        x = keras.layers.LayerNormalization(dtype=dtype)(x)
    logits = keras.layers.Dense(row.vocabulary_size, dtype=dtype)(x) if lstm else embedding(x, reverse=True)
    model = keras.Model(ids, keras.ops.cast(logits, "float32"))
    model.compile(row_optimizer(), keras.losses.SparseCategoricalCrossentropy(from_logits=True), auto_scale_loss=False)
    return model


def _block(x, row, dtype):
    """nanoGPT's block."""
    width, heads = row.embedding_dim, row.num_heads
    normal = keras.layers.LayerNormalization(dtype=dtype)(x)
    attends = keras.layers.MultiHeadAttention(heads, width // heads, dtype=dtype)
    x = x + attends(normal, normal, use_causal_mask=True)
    hidden = keras.layers.Dense(4 * width, dtype=dtype)(keras.layers.LayerNormalization(dtype=dtype)(x))
    return x + keras.layers.Dense(width, dtype=dtype)(keras.activations.gelu(hidden, approximate=True))
